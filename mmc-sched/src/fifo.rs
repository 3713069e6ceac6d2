//! A list of slots, doubly linked through the slots themselves.
//!
//! It does not own them: a slot is in at most one list at a time, and the policy knows in which.

use crate::pool::{NIL, Pool};

/// First and last of a list. All operations take constant time.
#[derive(Clone, Copy, Debug)]
pub struct Fifo {
    head: u16,
    tail: u16,
}

impl Fifo {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: NIL, tail: NIL }
    }
    /// The first slot.
    #[must_use]
    #[inline]
    pub fn front(&self) -> Option<u16> {
        (self.head != NIL).then_some(self.head)
    }
    /// The last slot.
    #[must_use]
    #[inline]
    pub fn back(&self) -> Option<u16> {
        (self.tail != NIL).then_some(self.tail)
    }
    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }
    /// The slot behind `slot`.
    #[must_use]
    #[inline]
    pub fn after(pool: &Pool<'_>, slot: u16) -> Option<u16> {
        Some(pool.at(slot).next).filter(|&n| n != NIL)
    }
    /// The slot in front of `slot`.
    #[must_use]
    #[inline]
    pub fn before(pool: &Pool<'_>, slot: u16) -> Option<u16> {
        Some(pool.at(slot).prev).filter(|&n| n != NIL)
    }
    /// Appends a slot that is in no list.
    #[inline]
    pub fn push_back(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.link(pool, self.tail, slot, NIL);
    }
    /// Puts a slot that is in no list in front of all.
    pub fn push_front(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.link(pool, NIL, slot, self.head);
    }
    /// Puts a slot that is in no list in front of `place`, which is in this one.
    pub fn insert_before(&mut self, pool: &mut Pool<'_>, place: u16, slot: u16) {
        self.link(pool, pool.at(place).prev, slot, place);
    }
    /// Takes a slot of this list out.
    #[inline]
    pub fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let (prev, next) = (pool.at(slot).prev, pool.at(slot).next);
        if prev == NIL {
            self.head = next;
        } else {
            pool.edit(prev, |s| s.next = next);
        }
        if next == NIL {
            self.tail = prev;
        } else {
            pool.edit(next, |s| s.prev = prev);
        }
        pool.edit(slot, |s| (s.prev, s.next) = (NIL, NIL));
    }
    /// Takes the first slot out.
    pub fn pop_front(&mut self, pool: &mut Pool<'_>) -> Option<u16> {
        let slot = self.front()?;
        self.remove(pool, slot);
        Some(slot)
    }
    #[inline]
    fn link(&mut self, pool: &mut Pool<'_>, prev: u16, slot: u16, next: u16) {
        pool.edit(slot, |s| (s.prev, s.next) = (prev, next));
        if prev == NIL {
            self.head = slot;
        } else {
            pool.edit(prev, |s| s.next = slot);
        }
        if next == NIL {
            self.tail = slot;
        } else {
            pool.edit(next, |s| s.prev = slot);
        }
    }
}

impl Default for Fifo {
    fn default() -> Self {
        Self::new()
    }
}
