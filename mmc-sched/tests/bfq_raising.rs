//! `low_latency` = 1: who is raised, for how long, what that costs the others. Off by default.
#![cfg(feature = "bfq")]

use mmc_sched::bfq::Bfq;
use mmc_sched::{Dispatch, Flags, Kind, Op, Outcome, Queue, Request, Run, Scheduler, Slot, StreamId};
use mmc_time::{Duration, Instant};

const MS: fn(u64) -> Duration = Duration::from_millis;

struct Bench {
    queue: Queue<Vec<Slot>, Bfq>,
    now: Instant,
    next: u64,
}

fn bench(set: &[(&str, &str)]) -> Bench {
    let mut queue = Queue::new(vec![Slot::FREE; 256], Bfq::new());
    for (name, value) in set {
        queue.tune(name, value).unwrap();
    }
    Bench { queue, now: Instant::from_secs(100), next: 0 }
}

impl Bench {
    /// One more request of `blocks`, right behind the last one of its stream's area.
    fn add(&mut self, op: Op, stream: u32, blocks: u32) {
        self.next += u64::from(blocks);
        let mut r = Request::new(op, (u64::from(stream) << 40) + self.next, blocks, StreamId(stream));
        r.flags = Flags::NOMERGE;
        self.queue.insert(r, self.now).unwrap();
    }
    fn done(&mut self, run: Run) {
        self.queue.complete(run.head, Outcome { blocks: run.blocks, failed: false }, self.now).unwrap();
    }
    /// Serves the next one in `d`; its stream, or `None` when the device has to wait, and then lets that pass.
    fn serve(&mut self, d: Duration) -> Option<u32> {
        match self.queue.dispatch(self.now) {
            Dispatch::Run(run) => {
                let stream = self.queue.request(run.head).unwrap().stream.0;
                self.now += d;
                self.done(run);
                Some(stream)
            }
            Dispatch::Wait { at, .. } => {
                self.now = at.expect("nothing is in flight");
                None
            }
            Dispatch::Empty => panic!("nothing queued"),
        }
    }
    fn raised(&self) -> bool {
        self.queue.admits(Kind::Async, 128) == 24
    }
    /// Stream 1 reads all it can, stream 2 likewise; what each got.
    fn compete(&mut self, requests: u32, d: Duration) -> [u32; 2] {
        let mut got = [0; 2];
        let mut queued = [0; 2];
        while got[0] + got[1] < requests {
            for (stream, queued) in (1..).zip(&mut queued) {
                while *queued < 3 {
                    self.add(Op::Read, stream, 64);
                    *queued += 1;
                }
            }
            if let Some(stream) = self.serve(d) {
                got[stream as usize - 1] += 1;
                queued[stream as usize - 1] -= 1;
            }
        }
        got
    }
}

/// Streams 1 and 2, where 1 has worked for long and 2 is new.
fn old_and_new(low_latency: &str) -> [u32; 2] {
    let mut b = bench(&[("low_latency", low_latency), ("max_budget", "512")]);
    for _ in 0..2000 {
        b.add(Op::Read, 1, 64);
        b.serve(MS(1));
    }
    b.compete(310, MS(1))
}

#[test]
fn a_new_stream_gets_thirty_times_the_share_only_when_asked_for() {
    let [old, new] = old_and_new("0");
    assert!((140..=170).contains(&new), "{old} {new}");
    let [old, new] = old_and_new("1");
    assert!((5..=25).contains(&old) && new > 280, "{old} {new}");
}

#[test]
fn raising_ends_after_its_time_or_its_service_or_when_switched_off() {
    let start = || {
        let mut b = bench(&[("low_latency", "1"), ("max_budget", "512")]);
        b.add(Op::Read, 1, 64);
        assert!(b.raised());
        b
    };
    let mut b = start();
    let begin = b.now;
    while b.raised() {
        b.add(Op::Read, 1, 8);
        b.serve(MS(20));
    }
    let took = b.now.since(begin);
    assert!((MS(3750)..=MS(3800)).contains(&took), "{took}");

    let mut b = start();
    let mut sectors = 0;
    while b.raised() {
        b.add(Op::Read, 1, 1024);
        b.serve(MS(1));
        sectors += 1024;
    }
    assert!((120_000..=123_000).contains(&sectors), "{sectors}");

    let mut b = start();
    b.queue.tune("low_latency", "0").unwrap();
    assert!(!b.raised());
    b.queue.tune("low_latency", "1").unwrap();
    assert!(!b.raised(), "not raised again by that");
}

#[test]
fn a_stream_of_another_weight_is_never_raised() {
    let mut b = bench(&[("low_latency", "1")]);
    b.queue.policy_mut().set_weight(StreamId(1), Some(41)).unwrap();
    b.add(Op::Read, 1, 64);
    assert!(!b.raised());
    b.add(Op::Write, 3, 64);
    assert!(!b.raised(), "nor an async one that is new");
}

#[test]
fn a_stream_is_interactive_again_after_two_seconds_of_idleness() {
    let mut b = bench(&[("low_latency", "1"), ("max_budget", "512")]);
    while {
        b.add(Op::Read, 1, 2048);
        let raised = b.raised();
        b.serve(MS(1));
        raised
    } {}
    let wakes_raised = |b: &mut Bench, pause| {
        // Let the device stop waiting for it, then be away.
        b.now += MS(20);
        b.queue.dispatch(b.now);
        b.now += pause;
        b.add(Op::Read, 1, 2048);
        let raised = b.raised();
        b.serve(MS(1));
        raised
    };
    assert!(!wakes_raised(&mut b, MS(1900)), "and it moved too much for soft real time");
    assert!(wakes_raised(&mut b, MS(2001)));
}

#[test]
fn a_raised_stream_is_waited_for_20_ms() {
    let mut b = bench(&[("low_latency", "1")]);
    b.add(Op::Write, 3, 64);
    b.add(Op::Read, 1, 8);
    assert_eq!(b.serve(MS(1)), Some(1));
    assert_eq!(b.queue.wake_at(), Some(b.now + MS(20)));
    assert_eq!(b.serve(MS(1)), None);
    assert_eq!(b.serve(MS(1)), Some(3));
}

/// The worst of it (as the kernel has it): writeback that was held back for half a second is taken for
/// interactive, with 30 times its weight and time.
#[test]
fn writeback_that_pauses_for_half_a_second_is_raised_too() {
    let mut b = bench(&[("low_latency", "1")]);
    b.add(Op::Write, 3, 1024);
    b.add(Op::Write, 3, 1024);
    b.now += MS(400);
    b.add(Op::Write, 3, 1024);
    assert!(!b.raised());
    b.now += MS(501);
    b.add(Op::Write, 3, 1024);
    assert!(b.raised());
}
