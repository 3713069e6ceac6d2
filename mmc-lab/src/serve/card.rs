//! From the name of a card to a disk over it: the card with its faults, the register model, the driver, the disk.

use super::image::Door;
use crate::experiment::PolicySpec;
use crate::stack::Sched;
use crate::units::format_size;
use mmc_block::{Care, Disk, Init, Next, Settings, Tag, Up};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, IrqHalf, Mailbox, Ring};
use mmc_mock::card::{Card, MmcCard, MmcConfig, SdCard, SdConfig, Shared};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::fault::{Action, Faulty, Medium, Script};
use mmc_mock::storage::Storage;
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, Wakes, Wired, zoo};
use mmc_proto::host::{Host, Irq, IrqHandler};
use mmc_sched::Limits;
use mmc_time::Duration;
use std::fmt;

/// The name of an eMMC 5.1 of any size.
pub const EMMC: &str = "emmc";
/// Longest command in sectors, as on the HSDK.
const MAX_SECTORS: u32 = 2048;
/// Bytes of the descriptor ring: for 1 MiB in up to 256 segments, once for what runs and once for what is prepared.
const RING: u32 = 16 << 10;
/// Requests that are known to the disk beyond what the scheduler holds.
const SURPLUS: usize = 512;

/// A card to be made.
#[derive(Clone, Debug)]
pub enum Choice {
    /// SD.
    Sd(SdConfig),
    /// MMC or eMMC.
    Mmc(MmcConfig),
}

fn names() -> String {
    let odd = zoo::list().iter().map(|p| p.name).chain(zoo::mmc_list().iter().map(|p| p.name));
    let all: Vec<&str> = Profile::NAMES.into_iter().chain([EMMC]).chain(odd).collect();
    all.join(", ")
}

impl Choice {
    /// The card `name` (a timing profile, for an SD card of any size; [`EMMC`]; or one of the zoo) with the pace of
    /// `timing`, of `size` bytes if that is given.
    ///
    /// # Errors
    /// One line: there is no such card, or not of this size.
    pub fn new(name: &str, timing: Option<&str>, size: Option<u64>, seed: u64) -> Result<Self, String> {
        let profile = |default: &str| Profile::named(timing.unwrap_or(default)).map_err(|e| e.to_string());
        let sectors = match size {
            Some(bytes) if bytes == 0 || bytes % 512 != 0 => {
                return Err(format!("a card of {bytes} bytes: sizes are whole sectors of 512, at least one"));
            }
            size => size.map(|bytes| bytes / 512),
        };
        let sd = |mut config: SdConfig| {
            if let Some(sectors) = sectors.filter(|n| *n != config.sectors) {
                if config.registers.is_some() {
                    return Err(fixed(name, config.sectors));
                }
                // A card that lies does so in proportion.
                let scaled =
                    |real: u64| (u128::from(real) * u128::from(sectors) / u128::from(config.sectors)) as u64;
                config.quirks.wraps_at = config.quirks.wraps_at.map(scaled);
                config.sectors = sectors;
            }
            config.check().map_err(|e| format!("{name} of {}: {e}", format_size(config.sectors * 512)))?;
            Ok(Self::Sd(config))
        };
        if Profile::NAMES.contains(&name) {
            return sd(SdConfig::new(profile(name)?, seed));
        }
        if name == EMMC {
            let sectors = sectors.unwrap_or(1 << 24);
            let count = u32::try_from(sectors).map_err(|_| "an eMMC ends at 2 TiB".to_owned())?;
            let config = MmcConfig::emmc(8, count, profile("a1")?, seed);
            config.check().map_err(|e| format!("{name} of {}: {e}", format_size(sectors * 512)))?;
            return Ok(Self::Mmc(config));
        }
        if let Ok(config) = zoo::card(name, profile("a1")?, seed) {
            return sd(config);
        }
        if let Ok(config) = zoo::mmc(name, profile("a1")?, seed) {
            let has = config.sectors();
            return match sectors {
                Some(wanted) if wanted != has => Err(fixed(name, has)),
                _ => Ok(Self::Mmc(config)),
            };
        }
        if zoo::io_list().iter().any(|p| p.name == name) {
            return Err(format!("{name} is an SDIO card: it stores nothing that could be served"));
        }
        Err(format!("no card is called '{name}'; there are {}", names()))
    }
    /// Whether its size is what `--size` or an image says, and nothing else decides it.
    #[must_use]
    pub fn any_size(name: &str) -> bool {
        name == EMMC || Profile::NAMES.contains(&name)
    }
}

fn fixed(name: &str, sectors: u64) -> String {
    format!("{name} has {} bytes and no other size; leave --size out, or take a1 or {EMMC}", sectors * 512)
}

/// The disk that is served.
pub type Served = Disk<Wired<BufBatch>, Sched, Box<[Tag<Buf>]>>;

/// All of it, in virtual time.
pub struct Stack {
    /// The disk, at rest.
    pub disk: Served,
    /// Its time.
    pub clock: Clock,
    /// The back door to what the card stores.
    pub door: Door,
    /// Rules of the fault script that have not struck.
    pub unstruck: Box<dyn Fn() -> Vec<String>>,
    /// What the driver did that card or controller do not allow.
    pub violations: Box<dyn Fn() -> Vec<String>>,
    /// A line about the card.
    pub description: String,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("disk", &self.disk).finish_non_exhaustive()
    }
}

/// How the stack is built.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The card.
    pub card: Choice,
    /// What it is called.
    pub name: String,
    /// Policy and tunables.
    pub policy: PolicySpec,
    /// What goes wrong.
    pub script: Script,
    /// Switch the card's volatile cache on, if it has one.
    pub cache: bool,
}

/// Builds it and identifies the card. `fill` sees the card's storage before anything else does, and whether writes to it
/// will be remembered later (power will be lost): then it is the last chance to put contents there.
///
/// # Errors
/// One line: the card cannot be, was not identified, or `fill` failed.
pub fn build(
    plan: &Plan,
    fill: &mut dyn FnMut(&mut Storage, bool) -> Result<(), String>,
) -> Result<Stack, String> {
    match &plan.card {
        Choice::Sd(config) => assemble(SdCard::new(config.clone()).map_err(|e| e.to_string())?, plan, fill),
        Choice::Mmc(config) => assemble(MmcCard::new(config.clone()).map_err(|e| e.to_string())?, plan, fill),
    }
}

fn assemble<C: Medium + 'static>(
    mut card: C,
    plan: &Plan,
    fill: &mut dyn FnMut(&mut Storage, bool) -> Result<(), String>,
) -> Result<Stack, String> {
    let losses = plan.script.rules.iter().any(|r| matches!(r.what, Action::PowerLoss(_)));
    let mut filled = Ok(());
    card.with_storage(&mut |s| filled = fill(s, losses));
    filled?;
    let script = |e: mmc_mock::fault::Invalid| format!("the fault script: {e}");
    let card = Shared::new(Faulty::new(card, plan.script.clone()).map_err(script)?);
    let clock = Clock::new();
    let (mut host, model) = wire(card.clone(), &clock)?;
    plan.script.arm(&model).map_err(script)?;

    let caps = host.capabilities();
    let mut init = Init::new(&caps, BufBatch::new(1), Buf(vec![0; 512]))
        .map_err(|_| "the scratch buffer is too small".to_owned())?;
    let (found, scratch) = loop {
        match init.poll(&mut host, clock.now()) {
            Up::Wait { until, .. } if until.is_never() => {
                return Err("the card was not identified: nothing happens any more".into());
            }
            Up::Wait { until, .. } => clock.advance_to(until),
            Up::Done { card, parts } => {
                let found = card.map_err(|e| format!("the card was not identified: {e}"))?;
                break (found, parts.ok_or("the host kept the buffers of the identification")?.1);
            }
        }
    };
    let sched = plan.policy.scheduler(MAX_SECTORS, Duration::ZERO)?;
    let tags = std::iter::repeat_with(Tag::default);
    let tags: Box<[Tag<Buf>]> = tags.take(mmc_sched::Scheduler::capacity(&sched) + SURPLUS).collect();
    let batch = || BufBatch::new(Limits::default().max_segments.into());
    let disk = Disk::new(host, sched, found.traits, batch(), tags, Settings::default(), ());
    let mut disk = disk.map_err(|e| format!("cannot set up the disk: {e}"))?;
    // As Linux' mmc driver: one command on the bus, one prepared.
    disk.prepare_with(batch()).map_err(|e| format!("cannot set up the disk: {e}"))?;
    disk.look_after(found, scratch, Care { cache: plan.cache, ..Care::new(&caps) }, clock.now())
        .map_err(|_| "the scratch buffer is too small".to_owned())?;
    // What it does by itself before the first request: extensions, cache.
    loop {
        match disk.poll(clock.now()) {
            Next::Wait { until, .. } if !until.is_never() => clock.advance_to(until),
            _ => break,
        }
    }
    let kind = if found.mmc().is_some() { "MMC" } else { "SD" };
    let cache = if disk.core().features().cache { ", volatile cache on" } else { "" };
    let description = format!(
        "{} card {} of {} behind {}, bus at {} Hz{cache}",
        kind,
        plan.name,
        format_size(found.traits.blocks * 512),
        plan.policy.label(),
        found.bus.hz,
    );
    let (door, struck, asked) = (card.clone(), card, model.violations());
    Ok(Stack {
        disk,
        clock,
        door: Box::new(move |f| door.with(|c| c.card_mut().with_storage(f))),
        unstruck: Box::new(move || struck.with(|c| c.waiting().iter().map(ToString::to_string).collect())),
        violations: Box::new(move || {
            // The controller tells of its card, too; a conversation that asks every kind of card for its kind is legal.
            let all = model.violations().into_iter();
            all.filter(|v| !asked.contains(v)).collect()
        }),
        description,
    })
}

/// The register model with the card in its slot, and the DesignWare driver on it, driven by its interrupt.
fn wire<C: Card + 'static>(
    card: Shared<C>,
    clock: &Clock,
) -> Result<(Wired<BufBatch>, Dw<Shared<C>>), String> {
    // The HSDK's memory as the bus sees it; the IDMAC reaches the lower 4 GiB.
    let memory = Memory::new(0x8000_0000, 0xc000_0000);
    let model = Dw::new(card, clock.clone(), memory.clone(), Config::hsdk());
    let at = memory.alloc(RING as usize);
    let ring = Ring::new(memory.window(at, RING), at, RING).map_err(|e| e.to_string())?;
    let dma = MemoryDma::new(memory, u64::from(u32::MAX));
    // A mailbox lives for ever; a server leaks one of a few words.
    let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
    let (host, half) =
        DwEngine::<_, _, _, BufBatch>::split(model.clone(), model.clone(), mailbox, ring, dma, HSDK);
    let mut half: IrqHalf<Dw<Shared<C>>> = half;
    let (line, time) = (model.clone(), model.clone());
    let service = move || line.irq() && half.handle() == Irq::Wake;
    Ok((Wired::new(host, service, move || time.next_event()), model))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmc_hal::Batch;
    use mmc_proto::command::Command;
    use mmc_time::Instant;

    #[test]
    fn the_next_command_is_prepared_while_one_runs() {
        let config = SdConfig::new(Profile::named("ideal").unwrap(), 1);
        let card = Shared::new(SdCard::new(config).unwrap());
        let (mut host, _model) = wire(card, &Clock::new()).unwrap();
        let mut batch = BufBatch::new(1);
        batch.push(Buf(vec![0; 512]), 0, 512).unwrap();
        let read = Command::read_single_block(7);
        host.prepare(read, batch).unwrap();
        let (cmd, back) = host.unprepare().expect("what was prepared");
        assert_eq!((cmd, back.len()), (read, 1));
        host.prepare(read, back).unwrap();
        let refused = host.submit_prepared(Instant::NEVER, Instant::ZERO).unwrap_err();
        assert!(
            refused.to_string().contains("supply is off"),
            "it is known, and the card is not up yet: {refused}"
        );
        assert!(host.unprepare().is_some() && host.unprepare().is_none());
    }
}
