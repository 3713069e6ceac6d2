//! The registers, the resets, the pins, and the order in which things happen.

use super::Counters;
use super::command::Command;
use super::config::{Config, DataWidth};
use super::data::Data;
use super::fault::{Fault, Faults, When};
use super::fifo::Fifo;
use super::idmac::{Idmac, Posted};
use super::reg::*;
use crate::card::Card;
use crate::clock::Clock;
use crate::memory::Memory;
use crate::wire::Wire;
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;

/// The registers that only store.
#[derive(Debug, Default)]
pub(super) struct Regs {
    pub(super) ctrl: u32,
    pwren: u32,
    pub(super) clkdiv: u32,
    pub(super) clksrc: u32,
    pub(super) clkena: u32,
    pub(super) tmout: u32,
    pub(super) ctype: u32,
    pub(super) blksiz: u32,
    pub(super) bytcnt: u32,
    intmask: u32,
    pub(super) cmdarg: u32,
    pub(super) cmd: u32,
    pub(super) resp: [u32; 4],
    pub(super) fifoth: u32,
    gpio: u32,
    pub(super) tcbcnt: u32,
    pub(super) tbbcnt: u32,
    debnce: u32,
    usrid: u32,
    uhs: u32,
    rst_n: u32,
    pub(super) bmod: u32,
    pub(super) dbaddr: u64,
    pub(super) idinten: u32,
    cardthr: u32,
    back_end: u32,
    uhs_ext: u32,
    emmc_ddr: u32,
    shift: u32,
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

/// From the response of CMD11 to the release of the lines.
#[derive(Debug)]
pub(super) struct Volt {
    /// When the first interrupt is due; [`Instant::NEVER`] afterwards.
    pub(super) low_at: Instant,
    pub(super) off_since: Option<Instant>,
    pub(super) release_at: Instant,
    pub(super) stuck: bool,
}

#[derive(Debug)]
pub(super) struct Core<C> {
    pub(super) cfg: Config,
    pub(super) card: C,
    pub(super) clock: Clock,
    pub(super) memory: Memory,
    pub(super) r: Regs,
    pub(super) ciu: Ciu,
    rintsts: u32,
    pub(super) idsts: u32,
    pub(super) fifo: Fifo,
    /// The FIFO holds bytes of a read.
    pub(super) rx_fifo: bool,
    /// The other half of a 64-bit FIFO word.
    half: u32,
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
    pin: bool,
    pin_seen: bool,
    debounced_at: Instant,
    write_protect: bool,
    sdio: bool,
    powered: bool,
    pub(super) first_command: bool,
    pub(super) clock_since: Instant,
    told: Option<(u32, u8)>,
    pub(super) late: Vec<(Instant, u32)>,
    deferred: Vec<(u64, u32)>,
    pub(super) faults: Faults,
    /// Everything up to here has happened.
    pub(super) t: Instant,
    /// Nothing happens before.
    due: Instant,
    line: bool,
    reset_shown: (u32, u32),
    swr_shown: u32,
    pub(super) response_index: u32,
    pub(super) counters: Counters,
    violations: Vec<String>,
}

impl<C: Card> Core<C> {
    pub(super) fn new(card: C, clock: Clock, memory: Memory, cfg: Config) -> Self {
        let r = Regs {
            tmout: 0xffff_ff40,
            blksiz: 0x200,
            bytcnt: 0x200,
            cmd: 0x2000_0000,
            fifoth: cfg.fifoth_reset(),
            debnce: 0x00ff_ffff,
            rst_n: 1,
            ..Regs::default()
        };
        let t = clock.now();
        let here = card.present();
        let mut core = Self {
            fifo: Fifo::new(cfg.depth(), cfg.data_width.bytes()),
            ciu: Ciu { tmout: r.tmout, blksiz: r.blksiz, bytcnt: r.bytcnt, ..Ciu::default() },
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
        if self.present != (self.in_slot && self.card.present()) {
            // Somebody took the card out, or put it in, through a handle of their own.
            self.due = Instant::ZERO;
        }
        if now < self.due {
            self.t = self.t.max(now);
            return;
        }
        self.by_access();
        loop {
            let next = self.next_step();
            if self.data_run(next.min(now)) {
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
        self.levels();
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
        if self.sdio && clock && self.connected() {
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
        Wire { hz: self.card_hz(), lines }
    }

    /// Tells the card when clock or width have changed.
    pub(super) fn bus_changed(&mut self) {
        let w = self.wire();
        let was = self.told;
        if !self.connected() || was == Some((w.hz, w.lines)) {
            return;
        }
        if was.is_none_or(|(hz, _)| hz == 0) {
            self.clock_since = self.t;
        }
        if w.hz > self.cfg.max_hz {
            let max = self.cfg.max_hz;
            self.violation(format!("card clock of {} Hz is above the controller's {max}", w.hz));
        }
        self.told = Some((w.hz, w.lines));
        self.card.bus(w.hz, w.lines, self.t);
    }

    /// PWREN was written, or a card put in.
    fn power(&mut self) {
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
    fn attached(&mut self) {
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
            Fault::SdioInterrupt(on) => self.sdio = on,
            _ => {}
        }
    }

    pub(super) fn heal(&mut self) {
        self.faults = Faults::default();
        self.stuck_start = false;
        self.reset_shown = (0, 0);
    }

    // --- registers ---

    pub(super) fn read(&mut self, offset: u32) -> u32 {
        if offset >= if self.cfg.has_extensions() { 0x200 } else { 0x100 } {
            return self.data_read(offset);
        }
        let r = &self.r;
        let wide = self.cfg.addr64;
        match offset {
            CTRL => {
                let (bits, left) = self.reset_shown;
                let shown = if self.faults.stuck_reset || left > 0 { bits } else { 0 };
                self.reset_shown.1 = left.saturating_sub(1);
                self.r.ctrl | shown
            }
            PWREN => r.pwren,
            CLKDIV => r.clkdiv,
            CLKSRC => r.clksrc,
            CLKENA => r.clkena,
            TMOUT => r.tmout,
            CTYPE => r.ctype,
            BLKSIZ => r.blksiz,
            BYTCNT => r.bytcnt,
            INTMASK => r.intmask,
            CMDARG => r.cmdarg,
            CMD => r.cmd,
            RESP0..=RESP3 => r.resp[((offset - RESP0) / 4) as usize],
            MINTSTS => self.rintsts & r.intmask,
            RINTSTS => self.rintsts,
            STATUS => self.status(),
            FIFOTH => r.fifoth,
            CDETECT => u32::from(!self.pin),
            WRTPRT => u32::from(self.write_protect),
            GPIO => r.gpio,
            TCBCNT => r.tcbcnt,
            TBBCNT => r.tbbcnt,
            DEBNCE => r.debnce,
            USRID => r.usrid,
            VERID => self.cfg.verid,
            HCON => self.cfg.hcon(),
            UHS_REG => r.uhs,
            RST_N => r.rst_n,
            BMOD => {
                let swr = u32::from(self.swr_shown > 0);
                self.swr_shown = self.swr_shown.saturating_sub(1);
                self.r.bmod | (self.r.fifoth >> 28 & 7) << 8 | swr
            }
            DBADDR => r.dbaddr as u32,
            0x8c if wide => (r.dbaddr >> 32) as u32,
            0x8c | 0x90 if wide == (offset == 0x90) => self.idsts | self.idmac.fsm() << 13,
            0x90 | 0x94 if wide == (offset == 0x94) => r.idinten,
            0x94 | 0x98 if wide == (offset == 0x98) => self.idmac.descriptor_address() as u32,
            0x9c if wide => (self.idmac.descriptor_address() >> 32) as u32,
            0x98 | 0xa0 if wide == (offset == 0xa0) => self.idmac.buffer_address() as u32,
            0xa4 if wide => (self.idmac.buffer_address() >> 32) as u32,
            CARDTHRCTL => r.cardthr,
            BACK_END_POWER => r.back_end,
            UHS_REG_EXT => r.uhs_ext,
            EMMC_DDR_REG => r.emmc_ddr,
            ENABLE_SHIFT => r.shift,
            _ => 0,
        }
    }

    fn status(&self) -> u32 {
        let count = self.fifo_words() as u32;
        let (tx, rx) = (self.r.fifoth & 0xfff, self.r.fifoth >> 16 & 0xfff);
        let low = self.volt.is_some() && self.connected();
        let busy = self.dat0_until() > self.t || self.data_busy();
        let fsm = match &self.command {
            None => 0,
            Some(c) if c.receiving() => 11,
            Some(_) => 4,
        };
        u32::from(count > rx)
            | u32::from(count <= tx) << 1
            | u32::from(count == 0) << 2
            | u32::from(count >= self.cfg.depth()) << 3
            | fsm << 4
            | u32::from(!low) << 8
            | u32::from(busy) << 9
            | u32::from(self.data.is_some()) << 10
            | self.response_index << 11
            | (count & 0x1fff) << 17
    }

    pub(super) fn write(&mut self, offset: u32, value: u32) {
        if offset >= if self.cfg.has_extensions() { 0x200 } else { 0x100 } {
            self.data_write(offset, value);
            return;
        }
        if self.pending
            && let Some((_, name)) = LOCKED.iter().find(|(o, _)| *o == offset)
        {
            self.raise(int::HLE);
            self.violation(format!("{name} written with {value:#x} while locked (START is set)"));
            return;
        }
        let wide = self.cfg.addr64;
        let mask = !(u64::from(self.cfg.data_width.bytes()) - 1);
        match offset {
            CTRL => self.write_ctrl(value),
            PWREN => {
                self.r.pwren = value;
                self.power();
            }
            CLKDIV => self.r.clkdiv = value,
            CLKSRC => self.r.clksrc = value,
            CLKENA => self.r.clkena = value,
            TMOUT => self.r.tmout = value,
            CTYPE => self.r.ctype = value,
            BLKSIZ => self.r.blksiz = value & 0xffff,
            BYTCNT => self.r.bytcnt = value,
            INTMASK => self.r.intmask = value,
            CMDARG => self.r.cmdarg = value,
            CMD => {
                self.r.cmd = value;
                if value & cmd::START != 0 {
                    self.command_start();
                }
            }
            RINTSTS => self.rintsts &= !value,
            FIFOTH => self.r.fifoth = value & 0x7fff_0fff,
            GPIO => self.r.gpio = value & 0x00ff_ff00,
            DEBNCE => self.r.debnce = value & 0x00ff_ffff,
            USRID => self.r.usrid = value,
            UHS_REG => self.r.uhs = value,
            RST_N => self.r.rst_n = value & 0xffff,
            BMOD => {
                self.r.bmod = value & bmod::STORED;
                if value & bmod::SWR != 0 {
                    self.swr_shown = self.cfg.swr_reads;
                    self.idmac_stop();
                } else if value & bmod::DE == 0 {
                    self.idmac_stop();
                }
            }
            PLDMND => self.idmac_poll_demand(),
            DBADDR => {
                self.dbaddr_written();
                self.r.dbaddr = (self.r.dbaddr & !0xffff_ffff | u64::from(value)) & mask;
            }
            0x8c if wide => {
                self.dbaddr_written();
                self.r.dbaddr = self.r.dbaddr & 0xffff_ffff | u64::from(value) << 32;
            }
            0x8c | 0x90 if wide == (offset == 0x90) => {
                self.idsts &= !(value & idsts::ALL);
                if value & idsts::FBE != 0 {
                    self.idsts &= !(7 << 10);
                }
            }
            0x90 | 0x94 if wide == (offset == 0x94) => self.r.idinten = value & idsts::ALL,
            CARDTHRCTL => self.r.cardthr = value,
            BACK_END_POWER => self.r.back_end = value & 0xffff,
            UHS_REG_EXT => {
                self.r.uhs_ext = value;
                if self.cfg.ext_div[(value >> 30) as usize] == 0 {
                    self.violation(format!("external divider: nobody knows what value {} does", value >> 30));
                }
                self.bus_changed();
            }
            EMMC_DDR_REG => self.r.emmc_ddr = value,
            ENABLE_SHIFT => self.r.shift = value,
            _ => {}
        }
    }

    fn dbaddr_written(&mut self) {
        if self.data.as_ref().is_some_and(|d| d.dma) {
            self.violation("DBADDR written while the IDMAC runs".into());
        }
    }

    fn write_ctrl(&mut self, value: u32) {
        let had = self.r.ctrl;
        self.r.ctrl = value & !ctrl::SELF_CLEARING;
        let resets = value & ctrl::RESETS;
        if resets != 0 {
            self.reset_shown = (resets, self.cfg.reset_reads);
        }
        if had & !value & ctrl::INTERNAL_DMAC != 0 {
            self.idmac_stop();
        }
        if self.faults.stuck_reset {
            return;
        }
        if resets & ctrl::RESET != 0 {
            self.command = None;
            self.pending = false;
            self.stuck_start = false;
            self.auto_due = false;
            self.r.cmd &= !cmd::START;
            self.late.clear();
            if self.data.take().is_some_and(|d| d.dma) {
                self.idmac_stop();
            }
            if self.cfg.reset_forgets_clock {
                (self.ciu.clkdiv, self.ciu.clksrc, self.ciu.clkena) = (0, 0, 0);
                self.bus_changed();
            }
        }
        if resets & ctrl::FIFO_RESET != 0 {
            self.fifo.clear();
            self.rx_fifo = self.data.as_ref().is_some_and(|d| d.read && !d.dma);
        }
        if resets & ctrl::DMA_RESET != 0 {
            self.idmac_stop();
        }
    }

    fn data_read(&mut self, offset: u32) -> u32 {
        match self.cfg.data_width {
            DataWidth::W32 => self.pop() as u32,
            DataWidth::W16 => {
                let low = self.pop() as u32;
                low | (self.pop() as u32) << 16
            }
            DataWidth::W64 if offset & 4 == 0 => {
                let word = self.pop();
                self.half = (word >> 32) as u32;
                word as u32
            }
            DataWidth::W64 => self.half,
        }
    }

    fn pop(&mut self) -> u64 {
        if self.fifo_words() == 0 {
            self.raise(int::FRUN);
            return 0;
        }
        let mut word = [0; 8];
        let width = self.cfg.data_width.bytes() as usize;
        self.fifo.pop_into(&mut word[..width]);
        self.counted(width);
        u64::from_le_bytes(word)
    }

    fn data_write(&mut self, offset: u32, value: u32) {
        match self.cfg.data_width {
            DataWidth::W32 => self.push(value.into()),
            DataWidth::W16 => {
                self.push((value & 0xffff).into());
                self.push((value >> 16).into());
            }
            DataWidth::W64 if offset & 4 == 0 => self.half = value,
            DataWidth::W64 => self.push(u64::from(value) << 32 | u64::from(self.half)),
        }
    }

    fn push(&mut self, word: u64) {
        let width = self.cfg.data_width.bytes() as usize;
        if self.fifo.space() < width {
            self.raise(int::FRUN);
            return;
        }
        if self.data.is_none() {
            self.rx_fifo = false;
        }
        self.fifo.push(&word.to_le_bytes()[..width]);
        self.counted(width);
    }

    fn counted(&mut self, width: usize) {
        self.counters.fifo_words += 1;
        self.r.tbbcnt = self.r.tbbcnt.wrapping_add(width as u32);
    }
}
