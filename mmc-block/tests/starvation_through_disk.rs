//! G4 through the whole stack: on a mock card, no request waits longer behind its deadline than
//! `mmc_sched::bound` says, whatever else is submitted.

mod common;

use common::*;
use mmc_block::{Disk, Next, Settings};
use mmc_mock::BufBatch;
use mmc_mock::card::Card;
use mmc_mock::timing::Profile;
use mmc_sched::bound::{self, Bound, Waiting};
use mmc_sched::mq_deadline::{Rules, Tunables};
use mmc_sched::{MqDeadline, Queue, Request, Run, Slot};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// One request's life; all requests have different first sectors and never touch.
#[derive(Clone, Copy, Debug)]
struct Life {
    read: bool,
    inserted: Instant,
    issued: Option<Instant>,
    completed: Option<Instant>,
    /// Positions in the order of insertion and of issue.
    nth_in: usize,
    nth_out: usize,
}

#[derive(Debug, Default)]
struct Lives {
    by_lba: BTreeMap<u64, Life>,
    issues: usize,
    started: Instant,
    /// Slowest command so far.
    slowest: Duration,
}

impl mmc_block::Observer for Lives {
    fn inserted(&mut self, _: mmc_block::Ticket, r: &Request, now: Instant) {
        let nth_in = self.by_lba.len();
        let life =
            Life { read: r.op.is_read(), inserted: now, issued: None, completed: None, nth_in, nth_out: 0 };
        assert!(self.by_lba.insert(r.lba, life).is_none());
    }
    fn issued(&mut self, _: mmc_block::Ticket, run: &Run, now: Instant) {
        assert_eq!(run.count, 1);
        let life = self.by_lba.get_mut(&run.lba).unwrap();
        (life.issued, life.nth_out) = (Some(now), self.issues);
        self.issues += 1;
    }
    fn started(&mut self, _: mmc_block::Ticket, _: &Run, now: Instant) {
        self.started = now;
    }
    fn ended(&mut self, _: mmc_block::Ticket, _: &Run, ok: bool, now: Instant) {
        assert!(ok);
        self.slowest = self.slowest.max(now.since(self.started));
    }
    fn completed(&mut self, _: mmc_block::Ticket, r: &Request, _: bool, now: Instant) {
        self.by_lba.get_mut(&r.lba).unwrap().completed = Some(now);
    }
}

/// Reads and writes to keep outstanding, for so many requests; every `victim`-th one is behind the sweep.
#[derive(Clone, Copy, Debug)]
struct Phase {
    reads: usize,
    writes: usize,
    requests: usize,
    victim: usize,
}

struct Play {
    rules: Rules,
    tunables: Vec<(&'static str, u32)>,
    nr_requests: usize,
    prepare: bool,
}

impl Play {
    /// Runs the phases; returns the lives and the tunables in force.
    fn run(&self, phases: &[Phase]) -> (Lives, Tunables) {
        let bench = MockBench::new(Profile::slow2018());
        let queue = Queue::new(vec![Slot::FREE; 64], MqDeadline::with_rules(self.rules));
        let settings = Settings { nr_requests: self.nr_requests, retries: 0 };
        let traits = bench.identified.traits;
        let mut now = bench.now;
        let mut disk =
            Disk::new(bench.host, queue, traits, BufBatch::new(8), tags(256), settings, Lives::default())
                .unwrap();
        if self.prepare {
            disk.prepare_with(BufBatch::new(8)).unwrap();
        }
        for (name, value) in &self.tunables {
            disk.tune(name, &value.to_string(), now).unwrap();
        }
        // Next sector of the sweep, and of victims that lie before it: reads, writes.
        let mut ahead = [1_000_000, 5_000_000];
        let mut behind = [900_000, 4_900_000];
        let mut out = [0_usize; 2];
        for phase in phases {
            let mut left = phase.requests;
            loop {
                for (kind, want) in [phase.reads, phase.writes].into_iter().enumerate() {
                    while out[kind] < want && left > 0 {
                        let lba = if left % phase.victim == 0 {
                            behind[kind] -= 16;
                            behind[kind]
                        } else {
                            ahead[kind] += 16;
                            ahead[kind]
                        };
                        let r = if kind == 0 { read(lba, 8) } else { write(lba, 8) };
                        disk.submit(r, buf(&r, 1), now).unwrap();
                        (out[kind], left) = (out[kind] + 1, left - 1);
                    }
                }
                let next = disk.poll(now);
                while let Some(d) = disk.take_done() {
                    out[usize::from(!d.request.op.is_read())] -= 1;
                }
                match next {
                    _ if left == 0 => break,
                    Next::Wait { until, .. } => now = now.max(until),
                    Next::Idle | Next::Lent => {}
                }
            }
        }
        run_to_end(&mut disk, now);
        assert!(bench.card.violations().is_empty());
        let tunables = *disk.core().scheduler().policy().tunables();
        (std::mem::take(disk.observer()), tunables)
    }
}

fn run_to_end<H, S>(disk: &mut Disk<H, S, Tags, Lives>, mut now: Instant)
where
    H: mmc_proto::host::Host<Payload = BufBatch>,
    S: mmc_sched::Scheduler,
{
    while let Next::Wait { until, .. } = disk.poll(now) {
        now = now.max(until);
    }
}

/// The largest count of dispatches behind a deadline, as a share of its bound in percent.
fn check(lives: &Lives, tunables: &Tunables, expire: [Duration; 2], in_device: u32) -> u64 {
    let mut closest = 0;
    for x in lives.by_lba.values() {
        let due = x.inserted + expire[usize::from(!x.read)];
        let (issued, completed) = (x.issued.unwrap(), x.completed.unwrap());
        if issued < due {
            continue;
        }
        let others = lives.by_lba.values();
        let ahead = others
            .clone()
            .filter(|o| {
                o.read == x.read && o.nth_in < x.nth_in && o.nth_out < x.nth_out && o.issued.unwrap() >= due
            })
            .chain(
                others.clone().filter(|o| o.read == x.read && o.nth_in < x.nth_in && o.nth_out > x.nth_out),
            )
            .count();
        let passed = others.filter(|o| o.issued.unwrap() >= due && o.nth_out < x.nth_out).count() as u64;
        let Bound::Dispatches(bound) = bound::mq_deadline(tunables, Waiting::new(x.read, ahead as u32))
        else {
            panic!("these settings have a bound");
        };
        assert!(
            passed <= bound,
            "{passed} dispatches behind the deadline, bound {bound}, {ahead} ahead: {x:?}"
        );
        // From due to the end of its own service: the dispatches and what was in the device, each as slow as any.
        let time = bound::time(bound, lives.slowest, in_device);
        assert!(completed.since(due) <= time, "{} > {time}", completed.since(due));
        closest = closest.max(passed * 100 / bound.max(1));
    }
    closest
}

fn phase() -> impl Strategy<Value = Phase> {
    (0..12_usize, 0..24_usize, 10..80_usize, 2..20_usize)
        .prop_filter("somebody asks for something", |p| p.0 + p.1 > 0)
        .prop_map(|(reads, writes, requests, victim)| Phase { reads, writes, requests, victim })
}

proptest! {
    #[test]
    fn the_bounds_of_mq_deadline_hold_on_a_mock_card(
        phases in prop::collection::vec(phase(), 1..6),
        rules in prop_oneof![Just(Rules::V7_3), Just(Rules::V5_10)],
        fifo_batch in 1..17_u32,
        writes_starved in 1..4_u32,
        read_ms in 0..400_u32,
        write_ms in 0..800_u32,
        nr_requests in 2..40_usize,
        prepare: bool,
    ) {
        let tunables = vec![
            ("fifo_batch", fifo_batch),
            ("writes_starved", writes_starved),
            ("read_expire", read_ms),
            ("write_expire", write_ms),
        ];
        let (lives, tunables) = Play { rules, tunables, nr_requests, prepare }.run(&phases);
        let expire = [read_ms, write_ms].map(|ms| Duration::from_millis(ms.into()));
        check(&lives, &tunables, expire, 1 + u32::from(prepare));
    }
}

#[test]
fn a_writer_that_stays_ahead_of_the_sweep_comes_near_the_bound() {
    let tunables = vec![("read_expire", 5), ("write_expire", 20)];
    let play = Play { rules: Rules::V7_3, tunables, nr_requests: 64, prepare: false };
    let phases = [Phase { reads: 1, writes: 31, requests: 600, victim: 7 }];
    let (lives, tunables) = play.run(&phases);
    let closest = check(&lives, &tunables, [Duration::from_millis(5), Duration::from_millis(20)], 1);
    println!("{closest} % of the bound, slowest command {}", lives.slowest);
    assert!(closest >= 30, "the test is too tame: {closest} % of the bound");
}
