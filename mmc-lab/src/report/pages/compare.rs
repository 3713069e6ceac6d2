//! The report of policies on the cards and workloads of a scenario file.

use crate::compare::cell::{Cell, PARTS, rows};
use crate::compare::run::Spec;
use crate::compare::table::Results;
use crate::report::chart::{LogAxis, Picture, colour, text_width};
use crate::report::html::{Page, Table, clip};
use crate::units::format_time;

/// Pixels a policy.
const LINE: f64 = 9.0;
/// The axis ends here: 0.1 ms to 100 s, in nanoseconds.
const ENDS: (f64, f64) = (1e5, 1e11);

/// The page.
#[must_use]
pub fn render(r: &Results) -> String {
    let about = format!(
        "{} schedulers alone, over cards that account for their time, worst of {} seeds. Stalls of the card and waits for \
         tags included.",
        r.specs.len(),
        r.seeds.len()
    );
    let mut page = Page::new("compare", "Schedulers compared", "How long sync requests wait", &about);
    let mut cards: Vec<&str> = r.cells.iter().map(|c| c.card.as_str()).collect();
    cards.dedup();
    for card in cards {
        let of: Vec<&[Cell]> = rows(&r.cells, r.specs.len())
            .map(|row| row.cells)
            .filter(|cells| cells.first().is_some_and(|c| c.card == card))
            .collect();
        page.section(&format!("Card {card}"));
        page.picture(&picture(card, &of, &r.specs), &numbers(card, &of, &r.specs));
    }
    page.section("All tables");
    page.lines(
        "Efficiency, latencies, fairness and promises, as the command prints them",
        &r.markdown(),
        true,
    );
    page.finish()
}

/// Waits in milliseconds, as a time; nothing completed is a dash.
fn ms(value: f64) -> String {
    if value.is_finite() { format_time((value * 1e6) as u64) } else { "–".into() }
}

fn numbers(card: &str, rows: &[&[Cell]], specs: &[Spec]) -> Table {
    let mut heads = vec!["workload, who waits".to_owned()];
    heads.extend(specs.iter().map(Spec::label));
    let mut table = Table::new(format!("Card {card}: p50 / p99 / longest (efficiency)"), heads);
    for cells in rows {
        let Some(first) = cells.first() else { continue };
        for stream in first.sync_streams() {
            let cell = |c: &Cell| {
                let [p50, p99, max] = PARTS.map(|(_, part)| ms(c.worst(stream, false, part)));
                format!("{p50} / {p99} / {max} ({:.3})", c.efficiency())
            };
            table.row(format!("{}, {stream}", first.scenario), cells.iter().map(cell));
        }
    }
    table
}

/// All workloads of one card.
fn picture(card: &str, rows: &[&[Cell]], specs: &[Spec]) -> Picture {
    let title = format!("Waits on {card}");
    let text = "A line from p50 (dot) over p99 (tick) to the longest; the number is the efficiency. Lines that end at the right \
                edge: nothing was completed. The schedulers stand in the order of the legend.";
    Picture::new(title, text, |canvas| {
        let (left, right) =
            if canvas.narrow { (38.0, canvas.width - 12.0) } else { (230.0, canvas.width - 24.0) };
        let axis = LogAxis::new((left, right), ENDS.0, ENDS.1);
        let x = |ms: f64| axis.at((ms * 1e6).min(ENDS.1));
        let (mut at, mut y) = (0.0, 2.0);
        for (i, spec) in specs.iter().enumerate() {
            let name = spec.label();
            let wide = text_width(&name) + 34.0;
            if at > 0.0 && at + wide > canvas.width {
                (at, y) = (0.0, y + 20.0);
            }
            canvas.raw(&format!(
                "<rect x=\"{at:.1}\" y=\"{y:.1}\" width=\"13\" height=\"13\" style=\"fill:{}\"/>",
                colour(i)
            ));
            canvas.text(at + 18.0, y + 11.0, "", &name);
            at += wide;
        }
        y += 34.0;
        let top = y - 8.0;
        for cells in rows {
            let Some(first) = cells.first() else { continue };
            for (n, stream) in first.sync_streams().enumerate() {
                let name = if n == 0 { format!("{} · {stream}", first.scenario) } else { stream.to_owned() };
                if canvas.narrow {
                    canvas.text(0.0, y + 8.0, "soft", &name);
                    y += 18.0;
                } else {
                    let middle = y + LINE * (cells.len() as f64 - 1.0) / 2.0 + 4.0;
                    canvas.text(left - 44.0, middle, "end", &clip(&name, 28));
                }
                for cell in *cells {
                    let [p50, p99, max] = PARTS.map(|(_, part)| x(cell.worst(stream, false, part)));
                    let colour = colour(cell.policy);
                    canvas.raw(&format!(
                        "<path d=\"M{p50:.1} {y:.1}H{max:.1}M{p99:.1} {:.1}v5\" fill=\"none\" style=\"stroke:{colour}\" stroke-width=\"2\"/>\
                         <circle cx=\"{p50:.1}\" cy=\"{y:.1}\" r=\"3\" style=\"fill:{colour}\"/>",
                        y - 2.5
                    ));
                    if n == 0 {
                        canvas.raw(&format!(
                            "<text x=\"{:.0}\" y=\"{:.1}\" class=\"soft end\" style=\"font-size:9px\">{:.3}</text>",
                            left - 6.0,
                            y + 3.0,
                            cell.efficiency()
                        ));
                    }
                    y += LINE;
                }
                y += 8.0;
            }
        }
        axis.grid(canvas, top, y);
        canvas.height = y + 24.0;
    })
}
