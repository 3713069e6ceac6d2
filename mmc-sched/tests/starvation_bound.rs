//! G4 for `mq-deadline`: the bounds of `bound.rs` hold on a device with random service times, against random and
//! against adversarial arrivals; where `bound.rs` says there is none, a request really waits for ever.
#![cfg(feature = "mq-deadline")]

mod support;

use mmc_sched::bound::{Bound, Waiting, Why, mq_deadline};
use mmc_sched::mq_deadline::Rules;
use mmc_sched::{
    Class, Dispatch, Flags, Limits, Merges, MqDeadline, Op, Outcome, Policy, Priority, Queue, Request,
    RequestId, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A small generator of numbers, the same on all machines.
struct Rng(u64);
impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A queued request as the test sees it.
struct Seen {
    request: Request,
    order: u64,
    due: Instant,
    /// Dispatches since it was first seen due, and how many were ahead of it then.
    late: Option<(u64, u32)>,
}

/// One class, a device that takes one request at a time, no merging.
struct Bench {
    queue: Queue<Vec<Slot>, MqDeadline>,
    now: Instant,
    order: u64,
    waiting: BTreeMap<RequestId, Seen>,
    /// Sector of the sweep, by direction (reads first).
    sweep: [u64; 2],
    worst: [Option<(u64, u64)>; 2],
}

impl Bench {
    fn new(policy: MqDeadline) -> Self {
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        Self {
            queue: Queue::with_limits(vec![Slot::FREE; 64], policy, limits),
            now: Instant::from_secs(1),
            order: 0,
            waiting: BTreeMap::new(),
            sweep: [0; 2],
            worst: [None; 2],
        }
    }
    fn insert(&mut self, read: bool, lba: u64) {
        let request = Request::new(if read { Op::Read } else { Op::Write }, lba, 8, StreamId(0));
        let Ok((id, _)) = self.queue.insert(request, self.now) else { return };
        let t = self.queue.policy().tunables();
        let due = self.now + if read { t.read_expire } else { t.write_expire };
        self.order += 1;
        self.waiting.insert(id, Seen { request, order: self.order, due, late: None });
    }
    fn count(&self, read: bool) -> usize {
        self.waiting.values().filter(|s| s.request.op.is_read() == read).count()
    }
    /// One dispatch and its service; false when nothing waits. Fails where a bound is exceeded.
    fn serve(&mut self, service: Duration) -> bool {
        let mut late = Vec::new();
        for (id, s) in &self.waiting {
            if s.late.is_none() && s.due <= self.now {
                let read = s.request.op.is_read();
                let ahead =
                    self.waiting.values().filter(|o| o.request.op.is_read() == read && o.order < s.order);
                late.push((*id, ahead.count() as u32));
            }
        }
        for (id, ahead) in late {
            self.waiting.get_mut(&id).expect("waits").late = Some((0, ahead));
        }
        let run = match self.queue.dispatch(self.now) {
            Dispatch::Run(run) => run,
            Dispatch::Empty => return false,
            Dispatch::Wait { .. } => panic!("one class never waits"),
        };
        let x = self.waiting.remove(&run.head).expect("was queued");
        let read = x.request.op.is_read();
        self.sweep[usize::from(!read)] = run.lba + u64::from(run.blocks);
        if let Some((n, ahead)) = x.late {
            let bound = mq_deadline(self.queue.policy().tunables(), Waiting::new(read, ahead));
            let Bound::Dispatches(most) = bound else { panic!("bounded settings only") };
            assert!(
                n <= most,
                "a {} waited {n} dispatches with {ahead} ahead: more than {most}",
                x.request.op.is_read()
            );
            let worst = &mut self.worst[usize::from(!read)];
            if ahead == 0 && worst.is_none_or(|w| n > w.0) {
                *worst = Some((n, most));
            }
        }
        for s in self.waiting.values_mut() {
            if let Some((n, _)) = &mut s.late {
                *n += 1;
            }
        }
        self.now += service;
        self.queue
            .complete(run.head, Outcome { blocks: run.blocks, failed: false }, self.now)
            .expect("in flight");
        true
    }
}

fn policy(rules: Rules, batch: u32, starved: i32, read_ms: u32, write_ms: u32) -> MqDeadline {
    let mut p = MqDeadline::with_rules(rules);
    let values = [
        ("fifo_batch", i64::from(batch)),
        ("writes_starved", i64::from(starved)),
        ("read_expire", i64::from(read_ms)),
        ("write_expire", i64::from(write_ms)),
    ];
    for (name, value) in values {
        p.tune(name, &value.to_string()).expect("a tunable");
    }
    p
}

fn rules() -> impl Strategy<Value = Rules> {
    prop_oneof![Just(Rules::V7_3), Just(Rules::V5_10)]
}

/// Arrivals that keep both directions filled just ahead of the sweep, so that batches run full, beside a few
/// requests far behind it that the sweep never reaches by itself.
fn adversary(b: &mut Bench, rng: &mut Rng, steps: u32, victims: u64) {
    for _ in 0..steps {
        for read in [true, false] {
            while b.count(read) < 6 + victims as usize {
                let victim = rng.below(40) < victims;
                let at = b.sweep[usize::from(!read)];
                b.insert(read, if victim { rng.below(64) } else { 1 << 20 | (at + rng.below(3) * 8) });
            }
        }
        if !b.serve(Duration::from_micros(500 + rng.below(4000))) {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(48), ..ProptestConfig::default() })]

    #[test]
    fn random_arrivals_keep_the_bounds(
        rules in rules(), batch in prop::sample::select(vec![0u32, 1, 2, 4, 16]), starved in 1i32..4,
        read_ms in 1u32..60, write_ms in 1u32..120, seed in 1u64..,
    ) {
        let mut rng = Rng(seed);
        let mut b = Bench::new(policy(rules, batch, starved, read_ms, write_ms));
        for _ in 0..600 {
            for _ in 0..rng.below(4) {
                let (read, lba) = (rng.below(2) == 0, rng.below(2000));
                b.insert(read, lba);
            }
            b.serve(Duration::from_micros(100 + rng.below(9000)));
        }
        while b.serve(Duration::from_millis(1)) {}
    }

    #[test]
    fn adversarial_arrivals_keep_the_bounds(
        rules in rules(), batch in prop::sample::select(vec![1u32, 2, 4, 16]), starved in 1i32..4,
        read_ms in 5u32..80, write_ms in 5u32..80, victims in 1u64..8, seed in 1u64..,
    ) {
        let mut b = Bench::new(policy(rules, batch, starved, read_ms, write_ms));
        adversary(&mut b, &mut Rng(seed), 600, victims);
    }
}

/// The bounds are not idle: the adversary comes to them, or within a batch of them.
#[test]
fn the_adversary_comes_close() {
    let mut best = [0u64; 2];
    for seed in 1..40u64 {
        let mut b = Bench::new(policy(Rules::V7_3, 4, 2, 30, 30));
        adversary(&mut b, &mut Rng(seed * 7919), 600, 1);
        for (best, worst) in best.iter_mut().zip(b.worst) {
            *best = (*best).max(worst.map_or(0, |w| w.0));
        }
    }
    // B = 4, s = 2, p = 0: reads 7, writes 11.
    assert!(best[0] + 4 > 7 && best[0] <= 7, "{best:?}");
    assert!(best[1] + 4 > 11 && best[1] <= 11, "{best:?}");
}

/// A victim at sector 0 and a stream of `stream` ahead of the sweep: dispatches until the victim's, if it comes.
fn served_after(policy: MqDeadline, victim: Op, stream: Op, dispatches: u32) -> Option<u32> {
    let mut b = Bench::new(policy);
    b.insert(!victim.is_read(), 1 << 20);
    b.serve(Duration::from_millis(1));
    b.insert(victim.is_read(), 0);
    let x = *b.waiting.keys().next().expect("the victim");
    let mut at = 1 << 20;
    for n in 0..dispatches {
        while b.count(stream.is_read()) < 4 {
            at += 8;
            let r = Request::new(stream, at, 8, StreamId(0));
            let (id, _) = b.queue.insert(r, b.now).expect("room");
            b.waiting.insert(id, Seen { request: r, order: 0, due: Instant::NEVER, late: None });
        }
        let Dispatch::Run(run) = b.queue.dispatch(b.now) else { panic!("a run") };
        b.waiting.remove(&run.head).expect("was queued");
        b.now += Duration::from_millis(2);
        b.queue.complete(run.head, Outcome { blocks: 8, failed: false }, b.now).expect("in flight");
        if run.head == x {
            return Some(n);
        }
    }
    None
}

fn why(p: &MqDeadline, x: Waiting) -> Why {
    match mq_deadline(p.tunables(), x) {
        Bound::Unbounded(why) => why,
        bound => panic!("{bound:?}"),
    }
}

#[test]
fn without_a_read_decision_an_expired_read_waits_for_ever() {
    for rules in [Rules::V7_3, Rules::V5_10] {
        let p = policy(rules, 16, 0, 10, 5000);
        assert_eq!(why(&p, Waiting::new(true, 0)), Why::WritesFirst);
        assert_eq!(served_after(p, Op::Read, Op::Write, 20_000), None);
        assert!(served_after(policy(rules, 16, 1, 10, 5000), Op::Read, Op::Write, 20_000).is_some());
    }
}

#[test]
fn with_a_negative_writes_starved_an_expired_write_waits_for_ever() {
    for rules in [Rules::V7_3, Rules::V5_10] {
        let p = policy(rules, 16, -1, 500, 10);
        assert_eq!(why(&p, Waiting::new(false, 0)), Why::ReadsFirst);
        assert_eq!(served_after(p, Op::Write, Op::Read, 20_000), None);
        assert!(served_after(policy(rules, 16, 1, 500, 10), Op::Write, Op::Read, 20_000).is_some());
    }
}

#[test]
fn an_endless_batch_never_looks_at_deadlines() {
    let p = policy(Rules::V7_3, i32::MAX as u32, 2, 10, 5000);
    assert_eq!(why(&p, Waiting::new(true, 0)), Why::EndlessBatch);
    assert_eq!(served_after(p, Op::Read, Op::Write, 20_000), None);
}

/// The leak between classes: one waiting request of another class keeps the deadlines of the class that is
/// served from being looked at.
#[test]
fn a_second_class_takes_the_bound_away() {
    for other in [false, true] {
        let mut q = Queue::with_limits(
            vec![Slot::FREE; 64],
            policy(Rules::V7_3, 16, 2, 10, 5000),
            Limits { merges: Merges::None, ..Limits::default() },
        );
        let rt = |op, lba| Request {
            priority: Priority { class: Class::RealTime, level: 4 },
            ..Request::new(op, lba, 8, StreamId(0))
        };
        let mut now = Instant::from_secs(1);
        let mut at = 1 << 20;
        q.insert(rt(Op::Write, at), now).expect("room");
        let (victim, _) = q.insert(rt(Op::Read, 0), now).expect("room");
        if other {
            q.insert(Request::new(Op::Write, 5, 8, StreamId(0)), now).expect("room");
        }
        let mut after = None;
        for n in 0..4000 {
            at += 8;
            q.insert(rt(Op::Write, at), now).expect("room");
            let Dispatch::Run(run) = q.dispatch(now) else { panic!("a run") };
            now += Duration::from_millis(2);
            q.complete(run.head, Outcome { blocks: 8, failed: false }, now).expect("in flight");
            if run.head == victim {
                after = Some(n);
                break;
            }
        }
        assert_eq!(after.is_none(), other, "{after:?}");
    }
    let x = Waiting { classes: true, ..Waiting::new(true, 0) };
    assert_eq!(why(&MqDeadline::new(), x), Why::Classes);
}

#[test]
fn what_is_put_at_the_head_passes_everything() {
    let mut q = Queue::new(vec![Slot::FREE; 8], MqDeadline::new());
    let mut now = Instant::ZERO;
    let at_head = |lba| Request { flags: Flags::NOMERGE, ..Request::new(Op::Write, lba, 8, StreamId(0)) };
    let (victim, _) = q.insert_at_head(at_head(0), now).expect("room");
    q.insert_at_head(at_head(8), now).expect("room");
    for n in 2..2000u64 {
        let Dispatch::Run(run) = q.dispatch(now) else { panic!("a run") };
        assert_ne!(run.head, victim);
        now += Duration::from_millis(10);
        q.complete(run.head, Outcome { blocks: 8, failed: false }, now).expect("in flight");
        q.insert_at_head(at_head(n * 8), now).expect("room");
    }
    assert_eq!(why(&MqDeadline::new(), Waiting { at_head: true, ..Waiting::new(false, 0) }), Why::AtHead);
}
