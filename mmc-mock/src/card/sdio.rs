//! An SDIO card on the command level: CMD5, addresses, CMD52 and CMD53 on the registers of its functions, interrupts; with
//! an SD card beside them where it is a combo card (`spec/card.md` §15).
//!
//! Enough for a host that finds out what is there. Its functions do nothing: behind their addresses is memory. It is not
//! a UHS card, cannot be suspended, and takes no SPI mode.

use super::io::{self, Effect, Io, IoFunction};
use super::log::{CommandLog, Entry, Violations};
use super::registers::{ConfigError, SdConfig, r3, short};
use super::sd::{SdCard, State};
use super::{Answer, Bits, Card, Phase, Sent, Token};
use crate::fault::Medium;
use crate::storage::Storage;
use mmc_proto::bus::{Signal, Timing};
use mmc_time::{Duration, Instant};

/// The voltage window: 2.7–3.6 V.
const OCR: u32 = 0x00ff_8000;
/// CURRENT_STATE of a card without memory.
const IO_STATE: u32 = 15 << 9;

/// A description of an SDIO card. Start from [`SdioConfig::new`] and set the fields that differ.
#[derive(Clone, Debug, PartialEq)]
pub struct SdioConfig {
    /// Functions 1 and up; one to seven.
    pub functions: Vec<IoFunction>,
    /// Vendor, in the MANFID tuple.
    pub vendor: u16,
    /// Device, in the MANFID tuple.
    pub device: u16,
    /// The SD card beside the functions, of a combo card.
    pub memory: Option<SdConfig>,
    /// The relative address it publishes first, not 0.
    pub rca: u16,
    /// Whether it can do high speed.
    pub high_speed: bool,
    /// From the first CMD5 with a voltage window until it is ready.
    pub power_up: Duration,
    /// From a CMD53 that reads to its first block.
    pub access: Duration,
    /// It cannot move 512 bytes in byte mode: the data come, or are taken, with a wrong CRC.
    pub byte_mode_512_fails: bool,
}

impl SdioConfig {
    /// One WLAN function with blocks of 512 bytes, high speed, no memory, ready after 5 ms.
    #[must_use]
    pub fn new() -> Self {
        Self {
            functions: vec![IoFunction { interface: 7, max_block: 512, wake_up: Duration::from_millis(2) }],
            vendor: 0x1234,
            device: 0x5678,
            memory: None,
            rca: 0x0001,
            high_speed: true,
            power_up: Duration::from_millis(5),
            access: Duration::from_micros(20),
            byte_mode_512_fails: false,
        }
    }
}

impl Default for SdioConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// What state the I/O part is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoState {
    /// Not started by CMD5, or still starting.
    Off,
    /// CMD5 said it is powered up.
    Ready,
    /// It has an address.
    Stby,
    /// Selected.
    Command,
    /// A data phase of CMD53 runs.
    Transfer,
    /// Deaf until power is cycled.
    Ina,
}

/// A data phase of CMD53.
#[derive(Clone, Copy, Debug)]
struct Run {
    read: bool,
    function: u8,
    address: u32,
    /// The address moves on.
    moves: bool,
    block_len: u16,
    /// Blocks left; `None`: until it is aborted.
    left: Option<u32>,
    /// The host drives as many lines as the card, and the card can do it at all.
    good: bool,
}

/// An SDIO card.
#[derive(Debug)]
pub struct SdioCard {
    config: SdioConfig,
    io: Io,
    memory: Option<SdCard>,
    /// What a card without memory has.
    nothing: Storage,
    log: CommandLog,
    violations: Violations,
    inserted: bool,
    powered: bool,
    hz: u32,
    lines: u8,
    clocks: u32,
    state: IoState,
    init: Option<Instant>,
    rca: u16,
    /// COM_CRC and ILLEGAL of the command before, as an R5 tells them.
    errors: u8,
    run: Option<Run>,
    /// When blocks of the running or last data phase of CMD53 can be there: the first, and how many in all.
    pace: Option<(Instant, Option<u32>)>,
}

impl SdioCard {
    /// A card in its slot, without power.
    ///
    /// # Errors
    /// [`ConfigError`] when there can be no such card.
    pub fn new(config: SdioConfig) -> Result<Self, ConfigError> {
        if !(1..=7).contains(&config.functions.len()) {
            return Err(ConfigError::Functions(config.functions.len()));
        }
        if let Some(f) = config.functions.iter().find(|f| !(1..=2048).contains(&f.max_block)) {
            return Err(ConfigError::BlockSize(f.max_block));
        }
        if config.rca == 0 {
            return Err(ConfigError::Rca);
        }
        let memory = config.memory.clone().map(SdCard::new).transpose()?;
        Ok(Self {
            io: Io::new(&config.functions, config.vendor, config.device, config.high_speed),
            memory,
            nothing: Storage::new(0),
            log: CommandLog::default(),
            violations: Violations::default(),
            inserted: true,
            powered: false,
            hz: 0,
            lines: 1,
            clocks: 0,
            state: IoState::Off,
            init: None,
            rca: 0,
            errors: 0,
            run: None,
            pace: None,
            config,
        })
    }
    /// What it was made of.
    #[must_use]
    pub fn config(&self) -> &SdioConfig {
        &self.config
    }
    /// The SD card of a combo card.
    #[must_use]
    pub fn memory(&self) -> Option<&SdCard> {
        self.memory.as_ref()
    }
    /// The same, for a test's back door.
    pub fn memory_mut(&mut self) -> Option<&mut SdCard> {
        self.memory.as_mut()
    }
    /// The 128 KiB behind the addresses of a function, for a test's back door; `None` without that function.
    pub fn function_mut(&mut self, function: u8) -> Option<&mut [u8]> {
        self.io.memory_mut(function)
    }
    /// A function wants attention: its interrupt is pending until its register 0 is written with 1.
    pub fn raise(&mut self, function: u8) {
        self.io.raise(function);
    }
    /// The commands that arrived.
    #[must_use]
    pub fn log(&self) -> &CommandLog {
        &self.log
    }
    /// Keeps a list of commands from now on, or forgets it.
    pub fn keep_log(&mut self, keep: bool) {
        self.log.keep(keep);
    }
    /// The state of the I/O part.
    #[must_use]
    pub fn io_state(&self) -> IoState {
        self.state
    }
    /// The address it has now; 0 before CMD3.
    #[must_use]
    pub fn rca(&self) -> u16 {
        self.rca
    }
    /// Takes the card out of its slot or puts it back.
    pub fn set_present(&mut self, present: bool) {
        self.inserted = present;
        self.forget();
        if let Some(memory) = &mut self.memory {
            memory.set_present(present);
        }
    }

    /// The I/O part starts anew.
    fn reset(&mut self) {
        self.io.reset();
        (self.state, self.init, self.rca, self.errors) = (IoState::Off, None, 0, 0);
        (self.run, self.pace) = (None, None);
    }
    fn forget(&mut self) {
        self.reset();
        self.clocks = 0;
    }
    fn violation(&mut self, text: impl FnOnce() -> String) {
        self.violations.note(text);
    }
    /// Rules about the clock that the I/O part has of its own.
    fn check_bus(&mut self, index: u8) {
        let clocks = self.clocks;
        if clocks < 74 && self.memory.is_none() {
            self.violation(|| format!("CMD{index}: {clocks} clocks since power-up, at least 74 are needed"));
        }
        self.clocks = u32::MAX;
        let hz = self.hz;
        let (limit, mode) = match self.state {
            IoState::Off | IoState::Ready => (400_000, "identification"),
            _ if self.io.is_fast() => (50_000_000, "high speed"),
            _ => (25_000_000, "full speed"),
        };
        // What a combo card may do elsewhere its memory judges itself.
        if hz > limit && matches!(index, 5 | 52 | 53) {
            self.violation(|| format!("CMD{index}: {hz} Hz, {mode} allows at most {limit}"));
        }
        if hz == 0 && self.memory.is_none() {
            self.violation(|| format!("CMD{index}: came without a clock"));
        }
    }

    /// CMD5.
    fn op_cond(&mut self, arg: u32, now: Instant) -> Option<Bits> {
        if self.state != IoState::Off {
            return None;
        }
        let about = u32::from(self.io.count()) << 28 | u32::from(self.memory.is_some()) << 27 | OCR;
        if arg & 0x00ff_ffff == 0 {
            return Some(r3(about));
        }
        if arg & OCR == 0 {
            self.state = IoState::Ina;
            return None;
        }
        let since = *self.init.get_or_insert(now);
        let done = now >= since + self.config.power_up;
        if done {
            self.state = IoState::Ready;
        }
        Some(r3(about | u32::from(done) << 31))
    }
    /// An R5 to CMD52 or CMD53.
    fn r5(&mut self, index: u8, flags: u8, data: u8) -> Bits {
        let state = match self.state {
            IoState::Command => 1,
            IoState::Transfer => 2,
            _ => 0,
        };
        let flags = flags | state << 4 | std::mem::take(&mut self.errors);
        short(index, u32::from(flags) << 8 | u32::from(data))
    }
    fn direct(&mut self, arg: u32, now: Instant) -> Option<Bits> {
        let (write, raw) = (arg >> 31 == 1, arg & 1 << 27 != 0);
        let (function, address, byte) = ((arg >> 28 & 7) as u8, arg >> 9 & 0x1_ffff, arg as u8);
        if self.state < IoState::Command {
            // A reset is heard by a card that was left in whatever state; nobody answers.
            if write && function == 0 && address == 6 && byte & 8 != 0 && self.state != IoState::Off {
                self.reset();
            }
            return None;
        }
        let flags = self.io.check(function, address, 1, now);
        if flags != 0 {
            return Some(self.r5(52, flags, 0));
        }
        let effect = if write { self.io.write(function, address, byte, now) } else { Effect::None };
        let data = if write && !raw { byte } else { self.io.read(function, address, now) };
        let answer = self.r5(52, 0, data);
        match effect {
            Effect::None => {}
            Effect::Reset => self.reset(),
            Effect::Abort(n) => {
                if self.run.is_some_and(|r| r.function == n) {
                    self.end_run();
                }
            }
        }
        Some(answer)
    }
    fn extended(&mut self, arg: u32, now: Instant) -> Answer {
        if self.state != IoState::Command {
            self.errors |= io::ILLEGAL;
            return Answer::default();
        }
        let (function, address, count) = ((arg >> 28 & 7) as u8, arg >> 9 & 0x1_ffff, arg & 0x1ff);
        let (blocks, moves) = (arg & 1 << 27 != 0, arg & 1 << 26 != 0);
        let (size, most) = self.io.block_size(function);
        let (block_len, left) = match (blocks, count) {
            (true, 0) => (size, None),
            (true, n) => (size, Some(n)),
            (false, 0) => (512, Some(1)),
            (false, n) => (n as u16, Some(1)),
        };
        let all = if moves { u32::from(block_len).saturating_mul(left.unwrap_or(1)) } else { 1 };
        let mut flags = self.io.check(function, address, all, now);
        if flags == 0 && (block_len == 0 || block_len > most) {
            flags = io::ERROR;
        }
        let response = Some(self.r5(53, flags, 0));
        if flags != 0 {
            return Answer { response, data: None };
        }
        let (host, card) = (self.lines, self.io.lines());
        if host != card {
            self.violation(|| format!("data on {host} lines of the host, the I/O part uses {card}"));
        }
        let broken = self.config.byte_mode_512_fails && !blocks && block_len == 512;
        let read = arg >> 31 == 0;
        let good = host == card && !broken;
        self.run = Some(Run { read, function, address, moves, block_len, left, good });
        self.pace = Some((now + if read { self.config.access } else { Duration::ZERO }, left));
        self.state = IoState::Transfer;
        Answer { response, data: Some(Phase { read, block_len, blocks: left }) }
    }
    fn end_run(&mut self) {
        self.run = None;
        if self.state == IoState::Transfer {
            self.state = IoState::Command;
        }
    }
    /// A block of the running phase has moved.
    fn moved(&mut self) {
        let Some(run) = &mut self.run else { return };
        if run.moves {
            run.address = run.address.saturating_add(run.block_len.into());
        }
        if let Some(left) = &mut run.left {
            *left -= 1;
            if *left == 0 {
                self.end_run();
            }
        }
    }
    /// The commands that both parts of a combo card hear, as the I/O part answers them.
    fn shared(&mut self, index: u8, arg: u32) -> Option<Bits> {
        let mine = (arg >> 16) as u16 == self.rca && self.rca != 0;
        match (index, self.state) {
            (3, IoState::Ready | IoState::Stby) => {
                self.rca = if self.rca == 0 { self.config.rca } else { self.rca.wrapping_add(1).max(1) };
                self.state = IoState::Stby;
                Some(short(3, u32::from(self.rca) << 16 | IO_STATE & 0x1fff))
            }
            (7, IoState::Stby) if mine => {
                self.state = IoState::Command;
                Some(short(7, IO_STATE))
            }
            (7, IoState::Command | IoState::Transfer) if !mine => {
                self.end_run();
                self.state = IoState::Stby;
                None
            }
            (15, IoState::Stby | IoState::Command | IoState::Transfer) if mine => {
                self.end_run();
                self.state = IoState::Ina;
                None
            }
            _ => None,
        }
    }
}

impl Card for SdioCard {
    fn power(&mut self, on: bool, now: Instant) {
        if on != self.powered {
            self.forget();
        }
        self.powered = on;
        if let Some(memory) = &mut self.memory {
            memory.power(on, now);
        }
    }
    fn bus(&mut self, hz: u32, lines: u8, now: Instant) {
        (self.hz, self.lines) = (hz, lines);
        if let Some(memory) = &mut self.memory {
            memory.bus(hz, lines, now);
        }
    }
    fn signal(&mut self, signal: Signal, timing: Timing, now: Instant) {
        if let Some(memory) = &mut self.memory {
            memory.signal(signal, timing, now);
        }
    }
    fn lines_low(&self, now: Instant) -> bool {
        self.memory.as_ref().is_some_and(|m| m.lines_low(now))
    }
    fn samples_right(&self, phase: u16, now: Instant) -> bool {
        self.memory.as_ref().is_none_or(|m| m.samples_right(phase, now))
    }
    fn interrupt(&self, _: Instant) -> bool {
        self.inserted && self.powered && self.state >= IoState::Command && self.io.attention()
    }
    fn idle_clocks(&mut self, n: u32) {
        self.clocks = self.clocks.saturating_add(n);
        if let Some(memory) = &mut self.memory {
            memory.idle_clocks(n);
        }
    }
    fn command(&mut self, index: u8, arg: u32, now: Instant) -> Answer {
        let index = index & 63;
        self.log.note(Entry { index, arg, at: now });
        if !self.inserted {
            return Answer::default();
        }
        if !self.powered {
            self.violation(|| format!("CMD{index}: came without power"));
            return Answer::default();
        }
        if self.run.is_none() {
            self.pace = None;
        }
        self.check_bus(index);
        let deaf = self.state == IoState::Ina;
        match index {
            5 | 52 | 53 if deaf => Answer::default(),
            5 => Answer { response: self.op_cond(arg, now), data: None },
            52 => Answer { response: self.direct(arg, now), data: None },
            53 => self.extended(arg, now),
            3 | 7 | 15 => {
                let own = self.shared(index, arg);
                let Some(memory) = &mut self.memory else { return Answer { response: own, data: None } };
                // Both have one address; where the memory was not woken the I/O part speaks for itself.
                if memory.state(now) < State::Ident {
                    return Answer { response: own, data: None };
                }
                let answer = memory.command(index, arg, now);
                if index == 3 && answer.response.is_some() && self.state == IoState::Stby {
                    self.rca = memory.rca();
                }
                answer
            }
            _ => match &mut self.memory {
                Some(memory) => memory.command(index, arg, now),
                // CMD0 does not reset the I/O part; the rest it does not know.
                None => {
                    if index != 0 {
                        self.errors |= io::ILLEGAL;
                    }
                    Answer::default()
                }
            },
        }
    }
    fn ready(&self, k: u32) -> Instant {
        match (self.pace, &self.memory) {
            (Some((first, blocks)), _) if blocks.is_none_or(|n| k < n) => first,
            (None, Some(memory)) => memory.ready(k),
            _ => Instant::NEVER,
        }
    }
    fn send(&mut self, block: &mut [u8], now: Instant) -> Sent {
        let Some(run) = self.run.filter(|r| r.read) else {
            return self.memory.as_mut().map_or(Sent::Nothing, |m| m.send(block, now));
        };
        for (i, byte) in block.iter_mut().take(run.block_len.into()).enumerate() {
            let at = run.address + if run.moves { i as u32 } else { 0 };
            *byte = self.io.read(run.function, at, now);
        }
        self.moved();
        if run.good && block.len() == usize::from(run.block_len) { Sent::Good } else { Sent::BadCrc }
    }
    fn send_many(&mut self, blocks: &mut [u8], now: Instant) -> usize {
        match &mut self.memory {
            Some(memory) if self.run.is_none() => memory.send_many(blocks, now),
            _ => 0,
        }
    }
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        let Some(run) = self.run.filter(|r| !r.read) else {
            return self.memory.as_mut().map_or(Token::Nothing, |m| m.take(block, crc_ok, now));
        };
        if !crc_ok || !run.good || block.len() != usize::from(run.block_len) {
            // The rest is ignored; the host aborts.
            if run.left == Some(1) {
                self.end_run();
            }
            self.errors |= io::COM_CRC;
            return Token::CrcError;
        }
        for (i, &byte) in block.iter().enumerate() {
            let at = run.address + if run.moves { i as u32 } else { 0 };
            self.io.write(run.function, at, byte, now);
        }
        self.moved();
        Token::Accepted
    }
    fn take_many(&mut self, blocks: &[u8], now: Instant) -> usize {
        match &mut self.memory {
            Some(memory) if self.run.is_none() => memory.take_many(blocks, now),
            _ => 0,
        }
    }
    fn busy_until(&self, now: Instant) -> Instant {
        self.memory.as_ref().map_or(Instant::ZERO, |m| m.busy_until(now))
    }
    fn present(&self) -> bool {
        self.inserted
    }
    fn violations(&self) -> Vec<String> {
        let memory = self.memory.iter().flat_map(Card::violations);
        self.violations.list().iter().cloned().chain(memory).collect()
    }
}

impl Medium for SdioCard {
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage)) {
        match &mut self.memory {
            Some(memory) => memory.with_storage(f),
            None => f(&mut self.nothing),
        }
    }
    fn volatile(&mut self) -> usize {
        self.memory.as_mut().map_or(0, Medium::volatile)
    }
    fn tells_status(&self, app: bool, index: u8) -> bool {
        app || !matches!(index, 3 | 8 | 52 | 53 | 58)
    }
    fn lose(&mut self, survivors: &[usize]) {
        if let Some(memory) = &mut self.memory {
            memory.lose(survivors);
        }
    }
}
