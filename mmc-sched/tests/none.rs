//! `none`: first in, first out, with a try to merge into the newest eight.

use mmc_sched::bound::{Bound, none};
use mmc_sched::{
    Dispatch, Inserted, Kind, NoSched, Op, Queue, Request, Scheduler, Slot, StreamId, TuneError,
};
use mmc_time::Instant;
use proptest::prelude::*;

mod support;

const T: Instant = Instant::ZERO;

fn write(lba: u64) -> Request {
    Request::new(Op::Write, lba, 8, StreamId(0))
}

#[test]
fn requests_go_out_as_they_came() {
    let mut q = Queue::new([Slot::FREE; 16], NoSched::new());
    let sectors = [900, 100, 500, 508, 0];
    for s in sectors {
        // Whole requests never merge here.
        assert_eq!(q.insert(write(s), T).expect("room").1, Inserted::Queued);
    }
    for s in sectors {
        assert!(matches!(q.dispatch(T), Dispatch::Run(run) if run.lba == s && run.count == 1));
    }
    assert_eq!(q.dispatch(T), Dispatch::Empty);
}

#[test]
fn a_bio_merges_into_the_newest_eight_at_either_end() {
    let mut q = Queue::new([Slot::FREE; 32], NoSched::new());
    for n in 0..9 {
        q.insert(write(n * 1000), T).expect("room");
    }
    assert_eq!(q.merge(&write(8), T), None, "the ninth newest is not looked at");
    assert!(q.merge(&write(1008), T).is_some(), "the eighth is");
    assert!(q.merge(&write(7992), T).is_some(), "in front of the newest");
    assert_eq!(
        q.merge(&Request { flags: mmc_sched::Flags::SYNC, ..write(5008) }, T),
        None,
        "of the same kind only"
    );
    let runs = core::iter::from_fn(|| match q.dispatch(T) {
        Dispatch::Run(run) => Some((run.lba, run.blocks, run.count)),
        _ => None,
    });
    let runs: Vec<_> = runs.collect();
    assert_eq!((runs[1], runs[8]), ((1000, 16, 2), (7992, 16, 2)));
}

#[test]
fn it_has_no_tunables_and_no_reserve() {
    let mut q = Queue::new([Slot::FREE; 4], NoSched::new());
    assert!(q.tunable(0).is_none());
    assert_eq!(q.tune("read_expire", "5"), Err(TuneError::Unknown));
    assert_eq!([q.admits(Kind::Read, 64), q.admits(Kind::Async, 64), q.admits(Kind::Async, 0)], [64, 64, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(64), ..ProptestConfig::default() })]

    /// Whatever comes later, merged or not: a request waits for those that were queued before it.
    #[test]
    fn no_request_waits_longer_than_the_bound(steps in prop::collection::vec((any::<bool>(), 0u64..12), 1..300)) {
        let mut q = Queue::new([Slot::FREE; 64], NoSched::new());
        let mut waiting: Vec<(mmc_sched::RequestId, u64, u64)> = Vec::new();
        let mut dispatched = 0;
        for (add, n) in steps {
            if add {
                let r = write(n * 8);
                let added = q.merge(&r, T).or_else(|| q.insert(r, T).ok());
                if let Some((id, _)) = added {
                    let Bound::Dispatches(bound) = none(q.queued() as u32) else { panic!("a bound") };
                    waiting.push((id, dispatched, bound));
                }
            } else if let Dispatch::Run(run) = q.dispatch(T) {
                let members = core::iter::successors(Some(run.head), |id| q.next_member(*id));
                for id in members.collect::<Vec<_>>() {
                    let i = waiting.iter().position(|w| w.0 == id).expect("waits");
                    let (_, since, bound) = waiting.swap_remove(i);
                    prop_assert!(dispatched - since <= bound, "{} > {bound}", dispatched - since);
                    q.complete(id, mmc_sched::Outcome { blocks: 8, failed: false }, T);
                }
                dispatched += 1;
            }
        }
    }
}
