//! Pictures as SVG: the timeline of a stall, and latency distributions. Colours are CSS variables, so that one drawing
//! serves light and dark pages.

use crate::analysis::Class;
use crate::experiment::{Outcome, served};
use crate::trace::model::{Event, Kind};
use crate::units::format_time;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Width of every drawing.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 126.0;
const RIGHT: f64 = 16.0;
/// Seconds that a timeline shows at least.
const WINDOW: f64 = 30.0;

/// The style both drawings need; a page may set other values for the variables.
pub const STYLE: &str = "\
:root{--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--paper:#ffffff;\
--async:#8c959f;--sync:#0969da;--journal:#cf222e;--read:#1a7f37;--p0:#cf222e;--p1:#bc4c00;--p2:#0969da;--p3:#8250df;--p4:#1a7f37}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--paper:#0d1117;\
--async:#656c76;--sync:#4493f8;--journal:#f85149;--read:#3fb950;--p0:#f85149;--p1:#f0883e;--p2:#4493f8;--p3:#ab7df8;--p4:#3fb950}}\
svg text{fill:var(--ink);font:13px system-ui,sans-serif}svg .soft{fill:var(--soft)}svg .end{text-anchor:end}svg .mid{text-anchor:middle}\
svg .async{fill:var(--async)}svg .sync{fill:var(--sync)}svg .journal{fill:var(--journal)}svg .read{fill:var(--read)}\
svg .grid{stroke:var(--line);stroke-width:1}svg .depth{fill:var(--async);opacity:.35}";

fn css(class: Class) -> &'static str {
    match class {
        Class::Journal => "journal",
        Class::Reads => "read",
        Class::SyncWrites => "sync",
        Class::AsyncWrites => "async",
    }
}

/// Text with the characters that mean something in XML replaced.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    fn x(&self, ns: u64) -> f64 {
        let s = (ns as f64 / 1e9).clamp(self.from, self.to);
        LEFT + (s - self.from) / (self.to - self.from) * (WIDTH - LEFT - RIGHT)
    }
    fn shows(&self, from: u64, to: u64) -> bool {
        to as f64 / 1e9 > self.from && (from as f64 / 1e9) < self.to
    }
    fn bar(&self, out: &mut String, class: &str, span: (u64, u64), y: f64, h: f64, more: &str) {
        let (a, b) = (self.x(span.0), self.x(span.1));
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{a:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{h:.1}\"{more}/>",
            (b - a).max(0.8)
        );
    }
}

/// The longest wait of a journal write that was queued behind others (at least 16 requests outstanding), or else of
/// any: queued, issued, completed.
fn longest_journal_wait(events: &[Event]) -> Option<(u64, u64, u64)> {
    let mut open: BTreeMap<u64, (u64, u64, bool)> = BTreeMap::new();
    let (mut outstanding, mut best) = (0_i64, None);
    for e in events {
        let range = e.sector..e.sector + u64::from(e.sectors);
        match e.kind {
            Kind::BioQueue if Class::of(&e.rwbs, &e.task) == Class::Journal => {
                open.insert(e.sector, (e.at, e.at, outstanding >= 16));
            }
            Kind::Insert => outstanding += 1,
            Kind::Issue => open.range_mut(range).for_each(|(_, w)| w.1 = e.at),
            Kind::Complete => {
                outstanding -= 1;
                while let Some((&s, &(queued, issued, busy))) = open.range(range.clone()).next() {
                    open.remove(&s);
                    best = best.max(Some((busy, e.at - queued, queued, issued, e.at)));
                }
            }
            _ => {}
        }
    }
    best.map(|(_, _, queued, issued, completed)| (queued, issued, completed))
}

/// The timeline around the longest journal wait of one policy, drawn from `y` down; the height it took.
fn panel(out: &mut String, o: &Outcome, y: f64) -> f64 {
    let Some((start, issued, end)) = longest_journal_wait(&o.events) else { return 0.0 };
    let from = start as f64 / 1e9 - 3.0;
    let axis = Axis { from, to: (from + WINDOW).max(end as f64 / 1e9 + 2.0) };
    let title = format!(
        "{}: longest wait of a journal write behind others {}",
        o.policy.label(),
        format_time(end - start)
    );
    let _ = write!(out, "<text x=\"0\" y=\"{:.0}\" font-weight=\"600\">{}</text>", y + 14.0, escape(&title));
    let label = |out: &mut String, text: &str, y: f64| {
        let _ = write!(out, "<text class=\"soft end\" x=\"{:.0}\" y=\"{y:.0}\">{text}</text>", LEFT - 8.0);
    };
    let mut at = y + 26.0;
    label(out, "card serves", at + 16.0);
    for (k, c) in served(&o.events).into_iter().filter(|c| axis.shows(c.from, c.to)).enumerate() {
        let more = if k % 2 == 0 { "" } else { " opacity=\".72\"" };
        axis.bar(out, css(c.class), (c.from, c.to), at, 22.0, more);
    }
    at += 30.0;
    label(out, "journal write", at + 12.0);
    axis.bar(out, "journal", (start, issued), at + 5.0, 5.0, " opacity=\".45\"");
    axis.bar(out, "journal", (issued, end), at, 16.0, "");
    let mut tasks: Vec<&str> = o.sleeps.iter().map(|s| s.0.as_str()).collect();
    tasks.sort_unstable();
    tasks.dedup();
    for task in tasks {
        let mut spans =
            o.sleeps.iter().filter(|s| s.0 == task && axis.shows(s.1.as_nanos(), s.2.as_nanos())).peekable();
        if spans.peek().is_none() {
            continue;
        }
        at += 22.0;
        label(out, &format!("{} asleep", escape(task.split('/').next().unwrap_or(task))), at + 12.0);
        for s in spans {
            let hung = s.2.since(s.1) >= o.config.board.hung;
            let class = if hung { "journal" } else { "sync" };
            axis.bar(out, class, (s.1.as_nanos(), s.2.as_nanos()), at, 14.0, " opacity=\".8\"");
        }
    }
    at += 26.0;
    label(out, "queued", at + 22.0);
    let (mut depth, mut points) = (0_i64, String::new());
    let (bottom, full) = (at + 34.0, f64::from(o.config.board.nr_requests));
    for e in &o.events {
        let before = depth;
        match e.kind {
            Kind::Insert => depth += 1,
            Kind::Issue | Kind::RqMerge => depth -= 1,
            _ => continue,
        }
        if axis.shows(e.at, e.at + 1) {
            let h = |d: i64| bottom - 32.0 * (d as f64 / full).clamp(0.0, 1.0);
            if points.is_empty() {
                let _ = write!(points, "{LEFT:.1},{bottom:.1} {LEFT:.1},{:.1} ", h(before));
            }
            let x = axis.x(e.at);
            let _ = write!(points, "{x:.1},{:.1} {x:.1},{:.1} ", h(before), h(depth));
        }
    }
    let _ = write!(points, "{:.1},{bottom:.1}", WIDTH - RIGHT);
    let _ = write!(out, "<polygon class=\"depth\" points=\"{points}\"/>");
    at = bottom;
    let mut tick = 0.0;
    while from + 3.0 + tick <= axis.to {
        let x = axis.x(((from + 3.0 + tick) * 1e9) as u64);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {at:.1}v5\"/><text class=\"soft mid\" x=\"{x:.1}\" y=\"{:.0}\">{tick:.0} s</text>",
            at + 18.0
        );
        tick += 5.0;
    }
    at + 34.0 - y
}

/// The timeline of all policies, each around its own longest journal wait.
#[must_use]
pub fn timeline(outcomes: &[Outcome]) -> String {
    let (mut body, mut y) = (String::new(), 34.0);
    let mut x = LEFT;
    for (class, name) in Class::ALL.map(|c| (css(c), c.noun())) {
        let _ = write!(
            body,
            "<rect class=\"{class}\" x=\"{x:.0}\" y=\"4\" width=\"13\" height=\"13\"/><text x=\"{:.0}\" y=\"15\">{name}</text>",
            x + 18.0
        );
        x += 60.0 + name.len() as f64 * 7.0;
    }
    let _ = write!(body, "<text class=\"soft\" x=\"{x:.0}\" y=\"15\">red sleep: hung task</text>");
    for o in outcomes {
        y += panel(&mut body, o, y) + 12.0;
    }
    svg(&body, y, "Who the card serves and who waits")
}

/// Cumulative distributions of the waits of one class, a line per policy, over a logarithmic axis.
#[must_use]
pub fn distribution(outcomes: &[Outcome], class: Class) -> String {
    const HEIGHT: f64 = 190.0;
    let (top, bottom) = (24.0, HEIGHT - 34.0);
    // 1 ms to 100 s.
    let x = |ns: u64| LEFT + ((ns.max(1_000_000) as f64).log10() - 6.0) / 5.0 * (WIDTH - LEFT - RIGHT);
    let y = |share: f64| bottom - share * (bottom - top);
    let mut body = format!("<text x=\"0\" y=\"14\" font-weight=\"600\">{}</text>", class.noun());
    for (share, name) in [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")] {
        let at = y(share);
        let _ = write!(
            body,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text class=\"soft end\" x=\"{:.0}\" y=\"{:.0}\">{name}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0
        );
    }
    for (ns, name) in [
        (1_000_000, "1 ms"),
        (10_000_000, "10 ms"),
        (100_000_000, "0.1 s"),
        (1_000_000_000, "1 s"),
        (10_000_000_000, "10 s"),
        (100_000_000_000, "100 s"),
    ] {
        let at = x(ns);
        let anchor = if ns == 100_000_000_000 { "end" } else { "mid" };
        let _ = write!(
            body,
            "<path class=\"grid\" d=\"M{at:.1} {top}V{bottom}\"/><text class=\"soft {anchor}\" x=\"{at:.1}\" y=\"{:.0}\">{name}</text>",
            bottom + 18.0
        );
    }
    for (i, o) in outcomes.iter().enumerate() {
        let waits = waits(&o.events, class);
        let n = waits.len();
        let (mut points, mut last) = (String::new(), f64::NEG_INFINITY);
        for (k, w) in waits.iter().enumerate() {
            // One point a pixel is enough.
            if x(*w) - last >= 1.0 || k + 1 == n {
                last = x(*w);
                let _ = write!(points, "{last:.1},{:.1} ", y((k + 1) as f64 / n as f64));
            }
        }
        let _ = write!(
            body,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"var(--p{})\" stroke-width=\"2\"/>",
            i % 5
        );
    }
    svg(&body, HEIGHT, &format!("Distribution of waits: {}", class.noun()))
}

/// Waits of all bios of a class, sorted: from their queueing to the first completion that covers their first sector.
#[must_use]
pub fn waits(events: &[Event], class: Class) -> Vec<u64> {
    let mut open: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut out = Vec::new();
    for e in events {
        match e.kind {
            Kind::BioQueue if Class::of(&e.rwbs, &e.task) == class => {
                open.entry(e.sector).or_default().push(e.at)
            }
            Kind::Complete => {
                let end = e.sector + u64::from(e.sectors);
                let hit: Vec<u64> = open.range(e.sector..end).map(|(s, _)| *s).collect();
                for s in hit {
                    out.extend(open.remove(&s).unwrap_or_default().into_iter().map(|at| e.at - at));
                }
            }
            _ => {}
        }
    }
    out.sort_unstable();
    out
}

fn svg(body: &str, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>{body}</svg>",
        escape(title)
    )
}

/// The timeline as a file of its own.
#[must_use]
pub fn standalone(outcomes: &[Outcome]) -> String {
    let drawing = timeline(outcomes);
    let paper = "<rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>";
    drawing.replacen("<title>", &format!("<style>{STYLE}</style>{paper}<title>"), 1) + "\n"
}
