//! The report of an endurance run: what was done, what struck, how long things waited beside what they may.

use crate::report::html::{Key, Page, Table};
use crate::report::spans::{Row, spans};
use crate::soak::{Plan, Report};
use crate::units::format_time;

/// The classes of [`Report::classes`].
pub const CLASSES: [&str; 4] = ["reads", "sync writes", "other writes", "flushes"];

/// The page; `real` is the seconds that it took.
#[must_use]
pub fn render(plan: &Plan, r: &Report, real: f64) -> String {
    let days = r.time.as_nanos() as f64 / 86_400e9;
    let finding = format!("Nothing wrong in {days:.1} virtual days");
    let about = format!(
        "{} on card {}, seed {}: {} requests, {:.2} GB, {real:.1} s.",
        plan.sched,
        plan.card,
        plan.seed,
        r.requests,
        r.bytes as f64 / 1e9
    );
    let mut page = Page::new("soak", &format!("A soak of {} on {}", plan.sched, plan.card), &finding, &about);
    page.keys(&[
        Key::new("Requests", r.requests.to_string(), format!("{:.2} GB", r.bytes as f64 / 1e9)),
        Key::new("Faults", r.faults.to_string(), format!("{} requests sent again", r.retries)),
        Key::new("Power cuts", r.cuts.to_string(), "what a flush had covered was there"),
        Key::new("Card swaps", r.swaps.to_string(), format!("{} media generations", r.generations)),
        Key::new("Failed", r.failed.values().sum::<u64>().to_string(), "each with an error of its own"),
    ]);
    page.section("Waits beside their bounds");
    let bound = |k: usize| r.beside.as_ref().filter(|_| k < 3).map(|b| b[k.min(1)]);
    let rows: Vec<Row> = CLASSES
        .iter()
        .zip(&r.classes)
        .enumerate()
        .map(|(k, (name, c))| Row {
            name: (*name).to_owned(),
            times: vec![
                (c.scheduler.as_nanos() > 0).then(|| c.scheduler.as_nanos()),
                (c.worst.as_nanos() > 0).then(|| c.worst.as_nanos()),
                bound(k).map(|b| b.time.as_nanos()),
            ],
        })
        .collect();
    let text = "The longest waits. The bound is that of the scheduler alone, each command as slow as the slowest was; the whole \
                wait has repetitions and identifications of the card in it as well.";
    let kinds = ["in the scheduler", "in all", "bound of the scheduler"];
    let (picture, _) = spans("The longest waits of each class", text, &kinds, &rows);
    page.drawing(&picture);
    let heads = [
        "class",
        "requests",
        "longest",
        "in the scheduler",
        "its bound",
        "dispatches past a due one",
        "most ahead",
    ];
    let mut table = Table::new("The longest waits, and what is promised", heads);
    for (k, (name, c)) in CLASSES.iter().zip(&r.classes).enumerate() {
        let dash = || "–".to_owned();
        let b = bound(k);
        table.row(
            *name,
            [
                c.requests.to_string(),
                format_time(c.worst.as_nanos()),
                format_time(c.scheduler.as_nanos()),
                b.map_or_else(dash, |b| format_time(b.time.as_nanos())),
                b.map_or_else(dash, |b| format!("{} of at most {}", b.dispatches.0, b.dispatches.1)),
                b.map_or_else(dash, |b| b.ahead.to_string()),
            ],
        );
    }
    page.table(&table);
    if let Some(why) = &r.unbounded {
        page.text(&format!("No bound is counted: {why}."));
    }
    page.section("What struck, and what became of it");
    let mut table = Table::new("Counted in the run", ["what", "number"]);
    for (what, n) in [
        ("merged into others", r.merges),
        ("taken back before their end", r.withdrawn),
        ("sent again", r.retries),
        ("sample points searched anew", r.retunes),
        ("identifications of the card after the first", r.resets),
        ("flushes of the card's cache", r.flushes.0),
        ("of them, told that the cache was lost", r.flushes.1),
        ("faults that struck", r.faults),
        ("losses of power", r.cuts),
        ("changes of the card", r.swaps),
        ("nights with the supply off", r.nights),
        ("barriers", r.barriers),
        ("ranges and cards wiped", r.wipes),
        ("conversations between two commands", r.conversations),
        ("looks at the card itself", r.looks),
        ("rules of the bus broken under faults", r.violations.values().sum()),
        ("KiB resident after a tenth", r.resident.0),
        ("KiB resident at the end", r.resident.1),
    ] {
        table.row(what, [n.to_string()]);
    }
    table.row("slowest command", [format_time(r.slowest.as_nanos())]);
    page.table(&table);
    for (title, map) in [
        ("Errors that requests ended with", &r.failed),
        ("Rules of the bus broken under faults", &r.violations),
    ] {
        if !map.is_empty() {
            let mut table = Table::new(title, ["what", "how often"]);
            map.iter().for_each(|(what, n)| table.row(what.clone(), [n.to_string()]));
            page.folded(title, &table);
        }
    }
    page.finish()
}
