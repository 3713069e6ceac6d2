//! Every policy gives way to every other with requests queued, at the device, and back from it: nothing is lost,
//! nothing is done twice, and every sector goes out once.
//!
//! Which order a change keeps is in `switch.rs`; changes at any moment among all else are in `exactly_once.rs`.

mod support;

use mmc_sched::{
    AnyPolicy, Dispatch, Flags, Limits, Op, Outcome, Queue, Request, RequestId, Run, Scheduler, Slot,
    StreamId,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

fn names() -> impl Iterator<Item = &'static str> {
    AnyPolicy::NAMES.iter().copied().chain(cfg!(feature = "mq-deadline").then_some("mq-deadline/5.10"))
}

fn policy(name: &str) -> AnyPolicy {
    AnyPolicy::by_name(name).expect("built in")
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Request),
    Dispatch,
    Complete(usize),
    /// Dispatched, and given back at once.
    Bounce,
    Time(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop::sample::select(vec![Op::Read, Op::Write, Op::Write, Op::Discard]);
    // Small ones that touch each other, and some that are handed out in parts.
    let blocks = prop_oneof![4 => 1u32..4, 1 => 200u32..3000];
    let request = (op, 0u64..40, blocks, 0u32..4, any::<bool>()).prop_map(|(op, at, n, stream, sync)| {
        let flags = if sync { Flags::SYNC } else { Flags::empty() };
        Request { flags, ..Request::new(op, at * 8, n * 8, StreamId(stream)) }
    });
    prop_oneof![
        8 => request.prop_map(Step::Insert),
        4 => Just(Step::Dispatch),
        3 => any::<usize>().prop_map(Step::Complete),
        1 => Just(Step::Bounce),
        1 => (0u64..300).prop_map(Step::Time),
    ]
}

/// A request that was accepted and is not over.
struct Open {
    request: Request,
    sent: u32,
    /// Sectors of its parts at the device.
    out: VecDeque<u32>,
}

struct Model {
    queue: Queue<Vec<Slot>, AnyPolicy>,
    now: Instant,
    open: BTreeMap<RequestId, Open>,
    accepted: usize,
    over: usize,
}

impl Model {
    fn new(name: &str) -> Self {
        let limits = Limits { max_sectors: 8192, max_segments: 4, ..Limits::default() };
        Self {
            queue: Queue::with_limits(vec![Slot::FREE; 32], policy(name), limits),
            now: Instant::ZERO,
            open: BTreeMap::new(),
            accepted: 0,
            over: 0,
        }
    }

    fn replace(&mut self, name: &str) {
        let (len, queued) = (self.queue.len(), self.queue.queued());
        self.queue.replace(policy(name), self.now);
        assert!(name.starts_with(self.queue.name()));
        assert_eq!((self.queue.len(), self.queue.queued()), (len, queued));
        for (id, open) in &self.open {
            assert_eq!(self.queue.request(*id), Some(&open.request), "ids and requests stay");
        }
    }

    fn members(&self, run: &Run) -> Vec<RequestId> {
        std::iter::successors(Some(run.head), |id| self.queue.next_member(*id)).collect()
    }

    fn dispatch(&mut self) -> Dispatch {
        let answer = self.queue.dispatch(self.now);
        let Dispatch::Run(run) = answer else { return answer };
        let members = self.members(&run);
        assert_eq!(members.len(), usize::from(run.count));
        let mut sectors = 0;
        for id in members {
            let open = self.open.get_mut(&id).expect("accepted and not over");
            assert_eq!(open.sent, if run.count == 1 { run.offset } else { 0 }, "each sector once, in order");
            let blocks = if run.count == 1 { run.blocks } else { open.request.blocks };
            assert!(
                run.op == Op::Discard
                    || open.request.lba + u64::from(open.sent) == run.lba + u64::from(sectors)
            );
            open.sent += blocks;
            assert!(blocks > 0 && open.sent <= open.request.blocks);
            open.out.push_back(blocks);
            sectors += blocks;
        }
        assert_eq!(sectors, run.blocks);
        answer
    }

    fn bounce(&mut self) {
        let Dispatch::Run(run) = self.dispatch() else { return };
        for id in self.members(&run) {
            let open = self.open.get_mut(&id).expect("accepted and not over");
            open.sent -= open.out.pop_back().expect("just dispatched");
        }
        self.queue.requeue(&run, self.now);
    }

    fn complete(&mut self, which: usize) {
        let out = self.open.iter().filter(|(_, o)| !o.out.is_empty());
        let ids: Vec<RequestId> = out.map(|(id, _)| *id).collect();
        let Some(&id) = ids.get(which % ids.len().max(1)) else { return };
        let open = self.open.get_mut(&id).expect("listed");
        let blocks = open.out.pop_front().expect("listed");
        let last = open.sent == open.request.blocks && open.out.is_empty();
        let outcome = Outcome { blocks, failed: false };
        let done = self.queue.complete(id, outcome, self.now).expect("at the device");
        assert_eq!((done.request, done.last), (open.request, last));
        if last {
            self.open.remove(&id);
            self.over += 1;
            assert_eq!(self.queue.complete(id, outcome, self.now), None, "only once");
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Insert(r) => {
                let accepted = self.queue.merge(r, self.now).map(|(id, _)| id);
                if let Some(id) = accepted.or_else(|| Some(self.queue.insert(*r, self.now).ok()?.0)) {
                    self.accepted += 1;
                    let open = Open { request: *r, sent: 0, out: VecDeque::new() };
                    assert!(self.open.insert(id, open).is_none(), "one id, one request");
                }
            }
            Step::Dispatch => drop(self.dispatch()),
            Step::Complete(which) => self.complete(*which),
            Step::Bounce => self.bounce(),
            Step::Time(ms) => self.now += Duration::from_millis(*ms),
        }
        assert_eq!(self.queue.len(), self.open.len());
    }

    fn drain(&mut self) {
        for turn in 0..10_000 {
            match self.dispatch() {
                Dispatch::Run(_) => {}
                Dispatch::Empty if self.queue.is_empty() => {
                    assert_eq!((self.open.len(), self.over), (0, self.accepted));
                    return;
                }
                Dispatch::Wait { at: Some(at), completion: false } => self.now = at,
                Dispatch::Wait { .. } | Dispatch::Empty => self.complete(turn),
            }
        }
        panic!("{} requests left", self.queue.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(24), ..ProptestConfig::default() })]

    #[test]
    fn between_any_two_policies_nothing_is_lost_and_nothing_is_done_twice(
        before in prop::collection::vec(step(), 1..60),
        after in prop::collection::vec(step(), 0..40),
    ) {
        for from in names() {
            for to in names() {
                let mut m = Model::new(from);
                before.iter().for_each(|s| m.step(s));
                m.replace(to);
                after.iter().for_each(|s| m.step(s));
                // And there again at once, as a script that tries them all does.
                m.replace(from);
                m.replace(to);
                m.drain();
            }
        }
    }
}
