//! What must be true inside the policy after every call, under random use with too few places for the streams.

extern crate std;
use super::wf2q::{Place, bits};
use super::*;
use crate::{Class, Dispatch, Flags, Limits, Op, Outcome, Priority, Queue, RequestId, Scheduler, Slot};
use mmc_time::Duration;
use proptest::prelude::*;
use std::vec::Vec;

const N: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Insert(Request, bool),
    Dispatch,
    Complete(usize),
    Requeue(usize),
    Cancel(usize),
    Tune(usize, u32),
    Weight(u32, Option<u32>),
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
    (any::<bool>(), 0u64..200, 1u32..20, 0u32..8, 0u8..4, class, 0u8..8).prop_map(
        |(read, lba, blocks, stream, flags, class, level)| Request {
            priority: Priority { class, level },
            flags: Flags::from_bits_truncate(flags),
            ..Request::new(if read { Op::Read } else { Op::Write }, lba * 8, blocks * 8, StreamId(stream))
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (request(), prop::bool::weighted(0.05)).prop_map(|(r, head)| Step::Insert(r, head)),
        8 => Just(Step::Dispatch),
        8 => any::<usize>().prop_map(Step::Complete),
        1 => any::<usize>().prop_map(Step::Requeue),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0usize..10, 0u32..300).prop_map(|(i, v)| Step::Tune(i, v)),
        1 => (0u32..8, prop::option::of(1u32..=1000)).prop_map(|(s, w)| Step::Weight(s, w)),
        4 => prop_oneof![0u64..20, 0u64..4000].prop_map(Step::Time),
    ]
}

/// Masks, places, weights and counts agree.
fn check(bfq: &Bfq<N>) {
    for (class, tree) in bfq.engine.trees.iter().enumerate() {
        let mut weights = 0;
        for i in 0..N {
            let e = bfq.engine.get(i);
            let here = e.class() == class;
            let is = |place: Place| here && e.place() == place;
            assert_eq!(bits(tree.active).any(|b| b == i), is(Place::Active), "{i} waits");
            assert_eq!(bits(tree.idle).any(|b| b == i), is(Place::Idle), "{i} is remembered");
            if here && e.place() != Place::Off {
                weights += u64::from(e.weight());
            }
        }
        assert_eq!(tree.wsum, weights, "weights of class {class}");
    }
    let mut queued = 0;
    for i in 0..N {
        let (s, e) = (bfq.stream(i), bfq.engine.get(i));
        queued += u32::from(s.requests.len());
        assert_eq!(s.requests.len() > 0, s.requests.next().is_some());
        assert!(s.requests.len() == 0 || bfq.is_busy(i), "{i} has work and waits");
        assert_eq!(bfq.engine.serving() == Some(i), e.place() == Place::Serving);
    }
    assert!(queued <= bfq.queued, "the others are ahead of all streams");
    assert!(bfq.ahead.is_empty() == (queued == bfq.queued));
    assert!(bfq.idle_until.is_none() || bfq.engine.serving().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(128),
        ..ProptestConfig::default()
    })]

    #[test]
    fn its_books_balance_whatever_is_done(steps in prop::collection::vec(step(), 1..200)) {
        let mut queue = Queue::with_limits(std::vec![Slot::FREE; 40], Bfq::<N>::new(), Limits::default());
        let mut now = Instant::ZERO;
        let mut ids: Vec<RequestId> = Vec::new();
        let mut runs: Vec<crate::Run> = Vec::new();
        let (mut accepted, mut done) = (0, 0);
        let complete = |queue: &mut Queue<Vec<Slot>, Bfq<N>>, run: crate::Run, now| {
            let mut next = Some(run.head);
            let mut n = 0;
            while let Some(id) = next {
                next = queue.next_member(id);
                let blocks = queue.request(id).map_or(0, |r| r.blocks);
                n += i32::from(queue.complete(id, Outcome { blocks, failed: false }, now).is_some());
            }
            n
        };
        for step in steps {
            match step {
                Step::Insert(r, head) => {
                    let merged = if head { None } else { queue.merge(&r, now) };
                    let answer = match merged {
                        Some(answer) => Ok(answer),
                        None if head => queue.insert_at_head(r, now),
                        None => queue.insert(r, now),
                    };
                    if let Ok((id, _)) = answer {
                        accepted += 1;
                        ids.push(id);
                    }
                }
                Step::Dispatch => match queue.dispatch(now) {
                    Dispatch::Run(run) => runs.push(run),
                    Dispatch::Wait { at, completion } => {
                        prop_assert!(at.is_none_or(|t| t > now) && (at.is_some() || completion));
                        prop_assert!(!completion || !runs.is_empty());
                    }
                    Dispatch::Empty => prop_assert_eq!(queue.policy().queued, 0),
                },
                Step::Complete(i) if !runs.is_empty() => {
                    let run = runs.swap_remove(i % runs.len());
                    done += complete(&mut queue, run, now);
                }
                Step::Requeue(i) if !runs.is_empty() => {
                    let run = runs.swap_remove(i % runs.len());
                    queue.requeue(&run, now);
                }
                Step::Cancel(i) if !ids.is_empty() => {
                    let id = ids.swap_remove(i % ids.len());
                    done += i32::from(queue.cancel(id).is_some());
                }
                Step::Complete(_) | Step::Requeue(_) | Step::Cancel(_) => {}
                Step::Tune(i, value) => {
                    let name = queue.tunable(i).unwrap().name;
                    let set = queue.tune(name, &std::format!("{value}"));
                    prop_assert_eq!(set, Ok(()));
                }
                Step::Weight(stream, weight) => {
                    let _ = queue.policy_mut().set_weight(StreamId(stream), weight);
                }
                Step::Time(ms) => now += Duration::from_millis(ms),
            }
            check(queue.policy());
            prop_assert_eq!(queue.policy().in_flight as usize, runs.len());
        }
        // All that is left comes out, within as many waits as there are requests.
        for _ in 0..1000 {
            match queue.dispatch(now) {
                Dispatch::Run(run) => done += complete(&mut queue, run, now),
                Dispatch::Wait { at: Some(at), .. } => now = at,
                Dispatch::Wait { at: None, .. } => {
                    let run = runs.pop().unwrap();
                    done += complete(&mut queue, run, now);
                }
                Dispatch::Empty => break,
            }
            check(queue.policy());
        }
        for run in runs {
            done += complete(&mut queue, run, now);
        }
        prop_assert_eq!(done, accepted);
        prop_assert_eq!((queue.policy().queued, queue.policy().in_flight), (0, 0));
    }
}
