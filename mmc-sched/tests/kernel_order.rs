//! The rules 5.10 issue what a 5.10 kernel issued, in the same order.
//!
//! `tests/data/kernel_order/*.txt` hold every recorded insertion, merge and issue of two runs on an emulated SD
//! card (`reduce.py` there made them from the ftrace); one dispatch is made for each recorded issue.
#![cfg(feature = "mq-deadline")]

use mmc_sched::mq_deadline::Rules;
use mmc_sched::{
    Dispatch, Inserted, Joined, MqDeadline, Op, Outcome, Queue, Request, RequestId, Scheduler, Slot, StreamId,
};
use mmc_time::Instant;

/// The kernel counts time in ticks of 4 ms (HZ=250).
fn jiffies(us: u64) -> Instant {
    Instant::from_micros(us / 4000 * 4000)
}

/// Recorded issues, and how many of them came out the same in the same place.
fn replay(text: &str, rules: Rules, check: bool) -> (usize, usize) {
    let mut q = Queue::new(vec![Slot::FREE; 1024], MqDeadline::with_rules(rules));
    let (mut issued, mut same) = (0, 0);
    let mut out: Vec<RequestId> = Vec::new();
    for line in text.lines() {
        let f: Vec<&str> = line.split(' ').collect();
        let n = |i: usize| f[i].parse::<u64>().expect("number");
        let now = jiffies(n(0));
        let op = if f[2] == "r" { Op::Read } else { Op::Write };
        let r = Request::new(op, n(3), n(4) as u32, StreamId(0));
        match f[1] {
            "I" => {
                let what = q.insert(r, now).expect("room").1;
                assert!(!check || what == Inserted::Queued, "{line}");
            }
            "M" => {
                let what = q.insert(r, now).expect("room").1;
                assert!(!check || what != Inserted::Queued, "{line}");
            }
            "B" | "F" => {
                let merged = q.merge(&r, now).is_some();
                let how = if f[1] == "B" { Joined::Back } else { Joined::Front };
                assert!(!check || merged && q.joined() == Some(how), "{line}");
            }
            "D" => {
                issued += 1;
                for id in out.drain(..) {
                    q.complete(id, Outcome { blocks: 1, failed: false }, now).expect("in flight");
                }
                if let Dispatch::Run(run) = q.dispatch(now) {
                    same += usize::from((run.op, run.lba, run.blocks) == (op, r.lba, r.blocks));
                    let mut at = Some(run.head);
                    while let Some(id) = at {
                        out.push(id);
                        at = q.next_member(id);
                    }
                }
            }
            other => panic!("event {other}"),
        }
    }
    (issued, same)
}

#[test]
fn bonnie_on_5_10_is_reissued_in_order() {
    assert_eq!(replay(include_str!("data/kernel_order/bv510-mq.txt"), Rules::V5_10, true), (2961, 2961));
}

#[test]
fn the_fio_mix_on_5_10_is_reissued_in_order() {
    assert_eq!(replay(include_str!("data/kernel_order/mv510-mq.txt"), Rules::V5_10, true), (857, 857));
}

/// The comparison can fail: the rules of today do not reproduce that kernel.
#[test]
fn the_rules_of_today_issue_otherwise() {
    let (issued, same) = replay(include_str!("data/kernel_order/bv510-mq.txt"), Rules::V7_3, false);
    assert!(same < issued, "{same} of {issued}");
}
