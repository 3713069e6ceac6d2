//! The report as one self-contained page: no script, no network, light and dark, readable on a phone.

use crate::analysis::Class;
use crate::experiment::Outcome;
use crate::report::json::row;
use crate::report::picture::{STYLE, distribution, escape, timeline};
use crate::report::text::{closed_form, hung_line};
use crate::units::{format_size, format_time};
use crate::workload::bonnie::PHASES;
use std::fmt::Write;

const PAGE: &str = "body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\
main{max-width:60rem;margin:0 auto;padding:1rem}h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.15rem;margin-top:2rem}\
.scroll{overflow-x:auto}svg{min-width:40rem;width:100%;display:block}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}thead th{vertical-align:bottom;white-space:normal;min-width:6rem}\
code{font-size:.85rem;overflow-wrap:anywhere}li{margin:.3rem 0}.soft{color:var(--soft)}.bad{color:var(--journal);font-weight:600}\
.key i{display:inline-block;width:.8rem;height:.8rem;margin:0 .35rem 0 1rem}";

/// The page.
#[must_use]
pub fn render(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let Some(first) = outcomes.first() else { return out };
    let b = &first.config.board;
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>bonnie++ on {0}</title>\
         <style>{STYLE}{PAGE}</style></head><body><main><h1>{1}</h1>\n",
        b.name,
        escape(&headline(outcomes))
    );
    let _ = writeln!(
        out,
        "<p class=\"soft\">Board {}: {} of RAM, {} scheduler tags, requests up to {}. Card {}. bonnie++ with a file of {}. \
         Host {}, seed {}. Simulated in virtual time.</p>",
        b.name,
        format_size(b.ram),
        b.nr_requests,
        format_size(u64::from(b.max_sectors) * 512),
        escape(&first.config.card),
        format_size(b.size),
        first.config.host.name(),
        first.config.seed
    );
    out.push_str("<h2>Side by side</h2>\n<div class=\"scroll\"><table><thead><tr><th></th>");
    for o in outcomes {
        let _ = write!(out, "<th>{}</th>", escape(&o.policy.label()).replace(':', "<br>"));
    }
    out.push_str("</tr></thead><tbody>\n");
    table(&mut out, outcomes);
    out.push_str("</tbody></table></div>\n<h2>The longest journal wait: who is served, who waits</h2>\n<div class=\"scroll\">");
    out.push_str(&timeline(outcomes));
    out.push_str("</div>\n<h2>How long each kind waits</h2>\n<p class=\"key\">Share of all bios done within the time below:");
    for (i, o) in outcomes.iter().enumerate() {
        let _ = write!(out, "<i style=\"background:var(--p{})\"></i>{}", i % 5, escape(&o.policy.label()));
    }
    out.push_str("</p>\n");
    for class in Class::ALL {
        if outcomes.iter().any(|o| o.all.classes.get(class).n > 0) {
            let _ = writeln!(out, "<div class=\"scroll\">{}</div>", distribution(outcomes, class));
        }
    }
    for o in outcomes {
        let _ = write!(out, "<h2>{}</h2>\n<p>{}.</p>\n", escape(&o.policy.label()), escape(&closed_form(o)));
        if o.hung.is_empty() {
            let _ = writeln!(out, "<p>No task slept {} or more.</p>", format_time(b.hung.as_nanos()));
        } else {
            out.push_str("<p>Hung-task reports:</p><ul>\n");
            for h in &o.hung {
                let _ = writeln!(out, "<li>{}</li>", escape(&hung_line(h)));
            }
            out.push_str("</ul>\n");
        }
        let _ = writeln!(
            out,
            "<p class=\"soft\">bonnie++ 1.03: <code>{}</code><br>bonnie++ 2.x: <code>{}</code></p>",
            escape(&row(o).v1_03()),
            escape(&row(o).v2())
        );
    }
    out.push_str("</main></body></html>\n");
    out
}

/// The finding in one sentence.
fn headline(outcomes: &[Outcome]) -> String {
    let worst = |o: &Outcome| o.all.worst[Class::Journal.index()].as_ref().map_or(0, |v| v.wait);
    let (Some(slow), Some(fast)) =
        (outcomes.iter().max_by_key(|o| worst(o)), outcomes.iter().min_by_key(|o| worst(o)))
    else {
        return String::new();
    };
    let one = format!("Under {} a journal write waits {}", slow.policy.label(), format_time(worst(slow)));
    if outcomes.len() > 1 {
        format!("{one}; under {} {} at most", fast.policy.label(), format_time(worst(fast)))
    } else {
        one
    }
}

fn table(out: &mut String, outcomes: &[Outcome]) {
    let mut line = |name: &str, cell: &dyn Fn(&Outcome) -> Option<String>| {
        if outcomes.iter().any(|o| cell(o).is_some()) {
            let _ = write!(out, "<tr><td>{name}</td>");
            for o in outcomes {
                let _ = write!(out, "<td>{}</td>", cell(o).unwrap_or_else(|| "–".into()));
            }
            out.push_str("</tr>\n");
        }
    };
    line("hung-task reports", &|o| {
        let n = o.hung.len();
        Some(if n > 0 { format!("<span class=\"bad\">{n}</span>") } else { n.to_string() })
    });
    for (class, name) in [
        (Class::Journal, "worst journal write"),
        (Class::SyncWrites, "worst sync write"),
        (Class::Reads, "worst read"),
    ] {
        line(name, &|o| o.all.worst[class.index()].as_ref().map(|v| format_time(v.wait)));
    }
    line("worst journal commit", &|o| o.commits.max.map(format_time));
    for (i, name) in PHASES.iter().enumerate() {
        let unit = match i {
            0..=4 => "KiB/s",
            5 => "seeks/s",
            _ => "files/s",
        };
        line(&format!("{name}, {unit}"), &|o| o.phases[i].as_ref().map(|p| format!("{:.0}", p.rate())));
    }
    line("all writes, MB/s", &|o| {
        Some(format!("{:.2}", o.totals.written as f64 / 1e3 / o.elapsed.as_millis().max(1) as f64))
    });
}
