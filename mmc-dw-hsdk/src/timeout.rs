//! What the TMOUT register means in time, and the software limits that go with it.
//!
//! All arithmetic is 64 bits wide and rounds up. The product that overflowed 32 bits in 2018 and made big copies
//! on 32-bit boards fail at random (`spec/dw-mshc-quirks.md` Q1) is at most 0xff_ffff · 510 · 10⁹ ≈ 8.6 · 10¹⁸
//! here, which a `u64` holds.

use crate::clock::divisor;
use mmc_time::Duration;

/// TMOUT as this driver sets it: the longest of both.
pub const TMOUT_MAX: u32 = u32::MAX;

/// Added to each limit: interrupt latency, command and response frames, the controller's own delays.
pub const MARGIN: Duration = Duration::from_millis(10);

/// `clocks` card clocks at `ciu_hz` behind the divider value `divider`, rounded up to nanoseconds. A stopped clock
/// (0 Hz) never gets there: [`Duration::MAX`].
#[must_use]
pub fn card_clocks(clocks: u32, divider: u8, ciu_hz: u32) -> Duration {
    let ns = u64::from(clocks).saturating_mul(u64::from(divisor(divider))).saturating_mul(1_000_000_000);
    match ns.checked_rem(u64::from(ciu_hz)) {
        None => Duration::MAX,
        Some(rest) => {
            let whole = ns.checked_div(u64::from(ciu_hz)).unwrap_or(u64::MAX);
            Duration::from_nanos(whole.saturating_add(u64::from(rest != 0)))
        }
    }
}

/// After how long without a response the controller gives up: TMOUT bits 7:0.
#[must_use]
pub fn response_timeout(tmout: u32, divider: u8, ciu_hz: u32) -> Duration {
    card_clocks(tmout & 0xff, divider, ciu_hz)
}

/// After how long without data the controller gives up: TMOUT bits 31:8.
#[must_use]
pub fn data_timeout(tmout: u32, divider: u8, ciu_hz: u32) -> Duration {
    card_clocks(tmout >> 8, divider, ciu_hz)
}

/// `d` in whole milliseconds, rounded up, for people and for timers that tick so.
#[must_use]
pub const fn millis_up(d: Duration) -> u64 {
    d.as_nanos().div_ceil(1_000_000)
}

/// Software limit for a command that the controller has taken: its own timeout and [`MARGIN`].
#[must_use]
pub fn command_limit(divider: u8, ciu_hz: u32) -> Duration {
    response_timeout(TMOUT_MAX, divider, ciu_hz).saturating_add(MARGIN)
}

/// Software limit for a read that makes no progress: the controller's own timeout and [`MARGIN`].
#[must_use]
pub fn data_limit(divider: u8, ciu_hz: u32) -> Duration {
    data_timeout(TMOUT_MAX, divider, ciu_hz).saturating_add(MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn the_overflow_of_2018_stays_mended() {
        let ms = |div, hz| millis_up(data_timeout(u32::MAX, div, hz));
        assert_eq!(ms(0, 50_000_000), 336);
        assert_eq!(ms(1, 50_000_000), 672);
        assert_eq!(ms(63, 50_000_000), 42_279);
        assert_eq!(ms(0, 200_000_000), 84);
        // What 32-bit arithmetic made of it: 0xff_ffff · 1000 wraps to 3 895 359 192, / 50 000 = 77.9 ms.
        let wrapped = 0x00ff_ffff_u32.wrapping_mul(1000) / (50_000_000 / 1000);
        assert!(wrapped < 336_000, "the control: the old product wraps");
    }

    #[test]
    fn a_stopped_clock_never_times_out() {
        assert_eq!(data_timeout(u32::MAX, 0, 0), Duration::MAX);
        assert_eq!(data_limit(0, 0), Duration::MAX);
    }

    #[test]
    fn an_answer_at_400_khz_has_its_255_clocks() {
        assert_eq!(response_timeout(u32::MAX, 63, 50_000_000), Duration::from_nanos(642_600));
        assert_eq!(command_limit(63, 50_000_000), Duration::from_nanos(10_642_600));
    }

    proptest! {
        #[test]
        fn equal_to_big_integer_arithmetic(tmout: u32, div: u8, hz in 400_000_u32..=200_000_000) {
            let factor = if div == 0 { 1 } else { 2 * u128::from(div) };
            for (clocks, got) in [
                (tmout >> 8, data_timeout(tmout, div, hz)),
                (tmout & 0xff, response_timeout(tmout, div, hz)),
            ] {
                let exact = (u128::from(clocks) * factor * 1_000_000_000).div_ceil(u128::from(hz));
                prop_assert_eq!(u128::from(got.as_nanos()), exact);
            }
        }
        #[test]
        fn corners_too(tmout in prop::sample::select(vec![0, 0xff, 0x100, 0xffff_ff00, 0xffff_ff40, u32::MAX]),
                       div in prop::sample::select(vec![0_u8, 1, 63, 127, 255]),
                       hz in prop::sample::select(vec![1_u32, 400_000, 50_000_000, 200_000_000, u32::MAX])) {
            let factor = if div == 0 { 1 } else { 2 * u128::from(div) };
            let exact = (u128::from(tmout >> 8) * factor * 1_000_000_000).div_ceil(u128::from(hz));
            prop_assert_eq!(u128::from(data_timeout(tmout, div, hz).as_nanos()), exact);
        }
    }
}
