//! Instants and durations in nanoseconds: saturating arithmetic and a plain, total order.
//!
//! It is not a clock: nothing here reads time, sleeps, or knows what an instant is counted from.
//! Every crate of this workspace takes `now` as an argument instead.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// Nanoseconds since a start the caller chose. `Ord` is the plain order of the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A length of time in nanoseconds, at most about 584 years. All arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Instant {
    /// The start of the count.
    pub const ZERO: Self = Self(0);
    /// Later than every other instant: "no time limit".
    pub const NEVER: Self = Self(u64::MAX);

    /// `ns` nanoseconds after the start.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }
    /// `us` microseconds after the start.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }
    /// `ms` milliseconds after the start.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }
    /// `s` seconds after the start.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }
    /// Nanoseconds since the start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// The time from `earlier` to `self`; zero if `earlier` is the later one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
    /// Whether this is [`Instant::NEVER`].
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest duration.
    pub const MAX: Self = Self(u64::MAX);

    /// `ns` nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }
    /// `us` microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }
    /// `ms` milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }
    /// `s` seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }
    /// Whole nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Whole microseconds, rounded down.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// Whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// `self + other`, at most [`Duration::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    /// `self - other`, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// `self * n`, at most [`Duration::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        self.0 = self.0.saturating_add(d.0);
    }
}
impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}
impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}
impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}
impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}
impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl fmt::Display for Duration {
    /// The largest unit that leaves a whole part: `1.250 s`, `84.600 ms`, `12.000 us`, `7 ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, div) = match self.0 {
            0..=999 => return write!(f, "{} ns", self.0),
            1_000..=999_999 => ("us", 1_000),
            1_000_000..=999_999_999 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000_u64),
        };
        let whole = self.0.checked_div(div).unwrap_or(0);
        let rest = self.0.checked_rem(div).unwrap_or(0);
        let milli = rest.checked_div(div.checked_div(1000).unwrap_or(1)).unwrap_or(0);
        write!(f, "{whole}.{milli:03} {unit}")
    }
}

/// Extends a wrapping 32-bit tick counter to 64 bits; call it at least once per wrap.
///
/// ```
/// let mut t = mmc_time::Extend32::new();
/// assert_eq!(t.ticks(0xffff_fff0), 0xffff_fff0);
/// assert_eq!(t.ticks(0x10), 0x1_0000_0010);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Extend32 {
    high: u64,
    last: u32,
}

impl Extend32 {
    /// A counter that starts at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { high: 0, last: 0 }
    }
    /// The 64-bit count for the hardware's present `low` word.
    pub fn ticks(&mut self, low: u32) -> u64 {
        if low < self.last {
            self.high = self.high.saturating_add(1 << 32);
        }
        self.last = low;
        self.high | u64::from(low)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::NEVER + Duration::from_secs(1), Instant::NEVER);
        assert_eq!(Instant::from_secs(1) - Instant::from_secs(2), Duration::ZERO);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
    }

    #[test]
    fn every_unit_is_its_number_of_nanoseconds() {
        for (duration, instant, ns) in [
            (Duration::from_nanos(3), Instant::from_nanos(3), 3),
            (Duration::from_micros(3), Instant::from_micros(3), 3_000),
            (Duration::from_millis(3), Instant::from_millis(3), 3_000_000),
            (Duration::from_secs(3), Instant::from_secs(3), 3_000_000_000),
        ] {
            assert_eq!((duration.as_nanos(), instant.as_nanos()), (ns, ns));
        }
        let odd = Duration::from_nanos(7_654_321);
        assert_eq!((odd.as_micros(), odd.as_millis()), (7_654, 7));
        assert_eq!((Instant::NEVER.is_never(), Instant::from_nanos(u64::MAX - 1).is_never()), (true, false));
    }

    #[test]
    fn the_operators_are_the_named_methods() {
        let (three, five) = (Duration::from_nanos(3), Duration::from_nanos(5));
        assert_eq!(
            (three + five, five - three, three - five),
            (Duration::from_nanos(8), Duration::from_nanos(2), Duration::ZERO)
        );
        assert_eq!((three.saturating_add(five), five.saturating_sub(three)), (three + five, five - three));
        assert_eq!(
            (three.saturating_mul(5), Duration::MAX.saturating_mul(2)),
            (Duration::from_nanos(15), Duration::MAX)
        );
        let mut sum = three;
        sum += five;
        assert_eq!(sum, three + five);
        let mut at = Instant::from_nanos(100);
        at += five;
        assert_eq!(
            (at, at - five, at - Instant::from_nanos(100)),
            (Instant::from_nanos(105), Instant::from_nanos(100), five)
        );
    }

    #[test]
    fn a_counter_that_wraps_goes_on() {
        let mut ticks = Extend32::new();
        let seen = [7, 7, u32::MAX, 0, 0, 1, u32::MAX, 2].map(|low| ticks.ticks(low));
        assert_eq!(seen, [7, 7, 0xffff_ffff, 1 << 32, 1 << 32, (1 << 32) + 1, (2 << 32) - 1, (2 << 32) + 2]);
    }

    #[test]
    fn durations_print_in_their_own_unit() {
        assert_eq!(Duration::from_nanos(999).to_string(), "999 ns");
        assert_eq!(Duration::from_nanos(1_001).to_string(), "1.001 us");
        assert_eq!(Duration::from_nanos(7).to_string(), "7 ns");
        assert_eq!(Duration::from_micros(84_600).to_string(), "84.600 ms");
        assert_eq!(Duration::from_millis(10_750).to_string(), "10.750 s");
    }

    proptest! {
        #[test]
        fn the_order_is_transitive_and_never_is_last(a: u64, b: u64, c: u64) {
            let (a, b, c) = (Instant::from_nanos(a), Instant::from_nanos(b), Instant::from_nanos(c));
            prop_assert!(!(a < b && b < c) || a < c);
            prop_assert!(a <= Instant::NEVER);
        }
        #[test]
        fn since_undoes_plus(t in 0u64..1 << 60, d in 0u64..1 << 60) {
            let (t, d) = (Instant::from_nanos(t), Duration::from_nanos(d));
            prop_assert_eq!((t + d).since(t), d);
        }
    }
}
