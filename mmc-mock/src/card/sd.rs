//! An SD card on the command level: identification, registers, reads, writes, erases; its states and its errors.
//!
//! SDSC, SDHC and SDXC up to high speed, with extension registers where they are asked for. It is not a UHS card, not locked, not write protected, and knows no command
//! queue: the commands for these are illegal to it, as they are to many real cards.

use super::extension::Extension;
use super::log::{CommandLog, Entry, Violations};
use super::registers::{Capacity, ConfigError, SdConfig, Version, r2, r3, short};
use super::status::{self, Status};
use super::transfer::{Pace, Run, Source};
use super::{Answer, Bits, Card, Phase, Sent, Token};
use crate::fault::{Faults, What};
use crate::storage::Storage;
use crate::timing::{Stats, Timing};
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;

/// The voltage window of every card here: 2.7–3.6 V.
const OCR: u32 = 0x00ff_8000;

/// What state a card is in; the numbers are those of CURRENT_STATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// After power-up or CMD0.
    Idle = 0,
    /// ACMD41 said it is powered up.
    Ready = 1,
    /// Its CID was read.
    Ident = 2,
    /// It has an address.
    Stby = 3,
    /// Selected.
    Tran = 4,
    /// Sending.
    Data = 5,
    /// Taking blocks.
    Rcv = 6,
    /// Programming; DAT0 is low.
    Prg = 7,
    /// Programming and deselected.
    Dis = 8,
    /// Deaf until power is cycled. It has no number; this one never travels.
    Ina = 255,
}

/// An SD card.
#[derive(Debug)]
pub struct SdCard {
    pub(super) config: SdConfig,
    pub(super) storage: Storage,
    pub(super) timing: Timing,
    faults: Faults,
    log: CommandLog,
    violations: Violations,
    inserted: bool,
    powered: bool,
    /// Clock and lines of the host.
    hz: u32,
    lines: u8,
    /// Clocks since power-up, until the first command.
    clocks: Option<u32>,
    /// DAT0 is low until power goes.
    pub(super) stuck: bool,
    /// What was in the sectors that are only in the cache, by their first byte in storage.
    pub(super) undo: VecDeque<(u64, [u8; 512])>,
    pub(super) v: Volatile,
}

/// What CMD0 resets.
#[derive(Debug)]
pub(super) struct Volatile {
    pub(super) state: State,
    /// Programming ends.
    pub(super) busy: Instant,
    pub(super) status: Status,
    rca: u16,
    /// CMD55 came just before.
    app: bool,
    /// CMD8 was answered.
    if_cond: bool,
    /// The first ACMD41 with a window.
    init: Option<Instant>,
    width: u8,
    /// The function of group 1: 0 default speed, 1 high speed.
    pub(super) speed: u8,
    pub(super) block_len: u16,
    /// CMD23.
    count: Option<u32>,
    erase: (Option<u32>, Option<u32>),
    /// Blocks of the last write that were stored (ACMD22).
    pub(super) well_written: u32,
    pub(super) run: Option<Run>,
    pub(super) pace: Option<Pace>,
    pub(super) extension: Extension,
}

impl Default for Volatile {
    fn default() -> Self {
        Self {
            state: State::Idle,
            busy: Instant::ZERO,
            status: Status::default(),
            rca: 0,
            app: false,
            if_cond: false,
            init: None,
            width: 1,
            speed: 0,
            block_len: 512,
            count: None,
            erase: (None, None),
            well_written: 0,
            run: None,
            pace: None,
            extension: Extension::default(),
        }
    }
}

/// What came of a command.
enum Outcome {
    /// R1 or R1b; error bits of this command were set in the status before.
    R1,
    /// Another response.
    Other(Bits),
    /// Done, and no response by its nature.
    Silent,
    /// Not for this card.
    NotMine,
    /// Not legal here and now.
    Illegal,
}

impl SdCard {
    /// A card in its slot, without power.
    ///
    /// # Errors
    /// [`ConfigError`] when there can be no such card.
    pub fn new(config: SdConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            storage: Storage::new(config.quirks.wraps_at.unwrap_or(config.sectors).min(config.sectors)),
            timing: Timing::new(config.profile.clone(), config.seed),
            config,
            faults: Faults::new(),
            log: CommandLog::default(),
            violations: Violations::default(),
            inserted: true,
            powered: false,
            hz: 0,
            lines: 1,
            clocks: Some(0),
            stuck: false,
            undo: VecDeque::new(),
            v: Volatile::default(),
        })
    }
    /// What it was made of.
    #[must_use]
    pub fn config(&self) -> &SdConfig {
        &self.config
    }
    /// Its contents.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }
    /// Its contents, to prepare or to look at; moves neither time nor statistics of commands.
    pub fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }
    /// What its data commands cost so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.timing.stats()
    }
    /// The commands that arrived.
    #[must_use]
    pub fn log(&self) -> &CommandLog {
        &self.log
    }
    /// Keeps a list of commands from now on ([`CommandLog::entries`]), or forgets it.
    pub fn keep_log(&mut self, keep: bool) {
        self.log.keep(keep);
    }
    /// The faults to come.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.faults
    }
    /// Forgets the violations so far.
    pub fn clear_violations(&mut self) {
        self.violations = Violations::default();
    }
    /// Takes the card out of its slot or puts it back; it forgets everything but its contents.
    pub fn set_present(&mut self, present: bool) {
        self.inserted = present;
        self.forget();
    }
    /// Its state at `now`.
    #[must_use]
    pub fn state(&self, now: Instant) -> State {
        match self.v.state {
            State::Prg if !self.stuck && now >= self.v.busy => State::Tran,
            State::Dis if !self.stuck && now >= self.v.busy => State::Stby,
            State::Tran if self.stuck => State::Prg,
            s => s,
        }
    }
    /// Error bits of the card status that no response has told yet.
    #[must_use]
    pub fn pending_status(&self) -> u32 {
        self.v.status.pending()
    }
    /// The address it has now; 0 before CMD3.
    #[must_use]
    pub fn rca(&self) -> u16 {
        self.v.rca
    }
    /// Data lines the card uses: 1 or 4.
    #[must_use]
    pub fn width(&self) -> u8 {
        self.v.width
    }
    /// Whether CMD6 has switched it to high speed.
    #[must_use]
    pub fn is_high_speed(&self) -> bool {
        self.v.speed == 1
    }

    /// Bytes it says it has.
    fn bytes(&self) -> u64 {
        self.config.sectors * 512
    }
    /// Where in storage byte `at` of the card is, and how many bytes follow there: all of them, but for a card that
    /// has less than it says.
    pub(super) fn place(&self, at: u64) -> (u64, u64) {
        let place = at % self.storage.bytes();
        (place, self.storage.bytes() - place)
    }
    pub(super) fn byte_addressed(&self) -> bool {
        self.config.capacity() == Capacity::Standard
    }
    fn forget(&mut self) {
        self.lose_cache();
        self.v = Volatile::default();
        self.clocks = Some(0);
        self.stuck = false;
    }
    fn violation(&mut self, text: impl FnOnce() -> String) {
        self.violations.note(text);
    }

    /// Whether the host keeps the rules about its clock.
    fn check_bus(&mut self, index: u8) {
        let state = self.v.state;
        if let Some(n) = self.clocks.take()
            && n < 74
        {
            self.violation(|| format!("CMD{index}: {n} clocks since power-up, at least 74 are needed"));
        }
        let (limit, mode) = match (state, self.v.speed) {
            (State::Idle | State::Ready | State::Ident, _) => (400_000, "identification"),
            (_, 0) => (25_000_000, "default speed"),
            _ => (50_000_000, "high speed"),
        };
        let hz = self.hz;
        if hz > limit {
            self.violation(|| format!("CMD{index}: {hz} Hz, {mode} allows at most {limit}"));
        }
        if hz == 0 {
            self.violation(|| format!("CMD{index}: came without a clock"));
        }
    }

    /// Whether this card knows the command at all, in whatever state.
    fn knows(&self, index: u8, app: bool) -> bool {
        match (app, index) {
            (true, 6 | 13 | 22 | 23 | 41 | 42 | 51) => true,
            (true, _) => false,
            (_, 0 | 2 | 3 | 4 | 7 | 9 | 10 | 12 | 13 | 15 | 16 | 17 | 18 | 24 | 25 | 32 | 33 | 38 | 55) => {
                true
            }
            (_, 6) => self.config.version >= Version::V1_1,
            (_, 8) => self.config.version >= Version::V2,
            (_, 23) => self.config.cmd23,
            (_, 48 | 49) => self.config.extension,
            _ => false,
        }
    }

    fn execute(&mut self, index: u8, app: bool, arg: u32, now: Instant, faults: &[What]) -> Outcome {
        use State::{Data, Dis, Ident, Idle, Ina, Prg, Rcv, Ready, Stby, Tran};
        let count = self.v.count.take();
        if !matches!((app, index), (false, 13 | 32 | 33 | 38)) && self.v.erase != (None, None) {
            self.v.erase = (None, None);
            self.v.status.raise(status::ERASE_RESET);
        }
        if !self.knows(index, app) {
            return Outcome::Illegal;
        }
        let mine = (arg >> 16) as u16 == self.v.rca;
        let state = self.v.state;
        if app {
            return self.execute_app(index, arg, now, faults);
        }
        if self.config.quirks.cmd23_hangs && matches!(index, 18 | 25) && count.is_some() {
            self.v.state = Ina;
            return Outcome::Silent;
        }
        match (index, state) {
            (0, _) => {
                self.end_run(now);
                self.v = Volatile::default();
                Outcome::Silent
            }
            (2, Ready) => {
                self.v.state = Ident;
                Outcome::Other(r2(&self.config.cid()))
            }
            (3, Ident | Stby) => {
                let next = if self.v.rca == 0 { self.config.rca } else { self.v.rca.wrapping_add(1).max(1) };
                self.v.rca = next;
                self.v.state = Stby;
                let s = self.v.status.read(state, self.config_ready(), false, status::R6);
                let low = (s >> 8) & 0xc000 | (s >> 6) & 0x2000 | s & 0x1fff;
                Outcome::Other(short(3, u32::from(next) << 16 | low))
            }
            (4, Stby) => Outcome::Silent,
            (6, Tran) => {
                let (bytes, speed) = self.config.switch_status(arg, self.v.speed);
                self.open_register(&bytes, Some(speed), now, faults)
            }
            (7, Stby) if mine => self.go(Tran),
            (7, Dis) if mine => self.go(Prg),
            (7, Stby | Dis) => Outcome::NotMine,
            (7, Tran | Data) if !mine => {
                self.end_run(now);
                self.v.state = Stby;
                Outcome::Silent
            }
            (7, Prg) if !mine => {
                self.v.state = Dis;
                Outcome::Silent
            }
            (8, Idle) => {
                if (arg >> 8) & 15 != 1 {
                    return Outcome::Silent;
                }
                self.v.if_cond = true;
                Outcome::Other(short(8, arg & 0xfff))
            }
            (9 | 10 | 13 | 15 | 55, Idle | Stby | Tran | Data | Rcv | Prg | Dis) if !mine => Outcome::NotMine,
            (9, Stby) => Outcome::Other(r2(&self.config.csd(self.v.speed == 1))),
            (10, Stby) => Outcome::Other(r2(&self.config.cid())),
            (12, Data | Rcv) => {
                self.end_run(now);
                Outcome::R1
            }
            (13, Stby | Tran | Data | Rcv | Prg | Dis)
            | (55, Idle | Stby | Tran | Data | Rcv | Prg | Dis) => {
                self.v.app = index == 55;
                Outcome::R1
            }
            (15, Stby | Tran | Data | Rcv | Prg | Dis) => {
                self.end_run(now);
                self.v.state = Ina;
                Outcome::Silent
            }
            (16, Tran) => {
                match u16::try_from(arg) {
                    Ok(len @ 1..=512) if self.byte_addressed() => self.v.block_len = len,
                    Ok(1..=512) => {}
                    _ => self.v.status.raise(status::BLOCK_LEN_ERROR),
                }
                Outcome::R1
            }
            (17 | 18 | 24 | 25, Tran) => self.open_blocks(index, arg, count, now, faults),
            (48, Tran) => {
                match self.read_extension(arg, now) {
                    Ok(block) => {
                        let access = self.timing.profile().cmd;
                        self.open_run(Source::Extension(block), now, access, 512, (Some(1), true), faults);
                    }
                    Err(bit) => self.v.status.raise(bit),
                }
                Outcome::R1
            }
            (49, Tran) => {
                match Self::check_extension(arg) {
                    Ok(()) => {
                        let source = Source::ToExtension(arg);
                        self.open_run(source, now, Duration::ZERO, 512, (Some(1), true), faults);
                    }
                    Err(bit) => self.v.status.raise(bit),
                }
                Outcome::R1
            }
            (23, Tran) => {
                self.v.count = (arg != 0).then_some(arg);
                Outcome::R1
            }
            (32, Tran) => {
                self.v.erase = (Some(arg), None);
                Outcome::R1
            }
            (33, Tran) => {
                match self.v.erase {
                    (Some(_), None) => self.v.erase.1 = Some(arg),
                    _ => self.break_erase(status::ERASE_SEQ_ERROR),
                }
                Outcome::R1
            }
            (38, Tran) => {
                match self.v.erase {
                    (Some(from), Some(to)) => self.erase(from, to, now),
                    _ => self.break_erase(status::ERASE_SEQ_ERROR),
                }
                self.v.erase = (None, None);
                Outcome::R1
            }
            _ => Outcome::Illegal,
        }
    }

    fn execute_app(&mut self, index: u8, arg: u32, now: Instant, faults: &[What]) -> Outcome {
        match (index, self.v.state) {
            (41, State::Idle) => self.power_up(arg, now),
            (6, State::Tran) => {
                match arg & 3 {
                    0 => self.v.width = 1,
                    2 => self.v.width = 4,
                    _ => self.v.status.raise(status::ERROR),
                }
                Outcome::R1
            }
            (13, State::Tran) => {
                let ssr = self.config.ssr(self.v.width);
                self.open_register(&ssr, None, now, faults)
            }
            (22, State::Tran) => {
                let n = self.v.well_written.to_be_bytes();
                self.open_register(&n, None, now, faults)
            }
            (51, State::Tran) => {
                let scr = self.config.scr();
                self.open_register(&scr, None, now, faults)
            }
            // A hint how much to pre-erase, and the pull-up on DAT3: nothing to be seen of either.
            (23 | 42, State::Tran) => Outcome::R1,
            _ => Outcome::Illegal,
        }
    }

    /// ACMD41.
    fn power_up(&mut self, arg: u32, now: Instant) -> Outcome {
        let window = arg & 0x00ff_ffff;
        let ocr = OCR | u32::from(self.config.quirks.low_voltage) << 7;
        if window == 0 {
            return Outcome::Other(r3(ocr));
        }
        if window & OCR == 0 {
            self.v.state = State::Ina;
            return Outcome::Silent;
        }
        let since = *self.v.init.get_or_insert(now);
        let high = !self.byte_addressed();
        // A host that did not say HCS (after a good CMD8) cannot use a high capacity card: it stays busy.
        let usable = !high || (self.v.if_cond && arg & 1 << 30 != 0);
        if !usable || now < since + self.config.power_up {
            return Outcome::Other(r3(ocr));
        }
        self.v.state = State::Ready;
        Outcome::Other(r3(ocr | 1 << 31 | u32::from(high) << 30))
    }

    fn go(&mut self, to: State) -> Outcome {
        self.v.state = to;
        Outcome::R1
    }
    fn break_erase(&mut self, bit: u32) {
        self.v.erase = (None, None);
        self.v.status.raise(bit);
    }
    fn erase(&mut self, from: u32, to: u32, now: Instant) {
        let sector = |arg: u32| if self.byte_addressed() { u64::from(arg) / 512 } else { u64::from(arg) };
        let (first, last) = (sector(from), sector(to));
        if last < first {
            self.v.status.raise(status::ERASE_PARAM);
        } else if last >= self.config.sectors {
            self.v.status.raise(status::OUT_OF_RANGE);
        } else {
            let (mut at, mut left) = (first * 512, (last - first + 1) * 512);
            while left > 0 {
                let (place, room) = self.place(at);
                let n = left.min(room);
                // Inside by construction.
                let _ = self.storage.erase(place, n);
                self.undo.retain(|u| !(place..place + n).contains(&u.0));
                (at, left) = (at + n, left - n);
            }
            self.v.state = State::Prg;
            self.v.busy = now + self.timing.erase(first, last - first + 1);
        }
    }
    /// READY_FOR_DATA as the state stands.
    fn config_ready(&self) -> bool {
        !matches!(self.v.state, State::Prg | State::Dis)
    }
    /// Whether the host drives as many lines as this card listens to; remembered where not.
    pub(super) fn check_width(&mut self) -> bool {
        let (host, card) = (self.lines, self.v.width);
        if host != card {
            self.violation(|| format!("data on {host} lines of the host, the card uses {card}"));
        }
        host == card
    }
    fn open_register(&mut self, bytes: &[u8], speed: Option<u8>, now: Instant, faults: &[What]) -> Outcome {
        let access = self.timing.profile().cmd;
        let source = Source::register(bytes, speed);
        self.open_run(source, now, access, bytes.len() as u16, (Some(1), true), faults);
        Outcome::R1
    }
    fn open_blocks(
        &mut self,
        index: u8,
        arg: u32,
        count: Option<u32>,
        now: Instant,
        faults: &[What],
    ) -> Outcome {
        let (read, single) = (index < 24, matches!(index, 17 | 24));
        let blocks = (if single { Some(1) } else { count }, single);
        let len = self.v.block_len;
        let at = if self.byte_addressed() { u64::from(arg) } else { u64::from(arg) * 512 };
        if !read && len != 512 {
            self.v.status.raise(status::BLOCK_LEN_ERROR);
        } else if let Some(bit) = self.refuses(read, at, len) {
            self.v.status.raise(bit);
        } else if read {
            let access = self.timing.read_access(at / 512) + self.config.quirks.read_delay;
            self.open_run(Source::Read(at), now, access, len, blocks, faults);
        } else {
            self.v.well_written = 0;
            self.open_run(Source::Write(at), now, Duration::ZERO, len, blocks, faults);
        }
        Outcome::R1
    }
    /// Why a block of `len` bytes at byte `at` cannot be moved.
    pub(super) fn refuses(&self, read: bool, at: u64, len: u16) -> Option<u32> {
        let len = u64::from(len);
        if at + len > self.bytes() {
            Some(status::OUT_OF_RANGE)
        } else if at % 512 + len > 512 || (!read && !at.is_multiple_of(512)) {
            Some(status::ADDRESS_ERROR)
        } else {
            None
        }
    }
}

impl Card for SdCard {
    fn power(&mut self, on: bool, _: Instant) {
        if on != self.powered {
            self.forget();
        }
        self.powered = on;
    }
    fn bus(&mut self, hz: u32, lines: u8, _: Instant) {
        (self.hz, self.lines) = (hz, lines);
    }
    fn idle_clocks(&mut self, n: u32) {
        if let Some(clocks) = &mut self.clocks {
            *clocks = clocks.saturating_add(n);
        }
    }

    fn command(&mut self, index: u8, arg: u32, now: Instant) -> Answer {
        let index = index & 63;
        let number = self.log.note(Entry { index, arg, at: now });
        let faults: Vec<What> = self.faults.at(number).collect();
        if faults.contains(&What::Removed) {
            self.set_present(false);
        }
        if !self.inserted {
            return Answer::default();
        }
        if !self.powered {
            self.violation(|| format!("CMD{index}: came without power"));
            return Answer::default();
        }
        self.v.state = self.state(now);
        if self.v.run.is_none() {
            self.v.pace = None;
        }
        self.check_bus(index);
        if self.v.state == State::Ina {
            return Answer::default();
        }
        if faults.contains(&What::CommandCrc) {
            self.v.status.raise(status::COM_CRC_ERROR);
            return Answer::default();
        }

        let (state, ready) = (self.v.state, self.config_ready());
        // After CMD55 an application command that is not defined is the plain one of that number.
        let app = std::mem::take(&mut self.v.app) && self.knows(index, true);
        let outcome = self.execute(index, app, arg, now, &faults);
        for what in &faults {
            if let What::Status(bits) = what {
                self.v.status.raise(*bits);
            }
        }
        let response = match outcome {
            Outcome::R1 => {
                let value = self.v.status.read(state, ready, app || index == 55, status::R1);
                Some(short(index, value))
            }
            Outcome::Other(bits) => Some(bits),
            Outcome::Silent | Outcome::NotMine => None,
            Outcome::Illegal => {
                if self.knows(index, app) && index != 12 {
                    let a = if app { "A" } else { "" };
                    self.violation(|| format!("{a}CMD{index} is not legal in state {state:?}"));
                }
                self.v.status.raise(status::ILLEGAL_COMMAND);
                None
            }
        };
        if matches!(outcome, Outcome::R1 | Outcome::Other(_) | Outcome::Silent) {
            self.v.status.accepted();
        }
        if faults.contains(&What::Stuck) && self.v.run.is_none() {
            self.stuck = true;
        }
        self.finish_answer(response, &faults)
    }

    fn ready(&self, k: u32) -> Instant {
        match &self.v.pace {
            Some(pace) => pace.ready(k, &self.timing),
            None => Instant::NEVER,
        }
    }
    fn send(&mut self, block: &mut [u8], now: Instant) -> Sent {
        self.send_block(block, now)
    }
    fn send_many(&mut self, blocks: &mut [u8], now: Instant) -> usize {
        self.send_blocks(blocks, now)
    }
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        self.take_block(block, crc_ok, now)
    }
    fn take_many(&mut self, blocks: &[u8], now: Instant) -> usize {
        self.take_blocks(blocks, now)
    }
    fn busy_until(&self, now: Instant) -> Instant {
        if !self.inserted || !self.powered {
            Instant::ZERO
        } else if self.stuck {
            Instant::NEVER
        } else if self.v.state == State::Prg && self.v.busy > now {
            self.v.busy
        } else {
            Instant::ZERO
        }
    }
    fn present(&self) -> bool {
        self.inserted
    }
    fn violations(&self) -> Vec<String> {
        self.violations.list().to_vec()
    }
}

impl SdCard {
    /// Damages the response as the faults say, and adds the data phase the command has opened.
    fn finish_answer(&mut self, response: Option<Bits>, faults: &[What]) -> Answer {
        let mut answer = Answer { response, data: None };
        if response.is_some()
            && let Some(run) = self.v.run.as_mut().filter(|r| r.fresh)
        {
            run.fresh = false;
            answer.data = Some(Phase { read: run.is_read(), block_len: run.block_len, blocks: run.left });
        }
        if faults.contains(&What::ResponseCrc) {
            match &mut answer.response {
                Some(Bits::Short(b)) if b[5] == 0xff => b[5] = 0xfe,
                Some(Bits::Short(b)) => b[5] ^= 2,
                Some(Bits::Long(b)) => b[16] ^= 2,
                None => {}
            }
        }
        if faults.contains(&What::NoAnswer) {
            answer = Answer::default();
        }
        answer
    }
}
