//! `deadline` against `mq-deadline`: each mend, with both behaviours side by side; and the bounds of `deadline`.
#![cfg(all(feature = "mq-deadline", feature = "deadline", feature = "bfq"))]

mod support;

use mmc_sched::bound::{Bound, Waiting, Why, deadline};
use mmc_sched::{
    AnyPolicy, Class, Deadline, Dispatch, Limits, Merges, Op, Outcome, Policy, Priority, Queue, Request,
    RequestId, Scheduler, Slot, StreamId, TuneError,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::BTreeMap;

const OK: Outcome = Outcome { blocks: 8, failed: false };

struct Bench {
    queue: Queue<Vec<Slot>, AnyPolicy>,
    now: Instant,
}

impl Bench {
    fn new(name: &str) -> Self {
        let policy = AnyPolicy::by_name(name).expect("built in");
        Self { queue: Queue::new(vec![Slot::FREE; 512], policy), now: Instant::from_secs(100) }
    }
    fn insert(&mut self, class: Class, op: Op, lba: u64) -> RequestId {
        let priority = Priority { class, level: 4 };
        let r = Request { priority, ..Request::new(op, lba, 8, StreamId(0)) };
        self.queue.insert(r, self.now).expect("room").0
    }
    fn next(&mut self) -> Option<RequestId> {
        match self.queue.dispatch(self.now) {
            Dispatch::Run(run) => Some(run.head),
            _ => None,
        }
    }
    /// Gives one out and completes it 2 ms later.
    fn serve(&mut self) -> Option<RequestId> {
        let id = self.next()?;
        self.now += Duration::from_millis(2);
        self.queue.complete(id, OK, self.now).expect("in flight");
        Some(id)
    }
    /// How many go out before `id`, at most `limit`.
    fn before(&mut self, id: RequestId, limit: usize) -> Option<usize> {
        (0..limit).find(|_| self.serve() == Some(id))
    }
}

/// 7.1: a waiting request of another class keeps the deadlines of the class that is served from being looked at.
#[test]
fn a_look_into_another_class_changes_nothing() {
    for (name, bounded) in [("mq-deadline", false), ("deadline", true)] {
        let mut b = Bench::new(name);
        b.queue.set_limits(Limits { merges: Merges::None, ..Limits::default() });
        let mut at = 1 << 20;
        b.insert(Class::RealTime, Op::Write, at);
        b.serve();
        let victim = b.insert(Class::RealTime, Op::Read, 0);
        b.insert(Class::None, Op::Write, 0);
        let mut found = None;
        for n in 0..4000 {
            at += 8;
            b.insert(Class::RealTime, Op::Write, at);
            if b.serve() == Some(victim) {
                found = Some(n);
                break;
            }
        }
        assert_eq!(found.is_some(), bounded, "{name}: {found:?}");
    }
}

/// 7.2: a real-time request at the device keeps lower classes waiting though the device has room.
#[test]
fn a_class_is_served_when_no_higher_one_is_queued() {
    for (name, works) in [("mq-deadline", false), ("deadline", true)] {
        let mut b = Bench::new(name);
        b.insert(Class::RealTime, Op::Read, 0);
        let be = b.insert(Class::None, Op::Read, 800);
        assert!(b.next().is_some());
        assert_eq!(b.next() == Some(be), works, "{name}");
    }
}

/// §6: with one real-time request at the device at all times, best effort waits for its age, 10 s, and the device is half
/// idle.
#[test]
fn a_higher_class_at_the_device_does_not_starve_the_others() {
    for (name, at_least_ms, at_most_ms) in [("mq-deadline", 9_900, 10_100), ("deadline", 0, 0)] {
        let mut b = Bench::new(name);
        let start = b.now;
        b.insert(Class::RealTime, Op::Read, 0);
        let mut at_device = b.next().expect("goes");
        let victim = b.insert(Class::None, Op::Read, 800);
        let waited = (1..9_000).find_map(|n| {
            let waited = b.now.since(start);
            if b.next() == Some(victim) {
                return Some(waited.as_millis());
            }
            b.now += Duration::from_millis(2);
            b.insert(Class::RealTime, Op::Read, n * 100);
            let next = b.next().expect("room for two");
            b.queue.complete(at_device, OK, b.now).expect("at the device");
            at_device = next;
            (next == victim).then(|| b.now.since(start).as_millis())
        });
        assert!(waited.is_some_and(|t| (at_least_ms..=at_most_ms).contains(&t)), "{name}: {waited:?} ms");
    }
}

/// 7.3: all aged requests go before real time.
#[test]
fn aged_requests_take_turns_with_real_time() {
    for (name, most) in [("mq-deadline", 300), ("deadline", 1)] {
        let mut b = Bench::new(name);
        for n in 0..300 {
            b.insert(Class::Idle, Op::Read, n * 100);
        }
        b.now += Duration::from_secs(11);
        let rt = b.insert(Class::RealTime, Op::Read, 7);
        let n = b.before(rt, 400).expect("served");
        assert!(n <= most && (most == 1 || n == most), "{name}: {n}");
    }
}

/// 7.3: a young request ahead in the sweep hides an aged one, until the batch ends.
#[test]
fn the_aged_request_itself_goes() {
    for (name, most) in [("mq-deadline", 15), ("deadline", 0)] {
        let mut b = Bench::new(name);
        for n in 0..33 {
            b.insert(Class::None, Op::Write, n * 100);
            b.serve();
        }
        let aged = b.insert(Class::None, Op::Write, 0);
        b.now += Duration::from_secs(11);
        b.insert(Class::None, Op::Write, 9000);
        for n in 0..40 {
            b.insert(Class::RealTime, Op::Write, n * 100);
        }
        assert_eq!(b.before(aged, 100), Some(most), "{name}");
    }
}

/// 7.5: lowering an expire time stalls an idle device.
#[test]
fn a_lowered_expire_time_counts_at_once() {
    for (name, works) in [("mq-deadline", false), ("deadline", true)] {
        let mut b = Bench::new(name);
        b.queue.tune("write_expire", "60000").expect("a tunable");
        let id = b.insert(Class::None, Op::Write, 0);
        b.queue.tune("write_expire", "100").expect("a tunable");
        assert_eq!(b.next() == Some(id), works, "{name}");
    }
}

/// 7.6 and §6: settings without a bound are taken without a word.
#[test]
fn settings_without_a_bound_are_refused() {
    for (tunable, value) in
        [("writes_starved", "0"), ("writes_starved", "-1"), ("fifo_batch", "2147483647"), ("fifo_batch", "0")]
    {
        assert_eq!(Bench::new("mq-deadline").queue.tune(tunable, value), Ok(()));
        let mut b = Bench::new("deadline");
        assert_eq!(b.queue.tune(tunable, value), Err(TuneError::Range), "{tunable}={value}");
        assert_eq!(b.queue.tune(tunable, "x"), Err(TuneError::Invalid));
    }
    assert_eq!(Bench::new("deadline").queue.tune("async_depth", "5"), Err(TuneError::Unknown));
}

/// 7.7: a read that ends where a write ends hides it from a merge.
#[test]
fn no_other_kind_hides_a_merge() {
    for (name, merges) in [("mq-deadline", false), ("deadline", true)] {
        for bio in [false, true] {
            let mut b = Bench::new(name);
            b.insert(Class::None, Op::Write, 9000);
            b.insert(Class::None, Op::Write, 92);
            b.insert(Class::None, Op::Read, 92);
            let r = Request {
                priority: Priority { class: Class::None, level: 4 },
                ..Request::new(Op::Write, 100, 8, StreamId(0))
            };
            if bio {
                assert_eq!(b.queue.merge(&r, b.now).is_some(), merges, "{name}");
            } else {
                b.queue.insert(r, b.now).expect("room");
                assert_eq!(b.queue.queued(), if merges { 3 } else { 4 }, "{name}");
            }
        }
    }
}

/// 7.9: what is put at the head goes last in, first out.
#[test]
fn requeued_requests_keep_their_order() {
    for (name, in_order) in [("mq-deadline", false), ("deadline", true)] {
        let mut b = Bench::new(name);
        let ids = [b.insert(Class::None, Op::Read, 0), b.insert(Class::None, Op::Read, 100)];
        let runs = [0, 1].map(|_| match b.queue.dispatch(b.now) {
            Dispatch::Run(run) => run,
            other => panic!("{other:?}"),
        });
        for run in runs {
            b.queue.requeue(&run, b.now);
        }
        assert_eq!([b.next(), b.next()] == ids.map(Some), in_order, "{name}");
    }
}

/// 7.10: a fresh scheduler serves writes first.
#[test]
fn a_fresh_scheduler_serves_reads_first() {
    for (name, reads_first) in [("mq-deadline", false), ("deadline", true)] {
        let mut b = Bench::new(name);
        b.insert(Class::None, Op::Write, 0);
        let read = b.insert(Class::None, Op::Read, 100);
        assert_eq!(b.next() == Some(read), reads_first, "{name}");
    }
}

/// What is known of a queued request.
struct Seen {
    r: Request,
    order: u64,
    due: Instant,
    aged: Instant,
    /// Others given out since it was first seen due (or aged), and how many were ahead of it then.
    late: Option<(u64, u32)>,
    older: Option<(u64, u32)>,
}

fn lower(r: &Request) -> bool {
    r.priority.class != Class::RealTime
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(48), ..ProptestConfig::default() })]

    /// Random and adversarial arrivals in all classes: the top class keeps its bound whatever is below, the lower
    /// ones keep theirs whatever is above, and something goes out whenever something waits.
    #[test]
    fn every_class_keeps_its_bound(
        batch in prop::sample::select(vec![1u32, 2, 4, 16]), starved in 1u32..4, read_ms in 1u32..80,
        write_ms in 1u32..80, age_ms in 1u32..400, classes in 1u64..4, adversary: bool, seed in 1u64..,
    ) {
        let mut policy = Deadline::new();
        for (name, value) in [
            ("fifo_batch", batch), ("writes_starved", starved), ("read_expire", read_ms),
            ("write_expire", write_ms), ("prio_aging_expire", age_ms),
        ] {
            policy.tune(name, &value.to_string()).expect("a tunable");
        }
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        let mut q = Queue::with_limits(vec![Slot::FREE; 48], policy, limits);
        let mut x = seed;
        let mut below = |n: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % n
        };
        let mut now = Instant::from_secs(1);
        let mut waiting: BTreeMap<RequestId, Seen> = BTreeMap::new();
        let mut sweep = 0;
        let mut order = 0u64;
        for _ in 0..500 {
            let arrivals = if adversary { 2 } else { below(4) };
            for _ in 0..arrivals {
                // With one class in use that is best effort: its own aged requests take turns too.
                let class = match classes {
                    1 => Class::BestEffort,
                    n => [Class::RealTime, Class::BestEffort, Class::Idle][below(n) as usize],
                };
                let op = if below(2) == 0 { Op::Read } else { Op::Write };
                let lba = if adversary && below(8) != 0 { sweep + below(4) * 8 } else { below(3000) };
                let r = Request { priority: Priority { class, level: 0 }, ..Request::new(op, lba, 8, StreamId(0)) };
                let Ok((id, _)) = q.insert(r, now) else { continue };
                order += 1;
                let expire = Duration::from_millis(u64::from(if op.is_read() { read_ms } else { write_ms }));
                let aged = now + Duration::from_millis(u64::from(age_ms));
                waiting.insert(id, Seen { r, order, due: now + expire, aged, late: None, older: None });
            }
            let mut seen = Vec::new();
            for (id, s) in &waiting {
                let ahead = |f: &dyn Fn(&Request) -> bool| {
                    waiting.values().filter(|o| o.order < s.order && f(&o.r)).count() as u32
                };
                let lane = |r: &Request| r.op.is_read() == s.r.op.is_read() && r.priority == s.r.priority;
                let late = (s.late.is_none() && s.due <= now).then(|| (0, ahead(&lane)));
                let aged = s.older.is_none() && s.aged <= now && lower(&s.r);
                seen.push((*id, late, aged.then(|| (0, ahead(&lower)))));
            }
            for (id, late, older) in seen {
                let s = waiting.get_mut(&id).expect("waits");
                s.late = s.late.or(late);
                s.older = s.older.or(older);
            }
            let run = match q.dispatch(now) {
                Dispatch::Run(run) => run,
                Dispatch::Empty => {
                    prop_assert!(waiting.is_empty());
                    now += Duration::from_millis(1);
                    continue;
                }
                Dispatch::Wait { .. } => { prop_assert!(false, "work waits"); unreachable!() }
            };
            let s = waiting.remove(&run.head).expect("was queued");
            sweep = run.lba + 8;
            let t = *q.policy().tunables();
            if let Some((n, ahead)) = s.late.filter(|_| classes == 1 || !lower(&s.r)) {
                let bound = deadline(&t, Waiting::new(s.r.op.is_read(), ahead));
                prop_assert!(matches!(bound, Bound::Dispatches(most) if n <= most), "{} of {:?}", n, bound);
            }
            if let Some((n, ahead)) = s.older {
                let bound = deadline(&t, Waiting { classes: true, ..Waiting::new(s.r.op.is_read(), ahead) });
                prop_assert!(matches!(bound, Bound::Dispatches(most) if n <= most), "{} of {:?}", n, bound);
            }
            for s in waiting.values_mut() {
                for (n, _) in s.late.iter_mut().chain(&mut s.older) {
                    *n += 1;
                }
            }
            now += Duration::from_micros(200 + below(6000));
            q.complete(run.head, OK, now).expect("in flight");
        }
    }
}

#[test]
fn only_the_head_is_without_a_bound() {
    let t = *Deadline::new().tunables();
    assert_eq!(
        deadline(&t, Waiting { at_head: true, ..Waiting::new(true, 0) }),
        Bound::Unbounded(Why::AtHead)
    );
    // 31 of mq-deadline, and a turn of an aged request in each batch.
    assert_eq!(deadline(&t, Waiting::new(true, 0)), Bound::Dispatches(33));
    assert_eq!(deadline(&t, Waiting { classes: true, ..Waiting::new(true, 9) }), Bound::Dispatches(169));
}
