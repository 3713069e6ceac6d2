//! The card clock: dividers, and the three updates of a change.

use crate::reg::{CLKDIV, CLKENA, CLKSRC, CMD, Cmd, Events, RINTSTS};
use crate::wait::{look_again, settles};
use mmc_hal::Mmio;
use mmc_proto::host::Cause;
use mmc_time::{Duration, Instant};

/// By what the divider value `value` divides: 1 for 0 (bypass), else twice the value.
#[must_use]
pub const fn divisor(value: u8) -> u32 {
    if value == 0 { 1 } else { (value as u32).saturating_mul(2) }
}

/// A divider value and the card clock it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divider {
    /// For CLKDIV.
    pub value: u8,
    /// The card clock in Hz, rounded down.
    pub hz: u32,
}

impl Divider {
    /// The fastest clock that is not above `want` Hz from a source of `ciu_hz`; `None` if even ÷510 is.
    #[must_use]
    pub fn for_hz(ciu_hz: u32, want: u32) -> Option<Self> {
        Self::at_least(0, ciu_hz, want)
    }

    /// The same with a divider value of `least` at least: DDR52 on eight lines needs 1, the card clock half its source
    /// (`spec/dw-mshc.md` §3.2).
    #[must_use]
    pub fn at_least(least: u8, ciu_hz: u32, want: u32) -> Option<Self> {
        let value = if ciu_hz <= want {
            0
        } else {
            let twice = u64::from(want).saturating_mul(2);
            // `want` is 0: no divider stops a clock.
            let whole = u64::from(ciu_hz).checked_div(twice)?;
            let rest = u64::from(ciu_hz).checked_rem(twice)?;
            u8::try_from(whole.saturating_add(u64::from(rest != 0))).ok()?
        };
        let value = value.max(least);
        Some(Self { value, hz: ciu_hz.checked_div(divisor(value))? })
    }
}

/// How long the controller may take to take an update that waits for the data lines (a busy card holds it back).
pub const UPDATE_LIMIT: Duration = Duration::from_millis(500);

/// Hands the clock registers to the card side. `wait`: only once data and busy are over; without it even a card
/// that is busy for ever cannot hold it back. `switching`: CMD11 has been sent, and an update that does not say so
/// would never be taken (Q16).
pub(crate) fn update<M: Mmio>(regs: &M, wait: bool, switching: bool) {
    let mut cmd = Cmd::START | Cmd::UPDATE_CLOCK | Cmd::USE_HOLD_REG;
    cmd.set(Cmd::WAIT_PRVDATA, wait);
    cmd.set(Cmd::VOLT_SWITCH, switching);
    regs.write32(CMD, cmd.bits());
}

/// Some controllers raise command done for an update (Exynos7870). Nobody waits for it, and the next command must
/// not be ended by it: cleared once the update is taken. The caller keeps it masked meanwhile.
pub(crate) fn clear_done<M: Mmio>(regs: &M) {
    regs.write32(RINTSTS, Events::CDONE.bits());
}

/// Whether the controller has taken the last command (no event says so for an update).
pub(crate) fn taken<M: Mmio>(regs: &M) -> bool {
    settles(|| regs.read32(CMD) & Cmd::START.bits() == 0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Off,
    Divide(u8),
    On,
}

/// A change of the card clock: stop, divide, start, each with its own update (`spec/dw-mshc.md` §3.2).
#[derive(Clone, Copy, Debug)]
pub struct ClockChange {
    step: Step,
    to: Option<u8>,
    switching: bool,
    since: Instant,
}

impl ClockChange {
    /// Begins to change to the divider value `to`; `None` stops the clock. `running`: it runs now. `switching`: between
    /// CMD11 and the end of the switch. Command done must be masked.
    pub fn begin<M: Mmio>(regs: &M, to: Option<u8>, running: bool, switching: bool, now: Instant) -> Self {
        let step = match to {
            Some(value) if !running => Step::Divide(value),
            _ => Step::Off,
        };
        let change = Self { step, to, switching, since: now };
        change.write(regs);
        change
    }

    fn write<M: Mmio>(&self, regs: &M) {
        match self.step {
            Step::Off => regs.write32(CLKENA, 0),
            Step::Divide(value) => {
                regs.write32(CLKDIV, value.into());
                regs.write32(CLKSRC, 0);
            }
            // Without low-power gating: the clock is there whenever a card is spoken to.
            Step::On => regs.write32(CLKENA, 1),
        }
        update(regs, true, self.switching);
    }

    /// Goes on; `Some` when it is over.
    pub fn advance<M: Mmio>(&mut self, regs: &M, now: Instant) -> Option<Result<(), Cause>> {
        loop {
            if !taken(regs) {
                return (now.since(self.since) >= UPDATE_LIMIT).then_some(Err(Cause::Controller));
            }
            self.step = match (self.step, self.to) {
                (Step::Off, Some(value)) => Step::Divide(value),
                (Step::Divide(_), _) => Step::On,
                (Step::Off, None) | (Step::On, _) => {
                    clear_done(regs);
                    return Some(Ok(()));
                }
            };
            self.since = now;
            self.write(regs);
        }
    }

    /// When to look again.
    pub(crate) fn look_again(&self, now: Instant) -> Instant {
        look_again(self.since, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mockall::{Sequence, mock, predicate::eq};
    use proptest::prelude::*;

    mock! {
        Regs {}
        impl Mmio for Regs {
            fn read32(&self, offset: u32) -> u32;
            fn write32(&self, offset: u32, value: u32);
        }
    }

    #[test]
    fn dividers_of_the_hsdk() {
        assert_eq!(Divider::for_hz(50_000_000, 50_000_000), Some(Divider { value: 0, hz: 50_000_000 }));
        assert_eq!(Divider::for_hz(50_000_000, 400_000), Some(Divider { value: 63, hz: 396_825 }));
        assert_eq!(Divider::for_hz(50_000_000, 25_000_000), Some(Divider { value: 1, hz: 25_000_000 }));
        assert_eq!(Divider::for_hz(50_000_000, 49_999_999), Some(Divider { value: 1, hz: 25_000_000 }));
        assert_eq!(Divider::for_hz(50_000_000, 90_000), None, "510 is the last");
        assert_eq!(Divider::for_hz(50_000_000, 0), None);
        let halved = Divider::at_least(1, 100_000_000, 100_000_000);
        assert_eq!(halved, Some(Divider { value: 1, hz: 50_000_000 }), "Q43");
    }

    proptest! {
        #[test]
        fn never_faster_than_asked_and_never_slower_than_needed(ciu in 1_u32.., want in 1_u32..) {
            if let Some(d) = Divider::for_hz(ciu, want) {
                prop_assert!(u64::from(ciu) <= u64::from(want) * u64::from(divisor(d.value)));
                if d.value > 0 {
                    prop_assert!(u64::from(ciu) > u64::from(want) * u64::from(divisor(d.value - 1)));
                }
            } else {
                prop_assert!(u64::from(ciu) > u64::from(want) * 510);
            }
        }
    }

    fn expect(regs: &mut MockRegs, order: &mut Sequence, writes: &[(u32, u32)]) {
        for &(at, value) in writes {
            regs.expect_write32().with(eq(at), eq(value)).times(1).in_sequence(order).return_const(());
        }
    }
    fn expect_start_gone(regs: &mut MockRegs, order: &mut Sequence) {
        regs.expect_read32().with(eq(CMD)).times(1).in_sequence(order).return_const(0x0020_2000_u32);
    }

    #[test]
    fn a_change_is_stop_divide_start_each_with_its_update() {
        let (mut regs, mut order) = (MockRegs::new(), Sequence::new());
        expect(&mut regs, &mut order, &[(CLKENA, 0), (CMD, 0xa020_2000)]);
        expect_start_gone(&mut regs, &mut order);
        expect(&mut regs, &mut order, &[(CLKDIV, 1), (CLKSRC, 0), (CMD, 0xa020_2000)]);
        expect_start_gone(&mut regs, &mut order);
        expect(&mut regs, &mut order, &[(CLKENA, 1), (CMD, 0xa020_2000)]);
        expect_start_gone(&mut regs, &mut order);
        expect(&mut regs, &mut order, &[(RINTSTS, 4)]);
        let mut change = ClockChange::begin(&regs, Some(1), true, false, Instant::ZERO);
        assert_eq!(change.advance(&regs, Instant::ZERO), Some(Ok(())));
    }

    #[test]
    fn each_update_of_a_voltage_switch_says_so() {
        let (mut regs, mut order) = (MockRegs::new(), Sequence::new());
        expect(&mut regs, &mut order, &[(CLKENA, 0), (CMD, 0xb020_2000)]);
        expect_start_gone(&mut regs, &mut order);
        expect(&mut regs, &mut order, &[(RINTSTS, 4)]);
        let mut change = ClockChange::begin(&regs, None, true, true, Instant::ZERO);
        assert_eq!(change.advance(&regs, Instant::ZERO), Some(Ok(())));
    }

    #[test]
    fn a_stopped_clock_is_not_stopped_again() {
        let (mut regs, mut order) = (MockRegs::new(), Sequence::new());
        expect(&mut regs, &mut order, &[(CLKDIV, 63), (CLKSRC, 0), (CMD, 0xa020_2000)]);
        expect_start_gone(&mut regs, &mut order);
        expect(&mut regs, &mut order, &[(CLKENA, 1), (CMD, 0xa020_2000)]);
        expect_start_gone(&mut regs, &mut order);
        expect(&mut regs, &mut order, &[(RINTSTS, 4)]);
        let mut change = ClockChange::begin(&regs, Some(63), false, false, Instant::ZERO);
        assert_eq!(change.advance(&regs, Instant::ZERO), Some(Ok(())));
    }

    #[test]
    fn an_update_that_is_never_taken_ends_at_its_limit() {
        let mut regs = MockRegs::new();
        regs.expect_write32().return_const(());
        regs.expect_read32().with(eq(CMD)).times(..=24).return_const(0xa020_2000_u32);
        let mut change = ClockChange::begin(&regs, None, true, false, Instant::ZERO);
        assert_eq!(change.advance(&regs, Instant::ZERO), None);
        assert_eq!(change.advance(&regs, Instant::from_millis(499)), None);
        assert_eq!(change.advance(&regs, Instant::from_millis(500)), Some(Err(Cause::Controller)));
    }
}
