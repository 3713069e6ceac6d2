//! [`Queue`]: a pool and a [`Policy`] make a [`Scheduler`].
//!
//! It orders nothing itself. Ids and generations, merging, the members of runs, parts of requests and
//! exactly-once are here, once for all policies.

use crate::merge::{Joined, Limits, Merger, Merges};
use crate::policy::{Done, Pick, Policy};
use crate::pool::{Bits, NIL, Pool, Slot, State, mergeable};
use crate::request::{Kind, Op, Request, RequestId};
use crate::scheduler::{
    Completed, Dispatch, Inserted, Outcome, Rejected, Run, Scheduler, TunableInfo, TuneError,
};
use crate::tree::{Gap, Half, Links, Tree};
use mmc_time::Instant;

/// A scheduler made of storage for requests and a policy.
///
/// `S` is anything that lends a slice of [`Slot`]s: an array `[Slot::FREE; 128]`, a `&'static mut [Slot]` (the
/// number is then configuration, and all users have one type), with `std` a `Box<[Slot]>` or a `Vec`. At most
/// 65,535 slots are used. `P` is one policy, [`AnyPolicy`](crate::AnyPolicy), or a lent `&mut dyn Policy`.
///
/// ```
/// use mmc_sched::{Dispatch, MqDeadline, Op, Outcome, Queue, Request, Scheduler, Slot, StreamId};
/// use mmc_time::Instant;
///
/// let mut queue = Queue::new([Slot::FREE; 8], MqDeadline::new());
/// let now = Instant::ZERO;
/// let (id, _) = queue.insert(Request::new(Op::Write, 100, 8, StreamId(1)), now).unwrap();
/// let Dispatch::Run(run) = queue.dispatch(now) else { panic!() };
/// assert_eq!((run.head, run.lba, run.blocks), (id, 100, 8));
/// assert!(queue.complete(id, Outcome { blocks: 8, failed: false }, now).unwrap().last);
/// assert!(queue.is_empty());
/// ```
///
/// Work per call, beside the policy's own: `insert`, `merge`, `cancel`, `complete` and the look-ups take constant time
/// (`insert` one step more for each queued run that falls in with the new one), `dispatch` and `requeue` time
/// linear in the members of the run, [`replace`](Self::replace) n·log(n).
#[derive(Clone, Debug)]
pub struct Queue<S, P> {
    storage: S,
    policy: P,
    core: Core,
}

#[derive(Clone, Debug)]
struct Core {
    merger: Merger,
    /// What `merge` just found no run for: `insert` need not search again, nor the policy for its place.
    alone: Option<Request>,
    gap: Gap,
    now: Instant,
    seq: u64,
    free: u16,
    len: u16,
    queued: u16,
    epoch: u16,
}

impl<S: AsRef<[Slot]> + AsMut<[Slot]>, P: Policy> Queue<S, P> {
    /// An empty queue with default limits. Whatever was in the slots is forgotten.
    #[must_use]
    pub fn new(storage: S, policy: P) -> Self {
        Self::with_limits(storage, policy, Limits::default())
    }

    /// An empty queue with these limits on merging.
    #[must_use]
    pub fn with_limits(mut storage: S, mut policy: P, limits: Limits) -> Self {
        let mut core = Core {
            merger: Merger::new(limits),
            alone: None,
            gap: Gap::UNKNOWN,
            now: Instant::ZERO,
            seq: 0,
            free: NIL,
            len: 0,
            queued: 0,
            epoch: 0,
        };
        let mut pool = Pool::new(storage.as_mut());
        for slot in (0..pool.capacity()).rev() {
            let generation = pool.at(slot).generation;
            pool.edit(slot, |s| *s = Slot { generation, next: core.free, ..Slot::FREE });
            core.free = slot;
        }
        policy.reset(&mut pool, core.now);
        Self { storage, policy, core }
    }

    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }
    /// The policy, to set what has no name: weights of streams, for example.
    pub fn policy_mut(&mut self) -> &mut P {
        self.core.alone = None;
        &mut self.policy
    }
    /// The limits on merging.
    pub fn limits(&self) -> Limits {
        self.core.merger.limits
    }
    /// Sets the limits for merges to come.
    pub fn set_limits(&mut self, limits: Limits) {
        self.core.merger.limits = limits;
        self.core.alone = None;
    }
    /// Runs that wait.
    pub fn queued(&self) -> usize {
        usize::from(self.core.queued)
    }
    /// How the newest request that merged did so.
    pub fn joined(&self) -> Option<Joined> {
        self.core.merger.joined
    }

    /// Puts another policy in charge, as `echo bfq > scheduler` does, and gives the old one back. Queued runs are
    /// given to it in the order they arrived, requeued ones at its head; requests at the device complete as if
    /// nothing had happened, and the new policy is not told of them.
    pub fn replace(&mut self, policy: P, now: Instant) -> P {
        let now = self.core.clock(now);
        let old = core::mem::replace(&mut self.policy, policy);
        self.core.epoch = self.core.epoch.wrapping_add(1);
        let mut pool = Pool::new(self.storage.as_mut());
        self.policy.reset(&mut pool, now);
        // The old policy's trees are nobody's now.
        for slot in 0..pool.capacity() {
            pool.edit(slot, |s| (s.leaf, s.links, s.half) = (NIL, Links::FREE, Half::FREE));
        }
        let mut order = Tree::new();
        for slot in 0..pool.capacity() {
            pool.edit(slot, |s| s.foreign = s.sent);
            if pool.at(slot).state == State::Queued {
                self.core.merger.forget(&mut pool, slot);
                let seq = pool.at(slot).seq;
                pool.edit(slot, |s| (s.prev, s.next, s.tag) = (NIL, NIL, 0));
                order.insert(&mut pool, slot, seq);
            }
        }
        while let Some(slot) = order.first(&pool) {
            order.remove(&mut pool, slot);
            if pool.at(slot).bits.contains(Bits::AT_HEAD) {
                self.policy.insert_head(&mut pool, slot, true, now);
            } else {
                self.policy.insert(&mut pool, slot, now);
                self.core.merger.queued(&mut pool, &self.policy, slot);
            }
        }
        old
    }

    /// As [`Scheduler::insert`], but the request goes out before others (the last such one first).
    ///
    /// # Errors
    /// The request and the reason.
    pub fn insert_at_head(
        &mut self,
        r: Request,
        now: Instant,
    ) -> Result<(RequestId, Inserted), (Request, Rejected)> {
        self.put(r, true, now)
    }

    fn put(
        &mut self,
        r: Request,
        at_head: bool,
        now: Instant,
    ) -> Result<(RequestId, Inserted), (Request, Rejected)> {
        let alone = self.core.alone.is_some_and(|a| a.same(&r));
        let now = self.core.clock(now);
        let mut pool = Pool::new(self.storage.as_mut());
        if alone {
            pool.gap.set(self.core.gap);
        }
        self.core.insert(&mut pool, &mut self.policy, r, (at_head, alone), now).map_err(|e| (r, e))
    }

    #[inline]
    fn slot(&self, id: RequestId) -> Option<&Slot> {
        self.storage
            .as_ref()
            .get(id.slot())
            .filter(|s| s.generation == id.generation && s.state != State::Free && id.slot != NIL)
    }
}

impl<S: AsRef<[Slot]> + AsMut<[Slot]> + Send, P: Policy> Scheduler for Queue<S, P> {
    fn name(&self) -> &'static str {
        self.policy.name()
    }
    fn capacity(&self) -> usize {
        self.storage.as_ref().len().min(usize::from(NIL))
    }
    fn len(&self) -> usize {
        usize::from(self.core.len)
    }
    fn merge(&mut self, r: &Request, now: Instant) -> Option<(RequestId, Inserted)> {
        let now = self.core.clock(now);
        let mut pool = Pool::new(self.storage.as_mut());
        self.core.merge(&mut pool, &mut self.policy, r, now)
    }
    fn insert(&mut self, r: Request, now: Instant) -> Result<(RequestId, Inserted), (Request, Rejected)> {
        self.put(r, false, now)
    }
    fn dispatch(&mut self, now: Instant) -> Dispatch {
        let now = self.core.clock(now);
        self.core.dispatch(&mut Pool::new(self.storage.as_mut()), &mut self.policy, now)
    }
    fn next_member(&self, id: RequestId) -> Option<RequestId> {
        let slot = self.slot(id)?.next_member;
        let generation = self.storage.as_ref().get(usize::from(slot))?.generation;
        (slot != NIL).then_some(RequestId { slot, generation })
    }
    fn request(&self, id: RequestId) -> Option<&Request> {
        self.slot(id).map(|s| &s.request)
    }
    fn complete(&mut self, id: RequestId, outcome: Outcome, now: Instant) -> Option<Completed> {
        self.slot(id)?;
        let now = self.core.clock(now);
        let mut pool = Pool::new(self.storage.as_mut());
        self.core.complete(&mut pool, &mut self.policy, id.slot, outcome, now)
    }
    fn requeue(&mut self, run: &Run, now: Instant) {
        if self.slot(run.head).is_some() {
            let now = self.core.clock(now);
            let mut pool = Pool::new(self.storage.as_mut());
            self.core.requeue(&mut pool, &mut self.policy, run, now);
        }
    }
    fn cancel(&mut self, id: RequestId) -> Option<Request> {
        self.slot(id)?;
        self.core.alone = None;
        self.core.cancel(&mut Pool::new(self.storage.as_mut()), &mut self.policy, id.slot)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.policy.wake_at()
    }
    fn admits(&self, kind: Kind, tags: usize) -> usize {
        self.policy.admits(kind, tags).clamp(1, tags.max(1))
    }
    fn admits_request(&self, request: &Request, tags: usize) -> bool {
        self.policy.admits_request(request, tags)
    }
    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        self.policy.tunable(i)
    }
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        self.core.alone = None;
        self.policy.tune(name, text)
    }
}

impl Core {
    /// Time never goes back. Begins each call but those that only look.
    #[inline]
    fn clock(&mut self, now: Instant) -> Instant {
        self.alone = None;
        self.now = self.now.max(now);
        self.now
    }

    #[inline(always)]
    fn alloc(&mut self, pool: &mut Pool<'_>, r: &Request, now: Instant) -> Option<u16> {
        let slot = self.free;
        let s = pool.get_mut(slot)?;
        self.free = s.next;
        self.len = self.len.wrapping_add(1);
        self.seq = self.seq.wrapping_add(1);
        s.request = *r;
        (s.arrival, s.seq, s.deadline) = (now, self.seq, Instant::ZERO);
        (s.lba, s.blocks, s.members, s.flags) = (r.lba, r.blocks, 1, r.flags);
        // In a free slot the other links of a member are `NIL`.
        (s.first, s.last) = (slot, slot);
        (s.sent, s.done, s.foreign, s.tag) = (0, 0, 0, 0);
        (s.prev, s.next) = (NIL, NIL);
        (s.bits, s.state) = (Bits::empty(), State::Queued);
        Some(slot)
    }

    #[inline]
    fn release(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let Some(s) = pool.get_mut(slot) else { return };
        s.state = State::Free;
        s.generation = s.generation.wrapping_add(1);
        (s.next_member, s.prev_member, s.next) = (NIL, NIL, self.free);
        self.free = slot;
        self.len = self.len.wrapping_sub(1);
    }

    fn merge<P: Policy + ?Sized>(
        &mut self,
        pool: &mut Pool<'_>,
        policy: &mut P,
        r: &Request,
        now: Instant,
    ) -> Option<(RequestId, Inserted)> {
        let may = self.merger.limits.merges != Merges::None && valid(r) && mergeable(r);
        if !may || self.free == NIL {
            return None;
        }
        let Some(found) = self.merger.find(pool, policy, r) else {
            (self.alone, self.gap) = (Some(*r), pool.gap.get());
            return None;
        };
        if !self.merger.has_room(pool, found.0, r) {
            return None;
        }
        let slot = self.alloc(pool, r, now)?;
        let (into, gone) = self.merger.join(pool, policy, slot, found);
        self.queued = self.queued.saturating_sub(gone);
        Some((pool.id(slot), Inserted::Merged { into: pool.id(into) }))
    }

    fn insert<P: Policy + ?Sized>(
        &mut self,
        pool: &mut Pool<'_>,
        policy: &mut P,
        r: Request,
        (at_head, alone): (bool, bool),
        now: Instant,
    ) -> Result<(RequestId, Inserted), Rejected> {
        if !valid(&r) {
            return Err(Rejected::BadRange);
        }
        if self.free == NIL {
            return Err(Rejected::Full);
        }
        policy.accept(&r)?;
        let slot = self.alloc(pool, &r, now).ok_or(Rejected::Full)?;
        let joined = if alone { None } else { self.merger.request(pool, policy, slot) };
        if let Some((into, gone)) = joined {
            self.queued = self.queued.saturating_sub(gone);
            return Ok((pool.id(slot), Inserted::Merged { into: pool.id(into) }));
        }
        self.queued = self.queued.wrapping_add(1);
        if at_head {
            pool.edit(slot, |s| s.bits |= Bits::AT_HEAD);
            policy.insert_head(pool, slot, true, now);
        } else {
            policy.insert(pool, slot, now);
            self.merger.queued(pool, policy, slot);
        }
        Ok((pool.id(slot), Inserted::Queued))
    }

    fn dispatch<P: Policy + ?Sized>(
        &mut self,
        pool: &mut Pool<'_>,
        policy: &mut P,
        now: Instant,
    ) -> Dispatch {
        let (lead, part) = match policy.pick(pool, now) {
            Pick::Run(slot) => (slot, None),
            Pick::Part { slot, blocks } => (slot, Some(blocks)),
            Pick::Wait { at, completion } => return Dispatch::Wait { at, completion },
            Pick::Empty => return Dispatch::Empty,
        };
        self.merger.forget(pool, lead);
        let s = pool.at(lead);
        let (offset, rest) = (s.sent, s.blocks.saturating_sub(s.sent));
        let blocks = part.unwrap_or(rest).min(rest);
        let run = Run {
            head: pool.id(s.first),
            count: s.members,
            op: s.request.op,
            flags: s.flags,
            lba: s.lba.saturating_add(u64::from(offset)),
            blocks,
            offset,
        };
        // One that was divided and came back whole is still counted by sectors.
        let divided = part.is_some() || s.bits.contains(Bits::DIVIDED);
        let (epoch, tag) = (self.epoch, s.tag);
        if divided {
            pool.edit(lead, |s| {
                s.bits |= Bits::DIVIDED | Bits::STARTED;
                s.sent = s.sent.saturating_add(blocks);
                s.epoch = epoch;
            });
        }
        if part.is_none() {
            self.queued = self.queued.wrapping_sub(1);
            let mut at = run.head.slot;
            while let Some(s) = pool.get_mut(at) {
                (s.state, s.tag, s.epoch) = (State::InFlight, tag, epoch);
                s.bits |= Bits::STARTED;
                at = s.next_member;
            }
        }
        Dispatch::Run(run)
    }

    fn complete<P: Policy + ?Sized>(
        &mut self,
        pool: &mut Pool<'_>,
        policy: &mut P,
        slot: u16,
        outcome: Outcome,
        now: Instant,
    ) -> Option<Completed> {
        let s = pool.at(slot);
        let (request, current) = (s.request, s.epoch == self.epoch && s.done >= s.foreign);
        let (prev, next) = (s.prev_member, s.next_member);
        let done = if s.bits.contains(Bits::DIVIDED) {
            let open = s.sent.saturating_sub(s.done);
            if open == 0 {
                return None;
            }
            let blocks = outcome.blocks.clamp(1, open);
            let failed = outcome.failed || s.bits.contains(Bits::FAILED);
            let queued = s.state == State::Queued;
            let last = blocks == open && (failed || !queued);
            if last && queued {
                policy.remove(pool, slot);
                self.queued = self.queued.saturating_sub(1);
            }
            pool.edit(slot, |s| {
                s.done = s.done.saturating_add(blocks);
                s.bits.set(Bits::FAILED, failed);
            });
            Done { blocks, failed: outcome.failed, run: true, last }
        } else {
            if s.state != State::InFlight {
                return None;
            }
            pool.edit(prev, |s| s.next_member = next);
            pool.edit(next, |s| s.prev_member = prev);
            let alone = prev == NIL && next == NIL;
            Done { blocks: request.blocks, failed: outcome.failed, run: alone, last: true }
        };
        if current {
            policy.completed(pool, slot, done, now);
        }
        if done.last {
            self.release(pool, slot);
        }
        Some(Completed { request, last: done.last })
    }

    fn requeue<P: Policy + ?Sized>(&mut self, pool: &mut Pool<'_>, policy: &mut P, run: &Run, now: Instant) {
        let mut at = run.head.slot;
        let s = pool.at(at);
        if s.bits.contains(Bits::DIVIDED) {
            // Only the part handed out last can be taken back: the rest begins where it began.
            if s.sent == run.offset.saturating_add(run.blocks) && s.done <= run.offset {
                let fresh = s.epoch != self.epoch;
                let was_queued = s.state == State::Queued;
                pool.edit(at, |s| (s.sent, s.foreign) = (run.offset, s.foreign.min(run.offset)));
                if !was_queued {
                    self.put_back(pool, policy, at, fresh, now);
                }
            }
            return;
        }
        if s.state != State::InFlight {
            return;
        }
        // The run as it is left, from its end: a member that ended meanwhile divides it, and the last one put at
        // the head goes out first.
        while pool.at(at).next_member != NIL {
            at = pool.at(at).next_member;
        }
        let mut fresh = pool.at(at).epoch != self.epoch;
        loop {
            let (last, mut first) = (at, at);
            let (op, mut blocks, mut members) = (pool.at(at).request.op, 0u32, 0u16);
            let mut flags = crate::Flags::empty();
            let next_run = loop {
                let s = pool.at(first);
                blocks = blocks.saturating_add(s.request.blocks);
                members = members.saturating_add(1);
                flags |= s.request.flags;
                let before = s.prev_member;
                if before == NIL {
                    break NIL;
                }
                if op != Op::Discard && pool.at(before).request.end() != s.request.lba {
                    pool.edit(first, |s| s.prev_member = NIL);
                    pool.edit(before, |s| s.next_member = NIL);
                    break before;
                }
                pool.edit(first, |s| s.state = State::Merged);
                first = before;
            };
            pool.edit(first, |s| {
                (s.first, s.last, s.lba, s.blocks, s.members) = (first, last, s.request.lba, blocks, members);
                s.flags = flags;
            });
            self.put_back(pool, policy, first, fresh, now);
            fresh = true;
            if next_run == NIL {
                return;
            }
            at = next_run;
        }
    }

    fn put_back<P: Policy + ?Sized>(
        &mut self,
        pool: &mut Pool<'_>,
        policy: &mut P,
        slot: u16,
        fresh: bool,
        now: Instant,
    ) {
        self.seq = self.seq.wrapping_add(1);
        self.queued = self.queued.saturating_add(1);
        let (seq, epoch) = (self.seq, self.epoch);
        pool.edit(slot, |s| {
            (s.state, s.seq, s.epoch) = (State::Queued, seq, epoch);
            s.bits |= Bits::AT_HEAD;
        });
        policy.insert_head(pool, slot, fresh, now);
    }

    fn cancel<P: Policy + ?Sized>(
        &mut self,
        pool: &mut Pool<'_>,
        policy: &mut P,
        slot: u16,
    ) -> Option<Request> {
        let s = pool.at(slot);
        if s.state != State::Queued || s.members != 1 || s.bits.contains(Bits::DIVIDED) {
            return None;
        }
        let request = s.request;
        policy.remove(pool, slot);
        self.merger.forget(pool, slot);
        self.queued = self.queued.saturating_sub(1);
        self.release(pool, slot);
        Some(request)
    }
}

/// Not empty, and no sector number wraps.
#[inline]
fn valid(r: &Request) -> bool {
    r.blocks != 0 && r.lba.checked_add(u64::from(r.blocks)).is_some()
}
