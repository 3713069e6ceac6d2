//! The report of the main job.

use crate::analysis::Class;
use crate::experiment::Outcome;
use crate::report::html::{Cell, Key, Page, Table};
use crate::report::json::row;
use crate::report::picture::timeline;
use crate::report::text::{beside, closed_form, hung_line};
use crate::report::waits;
use crate::units::{format_size, format_time};
use crate::workload::bonnie::PHASES;

/// Hung-task reports shown of each policy before the rest is folded away.
const SHOWN: usize = 3;

/// The page.
#[must_use]
pub fn render(outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first() else { return String::new() };
    let b = &first.config.board;
    let about = format!(
        "Board {}: {} of RAM, {} scheduler tags, requests up to {}. Card {}. bonnie++ with a file of {}. Host {}, seed {}. \
         Simulated in virtual time, through a real scheduler, the card protocol and a driver.",
        b.name,
        format_size(b.ram),
        b.nr_requests,
        format_size(u64::from(b.max_sectors) * 512),
        first.config.card,
        format_size(b.size),
        first.config.host.name(),
        first.config.seed
    );
    let mut page = Page::new("bonnie", &format!("bonnie++ on {}", b.name), &headline(outcomes), &about);
    let keys: Vec<Key> = outcomes
        .iter()
        .map(|o| Key {
            label: o.policy.label().replace(':', " "),
            value: worst(o, Class::Journal).map_or_else(|| "–".into(), format_time),
            note: match o.hung.len() {
                0 => "longest journal wait; no hung task".into(),
                1 => "longest journal wait; 1 hung-task report".into(),
                n => format!("longest journal wait; {n} hung-task reports"),
            },
            bad: !o.hung.is_empty(),
        })
        .collect();
    page.keys(&keys);
    page.section("Side by side");
    page.table(&table(outcomes));
    page.section("The longest journal wait");
    let (picture, numbers) = timeline(outcomes);
    page.picture(&picture, &numbers);
    page.section("How long each kind waits");
    let runs: Vec<(String, &crate::analysis::Report)> =
        outcomes.iter().map(|o| (o.policy.label(), &o.all)).collect();
    super::distributions(&mut page, runs.iter().map(|(name, report)| (name.as_str(), *report)));
    page.folded(
        "All latencies in one table",
        &super::latencies(
            "Waits of all bios by class and scheduler",
            runs.iter().map(|(n, r)| (n.as_str(), *r)),
        ),
    );
    for (i, o) in outcomes.iter().enumerate() {
        page.section(&format!("Run {}: {}", i + 1, o.policy.label()));
        page.text(&format!("{}.", capital(&closed_form(o))));
        for met in &o.beside {
            page.text(&format!("{}.", capital(&beside(met))));
        }
        if o.hung.is_empty() {
            page.text(&format!("No task slept {} or more.", format_time(b.hung.as_nanos())));
        } else {
            page.heading("Hung-task reports");
            let mut hung: Vec<_> = o.hung.iter().collect();
            hung.sort_by_key(|h| std::cmp::Reverse(h.slept));
            page.list(&hung.into_iter().map(hung_line).collect::<Vec<_>>(), SHOWN);
        }
        if let Some(record) = &o.all.record {
            let (picture, numbers) =
                waits::heat(&format!("Waits over time under {}", o.policy.label()), &o.all, record);
            page.picture(&picture, &numbers);
            let (picture, numbers) = waits::overview(
                &format!("The card and the queue under {}", o.policy.label()),
                &o.all,
                record,
            );
            page.picture(&picture, &numbers);
        }
        let lines = format!("{}\n{}", row(o).v1_03(), row(o).v2());
        page.lines(&format!("Rows of bonnie++ 1.03 and 2.x, {}", o.policy.label()), &lines, true);
    }
    page.finish()
}

fn worst(o: &Outcome, class: Class) -> Option<u64> {
    o.all.worst.get(class.index())?.as_ref().map(|v| v.wait)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().collect::<String>() + chars.as_str())
}

/// The finding in one sentence.
fn headline(outcomes: &[Outcome]) -> String {
    let wait = |o: &&Outcome| worst(o, Class::Journal).unwrap_or(0);
    let (Some(slow), Some(fast)) = (outcomes.iter().max_by_key(wait), outcomes.iter().min_by_key(wait))
    else {
        return String::new();
    };
    let one = format!("Under {} a journal write waits {}", slow.policy.label(), format_time(wait(&slow)));
    if outcomes.len() > 1 {
        format!("{one}; under {} {} at most", fast.policy.label(), format_time(wait(&fast)))
    } else {
        one
    }
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut heads = vec!["figure".to_owned()];
    heads.extend(outcomes.iter().map(|o| o.policy.label().replace(':', " ")));
    let mut table = Table::new("All schedulers on the same board and card", heads);
    let mut line = |name: &str, cell: &dyn Fn(&Outcome) -> Option<Cell>| {
        let cells: Vec<Option<Cell>> = outcomes.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            table.row(name, cells.into_iter().map(|c| c.unwrap_or_else(|| "–".into())));
        }
    };
    line("hung-task reports", &|o| {
        let n = o.hung.len().to_string();
        Some(if o.hung.is_empty() { n.into() } else { Cell::bad(n) })
    });
    for (class, name) in [
        (Class::Journal, "worst journal write"),
        (Class::SyncWrites, "worst sync write"),
        (Class::Reads, "worst read"),
    ] {
        line(name, &|o| worst(o, class).map(|ns| format_time(ns).into()));
    }
    let busy = |p: fn(&crate::analysis::ClassStats) -> Option<u64>| {
        move |o: &Outcome| p(&o.busy.classes.journal).map(|ns| format_time(ns).into())
    };
    line("journal p50, 16 or more queued", &busy(|c| c.p50));
    line("journal p99, 16 or more queued", &busy(|c| c.p99));
    line("worst journal commit", &|o| o.commits.max.map(|ns| format_time(ns).into()));
    line("greatest backlog to write, at the card's pace", &|o| {
        Some(format_time(o.backlog.1.as_nanos()).into())
    });
    for (i, name) in PHASES.iter().enumerate() {
        let unit = match i {
            0..=4 => "KiB/s",
            5 => "seeks/s",
            _ => "files/s",
        };
        line(&format!("{name}, {unit}"), &|o| {
            o.phases[i].as_ref().map(|p| format!("{:.0}", p.rate()).into())
        });
    }
    line("all writes, MB/s", &|o| {
        Some(format!("{:.2}", o.totals.written as f64 / 1e3 / o.elapsed.as_millis().max(1) as f64).into())
    });
    table
}
