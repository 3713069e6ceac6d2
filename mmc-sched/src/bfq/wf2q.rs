//! The fair-queueing engine: B-WF2Q+ for three classes, in integers, without memory of its own.
//!
//! Every stream is an *entity* with a virtual start `S`, a virtual finish `F`, a weight `w`, a budget `b` and the
//! service `s` it got in its current slot. A class has a virtual time `V` that grows by `charge / Σw`. An entity
//! is eligible when `S <= V`; the eligible one with the smallest `F` is served next, for at most its budget.
//! One that goes idle early keeps a finish time above `V` (and its weight stays in `Σw`) until `V` has passed
//! it, so that nobody gains by pausing.
//!
//! Times are sectors · 2²² / weight in a `u64` that wraps: they are compared by the sign of their difference,
//! right as long as live ones lie within 2⁶³ of each other.
//!
//! The kernel keeps each class in a tree augmented by the smallest start. Here a class is a set of at most 64
//! numbers (a bit mask) that is scanned: every operation is bounded by 64 steps, and for so few entries a scan
//! is not slower than a tree and much simpler. Two more differences: all idle entities that `V` has passed are
//! forgotten at once, not one a step; and `V` never moves back.

use mmc_time::{Duration, Instant};

/// Classes, 0 real time, 1 best effort, 2 idle.
pub(crate) const CLASSES: usize = 3;
/// A lower class that waited longer than this goes first once (spec §1.10; the kernel does it for idle only).
pub(crate) const STARVED: Duration = Duration::from_millis(200);
/// Fraction bits of virtual time.
const SHIFT: u32 = 22;

/// Virtual time for `service` sectors at weight `w`.
fn delta(service: u64, w: u64) -> u64 {
    (service << SHIFT).checked_div(w).unwrap_or(0)
}

/// `a > b` on a wrapping scale.
const fn after(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) > 0
}

/// The numbers in a mask, ascending.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let i = mask.trailing_zeros() as usize;
        mask &= mask.checked_sub(1)?;
        Some(i)
    })
}

/// The mask that holds `i` only.
pub(crate) const fn bit(i: usize) -> u64 {
    if i < 64 { 1 << i } else { 0 }
}

/// Where an entity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: it owes nothing.
    Off,
    /// Waits for a slot.
    Active,
    /// Has the device.
    Serving,
    /// Has nothing to do, but had more service than its share until now.
    Idle,
}

/// One schedulable stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entity {
    start: u64,
    finish: u64,
    /// Orders equal finish times by arrival.
    order: u32,
    weight: u32,
    class: u8,
    new_weight: u32,
    new_class: u8,
    /// Sectors it may be charged in its slot.
    pub(crate) budget: u64,
    /// Sectors it was charged in its slot.
    pub(crate) service: u64,
    place: Place,
}

impl Entity {
    const OFF: Self = Self {
        start: 0,
        finish: 0,
        order: 0,
        weight: 1,
        class: 1,
        new_weight: 1,
        new_class: 1,
        budget: 0,
        service: 0,
        place: Place::Off,
    };
    pub(crate) const fn place(&self) -> Place {
        self.place
    }
    pub(crate) const fn class(&self) -> usize {
        self.class as usize
    }
    pub(crate) const fn weight(&self) -> u32 {
        self.weight
    }
    pub(crate) const fn left(&self) -> u64 {
        self.budget.saturating_sub(self.service)
    }
}

/// One class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    vtime: u64,
    pub(super) wsum: u64,
    pub(super) active: u64,
    pub(super) idle: u64,
    /// When it last got a slot, or began to wait.
    since: Instant,
}

impl Tree {
    const EMPTY: Self = Self { vtime: 0, wsum: 0, active: 0, idle: 0, since: Instant::ZERO };
}

/// All entities and classes; numbers are 0..N, N at most 64. A number out of range is ignored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine<const N: usize> {
    entities: [Entity; N],
    pub(super) trees: [Tree; CLASSES],
    serving: Option<usize>,
    order: u32,
}

impl<const N: usize> Engine<N> {
    pub(crate) const fn new() -> Self {
        const { assert!(N >= 1 && N <= 64, "a mask of 64 bits holds the streams") };
        Self { entities: [Entity::OFF; N], trees: [Tree::EMPTY; CLASSES], serving: None, order: 0 }
    }
    /// As new, in place.
    pub(crate) fn reset(&mut self) {
        self.entities.fill(Entity::OFF);
        self.trees.fill(Tree::EMPTY);
        (self.serving, self.order) = (None, 0);
    }

    pub(crate) fn get(&self, i: usize) -> &Entity {
        const NOBODY: &Entity = &Entity::OFF;
        self.entities.get(i).unwrap_or(NOBODY)
    }
    fn with<R: Default>(&mut self, i: usize, f: impl FnOnce(&mut Entity, &mut [Tree; CLASSES]) -> R) -> R {
        match self.entities.get_mut(i) {
            Some(e) => f(e, &mut self.trees),
            None => R::default(),
        }
    }
    /// Who has the device.
    pub(crate) const fn serving(&self) -> Option<usize> {
        self.serving
    }
    /// Those that wait for a slot, of all classes.
    pub(crate) fn waiting(&self) -> u64 {
        self.trees.iter().fold(0, |m, t| m | t.active)
    }
    /// Those that wait for a slot in a class above `class`.
    pub(crate) fn waiting_above(&self, class: usize) -> u64 {
        self.trees.iter().take(class).fold(0, |m, t| m | t.active)
    }
    pub(crate) fn set_budget(&mut self, i: usize, budget: u64) {
        self.with(i, |e, _| e.budget = budget);
    }
    pub(crate) fn clear_service(&mut self, i: usize) {
        self.with(i, |e, _| e.service = 0);
    }
    /// Weight and class from its next insertion on (at once while it is nowhere).
    pub(crate) fn set_weight(&mut self, i: usize, weight: u32, class: usize) {
        self.with(i, |e, _| {
            e.new_weight = weight.max(1);
            e.new_class = class.min(CLASSES.saturating_sub(1)) as u8;
            if e.place == Place::Off {
                (e.weight, e.class) = (e.new_weight, e.new_class);
            }
        });
    }

    /// From idle to waiting, with its budget set before. `back_shift` is the kernel's compensation for a stream
    /// that went idle for a moment only: its old finish time counts; of the lag that leaves, the part beyond
    /// one budget is given up, divided by `coefficient` (1 unless its weight is raised).
    pub(crate) fn activate(&mut self, i: usize, back_shift: bool, coefficient: u32, now: Instant) {
        if matches!(self.get(i).place, Place::Active | Place::Serving) {
            return;
        }
        let mut shifted = false;
        self.with(i, |e, trees| {
            let on_idle = e.place == Place::Idle;
            if let Some(t) = trees.get_mut(e.class()) {
                shifted = back_shift && after(t.vtime, e.finish);
                let floor = if shifted { e.finish } else { t.vtime };
                e.start = if on_idle && after(e.finish, floor) { e.finish } else { floor };
                if on_idle {
                    t.idle &= !bit(i);
                } else {
                    t.wsum = t.wsum.saturating_add(u64::from(e.weight));
                }
            }
        });
        self.enqueue(i, now);
        if shifted {
            self.with(i, |e, trees| {
                let vtime = trees.get(e.class()).map_or(e.finish, |t| t.vtime);
                if after(vtime, e.finish) {
                    let shift = vtime.wrapping_sub(e.finish).checked_div(u64::from(coefficient)).unwrap_or(0);
                    e.start = e.start.wrapping_add(shift);
                    e.finish = e.finish.wrapping_add(shift);
                }
            });
        }
    }

    /// The end of a slot with work left (`i` was served), or a changed budget (`i` waits).
    pub(crate) fn requeue(&mut self, i: usize, now: Instant) {
        let place = self.get(i).place;
        if place == Place::Serving {
            self.serving = None;
            self.with(i, |e, _| {
                e.start = e.start.wrapping_add(delta(e.service, e.weight.into()));
                e.service = 0;
            });
        }
        if matches!(place, Place::Serving | Place::Active) {
            self.enqueue(i, now);
        }
    }

    /// Puts `i` among the waiting ones: takes over a new weight and class, then sets F. Its weight is in Σw.
    fn enqueue(&mut self, i: usize, now: Instant) {
        let order = self.order;
        self.order = order.wrapping_add(1);
        let engaged = self.serving.filter(|&s| s != i).map(|s| self.get(s).class());
        self.with(i, |e, trees| {
            if let Some(t) = trees.get_mut(e.class()) {
                t.active &= !bit(i);
                t.wsum = t.wsum.saturating_sub(e.weight.into());
            }
            let moved = e.class != e.new_class;
            (e.weight, e.class) = (e.new_weight, e.new_class);
            if let Some(t) = trees.get_mut(e.class()) {
                t.wsum = t.wsum.saturating_add(e.weight.into());
                if moved {
                    e.start = t.vtime;
                }
                if t.active == 0 && engaged != Some(e.class()) {
                    t.since = now;
                }
                t.active |= bit(i);
            }
            e.finish = e.start.wrapping_add(delta(e.budget, e.weight.into()));
            e.order = order;
            e.place = Place::Active;
        });
    }

    /// Nothing left to do: `i` is remembered while its finish time lies ahead.
    pub(crate) fn deactivate(&mut self, i: usize) {
        if self.serving == Some(i) {
            self.serving = None;
        }
        self.with(i, |e, trees| {
            if !matches!(e.place, Place::Serving | Place::Active) {
                return;
            }
            let served = if e.place == Place::Serving { e.service } else { 0 };
            e.finish = e.start.wrapping_add(delta(served, e.weight.into()));
            if let Some(t) = trees.get_mut(e.class()) {
                t.active &= !bit(i);
                t.idle |= bit(i);
            }
            e.place = Place::Idle;
        });
        self.forget_idle(self.get(i).class());
    }

    /// Drops the idle entity `i` whatever it owes, so that its number can be used anew.
    pub(crate) fn forget(&mut self, i: usize) {
        self.with(i, |e, trees| {
            if let (Place::Idle, Some(t)) = (e.place, trees.get_mut(e.class())) {
                t.idle &= !bit(i);
                t.wsum = t.wsum.saturating_sub(e.weight.into());
                e.place = Place::Off;
            }
            if e.place == Place::Off {
                *e = Entity::OFF;
            }
        });
    }

    /// Forgets the idle ones of a class whose finish time has passed.
    fn forget_idle(&mut self, class: usize) {
        let Some(t) = self.trees.get_mut(class) else { return };
        for i in bits(t.idle) {
            let Some(e) = self.entities.get_mut(i) else { continue };
            if !after(e.finish, t.vtime) {
                t.idle &= !bit(i);
                t.wsum = t.wsum.saturating_sub(e.weight.into());
                e.place = Place::Off;
            }
        }
    }

    /// The class that goes next: of those below another that waited longer than [`STARVED`] the one that waited
    /// longest, otherwise the highest.
    fn class_to_serve(&self, now: Instant) -> Option<usize> {
        let highest = self.trees.iter().position(|t| t.active != 0)?;
        let starved = self.trees.iter().enumerate().skip(1).filter(|&(_, t)| t.active != 0);
        let starved = starved.filter(|&(_, t)| now.since(t.since) > STARVED).min_by_key(|&(_, t)| t.since);
        Some(starved.map_or(highest, |(class, _)| class))
    }

    /// Virtual time as it would be with nobody served: at least one waiting entity is eligible.
    fn jumped(&self, t: &Tree) -> u64 {
        let mut first: Option<u64> = None;
        for i in bits(t.active) {
            let s = self.get(i).start;
            if !after(s, t.vtime) {
                return t.vtime;
            }
            first = Some(first.map_or(s, |f| if after(f, s) { s } else { f }));
        }
        first.unwrap_or(t.vtime)
    }

    /// Who would be served next, and the virtual time that needs.
    fn choose(&self, now: Instant) -> Option<(usize, usize, u64)> {
        let class = self.class_to_serve(now)?;
        let t = self.trees.get(class)?;
        let vtime = self.jumped(t);
        let mut best: Option<(usize, &Entity)> = None;
        for i in bits(t.active) {
            let e = self.get(i);
            let sooner = best.is_none_or(|(_, b)| {
                after(b.finish, e.finish)
                    || (b.finish == e.finish && (b.order.wrapping_sub(e.order) as i32) > 0)
            });
            if !after(e.start, vtime) && sooner {
                best = Some((i, e));
            }
        }
        best.map(|(i, _)| (class, i, vtime))
    }

    /// Gives the device to the next one. Nobody has it.
    pub(crate) fn select(&mut self, now: Instant) -> Option<usize> {
        let (class, i, vtime) = self.choose(now)?;
        let t = self.trees.get_mut(class)?;
        t.vtime = vtime;
        t.active &= !bit(i);
        t.since = now;
        let e = self.entities.get_mut(i)?;
        e.place = Place::Serving;
        e.service = 0;
        self.serving = Some(i);
        self.forget_idle(class);
        Some(i)
    }

    /// Charges `sectors` to the one that has the device.
    pub(crate) fn serve(&mut self, sectors: u64) {
        let Some(i) = self.serving else { return };
        let class = self.get(i).class();
        self.with(i, |e, trees| {
            e.service = e.service.saturating_add(sectors);
            if let Some(t) = trees.get_mut(e.class()) {
                t.vtime = t.vtime.wrapping_add(delta(sectors, t.wsum));
            }
        });
        self.forget_idle(class);
    }

    /// Charges `units` to `i` after the fact, wherever it is now: what it has still to get moves back by that.
    pub(crate) fn charge(&mut self, i: usize, units: u64) {
        if self.serving == Some(i) {
            self.serve(units);
            return;
        }
        self.with(i, |e, trees| {
            let (Some(t), later) = (trees.get_mut(e.class()), delta(units, e.weight.into())) else { return };
            if e.place == Place::Off {
                // It had paid for all it knew of.
                e.place = Place::Idle;
                e.finish = t.vtime;
                t.idle |= bit(i);
                t.wsum = t.wsum.saturating_add(e.weight.into());
            }
            e.start = e.start.wrapping_add(later);
            e.finish = e.finish.wrapping_add(later);
            t.vtime = t.vtime.wrapping_add(delta(units, t.wsum));
        });
        self.forget_idle(self.get(i).class());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    const NOW: Instant = Instant::from_secs(1);

    /// Streams of these weights with work for ever and a budget of 100 each.
    fn busy(weights: &[u32], vtime: u64) -> Engine<8> {
        let mut engine = Engine::new();
        engine.trees[1].vtime = vtime;
        for (i, &w) in weights.iter().enumerate() {
            engine.set_weight(i, w, 1);
            engine.set_budget(i, 100);
            engine.activate(i, false, 1, NOW);
        }
        engine
    }
    fn slot(engine: &mut Engine<8>, sectors: u64) -> usize {
        let i = engine.select(NOW).unwrap();
        engine.serve(sectors);
        engine.requeue(i, NOW);
        i
    }

    #[test]
    fn slots_interleave_by_weight_and_go_on_when_virtual_time_wraps() {
        let order = |vtime| {
            let mut engine = busy(&[30, 10, 20], vtime);
            (0..12).map(|_| slot(&mut engine, 100)).collect::<Vec<_>>()
        };
        assert_eq!(order(0), [0, 2, 1, 0, 2, 0, 0, 2, 1, 0, 2, 0]);
        assert_eq!(order(0), order(0_u64.wrapping_sub(50 << SHIFT)), "wraps within these slots");
    }

    #[test]
    fn a_slot_is_charged_for_what_it_used_not_for_its_budget() {
        let mut engine = busy(&[10, 10], 0);
        let mut got = [0; 2];
        for _ in 0..40 {
            let i = engine.select(NOW).unwrap();
            let sectors = [25, 100][i];
            engine.serve(sectors);
            got[i] += sectors;
            engine.requeue(i, NOW);
        }
        assert!(got[0].abs_diff(got[1]) <= 100, "{got:?}");
    }

    #[test]
    fn a_stream_that_pauses_comes_back_where_it_was() {
        let mut engine = busy(&[10, 10], 0);
        // The first gets a whole slot, goes idle at once and returns: the other one is first now.
        assert_eq!(engine.select(NOW), Some(0));
        engine.serve(100);
        engine.deactivate(0);
        assert_eq!(engine.get(0).place(), Place::Idle, "it is ahead of virtual time");
        engine.activate(0, false, 1, NOW);
        assert_eq!(slot(&mut engine, 100), 1);
        assert_eq!(slot(&mut engine, 100), 0);
    }

    #[test]
    fn an_idle_stream_is_forgotten_when_virtual_time_has_passed_it() {
        let mut engine = busy(&[10, 10], 0);
        engine.select(NOW);
        engine.serve(100);
        engine.deactivate(0);
        assert_eq!(engine.trees[1].wsum, 20);
        slot(&mut engine, 100);
        assert_eq!((engine.get(0).place(), engine.trees[1].wsum), (Place::Off, 10));
    }

    #[test]
    fn virtual_time_jumps_to_the_first_start_when_nobody_is_eligible() {
        let mut engine = busy(&[10, 10], 0);
        assert_eq!(engine.select(NOW), Some(0));
        engine.serve(100);
        engine.deactivate(0);
        engine.deactivate(1);
        engine.activate(0, false, 1, NOW);
        assert!(after(engine.get(0).start, engine.trees[1].vtime));
        assert_eq!(engine.select(NOW), Some(0));
        assert_eq!(engine.trees[1].vtime, engine.get(0).start);
        // So the other one, which owes nothing, does not get all the time until then.
        engine.activate(1, false, 1, NOW);
        assert_eq!(engine.get(1).start, engine.get(0).start);
    }

    #[test]
    fn a_new_weight_counts_from_the_next_slot_on() {
        let mut engine = busy(&[10, 10], 0);
        engine.set_weight(0, 40, 1);
        assert_eq!(engine.get(0).weight(), 10);
        let slots: Vec<usize> = (0..27).map(|_| slot(&mut engine, 100)).collect();
        let heavy = slots[2..].iter().filter(|&&i| i == 0).count();
        assert_eq!(heavy, 20, "{slots:?}");
        assert_eq!(engine.trees[1].wsum, 50);
    }

    #[test]
    fn a_new_class_takes_its_weight_along() {
        let mut engine = busy(&[10, 30], 0);
        engine.set_weight(1, 30, 0);
        assert_eq!(slot(&mut engine, 100), 1);
        assert_eq!((engine.trees[0].wsum, engine.trees[1].wsum), (30, 10));
        assert_eq!(slot(&mut engine, 100), 1, "real time goes first now");
        engine.select(NOW);
        engine.deactivate(1);
        assert_eq!(engine.trees[0].wsum, 0);
        assert_eq!(slot(&mut engine, 100), 0);
    }

    #[test]
    fn a_back_shift_gives_back_the_lost_time_up_to_one_budget() {
        let mut engine = busy(&[10, 10], 0);
        engine.select(NOW);
        engine.serve(10);
        engine.deactivate(0);
        for _ in 0..5 {
            slot(&mut engine, 100);
        }
        let vtime = engine.trees[1].vtime;
        let back = |coefficient| {
            let mut engine = engine;
            engine.activate(0, true, coefficient, NOW);
            (engine.get(0).start, engine.get(0).finish)
        };
        let budget = delta(100, 10);
        assert_eq!(back(1), (vtime.wrapping_sub(budget), vtime));
        let (_, raised) = back(2);
        assert!(after(vtime, raised), "a raised stream keeps a part of its lag");
        engine.activate(0, false, 1, NOW);
        assert_eq!(engine.get(0).start, vtime, "without it the time is lost");
    }
}
