//! The timeline of a stall under several policies: whom the card serves, who sleeps, what is queued. In reports, and as a
//! file of its own.

use super::chart::{Canvas, Picture, TimeAxis, css};
use super::html::{Table, clip};
use super::waits::{edges, track};
use crate::analysis::Class;
use crate::experiment::{Outcome, served};
use crate::trace::model::{Event, Kind};
use crate::units::format_time;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Nanoseconds that a timeline shows at least, and before the wait it is about.
const WINDOW: u64 = 30_000_000_000;
/// See [`WINDOW`].
const BEFORE: u64 = 3_000_000_000;

/// The longest wait of a journal write that was queued behind others (at least 16 requests outstanding), or else of
/// any: queued, issued, completed.
fn longest_journal_wait(events: &[Event]) -> Option<(u64, u64, u64)> {
    let mut open: BTreeMap<u64, (u64, u64, bool)> = BTreeMap::new();
    let (mut outstanding, mut best) = (0_i64, None);
    for e in events {
        let range = e.sector..e.sector + u64::from(e.sectors);
        match e.kind {
            Kind::BioQueue if Class::of(&e.rwbs, &e.task) == Class::Journal => {
                open.insert(e.sector, (e.at, e.at, outstanding >= 16));
            }
            Kind::Insert => outstanding += 1,
            Kind::Issue => open.range_mut(range).for_each(|(_, w)| w.1 = e.at),
            Kind::Complete => {
                outstanding -= 1;
                while let Some((&s, &(queued, issued, busy))) = open.range(range.clone()).next() {
                    open.remove(&s);
                    best = best.max(Some((busy, e.at - queued, queued, issued, e.at)));
                }
            }
            _ => {}
        }
    }
    best.map(|(_, _, queued, issued, completed)| (queued, issued, completed))
}

fn bar(canvas: &mut Canvas, axis: &TimeAxis, class: &str, span: (u64, u64), y: f64, h: f64, more: &str) {
    let (a, b) = (axis.at(span.0), axis.at(span.1));
    canvas.rect(class, (a, y), ((b - a).max(0.8), h), more);
}

/// The timeline around the longest journal wait of one policy, drawn from `y` down; the `y` below it.
fn panel(canvas: &mut Canvas, o: &Outcome, y: f64) -> f64 {
    let Some((start, issued, end)) = longest_journal_wait(&o.events) else { return y };
    let from = start.saturating_sub(BEFORE);
    let to = (from + WINDOW).max(end + 2_000_000_000);
    let axis = TimeAxis::new(edges(canvas), from, to);
    let (left, right) = edges(canvas);
    let label = if canvas.narrow { clip(&o.policy.label(), 24) } else { o.policy.label() };
    let waited = if canvas.narrow { "longest" } else { "longest wait of a journal write behind others" };
    let title = format!("{label}: {waited} {}", format_time(end - start));
    canvas.text(0.0, y + 14.0, "strong", &title);
    let mut at = track(canvas, y + 26.0, 22.0, "card serves");
    for (k, c) in served(&o.events).into_iter().filter(|c| axis.shows(c.from, c.to)).enumerate() {
        let more = if k % 2 == 0 { "" } else { " opacity=\".72\"" };
        bar(canvas, &axis, css(c.class), (c.from, c.to), at, 22.0, more);
    }
    at = track(canvas, at + 30.0, 16.0, "journal write");
    bar(canvas, &axis, "journal", (start, issued), at + 5.0, 5.0, " opacity=\".45\"");
    bar(canvas, &axis, "journal", (issued, end), at, 16.0, "");
    let mut tasks: Vec<&str> = o.sleeps.iter().map(|s| s.0.as_str()).collect();
    tasks.sort_unstable();
    tasks.dedup();
    for task in tasks {
        let mut spans =
            o.sleeps.iter().filter(|s| s.0 == task && axis.shows(s.1.as_nanos(), s.2.as_nanos())).peekable();
        if spans.peek().is_none() {
            continue;
        }
        let name = format!("{} asleep", task.split('/').next().unwrap_or(task));
        at = track(canvas, at + 22.0, 14.0, &name);
        for s in spans {
            let hung = s.2.since(s.1) >= o.config.board.hung;
            let class = if hung { "journal" } else { "sync" };
            bar(canvas, &axis, class, (s.1.as_nanos(), s.2.as_nanos()), at, 14.0, " opacity=\".8\"");
        }
    }
    at = track(canvas, at + 26.0, 34.0, "queued");
    let (mut depth, mut points) = (0_i64, String::new());
    let (bottom, full) = (at + 34.0, f64::from(o.config.board.nr_requests));
    for e in &o.events {
        let before = depth;
        match e.kind {
            Kind::Insert => depth += 1,
            Kind::Issue | Kind::RqMerge => depth -= 1,
            _ => continue,
        }
        if axis.shows(e.at, e.at + 1) {
            let h = |d: i64| bottom - 32.0 * (d as f64 / full).clamp(0.0, 1.0);
            if points.is_empty() {
                let _ = write!(points, "M{left:.1} {bottom:.1}V{:.1}", h(before));
            }
            let _ = write!(points, "H{:.1}V{:.1}", axis.at(e.at), h(depth));
        }
    }
    let _ = write!(points, "H{right:.1}V{bottom:.1}z");
    canvas.path("depth", &points);
    axis.ticks(canvas, bottom, start);
    bottom + 34.0
}

/// The timeline of all policies, each around its own longest journal wait, with its numbers.
#[must_use]
pub fn timeline(outcomes: &[Outcome]) -> (Picture, Table) {
    let title = "Who the card serves and who waits";
    let text = "Around the longest journal wait of each scheduler, with all the requests that the card served meanwhile. Time \
                counts from the moment that journal write was queued. A sleep as red as the journal's bar is a hung task.";
    let picture = Picture::new(title, text, |canvas| {
        let names: Vec<(&str, &str)> = Class::ALL.iter().map(|c| (css(*c), c.noun())).collect();
        let left = edges(canvas).0;
        let mut y = canvas.legend(left, 4.0, &names) + 6.0;
        for o in outcomes {
            y = panel(canvas, o, y) + 14.0;
        }
        canvas.height = y;
    });
    let heads = [
        "scheduler",
        "queued at",
        "in the scheduler",
        "at the card",
        "in all",
        "served meanwhile",
        "of them background writes",
    ];
    let mut numbers = Table::new("The longest wait of a journal write behind others", heads);
    for o in outcomes {
        let Some((start, issued, end)) = longest_journal_wait(&o.events) else { continue };
        let during: Vec<_> =
            served(&o.events).into_iter().filter(|c| c.to > start && c.from < issued).collect();
        let background = during.iter().filter(|c| c.class == Class::AsyncWrites).count();
        let cells = [
            format!("{:.1} s", start as f64 / 1e9),
            format_time(issued - start),
            format_time(end - issued),
            format_time(end - start),
            during.len().to_string(),
            background.to_string(),
        ];
        numbers.row(o.policy.label(), cells);
    }
    (picture, numbers)
}

/// The timeline as a file of its own.
#[must_use]
pub fn standalone(outcomes: &[Outcome]) -> String {
    timeline(outcomes).0.standalone()
}
