//! The two ways of dividing, and which value makes a wanted frequency (§2.2.14, §3.2).

use crate::reg::{Caps, ClockControl};
use mmc_time::Duration;

/// How long the internal clock may take to be stable (§2.2.14).
pub const STABLE_LIMIT: Duration = Duration::from_millis(150);

/// A setting of the clock: the bits of the register, and what they make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divider {
    /// Bits of [`CLOCK`](crate::reg::CLOCK): frequency select and generator select.
    pub bits: u32,
    /// The card clock in Hz.
    pub hz: u32,
}

/// Ten bits of frequency select: the lower eight in bits 15:8, the upper two in 7:6.
const fn select(n: u32) -> u32 {
    (n & 0xff) << 8 | (n >> 8 & 3) << 6
}

impl Divider {
    /// The fastest clock that is not above `hz`, of a base clock of `base_hz`; `None`: `hz` is 0 or too slow for the
    /// dividers, or the base clock is unknown.
    #[must_use]
    pub fn for_hz(caps: &Caps, base_hz: u32, hz: u32) -> Option<Self> {
        if hz == 0 || base_hz == 0 {
            return None;
        }
        let divided = if caps.v3() { Self::long(base_hz, hz) } else { Self::short(base_hz, hz) };
        match (divided, Self::programmable(caps.multiplier(), base_hz, hz)) {
            (Some(d), Some(p)) => Some(if p.hz > d.hz { p } else { d }),
            (d, p) => d.or(p),
        }
    }

    /// Version 3: by 1, or by twice a number of ten bits.
    fn long(base_hz: u32, hz: u32) -> Option<Self> {
        let n = if base_hz <= hz { 0 } else { base_hz.div_ceil(hz.saturating_mul(2).max(1)) };
        let by = if n == 0 { 1 } else { n.saturating_mul(2) };
        (n <= 1023).then_some(Self { bits: select(n), hz: base_hz.checked_div(by)? })
    }

    /// Versions 1 and 2: by a power of two up to 256; the register holds half of it.
    fn short(base_hz: u32, hz: u32) -> Option<Self> {
        let shift = (0..=8_u32).find(|s| base_hz.div_ceil(1_u32.wrapping_shl(*s)) <= hz)?;
        let n = 1_u32.wrapping_shl(shift) >> 1;
        Some(Self { bits: select(n), hz: base_hz >> shift })
    }

    /// The generator: the multiplied base clock by 1 to 1024.
    fn programmable(multiplier: u32, base_hz: u32, hz: u32) -> Option<Self> {
        let top = u64::from(base_hz).saturating_mul(multiplier.into());
        if top == 0 {
            return None;
        }
        let by = top.div_ceil(hz.into()).max(1);
        let n = u32::try_from(by.saturating_sub(1)).ok().filter(|n| *n <= 1023)?;
        let made = u32::try_from(top.checked_div(by)?).ok()?;
        Some(Self { bits: select(n) | ClockControl::PROGRAMMABLE.bits(), hz: made })
    }

    /// The slowest card clock in Hz, rounded up.
    #[must_use]
    pub const fn slowest(caps: &Caps, base_hz: u32) -> u32 {
        base_hz.div_ceil(if caps.v3() { 2046 } else { 256 })
    }
}

/// The data timeout (bits 3:0 of its register, in bits 19:16 of [`CLOCK`](crate::reg::CLOCK)) of reads: the shortest of at
/// least half a second, so that silence ends in the controller's own error before a caller's limit; the longest there
/// is where none reaches that or its clock is not told.
#[must_use]
pub fn data_timeout(timeout_hz: u32) -> u32 {
    let half = timeout_hz >> 1;
    (0..14_u32).find(|n| half > 0 && 8192_u32.wrapping_shl(*n) >= half).unwrap_or(14)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V2: Caps = Caps { low: 0, high: 0, version: 1 };
    const V3: Caps = Caps { low: 0, high: 0, version: 2 };
    /// The base clock times 4.
    const GENERATOR: Caps = Caps { low: 0, high: 3 << 16, version: 2 };

    #[test]
    fn dividers_of_the_specification() {
        let hz = |caps, want| Divider::for_hz(&caps, 52_000_000, want);
        assert_eq!(
            hz(V2, 400_000),
            Some(Divider { bits: 0x8000, hz: 203_125 }),
            "by 256: 128 in the register"
        );
        assert_eq!(hz(V2, 26_000_000), Some(Divider { bits: 0x0100, hz: 26_000_000 }));
        assert_eq!(hz(V2, 60_000_000), Some(Divider { bits: 0, hz: 52_000_000 }));
        assert_eq!(hz(V2, 200_000), None);
        assert_eq!(hz(V3, 400_000), Some(Divider { bits: 65 << 8, hz: 400_000 }), "by 130");
        assert_eq!(
            hz(V3, 50_000),
            Some(Divider { bits: 0x08 << 8 | 2 << 6, hz: 50_000 }),
            "by 1040 = 2 x 0x208"
        );
        assert_eq!(hz(V3, 25_000), None);
        let generated = Divider { bits: 4 << 8 | 1 << 5, hz: 41_600_000 };
        assert_eq!(hz(GENERATOR, 50_000_000), Some(generated), "208 MHz by 5");
        assert_eq!(hz(GENERATOR, 0), None);
    }

    #[test]
    fn a_data_timeout_of_half_a_second_or_the_longest_there_is() {
        assert_eq!(data_timeout(1_000_000), 6, "524 ms");
        assert_eq!(data_timeout(52_000_000), 12, "645 ms");
        assert_eq!(data_timeout(208_000_000), 14, "645 ms");
        assert_eq!(data_timeout(0), 14);
    }

    proptest! {
        #[test]
        fn never_faster_than_asked(base in 1_u32..256, multiplier in 0_u32..256, version in 0_u8..4, want in 1_u32..) {
            let caps = Caps { low: 0, high: multiplier << 16, version };
            let base = base * 1_000_000;
            match Divider::for_hz(&caps, base, want) {
                Some(d) => prop_assert!(d.hz <= want && d.bits & 0x7 == 0),
                None => prop_assert!(want < Divider::slowest(&caps, base) || caps.v3() && want < base / 2046 + 1),
            }
        }
    }
}
