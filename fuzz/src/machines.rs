//! Conversations against a card and a host that answer whatever the bytes say.
//!
//! A new machine is one row of [`MACHINES`]: how to make it of the input's bytes, and the time it states.

use mmc_hal::Dir;
use mmc_proto::bus::{BusConfig, Timing, Timings, Width};
use mmc_proto::command::Command;
use mmc_proto::host::{Capabilities, Cause, HostError, Phase, Reply};
use mmc_proto::machine::{
    BootFrom, CardTraits, Erase, Extensions, Fetch, FindExtensions, Identify, Lock, LockOp, Machine, Order,
    Partition, PowerNotice, Protection, Rpmb, Script, SdRegister, Step, TUNING_BLOCK_4, TUNING_BLOCK_8, Talk,
    Transfer, TransferOptions, Tune,
};
use mmc_proto::register::extension::{PerformanceSet, PowerSet, SetAddress};
use mmc_proto::register::{ExtCsd, MmcCsd, Ssr};
use mmc_proto::timing::{EraseKind, MmcEraseKind};
use mmc_time::{Duration, Instant};
use std::fmt::Display;

/// By the first byte of the input; new ones go to the end, so that the seeds keep their meaning.
const MACHINES: &[fn(&mut Bytes<'_>)] =
    &[identify, transfer, erase, mmc_erase, tune, order, fetch, lock, rpmb, find_extensions, sd_register];

/// One machine, chosen by the first byte, against the answers of the other bytes: it ends within the time it
/// states and says what happened.
///
/// # Panics
/// When a promise is broken.
pub fn machines(data: &[u8]) {
    let mut input = Bytes(data);
    let n = usize::from(input.byte()) % MACHINES.len();
    MACHINES[n](&mut input);
}

fn identify(input: &mut Bytes<'_>) {
    let knobs = input.byte();
    let mut caps = Capabilities::new();
    if knobs & 1 == 0 {
        caps.max_hz = 50_000_000;
        caps.width = Width::Four;
    }
    if knobs & 2 != 0 {
        caps = fast_host();
    }
    let card = if knobs & 4 == 0 { Card::Sd } else { Card::Mmc };
    if let Ok(found) = drive(Identify::new(&caps), Identify::LIMIT, card, input) {
        assert!(found.bus.hz <= caps.max_hz, "{} Hz", found.bus.hz);
    }
}

fn transfer(input: &mut Bytes<'_>) {
    let knobs = input.byte();
    let dir = if knobs & 4 == 0 { Dir::Read } else { Dir::Write };
    #[allow(clippy::needless_update, reason = "options may come")]
    let options = TransferOptions { open_ended: knobs & 8 != 0, ..TransferOptions::default() };
    let blocks = u32::from(input.byte()) << (knobs >> 5);
    let machine = Transfer::new(&traits(knobs), dir, input.word().into(), blocks, options);
    match drive(machine, machine.limit(), Card::Sd, input) {
        Ok(done) => assert_eq!(done, blocks),
        Err(error) => assert!(error.done <= blocks),
    }
}

fn erase(input: &mut Bytes<'_>) {
    let knobs = input.byte();
    let kind = match knobs >> 2 & 3 {
        0 => EraseKind::Erase,
        1 => EraseKind::Discard,
        _ => EraseKind::FullUserArea,
    };
    let ssr = Ssr::new([input.byte(); 64]);
    let ssr = if knobs & 16 == 0 { None } else { Some(&ssr) };
    let (lba, blocks) = (input.word().into(), input.word().into());
    let erase = Erase::new(&traits(knobs), ssr, kind, lba, blocks);
    if let Ok(done) = talk(erase, Card::Sd, input) {
        assert_eq!(done, blocks);
    }
}

fn mmc_erase(input: &mut Bytes<'_>) {
    let knobs = input.byte();
    let kind = match input.byte() % 5 {
        0 => MmcEraseKind::Erase,
        1 => MmcEraseKind::SecureErase,
        2 => MmcEraseKind::Trim,
        3 => MmcEraseKind::SecureTrim,
        _ => MmcEraseKind::Discard,
    };
    let csd = MmcCsd::from_words(MMC_CSD);
    let known = ext_csd(input);
    let known = if knobs & 16 == 0 { Some(&known) } else { None };
    // Few pieces: each takes steps of its own.
    let (lba, blocks) = (u64::from(input.word() >> 8), u64::from(input.word() >> 12));
    let erase = Erase::mmc(&traits(knobs), &csd, known, kind, lba, blocks).in_pieces(blocks / 8);
    if let Ok(done) = talk(erase, Card::Mmc, input) {
        assert_eq!(done, blocks);
    }
}

fn tune(input: &mut Bytes<'_>) {
    let knobs = input.byte();
    let mut caps = fast_host();
    (caps.sample_points, caps.self_tuning) = (input.byte().into(), knobs & 4 != 0);
    let mut bus = BusConfig { hz: 200_000_000, width: Width::Four, ..BusConfig::default() };
    let (machine, card) = match knobs & 3 {
        0 => (Tune::sd(&caps, bus), Card::Sd),
        1 => (Tune::mmc(&caps, bus), Card::Mmc),
        _ => {
            bus.width = Width::Eight;
            (Tune::mmc(&caps, bus), Card::Mmc)
        }
    };
    let _ = drive(machine, Tune::LIMIT, card, input);
}

fn order(input: &mut Bytes<'_>) {
    let (knobs, which, value) = (input.byte(), input.byte(), input.byte());
    let (card, e, on) = (&traits(knobs), &ext_csd(input), value & 1 == 1);
    let order = match which % 24 {
        0 => Order::status(card),
        1 => Order::wait(card, Duration::from_millis(value.into())),
        2 => Order::cache(card, e, on),
        3 => Order::flush(card, e),
        4 => Order::barrier(card, e),
        5 => Order::barriers(card, e, on),
        6 => Order::background(card, e),
        7 => Order::auto_background(card, e, on),
        8 => Order::interrupts(card, e, on),
        9 => Order::interrupt(card, e),
        10 => Order::sanitize(card, e),
        11 => Order::high_capacity_groups(card, e),
        12 => Order::power_notice(card, e, PowerNotice::On),
        13 => Order::power_notice(card, e, if on { PowerNotice::OffLong } else { PowerNotice::OffShort }),
        14 => Order::sleep(card, e, on),
        15 => Order::awake(card, e),
        16 => Order::partition(card, e, if on { Partition::Rpmb } else { Partition::General(value) }),
        17 => Order::boot(card, e, BootFrom::Boot1, on, Some(value)),
        18 => Order::protection(card, e, if on { Protection::PowerOn } else { Protection::Temporary }),
        19 => Order::protect_boot(card, e, on),
        20 => Order::protect(card, input.word().into()),
        21 => Order::unprotect(card, input.word().into()),
        22 => Order::speed_class(card, value),
        _ => Order::partition(card, e, Partition::Boot1),
    };
    let _ = talk(order, Card::Mmc, input);
}

fn fetch(input: &mut Bytes<'_>) {
    let (knobs, which) = (input.byte(), input.byte());
    let card = &traits(knobs);
    let ended = |text: Option<String>| assert!(text.is_none_or(|text| !text.is_empty()));
    match which % 7 {
        0 => ended(talk(Fetch::ext_csd(card), Card::Mmc, input).ok().map(|r| format!("{r:?}"))),
        1 => ended(talk(Fetch::sd_status(card), Card::Sd, input).ok().map(|r| format!("{r:?}"))),
        2 => ended(talk(Fetch::scr(card), Card::Sd, input).ok().map(|r| format!("{r:?}"))),
        3 => drop(talk(Fetch::stored_blocks(card), Card::Sd, input)),
        4 => drop(talk(Fetch::protected_groups(card, input.word().into()), Card::Sd, input)),
        5 => drop(talk(Fetch::protection_types(card, input.word().into()), Card::Mmc, input)),
        _ => drop(talk(Fetch::vendor(card, input.word()), Card::Sd, input)),
    }
}

fn lock(input: &mut Bytes<'_>) {
    let (knobs, which, len) = (input.byte(), input.byte(), input.byte());
    // Some are longer than the 16 bytes a password may have.
    let password = vec![input.byte(); usize::from(len % 20)];
    let (old, new) = password.split_at(password.len() / 2);
    let op = match which % 6 {
        0 => LockOp::Set { new: &password, lock: len >= 128 },
        1 => LockOp::Change { old, new },
        2 => LockOp::Clear(&password),
        3 => LockOp::Lock(&password),
        4 => LockOp::Unlock(&password),
        _ => LockOp::ForceErase,
    };
    let _ = talk(Lock::lock(&traits(knobs), op), Card::Sd, input);
}

fn rpmb(input: &mut Bytes<'_>) {
    let (knobs, which, salt) = (input.byte(), input.byte(), input.byte());
    let card = &traits(knobs);
    // No cipher: only that all parts are asked for.
    let hmac = move |parts: &mut dyn Iterator<Item = &[u8]>| {
        [parts.flatten().fold(salt, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte)); 32]
    };
    let rpmb = match which % 4 {
        0 => Rpmb::program_key(card, &[salt; 32], hmac),
        1 => Rpmb::read_counter(card, input.word().into(), hmac),
        2 => Rpmb::read(card, salt.into(), input.word().into(), hmac),
        _ => Rpmb::write(card, salt.into(), &[salt; 256], input.word(), hmac),
    };
    let _ = talk(rpmb, Card::Mmc, input);
}

fn find_extensions(input: &mut Bytes<'_>) {
    let knobs = input.byte();
    if let Ok(found) = talk(FindExtensions::new(&traits(knobs)), Card::Sd, input) {
        assert!(!format!("{found:?}").is_empty());
    }
}

fn sd_register(input: &mut Bytes<'_>) {
    let (knobs, which) = (input.byte(), input.byte());
    let mut performance = [0; 263];
    performance[4] = which >> 7;
    let has = Extensions {
        power: Some((SetAddress(1 << 18), PowerSet::parse(&[0, which]))),
        performance: Some((
            SetAddress(2 << 18 | input.word() & 0xfffff),
            PerformanceSet::parse(&performance),
        )),
    };
    let card = &traits(knobs);
    let machine = match which % 4 {
        0 => SdRegister::cache(card, &has, true),
        1 => SdRegister::cache(card, &has, false),
        2 => SdRegister::flush(card, &has),
        _ => SdRegister::power_off(card, &has),
    };
    let _ = talk(machine, Card::Sd, input);
}

/// A conversation that follows a script.
fn talk<S: Script>(
    talk: Talk<S>,
    card: Card,
    input: &mut Bytes<'_>,
) -> Result<S::Output, mmc_proto::machine::TalkError> {
    let limit = talk.limit();
    drive(talk, limit, card, input)
}

/// A host that can do everything.
fn fast_host() -> Capabilities {
    let mut caps = Capabilities::new();
    caps.max_hz = 208_000_000;
    caps.width = Width::Eight;
    (caps.v1_8, caps.sample_points) = (true, 16);
    let uhs = [Timing::Sdr12, Timing::Sdr25, Timing::Sdr50, Timing::Sdr104, Timing::Ddr50];
    let emmc = [Timing::Ddr52, Timing::Hs200, Timing::Hs400, Timing::Hs400Es];
    caps.timings = uhs.into_iter().chain(emmc).fold(Timings::new(), Timings::with);
    caps
}

/// The EXT_CSD the host has read before; one byte of it is the input's.
fn ext_csd(input: &mut Bytes<'_>) -> ExtCsd {
    let mut bytes = *EXT_CSD;
    let at = usize::from(input.byte()) * 2;
    bytes[at] ^= input.byte();
    ExtCsd::new(bytes)
}

fn traits(knobs: u8) -> CardTraits {
    CardTraits {
        rca: 0x1234,
        blocks: 15_126_528,
        byte_addressed: knobs & 1 != 0,
        cmd23: knobs & 2 != 0,
        read_limit: Duration::from_millis(100),
        write_limit: Duration::from_millis(250),
        block_time: Duration::from_micros(90),
        unit: 1,
    }
}

/// The rest of the input, read byte by byte; zeros after its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }
    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }
}

/// Who answers where the bytes do not say otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Card {
    /// An SDHC card of 8 GB.
    Sd,
    /// An eMMC 5.1 of 4 GB.
    Mmc,
}

const EXT_CSD: &[u8; 512] = include_bytes!("../corpus/registers/emmc-am62x-51-cmdq-on.ext_csd");

const MMC_CSD: [u32; 4] = [0xd027_0132, 0x0f59_03ff, 0xf6db_ffef, 0x8e40_400d];

/// Answers as the good card would; `None` where it would keep silent.
fn good(card: Card, command: &Command, app: &mut bool, scratch: &mut [u8]) -> Option<Reply> {
    let was_app = std::mem::take(app);
    let mut fill = |bytes: &[u8]| {
        let n = bytes.len().min(scratch.len());
        scratch[..n].copy_from_slice(&bytes[..n]);
    };
    let words = match (card, was_app, command.index) {
        (Card::Mmc, _, 55) => return None,
        (Card::Mmc, _, 1) => [0xc0ff_8080, 0, 0, 0],
        (Card::Mmc, _, 2) => [0x1501_004d, 0x3847_3147, 0x4303_5eed, 0x2727_50ff],
        (Card::Mmc, _, 3) => [0x500, 0, 0, 0],
        (Card::Mmc, _, 8) if command.data.is_none() => return None,
        (Card::Mmc, _, 8) => {
            fill(EXT_CSD);
            [0x900, 0, 0, 0]
        }
        (_, _, 19 | 21) => {
            let eight = command.data.is_some_and(|data| data.block_len == 128);
            fill(if eight { &TUNING_BLOCK_8 } else { &TUNING_BLOCK_4 });
            [0x900, 0, 0, 0]
        }
        (Card::Mmc, _, 9) => MMC_CSD,
        (_, _, 5) | (Card::Sd, _, 1) => return None,
        (_, _, 8) => [command.arg, 0, 0, 0],
        (_, _, 55) => {
            *app = true;
            [0x920, 0, 0, 0]
        }
        (_, true, 41) => [0xc0ff_8000, 0, 0, 0],
        (_, _, 2) => [0x0353_4453, 0x4331_3647, 0x8012_3456, 0x7801_3500],
        (_, _, 3) => [0x1234_0500, 0, 0, 0],
        (_, _, 9) => [0x400e_0032, 0x5b59_0000, 0x39b3_7f80, 0x0a40_0000],
        (_, true, 51) => {
            fill(&[0x02, 0x35, 0x80, 0x03, 0, 0, 0, 0]);
            [0x900, 0, 0, 0]
        }
        (_, true, 13) => {
            fill(&[0x80; 64]);
            [0x900, 0, 0, 0]
        }
        (Card::Sd, false, 6) => {
            let mut status = [0; 64];
            status[..17]
                .copy_from_slice(&[0, 0xc8, 0x80, 1, 0x80, 1, 0x80, 1, 0x80, 1, 0x80, 1, 0x80, 3, 0, 0, 1]);
            fill(&status);
            [0x900, 0, 0, 0]
        }
        _ => [0x900, 0, 0, 0],
    };
    Some(Reply { words, bytes: command.data.map_or(0, |d| d.bytes()) })
}

fn error(n: u8, index: u8) -> HostError {
    let cause = match n % 12 {
        0 => Cause::Limit,
        1 => Cause::Crc,
        2 => Cause::Framing,
        3 => Cause::NoCrcStatus,
        4 => Cause::Controller,
        5 => Cause::Unsupported("by the fuzzer"),
        6 => Cause::Busy,
        7 => Cause::Aborted,
        8 => Cause::NoCard,
        9 => Cause::Dma,
        10 => Cause::VoltageSwitch,
        _ => Cause::Timeout,
    };
    let phase = match n / 12 % 5 {
        0 => Phase::Command,
        1 => Phase::Data,
        2 => Phase::Busy,
        3 => Phase::Bus,
        _ => Phase::Submit,
    };
    // What the card had said before, in the cases a host keeps it.
    let r1 = (n >= 192).then_some(0x900 | u32::from(n) << 20);
    HostError { cause, phase, index, r1 }
}

/// Drives `machine` to its end, within `limit` and the last step's own.
fn drive<T, E: Display>(
    mut machine: impl Machine<Output = Result<T, E>>,
    limit: Duration,
    card: Card,
    input: &mut Bytes<'_>,
) -> Result<T, E> {
    let mut scratch = [0; 512];
    let (mut now, mut last, mut app) = (Instant::ZERO, None, false);
    let mut own = Duration::from_secs(1);
    for _ in 0..5_000 {
        let (command, allowed) = match machine.next(last.take(), &mut scratch, now) {
            Step::Do(action) => (Some(action.command), action.limit),
            Step::Sleep(time) => {
                now += time;
                continue;
            }
            Step::Done(out) => {
                let took = now - Instant::ZERO;
                assert!(took <= limit + own, "took {took} of {limit}");
                if let Err(error) = &out {
                    assert!(!error.to_string().is_empty(), "an error without a word");
                }
                return out;
            }
            _ => (None, Duration::from_secs(1)),
        };
        own = allowed.max(Duration::from_secs(1));
        let index = command.map_or(255, |c| c.index);
        let reply = match &command {
            Some(command) => good(card, command, &mut app, &mut scratch),
            None => Some(Reply::default()),
        };
        let silent = HostError { cause: Cause::Timeout, phase: Phase::Command, index, r1: None };
        let answer = reply.ok_or(silent);
        let fate = input.byte();
        last = Some(match (fate, answer) {
            (0..=0x9f, answer) => answer,
            (0xa0..=0xbf, Ok(mut reply)) => {
                reply.words[0] ^= 1 << (fate & 31);
                Ok(reply)
            }
            (0xc0..=0xcf, _) => {
                let words = [input.word(), input.word(), input.word(), input.word()];
                Ok(Reply { words, bytes: command.and_then(|c| c.data).map_or(0, |d| d.bytes()) })
            }
            (0xd0..=0xd7, answer) => {
                scratch.fill(input.byte());
                let bytes = input.word().into();
                answer.map(|reply| Reply { bytes, ..reply })
            }
            _ => Err(error(input.byte(), index)),
        });
        // Odd fates are late ones.
        if fate & 1 == 1 {
            now += allowed;
        }
    }
    panic!("no end after 5,000 steps");
}
