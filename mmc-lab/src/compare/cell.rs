//! What the runs of one policy on one card and workload come to, over all seeds, and policies against each other.

use super::run::{Latency, Outcome, Spec, StreamResult};

/// One policy on one card and workload; a run for each seed.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Card.
    pub card: String,
    /// Scenario.
    pub scenario: String,
    /// Index of the policy in the list.
    pub policy: usize,
    /// In the order of the seeds.
    pub runs: Vec<Outcome>,
}

/// Which number of a [`Latency`].
pub type Part = fn(&Latency) -> u64;

/// The three numbers of a latency with their names.
pub const PARTS: [(&str, Part); 3] = [("p50", |l| l.p50), ("p99", |l| l.p99), ("max", |l| l.max)];

impl Cell {
    fn efficiencies(&self) -> impl Iterator<Item = f64> + '_ {
        self.runs.iter().map(|o| o.account.efficiency())
    }
    /// Mean over the seeds.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        mean(self.efficiencies())
    }
    /// Smallest over the seeds.
    #[must_use]
    pub fn least_efficiency(&self) -> f64 {
        self.efficiencies().fold(1.0, f64::min)
    }
    /// MiB a second, mean over the seeds, of the loads that `which` takes.
    pub fn mib_s(&self, which: impl Fn(&StreamResult) -> bool + Copy) -> f64 {
        mean(self.runs.iter().map(|o| {
            let bytes: u64 = o.streams.iter().filter(|s| which(s)).map(|s| s.bytes).sum();
            super::run::per_second(bytes as f64 / f64::from(1 << 20), o.length)
        }))
    }
    /// Requests a second of one load, mean over the seeds.
    #[must_use]
    pub fn rate(&self, stream: &str) -> f64 {
        mean(self.runs.iter().map(|o| {
            let done: u64 = o.streams.iter().filter(|s| s.name == stream).map(|s| s.done).sum();
            super::run::per_second(done as f64, o.length)
        }))
    }
    /// Worst over the seeds, in ms; infinite where a run completed none of the load's requests.
    pub fn worst(&self, stream: &str, stall_free: bool, part: Part) -> f64 {
        let one = |o: &Outcome| {
            let s = o.streams.iter().find(|s| s.name == stream)?;
            let l = if stall_free { s.stall_free } else { s.latency }?;
            Some(part(&l) as f64 / 1e6)
        };
        self.runs.iter().map(|o| one(o).unwrap_or(f64::INFINITY)).fold(0.0, f64::max)
    }
    /// Worst over the seeds.
    #[must_use]
    pub fn fairness(&self) -> Option<f64> {
        self.runs.iter().filter_map(|o| o.fairness).reduce(f64::min)
    }
    /// Names of the loads somebody waits for.
    pub fn sync_streams(&self) -> impl Iterator<Item = &str> {
        self.runs.first().into_iter().flat_map(|o| &o.streams).filter(|s| s.sync).map(|s| s.name.as_str())
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(s, n), v| (s + v, n + 1.0));
    if n > 0.0 { sum / n } else { 0.0 }
}

/// All policies on one card and workload, in the order of the list.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The cells.
    pub cells: &'a [Cell],
}

/// A number by which policies are compared, one value each.
#[derive(Clone, Debug)]
pub struct Metric {
    /// `eff`, or load and percentile.
    pub name: String,
    /// Larger is better.
    pub more: bool,
    /// By policy.
    pub values: Vec<f64>,
}

impl Row<'_> {
    /// Efficiency, and the latencies of every load somebody waits for.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let mut all = vec![Metric {
            name: "eff".into(),
            more: true,
            values: self.cells.iter().map(Cell::efficiency).collect(),
        }];
        for s in self.cells.first().into_iter().flat_map(Cell::sync_streams) {
            for (name, part) in PARTS {
                all.push(Metric {
                    name: format!("{s} {name}"),
                    more: false,
                    values: self.cells.iter().map(|c| c.worst(s, false, part)).collect(),
                });
            }
        }
        all
    }
}

impl Metric {
    /// The best value of some policies, and whose.
    #[must_use]
    pub fn best(&self, of: &[usize]) -> Option<(f64, usize)> {
        let values = of.iter().filter_map(|&i| self.values.get(i).map(|v| (*v, i)));
        values.reduce(|a, b| if (self.more && b.0 > a.0) || (!self.more && b.0 < a.0) { b } else { a })
    }
    /// Whether `value` is as good as `other`: an efficiency of 0.97 of it; a latency that is at most 5 % or 1 ms longer.
    #[must_use]
    pub fn accepts(&self, value: f64, other: f64) -> bool {
        if self.more { value >= 0.97 * other } else { value <= (1.05 * other).max(other + 1.0) }
    }
}

/// Policies of one name: the settings of `bfq` count as one opponent that shows its best side for each number.
#[must_use]
pub fn families(specs: &[Spec]) -> Vec<(String, Vec<usize>)> {
    let mut out: Vec<(String, Vec<usize>)> = Vec::new();
    for (i, s) in specs.iter().enumerate() {
        match out.iter_mut().find(|(n, _)| *n == s.name) {
            Some((_, all)) => all.push(i),
            None => out.push((s.name.clone(), vec![i])),
        }
    }
    out
}

/// The policy the others are opponents of: `ftb` if it is there, else the first.
#[must_use]
pub fn subject(specs: &[Spec]) -> usize {
    specs.iter().position(|s| s.name == "ftb").unwrap_or(0)
}

/// The cells of each card and workload, which lie side by side.
pub fn rows(cells: &[Cell], policies: usize) -> impl Iterator<Item = Row<'_>> {
    cells.chunks(policies.max(1)).map(|cells| Row { cells })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tie_is_accepted_and_a_loss_is_not() {
        let m = Metric { name: "x p50".into(), more: false, values: vec![10.0, 12.0, f64::INFINITY] };
        assert_eq!(m.best(&[1, 2]), Some((12.0, 1)));
        assert!(m.accepts(11.0, 10.0) && m.accepts(210.0, 200.0) && !m.accepts(211.0, 200.0));
        assert!(m.accepts(f64::INFINITY, f64::INFINITY) && !m.accepts(f64::INFINITY, 9.0));
        let e = Metric { name: "eff".into(), more: true, values: vec![] };
        assert!(e.accepts(0.97, 1.0) && !e.accepts(0.96, 1.0));
    }
}
