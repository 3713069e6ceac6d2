//! The report of a replay.

use crate::analysis::{Class, Report};
use crate::replay::closed::Views;
use crate::replay::order::Verified;
use crate::report::html::{Cell, Key, Page, Table};
use crate::report::waits;
use crate::units::format_time;

/// The longest wait that a task may sleep for.
fn worst(report: &Report) -> Option<&crate::analysis::Victim> {
    let awaited = Class::ALL.iter().filter(|c| c.is_awaited());
    awaited.filter_map(|c| report.worst.get(c.index())?.as_ref()).max_by_key(|v| v.wait)
}

/// The page of a replay: `rows` are the recording and each scheduler, `busy` the load that [`Views::busy`] counts.
#[must_use]
pub fn render(name: &str, about: &str, rows: &[(String, Views)], busy: u32, notes: &[String]) -> String {
    let wait = |row: &&(String, Views)| worst(&row.1.all).map_or(0, |v| v.wait);
    let replayed = rows.get(1..).unwrap_or(&[]);
    let finding = match (rows.first(), replayed.iter().min_by_key(wait)) {
        (Some(recorded), Some(best)) => format!(
            "Recorded: the longest wait that matters was {}; under {} it would have been {}",
            format_time(wait(&recorded)),
            best.0,
            format_time(wait(&best))
        ),
        _ => String::new(),
    };
    let mut page = Page::new("replay", &format!("{name}, done again"), &finding, about);
    let keys: Vec<Key> = rows
        .iter()
        .map(|(name, v)| Key {
            bad: !v.all.hung.is_empty(),
            ..Key::new(
                name.replace(':', " "),
                worst(&v.all).map_or_else(|| "–".into(), |v| format_time(v.wait)),
                format!("longest wait; {:.2} MB/s while busy", v.busy_rate() / 1e6),
            )
        })
        .collect();
    page.keys(&keys);
    page.section("Side by side");
    let mut table = Table::new(
        "The whole run under each scheduler",
        [
            Cell::from("scheduler"),
            "MB/s".into(),
            "MB/s while busy".into(),
            "time".into(),
            "most requests".into(),
            "hung over 10 s".into(),
            Cell::words("longest wait that a task may sleep for"),
        ],
    );
    for (name, v) in rows {
        let longest = worst(&v.all).map_or_else(
            || "–".to_owned(),
            |w| {
                format!(
                    "{}: {} by {}, {} went first",
                    format_time(w.wait),
                    w.class.noun(),
                    w.task,
                    w.ahead.requests
                )
            },
        );
        let hung = v.all.hung.len().to_string();
        let cells: Vec<Cell> = vec![
            format!("{:.2}", v.rate() / 1e6).into(),
            format!("{:.2}", v.busy_rate() / 1e6).into(),
            format!("{:.1} s", v.seconds()).into(),
            v.all.queue_depth_max.to_string().into(),
            if v.all.hung.is_empty() { hung.into() } else { Cell::bad(hung) },
            Cell::words(longest),
        ];
        table.row(name.clone(), cells);
    }
    page.table(&table);
    let load = match busy {
        0 => "Waits of all bios".to_owned(),
        busy => format!("Waits of bios queued while {busy} or more requests were outstanding"),
    };
    page.section("How long each kind waits");
    page.aside(&format!("{load}."));
    let runs = || rows.iter().map(|(name, views)| (name.as_str(), &views.busy));
    super::distributions(&mut page, runs());
    page.folded("All latencies in one table", &super::latencies(&load, runs()));
    for (name, views) in rows {
        let Some(record) = &views.all.record else { continue };
        page.section(&format!("Over time: {name}"));
        if let Some((picture, numbers)) = worst(&views.all).and_then(|v| waits::longest(record, v.class)) {
            page.picture(&picture, &numbers);
        }
        let (picture, numbers) = waits::heat(&format!("All waits over time, {name}"), &views.all, record);
        page.picture(&picture, &numbers);
        let (picture, numbers) =
            waits::overview(&format!("The card and the queue, {name}"), &views.all, record);
        page.picture(&picture, &numbers);
    }
    super::notes(&mut page, notes);
    page.finish()
}

/// The page of `--verify-order`: `told` is what the command prints.
#[must_use]
pub fn order(name: &str, told: &str, v: &Verified) -> String {
    let share = 100.0 * v.same as f64 / v.issued.max(1) as f64;
    let finding = format!("{} of {} issues at the same place ({share:.2} %)", v.same, v.issued);
    let (about, more) = told.split_once('\n').unwrap_or((told, ""));
    let mut page = Page::new(
        "replay --verify-order",
        &format!("Does our mq-deadline issue what {name} issued?"),
        &finding,
        about,
    );
    page.keys(&[
        Key::new("Same place", format!("{share:.2} %"), format!("{} of {}", v.same, v.issued)),
        Key::new("Insertions fed", v.inserted.to_string(), format!("and {} merges", v.merged)),
        Key::new("Taken otherwise", v.taken_otherwise.to_string(), "by ours than by the kernel"),
        Key::new("Requeue lines", v.requeued.to_string(), "in the trace"),
    ]);
    page.section(if v.first.is_some() { "The first difference" } else { "In words" });
    if let Some(d) = &v.first {
        let mut table = Table::new("The first issue that differs", ["issue", "at", "the kernel", "ours"]);
        let ours = d.ours.map_or_else(|| "nothing".to_owned(), |o| o.to_string());
        table.row(d.number.to_string(), [format!("{:.6} s", d.at as f64 / 1e9), d.kernel.to_string(), ours]);
        page.table(&table);
        page.text(&format!("Why: {}.", d.why));
    }
    page.lines("What the command prints", more, false);
    page.finish()
}
