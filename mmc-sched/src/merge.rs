//! Merging: which queued run a new request joins, and the bookkeeping of runs.
//!
//! The rules are those of Linux' elevators (requests stay apart unless they touch, do the same, have the same
//! priority and keep the limits); a policy can only forbid more. The search is an index by end sector: a hash
//! table whose buckets and chains live in the slots, four buckets for each slot, equal ends stacked newest first, so
//! that a hot sector costs nothing. A look-up takes constant time on average; only ends chosen against the hash
//! (distinct ones that fall into one bucket) could make it as long as the queue.

use crate::fifo::Fifo;
use crate::policy::{MergeScope, Policy};
use crate::pool::{Bits, NIL, Pool, State};
use crate::request::{Op, Request};

/// How much may merge, as Linux' queue attribute `nomerges` counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merges {
    /// All (0).
    #[default]
    All,
    /// Only with the run merged last (1).
    LastOnly,
    /// None (2).
    None,
}

/// How large a run may become by merging. A single request may be larger; it does not merge then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sectors of a run.
    pub max_sectors: u32,
    /// Requests in a run of reads or writes.
    pub max_segments: u16,
    /// Requests in a run of discards. Above 1, discards join whether they touch or not; with 1 (most cards)
    /// they merge like writes, without a limit on their number.
    pub max_discard_segments: u16,
    /// How much is tried.
    pub merges: Merges,
}

impl Default for Limits {
    /// 512 KiB, 128 segments, discards as writes: what most SD hosts have.
    fn default() -> Self {
        Self { max_sectors: 1024, max_segments: 128, max_discard_segments: 1, merges: Merges::All }
    }
}

/// How the newest merged request joined its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// Appended, by [`Scheduler::merge`](crate::Scheduler::merge).
    Back,
    /// Put in front, by `merge`.
    Front,
    /// As a whole request, by `insert`.
    Request,
}

/// What `Queue` keeps for merging; the rest is in the slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merger {
    pub(crate) limits: Limits,
    pub(crate) last_merge: u16,
    pub(crate) joined: Option<Joined>,
}

impl Merger {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self { limits, last_merge: NIL, joined: None }
    }

    /// The queued run that `r`, which may merge, touches and may join, and where. If there is none,
    /// [`request`](Self::request) finds none either.
    #[inline]
    pub(crate) fn find<P: Policy + ?Sized>(
        &self,
        pool: &Pool<'_>,
        policy: &P,
        r: &Request,
    ) -> Option<(u16, Joined)> {
        match policy.merge_scope() {
            MergeScope::Index => self.candidate(pool, policy, r),
            MergeScope::Newest { list, count } => self.newest(pool, policy, r, list, count),
        }
    }

    /// Whether the run found for `r` has room for it. If not, it takes nothing any more, for good, and hides no
    /// other run of the same end from now on.
    #[inline]
    pub(crate) fn has_room(&mut self, pool: &mut Pool<'_>, into: u16, r: &Request) -> bool {
        let fits = self.fits(pool, into, r);
        if !fits {
            self.forget(pool, into);
            pool.edit(into, |s| s.bits |= Bits::NOMERGE);
        }
        fits
    }

    /// Puts the new request of `slot` into the run that was found for it: the run it is in then, and how many
    /// queued runs were absorbed.
    pub(crate) fn join<P: Policy + ?Sized>(
        &mut self,
        pool: &mut Pool<'_>,
        policy: &mut P,
        slot: u16,
        (into, how): (u16, Joined),
    ) -> (u16, u16) {
        self.joined = Some(how);
        pool.edit(slot, |s| s.state = State::Merged);
        self.last_merge = into;
        // The grown run may now touch its neighbour.
        if how == Joined::Front {
            prepend(pool, into, slot);
            if let Some(p) = policy.run_before(pool, into) {
                if self.attempt(pool, policy, p, into, true) {
                    return (p, 1);
                }
            }
            policy.grown(pool, into, true);
        } else {
            self.unhash(pool, into);
            append(pool, into, slot);
            self.hash_here(pool, into);
            policy.grown(pool, into, false);
            if let Some(n) = policy.run_behind(pool, into) {
                if self.attempt(pool, policy, into, n, true) {
                    return (into, 1);
                }
            }
        }
        (into, 0)
    }

    /// Tries to put the new request of `slot` as a whole into queued ones: the run it is in then, and how many
    /// queued runs were absorbed on the way.
    pub(crate) fn request<P: Policy + ?Sized>(
        &mut self,
        pool: &mut Pool<'_>,
        policy: &mut P,
        slot: u16,
    ) -> Option<(u16, u16)> {
        if !matches!(policy.merge_scope(), MergeScope::Index)
            || self.limits.merges == Merges::None
            || !pool.at(slot).mergeable()
        {
            return None;
        }
        self.joined = Some(Joined::Request);
        let last = self.last_merge;
        if last != NIL && self.attempt(pool, policy, last, slot, false) {
            return Some((last, 0));
        }
        if self.limits.merges == Merges::LastOnly {
            return None;
        }
        let (mut new, mut absorbed) = (slot, 0u16);
        'chain: loop {
            let mut t = find_end(pool, pool.at(new).lba);
            for _ in 0..policy.merge_tries() {
                if t == NIL {
                    break 'chain;
                }
                let older = pool.at(t).older;
                if t != new && self.attempt(pool, policy, t, new, new != slot) {
                    absorbed = absorbed.saturating_add(u16::from(new != slot));
                    new = t;
                    continue 'chain;
                }
                t = older;
            }
            break;
        }
        (new != slot).then_some((new, absorbed))
    }

    /// The queued run is a request on its own from now on.
    #[inline]
    pub(crate) fn queued<P: Policy + ?Sized>(&mut self, pool: &mut Pool<'_>, policy: &P, slot: u16) {
        if pool.at(slot).mergeable() && matches!(policy.merge_scope(), MergeScope::Index) {
            self.hash_here(pool, slot);
            if self.last_merge == NIL {
                self.last_merge = slot;
            }
        }
    }

    /// The run is not queued any more.
    #[inline]
    pub(crate) fn forget(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.unhash(pool, slot);
        if self.last_merge == slot {
            self.last_merge = NIL;
        }
    }

    #[inline]
    fn candidate<P: Policy + ?Sized>(
        &self,
        pool: &Pool<'_>,
        policy: &P,
        r: &Request,
    ) -> Option<(u16, Joined)> {
        let last = self.last_merge;
        if last != NIL {
            if let Some(how) = self.touch(pool, last, r).filter(|_| compatible(pool, policy, last, r)) {
                return Some((last, how));
            }
        }
        if self.limits.merges == Merges::LastOnly {
            return None;
        }
        if let Some(t) = ends_at(pool, r.lba, policy.merge_tries()).find(|&t| compatible(pool, policy, t, r))
        {
            return Some((t, Joined::Back));
        }
        let f = policy.front_of(pool, r)?;
        (pool.at(f).lba == r.end() && compatible(pool, policy, f, r)).then_some((f, Joined::Front))
    }

    fn newest<P: Policy + ?Sized>(
        &self,
        pool: &Pool<'_>,
        policy: &P,
        r: &Request,
        list: Fifo,
        count: u8,
    ) -> Option<(u16, Joined)> {
        let mut at = list.back();
        for _ in 0..count {
            let slot = at?;
            if let Some(how) = self.touch(pool, slot, r).filter(|_| compatible(pool, policy, slot, r)) {
                return Some((slot, how));
            }
            at = Fifo::before(pool, slot);
        }
        None
    }

    /// Whether and where `r` touches the run.
    #[inline]
    fn touch(&self, pool: &Pool<'_>, slot: u16, r: &Request) -> Option<Joined> {
        let s = pool.at(slot);
        if s.end() == r.lba || self.any_discard(r.op) {
            Some(Joined::Back)
        } else if r.end() == s.lba {
            Some(Joined::Front)
        } else {
            None
        }
    }

    fn any_discard(&self, op: Op) -> bool {
        op == Op::Discard && self.limits.max_discard_segments > 1
    }

    fn max_members(&self, op: Op) -> u16 {
        match op {
            Op::Discard if self.limits.max_discard_segments > 1 => self.limits.max_discard_segments,
            Op::Discard => u16::MAX,
            _ => self.limits.max_segments,
        }
    }

    fn fits(&self, pool: &Pool<'_>, into: u16, r: &Request) -> bool {
        let s = pool.at(into);
        s.blocks.checked_add(r.blocks).is_some_and(|n| n <= self.limits.max_sectors)
            && s.members < self.max_members(r.op)
    }

    /// Appends run `b` to the queued run `a` if the rules allow it.
    fn attempt<P: Policy + ?Sized>(
        &mut self,
        pool: &mut Pool<'_>,
        policy: &mut P,
        a: u16,
        b: u16,
        queued: bool,
    ) -> bool {
        let (x, y) = (pool.at(a), pool.at(b));
        let fits = a != b
            && (x.end() == y.lba || self.any_discard(x.request.op))
            && x.mergeable()
            && y.mergeable()
            && x.request.op == y.request.op
            && x.request.priority == y.request.priority
            && x.blocks.checked_add(y.blocks).is_some_and(|n| n <= self.limits.max_sectors)
            && x.members.checked_add(y.members).is_some_and(|n| n <= self.max_members(x.request.op));
        if !fits || !policy.may_merge(pool, a, &pool.at(b).request) {
            return false;
        }
        policy.absorbed(pool, a, b, queued);
        self.forget(pool, b);
        self.unhash(pool, a);
        append(pool, a, b);
        self.hash(pool, a);
        pool.edit(b, |s| s.state = State::Merged);
        self.last_merge = a;
        true
    }

    fn hash(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.hash_here(pool, slot);
    }
    /// The same, for a place where a call costs too much.
    #[inline(always)]
    fn hash_here(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let end = pool.at(slot).end();
        let bucket = bucket_of(pool, end);
        let first = head(pool, bucket);
        let same = find_from(pool, first, end);
        pool.edit(slot, |s| {
            s.bits |= Bits::HASHED;
            (s.newer, s.older, s.chain) = (NIL, same, first);
        });
        if same == NIL {
            set_head(pool, bucket, slot);
        } else {
            let behind = pool.at(same).chain;
            pool.edit(same, |s| s.newer = slot);
            pool.edit(slot, |s| s.chain = behind);
            relink(pool, bucket, same, slot);
        }
    }

    #[inline]
    fn unhash(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let Some(s) = pool.get_mut(slot) else { return };
        if !s.bits.contains(Bits::HASHED) {
            return;
        }
        s.bits.remove(Bits::HASHED);
        let (newer, older, behind, end) = (s.newer, s.older, s.chain, s.end());
        if newer != NIL {
            pool.edit(newer, |s| s.older = older);
            pool.edit(older, |s| s.newer = newer);
            return;
        }
        if older != NIL {
            pool.edit(older, |s| (s.newer, s.chain) = (NIL, behind));
        }
        let bucket = bucket_of(pool, end);
        relink(pool, bucket, slot, if older == NIL { behind } else { older });
    }
}

/// Whether `r`, which may merge, may do so with this run.
#[inline]
fn compatible<P: Policy + ?Sized>(pool: &Pool<'_>, policy: &P, slot: u16, r: &Request) -> bool {
    let s = pool.at(slot);
    s.mergeable()
        && s.request.op == r.op
        && s.request.priority == r.priority
        && policy.may_merge(pool, slot, r)
}

/// Makes `new` follow what `old` follows in the chain of `bucket`. Chains are short: see the top.
#[inline]
fn relink(pool: &mut Pool<'_>, bucket: u32, old: u16, new: u16) {
    let mut at = head(pool, bucket);
    if at == old {
        set_head(pool, bucket, new);
        return;
    }
    while let Some(s) = pool.get_mut(at) {
        if s.chain == old {
            s.chain = new;
            return;
        }
        at = s.chain;
    }
}

/// Fibonacci hashing, scaled to the number of buckets: four in each slot, so that most are empty and a look-up ends
/// at the first look.
#[inline]
fn bucket_of(pool: &Pool<'_>, end: u64) -> u32 {
    let mixed = end.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let scaled = mixed.wrapping_mul((pool.len() as u64) << 2) >> 32;
    scaled as u32
}

/// The first run of a bucket's chain.
#[inline]
fn head(pool: &Pool<'_>, bucket: u32) -> u16 {
    let buckets = &pool.at((bucket >> 2) as u16).buckets;
    buckets.get((bucket & 3) as usize).copied().unwrap_or(NIL)
}

#[inline]
fn set_head(pool: &mut Pool<'_>, bucket: u32, slot: u16) {
    pool.edit((bucket >> 2) as u16, |s| {
        if let Some(head) = s.buckets.get_mut((bucket & 3) as usize) {
            *head = slot;
        }
    });
}

/// The run with this end that came into the index last, or `NIL`.
#[inline]
fn find_end(pool: &Pool<'_>, end: u64) -> u16 {
    find_from(pool, head(pool, bucket_of(pool, end)), end)
}

/// The run with this end in a chain from `at` on, or `NIL`.
#[inline]
fn find_from(pool: &Pool<'_>, mut at: u16, end: u64) -> u16 {
    while let Some(s) = pool.get(at) {
        if s.end() == end {
            return at;
        }
        at = s.chain;
    }
    NIL
}

/// The runs with this end, the newest first, at most `tries`.
#[inline]
fn ends_at(pool: &Pool<'_>, end: u64, tries: u8) -> impl Iterator<Item = u16> {
    let some = |t: u16| (t != NIL).then_some(t);
    core::iter::successors(some(find_end(pool, end)), move |&t| some(pool.at(t).older))
        .take(usize::from(tries))
}

/// Appends the run of `b` to the run of `a`.
#[inline]
fn append(pool: &mut Pool<'_>, a: u16, b: u16) {
    let y = pool.at(b);
    let (first, last, blocks, members, flags) = (y.first, y.last, y.blocks, y.members, y.flags);
    let end = pool.at(a).last;
    pool.edit(end, |s| s.next_member = first);
    pool.edit(first, |s| s.prev_member = end);
    pool.edit(a, |s| {
        s.last = last;
        s.blocks = s.blocks.saturating_add(blocks);
        s.members = s.members.saturating_add(members);
        s.flags |= flags;
    });
}

/// Puts the single new request of `slot` in front of the run of `a`.
fn prepend(pool: &mut Pool<'_>, a: u16, slot: u16) {
    let n = pool.at(slot);
    let (lba, blocks, flags) = (n.lba, n.blocks, n.flags);
    let first = pool.at(a).first;
    pool.edit(slot, |s| s.next_member = first);
    pool.edit(first, |s| s.prev_member = slot);
    pool.edit(a, |s| {
        s.first = slot;
        s.lba = lba;
        s.blocks = s.blocks.saturating_add(blocks);
        s.members = s.members.saturating_add(1);
        s.flags |= flags;
    });
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::pool::Slot;
    use crate::{Op, StreamId};
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        /// Any of few ends, so that buckets and stacks of equals are full: the newest with an end is found.
        #[test]
        fn the_index_finds_the_newest_run_of_an_end(steps in prop::collection::vec((0u16..24, 1u64..12), 1..300)) {
            let mut slots = [Slot::FREE; 24];
            let mut pool = Pool::new(&mut slots);
            let mut merger = Merger::new(Limits::default());
            // Oldest first.
            let mut model: Vec<(u16, u64)> = Vec::new();
            for (slot, end) in steps {
                if let Some(i) = model.iter().position(|(s, _)| *s == slot) {
                    model.remove(i);
                    merger.unhash(&mut pool, slot);
                } else {
                    let r = Request::new(Op::Write, end - 1, 1, StreamId(0));
                    pool.edit(slot, |s| (s.request, s.lba, s.blocks) = (r, r.lba, 1));
                    merger.hash(&mut pool, slot);
                    model.push((slot, end));
                }
                for end in 1..12 {
                    let newest = model.iter().rev().find(|(_, e)| *e == end).map_or(NIL, |(s, _)| *s);
                    prop_assert_eq!(find_end(&pool, end), newest);
                }
            }
        }
    }
}
