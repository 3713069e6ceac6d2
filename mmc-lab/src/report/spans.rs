//! Rows of times on one logarithmic axis: what was beside what it may be, what is usual beside the worst.

use super::chart::{LogAxis, Picture, text_width};
use super::html::{Table, clip};
use super::waits::edges;

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// A time of each kind, in nanoseconds; `None`: there is none.
    pub times: Vec<Option<u64>>,
}

/// The picture and its numbers: `kinds` names the times of a row, each with a shape of its own.
#[must_use]
pub fn spans(title: &str, text: &str, kinds: &[&str], rows: &[Row]) -> (Picture, Table) {
    let mut numbers = Table::new(title, std::iter::once("which").chain(kinds.iter().copied()));
    for row in rows {
        numbers.row(row.name.clone(), row.times.iter().map(|t| super::waits::time(*t)));
    }
    let all = || rows.iter().flat_map(|r| r.times.iter().flatten()).map(|&ns| ns.max(1) as f64);
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(1e4, f64::max));
    let picture = Picture::new(title, text, |canvas| {
        let (left, right) = edges(canvas);
        let (left, right) = (left + 8.0, right - 8.0);
        let (mut x, mut y) = (left, 12.0);
        for (k, kind) in kinds.iter().enumerate() {
            if x > left && x + text_width(kind) + 26.0 > right {
                (x, y) = (left, y + 20.0);
            }
            canvas.raw(&shape(k, x + 6.0, y - 4.0));
            canvas.text(x + 18.0, y, "", kind);
            x += text_width(kind) + 34.0;
        }
        let top = y + 12.0;
        let height = if canvas.narrow { 38.0 } else { 26.0 };
        let bottom = top + height * rows.len() as f64;
        let axis = LogAxis::new((left, right), if least.is_finite() { least } else { 1e3 }, most);
        axis.grid(canvas, top, bottom);
        for (i, row) in rows.iter().enumerate() {
            let base = top + height * i as f64;
            let at = base + height - 12.0;
            if canvas.narrow {
                canvas.text(0.0, base + 14.0, "halo", &clip(&row.name, 40));
            } else {
                canvas.text(left - 16.0, at + 4.5, "soft end", &clip(&row.name, 16));
            }
            let places: Vec<f64> = row.times.iter().flatten().map(|&ns| axis.at(ns as f64)).collect();
            let (from, to) = (
                places.iter().fold(f64::INFINITY, |a, &b| a.min(b)),
                places.iter().fold(0.0, |a: f64, &b| a.max(b)),
            );
            if places.len() > 1 {
                canvas.path("axis", &format!("M{from:.1} {at:.1}H{to:.1}"));
            }
            for (k, ns) in row.times.iter().enumerate() {
                if let Some(ns) = ns {
                    canvas.raw(&shape(k, axis.at(*ns as f64), at));
                }
            }
        }
        canvas.height = bottom + 24.0;
    });
    (picture, numbers)
}

/// A mark of kind `k`: a dot, a diamond, a bar, told apart without colour.
fn shape(k: usize, x: f64, y: f64) -> String {
    let d = match k {
        0 => return format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" style=\"fill:var(--p1)\"/>"),
        1 => format!("M{:.1} {y:.1}l6 -6l6 6l-6 6z", x - 6.0),
        _ => format!("M{:.1} {:.1}h4v16h-4z", x - 2.0, y - 8.0),
    };
    let colour = if k == 1 { "var(--p0)" } else { "var(--p4)" };
    format!("<path d=\"{d}\" style=\"fill:{colour}\"/>")
}
