//! An SD card on the command level: identification, registers, reads, writes, erases; its states and its errors.
//!
//! SDSC, SDHC, SDXC and SDUC; UHS-I, extension registers, write protection and the password where they are asked for. It
//! knows no command queue, no partitions and no security commands: these are illegal to it, as they are to many real cards.

use super::extension::Extension;
use super::log::{CommandLog, Entry, Violations};
use super::protect::Protection;
use super::registers::{Capacity, ConfigError, Functions, SdConfig, Version, r2, r3, short};
use super::status::{self, Status};
use super::transfer::{Pace, Run, Source, Target};
use super::uhs::{Level, TUNING};
use super::{Answer, Bits, Card, Phase, Sent, Token};
use crate::fault::{Faults, What};
use crate::storage::Storage;
use crate::timing::{Stats, Timing};
use mmc_proto::bus::{self, Signal};
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
    /// Clock, lines, level and timing of the host.
    pub(super) hz: u32,
    lines: u8,
    pub(super) host: (Signal, bus::Timing),
    pub(super) level: Level,
    /// ACMD41 since power-up, as far as they count.
    asked: u8,
    /// Clocks since power-up, until the first command.
    clocks: Option<u32>,
    /// DAT0 is low until power goes.
    pub(super) stuck: bool,
    /// What was in the sectors that are only in the cache, by their first byte in storage.
    pub(super) undo: VecDeque<(u64, [u8; 512])>,
    pub(super) protection: Protection,
    /// What CMD56 moves.
    pub(super) general: Box<[u8; 512]>,
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
    /// ACMD41 agreed to a switch to 1.8 V.
    agreed: bool,
    pub(super) width: u8,
    /// What CMD6 has selected.
    pub(super) functions: Functions,
    /// CMD16; counts for the data of byte-addressed cards, and for CMD42.
    pub(super) block_len: u16,
    /// CMD23.
    count: Option<u32>,
    /// CMD22: the upper bits of the next address.
    upper: u64,
    erase: (Option<u64>, Option<u64>),
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
            agreed: false,
            width: 1,
            functions: Functions::default(),
            block_len: 512,
            count: None,
            upper: 0,
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
        let warm = config.quirks.left_at_1_8;
        Ok(Self {
            protection: Protection::new(&config),
            general: Box::new([0; 512]),
            level: Level::new(warm),
            host: (Signal::V3_3, bus::Timing::Default),
            asked: 0,
            powered: warm,
            storage: Storage::new(config.quirks.wraps_at.unwrap_or(config.sectors).min(config.sectors)),
            timing: Timing::new(config.profile.clone(), config.seed),
            config,
            faults: Faults::new(),
            log: CommandLog::default(),
            violations: Violations::default(),
            inserted: true,
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
        self.v.functions.access == 1
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
    pub(super) fn is_ultra(&self) -> bool {
        self.config.capacity() == Capacity::Ultra
    }
    fn forget(&mut self) {
        self.lose_cache();
        self.protection_without_power();
        self.level = Level::new(false);
        self.asked = 0;
        self.v = Volatile::default();
        self.clocks = Some(0);
        self.stuck = false;
    }
    pub(super) fn violation(&mut self, text: impl FnOnce() -> String) {
        self.violations.note(text);
    }

    /// Whether the host keeps the rules about its clock.
    fn check_bus(&mut self, index: u8) {
        if let Some(n) = self.clocks.take()
            && n < 74
        {
            self.violation(|| format!("CMD{index}: {n} clocks since power-up, at least 74 are needed"));
        }
        if self.level.v1_8 && self.host.0 == Signal::V3_3 {
            self.violation(|| format!("CMD{index}: 3.3 V on the lines of a card that signals with 1.8 V"));
        }
        let (limit, mode) = self.fastest();
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
        let c = &self.config;
        match (app, index) {
            (true, 6 | 13 | 22 | 23 | 41 | 42 | 51) => true,
            (true, _) => false,
            (_, 0 | 2 | 3 | 4 | 7 | 9 | 10 | 12 | 13 | 15 | 16 | 17 | 18 | 24 | 25 | 27 | 32 | 33) => true,
            (_, 38 | 42 | 55 | 56) => true,
            (_, 6) => c.version >= Version::V1_1,
            (_, 8) => c.version >= Version::V2,
            (_, 11 | 19) => c.uhs.is_some(),
            (_, 20) => c.speed_class,
            (_, 22) => self.is_ultra(),
            (_, 23) => c.cmd23,
            (_, 28..=30) => c.protect_groups,
            (_, 48 | 49) => c.extension,
            _ => false,
        }
    }
    /// Whether a locked card takes the command: classes 0 and 7, and what leads to ACMD41 and ACMD42.
    fn for_the_locked(index: u8, app: bool) -> bool {
        match app {
            true => matches!(index, 41 | 42),
            false => matches!(index, 0 | 2..=4 | 7..=13 | 15 | 16 | 42 | 55),
        }
    }

    fn execute(&mut self, index: u8, app: bool, arg: u32, now: Instant, faults: &[What]) -> Outcome {
        use State::{Data, Dis, Ident, Idle, Ina, Prg, Rcv, Ready, Stby, Tran};
        let (count, upper) = (self.v.count.take(), std::mem::take(&mut self.v.upper));
        // SDUC cards keep them over CMD13, and the count over CMD22.
        if self.is_ultra() && !app && matches!(index, 13 | 22) {
            self.v.count = count;
            self.v.upper = if index == 13 { upper } else { 0 };
        }
        let between = matches!(index, 13 | 32 | 33 | 38) || (index == 22 && self.is_ultra());
        if (app || !between) && self.v.erase != (None, None) {
            self.v.erase = (None, None);
            self.v.status.raise(status::ERASE_RESET);
        }
        if !self.knows(index, app) || (self.is_locked() && !Self::for_the_locked(index, app)) {
            return Outcome::Illegal;
        }
        let address = upper << 32 | u64::from(arg);
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
                let (bytes, after) = self.config.switch_status(arg, self.v.functions, self.level.v1_8);
                self.open_register(&bytes, Some(after), now, faults)
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
                let echo = if self.config.quirks.echo_without_voltage { 0xff } else { 0xfff };
                Outcome::Other(short(8, arg & echo))
            }
            (9 | 10 | 13 | 15 | 55, Idle | Stby | Tran | Data | Rcv | Prg | Dis) if !mine => Outcome::NotMine,
            (9, Stby) => Outcome::Other(r2(&self.csd())),
            (10, Stby) => Outcome::Other(r2(&self.config.cid())),
            (11, Ready) if self.v.agreed => {
                self.v.agreed = false;
                self.level.begin();
                Outcome::R1
            }
            (12, Data | Rcv) => {
                self.end_run(now);
                Outcome::R1
            }
            // It ends a sequence that is half sent.
            (12, Tran) if self.is_ultra() => Outcome::R1,
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
                    Ok(len @ 1..=512) => self.v.block_len = len,
                    _ => self.v.status.raise(status::BLOCK_LEN_ERROR),
                }
                Outcome::R1
            }
            (17 | 18 | 24 | 25, Tran) => self.open_blocks(index, address, count, now, faults),
            (19, Tran) if self.level.v1_8 => {
                if self.is_ddr() && self.config.quirks.ddr50_tuning_hangs {
                    self.v.state = Ina;
                    return Outcome::Silent;
                }
                self.open_run(
                    Source::register(&TUNING, None),
                    now,
                    Duration::ZERO,
                    64,
                    (Some(1), true),
                    faults,
                );
                Outcome::R1
            }
            (20, Tran) => {
                // Well below what the standard allows each (`spec/card.md` §2.2).
                let ms = match arg >> 28 {
                    0 => 100,
                    1 | 4 => 1,
                    5..=7 => 25,
                    8 => 5,
                    _ => {
                        self.v.status.raise(status::ERROR);
                        return Outcome::R1;
                    }
                };
                (self.v.state, self.v.busy) = (Prg, now + Duration::from_millis(ms));
                Outcome::R1
            }
            (22, Tran) => {
                self.v.upper = u64::from(arg & 0x3f);
                Outcome::R1
            }
            (27, Tran) => self.open_write(Target::Csd, 16, now, faults),
            (28 | 29, Tran) => {
                self.protect_group(address, index == 28, now);
                Outcome::R1
            }
            (30, Tran) => match self.protected_groups(address) {
                Some(bits) => self.open_register(&bits, None, now, faults),
                None => Outcome::R1,
            },
            (42, Tran) => self.open_write(Target::Lock, self.v.block_len, now, faults),
            (56, Tran) if arg & 1 == 1 => {
                let (access, block) = (self.timing.profile().cmd, self.general.to_vec());
                self.open_run(Source::Bytes(block), now, access, 512, (Some(1), true), faults);
                Outcome::R1
            }
            (56, Tran) => self.open_write(Target::General, 512, now, faults),
            (48, Tran) => {
                match self.read_extension(arg, now) {
                    Ok(block) => {
                        let access = self.timing.profile().cmd;
                        self.open_run(Source::Bytes(block), now, access, 512, (Some(1), true), faults);
                    }
                    Err(bit) => self.v.status.raise(bit),
                }
                Outcome::R1
            }
            (49, Tran) => {
                if let Err(bit) = Self::check_extension(arg) {
                    self.v.status.raise(bit);
                    return Outcome::R1;
                }
                self.open_write(Target::Extension(arg), 512, now, faults)
            }
            (23, Tran) => {
                self.v.count = (arg != 0).then_some(arg);
                Outcome::R1
            }
            (32, Tran) => {
                self.v.erase = (Some(address), None);
                Outcome::R1
            }
            (33, Tran) => {
                match self.v.erase {
                    (Some(_), None) => self.v.erase.1 = Some(address),
                    _ => self.break_erase(status::ERASE_SEQ_ERROR),
                }
                Outcome::R1
            }
            (38, Tran) => {
                match self.v.erase {
                    (Some(from), Some(to)) => self.erase(arg, from, to, now),
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
                let n = u64::from(self.v.well_written).to_be_bytes();
                let n = if self.is_ultra() { &n[..] } else { &n[4..] };
                self.open_register(n, None, now, faults)
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
        if self.asked < self.config.quirks.deaf_acmd41 {
            self.asked += 1;
            return Outcome::NotMine;
        }
        let since = *self.v.init.get_or_insert(now);
        let high = !self.byte_addressed();
        // A host that did not say HCS (after a good CMD8) cannot use a high capacity card: it stays busy.
        let mut usable = !high || (self.v.if_cond && arg & 1 << 30 != 0);
        // Likewise HO2T and an SDUC card.
        usable &= !self.is_ultra() || arg & 1 << 27 != 0;
        if !usable || now < since + self.config.power_up {
            return Outcome::Other(r3(ocr));
        }
        self.v.state = State::Ready;
        // S18A: to S18R, by a card that can and has not switched yet.
        self.v.agreed = arg & 1 << 24 != 0 && self.config.uhs.is_some() && !self.level.v1_8;
        let more = u32::from(self.v.agreed) << 24 | u32::from(self.is_ultra()) << 27;
        Outcome::Other(r3(ocr | 1 << 31 | u32::from(high) << 30 | more))
    }

    fn go(&mut self, to: State) -> Outcome {
        self.v.state = to;
        Outcome::R1
    }
    fn break_erase(&mut self, bit: u32) {
        self.v.erase = (None, None);
        self.v.status.raise(bit);
    }
    fn erase(&mut self, arg: u32, from: u64, to: u64, now: Instant) {
        let sector = |address: u64| if self.byte_addressed() { address / 512 } else { address };
        let (first, last) = (sector(from), sector(to));
        let outside = if self.is_ultra() { status::ADDRESS_ERROR } else { status::OUT_OF_RANGE };
        if last < first {
            self.v.status.raise(if self.is_ultra() { outside } else { status::ERASE_PARAM });
        } else if last >= self.config.sectors {
            self.v.status.raise(outside);
        } else if arg == 1 && self.config.quirks.discard_fails {
            self.v.status.raise(status::ERROR);
        } else if let Some(bit) = self.protected(first * 512).filter(|_| self.protection.groups.is_empty()) {
            self.v.status.raise(bit);
        } else if arg == 1 && self.config.discard {
            // The old data may still be read; here they are.
            self.work(now);
        } else {
            let spilled = u64::from(self.config.quirks.erase_spills && last + 1 < self.config.sectors);
            self.erase_sectors(first, last + spilled);
            self.v.state = State::Prg;
            self.v.busy = now + self.timing.erase(first, last - first + 1);
        }
    }
    /// Makes zeros, but in groups that are protected.
    fn erase_sectors(&mut self, first: u64, last: u64) {
        let group = if self.protection.groups.is_empty() { u64::MAX } else { self.config.group_sectors() };
        let mut sector = first;
        while sector <= last {
            let end = last.min((sector / group).saturating_mul(group).saturating_add(group - 1));
            let (mut at, mut left) = (sector * 512, (end - sector + 1) * 512);
            sector = end + 1;
            if self.protected(at).is_some() {
                self.v.status.raise(status::WP_ERASE_SKIP);
                continue;
            }
            while left > 0 {
                let (place, room) = self.place(at);
                let n = left.min(room);
                if self.erases() {
                    // Inside by construction.
                    let _ = self.storage.erase(place, n);
                    self.undo.retain(|u| !(place..place + n).contains(&u.0));
                }
                (at, left) = (at + n, left - n);
            }
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
        let ddr = self.is_ddr();
        if self.host.1.ddr() != ddr {
            let edges = if ddr { "both edges" } else { "one edge" };
            self.violation(|| format!("the card uses {edges} of the clock for data, the host does not"));
        }
        host == card && self.host.1.ddr() == ddr
    }
    fn open_register(
        &mut self,
        bytes: &[u8],
        after: Option<Functions>,
        now: Instant,
        faults: &[What],
    ) -> Outcome {
        let access = self.timing.profile().cmd;
        let source = Source::register(bytes, after);
        self.open_run(source, now, access, bytes.len() as u16, (Some(1), true), faults);
        Outcome::R1
    }
    fn open_write(&mut self, target: Target, len: u16, now: Instant, faults: &[What]) -> Outcome {
        self.open_run(Source::To(target), now, Duration::ZERO, len, (Some(1), true), faults);
        Outcome::R1
    }
    fn open_blocks(
        &mut self,
        index: u8,
        address: u64,
        count: Option<u32>,
        now: Instant,
        faults: &[What],
    ) -> Outcome {
        let (read, single) = (index < 24, matches!(index, 17 | 24));
        let blocks = (if single { Some(1) } else { count }, single);
        let (at, len) =
            if self.byte_addressed() { (address, self.v.block_len) } else { (address * 512, 512) };
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
        } else if read {
            None
        } else {
            self.protected(at)
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
    fn bus(&mut self, hz: u32, lines: u8, now: Instant) {
        (self.hz, self.lines) = (hz, lines);
        self.follow_level(now);
    }
    fn signal(&mut self, signal: Signal, timing: bus::Timing, now: Instant) {
        self.host = (signal, timing);
        self.follow_level(now);
    }
    fn lines_low(&self, now: Instant) -> bool {
        self.inserted && self.powered && self.level.low(now)
    }
    fn samples_right(&self, phase: u16, now: Instant) -> bool {
        self.sampled_right(phase, now)
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
        if self.level.low(now) {
            self.violation(|| format!("CMD{index}: came in the middle of the voltage switch"));
            return Answer::default();
        }
        self.v.state = self.state(now);
        self.let_tuning_end(now);
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
                Some(short(index, value | if self.is_locked() { status::CARD_IS_LOCKED } else { 0 }))
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
        } else if self.level.low(now) {
            self.level.low_until()
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
