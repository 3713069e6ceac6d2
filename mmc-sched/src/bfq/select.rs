//! Who has the device and for how long: slots, their ends, and when to keep the device idle for a stream.

use super::rate::DEEP;
use super::stream::Stream;
use super::wf2q::{Place, bits};
use super::{AHEAD, Bfq, number, raise};
use crate::policy::Pick;
use crate::pool::Pool;
use mmc_time::{Duration, Instant};

/// Async requests of a stream that competes with equals are charged so many times their size (spec §3).
const ASYNC_FACTOR: u64 = 3;
/// With `charge_time` a request is charged so many µs when it goes out, and the rest when it is done.
pub(super) const ADVANCE: u64 = 1;
/// A seeky stream is waited for no longer than this.
const SEEKY_IDLE: Duration = Duration::from_millis(2);
/// A raised stream is waited for at least this long.
const RAISED_IDLE: Duration = Duration::from_millis(20);
/// A slot below this says nothing about speed, one above [`LONG_SLOT`] does.
const SHORT_SLOT: Duration = Duration::from_millis(1);
const LONG_SLOT: Duration = Duration::from_millis(20);

/// Why a stream lost the device (spec §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// It was waited for and nothing came.
    TooIdle,
    /// Its slot took too long.
    TimedOut,
    /// Its next request does not fit into what is left of its budget.
    Exhausted,
    /// It is empty and not worth waiting for.
    NoMoreRequests,
    /// Another stream got a request and goes first.
    Preempted,
}

impl<const N: usize> Bfq<N> {
    /// Which request goes out. At most 2N + 2 streams are looked at: each time one loses the device it is empty
    /// and leaves, or it comes back with a budget its next request fits into.
    pub(super) fn choose(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        if self.queued == 0 {
            return Pick::Empty;
        }
        if self.settings.strict && self.in_flight > 0 {
            return Pick::Wait { at: None, completion: true };
        }
        if let Some(slot) = self.ahead.pop_front(pool) {
            let tag = pool.tag(slot) & !AHEAD;
            pool.set_tag(slot, tag);
            self.edit(number(tag), |s| s.in_flight = s.in_flight.saturating_add(1));
            self.sent(pool, slot, now);
            return Pick::Run(slot);
        }
        if let Some(i) = self.engine.serving() {
            if self.may_time_out(i, now) && !self.must_idle(i) {
                self.expire(pool, i, Expiry::TimedOut, now);
            }
        }
        for _ in 0..N.saturating_mul(2).saturating_add(2) {
            let i = match self.engine.serving() {
                Some(i) => i,
                None => match self.begin_slot(pool, now) {
                    Some(i) => i,
                    None => break,
                },
            };
            if let Some(slot) = self.stream(i).requests.next() {
                let charge = self.charge(pool, i, slot);
                if charge <= self.engine.get(i).left() {
                    self.serve(pool, i, (slot, charge), now);
                    return Pick::Run(slot);
                }
                self.expire(pool, i, Expiry::Exhausted, now);
            } else {
                let in_flight = self.stream(i).in_flight > 0;
                if self.idle_until.is_some() || (in_flight && self.better_to_idle(i)) {
                    return Pick::Wait { at: self.idle_until, completion: in_flight };
                }
                self.expire(pool, i, Expiry::NoMoreRequests, now);
            }
        }
        // Not reached: with something queued, one of the streams looked at had it.
        Pick::Wait { at: Some(now), completion: false }
    }

    /// Lets the idle timer fire if its time has come.
    pub(super) fn tick(&mut self, pool: &mut Pool<'_>, now: Instant) {
        let (Some(at), Some(i)) = (self.idle_until.filter(|&at| at <= now), self.engine.serving()) else {
            return;
        };
        self.idle_until = None;
        if self.timed_out(at) {
            self.expire(pool, i, Expiry::TimedOut, at);
        } else if self.stream(i).requests.len() == 0 {
            self.expire(pool, i, Expiry::TooIdle, at);
        }
    }

    fn begin_slot(&mut self, pool: &Pool<'_>, now: Instant) -> Option<usize> {
        let i = self.engine.select(now)?;
        self.slots = self.slots.saturating_add(1);
        self.slot_start = now;
        self.idle_until = None;
        // What a request is charged may have changed since the budget was given.
        let least = self.head_charge(pool, i);
        if self.engine.get(i).budget < least {
            self.engine.set_budget(i, least);
        }
        self.edit(i, |s| {
            s.fifo_checked = false;
            s.raise.slot_began(now.since(s.waits_since));
        });
        let factor = self.stream(i).raise.time_factor();
        self.slot_end = now + self.settings.timeout.saturating_mul(factor.into());
        Some(i)
    }

    /// Gives `slot` out for the stream `i`, which has the device.
    fn serve(&mut self, pool: &mut Pool<'_>, i: usize, (slot, charge): (u16, u64), now: Instant) {
        self.idle_until = None;
        self.engine.serve(charge);
        let seek = self.settings.seek();
        self.edit(i, |s| {
            let aged = (!s.fifo_checked).then_some(now);
            s.fifo_checked = true;
            s.requests.remove(pool, slot, aged, seek);
            s.in_flight = s.in_flight.saturating_add(1);
        });
        self.sent(pool, slot, now);
        if self.settings.low_latency {
            let sectors = if self.settings.charge_time { pool.blocks(slot).into() } else { charge };
            self.edit(i, |s| s.raise.served(sectors, now));
            self.apply_weight(i);
        }
        // A class below one that waits gives the device back after each request; so does the idle class always.
        let class = self.engine.get(i).class();
        if self.engine.waiting_above(class) != 0 || (class == 2 && self.engine.waiting() != 0) {
            self.expire(pool, i, Expiry::Exhausted, now);
        }
    }

    /// A run goes to the device.
    pub(super) fn sent(&mut self, pool: &Pool<'_>, slot: u16, now: Instant) {
        let near = pool.lba(slot).abs_diff(self.position) <= super::rate::SEEK;
        self.queued = self.queued.saturating_sub(1);
        self.rate.dispatched(near, self.in_flight, now);
        self.in_flight = self.in_flight.saturating_add(1);
        self.position = pool.end(slot);
    }

    /// A run of `i` came back.
    pub(super) fn came_back(&mut self, pool: &mut Pool<'_>, i: usize, now: Instant) {
        self.watch_depth();
        self.in_flight = self.in_flight.saturating_sub(1);
        let (busy, slice_idle) = (self.is_busy(i), self.settings.slice_idle);
        self.edit(i, |s| {
            s.in_flight = s.in_flight.saturating_sub(1);
            s.last_end = now;
            if !busy && s.in_flight == 0 {
                s.idle_since = now;
                s.raise.drained(slice_idle, now);
            }
        });
        if self.engine.serving() != Some(i) {
            return;
        }
        let (empty, in_flight) = (self.stream(i).requests.len() == 0, self.stream(i).in_flight);
        if self.must_idle(i) {
            if in_flight == 0 {
                self.idle_until = Some(now + self.idle_time(i));
            }
        } else if self.may_time_out(i, now) {
            self.expire(pool, i, Expiry::TimedOut, now);
        } else if empty && in_flight == 0 {
            self.expire(pool, i, Expiry::NoMoreRequests, now);
        }
    }

    /// How many requests the device takes at a time, as seen at a completion. Not told by one that finds too little
    /// to do, or the stream in service about to send more.
    fn watch_depth(&mut self) {
        let soon = self.engine.serving().is_some_and(|i| {
            let s = self.stream(i);
            let open = u32::from(s.requests.len()).saturating_add(s.in_flight);
            open < DEEP && self.in_flight < DEEP && s.thinks_shortly(self.settings.slice_idle)
        });
        let loaded = self.in_flight.saturating_add(self.queued) > DEEP && !soon;
        self.rate.depth(self.in_flight, loaded);
    }

    /// The stream `i` was empty and got a request.
    pub(super) fn woken(&mut self, pool: &mut Pool<'_>, i: usize, now: Instant) {
        let least = self.head_charge(pool, i);
        let (s, left) = (*self.stream(i), self.engine.get(i).left());
        let in_time = now <= s.last_end + self.settings.slice_idle.saturating_mul(3);
        // A hole: it was empty for a moment only, and goes on with the budget it had.
        let recovered = s.hole && in_time && left > 0;
        let mut budget = if recovered { left.min(s.max_budget) } else { s.max_budget.max(least) };
        if self.settings.low_latency {
            let wake = raise::Wake {
                eligible: s.sync && s.weight == super::stream::DEFAULT_WEIGHT,
                long_idle: s.in_flight == 0 && (s.fresh || now.since(s.idle_since) > raise::LONG_IDLE),
                quiet: s.in_flight == 0,
                totally_seeky: s.is_totally_seeky(),
            };
            self.edit(i, |s| s.raise.woken(wake, now));
            if !s.raise.is_raised() && self.stream(i).raise.is_raised() {
                budget = budget.min(self.min_budget().saturating_mul(2)).max(least);
            }
            self.apply_weight(i);
        }
        self.edit(i, |s| (s.hole, s.fresh, s.waits_since) = (false, false, now));
        self.engine.clear_service(i);
        self.engine.set_budget(i, budget);
        let coefficient = self.stream(i).raise.coefficient();
        self.engine.activate(i, recovered, coefficient, now);
        self.preempt(pool, i, recovered, now);
    }

    /// Takes the device from the stream that has it, if the woken stream `i` should go before it.
    fn preempt(&mut self, pool: &mut Pool<'_>, i: usize, recovered: bool, now: Instant) {
        let Some(p) = self.engine.serving() else { return };
        let (new, old) = (self.engine.get(i), self.engine.get(p));
        if new.class() > old.class() {
            return;
        }
        let stronger = new.class() < old.class() || new.weight() > old.weight();
        let not_weaker = self.stream(i).raise.coefficient() >= self.stream(p).raise.coefficient();
        if stronger || (recovered && not_weaker) || !self.better_to_idle(p) {
            self.expire(pool, p, Expiry::Preempted, now);
        }
    }

    /// Takes the device from `i`, which has it.
    pub(super) fn expire(&mut self, pool: &Pool<'_>, i: usize, why: Expiry, now: Instant) {
        self.idle_until = None;
        let elapsed = now.since(self.slot_start);
        let (left, budget) = (self.engine.get(i).left(), self.engine.get(i).budget);
        let s = *self.stream(i);
        if s.sync && !s.raise.is_raised() && !self.settings.charge_time {
            let slow_by_time = why == Expiry::TimedOut && left.saturating_mul(3) >= budget;
            let (slow, elapsed) = self.is_slow(i, &s, elapsed);
            if slow || slow_by_time {
                self.charge_time(i, elapsed);
            }
        }
        let service = self.engine.get(i).service;
        let max_budget = self.feedback(&s, service, why);
        let empty = s.requests.len() == 0;
        let (low_latency, slice_idle) = (self.settings.low_latency, self.settings.slice_idle);
        self.edit(i, |s| {
            s.max_budget = max_budget;
            s.waits_since = now;
            if low_latency {
                s.raise.slot_ended(now);
            }
            if empty && s.in_flight == 0 {
                s.idle_since = now;
                s.raise.drained(slice_idle, now);
            }
        });
        if empty && !(why == Expiry::Preempted && self.needed_for_guarantees(i)) {
            self.engine.deactivate(i);
            // Not its own doing: what is left of the slot is kept for a quick return.
            let hole = !matches!(why, Expiry::TimedOut | Expiry::Exhausted);
            self.edit(i, |s| s.hole = hole);
            if !hole {
                self.engine.clear_service(i);
            }
        } else {
            let least = self.head_charge(pool, i);
            self.engine.set_budget(i, max_budget.max(least));
            self.engine.requeue(i, now);
        }
        self.count(why);
    }

    /// Whether the slot was slow, and how long it counts for (spec §4.5): too short to tell and then by its
    /// seeks, or long enough and then by what it moved.
    fn is_slow(&self, i: usize, s: &Stream, elapsed: Duration) -> (bool, Duration) {
        if elapsed < SHORT_SLOT {
            return (s.is_seeky(), SEEKY_IDLE);
        }
        let little = self.engine.get(i).service < self.device_budget() >> 1;
        (if elapsed > LONG_SLOT { little } else { s.is_seeky() }, elapsed)
    }

    /// Charges a slow stream for the time it took as if it had moved data at full rate.
    fn charge_time(&mut self, i: usize, elapsed: Duration) {
        let limit = self.settings.timeout.as_micros().max(1);
        let part = elapsed.as_micros().min(limit);
        let by_time = self.device_budget().saturating_mul(part).checked_div(limit).unwrap_or(0);
        self.engine.serve(by_time.saturating_sub(self.engine.get(i).service));
    }

    /// The largest budget of the next slot (spec §4.3).
    fn feedback(&self, s: &Stream, service: u64, why: Expiry) -> u64 {
        let (max, min, b) = (self.device_budget(), self.min_budget(), s.max_budget);
        if s.raise.is_raised() {
            return min.saturating_mul(2);
        }
        if !s.sync {
            return max;
        }
        let next = match why {
            Expiry::TooIdle if s.in_flight > 0 => b.saturating_mul(2),
            Expiry::TooIdle if b > min.saturating_mul(5) => b.saturating_sub(min.saturating_mul(4)),
            Expiry::TooIdle => min,
            Expiry::TimedOut => b.saturating_mul(2),
            Expiry::Exhausted => b.saturating_mul(4),
            Expiry::NoMoreRequests => service.max(min),
            Expiry::Preempted => b,
        };
        next.min(max)
    }

    /// The time limit of the slot has passed.
    fn timed_out(&self, now: Instant) -> bool {
        now >= self.slot_end
    }
    /// It has, and `i` may lose the device for it.
    fn may_time_out(&self, i: usize, now: Instant) -> bool {
        let e = self.engine.get(i);
        self.timed_out(now) && (self.idle_until.is_none() || e.left().saturating_mul(3) >= e.budget)
    }
    fn must_idle(&self, i: usize) -> bool {
        self.stream(i).requests.len() == 0 && self.better_to_idle(i)
    }

    /// Whether the device should rather wait for `i` than serve another (spec §8.2).
    fn better_to_idle(&self, i: usize) -> bool {
        if self.settings.strict {
            return true;
        }
        let s = self.stream(i);
        if self.settings.slice_idle == Duration::ZERO || !s.sync || self.engine.get(i).class() == 2 {
            return false;
        }
        let boosts = self.rate.one_at_a_time()
            && s.is_io_bound()
            && !s.is_seeky()
            && s.thinks_shortly(self.settings.slice_idle)
            && self.raised_busy() == 0;
        boosts || self.needed_for_guarantees(i)
    }

    /// Without waiting for it, `i` would lose its share.
    fn needed_for_guarantees(&self, i: usize) -> bool {
        let busy = self.busy().count_ones();
        let s = self.stream(i);
        let foreign = self.in_flight.saturating_sub(s.in_flight);
        (s.raise.is_raised() && (self.raised_busy() < busy || foreign >= 4))
            || busy == 1
            || self.asymmetric(i)
    }

    /// Streams of two classes are busy, or one of smaller weight than that of `i` has requests.
    fn asymmetric(&self, i: usize) -> bool {
        let (class, weight) = (self.engine.get(i).class(), self.stream(i).weight);
        let differs = |j: usize| {
            let s = self.stream(j);
            let pending = s.requests.len() > 0 || s.in_flight > 0;
            self.engine.get(j).class() != class || (pending && !s.raise.is_raised() && s.weight < weight)
        };
        bits(self.busy()).any(differs)
    }

    fn idle_time(&self, i: usize) -> Duration {
        let (s, slice) = (self.stream(i), self.settings.slice_idle);
        if s.raise.is_raised() {
            slice.max(RAISED_IDLE)
        } else if s.is_seeky() && !self.asymmetric(i) {
            slice.min(SEEKY_IDLE)
        } else {
            slice
        }
    }

    /// What serving `sectors` costs the stream `i` at once.
    fn cost(&self, i: usize, sectors: u64) -> u64 {
        if self.settings.charge_time {
            return ADVANCE;
        }
        let s = self.stream(i);
        let plain = s.sync || s.raise.is_raised() || self.asymmetric(i);
        if plain { sectors } else { sectors.saturating_mul(ASYNC_FACTOR) }
    }
    fn charge(&self, pool: &Pool<'_>, i: usize, slot: u16) -> u64 {
        self.cost(i, pool.blocks(slot).into())
    }
    fn head_charge(&self, pool: &Pool<'_>, i: usize) -> u64 {
        self.stream(i).requests.next().map_or(0, |slot| self.charge(pool, i, slot))
    }

    /// The next request of `i` is another one, or grew, or will by `more` sectors: a waiting stream's budget must
    /// hold it.
    pub(super) fn next_changed(&mut self, pool: &Pool<'_>, i: usize, more: u32, now: Instant) {
        if self.engine.get(i).place() != Place::Active {
            return;
        }
        let least = self.head_charge(pool, i).saturating_add(self.cost(i, more.into()));
        let budget = self.stream(i).max_budget.max(least);
        if budget != self.engine.get(i).budget {
            self.engine.set_budget(i, budget);
            self.engine.requeue(i, now);
        }
    }

    /// Streams that have the device or wait for it.
    fn busy(&self) -> u64 {
        self.engine.waiting() | self.engine.serving().map_or(0, super::wf2q::bit)
    }
    pub(super) fn is_busy(&self, i: usize) -> bool {
        matches!(self.engine.get(i).place(), Place::Active | Place::Serving)
    }
    /// Busy streams of raised weight.
    pub(super) fn raised_busy(&self) -> u32 {
        if !self.settings.low_latency {
            return 0;
        }
        bits(self.busy()).fold(0, |n, i| n.saturating_add(self.stream(i).raise.is_raised().into()))
    }

    /// Largest budget of any stream: sectors, or µs with `charge_time`.
    pub(super) fn device_budget(&self) -> u64 {
        match self.settings.max_budget {
            _ if self.settings.charge_time => self.settings.timeout.as_micros(),
            0 => self.rate.budget(self.settings.timeout),
            fixed => fixed,
        }
    }
    /// Two thirds of that, until a stream has shown what it needs.
    pub(super) fn first_budget(&self) -> u64 {
        self.device_budget().saturating_mul(2).checked_div(3).unwrap_or(0)
    }
    fn min_budget(&self) -> u64 {
        (self.device_budget() >> 5).max(1)
    }
}
