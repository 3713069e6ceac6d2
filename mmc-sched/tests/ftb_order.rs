//! F9 of `ftb`: nothing passes a barrier, a flush comes after the writes it flushes; and what `cover` does.
#![cfg(feature = "ftb")]

mod support;

use mmc_sched::{
    Dispatch, Flags, Ftb, Limits, Merges, Op, Outcome, Queue, Request, RequestId, Run, Scheduler, Slot,
    StreamId,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Insert(Request),
    Dispatch,
    Complete(usize),
    Requeue,
    Cancel(usize),
    Cover(u32, u32),
    Time(u64),
}

fn request() -> impl Strategy<Value = Request> {
    let flags = prop::sample::select(vec![
        Flags::empty(),
        Flags::empty(),
        Flags::SYNC,
        Flags::SYNC,
        Flags::BARRIER,
        Flags::BARRIER | Flags::SYNC,
        Flags::PREFLUSH,
        Flags::PREFLUSH | Flags::BARRIER,
    ]);
    (0u32..3, 0u64..40, prop::sample::select(vec![8u32, 8, 16, 3000]), flags, 0u8..4).prop_map(
        |(stream, at, blocks, flags, read)| {
            let op = if read == 0 && !flags.contains(Flags::PREFLUSH) { Op::Read } else { Op::Write };
            Request { flags, ..Request::new(op, at * 8, blocks, StreamId(stream)) }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => request().prop_map(Step::Insert),
        6 => Just(Step::Dispatch),
        6 => any::<usize>().prop_map(Step::Complete),
        1 => Just(Step::Requeue),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0u32..3, 0u32..3).prop_map(|(a, b)| Step::Cover(a, b)),
        2 => (0u64..400).prop_map(Step::Time),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Order of arrival.
    order: usize,
    request: Request,
    sent: bool,
}

struct Model {
    queue: Queue<[Slot; 32], Ftb<8, 8>>,
    now: Instant,
    arrived: usize,
    /// Accepted and not over.
    alive: BTreeMap<RequestId, Known>,
    out: Vec<(Run, Vec<RequestId>)>,
}

impl Model {
    fn new(slots: u32) -> Self {
        let mut queue = Queue::new([Slot::FREE; 32], Ftb::new());
        queue.tune("device_slots", &slots.to_string()).unwrap();
        Self { queue, now: Instant::ZERO, arrived: 0, alive: BTreeMap::new(), out: Vec::new() }
    }

    fn dispatch(&mut self) -> Dispatch {
        let what = self.queue.dispatch(self.now);
        if let Dispatch::Run(run) = what {
            let ids: Vec<RequestId> =
                std::iter::successors(Some(run.head), |id| self.queue.next_member(*id)).collect();
            for id in &ids {
                self.may_go(*id);
            }
            for id in &ids {
                self.alive.get_mut(id).unwrap().sent = true;
            }
            self.out.push((run, ids));
        }
        what
    }

    fn may_go(&self, id: RequestId) {
        let me = self.alive[&id];
        let barrier = |r: &Request| r.flags.contains(Flags::BARRIER);
        for (other, o) in &self.alive {
            if *other == id || o.request.stream != me.request.stream {
                continue;
            }
            let both_fine = !barrier(&me.request) && !barrier(&o.request);
            // One that goes again has had its turn.
            let (first, second) = if o.order < me.order { (o, &me) } else { (&me, o) };
            assert!(
                both_fine || me.sent || first.order == me.order && !second.sent,
                "{:?} passes {:?}",
                second.request,
                first.request
            );
            let flushed = me.request.flags.contains(Flags::PREFLUSH) && !me.sent;
            assert!(
                !flushed || o.order > me.order || o.request.op.is_read(),
                "{:?} before {:?} is done",
                me.request,
                o.request
            );
        }
        if me.request.flags.contains(Flags::PREFLUSH) && !me.sent {
            assert!(self.out.is_empty(), "a flush goes into an empty device");
        }
    }

    fn complete(&mut self, which: usize) {
        if self.out.is_empty() {
            return;
        }
        let run = which % self.out.len();
        // Parts of one request end in the order they went.
        let head = self.out[run].0.head;
        let run = self.out.iter().position(|(r, _)| r.head == head).unwrap();
        let (run, ids) = self.out.remove(run);
        for id in ids {
            let blocks = if run.count == 1 { run.blocks } else { self.alive[&id].request.blocks };
            let done = self.queue.complete(id, Outcome { blocks, failed: false }, self.now).unwrap();
            if done.last {
                self.alive.remove(&id);
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert(request) => {
                let got = self.queue.merge(&request, self.now);
                let got = got.or_else(|| self.queue.insert(request, self.now).ok());
                if let Some((id, _)) = got {
                    self.arrived += 1;
                    self.alive.insert(id, Known { order: self.arrived, request, sent: false });
                }
            }
            Step::Dispatch => drop(self.dispatch()),
            Step::Complete(which) => self.complete(which),
            Step::Requeue => {
                if let Some((run, _)) = self.out.pop() {
                    self.queue.requeue(&run, self.now);
                }
            }
            Step::Cancel(which) => {
                let id = self.alive.keys().nth(which % self.alive.len().max(1)).copied();
                if let Some(id) = id.filter(|id| self.queue.cancel(*id).is_some()) {
                    self.alive.remove(&id);
                }
            }
            Step::Cover(by, covered) => {
                self.queue.policy_mut().cover(StreamId(by), StreamId(covered));
            }
            Step::Time(ms) => self.now += Duration::from_millis(ms),
        }
    }

    fn drain(&mut self) {
        for n in 0..5000 {
            match self.dispatch() {
                Dispatch::Run(_) => {}
                Dispatch::Wait { at: Some(t), completion: false } => self.now = t,
                Dispatch::Wait { .. } => {
                    assert!(!self.out.is_empty());
                    self.complete(n);
                }
                Dispatch::Empty if self.out.is_empty() => break,
                Dispatch::Empty => self.complete(n),
            }
        }
        assert!(self.queue.is_empty() && self.alive.is_empty(), "{} left", self.alive.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(256), ..ProptestConfig::default() })]

    #[test]
    fn nothing_passes_a_barrier_and_a_flush_comes_behind_its_writes(slots in 1u32..9, steps in prop::collection::vec(step(), 1..200)) {
        let mut m = Model::new(slots);
        for s in steps {
            m.step(s);
        }
        m.drain();
    }

    /// No hold, no contended gap ends before the instant that is named, and none later.
    #[test]
    fn waits_end_at_the_instant_that_is_named(slots in 1u32..5, steps in prop::collection::vec((0u8..10, 0u64..4000), 20..200), probes in prop::collection::vec(0u64..1000, 4)) {
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        let mut q = Queue::with_limits([Slot::FREE; 32], Ftb::<8, 8>::new(), limits);
        q.tune("device_slots", &slots.to_string()).unwrap();
        let (mut now, mut out, mut n) = (Instant::from_secs(1), std::collections::VecDeque::new(), 0);
        for (what, us) in steps {
            n += 1;
            match what {
                0 | 1 => drop(q.insert(Request::new(Op::Write, n * 1024, 1024, StreamId(1)), now)),
                2..=4 => drop(q.insert(Request::new(Op::Read, (1 << 20) + n * 97, 8, StreamId(2)), now)),
                5 => now += Duration::from_micros(us * 40),
                6 => now += Duration::from_micros(us / 8),
                _ => {}
            }
            loop {
                match q.dispatch(now) {
                    Dispatch::Run(run) => out.push_back(run),
                    Dispatch::Empty => break,
                    Dispatch::Wait { at, completion } => {
                        prop_assert!(completion || at.is_some());
                        prop_assert!(!completion || !out.is_empty());
                        prop_assert_eq!(q.wake_at(), at);
                        let Some(t) = at else { break };
                        for p in &probes {
                            let early = now + Duration::from_nanos((t - now).as_nanos() / 1000 * p);
                            let waits = matches!(q.clone().dispatch(early), Dispatch::Wait { .. });
                            prop_assert!(waits, "before {:?}, at {:?}", t, early);
                        }
                        if completion { break }
                        now = t;
                    }
                }
            }
            if what > 6 {
                if let Some(run) = out.pop_front() {
                    let run: Run = run;
                    now += Duration::from_micros(100 + u64::from(run.blocks) * 30);
                    q.complete(run.head, Outcome { blocks: run.blocks, failed: false }, now).unwrap();
                }
            }
        }
    }
}

const NOW: Instant = Instant::ZERO;

fn put(q: &mut impl Scheduler, stream: u32, op: Op, lba: u64, flags: Flags) -> RequestId {
    q.insert(Request { flags, ..Request::new(op, lba, 8, StreamId(stream)) }, NOW).unwrap().0
}
/// Each takes a millisecond, with what is waited before it.
fn next(q: &mut impl Scheduler, n: u64) -> RequestId {
    let mut now = Instant::from_millis(n);
    let run = loop {
        match q.dispatch(now) {
            Dispatch::Run(run) => break run,
            Dispatch::Wait { at: Some(at), .. } => now = at,
            other => panic!("{other:?}"),
        }
    };
    let end = now.max(Instant::from_millis(n + 1));
    let done = q.complete(run.head, Outcome { blocks: run.blocks, failed: false }, end);
    assert!(done.unwrap().last);
    run.head
}

#[test]
fn a_flush_keeps_only_its_own_stream_waiting() {
    let mut q = Queue::new([Slot::FREE; 16], Ftb::<4>::new());
    let sync = Flags::SYNC;
    let write = put(&mut q, 1, Op::Write, 800, sync);
    let Dispatch::Run(first) = q.dispatch(NOW) else { panic!() };
    assert_eq!(first.head, write);
    let flush = put(&mut q, 1, Op::Write, 0, Flags::PREFLUSH);
    let other = put(&mut q, 2, Op::Write, 400, sync);
    let Dispatch::Run(second) = q.dispatch(NOW) else { panic!("the other stream goes") };
    assert_eq!(second.head, other);
    let ok = Outcome { blocks: 8, failed: false };
    assert_eq!(q.dispatch(NOW), Dispatch::Wait { at: None, completion: true });
    q.complete(write, ok, NOW).unwrap();
    assert_eq!(q.dispatch(NOW), Dispatch::Wait { at: None, completion: true }, "the device is not empty");
    q.complete(other, ok, NOW).unwrap();
    assert_eq!(next(&mut q, 1), flush);
}

#[test]
fn what_an_fsync_waits_for_goes_with_its_weight() {
    let order = |cover: bool| {
        let mut q = Queue::new([Slot::FREE; 64], Ftb::<8>::new());
        q.set_limits(Limits { merges: Merges::None, ..Limits::default() });
        q.policy_mut().set_weight(StreamId(1), Some(1)).unwrap();
        let pages: Vec<RequestId> =
            (0..4).map(|i| put(&mut q, 1, Op::Write, i * 8, Flags::empty())).collect();
        let busy: Vec<RequestId> =
            (0..20).map(|i| put(&mut q, 2, Op::Write, 10_000 + i * 8, Flags::SYNC)).collect();
        if cover {
            assert!(q.policy_mut().cover(StreamId(3), StreamId(1)));
        }
        let later = put(&mut q, 1, Op::Write, 100, Flags::empty());
        let flush = put(&mut q, 3, Op::Write, 50_000, Flags::PREFLUSH);
        let mut order = Vec::new();
        while !q.is_empty() {
            order.push(next(&mut q, order.len() as u64));
        }
        let at = |id: &RequestId| order.iter().position(|o| o == id).unwrap();
        let last_page = pages.iter().map(at).max().unwrap();
        assert!(!cover || at(&flush) > last_page, "the flush comes behind what it waits for");
        assert!(at(&later) > at(&busy[19]) || !cover, "what came later is not covered");
        let owes = q.policy().account(StreamId(1), false).unwrap();
        (last_page, at(&flush), owes.charged > Duration::ZERO)
    };
    let (alone, covered) = (order(false), order(true));
    println!("{alone:?} {covered:?}");
    assert!(covered.0 < 10 && alone.0 > 15, "{alone:?} {covered:?}");
    assert!(covered.1 < 12 && covered.2, "and the flusher pays");
    let mut q = Queue::new([Slot::FREE; 4], Ftb::<4>::new());
    assert!(!q.policy_mut().cover(StreamId(3), StreamId(1)), "nothing to wait for");
    assert!(q.is_empty());
}
