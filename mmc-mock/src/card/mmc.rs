//! An MMC or eMMC card on the command level: identification, EXT_CSD, CMD6, all partitions, write protection, lock, cache
//! with barriers, interrupts, background operations, sleep, the command queue, and when its bits can be sampled.
//!
//! MMC 3.x and eMMC 4.3 to 5.1. It has no boot operation (CMD0 resets it whatever its argument), no packed commands, no
//! firmware update, no streams (CMD11, CMD20), no register bus (CMD39, CMD40) and no security protocols (CMD53, CMD54):
//! these commands are illegal to it, their settings answer SWITCH_ERROR. Of its command queue it runs what it is told to,
//! and orders nothing itself.

mod config;
mod erase;
mod program;
mod protect;
mod queue;
mod rpmb;
mod switch;
mod transfer;
mod work;

pub use config::{MmcConfig, MmcConfigError, MmcQuirks};

use super::lock::Lock;
use super::log::{CommandLog, Entry, Violations};
use super::registers::{get, r2, r3, seal, short};
use super::{Answer, Bits, Card, Phase, Sent, Token};
use crate::storage::Storage;
use crate::timing::{Stats, Timing};
use config::at;
use mmc_proto::bus::{self, Signal};
use mmc_time::{Duration, Instant};
use program::Sink;
use protect::Protection;
use queue::Queue;
use rpmb::Rpmb;
use std::collections::VecDeque;
use transfer::{Pace, RPMB, Run, Source};
use work::{Kind, Undo, Work};

const OUT_OF_RANGE: u32 = 1 << 31;
const ADDRESS_ERROR: u32 = 1 << 30;
const BLOCK_LEN_ERROR: u32 = 1 << 29;
const ERASE_SEQ_ERROR: u32 = 1 << 28;
const ERASE_PARAM: u32 = 1 << 27;
const WP_VIOLATION: u32 = 1 << 26;
const DEVICE_IS_LOCKED: u32 = 1 << 25;
const LOCK_UNLOCK_FAILED: u32 = 1 << 24;
const ILLEGAL_COMMAND: u32 = 1 << 22;
const CID_CSD_OVERWRITE: u32 = 1 << 16;
const WP_ERASE_SKIP: u32 = 1 << 15;
const ERASE_RESET: u32 = 1 << 13;
const SWITCH_ERROR: u32 = 1 << 7;
const EXCEPTION_EVENT: u32 = 1 << 6;
const APP_CMD: u32 = 1 << 5;

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
    /// By PARTITION_ACCESS: user area, boot partitions 1 and 2, RPMB, partitions for general purpose 1 to 4.
    areas: [Storage; 8],
    timing: Timing,
    log: CommandLog,
    violations: Violations,
    inserted: bool,
    powered: bool,
    hz: u32,
    lines: u8,
    clocks: Option<u32>,
    /// Signal level and timing of the host, once it told them.
    host: Option<(Signal, bus::Timing)>,
    /// The EXT_CSD as it is now; zeros without one.
    ext: Box<[u8; 512]>,
    /// The CSD as it was programmed.
    csd: [u8; 16],
    lock: Lock,
    protection: Protection,
    rpmb: Rpmb,
    queue: Queue,
    /// What was in the sectors that are only in the cache, oldest first.
    undo: VecDeque<Undo>,
    /// The same of the sectors that the running write put past the cache.
    fresh: VecDeque<Undo>,
    work: Work,
    /// Counts barriers.
    epoch: u32,
    cached_writes: u32,
    /// Bytes written since the last background operations.
    unkempt: u64,
    /// What secure trim is to erase: area, first and last sector.
    marked: Vec<(usize, u64, u64)>,
    /// What CMD56 wrote.
    vendor: [u8; 512],
    /// The settings of partitions took effect.
    partitioned: bool,
    /// How long the next power-up takes at least.
    slow_start: Duration,
    /// Silent for ever.
    broken: bool,
    /// EXT_CSD blocks still to be garbled.
    garbled: u8,
    /// When the last command came; the last CMD1.
    last: Instant,
    last_op_cond: Option<Instant>,
    state: MmcState,
    busy: Instant,
    /// Error bits that wait to be told.
    errors: u32,
    rca: u16,
    init: Option<Instant>,
    block_len: u16,
    /// Of the block of CMD42.
    lock_len: u16,
    /// CMD23: blocks, reliable.
    count: Option<(u32, bool)>,
    erase_range: (Option<u32>, Option<u32>),
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
        let most = if config.ext(at::WR_REL_PARAM) & 0x10 != 0 { 32 } else { 2 };
        Ok(Self {
            areas: std::array::from_fn(|i| Storage::new(config.area_sectors(i))),
            timing: Timing::new(config.profile.clone(), config.seed),
            log: CommandLog::default(),
            violations: Violations::default(),
            inserted: true,
            powered: false,
            hz: 0,
            lines: 1,
            clocks: Some(0),
            host: None,
            ext: config.ext_csd.clone().unwrap_or_else(|| Box::new([0; 512])),
            csd: config.csd,
            lock: Lock::default(),
            protection: Protection::new(config.ext(at::BOOT_WP)),
            rpmb: Rpmb::new(most),
            queue: Queue::default(),
            undo: VecDeque::new(),
            fresh: VecDeque::new(),
            work: Work::default(),
            epoch: 0,
            cached_writes: 0,
            unkempt: 0,
            marked: Vec::new(),
            vendor: [0; 512],
            partitioned: config.ext(at::SETTING_COMPLETED) & 1 == 1,
            slow_start: Duration::ZERO,
            broken: false,
            garbled: config.quirks.garbled_ext_csd,
            last: Instant::ZERO,
            last_op_cond: None,
            state: MmcState::Idle,
            busy: Instant::ZERO,
            errors: 0,
            rca: 1,
            init: None,
            block_len: 512,
            lock_len: 512,
            count: None,
            erase_range: (None, None),
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
    /// Contents of an area by its number in PARTITION_CONFIG, to prepare or to look at: the user area (0), a boot partition
    /// (1, 2), the RPMB (3), a partition for general purpose (4 to 7). What is only in the cache is there too.
    ///
    /// # Panics
    /// For any other number.
    pub fn area_mut(&mut self, area: usize) -> &mut Storage {
        &mut self.areas[area]
    }
    /// The write counter of the RPMB, to prepare one that has nearly run out (`u32::MAX`: it has) or to look at.
    pub fn rpmb_counter_mut(&mut self) -> &mut u32 {
        &mut self.rpmb.counter
    }
    /// The key of the RPMB, to prepare one or to look at.
    pub fn rpmb_key_mut(&mut self) -> &mut Option<[u8; 32]> {
        &mut self.rpmb.key
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
    /// The supply was switched.
    fn forget(&mut self, now: Instant) {
        self.run = None;
        self.lose_volatile(now);
        self.reset(true);
        self.clocks = Some(0);
        self.lock.power_up();
        self.protection.power_up();
        self.garbled = self.config.quirks.garbled_ext_csd;
        self.partition();
    }
    /// CMD0, and the rest of a loss of power.
    fn reset(&mut self, power: bool) {
        switch::power_up(&mut self.ext, power);
        self.state = if self.broken { MmcState::Ina } else { MmcState::Idle };
        (self.busy, self.errors, self.rca, self.init) = (Instant::ZERO, 0, 1, None);
        (self.block_len, self.lock_len, self.count, self.erase_range) = (512, 512, None, (None, None));
        (self.run, self.pace, self.queue, self.last_op_cond) = (None, None, Queue::default(), None);
        self.marked.clear();
        self.rpmb.reset();
        self.finish();
    }
    /// The area that is selected.
    fn area(&self) -> usize {
        usize::from(self.ext[at::PARTITION_CONFIG] & 7)
    }
    /// Bytes an address counts.
    fn unit(&self) -> u64 {
        if self.config.sector_addressed() { 512 } else { 1 }
    }
    /// Sectors that go together: 8 where sectors have 4 KiB.
    fn native(&self) -> u64 {
        if self.ext[at::DATA_SECTOR_SIZE] & 1 == 1 { 8 } else { 1 }
    }
    /// Data go on both edges.
    fn double_rate(&self) -> bool {
        matches!(self.ext[at::BUS_WIDTH] & 0x7f, 5 | 6)
    }
    /// Busy for the time of a command.
    fn rest(&mut self, now: Instant) -> Outcome {
        self.work(Kind::Fixed, now, self.config.profile.cmd, VecDeque::new());
        Outcome::R1
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
        if limit == 200_000_000 && hz > 52_000_000 && self.host.is_some_and(|h| h.0 == Signal::V3_3) {
            self.violations.note(|| format!("CMD{index}: {mode} at a signal level of 3.3 V"));
        }
    }
    /// Whether this card knows the command at all, in whatever state.
    fn knows(&self, index: u8) -> bool {
        match index {
            0..=4 | 7 | 9 | 10 | 12 | 13 | 15..=18 | 23..=27 | 35 | 36 | 38 => true,
            5 | 6 | 8 | 14 | 19 => self.modern(),
            21 => self.ext[at::DEVICE_TYPE] & 0x30 != 0,
            28..=30 => self.class(6) && get(&self.csd, 31, 31) == 1,
            31 => self.knows(30) && self.ext[at::REV] >= 4,
            42 => self.class(7),
            44..=48 => self.ext[at::CMDQ_SUPPORT] & 1 == 1,
            49 => self.ext[at::REV] >= 6,
            55 | 56 => self.class(8),
            _ => false,
        }
    }
    /// Whether CCC of the CSD has this class of commands.
    fn class(&self, n: u32) -> bool {
        get(&self.csd, 84 + n, 84 + n) == 1
    }
    /// Whether a command may come in the area that is selected, with the queue as it is, to a card that may be locked.
    fn admits(&self, index: u8) -> bool {
        let basic = matches!(index, 0..=10 | 12..=16 | 19 | 21);
        let here = match self.area() {
            0 => true,
            1 | 2 => !matches!(index, 28..=31 | 42),
            RPMB => (basic && !matches!(index, 14 | 16 | 19 | 21)) || matches!(index, 18 | 23 | 25),
            _ => index != 42,
        };
        here && (!self.lock.locked() || basic || index == 42)
            && !(self.queueing() && matches!(index, 17 | 18 | 24 | 25))
            && (self.queueing() || !matches!(index, 44..=48))
    }

    fn execute(&mut self, index: u8, arg: u32, now: Instant) -> Outcome {
        use MmcState::{Btst, Data, Dis, Ident, Idle, Ina, Prg, Rcv, Ready, Slp, Stby, Tran};
        let count = self.count.take();
        if !matches!(index, 13 | 35 | 36 | 38) && self.erase_range != (None, None) {
            self.erase_range = (None, None);
            self.errors |= ERASE_RESET;
        }
        self.queue.heard(index);
        if !self.knows(index)
            || (self.state >= MmcState::Tran && self.state < MmcState::Slp && !self.admits(index))
        {
            return Outcome::Illegal;
        }
        let mine = (arg >> 16) as u16 == self.rca;
        match (index, self.state) {
            (0, _) => {
                let busy = self.init.is_some_and(|t| now < t + self.power_up());
                let early = self.state == Idle && busy && self.config.quirks.early_cmd0_kills;
                self.end_run(now);
                self.reset(false);
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
                self.ext[at::BOOT_WP_STATUS] = self.protection.boot_status();
                let ext = self.ext.to_vec();
                let outcome = self.open_register(ext, now);
                if let Some(run) = self.run.as_mut().filter(|_| self.garbled > 0) {
                    self.garbled -= 1;
                    run.aligned = false;
                }
                outcome
            }
            (9, Stby) => Outcome::Other(r2(&seal(self.csd))),
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
            (13, Stby | Tran | Data | Rcv | Prg | Dis | Btst) if self.queueing() && arg & 1 << 15 != 0 => {
                Outcome::Other(short(13, self.queue.status()))
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
                    // Where addresses are sectors, blocks keep 512 bytes: the length is CMD42's alone.
                    Ok(len @ 1..=512) => {
                        self.lock_len = len;
                        self.block_len = if self.config.sector_addressed() { 512 } else { len };
                    }
                    _ => self.errors |= BLOCK_LEN_ERROR,
                }
                Outcome::R1
            }
            (17 | 18 | 24 | 25, Tran) => {
                self.open_blocks(index < 24, matches!(index, 17 | 24), arg, count, now)
            }
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
            // Bit 30: packed.
            (23, Tran) if arg & 1 << 30 == 0 => {
                let blocks = arg & 0xffff;
                self.count = (blocks > 0).then_some((blocks, arg >> 31 == 1));
                Outcome::R1
            }
            (26, Tran) => self.open_sink(Sink::Cid, now),
            (27, Tran) => self.open_sink(Sink::Csd, now),
            (28 | 29, Tran) => self.protect(index == 28, arg, now),
            (30 | 31, Tran) => {
                let bits = self.protection_bits(index, arg);
                self.open_register(bits, now)
            }
            (42, Tran) => self.open_sink(Sink::Lock, now),
            (49, Tran) => self.open_sink(Sink::Time, now),
            (56, Tran) if arg & 1 == 1 => self.open_register(self.vendor.to_vec(), now),
            (56, Tran) => self.open_sink(Sink::Vendor, now),
            // There are no commands behind it: the next one is what it is.
            (55, Stby | Tran | Data | Rcv | Prg | Dis | Btst) if mine => {
                self.errors |= APP_CMD;
                Outcome::R1
            }
            (44..=48, Tran | Data | Rcv | Prg) => self.queue_command(index, arg, now),
            (35, Tran) => {
                self.erase_range = (Some(arg), None);
                Outcome::R1
            }
            (36 | 38, Tran) => {
                match (index, self.erase_range) {
                    (36, (Some(from), None)) => self.erase_range = (Some(from), Some(arg)),
                    (38, (Some(from), Some(to))) => {
                        self.erase_range = (None, None);
                        self.erase(from, to, arg, now);
                    }
                    _ => {
                        self.erase_range = (None, None);
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
        let hasty = self.last_op_cond.is_some_and(|t| now.since(t) < self.config.quirks.restless);
        self.last_op_cond = Some(now);
        if hasty {
            self.init = Some(now);
        }
        if asked != 0 && asked & window == 0 {
            self.state = MmcState::Ina;
            return Outcome::Silent;
        }
        let since = *self.init.get_or_insert(now);
        // A query tells the window and starts the power-up, but is no reason to become ready.
        if asked == 0 || now < since + self.power_up() {
            return Outcome::Other(r3(ocr));
        }
        self.slow_start = Duration::ZERO;
        self.state = MmcState::Ready;
        Outcome::Other(r3(ocr | 1 << 31))
    }
    /// From the first CMD1 on; the first time after partitioning it takes longer.
    fn power_up(&self) -> Duration {
        self.config.power_up.max(self.slow_start)
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
        self.cut_short(now);
        Outcome::R1
    }
}

impl Card for MmcCard {
    fn power(&mut self, on: bool, now: Instant) {
        if on != self.powered {
            self.forget(now);
        }
        self.powered = on;
    }
    fn bus(&mut self, hz: u32, lines: u8, _: Instant) {
        (self.hz, self.lines) = (hz, lines);
    }
    fn signal(&mut self, signal: Signal, timing: bus::Timing, _: Instant) {
        self.host = Some((signal, timing));
    }
    fn samples_right(&self, phase: u16, now: Instant) -> bool {
        let strobe = self.ext[at::BUS_WIDTH] & 0x80 != 0;
        let strobed = strobe && self.host.is_some_and(|h| h.1 == bus::Timing::Hs400Es);
        let tuned = self.ext[at::HS_TIMING] & 15 >= 2 && self.hz > 52_000_000;
        !tuned || strobed || self.config.eye.holds(self.hz, phase, now)
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
        let settled = self.state(now);
        if settled != self.state {
            self.finish();
        }
        self.state = settled;
        self.let_tuning_end(now);
        self.idle_bkops(now);
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
                let locked = if self.lock.locked() { DEVICE_IS_LOCKED } else { 0 };
                let told = self.errors | locked | u32::from(ready) << 8 | urgent | (state as u32 & 15) << 9;
                // What is found while the card is busy, the answer of the command itself does not tell.
                let keep = match index {
                    6 => SWITCH_ERROR,
                    38 => WP_ERASE_SKIP,
                    _ => 0,
                };
                let told = told & !keep;
                self.errors &= keep;
                Some(short(index, told))
            }
            Outcome::Other(bits) => Some(bits),
            Outcome::Silent => None,
            Outcome::Illegal => {
                if self.knows(index) && index != 12 {
                    let why = if self.lock.locked() { " of a locked card" } else { "" };
                    self.violations.note(|| format!("CMD{index} is not legal in state {state:?}{why}"));
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
        let low = matches!(self.state, MmcState::Prg | MmcState::Slp | MmcState::Stby)
            && !self.config.quirks.hides_busy;
        if self.inserted && self.powered && low && self.busy > now { self.busy } else { Instant::ZERO }
    }
    fn present(&self) -> bool {
        self.inserted
    }
    fn violations(&self) -> Vec<String> {
        self.violations.list().to_vec()
    }
}
