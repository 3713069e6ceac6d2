//! The registers, the resets, the pins, and the order in which things happen.

use super::Counters;
use super::command::Command;
use super::config::Config;
use super::data::Data;
use super::fault::{Fault, Faults, When};
use super::fifo::Fifo;
use super::idmac::{Idmac, Posted};
use super::reg::*;
use crate::card::Card;
use crate::clock::Clock;
use crate::memory::Memory;
use crate::wire::Wire;
use mmc_proto::bus::{Signal, Timing};
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;

/// The registers that only store.
#[derive(Debug, Default)]
pub(super) struct Regs {
    pub(super) ctrl: u32,
    pub(super) pwren: u32,
    pub(super) clkdiv: u32,
    pub(super) clksrc: u32,
    pub(super) clkena: u32,
    pub(super) tmout: u32,
    pub(super) ctype: u32,
    pub(super) blksiz: u32,
    pub(super) bytcnt: u32,
    pub(super) intmask: u32,
    pub(super) cmdarg: u32,
    pub(super) cmd: u32,
    pub(super) resp: [u32; 4],
    pub(super) fifoth: u32,
    pub(super) gpio: u32,
    pub(super) tcbcnt: u32,
    pub(super) tbbcnt: u32,
    pub(super) debnce: u32,
    pub(super) usrid: u32,
    pub(super) uhs: u32,
    pub(super) rst_n: u32,
    pub(super) bmod: u32,
    pub(super) dbaddr: u64,
    pub(super) idinten: u32,
    pub(super) cardthr: u32,
    pub(super) back_end: u32,
    pub(super) uhs_ext: u32,
    pub(super) emmc_ddr: u32,
    pub(super) shift: u32,
    /// The register with the sample phase, where no other is.
    pub(super) sample: u32,
}

impl Regs {
    fn at_reset(cfg: &Config) -> Self {
        Self {
            tmout: 0xffff_ff40,
            blksiz: 0x200,
            bytcnt: 0x200,
            cmd: 0x2000_0000,
            fifoth: cfg.fifoth_reset(),
            debnce: 0x00ff_ffff,
            rst_n: 1,
            ..Self::default()
        }
    }
}

/// What the card side has taken over.
#[derive(Debug, Default)]
pub(super) struct Ciu {
    pub(super) clkdiv: u32,
    pub(super) clksrc: u32,
    pub(super) clkena: u32,
    pub(super) tmout: u32,
    pub(super) ctype: u32,
    pub(super) blksiz: u32,
    pub(super) bytcnt: u32,
}

impl Ciu {
    fn at_reset(r: &Regs) -> Self {
        Self { tmout: r.tmout, blksiz: r.blksiz, bytcnt: r.bytcnt, ..Self::default() }
    }
}

/// From the response of CMD11 to the release of the lines.
#[derive(Debug)]
pub(super) struct Volt {
    /// When the first interrupt is due; [`Instant::NEVER`] afterwards.
    pub(super) low_at: Instant,
    pub(super) off_since: Option<Instant>,
    pub(super) release_at: Instant,
    pub(super) stuck: bool,
    /// How often the card was found to hold the lines still.
    pub(super) tries: u32,
}

#[derive(Debug)]
pub(super) struct Core<C> {
    pub(super) cfg: Config,
    pub(super) card: C,
    pub(super) clock: Clock,
    pub(super) memory: Memory,
    pub(super) r: Regs,
    pub(super) ciu: Ciu,
    pub(super) rintsts: u32,
    pub(super) idsts: u32,
    pub(super) fifo: Fifo,
    /// The FIFO holds bytes of a read.
    pub(super) rx_fifo: bool,
    /// The other half of a 64-bit FIFO word.
    pub(super) half: u32,
    pub(super) scratch: Vec<u8>,
    pub(super) command: Option<Command>,
    /// START is set.
    pub(super) pending: bool,
    pub(super) stuck_start: bool,
    pub(super) auto_due: bool,
    pub(super) data: Option<Data>,
    pub(super) idmac: Idmac,
    pub(super) posted: VecDeque<Posted>,
    pub(super) volt: Option<Volt>,
    /// DAT0 is held low by a fault until then.
    pub(super) hold_dat0: Instant,
    /// When the end of a busy raises its interrupt.
    busy_clear_at: Instant,
    /// No fault has taken the card out.
    in_slot: bool,
    present: bool,
    pub(super) pin: bool,
    pin_seen: bool,
    debounced_at: Instant,
    pub(super) write_protect: bool,
    sdio: bool,
    /// What the card's SDIO interrupt was when it was last looked at.
    card_asks: bool,
    /// The board supplies the signal lines with 1.8 V.
    pub(super) board_1_8: bool,
    /// Where the board samples, in degrees, where the controller has no field for it.
    pub(super) board_phase: u16,
    /// RST_N is low since then.
    pub(super) reset_low: Option<Instant>,
    powered: bool,
    pub(super) first_command: bool,
    pub(super) clock_since: Instant,
    told: Option<(u32, u8, Signal, Timing)>,
    pub(super) late: Vec<(Instant, u32)>,
    deferred: Vec<(u64, u32)>,
    pub(super) faults: Faults,
    /// Everything up to here has happened.
    pub(super) t: Instant,
    /// Nothing happens before.
    due: Instant,
    line: bool,
    pub(super) reset_shown: (u32, u32),
    pub(super) swr_shown: u32,
    pub(super) response_index: u32,
    pub(super) counters: Counters,
    violations: Vec<String>,
}

impl<C: Card> Core<C> {
    pub(super) fn new(card: C, clock: Clock, memory: Memory, cfg: Config) -> Self {
        let r = Regs::at_reset(&cfg);
        let t = clock.now();
        let here = card.present();
        let mut core = Self {
            fifo: Fifo::new(cfg.depth(), cfg.data_width.bytes()),
            ciu: Ciu::at_reset(&r),
            cfg,
            card,
            clock,
            memory,
            r,
            rintsts: 0,
            idsts: 0,
            rx_fifo: false,
            half: 0,
            scratch: Vec::new(),
            command: None,
            pending: false,
            stuck_start: false,
            auto_due: false,
            data: None,
            idmac: Idmac::default(),
            posted: VecDeque::new(),
            volt: None,
            hold_dat0: Instant::ZERO,
            busy_clear_at: Instant::NEVER,
            in_slot: true,
            present: true,
            pin: true,
            pin_seen: true,
            debounced_at: Instant::NEVER,
            write_protect: false,
            sdio: false,
            card_asks: false,
            board_1_8: false,
            board_phase: 180,
            reset_low: None,
            powered: false,
            first_command: true,
            clock_since: t,
            told: None,
            late: Vec::new(),
            deferred: Vec::new(),
            faults: Faults::default(),
            t,
            due: Instant::ZERO,
            line: false,
            reset_shown: (0, 0),
            swr_shown: 0,
            response_index: 0,
            counters: Counters::default(),
            violations: Vec::new(),
        };
        (core.present, core.pin, core.pin_seen) = (here, here, here);
        core.power();
        core
    }

    // --- the outside ---

    /// One register access begins: its time passes, and what is due happens.
    pub(super) fn access(&mut self, write: bool) {
        if self.cfg.access_ns > 0 {
            self.clock.advance(Duration::from_nanos(self.cfg.access_ns));
        }
        let c = &mut self.counters;
        *(if write { &mut c.writes } else { &mut c.reads }) += 1;
        if !self.deferred.is_empty() || !self.posted.is_empty() || !self.faults.timeline.is_empty() {
            self.due = Instant::ZERO;
        }
        self.run();
    }

    pub(super) fn settle(&mut self) {
        self.due = Instant::ZERO;
        self.run();
    }

    /// A read has an effect only on the FIFO, which may let the card clock go on.
    pub(super) fn settle_after_read(&mut self, offset: u32) {
        if offset >= 0x100 {
            self.settle();
        }
    }

    /// Brings everything up to the present.
    pub(super) fn run(&mut self) {
        let now = self.clock.now().min(Instant::from_nanos(u64::MAX - 1));
        if self.present != (self.in_slot && self.card.present()) || self.card_asks != self.card.interrupt(now)
        {
            // Somebody took the card out, or put it in, through a handle of their own; or an SDIO card wants something.
            self.due = Instant::ZERO;
        }
        if now < self.due {
            self.t = self.t.max(now);
            return;
        }
        self.by_access();
        loop {
            let next = self.next_step();
            let over = self.data_run(next.min(now));
            self.levels();
            if over {
                continue;
            }
            if next > now {
                break;
            }
            self.at(next);
            self.step();
        }
        self.at(now);
        self.set_present(self.in_slot && self.card.present());
        self.due = if self.data.is_some() { Instant::ZERO } else { self.next_step() };
        let line = self.irq();
        self.counters.irq_edges += u64::from(line && !self.line);
        self.line = line;
    }

    /// The present of what happens now is `t`, or later.
    pub(super) fn at(&mut self, t: Instant) {
        self.t = self.t.max(t);
    }

    /// What waits for a number of register accesses.
    fn by_access(&mut self) {
        let accesses = self.counters.reads + self.counters.writes;
        let rintsts = &mut self.rintsts;
        self.deferred.retain(|(at, bits)| {
            let due = *at <= accesses;
            *rintsts |= if due { *bits } else { 0 };
            !due
        });
        self.posted_run();
        while let Some(i) =
            self.faults.timeline.iter().position(|(w, _)| matches!(w, When::Access(n) if *n <= accesses))
        {
            let (_, fault) = self.faults.timeline.remove(i);
            self.strike(fault);
        }
    }

    /// The next instant at which something other than the data phase happens.
    fn next_step(&self) -> Instant {
        self.next_of(self.command.as_ref().map(|c| c.until))
    }

    /// When a bit or the line can next change by itself, or a moment before.
    pub(super) fn next_event(&mut self) -> Instant {
        let command = self.command.is_some().then(|| self.command_event());
        self.next_of(command).min(self.data_event())
    }

    fn next_of(&self, command: Option<Instant>) -> Instant {
        let mut at = self.debounced_at.min(self.busy_clear_at);
        at = at.min(match command {
            Some(t) => t,
            None if self.auto_due && self.card_hz() != 0 => self.t,
            None => self.take_at(),
        });
        if let Some(v) = &self.volt {
            at = at.min(v.low_at).min(v.release_at);
        }
        if let Some(p) = self.posted.front() {
            at = at.min(p.at);
        }
        for (t, _) in &self.late {
            at = at.min(*t);
        }
        for (w, _) in &self.faults.timeline {
            if let When::At(t) = w {
                at = at.min(*t);
            }
        }
        at
    }

    /// Does what is due at `self.t`.
    fn step(&mut self) {
        while let Some(i) =
            self.faults.timeline.iter().position(|(w, _)| matches!(w, When::At(t) if *t <= self.t))
        {
            let (_, fault) = self.faults.timeline.remove(i);
            self.strike(fault);
        }
        if self.debounced_at <= self.t {
            self.debounced_at = Instant::NEVER;
            self.pin_seen = self.pin;
            self.raise(int::CARD_DETECT);
        }
        let t = self.t;
        let mut bits = 0;
        self.late.retain(|(at, b)| {
            bits |= if *at <= t { *b } else { 0 };
            *at > t
        });
        self.raise(bits);
        self.posted_run();
        if self.command.as_ref().is_some_and(|c| c.until <= self.t) {
            self.command_step();
        }
        if let Some(v) = &mut self.volt {
            if v.low_at <= t {
                v.low_at = Instant::NEVER;
                self.raise(int::VOLT);
            } else if v.release_at <= t && self.card.lines_low(t) {
                // It takes its time, or will never let go: then nobody needs to look any more.
                let tries = v.tries;
                v.tries = tries.saturating_add(1);
                v.release_at = if tries < 64 {
                    t + Duration::from_nanos(self.cfg.volt_release_ns.max(1000) << tries.min(16))
                } else {
                    Instant::NEVER
                };
            } else if v.release_at <= t {
                self.volt = None;
                self.raise(int::VOLT);
            }
        }
        if self.busy_clear_at <= self.t {
            self.busy_clear_at = Instant::NEVER;
            let until = self.dat0_until();
            if until <= self.t {
                self.raise(int::BCI);
            } else {
                self.busy_clear_at = until;
            }
        }
        if self.auto_due && self.command.is_none() && self.card_hz() != 0 {
            self.auto_stop();
        }
        if self.take_at() <= self.t {
            self.command_take();
        }
    }

    // --- bits ---

    pub(super) fn raise(&mut self, bits: u32) {
        match self.faults.defer {
            Some((mask, accesses)) if bits & mask != 0 => {
                self.faults.defer = None;
                let at = self.counters.reads + self.counters.writes + u64::from(accesses);
                self.deferred.push((at, bits));
            }
            _ => self.rintsts |= bits,
        }
    }

    /// Bits whose sources are levels.
    fn levels(&mut self) {
        let count = self.fifo_words() as u32;
        let (tx, rx) = (self.r.fifoth & 0xfff, self.r.fifoth >> 16 & 0xfff);
        if self.rx_fifo && !self.idmac_enabled() && count > rx && rx + 1 < self.cfg.depth() {
            self.rintsts |= int::RXDR;
        }
        if count <= tx && self.wants_words() {
            self.rintsts |= int::TXDR;
        }
        let clock = self.card_hz() != 0
            && (self.ciu.clkena >> 16 & 1 == 0 || self.command.is_some() || self.data.is_some());
        self.card_asks = self.card.interrupt(self.t);
        if (self.sdio || self.card_asks) && clock && self.connected() {
            self.rintsts |= 1 << (self.cfg.sdio_bit & 31);
        }
    }

    pub(super) fn irq(&self) -> bool {
        self.r.ctrl & ctrl::INT_ENABLE != 0
            && (self.rintsts & self.r.intmask != 0
                || self.idsts & self.r.idinten & (idsts::NIS | idsts::AIS) != 0)
    }

    pub(super) fn violation(&mut self, text: String) {
        // A loop in a test must not fill the memory.
        if self.violations.len() < 1000 {
            self.violations.push(format!("{} ns: {text}", self.t.as_nanos()));
        }
    }

    pub(super) fn violations(&self) -> Vec<String> {
        let card = self.card.violations().into_iter().map(|v| format!("card: {v}"));
        self.violations.iter().cloned().chain(card).collect()
    }

    // --- card, clock, pins ---

    pub(super) fn connected(&self) -> bool {
        self.present && self.powered
    }

    /// The card clock in Hz; 0: off.
    pub(super) fn card_hz(&self) -> u32 {
        if self.ciu.clkena & 1 == 0 {
            return 0;
        }
        let mux = self.cfg.ext_div[(self.r.uhs_ext >> 30) as usize];
        let mux = if mux == 0 { self.cfg.ext_div[0] } else { mux };
        let div = self.ciu.clkdiv >> (8 * (self.ciu.clksrc & 3)) & 0xff;
        self.cfg.ciu_hz / mux.max(1) / (2 * div).max(1)
    }

    pub(super) fn wire(&self) -> Wire {
        let lines = match self.ciu.ctype & 0x1_0001 {
            0 => 1,
            1 => 4,
            _ => 8,
        };
        Wire { hz: self.card_hz(), lines }.with_ddr(self.r.uhs >> 16 & 1 != 0)
    }

    /// The level of the signal lines: by the board's supply or by the controller's buffers, whichever the board has.
    pub(super) fn signal(&self) -> Signal {
        if self.board_1_8 || self.r.uhs & 1 != 0 { Signal::V1_8 } else { Signal::V3_3 }
    }

    /// The timing as far as the controller's registers tell; for SDR by the clock and the level.
    fn timing(&self) -> Timing {
        let (ddr, emmc) = (self.r.uhs >> 16 & 1 != 0, self.r.emmc_ddr);
        match (ddr, self.signal(), self.card_hz()) {
            (true, ..) if emmc >> 31 != 0 => Timing::Hs400,
            (true, ..) if emmc & 1 != 0 => Timing::Ddr52,
            (true, ..) => Timing::Ddr50,
            (_, Signal::V3_3, ..=26_000_000) => Timing::Default,
            (_, Signal::V3_3, _) => Timing::High,
            (_, _, ..=25_000_000) => Timing::Sdr12,
            (_, _, ..=50_000_000) => Timing::Sdr25,
            (_, _, ..=100_000_000) => Timing::Sdr50,
            _ => Timing::Sdr104,
        }
    }

    /// Where the card is sampled, in degrees.
    fn phase(&self) -> u16 {
        let Some(f) = self.cfg.sample else { return self.board_phase };
        let r = if f.offset == UHS_REG_EXT { self.r.uhs_ext } else { self.r.sample };
        let values = 1_u32 << f.bits.min(16);
        let value = r >> f.shift.min(31) & (values - 1);
        ((180 + u64::from(value) * 360 / u64::from(values)) % 360) as u16
    }

    /// Whether what the card sends now arrives right.
    pub(super) fn samples_right(&self) -> bool {
        self.card.samples_right(self.phase(), self.t)
    }

    /// Tells the card when clock, width, level or timing have changed.
    pub(super) fn bus_changed(&mut self) {
        let w = self.wire();
        let lines = w.lines >> (self.r.uhs >> 16 & 1);
        let now = (w.hz, lines, self.signal(), self.timing());
        let was = self.told;
        if !self.connected() || was == Some(now) {
            return;
        }
        let stood = was.is_none_or(|was| was.0 == 0);
        if stood {
            self.clock_since = self.t;
        }
        if w.hz > self.cfg.max_hz {
            let max = self.cfg.max_hz;
            self.violation(format!("card clock of {} Hz is above the controller's {max}", w.hz));
        }
        if was.is_some_and(|was| was.2 != now.2) && !stood {
            self.violation("the signal level changed while the card clock was running".into());
        }
        self.told = Some(now);
        // The level is the card's business once its clock runs again.
        if w.hz != 0 && was.is_none_or(|was| (was.2, was.3) != (now.2, now.3) || stood) {
            self.card.signal(now.2, now.3, self.t);
        }
        self.card.bus(w.hz, lines, self.t);
    }

    /// PWREN was written, or a card put in.
    pub(super) fn power(&mut self) {
        let on = (self.r.pwren & 1 != 0) != self.cfg.power_active_low;
        if on == self.powered {
            return;
        }
        self.powered = on;
        self.hold_dat0 = Instant::ZERO;
        self.volt = None;
        if self.present {
            self.card.power(on, self.t);
            self.attached();
        }
    }

    /// The card has (or lost) its supply.
    pub(super) fn attached(&mut self) {
        self.first_command = true;
        self.told = None;
        self.clock_since = self.t;
        self.bus_changed();
    }

    fn set_present(&mut self, present: bool) {
        if present == self.present {
            return;
        }
        if !present && self.powered {
            self.card.power(false, self.t);
        }
        self.present = present;
        self.hold_dat0 = Instant::ZERO;
        self.volt = None;
        if present && self.powered {
            self.card.power(true, self.t);
        }
        self.attached();
        self.set_pin(present);
    }

    fn set_pin(&mut self, pin: bool) {
        if pin == self.pin {
            return;
        }
        self.pin = pin;
        let ns = u64::from(self.r.debnce & 0x00ff_ffff) * 1_000_000_000 / u64::from(self.cfg.biu_hz.max(1));
        self.debounced_at =
            if pin == self.pin_seen { Instant::NEVER } else { self.t + Duration::from_nanos(ns) };
    }

    /// Until when DAT0 is low.
    pub(super) fn dat0_until(&self) -> Instant {
        if !self.connected() {
            return Instant::ZERO;
        }
        if self.volt.is_some() {
            return Instant::NEVER;
        }
        self.card.busy_until(self.t).max(self.hold_dat0)
    }

    /// A busy has begun, perhaps.
    pub(super) fn watch_busy(&mut self) {
        let until = self.dat0_until();
        if self.cfg.busy_clear && self.r.cardthr & 2 != 0 && until > self.t {
            self.busy_clear_at = until;
        }
    }

    /// Something goes wrong now, or will at the next command.
    pub(super) fn strike(&mut self, fault: Fault) {
        match fault {
            f if f.of_command() => self.faults.armed.push((0, f)),
            Fault::LoseCommand => self.faults.lose_command = true,
            Fault::StuckReset => self.faults.stuck_reset = true,
            Fault::StuckVoltSwitch => self.faults.stuck_volt = true,
            Fault::Spurious(bits) => self.raise(bits),
            Fault::Defer { bits, accesses } => self.faults.defer = Some((bits, accesses)),
            Fault::Remove | Fault::Insert => {
                self.in_slot = fault == Fault::Insert;
                self.set_present(self.in_slot && self.card.present());
            }
            Fault::Pin(pin) => self.set_pin(pin),
            Fault::WriteProtect(on) => self.write_protect = on,
            Fault::PowerFail if self.connected() => {
                self.card.power(false, self.t);
                self.card.power(true, self.t);
                self.hold_dat0 = Instant::ZERO;
                self.volt = None;
                self.attached();
            }
            Fault::DomainLost => {
                self.r = Regs { pwren: self.r.pwren, ..Regs::at_reset(&self.cfg) };
                self.ciu = Ciu::at_reset(&self.r);
                (self.rintsts, self.idsts) = (0, 0);
                self.all_stops();
                self.idmac_stop();
                self.fifo.clear();
                self.bus_changed();
            }
            Fault::SdioInterrupt(on) => self.sdio = on,
            _ => {}
        }
    }

    /// The command and data paths forget what they were at.
    pub(super) fn all_stops(&mut self) {
        self.command = None;
        self.pending = false;
        self.stuck_start = false;
        self.auto_due = false;
        self.r.cmd &= !cmd::START;
        self.late.clear();
        if self.data.take().is_some_and(|d| d.dma) {
            self.idmac_stop();
        }
    }

    /// RST_N was written.
    pub(super) fn reset_pin(&mut self, high: bool) {
        if !high {
            self.reset_low.get_or_insert(self.t);
        } else if let Some(since) = self.reset_low.take().filter(|_| self.cfg.rst_n && self.connected()) {
            if self.t - since < Duration::from_micros(1) {
                self.violation("RST_N was low for less than 1 us".into());
            } else {
                self.card.power(false, self.t);
                self.card.power(true, self.t);
                self.attached();
            }
        }
    }

    pub(super) fn heal(&mut self) {
        self.faults = Faults::default();
        self.stuck_start = false;
        self.reset_shown = (0, 0);
    }
}
