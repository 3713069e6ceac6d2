//! What is kept of every bio beside its class: whose it was, and how long the card took for its request.

use std::collections::HashMap;
use std::sync::Arc;

use super::class::ClassStats;
use super::quantiles::Quantiles;

/// The tasks, by name and process number since many share a name, and the latencies of their bios.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    places: HashMap<(u32, Arc<str>), usize>,
    /// The latest place by the process number's last bits, so that most events need no search.
    recent: [usize; RECENT],
    all: Vec<Task>,
}

/// A power of two.
const RECENT: usize = 32;

#[derive(Debug)]
struct Task {
    name: Arc<str>,
    pid: u32,
    samples: Quantiles,
}

/// One task's latencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStats {
    /// Its name.
    pub name: String,
    /// Its process number; 0 where nobody knows it.
    pub pid: u32,
    /// All its bios.
    pub stats: ClassStats,
    /// The sum of their latencies in nanoseconds; saturates.
    pub sum: u64,
}

impl Tasks {
    /// The place of a task, for the other methods.
    pub(crate) fn place(&mut self, name: &Arc<str>, pid: u32) -> usize {
        let bucket = pid as usize % RECENT;
        let recent = self.recent[bucket];
        if self.all.get(recent).is_some_and(|task| task.pid == pid && task.name == *name) {
            return recent;
        }
        let next = self.all.len();
        let place = *self.places.entry((pid, name.clone())).or_insert(next);
        if place == next {
            self.all.push(Task { name: name.clone(), pid, samples: Quantiles::default() });
        }
        self.recent[bucket] = place;
        place
    }

    /// The name of the task at `place`.
    pub(crate) fn name(&self, place: usize) -> &str {
        self.all.get(place).map_or("?", |task| &task.name)
    }

    pub(crate) fn push(&mut self, place: usize, ns: u64) {
        if let Some(task) = self.all.get_mut(place) {
            task.samples.push(ns);
        }
    }

    /// Those that waited most in all come first.
    pub(crate) fn into_stats(self) -> Vec<TaskStats> {
        let stats = |task: Task| TaskStats {
            name: task.name.to_string(),
            pid: task.pid,
            sum: task.samples.sum(),
            stats: task.samples.into_stats(),
        };
        let mut all: Vec<_> = self.all.into_iter().map(stats).filter(|t| t.stats.n > 0).collect();
        all.sort_by_key(|t| std::cmp::Reverse(t.sum));
        all
    }
}

/// How often the card took how long, in octaves of microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Octaves([u64; 64]);

impl Default for Octaves {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Octaves {
    /// Counts one time.
    pub(crate) fn push(&mut self, ns: u64) {
        let octave = (ns / 1000).checked_ilog2().map_or(0, |n| n as usize + 1);
        if let Some(count) = self.0.get_mut(octave) {
            *count += 1;
        }
    }

    /// The octaves from the first to the last that is not empty: from, to (nanoseconds, to not included), how many.
    pub fn rows(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let first = self.0.iter().position(|&n| n > 0).unwrap_or(self.0.len());
        let last = self.0.iter().rposition(|&n| n > 0).map_or(0, |last| last + 1);
        let edge = |octave: usize| match octave {
            0 => 0,
            n => 1000_u64.saturating_mul(1_u64.checked_shl(n as u32 - 1).unwrap_or(u64::MAX)),
        };
        self.0.iter().enumerate().take(last).skip(first).map(move |(i, &n)| (edge(i), edge(i + 1), n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_octaves() {
        let mut octaves = Octaves::default();
        for us in [0_u64, 1, 2, 3, 4, 900, u64::MAX / 1000] {
            octaves.push(us * 1000);
        }
        let rows: Vec<_> = octaves.rows().filter(|r| r.2 > 0).collect();
        assert_eq!(rows[..4], [(0, 1000, 1), (1000, 2000, 1), (2000, 4000, 2), (4000, 8000, 1)]);
        assert_eq!(rows[4], (512_000, 1_024_000, 1));
        assert_eq!(rows.len(), 6);
        assert_eq!(Octaves::default().rows().count(), 0);
    }

    #[test]
    fn who_waited_most_comes_first() {
        let mut tasks = Tasks::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (one, two, three) = (tasks.place(&a, 1), tasks.place(&a, 2), tasks.place(&b, 1));
        assert_eq!(tasks.place(&a, 2), two);
        tasks.push(one, 5);
        tasks.push(two, 7);
        tasks.push(two, 9);
        let stats = tasks.into_stats();
        assert_eq!(
            stats.iter().map(|t| (t.name.as_str(), t.pid, t.sum)).collect::<Vec<_>>(),
            [("a", 2, 16), ("a", 1, 5)]
        );
        assert_ne!(three, one);
    }
}
