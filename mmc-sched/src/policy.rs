//! What the author of an algorithm writes; [`Queue`](crate::Queue) makes a [`Scheduler`](crate::Scheduler) of it.
//!
//! A policy is not asked about ids, merging arithmetic or exactly-once: `Queue` does that for all of them. It
//! orders slot numbers. A queued slot stands for a *run* of one or more requests that go out as one command; the
//! slot's request gives stream, operation and priority of the run, [`Pool::lba`] and [`Pool::blocks`] its extent.

use crate::fifo::Fifo;
use crate::pool::Pool;
use crate::request::{Kind, Request};
use crate::scheduler::{Rejected, TunableInfo, TuneError};
use mmc_time::Instant;

/// What a policy wants to go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// This run, or what is left of it. The policy has taken the slot out of its structures.
    Run(u16),
    /// The next `blocks` sectors of this request, fewer than are left. The slot stays in the policy's structures
    /// until it picks the rest as [`Pick::Run`]. Only for a run of one request.
    Part {
        /// Whose.
        slot: u16,
        /// Sectors, at least 1.
        blocks: u32,
    },
    /// Nothing now; as in [`Dispatch::Wait`](crate::Dispatch::Wait).
    Wait {
        /// Ask again at this instant.
        at: Option<Instant>,
        /// Ask again after a completion.
        completion: bool,
    },
    /// Nothing is queued.
    Empty,
}

/// What ended at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Sectors of the request, or of its part.
    pub blocks: u32,
    /// It failed.
    pub failed: bool,
    /// The command it was part of is over: its last member ended. True once for each [`Pick::Run`] and
    /// [`Pick::Part`].
    pub run: bool,
    /// The request is over.
    pub last: bool,
}

/// Where `Queue` looks for a run that a new request may join.
#[derive(Clone, Copy, Debug)]
pub enum MergeScope {
    /// As Linux' elevators: the run merged last, then any queued run by its end, then [`Policy::front_of`].
    Index,
    /// As Linux without an elevator: back or front of the newest `count` runs of this list, and never a
    /// request into a request.
    Newest {
        /// The policy's list, newest last.
        list: Fifo,
        /// How many are tried.
        count: u8,
    },
}

/// An algorithm. Object safe. Each call does bounded work, which its documentation states.
///
/// `Queue` calls it in this order for a slot: [`insert`](Self::insert) or [`insert_head`](Self::insert_head); any
/// number of [`grown`](Self::grown) and [`absorbed`](Self::absorbed) with it as `into`; then one of: absorbed as
/// `from`, [`remove`](Self::remove), or a [`pick`](Self::pick) followed by [`completed`](Self::completed) or a
/// further `insert_head`. `now` never goes back.
pub trait Policy: Send {
    /// Its name, as Linux spells it.
    fn name(&self) -> &'static str;
    /// Forgets all slots and all history, keeps the tunables: called before the first use and when it takes over.
    fn reset(&mut self, pool: &mut Pool<'_>, now: Instant);
    /// Whether a new request can be told apart from the others; called before anything else is done with it.
    ///
    /// # Errors
    /// [`Rejected::Streams`]; nothing happened.
    fn accept(&mut self, request: &Request) -> Result<(), Rejected> {
        let _ = request;
        Ok(())
    }
    /// A run arrives.
    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant);
    /// A run arrives and goes out before others; `fresh` unless it was given out before (and never `completed`).
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, fresh: bool, now: Instant);
    /// A queued run is taken back: cancelled, or a part of it failed.
    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16);
    /// Where to look for merges.
    fn merge_scope(&self) -> MergeScope {
        MergeScope::Index
    }
    /// How many runs with the same end are tried, the newest first, when one is sought that a request can be
    /// appended to. Linux tries the newest only, which may be of another kind and hide the one that fits.
    fn merge_tries(&self) -> u8 {
        1
    }
    /// Whether the policy lets `request` join the queued run `into`, which fits by range, operation, priority
    /// and limits.
    fn may_merge(&self, pool: &Pool<'_>, into: u16, request: &Request) -> bool {
        let _ = (pool, into, request);
        true
    }
    /// A queued run that begins where `request` ends, for a front merge.
    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        let _ = (pool, request);
        None
    }
    /// The queued run just before `slot` in sector order, with which it may merge after it grew at the front.
    fn run_before(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        let _ = (pool, slot);
        None
    }
    /// The queued run just behind `slot` in sector order, with which it may merge after it grew at the back.
    fn run_behind(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        let _ = (pool, slot);
        None
    }
    /// The queued run `slot` took a new request at its back, or at its front: then its [`Pool::lba`] is another.
    fn grown(&mut self, pool: &mut Pool<'_>, slot: u16, front: bool) {
        let _ = (pool, slot, front);
    }
    /// The run `from` is now the back of the queued run `into`. `queued`: `from` was inserted before and must be
    /// forgotten; otherwise it was new and the policy has not seen it. The extent of `into` is still the old one.
    fn absorbed(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, queued: bool);
    /// Which run goes out. A run that is picked leaves the policy.
    fn pick(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick;
    /// A request of a run that this policy gave out ended; `slot` is that request, not always the one picked. It
    /// has the tag that the picked one had.
    fn completed(&mut self, pool: &mut Pool<'_>, slot: u16, done: Done, now: Instant);
    /// The next instant at which `pick` may answer differently without any other call.
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    /// How many of `tags` requests of this kind may hold, at least 1.
    fn admits(&self, kind: Kind, tags: usize) -> usize {
        let _ = kind;
        tags.max(1)
    }
    /// Whether this request, of all that wait for one of `tags`, may take a tag now.
    fn admits_request(&self, request: &Request, tags: usize) -> bool {
        let _ = (request, tags);
        true
    }
    /// The tunables, one by one.
    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        let _ = i;
        None
    }
    /// Sets a tunable from text.
    ///
    /// # Errors
    /// [`TuneError`]; nothing changed.
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        let _ = (name, text);
        Err(TuneError::Unknown)
    }
}

/// A policy that is lent: `Queue<S, &mut dyn Policy>`.
impl<P: Policy + ?Sized> Policy for &mut P {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn reset(&mut self, pool: &mut Pool<'_>, now: Instant) {
        (**self).reset(pool, now);
    }
    fn accept(&mut self, request: &Request) -> Result<(), Rejected> {
        (**self).accept(request)
    }
    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant) {
        (**self).insert(pool, slot, now);
    }
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, fresh: bool, now: Instant) {
        (**self).insert_head(pool, slot, fresh, now);
    }
    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        (**self).remove(pool, slot);
    }
    fn merge_scope(&self) -> MergeScope {
        (**self).merge_scope()
    }
    fn merge_tries(&self) -> u8 {
        (**self).merge_tries()
    }
    fn may_merge(&self, pool: &Pool<'_>, into: u16, request: &Request) -> bool {
        (**self).may_merge(pool, into, request)
    }
    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        (**self).front_of(pool, request)
    }
    fn run_before(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        (**self).run_before(pool, slot)
    }
    fn run_behind(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        (**self).run_behind(pool, slot)
    }
    fn grown(&mut self, pool: &mut Pool<'_>, slot: u16, front: bool) {
        (**self).grown(pool, slot, front);
    }
    fn absorbed(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, queued: bool) {
        (**self).absorbed(pool, into, from, queued);
    }
    fn pick(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        (**self).pick(pool, now)
    }
    fn completed(&mut self, pool: &mut Pool<'_>, slot: u16, done: Done, now: Instant) {
        (**self).completed(pool, slot, done, now);
    }
    fn wake_at(&self) -> Option<Instant> {
        (**self).wake_at()
    }
    fn admits(&self, kind: Kind, tags: usize) -> usize {
        (**self).admits(kind, tags)
    }
    fn admits_request(&self, request: &Request, tags: usize) -> bool {
        (**self).admits_request(request, tags)
    }
    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        (**self).tunable(i)
    }
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        (**self).tune(name, text)
    }
}
