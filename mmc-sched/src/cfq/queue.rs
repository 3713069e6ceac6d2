//! One queue: what is queued in it and in which order, and where it stands.

use super::lines::Line;
use crate::fifo::Fifo;
use crate::pool::Pool;
use crate::request::{Class, Priority, Request};
use crate::seek::{BackSeek, better, is_meta};
use crate::tree::Tree;
use mmc_time::Instant;

/// Queues of async requests: eight levels of real time, eight of best effort, one for idle.
pub(super) const ASYNC_QUEUES: usize = 17;

/// A class that is served by itself, the highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    RealTime,
    BestEffort,
    Idle,
}

/// A type of queues; the first of equals is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Async,
    /// Sync, and not worth waiting for.
    NoIdle,
    Sync,
}

impl Load {
    pub(super) const ALL: [Self; 3] = [Self::Async, Self::NoIdle, Self::Sync];
}

/// Class and level of a request's priority. Without one it is best effort, level 4; the idle class has one level.
pub(super) fn rank(p: Priority) -> (Rank, u8) {
    match p.class {
        Class::None => (Rank::BestEffort, 4),
        Class::RealTime => (Rank::RealTime, p.level.min(7)),
        Class::BestEffort => (Rank::BestEffort, p.level.min(7)),
        Class::Idle => (Rank::Idle, 7),
    }
}

/// The queue of async requests of this priority.
pub(super) fn async_queue(p: Priority) -> usize {
    match rank(p) {
        (Rank::RealTime, level) => level.into(),
        (Rank::BestEffort, level) => usize::from(level).saturating_add(8),
        (Rank::Idle, _) => 16,
    }
}

/// Everything that is known of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) sync: bool,
    /// No request arrived yet: it still counts as worth waiting for.
    pub(super) fresh: bool,
    pub(super) rank: Rank,
    pub(super) level: u8,
    /// When a request last arrived.
    pub(super) seen: i64,
    /// The line it stands in (it is busy then), its key there, and its neighbours.
    pub(super) line: Option<Line>,
    pub(super) key: i64,
    pub(super) prev: Option<u16>,
    pub(super) next: Option<u16>,
    /// Time of its last slice that it did not use (or used too much), counted at its next placing.
    pub(super) rest: i64,
    /// The slice's clock does not run yet.
    pub(super) slice_new: bool,
    pub(super) slice_end: i64,
    /// The oldest request was looked at in this slice.
    pub(super) age_checked: bool,
    /// Runs given out in this slice.
    pub(super) sent: u32,
    /// Runs at the device.
    pub(super) out: u32,
    pub(super) requests: Requests,
}

impl Queue {
    pub(super) const fn new(sync: bool) -> Self {
        Self {
            sync,
            fresh: true,
            rank: Rank::BestEffort,
            level: 4,
            seen: 0,
            line: None,
            key: 0,
            prev: None,
            next: None,
            rest: 0,
            slice_new: false,
            slice_end: 0,
            age_checked: false,
            sent: 0,
            out: 0,
            requests: Requests::EMPTY,
        }
    }
    pub(super) const fn load(&self) -> Load {
        match (self.sync, self.fresh) {
            (false, _) => Load::Async,
            (true, true) => Load::Sync,
            (true, false) => Load::NoIdle,
        }
    }
    /// The slice is over.
    pub(super) const fn slice_used(&self, now: i64) -> bool {
        !self.slice_new && now >= self.slice_end
    }
    /// Nothing of it is queued or at the device.
    pub(super) const fn is_quiet(&self) -> bool {
        self.line.is_none() && self.out == 0
    }
}

/// The queued requests of one queue. Insertion and removal take O(log n) steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    tree: Tree,
    fifo: Fifo,
    next: Option<u16>,
    len: u16,
    meta: u16,
}

impl Requests {
    const EMPTY: Self = Self { tree: Tree::new(), fifo: Fifo::new(), next: None, len: 0, meta: 0 };

    pub(super) const fn len(&self) -> u16 {
        self.len
    }
    /// The one to go next.
    pub(super) const fn next(&self) -> Option<u16> {
        self.next
    }
    pub(super) const fn has_meta(&self) -> bool {
        self.meta > 0
    }
    /// The first to arrive, if its deadline is past.
    pub(super) fn overdue(&self, pool: &Pool<'_>, now: Instant) -> Option<u16> {
        self.fifo.front().filter(|&s| pool.deadline(s) <= now)
    }
    /// The first in sector order that begins where `request` ends.
    pub(super) fn touching(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        self.tree.behind(pool, request).filter(|&s| pool.lba(s) == request.end())
    }

    /// Queues `slot`. `position`: where the last run of all queues ended.
    pub(super) fn add(&mut self, pool: &mut Pool<'_>, slot: u16, position: u64, seek: BackSeek) {
        self.fifo.push_back(pool, slot);
        self.len = self.len.saturating_add(1);
        self.meta = self.meta.saturating_add(is_meta(pool, slot).into());
        self.sort(pool, slot, position, seek);
    }

    /// `slot` grew to the front: it has a new place in sector order.
    pub(super) fn grew(&mut self, pool: &mut Pool<'_>, slot: u16, position: u64, seek: BackSeek) {
        self.tree.remove(pool, slot);
        self.sort(pool, slot, position, seek);
    }

    fn sort(&mut self, pool: &mut Pool<'_>, slot: u16, position: u64, seek: BackSeek) {
        let lba = pool.lba(slot);
        self.tree.insert(pool, slot, lba);
        self.next = better(pool, self.next, Some(slot), position, seek);
    }

    /// Takes out the one that goes to the device. The next one is sought around where it begins.
    pub(super) fn take(&mut self, pool: &mut Pool<'_>, slot: u16, seek: BackSeek) {
        let behind = Tree::next(pool, slot).or_else(|| self.tree.first(pool)).filter(|&s| s != slot);
        self.next = better(pool, behind, Tree::prev(pool, slot), pool.lba(slot), seek);
        self.tree.remove(pool, slot);
        self.fifo.remove(pool, slot);
        self.len = self.len.saturating_sub(1);
        self.meta = self.meta.saturating_sub(is_meta(pool, slot).into());
    }

    /// Takes out one that does not go to the device.
    pub(super) fn remove(&mut self, pool: &mut Pool<'_>, slot: u16, seek: BackSeek) {
        let next = self.next;
        self.take(pool, slot, seek);
        if next != Some(slot) {
            self.next = next;
        }
    }

    /// `from` becomes a part of `into` and takes no turn of its own; the earlier of the two deadlines counts.
    pub(super) fn absorb(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, seek: BackSeek) {
        let earlier = pool.deadline(from);
        if earlier < pool.deadline(into) {
            pool.set_deadline(into, earlier);
            self.fifo.remove(pool, into);
            self.fifo.insert_before(pool, from, into);
        }
        if self.next == Some(from) {
            self.next = Some(into);
        }
        self.remove(pool, from, seek);
    }
}
