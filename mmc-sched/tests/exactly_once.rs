//! G3: each accepted request goes out in exactly one run and completes exactly once, whatever is done in whatever
//! order, under every policy and across a change of policy.
#![cfg(all(
    feature = "mq-deadline",
    feature = "deadline",
    feature = "bfq",
    feature = "cfq",
    feature = "kyber",
    feature = "ftb"
))]

mod support;

use mmc_sched::{
    AnyPolicy, Class, Completed, Dispatch, Flags, Inserted, Limits, Merges, NoPolicy, Op, Outcome, Policy,
    Priority, Queue, Rejected, Request, RequestId, Run, Scheduler, Slot, StreamId, TuneError,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SLOTS: usize = 24;
const POLICIES: [&str; 8] =
    ["none", "mq-deadline", "mq-deadline/5.10", "deadline", "bfq", "cfq", "kyber", "ftb"];

fn policy(name: &str) -> AnyPolicy {
    AnyPolicy::by_name(name).expect("built in")
}

/// One step; the numbers are reduced to what makes sense when it is done.
#[derive(Clone, Debug)]
enum Step {
    Insert { request: Request, how: u8 },
    Dispatch,
    Complete { which: usize, failed: bool },
    Requeue { which: usize },
    Cancel { which: usize },
    Tune { tunable: usize, value: i32 },
    Limits(Limits),
    Time { ms: u64 },
    Replace { name: &'static str },
}

fn request() -> impl Strategy<Value = Request> {
    let op = prop::sample::select(vec![
        Op::Read,
        Op::Read,
        Op::Write,
        Op::Write,
        Op::Write,
        Op::Discard,
        Op::WriteZeroes,
    ]);
    let class =
        prop::sample::select(vec![Class::None, Class::None, Class::BestEffort, Class::RealTime, Class::Idle]);
    (op, 0u64..60, 1u32..5, 0u32..3, 0u8..128, class).prop_map(|(op, lba, blocks, stream, flags, class)| {
        Request {
            priority: Priority { class, level: 4 },
            // Every flag is there, but most requests have none.
            flags: Flags::from_bits_truncate(if flags < 64 { flags } else { 0 } & 0x3d),
            ..Request::new(op, lba * 2, blocks * 2, StreamId(stream))
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let limits =
        (4u32..40, 1u16..6, 1u16..4, 0u8..6).prop_map(|(sectors, segments, discards, merges)| Limits {
            max_sectors: sectors,
            max_segments: segments,
            max_discard_segments: discards,
            merges: [Merges::All, Merges::All, Merges::All, Merges::All, Merges::LastOnly, Merges::None]
                [merges as usize],
        });
    prop_oneof![
        10 => (request(), 0u8..8).prop_map(|(request, how)| Step::Insert { request, how }),
        6 => Just(Step::Dispatch),
        8 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(which, failed)| Step::Complete { which, failed }),
        1 => any::<usize>().prop_map(|which| Step::Requeue { which }),
        1 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        1 => (0usize..16, prop_oneof![-2i32..40, any::<i32>()]).prop_map(|(tunable, value)| Step::Tune { tunable, value }),
        1 => limits.prop_map(Step::Limits),
        3 => prop_oneof![0u64..20, 0u64..20_000].prop_map(|ms| Step::Time { ms }),
        1 => prop::sample::select(POLICIES.to_vec()).prop_map(|name| Step::Replace { name }),
    ]
}

/// What the test knows of the requests that were accepted and are not over.
struct Model {
    queue: Queue<[Slot; SLOTS], AnyPolicy>,
    now: Instant,
    queued: BTreeMap<RequestId, Request>,
    /// Members still at the device, by run.
    out: Vec<(Run, Vec<RequestId>)>,
    over: BTreeSet<RequestId>,
}

impl Model {
    fn new(name: &str) -> Self {
        let limits = Limits { max_sectors: 24, max_segments: 4, ..Limits::default() };
        Self {
            queue: Queue::with_limits([Slot::FREE; SLOTS], policy(name), limits),
            now: Instant::ZERO,
            queued: BTreeMap::new(),
            out: Vec::new(),
            over: BTreeSet::new(),
        }
    }

    fn insert(&mut self, request: Request, how: u8) {
        let full = self.queue.len() == SLOTS;
        if how < 4 {
            if let Some((id, what)) = self.queue.merge(&request, self.now) {
                assert!(!full && matches!(what, Inserted::Merged { .. }));
                self.accepted(id, request);
                return;
            }
        }
        let answer = if how == 7 {
            self.queue.insert_at_head(request, self.now)
        } else {
            self.queue.insert(request, self.now)
        };
        match answer {
            Ok((id, _)) => {
                assert!(!full);
                self.accepted(id, request);
            }
            Err((back, why)) => assert!(full && back == request && why == Rejected::Full, "{why}"),
        }
    }

    fn accepted(&mut self, id: RequestId, request: Request) {
        assert!(id.slot() < SLOTS);
        assert_eq!(self.queue.request(id), Some(&request));
        assert!(!self.over.contains(&id), "an id is never used again");
        assert!(self.queued.insert(id, request).is_none(), "one slot, one request");
    }

    /// True when a run went out.
    fn dispatch(&mut self) -> Dispatch {
        let what = self.queue.dispatch(self.now);
        match what {
            Dispatch::Run(run) => self.sent(run),
            Dispatch::Wait { at, completion } => {
                assert!(!self.queued.is_empty());
                assert!(at.is_some() || completion, "a wait says what ends it");
                assert!(
                    !completion || !self.out.is_empty(),
                    "{}: no completion will come",
                    self.queue.name()
                );
                assert!(at.is_none_or(|t| t > self.now), "{at:?} is past");
                assert!(completion || self.queue.wake_at().is_some_and(|t| t <= at.expect("set")));
            }
            Dispatch::Empty => assert!(self.queued.is_empty(), "{} wait", self.queued.len()),
        }
        what
    }

    fn sent(&mut self, run: Run) {
        let members: Vec<RequestId> =
            core::iter::successors(Some(run.head), |id| self.queue.next_member(*id))
                .take(SLOTS + 1)
                .collect();
        assert_eq!(members.len(), usize::from(run.count));
        let (mut at, mut blocks, mut flags) = (run.lba, 0, Flags::empty());
        for (n, id) in members.iter().enumerate() {
            let r = self.queued.remove(id).expect("queued and not sent before");
            assert_eq!(r.op, run.op);
            if run.op == Op::Discard {
                assert!(n > 0 || r.lba == run.lba);
            } else {
                assert_eq!(r.lba, at, "contiguous, in sector order");
            }
            at = r.end();
            blocks += r.blocks;
            flags |= r.flags;
            let alone =
                r.op == Op::WriteZeroes || r.flags.intersects(Flags::FUA | Flags::PREFLUSH | Flags::NOMERGE);
            assert!(!alone || run.count == 1, "{r:?} must not merge");
        }
        assert_eq!((blocks, flags, 0), (run.blocks, run.flags, run.offset));
        self.out.push((run, members));
    }

    fn complete(&mut self, which: usize, failed: bool) {
        if self.out.is_empty() {
            return;
        }
        let run = which % self.out.len();
        let members = &mut self.out[run].1;
        let id = members.remove((which / 7) % members.len());
        if members.is_empty() {
            self.out.remove(run);
        }
        let request = *self.queue.request(id).expect("in flight");
        let outcome = Outcome { blocks: request.blocks, failed };
        assert_eq!(self.queue.complete(id, outcome, self.now), Some(Completed { request, last: true }));
        assert_eq!(self.queue.complete(id, outcome, self.now), None, "only once");
        assert_eq!(self.queue.request(id), None);
        assert!(self.over.insert(id));
    }

    fn requeue(&mut self, which: usize) {
        if self.out.is_empty() {
            return;
        }
        let (mut run, members) = self.out.remove(which % self.out.len());
        run.head = members[0];
        for id in &members {
            self.queued.insert(*id, *self.queue.request(*id).expect("in flight"));
        }
        self.queue.requeue(&run, self.now);
    }

    fn cancel(&mut self, which: usize) {
        // A queued one may be cancelled, unless it is in a run; one at the device never.
        if let Some((_, members)) = self.out.first() {
            assert_eq!(self.queue.cancel(members[0]), None);
        }
        let Some((&id, &request)) = self.queued.iter().nth(which % self.queued.len().max(1)) else { return };
        let gone = self.queue.cancel(id);
        if gone.is_some() {
            assert_eq!(gone, Some(request));
            assert_eq!(self.queue.request(id), None);
            self.queued.remove(&id);
            self.over.insert(id);
        }
    }

    fn tune(&mut self, tunable: usize, value: i32) {
        let Some(t) = self.queue.tunable(tunable) else { return };
        if self.queue.tune(t.name, &value.to_string()).is_ok() {
            let now = self.queue.tunable(tunable).expect("still there");
            assert_eq!(now.name, t.name);
            assert!((now.min..=now.max).contains(&now.value), "{now:?}");
        }
        // The kernels of 2018 took any text.
        assert!(matches!(self.queue.tune(t.name, "x1"), Ok(()) | Err(TuneError::Invalid)));
        assert_eq!(self.queue.tune("no_such", "1"), Err(TuneError::Unknown));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert { request, how } => self.insert(request, how),
            Step::Dispatch => {
                self.dispatch();
            }
            Step::Complete { which, failed } => self.complete(which, failed),
            Step::Requeue { which } => self.requeue(which),
            Step::Cancel { which } => self.cancel(which),
            Step::Tune { tunable, value } => self.tune(tunable, value),
            Step::Limits(limits) => self.queue.set_limits(limits),
            Step::Time { ms } => self.now += Duration::from_millis(ms),
            Step::Replace { name } => {
                let old = self.queue.replace(policy(name), self.now);
                assert!(!old.name().is_empty());
                assert!(name.starts_with(self.queue.name()));
            }
        }
        let out: usize = self.out.iter().map(|r| r.1.len()).sum();
        assert_eq!(self.queue.len(), self.queued.len() + out);
    }

    /// All that waits goes out, without any further arrival.
    fn drain(&mut self) {
        let mut asked = 0;
        while !self.queue.is_empty() {
            asked += 1;
            assert!(asked < 4000, "{} left", self.queue.len());
            match self.dispatch() {
                Dispatch::Run(_) => {}
                Dispatch::Wait { at: Some(t), completion } if !completion => self.now = t,
                Dispatch::Wait { .. } | Dispatch::Empty => self.complete(asked, false),
            }
        }
        assert!(self.queued.is_empty() && self.out.is_empty());
        assert_eq!(self.queue.dispatch(self.now), Dispatch::Empty);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(384), ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_done_twice(name in prop::sample::select(POLICIES.to_vec()), steps in prop::collection::vec(step(), 1..250)) {
        let mut m = Model::new(name);
        for s in steps {
            m.step(s);
        }
        m.drain();
    }

    /// Runs stay within the limits that were in force all the time.
    #[test]
    fn merges_keep_the_limits(name in prop::sample::select(POLICIES.to_vec()), requests in prop::collection::vec((request(), 0u8..8), 1..24), sectors in 2u32..30, segments in 1u16..6) {
        let limits = Limits { max_sectors: sectors, max_segments: segments, ..Limits::default() };
        let mut m = Model::new(name);
        m.queue.set_limits(limits);
        for (r, how) in requests {
            m.insert(r, how);
        }
        m.drain_checked(|run| {
            run.count == 1 || run.blocks <= sectors && (run.op == Op::Discard || run.count <= segments)
        });
    }
}

impl Model {
    fn drain_checked(&mut self, ok: impl Fn(&Run) -> bool) {
        while !self.queue.is_empty() {
            match self.dispatch() {
                Dispatch::Run(run) => assert!(ok(&run), "{run:?}"),
                Dispatch::Wait { at: Some(t), completion } if !completion => self.now = t,
                _ => self.complete(0, false),
            }
        }
    }
}

#[test]
fn ranges_that_make_no_sense_come_back() {
    for name in POLICIES {
        let mut q = Queue::new([Slot::FREE; 4], policy(name));
        for (lba, blocks) in [(5, 0), (u64::MAX, 1), (u64::MAX - 6, 8)] {
            let r = Request::new(Op::Write, lba, blocks, StreamId(1));
            assert_eq!(q.merge(&r, Instant::ZERO), None);
            assert_eq!(q.insert(r, Instant::ZERO), Err((r, Rejected::BadRange)));
        }
        assert!(q.is_empty() && q.dispatch(Instant::ZERO) == Dispatch::Empty);
    }
}

#[test]
fn time_that_goes_back_counts_as_standing_still() {
    let mut q = Queue::new([Slot::FREE; 4], policy("mq-deadline"));
    let late = Instant::from_secs(100);
    let write = |lba| Request::new(Op::Write, lba, 8, StreamId(1));
    q.insert(write(1000), late).expect("room");
    // As if inserted at 100 s: due at 105 s, not at 5 s.
    let (old, _) = q.insert(write(0), Instant::ZERO).expect("room");
    let Dispatch::Run(first) = q.dispatch(late) else { panic!("a run") };
    assert_eq!(first.head, old, "in sector order, neither is due");
}

#[test]
fn unknown_ids_are_refused() {
    let mut q = Queue::new([Slot::FREE; 2], policy("none"));
    let mut other = Queue::new([Slot::FREE; 8], policy("none"));
    let r = Request::new(Op::Read, 0, 8, StreamId(1));
    for _ in 0..4 {
        other.insert(r, Instant::ZERO).expect("room");
    }
    let (foreign, _) = other.insert(Request { lba: 100, ..r }, Instant::ZERO).expect("room");
    let ok = Outcome { blocks: 8, failed: false };
    assert_eq!(q.complete(foreign, ok, Instant::ZERO), None);
    assert_eq!((q.request(foreign), q.next_member(foreign)), (None, None));
    assert_eq!(q.cancel(foreign), None);
    let (id, _) = q.insert(r, Instant::ZERO).expect("room");
    assert_eq!(q.complete(id, ok, Instant::ZERO), None, "not dispatched yet");
    assert_eq!(q.cancel(id), Some(r));
    assert_eq!(q.cancel(id), None, "stale");
    assert_eq!(q.request(id), None);
}

#[test]
fn the_storage_may_be_lent_boxed_or_an_array() {
    let r = Request::new(Op::Read, 0, 8, StreamId(1));
    let lent: &'static mut [Slot] = Box::leak(vec![Slot::FREE; 3].into_boxed_slice());
    let mut all: Vec<Box<dyn Scheduler>> = vec![
        Box::new(Queue::new([Slot::FREE; 3], policy("none"))),
        Box::new(Queue::new(lent, policy("mq-deadline"))),
        Box::new(Queue::new(vec![Slot::FREE; 3].into_boxed_slice(), policy("mq-deadline/5.10"))),
    ];
    for q in &mut all {
        assert_eq!(q.capacity(), 3);
        for n in 0..3 {
            q.insert(Request { lba: n * 100, ..r }, Instant::ZERO).expect("room");
        }
        assert!(matches!(q.insert(r, Instant::ZERO), Err((_, Rejected::Full))));
        assert_eq!(
            q.merge(&Request { lba: 8, ..r }, Instant::ZERO),
            None,
            "a merged request needs a slot too"
        );
    }
    // A lent policy, chosen at run time.
    let mut chosen = policy("mq-deadline");
    let mut q = Queue::new([Slot::FREE; 3], &mut chosen as &mut dyn Policy);
    q.insert(r, Instant::ZERO).expect("room");
    assert_eq!((q.name(), q.queued()), ("mq-deadline", 1));
    // No room at all is a full pool.
    let mut none = Queue::new([Slot::FREE; 0], policy("none"));
    assert!(matches!(none.insert(r, Instant::ZERO), Err((_, Rejected::Full))));
    assert_eq!(none.dispatch(Instant::ZERO), Dispatch::Empty);
}

#[test]
fn a_policy_that_is_not_there_is_named() {
    assert_eq!(AnyPolicy::by_name("noop").unwrap_err(), NoPolicy::Unknown);
    assert_eq!(
        NoPolicy::NotBuilt("bfq").to_string(),
        "this build has no bfq: enable the feature `bfq` of mmc-sched"
    );
}
