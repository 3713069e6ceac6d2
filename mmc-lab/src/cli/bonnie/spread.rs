//! Several seeds and cards: what each policy gave on each card, with its spread.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::analysis::Class;
use crate::experiment::Outcome;
use crate::simulate::spread;
use crate::units::format_size;
use crate::workload::bonnie::PHASES;

/// How a figure is had; `None`: this run does not have it.
type Of = Box<dyn Fn(&Outcome) -> Option<f64>>;

/// One figure of a run: its name, its unit, decimals.
struct Figure {
    name: String,
    unit: &'static str,
    digits: usize,
    of: Of,
}

/// All figures, the twelve phases first.
fn figures() -> Vec<Figure> {
    let phases = PHASES.iter().enumerate().map(|(i, name)| {
        let unit = match i {
            0..=4 => "KiB/s",
            5 => "seeks/s",
            _ => "files/s",
        };
        let of = move |o: &Outcome| o.phases.get(i)?.as_ref().map(|p| p.rate());
        Figure { name: (*name).to_owned(), unit, digits: 0, of: Box::new(of) }
    });
    let seconds = |ns: u64| ns as f64 / 1e9;
    let worst =
        move |class: Class| move |o: &Outcome| Some(seconds(o.all.worst.get(class.index())?.as_ref()?.wait));
    let figure = |name: &str, unit, digits, of: Of| Figure { name: name.to_owned(), unit, digits, of };
    phases
        .chain([
            figure(
                "all writes",
                "MB/s",
                2,
                Box::new(|o| Some(o.totals.written as f64 / 1e3 / (o.elapsed.as_millis() as f64).max(1.0))),
            ),
            figure("worst read", "s", 2, Box::new(worst(Class::Reads))),
            figure("worst sync write", "s", 2, Box::new(worst(Class::SyncWrites))),
            figure("worst journal write", "s", 2, Box::new(worst(Class::Journal))),
            figure(
                "journal p50 (16 queued)",
                "s",
                2,
                Box::new(move |o| o.busy.classes.journal.p50.map(seconds)),
            ),
            figure(
                "journal p99 (16 queued)",
                "s",
                2,
                Box::new(move |o| o.busy.classes.journal.p99.map(seconds)),
            ),
            figure(
                "journal max (16 queued)",
                "s",
                2,
                Box::new(move |o| o.busy.classes.journal.max.map(seconds)),
            ),
            figure("hung-task reports", "", 0, Box::new(|o| Some(o.hung.len() as f64))),
        ])
        .collect()
}

/// The runs of one policy on one card, in the order of the first of each.
fn groups(outcomes: &[Outcome]) -> Vec<(String, String, Vec<&Outcome>)> {
    let mut groups: Vec<(String, String, Vec<&Outcome>)> = Vec::new();
    for o in outcomes {
        let (card, policy) = (&o.config.card, o.policy.label());
        match groups.iter_mut().find(|g| g.0 == *card && g.1 == policy) {
            Some(group) => group.2.push(o),
            None => groups.push((card.clone(), policy, vec![o])),
        }
    }
    groups
}

fn values(group: &[&Outcome], figure: &Figure) -> Vec<f64> {
    group.iter().filter_map(|o| (figure.of)(o)).collect()
}

/// The table: each figure's median with the least and the most, and for the figures that matter the interval of their mean.
#[must_use]
pub fn text(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let Some(first) = outcomes.first() else { return out };
    let (b, groups) = (&first.config.board, groups(outcomes));
    let runs = groups.iter().map(|g| g.2.len()).max().unwrap_or(0);
    let _ = writeln!(
        out,
        "bonnie++ on board {} ({} of RAM, {} tags, requests up to {}), file {}, host {}, {runs} seeds from {}\n",
        b.name,
        format_size(b.ram),
        b.nr_requests,
        format_size(u64::from(b.max_sectors) * 512),
        format_size(b.size),
        first.config.host.name(),
        first.config.seed
    );
    for (i, (card, policy, _)) in groups.iter().enumerate() {
        let _ = writeln!(out, "  [{}] {policy} on {card}", i + 1);
    }
    let figures = figures();
    let mut part = |title: &str, figures: &[&Figure], cell: &dyn Fn(&[f64], usize) -> String| {
        let rows: Vec<(String, Vec<String>)> = figures
            .iter()
            .map(|f| {
                let cells = groups.iter().map(|g| cell(&values(&g.2, f), f.digits)).collect();
                (format!("{:<26}{:<8}", f.name, f.unit), cells)
            })
            .filter(|(_, cells): &(String, Vec<String>)| cells.iter().any(|c| c != "-"))
            .collect();
        let wide = rows.iter().flat_map(|r| &r.1).map(|c| c.chars().count()).max().unwrap_or(0).max(3) + 2;
        let _ = write!(out, "\n{title:<36}");
        for i in 1..=groups.len() {
            let _ = write!(out, "{:>wide$}", format!("[{i}]"));
        }
        out.push('\n');
        for (name, cells) in rows {
            let _ = write!(out, "  {name}");
            for cell in cells {
                let _ = write!(out, "{cell:>wide$}");
            }
            out.push('\n');
        }
    };
    let all: Vec<&Figure> = figures.iter().collect();
    part("median (least to most)", &all, &|values, digits| {
        spread(values).map_or_else(
            || "-".to_owned(),
            |[median, least, most, ..]| match values.len() {
                1 => format!("{median:.digits$}"),
                _ => format!("{median:.digits$} ({least:.digits$} to {most:.digits$})"),
            },
        )
    });
    if runs > 1 {
        part("mean, interval of 95 % (Student)", &all, &|values, digits| {
            let interval = spread(values).filter(|_| values.len() > 1);
            interval.map_or_else(
                || "-".to_owned(),
                |[.., low, high]| format!("{low:.digits$} to {high:.digits$}"),
            )
        });
    }
    out
}

/// An object a line for each policy and card.
#[must_use]
pub fn json(outcomes: &[Outcome]) -> String {
    let figures = figures();
    let object = |(card, policy, group): &(String, String, Vec<&Outcome>)| {
        let all: Map<String, Value> = figures
            .iter()
            .filter_map(|f| {
                let [median, min, max, low, high] = spread(&values(group, f))?;
                let key = f.name.replace([' ', '-'], "_").replace(['(', ')'], "");
                let value =
                    json!({"unit": f.unit, "median": median, "min": min, "max": max, "mean_95": [low, high]});
                Some((key, value))
            })
            .collect();
        let seeds: Vec<u64> = group.iter().map(|o| o.config.seed).collect();
        crate::output::json(json!({"summary": policy, "card": card, "seeds": seeds, "figures": all}))
    };
    groups(outcomes).iter().map(object).collect()
}
