//! The lines in which busy queues stand, ordered by key (§3).

use super::Cfq;
use super::queue::{Load, Rank};

/// Two classes of three types each, and the idle class.
pub(super) const LINES: usize = 7;
/// A queue that is put in front gets a key so much below the first one's.
const FRONT: i64 = 1_000_000_000;
/// Distance of the idle class' queues.
const IDLE_STEP: i64 = 200_000_000;

/// Names a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) rank: Rank,
    /// Of no account in the idle class.
    pub(super) load: Load,
}

impl Line {
    const fn index(self) -> usize {
        match (self.rank, self.load) {
            (Rank::RealTime, Load::Async) => 0,
            (Rank::RealTime, Load::NoIdle) => 1,
            (Rank::RealTime, Load::Sync) => 2,
            (Rank::BestEffort, Load::Async) => 3,
            (Rank::BestEffort, Load::NoIdle) => 4,
            (Rank::BestEffort, Load::Sync) => 5,
            (Rank::Idle, _) => 6,
        }
    }
}

impl PartialEq for Line {
    fn eq(&self, other: &Self) -> bool {
        self.index() == other.index()
    }
}

/// First and last queue of a line, and how many stand there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    first: Option<u16>,
    last: Option<u16>,
    count: u32,
}

impl Ends {
    pub(super) const EMPTY: Self = Self { first: None, last: None, count: 0 };
}

impl<const N: usize> Cfq<N> {
    fn ends(&self, line: Line) -> Ends {
        self.lines.get(line.index()).copied().unwrap_or(Ends::EMPTY)
    }
    fn edit_ends(&mut self, line: Line, f: impl FnOnce(&mut Ends)) {
        if let Some(ends) = self.lines.get_mut(line.index()) {
            f(ends);
        }
    }
    /// The queue whose turn is next in a line.
    pub(super) fn first(&self, line: Line) -> Option<usize> {
        self.ends(line).first.map(usize::from)
    }
    /// Queues in a line.
    pub(super) fn count(&self, line: Line) -> u32 {
        self.ends(line).count
    }
    /// Busy queues of a class above idle.
    pub(super) fn busy_in(&self, rank: Rank) -> u32 {
        Load::ALL.iter().map(|&load| self.count(Line { rank, load })).fold(0, u32::saturating_add)
    }
    /// Busy queues.
    pub(super) fn busy(&self) -> u32 {
        self.lines.iter().map(|ends| ends.count).fold(0, u32::saturating_add)
    }

    /// Gives queue `i`, busy from now on, its place in the line of its class and type: the place it has earned, or
    /// the first.
    pub(super) fn place(&mut self, i: usize, front: bool, now: i64) {
        let q = *self.queue(i);
        let line = Line { rank: q.rank, load: q.load() };
        let key_of = |i: u16| self.queue(i.into()).key;
        let ends = self.ends(line);
        let key = if q.rank == Rank::Idle {
            match ends.last {
                Some(last) if usize::from(last) != i => key_of(last).saturating_add(IDLE_STEP),
                _ => now.saturating_add(IDLE_STEP),
            }
        } else if front {
            ends.first.map_or(now, key_of).saturating_sub(FRONT)
        } else {
            let others = i64::from(self.busy()).saturating_sub(1);
            let shorter = self.settings.length(true, 0).saturating_sub(self.settings.length(q.sync, q.level));
            let key = now.saturating_add(others.saturating_mul(shorter)).saturating_sub(q.rest);
            self.edit(i, |q| q.rest = 0);
            key
        };
        if q.line != Some(line) || q.key != key {
            self.leave(i);
            self.enter(i, line, key);
        }
    }

    /// Puts queue `i`, which is in no line, behind those whose key is not larger.
    fn enter(&mut self, i: usize, line: Line, key: i64) {
        let Ok(name) = u16::try_from(i) else { return };
        let mut prev = self.ends(line).last;
        let mut next = None;
        while let Some(p) = prev.filter(|&p| self.queue(p.into()).key > key) {
            (prev, next) = (self.queue(p.into()).prev, Some(p));
        }
        self.edit(i, |q| (q.line, q.key, q.prev, q.next) = (Some(line), key, prev, next));
        self.link(line, prev, next, (Some(name), Some(name)));
        self.edit_ends(line, |ends| ends.count = ends.count.saturating_add(1));
        self.busy_sync = self.busy_sync.saturating_add(u32::from(self.queue(i).sync));
    }

    /// Takes queue `i` out of its line, if it stands in one.
    fn leave(&mut self, i: usize) {
        let q = *self.queue(i);
        let Some(line) = q.line else { return };
        self.link(line, q.prev, q.next, (q.next, q.prev));
        self.edit(i, |q| q.line = None);
        self.edit_ends(line, |ends| ends.count = ends.count.saturating_sub(1));
        self.busy_sync = self.busy_sync.saturating_sub(u32::from(q.sync));
    }

    /// What follows `prev`, and what is followed by `next`.
    fn link(&mut self, line: Line, prev: Option<u16>, next: Option<u16>, to: (Option<u16>, Option<u16>)) {
        match prev {
            Some(p) => self.edit(p.into(), |q| q.next = to.0),
            None => self.edit_ends(line, |ends| ends.first = to.0),
        }
        match next {
            Some(n) => self.edit(n.into(), |q| q.prev = to.1),
            None => self.edit_ends(line, |ends| ends.last = to.1),
        }
    }

    /// Queue `i` is not busy any more.
    pub(super) fn depart(&mut self, i: usize) {
        self.leave(i);
        if self.busy() == 0 {
            self.saved = None;
        }
    }
}
