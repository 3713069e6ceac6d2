//! The report of a served disk: who asked for what, how long it took, what went wrong.

use crate::report::html::{Cell, Key, Page, Table};
use crate::report::spans::{Row, spans};
use crate::serve::wire::Operation;
use crate::serve::worker::Report;
use crate::units::{format_size, format_time};

/// What the disk's waits are told of, in its order.
const KINDS: [&str; 3] = ["reads", "sync writes", "other"];

/// The page; `disk` is what was served, as clients are told.
#[must_use]
pub fn render(disk: &str, r: &Report) -> String {
    let requests: u64 = r.served.iter().map(|s| s.0).sum();
    let bytes: u64 = r.served.iter().map(|s| s.1).sum();
    let finding = match (r.stored, r.failed, r.violations.len()) {
        (false, ..) => "Not all that was written is stored".to_owned(),
        (_, 0, 0) => format!("{requests} requests answered, all that was written is stored"),
        (_, 0, n) => format!("{requests} requests answered; {n} rules of card or controller broken"),
        (_, failed, _) => format!("{requests} requests answered, {failed} failed"),
    };
    let about =
        format!("{disk}; {} clients, {} of virtual time.", r.clients, format_time(r.virtual_time.as_nanos()));
    let mut page = Page::new("serve", "A served disk", &finding, &about);
    let alarm = |label: &str, value: u64, note: &str| Key {
        bad: value > 0,
        ..Key::new(label, value.to_string(), note)
    };
    let mut stored = Key::new("Stored", if r.stored { "all" } else { "not all" }, "of what was written");
    stored.bad = !r.stored;
    page.keys(&[
        Key::new("Answered", requests.to_string(), format_size(bytes)),
        alarm("Failed", r.failed, "served, and the card gave an error"),
        alarm("Refused", r.refused, "made no sense"),
        alarm("Clients cut off", r.broken, "broke the rules of the protocol"),
        stored,
    ]);
    page.section("What was asked for");
    let mut table =
        Table::new("Requests answered without an error", ["operation", "requests", "bytes", "mean size"]);
    for (op, (n, bytes)) in Operation::ALL.iter().zip(r.served) {
        let mean = bytes.checked_div(n).filter(|_| bytes > 0);
        let mean = mean.map_or_else(|| "–".to_owned(), format_size);
        table.row(op.name(), [n.to_string(), format_size(bytes), mean]);
    }
    page.table(&table);
    page.section("How long it took");
    let waited = || KINDS.iter().zip(&r.disk.waits).filter(|(_, w)| w.count > 0);
    let rows: Vec<Row> = waited()
        .map(|(kind, w)| Row {
            name: format!("{kind} ({})", w.count),
            times: vec![w.total.as_nanos().checked_div(w.count), Some(w.max.as_nanos())],
        })
        .collect();
    if rows.is_empty() {
        page.text("No request reached the disk.");
    } else {
        let text = "Virtual time from a request's submission to its end, by who waits for it; the number in brackets is how many.";
        let (picture, numbers) = spans("Waits in the disk", text, &["mean", "longest"], &rows);
        page.drawing(&picture);
        page.table(&numbers);
    }
    let d = &r.disk;
    let mut table = Table::new("What the disk made of it", ["what", "number"]);
    for (what, n) in [
        ("requests accepted", d.accepted),
        ("merged into another", d.merged),
        ("commands sent to the card", d.commands),
        ("flushes of the card's cache", d.flushes),
        ("waited for an earlier one they overlap", d.held),
        ("waited for a tag", d.tag_waits),
        ("most at one time", d.depth_max as u64),
        ("sent again after an error", d.retries),
        ("sample points searched anew", d.retunes),
        ("identifications of the card after the first", d.resets),
    ] {
        table.row(what, [n.to_string()]);
    }
    page.table(&table);
    let sent: u64 = d.lengths.iter().sum();
    if sent > 0 {
        let mut table = Table::new("Commands by length", ["from", "commands", "share"]);
        for (k, n) in d.lengths.iter().enumerate().filter(|(_, n)| **n > 0) {
            let share = format!("{:.1} %", *n as f64 / sent as f64 * 100.0);
            table.row(format_size(512 << k), [n.to_string(), share]);
        }
        page.table(&table);
    }
    if !r.violations.is_empty() || !r.unstruck.is_empty() {
        page.section("What went wrong");
        let mut table = Table::new(
            "What card and controller did not allow, and faults that never struck",
            [Cell::from("what"), Cell::words("which")],
        );
        for violation in &r.violations {
            table.row("not allowed", [Cell::words(violation)]);
        }
        for rule in &r.unstruck {
            table.row("never struck", [Cell::words(rule)]);
        }
        page.table(&table);
    }
    page.finish()
}
