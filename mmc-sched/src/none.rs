//! `none`: first come, first served, after a try to merge with the newest eight.
//!
//! It is not all of what Linux does without an elevator: the lists of plugged tasks and of several processors are
//! not here; with one submitter the order is the kernel's.
//!
//! Bound: with N slots, of which the device holds some, a queued request starts within N − 1 services, whatever
//! the others do; there is no fairness, and one writer can own all slots. All calls take constant time.

use crate::fifo::Fifo;
use crate::policy::{Done, MergeScope, Pick, Policy};
use crate::pool::Pool;
use mmc_time::Instant;

/// The policy `none`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSched {
    list: Fifo,
}

impl NoSched {
    /// The policy; it has no tunables.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Fifo::new() }
    }
}

impl Policy for NoSched {
    fn name(&self) -> &'static str {
        "none"
    }
    fn reset(&mut self, _: &mut Pool<'_>, _: Instant) {
        self.list = Fifo::new();
    }
    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, _: Instant) {
        self.list.push_back(pool, slot);
    }
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, _: bool, _: Instant) {
        self.list.push_front(pool, slot);
    }
    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.list.remove(pool, slot);
    }
    fn merge_scope(&self) -> MergeScope {
        MergeScope::Newest { list: self.list, count: 8 }
    }
    fn may_merge(&self, pool: &Pool<'_>, into: u16, request: &crate::Request) -> bool {
        pool.request(into).is_sync() == request.is_sync()
    }
    fn absorbed(&mut self, pool: &mut Pool<'_>, _: u16, from: u16, queued: bool) {
        if queued {
            self.list.remove(pool, from);
        }
    }
    fn pick(&mut self, pool: &mut Pool<'_>, _: Instant) -> Pick {
        self.list.pop_front(pool).map_or(Pick::Empty, Pick::Run)
    }
    fn completed(&mut self, _: &mut Pool<'_>, _: u16, _: Done, _: Instant) {}
}
