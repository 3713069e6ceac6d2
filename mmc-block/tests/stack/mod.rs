//! A disk that looks after a faulty card, over a host of any kind, and a back door to the card.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use mmc_block::{Care, Disk, Done, Init, Media, Next, Settings, Tag, Up};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, IrqHalf, Mailbox, Ring};
use mmc_hal::Payload;
use mmc_mock::card::{Card, MmcCard, MmcConfig, SdCard, SdConfig, Shared};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::fault::{Faulty, Medium, Script};
use mmc_mock::sdhci::{self, Sdhci};
use mmc_mock::spi::{Spi, SpiConfig, SpiMode, SpiSd};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, HeapBatch, Memory, MemoryDma, MockHost, Movable, Wakes, Wired, zoo};
use mmc_proto::bus::{Signal, Timing, Width};
use mmc_proto::command::Command;
use mmc_proto::host::{
    Capabilities, Cause, Completion, Host, HostError, Irq, IrqHandler, Operation, Phase, Progress, Returned,
    Slot as SlotState, SubmitError,
};
use mmc_proto::machine::Identified;
use mmc_sched::{AnyPolicy, Flags, Op, Queue, Request, Slot, StreamId};
use mmc_sdhci::{SdhciEngine, Table};
use mmc_spi::{Board, Exclusive, SpiEngine};
use mmc_time::{Duration, Instant};

/// Which host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// No controller at all.
    Mock,
    /// The DesignWare driver on its register model, with DMA and interrupts.
    Dw,
    /// The driver of the standard host on its register model, likewise.
    Sdhci,
    /// The SPI driver on the model's wires, alone on the bus: [`Bench::spi`].
    Spi,
}

/// Hosts on the SD bus, for a card of any kind.
pub const BACKENDS: [Backend; 3] = [Backend::Mock, Backend::Dw, Backend::Sdhci];

/// A host of any kind.
pub struct AnyHost<P: Payload = BufBatch> {
    host: Wired<P>,
    /// It says that it takes so many segments, and must never be given more.
    pub most: u16,
    /// It has no card detect line.
    pub blind: bool,
    /// The argument of each CMD38 it was given.
    pub erases: Vec<u32>,
    /// The next payload that would come back is kept instead, until it is reclaimed.
    pub keep: bool,
    pub kept: Option<P>,
}

impl<P: Payload> AnyHost<P> {
    pub fn reclaim(&mut self) -> Option<P> {
        self.kept.take()
    }
}

impl<P: Payload> Host for AnyHost<P> {
    type Payload = P;
    fn capabilities(&self) -> Capabilities {
        let mut caps = self.host.capabilities();
        caps.max_segments = caps.max_segments.min(self.most);
        caps
    }
    fn submit(&mut self, op: Operation<P>, until: Instant, now: Instant) -> Result<(), SubmitError<P>> {
        if let Operation::Transfer(command, payload) = &op {
            assert!(payload.segments() <= self.most.into(), "{command:?} in {} segments", payload.segments());
        }
        if let Operation::Command(Command { index: 38, arg, .. }) = &op {
            self.erases.push(*arg);
        }
        if self.kept.is_some() {
            let error = HostError::new(Cause::Busy, Phase::Submit, 255);
            return Err(SubmitError { error, operation: op });
        }
        self.host.submit(op, until, now)
    }
    fn poll(&mut self, now: Instant) -> Progress<P> {
        match self.host.poll(now) {
            Progress::Done(Completion { payload: Returned::Back(p), .. }) if self.keep => {
                (self.keep, self.kept) = (false, Some(p));
                let result = Err(HostError::new(Cause::Dma, Phase::Data, 255));
                Progress::Done(Completion { result, payload: Returned::Quarantined })
            }
            other => other,
        }
    }
    fn abort(&mut self, now: Instant) {
        self.host.abort(now);
    }
    fn prepare(&mut self, command: Command, payload: P) -> Result<(), SubmitError<P>> {
        assert!(payload.segments() <= self.most.into(), "{command:?} in {} segments", payload.segments());
        self.host.prepare(command, payload)
    }
    fn submit_prepared(&mut self, until: Instant, now: Instant) -> Result<(), HostError> {
        self.host.submit_prepared(until, now)
    }
    fn unprepare(&mut self) -> Option<(Command, P)> {
        self.host.unprepare()
    }
    fn slot(&mut self, now: Instant) -> SlotState {
        if self.blind { SlotState::default() } else { self.host.slot(now) }
    }
}

fn caps() -> Capabilities {
    let mut caps = Capabilities::new();
    (caps.width, caps.max_hz, caps.max_segments) = (Width::Four, 50_000_000, 64);
    caps
}

impl<P: Movable + 'static> AnyHost<P> {
    pub fn new<C: Card + 'static>(backend: Backend, card: Shared<C>, clock: &Clock) -> Self {
        match backend {
            Backend::Mock => Self::over(Wired::without_line(MockHost::new(card, caps()))),
            Backend::Dw => {
                let memory = Memory::new(0x8000_0000, 0xc000_0000);
                let model = Dw::new(card, clock.clone(), memory.clone(), Config::hsdk());
                // Room for the descriptors of a prepared transfer, too.
                let at = memory.alloc(16_384);
                let ring = Ring::new(memory.window(at, 16_384), at, 16_384).unwrap();
                let dma = MemoryDma::new(memory, u64::from(u32::MAX));
                let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
                let (host, half) =
                    DwEngine::<_, _, _, P>::split(model.clone(), model.clone(), mailbox, ring, dma, HSDK);
                let mut half: IrqHalf<Dw<Shared<C>>> = half;
                let (line, time) = (model.clone(), model);
                let service = move || line.irq() && half.handle() == Irq::Wake;
                Self::over(Wired::new(host, service, move || time.next_event()))
            }
            Backend::Sdhci => {
                let memory = Memory::new(0x8000_0000, 0xc000_0000);
                let model = Sdhci::new(card, clock.clone(), memory.clone(), sdhci::Config::FAST);
                let at = memory.alloc(8192);
                let table = Table::wide(memory.window(at, 8192), at, 8192).unwrap();
                let mailbox: &'static mmc_sdhci::Mailbox = Box::leak(Box::new(mmc_sdhci::Mailbox::new()));
                let (host, mut half) = SdhciEngine::<_, _, _, P>::split(
                    model.clone(),
                    model.clone(),
                    mailbox,
                    table,
                    MemoryDma::new(memory, u64::MAX),
                    mmc_sdhci::Platform::STANDARD,
                );
                let (line, time) = (model.clone(), model);
                let service = move || line.irq() && half.handle() == Irq::Wake;
                Self::over(Wired::new(host, service, move || time.next_event()))
            }
            Backend::Spi => panic!("a card of the SD bus has no SPI wires: Bench::spi"),
        }
    }

    pub fn spi<C: SpiMode + Send + 'static>(spi: &Spi<C>) -> Self {
        let wires = Exclusive::new(spi.bus(), spi.chip_select());
        Self::over(Wired::without_line(SpiEngine::host(wires, SpiSlot(spi.clone()), 25_000_000)))
    }

    fn over(host: Wired<P>) -> Self {
        Self { host, most: u16::MAX, blind: false, erases: vec![], keep: false, kept: None }
    }
}

/// A slot with a switch for the supply and a card detect pin.
struct SpiSlot<C>(Spi<C>);

impl<C: SpiMode + Send> Board for SpiSlot<C> {
    fn set_clock(&mut self, hz: u32) {
        self.0.set_hz(hz);
    }
    fn power(&mut self, on: bool) -> Result<(), Cause> {
        let now = self.0.clock().now();
        self.0.with(|c| c.power(on, now));
        Ok(())
    }
    fn present(&mut self) -> Option<bool> {
        Some(self.0.with(|c| c.present()))
    }
}

/// The back door to a card, wherever it is.
pub struct Door<C>(Box<Visit<C>>);

type Visit<C> = dyn Fn(&mut dyn FnMut(&mut Faulty<C>));

impl<C: 'static> Door<C> {
    pub fn new(visit: impl Fn(&mut dyn FnMut(&mut Faulty<C>)) + 'static) -> Self {
        Self(Box::new(visit))
    }
    pub fn with<R>(&self, f: impl FnOnce(&mut Faulty<C>) -> R) -> R {
        let (mut f, mut result) = (Some(f), None);
        (self.0)(&mut |card| result = f.take().map(|f| f(card)));
        result.expect("it is called once")
    }
}

pub fn script(text: &str) -> Script {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub fn sd_card(text: &str) -> Faulty<SdCard> {
    let card = SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap();
    Faulty::new(card, script(text)).unwrap()
}

/// The same card in SPI mode.
pub fn spi_card(text: &str) -> Spi<SpiSd> {
    let card = SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap();
    Spi::new(card, script(text), SpiConfig::default(), Clock::new()).unwrap()
}

/// One with extension registers: a cache, and a notice that the supply will go.
pub fn sd_card_with_a_cache(text: &str) -> Faulty<SdCard> {
    let config = SdConfig { extension: true, ..SdConfig::new(Profile::ideal(), 1) };
    Faulty::new(SdCard::new(config).unwrap(), script(text)).unwrap()
}

pub fn emmc_card(text: &str) -> Faulty<MmcCard> {
    let config: MmcConfig = zoo::mmc("aaru-emmc51-62gb", Profile::ideal(), 1).unwrap();
    Faulty::new(MmcCard::new(config).unwrap(), script(text)).unwrap()
}

pub type TheDisk<B = Buf> = Disk<AnyHost<HeapBatch<B>>, Queue<Vec<Slot>, AnyPolicy>, Vec<Tag<B>>>;

pub struct Bench<C: Medium + 'static, B: Movable + 'static = Buf> {
    pub card: Door<C>,
    pub disk: TheDisk<B>,
    pub clock: Clock,
}

impl<C: Medium + 'static> Bench<C> {
    /// Identified (which a fault may have to be survived for), looked after, and at rest. `None`: there is no card, or it
    /// answers no more.
    pub fn new(backend: Backend, card: Faulty<C>, cache: bool, policy: &str) -> Option<Self> {
        Self::odd(backend, card, cache, policy, |_| ())
    }

    /// The same with `tweak` done to what is known of the card.
    pub fn odd(
        backend: Backend,
        card: Faulty<C>,
        cache: bool,
        policy: &str,
        tweak: impl FnOnce(&mut Identified),
    ) -> Option<Self> {
        let (card, clock) = (Shared::new(card), Clock::new());
        let host = AnyHost::new(backend, card.clone(), &clock);
        let door = Door::new(move |f| card.with(f));
        Self::over(host, door, clock, cache, policy, Buf(vec![0; 512]), tweak)
    }

    /// As [`new`](Self::new), for a card at the end of SPI wires.
    pub fn spi(spi: Spi<C>, cache: bool, policy: &str) -> Option<Self>
    where
        C: SpiMode + Send,
    {
        let (host, clock) = (AnyHost::spi(&spi), spi.clock());
        let door = Door::new(move |f| spi.with(f));
        Self::over(host, door, clock, cache, policy, Buf(vec![0; 512]), |_| ())
    }

    pub fn submit(&mut self, r: Request, byte: u8) -> Option<mmc_block::Ticket> {
        let now = self.clock.now();
        if has_data(&r) {
            self.disk.submit(r, Buf(vec![byte; r.blocks as usize * 512]), now).ok()
        } else {
            self.disk.submit_bare(r, now).ok()
        }
    }

    pub fn one(&mut self, r: Request, byte: u8) -> Done<Buf> {
        let ticket = self.submit(r, byte).expect("accepted");
        self.run();
        self.disk.take(ticket).expect("over")
    }
}

impl<C: Medium + 'static, B: Movable + 'static> Bench<C, B> {
    /// The same over any host.
    pub fn over(
        mut host: AnyHost<HeapBatch<B>>,
        card: Door<C>,
        clock: Clock,
        cache: bool,
        policy: &str,
        scratch: B,
        tweak: impl FnOnce(&mut Identified),
    ) -> Option<Self> {
        let caps = host.capabilities();
        let mut init = Init::new(&caps, HeapBatch::new(1), scratch).ok()?;
        let (mut id, scratch) = loop {
            match init.poll(&mut host, clock.now()) {
                Up::Wait { until, .. } => clock.advance_to(until),
                Up::Done { card, parts } => break (card.ok()?, parts?.1),
            }
        };
        tweak(&mut id);
        let queue = Queue::new(vec![Slot::FREE; 32], AnyPolicy::by_name(policy).unwrap());
        let settings = Settings { nr_requests: 32, retries: 2 };
        let tags = (0..64).map(|_| Tag::new()).collect();
        let mut disk = Disk::new(host, queue, id.traits, HeapBatch::new(16), tags, settings, ()).unwrap();
        disk.prepare_with(HeapBatch::new(16)).unwrap();
        disk.look_after(id, scratch, Care { cache, ..Care::new(&caps) }, clock.now()).ok()?;
        let mut bench = Self { card, disk, clock };
        bench.run();
        Some(bench)
    }

    /// Until nothing is left to do, or this many commands' worth of polls have passed; each wait must end.
    pub fn run(&mut self) {
        let mut still = 0;
        for _ in 0..200_000 {
            let now = self.clock.now();
            match self.disk.poll(now) {
                Next::Idle | Next::Lent => return,
                Next::Wait { until, why } => {
                    assert!(!until.is_never(), "a wait that nothing ends ({why:?})");
                    still = if until > now { 0 } else { still + 1 };
                    assert!(still < 1000, "time stands still");
                    self.clock.advance_to(until);
                }
            }
        }
        panic!("never idle");
    }

    /// A card is in the slot again, if it was not, and the disk serves it.
    pub fn revive(&mut self) {
        for _ in 0..20 {
            self.run();
            match self.disk.media() {
                Media::Same => return,
                Media::New => assert!(self.disk.accept_media()),
                Media::Gone => {
                    self.clock.advance(Duration::from_secs(10));
                    // A card that nobody speaks to does not know that time has passed.
                    let now = self.clock.now();
                    self.card.with(|c| c.signal(Signal::V3_3, Timing::Default, now));
                    self.disk.look_again();
                }
            }
        }
        panic!(
            "the card does not come back: {:?}, {:?}",
            self.card.with(|c| c.script().to_string()),
            self.disk
        );
    }

    pub fn stored(&self, lba: u64) -> u8 {
        let mut sector = [0; 512];
        self.card.with(|c| c.card_mut().with_storage(&mut |s| s.read(lba * 512, &mut sector).unwrap()));
        assert!(sector.iter().all(|b| *b == sector[0]), "a torn sector at {lba}");
        sector[0]
    }
}

pub fn has_data(r: &Request) -> bool {
    matches!(r.op, Op::Read | Op::Write) && r.blocks > 0
}

pub fn req(op: Op, lba: u64, blocks: u32, flags: Flags, stream: u32) -> Request {
    Request { flags, ..Request::new(op, lba, blocks, StreamId(stream)) }
}

pub fn flush() -> Request {
    req(Op::Write, 0, 0, Flags::PREFLUSH, 0)
}
