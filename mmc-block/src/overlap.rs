//! Who overlaps whom: a request never passes an earlier one of the same sectors, unless both read.
//!
//! Requests that are not over are kept in lists by where they begin, so that a new one looks only at those that begin
//! near it: work in proportion to the requests that begin within the longest one's length of it.

use crate::tag::{Entry, List, Table, Tag};

/// Lists; a stretch of sectors has one, and every 64th the same.
const LISTS: u64 = 64;
/// Sectors of a stretch: 1 MiB.
const STRETCH: u64 = 2048;

/// The lists.
#[derive(Debug)]
pub(crate) struct Sectors {
    lists: [List; LISTS as usize],
    /// Requests in them, and the longest since there was none.
    len: usize,
    longest: u64,
}

impl Sectors {
    pub(crate) const fn new() -> Self {
        Self { lists: [List::SECTORS; LISTS as usize], len: 0, longest: 0 }
    }
    fn of(&mut self, lba: u64) -> Option<&mut List> {
        self.lists.get_mut(nth(stretch(lba)))
    }
}

const fn stretch(lba: u64) -> u64 {
    lba / STRETCH
}

const fn nth(stretch: u64) -> usize {
    (stretch % LISTS) as usize
}

fn overlap<B>(a: &Entry<B>, b: &Entry<B>) -> bool {
    let both_read = a.request.op.is_read() && b.request.op.is_read();
    !both_read && a.request.lba < b.request.end() && b.request.lba < a.request.end()
}

impl<B, T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>> Table<T, B> {
    /// The request in place `i` counts from now on.
    pub(crate) fn enlist(&mut self, i: u32) {
        let Some(request) = self.get(i).map(|e| e.request) else { return };
        let (sectors, tags) = self.split();
        if sectors.len == 0 {
            sectors.longest = 0;
        }
        sectors.len = sectors.len.saturating_add(1);
        sectors.longest = sectors.longest.max(request.blocks.into());
        if let Some(list) = sectors.of(request.lba) {
            list.insert(tags, i, false);
        }
    }

    /// It does not count any more. Called once for each place that was [`enlist`](Self::enlist)ed.
    pub(crate) fn delist(&mut self, i: u32) {
        let Some(lba) = self.get(i).map(|e| e.request.lba) else { return };
        let (sectors, tags) = self.split();
        sectors.len = sectors.len.saturating_sub(1);
        if let Some(list) = sectors.of(lba) {
            list.remove(tags, i);
        }
    }

    /// Whether an earlier request, not over yet, overlaps the one in place `i`.
    pub(crate) fn must_wait(&self, i: u32) -> bool {
        let Some(e) = self.get(i) else { return false };
        let from = stretch(e.request.lba.saturating_sub(self.sectors.longest.saturating_sub(1)));
        let last = stretch(e.request.end().saturating_sub(1));
        let lists = last.saturating_sub(from).saturating_add(1).min(LISTS);
        (0..lists).any(|k| {
            let Some(list) = self.sectors.lists.get(nth(from.wrapping_add(k))) else { return false };
            let mut next = list.first();
            for _ in 0..self.len() {
                let Some(place) = next else { break };
                next = list.after(self.tags(), place);
                let other = self.tags().get(place as usize).and_then(Tag::entry);
                if other.is_some_and(|o| o.order < e.order && overlap(o, e)) {
                    return true;
                }
            }
            false
        })
    }
}
