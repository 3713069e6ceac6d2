//! Every interleaving of the two halves of the driver, by loom: the mailbox and the way both write INTMASK.
//!
//! The file under test is compiled here against loom's atomics; the registers are loom atomics, too.

#[path = "../src/mailbox.rs"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod mailbox;

#[allow(dead_code)]
mod reg {
    pub(crate) use mmc_dw_hsdk::reg::*;
}

mod sync {
    pub(crate) use loom::sync::atomic::{Ordering, fence};
    use std::sync::OnceLock;

    /// A word of loom's that can be made in a `const fn`: it comes to be at its first use, which every test makes
    /// before it starts the second thread.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicU32(OnceLock<loom::sync::atomic::AtomicU32>);

    impl AtomicU32 {
        pub(crate) const fn new(_: u32) -> Self {
            Self(OnceLock::new())
        }
        fn word(&self) -> &loom::sync::atomic::AtomicU32 {
            self.0.get_or_init(|| loom::sync::atomic::AtomicU32::new(0))
        }
        pub(crate) fn load(&self, order: Ordering) -> u32 {
            self.word().load(order)
        }
        pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
            self.word().swap(value, order)
        }
        pub(crate) fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
            self.word().fetch_or(value, order)
        }
        pub(crate) fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
            self.word().fetch_and(value, order)
        }
    }
}

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::thread;
use mailbox::{Mailbox, acknowledge};
use mmc_dw_hsdk::reg::{DmaEvents, Events, IDSTS, INTMASK, RINTSTS};
use mmc_hal::Mmio;
use mmc_proto::host::Irq;

const SDIO: u32 = 1 << 24;

/// RINTSTS and IDSTS clear on write; INTMASK stores.
struct Regs {
    rintsts: AtomicU32,
    idsts: AtomicU32,
    intmask: AtomicU32,
}

impl Mmio for Regs {
    fn read32(&self, offset: u32) -> u32 {
        match offset {
            RINTSTS => self.rintsts.load(SeqCst),
            IDSTS => self.idsts.load(SeqCst),
            other => panic!("nobody reads {other:#x}"),
        }
    }
    fn write32(&self, offset: u32, value: u32) {
        match offset {
            RINTSTS => drop(self.rintsts.fetch_and(!value, SeqCst)),
            IDSTS => drop(self.idsts.fetch_and(!value, SeqCst)),
            INTMASK => self.intmask.store(value, SeqCst),
            other => panic!("nobody writes {other:#x}"),
        }
    }
}

fn shared() -> Arc<(Regs, Mailbox)> {
    let regs = Regs { rintsts: AtomicU32::new(0), idsts: AtomicU32::new(0), intmask: AtomicU32::new(0) };
    let mailbox = Mailbox::new();
    mailbox.take();
    mailbox.set_mask(&regs, u32::MAX, 0);
    Arc::new((regs, mailbox))
}

/// The device raises events, the interrupt half acknowledges, the task half takes: each event arrives once, and who
/// sees the end of the data sees what the DMA said before it.
#[test]
fn each_event_arrives_once_and_dma_before_data() {
    loom::model(|| {
        let shared = shared();
        let irq = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (regs, mailbox) = &*shared;
                regs.rintsts.fetch_or(Events::CDONE.bits(), SeqCst);
                acknowledge(regs, IDSTS, SDIO, mailbox);
                // RI comes before the end of the data, both before the second interrupt.
                regs.idsts.fetch_or(DmaEvents::RI.bits(), SeqCst);
                regs.rintsts.fetch_or(Events::DTO.bits(), SeqCst);
                assert_eq!(acknowledge(regs, IDSTS, SDIO, mailbox), Irq::Wake);
            })
        };
        let (regs, mailbox) = &*shared;
        let (mut cdone, mut dto, mut ri) = (0, 0, 0);
        let mut count = |(events, dma): (Events, DmaEvents)| {
            cdone += u32::from(events.contains(Events::CDONE));
            ri += u32::from(dma.contains(DmaEvents::RI));
            if events.contains(Events::DTO) {
                dto += 1;
                assert_eq!(ri, 1, "the end of the data without what the DMA had said");
            }
        };
        count(mailbox.take());
        count(mailbox.take());
        irq.join().unwrap();
        count(mailbox.take());
        assert_eq!((cdone, dto, ri), (1, 1, 1));
        assert_eq!(regs.rintsts.load(SeqCst) | regs.idsts.load(SeqCst), 0);
    });
}

/// Both halves write INTMASK at once: the register ends as the word says, the SDIO interrupt out, the task's bits as the
/// task wants them (Q19).
#[test]
fn a_mask_written_by_both_halves_loses_neither() {
    loom::model(|| {
        let shared = shared();
        shared.1.set_mask(&shared.0, u32::MAX, 0xbfcf | SDIO);
        shared.0.rintsts.fetch_or(SDIO, SeqCst);
        let irq = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (regs, mailbox) = &*shared;
                assert_eq!(acknowledge(regs, IDSTS, SDIO, mailbox), Irq::Wake);
            })
        };
        let (regs, mailbox) = &*shared;
        mailbox.set_mask(regs, !SDIO, 0xbfcb);
        mailbox.set_mask(regs, !SDIO, 0xbfcf);
        irq.join().unwrap();
        assert_eq!(regs.intmask.load(SeqCst), 0xbfcf, "the register is what both halves agreed on");
        assert_eq!(mailbox.take().0, Events::SDIO);
    });
}

/// The task arms the SDIO interrupt while the interrupt half is still at the one before: it is armed in the end, or has
/// been seen again.
#[test]
fn an_sdio_interrupt_that_is_armed_again_is_not_lost() {
    loom::model(|| {
        let shared = shared();
        shared.1.set_mask(&shared.0, u32::MAX, SDIO);
        shared.0.rintsts.fetch_or(SDIO, SeqCst);
        let irq = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (regs, mailbox) = &*shared;
                acknowledge(regs, IDSTS, SDIO, mailbox)
            })
        };
        let (regs, mailbox) = &*shared;
        mailbox.set_mask(regs, SDIO, SDIO);
        irq.join().unwrap();
        let seen = mailbox.take().0.contains(Events::SDIO);
        let armed = regs.intmask.load(SeqCst) & SDIO != 0;
        assert!(seen || armed);
        // The control: it was up, so the interrupt half has seen it.
        assert!(seen);
    });
}
