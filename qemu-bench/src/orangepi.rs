//! A Cortex-A7 board (`orangepi-pc`) whose SD host is Allwinner's: a controller and a card that neither of our drivers is for.
//!
//! The engine here is the least that lets our conversations speak with it: commands, and data by the FIFO. It is not a
//! driver: no DMA, no interrupts, no supply, and it trusts the model to move a whole data phase while it looks.

use crate::pc::Clock;
use crate::qtest::Qtest;
use crate::{IMAGE, empty};
use mmc_hal::{Dir, Payload};
use mmc_mock::BufBatch;
use mmc_proto::bus::{BusConfig, Power, Width};
use mmc_proto::command::{Command, Response};
use mmc_proto::host::{Capabilities, Cause, Engine, Failure, Lease, Phase, Reply, Supervised, Why};
use mmc_time::{Duration, Instant};
use std::path::Path;

/// Host 0, the slot of the board.
const BASE: u32 = 0x01c0_f000;
/// Bits 2:0 reset the circuits.
const CONTROL: u32 = 0x00;
/// Bit 16: the card clock is on.
const CLOCK: u32 = 0x04;
/// 0, 1, 2: one line, four, eight.
const WIDTH: u32 = 0x0c;
const BLOCK_BYTES: u32 = 0x10;
const BYTES: u32 = 0x14;
const COMMAND: u32 = 0x18;
const ARGUMENT: u32 = 0x1c;
/// Four words, the last bits of a long response first.
const RESPONSE: u32 = 0x20;
/// Events, cleared by ones.
const EVENTS: u32 = 0x38;
const FIFO: u32 = 0x200;

/// Of the command register: begin; change the clock and send nothing.
const LOAD: u32 = 1 << 31;
const CLOCK_ONLY: u32 = 1 << 21;
/// Of the events: no response (by the manual 8, by QEMU 1), command over, data over.
const NO_RESPONSE: u32 = 1 << 8 | 1 << 1;
const COMMAND_OVER: u32 = 1 << 2;
const DATA_OVER: u32 = 1 << 3;

/// How long a circuit may take; the model takes none.
const PATIENCE: Duration = Duration::from_millis(100);

/// The engine.
#[derive(Debug)]
pub struct Sunxi {
    qtest: Qtest,
    running: Option<(Command, Instant)>,
    clock: bool,
}

impl Sunxi {
    fn write(&self, offset: u32, value: u32) {
        self.qtest.ask(&format!("writel {:#x} {value:#x}", BASE + offset));
    }
    fn read(&self, offset: u32) -> u32 {
        self.qtest.number(&format!("readl {:#x}", BASE + offset))
    }
    /// The data phase, through the FIFO, a word at a time.
    fn pump(&self, payload: &mut BufBatch, dir: Dir, bytes: usize) {
        let at = BASE + FIFO;
        let mut data: Vec<u8> =
            (0..payload.segments()).filter_map(|i| payload.segment(i)).flatten().copied().collect();
        data.resize(bytes, 0);
        let words =
            data.chunks_exact(4).map(|word| word.iter().rev().fold(0_u32, |w, b| w << 8 | u32::from(*b)));
        let commands: Vec<String> = match dir {
            Dir::Write => words.map(|word| format!("writel {at:#x} {word:#x}")).collect(),
            Dir::Read => words.map(|_| format!("readl {at:#x}")).collect(),
        };
        // Both directions of the socket have room for so many.
        let answers: Vec<String> = commands.chunks(512).flat_map(|some| self.qtest.ask_all(some)).collect();
        if dir == Dir::Write {
            return;
        }
        let number =
            |a: &String| u64::from_str_radix(a.trim_start_matches("0x"), 16).unwrap_or(u64::MAX) as u32;
        let mut read = answers.iter().flat_map(|a| number(a).to_le_bytes());
        for i in 0..payload.segments() {
            let to = payload.segment_mut(i).into_iter().flatten();
            to.zip(&mut read).for_each(|(to, from)| *to = from);
        }
    }
}

impl Engine for Sunxi {
    type Payload = BufBatch;

    fn capabilities(&self) -> Capabilities {
        let mut caps = Capabilities::new();
        (caps.width, caps.max_hz, caps.max_segments) = (Width::Four, 50_000_000, 64);
        caps
    }

    fn start(&mut self, cmd: &Command, _: Option<Lease<'_, BufBatch>>, now: Instant) -> Result<(), Cause> {
        if !self.clock {
            return Err(Cause::Unsupported("the card clock is stopped"));
        }
        if cmd.data.is_some_and(|shape| shape.bytes() % 4 != 0) {
            return Err(Cause::Unsupported("a data phase of broken words"));
        }
        let mut word = LOAD | u32::from(cmd.index);
        word |= match cmd.response {
            Response::None => 0,
            Response::Short => 1 << 6 | 1 << 8,
            Response::ShortNoCrc => 1 << 6,
            Response::Long => 1 << 6 | 1 << 7 | 1 << 8,
        };
        word |= u32::from(cmd.init_clocks) << 15;
        self.write(EVENTS, u32::MAX);
        if let Some(shape) = cmd.data {
            self.write(BLOCK_BYTES, shape.block_len.into());
            self.write(BYTES, shape.bytes() as u32);
            word |= 1 << 9 | u32::from(shape.dir == Dir::Write) << 10 | 1 << 13;
        }
        self.write(ARGUMENT, cmd.arg);
        self.write(COMMAND, word);
        self.running = Some((*cmd, now));
        Ok(())
    }

    fn set_bus(&mut self, bus: &BusConfig, _: Instant) -> Result<(), Cause> {
        self.write(CLOCK, 0);
        self.write(COMMAND, LOAD | CLOCK_ONLY | 1 << 13);
        self.write(WIDTH, u32::from(bus.width == Width::Four));
        self.clock = bus.hz != 0;
        if self.clock {
            self.write(CLOCK, 1 << 16);
            self.write(COMMAND, LOAD | CLOCK_ONLY | 1 << 13);
        }
        Ok(())
    }

    fn set_power(&mut self, _: Power, _: Instant) -> Result<(), Cause> {
        self.write(CONTROL, 7);
        self.clock = false;
        Ok(())
    }

    fn advance(&mut self, data: Option<Lease<'_, BufBatch>>, now: Instant) -> Option<Result<Reply, Failure>> {
        // A change of bus or supply has no end of its own.
        let Some((cmd, since)) = self.running else { return Some(Ok(Reply::default())) };
        let late = now.since(since) >= PATIENCE;
        let events = self.read(EVENTS);
        if events & NO_RESPONSE != 0 || late && events & COMMAND_OVER == 0 {
            self.running = None;
            return Some(Err((Cause::Timeout, Phase::Command).into()));
        }
        if events & COMMAND_OVER == 0 {
            return None;
        }
        let mut words = [0, 4, 8, 12].map(|n| self.read(RESPONSE + n));
        if cmd.response == Response::Long {
            words.reverse();
        }
        self.running = None;
        let (Some(shape), Some(mut lease)) = (cmd.data, data) else {
            return Some(Ok(Reply { words, bytes: 0 }));
        };
        let bytes = lease.bytes();
        self.pump(lease.get(), shape.dir, bytes as usize);
        // What did not come will not come any more.
        Some(if self.read(EVENTS) & DATA_OVER != 0 {
            Ok(Reply { words, bytes })
        } else {
            Err(Failure { cause: Cause::Timeout, phase: Phase::Data, r1: Some(words[0]) })
        })
    }

    fn waits(&self, now: Instant) -> (Why, Instant) {
        (Why::Timer, now + Duration::from_micros(100))
    }

    fn halt(&mut self, _: Instant) {
        self.running = None;
        self.write(CONTROL, 7);
    }

    fn halted(&mut self, _: Instant) -> bool {
        true
    }
}

/// The machine.
#[derive(Debug)]
pub struct OrangePi {
    /// The way to QEMU.
    pub qtest: Qtest,
    /// The engine.
    pub host: Supervised<Sunxi>,
    /// Time.
    pub clock: Clock,
}

impl OrangePi {
    /// Starts one with an empty card of `card_bytes` bytes. Its processor is parked: it has no program.
    #[must_use]
    pub fn start(qemu: &Path, card_bytes: u64) -> Self {
        let arguments = ["-M", "orangepi-pc", "-S", "-drive", "if=sd,format=raw,file={dir}/card.img"];
        let qtest = Qtest::start(qemu, &arguments, |dir| empty(&dir.join(IMAGE), card_bytes));
        let engine = Sunxi { qtest: qtest.clone(), running: None, clock: false };
        Self { host: Supervised::new(engine, Duration::ZERO), clock: Clock::polled(qtest.clone()), qtest }
    }
}
