//! The interrupt half: acknowledges, records, says "wake"; and the mailbox between it and the task half.
//!
//! ```text
//!  interrupt ──► IrqHalf::handle ──► reads and clears STATUS ──► Mailbox (one atomic word)
//!  task      ◄── SdhciEngine::advance ◄───────── takes ◄──────────┘
//! ```
//! The two halves share nothing else: both enable registers belong to the task half alone. It empties the mailbox before it
//! sends a command, so that a late event of one never ends the next. A polled driver has no interrupt half and calls the
//! same code itself.

use crate::reg::{Events, STATUS};
use core::sync::atomic::{AtomicU32, Ordering};
use mmc_hal::Mmio;
use mmc_proto::host::{Irq, IrqHandler};

/// What the interrupt half has seen and the task half has not taken yet.
#[derive(Debug, Default)]
pub struct Mailbox(AtomicU32);

impl Mailbox {
    /// Empty; usually a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn take(&self) -> Events {
        Events::from_bits_truncate(self.0.swap(0, Ordering::Acquire))
    }
}

/// Reads what is pending, clears exactly that (an event between the read and the clear stays), records it.
pub(crate) fn acknowledge<M: Mmio>(regs: &M, mailbox: &Mailbox) -> Irq {
    let events = Events::from_bits_truncate(regs.read32(STATUS));
    if events.is_empty() {
        return Irq::NotMine;
    }
    regs.write32(STATUS, events.bits());
    mailbox.0.fetch_or(events.bits(), Ordering::Release);
    Irq::Wake
}

/// The interrupt half: a window on the registers and the mailbox. Two register accesses.
///
/// The interrupt must be configured as a level: `handle` is called again as long as the line is up.
#[derive(Debug)]
pub struct IrqHalf<M> {
    regs: M,
    mailbox: &'static Mailbox,
}

impl<M> IrqHalf<M> {
    pub(crate) const fn new(regs: M, mailbox: &'static Mailbox) -> Self {
        Self { regs, mailbox }
    }
}

impl<M: Mmio> IrqHandler for IrqHalf<M> {
    fn handle(&mut self) -> Irq {
        acknowledge(&self.regs, self.mailbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// A status register that clears on write; an event can arrive between read and clear.
    struct Fake {
        status: Cell<u32>,
        late: Cell<u32>,
    }
    impl Mmio for Fake {
        fn read32(&self, offset: u32) -> u32 {
            assert_eq!(offset, STATUS);
            let seen = self.status.get();
            self.status.set(seen | self.late.take());
            seen
        }
        fn write32(&self, offset: u32, value: u32) {
            assert_eq!(offset, STATUS);
            self.status.set(self.status.get() & !value);
        }
    }

    #[test]
    fn an_event_between_read_and_clear_is_not_lost_and_foreign_bits_are_left_alone() {
        // Bits 15 (some error, not to be cleared) and 8 (SDIO, a level) are nobody's.
        let fake = Fake { status: Cell::new(0x8101), late: Cell::new(2) };
        let mailbox = Mailbox::new();
        assert_eq!(acknowledge(&fake, &mailbox), Irq::Wake);
        assert_eq!(mailbox.take(), Events::COMMAND);
        assert_eq!(acknowledge(&fake, &mailbox), Irq::Wake);
        assert_eq!(mailbox.take(), Events::TRANSFER);
        assert_eq!(acknowledge(&fake, &mailbox), Irq::NotMine);
        assert_eq!((fake.status.get(), mailbox.take()), (0x8100, Events::empty()));
    }
}
