//! A policy written outside of the crate, which hands out large requests in parts: what `Queue` promises such a
//! one.

use mmc_sched::{
    Completed, Dispatch, Done, Fifo, Op, Outcome, Pick, Policy, Pool, Queue, Request, RequestId, Run,
    Scheduler, Slot, StreamId,
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
