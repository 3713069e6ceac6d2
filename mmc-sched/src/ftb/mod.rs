//! `ftb`, fair time batching: each stream gets its share of the device's *time*, a request somebody waits for
//! finds at most one command in front of it, and what that costs is a stated part of the throughput.
//!
//! It imitates no other scheduler. `docs/ftb.md` has the rules, what is promised, and which test shows it.
//!
//! Streams are pairs of [`StreamId`] and "somebody waits or not" ([`Request::is_sync`]). The next command is of the
//! stream that had least of the device for its weight (start-time fair queueing, charged with measured time), and
//! five rules say when that one has to wait: write slots, holds, the gate, the order within a stream, the window
//! of deep queues (`choose.rs`).
//!
//! *Streams* are remembered until their place is needed (the idle one seen least lately that owes nothing gives
//! way). When all N are busy a new one shares the place of one of its kind: no request is refused, but the sharers
//! are one for the fairness.
//!
//! *Work per call*: O(log n) in the requests of one stream; `pick` a few passes over the at most 64 streams and
//! the at most 32 commands at the device, an arrival one over the streams. Nothing looks at another stream's requests but at its head.
//!
//! *Memory*: about 150 bytes a stream and 64 a command, nothing per request but what every policy finds in a slot.

pub mod bound;
mod choose;
mod model;
mod settings;
mod stream;

use crate::fifo::Fifo;
use crate::policy::{Done, Pick, Policy};
use crate::pool::{Bits, Pool};
use crate::request::{Class, Flags, Kind, Op, Request, StreamId};
use crate::scheduler::{TunableInfo, TuneError};
use crate::tree::Tree;
use choose::Hold;
use mmc_time::{Duration, Instant};
use model::Model;
use settings::Settings;
use stream::{FENCE, Stream, Virtual, predictable, times};

/// Set in the tag of a run that goes out before all streams. The lowest byte of a tag is a stream's number plus 1, the
/// second, for a run at the device, its command's number plus 1.
const AHEAD: u32 = 1 << 31;
/// So many tags at most, and an eighth of them, are kept for streams that hold none.
const RESERVE: usize = 16;
/// A stream seen so recently may come back any time.
const RECENT: Duration = Duration::from_secs(10);

fn stream_in(tag: u32) -> usize {
    (tag & 0xff).checked_sub(1).map_or(usize::MAX, |i| i as usize)
}
fn command_in(tag: u32) -> usize {
    ((tag >> 8) & 0xff).checked_sub(1).map_or(usize::MAX, |i| i as usize)
}
fn tag_of(stream: usize, command: Option<usize>) -> u32 {
    let low = u32::try_from(stream).unwrap_or(0).saturating_add(1);
    let high = command.and_then(|c| u32::try_from(c).ok()).map_or(0, |c| c.saturating_add(1));
    low | high << 8
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

/// What it did since it was put in charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Time in which requests waited while the device was kept free for one that did not come (write slots) or for
    /// any one (holds): what the share for idling is spent on.
    pub idle: Duration,
    /// The longest such time in one piece.
    pub longest_hold: Duration,
    /// Commands that took so much longer than expected that nobody was charged for the rest.
    pub stalls: u64,
    /// Write slots begun.
    pub slots: u64,
    /// Parts of requests given out, the last ones not counted.
    pub parts: u64,
}

/// What a stream got and owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// 1..=1000.
    pub weight: u32,
    /// Time of the device it was charged since it is known, what is expected of commands on the way included.
    pub charged: Duration,
    /// How much it had more than its share, against the stream that had least of those that wait.
    pub owes: Duration,
    /// Runs queued and at the device.
    pub held: usize,
}

/// One command at the device.
#[derive(Clone, Copy, Debug)]
struct Command {
    at: Instant,
    /// Expected time in ns, and what the change of place adds.
    est: u64,
    extra: u64,
    stream: usize,
    slot: u16,
    op: Op,
    /// Its time can be known beforehand.
    known: bool,
    first: bool,
    barrier: bool,
    /// A part that is not the last.
    part: bool,
    blocks: u32,
    /// Sectors of the request that were given out with it.
    sent: u32,
    /// Number of the request's insertion; 0 for one that went before all others.
    seq: u64,
    /// Order of commands.
    serial: u64,
}

/// The policy, for at most `N` streams at a time (1..=64) and a device that takes at most `D` commands (1..=32).
///
/// ```
/// use mmc_sched::{Dispatch, Flags, Ftb, Op, Outcome, Queue, Request, Scheduler, Slot, StreamId};
/// use mmc_time::Instant;
///
/// let (flusher, journal, now) = (StreamId(1), StreamId(2), Instant::ZERO);
/// let mut queue = Queue::new([Slot::FREE; 64], Ftb::<8>::new());
/// for i in 0..32 {
///     queue.insert(Request::new(Op::Write, i * 1024, 1024, flusher), now).unwrap();
/// }
/// // One runs, one is prepared.
/// let Dispatch::Run(first) = queue.dispatch(now) else { panic!() };
/// let Dispatch::Run(second) = queue.dispatch(now) else { panic!() };
/// assert_eq!((first.lba, second.lba), (0, 1024));
/// let mut commit = Request::new(Op::Write, 1 << 20, 8, journal);
/// commit.flags = Flags::SYNC;
/// let (id, _) = queue.insert(commit, now).unwrap();
/// queue.complete(first.head, Outcome { blocks: 1024, failed: false }, now).unwrap();
/// let Dispatch::Run(next) = queue.dispatch(now) else { panic!() };
/// assert_eq!(next.head, id);
/// ```
#[derive(Clone, Debug)]
pub struct Ftb<const N: usize = 64, const D: usize = 32> {
    settings: Settings,
    model: Model,
    streams: [Stream; N],
    /// A bit for each place that is taken.
    known: u64,
    weights: [Option<(StreamId, u32)>; N],
    weighted: bool,
    commands: [Option<Command>; D],
    out: u32,
    serial: u64,
    /// Runs in the streams and ahead of them.
    queued: u32,
    ahead: Fifo,
    /// Virtual time: the least start tag of the streams that wait. Idle ones were last moved up to it at `lifted`.
    virtual_now: Virtual,
    lifted: Virtual,
    /// Queued runs that nothing may pass, and barriers at the device.
    fences: u32,
    barriers_out: u32,
    /// Streams that are waited for by another one.
    covers: u32,
    newest: u64,
    /// What may be spent on idling, in ns times the share; and until when it was counted.
    bank: i64,
    banked: Instant,
    hold: Option<Hold>,
    /// How long the device was kept free for the one that has the write slot since it was last seen.
    kept: Duration,
    wake: Option<Instant>,
    last_sync: Option<Instant>,
    last_done: Instant,
    /// Who has the write slot, its time so far in ns, its commands.
    writer: Option<usize>,
    used: i64,
    count: u32,
    wrote_last: Option<usize>,
    served_last: Option<usize>,
    stats: Stats,
    /// The latest instant seen.
    now: Instant,
}

impl<const N: usize, const D: usize> Ftb<N, D> {
    /// A policy with the default tunables: a device that takes two commands, 1/32 for splitting, 1/64 for idling.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(N >= 1 && N <= 64 && D >= 1 && D <= 32) };
        Self {
            settings: Settings::DEFAULT,
            model: Model::NEW,
            streams: [Stream::FREE; N],
            known: 0,
            weights: [None; N],
            weighted: false,
            commands: [None; D],
            out: 0,
            serial: 0,
            queued: 0,
            ahead: Fifo::new(),
            virtual_now: Virtual::START,
            lifted: Virtual::START,
            fences: 0,
            barriers_out: 0,
            covers: 0,
            newest: 0,
            bank: 0,
            banked: Instant::ZERO,
            hold: None,
            kept: Duration::ZERO,
            wake: None,
            last_sync: None,
            last_done: Instant::ZERO,
            writer: None,
            used: 0,
            count: 0,
            wrote_last: None,
            served_last: None,
            stats: Stats {
                idle: Duration::ZERO,
                longest_hold: Duration::ZERO,
                stalls: 0,
                slots: 0,
                parts: 0,
            },
            now: Instant::ZERO,
        }
    }

    /// Gives a stream (both what somebody waits for and what nobody does) a weight of its own, 1..=1000, instead of
    /// the one of its class (real time 1000, best effort 100, idle 10), or with `None` takes it away again, from
    /// its next request on. In force at once; what the stream owes stays the same in time. Kept whether the stream
    /// exists or not; at most N at a time.
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
        let virtual_now = self.virtual_now;
        if let Some(w) = weight {
            for s in self.streams.iter_mut().filter(|s| s.id == stream) {
                s.set_weight(w, virtual_now);
            }
        }
        Ok(())
    }

    /// `by` waits for what `covered` has queued now and nobody waits for (an `fsync` for the pages the flusher has):
    /// until it has all gone out it sorts as if it were of `by`, if that is sooner, though `covered` is charged; and a
    /// request of `by` with [`Flags::PREFLUSH`] waits until it is done. A later call takes the place of an earlier one.
    /// False: `covered` has nothing of that kind queued.
    pub fn cover(&mut self, by: StreamId, covered: StreamId) -> bool {
        let newest = self.newest;
        let Some(i) = self.find(covered, false).filter(|&i| self.stream(i).len > 0) else { return false };
        self.covers = self.covers.saturating_add(u32::from(self.stream(i).cover.is_none()));
        self.edit(i, |s| s.cover = Some((by, newest)));
        true
    }

    /// What it did since it was put in charge.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }
    /// What a stream got and owes, if it is remembered; `sync` for what somebody waits for.
    #[must_use]
    pub fn account(&self, stream: StreamId, sync: bool) -> Option<Account> {
        let s = self.stream(self.find(stream, sync)?);
        let nanos = |ns: i64| Duration::from_nanos(u64::try_from(ns).unwrap_or(0));
        let ahead = s.start.since(self.virtual_now).max(0);
        let owes = nanos(times(ahead, s.weight.into(), 1024));
        Some(Account { weight: s.weight, charged: nanos(s.charged), owes, held: s.held() })
    }
    /// What a write command of `blocks` sectors is expected to take, without a change of place.
    #[must_use]
    pub fn expected_write(&self, blocks: u32) -> Duration {
        Duration::from_nanos(self.model.est(Op::Write, blocks))
    }
    /// Sectors of the parts into which large writes nobody waits for are divided while others wait; a part has up to
    /// half more or less.
    #[must_use]
    pub fn chunk(&self) -> u32 {
        self.model.chunk(self.settings.overhead_share, self.settings.min_chunk)
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
    /// The places that are taken.
    fn all(&self) -> impl Iterator<Item = (usize, &Stream)> {
        let known = self.known;
        self.streams.iter().enumerate().filter(move |(i, _)| known >> i & 1 != 0)
    }
    fn find(&self, id: StreamId, sync: bool) -> Option<usize> {
        self.all().find(|(_, s)| s.id == id && s.sync == sync).map(|(i, _)| i)
    }

    fn weight(&self, r: &Request) -> u32 {
        let own = self.weights.iter().flatten().find(|w| self.weighted && w.0 == r.stream);
        own.map_or_else(
            || match r.priority.class {
                Class::RealTime => 1000,
                Class::None | Class::BestEffort => 100,
                Class::Idle => 10,
            },
            |w| w.1,
        )
    }

    /// The stream of a request that arrives, made if need be.
    fn stream_of(&mut self, r: &Request, now: Instant) -> usize {
        let (id, sync, weight) = (r.stream, r.is_sync(), self.weight(r));
        let found = self.find(id, sync).or_else(|| {
            let i = self.place()?;
            let virtual_now = self.virtual_now;
            self.edit(i, |s| *s = Stream::new(id, sync, weight, virtual_now, now));
            self.known |= 1 << i;
            for last in [&mut self.writer, &mut self.wrote_last, &mut self.served_last] {
                *last = last.filter(|&l| l != i);
            }
            Some(i)
        });
        let i = found.unwrap_or_else(|| {
            let kin = self.all().min_by_key(|(_, s)| (s.sync != sync, s.held()));
            kin.map_or(0, |(i, _)| i)
        });
        let virtual_now = self.virtual_now;
        self.edit(i, |s| {
            s.set_weight(weight, virtual_now);
            s.seen = now;
        });
        i
    }

    /// Room for a new stream: unused, or of the idle one that owes nothing and was not seen for longest. While
    /// nothing waits nobody is owed anything either: virtual time moves up to the least debt.
    fn place(&mut self) -> Option<usize> {
        if let Some(free) = (0..N).find(|i| self.known >> i & 1 == 0) {
            return Some(free);
        }
        let now = self.virtual_now;
        let idle = || self.all().filter(|(_, s)| s.idle());
        let quits = idle().filter(|(_, s)| s.start.since(now) <= 0).min_by_key(|(_, s)| s.seen);
        let i = match quits {
            Some((i, _)) => i,
            None if self.queued == 0 => {
                let (i, start) = idle().map(|(i, s)| (i, s.start)).min_by_key(|(_, s)| s.since(now))?;
                self.virtual_now = start;
                i
            }
            None => return None,
        };
        if self.stream(i).cover.is_some() {
            self.covers = self.covers.saturating_sub(1);
        }
        Some(i)
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    /// What every arrival means, merged or not.
    fn arrived(&mut self, pool: &Pool<'_>, slot: u16, sync: bool, now: Instant) {
        self.newest = self.newest.max(pool.at(slot).seq);
        if sync {
            self.last_sync = Some(now);
        }
    }

    fn command(&self, c: usize) -> Option<&Command> {
        self.commands.get(c)?.as_ref()
    }
    fn live(&self) -> impl Iterator<Item = (usize, &Command)> {
        self.commands.iter().enumerate().filter_map(|(i, c)| Some((i, c.as_ref()?)))
    }
    /// The command of a run or part; of several parts the oldest, or the newest.
    fn command_of(&self, pool: &Pool<'_>, slot: u16, newest: bool) -> Option<usize> {
        if !pool.at(slot).bits.contains(Bits::DIVIDED) {
            return Some(command_in(pool.tag(slot))).filter(|&c| self.command(c).is_some());
        }
        let parts = self.live().filter(|(_, c)| c.slot == slot).map(|(i, c)| (c.serial, i));
        let one = if newest { parts.max() } else { parts.min() };
        one.map(|(_, i)| i)
    }
    fn forget(&mut self, c: usize) -> Option<Command> {
        let gone = self.commands.get_mut(c)?.take()?;
        self.out = self.out.saturating_sub(1);
        self.barriers_out = self.barriers_out.saturating_sub(u32::from(gone.barrier));
        self.edit(gone.stream, |s| s.out = s.out.saturating_sub(1));
        Some(gone)
    }
    fn charge(&mut self, i: usize, ns: i64) {
        self.edit(i, |s| s.charge(ns));
        if self.writer == Some(i) {
            self.used = self.used.saturating_add(ns);
        }
    }
    /// A command that came back undone costs nothing.
    fn undo(&mut self, c: usize) -> Option<Command> {
        let gone = self.forget(c)?;
        self.charge(gone.stream, signed(gone.est.saturating_add(gone.extra)).saturating_neg());
        Some(gone)
    }
    /// Finds parts that were put back: their request says so, nobody else does.
    fn take_back(&mut self, pool: &mut Pool<'_>) {
        for c in 0..D {
            let Some(part) = self.command(c).filter(|c| c.part && pool.at(c.slot).sent < c.sent) else {
                continue;
            };
            let (i, slot) = (part.stream, part.slot);
            self.undo(c);
            if pool.tag(slot) & AHEAD == 0 {
                let lba = pool.lba(slot);
                self.edit(i, |s| s.moved(pool, slot, lba));
            }
        }
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

impl<const N: usize, const D: usize> Default for Ftb<N, D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize, const D: usize> Policy for Ftb<N, D> {
    fn name(&self) -> &'static str {
        "ftb"
    }

    fn reset(&mut self, _: &mut Pool<'_>, now: Instant) {
        let (settings, weights, weighted) = (self.settings, self.weights, self.weighted);
        *self = Self { settings, weights, weighted, banked: now, last_done: now, now, ..Self::new() };
    }

    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant) {
        let now = self.advance(now);
        let r = *pool.request(slot);
        let i = self.stream_of(&r, now);
        pool.set_tag(slot, tag_of(i, None));
        self.arrived(pool, slot, r.is_sync(), now);
        self.pass_time();
        let virtual_now = self.virtual_now;
        self.edit(i, |s| {
            if s.len == 0 {
                s.wakes(virtual_now, now);
            }
            s.add(pool, slot);
        });
        self.queued = self.queued.saturating_add(1);
        self.fences = self.fences.saturating_add(u32::from(r.flags.intersects(FENCE)));
    }

    /// Goes out before all streams. A run that was given out keeps the stream it was charged to, which gets the
    /// charge back.
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, fresh: bool, now: Instant) {
        let now = self.advance(now);
        let r = *pool.request(slot);
        let back = if fresh { None } else { self.command_of(pool, slot, true).and_then(|c| self.undo(c)) };
        let i = back.map_or_else(|| self.stream_of(&r, now), |c| c.stream);
        pool.set_tag(slot, tag_of(i, None) | AHEAD);
        self.arrived(pool, slot, r.is_sync(), now);
        self.pass_time();
        let virtual_now = self.virtual_now;
        self.edit(i, |s| {
            if s.len == 0 {
                s.start = s.start.later(virtual_now);
            }
            s.ahead = s.ahead.saturating_add(1);
        });
        self.ahead.push_front(pool, slot);
        self.queued = self.queued.saturating_add(1);
    }

    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.unlink(pool, slot);
    }

    /// Only requests of one stream come together, nothing across a barrier, and what nobody waits for only up to
    /// the size of a part: a run of several requests cannot be divided.
    fn may_merge(&self, pool: &Pool<'_>, into: u16, request: &Request) -> bool {
        let tag = pool.tag(into);
        let sync = request.is_sync();
        let same = tag & AHEAD == 0 && self.find(request.stream, sync) == Some(stream_in(tag));
        if !same || (pool.flags(into) | request.flags).contains(Flags::BARRIER) || self.fenced(request.stream)
        {
            return false;
        }
        let run = self.stream(stream_in(tag)).around(pool, request.lba).filter(|&s| s != into);
        let more = run.map_or(request.blocks, |s| pool.blocks(s).max(request.blocks));
        sync || self.small(pool.blocks(into).saturating_add(more))
    }

    fn merge_tries(&self) -> u8 {
        8
    }

    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        self.stream(self.find(request.stream, request.is_sync())?).at(pool, request.end())
    }

    fn run_before(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        if pool.tag(slot) & AHEAD == 0 { Tree::prev(pool, slot) } else { None }
    }

    fn run_behind(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        if pool.tag(slot) & AHEAD == 0 { Tree::next(pool, slot) } else { None }
    }

    fn grown(&mut self, pool: &mut Pool<'_>, slot: u16, front: bool) {
        let i = stream_in(pool.tag(slot));
        let member = if front { pool.at(slot).first } else { pool.at(slot).last };
        let now = self.advance(pool.arrival(member));
        self.arrived(pool, member, self.stream(i).sync, now);
        if front {
            let lba = pool.lba(slot);
            self.edit(i, |s| s.moved(pool, slot, lba));
        }
    }

    fn absorbed(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, queued: bool) {
        let i = stream_in(pool.tag(into));
        let now = self.advance(pool.arrival(from));
        self.arrived(pool, from, self.stream(i).sync, now);
        if queued {
            self.queued = self.queued.saturating_sub(1);
            self.edit(i, |s| s.absorb(pool, into, from));
        }
    }

    fn pick(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        let now = self.advance(now);
        self.take_back(pool);
        let held = self.settle(now);
        let pick = self.choose(pool, now);
        self.carry(held);
        self.wake = match pick {
            Pick::Wait { at, .. } => at,
            _ => None,
        };
        pick
    }

    fn completed(&mut self, pool: &mut Pool<'_>, slot: u16, done: Done, now: Instant) {
        let now = self.advance(now);
        if !done.run {
            return;
        }
        if let Some(c) = self.command_of(pool, slot, false).and_then(|c| self.forget(c)) {
            self.ended(&c, done.failed, now);
        }
        // Lengths that do not add up may end a request with parts on the way.
        while done.last && pool.at(slot).bits.contains(Bits::DIVIDED) {
            let Some(c) = self.command_of(pool, slot, false) else { break };
            self.undo(c);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wake
    }

    /// Half of the tags for what nobody waits for, all for the rest; [`Policy::admits_request`] says who.
    fn admits(&self, kind: Kind, tags: usize) -> usize {
        match kind {
            Kind::Async => (tags / 2).max(1),
            _ => tags.max(1),
        }
    }

    /// A stream that holds none gets a tag while there is one. One that holds some leaves tags to those that hold
    /// none: one for each that was seen in the last ten seconds and half of the reserve for newcomers, an eighth of
    /// the tags or 16 at most. What nobody waits for has half of the tags at most.
    fn admits_request(&self, request: &Request, tags: usize) -> bool {
        let sync = request.is_sync();
        let (mut held, mut unhurried, mut resting) = (0usize, 0usize, 0usize);
        for (_, s) in self.all() {
            held = held.saturating_add(s.held());
            unhurried = unhurried.saturating_add(if s.sync { 0 } else { s.held() });
            resting = resting.saturating_add(usize::from(s.idle() && self.now - s.seen < RECENT));
        }
        let free = tags.saturating_sub(held);
        let own = self.find(request.stream, sync).map_or(0, |i| self.stream(i).held());
        let reserve = RESERVE.min(tags / 8);
        let kept = reserve.min(resting.saturating_add(reserve / 2));
        free > 0 && (own == 0 || (free > kept && (sync || unhurried < tags / 2)))
    }

    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        self.settings.info(i)
    }

    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        let share = self.settings.idle_share;
        self.settings.set(name, text, u32::try_from(D).unwrap_or(u32::MAX))?;
        // What is in the bank is time; what is owed stays owed.
        let bank = self.bank.saturating_mul(self.settings.idle_share.into());
        self.bank = bank.checked_div(share.into()).unwrap_or(0);
        Ok(())
    }
}
