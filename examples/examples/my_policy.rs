//! Write your own policy in two hundred lines: an elevator that nobody waits for longer than it says.
//!
//! It is not one of the crate's policies: everything here is written against its public interface.
//!
//! *Rule.* Runs go out in the order of their sectors, upwards and then from the lowest again, which a disk likes. But
//! each time another than the oldest is chosen is counted, and after `patience` times the oldest goes.
//!
//! *Bound.* With k runs older than it a run goes out among the next (k + 1) × (patience + 1) ones, whatever arrives
//! meanwhile: every patience + 1 commands at least one of those k + 1 goes.
//!
//! *Work.* O(log n) in queued runs for each call. *Memory.* 24 bytes; the links are in the slots.

use mmc_sched::{
    Dispatch, Done, Fifo, Op, Outcome, Pick, Policy, Pool, Queue, Request, Scheduler, Slot, StreamId, Tree,
    TunableInfo, TuneError,
};
use mmc_time::Instant;

/// In the tag of a run that was requeued: it goes before all.
const FIRST: u32 = 1;

/// The policy.
struct Patient {
    by_sector: Tree,
    by_age: Fifo,
    /// Where the sweep is.
    position: u64,
    /// How often the oldest was passed over.
    passed: u32,
    patience: u32,
}

impl Patient {
    const fn new(patience: u32) -> Self {
        Self { by_sector: Tree::new(), by_age: Fifo::new(), position: 0, passed: 0, patience }
    }
    fn add(&mut self, pool: &mut Pool<'_>, slot: u16, first: bool) {
        let lba = pool.lba(slot);
        self.by_sector.insert(pool, slot, lba);
        if first { self.by_age.push_front(pool, slot) } else { self.by_age.push_back(pool, slot) }
    }
}

impl Policy for Patient {
    fn name(&self) -> &'static str {
        "patient"
    }
    fn reset(&mut self, _: &mut Pool<'_>, _: Instant) {
        *self = Self::new(self.patience);
    }
    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant) {
        pool.set_deadline(slot, now);
        self.add(pool, slot, false);
    }
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, _: bool, _: Instant) {
        pool.set_tag(slot, FIRST);
        self.add(pool, slot, true);
    }
    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.by_sector.remove(pool, slot);
        if self.by_age.front() == Some(slot) {
            self.passed = 0;
        }
        self.by_age.remove(pool, slot);
    }

    // Merging: `Queue` does it, and asks for neighbours in sector order.
    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        self.by_sector.at_or_after(pool, request.end())
    }
    fn run_before(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        Tree::prev(pool, slot)
    }
    fn run_behind(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        Tree::next(pool, slot)
    }
    fn grown(&mut self, pool: &mut Pool<'_>, slot: u16, front: bool) {
        if front {
            let lba = pool.lba(slot);
            self.by_sector.remove(pool, slot);
            self.by_sector.insert(pool, slot, lba);
        }
    }
    fn absorbed(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, queued: bool) {
        if !queued {
            return;
        }
        // The place of the older one is the place of both, or the bound would not hold for it.
        let age = pool.deadline(from);
        if age < pool.deadline(into) {
            pool.set_deadline(into, age);
            self.by_age.remove(pool, into);
            self.by_age.insert_before(pool, from, into);
        }
        self.by_sector.remove(pool, from);
        self.by_age.remove(pool, from);
    }

    fn pick(&mut self, pool: &mut Pool<'_>, _: Instant) -> Pick {
        let Some(oldest) = self.by_age.front() else { return Pick::Empty };
        let upwards = self.by_sector.at_or_after(pool, self.position);
        let next = upwards.or_else(|| self.by_sector.first(pool)).unwrap_or(oldest);
        let must = pool.tag(oldest) == FIRST || self.passed >= self.patience;
        let slot = if must { oldest } else { next };
        if slot != oldest {
            self.passed += 1;
        }
        self.remove(pool, slot);
        self.position = pool.end(slot);
        Pick::Run(slot)
    }
    fn completed(&mut self, _: &mut Pool<'_>, _: u16, _: Done, _: Instant) {}

    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        let value = self.patience.into();
        (i == 0).then_some(TunableInfo { name: "patience", unit: "commands", min: 0, max: 1000, value })
    }
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        if name != "patience" {
            return Err(TuneError::Unknown);
        }
        let value: u32 = text.trim().parse().map_err(|_| TuneError::Invalid)?;
        if value > 1000 {
            return Err(TuneError::Range);
        }
        self.patience = value;
        Ok(())
    }
}

const NOW: Instant = Instant::ZERO;

/// As a block layer does it: a request that fits joins a queued one, otherwise it waits on its own.
fn submit(queue: &mut impl Scheduler, lba: u64) {
    let request = Request::new(Op::Write, lba, 8, StreamId(0));
    if queue.merge(&request, NOW).is_none() {
        queue.insert(request, NOW).expect("room");
    }
}

/// Sectors in the order in which they go out.
fn order(queue: &mut impl Scheduler) -> Vec<u64> {
    let mut order = Vec::new();
    while let Dispatch::Run(run) = queue.dispatch(NOW) {
        order.push(run.lba);
        let mut member = Some(run.head);
        while let Some(id) = member {
            member = queue.next_member(id);
            let blocks = queue.request(id).expect("a member of the run").blocks;
            queue.complete(id, Outcome { blocks, failed: false }, NOW).expect("at the device");
        }
    }
    order
}

fn main() {
    for patience in ["1000", "2", "0"] {
        let mut queue = Queue::new([Slot::FREE; 16], Patient::new(8));
        queue.tune("patience", patience).expect("a tunable");
        for lba in [900, 100, 500, 300, 108, 700] {
            submit(&mut queue, lba);
        }
        println!("patience {patience:>4}: {:?}", order(&mut queue));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(patience: u32, sectors: &[u64]) -> Queue<[Slot; 32], Patient> {
        let mut q = Queue::new([Slot::FREE; 32], Patient::new(patience));
        for lba in sectors {
            submit(&mut q, *lba);
        }
        q
    }

    #[test]
    fn sectors_go_upwards_until_the_oldest_has_been_passed_often_enough() {
        let sectors = [900, 100, 500, 300, 700];
        assert_eq!(order(&mut queue(9, &sectors)), [100, 300, 500, 700, 900]);
        assert_eq!(order(&mut queue(2, &sectors)), [100, 300, 900, 500, 700]);
        assert_eq!(order(&mut queue(0, &sectors)), sectors);
    }

    #[test]
    fn what_touches_goes_out_as_one_command() {
        assert_eq!(order(&mut queue(9, &[900, 100, 116, 108])), [100, 900]);
    }

    /// The bound, against somebody who keeps writing in front of the sweep.
    #[test]
    fn nobody_waits_longer_than_the_bound() {
        for (patience, others) in [(0, 5), (3, 1), (7, 20)] {
            let old: Vec<u64> = (0..=others).map(|n| 10_000 + n * 100).collect();
            let mut q = queue(patience, &old);
            let mut left = old.len();
            let mut commands = 0;
            while left > 0 {
                let lba = commands * 16;
                submit(&mut q, lba);
                let Dispatch::Run(run) = q.dispatch(NOW) else { panic!("something is queued") };
                q.complete(run.head, Outcome { blocks: 8, failed: false }, NOW).expect("at the device");
                commands += 1;
                left -= usize::from(run.lba >= 10_000);
            }
            assert!(commands <= (others + 1) * (u64::from(patience) + 1), "{commands} commands");
        }
    }

    #[test]
    fn what_comes_back_goes_first() {
        let mut q = queue(9, &[500, 100]);
        let Dispatch::Run(run) = q.dispatch(NOW) else { panic!("something is queued") };
        submit(&mut q, 200);
        q.requeue(&run, NOW);
        assert_eq!(order(&mut q), [100, 200, 500]);
    }
}
