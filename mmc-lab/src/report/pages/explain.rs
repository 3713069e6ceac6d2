//! The report of a trace.

use crate::analysis::{Class, Victim};
use crate::blame::verdict;
use crate::cli::explain::{COMMAND_HEADS, Explanation, command_rows, longest_waits, stamp, went_first};
use crate::report::html::{Cell, Key, Page, Table};
use crate::report::waits;
use crate::units::{format_size, format_time};
use std::path::Path;

/// Waits in the picture and the table of the longest.
const SHOWN: usize = 12;
/// Tasks that are shown before the rest is folded away.
const TASKS: usize = 12;
/// Sleeps that are shown before the rest is folded away.
const SLEEPS: usize = 5;

/// The page.
#[must_use]
pub fn render(found: &Explanation, file: &Path) -> String {
    let Explanation { dev: (major, minor), options, events, report, blocked, commands, notes } = found;
    let took = report.last.saturating_sub(report.first);
    let about = format!(
        "{}: {events} block events of device {major},{minor} in {}: {} requests of {} tasks, {} read, {} written.",
        crate::output::short(file),
        format_time(took),
        report.requests,
        report.tasks,
        format_size(report.read_bytes),
        format_size(report.written_bytes),
    );
    let title = format!("Who waited for whom in {}", crate::output::short(file));
    let mut page = Page::new("explain", &title, &headline(found), &about);
    page.keys(&keys(found));
    page.section("Verdict");
    page.text(&verdict(report, options.hung, Some(found.dev)));
    let record = report.record.as_ref();
    if let Some((picture, numbers)) = record.zip(subject(found)).and_then(|(r, v)| waits::longest(r, v.class))
    {
        page.picture(&picture, &numbers);
    }
    page.section("The longest waits");
    let top = options.threshold.is_none().then_some(options.top);
    let shown: Vec<&Victim> = longest_waits(&report.victims, top).into_iter().take(SHOWN).collect();
    if shown.is_empty() {
        page.text("No wait is that long.");
    } else {
        let (picture, numbers) = waits::anatomy(&shown);
        page.picture(&picture, &numbers);
        if report.victims.len() > shown.len() {
            page.aside(&format!(
                "{} more waits of the kind that was asked for are in the output of --json, many of them of the same bios.",
                report.victims.len() - shown.len()
            ));
        }
    }
    if !report.hung.is_empty() {
        page.section(&format!("Tasks that slept {} or more", format_time(options.hung)));
        let line = |one: &crate::analysis::Hung| {
            format!(
                "{} slept {} without a break, until {}, for a {}. {}.",
                one.task,
                format_time(one.slept),
                stamp(one.until),
                one.waits_for,
                went_first(&one.ahead)
            )
        };
        page.list(&report.hung.iter().map(line).collect::<Vec<_>>(), SLEEPS);
    }
    if let Some(blocked) = blocked {
        page.section("Hung-task lines of the kernel");
        let mut table = Table::new(
            "Each line of the kernel's log, and what waited in the trace at that moment",
            ["task (process)".into(), "at".into(), Cell::from("longer than"), Cell::words("what waited")],
        );
        for one in blocked {
            let what = one.while_waiting.as_deref().unwrap_or("nothing in this trace waited then");
            let cells = [stamp(one.at).into(), format!("{} s", one.seconds).into(), Cell::words(what)];
            table.row(format!("{} ({})", one.task, one.pid), cells);
        }
        page.table(&table);
    }
    page.section("Latency by class");
    let what = if report.per_bio { "bios" } else { "requests" };
    let when = match options.busy {
        0 => String::new(),
        busy => format!(" queued while {busy} or more requests were outstanding"),
    };
    page.table(&super::latencies(&format!("Waits of {what}{when}"), [("", report)].into_iter()));
    let (picture, numbers) =
        waits::distribution(&format!("How long {what}{when} wait"), &waits::by_class(report), false);
    page.picture(&picture, &numbers);
    if let Some(record) = record {
        page.section("Over time");
        let (picture, numbers) = waits::heat(&format!("Waits of {what} over time"), report, record);
        page.picture(&picture, &numbers);
        let (picture, numbers) = waits::overview("The card and the queue", report, record);
        page.picture(&picture, &numbers);
    }
    page.section("Latency by task");
    let table = |caption: &str, tasks: &[crate::analysis::TaskStats]| {
        let mut table = Table::new(caption, waits::heads("task (process)"));
        for task in tasks {
            table.row(format!("{} ({})", task.name, task.pid), waits::cells(&task.stats));
        }
        table
    };
    let (first, more) = report.by_task.split_at(TASKS.min(report.by_task.len()));
    page.table(&table("Who waited most in all comes first", first));
    if !more.is_empty() {
        page.folded(&format!("{} more tasks", more.len()), &table("The other tasks", more));
    }
    if report.service.iter().any(|o| o.rows().next().is_some()) {
        page.section("Service time at the card");
        let (picture, numbers) = waits::service("How long the card took for a command", &report.service);
        page.picture(&picture, &numbers);
    }
    if let Some(commands) = commands {
        page.section(&format!("Commands at {}", commands.host));
        let mut table =
            Table::new("What took most time in all comes first", COMMAND_HEADS.map(str::to_owned));
        for [name, rest @ ..] in command_rows(commands) {
            table.row(name, rest);
        }
        page.table(&table);
    }
    super::notes(&mut page, notes);
    page.finish()
}

/// The longest wait that somebody may have slept for, or else of all.
fn worst(found: &Explanation) -> Option<&Victim> {
    let of = |awaited: bool| {
        Class::ALL
            .iter()
            .filter(|c| c.is_awaited() == awaited)
            .filter_map(|c| found.report.worst.get(c.index())?.as_ref())
            .max_by_key(|v| v.wait)
    };
    of(true).or_else(|| of(false))
}

/// The finding in one sentence.
fn headline(found: &Explanation) -> String {
    if let Some(longest) = found.report.hung.iter().max_by_key(|h| h.slept) {
        let blame = longest.request.as_ref().map_or("tags", |v| v.blame.word());
        return format!(
            "{} slept {} without a break: the {blame} {} to blame",
            longest.task,
            format_time(longest.slept),
            is(blame)
        );
    }
    worst(found).map_or_else(
        || "No request from its beginning to its end".to_owned(),
        |v| {
            let blame = v.blame.word();
            format!(
                "The longest wait that matters: a {} by {}, {}; the {blame} {} to blame",
                v.class.noun(),
                v.task,
                format_time(v.wait),
                is(blame)
            )
        },
    )
}

fn is(blame: &str) -> &'static str {
    if blame == "tags" { "are" } else { "is" }
}

/// The wait that the verdict is about.
fn subject(found: &Explanation) -> Option<&Victim> {
    let hung = found.report.hung.iter().max_by_key(|h| h.slept).and_then(|h| h.request.as_ref());
    hung.or_else(|| worst(found))
}

fn keys(found: &Explanation) -> Vec<Key> {
    let report = &found.report;
    let mut keys = Vec::new();
    if let Some(longest) = report.hung.iter().max_by_key(|h| h.slept) {
        let note = format!("by {}; {} such sleeps", longest.task, report.hung.len());
        keys.push(Key { bad: true, ..Key::new("Longest sleep", format_time(longest.slept), note) });
    }
    if let Some(v) = subject(found) {
        let note = format!(
            "tags {}, queue {}, card {}",
            format_time(v.tag_wait),
            format_time(v.sched_wait),
            format_time(v.service)
        );
        keys.push(Key::new("To blame for it", v.blame.word(), note));
        let note =
            format!("{} older, {} younger, {}", v.ahead.older, v.ahead.younger, format_size(v.ahead.bytes));
        keys.push(Key::new("Requests that went first", v.ahead.requests.to_string(), note));
    }
    if let Some(v) = worst(found) {
        let key = Key::new("Longest wait", format_time(v.wait), format!("{} by {}", v.class.noun(), v.task));
        // Without a sleep the others are about this one.
        keys.insert(if report.hung.is_empty() { 0 } else { keys.len() }, key);
    }
    let journal = &report.classes.journal;
    if journal.n > 0 {
        keys.push(Key::new("Journal p99", waits::time(journal.p99), format!("of {} waits", journal.n)));
    }
    let note = "in the scheduler or at the card";
    keys.push(Key::new("Most requests at once", report.queue_depth_max.to_string(), note));
    keys
}
