//! Kyber: four first-come-first-served lists, and a limit on how many requests of each the device holds, moved by
//! how long they take; Linux' scheduler for fast devices.
//!
//! It is not fair to streams, sorts nothing and idles for nobody: the lightest policy here, to compare with. What
//! is built is Linux' since 4.20 from a description of it in our own words; there is no recording to check it
//! against. Up to 4.19 it had other lists (async writes apart from sync ones) and another rule for the limits.
//!
//! | list | requests | at most at the device | in a row | target |
//! |---|---|--:|--:|---|
//! | read | reads | 256 | 16 | `read_lat_nsec`, 2 ms |
//! | write | writes, sync and async | 128 | 8 | `write_lat_nsec`, 10 ms |
//! | discard | discards | 64 | 1 | 5 s |
//! | other | all else | 16 | 1 | none, not measured |
//!
//! Every 100 ms while requests complete, a list's limit is set anew by the 99th percentile of its total latency
//! (arrival to end), if that misses the target or the 90th percentile of some list's device latency does: up to
//! twice of it when its own latency is bad, down to a quarter when its own is good and another's is not.
//!
//! *On an SD card* the limits never bind, since the card takes one request at a time, or 32: what is left is a
//! round of 16 reads, 8 writes, 1 discard, 1 other.
//!
//! *Longest wait*: the head of a list is next after at most 10 other requests for reads, 18 for writes, 25 for the
//! others; the m-th behind it in a list with b in a row waits for the m before it and ⌊m/b + 1⌋·(26 − b) of other
//! lists ([`bound::kyber`](crate::bound::kyber)). No list starves. A stream waits for all that came before it.
//!
//! *Left out or different*: no lists per processor; a requeued run goes out before all lists, in Linux before its
//! own; a run of several requests is measured once, from the arrival of the oldest to the end of the last. Merging is
//! Linux', with the newest eight of the list, but an insertion may also merge as a whole request.
//!
//! *Work per call*: constant, beside a walk over the members of a run that is given out. *Memory*: 512 bytes.

use crate::fifo::Fifo;
use crate::policy::{Done, Pick, Policy};
use crate::pool::{NIL, Pool};
use crate::request::{Kind, Op, Request};
use crate::scheduler::{TunableInfo, TuneError};
use crate::tunable::parse;
use mmc_time::{Duration, Instant};

/// Buckets of a histogram, each a quarter of the target; the first four are good, the last has no end.
const BUCKETS: usize = 8;
const GOOD: usize = 4;
/// So many samples make a percentile, or so much time since the first was seen.
const ENOUGH: u32 = 500;
const PATIENCE: Duration = Duration::from_secs(1);
/// From a completion to the next look at the histograms.
const PERIOD: Duration = Duration::from_millis(100);
/// How many queued runs a request is compared with to merge.
const MERGE_WITH: usize = 8;
/// Share of the tags async requests may hold, in percent.
const ASYNC_PERCENT: usize = 75;
/// Tag of a run that goes out before all lists.
const AHEAD: u32 = 1;

/// A list of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Discards.
    Discard,
    /// All else.
    Other,
}

impl Domain {
    /// All, in the order of their turns.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Discard, Self::Other];

    /// The list of requests that do this.
    #[must_use]
    pub const fn of(op: Op) -> Self {
        match op {
            Op::Read => Self::Read,
            Op::Write => Self::Write,
            Op::Discard => Self::Discard,
            Op::WriteZeroes => Self::Other,
        }
    }
    const fn next(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Discard,
            Self::Discard => Self::Other,
            Self::Other => Self::Read,
        }
    }
    const fn max_depth(self) -> u32 {
        match self {
            Self::Read => 256,
            Self::Write => 128,
            Self::Discard => 64,
            Self::Other => 16,
        }
    }
    /// Requests it sends in a row.
    pub(crate) const fn batch(self) -> u32 {
        match self {
            Self::Read => 16,
            Self::Write => 8,
            Self::Discard | Self::Other => 1,
        }
    }
}

/// How often a latency fell into each bucket.
#[derive(Clone, Copy, Debug)]
struct Histogram([u32; BUCKETS]);

impl Histogram {
    const EMPTY: Self = Self([0; BUCKETS]);

    fn add(&mut self, latency: Duration, target: Duration) {
        let quarter = (target.as_nanos() >> 2).max(1);
        let bucket = latency.as_nanos().saturating_sub(1).checked_div(quarter).unwrap_or(0);
        let bucket = usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS.saturating_sub(1));
        if let Some(n) = self.0.get_mut(bucket) {
            *n = n.saturating_add(1);
        }
    }

    fn samples(&self) -> u32 {
        self.0.iter().copied().fold(0, u32::saturating_add)
    }

    /// The bucket of the percentile, and an empty histogram.
    fn take(&mut self, percent: u64) -> usize {
        let mut rank = u64::from(self.samples()).saturating_mul(percent).div_ceil(100);
        let above = |n: &u32| {
            let reached = u64::from(*n) >= rank;
            rank = rank.saturating_sub((*n).into());
            reached
        };
        let bucket = self.0.iter().position(above).unwrap_or(BUCKETS.saturating_sub(1));
        *self = Self::EMPTY;
        bucket
    }
}

/// One list with its limit and its histograms.
#[derive(Clone, Copy, Debug)]
struct List {
    queued: Fifo,
    /// Runs at the device.
    out: u32,
    depth: u32,
    device: Histogram,
    total: Histogram,
    /// A percentile is taken then, however few samples there are.
    ready_at: Option<Instant>,
    /// The 99th percentile seen last, until it was used.
    remembered: Option<usize>,
}

impl List {
    const fn new(domain: Domain) -> Self {
        Self {
            queued: Fifo::new(),
            out: 0,
            depth: domain.max_depth(),
            device: Histogram::EMPTY,
            total: Histogram::EMPTY,
            ready_at: None,
            remembered: None,
        }
    }

    /// A percentile of one histogram, when there are enough samples or they are old enough.
    fn percentile(&mut self, device: bool, percent: u64, now: Instant) -> Option<usize> {
        let samples = if device { self.device.samples() } else { self.total.samples() };
        if samples == 0 {
            return None;
        }
        let at = *self.ready_at.get_or_insert(now + PATIENCE);
        if samples < ENOUGH && now < at {
            return None;
        }
        self.ready_at = None;
        Some(if device { self.device.take(percent) } else { self.total.take(percent) })
    }

    /// Sets the limit anew. `congested`: the device is slow for some list.
    fn resize(&mut self, domain: Domain, congested: bool, now: Instant) {
        let mut p99 = self.percentile(false, 99, now);
        if congested {
            p99 = p99.or(self.remembered);
            self.remembered = None;
        } else if p99.is_some() {
            self.remembered = p99;
        }
        let Some(p99) = p99.filter(|&p| congested || p >= GOOD) else { return };
        let quarters = u32::try_from(p99).unwrap_or(0).saturating_add(1);
        self.depth = (self.depth.saturating_mul(quarters) >> 2).max(1).min(domain.max_depth());
    }
}

/// The policy.
///
/// ```
/// use mmc_sched::{Dispatch, Kyber, Op, Queue, Request, Scheduler, Slot, StreamId};
/// use mmc_time::Instant;
///
/// let mut queue = Queue::new([Slot::FREE; 32], Kyber::new());
/// for (op, lba) in [(Op::Write, 0), (Op::Write, 100), (Op::Read, 200), (Op::Read, 300)] {
///     queue.insert(Request::new(op, lba, 8, StreamId(1)), Instant::ZERO).unwrap();
/// }
/// let order = core::iter::from_fn(|| match queue.dispatch(Instant::ZERO) {
///     Dispatch::Run(run) => Some(run.lba),
///     _ => None,
/// });
/// assert!(order.eq([200, 300, 0, 100]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Kyber {
    read_target: Duration,
    write_target: Duration,
    lists: [List; 4],
    /// The list that has its turn, and how many of it were given out in a row.
    current: Domain,
    batching: u32,
    /// Runs that go out before all lists: requeued ones.
    ahead: Fifo,
    /// When the histograms are looked at.
    timer: Option<Instant>,
    /// What the last wait named.
    wake: Option<Instant>,
}

impl Kyber {
    /// Linux' targets, 2 ms for a read and 10 ms for a write; a card mostly misses both.
    #[must_use]
    pub const fn new() -> Self {
        let [a, b, c, d] = Domain::ALL;
        Self {
            read_target: Duration::from_millis(2),
            write_target: Duration::from_millis(10),
            lists: [List::new(a), List::new(b), List::new(c), List::new(d)],
            current: Domain::Read,
            batching: 0,
            ahead: Fifo::new(),
            timer: None,
            wake: None,
        }
    }

    /// How many requests of a list the device may hold now.
    #[must_use]
    pub fn depth(&self, domain: Domain) -> u32 {
        self.list(domain).depth
    }

    fn list(&self, domain: Domain) -> &List {
        let [read, write, discard, other] = &self.lists;
        match domain {
            Domain::Read => read,
            Domain::Write => write,
            Domain::Discard => discard,
            Domain::Other => other,
        }
    }
    fn list_mut(&mut self, domain: Domain) -> &mut List {
        let [read, write, discard, other] = &mut self.lists;
        match domain {
            Domain::Read => read,
            Domain::Write => write,
            Domain::Discard => discard,
            Domain::Other => other,
        }
    }
    /// What a request may take.
    const fn target(&self, domain: Domain) -> Option<Duration> {
        match domain {
            Domain::Read => Some(self.read_target),
            Domain::Write => Some(self.write_target),
            Domain::Discard => Some(Duration::from_secs(5)),
            Domain::Other => None,
        }
    }

    /// Looks at the histograms if it was time to since the last call. Nothing else reads the limits, so it is as if
    /// it had been done in time.
    fn tick(&mut self, now: Instant) {
        let Some(due) = self.timer.filter(|&t| t <= now) else { return };
        self.timer = None;
        let mut congested = false;
        for list in &mut self.lists {
            congested |= list.percentile(true, 90, due).is_some_and(|p| p >= GOOD);
        }
        for (domain, list) in Domain::ALL.into_iter().zip(&mut self.lists) {
            list.resize(domain, congested, due);
        }
    }

    /// The next run of a list, if it may go.
    fn take(&mut self, pool: &mut Pool<'_>, domain: Domain) -> Option<u16> {
        let list = self.list_mut(domain);
        if list.out >= list.depth {
            return None;
        }
        list.queued.pop_front(pool)
    }

    /// Notes in each member when the run was given out, and when its oldest member arrived (in place of
    /// the order of insertion, which only a queued run needs).
    fn given(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant) -> Pick {
        let list = self.list_mut(Domain::of(pool.request(slot).op));
        list.out = list.out.saturating_add(1);
        let first = pool.at(slot).first;
        let mut oldest = Instant::NEVER;
        let mut at = first;
        while at != NIL {
            oldest = oldest.min(pool.arrival(at));
            at = pool.at(at).next_member;
        }
        at = first;
        while at != NIL {
            pool.edit(at, |s| (s.deadline, s.seq) = (now, oldest.as_nanos()));
            at = pool.at(at).next_member;
        }
        Pick::Run(slot)
    }

    /// The newest runs of the list of a request, which it may merge with.
    fn newest(&self, pool: &Pool<'_>, op: Op) -> impl Iterator<Item = u16> {
        let last = self.list(Domain::of(op)).queued.back();
        core::iter::successors(last, |&slot| Fifo::before(pool, slot)).take(MERGE_WITH)
    }
}

impl Default for Kyber {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Kyber {
    fn name(&self) -> &'static str {
        "kyber"
    }

    fn reset(&mut self, _: &mut Pool<'_>, _: Instant) {
        let (read_target, write_target) = (self.read_target, self.write_target);
        *self = Self { read_target, write_target, ..Self::new() };
    }

    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, _: Instant) {
        self.wake = None;
        let domain = Domain::of(pool.request(slot).op);
        pool.set_tag(slot, 0);
        self.list_mut(domain).queued.push_back(pool, slot);
    }

    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, fresh: bool, _: Instant) {
        self.wake = None;
        if !fresh {
            let list = self.list_mut(Domain::of(pool.request(slot).op));
            list.out = list.out.saturating_sub(1);
        }
        pool.set_tag(slot, AHEAD);
        self.ahead.push_front(pool, slot);
    }

    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        if pool.tag(slot) == AHEAD {
            self.ahead.remove(pool, slot);
        } else {
            let domain = Domain::of(pool.request(slot).op);
            self.list_mut(domain).queued.remove(pool, slot);
        }
    }

    fn merge_tries(&self) -> u8 {
        u8::try_from(MERGE_WITH).unwrap_or(u8::MAX)
    }

    fn may_merge(&self, pool: &Pool<'_>, into: u16, request: &Request) -> bool {
        self.newest(pool, request.op).any(|slot| slot == into)
    }

    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        self.newest(pool, request.op).find(|&slot| pool.lba(slot) == request.end())
    }

    fn absorbed(&mut self, pool: &mut Pool<'_>, _: u16, from: u16, queued: bool) {
        if queued {
            self.remove(pool, from);
        }
    }

    fn pick(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        self.tick(now);
        self.wake = None;
        if let Some(slot) = self.ahead.pop_front(pool) {
            return self.given(pool, slot, now);
        }
        if self.batching < self.current.batch() {
            if let Some(slot) = self.take(pool, self.current) {
                self.batching = self.batching.saturating_add(1);
                return self.given(pool, slot, now);
            }
        }
        self.batching = 0;
        let mut domain = self.current;
        for _ in Domain::ALL {
            domain = domain.next();
            if let Some(slot) = self.take(pool, domain) {
                (self.current, self.batching) = (domain, 1);
                return self.given(pool, slot, now);
            }
        }
        if self.lists.iter().all(|list| list.queued.is_empty()) {
            return Pick::Empty;
        }
        self.wake = self.timer;
        Pick::Wait { at: self.timer, completion: true }
    }

    fn completed(&mut self, pool: &mut Pool<'_>, slot: u16, done: Done, now: Instant) {
        self.tick(now);
        self.wake = None;
        if !done.run {
            return;
        }
        let domain = Domain::of(pool.request(slot).op);
        let arrival = Instant::from_nanos(pool.at(slot).seq);
        let (total, device) = (now - arrival, now - pool.deadline(slot));
        let target = self.target(domain);
        let list = self.list_mut(domain);
        list.out = list.out.saturating_sub(1);
        if let Some(target) = target {
            list.total.add(total, target);
            list.device.add(device, target);
            let soon = now + PERIOD;
            self.timer = Some(self.timer.map_or(soon, |t| t.min(soon)));
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wake
    }

    fn admits(&self, kind: Kind, tags: usize) -> usize {
        match kind {
            Kind::Read | Kind::SyncWrite => tags,
            Kind::Async => tags.saturating_mul(ASYNC_PERCENT).checked_div(100).unwrap_or(tags).max(1),
        }
    }

    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        let (name, target) =
            [("read_lat_nsec", self.read_target), ("write_lat_nsec", self.write_target)].get(i).copied()?;
        let value = i64::try_from(target.as_nanos()).unwrap_or(i64::MAX);
        Some(TunableInfo { name, unit: "ns", min: 0, max: i64::MAX, value })
    }

    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        let target = match name {
            "read_lat_nsec" => &mut self.read_target,
            "write_lat_nsec" => &mut self.write_target,
            _ => return Err(TuneError::Unknown),
        };
        match parse(text)? {
            (true, _) => Err(TuneError::Invalid),
            (false, ns) => {
                *target = Duration::from_nanos(ns);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Slot;
    use crate::{Dispatch, Outcome, Queue, Scheduler, StreamId};

    const MS: Duration = Duration::from_millis(1);

    /// The bucket of one latency when the target is 8 ms.
    fn bucket(ns: u64) -> usize {
        let mut h = Histogram::EMPTY;
        h.add(Duration::from_nanos(ns), Duration::from_millis(8));
        assert_eq!(h.samples(), 1);
        h.0.iter().position(|&n| n == 1).unwrap()
    }

    #[test]
    fn buckets_are_quarters_of_the_target() {
        assert_eq!([bucket(0), bucket(1), bucket(2_000_000), bucket(2_000_001)], [0, 0, 0, 1]);
        assert_eq!([bucket(8_000_000), bucket(8_000_001)], [GOOD - 1, GOOD], "the target itself is good");
        assert_eq!([bucket(14_000_001), bucket(u64::MAX)], [7, 7]);
        let mut h = Histogram::EMPTY;
        h.add(MS, Duration::ZERO);
        assert_eq!(h.0[7], 1, "a target of 0 is missed, not divided by");
    }

    #[test]
    fn a_percentile_is_the_bucket_of_its_rank() {
        for (counts, percent, bucket) in [
            ([99, 0, 0, 0, 0, 1, 0, 0], 99, 0),
            ([98, 0, 0, 0, 0, 2, 0, 0], 99, 5),
            ([9, 0, 0, 0, 0, 0, 0, 1], 90, 0),
            ([8, 1, 0, 0, 0, 0, 0, 1], 90, 1),
            ([1, 0, 0, 0, 0, 0, 0, 0], 99, 0),
            ([0, 0, 0, 0, 0, 0, 0, 3], 90, 7),
        ] {
            let mut h = Histogram(counts);
            assert_eq!(h.take(percent), bucket, "{counts:?}");
            assert_eq!(h.samples(), 0, "reading it empties it");
        }
    }

    #[test]
    fn a_percentile_takes_500_samples_or_a_second() {
        let at = Instant::from_millis;
        let with = |n| {
            let mut list = List::new(Domain::Read);
            list.total.0[2] = n;
            list
        };
        assert_eq!(with(0).percentile(false, 99, at(0)), None);
        assert_eq!(with(500).percentile(false, 99, at(0)), Some(2));
        let mut few = with(499);
        assert_eq!(few.percentile(false, 99, at(100)), None, "the second begins here");
        assert_eq!(few.percentile(false, 99, at(1099)), None);
        assert_eq!(few.percentile(false, 99, at(1100)), Some(2));
        assert_eq!(few.ready_at, None);
    }

    /// The limit after one look, by p99: with and without congestion.
    #[test]
    fn limits_by_the_percentile() {
        let after = |p99: usize, congested| {
            let mut list = List::new(Domain::Write);
            list.depth = 64;
            list.total.0[p99] = ENOUGH;
            list.resize(Domain::Write, congested, Instant::ZERO);
            list.depth
        };
        let table = |congested| [0, 1, 2, 3, 4, 5, 6, 7].map(|p| after(p, congested));
        assert_eq!(table(true), [16, 32, 48, 64, 80, 96, 112, 128]);
        assert_eq!(table(false), [64, 64, 64, 64, 80, 96, 112, 128]);
        let mut list = List::new(Domain::Other);
        list.depth = 1;
        list.total.0[0] = ENOUGH;
        list.resize(Domain::Other, true, Instant::ZERO);
        assert_eq!(list.depth, 1, "never less");
        list.depth = 16;
        list.total.0[7] = ENOUGH;
        list.resize(Domain::Other, true, Instant::ZERO);
        assert_eq!(list.depth, 16, "never more than at first");
    }

    #[test]
    fn a_good_percentile_is_remembered_until_congestion_uses_it() {
        let mut list = List::new(Domain::Read);
        list.total.0[1] = ENOUGH;
        list.resize(Domain::Read, false, Instant::ZERO);
        assert_eq!((list.depth, list.remembered), (256, Some(1)));
        list.resize(Domain::Read, true, Instant::ZERO);
        assert_eq!((list.depth, list.remembered), (128, None));
        list.resize(Domain::Read, true, Instant::ZERO);
        assert_eq!(list.depth, 128, "not again before there is more to go by");
    }

    #[test]
    fn a_late_look_counts_from_when_it_was_due() {
        let mut kyber = Kyber::new();
        kyber.list_mut(Domain::Read).total.add(MS, MS);
        kyber.timer = Some(Instant::from_millis(100));
        kyber.tick(Instant::from_millis(99));
        assert_eq!(kyber.list(Domain::Read).ready_at, None);
        kyber.tick(Instant::from_secs(5));
        assert_eq!(kyber.list(Domain::Read).ready_at, Some(Instant::from_millis(1100)));
    }

    #[test]
    fn a_run_counts_once_from_its_oldest_member() {
        let mut q = Queue::new([Slot::FREE; 8], Kyber::new());
        let at = Instant::from_millis;
        let read = |lba| Request::new(Op::Read, lba, 8, StreamId(0));
        let (b, _) = q.insert(read(8), at(0)).unwrap();
        let (a, _) = q.merge(&read(0), at(2)).unwrap();
        let Dispatch::Run(run) = q.dispatch(at(2)) else { panic!("a run") };
        assert_eq!((run.head, run.count), (a, 2));
        for id in [b, a] {
            q.complete(id, Outcome { blocks: 8, failed: false }, at(3)).unwrap();
        }
        let list = q.policy().list(Domain::Read);
        // Quarters of 2 ms: 3 ms in all, 1 ms at the device.
        assert_eq!(list.total.0, [0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(list.device.0, [0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(list.out, 0);
    }
}
