//! A policy says the same whether it stands alone, behind a reference, in `AnyPolicy`, or in a scheduler inside of
//! another: no wrapper forgets a call.

mod support;

use mmc_sched::{
    AnyPolicy, Class, Completed, Dispatch, Flags, Kind, Limits, Op, Outcome, Policy, Priority, Queue,
    Request, RequestId, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(Request),
    Dispatch,
    Complete(usize, bool),
    Bounce,
    Cancel(usize),
    Time(u64),
    Tune(usize, i64),
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop::sample::select(vec![Op::Read, Op::Write, Op::Write, Op::Discard]);
    let class = prop::sample::select(vec![Class::None, Class::BestEffort, Class::RealTime, Class::Idle]);
    // Neighbours that merge at both ends and close gaps, long ones that go out in parts, and more streams than some have room for.
    let blocks = prop_oneof![6 => Just(8u32), 1 => 200u32..3000];
    let request = (op, 0u64..24, blocks, 0u32..80, any::<bool>(), class).prop_map(
        |(op, at, n, stream, sync, class)| {
            let flags = if sync { Flags::SYNC } else { Flags::empty() };
            Request {
                flags,
                priority: Priority { class, level: 4 },
                ..Request::new(op, at * 8, n, StreamId(stream / 16 * (stream % 3 + 1)))
            }
        },
    );
    prop_oneof![
        10 => request.prop_map(Step::Insert),
        3 => Just(Step::Dispatch),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(n, bad)| Step::Complete(n, bad)),
        1 => Just(Step::Bounce),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => (0u64..300).prop_map(Step::Time),
        1 => (0usize..40, 0i64..200).prop_map(|(n, value)| Step::Tune(n, value)),
    ]
}

/// A scheduler that does nothing but hand on.
struct Inside<S> {
    inner: S,
}

impl<S: Scheduler> Scheduler for Inside<S> {
    mmc_sched::hand_on!(inner);
    fn dispatch(&mut self, now: Instant) -> Dispatch {
        self.inner.dispatch(now)
    }
    fn complete(&mut self, id: RequestId, outcome: Outcome, now: Instant) -> Option<Completed> {
        self.inner.complete(id, outcome, now)
    }
}

fn queue<P: Policy>(policy: P) -> Queue<Vec<Slot>, P> {
    let limits = Limits { max_sectors: 4096, max_segments: 8, ..Limits::default() };
    Queue::with_limits(vec![Slot::FREE; 24], policy, limits)
}

/// Everything a scheduler says to these steps.
fn said(mut queue: impl Scheduler, steps: &[Step]) -> Vec<String> {
    let (mut now, mut known, mut said) =
        (Instant::ZERO, Vec::new(), vec![format!("{} {}", queue.name(), queue.capacity())]);
    for step in steps {
        let line = match step {
            Step::Insert(request) => {
                let admitted = queue.admits_request(request, 24);
                let merged = queue.merge(request, now);
                let reply = if merged.is_none() { Some(queue.insert(*request, now)) } else { None };
                known.extend(merged.map(|(id, _)| id));
                if let Some(Ok((id, _))) = reply {
                    known.push(id);
                }
                format!("{admitted} {merged:?} {reply:?}")
            }
            Step::Dispatch => {
                let reply = queue.dispatch(now);
                let head = if let Dispatch::Run(run) = &reply { Some(run.head) } else { None };
                let members = std::iter::successors(head, |&id| queue.next_member(id));
                format!("{reply:?} {:?}", members.map(|id| queue.request(id)).collect::<Vec<_>>())
            }
            Step::Bounce => {
                let reply = queue.dispatch(now);
                if let Dispatch::Run(run) = &reply {
                    queue.requeue(run, now);
                }
                format!("{reply:?}")
            }
            Step::Complete(n, failed) if !known.is_empty() => {
                let id = known[n % known.len()];
                let blocks = queue.request(id).map_or(0, |r| r.blocks);
                format!("{:?}", queue.complete(id, Outcome { blocks, failed: *failed }, now))
            }
            Step::Cancel(n) if !known.is_empty() => format!("{:?}", queue.cancel(known[n % known.len()])),
            Step::Complete(..) | Step::Cancel(_) => String::new(),
            Step::Time(ms) => {
                now += Duration::from_millis(*ms);
                String::new()
            }
            Step::Tune(n, value) => {
                let name = queue.tunable(*n).map_or("no_such", |info| info.name);
                format!("{:?}", queue.tune(name, &value.to_string()))
            }
        };
        let kinds = [Kind::Read, Kind::SyncWrite, Kind::Async].map(|kind| queue.admits(kind, 24));
        said.push(format!("{step:?}: {line} {kinds:?} {:?} {}", queue.wake_at(), queue.len()));
    }
    said.extend((0..40).map(|i| format!("{:?}", queue.tunable(i))));
    said
}

fn the_same(name: &str, mut alone: impl Policy, again: impl Policy, steps: &[Step]) {
    let expected = said(queue(again), steps);
    assert_eq!(said(queue(&mut alone), steps), expected, "{name} behind a reference");
    let any = || queue(AnyPolicy::by_name(name).expect("built in"));
    assert_eq!(said(any(), steps), expected, "{name} by its name");
    assert_eq!(said(Inside { inner: any() }, steps), expected, "{name} in a scheduler inside of another");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(48)))]
    #[test]
    fn no_wrapper_forgets_a_call(steps in prop::collection::vec(step(), 1..200)) {
        the_same("none", mmc_sched::NoSched::new(), mmc_sched::NoSched::new(), &steps);
        #[cfg(feature = "mq-deadline")]
        the_same("mq-deadline", mmc_sched::MqDeadline::new(), mmc_sched::MqDeadline::new(), &steps);
        #[cfg(feature = "deadline")]
        the_same("deadline", mmc_sched::Deadline::new(), mmc_sched::Deadline::new(), &steps);
        #[cfg(feature = "bfq")]
        the_same("bfq", mmc_sched::Bfq::<64>::new(), mmc_sched::Bfq::<64>::new(), &steps);
        #[cfg(feature = "cfq")]
        the_same("cfq", mmc_sched::Cfq::<64>::new(), mmc_sched::Cfq::<64>::new(), &steps);
        #[cfg(feature = "kyber")]
        the_same("kyber", mmc_sched::Kyber::new(), mmc_sched::Kyber::new(), &steps);
        #[cfg(feature = "ftb")]
        the_same("ftb", mmc_sched::Ftb::<64>::new(), mmc_sched::Ftb::<64>::new(), &steps);
    }
}
