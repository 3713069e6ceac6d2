//! How long a request may wait under `ftb`, as functions: F3 and F4 of `docs/ftb.md`, where the proofs are.
//!
//! They hold for every class alike: a class is a weight. Nothing is counted in dispatches by the proof, but as every
//! dispatch is charged, a bound on what is charged is one on dispatches too ([`dispatches`]).

use super::Ftb;
use crate::bound::{Bound, Why};
use mmc_time::Duration;

/// What the wait of a request depends on beside the policy's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Weight of its stream, the least while it waits: 1 to 1000.
    pub weight: u32,
    /// The weights of all streams that have work meanwhile, each at its most, its own included.
    pub all: u64,
    /// How many streams these are, its own included.
    pub streams: u32,
    /// What the request costs, with all that its stream sends before it.
    pub own: Duration,
    /// What its stream owes when it arrives ([`Account::owes`](super::Account::owes)).
    pub owes: Duration,
    /// C: the longest a command is charged, what is expected of it included.
    pub longest: Duration,
    /// q: the head start of what somebody waits for: what a part of the size [`Ftb::chunk`] is expected to take, if
    /// there is anything nobody waits for, else 0.
    pub head_start: Duration,
    /// More than one stream writes what nobody waits for.
    pub flushers: bool,
    /// Requests keep being inserted at the head.
    pub at_head: bool,
}

impl Turn {
    /// The only request of a stream of `weight` out of `all`, which owes nothing, among `streams` streams whose
    /// commands take `longest`.
    #[must_use]
    pub const fn new(weight: u32, all: u64, streams: u32, longest: Duration) -> Self {
        Self {
            weight,
            all,
            streams,
            own: longest,
            owes: Duration::ZERO,
            longest,
            head_start: longest,
            flushers: false,
            at_head: false,
        }
    }
}

/// F3: what all streams together are charged at most from the request's arrival until the last of it goes out.
///
/// # Errors
/// [`Why::AtHead`]: requests inserted at the head go before all streams, for as long as they come.
///
/// ```
/// use mmc_sched::Ftb;
/// use mmc_sched::ftb::bound::{Turn, service};
/// use mmc_time::Duration;
///
/// // A journal write beside a flusher and a reader, all of weight 100, on a card that takes 35 ms for a part.
/// let turn = Turn { own: Duration::from_millis(2), ..Turn::new(100, 300, 3, Duration::from_millis(35)) };
/// let ftb: Ftb = Ftb::new();
/// // 3 shares of 2 ms, three times (two head starts, a slot of 400 ms and a command), four commands.
/// assert_eq!(service(&ftb, turn), Ok(Duration::from_millis(3 * 2 + 3 * (2 * 35 + 400 + 35) + 4 * 35)));
/// ```
pub fn service<const N: usize, const D: usize>(policy: &Ftb<N, D>, x: Turn) -> Result<Duration, Why> {
    if x.at_head {
        return Err(Why::AtHead);
    }
    let share = |d: Duration| {
        let ns = u128::from(d.as_nanos()).saturating_mul(x.all.into()).div_ceil(x.weight.max(1).into());
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    };
    let slot = policy.longest_slot(x.flushers).max(if policy.settings.device_slots > 2 {
        Duration::ZERO
    } else {
        // While no large write was seen a slot has two commands.
        x.longest
    });
    let each = x.head_start.saturating_mul(2) + slot + x.longest;
    let way = x.longest.saturating_mul(u64::from(policy.settings.device_slots).saturating_add(2));
    Ok(share(x.own) + share(x.owes) + each.saturating_mul(x.streams.into()) + way)
}

/// F4: the same in time, until the request is done, without what the card stood still.
///
/// # Errors
/// As [`service`].
pub fn time<const N: usize, const D: usize>(policy: &Ftb<N, D>, x: Turn) -> Result<Duration, Why> {
    let served = service(policy, x)?.as_nanos();
    let settings = &policy.settings;
    // 10 ms for the gaps in which the host brings the next command.
    let fixed = settings.idle_cap
        + Duration::from_millis(10)
        + x.longest.saturating_mul(settings.device_slots.into());
    // t ≤ 1.1·F3 + fixed + t/share, solved for t.
    let most = u128::from(served).saturating_mul(11).div_ceil(10).saturating_add(fixed.as_nanos().into());
    let share = u128::from(settings.idle_share.max(2));
    let ns = most.saturating_mul(share).div_ceil(share.saturating_sub(1));
    Ok(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
}

/// [`service`] in dispatches of any stream, if each is charged `shortest` at least: how many others may go between
/// the request's arrival and its own.
#[must_use]
pub fn dispatches<const N: usize, const D: usize>(policy: &Ftb<N, D>, x: Turn, shortest: Duration) -> Bound {
    match service(policy, x) {
        Ok(most) => Bound::Dispatches(most.as_nanos().div_ceil(shortest.as_nanos().max(1))),
        Err(why) => Bound::Unbounded(why),
    }
}

impl<const N: usize, const D: usize> Ftb<N, D> {
    /// The longest write slot in force: none for a device with more than two slots.
    fn longest_slot(&self, flushers: bool) -> Duration {
        let s = &self.settings;
        if s.device_slots > 2 {
            return Duration::ZERO;
        }
        let pressed = if s.slot_factor > 0 { s.slot_cap } else { Duration::ZERO };
        if flushers { pressed.max(s.slot_cap_async) } else { pressed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn with(set: &[(&str, &str)]) -> Ftb {
        let mut p = Ftb::new();
        for (name, value) in set {
            p.tune(name, value).unwrap();
        }
        p
    }

    #[test]
    fn a_smaller_weight_waits_longer_and_no_class_for_ever() {
        let p = with(&[]);
        let t = |weight| time(&p, Turn::new(weight, 1110, 3, MS(35))).unwrap();
        assert!(t(1000) < t(100) && t(100) < t(10));
        // Idle class beside real time and best effort: some seconds, where mq-deadline has no bound.
        assert!(t(10) > MS(3000) && t(10) < MS(8000), "{}", t(10));
    }

    #[test]
    fn the_slots_in_force_count() {
        let x = Turn::new(100, 200, 2, MS(10));
        let s = |set: &[(&str, &str)], x| service(&with(set), x).unwrap();
        let plain = s(&[], x);
        assert_eq!(plain, MS(20 + 2 * (20 + 400 + 10) + 4 * 10));
        assert_eq!(s(&[("slot_cap", "100")], x), plain - MS(2 * 300));
        assert_eq!(s(&[("slot_factor", "0")], x), plain - MS(2 * 390), "the probe");
        assert_eq!(s(&[("device_slots", "32")], x), MS(20 + 2 * 30 + 34 * 10));
        assert_eq!(s(&[], Turn { flushers: true, ..x }), plain + MS(2 * 600));
        assert_eq!(s(&[], Turn { owes: MS(7), ..x }), plain + MS(14));
    }

    #[test]
    fn in_dispatches_and_where_there_is_no_bound() {
        let (p, x) = (with(&[]), Turn::new(100, 200, 2, MS(10)));
        assert_eq!(dispatches(&p, x, MS(1)), Bound::Dispatches(920));
        let at_head = Turn { at_head: true, ..x };
        assert_eq!(dispatches(&p, at_head, MS(1)), Bound::Unbounded(Why::AtHead));
        assert_eq!(time(&p, at_head), Err(Why::AtHead));
        let most = Turn { all: u64::MAX, own: Duration::MAX, ..Turn::new(0, 1, u32::MAX, Duration::MAX) };
        assert_eq!(dispatches(&p, most, Duration::ZERO), Bound::Dispatches(u64::MAX));
        assert_eq!(time(&p, most), Ok(Duration::MAX));
    }
}
