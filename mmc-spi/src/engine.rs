//! The engine: wires, board and line together.

use crate::board::Board;
use crate::line::{Io, Line};
use crate::wires::{BusFault, Wires};
use core::marker::PhantomData;
use mmc_hal::Payload;
use mmc_proto::bus::{BusConfig, Power, Signal, Timings, Width};
use mmc_proto::command::Command;
use mmc_proto::host::{Capabilities, Cause, Engine, Failure, Lease, Phase, Reply, Slot, Supervised, Why};
use mmc_time::{Duration, Instant};

/// How long the engine may take to stop after an error or a limit: it stops at once.
pub const GRACE: Duration = Duration::from_millis(1);
/// One `poll` ends with the exchange that brings it to so many bytes.
pub const POLL_BYTES: usize = 512;
/// Exchanges of one `poll`, whatever their length.
const EXCHANGES: u8 = 16;
/// The fastest clock of an MMC in SPI mode (`spec/card.md` §16).
const MMC_HZ: u32 = 20_000_000;
/// The fastest clock of an SD card in SPI mode without CMD6.
const SD_HZ: u32 = 25_000_000;

/// What a card on SPI can be asked for, on a bus that makes at most `max_hz`.
pub(crate) const fn capabilities(max_hz: u32) -> Capabilities {
    let mut caps = Capabilities::new();
    caps.max_segments = u16::MAX;
    caps.min_hz = 100_000;
    caps.max_hz = if max_hz < SD_HZ { max_hz } else { SD_HZ };
    caps.timings = Timings::default_only();
    caps.auto_stop = true;
    caps
}

/// Sets the clock for `bus`.
pub(crate) fn set_bus(
    board: &mut impl Board,
    caps: &Capabilities,
    mmc: bool,
    bus: &BusConfig,
) -> Result<(), Cause> {
    if bus.width != Width::One || bus.signal != Signal::V3_3 || !caps.timings.has(bus.timing) {
        return Err(Cause::Unsupported("SPI has one line, 3.3 V and default speed"));
    }
    // A clock of 0 asks for silence, which there is between commands anyway.
    if bus.hz > 0 {
        board.set_clock(bus.hz.min(if mmc { MMC_HZ } else { SD_HZ }).min(caps.max_hz));
    }
    Ok(())
}

/// A card on SPI wires as an [`Engine`]; [`host`](Self::host) makes a `Host` of it.
#[derive(Debug)]
pub struct SpiEngine<W, B, P> {
    wires: W,
    board: B,
    line: Line,
    caps: Capabilities,
    /// A bus or power operation, which is done as soon as it is asked for.
    at_once: bool,
    at: Instant,
    phase: Phase,
    present: Option<bool>,
    changes: u32,
    payload: PhantomData<fn(P)>,
}

impl<W: Wires, B: Board, P: Payload> SpiEngine<W, B, P> {
    /// A host for the card behind `wires`, whose bus makes at most `max_hz`.
    ///
    /// It stops CMD18 and CMD25 by itself, whatever the number of blocks, knows one line and default speed, takes payloads
    /// of any number of segments of any length, and moves up to 65,535 blocks per command.
    pub fn host(wires: W, board: B, max_hz: u32) -> Supervised<Self> {
        let engine = Self {
            wires,
            board,
            line: Line::new(W::HOLDS),
            caps: capabilities(max_hz),
            at_once: false,
            at: Instant::ZERO,
            phase: Phase::Command,
            present: None,
            changes: 0,
            payload: PhantomData,
        };
        Supervised::new(engine, GRACE)
    }
    /// The card checks the CRC of commands and blocks, and its own are checked; off only for a card that refused CMD59.
    #[must_use]
    pub const fn checks_crc(&self) -> bool {
        self.line.checked()
    }

    fn gone(&mut self) -> bool {
        let present = self.board.present();
        if let (Some(now), Some(before)) = (present, self.present) {
            self.changes = self.changes.wrapping_add(u32::from(now != before));
        }
        if present != self.present && present.is_some() {
            // Another card, or none: it has heard nothing of what was said.
            if self.present.is_some() {
                self.line.forget();
            }
            self.present = present;
        }
        present == Some(false)
    }
    fn exchange(&mut self, io: Io) -> Result<usize, BusFault> {
        match io {
            Io::Exchange { from, middle, pause, to } => {
                let (head, body) = self.line.window(from, middle, to);
                self.wires.exchange(head, pause, body)?;
                Ok(to.saturating_sub(from))
            }
            Io::Release => self.wires.release().map(|()| 1),
            Io::Clocks => self.wires.start_up().map(|()| 10),
            Io::Wait(_) | Io::Done(_) => Ok(0),
        }
    }
}

impl<W: Wires, B: Board, P: Payload> Engine for SpiEngine<W, B, P> {
    type Payload = P;

    fn capabilities(&self) -> Capabilities {
        self.caps
    }
    fn start(&mut self, cmd: &Command, data: Option<Lease<'_, P>>, now: Instant) -> Result<(), Cause> {
        if self.gone() {
            return Err(Cause::NoCard);
        }
        self.line.start(cmd, now)?;
        (self.at, self.at_once) = (now, false);
        self.phase = if data.is_some() { Phase::Data } else { Phase::Command };
        Ok(())
    }
    fn set_bus(&mut self, bus: &BusConfig, now: Instant) -> Result<(), Cause> {
        set_bus(&mut self.board, &self.caps, self.line.mmc(), bus)?;
        (self.at, self.at_once) = (now, true);
        Ok(())
    }
    fn set_power(&mut self, power: Power, now: Instant) -> Result<(), Cause> {
        self.board.power(power == Power::On)?;
        self.line.forget();
        (self.at, self.at_once) = (now, true);
        Ok(())
    }
    fn advance(&mut self, data: Option<Lease<'_, P>>, now: Instant) -> Option<Result<Reply, Failure>> {
        if self.at_once {
            return Some(Ok(Reply::default()));
        }
        if self.gone() {
            return Some(Err((Cause::NoCard, self.phase).into()));
        }
        let mut data = data;
        let mut bytes = 0_usize;
        for _ in 0..EXCHANGES {
            if bytes >= POLL_BYTES {
                break;
            }
            let io = self.line.step(data.as_mut().map(Lease::get), now);
            match io {
                Io::Done(result) => return Some(result),
                Io::Wait(at) => {
                    self.at = at;
                    return None;
                }
                io => match self.exchange(io) {
                    Ok(n) => bytes = bytes.saturating_add(n),
                    Err(BusFault) => return Some(Err((Cause::Controller, self.phase).into())),
                },
            }
        }
        self.at = now;
        None
    }
    fn waits(&self, _: Instant) -> (Why, Instant) {
        (Why::Timer, self.at)
    }
    fn halt(&mut self, _: Instant) {
        if self.line.halt() {
            // What fails here fails again at the next command, and is told then.
            let _ = self.wires.release();
        }
    }
    fn halted(&mut self, _: Instant) -> bool {
        true
    }
    fn slot(&mut self, _: Instant) -> Slot {
        self.gone();
        let write_protected = self.board.write_protected();
        Slot { present: self.present, write_protected, changes: self.changes, ..Slot::default() }
    }
}
