//! The stall of 2018 in small: a flusher fills the queue with 512 KiB writes for a card of 6 MB/s, and a journal
//! must get a few blocks through, then one more, and wait for each.
#![cfg(all(feature = "bfq", feature = "mq-deadline"))]

use mmc_sched::{
    AnyPolicy, Dispatch, Flags, Kind, Op, Outcome, Queue, Request, RequestId, Run, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;

const TAGS: usize = 128;
const FLUSHER: StreamId = StreamId(1);
const JOURNAL: StreamId = StreamId(2);
const FSYNC: StreamId = StreamId(3);
const RUN_FOR: Instant = Instant::from_secs(300);

/// 1 ms and 6.5 MB/s.
fn service(run: &Run) -> Duration {
    Duration::from_nanos(1_000_000 + u64::from(run.blocks) * 512 * 1_000_000_000 / 6_500_000)
}

/// What the journal does next.
enum Journal {
    Sleep { until: Instant },
    Writes { left: Vec<RequestId>, commit: bool },
}

struct Card {
    queue: Queue<Vec<Slot>, AnyPolicy>,
    /// One runs, at most one is prepared.
    sent: VecDeque<Run>,
    busy_until: Instant,
    now: Instant,
    async_in: usize,
    sync_in: usize,
    flush_at: u64,
    journal_at: u64,
    journal: Journal,
    commits: u64,
    asked: Vec<(RequestId, Instant)>,
    waits: Vec<Duration>,
    sectors: u64,
    dice: u64,
}

#[derive(Debug)]
struct Result {
    p50: Duration,
    p99: Duration,
    max: Duration,
    commits: u64,
    mb_s: f64,
}

impl Card {
    fn new(policy: &str, set: &[(&str, &str)]) -> Self {
        let mut queue = Queue::new(vec![Slot::FREE; 512], AnyPolicy::by_name(policy).unwrap());
        for (name, value) in set {
            queue.tune(name, value).unwrap();
        }
        Self {
            queue,
            sent: VecDeque::new(),
            busy_until: Instant::ZERO,
            now: Instant::ZERO,
            async_in: 0,
            sync_in: 0,
            flush_at: 1 << 20,
            journal_at: 3_900_000,
            journal: Journal::Sleep { until: Instant::from_secs(5) },
            commits: 0,
            asked: Vec::new(),
            waits: Vec::new(),
            sectors: 0,
            dice: 88_172_645_463_325_252,
        }
    }
    fn roll(&mut self, below: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % below
    }
    fn insert(&mut self, lba: u64, blocks: u32, stream: StreamId, flags: Flags) -> RequestId {
        let mut r = Request::new(Op::Write, lba, blocks, stream);
        r.flags = flags;
        let merged = self.queue.merge(&r, self.now);
        merged.unwrap_or_else(|| self.queue.insert(r, self.now).unwrap()).0
    }
    fn journal_writes(&mut self, blocks: u64, commit: bool) {
        let mut left = Vec::new();
        for _ in 0..blocks {
            let lba = self.journal_at;
            self.journal_at += 8;
            let id = self.insert(lba, 8, JOURNAL, Flags::SYNC);
            self.asked.push((id, self.now));
            left.push(id);
        }
        self.journal = Journal::Writes { left, commit };
    }

    /// Whoever can act does; true while it changes anything.
    fn workload(&mut self) {
        let limit = self.queue.admits(Kind::Async, TAGS);
        while self.async_in < limit && self.async_in + self.sync_in < TAGS {
            let lba = self.flush_at;
            self.flush_at += 1024;
            // No merging into what would be more than the card takes at once.
            self.insert(lba, 1024, FLUSHER, Flags::empty());
            self.async_in += 1;
        }
        match &self.journal {
            Journal::Sleep { until } if *until <= self.now => {
                let blocks = 1 + self.roll(7);
                self.journal_writes(blocks, false);
            }
            Journal::Writes { left, commit: false } if left.is_empty() => self.journal_writes(1, true),
            Journal::Writes { left, commit: true } if left.is_empty() => {
                self.commits += 1;
                // Each 5 s, or sooner when somebody calls fsync.
                let pause = 300 + self.roll(4700);
                self.journal = Journal::Sleep { until: self.now + Duration::from_millis(pause) };
            }
            _ => {}
        }
    }

    fn completed(&mut self, run: Run) {
        self.sectors += u64::from(run.blocks);
        let mut next = Some(run.head);
        while let Some(id) = next {
            next = self.queue.next_member(id);
            let blocks = self.queue.request(id).unwrap().blocks;
            let done = self.queue.complete(id, Outcome { blocks, failed: false }, self.now).unwrap();
            match done.request.stream {
                FLUSHER => self.async_in -= 1,
                FSYNC => self.sync_in -= 1,
                _ => {
                    let n = self.asked.iter().position(|(asked, _)| *asked == id).unwrap();
                    self.waits.push(self.now.since(self.asked.remove(n).1));
                    if let Journal::Writes { left, .. } = &mut self.journal {
                        left.retain(|w| *w != id);
                    }
                }
            }
        }
    }

    /// Scattered 8 KiB blocks of a large fsync, always 30 of them: a sync stream that never pauses.
    fn fsync(&mut self) {
        while self.sync_in < 30 {
            let lba = (1 << 24) + self.roll(1 << 20) * 16;
            self.insert(lba, 16, FSYNC, Flags::SYNC);
            self.sync_in += 1;
        }
    }

    fn run(mut self, fsync: bool) -> Result {
        while self.now < RUN_FOR {
            if fsync {
                self.fsync();
            }
            self.workload();
            let mut wake = Instant::NEVER;
            while self.sent.len() < 2 {
                match self.queue.dispatch(self.now) {
                    Dispatch::Run(run) => {
                        if self.sent.is_empty() {
                            self.busy_until = self.now + service(&run);
                        }
                        self.sent.push_back(run);
                    }
                    Dispatch::Wait { at, completion } => {
                        assert!(at.is_some() || (completion && !self.sent.is_empty()), "a wait has an end");
                        wake = at.unwrap_or(Instant::NEVER);
                        break;
                    }
                    Dispatch::Empty => break,
                }
            }
            if let Journal::Sleep { until } = self.journal {
                wake = wake.min(until);
            }
            if self.sent.is_empty() || wake < self.busy_until {
                self.now = self.now.max(wake);
                continue;
            }
            self.now = self.busy_until;
            let run = self.sent.pop_front().unwrap();
            if let Some(next) = self.sent.front() {
                self.busy_until = self.now + service(next);
            }
            self.completed(run);
        }
        self.waits.sort();
        let at = |q: usize| self.waits[(self.waits.len() * q / 100).min(self.waits.len() - 1)];
        let mb_s = (self.sectors * 512) as f64 / (self.now.as_nanos() as f64 / 1000.0);
        Result { p50: at(50), p99: at(99), max: at(100), commits: self.commits, mb_s }
    }
}

fn report(what: &str, r: &Result) {
    let Result { p50, p99, max, commits, mb_s } = r;
    println!("{what:24} journal p50 {p50} p99 {p99} max {max}, {commits} commits, {mb_s:.2} MB/s");
}

#[test]
fn the_journal_waits_ten_seconds_under_mq_deadline_and_two_writes_under_bfq() {
    let mq = Card::new("mq-deadline", &[]).run(false);
    report("mq-deadline", &mq);
    assert!(mq.max > Duration::from_secs(9), "{mq:?}");

    let bfq = Card::new("bfq", &[]).run(false);
    report("bfq", &bfq);
    assert!(bfq.p99 < Duration::from_millis(800) && bfq.max < Duration::from_secs(2), "{bfq:?}");
    assert!(bfq.mb_s <= mq.mb_s && bfq.mb_s >= 0.92 * mq.mb_s, "{bfq:?} {mq:?}");
    assert!(bfq.commits > 3 * mq.commits, "{bfq:?} {mq:?}");
}

#[test]
fn the_price_of_idling_is_small_and_raising_is_bounded() {
    for (what, set) in [
        ("bfq slice_idle=0", &[("slice_idle", "0")][..]),
        ("bfq low_latency=1", &[("low_latency", "1")]),
        ("bfq strict_guarantees=1", &[("strict_guarantees", "1")]),
    ] {
        let r = Card::new("bfq", set).run(false);
        report(what, &r);
        assert!(r.p99 < Duration::from_millis(800) && r.max < Duration::from_secs(2), "{what}: {r:?}");
        assert!(r.mb_s > 5.5, "{what}: {r:?}");
    }
}

#[test]
fn a_large_fsync_does_not_starve_the_journal() {
    let mq = Card::new("mq-deadline", &[]).run(true);
    report("fsync, mq-deadline", &mq);
    let bfq = Card::new("bfq", &[]).run(true);
    report("fsync, bfq", &bfq);
    assert!(bfq.p99 < Duration::from_millis(800) && bfq.max < Duration::from_secs(2), "{bfq:?}");
}
