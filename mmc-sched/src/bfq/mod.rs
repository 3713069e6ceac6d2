//! BFQ: each stream gets its share of the sectors, whatever the others do, in slots with a budget.
//!
//! It is not Linux' BFQ to the letter: what is left out, and why, is listed in `docs/bfq.md`. Section numbers are
//! those of that file's source, a description of the kernel's algorithm in our own words.
//!
//! Sync requests (reads, and writes somebody waits for) queue per [`StreamId`]; async ones queue per class and
//! level, whoever sent them. One stream at a time has the device, until it is empty and not worth waiting for,
//! its next request does not fit its budget, its time is up, or a stream that should go first wakes up. Which
//! one follows is decided by B-WF2Q+ (`wf2q.rs`), within the classes real time, best effort and idle.
//!
//! *Streams* are remembered until their place is needed for a new one (the one idle longest gives way). When all N
//! are busy, a new one shares the queue of the same kind (sync or async) that has the least queued: no request is
//! refused, but the sharers are one for the fairness.
//!
//! *Work per call*: O(log n) in the requests of one stream for sector order, plus a constant number of passes over
//! the at most 64 streams; `pick` does at most 2N + 2 such rounds, each but the last of which ends a slot.
//!
//! *Memory*: about 250 bytes a stream (16.5 KB for 64), nothing per request but what every policy finds in a slot.

mod raise;
mod rate;
mod requests;
mod select;
mod stream;
#[cfg(test)]
mod tests;
mod tune;
mod wf2q;

pub use select::Expiry;

use crate::bound::Why;
use crate::fifo::Fifo;
use crate::policy::{Done, Pick, Policy};
use crate::pool::Pool;
use crate::request::{Kind, Request, StreamId};
use crate::scheduler::{TunableInfo, TuneError};
use crate::tree::Tree;
use mmc_time::{Duration, Instant};
use rate::Rate;
use stream::{Key, Stream, rank};
use tune::Settings;
use wf2q::Engine;

/// Set in the tag of a run that goes out before all streams. The rest of a tag is a stream's number plus 1.
const AHEAD: u32 = 1 << 31;

/// The stream a tag names; a number out of range for none.
fn number(tag: u32) -> usize {
    (tag & !AHEAD).checked_sub(1).map_or(usize::MAX, |i| i as usize)
}

/// Weight of priority level 0 (highest) to 7: 80 down to 10. Level 4 stands for "no priority".
#[must_use]
pub const fn level_weight(level: u8) -> u32 {
    let level = if level > 7 { 7 } else { level };
    8_u32.saturating_sub(level as u32).saturating_mul(10)
}

/// Why a weight was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WeightError {
    /// Not 1..=1000.
    #[error("a weight is 1 to 1000")]
    Range,
    /// As many streams as there is room for have a weight of their own already.
    #[error("no room for another weight: clear one first")]
    Full,
}

/// The policy, for at most `N` streams at a time (1..=64).
///
/// ```
/// use mmc_sched::{Bfq, Dispatch, Flags, Op, Queue, Request, Scheduler, Slot, StreamId};
/// use mmc_time::Instant;
///
/// let (flusher, journal, now) = (StreamId(1), StreamId(2), Instant::ZERO);
/// let mut queue = Queue::new([Slot::FREE; 64], Bfq::<4>::new());
/// queue.tune("slice_idle", "0").unwrap();
/// for i in 0..32 {
///     queue.insert(Request::new(Op::Write, i * 1024, 1024, flusher), now).unwrap();
/// }
/// let Dispatch::Run(first) = queue.dispatch(now) else { panic!() };
/// assert_eq!(first.lba, 0);
/// let mut commit = Request::new(Op::Write, 1 << 20, 8, journal);
/// commit.flags = Flags::SYNC;
/// let (id, _) = queue.insert(commit, now).unwrap();
/// let Dispatch::Run(next) = queue.dispatch(now) else { panic!() };
/// assert_eq!(next.head, id);
/// ```
#[derive(Clone, Debug)]
pub struct Bfq<const N: usize = 64> {
    engine: Engine<N>,
    keys: [Key; N],
    streams: [Stream; N],
    weights: [Option<(StreamId, u32)>; N],
    /// Some of them are set.
    weighted: bool,
    settings: Settings,
    rate: Rate,
    /// Runs that go out before all streams: requeued ones.
    ahead: Fifo,
    /// Runs in the streams and ahead of them.
    queued: u32,
    in_flight: u32,
    /// Time of the device since a command ended, as far as parts and members of the next ended.
    took: Duration,
    /// End of the run given out last.
    position: u64,
    slot_start: Instant,
    slot_end: Instant,
    /// The device is kept idle for the stream that has it until then.
    idle_until: Option<Instant>,
    /// The latest instant seen.
    now: Instant,
    slots: u64,
    expired: [u64; 5],
}

impl<const N: usize> Bfq<N> {
    /// A policy with the default tunables of Linux, but for `low_latency`, which is 0.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            engine: Engine::new(),
            keys: [Key::FREE; N],
            streams: [Stream::FREE; N],
            weights: [None; N],
            weighted: false,
            settings: Settings::DEFAULT,
            rate: Rate::new(),
            ahead: Fifo::new(),
            queued: 0,
            in_flight: 0,
            took: Duration::ZERO,
            position: 0,
            slot_start: Instant::ZERO,
            slot_end: Instant::ZERO,
            idle_until: None,
            now: Instant::ZERO,
            slots: 0,
            expired: [0; 5],
        }
    }

    /// Tells the device's rate in sectors of 512 bytes a second, from which the largest budget follows; it is
    /// measured from then on. Without it 16384 sectors are the largest budget until the first measurement.
    pub fn set_rate(&mut self, sectors_per_second: u64) {
        self.rate.set(sectors_per_second);
    }

    /// Gives the sync requests of a stream a weight of their own (1..=1000) instead of the one of their
    /// priority, or (`None`) takes it away again. In force from the stream's next request and slot on. Kept
    /// whether the stream exists or not; at most N at a time.
    ///
    /// # Errors
    /// [`WeightError`]; nothing changed.
    pub fn set_weight(&mut self, stream: StreamId, weight: Option<u32>) -> Result<(), WeightError> {
        if weight.is_some_and(|w| !(1..=1000).contains(&w)) {
            return Err(WeightError::Range);
        }
        let known = self.weights.iter().position(|w| w.is_some_and(|(s, _)| s == stream));
        let place = known.or_else(|| self.weights.iter().position(Option::is_none));
        match place.and_then(|i| self.weights.get_mut(i)) {
            Some(place) => *place = weight.map(|w| (stream, w)),
            None if weight.is_some() => return Err(WeightError::Full),
            None => {}
        }
        self.weighted = self.weights.iter().any(Option::is_some);
        Ok(())
    }

    /// Slots begun, since it was last put in charge.
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.slots
    }

    /// How many slots ended for this reason.
    #[must_use]
    pub fn expired(&self, why: Expiry) -> u64 {
        self.expired.get(why as usize).copied().unwrap_or(0)
    }
    fn count(&mut self, why: Expiry) {
        if let Some(n) = self.expired.get_mut(why as usize) {
            *n = n.saturating_add(1);
        }
    }

    /// The largest budget, or which of the conditions of pure fair queueing is not kept.
    pub(crate) const fn pure_budget(&self) -> Result<u64, Why> {
        let s = &self.settings;
        if s.low_latency {
            Err(Why::Raising)
        } else if s.charge_time {
            Err(Why::DeviceTime)
        } else if s.strict || s.slice_idle.as_nanos() != 0 {
            Err(Why::Idling)
        } else if s.max_budget == 0 {
            Err(Why::MeasuredBudget)
        } else {
            Ok(s.max_budget)
        }
    }

    fn stream(&self, i: usize) -> &Stream {
        const NOBODY: &Stream = &Stream::FREE;
        self.streams.get(i).unwrap_or(NOBODY)
    }
    fn edit(&mut self, i: usize, f: impl FnOnce(&mut Stream)) {
        if let Some(s) = self.streams.get_mut(i) {
            f(s);
        }
    }

    /// The first with this key. Eight are looked at together: where in them it is nobody foresees.
    fn find(&self, key: Key) -> Option<usize> {
        let mut eights = self.keys.chunks_exact(8);
        for (first, eight) in (0_usize..).step_by(8).zip(&mut eights) {
            let found = eight.iter().enumerate().rev().fold(8, |at, (i, &k)| if k == key { i } else { at });
            if found < 8 {
                return Some(first.wrapping_add(found));
            }
        }
        let rest = eights.remainder();
        let first = N.wrapping_sub(rest.len());
        rest.iter().position(|&k| k == key).map(|i| first.wrapping_add(i))
    }

    /// The stream of a request that arrives, made if need be.
    fn stream_of(&mut self, r: &Request, now: Instant) -> usize {
        let key = Key::of(r);
        let i = match self.find(key) {
            Some(i) => i,
            None => match self.place() {
                Some(i) => {
                    if let Some(k) = self.keys.get_mut(i) {
                        *k = key;
                    }
                    let budget = self.first_budget();
                    self.edit(i, |s| *s = Stream::new(r.is_sync(), budget, now));
                    self.engine.forget(i);
                    i
                }
                None => return self.shared(r.is_sync()),
            },
        };
        let (class, _, by_level) = rank(r.priority);
        let own = if self.weighted && r.is_sync() {
            self.weights.iter().flatten().find(|w| w.0 == r.stream)
        } else {
            None
        };
        let weight = own.map_or(by_level, |w| w.1);
        let s = self.stream(i);
        if s.fresh || (s.class, s.weight) != (class, weight) {
            self.edit(i, |s| (s.class, s.weight) = (class, weight));
            self.apply_weight(i);
        }
        i
    }

    /// Room for a new stream: unused, or of the stream that has been idle longest.
    fn place(&self) -> Option<usize> {
        self.find(Key::FREE).or_else(|| {
            let quiet = self.streams.iter().enumerate().filter(|&(i, s)| s.is_quiet() && !self.is_busy(i));
            quiet.min_by_key(|(_, s)| s.idle_since).map(|(i, _)| i)
        })
    }

    /// All are busy: the one of the same kind with the least queued, or of any kind.
    fn shared(&self, sync: bool) -> usize {
        let all = self.streams.iter().enumerate();
        all.min_by_key(|(_, s)| (s.sync != sync, s.requests.len())).map_or(0, |(i, _)| i)
    }

    /// Tells the engine the weight of `i`, raised or not.
    fn apply_weight(&mut self, i: usize) {
        let s = self.stream(i);
        let (weight, class) = (s.weight.saturating_mul(s.raise.coefficient()), s.class);
        self.engine.set_weight(i, weight, class);
    }

    fn advance(&mut self, pool: &mut Pool<'_>, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.tick(pool, self.now);
        self.now
    }
}

impl<const N: usize> Default for Bfq<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Policy for Bfq<N> {
    fn name(&self) -> &'static str {
        "bfq"
    }

    fn reset(&mut self, _: &mut Pool<'_>, now: Instant) {
        self.engine.reset();
        self.keys.fill(Key::FREE);
        self.streams.fill(Stream::FREE);
        let known = self.rate.get();
        self.rate = Rate::new();
        self.rate.set(known);
        self.ahead = Fifo::new();
        (self.queued, self.in_flight, self.took, self.position) = (0, 0, Duration::ZERO, 0);
        (self.slot_start, self.slot_end, self.idle_until, self.now) = (now, now, None, now);
        (self.slots, self.expired) = (0, [0; 5]);
    }

    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant) {
        let now = self.advance(pool, now);
        let r = *pool.request(slot);
        let i = self.stream_of(&r, now);
        pool.set_tag(slot, u32::try_from(i).unwrap_or(0).saturating_add(1));
        let patience = if r.is_sync() { self.settings.expire_sync } else { self.settings.expire_async };
        pool.set_deadline(slot, now + patience);
        let (position, seek, slice_idle) = (self.position, self.settings.seek(), self.settings.slice_idle);
        let busy = self.is_busy(i);
        let next = self.stream(i).requests.next();
        self.edit(i, |s| {
            let idle = s.is_quiet();
            s.arrived((pool.lba(slot), pool.blocks(slot)), (idle, busy), slice_idle, now);
            s.requests.add(pool, slot, position, seek);
        });
        self.queued = self.queued.saturating_add(1);
        if !busy {
            self.woken(pool, i, now);
            return;
        }
        if self.settings.low_latency {
            self.edit(i, |s| s.raise.more(!s.sync, now));
            self.apply_weight(i);
        }
        if next != self.stream(i).requests.next() {
            self.next_changed(pool, i, 0, now);
        }
    }

    /// Goes out before all streams. A run that was given out keeps the stream it was charged to.
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, fresh: bool, now: Instant) {
        let now = self.advance(pool, now);
        let tag = if fresh { 0 } else { pool.tag(slot) };
        pool.set_tag(slot, tag | AHEAD);
        self.ahead.push_front(pool, slot);
        self.queued = self.queued.saturating_add(1);
        if !fresh {
            self.came_back(pool, number(tag), now);
        }
    }

    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.queued = self.queued.saturating_sub(1);
        let (tag, now) = (pool.tag(slot), self.now);
        if tag & AHEAD != 0 {
            self.ahead.remove(pool, slot);
            return;
        }
        let (i, seek) = (number(tag), self.settings.seek());
        self.edit(i, |s| s.requests.remove(pool, slot, None, seek));
        let waits = self.is_busy(i) && self.engine.serving() != Some(i);
        if waits && self.stream(i).requests.len() == 0 {
            self.edit(i, |s| s.idle_since = now);
            self.engine.deactivate(i);
        } else {
            self.next_changed(pool, i, 0, now);
        }
    }

    /// Only requests of one stream and kind come together.
    fn may_merge(&self, pool: &Pool<'_>, into: u16, request: &Request) -> bool {
        let tag = pool.tag(into);
        tag & AHEAD == 0 && self.find(Key::of(request)) == Some(number(tag))
    }

    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        self.stream(self.find(Key::of(request))?).requests.touching(pool, request)
    }

    fn run_before(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        if pool.tag(slot) & AHEAD == 0 { Tree::prev(pool, slot) } else { None }
    }

    fn run_behind(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        if pool.tag(slot) & AHEAD == 0 { Tree::next(pool, slot) } else { None }
    }

    fn grown(&mut self, pool: &mut Pool<'_>, slot: u16, front: bool) {
        let (tag, now) = (pool.tag(slot), self.now);
        let (i, position, seek) = (number(tag), self.position, self.settings.seek());
        let member = if front { pool.at(slot).first } else { pool.at(slot).last };
        pool.set_tag(member, tag);
        if front {
            self.edit(i, |s| s.requests.grew(pool, slot, position, seek));
        }
        if self.stream(i).requests.next() == Some(slot) {
            self.next_changed(pool, i, 0, now);
        }
    }

    fn absorbed(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, queued: bool) {
        let (tag, now) = (pool.tag(into), self.now);
        let (i, seek) = (number(tag), self.settings.seek());
        // The newest member, that only a front merge a moment ago can have brought without a word.
        let first = pool.at(from).first;
        pool.set_tag(first, tag);
        pool.set_tag(from, tag);
        if queued {
            self.queued = self.queued.saturating_sub(1);
            self.edit(i, |s| s.requests.absorb(pool, into, from, seek));
        }
        if self.stream(i).requests.next() == Some(into) {
            self.next_changed(pool, i, pool.blocks(from), now);
        }
    }

    fn pick(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        let now = self.advance(pool, now);
        self.choose(pool, now)
    }

    fn completed(&mut self, pool: &mut Pool<'_>, slot: u16, done: Done, now: Instant) {
        let now = self.advance(pool, now);
        self.took += self.rate.completed(done.blocks, done.run, now);
        if done.run {
            let (i, took) = (number(pool.tag(slot)), core::mem::take(&mut self.took));
            if self.settings.charge_time {
                self.engine.charge(i, took.as_micros().saturating_sub(select::ADVANCE));
            }
            self.came_back(pool, i, now);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.idle_until
    }

    /// Of each kind by itself: reads may take all tags, sync writes 3/4, async requests 1/2; half of that (3/8)
    /// and 3/16 while a stream of raised weight is busy. Counted per kind, so that one kind at its limit never
    /// keeps another out (spec §13: a limit on all tags together would).
    fn admits(&self, kind: Kind, tags: usize) -> usize {
        let raised = self.raised_busy() > 0;
        let sixteenths = match (kind, raised) {
            (Kind::Read, _) => 16,
            (Kind::SyncWrite, false) => 12,
            (Kind::SyncWrite, true) => 6,
            (Kind::Async, false) => 8,
            (Kind::Async, true) => 3,
        };
        (tags.saturating_mul(sixteenths) >> 4).max(1)
    }

    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        self.settings.info(i)
    }

    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        let (raised, by_time) = (self.settings.low_latency, self.settings.charge_time);
        self.settings.set(name, text)?;
        if by_time != self.settings.charge_time {
            // Budgets are of another kind now; what is owed stays small beside them.
            let budget = self.first_budget();
            self.streams.iter_mut().for_each(|s| s.max_budget = budget);
        }
        if raised && !self.settings.low_latency {
            let now = self.now;
            for i in 0..N {
                self.edit(i, |s| s.raise.stop(now));
                self.apply_weight(i);
            }
        }
        Ok(())
    }
}
