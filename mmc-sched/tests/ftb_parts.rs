//! Parts of requests under `ftb`: every sector goes out and is done once, whatever fails, comes back, is put under
//! another policy or ends with a length that makes no sense.
#![cfg(all(feature = "ftb", feature = "mq-deadline"))]

mod support;

use mmc_sched::{
    AnyPolicy, Dispatch, Op, Outcome, Queue, Request, RequestId, Run, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Flusher(u32),
    Reader,
    Dispatch,
    Complete { which: usize, failed: bool, lie: u8 },
    Requeue(usize),
    Replace(bool),
    Time(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (300u32..6000).prop_map(Step::Flusher),
        3 => Just(Step::Reader),
        8 => Just(Step::Dispatch),
        6 => (any::<usize>(), prop::bool::weighted(0.1), 0u8..40)
            .prop_map(|(which, failed, lie)| Step::Complete { which, failed, lie }),
        1 => any::<usize>().prop_map(Step::Requeue),
        1 => prop::bool::weighted(0.7).prop_map(Step::Replace),
        2 => (0u64..300).prop_map(Step::Time),
    ]
}

struct Model {
    queue: Queue<[Slot; 16], AnyPolicy>,
    now: Instant,
    /// Sectors that went out, of how many.
    sent: BTreeMap<RequestId, (u32, u32)>,
    out: Vec<Run>,
    lied: bool,
    parts: u64,
    at: u64,
}

fn policy(ftb: bool) -> AnyPolicy {
    AnyPolicy::by_name(if ftb { "ftb" } else { "mq-deadline" }).unwrap()
}

impl Model {
    fn insert(&mut self, r: Request) {
        self.at += 10_000;
        if let Ok((id, _)) = self.queue.insert(r, self.now) {
            self.sent.insert(id, (0, r.blocks));
        }
    }
    fn dispatch(&mut self) -> Dispatch {
        let what = self.queue.dispatch(self.now);
        if let Dispatch::Run(run) = what {
            let sent = self.sent.get_mut(&run.head).unwrap();
            assert_eq!(run.offset, sent.0, "parts follow each other");
            sent.0 += run.blocks;
            assert!(sent.0 <= sent.1 && run.blocks > 0 && run.count == 1);
            self.parts += u64::from(run.offset > 0);
            self.out.push(run);
        }
        what
    }
    fn complete(&mut self, which: usize, failed: bool, lie: u8) {
        if self.out.is_empty() {
            return;
        }
        // Parts of one request end in the order they went.
        let head = self.out[which % self.out.len()].head;
        let i = self.out.iter().position(|r| r.head == head).unwrap();
        let run = self.out.remove(i);
        let blocks = match lie {
            0 => 1,
            1 => u32::MAX,
            _ => run.blocks,
        };
        self.lied |= blocks != run.blocks;
        let done = self.queue.complete(run.head, Outcome { blocks, failed }, self.now);
        if self.lied && done.is_some_and(|d| !d.last) {
            // There is more to be said of it.
            self.out.push(run);
        }
        if !self.lied {
            let (sent, all) = self.sent[&run.head];
            let more = self.out.iter().any(|r| r.head == run.head);
            let done = done.unwrap();
            assert!(done.last || more || sent < all);
            if done.last {
                assert!(!more);
                self.sent.remove(&run.head);
            }
        }
    }
    fn step(&mut self, step: Step) {
        match step {
            Step::Flusher(n) => self.insert(Request::new(Op::Write, self.at, n, StreamId(1))),
            Step::Reader => self.insert(Request::new(Op::Read, self.at, 8, StreamId(2))),
            Step::Dispatch => drop(self.dispatch()),
            Step::Complete { which, failed, lie } => self.complete(which, failed, lie),
            Step::Requeue(which) => {
                let Some(i) = which.checked_rem(self.out.len()) else { return };
                let newest = self.out.iter().rposition(|r| r.head == self.out[i].head).unwrap();
                let run = self.out.remove(newest);
                self.sent.get_mut(&run.head).unwrap().0 = run.offset;
                self.queue.requeue(&run, self.now);
            }
            Step::Replace(ftb) => drop(self.queue.replace(policy(ftb), self.now)),
            Step::Time(ms) => self.now += Duration::from_millis(ms),
        }
    }
}

fn model() -> Model {
    let queue = Queue::new([Slot::FREE; 16], policy(true));
    Model { queue, now: Instant::ZERO, sent: BTreeMap::new(), out: Vec::new(), lied: false, parts: 0, at: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(256), ..ProptestConfig::default() })]

    #[test]
    fn every_sector_goes_out_once(honest in prop::bool::weighted(0.8), steps in prop::collection::vec(step(), 1..200)) {
        let mut m = model();
        for s in steps {
            let s = match s {
                Step::Complete { which, failed, .. } if honest => Step::Complete { which, failed, lie: 9 },
                // Whoever lies about lengths cannot take anything back.
                Step::Requeue(_) if !honest => continue,
                other => other,
            };
            if m.lied {
                break;
            }
            m.step(s);
        }
        if m.lied {
            // Nothing hangs: whatever is said to end ends, until nothing is left.
            for _ in 0..2000 {
                match m.queue.dispatch(m.now) {
                    Dispatch::Run(run) => m.out.push(run),
                    Dispatch::Wait { at: Some(t), completion: false } => m.now = t,
                    _ => {
                        let Some(run) = m.out.first().copied() else { break };
                        let ok = Outcome { blocks: run.blocks, failed: false };
                        if m.queue.complete(run.head, ok, m.now).is_none_or(|d| d.last) {
                            m.out.retain(|r| r.head != run.head);
                        } else if m.out.iter().filter(|r| r.head == run.head).count() > 1 {
                            m.out.remove(0);
                        }
                    }
                }
            }
            prop_assert!(m.queue.is_empty(), "{} left", m.queue.len());
        } else {
            for n in 0..2000 {
                match m.dispatch() {
                    Dispatch::Run(_) => {}
                    Dispatch::Wait { at: Some(t), completion: false } => m.now = t,
                    Dispatch::Empty if m.out.is_empty() => break,
                    _ => m.complete(n, false, 9),
                }
            }
            prop_assert!(m.queue.is_empty() && m.sent.is_empty());
        }
    }
}

/// The property above is about something: with a reader about, a megabyte goes in parts.
#[test]
fn a_large_write_goes_in_parts_while_somebody_reads() {
    let mut m = model();
    m.insert(Request::new(Op::Read, 0, 8, StreamId(2)));
    m.insert(Request::new(Op::Write, 1 << 20, 4096, StreamId(1)));
    let mut order = Vec::new();
    while !m.queue.is_empty() {
        match m.dispatch() {
            Dispatch::Run(run) => order.push((run.op, run.offset, run.blocks)),
            _ => {
                m.now += Duration::from_millis(1);
                m.complete(0, false, 9);
            }
        }
    }
    assert_eq!(order[0], (Op::Read, 0, 8));
    assert_eq!(order[1..].iter().map(|o| o.2).sum::<u32>(), 4096);
    assert!(order.len() > 4 && m.parts > 2, "{order:?}");
    assert!(m.sent.is_empty());
}
