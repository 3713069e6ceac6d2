//! Bringing the controller to a known state: at power-up, and after an error.
//!
//! One sequence for both (`spec/dw-mshc.md` §3.1, §3.9), in steps that each wait for a bit:
//! external divider → controller, FIFO and DMA reset → all events cleared → no DMA request → FIFO reset again →
//! IDMAC reset, descriptors taken back, list address → settings → clock registers handed over (the reset made the
//! card side forget them), without waiting for a card that may be busy for ever.

use crate::clock::{clear_done, taken, update};
use crate::idmac::Idmac;
use crate::platform::Platform;
use crate::reg::{
    BMOD, Bmod, CLKDIV, CLKENA, CLKSRC, CTRL, Ctrl, DBADDR, DEBNCE, DmaEvents, RINTSTS, STATUS, Status,
    TMOUT, UHS_REG_EXT,
};
use crate::timeout::TMOUT_MAX;
use crate::wait::{look_again, settles};
use mmc_hal::Mmio;
use mmc_proto::host::Cause;
use mmc_time::{Duration, Instant};

/// How long the whole sequence may take. Hardware needs some clocks of each side.
pub const RESET_LIMIT: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    All,
    DmaRequest,
    Fifo,
    Idmac,
    Clock,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reset {
    step: Step,
    since: Instant,
    /// The card clock is to be stopped as well: at power-up nobody knows what it is.
    cold: bool,
    /// Between CMD11 and the end of the switch.
    switching: bool,
}

impl Reset {
    /// Begins. `ctrl`: CTRL without its reset bits. `uhs_ext`: for UHS_REG_EXT. Command done must be masked.
    pub(crate) fn begin<M: Mmio>(
        regs: &M,
        uhs_ext: Option<u32>,
        ctrl: Ctrl,
        cold: bool,
        switching: bool,
        now: Instant,
    ) -> Self {
        if let Some(value) = uhs_ext {
            regs.write32(UHS_REG_EXT, value);
        }
        regs.write32(CTRL, (ctrl | Ctrl::RESETS).bits());
        Self { step: Step::All, since: now, cold, switching }
    }

    /// Whether the DMA part is known to be at rest: it touches no memory any more.
    pub(crate) fn memory_quiet(&self) -> bool {
        self.step > Step::All
    }

    pub(crate) fn look_again(&self, now: Instant) -> Instant {
        look_again(self.since, now)
    }

    /// Goes on; `Some` when it is over.
    pub(crate) fn advance<M: Mmio, R: Mmio>(
        &mut self,
        regs: &M,
        idmac: &mut Idmac<R>,
        platform: &Platform,
        ctrl: Ctrl,
        now: Instant,
    ) -> Option<Result<(), Cause>> {
        let clear = |at, bits: u32| settles(|| regs.read32(at) & bits == 0);
        loop {
            let settled = match self.step {
                Step::All => clear(CTRL, Ctrl::RESETS.bits()),
                Step::DmaRequest => clear(STATUS, Status::DMA_REQ.bits()),
                Step::Fifo => clear(CTRL, Ctrl::FIFO_RESET.bits()),
                Step::Idmac => clear(BMOD, Bmod::SWR.bits()),
                Step::Clock => taken(regs),
            };
            if !settled {
                return (now.since(self.since) >= RESET_LIMIT).then_some(Err(Cause::Controller));
            }
            self.step = match self.step {
                Step::All => {
                    regs.write32(RINTSTS, u32::MAX);
                    Step::DmaRequest
                }
                Step::DmaRequest => {
                    regs.write32(CTRL, (ctrl | Ctrl::FIFO_RESET).bits());
                    Step::Fifo
                }
                Step::Fifo => {
                    regs.write32(BMOD, Bmod::SWR.bits());
                    Step::Idmac
                }
                Step::Idmac => {
                    idmac.disown();
                    let map = idmac.map();
                    regs.write32(map.idsts, u32::MAX);
                    regs.write32(map.idinten, DmaEvents::ENABLED.bits());
                    let base = idmac.base();
                    regs.write32(DBADDR, base as u32);
                    if let Some(high) = map.dbaddr_high {
                        regs.write32(high, (base >> 32) as u32);
                    }
                    regs.write32(BMOD, (Bmod::DE | Bmod::FB).bits());
                    regs.write32(TMOUT, TMOUT_MAX);
                    if self.cold {
                        regs.write32(DEBNCE, platform.debounce_clocks());
                        regs.write32(CLKENA, 0);
                        regs.write32(CLKDIV, 0);
                        regs.write32(CLKSRC, 0);
                    }
                    regs.write32(CTRL, ctrl.bits());
                    update(regs, false, self.switching);
                    Step::Clock
                }
                Step::Clock => {
                    clear_done(regs);
                    return Some(Ok(()));
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idmac::Ring;
    use crate::platform::HSDK;
    use crate::reg::{CMD, IDINTEN, IDSTS};
    use mockall::{Sequence, mock, predicate::eq};

    mock! {
        Regs {}
        impl Mmio for Regs {
            fn read32(&self, offset: u32) -> u32;
            fn write32(&self, offset: u32, value: u32);
        }
    }

    fn ring() -> Idmac<MockRegs> {
        let mut window = MockRegs::new();
        window.expect_write32().times(0);
        Idmac::new(Ring::new(window, 0x8000_1000, 8192).unwrap())
    }

    #[test]
    fn recovery_is_this_sequence_and_no_other() {
        let (mut regs, mut order) = (MockRegs::new(), Sequence::new());
        let ctrl = Ctrl::USE_IDMAC | Ctrl::DMA_ENABLE | Ctrl::INT_ENABLE;
        let mut w = |regs: &mut MockRegs, at: u32, value: u32| {
            regs.expect_write32().with(eq(at), eq(value)).times(1).in_sequence(&mut order).return_const(());
        };
        w(&mut regs, UHS_REG_EXT, 0x8000_0000);
        w(&mut regs, CTRL, 0x0200_0037);
        w(&mut regs, RINTSTS, u32::MAX);
        w(&mut regs, CTRL, 0x0200_0032);
        w(&mut regs, BMOD, 1);
        w(&mut regs, IDSTS, u32::MAX);
        w(&mut regs, IDINTEN, 0x214);
        w(&mut regs, DBADDR, 0x8000_1000);
        w(&mut regs, BMOD, 0x82);
        w(&mut regs, TMOUT, u32::MAX);
        w(&mut regs, CTRL, 0x0200_0030);
        w(&mut regs, CMD, 0xa020_0000); // does not wait for a busy card
        w(&mut regs, RINTSTS, 4);
        for (at, value) in [(CTRL, 0x0200_0030_u32), (STATUS, 0x106), (BMOD, 0x200), (CMD, 0x2020_0000)] {
            regs.expect_read32().with(eq(at)).return_const(value);
        }
        let mut idmac = ring();
        let mut reset = Reset::begin(&regs, HSDK.uhs_reg_ext, ctrl, false, false, Instant::ZERO);
        assert!(!reset.memory_quiet());
        assert_eq!(reset.advance(&regs, &mut idmac, &HSDK, ctrl, Instant::ZERO), Some(Ok(())));
        assert!(reset.memory_quiet());
    }

    #[test]
    fn a_reset_that_never_ends_is_an_error_at_its_limit_and_memory_is_not_quiet() {
        let mut regs = MockRegs::new();
        regs.expect_write32().return_const(());
        regs.expect_read32().with(eq(CTRL)).times(..=24).return_const(7_u32);
        let mut idmac = ring();
        let mut reset = Reset::begin(&regs, None, Ctrl::empty(), false, false, Instant::ZERO);
        assert_eq!(reset.advance(&regs, &mut idmac, &HSDK, Ctrl::empty(), Instant::ZERO), None);
        let late = Instant::ZERO + RESET_LIMIT;
        assert_eq!(
            reset.advance(&regs, &mut idmac, &HSDK, Ctrl::empty(), late),
            Some(Err(Cause::Controller))
        );
        assert!(!reset.memory_quiet());
    }

    #[test]
    fn a_stuck_clock_update_leaves_memory_quiet() {
        let mut regs = MockRegs::new();
        regs.expect_write32().return_const(());
        regs.expect_read32().with(eq(CMD)).return_const(0x8020_0000_u32);
        regs.expect_read32().return_const(0_u32);
        let mut idmac = ring();
        let mut reset = Reset::begin(&regs, None, Ctrl::empty(), true, false, Instant::ZERO);
        assert_eq!(reset.advance(&regs, &mut idmac, &HSDK, Ctrl::empty(), Instant::ZERO), None);
        assert!(reset.memory_quiet());
    }
}
