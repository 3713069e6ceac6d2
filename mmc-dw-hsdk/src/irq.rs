//! The interrupt half: acknowledges, records, says "wake"; and the mailbox between it and the task half.
//!
//! ```text
//!  interrupt ──► IrqHalf::handle ──► reads and clears RINTSTS, IDSTS ──► Mailbox (two atomic words)
//!  task      ◄── DwEngine::advance ◄──────────── takes ◄──────────────────┘
//! ```
//! The two halves share nothing else, and the interrupt half never writes a mask. The task half empties the mailbox
//! before it rings the doorbell, so that a late bit of one command never ends the next one.
//! A polled driver has no interrupt half and calls the same code itself.

use crate::reg::{DmaEvents, Events, RINTSTS};
use core::sync::atomic::{AtomicU32, Ordering};
use mmc_hal::Mmio;
use mmc_proto::host::{Irq, IrqHandler};

/// What the interrupt half has seen and the task half has not taken yet.
#[derive(Debug, Default)]
pub struct Mailbox {
    events: AtomicU32,
    dma: AtomicU32,
}

impl Mailbox {
    /// Empty; usually a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self { events: AtomicU32::new(0), dma: AtomicU32::new(0) }
    }
    fn record(&self, events: Events, dma: DmaEvents) {
        // DMA first: whoever sees the end of the data also sees what the DMA said before it.
        self.dma.fetch_or(dma.bits(), Ordering::Release);
        self.events.fetch_or(events.bits(), Ordering::Release);
    }
    pub(crate) fn take(&self) -> (Events, DmaEvents) {
        let events = self.events.swap(0, Ordering::Acquire);
        let dma = self.dma.swap(0, Ordering::Acquire);
        (Events::from_bits_truncate(events), DmaEvents::from_bits_truncate(dma))
    }
}

/// Reads what is pending, clears exactly that (an event between the read and the clear stays), records it.
///
/// It reads RINTSTS, not MINTSTS: command done is masked while data are expected, and is picked up with their end.
pub(crate) fn acknowledge<M: Mmio>(regs: &M, idsts: u32, mailbox: &Mailbox) -> Irq {
    let events = Events::from_bits_truncate(regs.read32(RINTSTS)) & Events::HANDLED;
    // The end of a command without data says nothing about the DMA: one access less. Should the line be up for the
    // DMA as well, it stays up and this runs again.
    let dma = if events == Events::CDONE {
        DmaEvents::empty()
    } else {
        DmaEvents::from_bits_truncate(regs.read32(idsts))
    };
    if events.is_empty() && dma.is_empty() {
        return Irq::NotMine;
    }
    if !events.is_empty() {
        regs.write32(RINTSTS, events.bits());
    }
    if !dma.is_empty() {
        regs.write32(idsts, dma.bits());
    }
    mailbox.record(events, dma);
    Irq::Wake
}

/// The interrupt half: a window on the registers and the mailbox. Four register accesses at most.
///
/// The interrupt must be configured as a level: `handle` is called again as long as the line is up.
#[derive(Debug)]
pub struct IrqHalf<M> {
    regs: M,
    /// Where IDSTS is on this build.
    idsts: u32,
    mailbox: &'static Mailbox,
}

impl<M> IrqHalf<M> {
    pub(crate) const fn new(regs: M, idsts: u32, mailbox: &'static Mailbox) -> Self {
        Self { regs, idsts, mailbox }
    }
}

impl<M: Mmio> IrqHandler for IrqHalf<M> {
    fn handle(&mut self) -> Irq {
        acknowledge(&self.regs, self.idsts, self.mailbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reg::IDSTS;
    use core::cell::RefCell;
    use std::vec;
    use std::vec::Vec;

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
                other => panic!("the interrupt half writes {other:#x}"),
            }
        }
    }

    #[test]
    fn an_event_between_read_and_clear_is_not_lost() {
        let (fake, mailbox) = (Fake::default(), Mailbox::new());
        *fake.events.borrow_mut() = Events::CDONE.bits();
        *fake.late.borrow_mut() = Events::DTO.bits();
        assert_eq!(acknowledge(&fake, IDSTS, &mailbox), Irq::Wake);
        assert_eq!(mailbox.take().0, Events::CDONE);
        assert_eq!(acknowledge(&fake, IDSTS, &mailbox), Irq::Wake);
        assert_eq!(mailbox.take().0, Events::DTO);
        assert_eq!(acknowledge(&fake, IDSTS, &mailbox), Irq::NotMine);
    }

    #[test]
    fn only_what_was_seen_is_cleared_and_sdio_and_fifo_bits_are_left_alone() {
        let (fake, mailbox) = (Fake::default(), Mailbox::new());
        *fake.events.borrow_mut() = 0x0001_0000 | (Events::DTO | Events::RXDR).bits();
        *fake.dma.borrow_mut() = 0x0001_e102; // state bits, NIS, RI
        assert_eq!(acknowledge(&fake, IDSTS, &mailbox), Irq::Wake);
        assert_eq!(*fake.writes.borrow(), vec![(RINTSTS, 8), (IDSTS, 0x102)]);
        assert_eq!(mailbox.take(), (Events::DTO, DmaEvents::RI | DmaEvents::NIS));
        assert_eq!(mailbox.take(), (Events::empty(), DmaEvents::empty()), "taken once");
    }

    #[test]
    fn a_bus_error_alone_wakes() {
        let (fake, mailbox) = (Fake::default(), Mailbox::new());
        *fake.dma.borrow_mut() = (DmaEvents::FBE | DmaEvents::AIS).bits();
        assert_eq!(acknowledge(&fake, IDSTS, &mailbox), Irq::Wake);
        assert_eq!(mailbox.take().1, DmaEvents::FBE | DmaEvents::AIS);
    }
}
