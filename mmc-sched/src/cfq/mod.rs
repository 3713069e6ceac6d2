//! CFQ: one queue of requests has the device at a time, for a slice of time by its level; Linux' scheduler before
//! blk-mq.
//!
//! It is not a policy to choose today: it is here to be compared with, and to show what boards used until 2018.
//! Section numbers are those of a description of the kernel's algorithm in our own words; decisions are checked
//! against the recorded ones in `tests/data/cfq` (a 4.2-era CFQ edited to 4.19, so evidence of 4.19's behaviour and
//! not a recording of it).
//!
//! Sync requests (reads, and writes somebody waits for) queue per [`StreamId`]; async ones queue per class and
//! level, whoever sent them. Busy queues stand in lines, one for each class and type (async, sync without idling,
//! sync), ordered by an instant at which they would have their turn. The class real time goes before best effort,
//! best effort before idle; within a class the types take turns.
//!
//! *Left out*, because the kernel switches it off on devices that do not rotate, as every card: idling for a stream
//! that is expected to come back, with think times, seekiness and the queues that would be alone (`slice_idle` is
//! fixed at 0, and with it `group_idle`); close cooperators. Left out because nothing here has it: groups and their
//! weights, the IOPS mode, the OOM queue, the guess of the device's depth, levels from CPU niceness. Left out
//! although it exists in 4.19: a metadata request does not lift the level of its queue (nor does it in the recording).
//!
//! *Differs*: text that is no number is refused, where 4.19 reads 0; `slice_sync_us` is at least 1; a run is
//! metadata if the request that heads it is; when all N streams are busy, a new one shares the queue of the same
//! kind and class that has the least queued, and its level; a stream is forgotten when its place is needed.
//!
//! *Longest wait*: none is promised. A backlog in a class starves all lower ones; a sync arrival takes the device
//! from async queues and any arrival takes it from a queue that is empty at that instant, and goes before all that
//! wait in its line, again and again. `tests/cfq.rs` shows each. Without that, equal levels go round robin.
//!
//! A wait always ends with a completion and nothing is due at an instant, so there is no timer. (The end of a slice
//! could change an answer; as in the kernel, nobody asks then.)
//!
//! *Work per call*: O(log n) in the requests of one queue, plus at most a few passes over the N + 17 queues.
//!
//! *Memory*: 72 bytes a queue and 8 a stream (6.5 KB for 64 streams); nothing per request but what every policy finds in a slot.

mod lines;
mod queue;
mod serve;
#[cfg(test)]
mod tests;
mod tune;

use crate::fifo::Fifo;
use crate::policy::{Done, Pick, Policy};
use crate::pool::Pool;
use crate::request::{Request, StreamId};
use crate::scheduler::{TunableInfo, TuneError};
use crate::seek::is_meta;
use crate::tree::Tree;
use lines::{Ends, LINES, Line};
use mmc_time::{Duration, Instant};
use queue::{ASYNC_QUEUES, Load, Queue, Rank, async_queue, rank};
use tune::Settings;

/// Set in the tag of a run that goes out before all queues. The rest of a tag is a queue's number plus 1.
const AHEAD: u32 = 1 << 31;
/// "A delayed sync request was last seen" at the start: so long ago.
const LONG_AGO: i64 = 1_000_000_000;

/// The queue a tag names.
fn number(tag: u32) -> Option<usize> {
    usize::try_from((tag & !AHEAD).checked_sub(1)?).ok()
}

/// Nanoseconds with a sign: keys can lie before the start of time.
fn ns(t: Instant) -> i64 {
    i64::try_from(t.as_nanos()).unwrap_or(i64::MAX)
}

/// The policy, for at most `N` streams (at least 1) at a time.
///
/// ```
/// use mmc_sched::{Cfq, Dispatch, Op, Queue, Request, Scheduler, Slot, StreamId};
/// use mmc_time::Instant;
///
/// let mut queue = Queue::new([Slot::FREE; 64], Cfq::<4>::new());
/// for i in 0..8 {
///     queue.insert(Request::new(Op::Write, i * 2048, 1024, StreamId(1)), Instant::ZERO).unwrap();
/// }
/// let Dispatch::Run(first) = queue.dispatch(Instant::ZERO) else { panic!() };
/// assert_eq!(first.lba, 0);
/// let (id, _) = queue.insert(Request::new(Op::Read, 1 << 20, 8, StreamId(2)), Instant::ZERO).unwrap();
/// let Dispatch::Run(next) = queue.dispatch(Instant::ZERO) else { panic!() };
/// assert_eq!(next.head, id, "a read takes the device from writes nobody waits for");
/// ```
#[derive(Clone, Debug)]
pub struct Cfq<const N: usize = 64> {
    settings: Settings,
    /// Real time by level, best effort by level, idle.
    pool_queues: [Queue; ASYNC_QUEUES],
    owners: [Option<StreamId>; N],
    streams: [Queue; N],
    lines: [Ends; LINES],
    /// Sync queues in the lines.
    busy_sync: u32,
    /// The queue that has the device.
    active: Option<u16>,
    /// The line that is served, until then.
    serving: Line,
    serving_end: i64,
    /// The line served when a queue lost the device, and the time that was left to it.
    saved: Option<(Line, i64)>,
    /// Busy queues, averaged: real time, and the others.
    average: [u32; 2],
    /// When a sync request last completed that had waited too long.
    delayed_sync: i64,
    /// Runs that go out before all queues.
    ahead: Fifo,
    /// Runs in the queues.
    queued: u32,
    /// Runs of sync queues at the device.
    sync_out: u32,
    /// End of the run given out last.
    position: u64,
}

impl<const N: usize> Cfq<N> {
    /// A policy with the tunables Linux sets for a card.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(N > 0, "a policy needs room for one stream at least") };
        Self {
            settings: Settings::DEFAULT,
            pool_queues: [Queue::new(false); ASYNC_QUEUES],
            owners: [None; N],
            streams: [Queue::new(true); N],
            lines: [Ends::EMPTY; LINES],
            busy_sync: 0,
            active: None,
            serving: Line { rank: Rank::BestEffort, load: Load::Async },
            serving_end: 0,
            saved: None,
            average: [0; 2],
            delayed_sync: 0,
            ahead: Fifo::new(),
            queued: 0,
            sync_out: 0,
            position: 0,
        }
    }

    /// Sets the length of a kernel tick (1/HZ): twice that is the shortest time one type of queues is served. The
    /// default is 4 ms, HZ = 250.
    pub fn set_tick(&mut self, tick: Duration) {
        self.settings.tick = i64::try_from(tick.as_nanos()).unwrap_or(i64::MAX);
    }

    fn queue(&self, i: usize) -> &Queue {
        const NOBODY: &Queue = &Queue::new(false);
        match i.checked_sub(ASYNC_QUEUES) {
            None => self.pool_queues.get(i),
            Some(i) => self.streams.get(i),
        }
        .unwrap_or(NOBODY)
    }

    fn edit(&mut self, i: usize, f: impl FnOnce(&mut Queue)) {
        let q = match i.checked_sub(ASYNC_QUEUES) {
            None => self.pool_queues.get_mut(i),
            Some(i) => self.streams.get_mut(i),
        };
        if let Some(q) = q {
            f(q);
        }
    }

    /// The queue a request belongs to, if its stream has one.
    fn find(&self, r: &Request) -> Option<usize> {
        if !r.is_sync() {
            return Some(async_queue(r.priority));
        }
        let i = self.owners.iter().position(|&o| o == Some(r.stream))?;
        Some(i.saturating_add(ASYNC_QUEUES))
    }

    /// The queue of a request that arrives, made if need be, with the class and level of the request.
    fn queue_for(&mut self, r: &Request, now: i64) -> usize {
        let (class, level) = rank(r.priority);
        let i = match self.find(r) {
            Some(i) => i,
            None => match self.room() {
                Some(n) => {
                    if let Some(owner) = self.owners.get_mut(n) {
                        *owner = Some(r.stream);
                    }
                    let i = n.saturating_add(ASYNC_QUEUES);
                    self.edit(i, |q| *q = Queue::new(true));
                    i
                }
                None => return self.shared(class),
            },
        };
        self.edit(i, |q| (q.rank, q.level, q.seen) = (class, level, now));
        i
    }

    /// Room for a new stream: unused, or of the stream that has nothing to do and sent nothing for the longest time.
    fn room(&self) -> Option<usize> {
        self.owners.iter().position(Option::is_none).or_else(|| {
            let quiet = self.streams.iter().enumerate().filter(|(_, q)| q.is_quiet());
            quiet.min_by_key(|(_, q)| q.seen).map(|(n, _)| n)
        })
    }

    /// All streams are busy: the queue of the same class with the least queued, or of any class.
    fn shared(&self, class: Rank) -> usize {
        let all = self.streams.iter().enumerate();
        let best = all.min_by_key(|(_, q)| (q.rank != class, q.requests.len()));
        best.map_or(0, |(n, _)| n).saturating_add(ASYNC_QUEUES)
    }

    /// A run of this queue is not at the device any more.
    fn landed(&mut self, i: usize) {
        self.edit(i, |q| q.out = q.out.saturating_sub(1));
        self.sync_out = self.sync_out.saturating_sub(u32::from(self.queue(i).sync));
    }
}

impl<const N: usize> Default for Cfq<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Policy for Cfq<N> {
    fn name(&self) -> &'static str {
        "cfq"
    }

    fn reset(&mut self, _: &mut Pool<'_>, now: Instant) {
        let delayed_sync = ns(now).saturating_sub(LONG_AGO);
        *self = Self { settings: self.settings, delayed_sync, ..Self::new() };
    }

    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant) {
        let t = ns(now);
        let r = *pool.request(slot);
        let i = self.queue_for(&r, t);
        pool.set_tag(slot, u32::try_from(i).unwrap_or(0).saturating_add(1));
        pool.set_deadline(slot, now + Duration::from_nanos(self.settings.expire(self.queue(i).sync)));
        if self.queue(i).line.is_none() {
            self.place(i, false, t);
        }
        let (position, seek) = (self.position, self.settings.seek());
        self.edit(i, |q| {
            q.requests.add(pool, slot, position, seek);
            // Idling is off: the queue changes its type at its next turn.
            q.fresh = false;
        });
        self.queued = self.queued.saturating_add(1);
        if self.preempts(i, is_meta(pool, slot), t) {
            self.preempt(i, t);
        }
    }

    /// Goes out before all queues. A run that was given out counts as at the device until it completes, as in the
    /// kernel.
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, fresh: bool, _: Instant) {
        let tag = if fresh { 0 } else { pool.tag(slot) };
        pool.set_tag(slot, tag | AHEAD);
        self.ahead.push_front(pool, slot);
    }

    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let tag = pool.tag(slot);
        if tag & AHEAD != 0 {
            self.ahead.remove(pool, slot);
            if let Some(i) = number(tag) {
                self.landed(i);
            }
            return;
        }
        let Some(i) = number(tag) else { return };
        let seek = self.settings.seek();
        self.edit(i, |q| q.requests.remove(pool, slot, seek));
        self.queued = self.queued.saturating_sub(1);
        if self.queue(i).requests.len() == 0 && self.active() != Some(i) {
            self.depart(i);
        }
    }

    /// Only requests of one queue come together (§13).
    fn may_merge(&self, pool: &Pool<'_>, into: u16, request: &Request) -> bool {
        let tag = pool.tag(into);
        tag & AHEAD == 0 && self.find(request) == number(tag)
    }

    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        self.queue(self.find(request)?).requests.touching(pool, request)
    }

    fn run_before(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        if pool.tag(slot) & AHEAD == 0 { Tree::prev(pool, slot) } else { None }
    }

    fn run_behind(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        if pool.tag(slot) & AHEAD == 0 { Tree::next(pool, slot) } else { None }
    }

    fn grown(&mut self, pool: &mut Pool<'_>, slot: u16, front: bool) {
        if let (true, Some(i)) = (front, number(pool.tag(slot))) {
            let (position, seek) = (self.position, self.settings.seek());
            self.edit(i, |q| q.requests.grew(pool, slot, position, seek));
        }
    }

    fn absorbed(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, queued: bool) {
        if let (true, Some(i)) = (queued, number(pool.tag(into))) {
            let seek = self.settings.seek();
            self.edit(i, |q| q.requests.absorb(pool, into, from, seek));
            self.queued = self.queued.saturating_sub(1);
        }
    }

    fn pick(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        if let Some(slot) = self.ahead.pop_front(pool) {
            self.position = pool.end(slot);
            return Pick::Run(slot);
        }
        if self.queued == 0 {
            return Pick::Empty;
        }
        match self.choose(pool, now) {
            Some(slot) => Pick::Run(slot),
            None => Pick::Wait { at: None, completion: true },
        }
    }

    fn completed(&mut self, pool: &mut Pool<'_>, slot: u16, done: Done, now: Instant) {
        let Some(i) = number(pool.tag(slot)) else { return };
        let patience = Duration::from_nanos(self.settings.expire(true));
        if self.queue(i).sync && pool.arrival(slot) + patience <= now {
            self.delayed_sync = ns(now);
        }
        if done.run {
            self.landed(i);
            self.served(i, ns(now));
        }
    }

    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        self.settings.info(i)
    }

    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        self.settings.set(name, text)
    }
}
