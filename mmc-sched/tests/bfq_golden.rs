//! What Linux 6.12's BFQ did with the same arrivals at the same instants, with everything but fair queueing
//! switched off: each stream gets the same service, up to one budget, over windows of 64 slots.
//!
//! The recordings are described in `tests/data/bfq/README.md`. The recorded `c` lines name the request the kernel
//! had chosen; ours completes its own oldest instead.
#![cfg(feature = "bfq")]

use mmc_sched::bfq::Bfq;
use mmc_sched::{
    Class, Dispatch, Flags, Inserted, Limits, Merges, Op, Outcome, Priority, Queue, Request, RequestId,
    Scheduler, Slot, StreamId,
};
use mmc_time::Instant;
use std::collections::{BTreeMap, HashMap, VecDeque};

const MAX_BUDGET: u64 = 2048;
const WINDOW: usize = 64;

/// Sectors completed by each stream, as they stood when a recorded slot began.
type Row = BTreeMap<u32, (u64, u64)>;

struct Replay {
    queue: Queue<Vec<Slot>, Bfq>,
    now: Instant,
    priorities: HashMap<u32, Priority>,
    /// Recorded id: stream, sectors.
    known: HashMap<u64, (u32, u64)>,
    ours: VecDeque<RequestId>,
    served: Row,
    /// At the beginning of each recorded slot.
    rows: Vec<Row>,
    last: Option<u32>,
    /// Answers that were the recorded ones, and all.
    same: (u32, u32),
}

impl Replay {
    fn new() -> Self {
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        Self {
            queue: Queue::with_limits(vec![Slot::FREE; 256], Bfq::new(), limits),
            now: Instant::ZERO,
            priorities: HashMap::new(),
            known: HashMap::new(),
            ours: VecDeque::new(),
            served: Row::new(),
            rows: Vec::new(),
            last: None,
            same: (0, 0),
        }
    }

    fn insert(&mut self, words: &[&str]) {
        let n = |i: usize| words[i].parse::<u64>().unwrap();
        let (id, stream, lba, blocks) = (n(0), n(3) as u32, n(4), n(5) as u32);
        let op = if words[1] == "r" { Op::Read } else { Op::Write };
        let mut r = Request::new(op, lba, blocks, StreamId(stream));
        r.flags.set(Flags::SYNC, words[2] == "1");
        r.priority = self.priorities.get(&stream).copied().unwrap_or_default();
        self.known.insert(id, (stream, blocks.into()));
        let (_, how) = self.queue.insert(r, self.now).unwrap();
        assert_eq!(how, Inserted::Queued);
    }

    /// One recorded answer beside ours.
    fn dispatch(&mut self, recorded: &str) {
        let ours = match self.queue.dispatch(self.now) {
            Dispatch::Run(run) => {
                self.ours.push_back(run.head);
                Some((self.queue.request(run.head).unwrap().stream.0, run.lba))
            }
            _ => None,
        };
        self.same.1 += 1;
        if let Ok(id) = recorded.parse::<u64>() {
            let stream = self.known[&id].0;
            self.same.0 += u32::from(ours.is_some_and(|(s, _)| s == stream));
            if self.last != Some(stream) {
                self.last = Some(stream);
                self.rows.push(self.served.clone());
            }
        } else {
            self.same.0 += u32::from(ours.is_none());
        }
    }

    fn complete(&mut self, recorded: u64) {
        let (stream, sectors) = self.known[&recorded];
        self.served.entry(stream).or_default().1 += sectors;
        if let Some(id) = self.ours.pop_front() {
            let r = *self.queue.request(id).unwrap();
            self.queue.complete(id, Outcome { blocks: r.blocks, failed: false }, self.now).unwrap();
            self.served.entry(r.stream.0).or_default().0 += u64::from(r.blocks);
        }
    }

    fn run(text: &str) -> Self {
        let mut this = Self::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [">", command, rest @ ..] = words.as_slice() else { continue };
            let answer = lines.peek().and_then(|l| l.strip_prefix("< ")).unwrap_or("");
            match *command {
                "set" => assert_eq!(this.queue.tune(rest[0], rest[1]), Ok(())),
                "t" => this.now = Instant::from_nanos(rest[0].parse().unwrap()),
                "p" => {
                    let n = |i: usize| rest[i].parse::<u32>().unwrap();
                    let class = [Class::RealTime, Class::BestEffort, Class::Idle][n(1) as usize - 1];
                    this.priorities.insert(n(0), Priority { class, level: n(2) as u8 });
                }
                "i" => this.insert(rest),
                "d" => this.dispatch(answer),
                "c" => this.complete(rest[0].parse().unwrap()),
                _ => {}
            }
        }
        this
    }

    /// The largest difference of any stream's service over any window, in sectors.
    fn worst(&self, window: usize) -> u64 {
        let mut worst = 0;
        for (a, b) in self.rows.iter().zip(self.rows.iter().skip(window)) {
            for (stream, end) in b {
                let start = a.get(stream).copied().unwrap_or_default();
                worst = worst.max((end.0 - start.0).abs_diff(end.1 - start.1));
            }
        }
        worst
    }
}

fn check(text: &str) {
    let replay = Replay::run(text);
    let worst = replay.worst(WINDOW);
    println!(
        "{} slots, {} of {} answers for the same stream, worst difference {worst} sectors",
        replay.rows.len(),
        replay.same.0,
        replay.same.1
    );
    assert!(replay.rows.len() > 10 * WINDOW, "the recording was read");
    let sums = replay.served.values().fold((0, 0), |s, v| (s.0 + v.0, s.1 + v.1));
    assert!(sums.0.abs_diff(sums.1) <= MAX_BUDGET, "the same work was done: {sums:?}");
    assert!(worst <= MAX_BUDGET, "{worst} sectors");
}

#[test]
fn four_sync_streams_get_what_the_kernel_gave_them() {
    check(include_str!("data/bfq/pure-4.txt"));
}

#[test]
fn eight_sync_streams_get_what_the_kernel_gave_them() {
    check(include_str!("data/bfq/pure-8.txt"));
}

#[test]
fn sync_and_async_streams_get_what_the_kernel_gave_them() {
    check(include_str!("data/bfq/pure-mixed-6.txt"));
}
