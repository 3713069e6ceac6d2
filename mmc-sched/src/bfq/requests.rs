//! What one stream has queued: in sector order, in order of arrival, and which request goes next.

use crate::fifo::Fifo;
use crate::pool::Pool;
use crate::request::Request;
use crate::seek::{BackSeek, better};
use crate::tree::Tree;
use mmc_time::Instant;

/// The queued requests of one stream. Insertion and removal take O(log n) steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    tree: Tree,
    fifo: Fifo,
    next: Option<u16>,
    /// The next one was chosen by its age, so no nearer one takes its place (in the kernel the next arrival does).
    overdue: bool,
    len: u16,
}

impl Requests {
    pub(crate) const EMPTY: Self =
        Self { tree: Tree::new(), fifo: Fifo::new(), next: None, overdue: false, len: 0 };

    pub(crate) const fn len(&self) -> u16 {
        self.len
    }
    /// The one that goes next, if any is queued.
    pub(crate) const fn next(&self) -> Option<u16> {
        self.next
    }

    /// Queues `slot`. `position`: where the last run ended.
    pub(crate) fn add(&mut self, pool: &mut Pool<'_>, slot: u16, position: u64, seek: BackSeek) {
        let lba = pool.lba(slot);
        self.tree.insert(pool, slot, lba);
        self.len = self.len.saturating_add(1);
        self.fifo.push_back(pool, slot);
        self.prefer(pool, slot, position, seek);
    }

    /// Takes `slot` out. If it was the next one, its neighbours in sector order are compared, unless the first
    /// to arrive is overdue at `aged` (`None`: not asked now).
    pub(crate) fn remove(&mut self, pool: &mut Pool<'_>, slot: u16, aged: Option<Instant>, seek: BackSeek) {
        let (before, behind) = (Tree::prev(pool, slot), Tree::next(pool, slot));
        let position = pool.lba(slot);
        self.tree.remove(pool, slot);
        self.fifo.remove(pool, slot);
        self.len = self.len.saturating_sub(1);
        if self.next != Some(slot) {
            return;
        }
        let oldest = self.fifo.front().filter(|&s| aged.is_some_and(|now| pool.deadline(s) <= now));
        self.overdue = oldest.is_some();
        self.next = oldest.or_else(|| better(pool, behind, before, position, seek));
    }

    /// `slot` grew to the front: it has a new place in sector order.
    pub(crate) fn grew(&mut self, pool: &mut Pool<'_>, slot: u16, position: u64, seek: BackSeek) {
        self.tree.remove(pool, slot);
        let lba = pool.lba(slot);
        self.tree.insert(pool, slot, lba);
        self.prefer(pool, slot, position, seek);
    }

    /// `slot` becomes the next one if it is better than that.
    fn prefer(&mut self, pool: &Pool<'_>, slot: u16, position: u64, seek: BackSeek) {
        if !self.overdue {
            self.next = better(pool, self.next, Some(slot), position, seek);
        }
    }

    /// `from` becomes a part of `into` and takes no turn of its own; the earlier of the two ages counts.
    pub(crate) fn absorb(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, seek: BackSeek) {
        if pool.deadline(from) < pool.deadline(into) {
            let deadline = pool.deadline(from);
            pool.set_deadline(into, deadline);
            self.fifo.remove(pool, into);
            self.fifo.insert_before(pool, from, into);
        }
        if self.next == Some(from) {
            self.next = Some(into);
        }
        self.remove(pool, from, None, seek);
    }

    /// The first in sector order that begins where `request` ends.
    pub(crate) fn touching(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        self.tree.behind(pool, request).filter(|&s| pool.lba(s) == request.end())
    }
}
