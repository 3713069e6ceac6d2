//! What lies between the end of a read of 64 KiB and the doorbell of the next, through a whole disk on the register model of
//! the DesignWare controller: register accesses and words of descriptors, with and without preparation.

mod common;

use common::{read, tags};
use mmc_block::{Disk, Init, Next, Observer, Settings, Ticket, Up};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, Mailbox, Ring};
use mmc_hal::Mmio;
use mmc_mock::card::{SdCard, SdConfig, Shared};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, Wakes};
use mmc_proto::host::{Host, Irq, IrqHandler};
use mmc_sched::{NoSched, Queue, Run, Slot};
use mmc_time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A window on memory that counts the words written.
struct Counted<M>(M, Arc<AtomicU64>);

impl<M: Mmio> Mmio for Counted<M> {
    fn read32(&self, at: u32) -> u32 {
        self.0.read32(at)
    }
    fn write32(&self, at: u32, value: u32) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.write32(at, value);
    }
}

const CMD: u32 = 0x2c;

/// Registers, with the accesses counted, and what they were at each doorbell.
#[derive(Clone)]
struct Watched {
    dw: Dw<Shared<SdCard>>,
    words: Arc<AtomicU64>,
    seen: Arc<std::sync::Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    accesses: u64,
    /// Accesses and words at the end of the last transfer.
    ended: (u64, u64),
    /// Of each transfer that followed at once: what lay between, up to the first doorbell, and to that of its data.
    first: Vec<u64>,
    data: Vec<(u64, u64)>,
    waiting: bool,
}

impl Mmio for Watched {
    fn read32(&self, at: u32) -> u32 {
        self.seen.lock().unwrap().accesses += 1;
        self.dw.read32(at)
    }
    fn write32(&self, at: u32, value: u32) {
        {
            let mut seen = self.seen.lock().unwrap();
            seen.accesses += 1;
            if at == CMD && seen.ended != (0, 0) {
                let spent = (seen.accesses - seen.ended.0, self.words.load(Ordering::Relaxed) - seen.ended.1);
                if std::mem::take(&mut seen.waiting) {
                    seen.first.push(spent.0);
                }
                // Bit 9: data are expected.
                if value & 1 << 9 != 0 {
                    seen.data.push(spent);
                    seen.ended = (0, 0);
                }
            }
        }
        self.dw.write32(at, value);
    }
}

/// Sees the end of each transfer, before the next is begun.
struct End(Watched);

impl Observer for End {
    fn ended(&mut self, _: Ticket, _: &Run, ok: bool, _: Instant) {
        assert!(ok);
        let mut seen = self.0.seen.lock().unwrap();
        seen.ended = (seen.accesses, self.0.words.load(Ordering::Relaxed));
        seen.waiting = true;
    }
}

/// 16 reads of 64 KiB, all queued. Accesses to the first doorbell after the end of one and to that of the data, and
/// words of descriptors between them.
fn between(prepare: bool, cmd23: bool) -> (u64, u64, u64) {
    let clock = Clock::new();
    let card = Shared::new(SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap());
    let memory = Memory::new(0x8000_0000, 0xc000_0000);
    let words = Arc::new(AtomicU64::new(0));
    let regs = Watched {
        dw: Dw::new(card, clock.clone(), memory.clone(), Config::hsdk()),
        words: words.clone(),
        seen: Arc::default(),
    };
    let at = memory.alloc(16_384);
    let ring = Ring::new(Counted(memory.window(at, 16_384), words), at, 16_384).unwrap();
    let dma = MemoryDma::new(memory.clone(), u64::from(u32::MAX));
    let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
    let (mut host, mut half) =
        DwEngine::<_, _, _, BufBatch>::split(regs.clone(), regs.clone(), mailbox, ring, dma, HSDK);
    let caps = host.capabilities();
    let mut init = Init::new(&caps, BufBatch::new(1), Buf(vec![0; 512])).unwrap();
    let step = |clock: &Clock, until: Instant| {
        clock.advance_to(until.min(regs.dw.next_event()));
    };
    let mut irq = || regs.dw.irq() && half.handle() == Irq::Wake;
    let mut traits = loop {
        irq();
        match init.poll(&mut host, clock.now()) {
            Up::Wait { until, .. } => step(&clock, until),
            Up::Done { card, .. } => break card.unwrap().traits,
        }
    };
    traits.cmd23 = cmd23;
    let queue = Queue::new(vec![Slot::FREE; 16], NoSched::new());
    let observer = End(regs.clone());
    let mut disk =
        Disk::new(host, queue, traits, BufBatch::new(4), tags(16), Settings::default(), observer).unwrap();
    if prepare {
        disk.prepare_with(BufBatch::new(4)).unwrap();
    }
    for k in 0..16 {
        // Far from each other, so that nothing merges.
        disk.submit(read(k * 1024, 128), Buf(vec![0; 65_536]), clock.now()).unwrap();
    }
    // Nobody looks but after an interrupt, and at the end of a wait.
    let mut interrupts = 0;
    while let Next::Wait { until, .. } = disk.poll(clock.now()) {
        while !irq() && clock.now() < until {
            step(&clock, until);
        }
        interrupts += u64::from(clock.now() < until);
    }
    assert_eq!(disk.statistics().interrupts, interrupts);
    assert!(interrupts >= 16, "{interrupts} for 16 reads");
    let mut done = 0;
    while let Some(d) = disk.take_done() {
        assert_eq!(d.result, Ok(()));
        done += 1;
    }
    assert_eq!(done, 16);
    assert_eq!(regs.dw.violations(), Vec::<String>::new());
    let seen = regs.seen.lock().unwrap();
    // In steady state each is like the other.
    let (first, (data, words)) = (seen.first[5], seen.data[5]);
    assert_eq!(seen.data.len(), 15);
    assert!(seen.first[3..].iter().all(|n| *n == first), "{:?}", seen.first);
    assert!(seen.data[3..].iter().all(|n| *n == (data, words)), "{:?}", seen.data);
    (first, data, words)
}

#[test]
fn with_preparation_nothing_is_left_between_two_reads_but_the_doorbell() {
    for (what, prepare, cmd23, expected) in [
        ("automatic stop", false, false, (3, 3, 64)),
        ("automatic stop, prepared", true, false, (4, 4, 0)),
        ("CMD23", false, true, (3, 10, 64)),
        ("CMD23, prepared", true, true, (3, 11, 0)),
    ] {
        let got = between(prepare, cmd23);
        println!(
            "{what}: {} accesses to the first doorbell, {} to that of the data, {} words of descriptors",
            got.0, got.1, got.2
        );
        assert_eq!(got, expected, "{what}");
    }
}
