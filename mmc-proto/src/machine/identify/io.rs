//! SDIO: CMD5 and the CCCR (`spec/card.md` §15).

use super::{Acmd, Family, Identify, IdentifyCause, IoFound, Out, State, TRIES};
use crate::command::Command;
use crate::host::{Cause, HostError, Reply};
use crate::machine::Step;
use crate::machine::transfer::COMMAND_LIMIT;
use crate::register::Ocr;
use crate::register::sdio::Cccr;
use crate::response::{R4, R5};
use mmc_time::Instant;

impl Identify {
    /// The first CMD5, which only asks.
    pub(super) fn ask_io(&mut self) -> Step<Out> {
        self.tries = 0;
        self.io_op_cond(0)
    }
    /// CMD5; a window of 0 only asks.
    pub(super) fn io_op_cond(&mut self, window: u32) -> Step<Out> {
        self.go(State::IoOpCond, Command::io_send_op_cond(window), COMMAND_LIMIT)
    }
    /// There is no I/O part, or none that can be used: on to memory.
    fn no_io(&mut self) -> Step<Out> {
        (self.tries, self.polls, self.power_up_by, self.io) = (0, 0, None, None);
        self.app(Acmd::OpCond)
    }
    pub(super) fn io_op_cond_failed(&mut self, e: HostError, now: Instant) -> Step<Out> {
        if self.io.is_none() {
            return if e.cause != Cause::Timeout && self.try_again() {
                self.io_op_cond(0)
            } else {
                self.no_io()
            };
        }
        match self.poll_again(State::IoPause, now) {
            Some(step) => step,
            None => self.io_never_ready(),
        }
    }
    fn io_never_ready(&mut self) -> Step<Out> {
        if self.io.is_some_and(|io| io.memory) { self.no_io() } else { self.never_ready() }
    }
    pub(super) fn io_op_cond_done(&mut self, reply: &Reply, now: Instant) -> Step<Out> {
        let r4 = R4::from(reply);
        let first = self.io.is_none();
        if r4.functions() == 0 {
            return self.no_io();
        }
        let window = r4.ocr().window();
        if window & self.window() == 0 {
            return if r4.memory() { self.no_io() } else { self.no_voltage(window) };
        }
        self.answered = true;
        self.ocr = Ocr(reply.words.first().copied().unwrap_or(0));
        let (functions, memory) = (r4.functions(), r4.memory());
        self.io = Some(IoFound { functions, memory, cccr: [0; Cccr::LEN] });
        if first {
            // What came was the answer to a question only.
            return self.io_op_cond(self.window());
        }
        if !r4.ready() {
            return match self.poll_again(State::IoPause, now) {
                Some(step) => step,
                None => self.io_never_ready(),
            };
        }
        self.tries = 0;
        if memory {
            (self.polls, self.power_up_by, self.answered) = (0, None, false);
            return self.app(Acmd::OpCond);
        }
        self.family = Family::Io;
        self.address()
    }

    /// The CCCR that was read.
    pub(super) fn cccr(&self) -> Option<Cccr> {
        self.io.and_then(|io| Cccr::parse(&io.cccr).ok())
    }
    /// The CCCR, byte by byte.
    pub(super) fn io_register(&mut self, at: u8) -> Step<Out> {
        let command = Command::io_read_direct(0, at.into());
        self.go(State::IoRegister(at), command, COMMAND_LIMIT)
    }
    pub(super) fn io_register_done(&mut self, at: u8, reply: &Reply) -> Step<Out> {
        let r5 = R5::from(reply);
        if r5.errors() != 0 {
            return self.io_register_failed(at, IdentifyCause::Card);
        }
        self.tries = 0;
        if let Some(byte) = self.io.as_mut().and_then(|io| io.cccr.get_mut(usize::from(at))) {
            *byte = r5.data();
        }
        let next = at.saturating_add(1);
        if usize::from(next) < Cccr::LEN {
            return self.io_register(next);
        }
        match self.cccr().map(|cccr| cccr.check()) {
            Some(Err(e)) if self.family == Family::Io => self.end(IdentifyCause::Register(e), None),
            Some(Ok(())) => self.climb(),
            _ => {
                self.io = None;
                self.climb()
            }
        }
    }
    pub(super) fn io_register_failed(&mut self, at: u8, cause: IdentifyCause) -> Step<Out> {
        self.tries = self.tries.saturating_add(1);
        if self.tries < TRIES {
            self.io_register(at)
        } else if self.family == Family::Io {
            self.restart(cause, None)
        } else {
            // A combo card's memory is good without its I/O.
            self.io = None;
            self.climb()
        }
    }
}
