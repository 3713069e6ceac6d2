//! Identification and transfers against a card and a host that answer whatever the bytes say.

use mmc_hal::Dir;
use mmc_proto::bus::Width;
use mmc_proto::command::Command;
use mmc_proto::host::{Capabilities, Cause, HostError, Phase, Reply};
use mmc_proto::machine::{CardTraits, Identify, Machine, Step, Transfer, TransferOptions};
use mmc_time::{Duration, Instant};

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

/// Answers as a good 8 GB SDHC card would.
fn good(command: &Command, app: &mut bool, scratch: &mut [u8]) -> Reply {
    let was_app = std::mem::take(app);
    let mut fill = |bytes: &[u8]| {
        let n = bytes.len().min(scratch.len());
        scratch[..n].copy_from_slice(&bytes[..n]);
    };
    let words = match (was_app, command.index) {
        (_, 8) => [command.arg, 0, 0, 0],
        (_, 55) => {
            *app = true;
            [0x920, 0, 0, 0]
        }
        (true, 41) => [0xc0ff_8000, 0, 0, 0],
        (_, 2) => [0x0353_4453, 0x4331_3647, 0x8012_3456, 0x7801_3500],
        (_, 3) => [0x1234_0500, 0, 0, 0],
        (_, 9) => [0x400e_0032, 0x5b59_0000, 0x39b3_7f80, 0x0a40_0000],
        (true, 51) => {
            fill(&[0x02, 0x35, 0x80, 0x03, 0, 0, 0, 0]);
            [0x900, 0, 0, 0]
        }
        (true, 13) => {
            fill(&[0x80; 64]);
            [0x900, 0, 0, 0]
        }
        (false, 6) => {
            let mut status = [0; 64];
            status[..17]
                .copy_from_slice(&[0, 0xc8, 0x80, 1, 0x80, 1, 0x80, 1, 0x80, 1, 0x80, 1, 0x80, 3, 0, 0, 1]);
            fill(&status);
            [0x900, 0, 0, 0]
        }
        _ => [0x900, 0, 0, 0],
    };
    Reply { words, bytes: command.data.map_or(0, |d| d.bytes()) }
}

fn error(n: u8, index: u8) -> HostError {
    let cause = match n % 10 {
        0 => Cause::Limit,
        1 => Cause::Crc,
        2 => Cause::Framing,
        3 => Cause::NoCrcStatus,
        4 => Cause::Controller,
        5 => Cause::Unsupported("by the fuzzer"),
        6 => Cause::Busy,
        7 => Cause::Aborted,
        8 => Cause::NoCard,
        _ => Cause::Timeout,
    };
    let phase = match n / 10 % 5 {
        0 => Phase::Command,
        1 => Phase::Data,
        2 => Phase::Busy,
        3 => Phase::Bus,
        _ => Phase::Submit,
    };
    HostError { cause, phase, index, r1: None }
}

/// Drives `machine` to its end; the time it took and the steps it made.
fn drive<M: Machine>(mut machine: M, input: &mut Bytes<'_>) -> (M::Output, Duration, u32) {
    let mut scratch = [0; 512];
    let (mut now, mut last, mut app) = (Instant::ZERO, None, false);
    for steps in 0_u32.. {
        let step = machine.next(last.take(), &mut scratch, now);
        let (command, limit) = match &step {
            Step::Do(action) => (Some(action.command), action.limit),
            Step::Bus(_) | Step::Power(_) => (None, Duration::from_secs(1)),
            Step::Sleep(time) => {
                now += *time;
                continue;
            }
            Step::Done(_) => {
                let Step::Done(out) = step else { unreachable!("just matched") };
                return (out, now - Instant::ZERO, steps);
            }
        };
        assert!(steps < 5_000, "no end");
        let index = command.map_or(255, |c| c.index);
        let mut reply = command.map_or(Reply::default(), |c| good(&c, &mut app, &mut scratch));
        let fate = input.byte();
        last = Some(match fate {
            0..=0x9f => Ok(reply),
            0xa0..=0xbf => {
                reply.words[0] ^= 1 << (fate & 31);
                Ok(reply)
            }
            0xc0..=0xcf => {
                reply.words = [input.word(), input.word(), input.word(), input.word()];
                Ok(reply)
            }
            0xd0..=0xd7 => {
                scratch.fill(input.byte());
                reply.bytes = input.word().into();
                Ok(reply)
            }
            _ => Err(error(input.byte(), index)),
        });
        // Odd fates are late ones.
        if fate & 1 == 1 {
            now += limit;
        }
    }
    unreachable!("the loop ends by its assertion")
}

/// One machine, chosen by the first byte, against the answers of the other bytes: it ends within the time it
/// states.
///
/// # Panics
/// When a promise is broken.
pub fn machines(data: &[u8]) {
    let mut input = Bytes(data);
    let kind = input.byte();
    if kind & 1 == 0 {
        let mut caps = Capabilities::new();
        if kind & 2 == 0 {
            caps.max_hz = 50_000_000;
            caps.width = Width::Four;
        }
        let (out, took, _) = drive(Identify::new(&caps), &mut input);
        assert!(took <= Identify::LIMIT + Duration::from_secs(1), "took {took}");
        match out {
            Ok(card) => assert!(card.traits.rca != 0 && card.bus.hz <= caps.max_hz && card.traits.blocks > 0),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        return;
    }
    let traits = CardTraits {
        rca: 0x1234,
        blocks: 15_126_528,
        byte_addressed: kind & 2 != 0,
        cmd23: kind & 4 != 0,
        read_limit: Duration::from_millis(100),
        write_limit: Duration::from_millis(250),
        block_time: Duration::from_micros(90),
        unit: 1,
    };
    let dir = if kind & 8 == 0 { Dir::Read } else { Dir::Write };
    let options = TransferOptions { open_ended: kind & 16 != 0 };
    let blocks = u32::from(input.byte()) << (kind >> 5);
    let transfer = Transfer::new(&traits, dir, input.word().into(), blocks, options);
    let (out, took, steps) = drive(transfer, &mut input);
    assert!(took <= transfer.limit(), "took {took} of {}", transfer.limit());
    assert!(steps < 200, "{steps} steps");
    match out {
        Ok(done) => assert_eq!(done, blocks),
        Err(error) => assert!(error.done <= blocks && !error.to_string().is_empty()),
    }
}
