//! An MMC or eMMC card on the command level: identification, EXT_CSD, CMD6, boot partitions, cache, interrupts, sleep.
//!
//! MMC 3.x and eMMC 4.3 to 5.1. It has no RPMB, no partitions for general purpose, no write protection but that of the
//! boot partitions, no lock and no command queue: their commands are illegal to it and their settings answer
//! SWITCH_ERROR. Double data rate is a setting like any other; nobody checks on which edges data travel.

mod config;
mod medium;
mod switch;
mod transfer;

pub use config::{MmcConfig, MmcConfigError, MmcQuirks};

use super::log::{CommandLog, Entry, Violations};
use super::registers::{get, r2, r3, seal, short};
use super::{Answer, Bits, Card, Phase, Sent, Token};
use crate::storage::Storage;
use crate::timing::{Stats, Timing};
use config::at;
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;
use transfer::{Pace, Run, Source};

const OUT_OF_RANGE: u32 = 1 << 31;
const ADDRESS_ERROR: u32 = 1 << 30;
const BLOCK_LEN_ERROR: u32 = 1 << 29;
const ERASE_SEQ_ERROR: u32 = 1 << 28;
const ERASE_PARAM: u32 = 1 << 27;
const WP_VIOLATION: u32 = 1 << 26;
const ILLEGAL_COMMAND: u32 = 1 << 22;
const ERASE_RESET: u32 = 1 << 13;
const SWITCH_ERROR: u32 = 1 << 7;
const EXCEPTION_EVENT: u32 = 1 << 6;

/// What state an MMC card is in; the numbers are those of CURRENT_STATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MmcState {
    /// After power-up or CMD0.
    Idle = 0,
    /// CMD1 said it is powered up.
    Ready = 1,
    /// Its CID was read.
    Ident = 2,
    /// It was given an address.
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
    /// Took the pattern of CMD19.
    Btst = 9,
    /// Asleep.
    Slp = 10,
    /// Deaf until power is cycled. It has no number; this one never travels.
    Ina = 255,
}

/// An MMC or eMMC card.
#[derive(Debug)]
pub struct MmcCard {
    config: MmcConfig,
    /// User area, boot partitions 1 and 2.
    areas: [Storage; 3],
    timing: Timing,
    log: CommandLog,
    violations: Violations,
    inserted: bool,
    powered: bool,
    hz: u32,
    lines: u8,
    clocks: Option<u32>,
    /// The EXT_CSD as it is now; zeros without one.
    ext: Box<[u8; 512]>,
    /// What was in the sectors that are only in the cache: area, sector, contents before.
    undo: VecDeque<(usize, u64, [u8; 512])>,
    /// Bytes written since the last background operations.
    unkempt: u64,
    state: MmcState,
    busy: Instant,
    /// Error bits that wait to be told.
    errors: u32,
    rca: u16,
    init: Option<Instant>,
    block_len: u16,
    /// CMD23: blocks, reliable.
    count: Option<(u32, bool)>,
    erase: (Option<u32>, Option<u32>),
    /// First bytes of the pattern of CMD19.
    pattern: [u8; 2],
    run: Option<Run>,
    pace: Option<Pace>,
}

enum Outcome {
    R1,
    Other(Bits),
    Silent,
    Illegal,
}

impl MmcCard {
    /// A card in its slot, without power.
    ///
    /// # Errors
    /// [`MmcConfigError`] when there can be no such card.
    pub fn new(config: MmcConfig) -> Result<Self, MmcConfigError> {
        config.check()?;
        let boot = || Storage::new(config.boot_sectors());
        Ok(Self {
            areas: [Storage::new(config.sectors()), boot(), boot()],
            timing: Timing::new(config.profile.clone(), config.seed),
            log: CommandLog::default(),
            violations: Violations::default(),
            inserted: true,
            powered: false,
            hz: 0,
            lines: 1,
            clocks: Some(0),
            ext: config.ext_csd.clone().unwrap_or_else(|| Box::new([0; 512])),
            undo: VecDeque::new(),
            unkempt: 0,
            state: MmcState::Idle,
            busy: Instant::ZERO,
            errors: 0,
            rca: 1,
            init: None,
            block_len: 512,
            count: None,
            erase: (None, None),
            pattern: [0; 2],
            run: None,
            pace: None,
            config,
        })
    }
    /// What it was made of.
    #[must_use]
    pub fn config(&self) -> &MmcConfig {
        &self.config
    }
    /// Contents of the user area (0) or a boot partition (1, 2), to prepare or to look at; what is only in the cache is
    /// there too.
    ///
    /// # Panics
    /// For any other number.
    pub fn area_mut(&mut self, area: usize) -> &mut Storage {
        &mut self.areas[area]
    }
    /// Sectors that a loss of power would undo.
    #[must_use]
    pub fn dirty_sectors(&self) -> usize {
        self.undo.len()
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
    /// A byte of the EXT_CSD as it is now; 0 behind its end.
    #[must_use]
    pub fn ext_csd(&self, offset: usize) -> u8 {
        self.ext.get(offset).copied().unwrap_or(0)
    }
    /// Its state at `now`.
    #[must_use]
    pub fn state(&self, now: Instant) -> MmcState {
        match self.state {
            MmcState::Prg if now >= self.busy => MmcState::Tran,
            MmcState::Dis if now >= self.busy => MmcState::Stby,
            s => s,
        }
    }
    /// Data lines the card uses: 1, 4 or 8.
    #[must_use]
    pub fn width(&self) -> u8 {
        match self.ext[at::BUS_WIDTH] & 0x7f {
            1 | 5 => 4,
            2 | 6 => 8,
            _ => 1,
        }
    }

    fn modern(&self) -> bool {
        self.config.ext_csd.is_some()
    }
    fn forget(&mut self) {
        self.reset();
        self.clocks = Some(0);
        // What was only in the cache is gone, the youngest first.
        while let Some((area, sector, old)) = self.undo.pop_back() {
            let _ = self.areas[area].write(sector * 512, &old);
        }
    }
    /// CMD0, and the rest of a loss of power.
    fn reset(&mut self) {
        switch::power_up(&mut self.ext);
        self.state = MmcState::Idle;
        (self.busy, self.errors, self.rca, self.init) = (Instant::ZERO, 0, 1, None);
        (self.block_len, self.count, self.erase) = (512, None, (None, None));
        (self.run, self.pace) = (None, None);
    }
    fn check_bus(&mut self, index: u8) {
        if let Some(n) = self.clocks.take()
            && n < 74
        {
            self.violations.note(|| format!("CMD{index}: {n} clocks since power-up, at least 74 are needed"));
        }
        let legacy = if self.modern() { 26_000_000 } else { 20_000_000 };
        let (limit, mode) = match (self.state, self.ext[at::HS_TIMING] & 15) {
            (MmcState::Idle | MmcState::Ready | MmcState::Ident, _) => (400_000, "identification"),
            (_, 0) => (legacy, "the legacy mode"),
            (_, 1) => (52_000_000, "high speed"),
            _ => (200_000_000, "HS200"),
        };
        let hz = self.hz;
        if hz > limit {
            self.violations.note(|| format!("CMD{index}: {hz} Hz, {mode} allows at most {limit}"));
        } else if hz == 0 {
            self.violations.note(|| format!("CMD{index}: came without a clock"));
        }
    }
    /// Whether this card knows the command at all, in whatever state.
    fn knows(&self, index: u8) -> bool {
        match index {
            0..=4 | 7 | 9 | 10 | 12 | 13 | 15..=18 | 23..=25 | 35 | 36 | 38 => true,
            5 | 6 | 8 | 14 | 19 => self.modern(),
            21 => self.ext[at::DEVICE_TYPE] & 0x30 != 0,
            _ => false,
        }
    }

    fn execute(&mut self, index: u8, arg: u32, now: Instant) -> Outcome {
        use MmcState::{Btst, Data, Dis, Ident, Idle, Ina, Prg, Rcv, Ready, Slp, Stby, Tran};
        let count = self.count.take();
        if !matches!(index, 13 | 35 | 36 | 38) && self.erase != (None, None) {
            self.erase = (None, None);
            self.errors |= ERASE_RESET;
        }
        if !self.knows(index) {
            return Outcome::Illegal;
        }
        let mine = (arg >> 16) as u16 == self.rca;
        match (index, self.state) {
            (0, _) => {
                let busy = self.init.is_some_and(|t| now < t + self.config.power_up);
                let early = self.state == Idle && busy && self.config.quirks.early_cmd0_kills;
                self.end_run(now);
                self.reset();
                if early {
                    self.state = Ina;
                }
                Outcome::Silent
            }
            (5, Slp) if mine && arg & 1 << 15 == 0 => self.sleep(Stby, now),
            (_, Slp) => Outcome::Silent,
            (1, Idle) => self.send_op_cond(arg, now),
            (2, Ready) => {
                self.state = Ident;
                Outcome::Other(r2(&seal(self.config.cid)))
            }
            (3, Ident) if arg >> 16 != 0 => {
                self.rca = (arg >> 16) as u16;
                self.go(Stby)
            }
            (4, Stby) => Outcome::Silent,
            (5, Stby) if mine && arg & 1 << 15 != 0 => self.sleep(Slp, now),
            (6, Tran) => {
                self.switch(arg, now);
                Outcome::R1
            }
            (7, Stby) if mine => self.go(Tran),
            (7, Dis) if mine => self.go(Prg),
            (7, Tran | Data | Stby | Prg | Dis) if !mine => {
                if matches!(self.state, Tran | Data) {
                    self.end_run(now);
                    self.state = Stby;
                } else if self.state == Prg {
                    self.state = Dis;
                }
                Outcome::Silent
            }
            (5 | 9 | 10 | 13 | 15, Stby | Tran | Data | Rcv | Prg | Dis | Btst) if !mine => Outcome::Silent,
            (8, Tran) => {
                self.ext[at::BKOPS_STATUS] = self.bkops();
                self.ext[at::EXCEPTION_EVENTS_STATUS] = u8::from(self.bkops() >= 2);
                let ext = self.ext.to_vec();
                self.open_register(ext, now)
            }
            (9, Stby) => Outcome::Other(r2(&seal(self.config.csd))),
            (10, Stby) => Outcome::Other(r2(&seal(self.config.cid))),
            (12 | 13, Prg)
                if mine && arg & 1 == 1 && (index == 12) == (self.ext[at::HPI_FEATURES] & 2 != 0) =>
            {
                self.interrupt(index, now)
            }
            (12, Data | Rcv) => {
                self.end_run(now);
                Outcome::R1
            }
            (13, Stby | Tran | Data | Rcv | Prg | Dis | Btst) => Outcome::R1,
            (14, Btst) => {
                // The bits of the pattern, inverted.
                let n = self.lines_bytes();
                let mut back = vec![0; n];
                for (to, from) in back.iter_mut().zip(self.pattern) {
                    *to = !from;
                }
                self.open_register(back, now)
            }
            (15, Stby | Tran | Data | Rcv | Prg | Dis | Btst) => {
                self.end_run(now);
                self.state = Ina;
                Outcome::Silent
            }
            (16, Tran) => {
                match u16::try_from(arg) {
                    Ok(512) => self.block_len = 512,
                    Ok(len @ 1..=512) if !self.config.sector_addressed() => self.block_len = len,
                    _ => self.errors |= BLOCK_LEN_ERROR,
                }
                Outcome::R1
            }
            (17 | 18 | 24 | 25, Tran) => self.open_blocks(index, arg, count, now),
            (19, Tran) => {
                let n = self.lines_bytes() as u16;
                self.open_run(Source::Pattern, now, Duration::ZERO, n, (Some(1), true));
                Outcome::R1
            }
            // At HS200 only.
            (21, Tran) if self.ext[at::HS_TIMING] & 15 == 2 && self.lines > 1 => {
                let block =
                    if self.width() == 8 { transfer::TUNING_8.to_vec() } else { transfer::TUNING_4.to_vec() };
                self.open_register(block, now)
            }
            (23, Tran) => {
                let blocks = arg & 0xffff;
                self.count = (blocks > 0).then_some((blocks, arg >> 31 == 1));
                Outcome::R1
            }
            (35, Tran) => {
                self.erase = (Some(arg), None);
                Outcome::R1
            }
            (36 | 38, Tran) => {
                match (index, self.erase) {
                    (36, (Some(from), None)) => self.erase = (Some(from), Some(arg)),
                    (38, (Some(from), Some(to))) => {
                        self.erase = (None, None);
                        self.erase_groups(from, to, arg, now);
                    }
                    _ => {
                        self.erase = (None, None);
                        self.errors |= ERASE_SEQ_ERROR;
                    }
                }
                Outcome::R1
            }
            _ => Outcome::Illegal,
        }
    }

    fn go(&mut self, to: MmcState) -> Outcome {
        self.state = to;
        Outcome::R1
    }
    /// Bytes of a bus test: two clocks on each line (at least a byte).
    fn lines_bytes(&self) -> usize {
        match self.lines {
            8 => 8,
            4 => 4,
            _ => 1,
        }
    }
    fn sleep(&mut self, to: MmcState, now: Instant) -> Outcome {
        self.busy = now + Duration::from_nanos(100_u64 << self.ext[at::S_A_TIMEOUT].min(0x17));
        self.go(to)
    }
    /// CMD1.
    fn send_op_cond(&mut self, arg: u32, now: Instant) -> Outcome {
        let window = if self.modern() { 0x00ff_8080 } else { 0x00ff_8000 };
        let ocr = window | u32::from(self.config.sector_addressed()) << 30;
        let asked = arg & 0x00ff_ffff;
        if asked != 0 && asked & window == 0 {
            self.state = MmcState::Ina;
            return Outcome::Silent;
        }
        let since = *self.init.get_or_insert(now);
        // A query tells the window and starts the power-up, but is no reason to become ready.
        if asked == 0 || now < since + self.config.power_up {
            return Outcome::Other(r3(ocr));
        }
        self.state = MmcState::Ready;
        Outcome::Other(r3(ocr | 1 << 31))
    }
    /// CMD12 or CMD13 as a high priority interrupt.
    fn interrupt(&mut self, index: u8, now: Instant) -> Outcome {
        if self.ext[at::HPI_MGMT] & 1 == 0 {
            return if index == 13 { Outcome::R1 } else { Outcome::Illegal };
        }
        if self.config.quirks.hpi_kills {
            self.state = MmcState::Ina;
            return Outcome::Silent;
        }
        let out = Duration::from_millis(10 * u64::from(self.ext[at::OUT_OF_INTERRUPT_TIME]));
        self.busy = self.busy.min(now + out);
        Outcome::R1
    }
    /// CMD38. Erase works on whole groups, trim and discard on sectors.
    fn erase_groups(&mut self, from: u32, to: u32, arg: u32, now: Instant) {
        let unit = if self.config.sector_addressed() { 512 } else { 1 };
        let sector = |a: u32| u64::from(a) * unit / 512;
        let features = self.ext[at::SEC_FEATURES];
        let (legal, whole) = match arg {
            0 => (true, true),
            0x8000_0000 => (features & 1 == 1, true),
            1 => (features & 0x10 != 0, false),
            3 => (self.ext[at::REV] >= 6, false),
            _ => (false, false),
        };
        let area = usize::from(self.ext[at::PARTITION_CONFIG] & 3).min(2);
        let (mut first, mut last) = (sector(from), sector(to));
        if whole {
            let group = self.erase_group();
            first = first / group * group;
            last = (last / group + 1) * group - 1;
            last = last.min(self.areas[area].sectors().saturating_sub(1)).max(sector(to));
        }
        if !legal || last < first {
            self.errors |= ERASE_PARAM;
        } else if last >= self.areas[area].sectors() {
            self.errors |= OUT_OF_RANGE;
        } else if self.protected(area) {
            self.errors |= WP_VIOLATION;
        } else {
            if arg != 1 || !self.config.quirks.trim_does_nothing {
                // Inside by the check above. What is gone for good needs no undoing.
                let _ = self.areas[area].erase(first * 512, (last - first + 1) * 512);
                self.undo.retain(|u| u.0 != area || !(first..=last).contains(&u.1));
            }
            self.state = MmcState::Prg;
            self.busy = now + self.timing.erase(first, last - first + 1);
        }
    }
    /// Sectors of an erase group.
    fn erase_group(&self) -> u64 {
        if self.ext[at::ERASE_GROUP_DEF] & 1 == 1 {
            return u64::from(self.ext[at::HC_ERASE_GRP_SIZE]).max(1) * 1024;
        }
        let csd = |high, low| get(&self.config.csd, high, low);
        (csd(46, 42) + 1) * (csd(41, 37) + 1)
    }
    fn protected(&self, area: usize) -> bool {
        area > 0 && self.ext[at::BOOT_WP] & 5 != 0
    }
}

impl Card for MmcCard {
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
        self.log.note(Entry { index, arg, at: now });
        if !self.inserted {
            return Answer::default();
        }
        if !self.powered {
            self.violations.note(|| format!("CMD{index}: came without power"));
            return Answer::default();
        }
        self.state = self.state(now);
        if self.run.is_none() {
            self.pace = None;
        }
        self.check_bus(index);
        if self.state == MmcState::Ina {
            return Answer::default();
        }
        let state = self.state;
        let ready = !matches!(state, MmcState::Prg | MmcState::Dis);
        let outcome = self.execute(index, arg, now);
        let response = match outcome {
            Outcome::R1 => {
                let urgent = if self.bkops() >= 2 { EXCEPTION_EVENT } else { 0 };
                let told = self.errors | u32::from(ready) << 8 | urgent | (state as u32 & 15) << 9;
                // SWITCH_ERROR is found while the card is busy: the answer of CMD6 itself does not tell it.
                let keep = if index == 6 { SWITCH_ERROR } else { 0 };
                let told = told & !keep;
                self.errors &= keep;
                Some(short(index, told))
            }
            Outcome::Other(bits) => Some(bits),
            Outcome::Silent => None,
            Outcome::Illegal => {
                if self.knows(index) && index != 12 {
                    self.violations.note(|| format!("CMD{index} is not legal in state {state:?}"));
                }
                self.errors |= ILLEGAL_COMMAND;
                None
            }
        };
        let data = self.run.as_mut().filter(|r| r.fresh && response.is_some()).map(|run| {
            run.fresh = false;
            Phase { read: run.is_read(), block_len: run.block_len, blocks: run.left }
        });
        Answer { response, data }
    }
    fn ready(&self, k: u32) -> Instant {
        self.pace.as_ref().map_or(Instant::NEVER, |pace| pace.ready(k, &self.timing))
    }
    fn send(&mut self, block: &mut [u8], now: Instant) -> Sent {
        self.send_block(block, now)
    }
    fn send_many(&mut self, blocks: &mut [u8], now: Instant) -> usize {
        let mut sent = 0;
        for block in blocks.chunks_exact_mut(512) {
            if !self.moves_512(true) || self.send_block(block, now) != Sent::Good {
                break;
            }
            sent += 512;
        }
        sent
    }
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        self.take_block(block, crc_ok, now)
    }
    fn take_many(&mut self, blocks: &[u8], now: Instant) -> usize {
        let mut taken = 0;
        for block in blocks.chunks_exact(512) {
            if !self.moves_512(false) || self.take_block(block, true, now) != Token::Accepted {
                break;
            }
            taken += 512;
        }
        taken
    }
    fn busy_until(&self, now: Instant) -> Instant {
        let low = matches!(self.state, MmcState::Prg | MmcState::Slp | MmcState::Stby);
        if self.inserted && self.powered && low && self.busy > now { self.busy } else { Instant::ZERO }
    }
    fn present(&self) -> bool {
        self.inserted
    }
    fn violations(&self) -> Vec<String> {
        self.violations.list().to_vec()
    }
}
