//! SD memory: CMD55 and ACMD41 to the SCR (`spec/card.md` §13.1, §13.2).

use super::{ALL_TRIES, Acmd, Family, Identify, IdentifyCause, Out, POWER_UP_LIMIT, SD_TRIES, State, Then};
use crate::bus::Signal;
use crate::command::Command;
use crate::host::{Cause, HostError, Reply};
use crate::machine::Step;
use crate::machine::reply::{HARD_ERRORS, REGISTER_LIMIT, register};
use crate::machine::transfer::{COMMAND_LIMIT, status_of};
use crate::register::{CrcPolicy, Csd, Ocr, Scr};
use crate::status::CardStatus;
use mmc_time::Instant;

/// Bits of ACMD41's argument: sector addresses, more than 2 TB, 1.8 V signalling.
const HCS: u32 = 1 << 30;
const HO2T: u32 = 1 << 27;
const S18R: u32 = 1 << 24;

impl Identify {
    pub(super) fn app(&mut self, acmd: Acmd) -> Step<Out> {
        self.go(State::App(acmd), Command::app_cmd(self.rca), COMMAND_LIMIT)
    }

    /// What the host can do, of which only a card that answered CMD8 may hear. A combo card stays at 3.3 V.
    fn request(&self) -> u32 {
        let mut arg = self.window();
        if self.v2 {
            arg |= HCS | HO2T;
            if self.asks_v1_8() {
                arg |= S18R;
            }
        }
        arg
    }
    fn asks_v1_8(&self) -> bool {
        self.uhs && self.v2 && self.io.is_none()
    }

    pub(super) fn app_done(&mut self, acmd: Acmd, status: CardStatus, now: Instant) -> Step<Out> {
        if !status.contains(CardStatus::APP_CMD) {
            return self.acmd_failed(acmd, None, Some(status), now);
        }
        match acmd {
            Acmd::OpCond => {
                // The standard counts from the first ACMD41.
                self.power_up_by.get_or_insert(now + POWER_UP_LIMIT);
                let command = Command::acmd_sd_send_op_cond(self.request());
                self.go(State::Acmd(acmd), command, COMMAND_LIMIT)
            }
            Acmd::Scr => self.go(State::Acmd(acmd), Command::acmd_send_scr(), REGISTER_LIMIT),
        }
    }

    /// ACMD41 brought nothing yet: once more, until the limit.
    fn op_cond_again(&mut self, now: Instant) -> Step<Out> {
        match self.poll_again(State::OpCondPause, now) {
            Some(step) => step,
            None => self.memory_never_ready(),
        }
    }
    /// A combo card's I/O is good without its memory.
    fn memory_never_ready(&mut self) -> Step<Out> {
        if self.io.is_some() {
            self.family = Family::Io;
            self.tries = 0;
            return self.address();
        }
        self.never_ready()
    }

    pub(super) fn op_cond(&mut self, reply: &Reply, now: Instant) -> Step<Out> {
        let [word, ..] = reply.words;
        self.ocr = Ocr(word);
        self.answered = true;
        self.silent = 0;
        if self.ocr.check().is_err() || !self.ocr.power_up() {
            return self.op_cond_again(now);
        }
        if self.ocr.window() & self.window() == 0 {
            return self.no_voltage(self.ocr.window());
        }
        if self.asks_v1_8() && self.ocr.s18a() && self.bus.signal == Signal::V3_3 {
            return self.go(State::Voltage, Command::voltage_switch(), COMMAND_LIMIT);
        }
        self.all_send_cid()
    }

    /// A CMD55 or its application command failed: on the bus (`host`), or by the card's own word (`status`).
    pub(super) fn acmd_failed(
        &mut self,
        acmd: Acmd,
        host: Option<HostError>,
        status: Option<CardStatus>,
        now: Instant,
    ) -> Step<Out> {
        let sent = matches!(self.state, State::Acmd(_));
        if acmd == Acmd::OpCond {
            self.silent = self.silent.saturating_add(1);
            // A card that answered CMD8 is an SD card, however cold: it gets all of its two seconds.
            if self.v2 || self.answered {
                return self.op_cond_again(now);
            }
            if self.silent >= SD_TRIES && !self.mmc_tried {
                return self.mmc_op_cond();
            }
            if self.silent < ALL_TRIES {
                return self.op_cond_again(now);
            }
            if self.io.is_some() {
                return self.memory_never_ready();
            }
            return match host {
                Some(e) if e.cause != Cause::Timeout => self.end(IdentifyCause::Host(e), None),
                Some(_) => self.end(IdentifyCause::NoAnswer, None),
                None => self.end(IdentifyCause::NotSd("CMD55 is not taken as APP_CMD"), status),
            };
        }
        let again = self.try_again();
        if !sent && again {
            return self.app(acmd);
        }
        self.settle(if sent && again { Then::Scr } else { Then::AfterScr })
    }

    pub(super) fn take_csd(&mut self, reply: &Reply) -> Result<(), IdentifyCause> {
        self.csd = Csd::from_words(reply.words);
        self.csd.check(CrcPolicy::Host).map_err(IdentifyCause::Register)?;
        if self.csd.byte_addressed() == self.ocr.ccs() {
            return Err(IdentifyCause::Addressing);
        }
        Ok(())
    }

    pub(super) fn scr_done(&mut self, reply: &Reply, scratch: &[u8], now: Instant) -> Step<Out> {
        let status = status_of(reply);
        let scr = register(reply, scratch).map(Scr::new);
        match scr.filter(|scr| !status.intersects(HARD_ERRORS) && scr.check().is_ok()) {
            Some(scr) => {
                self.scr = Some(scr);
                self.after_scr()
            }
            None => self.acmd_failed(Acmd::Scr, None, Some(status), now),
        }
    }
    /// With or without the SCR.
    pub(super) fn after_scr(&mut self) -> Step<Out> {
        self.tries = 0;
        if self.io.is_some() { self.io_register(0) } else { self.climb() }
    }
}
