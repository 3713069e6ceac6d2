//! What CFQ does beyond its recordings: shares by level, the time a round takes, how one queue takes the device from
//! another, how writes nobody waits for are held back, and for how long it lets others wait.
#![cfg(feature = "cfq")]

use mmc_sched::{
    Cfq, Class, Dispatch, Flags, Inserted, Limits, Merges, Op, Outcome, Priority, Queue, Request, RequestId,
    Run, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use std::collections::BTreeMap;

const MS: Duration = Duration::from_millis(1);
const BE: Priority = Priority { class: Class::BestEffort, level: 4 };
const RT: Priority = Priority { class: Class::RealTime, level: 4 };
const IDLE: Priority = Priority { class: Class::Idle, level: 7 };

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// What a stream keeps in the queue.
#[derive(Clone, Copy)]
struct Load {
    stream: u32,
    op: Op,
    priority: Priority,
    backlog: u32,
}

fn reader(stream: u32, priority: Priority, backlog: u32) -> Load {
    Load { stream, op: Op::Read, priority, backlog }
}

fn writer(stream: u32, backlog: u32) -> Load {
    Load { stream, op: Op::Write, priority: BE, backlog }
}

/// A device that holds some requests and finishes one each millisecond, and streams that always have something queued.
struct Bench {
    queue: Queue<Vec<Slot>, Cfq>,
    now: Instant,
    loads: Vec<Load>,
    queued: BTreeMap<u32, u32>,
    /// At the device.
    out: Vec<RequestId>,
    /// When each run of a stream was given out.
    sent: BTreeMap<u32, Vec<Instant>>,
    lba: u64,
    /// A read arrives whenever a write was given out.
    more: bool,
}

impl Bench {
    fn new(loads: &[Load], tunables: &[(&str, &str)]) -> Self {
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        let mut queue = Queue::with_limits(vec![Slot::FREE; 1024], Cfq::new(), limits);
        for (name, value) in tunables {
            queue.tune(name, value).unwrap();
        }
        let (now, loads) = (Instant::ZERO, loads.to_vec());
        let (queued, sent) = (BTreeMap::new(), BTreeMap::new());
        Self { queue, now, loads, queued, out: Vec::new(), sent, lba: 0, more: false }
    }

    fn insert(&mut self, load: Load) {
        self.lba += 8;
        let mut r = Request::new(load.op, self.lba, 8, StreamId(load.stream));
        r.priority = load.priority;
        self.queue.insert(r, self.now).unwrap();
        *self.queued.entry(load.stream).or_default() += 1;
    }

    fn refill(&mut self) {
        for load in self.loads.clone() {
            while self.queued.get(&load.stream).copied().unwrap_or(0) < load.backlog {
                self.insert(load);
            }
        }
    }

    fn run(&mut self, depth: usize, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.refill();
            while self.out.len() < depth {
                let Dispatch::Run(run) = self.queue.dispatch(self.now) else { break };
                let stream = self.queue.request(run.head).unwrap().stream.0;
                *self.queued.get_mut(&stream).unwrap() -= 1;
                self.sent.entry(stream).or_default().push(self.now);
                self.out.push(run.head);
                if self.more && run.op == Op::Write {
                    self.insert(self.loads[0]);
                }
                self.refill();
            }
            self.now += MS;
            let id = self.out.remove(0);
            self.queue.complete(id, Outcome { blocks: 8, failed: false }, self.now).unwrap();
        }
    }

    fn count(&self, stream: u32) -> usize {
        self.sent.get(&stream).map_or(0, Vec::len)
    }

    /// The longest time between two runs of a stream, from `since` on.
    fn gap(&self, stream: u32, since: Instant) -> Duration {
        let sent: Vec<Instant> = self.sent[&stream].iter().copied().filter(|t| *t >= since).collect();
        sent.windows(2).map(|w| w[1] - w[0]).max().unwrap()
    }
}

fn equal_readers(n: u32) -> Vec<Load> {
    (1..=n).map(|s| reader(s, BE, 4)).collect()
}

/// A queue by hand, without merging.
fn queue() -> Queue<[Slot; 64], Cfq> {
    let limits = Limits { merges: Merges::None, ..Limits::default() };
    Queue::with_limits([Slot::FREE; 64], Cfq::new(), limits)
}

fn put(q: &mut impl Scheduler, op: Op, stream: u32, priority: Priority, lba: u64, now: Instant) -> RequestId {
    q.insert(Request { priority, ..Request::new(op, lba, 8, StreamId(stream)) }, now).unwrap().0
}

fn get(q: &mut impl Scheduler, now: Instant) -> Option<RequestId> {
    match q.dispatch(now) {
        Dispatch::Run(run) => Some(run.head),
        Dispatch::Wait { at, completion } => {
            assert_eq!((at, completion), (None, true), "only completions end a wait");
            None
        }
        Dispatch::Empty => None,
    }
}

fn done(q: &mut impl Scheduler, id: RequestId, now: Instant) {
    q.complete(id, Outcome { blocks: 8, failed: false }, now).unwrap();
}

#[test]
fn equal_streams_take_turns_within_the_target_latency() {
    let mut bench = Bench::new(&equal_readers(8), &[]);
    bench.run(1, Duration::from_secs(20));
    let all: Vec<usize> = (1..=8).map(|s| bench.count(s)).collect();
    assert!(all.iter().all(|n| n.abs_diff(all[0]) <= 80), "{all:?}");
    // The first round, while the average of busy queues still grows, has longer slices.
    let worst = |since| (1..=8).map(|s| bench.gap(s, since)).max().unwrap();
    // Seven others, each with a slice of 300/8 ms, a request until its clock starts and one beyond its end.
    let round = Duration::from_micros(7 * 39_500);
    assert!((round - MS.saturating_mul(7)..=round).contains(&worst(at(1000))), "{}", worst(at(1000)));
    assert!(worst(at(0)) <= Duration::from_millis(300), "{}", worst(at(0)));
}

/// The offset of a key is not scaled as the slices are, so with many streams levels weigh more than 180 to 40.
#[test]
fn levels_weigh_more_the_more_streams_are_busy() {
    let loads: Vec<Load> = (0..8).map(|l| reader(l, Priority { level: l as u8, ..BE }, 4)).collect();
    let ratio = |low_latency| {
        let mut bench = Bench::new(&loads, &[("low_latency", low_latency)]);
        bench.run(1, Duration::from_secs(60));
        let all: Vec<usize> = (0..8).map(|s| bench.count(s)).collect();
        assert!(all.windows(2).all(|w| w[0] > w[1]), "{all:?}");
        all[0] as f64 / all[7] as f64
    };
    let (low, plain) = (ratio("1"), ratio("0"));
    assert!((25.0..42.0).contains(&low), "{low}");
    assert!((8.0..11.0).contains(&plain), "{plain}");
}

#[test]
fn a_backlog_in_a_class_starves_all_lower_ones() {
    for (high, low) in [(RT, BE), (BE, IDLE)] {
        let mut bench = Bench::new(&[reader(1, high, 4), reader(2, low, 4)], &[]);
        bench.run(1, Duration::from_secs(20));
        assert_eq!((bench.count(1), bench.count(2)), (20_000, 0));
    }
}

/// Readers that always have something queued and send more while a write is at the device: a turn of the writes is
/// one write. The longest gaps are those of the kernel's code in the same case.
#[test]
fn writes_nobody_waits_for_get_less_the_more_readers_there_are() {
    for (readers, about) in [(2, 203), (4, 488), (8, 851)] {
        let mut loads = equal_readers(readers);
        loads.push(writer(100, 64));
        let mut bench = Bench::new(&loads, &[]);
        bench.more = true;
        bench.run(1, Duration::from_secs(20));
        let gap = bench.gap(100, at(2000));
        println!("{readers} readers: {} writes in 20 s, longest gap {gap}", bench.count(100));
        let about = Duration::from_millis(about);
        assert!(
            gap.max(about) - gap.min(about) <= Duration::from_nanos(about.as_nanos() / 20),
            "{gap}, the oracle's is {about}"
        );
        assert!(bench.sent[&100].windows(2).all(|w| w[1] - w[0] > MS));
    }
}

/// Three readers with one request each in flight; a reader that arrives while the queue that has the device is
/// empty goes before all that wait. Two in lock step starve the third.
#[test]
fn two_readers_in_lock_step_starve_a_third() {
    let mut q = queue();
    let mut now = Instant::ZERO;
    let first = put(&mut q, Op::Read, 1, BE, 0, now);
    assert_eq!(get(&mut q, now), Some(first));
    let third = put(&mut q, Op::Read, 3, BE, 3000, now);
    let (mut out, mut lba) = (first, 10_000);
    for round in 0..10_000 {
        // The other of the two arrives while the one at the device has nothing queued.
        now += Duration::from_micros(500);
        lba += 8;
        let next = put(&mut q, Op::Read, 2 - round % 2, BE, lba, now);
        now += Duration::from_micros(500);
        done(&mut q, out, now);
        let sent = get(&mut q, now).unwrap();
        assert_eq!(sent, next, "round {round}");
        assert_ne!(sent, third);
        out = sent;
    }
    // Ten seconds on. It goes as soon as the two leave it a chance.
    done(&mut q, out, now);
    assert_eq!(get(&mut q, now), Some(third));
}

/// The table of §11: who takes the device from whom, when a request arrives.
#[test]
fn an_arrival_takes_the_device_by_these_rules() {
    let read = |stream, priority| (Op::Read, stream, priority);
    let write = |stream, priority| (Op::Write, stream, priority);
    // Who has the device, with another request queued or empty; who arrives; whether it goes next.
    for (name, has, backlog, comes, takes) in [
        ("idle takes nothing", read(1, BE), true, read(2, IDLE), false),
        ("all take it from idle", read(1, IDLE), true, write(2, BE), true),
        ("best effort does not from real time", read(1, RT), true, read(2, BE), false),
        ("sync does from async", write(1, BE), true, read(2, BE), true),
        ("async does not from sync", read(1, BE), true, write(2, BE), false),
        ("real time does from best effort", read(1, BE), true, read(2, RT), true),
        ("sync does not from sync", read(1, BE), true, read(2, BE), false),
        ("any does from an empty queue", read(1, BE), false, read(2, BE), true),
    ] {
        let mut q = queue();
        let a = put(&mut q, has.0, has.1, has.2, 0, at(0));
        assert_eq!(get(&mut q, at(0)), Some(a));
        let own = backlog.then(|| put(&mut q, has.0, has.1, has.2, 8, at(0)));
        let b = put(&mut q, comes.0, comes.1, comes.2, 1000, at(0));
        done(&mut q, a, at(1));
        let next = get(&mut q, at(1));
        assert_eq!(next == Some(b), takes, "{name}");
        assert!(takes || next == own, "{name}");
    }
}

#[test]
fn metadata_takes_the_device_from_a_queue_without_and_goes_first_in_its_own() {
    let mut q = queue();
    let a = put(&mut q, Op::Read, 1, BE, 0, at(0));
    assert_eq!(get(&mut q, at(0)), Some(a));
    put(&mut q, Op::Read, 1, BE, 8, at(0));
    put(&mut q, Op::Read, 2, BE, 500, at(0));
    let meta = Request { flags: Flags::META, ..Request::new(Op::Read, 900, 8, StreamId(2)) };
    let (meta, _) = q.insert(meta, at(0)).unwrap();
    done(&mut q, a, at(1));
    assert_eq!(get(&mut q, at(1)), Some(meta));
}

/// The same in a queue that has metadata already.
#[test]
fn metadata_does_not_take_the_device_from_metadata() {
    let mut q = queue();
    let meta =
        |lba, stream| Request { flags: Flags::META, ..Request::new(Op::Read, lba, 8, StreamId(stream)) };
    let a = put(&mut q, Op::Read, 1, BE, 0, at(0));
    assert_eq!(get(&mut q, at(0)), Some(a));
    let (own, _) = q.insert(meta(8, 1), at(0)).unwrap();
    q.insert(meta(900, 2), at(0)).unwrap();
    done(&mut q, a, at(1));
    assert_eq!(get(&mut q, at(1)), Some(own));
}

/// A queue whose slice is over loses the device to whoever arrives, before those that wait.
#[test]
fn an_arrival_after_the_end_of_a_slice_goes_before_those_that_wait() {
    let mut q = queue();
    // A stream's first time counts as another type; let that be over.
    for stream in 1..=4 {
        let id = put(&mut q, Op::Read, stream, BE, 0, at(0));
        assert_eq!(get(&mut q, at(0)), Some(id));
        done(&mut q, id, at(0));
    }
    assert_eq!(get(&mut q, at(0)), None);
    let ids: Vec<RequestId> = (0..3).map(|i| put(&mut q, Op::Read, 1, BE, 100 + i * 8, at(0))).collect();
    assert_eq!((get(&mut q, at(0)), get(&mut q, at(0))), (Some(ids[0]), Some(ids[1])));
    let waits = put(&mut q, Op::Read, 2, BE, 500, at(0));
    done(&mut q, ids[0], at(1));
    // The slice is 100 ms from here; the second request stays at the device.
    let during = put(&mut q, Op::Read, 3, BE, 600, at(100));
    assert_eq!(get(&mut q.clone(), at(100)), Some(ids[2]));
    let after = put(&mut q, Op::Read, 4, BE, 700, at(101));
    let order: Vec<_> = core::iter::from_fn(|| get(&mut q, at(101))).collect();
    assert_eq!(order[0], after);
    assert!(order.contains(&waits) && order.contains(&during) && order.contains(&ids[2]));
}

/// A queue of the idle class sends one request and goes to the end of its line.
#[test]
fn idle_queues_take_turns_one_by_one() {
    let mut q = queue();
    let [a, _] = [0, 8].map(|lba| put(&mut q, Op::Read, 1, IDLE, lba, at(0)));
    let [b, _] = [100, 108].map(|lba| put(&mut q, Op::Read, 2, IDLE, lba, at(0)));
    assert_eq!((get(&mut q, at(0)), get(&mut q, at(0))), (Some(a), Some(b)));
    assert_eq!(get(&mut q, at(0)), None, "one of each at the device");

    // Alone, it keeps its place until the completion.
    let mut q = queue();
    let [a, _] = [0, 8].map(|lba| put(&mut q, Op::Read, 1, IDLE, lba, at(0)));
    assert_eq!(get(&mut q, at(0)), Some(a));
    let b = put(&mut q, Op::Read, 2, IDLE, 100, at(0));
    done(&mut q, a, at(1));
    assert_eq!(get(&mut q, at(1)), Some(b));
}

/// The oldest request goes first when it is due, once a slice, however near others are.
#[test]
fn an_overdue_request_goes_first_once_a_slice() {
    let mut q = queue();
    let far = put(&mut q, Op::Read, 1, BE, 1_000_000, at(0));
    let near: Vec<RequestId> = (0..3).map(|i| put(&mut q, Op::Read, 1, BE, i * 8, at(1))).collect();
    let late = at(126);
    assert_eq!(get(&mut q, late), Some(far), "due after 125 ms");
    let order: Vec<_> = (0..3).map(|_| get(&mut q, late).unwrap()).collect();
    assert_eq!(order, near, "all are overdue now; the rest go in sector order");
}

/// In a stream that goes on and on ahead of the head, a request too far behind waits for its age, and then for the
/// next slice of the stream.
#[test]
fn a_request_left_behind_goes_in_the_first_slice_after_it_is_due() {
    let mut bench = Bench::new(&equal_readers(2), &[]);
    bench.lba = 10_000_000;
    bench.run(1, Duration::from_secs(1));
    let arrival = bench.now;
    let behind = put(&mut bench.queue, Op::Read, 1, BE, 0, arrival);
    bench.sent.clear();
    *bench.queued.get_mut(&1).unwrap() += 1;
    while !bench.out.contains(&behind) {
        assert!(bench.now - arrival < Duration::from_secs(2), "starved");
        bench.run(2, MS);
    }
    let wait = bench.now - arrival;
    println!("{wait}");
    assert!(wait >= Duration::from_millis(125) && wait <= Duration::from_millis(125 + 2 * 104), "{wait}");
}

/// How many requests a queue may have at the device: half of `quantum` with others waiting and the clock not
/// running, no limit alone, one in the idle class; none of an async queue while a sync one is at the device.
#[test]
fn the_depth_a_queue_may_use() {
    let depth = |op, priority, other: bool| {
        let mut q = queue();
        for i in 0..20 {
            put(&mut q, op, 1, priority, i * 8, at(5000));
        }
        let first = get(&mut q, at(5000)).unwrap();
        if other {
            put(
                &mut q,
                op,
                2,
                if op == Op::Write { Priority { level: 6, ..BE } } else { priority },
                900,
                at(5000),
            );
        }
        let mut n = 1;
        while let Some(id) = get(&mut q, at(5000)) {
            assert_ne!(id, first);
            n += 1;
        }
        n
    };
    assert_eq!(depth(Op::Read, BE, false), 20, "alone");
    assert_eq!(depth(Op::Read, BE, true), 4, "another waits");
    assert_eq!(depth(Op::Write, BE, false), 20, "alone; no sync request was late");
    assert_eq!(depth(Op::Write, BE, true), 4);
    assert_eq!(depth(Op::Read, IDLE, false), 1);

    let mut q = queue();
    let read = put(&mut q, Op::Read, 1, BE, 0, at(0));
    assert_eq!(get(&mut q, at(0)), Some(read));
    let write = put(&mut q, Op::Write, 2, BE, 900, at(0));
    assert_eq!(get(&mut q, at(0)), None, "the read is at the device");
    done(&mut q, read, at(1));
    assert_eq!(get(&mut q, at(1)), Some(write));
}

/// After a sync request that took 125 ms, async ones go one by one for 200 ms, then one more each 100 ms.
#[test]
fn writes_come_back_slowly_after_a_late_read() {
    let mut q = queue();
    let read = put(&mut q, Op::Read, 1, BE, 0, at(0));
    assert_eq!(get(&mut q, at(0)), Some(read));
    done(&mut q, read, at(125));
    for i in 0..30 {
        put(&mut q, Op::Write, 2, BE, 1000 + i * 8, at(125));
    }
    let mut depths = Vec::new();
    for after in [1, 99, 101, 199, 201, 301, 401] {
        let now = at(125 + after);
        let out: Vec<RequestId> = core::iter::from_fn(|| get(&mut q, now)).collect();
        depths.push(out.len());
        for id in out {
            done(&mut q, id, now);
        }
    }
    assert_eq!(depths, [1, 1, 1, 1, 2, 3, 4]);
}

/// An async queue sends at most 2·`slice_async_rq`·(8 − level) in a turn.
#[test]
fn an_async_turn_has_a_quota() {
    let mut q = queue();
    let low = Priority { level: 6, ..BE };
    let mut now = at(5000);
    for i in 0..20 {
        put(&mut q, Op::Write, 1, low, i * 8, now);
        put(&mut q, Op::Write, 1, BE, 10_000 + i * 8, now);
    }
    let mut turns: Vec<(u8, u32)> = Vec::new();
    while let Some(id) = get(&mut q, now) {
        let level = q.request(id).unwrap().priority.level;
        match turns.last_mut().filter(|t| t.0 == level) {
            Some(turn) => turn.1 += 1,
            None => turns.push((level, 1)),
        }
        now += Duration::from_micros(100);
        done(&mut q, id, now);
    }
    // Level 4 comes again after its 16, since it is not placed as far back as level 6; alone there is no quota.
    assert_eq!(turns, [(6, 8), (4, 16 + 4), (6, 12)]);
}

/// More streams than there is room for: nothing is refused, and a place is used again when its stream is quiet.
#[test]
fn streams_beyond_the_last_share_a_queue() {
    let mut q = Queue::new([Slot::FREE; 64], Cfq::<2>::new());
    let ids: Vec<RequestId> =
        (0..6).map(|s| put(&mut q, Op::Read, s, BE, u64::from(s) * 100, at(0))).collect();
    let mut seen = Vec::new();
    while let Some(id) = get(&mut q, at(1)) {
        done(&mut q, id, at(2));
        seen.push(id);
    }
    seen.sort();
    let mut all = ids.clone();
    all.sort();
    assert_eq!(seen, all);
    // Now the two places are free again: a new stream with a deeper class keeps its class.
    put(&mut q, Op::Read, 8, IDLE, 0, at(3));
    let be = put(&mut q, Op::Read, 9, BE, 100, at(3));
    assert_eq!(get(&mut q, at(3)), Some(be));
}

/// Requests merge within a queue, not across streams, and a sync one never into an async one.
#[test]
fn only_requests_of_one_queue_merge() {
    let mut q = Queue::new([Slot::FREE; 16], Cfq::<4>::new());
    let write = |stream, lba, flags| Request { flags, ..Request::new(Op::Write, lba, 8, StreamId(stream)) };
    let (id, _) = q.insert(write(1, 100, Flags::empty()), at(0)).unwrap();
    assert_eq!(q.merge(&write(1, 108, Flags::SYNC), at(0)), None, "sync");
    let joined = Inserted::Merged { into: id };
    assert_eq!(
        q.merge(&write(2, 108, Flags::empty()), at(0)).unwrap().1,
        joined,
        "async ones have no stream"
    );
    assert_eq!(q.merge(&write(1, 92, Flags::empty()), at(0)).unwrap().1, joined, "in front");
    let (sync, _) = q.insert(write(1, 300, Flags::SYNC), at(0)).unwrap();
    assert_eq!(q.merge(&write(2, 308, Flags::SYNC), at(0)), None, "another stream");
    assert_eq!(q.merge(&write(1, 308, Flags::SYNC), at(0)).unwrap().1, Inserted::Merged { into: sync });
    for expected in [(92, 24, 3), (300, 16, 2)] {
        let Dispatch::Run(run) = q.dispatch(at(0)) else { panic!("a run") };
        assert_eq!((run.lba, run.blocks, run.count), expected);
    }
}

/// What was to go next and joins another request still goes next.
#[test]
fn the_next_request_takes_its_turn_along_when_it_merges() {
    let mut q = Queue::new([Slot::FREE; 16], Cfq::<4>::new());
    let first = put(&mut q, Op::Read, 1, BE, 104, at(0));
    assert_eq!(get(&mut q, at(0)), Some(first));
    // The head is at 112 now: 116 is nearest.
    let joined = put(&mut q, Op::Read, 1, BE, 100, at(0));
    put(&mut q, Op::Read, 1, BE, 116, at(0));
    put(&mut q, Op::Read, 1, BE, 130, at(0));
    let gap = Request { priority: BE, ..Request::new(Op::Read, 108, 8, StreamId(1)) };
    assert_eq!(q.merge(&gap, at(0)).unwrap().1, Inserted::Merged { into: joined });
    let Dispatch::Run(run) = q.dispatch(at(0)) else { panic!("a run") };
    assert_eq!((run.lba, run.count), (100, 3));
}

/// When the last busy queue leaves, the time left to its type is forgotten.
#[test]
fn types_start_anew_after_a_pause() {
    let mut q = queue();
    let read = |q: &mut _, from, to| {
        let id = put(q, Op::Read, 1, BE, from, at(from));
        assert_eq!(get(q, at(from)), Some(id));
        done(q, id, at(to));
    };
    // Twice a slice that is over when its second request completes, so that the queue leaves at once.
    for (from, to) in [(0, 1), (2, 150), (200, 201), (202, 310)] {
        read(&mut q, from, to);
    }
    let write = put(&mut q, Op::Write, 2, BE, 0, at(311));
    put(&mut q, Op::Read, 1, BE, 1000, at(311));
    assert_eq!(get(&mut q, at(311)), Some(write), "190 ms would have been left to the reads");
}

#[test]
fn a_requeued_run_goes_before_all() {
    let mut q = queue();
    put(&mut q, Op::Read, 1, BE, 0, at(0));
    let Dispatch::Run(run @ Run { head, .. }) = q.dispatch(at(0)) else { panic!("a run") };
    put(&mut q, Op::Read, 2, RT, 100, at(0));
    q.requeue(&run, at(1));
    assert_eq!(get(&mut q, at(1)), Some(head));
    done(&mut q, head, at(2));
    assert!(get(&mut q, at(2)).is_some());
}

/// A type is served for two ticks at least, whatever the keys of the others.
#[test]
fn the_tick_is_a_setting() {
    let second = |tick| {
        let mut q = queue();
        q.tune("target_latency", "1").unwrap();
        q.policy_mut().set_tick(tick);
        let [a, w, b] = [(Op::Read, 1), (Op::Write, 2), (Op::Read, 3)]
            .map(|(op, stream)| put(&mut q, op, stream, BE, u64::from(stream) * 100, at(0)));
        assert_eq!(get(&mut q, at(0)), Some(a));
        done(&mut q, a, at(1));
        let next = get(&mut q, at(1)).unwrap();
        assert!(next == w || next == b);
        next == w
    };
    assert!(!second(Duration::from_millis(4)), "still the time of the sync queues");
    assert!(!second(Duration::from_micros(501)), "2 us are left");
    assert!(second(Duration::from_micros(100)), "over, and the write has the lower key");
}

#[test]
#[cfg(target_pointer_width = "64")]
fn memory_per_stream() {
    let per_stream = size_of::<Cfq<64>>() - size_of::<Cfq<63>>();
    println!("{per_stream} {}", size_of::<Cfq>());
    assert!(per_stream <= 88, "{per_stream}");
    assert!(size_of::<Cfq>() <= 7232, "{}", size_of::<Cfq>());
}
