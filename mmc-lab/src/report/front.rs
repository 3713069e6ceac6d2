//! Stall against throughput: every setting a point, and the front that nothing beats.

use super::chart::{Label, LogAxis, Picture, labels};
use super::html::{Table, escape};
use super::waits::time;
use crate::analysis::Class;
use crate::tune::Candidate;
use crate::units::format_time;
use std::fmt::Write;

/// The picture, the front as a table, and all as a table. `best` is what is recommended; the first of `all` is how it is
/// now.
#[must_use]
pub fn front(all: &[Candidate], best: &Candidate, goal: &str) -> (Picture, [Table; 2]) {
    let Some(now) = all.first() else {
        let none = || Table::new("", [""]);
        return (Picture::new("", "", |_| ()), [none(), none()]);
    };
    let fastest = all.iter().map(|c| c.rate).fold(0.0, f64::max).max(1.0);
    let slowest = all.iter().map(|c| c.rate).fold(f64::INFINITY, f64::min).min(fastest * 0.9);
    let mut sorted: Vec<&Candidate> = all.iter().collect();
    sorted.sort_by(|a, b| a.stall.cmp(&b.stall).then(b.rate.total_cmp(&a.rate)));
    let stalls = || all.iter().map(|c| c.stall.max(1) as f64);
    let (least, most) = (stalls().fold(f64::INFINITY, f64::min), stalls().fold(1.0, f64::max));
    let title = format!("Predicted p99 of the {goal} against throughput");
    let text = "Better is up and to the left. The line joins the settings that no other beats in both; numbers are those of \
                the table.";
    let picture = Picture::new(&title, text, |canvas| {
        let (left, right) =
            if canvas.narrow { (40.0, canvas.width - 14.0) } else { (64.0, canvas.width - 24.0) };
        let (top, bottom) = (30.0, if canvas.narrow { 300.0 } else { 360.0 });
        // 5 % of room above and below, and no zero: the differences are what matters.
        let (low, high) = (slowest - (fastest - slowest) * 0.08, fastest + (fastest - slowest) * 0.06);
        let axis = LogAxis::new((left, right), least, most);
        let x = |c: &Candidate| axis.at(c.stall.max(1) as f64);
        let y = |rate: f64| bottom - (rate - low) / (high - low) * (bottom - top);
        axis.grid(canvas, top, bottom);
        let step = nice((high - low) / 1e6 / 5.0) * 1e6;
        let mut rate = (low / step).ceil() * step;
        let digits = (-(step / 1e6).log10().floor()).clamp(0.0, 4.0) as usize;
        while rate <= high {
            canvas.path("grid", &format!("M{left:.1} {0:.1}H{right:.1}", y(rate)));
            canvas.text(left - 6.0, y(rate) + 4.0, "soft end", &format!("{:.digits$}", rate / 1e6));
            rate += step;
        }
        canvas.text(0.0, 14.0, "soft", "MB/s while anything is queued");
        canvas.text(right, bottom + 34.0, "soft end", "predicted p99, shorter to the left");
        let line: Vec<(f64, f64)> = sorted.iter().filter(|c| c.front).map(|c| (x(c), y(c.rate))).collect();
        let mut d = String::new();
        for (i, (px, py)) in line.iter().enumerate() {
            let _ = write!(d, "{}{px:.1} {py:.1}", if i == 0 { "M" } else { "L" });
        }
        canvas.raw(&format!("<path d=\"{d}\" fill=\"none\" style=\"stroke:var(--p1)\" stroke-width=\"2\"/>"));
        let (mut names, mut numbered) = (Vec::new(), Vec::new());
        for (i, c) in sorted.iter().enumerate() {
            let (px, py) = (x(c), y(c.rate));
            let tip = format!(
                "{}: {}, {:.2} MB/s",
                c.setting.label(&now.setting),
                format_time(c.stall),
                c.rate / 1e6
            );
            let fill = if c.front { "var(--p1)" } else { "var(--async)" };
            canvas.raw(&format!(
                "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"{}\" style=\"fill:{fill}\"><title>{}</title></circle>",
                if c.front { 5 } else { 4 },
                escape(&tip)
            ));
            let (is_now, is_best) = (std::ptr::eq(*c, now), std::ptr::eq(*c, best));
            if is_now || is_best {
                canvas.raw(&format!(
                    "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"8.5\" fill=\"none\" style=\"stroke:var(--p0)\" stroke-width=\"2\"/>"
                ));
                let word = match (is_now, is_best) {
                    (true, true) => "now, and recommended",
                    (true, false) => "now",
                    _ => "recommended",
                };
                let text = format!("{word}: {}", c.setting.label(&now.setting));
                names.push(Label { x: px + 13.0, y: py + 4.5, text });
            } else if c.front {
                numbered.push((px, py, i + 1));
            }
        }
        // Settings that come to the same have one label.
        while let Some(&(px, py, first)) = numbered.first() {
            let same =
                numbered.iter().take_while(|n| (n.0 - px).abs() < 9.0 && (n.1 - py).abs() < 9.0).count();
            let last = numbered.get(same - 1).map_or(first, |n| n.2);
            let text = if last == first { first.to_string() } else { format!("{first} to {last}") };
            names.push(Label { x: px + 9.0, y: py - 7.0, text });
            numbered.drain(..same);
        }
        labels(canvas, names, top, bottom - 4.0);
        canvas.height = bottom + 42.0;
    });
    let table = |caption: &str, only_front: bool| {
        let heads = [
            "setting",
            "no.",
            "stall p99",
            "journal p99",
            "reads p99",
            "sync p99",
            "MB/s",
            "of the best",
            "which",
        ];
        let mut table = Table::new(caption, heads);
        for (i, c) in sorted.iter().enumerate() {
            let (is_now, is_best) = (std::ptr::eq(*c, now), std::ptr::eq(*c, best));
            if only_front && !(c.front || is_now || is_best) {
                continue;
            }
            let p99 = |class: Class| time(c.p99.get(class.index()).copied().flatten());
            let what = match (is_now, is_best, c.front) {
                (true, true, _) => "now, recommended",
                (true, false, _) => "now",
                (false, true, _) => "recommended",
                (false, false, true) => "front",
                (false, false, false) => "",
            };
            let cells: [String; 8] = [
                (i + 1).to_string(),
                format_time(c.stall),
                p99(Class::Journal),
                p99(Class::Reads),
                p99(Class::SyncWrites),
                format!("{:.2}", c.rate / 1e6),
                format!("{:.1} %", c.rate / fastest * 100.0),
                what.to_owned(),
            ];
            table.row(c.setting.label(&now.setting), cells);
            if is_best {
                table.mark();
            }
        }
        table
    };
    let numbers = [
        table("The settings that no other beats in both, and how it is now", true),
        table("Every setting that was tried, the shortest stall first", false),
    ];
    (picture, numbers)
}

/// The nearest of 1, 2, 5 times a power of ten at or above `step`.
fn nice(step: f64) -> f64 {
    let decade = 10_f64.powf(step.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|k| k * decade).find(|s| *s >= step * 0.999).unwrap_or(decade * 10.0)
}
