//! `charge_time` of `bfq`: streams share the time of the device, whatever a sector costs each of them.
#![cfg(feature = "bfq")]

mod support;

use mmc_sched::{
    Bfq, Dispatch, Flags, Limits, Merges, Op, Outcome, Queue, Request, Run, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::VecDeque;

/// What the requests of a stream are and what the device needs for one.
#[derive(Clone, Copy, Debug)]
struct Load {
    op: Op,
    flags: Flags,
    blocks: u32,
    service: Duration,
}

/// Streams that always have four requests, and a device that holds `depth` and serves them in order.
struct Bench {
    queue: Queue<Vec<Slot>, Bfq>,
    now: Instant,
    loads: Vec<Load>,
    next: Vec<u64>,
    queued: Vec<u32>,
    device: VecDeque<(usize, Run)>,
    depth: usize,
    /// Nanoseconds of the device each stream had.
    had: Vec<u64>,
}

impl Bench {
    fn new(loads: &[Load], depth: usize, set: &[(&str, &str)]) -> Self {
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        let mut queue = Queue::with_limits(vec![Slot::FREE; 128], Bfq::new(), limits);
        for (name, value) in set.iter().chain(&[("slice_idle", "0")]) {
            queue.tune(name, value).unwrap();
        }
        let n = loads.len();
        Self {
            queue,
            now: Instant::from_secs(1),
            loads: loads.to_vec(),
            next: (0..n as u64).map(|i| i << 32).collect(),
            queued: vec![0; n],
            device: VecDeque::new(),
            depth,
            had: vec![0; n],
        }
    }

    /// Fills the streams and the device, and ends one request.
    fn step(&mut self) {
        for (i, load) in self.loads.iter().enumerate() {
            while self.queued[i] < 4 {
                let r = Request::new(load.op, self.next[i], load.blocks, StreamId(i as u32));
                self.next[i] += u64::from(load.blocks);
                self.queued[i] += 1;
                self.queue.insert(Request { flags: load.flags, ..r }, self.now).unwrap();
            }
        }
        while self.device.len() < self.depth {
            let Dispatch::Run(run) = self.queue.dispatch(self.now) else { panic!("idle with work queued") };
            let i = self.queue.request(run.head).unwrap().stream.0 as usize;
            self.queued[i] -= 1;
            self.device.push_back((i, run));
        }
        let (i, run) = self.device.pop_front().unwrap();
        self.now += self.loads[i].service;
        self.had[i] += self.loads[i].service.as_nanos();
        let outcome = Outcome { blocks: run.blocks, failed: false };
        assert!(self.queue.complete(run.head, outcome, self.now).unwrap().last);
    }

    fn seconds(&mut self, s: u64) {
        let until = self.now + Duration::from_secs(s);
        while self.now < until {
            self.step();
        }
    }
    fn share(&self, i: usize) -> f64 {
        self.had[i] as f64 / self.had.iter().sum::<u64>() as f64
    }
}

fn load(op: Op, flags: Flags, blocks: u32, service_us: u64) -> Load {
    Load { op, flags, blocks, service: Duration::from_micros(service_us) }
}

/// Writeback costs this card eight times what reading costs. By sectors (even counted three times) it takes most
/// of the device; by time it takes half.
#[test]
fn slow_writeback_takes_its_share_of_the_time_and_no_more() {
    let loads = [load(Op::Read, Flags::empty(), 64, 1_000), load(Op::Write, Flags::empty(), 64, 8_000)];
    for (charge_time, least, most) in [("0", 0.65, 0.80), ("1", 0.48, 0.52)] {
        for depth in [1, 2] {
            let mut b = Bench::new(&loads, depth, &[("charge_time", charge_time)]);
            b.seconds(60);
            let got = b.share(1);
            assert!(
                (least..most).contains(&got),
                "charge_time={charge_time}, {depth} at the device: {got:.3}"
            );
        }
    }
}

/// A reader of small scattered blocks and one that streams: half the time each, forty times the sectors for one.
#[test]
fn a_seeky_reader_gets_the_same_time_as_a_sequential_one() {
    let loads = [load(Op::Read, Flags::empty(), 8, 2_000), load(Op::Read, Flags::empty(), 256, 1_600)];
    let mut b = Bench::new(&loads, 2, &[("charge_time", "1")]);
    b.seconds(60);
    assert!((b.share(0) - 0.5).abs() < 0.02, "{:.3}", b.share(0));
}

/// The unit of all budgets changes under way; whatever was owed is paid and forgotten.
#[test]
fn the_setting_may_change_at_any_time() {
    let loads = [load(Op::Read, Flags::empty(), 64, 500), load(Op::Write, Flags::empty(), 256, 9_000)];
    let mut b = Bench::new(&loads, 2, &[]);
    for n in 0..200 {
        b.queue.tune("charge_time", if n % 2 == 0 { "1" } else { "0" }).unwrap();
        b.seconds(1);
    }
    b.queue.tune("charge_time", "1").unwrap();
    b.had.fill(0);
    b.seconds(60);
    assert!((b.share(0) - 0.5).abs() < 0.02, "{:.3}", b.share(0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(24), ..ProptestConfig::default() })]

    /// T1 and T2 in time: from any slot to any other the time a stream had is within 2B of its share, and one
    /// request of each stream and each one at the device, which are charged when they are over.
    #[test]
    fn time_stays_within_two_budgets_of_the_share(
        streams in prop::collection::vec((1u32..=200, 1u32..=256, 50u64..=3_000), 2..=8), depth in 1usize..=2,
    ) {
        const TIMEOUT_MS: u64 = 20;
        let loads: Vec<Load> =
            streams.iter().map(|&(_, blocks, us)| load(Op::Read, Flags::empty(), blocks, us)).collect();
        let mut b = Bench::new(&loads, depth, &[("charge_time", "1"), ("timeout_sync", "20")]);
        for (i, s) in streams.iter().enumerate() {
            b.queue.policy_mut().set_weight(StreamId(i as u32), Some(s.0)).unwrap();
        }
        let all: f64 = streams.iter().map(|s| f64::from(s.0)).sum();
        let mut rows = vec![b.had.clone()];
        let mut slot = b.queue.policy().slots();
        while rows.len() < 200 {
            b.step();
            if b.queue.policy().slots() != slot {
                slot = b.queue.policy().slots();
                rows.push(b.had.clone());
            }
        }
        let longest = streams.iter().map(|s| s.2 as f64).fold(0.0, f64::max);
        let slack = (streams.len() + depth) as f64 * longest;
        let bound = 2.0 * (TIMEOUT_MS * 1000) as f64 + slack;
        for (n, from) in rows.iter().enumerate() {
            for to in &rows[n + 1..] {
                let us = |i: usize| (to[i] - from[i]) as f64 / 1e3;
                let total: f64 = (0..streams.len()).map(us).sum();
                for (i, s) in streams.iter().enumerate() {
                    let lag = f64::from(s.0) / all * total - us(i);
                    prop_assert!(lag.abs() <= bound, "stream {i} lags {lag} µs, bound {bound}");
                }
            }
        }
    }
}
