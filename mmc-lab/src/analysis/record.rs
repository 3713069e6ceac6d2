//! What pictures of a run are drawn from: waits over time, their distribution, what the card did, and all it did while the
//! longest wait lasted. Its size is fixed, however long the trace.

use std::collections::VecDeque;

use super::{Class, Victim};

/// Columns of time kept; when they are full, pairs become one.
const COLUMNS: usize = 240;
/// Rows of a heat map to a decade.
pub const ROWS_PER_DECADE: u32 = 8;
/// Decades of waits told apart, from [`LEAST`] up.
const DECADES: u32 = 8;
/// Waits up to this many nanoseconds are one.
pub const LEAST: u64 = 10_000;
/// Rows of a heat map.
pub const ROWS: usize = (ROWS_PER_DECADE * DECADES) as usize;
/// Steps of a distribution to a decade: 1.8 % each.
const STEPS_PER_DECADE: u32 = 128;
/// Commands remembered, so that those within a long wait can be told.
const RECENT: usize = 4096;

/// One command at the card. Stamps in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The card began it: its issue, or the completion before it if that was later.
    pub from: u64,
    /// It was done.
    pub to: u64,
    /// Its request entered the scheduler.
    pub inserted: Option<u64>,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Whose.
    pub class: Class,
}

/// The pictures' data of one run. All is per bio (or request) as [`super::Report::classes`] counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    start: Option<u64>,
    width: u64,
    heat: Vec<[[u32; ROWS]; 4]>,
    busy: Vec<[u64; 4]>,
    steps: Vec<[u64; 4]>,
    recent: VecDeque<Command>,
    worst: [Option<(Victim, Vec<Command>)>; 4],
}

impl Record {
    /// The column that holds `at`.
    fn column(&mut self, at: u64) -> usize {
        if self.width == 0 {
            self.width = 1_000_000;
        }
        let since = at.saturating_sub(*self.start.get_or_insert(at));
        while since / self.width >= COLUMNS as u64 {
            self.width = self.width.saturating_mul(2);
            self.heat = self.heat.chunks(2).map(|pair| pair.iter().fold([[0; ROWS]; 4], added)).collect();
            self.busy = self.busy.chunks(2).map(|pair| pair.iter().fold([0; 4], sum)).collect();
        }
        let column = (since / self.width) as usize;
        if self.heat.len() <= column {
            self.heat.resize(column + 1, [[0; ROWS]; 4]);
            self.busy.resize(column + 1, [0; 4]);
        }
        column
    }

    /// A wait of `took` nanoseconds ended.
    pub(super) fn waited(&mut self, at: u64, class: Class, took: u64) {
        let column = self.column(at);
        let row = (place(took, ROWS_PER_DECADE)).min(ROWS - 1);
        if let Some(n) = self.heat.get_mut(column).and_then(|c| c.get_mut(class.index())?.get_mut(row)) {
            *n = n.saturating_add(1);
        }
        let step = place(took, STEPS_PER_DECADE).min((STEPS_PER_DECADE * DECADES) as usize);
        if self.steps.len() <= step {
            self.steps.resize(step + 1, [0; 4]);
        }
        if let Some(n) = self.steps.get_mut(step).and_then(|s| s.get_mut(class.index())) {
            *n += 1;
        }
    }

    /// The card did something.
    pub(super) fn served(&mut self, command: Command) {
        let start = *self.start.get_or_insert(command.from);
        // The later one first: it may double the width of all.
        let last = self.column(command.to);
        let first = self.column(command.from).min(last);
        for column in first..=last {
            let from = start.saturating_add(self.width.saturating_mul(column as u64));
            let to = from.saturating_add(self.width);
            let part = command.to.min(to).saturating_sub(command.from.max(from));
            if let Some(n) = self.busy.get_mut(column).and_then(|c| c.get_mut(command.class.index())) {
                *n = n.saturating_add(part);
            }
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(command);
    }

    /// A wait ended; what the card did during the longest of each class that a task may have slept for is kept.
    pub(super) fn judged(&mut self, victim: &Victim) {
        let Some(worst) = self.worst.get_mut(victim.class.index()) else { return };
        if victim.class.is_awaited() && worst.as_ref().is_none_or(|(worst, _)| victim.wait > worst.wait) {
            let began = victim.queued.or(victim.inserted).or(victim.issued).unwrap_or(0);
            let during = self.recent.iter().filter(|c| c.to > began).copied().collect();
            *worst = Some((victim.clone(), during));
        }
    }

    /// Stamp of the first column, nanoseconds.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start.unwrap_or(0)
    }

    /// Nanoseconds a column.
    #[must_use]
    pub fn width(&self) -> u64 {
        self.width
    }

    /// How many waits of `class` ended in each column, by [`ROWS`] of rising wait: row *r* begins at [`row_from`].
    pub fn heat(&self, class: Class) -> impl Iterator<Item = &[u32; ROWS]> + '_ {
        self.heat.iter().filter_map(move |column| column.get(class.index()))
    }

    /// Nanoseconds of each column that the card worked for each class, indexed by [`Class::index`].
    #[must_use]
    pub fn busy(&self) -> &[[u64; 4]] {
        &self.busy
    }

    /// The waits of `class` in steps of 1.8 %: upper end in nanoseconds, waits up to there.
    #[must_use]
    pub fn steps(&self, class: Class) -> Vec<(u64, u64)> {
        let mut all = 0;
        let of = |step: &[u64; 4]| step.get(class.index()).copied().unwrap_or(0);
        let upper = |step: usize| LEAST as f64 * 10_f64.powf((step + 1) as f64 / f64::from(STEPS_PER_DECADE));
        self.steps
            .iter()
            .enumerate()
            .filter(|(_, step)| of(step) > 0)
            .map(|(i, step)| {
                all += of(step);
                (upper(i) as u64, all)
            })
            .collect()
    }

    /// The longest wait of a class, and what the card did meanwhile (of more than 4096 commands the latest); `None` for
    /// background writes, for which nobody sleeps.
    #[must_use]
    pub fn worst(&self, class: Class) -> Option<&(Victim, Vec<Command>)> {
        self.worst.get(class.index())?.as_ref()
    }
}

/// The least wait of a row, in nanoseconds.
#[must_use]
pub fn row_from(row: usize) -> f64 {
    LEAST as f64 * 10_f64.powf(row as f64 / f64::from(ROWS_PER_DECADE))
}

/// The place of a wait on a logarithmic scale.
fn place(ns: u64, per_decade: u32) -> usize {
    ((ns.max(LEAST) as f64 / LEAST as f64).log10() * f64::from(per_decade)) as usize
}

fn sum(mut a: [u64; 4], b: &[u64; 4]) -> [u64; 4] {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = a.saturating_add(*b));
    a
}

fn added(mut a: [[u32; ROWS]; 4], b: &[[u32; ROWS]; 4]) -> [[u32; ROWS]; 4] {
    a.as_flattened_mut().iter_mut().zip(b.as_flattened()).for_each(|(a, b)| *a = a.saturating_add(*b));
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_trace_keeps_every_wait_and_all_of_the_cards_time() {
        let mut record = Record::default();
        let second = 1_000_000_000;
        for i in 0..10_000_u64 {
            record.waited(i * second, Class::Reads, (i + 1) * 1_000_000);
            let (from, to) = (i * second, i * second + second / 2);
            record.served(Command { from, to, inserted: None, sectors: 8, class: Class::Journal });
        }
        let waits: u64 = record.heat(Class::Reads).flatten().map(|&n| u64::from(n)).sum();
        assert_eq!(waits, 10_000);
        assert!(record.heat(Class::Reads).count() <= COLUMNS);
        let busy: u64 = record.busy().iter().map(|c| c[Class::Journal.index()]).sum();
        assert_eq!(busy, 10_000 * second / 2);
        let steps = record.steps(Class::Reads);
        assert_eq!(steps.last().map(|s| s.1), Some(10_000));
        let median = steps.iter().find(|s| s.1 >= 5_000).map(|s| s.0 as f64 / 5e9).unwrap();
        assert!((0.98..1.02).contains(&median), "{median}");
    }

    #[test]
    fn any_stamp_and_any_wait_is_taken() {
        let mut record = Record::default();
        for at in [5, u64::MAX, 0, 17] {
            record.waited(at, Class::Journal, at);
            record.served(Command { from: 0, to: at, inserted: None, sectors: 8, class: Class::Reads });
        }
        assert!(record.heat(Class::Journal).count() <= COLUMNS);
        assert_eq!(record.steps(Class::Journal).last().map(|s| s.1), Some(4));
    }
}
