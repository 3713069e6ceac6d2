//! The report for a terminal.

use crate::analysis::{Class, ClassStats};
use crate::experiment::{HungReport, Outcome};
use crate::report::json::row;
use crate::units::{format_size, format_time};
use crate::workload::beside::Met;
use crate::workload::bonnie::PHASES;
use std::fmt::Write;

/// Hung-task reports shown per policy; the others are counted.
const SHOWN: usize = 3;

fn line(out: &mut String, name: &str, unit: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(out, "  {name:<28}{unit:<9}");
    for c in cells {
        let _ = write!(out, "{c:>14}");
    }
    out.push('\n');
}

/// The sentence about one hung task.
#[must_use]
pub fn hung_line(h: &HungReport) -> String {
    let a = &h.ahead;
    let mut s = format!(
        "at {:.1} s: {} slept {} on {}",
        h.from.as_nanos() as f64 / 1e9,
        h.task,
        format_time(h.slept.as_nanos()),
        h.waits_for
    );
    if a.requests > 0 {
        let _ = write!(
            s,
            "; {} requests went to the card before that one ({} older, {} younger, {}), {} of them background writes",
            a.requests,
            a.older,
            a.younger,
            format_size(a.bytes),
            a.background_writes()
        );
    }
    s
}

/// What a load beside the benchmark met.
#[must_use]
pub fn beside(met: &Met) -> String {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_time);
    let ClassStats { n, p50, p99, max, .. } = met.waits;
    let waits = format!("p50 {}, p99 {}, longest {}", time(p50), time(p99), time(max));
    match met.frames {
        (0, _) => format!("{}: {n} pages read, {waits}", met.load.name()),
        (frames, lost) => format!(
            "{}: {lost} of {frames} frames lost ({:.2} %); {n} writes, {waits}",
            met.load.name(),
            lost as f64 * 100.0 / frames as f64
        ),
    }
}

/// The closed form beside the longest journal wait.
#[must_use]
pub fn closed_form(o: &Outcome) -> String {
    let (tags, one) = o.closed_form();
    let journal = o.all.worst[Class::Journal.index()].as_ref().map_or(0, |v| v.wait);
    format!(
        "longest journal wait {}; closed form {tags} tags x {} a request = {}",
        format_time(journal),
        format_time(one.as_nanos()),
        format_time(one.as_nanos() * u64::from(tags)),
    )
}

/// All policies side by side.
#[must_use]
pub fn render(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let Some(first) = outcomes.first() else { return out };
    let b = &first.config.board;
    let _ = writeln!(
        out,
        "bonnie++ on board {} ({} of RAM, {} tags, requests up to {}), file {}, card {}, host {}, seed {}\n",
        b.name,
        format_size(b.ram),
        b.nr_requests,
        format_size(u64::from(b.max_sectors) * 512),
        format_size(b.size),
        first.config.card,
        first.config.host.name(),
        first.config.seed
    );
    for (i, o) in outcomes.iter().enumerate() {
        let _ = writeln!(out, "  [{}] {}", i + 1, o.policy.label());
    }
    out.push('\n');
    line(&mut out, "", "", (1..=outcomes.len()).map(|i| format!("[{i}]")));
    for (i, name) in PHASES.iter().enumerate() {
        if outcomes.iter().any(|o| o.phases[i].is_some()) {
            let unit = match i {
                0..=4 => "KiB/s",
                5 => "seeks/s",
                _ => "files/s",
            };
            let cell =
                |o: &Outcome| o.phases[i].as_ref().map_or_else(|| "-".into(), |p| format!("{:.0}", p.rate()));
            line(&mut out, name, unit, outcomes.iter().map(cell));
        }
    }
    let rate = |o: &Outcome| format!("{:.2}", o.totals.written as f64 / 1e3 / o.elapsed.as_millis() as f64);
    line(&mut out, "all writes", "MB/s", outcomes.iter().map(rate));
    out.push('\n');
    for (class, name) in [
        (Class::Reads, "worst read"),
        (Class::SyncWrites, "worst sync write"),
        (Class::Journal, "worst journal write"),
    ] {
        let worst = |o: &Outcome| {
            o.all.worst[class.index()]
                .as_ref()
                .map_or_else(|| "-".into(), |v| format!("{:.3}", v.wait as f64 / 1e9))
        };
        line(&mut out, name, "s", outcomes.iter().map(worst));
    }
    let journal = |f: fn(&crate::analysis::ClassStats) -> Option<u64>| {
        move |o: &Outcome| {
            f(&o.busy.classes.journal).map_or_else(|| "-".into(), |v| format!("{:.3}", v as f64 / 1e9))
        }
    };
    line(&mut out, "journal p50 (16 queued)", "s", outcomes.iter().map(journal(|c| c.p50)));
    line(&mut out, "journal p99 (16 queued)", "s", outcomes.iter().map(journal(|c| c.p99)));
    let seconds = |o: &Outcome| format!("{:.3}", o.backlog.1.as_nanos() as f64 / 1e9);
    line(&mut out, "greatest backlog to write", "s", outcomes.iter().map(seconds));
    line(&mut out, "hung-task reports", "", outcomes.iter().map(|o| o.hung.len().to_string()));
    for (i, o) in outcomes.iter().enumerate() {
        let _ = writeln!(out, "\n[{}] {}", i + 1, o.policy.label());
        let _ = writeln!(out, "  {}", closed_form(o));
        for met in &o.beside {
            let _ = writeln!(out, "  {}", beside(met));
        }
        if o.hung.is_empty() {
            let _ = writeln!(out, "  no task slept {} or more", format_time(b.hung.as_nanos()));
        }
        let mut worst: Vec<&HungReport> = o.hung.iter().collect();
        worst.sort_by_key(|h| std::cmp::Reverse(h.slept));
        for h in worst.iter().take(SHOWN) {
            let _ = writeln!(out, "  hung: {}", hung_line(h));
        }
        if worst.len() > SHOWN {
            let _ = writeln!(out, "  and {} more such reports", worst.len() - SHOWN);
        }
        let _ = writeln!(out, "  1.03: {}", row(o).v1_03());
        let _ = writeln!(out, "  2.x:  {}", row(o).v2());
    }
    out
}
