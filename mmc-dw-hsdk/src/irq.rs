//! The interrupt half: acknowledges, records, says "wake"; and the mailbox between it and the task half.
//!
//! ```text
//!  interrupt ──► IrqHalf::handle ──► reads and clears RINTSTS, IDSTS ──► Mailbox (atomic words)
//!  task      ◄── DwEngine::advance ◄──────────── takes ◄──────────────────┘
//! ```
//! The two halves share nothing else. INTMASK belongs to the task half, but for the bit of the SDIO interrupt, which
//! the interrupt half takes out by a protocol that loses no bit of the other (`mailbox.rs`). The task half empties the
//! mailbox before it rings the doorbell, so that a late bit of one command never ends the next one.
//! A polled driver has no interrupt half and calls the same code itself.

use crate::mailbox::{Mailbox, acknowledge};
use mmc_hal::Mmio;
use mmc_proto::host::{Irq, IrqHandler};

/// The interrupt half: a window on the registers and the mailbox. Four register accesses at most, one more for an SDIO
/// interrupt.
///
/// The interrupt must be configured as a level: `handle` is called again as long as the line is up.
#[derive(Debug)]
pub struct IrqHalf<M> {
    regs: M,
    /// Where IDSTS is on this build.
    idsts: u32,
    /// The bit of the SDIO interrupt.
    sdio: u32,
    mailbox: &'static Mailbox,
}

impl<M> IrqHalf<M> {
    pub(crate) const fn new(regs: M, idsts: u32, sdio: u32, mailbox: &'static Mailbox) -> Self {
        Self { regs, idsts, sdio, mailbox }
    }
}

impl<M: Mmio> IrqHandler for IrqHalf<M> {
    fn handle(&mut self) -> Irq {
        acknowledge(&self.regs, self.idsts, self.sdio, self.mailbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reg::{DmaEvents, Events, IDSTS, INTMASK, RINTSTS};
    use core::cell::RefCell;
    use std::vec;
    use std::vec::Vec;

    const SDIO: u32 = 1 << 24;

    /// RINTSTS and IDSTS that clear on write; an event can arrive between read and clear.
    #[derive(Default)]
    struct Fake {
        events: RefCell<u32>,
        dma: RefCell<u32>,
        late: RefCell<u32>,
        writes: RefCell<Vec<(u32, u32)>>,
    }
    impl Mmio for Fake {
        fn read32(&self, offset: u32) -> u32 {
            match offset {
                RINTSTS => {
                    let seen = *self.events.borrow();
                    *self.events.borrow_mut() |= self.late.take();
                    seen
                }
                IDSTS => *self.dma.borrow(),
                other => panic!("the interrupt half reads {other:#x}"),
            }
        }
        fn write32(&self, offset: u32, value: u32) {
            self.writes.borrow_mut().push((offset, value));
            match offset {
                RINTSTS => *self.events.borrow_mut() &= !value,
                IDSTS => *self.dma.borrow_mut() &= !value,
                INTMASK => {}
                other => panic!("the interrupt half writes {other:#x}"),
            }
        }
    }

    #[test]
    fn an_event_between_read_and_clear_is_not_lost() {
        let (fake, mailbox) = (Fake::default(), Mailbox::new());
        *fake.events.borrow_mut() = Events::CDONE.bits();
        *fake.late.borrow_mut() = Events::DTO.bits();
        assert_eq!(acknowledge(&fake, IDSTS, SDIO, &mailbox), Irq::Wake);
        assert_eq!(mailbox.take().0, Events::CDONE);
        assert_eq!(acknowledge(&fake, IDSTS, SDIO, &mailbox), Irq::Wake);
        assert_eq!(mailbox.take().0, Events::DTO);
        assert_eq!(acknowledge(&fake, IDSTS, SDIO, &mailbox), Irq::NotMine);
    }

    #[test]
    fn only_what_was_seen_is_cleared_and_sdio_and_fifo_bits_are_left_alone() {
        let (fake, mailbox) = (Fake::default(), Mailbox::new());
        *fake.events.borrow_mut() = 0x0001_0000 | (Events::DTO | Events::RXDR).bits();
        *fake.dma.borrow_mut() = 0x0001_e102; // state bits, NIS, RI
        assert_eq!(acknowledge(&fake, IDSTS, SDIO, &mailbox), Irq::Wake);
        assert_eq!(*fake.writes.borrow(), vec![(RINTSTS, 8), (IDSTS, 0x102)]);
        assert_eq!(mailbox.take(), (Events::DTO, DmaEvents::RI | DmaEvents::NIS));
        assert_eq!(mailbox.take(), (Events::empty(), DmaEvents::empty()), "taken once");
    }

    #[test]
    fn a_bus_error_alone_wakes() {
        let (fake, mailbox) = (Fake::default(), Mailbox::new());
        *fake.dma.borrow_mut() = (DmaEvents::FBE | DmaEvents::AIS).bits();
        assert_eq!(acknowledge(&fake, IDSTS, SDIO, &mailbox), Irq::Wake);
        assert_eq!(mailbox.take().1, DmaEvents::FBE | DmaEvents::AIS);
    }

    #[test]
    fn an_sdio_interrupt_is_masked_until_it_is_armed_again_and_nothing_else_is() {
        let (fake, mailbox) = (Fake::default(), Mailbox::new());
        *fake.events.borrow_mut() = SDIO;
        assert_eq!(acknowledge(&fake, IDSTS, SDIO, &mailbox), Irq::NotMine, "not armed");
        mailbox.set_mask(&fake, u32::MAX, Events::CDONE.bits() | SDIO);
        assert_eq!(acknowledge(&fake, IDSTS, SDIO, &mailbox), Irq::Wake);
        assert_eq!(mailbox.take().0, Events::SDIO);
        *fake.events.borrow_mut() = SDIO; // the card still holds its line
        assert_eq!(acknowledge(&fake, IDSTS, SDIO, &mailbox), Irq::NotMine);
        mailbox.set_mask(&fake, SDIO, SDIO);
        assert_eq!(acknowledge(&fake, IDSTS, SDIO, &mailbox), Irq::Wake);
        let masks: Vec<u32> = fake.writes.borrow().iter().filter(|w| w.0 == INTMASK).map(|w| w.1).collect();
        assert_eq!(masks, [SDIO | 4, 4, SDIO | 4, 4]);
    }
}
