//! One conversation at a time over an async SPI bus.

use crate::board::Board;
use crate::engine::{capabilities, set_bus};
use crate::line::{Io, Line};
use crate::wires::BusFault;
use embedded_hal::digital::OutputPin;
use embedded_hal_async::delay::DelayNs;
use embedded_hal_async::spi::SpiBus;
use mmc_hal::Payload;
use mmc_proto::bus::Power;
use mmc_proto::host::{Capabilities, Cause, HostError, Phase, Reply};
use mmc_proto::machine::{Action, Machine, Step};
use mmc_proto::spi::IDLE;
use mmc_time::{Duration, Instant};

/// A card alone on an async SPI bus.
///
/// It is no `Host`: a `Host` is polled, and `SpiBus` of `embedded-hal-async` is awaited. [`drive`] runs any machine of
/// `mmc-proto` over it.
#[derive(Debug)]
pub struct AsyncCard<S, C, B> {
    bus: S,
    select: C,
    board: B,
    line: Line,
    low: bool,
    caps: Capabilities,
}

impl<S: SpiBus, C: OutputPin, B: Board> AsyncCard<S, C, B> {
    /// `select` is chip select, low when active; `max_hz` as for [`SpiEngine::host`](crate::SpiEngine::host).
    pub fn new(bus: S, select: C, board: B, max_hz: u32) -> Self {
        Self { bus, select, board, line: Line::new(true), low: false, caps: capabilities(max_hz) }
    }
    /// What machines are made for.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.caps
    }

    async fn exchange(&mut self, io: Io) -> Result<(), BusFault> {
        match io {
            Io::Exchange { from, middle, to, .. } => {
                if !self.low {
                    self.select.set_low().map_err(|_| BusFault)?;
                    self.low = true;
                }
                let (head, body) = self.line.window(from, middle, to);
                for bytes in [head, body] {
                    if !bytes.is_empty() {
                        self.bus.transfer_in_place(bytes).await.map_err(|_| BusFault)?;
                    }
                }
            }
            Io::Release => {
                self.select.set_high().map_err(|_| BusFault)?;
                self.low = false;
                self.bus.write(&[IDLE]).await.map_err(|_| BusFault)?;
            }
            Io::Clocks => {
                self.select.set_high().map_err(|_| BusFault)?;
                self.low = false;
                self.bus.write(&[IDLE; 10]).await.map_err(|_| BusFault)?;
            }
            Io::Wait(_) | Io::Done(_) => {}
        }
        self.bus.flush().await.map_err(|_| BusFault)
    }

    async fn act<P: Payload, D: DelayNs, T: FnMut() -> Instant>(
        &mut self,
        action: &Action,
        payload: &mut P,
        delay: &mut D,
        now: &mut T,
    ) -> Result<Reply, HostError> {
        let index = action.command.index;
        let needs = action.command.data.map_or(0, |d| d.bytes());
        let error = |cause, phase| HostError::new(cause, phase, index);
        if (payload.bytes() as u64) < needs {
            return Err(error(Cause::Unsupported("a payload shorter than the data phase"), Phase::Submit));
        }
        if self.board.present() == Some(false) {
            return Err(error(Cause::NoCard, Phase::Submit));
        }
        let phase = if needs > 0 { Phase::Data } else { Phase::Command };
        let until = now() + action.limit;
        self.line.start(&action.command, now()).map_err(|cause| error(cause, Phase::Submit))?;
        loop {
            let io = self.line.step(Some(&mut *payload), now());
            let failed = match io {
                Io::Done(result) => {
                    return result.map_err(|f| HostError { cause: f.cause, phase: f.phase, index, r1: f.r1 });
                }
                Io::Wait(at) => {
                    let pause = at.min(until).since(now());
                    delay.delay_ns(u32::try_from(pause.as_nanos()).unwrap_or(u32::MAX)).await;
                    None
                }
                io => self.exchange(io).await.err().map(|BusFault| error(Cause::Controller, phase)),
            };
            let late = (now() >= until).then(|| error(Cause::Limit, phase));
            let gone = (self.board.present() == Some(false)).then(|| error(Cause::NoCard, phase));
            if let Some(e) = failed.or(gone).or(late) {
                // The card stays selected: what it may still do is stopped before the next command.
                self.line.halt();
                return Err(e);
            }
        }
    }
}

/// Holds one conversation with `card`: its outcome. `payload` as `Conductor::new` wants it: the caller's data, or scratch of
/// at least 512 bytes in one segment; it is only borrowed, for no device but the SPI bus ever sees it.
///
/// Dropped or forgotten halfway it leaves the card in the middle of something; the next conversation begins by stopping
/// that, as after any error.
pub async fn drive<M, S, C, B, P, D, T>(
    machine: &mut M,
    card: &mut AsyncCard<S, C, B>,
    payload: &mut P,
    delay: &mut D,
    mut now: T,
) -> M::Output
where
    M: Machine,
    S: SpiBus,
    C: OutputPin,
    B: Board,
    P: Payload,
    D: DelayNs,
    T: FnMut() -> Instant,
{
    // Of a conversation that was dropped.
    card.line.halt();
    let mut last = None;
    loop {
        let mut none: [u8; 0] = [];
        let scratch = if machine.scratch() { payload.segment_mut(0).unwrap_or(&mut none) } else { &mut none };
        let refused = |cause| HostError::new(cause, Phase::Submit, 255);
        last = match machine.next(last, scratch, now()) {
            Step::Done(output) => return output,
            Step::Do(action) => Some(card.act(&action, payload, delay, &mut now).await),
            Step::Sleep(time) => {
                sleep(delay, time).await;
                None
            }
            Step::Bus(bus) => {
                let done = set_bus(&mut card.board, &card.caps, card.line.mmc(), &bus);
                Some(done.map(|()| Reply::default()).map_err(refused))
            }
            Step::Power(power) => {
                let done = card.board.power(power == Power::On);
                card.line.forget();
                Some(done.map(|()| Reply::default()).map_err(refused))
            }
        };
    }
}

async fn sleep(delay: &mut impl DelayNs, time: Duration) {
    let mut left = time.as_nanos();
    while left > 0 {
        let part = u32::try_from(left).unwrap_or(u32::MAX);
        delay.delay_ns(part).await;
        left = left.saturating_sub(part.into());
    }
}
