//! The policy changes while requests are queued and at the device, as `echo none > scheduler` does.
#![cfg(feature = "mq-deadline")]

use mmc_sched::{
    AnyPolicy, Dispatch, MqDeadline, Op, Outcome, Policy, Queue, Request, RequestId, Run, Scheduler, Slot,
    StreamId,
};
use mmc_time::Instant;

const T: Instant = Instant::ZERO;
const OK: Outcome = Outcome { blocks: 8, failed: false };

fn write(lba: u64) -> Request {
    Request::new(Op::Write, lba, 8, StreamId(0))
}

fn run(q: &mut impl Scheduler) -> Run {
    match q.dispatch(T) {
        Dispatch::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

fn queue(name: &str, sectors: &[u64]) -> (Queue<[Slot; 16], AnyPolicy>, Vec<RequestId>) {
    let mut q = Queue::new([Slot::FREE; 16], AnyPolicy::by_name(name).expect("built in"));
    let ids = sectors.iter().map(|s| q.insert(write(*s), T).expect("room").0).collect();
    (q, ids)
}

#[test]
fn queued_runs_go_over_in_the_order_they_arrived() {
    let (mut q, _) = queue("mq-deadline", &[700, 300, 900, 100, 308]);
    let old = q.replace(AnyPolicy::by_name("none").expect("built in"), T);
    assert_eq!((old.name(), q.name(), q.len()), ("mq-deadline", "none", 5));
    // 308 had joined 300 before.
    let order: Vec<(u64, u16)> = (0..4).map(|_| run(&mut q)).map(|r| (r.lba, r.count)).collect();
    assert_eq!(order, [(700, 1), (300, 2), (900, 1), (100, 1)]);
}

#[test]
fn requeued_runs_stay_in_front() {
    let (mut q, ids) = queue("mq-deadline", &[100, 200, 300]);
    let (a, b) = (run(&mut q), run(&mut q));
    q.requeue(&a, T);
    q.requeue(&b, T);
    q.replace(AnyPolicy::by_name("none").expect("built in"), T);
    // The last one put in front goes first, as it would have.
    assert_eq!([run(&mut q).head, run(&mut q).head, run(&mut q).head], [ids[1], ids[0], ids[2]]);
}

#[test]
fn completions_of_the_old_policys_requests_are_not_counted_by_the_new_one() {
    let mut q = Queue::new([Slot::FREE; 16], MqDeadline::new());
    let ids: Vec<_> = [0, 100, 200].iter().map(|s| q.insert(write(*s), T).expect("room").0).collect();
    run(&mut q);
    let flying = run(&mut q);
    q.replace(MqDeadline::new(), T);
    assert_eq!(q.policy().state().queued, [0, 1, 0]);
    assert!(q.complete(ids[0], OK, T).expect("in flight").last);
    assert_eq!(q.policy().state().queued, [0, 1, 0]);
    // One that was out under the old policy and comes back is the new one's.
    q.requeue(&flying, T);
    assert_eq!(q.policy().state().queued, [0, 2, 0]);
    assert_eq!(run(&mut q).head, ids[1]);
    q.complete(ids[1], OK, T).expect("in flight");
    assert_eq!(run(&mut q).head, ids[2]);
    q.complete(ids[2], OK, T).expect("in flight");
    assert_eq!(q.policy().state().queued, [0; 3]);
    assert_eq!(q.policy().state().owned, [0; 3]);
}

#[test]
fn merging_goes_on_with_what_was_queued_before() {
    let (mut q, ids) = queue("none", &[100, 300]);
    q.replace(AnyPolicy::by_name("mq-deadline").expect("built in"), T);
    let (_, what) = q.merge(&write(308), T).expect("touches 300");
    assert_eq!(what, mmc_sched::Inserted::Merged { into: ids[1] });
    let (_, what) = q.merge(&write(92), T).expect("touches 100");
    assert_eq!(what, mmc_sched::Inserted::Merged { into: ids[0] });
}
