//! The stack under test: a [`Disk`](mmc_block::Disk) over the DesignWare driver on its register model, with a card in the
//! slot that troubles can be made for.

use super::waits::Waits;
use mmc_block::{Care, Disk, Init, Next, Settings, Tag, Up};
use mmc_dw_hsdk::platform::{HSDK, Platform, Sample, SamplePlace, SignalSwitch};
use mmc_dw_hsdk::{DwEngine, IrqHalf, Mailbox, Ring};
use mmc_mock::card::{MmcCard, MmcConfig, SdCard, SdConfig, Shared, Uhs};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::fault::{Action, Faulty, Keep, Medium, Rule, Script, When};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, Wakes, Window, zoo};
use mmc_proto::bus::{Timing, Timings};
use mmc_proto::host::{Host, Irq, IrqHandler, Supervised};
use mmc_proto::machine::{Conductor, Machine, Turn};
use mmc_sched::{AnyPolicy, Limits, Queue, Slot};
use mmc_time::Duration;

/// Tags, slots of the scheduler, places for accepted requests: the last are to be more than anybody asks for.
const TAGS: usize = 32;
const SLOTS: usize = 64;
pub(super) const PLACES: usize = 128;

/// A board for UHS-I: 200 MHz, 1.8 V by the controller's own bit, 32 sample points.
const UHS_BOARD: Platform = Platform {
    name: "a UHS-I board",
    ciu_hz: 200_000_000,
    max_hz: 200_000_000,
    uhs_reg_ext: None,
    fifo_depth: 256,
    timings: Timings::new()
        .with(Timing::Sdr12)
        .with(Timing::Sdr25)
        .with(Timing::Sdr50)
        .with(Timing::Ddr50)
        .with(Timing::Sdr104),
    signal: SignalSwitch::Register,
    sample: Some(Sample { place: SamplePlace::Controller { offset: 0x108, shift: 16 }, points: 32 }),
    ..HSDK
};

/// A controller and its board.
pub(super) type Board = (Config, Platform);

/// The board for SD cards.
pub(super) fn uhs_board() -> Board {
    let hz = 200_000_000;
    (Config { ciu_hz: hz, max_hz: hz, ext_div: [1; 4], fifo_depth: 256, ..Config::hsdk() }, UHS_BOARD)
}

/// The board for eMMC.
pub(super) fn hsdk() -> Board {
    (Config::hsdk(), HSDK)
}

/// How many cards there are to swap.
pub(super) const CARDS: u32 = 3;

/// SD cards that differ in their serial numbers: `soak` is a UHS-I card with a cache, anything else one of the zoo.
pub(super) fn sd_cards(name: &str, seed: u64) -> Result<Vec<SdCard>, String> {
    let profile = Profile::named("a2").map_err(|e| e.to_string())?;
    let mut config = match name {
        "soak" => {
            let fast = SdConfig { extension: true, speed_class: true, ..SdConfig::new(profile, seed) };
            SdConfig { uhs: Some(Uhs::new(seed)), ..fast }
        }
        name => zoo::card(name, profile, seed).map_err(|e| e.to_string())?,
    };
    let of = |k| {
        config.identity.serial ^= k;
        if let Some(registers) = &mut config.registers {
            registers.cid[13] ^= k as u8;
        }
        SdCard::new(config.clone()).map_err(|e| e.to_string())
    };
    (0..CARDS).map(of).collect()
}

/// The key of the eMMC's RPMB.
pub(super) const KEY: [u8; 32] = [0x5a; 32];

/// Whether it is an eMMC.
pub(super) fn is_mmc(name: &str) -> bool {
    name == "soak-emmc" || zoo::mmc_list().iter().any(|p| p.name == name)
}

/// eMMC, likewise: `soak-emmc` is one of version 5.1 with all that a card can have. The RPMB has its key.
pub(super) fn mmc_cards(name: &str, seed: u64) -> Result<Vec<MmcCard>, String> {
    let profile = Profile::named("a2").map_err(|e| e.to_string())?;
    let mut config = match name {
        "soak-emmc" => MmcConfig::emmc(8, 16_777_216, profile, seed),
        name => zoo::mmc(name, profile, seed).map_err(|e| e.to_string())?,
    };
    let of = |k| {
        config.cid[13] ^= k as u8;
        let mut card = MmcCard::new(config.clone()).map_err(|e| e.to_string())?;
        *card.rpmb_key_mut() = Some(KEY);
        Ok(card)
    };
    (0..CARDS).map(of).collect()
}

pub(super) type Slotted<C> = Shared<Faulty<C>>;
type Model<C> = Dw<Slotted<C>>;
type Engine<C> = Supervised<DwEngine<Model<C>, Window, MemoryDma, BufBatch>>;
type TheDisk<C> = Disk<Engine<C>, Queue<Vec<Slot>, AnyPolicy>, Vec<Tag<Buf>>, Waits>;

pub(super) struct Bench<C: Medium + 'static> {
    pub(super) clock: Clock,
    pub(super) card: Slotted<C>,
    pub(super) model: Model<C>,
    pub(super) disk: TheDisk<C>,
    half: IrqHalf<Model<C>>,
    memory: Memory,
    /// Regions of memory at rest.
    regions: usize,
}

impl<C: Medium + 'static> Bench<C> {
    /// The first of `cards` is in the slot, identified, with its cache on if it has one.
    pub(super) fn new(board: Board, mut cards: Vec<C>, policy: &str) -> Result<Self, String> {
        let others = cards.split_off(1);
        let first = cards.pop().ok_or("no card")?;
        // Never due: it makes the cards remember what a loss of power can take.
        let loss = Rule { when: When::Frame(u64::MAX), what: Action::PowerLoss(Keep::None) };
        let script = Script { rules: vec![loss], ..Script::default() };
        let card = Faulty::with_others(first, others, script).map_err(|e| e.to_string())?;
        let (card, clock) = (Shared::new(card), Clock::new());
        let memory = Memory::new(0x8000_0000, 0xc000_0000);
        let model = Dw::new(card.clone(), clock.clone(), memory.clone(), board.0);
        let at = memory.alloc(RING as usize);
        let ring = Ring::new(memory.window(at, RING), at, RING).map_err(|e| e.to_string())?;
        let dma = MemoryDma::new(memory.clone(), u32::MAX.into());
        // A mailbox lives for ever; a run leaks one of a few words.
        let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
        let (mut host, mut half) =
            DwEngine::<_, _, _, BufBatch>::split(model.clone(), model.clone(), mailbox, ring, dma, board.1);
        let caps = host.capabilities();
        let regions = memory.regions();
        const SMALL: &str = "the scratch buffer is too small";
        let mut init = Init::new(&caps, BufBatch::new(1), Buf(vec![0; 512])).map_err(|_| SMALL)?;
        let (found, scratch) = loop {
            service(&model, &mut half);
            match init.poll(&mut host, clock.now()) {
                Up::Wait { until, .. } => {
                    let next = until.min(model.next_event());
                    if next.is_never() {
                        return Err("the card is not identified: nothing happens any more".into());
                    }
                    clock.advance_to(next);
                }
                Up::Done { card, parts } => {
                    let card = card.map_err(|e| format!("the card is not identified: {e}"))?;
                    break (card, parts.ok_or("the host kept the buffers")?.1);
                }
            }
        };
        let policy = AnyPolicy::by_name(policy).map_err(|e| format!("--sched {policy}: {e}"))?;
        let waits = Waits::new(&policy);
        let limits = Limits { max_sectors: 1024, ..Limits::default() };
        let queue = Queue::with_limits(vec![Slot::FREE; SLOTS], policy, limits);
        let batch = || BufBatch::new(limits.max_segments.into());
        let tags = (0..PLACES).map(|_| Tag::new()).collect();
        let settings = Settings { nr_requests: TAGS, ..Settings::default() };
        let mut disk = Disk::new(host, queue, found.traits, batch(), tags, settings, waits)
            .map_err(|e| format!("cannot set up the disk: {e}"))?;
        disk.prepare_with(batch()).map_err(|e| format!("cannot set up the disk: {e}"))?;
        let care = Care { cache: true, ..Care::new(&caps) };
        disk.look_after(found, scratch, care, clock.now()).map_err(|_| SMALL)?;
        Ok(Self { clock, card, model, disk, half, memory, regions })
    }

    /// Goes on as far as possible at this instant.
    pub(super) fn poll(&mut self) -> Next {
        let now = self.clock.now();
        service(&self.model, &mut self.half);
        loop {
            let next = self.disk.poll(now);
            // What the driver did may have raised the line again at this instant.
            if service(&self.model, &mut self.half) {
                continue;
            }
            return match next {
                Next::Wait { why, until } => Next::Wait { why, until: until.min(self.model.next_event()) },
                rest => rest,
            };
        }
    }
    /// Goes on with a conversation on the host that is lent, as far as possible at this instant.
    pub(super) fn converse<M: Machine>(
        &mut self,
        talk: &mut Conductor<M, BufBatch>,
    ) -> Result<Turn<M::Output, BufBatch>, String> {
        let now = self.clock.now();
        loop {
            let host = self.disk.lent().ok_or("the host was lent and is not there")?;
            match talk.poll(host, now) {
                Turn::Wait { why, until } => {
                    if !service(&self.model, &mut self.half) {
                        return Ok(Turn::Wait { why, until: until.min(self.model.next_event()) });
                    }
                }
                done @ Turn::Done(..) => return Ok(done),
            }
        }
    }
    /// With the disk at rest: lets time pass and the card-detect pin settle.
    pub(super) fn pass(&mut self, by: Duration) {
        let until = self.clock.now() + by;
        loop {
            self.model.advance();
            service(&self.model, &mut self.half);
            let next = self.model.next_event().min(until);
            if self.clock.now() >= until {
                return;
            }
            self.clock.advance_to(next);
        }
    }
    /// Something happens to the card as a whole, and the controller sees it.
    pub(super) fn act(&mut self, what: &Action) {
        let now = self.clock.now();
        self.model.card(|card| card.with(|c| c.act(what, now)));
    }
    /// Regions of memory that are mapped and should not be, with the disk at rest.
    pub(super) fn mapped(&self) -> usize {
        self.memory.regions().saturating_sub(self.regions)
    }
}

fn service<C: Medium>(model: &Model<C>, half: &mut IrqHalf<Model<C>>) -> bool {
    model.irq() && half.handle() == Irq::Wake
}

/// Bytes of the descriptor ring: two transfers of as many segments as a batch has.
const RING: u32 = 16 << 10;
