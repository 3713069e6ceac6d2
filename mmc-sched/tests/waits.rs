//! "Nothing now" says what ends it, and not too late.
#![cfg(feature = "mq-deadline")]

mod support;

use mmc_sched::{
    Class, Dispatch, MqDeadline, Op, Outcome, Priority, Queue, Request, RequestId, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

type Deadline = Queue<[Slot; 16], MqDeadline>;

fn request(class: Class, op: Op, lba: u64) -> Request {
    Request { priority: Priority { class, level: 0 }, ..Request::new(op, lba, 8, StreamId(0)) }
}

/// Lowering `write_expire` makes queued writes look as if they began in the future: the device idles, and the
/// wait names the instant at which it ends.
#[test]
fn a_lowered_expire_time_stalls_until_the_instant_that_is_named() {
    let mut q = Queue::new([Slot::FREE; 16], MqDeadline::new());
    q.tune("write_expire", "60000").expect("a tunable");
    let (id, _) = q.insert(request(Class::None, Op::Write, 0), Instant::ZERO).expect("room");
    q.tune("write_expire", "100").expect("a tunable");
    let end = Instant::from_millis(59_900);
    assert_eq!(q.dispatch(Instant::ZERO), Dispatch::Wait { at: Some(end), completion: false });
    assert_eq!(q.wake_at(), Some(end));
    let early = Instant::from_nanos(end.as_nanos() - 1);
    assert_eq!(q.dispatch(early), Dispatch::Wait { at: Some(end), completion: false });
    assert!(matches!(q.dispatch(end), Dispatch::Run(run) if run.head == id));
}

/// A real-time request at the device keeps best effort waiting though the device has room: until it completes, or
/// until the other one is aged.
#[test]
fn a_lower_class_waits_for_a_completion_or_its_age() {
    let mut q = Queue::new([Slot::FREE; 16], MqDeadline::new());
    let (rt, _) = q.insert(request(Class::RealTime, Op::Read, 0), Instant::ZERO).expect("room");
    let (be, _) = q.insert(request(Class::BestEffort, Op::Read, 80), Instant::from_millis(7)).expect("room");
    assert!(matches!(q.dispatch(Instant::from_millis(7)), Dispatch::Run(run) if run.head == rt));
    let wait = q.dispatch(Instant::from_millis(600));
    let aged = Instant::from_millis(10_007);
    assert_eq!(wait, Dispatch::Wait { at: Some(aged), completion: true });
    let mut other = q.clone();
    assert!(matches!(other.dispatch(aged), Dispatch::Run(run) if run.head == be));
    q.complete(rt, Outcome { blocks: 8, failed: false }, Instant::from_millis(601)).expect("in flight");
    assert!(matches!(q.dispatch(Instant::from_millis(601)), Dispatch::Run(run) if run.head == be));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(200), ..ProptestConfig::default() })]

    /// Whatever the classes and tunables: no dispatch before the named instant would have given a run, unless that
    /// is the original's own "ask again after 3 ms".
    #[test]
    fn no_run_comes_before_the_named_instant(
        steps in prop::collection::vec((0u8..8, 0u64..40, 0u64..1500, 0u32..3000), 1..120),
        probes in prop::collection::vec(0u64..1000, 4),
    ) {
        let mut q: Deadline = Queue::new([Slot::FREE; 16], MqDeadline::new());
        let mut now = Instant::from_secs(1);
        let mut out: Vec<RequestId> = Vec::new();
        for (what, n, ms, value) in steps {
            let class = [Class::RealTime, Class::None, Class::Idle][(n % 3) as usize];
            let op = if n % 2 == 0 { Op::Read } else { Op::Write };
            match what {
                0..=2 => drop(q.insert(request(class, op, n * 100), now)),
                3 => {
                    let name = ["read_expire", "write_expire", "prio_aging_expire"][(n % 3) as usize];
                    q.tune(name, &value.to_string()).expect("a tunable");
                }
                4 => now += Duration::from_millis(ms),
                5 if !out.is_empty() => {
                    let id = out.swap_remove(n as usize % out.len());
                    q.complete(id, Outcome { blocks: 8, failed: false }, now).expect("in flight");
                }
                _ => match q.dispatch(now) {
                    Dispatch::Run(run) => out.push(run.head),
                    Dispatch::Empty => prop_assert_eq!(q.queued(), 0),
                    Dispatch::Wait { at, completion } => {
                        prop_assert!(completion || at.is_some());
                        prop_assert!(!completion || !out.is_empty());
                        prop_assert_eq!(q.wake_at(), at);
                        let span = at.map_or(Duration::from_secs(3600), |t| t - now);
                        for p in &probes {
                            let early = now + Duration::from_nanos(span.as_nanos() / 1000 * p);
                            let answer = q.clone().dispatch(early);
                            let again = at.is_some_and(|t| t <= now + Duration::from_millis(3));
                            let waits = matches!(answer, Dispatch::Wait { .. });
                            prop_assert!(again || waits, "{:?} at {:?}", answer, early);
                        }
                    }
                },
            }
        }
    }
}
