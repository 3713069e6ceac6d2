//! Directions and classes as keys, and the lane of queued runs that the deadline policies keep for each.

use crate::fifo::Fifo;
use crate::pool::{NIL, Pool};
use crate::request::{Class, Request};
use crate::tree::Tree;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dir {
    Read,
    Write,
}

impl Dir {
    #[inline]
    pub(crate) fn of(r: &Request) -> Self {
        if r.op.is_read() { Self::Read } else { Self::Write }
    }
}

/// One value for each direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByDir<T> {
    pub(crate) read: T,
    pub(crate) write: T,
}

impl<T> ByDir<T> {
    #[inline]
    pub(crate) fn get(&self, d: Dir) -> &T {
        match d {
            Dir::Read => &self.read,
            Dir::Write => &self.write,
        }
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, d: Dir) -> &mut T {
        match d {
            Dir::Read => &mut self.read,
            Dir::Write => &mut self.write,
        }
    }
}

/// A class that is served by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    RealTime,
    BestEffort,
    Idle,
}

impl Level {
    pub(crate) const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];
    pub(crate) fn of(r: &Request) -> Self {
        match r.priority.class {
            Class::RealTime => Self::RealTime,
            Class::None | Class::BestEffort => Self::BestEffort,
            Class::Idle => Self::Idle,
        }
    }
}

/// One value for each class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByLevel<T> {
    pub(crate) real_time: T,
    pub(crate) best_effort: T,
    pub(crate) idle: T,
}

impl<T> ByLevel<T> {
    pub(crate) fn get(&self, level: Level) -> &T {
        match level {
            Level::RealTime => &self.real_time,
            Level::BestEffort => &self.best_effort,
            Level::Idle => &self.idle,
        }
    }
    pub(crate) fn get_mut(&mut self, level: Level) -> &mut T {
        match level {
            Level::RealTime => &mut self.real_time,
            Level::BestEffort => &mut self.best_effort,
            Level::Idle => &mut self.idle,
        }
    }
}

/// The queued runs of one class and direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) sort: Tree,
    pub(crate) fifo: Fifo,
    /// First sector of the last run given out, and the first queued run from there on.
    latest: u64,
    sweep: u16,
}

impl Lane {
    pub(crate) const NEW: Self = Self { sort: Tree::new(), fifo: Fifo::new(), latest: 0, sweep: NIL };

    /// The first queued run from the last one given out on.
    #[inline]
    pub(crate) fn sweep(&self) -> Option<u16> {
        Some(self.sweep).filter(|&s| s != NIL)
    }
    /// A new run.
    #[inline(always)]
    pub(crate) fn insert(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.fifo.push_back(pool, slot);
        self.link(pool, slot);
    }
    /// The first sector of a queued run changed.
    pub(crate) fn moved(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.unlink(pool, slot);
        self.link(pool, slot);
    }
    /// Takes a run out. The sweep stays where it is.
    pub(crate) fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.unlink(pool, slot);
        self.fifo.remove(pool, slot);
    }
    /// Takes a run out, from where the sweep goes on.
    #[inline(always)]
    pub(crate) fn serve(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let (swept, lba) = (self.sweep == slot, pool.lba(slot));
        self.unlink(pool, slot);
        self.fifo.remove(pool, slot);
        if swept {
            // The next one is the one behind it, which is the sweep by now.
            self.latest = lba;
        } else {
            self.sweep_from(pool, lba);
        }
    }
    /// Puts a run into the sector order.
    #[inline(always)]
    fn link(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let lba = pool.lba(slot);
        // Between `latest` and the next one; as one comparison, since nobody foresees whether a sector is above `latest`.
        let next = self.sweep().map_or(u64::MAX, |next| pool.lba(next));
        if lba.wrapping_sub(self.latest) < next.wrapping_sub(self.latest) {
            self.sweep = slot;
        }
        self.sort.insert_here(pool, slot, lba);
    }
    /// Takes a run out of the sector order.
    #[inline(always)]
    fn unlink(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let behind = self.sort.take_here(pool, slot);
        if self.sweep == slot {
            self.sweep = behind;
        }
    }
    /// The sweep goes on from there.
    pub(crate) fn sweep_from(&mut self, pool: &Pool<'_>, lba: u64) {
        self.latest = lba;
        self.sweep = self.sort.at_or_after(pool, lba).unwrap_or(NIL);
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self::NEW
    }
}
