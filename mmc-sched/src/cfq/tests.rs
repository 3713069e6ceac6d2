//! What must be true inside the policy after every call, under random use with too few places for the streams.

extern crate std;
use super::*;
use crate::{Class, Dispatch, Flags, Op, Outcome, Priority, RequestId, Run, Scheduler, Slot};
use proptest::prelude::*;
use std::vec::Vec;

const N: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Insert(Request),
    Dispatch,
    Complete(usize),
    Requeue(usize),
    Cancel(usize),
    Tune(usize, u32),
    Time(u64),
}

fn request() -> impl Strategy<Value = Request> {
    let class = prop::sample::select(std::vec![
        Class::None,
        Class::None,
        Class::BestEffort,
        Class::RealTime,
        Class::Idle
    ]);
    (any::<bool>(), 0u64..200, 0u32..6, 0u8..4, class, 0u8..8).prop_map(
        |(read, lba, stream, flags, class, level)| Request {
            priority: Priority { class, level },
            flags: Flags::from_bits_truncate(flags),
            ..Request::new(if read { Op::Read } else { Op::Write }, lba * 8, 8, StreamId(stream))
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => request().prop_map(Step::Insert),
        8 => Just(Step::Dispatch),
        8 => any::<usize>().prop_map(Step::Complete),
        1 => any::<usize>().prop_map(Step::Requeue),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0usize..17, 0u32..300).prop_map(|(i, v)| Step::Tune(i, v)),
        4 => prop_oneof![0u64..20, 0u64..4000].prop_map(Step::Time),
    ]
}

/// Lines, queues and counts agree.
fn check(cfq: &Cfq<N>) {
    let (mut listed, mut sync) = (0, 0);
    for rank in [Rank::RealTime, Rank::BestEffort, Rank::Idle] {
        for load in Load::ALL {
            if rank == Rank::Idle && load != Load::Async {
                continue;
            }
            let line = Line { rank, load };
            let (mut at, mut before, mut count) = (cfq.first(line), None, 0);
            while let Some(i) = at {
                let q = cfq.queue(i);
                assert_eq!(q.line, Some(line));
                assert_eq!(q.prev.map(usize::from), before);
                assert!(before.is_none_or(|b| cfq.queue(b).key <= q.key), "in order of keys");
                count += 1;
                sync += u32::from(q.sync);
                (before, at) = (Some(i), q.next.map(usize::from));
            }
            assert_eq!(count, cfq.count(line));
            listed += count;
        }
    }
    let all = || (0..ASYNC_QUEUES + N).map(|i| (i, cfq.queue(i)));
    assert_eq!(all().filter(|(_, q)| q.line.is_some()).count(), listed as usize);
    assert_eq!((cfq.busy(), cfq.busy_sync), (listed, sync));
    for (i, q) in all() {
        let n = q.requests.len();
        assert_eq!(n > 0, q.requests.next().is_some());
        assert!(n == 0 || q.line.is_some(), "work without a place");
        assert!(n > 0 || q.line.is_none() || cfq.active() == Some(i), "a place without work");
    }
    assert!(cfq.active().is_none_or(|i| cfq.queue(i).line.is_some()));
    assert_eq!(all().map(|(_, q)| u32::from(q.requests.len())).sum::<u32>(), cfq.queued);
    assert_eq!(all().filter(|(_, q)| q.sync).map(|(_, q)| q.out).sum::<u32>(), cfq.sync_out);
}

/// Requests of 8 sectors far apart, one for each stream, all queued and none given out.
fn with_streams(streams: &[(Op, Class)]) -> crate::Queue<Vec<Slot>, Cfq<8>> {
    let mut queue = crate::Queue::new(std::vec![Slot::FREE; 40], Cfq::<8>::new());
    for (n, (op, class)) in (0..).zip(streams) {
        let priority = Priority { class: *class, level: 4 };
        let r = Request { priority, ..Request::new(*op, n * 1000, 8, StreamId(n as u32)) };
        queue.insert(r, Instant::ZERO).unwrap();
    }
    queue
}

/// §3: an equal key puts a queue behind, unless it is its own.
#[test]
fn the_place_of_a_queue_changes_only_with_its_key() {
    let mut queue = with_streams(&[(Op::Read, Class::BestEffort); 3]);
    let cfq = queue.policy_mut();
    let line = Line { rank: Rank::BestEffort, load: Load::Sync };
    let order = |cfq: &Cfq<8>| {
        let next = |i: &usize| cfq.queue(*i).next.map(usize::from);
        core::iter::successors(cfq.first(line), next).map(|i| i - ASYNC_QUEUES).collect::<Vec<_>>()
    };
    const MS: i64 = 1_000_000;
    let keys = [0, 1, 2].map(|i| cfq.queue(ASYNC_QUEUES + i).key / MS);
    assert_eq!(keys, [-80, 0, 80], "(B - 1)·(180 - 100)");
    for i in 0..3 {
        cfq.edit(ASYNC_QUEUES + i, |q| q.fresh = true);
    }
    cfq.place(ASYNC_QUEUES, false, -80 * MS);
    assert_eq!((cfq.queue(ASYNC_QUEUES).key, order(cfq)), (80 * MS, std::vec![1, 2, 0]));
    cfq.place(ASYNC_QUEUES + 2, false, -80 * MS);
    assert_eq!(order(cfq), [1, 2, 0]);
    cfq.place(ASYNC_QUEUES + 2, true, 0);
    assert_eq!((cfq.queue(ASYNC_QUEUES + 2).key, order(cfq)), (-1000 * MS, std::vec![2, 1, 0]));
}

/// §4, in milliseconds: a share of 300 by the queues of the type, for async ones of all queues and 0.4 of it.
#[test]
fn a_type_is_served_for_its_share() {
    const READ: (Op, Class) = (Op::Read, Class::BestEffort);
    const WRITE: (Op, Class) = (Op::Write, Class::BestEffort);
    const IDLE: (Op, Class) = (Op::Read, Class::Idle);
    let share = |streams: &[(Op, Class)], load| {
        let mut queue = with_streams(streams);
        let cfq = queue.policy_mut();
        cfq.serving = Line { rank: Rank::BestEffort, load };
        cfq.workload() / 1_000_000
    };
    assert_eq!(share(&[READ, READ, READ, WRITE], Load::Sync), 225);
    assert_eq!(share(&[READ, READ, READ, WRITE], Load::Async), 30);
    assert_eq!(share(&[READ, WRITE, IDLE, IDLE], Load::Sync), 150, "of its class only");
    assert_eq!(share(&[READ, WRITE, IDLE, IDLE], Load::Async), 30, "a quarter of all, not half of its class");
    let mut queue = with_streams(&[READ, WRITE]);
    queue.policy_mut().average = [0, 10];
    queue.policy_mut().serving = Line { rank: Rank::BestEffort, load: Load::Sync };
    assert_eq!(queue.policy().workload() / 1_000_000, 30, "more were busy before");
}

/// §5: the number of busy queues is averaged, and slices are shortened when they would not fit the target.
#[test]
fn slices_shrink_to_fit_the_target() {
    let mut queue = with_streams(&[(Op::Read, Class::BestEffort); 8]);
    let cfq = queue.policy_mut();
    let slices: Vec<i64> = (0..4).map(|_| cfq.slice(ASYNC_QUEUES) / 1_000).collect();
    // 6 busy queues at first, since there were none before; then 8.
    assert_eq!(slices, [50_000, 37_500, 37_500, 37_500]);
    cfq.settings.low_latency = false;
    assert_eq!(cfq.slice(ASYNC_QUEUES), 100_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(128),
        ..ProptestConfig::default()
    })]

    #[test]
    fn its_books_balance_whatever_is_done(steps in prop::collection::vec(step(), 1..200)) {
        let mut queue = crate::Queue::new(std::vec![Slot::FREE; 40], Cfq::<N>::new());
        let mut now = Instant::ZERO;
        let mut ids: Vec<RequestId> = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        for s in steps {
            match s {
                Step::Insert(r) => match queue.merge(&r, now) {
                    Some((id, _)) => ids.push(id),
                    None => ids.extend(queue.insert(r, now).ok().map(|(id, _)| id)),
                },
                Step::Dispatch => match queue.dispatch(now) {
                    Dispatch::Run(run) => runs.push(run),
                    Dispatch::Wait { at, completion } => {
                        prop_assert!(at.is_none() && completion && !runs.is_empty());
                    }
                    Dispatch::Empty => prop_assert_eq!(queue.queued(), 0),
                },
                Step::Complete(n) if !runs.is_empty() => {
                    let run = runs.swap_remove(n % runs.len());
                    let mut next = Some(run.head);
                    while let Some(id) = next {
                        next = queue.next_member(id);
                        queue.complete(id, Outcome { blocks: 8, failed: false }, now).unwrap();
                    }
                }
                Step::Requeue(n) if !runs.is_empty() => {
                    let run = runs.swap_remove(n % runs.len());
                    queue.requeue(&run, now);
                }
                Step::Cancel(n) if !ids.is_empty() => {
                    queue.cancel(ids.swap_remove(n % ids.len()));
                }
                Step::Tune(i, v) => {
                    let t = queue.tunable(i).unwrap();
                    let fits = t.max > 0 || v == 0;
                    prop_assert_eq!(queue.tune(t.name, &std::format!("{v}")).is_ok(), fits);
                }
                Step::Time(ms) => now += Duration::from_millis(ms),
                _ => {}
            }
            check(queue.policy());
        }
        while !queue.is_empty() {
            if let Dispatch::Run(run) = queue.dispatch(now) {
                runs.push(run);
            }
            let run = runs.pop().unwrap();
            let mut next = Some(run.head);
            while let Some(id) = next {
                next = queue.next_member(id);
                queue.complete(id, Outcome { blocks: 8, failed: false }, now).unwrap();
            }
            check(queue.policy());
        }
        prop_assert!((0..ASYNC_QUEUES + N).all(|i| queue.policy().queue(i).out == 0));
    }
}
