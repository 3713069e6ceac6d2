//! The report of a recorder on a card: how often a block is late, and how much memory hides it.

use crate::analysis::ClassStats;
use crate::report::chart::Picture;
use crate::report::html::{Key, Page, Table};
use crate::report::waits::{Series, distribution};
use crate::simulate::{Load, Outcome, Setup};
use crate::units::{format_size, format_time};
use std::fmt::Write;

/// The page of `name`; `lines` are the finding, what was looked at, and the figures in words, as printed.
#[must_use]
pub fn render(name: &str, lines: &[String], load: &Load, setup: &Setup, out: &Outcome) -> String {
    let line = |i: usize| lines.get(i).map_or("", |l| l.trim_end());
    let mut page = Page::new("card simulate", &format!("A recorder: {name}"), line(0), line(1));
    let late = |share: f64| if share == 0.0 { "none".to_owned() } else { format!("{share:.2e}") };
    let interval = format!("{} to {:.2e}, 95 %", late(out.miss.low), out.miss.high);
    let mut chance =
        Key::new(format!("Later than {}", format_time(setup.deadline)), late(out.miss.value), interval);
    chance.bad = out.late > 0;
    let mut busy = Key::new("Card busy", format!("{:.1} %", out.busy * 100.0), "of the time");
    busy.bad = out.busy >= 1.0;
    let six = out.ring_6.map_or_else(|| "not told".to_owned(), format_size);
    page.keys(&[
        chance,
        Key::new("Ring buffer, 1e-3", format_size(out.ring_3), "a block finds no room with that chance"),
        Key::new("Ring buffer, 1e-6", six, "likewise; told by 10,000,000 blocks or more"),
        Key::new("Longest", format_time(out.latency[3]), format!("of {} blocks", out.blocks)),
        busy,
    ]);
    page.section("How long until a block is on the card");
    let [p50, p99, p999, longest] = out.latency.map(Some);
    let stats = ClassStats { n: out.blocks, p50, p99, max: longest, p999, p9999: at(&out.steps, 0.9999) };
    let series =
        Series { name: "blocks".to_owned(), colour: "var(--p1)".to_owned(), steps: out.steps.clone(), stats };
    let (picture, numbers) = distribution("From making a block until it is on the card", &[series], false);
    page.picture(&picture, &numbers);
    page.section("How much memory hides it");
    if out.busy >= 1.0 {
        page.text(
            "The card cannot keep up: what is not yet written grows for ever, and no buffer is large enough.",
        );
    } else {
        let (picture, numbers) = ring(out);
        page.picture(&picture, &numbers);
    }
    page.section("What was simulated");
    let mut table = Table::new("The recorder and its card", ["what", "value"]);
    table.row("made a second", [format_size(load.rate)]);
    table.row("block", [format_size(load.block)]);
    table.row("a block every", [format_time(load.period())]);
    table.row(
        "writes of the file system",
        [match load.sync {
            0 => "none".to_owned(),
            sync => format!("{} of 4 KiB every {}", load.metadata, format_time(sync)),
        }],
    );
    table.row("file", [format_size(load.file)]);
    table.row("wire, a second", [format_size(setup.bus)]);
    table.row("blocks", [format!("{} in {} runs", out.blocks, setup.runs)]);
    table.row("late", [out.late.to_string()]);
    page.table(&table);
    page.aside(
        "One writer on the timing model of the card, with nothing beside it. Late blocks come together, so the interval is that over \
         the runs, not over blocks.",
    );
    page.finish()
}

/// The time that this share of the blocks did not exceed.
fn at(steps: &[(u64, u64)], share: f64) -> Option<u64> {
    let wanted = steps.last()?.1 as f64 * share;
    steps.iter().find(|s| s.1 as f64 > wanted).map(|s| s.0)
}

/// The chance that a block finds more than so many bytes waiting.
fn ring(out: &Outcome) -> (Picture, Table) {
    let title = "Chance that a block finds no room in a ring buffer";
    let text = "Both logarithmic. A buffer as large as the place where the line ends was never full.";
    let blocks = out.blocks.max(1) as f64;
    let chance = |n: u64| n as f64 / blocks;
    let points: Vec<(f64, f64)> =
        out.rings.iter().filter(|r| r.1 > 0).map(|&(bytes, n)| (bytes as f64, chance(n))).collect();
    let least = points.iter().map(|p| p.1).fold(1.0, f64::min).log10().floor().min(-1.0);
    let ends = (out.rings.first().map_or(512, |r| r.0), out.ring_max.max(1024));
    let picture = Picture::new(title, text, |canvas| {
        let (left, right) = (64.0, canvas.width - 24.0);
        let (top, bottom) = (20.0, 260.0);
        let (low, high) = ((ends.0 as f64).log2().floor(), (ends.1 as f64).log2().ceil());
        let x = |bytes: f64| left + (bytes.max(1.0).log2() - low) / (high - low).max(1.0) * (right - left);
        let y = |chance: f64| top + chance.log10() / least * (bottom - top);
        let mut size = low;
        // A name each 90 pixels at most.
        let step = ((high - low) * 90.0 / (right - left)).ceil().max(1.0);
        while size <= high {
            let at = x(size.exp2());
            canvas.path("grid", &format!("M{at:.1} {top:.1}V{bottom:.1}"));
            canvas.text(
                at.min(canvas.width - 30.0),
                bottom + 16.0,
                "soft mid",
                &format_size(size.exp2() as u64),
            );
            size += step;
        }
        for decade in (least as i32)..=0 {
            let at = y(10_f64.powi(decade));
            canvas.path("grid", &format!("M{left:.1} {at:.1}H{right:.1}"));
            canvas.text(left - 6.0, at + 4.0, "soft end", &format!("1e{decade}"));
        }
        let mut d = format!("M{:.1} {:.1}", x(ends.0 as f64), y(points.first().map_or(1.0, |p| p.1)));
        for &(bytes, chance) in &points {
            let _ = write!(d, "H{:.1}V{:.1}", x(bytes), y(chance));
        }
        let _ = write!(d, "H{:.1}V{bottom:.1}", x(out.ring_max as f64));
        canvas.raw(&format!("<path d=\"{d}\" fill=\"none\" style=\"stroke:var(--p1)\" stroke-width=\"2\"/>"));
        canvas.text(right, bottom + 34.0, "soft end", "size of the ring buffer");
        canvas.height = bottom + 42.0;
    });
    let mut table = Table::new(title, ["ring buffer", "blocks that find no room", "chance"]);
    // One row each doubling, and the last.
    let mut next = 0;
    for &(bytes, n) in &out.rings {
        if bytes >= next || n == 0 {
            table.row(format_size(bytes), [n.to_string(), format!("{:.2e}", chance(n))]);
            next = bytes.saturating_mul(2);
        }
    }
    (picture, table)
}
