//! The driver on the model, with a list of what it does to the registers.

use super::{Model, RING_BYTES};
use mmc_dw_hsdk::{DwEngine, IrqHalf, Mailbox, Platform, Ring};
use mmc_hal::Mmio;
use mmc_mock::card::{SdCard, SdConfig, Shared};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{BufBatch, Clock, Memory, MemoryDma, Wakes, Window};
use mmc_proto::host::{Completion, Host, IrqHandler, Operation, Progress, Supervised};
use mmc_proto::machine::{Conductor, Machine, Turn};
use mmc_time::Duration;
use std::sync::{Arc, Mutex};

/// The model, with a list of what is done to it.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) dw: Model,
    list: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn note(&self, what: char, offset: u32, value: u32) {
        let name = match offset {
            0x000 => "CTRL",
            0x004 => "PWREN",
            0x008 => "CLKDIV",
            0x00c => "CLKSRC",
            0x010 => "CLKENA",
            0x014 => "TMOUT",
            0x018 => "CTYPE",
            0x01c => "BLKSIZ",
            0x020 => "BYTCNT",
            0x024 => "INTMASK",
            0x028 => "CMDARG",
            0x02c => "CMD",
            0x030 => "RESP0",
            0x044 => "RINTSTS",
            0x048 => "STATUS",
            0x04c => "FIFOTH",
            0x034 => "RESP1",
            0x064 => "DEBNCE",
            0x074 => "UHS_REG",
            0x080 => "BMOD",
            0x084 => "PLDMND",
            0x088 => "DBADDR",
            0x08c => "IDSTS",
            0x090 => "IDINTEN",
            0x200 => "DATA",
            _ => "",
        };
        let name = if name.is_empty() { format!("{offset:03x}") } else { name.into() };
        self.list.lock().unwrap().push(format!("{what} {name} {value:x}"));
    }
}

impl Mmio for Recorder {
    fn read32(&self, offset: u32) -> u32 {
        let value = self.dw.read32(offset);
        self.note('r', offset, value);
        value
    }
    fn write32(&self, offset: u32, value: u32) {
        self.note('W', offset, value);
        self.dw.write32(offset, value);
    }
}

/// A board by interrupts whose register accesses are kept.
pub(crate) struct Recorded {
    pub(crate) clock: Clock,
    pub(crate) dw: Model,
    pub(crate) card: Shared<SdCard>,
    host: Supervised<DwEngine<Recorder, Window, MemoryDma, BufBatch>>,
    irq: IrqHalf<Recorder>,
    list: Arc<Mutex<Vec<String>>>,
}

impl Recorded {
    /// DMA reaches addresses up to `mask`; an ideal card.
    pub(crate) fn new(config: Config, platform: Platform, mask: u64) -> Self {
        Self::with_card(config, platform, mask, SdConfig::new(Profile::ideal(), 1))
    }

    pub(crate) fn with_card(config: Config, platform: Platform, mask: u64, card: SdConfig) -> Self {
        let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
        let card = Shared::new(SdCard::new(card).unwrap());
        let dw = Dw::new(card.clone(), clock.clone(), memory.clone(), config);
        let list = Arc::default();
        let recorder = Recorder { dw: dw.clone(), list: Arc::clone(&list) };
        let at = memory.alloc(RING_BYTES as usize);
        let ring = Ring::new(memory.window(at, RING_BYTES), at, RING_BYTES).unwrap();
        let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
        let dma = MemoryDma::new(memory, mask);
        let (host, irq) = DwEngine::split(recorder.clone(), recorder, mailbox, ring, dma, platform);
        Self { clock, dw, card, host, irq, list }
    }

    pub(crate) fn capabilities(&self) -> mmc_proto::host::Capabilities {
        self.host.capabilities()
    }

    fn pass(&mut self, until: mmc_time::Instant) {
        loop {
            self.dw.advance();
            if self.dw.irq() {
                self.irq.handle();
                break;
            }
            if self.clock.now() >= until {
                break;
            }
            self.clock.advance_to(self.dw.next_event().min(until));
        }
    }

    pub(crate) fn run<T: Machine>(&mut self, machine: T, payload: BufBatch) -> (T::Output, Option<BufBatch>) {
        let mut conductor = Conductor::new(machine, Some(payload));
        loop {
            match conductor.poll(&mut self.host, self.clock.now()) {
                Turn::Done(out, payload) => return (out, payload),
                Turn::Wait { until, .. } => self.pass(until),
            }
        }
    }

    pub(crate) fn operate(&mut self, op: Operation<BufBatch>) -> Completion<BufBatch> {
        let now = self.clock.now();
        self.host.submit(op, now + Duration::from_secs(1), now).unwrap();
        loop {
            match self.host.poll(self.clock.now()) {
                Progress::Done(done) => return done,
                Progress::Waiting { until, .. } => self.pass(until),
                Progress::Idle => panic!("idle without a completion"),
            }
        }
    }

    /// What was done to the registers since the last call.
    pub(crate) fn list(&self) -> Vec<String> {
        std::mem::take(&mut self.list.lock().unwrap())
    }

    /// What was written since the last call.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.list().into_iter().filter_map(|l| l.strip_prefix("W ").map(str::to_string)).collect()
    }
}
