//! The command path: START, held commands, responses, the automatic CMD12, clock updates, the voltage switch.

use super::ErrorOrder;
use super::core::{Core, Volt};
use super::data::Stage;
use super::fault::Fault;
use super::reg::{cmd, idsts, int};
use crate::card::{Answer, Bits, Card, Phase};
use crate::wire::Wire;
use mmc_proto::command::Response;
use mmc_proto::crc::crc7;
use mmc_time::{Duration, Instant};

/// A command on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) raw: u32,
    arg: u32,
    /// Sent by the controller itself after a data phase.
    auto: bool,
    /// When the frame ends (`answer` is `None`) or the response does.
    pub(super) until: Instant,
    answer: Option<Outcome>,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    response: Option<Bits>,
    data: Option<Phase>,
}

impl Command {
    pub(super) fn receiving(&self) -> bool {
        self.answer.is_some()
    }
}

impl<C: Card> Core<C> {
    /// When the command in CMD can be taken; [`Instant::NEVER`]: something else has to happen first.
    pub(super) fn take_at(&self) -> Instant {
        let c = self.r.cmd;
        if !self.pending || self.stuck_start || self.command.is_some() || self.auto_due {
            return Instant::NEVER;
        }
        let update = c & cmd::UPDATE_CLOCK != 0;
        let volt = c & cmd::VOLT_SWITCH != 0;
        // Q16: between CMD11 and the release of the lines an update without bit 28 wedges.
        if (!update && self.card_hz() == 0) || (update && self.volt.is_some() && !volt) {
            return Instant::NEVER;
        }
        if c & cmd::WAIT_DATA == 0 || volt {
            return self.t;
        }
        if self.data.is_some() {
            return Instant::NEVER;
        }
        if self.cfg.held_waits_for_busy { self.dat0_until().max(self.t) } else { self.t }
    }

    /// CMD was written with START.
    pub(super) fn command_start(&mut self) {
        if self.faults.lose_command {
            self.faults.lose_command = false;
            self.r.cmd &= !cmd::START;
            self.raise(int::HLE);
            return;
        }
        self.pending = true;
        let odd = self.r.cmd & (cmd::STREAM | cmd::CE_ATA | cmd::BOOT);
        if odd != 0 {
            self.violation(format!("CMD asks for stream, CE-ATA or boot ({odd:#x}), which are not modelled"));
        }
        if self.r.cmd & cmd::UPDATE_CLOCK == 0 && self.card_hz() == 0 {
            self.violation(format!("CMD{} sent with the card clock off", self.r.cmd & cmd::INDEX));
        }
    }

    /// The card side takes the command in CMD.
    pub(super) fn command_take(&mut self) {
        let raw = self.r.cmd;
        if raw & cmd::UPDATE_CLOCK != 0 {
            self.pending = false;
            self.r.cmd &= !cmd::START;
            self.ciu.clkdiv = self.r.clkdiv;
            self.ciu.clksrc = self.r.clksrc;
            self.ciu.clkena = self.r.clkena;
            self.bus_changed();
            self.volt_clock(raw);
            if self.cfg.update_raises_done {
                self.raise(int::CDONE);
            }
            return;
        }
        self.faults.strike(raw & cmd::DATA != 0, raw & cmd::WRITE != 0);
        if self.faults.has(Fault::StuckStart) {
            self.stuck_start = true;
            return;
        }
        self.pending = false;
        self.r.cmd &= !cmd::START;
        self.ciu.tmout = self.r.tmout;
        self.ciu.ctype = self.r.ctype;
        self.ciu.blksiz = self.r.blksiz;
        self.ciu.bytcnt = self.r.bytcnt;
        self.bus_changed();
        self.counters.commands += 1;
        let init = raw & cmd::INIT != 0;
        if self.connected() && self.first_command {
            self.first_command = false;
            self.card.idle_clocks(self.clocks_so_far().saturating_add(if init { 80 } else { 0 }));
        } else if self.connected() && init {
            self.card.idle_clocks(80);
        }
        self.send(raw, self.r.cmdarg, false, init);
    }

    /// Card clocks since supply and clock are on; 0 where low power stops the clock between commands.
    fn clocks_so_far(&self) -> u32 {
        if self.ciu.clkena >> 16 & 1 != 0 {
            return 0;
        }
        let ns = u128::from((self.t - self.clock_since).as_nanos());
        u32::try_from(ns * u128::from(self.card_hz()) / 1_000_000_000).unwrap_or(u32::MAX)
    }

    /// The automatic CMD12.
    pub(super) fn auto_stop(&mut self) {
        self.auto_due = false;
        self.counters.commands += 1;
        let raw = 12 | cmd::RESPONSE | cmd::CHECK_CRC;
        self.faults.strike(false, false);
        self.send(raw, 0, true, false);
    }

    fn send(&mut self, raw: u32, arg: u32, auto: bool, init: bool) {
        let until = self.t + self.wire().clocks(Wire::command_clocks(init));
        self.command = Some(Command { raw, arg, auto, until, answer: None });
    }

    /// The end of the frame or of the response of the command on the wire.
    pub(super) fn command_step(&mut self) {
        let Some(c) = self.command.take() else { return };
        match c.answer {
            None => self.frame_end(c),
            Some(answer) => self.response_end(c, answer),
        }
    }

    fn frame_end(&mut self, mut c: Command) {
        let index = (c.raw & cmd::INDEX) as u8;
        let mut answer = Answer::default();
        if self.connected() && !self.faults.has(Fault::CommandLost) {
            answer = self.card.command(index, c.arg, self.t);
        }
        if c.raw & cmd::STOP_ABORT != 0
            && let Some(d) = self.data.as_mut().filter(|d| d.stage != Stage::Stopping)
        {
            d.frozen = true;
        }
        let mut late = 0;
        for f in &self.faults.command {
            match *f {
                Fault::NoResponse => answer.response = None,
                Fault::ResponseDelay(n) => late = u64::from(n),
                Fault::ResponseCrc => corrupt(&mut answer.response, true, 0x02),
                Fault::ResponseEndBit => corrupt(&mut answer.response, true, 0x01),
                Fault::ResponseIndex => corrupt(&mut answer.response, false, 0x01),
                _ => {}
            }
        }
        if answer.response.is_some() && !self.samples_right() {
            corrupt(&mut answer.response, true, 0x02);
        }
        let clocks = match answer.response {
            _ if c.raw & cmd::RESPONSE == 0 => 0,
            Some(_) if Wire::N_CR + late > u64::from(self.ciu.tmout & 0xff) => {
                answer.response = None;
                u64::from(self.ciu.tmout & 0xff)
            }
            Some(Bits::Short(_)) => Wire::response_clocks(Response::Short, true) + late,
            Some(Bits::Long(_)) => Wire::response_clocks(Response::Long, true) + late,
            None => u64::from(self.ciu.tmout & 0xff),
        };
        c.until = self.t + self.wire().clocks(clocks);
        c.answer = Some(Outcome { response: answer.response, data: answer.data });
        self.command = Some(c);
    }

    fn response_end(&mut self, c: Command, answer: Outcome) {
        let mut errors = 0;
        if c.raw & cmd::RESPONSE != 0 {
            errors = match answer.response {
                None => int::RTO,
                Some(bits) => self.receive(&c, bits),
            };
        }
        let data = c.raw & cmd::DATA != 0 && !c.auto;
        let volt = c.raw & cmd::VOLT_SWITCH != 0 && errors == 0 && answer.response.is_some();
        if volt {
            let at = self.t + Duration::from_nanos(self.cfg.volt_low_ns);
            let stuck = std::mem::take(&mut self.faults.stuck_volt);
            self.volt =
                Some(Volt { low_at: at, off_since: None, release_at: Instant::NEVER, stuck, tries: 0 });
        } else if !self.faults.has(Fault::SwallowCommandDone) {
            let done = if c.auto { int::ACD } else { int::CDONE };
            let later = self.t + self.wire().clocks(8);
            match self.cfg.error_order {
                ErrorOrder::Same => self.raise(done | errors),
                ErrorOrder::Before if errors != 0 => {
                    self.raise(errors);
                    self.late.push((later, done));
                }
                ErrorOrder::After if errors != 0 => {
                    self.raise(done);
                    self.late.push((later, errors));
                }
                _ => self.raise(done),
            }
        }
        if c.auto {
            if self.data.as_ref().is_some_and(|d| d.stage == Stage::Stopping) {
                self.data_over(self.t);
            }
            self.busy_fault();
            return;
        }
        if c.raw & cmd::STOP_ABORT != 0 && self.data.as_ref().is_some_and(|d| d.frozen) {
            self.data_abort();
        }
        if data && errors & int::RTO == 0 && (errors == 0 || self.cfg.data_after_response_error) {
            if self.data.is_some() {
                self.violation("a data command was sent while another data phase was running".into());
            }
            self.data_start(c.raw, answer.data, errors != 0);
        } else {
            if data && self.idmac_enabled() {
                self.raise_id(idsts::CES);
            }
            self.busy_fault();
        }
        self.watch_busy();
    }

    /// Puts a response into the registers; its errors.
    fn receive(&mut self, c: &Command, bits: Bits) -> u32 {
        let long = c.raw & cmd::LONG != 0;
        let check = c.raw & cmd::CHECK_CRC != 0;
        let mut errors = 0;
        let (first, crc_ok, end) = match bits {
            Bits::Short(b) => {
                let word = u32::from_be_bytes([b[1], b[2], b[3], b[4]]);
                let at = usize::from(c.auto);
                if !long {
                    self.r.resp[at] = word;
                }
                (b[0], crc7(&b[..5]) == b[5] >> 1, b[5] & 1)
            }
            Bits::Long(b) => {
                if long {
                    for (i, w) in b[1..].chunks_exact(4).enumerate() {
                        self.r.resp[3 - i] = u32::from_be_bytes([w[0], w[1], w[2], w[3]]);
                    }
                }
                (b[0], crc7(&b[1..16]) == b[16] >> 1, b[16] & 1)
            }
        };
        self.response_index = (first & 0x3f).into();
        let expected = if long { 0x3f } else { (c.raw & cmd::INDEX) as u8 };
        // R3 and its like carry ones for index and CRC.
        let index_ok = first & 0x3f == expected || (!check && first & 0x3f == 0x3f);
        if long != matches!(bits, Bits::Long(_)) || first & 0xc0 != 0 || !index_ok || end == 0 {
            errors |= int::RE;
        }
        if check && !crc_ok {
            errors |= int::RCRC;
        }
        errors
    }

    /// A clock update during a voltage switch.
    fn volt_clock(&mut self, raw: u32) {
        let on = self.ciu.clkena & 1 != 0;
        let (t, strict) = (self.t, self.cfg.strict_volt_switch);
        let Some(v) = self.volt.as_mut().filter(|_| raw & cmd::VOLT_SWITCH != 0) else { return };
        match (on, v.off_since) {
            (false, None) => v.off_since = Some(t),
            (true, Some(since)) => {
                v.off_since = None;
                if !v.stuck && (!strict || t - since >= Duration::from_millis(5)) {
                    v.release_at = t + Duration::from_nanos(self.cfg.volt_release_ns);
                } else {
                    v.stuck = true;
                }
            }
            _ => {}
        }
    }

    /// DAT0 is low after this command, by a fault.
    fn busy_fault(&mut self) {
        for f in &self.faults.command {
            if let Fault::Busy(d) = *f {
                self.hold_dat0 = self.t + d;
            }
        }
    }

    /// DAT0 is low after this data phase, by a fault.
    pub(super) fn busy_fault_data(&mut self, t: Instant) {
        for f in &self.faults.data {
            if let Fault::Busy(d) = *f {
                self.hold_dat0 = t + d;
            }
        }
        self.watch_busy();
    }

    /// The earliest instant at which the command on the wire can raise a bit.
    pub(super) fn command_event(&self) -> Instant {
        let Some(c) = self.command else { return Instant::NEVER };
        if c.answer.is_some() || c.raw & cmd::RESPONSE == 0 {
            return c.until;
        }
        let shortest = Wire::response_clocks(Response::Short, true).min((self.ciu.tmout & 0xff).into());
        c.until + self.wire().clocks(shortest)
    }
}

/// Flips bits of the last or the first byte of a response.
fn corrupt(response: &mut Option<Bits>, last: bool, flip: u8) {
    let byte = match response {
        Some(Bits::Short(b)) if last => &mut b[5],
        Some(Bits::Long(b)) if last => &mut b[16],
        Some(Bits::Short(b)) => &mut b[0],
        Some(Bits::Long(b)) => &mut b[0],
        None => return,
    };
    *byte ^= flip;
}
