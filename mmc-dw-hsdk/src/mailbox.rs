//! What the two halves of the driver share: three words, and the way both write INTMASK.
//!
//! Every interleaving of the two halves is walked by `tests/loom_mailbox.rs`, which compiles this very file.

use crate::reg::{DmaEvents, Events, INTMASK, RINTSTS};
use crate::sync::{AtomicU32, Ordering, fence};
use mmc_hal::Mmio;
use mmc_proto::host::Irq;

/// What the interrupt half has seen and the task half has not taken yet, and what INTMASK is to be.
#[derive(Debug, Default)]
pub struct Mailbox {
    events: AtomicU32,
    dma: AtomicU32,
    mask: AtomicU32,
}

impl Mailbox {
    /// Empty; usually a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self { events: AtomicU32::new(0), dma: AtomicU32::new(0), mask: AtomicU32::new(0) }
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

    /// Makes the bits of INTMASK under `which` those of `to` and leaves the others to whom they belong.
    pub(crate) fn set_mask<M: Mmio>(&self, regs: &M, which: u32, to: u32) {
        // Two steps are enough: the bits of one half are changed to one by that half alone, and a bit that is off for
        // a moment delays an interrupt and loses none, since its source stays up.
        self.mask.fetch_and(!(which & !to), Ordering::SeqCst);
        self.mask.fetch_or(which & to, Ordering::SeqCst);
        self.show(regs);
    }

    /// Takes `bit` out of INTMASK; whether it was in.
    fn disarm<M: Mmio>(&self, regs: &M, bit: u32) -> bool {
        let was = self.mask.fetch_and(!bit, Ordering::SeqCst) & bit != 0;
        if was {
            self.show(regs);
        }
        was
    }

    /// Writes the mask into its register. Either half may be interrupted between its look at the word and the write
    /// of the register; so each looks again after its write, and whoever writes last has written what the word says
    /// (`spec/dw-mshc-quirks.md` Q19). A round more is needed only when the other half has changed the word
    /// meanwhile, which each does a bounded number of times.
    fn show<M: Mmio>(&self, regs: &M) {
        let mut mask = self.mask.load(Ordering::SeqCst);
        loop {
            // The word before the register, the register before the next look.
            fence(Ordering::SeqCst);
            regs.write32(INTMASK, mask);
            fence(Ordering::SeqCst);
            let now = self.mask.load(Ordering::SeqCst);
            if now == mask {
                return;
            }
            mask = now;
        }
    }
}

/// Reads what is pending, clears exactly that (an event between the read and the clear stays), records it.
///
/// It reads RINTSTS, not MINTSTS: command done is masked while data are expected, and is picked up with their end.
/// `sdio` is the bit of the SDIO interrupt, which the card holds as a level: it is masked until the task half arms it
/// again, else the line would never go down.
pub(crate) fn acknowledge<M: Mmio>(regs: &M, idsts: u32, sdio: u32, mailbox: &Mailbox) -> Irq {
    let pending = regs.read32(RINTSTS);
    let mut events = Events::from_bits_truncate(pending) & Events::HANDLED;
    let mut clear = events.bits();
    if pending & sdio != 0 && mailbox.disarm(regs, sdio) {
        events |= Events::SDIO;
        clear |= sdio;
    }
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
    if clear != 0 {
        regs.write32(RINTSTS, clear);
    }
    if !dma.is_empty() {
        regs.write32(idsts, dma.bits());
    }
    mailbox.record(events, dma);
    Irq::Wake
}
