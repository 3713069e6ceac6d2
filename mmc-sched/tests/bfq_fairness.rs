//! The fairness of `bfq`, as bounds on what a stream may lag behind or run ahead of its share.
//!
//! T1–T7 are those of the description the policy was written from (its §18.2): a stream's service W_i, its share
//! φ_i = w_i/Σw, the total service W, the largest budget B, all in sectors. Pure mode: `low_latency` 0, `slice_idle` 0, a
//! fixed `max_budget`, requests of 64 to 256 sectors, so that nothing but fair queueing decides.
#![cfg(feature = "bfq")]

use mmc_sched::bfq::{Bfq, Expiry};
use mmc_sched::bound::{Bound, Share, bfq};
use mmc_sched::{
    AnyPolicy, Class, Dispatch, Limits, Merges, Op, Outcome, Policy, Priority, Queue, Request, RequestId,
    Run, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::collections::VecDeque;

/// `max_budget` in all tests here.
const B: i128 = 2048;

fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let file = FileFailurePersistence::Direct("tests/bfq_fairness.proptest-regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(file)), ..ProptestConfig::default() }
}

/// A cheap source of sizes, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
    fn size(&mut self) -> u32 {
        64 + 32 * self.roll(7) as u32
    }
}

/// The policy in pure mode.
fn pure(weights: &[u32]) -> AnyPolicy {
    let mut bfq: Bfq = Bfq::new();
    for (name, value) in [("low_latency", "0"), ("slice_idle", "0"), ("max_budget", "2048")] {
        bfq.tune(name, value).unwrap();
    }
    for (i, &w) in weights.iter().enumerate() {
        bfq.set_weight(StreamId(i as u32), Some(w)).unwrap();
    }
    AnyPolicy::Bfq(bfq)
}

/// A device that serves one run at a time at 1 µs a sector.
struct Bench {
    queue: Queue<Vec<Slot>, AnyPolicy>,
    now: Instant,
    /// Next sector, queued and in-flight requests of each stream.
    streams: Vec<(u64, u32)>,
    served: Vec<i128>,
}

impl Bench {
    fn new(weights: &[u32]) -> Self {
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        let queue = Queue::with_limits(vec![Slot::FREE; 256], pure(weights), limits);
        let streams = (0..weights.len() as u64).map(|i| (i << 32, 0)).collect();
        Self { queue, now: Instant::ZERO, streams, served: vec![0; weights.len()] }
    }
    fn policy(&self) -> &Bfq {
        match self.queue.policy() {
            AnyPolicy::Bfq(bfq) => bfq,
            other => panic!("{other:?}"),
        }
    }
    fn add(&mut self, i: usize, blocks: u32, priority: Priority) {
        self.put(Op::Read, i, blocks, priority);
    }
    fn put(&mut self, op: Op, i: usize, blocks: u32, priority: Priority) {
        let (lba, n) = &mut self.streams[i];
        let mut r = Request::new(op, *lba, blocks, StreamId(i as u32));
        r.priority = priority;
        *lba += u64::from(blocks);
        *n += 1;
        self.queue.insert(r, self.now).unwrap();
    }
    fn fill(&mut self, i: usize, depth: u32, dice: &mut Dice) {
        while self.streams[i].1 < depth {
            self.add(i, dice.size(), Priority::default());
        }
    }
    fn start(&mut self) -> Option<(usize, Run)> {
        match self.queue.dispatch(self.now) {
            Dispatch::Run(run) => {
                let i = self.queue.request(run.head).unwrap().stream.0 as usize;
                self.served[i] += i128::from(run.blocks);
                Some((i, run))
            }
            Dispatch::Empty => None,
            Dispatch::Wait { .. } => panic!("idle with work queued"),
        }
    }
    fn finish(&mut self, i: usize, id: RequestId) {
        let blocks = self.queue.request(id).unwrap().blocks;
        self.now += Duration::from_micros(blocks.into());
        self.queue.complete(id, Outcome { blocks, failed: false }, self.now).unwrap();
        self.streams[i].1 -= 1;
    }
}

/// The service of all streams at the beginning of each slot while all of them always have work.
fn backlogged(weights: &[u32], seed: u64, slots: usize) -> Vec<Vec<i128>> {
    disturbed(&mut Bench::new(weights), &mut Dice(seed | 1), slots, |_, _| {})
}

/// The same with something else done before each dispatch.
fn disturbed(
    bench: &mut Bench,
    dice: &mut Dice,
    slots: usize,
    mut disturb: impl FnMut(&mut Bench, &mut Dice),
) -> Vec<Vec<i128>> {
    let mut rows = Vec::new();
    let mut slot = bench.policy().slots();
    while rows.len() < slots {
        for i in 0..bench.streams.len() {
            bench.fill(i, 4, dice);
        }
        disturb(bench, dice);
        let before = bench.served.clone();
        let (i, run) = bench.start().expect("all have work");
        if bench.policy().slots() != slot {
            slot = bench.policy().slots();
            rows.push(before);
        }
        bench.finish(i, run.head);
    }
    rows
}

/// The largest lag and lead in units of B over all intervals, how far any two are beyond T3, and their number.
#[derive(Default, Debug)]
struct Worst {
    lag: f64,
    lead: f64,
    pair: f64,
    share: f64,
    intervals: u64,
}

fn worst(weights: &[u32], rows: &[Vec<i128>]) -> Worst {
    let all: i128 = weights.iter().map(|&w| i128::from(w)).sum();
    let (b, phi) = (B as f64, all as f64);
    let mut worst = Worst::default();
    for (n, from) in rows.iter().enumerate() {
        for to in &rows[n + 1..] {
            worst.intervals += 1;
            let total: i128 = to.iter().sum::<i128>() - from.iter().sum::<i128>();
            let (mut low, mut high) = (f64::MAX, f64::MIN);
            for (i, &w) in weights.iter().enumerate() {
                let got = to[i] - from[i];
                // φ·W − W_i, exact but for the division.
                let lag = (i128::from(w) * total - got * all) as f64 / phi;
                worst.lag = worst.lag.max(lag / b);
                worst.lead = worst.lead.max(-lag / b);
                low = low.min((got as f64 + 2.0 * b) / f64::from(w));
                high = high.max((got as f64 - 2.0 * b) / f64::from(w));
            }
            // T3: W_i/w_i − W_j/w_j ≤ 2B/w_i + 2B/w_j for equal B (the terms with 1/Φ cancel).
            worst.pair = worst.pair.max(high - low);
        }
    }
    let (first, last) = (&rows[0], &rows[rows.len() - 1]);
    let total: i128 = last.iter().sum::<i128>() - first.iter().sum::<i128>();
    for (i, &w) in weights.iter().enumerate() {
        let share = (last[i] - first[i]) as f64 / total as f64;
        worst.share = worst.share.max((share - f64::from(w) / phi).abs());
    }
    worst
}

/// Lone requests of the first stream among others that always have work, for so many dispatches: how many intervals
/// from an arrival to a dispatch after it were checked against T4, and the longest wait as a part of its bound.
fn lone_requests(weights: &[u32], seed: u64, dispatches: u32) -> Result<(u64, f64), TestCaseError> {
    let all: u64 = weights.iter().map(|&w| u64::from(w)).sum();
    let mut dice = Dice(seed | 1);
    let mut bench = Bench::new(weights);
    // Service when the probe went in and its bound; when the next one may go in.
    let (mut asked, mut pause): (Option<(i128, i128)>, i128) = (None, 0);
    let (mut checked, mut longest) = (0, 0.0_f64);
    for _ in 0..dispatches {
        for i in 1..weights.len() {
            bench.fill(i, 3, &mut dice);
        }
        let total: i128 = bench.served.iter().sum();
        if asked.is_none() && total >= pause && dice.roll(8) == 0 {
            let size = dice.size();
            bench.add(0, size, Priority::default());
            let Bound::Sectors(bound) = bfq(bench.policy(), Share::new(weights[0], all, size)) else {
                panic!("pure mode")
            };
            asked = Some((total, bound.into()));
            // From its dispatch until its finish time has passed for sure.
            pause = i128::from(size) * i128::from(all) / i128::from(weights[0]) + B;
        }
        let (i, run) = bench.start().expect("all have work");
        if let Some((at, bound)) = asked {
            let waited = bench.served.iter().sum::<i128>() - at;
            prop_assert!(waited <= bound, "{waited} sectors, bound {bound}");
            checked += 1;
            if i == 0 {
                longest = longest.max(waited as f64 / bound as f64);
                asked = None;
                pause += at + waited;
            }
        }
        bench.finish(i, run.head);
    }
    Ok((checked, longest))
}

/// Intervals that are checked at least: `default`, or what the environment variable MMC_SCHED_INTERVALS says.
fn intervals(default: u64) -> u64 {
    std::env::var("MMC_SCHED_INTERVALS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// N = 2…16 streams of random weights, over and over: T1, T2 and T3 between any two slots, T4 from each arrival to
/// each dispatch until its own (a tenth of a million here, MMC_SCHED_INTERVALS=1000000 for as many: half a minute).
#[test]
fn a_million_intervals_without_a_violation() {
    let (want, want_waits) = (intervals(1_000_000), intervals(100_000));
    let mut dice = Dice(11);
    let (mut shares, mut waits, mut rounds) = (0, 0, 0);
    let (mut lag, mut lead, mut longest) = (0.0_f64, 0.0_f64, 0.0_f64);
    while rounds < 15 || shares < want || waits < want_waits {
        let n = 2 + rounds % 15;
        let weights: Vec<u32> = (0..n).map(|_| 1 + dice.roll(1000) as u32).collect();
        let seed = dice.roll(u64::MAX);
        if rounds < 15 || shares < want {
            let w = worst(&weights, &backlogged(&weights, seed, 400));
            assert!(w.lag <= 2.0 + 1.0 / B as f64, "T1: {weights:?} {seed}: {w:?}");
            assert!(w.lead <= 2.0 + 1.0 / B as f64, "T2: {weights:?} {seed}: {w:?}");
            assert!(w.pair <= 1e-9, "T3: {weights:?} {seed}: {w:?}");
            shares += w.intervals;
            (lag, lead) = (lag.max(w.lag), lead.max(w.lead));
        }
        let (checked, wait) = lone_requests(&weights, seed, 4_000).expect("T4");
        waits += checked;
        longest = longest.max(wait);
        rounds += 1;
    }
    println!(
        "T1, T2, T3: {shares} intervals, all streams in each, lag {lag:.2} B, lead {lead:.2} B of 2 B, 0 violations"
    );
    println!("T4: {waits} intervals, longest wait {longest:.2} of its bound, 0 violations");
}

proptest! {
    #![proptest_config(cases(24))]

    /// T1 and T2: W_i within 2B of φ_i·W either way; T3 for any two. One sector for rounding.
    #[test]
    fn service_stays_within_two_budgets_of_the_share(
        weights in prop::collection::vec(prop_oneof![1u32..=1000, 5u32..=20], 2..=16), seed: u64,
    ) {
        let w = worst(&weights, &backlogged(&weights, seed, 320));
        let sector = 1.0 / B as f64;
        prop_assert!(w.intervals >= 50_000);
        prop_assert!(w.lag <= 2.0 + sector, "T1: lag {} B", w.lag);
        prop_assert!(w.lead <= 2.0 + sector, "T2: lead {} B", w.lead);
        prop_assert!(w.pair <= 1e-9, "T3: {} sectors per weight too much", w.pair);
    }

    /// T4: a request of ℓ sectors of a stream that owes nothing goes out before (ℓ + B)/φ + B sectors are served.
    #[test]
    fn a_lone_request_waits_for_its_own_share_and_one_budget(
        weights in prop::collection::vec(1u32..=1000, 2..=16), seed: u64,
    ) {
        prop_assert!(lone_requests(&weights, seed, 3000)?.0 > 0);
    }

    /// T4 with its additions: a fast stream that comes and goes and may owe a budget, among slow ones that are charged for
    /// their time, with some of its own requests in front.
    #[test]
    fn debts_and_slow_neighbours_cost_the_budgets_that_are_stated(
        weights in prop::collection::vec(1u32..=200, 2..=8), seed: u64, most in 1u32..12,
    ) {
        let all: u64 = weights.iter().map(|&w| u64::from(w)).sum();
        let mut dice = Dice(seed | 1);
        let mut bench = Bench::new(&weights);
        // Of each queued request of stream 0: the service when it came, and its bound.
        let mut queued: VecDeque<(i128, i128)> = VecDeque::new();
        let mut ahead: u64 = 0;
        for _ in 0..2000 {
            for i in 1..weights.len() {
                bench.fill(i, 3, &mut dice);
            }
            if dice.roll(16) == 0 {
                for _ in 0..dice.roll(u64::from(most)) + 1 {
                    let size = dice.size();
                    let x = Share {
                        ahead, owes: true, slow: weights.len() as u32 - 1, ..Share::new(weights[0], all, size)
                    };
                    let Bound::Sectors(bound) = bfq(bench.policy(), x) else { panic!("pure mode") };
                    if queued.len() < 100 {
                        bench.add(0, size, Priority::default());
                        queued.push_back((bench.served.iter().sum(), bound.into()));
                        ahead += u64::from(size);
                    }
                }
            }
            let (i, run) = bench.start().expect("all have work");
            if i == 0 {
                let (at, bound) = queued.pop_front().expect("in order");
                ahead -= u64::from(run.blocks);
                let waited = bench.served.iter().sum::<i128>() - at;
                prop_assert!(waited <= bound, "{waited} sectors, bound {bound}");
            } else {
                // 10 MB/s: a budget takes 100 ms.
                bench.now += Duration::from_micros(49 * u64::from(run.blocks));
            }
            bench.finish(i, run.head);
        }
    }

    /// T7: pausing gains nothing: over any interval that begins at a return, a stream that comes and goes gets
    /// no more than its share and 2B.
    #[test]
    fn a_stream_cannot_gain_by_pausing(
        weights in prop::collection::vec(10u32..=400, 2..=8), seed: u64, on in 1u64..40, off in 1u64..40,
    ) {
        let all: i128 = weights.iter().map(|&w| i128::from(w)).sum();
        let mut dice = Dice(seed | 1);
        let mut bench = Bench::new(&weights);
        let (mut left, mut busy) = (0, false);
        let mut starts: Vec<(i128, i128)> = Vec::new();
        for _ in 0..2500 {
            for i in 1..weights.len() {
                bench.fill(i, 3, &mut dice);
            }
            if left == 0 {
                busy = !busy;
                left = 1 + dice.roll(if busy { on } else { off });
                if busy {
                    starts.push((bench.served[0], bench.served.iter().sum()));
                }
            }
            left -= 1;
            // Not at the instant of a completion: that would be the back-shift, which is worth a budget.
            bench.now += Duration::from_nanos(1);
            if busy {
                bench.fill(0, 1 + dice.roll(3) as u32, &mut dice);
            }
            let (i, run) = bench.start().expect("all have work");
            bench.finish(i, run.head);
            let (own, total) = (bench.served[0], bench.served.iter().sum::<i128>());
            for &(own_then, total_then) in &starts {
                let lead = (own - own_then) * all - i128::from(weights[0]) * (total - total_then);
                // Not at slot boundaries: one request more.
                prop_assert!(lead <= (2 * B + 256) * all, "lead of {} sectors", lead / all);
            }
        }
    }

    /// T1 to T3 whatever tunables are changed, and when, as long as the mode stays pure: B is the largest budget set.
    #[test]
    fn changed_tunables_leave_the_shares_alone(
        weights in prop::collection::vec(1u32..=1000, 2..=8), seed: u64,
    ) {
        let rows = disturbed(&mut Bench::new(&weights), &mut Dice(seed | 1), 240, |bench, dice| {
            if dice.roll(4) == 0 {
                let (name, value) = match dice.roll(5) {
                    0 => ("max_budget", 256 + dice.roll(1793)),
                    1 => ("timeout_sync", 20 + dice.roll(1000)),
                    2 => ("fifo_expire_sync", dice.roll(300)),
                    3 => ("back_seek_max", dice.roll(100_000)),
                    _ => ("back_seek_penalty", dice.roll(10)),
                };
                bench.queue.tune(name, &value.to_string()).unwrap();
            }
        });
        let w = worst(&weights, &rows);
        prop_assert!(w.lag <= 2.0 + 1.0 / B as f64, "T1: lag {} B", w.lag);
        prop_assert!(w.lead <= 2.0 + 1.0 / B as f64, "T2: lead {} B", w.lead);
        prop_assert!(w.pair <= 1e-9, "T3: {} sectors per weight too much", w.pair);
    }

    /// T1 to T3 from the moment at which the policy takes over from another with requests queued and at the device.
    #[test]
    fn the_shares_hold_from_the_moment_of_a_switch(
        weights in prop::collection::vec(1u32..=1000, 2..=8), seed: u64,
        before in prop::sample::select(AnyPolicy::NAMES.to_vec()), turns in 1u32..200,
    ) {
        let (mut bench, mut dice) = (Bench::new(&weights), Dice(seed | 1));
        for i in 0..weights.len() {
            bench.fill(i, 4, &mut dice);
        }
        let mut other = AnyPolicy::by_name(before).unwrap();
        // Any setting with which the device never waits.
        let _ = other.tune("slice_idle", "0");
        bench.queue.replace(other, bench.now);
        let mut flying = None;
        for _ in 0..turns {
            for i in 0..weights.len() {
                bench.fill(i, 4, &mut dice);
            }
            let run = match bench.queue.dispatch(bench.now) {
                Dispatch::Run(run) if run.offset == 0 && run.blocks == bench.queue.request(run.head).unwrap().blocks => run,
                // ftb: time to wait, or a part of a request, which is not what this test is about.
                Dispatch::Wait { at: Some(at), .. } => {
                    bench.now = bench.now.max(at);
                    continue;
                }
                _ => break,
            };
            if let Some((i, id)) = flying.replace((bench.queue.request(run.head).unwrap().stream.0 as usize, run.head)) {
                bench.finish(i, id);
            }
        }
        bench.queue.replace(pure(&weights), bench.now);
        if let Some((i, id)) = flying {
            bench.finish(i, id);
        }
        if bench.queue.len() > bench.queue.queued() {
            return Ok(());
        }
        let w = worst(&weights, &disturbed(&mut bench, &mut dice, 160, |_, _| {}));
        prop_assert!(w.lag <= 2.0 + 1.0 / B as f64, "T1: lag {} B", w.lag);
        prop_assert!(w.lead <= 2.0 + 1.0 / B as f64, "T2: lead {} B", w.lead);
        prop_assert!(w.pair <= 1e-9, "T3: {} sectors per weight too much", w.pair);
    }

    /// Writeback that always has work keeps its floor, whatever sync streams of the same weight come, go and take the
    /// device: a third of an equal share (it is charged three times), less what T1 allows, and one request.
    #[test]
    fn writeback_keeps_its_floor(streams in 1usize..=8, seed: u64, on in 1u64..40, off in 1u64..20) {
        let mut weights = vec![40; streams];
        weights.push(40);
        let (mut bench, mut dice) = (Bench::new(&weights), Dice(seed | 1));
        let mut left = vec![(0, false); streams];
        let mut sums: Vec<(i128, i128)> = Vec::new();
        for _ in 0..1200 {
            while bench.streams[streams].1 < 4 {
                bench.put(Op::Write, streams, dice.size(), Priority::default());
            }
            bench.now += Duration::from_nanos(1);
            for (i, (left, busy)) in left.iter_mut().enumerate() {
                if *left == 0 {
                    *busy = !*busy;
                    *left = 1 + dice.roll(if *busy { on } else { off });
                }
                *left -= 1;
                if *busy {
                    bench.fill(i, 3, &mut dice);
                }
            }
            let (own, sync) = (3 * bench.served[streams], bench.served[..streams].iter().sum::<i128>());
            sums.push((own, own + sync));
            let (i, run) = bench.start().expect("writeback has work");
            bench.finish(i, run.head);
        }
        for (n, from) in sums.iter().enumerate() {
            for to in &sums[n + 1..] {
                let (own, all) = (to.0 - from.0, to.1 - from.1);
                let lag = all - own * (streams as i128 + 1);
                prop_assert!(lag <= (2 * B + 3 * 256 + 1) * (streams as i128 + 1), "{lag}");
            }
        }
    }

    /// T5: with idling off nothing that is queued ever makes the device wait.
    #[test]
    fn without_idling_the_device_works_while_anything_is_queued(
        steps in prop::collection::vec((0usize..6, 0u8..3, 1u32..300, any::<bool>()), 1..300),
    ) {
        let mut bench = Bench::new(&[40, 40, 10, 80, 500, 1]);
        let classes = [Class::BestEffort, Class::RealTime, Class::Idle];
        let mut flying = Vec::new();
        for (i, class, blocks, serve) in steps {
            bench.now += Duration::from_micros(500);
            bench.add(i, blocks, Priority { class: classes[usize::from(class)], level: 4 });
            if serve {
                flying.extend(bench.start());
            }
            if flying.len() > 1 {
                let (i, run) = flying.remove(0);
                bench.finish(i, run.head);
            }
        }
        while let Some((i, run)) = bench.start() {
            bench.finish(i, run.head);
        }
        for (i, run) in flying {
            bench.finish(i, run.head);
        }
        prop_assert!(bench.queue.is_empty());
    }
}

/// The figures in `docs/bfq.md`.
#[test]
fn lag_and_lead_do_not_grow_with_the_number_of_streams() {
    for n in [2, 4, 8, 16] {
        let weights: Vec<u32> = (0..n).map(|i| 10 * (1 + i % 8)).collect();
        let w = worst(&weights, &backlogged(&weights, 7, 1500));
        println!(
            "{n} streams: lag {:.2} B, lead {:.2} B, share error {:.4}, {} intervals",
            w.lag, w.lead, w.share, w.intervals
        );
        assert!(w.lag < 1.75 && w.lead < 1.75, "{w:?}");
        assert!(w.share < 0.01, "{w:?}");
    }
}

/// Without the rule that only eligible streams are served, the heavy one would get 15 slots in a row first.
#[test]
fn a_heavy_stream_is_not_far_ahead_of_its_share_at_any_time() {
    let mut weights = vec![150];
    weights.resize(16, 10);
    let w = worst(&weights, &backlogged(&weights, 5, 600));
    println!("one heavy among 15 light: lag {:.2} B, lead {:.2} B", w.lag, w.lead);
    assert!(w.lag <= 2.0 && w.lead <= 2.0 && w.pair <= 1e-9, "{w:?}");
}

/// T6: the strict order of classes leaves the lower ones at least a request each 200 ms, and best effort keeps
/// its fairness in what is left.
#[test]
fn lower_classes_are_served_every_200_ms_whatever_the_higher_ones_do() {
    let mut dice = Dice(3);
    // 0, 1: best effort, weights 10 and 30; 2: real time; 3: idle class.
    let mut bench = Bench::new(&[10, 30, 40, 40]);
    let classes = [Class::BestEffort, Class::BestEffort, Class::RealTime, Class::Idle];
    let mut last = [Instant::ZERO; 3];
    let mut longest = [Duration::ZERO; 3];
    while bench.now < Instant::from_secs(60) {
        for (i, &class) in classes.iter().enumerate() {
            while bench.streams[i].1 < 4 {
                // Large enough for some slots to end by their time.
                bench.add(i, 32 * dice.size(), Priority { class, level: 4 });
            }
        }
        let (i, run) = bench.start().expect("all have work");
        let class = [1, 1, 0, 2][i];
        longest[class] = longest[class].max(bench.now.since(last[class]));
        last[class] = bench.now;
        bench.finish(i, run.head);
    }
    // The largest request takes 8.2 ms; a slot of a request in progress and one of the other class come before.
    let bound = Duration::from_millis(200 + 9 + 9);
    println!("longest pauses: best effort {}, idle class {}", longest[1], longest[2]);
    assert!(longest[1] <= bound && longest[2] <= bound, "{longest:?}");
    let [a, b, real_time, _] = bench.served[..] else { unreachable!() };
    assert!(real_time > 9 * (a + b), "real time goes first: {:?}", bench.served);
    assert!((b - 3 * a).abs() <= 3 * (B + 32 * 256) * 4, "shares in best effort: {a} {b}");
    assert!(bench.policy().expired(Expiry::Exhausted) > 0);
}
