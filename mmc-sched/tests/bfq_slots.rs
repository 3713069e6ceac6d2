//! When `bfq` gives the device to whom: why a slot ends, who preempts, whom the device waits for, what a stream
//! is charged, and what becomes of streams when there are too many.
#![cfg(feature = "bfq")]

use mmc_sched::bfq::{Bfq, Expiry, WeightError, level_weight};
use mmc_sched::{
    Class, Dispatch, Flags, Inserted, Kind, Limits, Merges, Op, Outcome, Priority, Queue, Request, RequestId,
    Run, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};

const MS: fn(u64) -> Duration = Duration::from_millis;

struct Bench<const N: usize> {
    queue: Queue<Vec<Slot>, Bfq<N>>,
    now: Instant,
}

/// A queue that does not merge, with these tunables.
fn bench<const N: usize>(set: &[(&str, &str)]) -> Bench<N> {
    let limits = Limits { merges: Merges::None, ..Limits::default() };
    let mut queue = Queue::with_limits(vec![Slot::FREE; 512], Bfq::new(), limits);
    for (name, value) in set {
        queue.tune(name, value).unwrap();
    }
    Bench { queue, now: Instant::from_secs(10) }
}

fn read(stream: u32, lba: u64, blocks: u32) -> Request {
    Request::new(Op::Read, lba, blocks, StreamId(stream))
}
fn write(stream: u32, lba: u64, blocks: u32) -> Request {
    Request::new(Op::Write, lba, blocks, StreamId(stream))
}
fn sync_write(stream: u32, lba: u64, blocks: u32) -> Request {
    Request { flags: Flags::SYNC, ..write(stream, lba, blocks) }
}
fn level(r: Request, class: Class, level: u8) -> Request {
    Request { priority: Priority { class, level }, ..r }
}

impl<const N: usize> Bench<N> {
    fn add(&mut self, r: Request) -> RequestId {
        self.queue.insert(r, self.now).unwrap().0
    }
    fn pass(&mut self, d: Duration) {
        self.now += d;
    }
    fn run(&mut self) -> Run {
        match self.queue.dispatch(self.now) {
            Dispatch::Run(run) => run,
            other => panic!("{other:?} at {:?}", self.now),
        }
    }
    /// The stream that goes next; its request is done after `d`.
    fn serve(&mut self, d: Duration) -> u32 {
        let run = self.run();
        let stream = self.queue.request(run.head).unwrap().stream.0;
        self.pass(d);
        self.done(run);
        stream
    }
    fn done(&mut self, run: Run) {
        self.queue.complete(run.head, Outcome { blocks: run.blocks, failed: false }, self.now).unwrap();
    }
    fn waits_until(&mut self) -> (Option<Instant>, bool) {
        match self.queue.dispatch(self.now) {
            Dispatch::Wait { at, completion } => (at, completion),
            other => panic!("{other:?}"),
        }
    }
    fn expired(&self, why: Expiry) -> u64 {
        self.queue.policy().expired(why)
    }
    /// Writeback by which the policy learns that this device is given one request at a time.
    fn shallow(&mut self) {
        for i in 0..40 {
            self.add(write(9, (1 << 40) + i * 8, 8));
        }
        (0..40).for_each(|_| assert_eq!(self.serve(MS(1)), 9));
    }
    /// A reader that has shown that it reads in sequence and comes back after `think`.
    fn reader(&mut self, stream: u32, think: Duration) {
        for i in 0..40 {
            self.add(read(stream, i * 8, 8));
            self.serve(MS(1));
            self.pass(think);
        }
    }
}

#[test]
fn the_device_waits_for_a_reader_that_comes_back_soon() {
    let mut b = bench::<8>(&[]);
    b.shallow();
    b.reader(1, Duration::from_micros(100));
    for i in 0..20 {
        b.add(sync_write(2, (1 << 20) + i * 8, 8));
    }
    for i in 40..44 {
        b.add(read(1, i * 8, 8));
        assert_eq!(b.serve(MS(10)), 1, "it keeps the device");
        assert_eq!(b.waits_until(), (Some(b.now + MS(8)), false));
        assert_eq!(b.queue.wake_at(), Some(b.now + MS(8)));
        b.pass(MS(2));
    }
    assert_eq!(b.expired(Expiry::TooIdle), 0);
    b.pass(MS(6));
    assert_eq!(b.serve(MS(1)), 2, "it did not come back in time");
    assert_eq!(b.expired(Expiry::TooIdle), 1);
}

#[test]
fn a_sequential_reader_is_waited_for_only_where_the_device_takes_few_requests_at_a_time() {
    let waits = |at_a_time: usize| {
        let mut b = bench::<8>(&[]);
        // Enough to do all the time, so many of them at the device.
        (0..60).for_each(|i| {
            b.add(write(9, (1 << 40) + i * 8, 8));
        });
        let mut sent = std::collections::VecDeque::new();
        for _ in 0..50 {
            while sent.len() < at_a_time {
                sent.push_back(b.run());
            }
            b.pass(MS(1));
            b.done(sent.pop_front().unwrap());
        }
        for run in sent {
            b.done(run);
        }
        b.reader(1, Duration::from_micros(100));
        b.add(sync_write(2, 1 << 20, 8));
        b.add(read(1, 400, 8));
        // The readers' requests go first; then, with the writes still queued, it is waited for or not.
        while b.serve(MS(1)) != 1 {}
        matches!(b.queue.dispatch(b.now), Dispatch::Wait { .. })
    };
    assert!(waits(1) && waits(3));
    assert!(!waits(4), "such a device orders them itself");
    // Nor while it is not known: nothing was ever queued behind what it had.
    let mut b = bench::<8>(&[]);
    b.reader(1, Duration::from_micros(100));
    b.add(read(1, 400, 8));
    assert_eq!(b.serve(MS(1)), 1);
    b.add(sync_write(2, 1 << 20, 8));
    assert_eq!(b.serve(MS(1)), 2);
}

#[test]
fn the_device_does_not_wait_for_one_that_takes_its_time() {
    let mut b = bench::<8>(&[]);
    b.reader(1, MS(12));
    b.add(read(1, 400, 8));
    assert_eq!(b.serve(MS(1)), 1);
    b.add(sync_write(2, 1 << 20, 8));
    let idle = b.expired(Expiry::TooIdle);
    assert_eq!(b.serve(MS(1)), 2, "at once");
    assert_eq!(b.expired(Expiry::TooIdle), idle);
}

#[test]
fn nobody_is_waited_for_with_slice_idle_0() {
    let mut b = bench::<8>(&[("slice_idle", "0")]);
    b.reader(1, Duration::from_micros(100));
    b.add(sync_write(2, 1 << 20, 8));
    assert_eq!(b.serve(MS(1)), 2);
    assert!(b.expired(Expiry::NoMoreRequests) > 0);
}

#[test]
fn a_wait_for_requests_in_flight_ends_with_a_completion() {
    let mut b = bench::<8>(&[]);
    b.shallow();
    b.reader(1, Duration::from_micros(100));
    b.add(read(1, 400, 8));
    let run = b.run();
    b.add(sync_write(2, 1 << 20, 8));
    assert_eq!(b.waits_until(), (None, true));
    b.pass(MS(1));
    b.done(run);
    assert_eq!(b.waits_until(), (Some(b.now + MS(8)), false));
}

#[test]
fn a_slot_ends_with_its_budget() {
    let mut b = bench::<8>(&[("max_budget", "256"), ("slice_idle", "0")]);
    for i in 0..8 {
        b.add(read(1, i * 100, 100));
        b.add(read(2, (1 << 20) + i * 100, 100));
    }
    let order: Vec<u32> = (0..9).map(|_| b.serve(Duration::from_micros(100))).collect();
    assert_eq!(b.expired(Expiry::Exhausted), 5, "{order:?}");
    // At first two thirds of the largest budget, which is one request.
    assert_eq!(order, [1, 2, 1, 1, 2, 2, 1, 1, 2]);
}

#[test]
fn a_slot_ends_with_its_time() {
    let mut b = bench::<8>(&[]);
    for i in 0..8 {
        b.add(read(1, i * 100, 100));
        b.add(read(2, (1 << 20) + i * 100, 100));
    }
    let order: Vec<u32> = (0..8).map(|_| b.serve(MS(50))).collect();
    assert_eq!(order, [1, 1, 1, 2, 2, 2, 1, 1], "three requests of 50 ms pass 125 ms");
    assert_eq!(b.expired(Expiry::TimedOut), 2);
}

#[test]
fn an_async_stream_that_is_empty_gives_the_device_away() {
    let mut b = bench::<8>(&[]);
    b.add(write(1, 0, 8));
    let run = b.run();
    b.add(read(2, 1 << 20, 8));
    assert_eq!(b.serve(MS(1)), 2);
    assert_eq!(b.expired(Expiry::NoMoreRequests) + b.expired(Expiry::Preempted), 1);
    b.done(run);
}

#[test]
fn a_sync_request_goes_before_the_rest_of_writeback() {
    let mut b = bench::<8>(&[]);
    for i in 0..64 {
        b.add(write(1, i * 1024, 1024));
    }
    assert_eq!(b.serve(MS(84)), 1);
    let before = b.expired(Expiry::Preempted);
    b.add(sync_write(2, 1 << 30, 8));
    assert_eq!(b.expired(Expiry::Preempted), before + 1);
    assert_eq!(b.serve(MS(5)), 2);
    assert_eq!(b.serve(MS(84)), 1);
}

#[test]
fn a_stream_that_was_empty_for_a_moment_takes_the_device_back() {
    // It thinks for twice as long as it is served, so it is not waited for while another is busy.
    let mut b = bench::<8>(&[]);
    for i in 0..400 {
        b.add(read(2, (1 << 30) + i * 64, 64));
    }
    let mut own = 0;
    for i in 0..200 {
        // At first it is waited for, and then charged for the time that took; this is over after a while.
        b.add(sync_write(1, i * 8, 8));
        let first = b.serve(MS(1));
        own += u32::from(i >= 140 && first == 1);
        if let Dispatch::Run(run) = b.queue.dispatch(b.now) {
            b.pass(MS(2));
            b.done(run);
        }
    }
    assert!(own >= 55, "{own} of 60 at once");
}

#[test]
fn higher_classes_and_weights_preempt_and_lower_ones_do_not() {
    let mut b = bench::<8>(&[("slice_idle", "0")]);
    for i in 0..4 {
        b.add(level(read(1, i * 8, 8), Class::BestEffort, 4));
    }
    b.serve(MS(1));
    let n = b.expired(Expiry::Preempted);
    b.add(level(read(2, 1 << 20, 8), Class::Idle, 0));
    assert_eq!(b.expired(Expiry::Preempted), n);
    b.add(level(read(3, 1 << 21, 8), Class::RealTime, 7));
    assert_eq!(b.expired(Expiry::Preempted), n + 1);
    assert_eq!(b.serve(MS(1)), 3);
    let rest: Vec<u32> = (0..4).map(|_| b.serve(MS(1))).collect();
    assert_eq!(rest, [1, 1, 1, 2]);
}

#[test]
fn writeback_is_charged_three_times_among_equals_and_once_among_unequals() {
    let share = |sync_level: u8| {
        let mut b = bench::<8>(&[("slice_idle", "0"), ("max_budget", "1024")]);
        let (mut reads, mut writes, mut next) = (0, 0, 0);
        for _ in 0..2000 {
            while reads - next < 4 {
                b.add(level(read(1, reads * 64, 64), Class::BestEffort, sync_level));
                reads += 1;
            }
            while b.queue.len() < 8 {
                b.add(level(write(2, (1 << 20) + writes * 64, 64), Class::BestEffort, 4));
                writes += 1;
            }
            if b.serve(Duration::from_micros(64)) == 1 {
                next += 1;
            }
        }
        next as f64 / (2000 - next) as f64
    };
    assert!((share(4) - 3.0).abs() < 0.1, "{}", share(4));
    // Weight 50 against 40: the async stream has the smallest weight and is charged three times all the same.
    assert!((share(3) - 3.75).abs() < 0.15, "{}", share(3));
    // Weight 30 against 40: the async stream is the heavier one and charged once.
    assert!((share(5) - 0.75).abs() < 0.05, "{}", share(5));
}

#[test]
fn levels_are_weights_from_80_down_to_10() {
    assert_eq!([0, 4, 7, 9].map(level_weight), [80, 40, 10, 10]);
    let mut b = bench::<8>(&[("slice_idle", "0"), ("max_budget", "512")]);
    let (mut sent, mut served) = ([0_u64; 2], [0_u64; 2]);
    for _ in 0..2000 {
        for i in 0..2 {
            while sent[i] - served[i] < 4 {
                let r = read(i as u32, ((i as u64) << 30) + sent[i] * 64, 64);
                b.add(level(r, Class::BestEffort, [0, 7][i]));
                sent[i] += 1;
            }
        }
        served[b.serve(Duration::from_micros(64)) as usize] += 1;
    }
    assert!((served[0] as f64 / served[1] as f64 - 8.0).abs() < 0.3, "{served:?}");
}

#[test]
fn requests_go_out_in_sector_order_but_the_oldest_is_not_forgotten() {
    let mut b = bench::<8>(&[("slice_idle", "0")]);
    for lba in [5000, 1000, 3000, 2000] {
        b.add(read(1, lba, 8));
    }
    let mut order = Vec::new();
    for _ in 0..4 {
        let run = b.run();
        order.push(run.lba);
        b.done(run);
    }
    assert_eq!(order, [1000, 2000, 3000, 5000], "up from sector 0");
    // 6000 is far behind by now; the others would go first as long as they come.
    b.add(read(1, 6000, 8));
    b.add(read(1, 100_000, 8));
    assert_eq!(b.run().lba, 6000, "forward first");
    b.add(read(1, 90_000, 8));
    b.add(read(1, 100_008, 8));
    assert_eq!(b.run().lba, 90_000);
    b.add(read(1, 10, 8));
    b.pass(MS(126));
    // Overdue, but a slot looks at age once, at its first request.
    let order = [b.run().lba, b.run().lba, b.run().lba];
    assert_eq!(order, [100_000, 100_008, 10]);
}

#[test]
fn a_request_in_the_wrong_direction_goes_out_when_it_is_overdue() {
    let mut b = bench::<8>(&[("slice_idle", "0"), ("max_budget", "64")]);
    b.add(read(1, 1 << 20, 8));
    b.serve(MS(1));
    b.add(read(1, 0, 8));
    let mut next = (1 << 20) + 8;
    let mut waited = 0;
    loop {
        b.add(read(1, next, 8));
        next += 8;
        let run = b.run();
        let lba = run.lba;
        b.pass(MS(5));
        b.done(run);
        waited += 5;
        if lba == 0 || waited > 1000 {
            break;
        }
    }
    // 125 ms, and up to a slot of 8 requests.
    assert!((125..=170).contains(&waited), "{waited} ms");
}

#[test]
fn of_two_ways_the_shorter_is_taken_and_back_counts_double() {
    let first = |behind: u64, ahead: u64, set: &[(&str, &str)]| {
        let mut b = bench::<8>(set);
        b.add(read(1, 1_000_000 - 8, 8));
        b.serve(MS(0));
        b.add(read(1, 1_000_000 - behind, 8));
        b.add(read(1, 1_000_000 + ahead, 8));
        b.run().lba < 1_000_000
    };
    assert!(first(100, 201, &[]));
    assert!(!first(100, 199, &[]));
    assert!(first(100, 101, &[("back_seek_penalty", "1")]));
    assert!(!first(40_000, 500_000, &[]), "16 MiB back is the limit");
    assert!(!first(100, 500_000, &[("back_seek_max", "0")]));
}

#[test]
fn metadata_goes_first() {
    let mut b = bench::<8>(&[]);
    b.add(read(1, 8, 8));
    b.add(Request { flags: Flags::META, ..read(1, 5000, 8) });
    b.add(read(1, 16, 8));
    assert_eq!(b.run().lba, 5000);
}

#[test]
fn the_limits_are_counted_per_kind_and_lower_while_somebody_is_raised() {
    let mut b = bench::<8>(&[]);
    let limits = |b: &Bench<8>| [Kind::Read, Kind::SyncWrite, Kind::Async].map(|k| b.queue.admits(k, 128));
    assert_eq!(limits(&b), [128, 96, 64]);
    b.add(read(1, 0, 8));
    assert_eq!(limits(&b), [128, 96, 64]);
    b.queue.tune("low_latency", "1").unwrap();
    b.add(read(2, 100, 8));
    assert_eq!(limits(&b), [128, 48, 24], "a new stream is raised");
    b.queue.tune("low_latency", "0").unwrap();
    assert_eq!(limits(&b), [128, 96, 64]);
    assert_eq!([Kind::SyncWrite, Kind::Async].map(|k| b.queue.admits(k, 1)), [1, 1]);
}

#[test]
fn strict_guarantees_leave_one_request_at_the_device() {
    let mut b = bench::<8>(&[("strict_guarantees", "1")]);
    b.add(write(1, 0, 8));
    b.add(write(1, 8, 8));
    let run = b.run();
    assert_eq!(b.waits_until(), (None, true));
    b.done(run);
    assert_eq!(b.run().lba, 8);
}

#[test]
fn weights_can_be_set_per_stream() {
    let mut b = bench::<2>(&[("slice_idle", "0"), ("max_budget", "512")]);
    let policy = b.queue.policy_mut();
    assert_eq!(policy.set_weight(StreamId(1), Some(0)), Err(WeightError::Range));
    assert_eq!(policy.set_weight(StreamId(1), Some(1001)), Err(WeightError::Range));
    policy.set_weight(StreamId(1), Some(1000)).unwrap();
    policy.set_weight(StreamId(2), Some(100)).unwrap();
    assert_eq!(policy.set_weight(StreamId(3), Some(7)), Err(WeightError::Full));
    policy.set_weight(StreamId(1), None).unwrap();
    policy.set_weight(StreamId(3), None).unwrap();
    policy.set_weight(StreamId(1), Some(300)).unwrap();
    let (mut sent, mut served) = ([0_u64; 2], [0_u64; 2]);
    for _ in 0..2000 {
        for i in 0..2 {
            while sent[i] - served[i] < 4 {
                b.add(read(1 + i as u32, ((i as u64) << 30) + sent[i] * 64, 64));
                sent[i] += 1;
            }
        }
        served[b.serve(Duration::from_micros(64)) as usize - 1] += 1;
    }
    assert!((served[0] as f64 / served[1] as f64 - 3.0).abs() < 0.1, "{served:?}");
}

#[test]
fn more_streams_than_places_share_and_none_is_refused() {
    let mut b = bench::<4>(&[("slice_idle", "0")]);
    for i in 0..60 {
        b.add(if i % 3 == 0 { write(i, u64::from(i) * 1000, 8) } else { read(i, u64::from(i) * 1000, 8) });
    }
    let mut seen: Vec<u32> = (0..60).map(|_| b.serve(MS(1))).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..60).collect::<Vec<u32>>());
    assert_eq!(b.queue.dispatch(b.now), Dispatch::Empty);
    // Places of idle streams are used anew.
    for i in 100..160 {
        b.add(read(i, 0, 8));
        assert_eq!(b.serve(MS(1)), i);
    }
}

#[test]
fn only_requests_of_one_stream_and_kind_merge() {
    let mut queue = Queue::new(vec![Slot::FREE; 16], Bfq::<8>::new());
    queue.tune("slice_idle", "0").unwrap();
    let now = Instant::ZERO;
    let mut add = |r: Request| matches!(queue.insert(r, now).unwrap().1, Inserted::Merged { .. });
    assert!(!add(write(1, 100, 8)));
    assert!(add(write(1, 108, 8)), "the same stream");
    assert!(add(write(2, 116, 8)), "async writes share a stream");
    assert!(!add(sync_write(1, 124, 8)), "but not with sync ones");
    assert!(add(sync_write(1, 132, 8)));
    assert!(!add(sync_write(2, 140, 8)));
    assert!(!add(read(1, 200, 8)));
    assert!(!add(read(2, 208, 8)));
    assert!(queue.merge(&read(1, 192, 8), now).is_some(), "in front");
    assert!(queue.merge(&read(2, 216, 8), now).is_some(), "behind");
    let mut runs = Vec::new();
    while let Dispatch::Run(run) = queue.dispatch(now) {
        runs.push((run.lba, run.blocks, run.count));
        let mut next = Some(run.head);
        while let Some(id) = next {
            next = queue.next_member(id);
            queue.complete(id, Outcome { blocks: 8, failed: false }, now).unwrap();
        }
    }
    runs.sort_unstable();
    assert_eq!(runs, [(100, 24, 3), (124, 16, 2), (140, 8, 1), (192, 16, 2), (208, 16, 2)]);
}

#[test]
fn a_stream_takes_about_250_bytes() {
    let stream = (size_of::<Bfq<64>>() - size_of::<Bfq<32>>()) / 32;
    println!("{stream} bytes a stream, {} for 64", size_of::<Bfq>());
    assert!(stream <= 280, "{stream}");
}
