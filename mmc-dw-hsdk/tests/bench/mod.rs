//! A board on the bench: the driver on the register model, with an SD card behind it, in virtual time.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod recorder;

use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, IrqHalf, Mailbox, Platform, Ring};
use mmc_hal::{Batch, Dir, Mmio, Payload};
use mmc_mock::card::{SdCard, SdConfig, Shared};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, Wakes, Window};
use mmc_proto::command::Command;
use mmc_proto::host::{
    Completion, Host, HostError, Irq, IrqHandler, Operation, Progress, Reply, Returned, Supervised,
};
use mmc_proto::machine::{
    CardTraits, Conductor, Identified, Identify, Machine, Transfer, TransferError, TransferOptions, Turn,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::ProptestConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) type Model = Dw<Shared<SdCard>>;
pub(crate) type TheHost = Supervised<DwEngine<Model, Counted, MemoryDma, BufBatch>>;

/// The window on the descriptors, with a count of what is written.
#[derive(Debug)]
pub(crate) struct Counted(Window, Arc<AtomicU64>);

impl Mmio for Counted {
    fn read32(&self, offset: u32) -> u32 {
        self.0.read32(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.write32(offset, value);
    }
}

/// How the driver learns of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Polled,
    Interrupts,
}
pub(crate) const MODES: [Mode; 2] = [Mode::Polled, Mode::Interrupts];

pub(crate) struct Bench {
    pub(crate) clock: Clock,
    pub(crate) memory: Memory,
    pub(crate) dw: Model,
    pub(crate) card: Shared<SdCard>,
    pub(crate) host: TheHost,
    pub(crate) irq: Option<IrqHalf<Model>>,
    /// Where the descriptors are.
    pub(crate) ring_bus: u64,
    /// Interrupts handled.
    pub(crate) interrupts: u64,
    descriptor_writes: Arc<AtomicU64>,
}

pub(crate) const RING_BYTES: u32 = 8192;

impl Bench {
    /// An HSDK with an ideal 8 GiB card.
    pub(crate) fn new(mode: Mode) -> Self {
        Self::with(mode, Config::hsdk(), HSDK, SdConfig::new(Profile::ideal(), 1))
    }

    pub(crate) fn with(mode: Mode, config: Config, platform: Platform, card: SdConfig) -> Self {
        let top = if config.addr64 { u64::MAX } else { u32::MAX.into() };
        Self::with_mask(mode, config, platform, card, top)
    }

    /// DMA reaches addresses up to `mask`; with 64-bit descriptors all memory is above 4 GiB.
    pub(crate) fn with_mask(
        mode: Mode,
        config: Config,
        platform: Platform,
        card: SdConfig,
        mask: u64,
    ) -> Self {
        let memory = match config.addr64 {
            true => Memory::new(0x12_8000_0000, 0x12_c000_0000),
            false => Memory::new(0x8000_0000, 0xc000_0000),
        };
        let dma = MemoryDma::new(memory.clone(), mask);
        let ring = if config.addr64 { 2 * RING_BYTES } else { RING_BYTES };
        Self::build(mode, config, platform, card, memory, dma, ring)
    }

    /// Everything by hand; the ring is of `bytes` bytes.
    pub(crate) fn build(
        mode: Mode,
        config: Config,
        platform: Platform,
        card: SdConfig,
        memory: Memory,
        dma: MemoryDma,
        bytes: u32,
    ) -> Self {
        let clock = Clock::new();
        let wide = config.addr64;
        let card = Shared::new(SdCard::new(card).unwrap());
        card.lock().keep_log(true);
        let dw = Dw::new(card.clone(), clock.clone(), memory.clone(), config);
        let at = memory.alloc(bytes as usize);
        let descriptor_writes = Arc::default();
        let window = Counted(memory.window(at, bytes), Arc::clone(&descriptor_writes));
        let ring = if wide { Ring::wide(window, at, bytes) } else { Ring::new(window, at, bytes) }.unwrap();
        let (host, irq) = match mode {
            Mode::Polled => (DwEngine::new(dw.clone(), ring, dma, platform), None),
            Mode::Interrupts => {
                let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
                let (host, irq) = DwEngine::split(dw.clone(), dw.clone(), mailbox, ring, dma, platform);
                (host, Some(irq))
            }
        };
        Self { clock, memory, dw, card, host, irq, ring_bus: at, interrupts: 0, descriptor_writes }
    }

    /// Words of descriptors written so far.
    pub(crate) fn descriptor_writes(&self) -> u64 {
        self.descriptor_writes.load(Ordering::Relaxed)
    }

    /// As [`identified`](Self::identified), with a ring of `bytes` bytes.
    pub(crate) fn identified_with_ring(mode: Mode, bytes: u32) -> (Self, CardTraits) {
        let memory = Memory::new(0x8000_0000, 0xc000_0000);
        let dma = MemoryDma::new(memory.clone(), u32::MAX.into());
        let card = SdConfig::new(Profile::ideal(), 1);
        let mut b = Self::build(mode, Config::hsdk(), HSDK, card, memory, dma, bytes);
        let traits = b.identify().traits;
        (b, traits)
    }

    /// An identified card, in four-bit high speed.
    pub(crate) fn identified(mode: Mode) -> (Self, CardTraits) {
        let mut b = Self::new(mode);
        let traits = b.identify().traits;
        (b, traits)
    }

    /// Lets time pass until `until`, or until the interrupt line has brought something.
    pub(crate) fn pass(&mut self, until: Instant) {
        loop {
            self.dw.advance();
            // The line is a level: it calls again until nothing is pending.
            if self.dw.irq() {
                if let Some(irq) = &mut self.irq {
                    self.interrupts += 1;
                    if irq.handle() == Irq::Wake {
                        return;
                    }
                }
            }
            if self.clock.now() >= until {
                return;
            }
            self.clock.advance_to(self.dw.next_event().min(until));
        }
    }

    /// Lets time pass until `until`, whatever happens meanwhile.
    pub(crate) fn pass_all(&mut self, until: Instant) {
        while self.clock.now() < until {
            self.pass(until);
        }
    }

    pub(crate) fn run<T: Machine>(
        &mut self,
        machine: T,
        payload: Option<BufBatch>,
    ) -> (T::Output, Option<BufBatch>) {
        let mut conductor = Conductor::new(machine, payload);
        for _ in 0..2_000_000 {
            match conductor.poll(&mut self.host, self.clock.now()) {
                Turn::Done(out, payload) => return (out, payload),
                Turn::Wait { until, .. } => self.pass(until),
            }
        }
        panic!("a conversation without end at {:?}", self.clock.now());
    }

    /// One operation straight on the host.
    pub(crate) fn operate(&mut self, op: Operation<BufBatch>, limit: Duration) -> Completion<BufBatch> {
        let now = self.clock.now();
        if let Err(refused) = self.host.submit(op, now + limit, now) {
            let payload = match refused.operation {
                Operation::Transfer(_, p) => Returned::Back(p),
                _ => Returned::None,
            };
            return Completion { result: Err(refused.error), payload };
        }
        for _ in 0..2_000_000 {
            match self.host.poll(self.clock.now()) {
                Progress::Done(done) => return done,
                Progress::Waiting { until, .. } => self.pass(until),
                Progress::Idle => panic!("idle without a completion"),
            }
        }
        panic!("an operation without end at {:?}", self.clock.now());
    }

    pub(crate) fn command(&mut self, c: Command, limit: Duration) -> Result<Reply, HostError> {
        self.operate(Operation::Command(c), limit).result
    }

    pub(crate) fn identify(&mut self) -> Identified {
        self.try_identify().unwrap()
    }
    pub(crate) fn try_identify(&mut self) -> <Identify as Machine>::Output {
        let machine = Identify::new(&self.host.capabilities());
        self.run(machine, Some(buffers(&[512]))).0
    }

    pub(crate) fn transfer(
        &mut self,
        card: &CardTraits,
        dir: Dir,
        lba: u64,
        payload: BufBatch,
        options: TransferOptions,
    ) -> (Result<u32, TransferError>, Option<BufBatch>) {
        let blocks = u32::try_from(payload.bytes() / 512).unwrap();
        self.run(Transfer::new(card, dir, lba, blocks, options), Some(payload))
    }
    pub(crate) fn read(
        &mut self,
        card: &CardTraits,
        lba: u64,
        lens: &[usize],
    ) -> Result<Vec<u8>, TransferError> {
        let (r, p) = self.transfer(card, Dir::Read, lba, buffers(lens), TransferOptions::default());
        r.map(|_| bytes(p.unwrap()))
    }
    pub(crate) fn write(&mut self, card: &CardTraits, lba: u64, data: &[u8]) -> Result<u32, TransferError> {
        self.transfer(card, Dir::Write, lba, filled(data, &[data.len()]), TransferOptions::default()).0
    }

    /// What the card has stored.
    pub(crate) fn stored(&self, lba: u64, blocks: usize) -> Vec<u8> {
        let mut bytes = vec![0; blocks * 512];
        self.card.lock().storage_mut().read(lba * 512, &mut bytes).unwrap();
        bytes
    }
    pub(crate) fn store(&self, lba: u64, data: &[u8]) {
        self.card.lock().storage_mut().write(lba * 512, data).unwrap();
    }
    /// Indices of the commands the card has seen.
    pub(crate) fn seen(&self) -> Vec<u8> {
        self.card.lock().log().entries().iter().map(|e| e.index).collect()
    }
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        use mmc_mock::card::Card;
        assert_eq!(self.card.violations(), Vec::<String>::new(), "the card");
        assert_eq!(self.dw.violations(), Vec::<String>::new(), "the controller");
    }
}

/// Empty buffers of these lengths.
pub(crate) fn buffers(lens: &[usize]) -> BufBatch {
    filled(&vec![0; lens.iter().sum()], lens)
}

/// Buffers of these lengths with `data` in them.
pub(crate) fn filled(data: &[u8], lens: &[usize]) -> BufBatch {
    let mut batch = BufBatch::new(lens.len());
    let mut at = 0;
    for &len in lens {
        batch.push(Buf(data[at..at + len].to_vec()), 0, len).unwrap();
        at += len;
    }
    batch
}

pub(crate) fn bytes(mut batch: BufBatch) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(b) = batch.pop() {
        all.extend(b.0);
    }
    all
}

/// Bytes that repeat nowhere near.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        })
        .collect()
}

/// So many cases, unless the environment says how many.
pub(crate) fn cases(n: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = n;
    }
    // Failures are to be copied into a test of their own.
    config.failure_persistence = None;
    config
}
