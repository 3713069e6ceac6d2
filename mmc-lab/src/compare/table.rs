//! The results as tables in Markdown, for a terminal and for the docs, and as JSON lines.

use super::cell::{Cell, PARTS, Row, families, rows, subject};
use super::expect::{compare, key};
use super::guard::{Claim, NAMES};
use super::run::{Latency, Outcome, Spec};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// All that was run.
#[derive(Clone, Debug)]
pub struct Results {
    /// The policies, in the order of the list.
    pub specs: Vec<Spec>,
    /// All cells of a card and workload side by side, policies in the order of `specs`.
    pub cells: Vec<Cell>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Processor time of a command in ns.
    pub cpu_cost: u64,
    /// The file's `expected`.
    pub expected: Map<String, Value>,
}

fn ms(v: f64) -> String {
    match v {
        v if v.is_infinite() => "–".into(),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

impl Results {
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        rows(&self.cells, self.specs.len())
    }

    /// The groups shown side by side: opponents by name, the subject last.
    fn columns(&self) -> Vec<(String, Vec<usize>)> {
        let me = subject(&self.specs);
        let mut columns = families(&self.specs);
        for (name, all) in &mut columns {
            all.retain(|&i| i != me);
            if all.len() > 1 {
                *name = format!("best {name}");
            }
        }
        columns.retain(|(_, all)| !all.is_empty());
        columns.push((self.specs[me].label(), vec![me]));
        columns
    }

    /// All tables.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}, {}, processor time {} a command. Efficiencies and rates are means over the seeds, latencies \
             the worst seed's p50, p99 and max in ms, stalls of the card and waits for tags included. `–`: a run \
             completed none.",
            counted(self.specs.len(), "policy", "policies"),
            counted(self.seeds.len(), "seed", "seeds"),
            crate::units::format_time(self.cpu_cost),
        );
        if self.specs.len() > 1 {
            self.summary(&mut out);
        }
        self.domination(&mut out);
        self.fairness(&mut out);
        self.against_expected(&mut out);
        self.promises(&mut out);
        out
    }

    /// As a whole: how often the subject is as good.
    fn summary(&self, out: &mut String) {
        let me = subject(&self.specs);
        let _ = writeln!(
            out,
            "\n## Summary\n\n`{}` is as good as an opponent in an efficiency of 0.97 of the opponent's, and in a latency that is \
             at most 5 % or 1 ms longer.\n\n| opponent | scenarios as good in all | metrics as good |\n|---|---|---|",
            self.specs[me].label()
        );
        let others: Vec<usize> = (0..self.specs.len()).filter(|&i| i != me).collect();
        let mut lines: Vec<(String, Vec<usize>)> =
            others.iter().map(|&i| (self.specs[i].label(), vec![i])).collect();
        if others.len() > 1 {
            lines.push(("the best of all for each number".into(), others));
        }
        for (name, of) in lines {
            let (mut scenarios, mut whole, mut metrics, mut good) = (0, 0, 0, 0);
            for row in self.rows() {
                let all: Vec<bool> = row
                    .metrics()
                    .iter()
                    .filter_map(|m| Some(m.accepts(m.values[me], m.best(&of)?.0)))
                    .collect();
                let n = all.iter().filter(|g| **g).count();
                (scenarios, metrics, good) = (scenarios + 1, metrics + all.len(), good + n);
                whole += usize::from(n == all.len());
            }
            let _ = writeln!(out, "| {name} | {whole}/{scenarios} | {good}/{metrics} |");
        }
    }

    fn domination(&self, out: &mut String) {
        let (me, columns) = (subject(&self.specs), self.columns());
        let names: Vec<_> = columns.iter().map(|(n, _)| n.as_str()).collect();
        let _ = writeln!(
            out,
            "\n## Table\n\nEach cell: {}.{}\n\n| card | scenario | eff | total MB/s | async MB/s | sync stream | p50 | p99 | max |\n\
             |---|---|---|---|---|---|---|---|---|",
            names.join(" / "),
            if names.len() > 1 { " ✗: not as good as the best." } else { "" }
        );
        let others: Vec<usize> = (0..self.specs.len()).filter(|&i| i != me).collect();
        let mut lost = String::new();
        for row in self.rows() {
            let Some(first) = row.cells.first() else { continue };
            let metrics = row.metrics();
            let mut losses = Vec::new();
            let mut cells = metrics.iter().map(|m| {
                let show = |v: f64| if m.more { format!("{v:.3}") } else { ms(v) };
                let mut text: Vec<String> =
                    columns.iter().filter_map(|(_, of)| m.best(of)).map(|(v, _)| show(v)).collect();
                if let Some((best, who)) = m.best(&others).filter(|(b, _)| !m.accepts(m.values[me], *b)) {
                    if let Some(last) = text.last_mut() {
                        last.push_str(" ✗");
                    }
                    let sign = if m.more { "<" } else { ">" };
                    let whose = self.specs[who].label();
                    losses.push(format!("{} {} {sign} {} ({whose})", m.name, show(m.values[me]), show(best)));
                }
                text.join(" / ")
            });
            let rate = |which: fn(bool) -> bool| {
                let of = |i: &usize| row.cells.get(*i).map_or(0.0, |c| c.mib_s(|s| which(s.sync)));
                let best = |all: &[usize]| all.iter().map(of).fold(0.0, f64::max);
                columns.iter().map(|(_, all)| format!("{:.1}", best(all))).collect::<Vec<_>>().join(" / ")
            };
            let mut head = format!(
                "| {} | {} | {} | {} | {} |",
                first.card,
                first.scenario,
                cells.next().unwrap_or_default(),
                rate(|_| true),
                rate(|sync| !sync)
            );
            let streams: Vec<&str> = first.sync_streams().collect();
            if streams.is_empty() {
                let _ = writeln!(out, "{head} – | – | – | – |");
            }
            for s in streams {
                let three: Vec<String> = cells.by_ref().take(3).collect();
                let _ = writeln!(out, "{head} {s} | {} |", three.join(" | "));
                head = "| | | | | |".into();
            }
            drop(cells);
            if !losses.is_empty() {
                let _ = writeln!(lost, "- {} {}: {}", first.card, first.scenario, losses.join("; "));
            }
        }
        if !lost.is_empty() {
            let _ = writeln!(out, "\nNot as good, with the winner:\n\n{}", lost.trim_end());
        }
    }

    fn fairness(&self, out: &mut String) {
        let mut lines = String::new();
        for row in self.rows() {
            let cell = |c: &Cell| c.fairness().map_or_else(|| "–".into(), |f| format!("{f:.2}"));
            if let Some(first) = row.cells.iter().find(|c| c.fairness().is_some()) {
                let all: Vec<_> = row.cells.iter().map(cell).collect();
                let _ = writeln!(lines, "| {} | {} | {} |", first.card, first.scenario, all.join(" | "));
            }
        }
        if !lines.is_empty() {
            let names: Vec<_> = self.specs.iter().map(Spec::label).collect();
            let _ = write!(
                out,
                "\n## Fairness\n\nSmallest over largest time of the card among loads that do the same, from the 7th second \
                 on, worst seed.\n\n| card | scenario | {} |\n|---|---|{}\n{lines}",
                names.join(" | "),
                "---|".repeat(names.len())
            );
        }
    }

    fn against_expected(&self, out: &mut String) {
        let mut lines = String::new();
        let mut misses = String::new();
        for (i, spec) in self.specs.iter().enumerate() {
            let (mut n, mut met, mut near, mut all, mut all_near) = (0, 0, 0, 0, 0);
            for cell in self.cells.iter().filter(|c| c.policy == i) {
                for c in compare(cell, spec, &self.expected) {
                    all += 1;
                    all_near += usize::from(c.near());
                    if !c.stall_free {
                        continue;
                    }
                    n += 1;
                    met += usize::from(c.met());
                    near += usize::from(c.near());
                    if !c.met() && i == subject(&self.specs) {
                        let _ = writeln!(
                            misses,
                            "- {} {} {}: {} instead of {}",
                            cell.card,
                            cell.scenario,
                            c.what,
                            if c.more { format!("{:.3}", c.measured) } else { ms(c.measured) },
                            if c.more { format!("{:.3}", c.expected) } else { ms(c.expected) }
                        );
                    }
                }
            }
            if all > 0 {
                let share =
                    |k: usize, of: usize| format!("{k}/{of} ({:.0} %)", 100.0 * k as f64 / of.max(1) as f64);
                let _ = writeln!(
                    lines,
                    "| {} | {} | {} | {} | {} |",
                    spec.label(),
                    key(spec).unwrap_or_default(),
                    share(met, n),
                    share(near, n),
                    share(all_near, all)
                );
            }
        }
        if !lines.is_empty() {
            let _ = write!(
                out,
                "\n## Against `expected`\n\nThe file's values are a prototype's (`ftb`) and the kernel's own code (the others); \
                 worst seed against worst seed.\n\n| policy | in the file | eff, s99, smax: at most 20 % worse | within 20 % both ways | \
                 with p50, p99, max, MB/s: within 20 % |\n|---|---|---|---|---|\n{lines}"
            );
        }
        if !misses.is_empty() {
            let me = self.specs[subject(&self.specs)].label();
            let _ = write!(out, "\nMore than 20 % worse than expected, `{me}`:\n\n{misses}");
        }
    }

    fn promises(&self, out: &mut String) {
        let mut sum = [Claim::default(); NAMES.len()];
        let mut broken = String::new();
        for cell in &self.cells {
            for o in &cell.runs {
                for ((sum, c), name) in sum.iter_mut().zip(o.guard.claims()).zip(NAMES) {
                    *sum = sum.and(c);
                    if c.broken > 0 {
                        let _ =
                            writeln!(broken, "- {} {}: {name} {} times", cell.card, cell.scenario, c.broken);
                    }
                }
            }
        }
        if sum.iter().any(|c| c.checks > 0) {
            let _ = writeln!(
                out,
                "\n## What `ftb` promises\n\n| | looked at | broken | largest measured/bound |\n|---|---|---|---|"
            );
            for (name, c) in NAMES.iter().zip(sum) {
                let _ = if c.checks == 0 {
                    writeln!(out, "| {name} | not tried | – | – |")
                } else {
                    writeln!(out, "| {name} | {} | {} | {:.2} |", c.checks, c.broken, c.worst)
                };
            }
            if !broken.is_empty() {
                let _ = write!(out, "\nBroken:\n\n{broken}");
            }
        }
    }

    /// How often a promise of `ftb` was broken, in all runs.
    #[must_use]
    pub fn broken(&self) -> u64 {
        let runs = self.cells.iter().flat_map(|c| &c.runs);
        runs.flat_map(|o| o.guard.claims()).map(|c| c.broken).sum()
    }

    /// A JSON object for each run, a line each.
    #[must_use]
    pub fn json_lines(&self) -> String {
        let mut out = String::new();
        for cell in &self.cells {
            let spec = &self.specs[cell.policy];
            for (seed, o) in self.seeds.iter().zip(&cell.runs) {
                out.push_str(&crate::output::json(self.object(cell, spec, *seed, o)));
            }
        }
        out
    }

    fn object(&self, cell: &Cell, spec: &Spec, seed: u64, o: &Outcome) -> Value {
        let latency = |l: &Option<Latency>| match l {
            Some(l) => PARTS.iter().map(|(n, part)| ((*n).to_owned(), json!(part(l) as f64 / 1e6))).collect(),
            None => Map::new(),
        };
        let streams: Map<String, Value> = o
            .streams
            .iter()
            .map(|s| {
                let mut m = latency(&s.latency);
                if let Some(l) = &s.stall_free {
                    m.insert("s99".into(), json!(l.p99 as f64 / 1e6));
                    m.insert("smax".into(), json!(l.max as f64 / 1e6));
                }
                m.insert("sync".into(), json!(s.sync));
                m.insert(
                    "mbs".into(),
                    json!(super::run::per_second(s.bytes as f64 / f64::from(1 << 20), o.length)),
                );
                m.insert("rps".into(), json!(super::run::per_second(s.done as f64, o.length)));
                m.insert("device_ms".into(), json!(s.service as f64 / 1e6));
                m.insert("tag_wait_max_ms".into(), json!(s.tag_wait as f64 / 1e6));
                (s.name.clone(), Value::Object(m))
            })
            .collect();
        let a = &o.account;
        let settings: Map<String, Value> = spec.settings.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        let broken: Map<String, Value> = NAMES
            .iter()
            .zip(o.guard.claims())
            .map(|(n, c)| ((*n).to_owned(), json!([c.checks, c.broken])))
            .collect();
        json!({
            "card": cell.card,
            "scenario": cell.scenario,
            "scheduler": spec.name,
            "settings": settings,
            "seed": seed,
            "cpu_cost_ns": self.cpu_cost,
            "seconds": o.length as f64 / 1e9,
            "eff": a.efficiency(),
            "total_mbs": o.mib_s(),
            "commands": o.commands,
            "fairness": o.fairness,
            "device_ms": {
                "productive": a.productive as f64 / 1e6,
                "au_switch": a.au_switch as f64 / 1e6,
                "split": a.split as f64 / 1e6,
                "seek": a.seek as f64 / 1e6,
                "gap": a.gap as f64 / 1e6,
                "idle_with_work": a.idle as f64 / 1e6,
                "stall": a.stall as f64 / 1e6,
            },
            "streams": streams,
            "ftb_checks": if spec.name == "ftb" { Value::Object(broken) } else { Value::Null },
        })
    }
}

fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
