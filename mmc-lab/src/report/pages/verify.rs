//! The report of a disk that was filled and read back.

use crate::report::chart::Picture;
use crate::report::html::{Cell, Key, Page, Table};
use crate::units::format_size;
use crate::verify::{Fate, Range, Report, SECTOR};

/// The fates, in the order of their share of trouble: name, colour, what it means.
const FATES: [(&str, &str, &str); 5] = [
    ("good", "var(--p2)", "holds what was written to it"),
    ("overwritten", "var(--p0)", "holds what was written to another sector"),
    ("changed", "var(--p5)", "one or two words of it are wrong"),
    ("corrupted", "var(--p3)", "holds something else"),
    ("unreadable", "var(--p4)", "reading it is an error"),
];
/// Ranges that stand on the page at once.
const SHOWN: usize = 20;

/// The page of `name`.
#[must_use]
pub fn render(name: &str, seed: u64, r: &Report) -> String {
    let bytes = |sectors: u64| format_size(sectors * SECTOR as u64);
    let finding = match (r.is_good(), r.wraps) {
        (true, _) => format!("{name} holds all that was written to it: {}", bytes(r.sectors)),
        (_, Some(wraps)) => {
            format!("{name} has less than it says: addresses {} apart are one place", bytes(wraps))
        }
        _ => format!("{name} does not hold all that was written to it"),
    };
    let about = format!("{} sectors of {SECTOR} bytes, read back; seed {seed}.", r.sectors);
    let mut page = Page::new("verify", &format!("{name}, read back"), &finding, &about);
    let counts = [r.good, r.overwritten, r.changed, r.corrupted, r.unreadable];
    let mut usable = Key::new("Usable", bytes(r.good), format!("of {}", bytes(r.sectors)));
    usable.bad = !r.is_good();
    let mut keys = vec![usable];
    for ((fate, _, what), n) in FATES.iter().zip(counts).skip(1) {
        keys.push(Key { bad: n > 0, ..Key::new(capital(fate), n.to_string(), format!("sectors: {what}")) });
    }
    if r.unwritten > 0 {
        let key = Key::new("Unwritten", r.unwritten.to_string(), "sectors that could not be written");
        keys.push(Key { bad: true, ..key });
    }
    page.keys(&keys);
    page.section("Where");
    page.drawing(&map(r));
    let mut table = Table::new("Sectors by what became of them", ["what", "sectors", "size", "share"]);
    for ((fate, ..), n) in FATES.iter().zip(counts) {
        let share = format!("{:.3} %", n as f64 / r.sectors.max(1) as f64 * 100.0);
        table.row(*fate, [n.to_string(), bytes(n), share]);
    }
    page.table(&table);
    let list = |ranges: &[Range]| {
        let heads = ["first sector", "last sector", "size", "what"].map(Cell::from);
        let heads = heads.into_iter().chain([Cell::words("where its data are from")]);
        let mut table = Table::new("Ranges of sectors that became the same, in order", heads);
        for range in ranges {
            let from = match range.fate {
                Fate::Overwritten(distance) => {
                    format!("sector {} and on", range.first as i64 + distance)
                }
                _ => String::new(),
            };
            let (last, fate) = ((range.first + range.sectors - 1).to_string(), range.fate.name());
            let fate = if range.fate == Fate::Good { Cell::from(fate) } else { Cell::bad(fate) };
            table.row(
                range.first.to_string(),
                [last.into(), bytes(range.sectors).into(), fate, Cell::words(from)],
            );
        }
        table
    };
    let (first, more) = r.ranges.split_at(SHOWN.min(r.ranges.len()));
    page.table(&list(first));
    if !more.is_empty() {
        page.folded(&format!("{} more ranges", more.len()), &list(more));
    }
    if r.more > 0 {
        page.aside(&format!(
            "{} ranges beyond the first {} are counted, not listed, and left white in the map.",
            r.more,
            r.ranges.len()
        ));
    }
    page.finish()
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The disk from its first sector to its last, a row of equal parts each; of a part that holds several fates each has the
/// width of its share, from 1.5 pixels up if it is trouble.
fn map(r: &Report) -> Picture {
    let text = "Rows from left to right and from top to bottom, as the sectors are numbered. What is wrong is higher than what \
                is good, and named in the table.";
    Picture::new("The disk, first sector to last", text, |canvas| {
        let rows: u64 = if canvas.narrow { 16 } else { 8 };
        let (left, right, height) = (0.0, canvas.width - 2.0, 26.0);
        let sectors = r.sectors.max(1);
        let mut x = left;
        let mut y = 0.0;
        for (name, colour, _) in FATES {
            let wide = 22.0 + crate::report::chart::text_width(name);
            if x > left && x + wide > canvas.width {
                (x, y) = (left, y + 20.0);
            }
            canvas.rect("", (x, y), (13.0, 13.0), &format!(" style=\"fill:{colour}\""));
            canvas.text(x + 18.0, y + 11.0, "", name);
            x += wide + 16.0;
        }
        let top = y + 26.0;
        // In sectors, as numbers that do not overflow: row `k` begins at sector `begin(k)`.
        let begin = |k: u64| (u128::from(sectors) * u128::from(k) / u128::from(rows)) as u64;
        for k in 0..rows {
            let (from, to) = (begin(k), begin(k + 1));
            let y = top + k as f64 * height;
            canvas.raw(&format!(
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"18\" fill=\"none\" style=\"stroke:var(--line)\"/>",
                right - left
            ));
            let at = |sector: u64| {
                left + (sector.clamp(from, to) - from) as f64 / (to - from).max(1) as f64 * (right - left)
            };
            // What is good first, so that a single bad sector is not covered.
            let here = || r.ranges.iter().filter(|x| x.first < to && x.first + x.sectors > from);
            let (good, bad) = (|x: &&Range| x.fate == Fate::Good, |x: &&Range| x.fate != Fate::Good);
            for range in here().filter(good).chain(here().filter(bad)) {
                let fate = FATES.iter().find(|f| f.0 == range.fate.name());
                let colour = fate.map_or("var(--p4)", |f| f.1);
                let (a, b) = (at(range.first), at(range.first + range.sectors));
                let (dy, h, least) =
                    if range.fate == Fate::Good { (4.0, 10.0, 0.0) } else { (0.0, 18.0, 1.5) };
                let wide = (b - a).max(least);
                canvas.rect("", (a, y + dy), (wide, h), &format!(" style=\"fill:{colour}\""));
            }
        }
        canvas.height = top + rows as f64 * height;
    })
}
