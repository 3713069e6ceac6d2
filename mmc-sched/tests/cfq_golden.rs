//! What CFQ answered, reply by reply: the recordings described in `tests/data/cfq/README.md`.
#![cfg(feature = "cfq")]

use mmc_sched::{
    Cfq, Class, Dispatch, Flags, Inserted, Limits, Merges, Op, Outcome, Priority, Queue, Request, RequestId,
    Scheduler, Slot, StreamId,
};
use mmc_time::Instant;
use std::collections::HashMap;

struct Replay {
    queue: Queue<Vec<Slot>, Cfq>,
    now: Instant,
    priorities: HashMap<u32, Priority>,
    /// Recorded number of a request to ours, and back.
    ids: HashMap<u64, RequestId>,
    numbers: HashMap<RequestId, u64>,
}

impl Replay {
    fn new() -> Self {
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        Self {
            queue: Queue::with_limits(vec![Slot::FREE; 1024], Cfq::new(), limits),
            now: Instant::ZERO,
            priorities: HashMap::new(),
            ids: HashMap::new(),
            numbers: HashMap::new(),
        }
    }

    /// The reply to one command, if it has one.
    fn command(&mut self, words: &[&str]) -> Option<String> {
        let n = |i: usize| words[i].parse::<u64>().unwrap();
        match words[0] {
            "set" => {
                return Some(if self.queue.tune(words[1], words[2]).is_ok() { "ok" } else { "err" }.into());
            }
            "p" => {
                let class = [Class::RealTime, Class::BestEffort, Class::Idle][n(2) as usize - 1];
                self.priorities.insert(n(1) as u32, Priority { class, level: n(3) as u8 });
            }
            "t" => self.now = Instant::from_nanos(n(1)),
            "i" => {
                let op = if words[2] == "r" { Op::Read } else { Op::Write };
                let mut r = Request::new(op, n(5), n(6) as u32, StreamId(n(4) as u32));
                r.flags.set(Flags::SYNC, words[3] == "1");
                // 2, "more follows", is a hint for idling, which a card has not.
                r.flags.set(Flags::META, words.get(7).is_some_and(|f| f.parse::<u32>().unwrap() & 1 != 0));
                r.priority = self.priorities[&r.stream.0];
                let (id, how) = self.queue.insert(r, self.now).unwrap();
                assert_eq!(how, Inserted::Queued);
                self.ids.insert(n(1), id);
                self.numbers.insert(id, n(1));
            }
            "d" => {
                return Some(match self.queue.dispatch(self.now) {
                    Dispatch::Run(run) => self.numbers[&run.head].to_string(),
                    Dispatch::Wait { .. } | Dispatch::Empty => "-".into(),
                });
            }
            "c" => {
                let id = self.ids[&n(1)];
                let blocks = self.queue.request(id).unwrap().blocks;
                self.queue.complete(id, Outcome { blocks, failed: false }, self.now).unwrap();
            }
            "n" => return Some(self.queue.wake_at().map_or("-".into(), |t| t.as_nanos().to_string())),
            other => panic!("no command {other}"),
        }
        None
    }
}

/// Every reply of the file is ours; `replies` is how many it has.
fn check(text: &str, replies: usize) {
    let mut replay = Replay::new();
    let (mut given, mut expected) = (None, 0);
    for (n, line) in text.lines().enumerate() {
        match line.split_at(2) {
            ("> ", command) => {
                assert_eq!(given, None, "line {n}: a reply that is not recorded");
                let words: Vec<&str> = command.split_whitespace().collect();
                given = replay.command(&words);
            }
            ("< ", reply) => {
                assert_eq!(given.take().as_deref(), Some(reply), "line {}", n + 1);
                expected += 1;
            }
            _ => panic!("line {}: {line}", n + 1),
        }
    }
    assert_eq!(expected, replies);
}

macro_rules! golden {
    ($($test:ident: $file:literal, $replies:literal;)*) => {$(
        #[test]
        fn $test() {
            check(include_str!(concat!("data/cfq/", $file)), $replies);
        }
    )*};
}

golden! {
    four_sync_streams_on_a_card: "1-sd-default-4sync.txt", 528;
    readers_against_async_writes: "3-sd-readers-vs-async.txt", 1712;
    classes_and_levels: "4-classes-levels.txt", 1296;
    a_device_that_takes_eight: "5-depth8.txt", 2643;
    choice_of_requests_and_their_age: "6-choice-fifo.txt", 1888;
    preemption_that_starves_a_reader: "7-directed-preempt-starves-sync.txt", 3603;
    a_trickle_of_async_writes: "8-directed-async-trickle.txt", 7819;
    a_random_mix: "9a-mix-seed4.txt", 11711;
    a_random_mix_without_low_latency: "9c-mix-seed18.txt", 491;
}
