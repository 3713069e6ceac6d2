//! Policies written outside of the crate, one of which hands out large requests in parts: what `Queue` promises such
//! ones, what they see, what they need not say, and that one behind a reference is asked all the same.

use mmc_sched::{
    Completed, Dispatch, Done, Fifo, Flags, Inserted, Kind, MergeScope, Op, Outcome, Pick, Policy, Pool,
    Queue, Rejected, Request, RequestId, Run, Scheduler, Slot, StreamId, TunableInfo, TuneError,
};
use mmc_time::Instant;

/// Round robin, eight sectors at a time.
#[derive(Default)]
struct Slices {
    list: Fifo,
    in_device: i32,
    ended: Vec<Done>,
}

impl Policy for Slices {
    fn name(&self) -> &'static str {
        "slices"
    }
    fn reset(&mut self, _: &mut Pool<'_>, _: Instant) {
        self.list = Fifo::new();
    }
    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, _: Instant) {
        self.list.push_back(pool, slot);
    }
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, _: bool, _: Instant) {
        self.list.push_front(pool, slot);
    }
    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.list.remove(pool, slot);
    }
    fn may_merge(&self, _: &Pool<'_>, _: u16, _: &Request) -> bool {
        false
    }
    fn absorbed(&mut self, _: &mut Pool<'_>, _: u16, _: u16, _: bool) {
        panic!("never merges");
    }
    fn pick(&mut self, pool: &mut Pool<'_>, _: Instant) -> Pick {
        let Some(slot) = self.list.pop_front(pool) else { return Pick::Empty };
        self.in_device += 1;
        if pool.blocks(slot) <= 8 {
            return Pick::Run(slot);
        }
        self.list.push_back(pool, slot);
        Pick::Part { slot, blocks: 8 }
    }
    fn completed(&mut self, _: &mut Pool<'_>, _: u16, done: Done, _: Instant) {
        assert!(done.run, "each part is a command");
        self.in_device -= 1;
        self.ended.push(done);
    }
}

const T: Instant = Instant::ZERO;

fn queue(sizes: &[u32]) -> (Queue<[Slot; 8], Slices>, Vec<RequestId>) {
    let mut q = Queue::new([Slot::FREE; 8], Slices::default());
    let ids = (0u64..).zip(sizes).map(|(n, blocks)| {
        let r = Request::new(Op::Write, n * 1000, *blocks, StreamId(0));
        q.insert(r, T).expect("room").0
    });
    let ids = ids.collect();
    (q, ids)
}

fn run(q: &mut Queue<[Slot; 8], Slices>) -> Run {
    match q.dispatch(T) {
        Dispatch::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

fn part(run: Run) -> (u64, u32, u32) {
    (run.lba, run.blocks, run.offset)
}

fn end(q: &mut Queue<[Slot; 8], Slices>, id: RequestId, blocks: u32, failed: bool) -> Option<bool> {
    q.complete(id, Outcome { blocks, failed }, T).map(|c: Completed| c.last)
}

#[test]
fn every_sector_goes_out_once_and_the_last_part_ends_the_request() {
    let (mut q, ids) = queue(&[20, 8]);
    let parts: Vec<_> = (0..4).map(|_| part(run(&mut q))).collect();
    assert_eq!(parts, [(0, 8, 0), (1000, 8, 0), (8, 8, 8), (16, 4, 16)]);
    assert_eq!(q.dispatch(T), Dispatch::Empty);
    assert_eq!(end(&mut q, ids[0], 8, false), Some(false));
    assert_eq!(end(&mut q, ids[1], 8, false), Some(true));
    assert_eq!(end(&mut q, ids[0], 8, false), Some(false));
    assert_eq!(end(&mut q, ids[0], 4, false), Some(true));
    assert_eq!(end(&mut q, ids[0], 4, false), None);
    assert_eq!((q.len(), q.policy().in_device), (0, 0));
    let last: Vec<bool> = q.policy().ended.iter().map(|d| d.last).collect();
    assert_eq!(last, [false, true, false, true]);
}

#[test]
fn a_failed_part_ends_the_request_once_nothing_of_it_is_at_the_device() {
    let (mut q, ids) = queue(&[40]);
    run(&mut q);
    run(&mut q);
    assert_eq!(end(&mut q, ids[0], 8, true), Some(false), "the other part is still out");
    assert_eq!(end(&mut q, ids[0], 8, false), Some(true), "what was left is not sent");
    assert_eq!(q.dispatch(T), Dispatch::Empty);
    assert_eq!((q.len(), q.queued(), q.policy().in_device), (0, 0, 0));
}

#[test]
fn the_newest_part_may_come_back() {
    let (mut q, ids) = queue(&[16]);
    let (first, second) = (run(&mut q), run(&mut q));
    q.requeue(&second, T);
    assert_eq!(part(run(&mut q)), part(second));
    assert_eq!(end(&mut q, ids[0], first.blocks, false), Some(false));
    assert_eq!(end(&mut q, ids[0], second.blocks, false), Some(true));
    assert!(q.is_empty());
}

#[test]
fn a_request_that_went_out_in_part_cannot_be_cancelled() {
    let (mut q, ids) = queue(&[16]);
    assert_eq!(part(run(&mut q)), (0, 8, 0));
    assert_eq!(q.cancel(ids[0]), None);
    // Nor is it lost when the policy changes: the new one sends the rest.
    let old = q.replace(Slices::default(), T);
    assert_eq!(old.in_device, 1);
    assert_eq!(part(run(&mut q)), (8, 8, 8));
    assert_eq!(end(&mut q, ids[0], 8, false), Some(false));
    assert_eq!(end(&mut q, ids[0], 8, false), Some(true));
}

/// First come, first served; says no more than it must, and keeps what it saw of each slot it picked.
#[derive(Default)]
struct Plain {
    list: Fifo,
    /// Requests of the list are offered for front merges.
    fronts: bool,
    seen: Vec<Seen>,
}

#[derive(Debug, PartialEq)]
struct Seen {
    request: Request,
    lba: u64,
    blocks: u32,
    end: u64,
    members: u16,
    flags: Flags,
    arrival: Instant,
    started: bool,
    kept: (Instant, u32),
    capacity: u16,
}

impl Policy for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }
    fn reset(&mut self, _: &mut Pool<'_>, _: Instant) {
        self.list = Fifo::new();
    }
    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant) {
        assert_eq!((pool.deadline(slot), pool.tag(slot)), (T, 0), "nothing of an earlier request");
        pool.set_deadline(slot, now);
        pool.set_tag(slot, 7);
        self.list.push_back(pool, slot);
    }
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, _: bool, _: Instant) {
        self.list.push_front(pool, slot);
    }
    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.list.remove(pool, slot);
    }
    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        let all = std::iter::successors(self.list.front(), |&slot| Fifo::after(pool, slot));
        all.filter(|_| self.fronts).find(|&slot| pool.lba(slot) == request.end())
    }
    fn absorbed(&mut self, pool: &mut Pool<'_>, _: u16, from: u16, queued: bool) {
        if queued {
            self.list.remove(pool, from);
        }
    }
    fn pick(&mut self, pool: &mut Pool<'_>, _: Instant) -> Pick {
        let Some(slot) = self.list.pop_front(pool) else { return Pick::Empty };
        self.seen.push(Seen {
            request: *pool.request(slot),
            lba: pool.lba(slot),
            blocks: pool.blocks(slot),
            end: pool.end(slot),
            members: pool.members(slot),
            flags: pool.flags(slot),
            arrival: pool.arrival(slot),
            started: pool.started(slot),
            kept: (pool.deadline(slot), pool.tag(slot)),
            capacity: pool.capacity(),
        });
        Pick::Run(slot)
    }
    fn completed(&mut self, _: &mut Pool<'_>, _: u16, _: Done, _: Instant) {}
}

fn put(q: &mut Queue<[Slot; 8], Plain>, lba: u64) -> Inserted {
    let r = Request::new(Op::Write, lba, 8, StreamId(1));
    q.merge(&r, T).unwrap_or_else(|| q.insert(r, T).expect("room")).1
}

fn left(q: &mut Queue<[Slot; 8], Plain>) -> Vec<(u64, u32)> {
    let runs = std::iter::from_fn(|| match q.dispatch(T) {
        Dispatch::Run(run) => Some((run.lba, run.blocks)),
        _ => None,
    });
    runs.collect()
}

#[test]
fn a_policy_sees_the_run_and_what_it_kept() {
    let mut q = Queue::new([Slot::FREE; 8], Plain::default());
    let at = Instant::from_millis;
    let flagged = |flags, lba| Request { flags, ..Request::new(Op::Write, lba, 8, StreamId(1)) };
    let first = flagged(Flags::SYNC, 80);
    q.insert(first, at(3)).unwrap();
    q.merge(&flagged(Flags::META, 88), at(4)).unwrap();
    q.insert(flagged(Flags::RAHEAD, 96), at(5)).unwrap();
    let Dispatch::Run(run) = q.dispatch(at(6)) else { panic!() };
    let seen = Seen {
        request: first,
        lba: 80,
        blocks: 24,
        end: 104,
        members: 3,
        flags: Flags::SYNC | Flags::META | Flags::RAHEAD,
        arrival: at(3),
        started: false,
        kept: (at(3), 7),
        capacity: 8,
    };
    assert_eq!(q.policy().seen, [seen]);
    assert_eq!((run.count, run.flags), (3, Flags::SYNC | Flags::META | Flags::RAHEAD));
    q.requeue(&run, at(7));
    assert!(matches!(q.dispatch(at(8)), Dispatch::Run(again) if again == run));
    assert!(q.policy().seen[1].started, "it was given out before");
}

#[test]
fn what_a_policy_does_not_say_is_no() {
    let plain = &mut Plain::default();
    let r = Request::new(Op::Read, 0, 8, StreamId(1));
    assert_eq!(plain.accept(&r), Ok(()));
    assert!(matches!(plain.merge_scope(), MergeScope::Index));
    assert_eq!((Policy::merge_tries(plain), plain.wake_at()), (1, None));
    assert_eq!([0, 1, 5].map(|tags| plain.admits(Kind::Async, tags)), [1, 1, 5]);
    assert!(plain.admits_request(&r, 0) && plain.tunable(0).is_none());
    assert_eq!(plain.tune("fifo_batch", "1"), Err(TuneError::Unknown));
    // A run that grew is not offered its neighbour, whatever slot that is in. The run merged last is far away: it
    // would be looked at without being offered.
    let with = |fronts, lbas: &[u64]| {
        let mut q = Queue::new([Slot::FREE; 8], Plain { fronts, ..Plain::default() });
        for &lba in lbas {
            put(&mut q, lba);
        }
        q
    };
    for lbas in [[96, 500, 508, 80, 88], [500, 96, 508, 80, 88]] {
        let mut runs = left(&mut with(false, &lbas));
        runs.sort_unstable();
        assert_eq!(runs, [(80, 16), (96, 8), (500, 16)], "behind: {lbas:?}");
    }
    for lbas in [[64, 500, 508, 80], [500, 64, 508, 80]] {
        let mut q = with(true, &lbas);
        // The newest with that end is of another kind, which hides the one that fits.
        q.insert(Request::new(Op::Read, 64, 8, StreamId(1)), T).unwrap();
        put(&mut q, 72);
        let mut runs = left(&mut q);
        runs.sort_unstable();
        assert_eq!(runs, [(64, 8), (64, 8), (72, 16), (500, 16)], "before: {lbas:?}");
    }
    // Nor is anything sought in front.
    assert_eq!(put(&mut with(false, &[500, 80]), 72), Inserted::Queued);
    assert!(matches!(put(&mut with(true, &[500, 80]), 72), Inserted::Merged { .. }));
}

/// Says something else than the defaults to everything.
struct Odd;

impl Policy for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }
    fn reset(&mut self, _: &mut Pool<'_>, _: Instant) {}
    fn accept(&mut self, request: &Request) -> Result<(), Rejected> {
        if request.stream == StreamId(9) { Err(Rejected::Streams) } else { Ok(()) }
    }
    fn insert(&mut self, _: &mut Pool<'_>, _: u16, _: Instant) {
        panic!("nothing is accepted");
    }
    fn insert_head(&mut self, _: &mut Pool<'_>, _: u16, _: bool, _: Instant) {
        panic!("nothing is accepted");
    }
    fn remove(&mut self, _: &mut Pool<'_>, _: u16) {}
    fn merge_scope(&self) -> MergeScope {
        MergeScope::Newest { list: Fifo::new(), count: 3 }
    }
    fn merge_tries(&self) -> u8 {
        7
    }
    fn absorbed(&mut self, _: &mut Pool<'_>, _: u16, _: u16, _: bool) {}
    fn pick(&mut self, _: &mut Pool<'_>, _: Instant) -> Pick {
        Pick::Empty
    }
    fn completed(&mut self, _: &mut Pool<'_>, _: u16, _: Done, _: Instant) {}
    fn wake_at(&self) -> Option<Instant> {
        Some(Instant::from_millis(5))
    }
    fn admits(&self, kind: Kind, tags: usize) -> usize {
        if kind == Kind::Read { tags } else { tags / 3 }
    }
    fn admits_request(&self, request: &Request, tags: usize) -> bool {
        request.blocks as usize <= tags
    }
    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        let info = TunableInfo { name: "x", unit: "ms", min: 1, max: 2, value: 2 };
        (i < 2).then_some(info)
    }
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        if name != "x" {
            return Err(TuneError::Unknown);
        }
        if text == "3" { Err(TuneError::Range) } else { Ok(()) }
    }
}

fn says(mut p: impl Policy) {
    let of = |stream| Request::new(Op::Read, 0, 8, StreamId(stream));
    assert_eq!((p.name(), p.merge_tries(), p.wake_at()), ("odd", 7, Some(Instant::from_millis(5))));
    assert_eq!([8, 9].map(|stream| p.accept(&of(stream))), [Ok(()), Err(Rejected::Streams)]);
    assert!(matches!(p.merge_scope(), MergeScope::Newest { count: 3, .. }));
    assert_eq!([(Kind::Read, 9), (Kind::Async, 9)].map(|(kind, tags)| p.admits(kind, tags)), [9, 3]);
    assert_eq!([7, 8].map(|tags| p.admits_request(&of(1), tags)), [false, true]);
    assert_eq!([1, 2].map(|i| p.tunable(i).map(|info| info.value)), [Some(2), None]);
    let set = [("x", "2"), ("x", "3"), ("y", "2")].map(|(name, text)| p.tune(name, text));
    assert_eq!(set, [Ok(()), Err(TuneError::Range), Err(TuneError::Unknown)]);
}

#[test]
fn a_policy_behind_a_reference_is_asked() {
    says(Odd);
    says(&mut Odd);
    let mut odd = Odd;
    let mut q = Queue::new([Slot::FREE; 8], &mut odd as &mut dyn Policy);
    let r = Request::new(Op::Read, 0, 8, StreamId(9));
    assert_eq!(q.insert(r, T), Err((r, Rejected::Streams)));
    assert_eq!((q.len(), q.queued(), q.name()), (0, 0, "odd"), "nothing happened");
    // Whatever a policy says, one tag of each kind is not kept back and no more are given than there are.
    assert_eq!([1, 2, 9].map(|tags| q.admits(Kind::Async, tags)), [1, 1, 3]);
}
