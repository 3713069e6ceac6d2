//! The latencies as one self-contained page: no script, no network, light and dark.

use super::cell::{Cell, PARTS, rows};
use super::run::Spec;
use super::table::Results;
use crate::report::picture::{STYLE, escape};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 16.0;
const LINE: f64 = 9.0;
const PAGE: &str = "body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\
main{max-width:60rem;margin:0 auto;padding:1rem}h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.15rem;margin-top:2rem}\
.scroll{overflow-x:auto}svg{min-width:40rem;width:100%;display:block}.soft{color:var(--soft)}\
.key i{display:inline-block;width:.8rem;height:.8rem;margin:0 .35rem 0 1rem}pre{overflow-x:auto;font-size:.8rem}";

/// 0.1 ms to 100 s, logarithmic.
fn x(ms: f64) -> f64 {
    LEFT + (ms.clamp(0.1, 1e5).log10() + 1.0) / 6.0 * (WIDTH - LEFT - RIGHT)
}

/// The page.
#[must_use]
pub fn page(r: &Results) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Schedulers compared</title>\
         <style>{STYLE}{PAGE}</style></head><body><main><h1>How long sync requests wait</h1>\n\
         <p class=\"soft\">A line from p50 (dot) over p99 (tick) to the longest, worst of {} seeds; the number is the efficiency. \
         Stalls of the card and waits for tags included. Lines that end at the right edge: nothing was completed.</p>\n<p class=\"key\">",
        r.seeds.len()
    );
    for (i, s) in r.specs.iter().enumerate() {
        let _ = write!(out, "<i style=\"background:var(--p{})\"></i>{}", i % 5, escape(&s.label()));
    }
    out.push_str("</p>\n");
    let mut cards: Vec<&str> = r.cells.iter().map(|c| c.card.as_str()).collect();
    cards.dedup();
    for card in cards {
        let of: Vec<&[Cell]> = rows(&r.cells, r.specs.len())
            .map(|row| row.cells)
            .filter(|cells| cells.first().is_some_and(|c| c.card == card))
            .collect();
        let _ = write!(
            out,
            "<h2>{}</h2>\n<div class=\"scroll\">{}</div>\n",
            escape(card),
            picture(&of, &r.specs)
        );
    }
    let _ = write!(out, "<h2>Tables</h2>\n<pre>{}</pre>\n</main></body></html>\n", escape(&r.markdown()));
    out
}

/// All workloads of one card.
fn picture(rows: &[&[Cell]], specs: &[Spec]) -> String {
    let (mut body, mut y) = (String::new(), 24.0);
    for cells in rows {
        let Some(first) = cells.first() else { continue };
        for (n, stream) in first.sync_streams().enumerate() {
            let top = y;
            for (cell, _) in cells.iter().zip(specs) {
                let [p50, p99, max] = PARTS.map(|(_, part)| x(cell.worst(stream, false, part)));
                let colour = format!("var(--p{})", cell.policy % 5);
                let _ = write!(
                    body,
                    "<path d=\"M{p50:.1} {y:.1}H{max:.1}M{p99:.1} {:.1}v5\" stroke=\"{colour}\" stroke-width=\"2\"/>\
                     <circle cx=\"{p50:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>",
                    y - 2.5
                );
                if n == 0 {
                    let _ = write!(
                        body,
                        "<text x=\"{:.0}\" y=\"{:.1}\" class=\"soft end\" style=\"font-size:8px\">{:.3}</text>",
                        LEFT - 6.0,
                        y + 3.0,
                        cell.efficiency()
                    );
                }
                y += LINE;
            }
            let name = if n == 0 { format!("{} · {stream}", first.scenario) } else { stream.to_owned() };
            let _ = write!(
                body,
                "<text x=\"{:.0}\" y=\"{:.1}\" class=\"end\">{}</text>",
                LEFT - 36.0,
                (top + y) / 2.0,
                escape(&name)
            );
            y += 6.0;
        }
    }
    let mut grid = String::new();
    for (ms, name) in
        [(0.1, "0.1 ms"), (1.0, "1 ms"), (10.0, "10 ms"), (100.0, "0.1 s"), (1e3, "1 s"), (1e4, "10 s")]
    {
        let _ = write!(
            grid,
            "<path class=\"grid\" d=\"M{0:.1} 16V{y:.1}\"/><text class=\"soft mid\" x=\"{0:.1}\" y=\"11\">{name}</text>",
            x(ms)
        );
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y:.0}\" role=\"img\" \
         aria-label=\"Latencies of all policies\">{grid}{body}</svg>"
    )
}
