//! Pictures of how long things wait: distributions, heat maps over time, the parts of the longest waits, and what the card
//! did during the longest of all.

use super::chart::{Canvas, Label, LogAxis, Picture, TimeAxis, colour, css, dash, labels, text_width};
use super::html::{Cell, Table, clip};
use crate::analysis::{
    Class, ClassStats, Command, Octaves, ROWS, ROWS_PER_DECADE, Record, Report, Victim, row_from,
};
use crate::units::{format_size, format_time};
use std::fmt::Write;

/// Left edge of what is drawn, where labels stand beside it.
pub(super) const LEFT: f64 = 132.0;
/// Room for the last label of an axis.
pub(super) const RIGHT: f64 = 24.0;

/// Left and right edge of a drawing.
pub(super) fn edges(canvas: &Canvas) -> (f64, f64) {
    if canvas.narrow { (2.0, canvas.width - 10.0) } else { (LEFT, canvas.width - RIGHT) }
}

/// The name of a track at `y`, beside it or, on a phone, above it; the `y` where the track begins.
pub(super) fn track(canvas: &mut Canvas, y: f64, height: f64, name: &str) -> f64 {
    if canvas.narrow {
        canvas.text(0.0, y + 11.0, "soft", name);
        return y + 16.0;
    }
    canvas.text(LEFT - 8.0, y + height / 2.0 + 4.5, "soft end", &clip(name, 18));
    y
}

/// A time or a dash.
pub(super) fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".to_owned(), format_time)
}

/// The cells of a row of latencies: how many, p50, p99, p99.9, p99.99, longest.
pub(super) fn cells(stats: &ClassStats) -> [String; 6] {
    let ClassStats { n, p50, p99, p999, p9999, max } = *stats;
    [n.to_string(), time(p50), time(p99), time(p999), time(p9999), time(max)]
}

/// Heads above [`cells`].
pub(super) fn heads(first: &str) -> [String; 7] {
    [first, "waits", "p50", "p99", "p99.9", "p99.99", "longest"].map(str::to_owned)
}

/// One line of a distribution.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Colour, as CSS.
    pub colour: String,
    /// Upper end in nanoseconds, waits up to there.
    pub steps: Vec<(u64, u64)>,
    /// The exact figures of the same waits.
    pub stats: ClassStats,
}

/// The lines of all classes of one run.
#[must_use]
pub fn by_class(report: &Report) -> Vec<Series> {
    let Some(record) = &report.record else { return Vec::new() };
    let series = |class: Class| Series {
        name: format!("{}s", class.noun()),
        colour: format!("var(--{})", css(class)),
        steps: record.steps(class),
        stats: *report.classes.get(class),
    };
    Class::ALL.into_iter().map(series).filter(|s| s.stats.n > 0).collect()
}

/// The lines of one class under several policies.
#[must_use]
pub fn by_policy<'a>(runs: impl Iterator<Item = (&'a str, &'a Report)>, class: Class) -> Vec<Series> {
    let series = |(i, (name, report)): (usize, (&str, &Report))| Series {
        name: name.to_owned(),
        colour: colour(i),
        steps: report.record.as_ref().map(|r| r.steps(class)).unwrap_or_default(),
        stats: *report.classes.get(class),
    };
    runs.enumerate().map(series).collect()
}

/// A line of a picture: by its dashes it can be told without its colour.
fn stroke(canvas: &mut Canvas, d: &str, series: usize, colour: &str) {
    canvas.raw(&format!(
        "<path d=\"{d}\" fill=\"none\" style=\"stroke:{colour}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
        dash(series)
    ));
}

/// The name of a line where there is no room for one.
fn letter(series: usize) -> String {
    char::from(b'A'.saturating_add((series % 26) as u8)).to_string()
}

/// A distribution of waits with its numbers: the tail has as much room as the rest. Unless `explained` already, it says how
/// to read it.
#[must_use]
pub fn distribution(title: &str, series: &[Series], explained: bool) -> (Picture, Table) {
    let mut numbers = Table::new(title, heads("which"));
    for s in series {
        numbers.row(s.name.clone(), cells(&s.stats));
    }
    let drawn: Vec<(usize, &Series)> =
        series.iter().enumerate().filter(|(_, s)| !s.steps.is_empty()).collect();
    let all = || drawn.iter().flat_map(|(_, s)| s.steps.iter().map(|s| s.0 as f64));
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(1e6, f64::max));
    let text = if explained {
        "Share of the waits that were over within the time below."
    } else {
        "Read it as: this share of the waits was over within the time below. Each further step up is a tenth of the \
                waits before it, so that the rare long waits have room. A line ends, at its letter, at the longest wait."
    };
    let picture = Picture::new(title, text, |canvas| {
        let (left, right) = edges(canvas);
        let deep = drawn.iter().map(|(_, s)| (s.stats.n.max(1) as f64).log10()).fold(1.0, f64::max).min(5.0);
        let left = match (canvas.narrow, deep >= 4.0) {
            (true, true) => 54.0,
            (true, false) => 44.0,
            (false, _) => left.min(70.0),
        };
        let mut top = 4.0;
        for (i, s) in &drawn {
            stroke(canvas, &format!("M{left:.1} {:.1}h30", top + 6.0), *i, &s.colour);
            canvas.text(left + 36.0, top + 10.5, "strong", &letter(*i));
            let name = format!("{}, longest {}", s.name, time(s.stats.max));
            canvas.text(left + 50.0, top + 10.5, "", &clip(&name, if canvas.narrow { 37 } else { 100 }));
            top += 18.0;
        }
        let (top, bottom) = (top + 8.0, top + 18.0 + 44.0 * deep);
        let y = |nines: f64| bottom - nines.clamp(0.0, deep) / deep * (bottom - top - 10.0);
        let axis = LogAxis::new((left, right), if least.is_finite() { least * 0.98 } else { 1e6 }, most);
        axis.grid(canvas, top, bottom);
        for (nines, name) in
            [(0.0, "0 %"), (0.301, "50 %"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (4.0, "99.99 %")]
        {
            if nines <= deep {
                canvas.path("grid", &format!("M{left:.1} {:.1}H{right:.1}", y(nines)));
                let class = if canvas.narrow { "soft end small" } else { "soft end" };
                canvas.text(left - 6.0, y(nines) + 4.0, class, name);
            }
        }
        let mut names = Vec::new();
        for (i, s) in &drawn {
            let n = s.stats.n.max(1) as f64;
            let nines = |all: u64| if all as f64 >= n { n.log10() } else { -(1.0 - all as f64 / n).log10() };
            let (mut d, mut end) = (String::new(), (left, y(0.0)));
            let longest = s.stats.max.unwrap_or(u64::MAX);
            for (k, &(ns, all)) in s.steps.iter().enumerate() {
                let (px, py) = (axis.at(ns.min(longest) as f64), y(nines(all)));
                // A step of less than a quarter of a pixel is not to be seen.
                if k == 0 {
                    let _ = write!(d, "M{px:.1} {:.1}V{py:.1}", y(0.0));
                } else if py < end.1 - 0.25 || k + 1 == s.steps.len() {
                    let _ = write!(d, "H{px:.1}V{py:.1}");
                } else {
                    continue;
                }
                end = (px, py);
            }
            stroke(canvas, &d, *i, &s.colour);
            canvas.raw(&format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" style=\"fill:{}\"/>",
                end.0, end.1, s.colour
            ));
            names.push(Label { x: end.0 + 7.0, y: end.1 + 4.5, text: letter(*i) });
        }
        labels(canvas, names, top + 8.0, bottom - 4.0);
        canvas.text(right, bottom + 34.0, "soft end", "time waited");
        canvas.height = bottom + 42.0;
    });
    (picture, numbers)
}

/// Waits over time, a panel a class: the darker, the more.
#[must_use]
pub fn heat(title: &str, report: &Report, record: &Record) -> (Picture, Table) {
    let classes: Vec<Class> =
        Class::ALL.into_iter().filter(|c| record.heat(*c).flatten().any(|&n| n > 0)).collect();
    let used: Vec<usize> = (0..ROWS)
        .filter(|&row| {
            classes.iter().any(|c| record.heat(*c).any(|rows| rows.get(row).is_some_and(|&n| n > 0)))
        })
        .collect();
    let per = ROWS_PER_DECADE as usize;
    let low = used.first().copied().unwrap_or(0) / per * per;
    let high = (used.last().copied().unwrap_or(per - 1) / per + 1) * per;
    let columns = classes.iter().map(|c| record.heat(*c).count()).max().unwrap_or(1);
    let end = record.start().saturating_add(record.width().saturating_mul(columns as u64));
    let text = "Each cell counts the waits that ended then and had lasted so long; the more, the fuller its colour. Long \
                waits are at the top.";
    let picture = Picture::new(title, text, |canvas| {
        let (left, right) = edges(canvas);
        let left = if canvas.narrow { 58.0 } else { left };
        let step = if canvas.narrow { 2 } else { 1 };
        let axis = TimeAxis::new((left, right), record.start(), end);
        let (wide, tall) = ((right - left) / columns.max(1) as f64, if canvas.narrow { 3.5 } else { 4.0 });
        let mut top = 4.0;
        for class in &classes {
            let height = (high - low) as f64 * tall;
            let y = |row: usize| top + 18.0 + height - (row.saturating_sub(low)) as f64 * tall;
            let most = record.heat(*class).flatten().copied().max().unwrap_or(1).max(1);
            let longest = time(report.worst.get(class.index()).and_then(|v| Some(v.as_ref()?.wait)));
            let mut name = format!("{}s, longest {longest}", class.noun());
            if !canvas.narrow {
                let _ = write!(name, ", up to {most} a cell");
            }
            canvas.text(if canvas.narrow { 0.0 } else { left }, top + 11.0, "strong", &name);
            for row in (low..=high).step_by(per) {
                canvas.path("grid", &format!("M{left:.1} {:.1}H{right:.1}", y(row)));
                if row < high || high - low <= per {
                    canvas.text(
                        left - 6.0,
                        y(row) + 4.0,
                        "soft end small",
                        &format_time(row_from(row).round() as u64),
                    );
                }
            }
            let mut levels = vec![String::new(); 5];
            let cells: Vec<&[u32; ROWS]> = record.heat(*class).collect();
            for (c, columns) in cells.chunks(step).enumerate() {
                for row in low..high {
                    let n: u32 = columns.iter().filter_map(|rows| rows.get(row)).sum();
                    if n == 0 {
                        continue;
                    }
                    let level =
                        ((f64::from(n) + 1.0).ln() / (f64::from(most) + 1.0).ln() * 4.0).floor().min(4.0);
                    if let Some(d) = levels.get_mut(level as usize) {
                        let x = left + (c * step) as f64 * wide;
                        // A little wider than the column, so that a single wait can be seen.
                        let w = (wide * step as f64).max(2.2);
                        let _ = write!(d, "M{x:.1} {:.1}h{w:.1}v{tall}h-{w:.1}z", y(row + 1));
                    }
                }
            }
            for (d, opacity) in
                levels.iter().zip([".5", ".62", ".75", ".88", "1"]).filter(|l| !l.0.is_empty())
            {
                canvas.raw(&format!("<path class=\"{}\" d=\"{d}\" opacity=\"{opacity}\"/>", css(*class)));
            }
            top += height + 34.0;
        }
        axis.ticks(canvas, top - 12.0, record.start());
        canvas.height = top + 14.0;
    });
    // Coarser than the picture: by decade, and in twelve parts of time.
    let parts = columns.clamp(1, 12);
    let mut heads = vec!["class and wait".to_owned()];
    heads.extend((0..parts).map(|p| {
        let s = |p: usize| (p * columns / parts) as f64 * record.width() as f64 / 1e9;
        format!("{:.1} to {:.1} s", s(p), s(p + 1))
    }));
    let mut numbers = Table::new(format!("{title}: waits that ended in each part of the time"), heads);
    for class in &classes {
        let cells: Vec<&[u32; ROWS]> = record.heat(*class).collect();
        for decade in (low..high).step_by(per) {
            let counts: Vec<String> = (0..parts)
                .map(|p| {
                    let within = cells.get(p * columns / parts..((p + 1) * columns / parts).min(cells.len()));
                    let n: u32 = within
                        .unwrap_or(&[])
                        .iter()
                        .flat_map(|rows| rows.get(decade..decade + per).unwrap_or(&[]))
                        .sum();
                    n.to_string()
                })
                .collect();
            if counts.iter().any(|n| n != "0") {
                let [from, to] = [decade, decade + per].map(|r| format_time(row_from(r).round() as u64));
                let from = if decade == 0 { "0".to_owned() } else { from };
                numbers.row(format!("{}s, {from} to {to}", class.noun()), counts);
            }
        }
    }
    (picture, numbers)
}

/// What the card worked for, and how many requests were there, over the whole time.
#[must_use]
pub fn overview(title: &str, report: &Report, record: &Record) -> (Picture, Table) {
    let busy = record.busy();
    let depth = report.depth.columns(240);
    let width = record.width().max(1);
    let end = record.start().saturating_add(width.saturating_mul(busy.len() as u64));
    let deepest = report.queue_depth_max.max(1);
    let text = "Above, whom the card worked for: a column as high as the frame is a card that never rested. Below, the \
                requests that were in the scheduler or at the card.";
    let picture = Picture::new(title, text, |canvas| {
        let (left, right) = edges(canvas);
        let axis = TimeAxis::new((left, right), record.start(), end);
        let names: Vec<(&str, &str)> = Class::ALL.iter().map(|c| (css(*c), c.noun())).collect();
        let legend = canvas.legend(left, 2.0, &names);
        let top = track(canvas, legend + 4.0, 90.0, "card works for");
        let base = top + 90.0;
        canvas.path("grid", &format!("M{left:.1} {top:.1}H{right:.1}M{left:.1} {base:.1}H{right:.1}"));
        if !canvas.narrow {
            canvas.text(left - 8.0, top + 9.0, "soft end small", "100 %");
        }
        let wide = (right - left) / busy.len().max(1) as f64;
        for class in Class::ALL {
            let mut d = String::new();
            for (i, column) in busy.iter().enumerate() {
                let below: u64 =
                    Class::ALL.iter().take(class.index()).filter_map(|c| column.get(c.index())).sum();
                let own = column.get(class.index()).copied().unwrap_or(0);
                let y = |ns: u64| base - (ns as f64 / width as f64).min(1.0) * 90.0;
                if own > 0 {
                    let x = left + i as f64 * wide;
                    let h = y(below) - y(below + own);
                    let _ = write!(d, "M{x:.1} {:.1}h{wide:.2}v{h:.1}h-{wide:.2}z", y(below + own));
                }
            }
            canvas.path(css(class), &d);
        }
        let top = track(canvas, base + 14.0, 60.0, "requests there");
        let base = top + 60.0;
        canvas.path("grid", &format!("M{left:.1} {top:.1}H{right:.1}"));
        canvas.text(
            if canvas.narrow { right } else { left - 8.0 },
            if canvas.narrow { top - 4.0 } else { top + 9.0 },
            "soft end small",
            &deepest.to_string(),
        );
        let mut d = format!("M{left:.1} {base:.1}");
        let wide = (right - left) / depth.len().max(1) as f64;
        for (i, n) in depth.iter().enumerate() {
            let y = base - f64::from(*n) / deepest as f64 * 60.0;
            let x = left + i as f64 * wide;
            let _ = write!(d, "V{y:.1}H{:.1}", x + wide);
        }
        let _ = write!(d, "V{base:.1}z");
        canvas.path("depth", &d);
        axis.ticks(canvas, base, record.start());
        canvas.height = base + 24.0;
    });
    let mut heads = vec!["part of the time".to_owned()];
    heads.extend(Class::ALL.map(|c| format!("{}s", c.noun())));
    heads.push("most requests".to_owned());
    let mut numbers =
        Table::new(format!("{title}: percent of the time that the card worked for each"), heads);
    let parts = busy.len().clamp(1, 20);
    for p in 0..parts {
        let range = p * busy.len() / parts..(p + 1) * busy.len() / parts;
        let columns = busy.get(range.clone()).unwrap_or(&[]);
        let whole = (columns.len() as u64).saturating_mul(width).max(1);
        let mut cells: Vec<String> = Class::ALL
            .iter()
            .map(|c| {
                let ns: u64 = columns.iter().filter_map(|column| column.get(c.index())).sum();
                format!("{:.1} %", ns as f64 / whole as f64 * 100.0)
            })
            .collect();
        let most = depth.get(p * depth.len() / parts..(p + 1) * depth.len() / parts).unwrap_or(&[]);
        cells.push(most.iter().max().copied().unwrap_or(0).to_string());
        let s = |column: usize| column as f64 * width as f64 / 1e9;
        numbers.row(format!("{:.2} to {:.2} s", s(range.start), s(range.end)), cells);
    }
    (picture, numbers)
}

/// The parts of the longest waits.
#[must_use]
pub fn anatomy(victims: &[&Victim]) -> (Picture, Table) {
    const LINE: f64 = 26.0;
    let title = "Where the longest waits were spent";
    let text = "Without a tag the task slept before its request could even enter the scheduler; in the scheduler others \
                were sent first; at the card is the work itself.";
    let most = victims.iter().map(|v| v.wait).max().unwrap_or(1).max(1);
    let name = |v: &Victim| format!("{} {}", v.task, v.rwbs);
    let picture = Picture::new(title, text, |canvas| {
        let left = if canvas.narrow { 0.0 } else { 190.0 };
        let room = if canvas.narrow { 0.0 } else { 210.0 };
        let right = canvas.width - room;
        let key = [("tags", "without a tag"), ("queue", "in the scheduler"), ("card", "at the card")];
        let mut y = canvas.legend(left, 2.0, &key) + 6.0;
        for v in victims {
            let note = format!("{}, {} went first", format_time(v.wait), v.ahead.requests);
            if canvas.narrow {
                canvas.text(0.0, y + 11.0, "", &clip(&name(v), 24));
                canvas.text(canvas.width, y + 11.0, "soft end", &note);
                y += 16.0;
            } else {
                canvas.text(left - 8.0, y + 13.0, "end", &clip(&name(v), 25));
            }
            let mut x = left;
            for (class, part) in [("tags", v.tag_wait), ("queue", v.sched_wait), ("card", v.service)] {
                let w = part as f64 / most as f64 * (right - left);
                canvas.rect(class, (x, y), (w, 17.0), "");
                x += w;
            }
            if !canvas.narrow {
                canvas.text(x + 8.0, y + 13.0, "", &note);
            }
            y += LINE;
        }
        canvas.height = y + 2.0;
    });
    let heads = [
        "task",
        "flags",
        "sector",
        "size",
        "wait",
        "tags",
        "queue",
        "card",
        "to blame",
        "went first",
        "older",
        "younger",
        "background writes",
        "bytes",
    ];
    let mut numbers =
        Table::new("The longest waits, each with its parts and what was sent to the card before it", heads);
    for v in victims {
        let wait = if v.completed.is_none() {
            format!("{}, not done", format_time(v.wait))
        } else {
            format_time(v.wait)
        };
        let a = &v.ahead;
        let cells: Vec<Cell> = vec![
            v.rwbs.clone().into(),
            v.sector.to_string().into(),
            format_size(v.sectors.saturating_mul(512)).into(),
            wait.into(),
            format_time(v.tag_wait).into(),
            format_time(v.sched_wait).into(),
            format_time(v.service).into(),
            v.blame.word().into(),
            a.requests.to_string().into(),
            a.older.to_string().into(),
            a.younger.to_string().into(),
            a.background_writes().to_string().into(),
            format_size(a.bytes).into(),
        ];
        numbers.row(v.task.clone(), cells);
    }
    (picture, numbers)
}

/// What the card did during the longest wait of a class that a task may have slept for; `None` if there was none.
#[must_use]
pub fn longest(record: &Record, class: Class) -> Option<(Picture, Table)> {
    let (v, commands) = record.worst(class)?;
    let began = v.queued.or(v.inserted).or(v.issued)?;
    let end = began.saturating_add(v.wait);
    let entered = v.inserted.unwrap_or(began);
    let title = format!(
        "The longest wait of a {}: by {}, {}",
        v.class.noun(),
        clip(&v.task, 40),
        format_time(v.wait)
    );
    let text = format!(
        "{} requests went first, {} of them background writes; {} had been queued before it, {} came later. Time counts \
         from its first event.",
        v.ahead.requests,
        v.ahead.background_writes(),
        v.ahead.older,
        v.ahead.younger
    );
    let is_other = |c: &&Command| c.to != end || c.sectors != v.sectors;
    let is_older = |c: &Command| c.inserted.is_some_and(|i| i <= entered);
    let picture = Picture::new(&title, &text, |canvas| {
        let (left, right) = edges(canvas);
        let axis = TimeAxis::new((left, right), began, end);
        let strip = |canvas: &mut Canvas, at: f64, class: &str, of: &mut dyn Iterator<Item = &Command>| {
            let mut d = String::new();
            for c in of {
                let (a, b) = (axis.at(c.from), axis.at(c.to));
                let w = (b - a).max(0.6);
                let _ = write!(d, "M{a:.1} {at:.1}h{w:.1}v9h-{w:.1}z");
            }
            canvas.path(class, &d);
        };
        let key: Vec<(&str, &str)> = Class::ALL.iter().map(|c| (css(*c), c.noun())).collect();
        let mut y = canvas.legend(left, 2.0, &key) + 6.0;
        let at = track(canvas, y, 20.0, "it waits");
        let mut x = left;
        for (class, part, name) in [
            ("tags", v.tag_wait, "without a tag"),
            ("queue", v.sched_wait, "in the scheduler"),
            ("card", v.service, "at the card"),
        ] {
            let w = part as f64 / v.wait.max(1) as f64 * (right - left);
            canvas.rect(class, (x, at), (w, 20.0), " opacity=\".3\"");
            let name = format!("{name} {}", format_time(part));
            if text_width(&name) + 8.0 < w {
                canvas.text(x + 6.0, at + 14.5, "", &name);
            }
            x += w;
        }
        y = at + 30.0;
        let at = track(canvas, y, 24.0, "card serves");
        for (k, c) in commands.iter().enumerate() {
            let (a, b) = (axis.at(c.from), axis.at(c.to));
            let more = if k % 2 == 0 { "" } else { " opacity=\".72\"" };
            canvas.rect(css(c.class), (a, at), ((b - a).max(0.6), 24.0), more);
        }
        y = at + 32.0;
        let at = track(canvas, y, 9.0, "came before it");
        strip(canvas, at, "async", &mut commands.iter().filter(is_other).filter(|c| is_older(c)));
        y = at + 15.0;
        let at = track(canvas, y, 9.0, "came after it");
        strip(canvas, at, "queue", &mut commands.iter().filter(is_other).filter(|c| !is_older(c)));
        axis.ticks(canvas, at + 16.0, began);
        canvas.height = at + 42.0;
    });
    let mut numbers = Table::new(
        format!("{title}: what the card did meanwhile, its own command left out"),
        ["served", "commands", "bytes", "time at the card", "queued before it", "queued after it"],
    );
    for class in Class::ALL {
        let of: Vec<_> = commands.iter().filter(is_other).filter(|c| c.class == class).collect();
        if !of.is_empty() {
            let sectors: u64 = of.iter().map(|c| c.sectors).sum();
            let ns: u64 = of.iter().map(|c| c.to.min(end).saturating_sub(c.from.max(began))).sum();
            let older = of.iter().filter(|c| is_older(c)).count();
            numbers.row(
                format!("{}s", class.noun()),
                [
                    of.len().to_string(),
                    format_size(sectors.saturating_mul(512)),
                    format_time(ns),
                    older.to_string(),
                    (of.len() - older).to_string(),
                ],
            );
        }
    }
    Some((picture, numbers))
}

/// How long the card took, reads and all else.
#[must_use]
pub fn service(title: &str, octaves: &[Octaves; 2]) -> (Picture, Table) {
    let named: Vec<_> = [("reads", "read"), ("writes and all else", "async")]
        .into_iter()
        .zip(octaves)
        .map(|((name, class), o)| (name, class, o.rows().collect::<Vec<_>>()))
        .filter(|(_, _, rows)| rows.iter().any(|r| r.2 > 0))
        .collect();
    let all = || named.iter().flat_map(|n| &n.2).filter(|r| r.2 > 0);
    let least = all().map(|r| r.0.max(1000) as f64).fold(f64::INFINITY, f64::min);
    let most = all().map(|r| r.1 as f64).fold(1e4, f64::max);
    let text = "A bar is as high as the commands that took so long are many. A second hump far to the right are the card's own pauses.";
    let picture = Picture::new(title, text, |canvas| {
        let (left, right) = edges(canvas);
        let axis = LogAxis::new((left, right), if least.is_finite() { least } else { 1e3 }, most);
        let mut y = 4.0;
        for (name, class, rows) in &named {
            let n: u64 = rows.iter().map(|r| r.2).sum();
            let tallest = rows.iter().map(|r| r.2).max().unwrap_or(1).max(1);
            let top = track(canvas, y, 70.0, name) + 14.0;
            let base = top + 70.0;
            axis.grid(canvas, top, base);
            for (from, to, count) in rows.iter().filter(|r| r.2 > 0) {
                let (a, b) = (axis.at((*from).max(1000) as f64), axis.at(*to as f64));
                let h = (*count as f64 / tallest as f64 * 70.0).max(1.5);
                canvas.rect(class, (a + 1.0, base - h), (b - a - 2.0, h), "");
                if *count == tallest {
                    let middle = ((a + b) / 2.0).clamp(60.0, canvas.width - 90.0);
                    canvas.text(middle, top - 3.0, "soft mid small", &format!("{count} of {n}"));
                }
            }
            y = base + 28.0;
        }
        canvas.height = y;
    });
    let mut numbers = Table::new(title, ["time at the card", "reads", "writes and all else"]);
    let counts = |i: usize| octaves.get(i).map(|o| o.rows().collect::<Vec<_>>()).unwrap_or_default();
    let (reads, others) = (counts(0), counts(1));
    let mut edges: Vec<(u64, u64)> = reads.iter().chain(&others).map(|r| (r.0, r.1)).collect();
    edges.sort_unstable();
    edges.dedup();
    for (from, to) in edges {
        let n = |rows: &[(u64, u64, u64)]| rows.iter().find(|r| r.0 == from).map_or(0, |r| r.2).to_string();
        numbers.row(format!("{} to {}", format_time(from), format_time(to)), [n(&reads), n(&others)]);
    }
    (picture, numbers)
}
