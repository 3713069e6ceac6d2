//! One stream: who it is, what it has queued, and what its past behaviour says of it.

use super::raise::Raise;
use super::rate::SEEK;
use super::requests::Requests;
use crate::request::{Class, Priority, Request};
use mmc_time::{Duration, Instant};

/// Weight of a stream whose requests carry no priority.
pub(crate) const DEFAULT_WEIGHT: u32 = 40;
/// Shorter than this is small enough for a seek to hurt on flash, in sectors.
const SMALL: u32 = 64;
/// Samples of think time that make a mean, in units of 1/256 of a full history.
const THINK_VALID: u64 = 80;

/// Whose requests share a queue: each caller's sync ones, and all async ones of one class and level. A number, which
/// is looked for faster than an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// Nobody's.
    pub(crate) const FREE: Self = Self(0);
    pub(crate) fn of(r: &Request) -> Self {
        if r.is_sync() {
            return Self(1 << 32 | u64::from(r.stream.0));
        }
        let (class, level, _) = rank(r.priority);
        Self(2 << 32 | (class as u64) << 8 | u64::from(level))
    }
}

/// Class (0 real time, 1 best effort, 2 idle), level and weight of a request's priority. Without one it is best
/// effort, level 4; the idle class has one level.
pub(crate) fn rank(p: Priority) -> (usize, u8, u32) {
    let (class, level) = match p.class {
        Class::None => (1, 4),
        Class::RealTime => (0, p.level.min(7)),
        Class::BestEffort => (1, p.level.min(7)),
        Class::Idle => (2, 7),
    };
    (class, level, super::level_weight(level))
}

/// Everything the policy remembers of a stream but its place in the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) sync: bool,
    /// It has not been busy yet.
    pub(crate) fresh: bool,
    pub(crate) in_flight: u32,
    pub(crate) requests: Requests,
    /// Class and weight before raising, as last asked for.
    pub(crate) class: usize,
    pub(crate) weight: u32,
    /// Sectors the next slot may get, by feedback from the last ones.
    pub(crate) max_budget: u64,
    /// The FIFO was looked at in this slot.
    pub(crate) fifo_checked: bool,
    /// Its last slot ended early because it was empty: a quick return continues that slot.
    pub(crate) hole: bool,
    /// When it last became empty with nothing in flight.
    pub(crate) idle_since: Instant,
    /// When it last became busy or lost the device.
    pub(crate) waits_since: Instant,
    /// Its last completion.
    pub(crate) last_end: Instant,
    /// End of its last request.
    last_sector: u64,
    think: Think,
    bound: IoBound,
    seeks: u32,
    pub(crate) raise: Raise,
}

impl Stream {
    pub(crate) const FREE: Self = Self::new(false, 0, Instant::ZERO);

    pub(crate) const fn new(sync: bool, max_budget: u64, now: Instant) -> Self {
        Self {
            sync,
            fresh: true,
            in_flight: 0,
            requests: Requests::EMPTY,
            class: 1,
            weight: DEFAULT_WEIGHT,
            max_budget,
            fifo_checked: false,
            hole: false,
            idle_since: now,
            waits_since: now,
            last_end: now,
            last_sector: 0,
            think: Think { samples: 0, total: 0 },
            bound: IoBound { since: now, idle: Duration::ZERO, yes: true },
            seeks: 1,
            raise: Raise::new(now),
        }
    }

    /// Nothing of it is queued or in flight.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.requests.len() == 0 && self.in_flight == 0
    }

    /// A request of it arrived. `idle`: nothing of it was queued or in flight; `busy`: it has the device or waits
    /// for it. `slice_idle` of 0 leaves the think time alone.
    pub(crate) fn arrived(
        &mut self,
        (lba, blocks): (u64, u32),
        (idle, busy): (bool, bool),
        slice_idle: Duration,
        now: Instant,
    ) {
        if self.in_flight == 0 && !busy && slice_idle != Duration::ZERO {
            self.think.sample(now.since(self.last_end).min(slice_idle.saturating_mul(2)));
        }
        if !busy || idle {
            self.bound.sample(idle.then(|| now.since(self.last_end)), now);
        }
        let far = lba.abs_diff(self.last_sector) > SEEK && blocks < SMALL;
        self.seeks = (self.seeks << 1) | u32::from(far);
        self.last_sector = lba.saturating_add(blocks.into());
    }

    /// It usually comes back within half of `slice_idle`; so does one not known yet.
    pub(crate) fn thinks_shortly(&self, slice_idle: Duration) -> bool {
        let mean = self.think.mean();
        mean.is_none_or(|mean| mean.saturating_mul(2) <= slice_idle)
    }
    /// Most of its requests are small and far apart.
    pub(crate) const fn is_seeky(&self) -> bool {
        self.seeks.count_ones() > 19
    }
    pub(crate) const fn is_totally_seeky(&self) -> bool {
        self.seeks == u32::MAX
    }
    /// Something of it is queued or in flight at least 80 % of the time.
    pub(crate) const fn is_io_bound(&self) -> bool {
        self.bound.yes
    }
}

/// Mean of the times between a completion and the next arrival, weighted 1/8 to the newest.
#[derive(Clone, Copy, Debug)]
struct Think {
    samples: u64,
    total: u64,
}

impl Think {
    fn sample(&mut self, t: Duration) {
        let weigh = |old: u64, new: u64| old.saturating_mul(7).saturating_add(new.saturating_mul(256)) >> 3;
        self.samples = weigh(self.samples, 1);
        self.total = weigh(self.total, t.as_nanos());
    }
    fn mean(&self) -> Option<Duration> {
        if self.samples <= THINK_VALID {
            return None;
        }
        self.total.saturating_add(128).checked_div(self.samples).map(Duration::from_nanos)
    }
}

/// The share of time it was idle, over about the last 200 ms.
#[derive(Clone, Copy, Debug)]
struct IoBound {
    since: Instant,
    idle: Duration,
    yes: bool,
}

impl IoBound {
    fn sample(&mut self, idle: Option<Duration>, now: Instant) {
        let total = now.since(self.since);
        self.idle += idle.unwrap_or(Duration::ZERO);
        self.yes = self.idle.saturating_mul(5) <= total;
        if total > Duration::from_millis(200) {
            self.since = now - Duration::from_nanos(total.as_nanos() >> 1);
            self.idle = Duration::from_nanos(self.idle.as_nanos() >> 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Instant = Instant::from_millis;
    const IDLE: Duration = Duration::from_millis(8);

    fn feed(s: &mut Stream, n: u64, gap_ms: u64, step: u64, blocks: u32) {
        for i in 0..n {
            let now = s.last_end + Duration::from_millis(gap_ms);
            s.arrived((i * step, blocks), (true, false), IDLE, now);
            s.last_end = now + Duration::from_millis(1);
        }
    }

    #[test]
    fn a_stream_that_comes_back_late_is_not_worth_waiting_for() {
        let mut s = Stream::new(true, 0, MS(0));
        assert!(s.thinks_shortly(IDLE), "unknown counts as short");
        feed(&mut s, 20, 3, 8, 8);
        assert!(s.thinks_shortly(IDLE));
        feed(&mut s, 20, 6, 8, 8);
        assert!(!s.thinks_shortly(IDLE));
    }

    #[test]
    fn small_requests_far_apart_are_seeky_and_large_ones_are_not() {
        let mut s = Stream::new(true, 0, MS(0));
        feed(&mut s, 19, 1, 100_000, 8);
        assert!(!s.is_seeky());
        feed(&mut s, 32, 1, 100_000, 8);
        assert!(s.is_seeky());
        feed(&mut s, 32, 1, 100_000, 64);
        assert!(!s.is_seeky() && !s.is_totally_seeky());
    }

    #[test]
    fn io_bound_means_idle_for_less_than_a_fifth() {
        let mut s = Stream::new(true, 0, MS(0));
        for t in (0..2000).step_by(10) {
            s.last_end = MS(t + 9);
            s.arrived((0, 8), (true, false), IDLE, MS(t + 10));
        }
        assert!(s.is_io_bound());
        for t in (2000..4000).step_by(10) {
            s.last_end = MS(t + 5);
            s.arrived((0, 8), (true, false), IDLE, MS(t + 10));
        }
        assert!(!s.is_io_bound());
    }
}
