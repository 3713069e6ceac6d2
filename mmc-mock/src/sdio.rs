//! Any card on the bus that embassy's `sdio` crate asks for: its `MmcBus`, in virtual time.
//!
//! It is not an executor: every future is ready at its first poll, the clock has moved on by then. Byte mode (CMD53),
//! 1.8 V and eight lines are not there.

use crate::card::{Card, Phase, Sent, Token};
use crate::clock::Clock;
use crate::drive::{Bound, Spent, Watch};
use crate::host::{DATA_TIMEOUT, check};
use crate::wire::Wire;
use embedded_hal_async::delay::DelayNs;
use mmc_proto::command::Response as Kind;
use mmc_proto::host::Cause;
use mmc_time::{Duration, Instant};
use sdio::{
    BlockReadCommand, BlockWriteCommand, BusWidth, ByteReadCommand, ByteWriteCommand, Command,
    ControlCommand, MmcBus, MmcError, Response, ResponseLen,
};

/// How long this bus waits for DAT0: what Linux allows a write.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

/// A bus with a card on it: four lines, up to 50 MHz, 3.3 V. Keep a clone of a [`Shared`](crate::card::Shared) card
/// as a back door.
///
/// A silent card is `MmcError::Timeout`, as are blocks that do not come or are not acknowledged; a wrong CRC is `Crc`, a malformed
/// response `Io`, DAT0 low for longer than [`BUSY_TIMEOUT`] `Busy`; beyond the bound of [`bounded`](Self::bounded) every call is
/// `Other`.
#[derive(Debug)]
pub struct SdioBus<C> {
    card: C,
    clock: Clock,
    wire: Wire,
    watch: Option<Watch>,
}

/// A delay in virtual time.
#[derive(Clone, Debug)]
pub struct SdioDelay(pub Clock);

impl DelayNs for SdioDelay {
    async fn delay_ns(&mut self, ns: u32) {
        self.0.advance(Duration::from_nanos(ns.into()));
    }
}

impl<C: Card> SdioBus<C> {
    /// Puts `card` on a bus whose clock stands still until the driver starts it.
    #[must_use]
    pub fn new(card: C, clock: Clock) -> Self {
        Self { card, clock, wire: Wire { hz: 0, lines: 1 }, watch: None }
    }
    /// From now on the user of this bus has `bound.time` and `bound.steps` commands.
    pub fn bounded(&mut self, bound: Bound) {
        self.watch = Some(Watch::new(bound, self.clock.now()));
    }
    /// What was used since [`bounded`](Self::bounded); nothing without it.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.watch.map(|w| w.spent(self.clock.now())).unwrap_or_default()
    }
    /// Clock and lines in use.
    #[must_use]
    pub fn wire(&self) -> Wire {
        self.wire
    }

    fn pass(&self, clocks: u64) {
        self.clock.advance(self.wire.clocks(clocks));
    }
    /// A command and its response.
    fn exchange<R: Response>(&mut self, index: u8, arg: u32) -> Result<([u32; 4], Option<Phase>), MmcError> {
        if self.wire.hz == 0 {
            return Err(MmcError::Io);
        }
        let now = self.clock.now();
        if let Some(watch) = &mut self.watch {
            watch.step(now).and_then(|()| watch.wait(now, now)).map_err(|_| MmcError::Other)?;
        }
        let kind = match (R::LEN, R::CRC) {
            (ResponseLen::Zero, _) => Kind::None,
            (ResponseLen::R136, _) => Kind::Long,
            (ResponseLen::R48, true) => Kind::Short,
            (ResponseLen::R48, false) => Kind::ShortNoCrc,
        };
        self.pass(Wire::command_clocks(false));
        let answer = self.card.command(index, arg, self.clock.now());
        self.pass(Wire::response_clocks(kind, answer.response.is_some()));
        match (kind, answer.response) {
            (Kind::None, _) => Ok(([0; 4], None)),
            (_, None) => Err(MmcError::Timeout),
            (kind, Some(bits)) => match check(kind, index, &bits) {
                // That crate numbers the words of a long response from its end.
                Ok([a, b, c, d]) if kind == Kind::Long => Ok(([d, c, b, a], answer.data)),
                Ok(words) => Ok((words, answer.data)),
                Err(Cause::Crc) => Err(MmcError::Crc),
                Err(_) => Err(MmcError::Io),
            },
        }
    }
    /// Waits until the card lets go of DAT0.
    fn settle(&self) -> Result<(), MmcError> {
        let (now, until) = (self.clock.now(), self.card.busy_until(self.clock.now()));
        self.clock.advance_to(until.min(now + BUSY_TIMEOUT));
        if until > now + BUSY_TIMEOUT { Err(MmcError::Busy) } else { Ok(()) }
    }
    /// Waits for what does not come.
    fn time_out(&self) -> MmcError {
        self.clock.advance(DATA_TIMEOUT);
        MmcError::Timeout
    }
    /// The end of a data phase of `n` blocks, if it was opened as it should.
    fn phase(&self, phase: Option<Phase>, read: bool, len: usize, n: u32) -> Result<Instant, MmcError> {
        let now = self.clock.now();
        let (Some(p), Some(last)) = (phase, n.checked_sub(1)) else { return Err(self.time_out()) };
        let ready = self.card.ready(last);
        let late = self.card.ready(0).since(now) > DATA_TIMEOUT;
        if p.read != read || usize::from(p.block_len) != len || ready.is_never() || late {
            return Err(self.time_out());
        }
        Ok(match read {
            true => self.wire.read_end(now, n, p.block_len, ready),
            false => self.wire.write_end(now, n, p.block_len, ready),
        })
    }
    /// CMD12.
    fn stop(&mut self) -> Result<(), MmcError> {
        self.exchange::<sdio::R1b>(12, 0)?;
        self.settle()
    }
}

/// The parts of a block command that matter to a bus.
fn shape<C: Command>(cmd: &C) -> (u8, u32) {
    (cmd.index() & 63, cmd.arg())
}

impl<C: Card> MmcBus for SdioBus<C> {
    async fn send_command<'a, T: ControlCommand + 'a>(&mut self, cmd: T) -> Result<T::Resp<'a>, MmcError> {
        let (index, arg) = shape(&cmd);
        let (words, _) = self.exchange::<T::Resp<'a>>(index, arg)?;
        if <T::Resp<'a> as Response>::BUSY {
            self.settle()?;
        }
        Ok(T::Resp::from_words(&words))
    }

    async fn read_blocks<'a, T: BlockReadCommand + 'a>(
        &mut self,
        mut cmd: T,
        auto_stop: bool,
    ) -> Result<T::Resp<'a>, MmcError> {
        let ((index, arg), len, n) = (shape(&cmd), cmd.block_size().len(), cmd.block_count());
        let (words, phase) = self.exchange::<T::Resp<'a>>(index, arg)?;
        let end = self.phase(phase, true, len, n)?;
        self.clock.advance_to(end);
        let mut result = Ok(());
        for block in cmd.buf().chunks_exact_mut(len.max(1)).take(n as usize) {
            match self.card.send(block, end) {
                Sent::Good => {}
                Sent::BadCrc => result = Err(MmcError::Crc),
                Sent::Nothing => return Err(self.time_out()),
            }
        }
        result?;
        if auto_stop {
            self.stop()?;
        }
        Ok(T::Resp::from_words(&words))
    }

    async fn write_blocks<'a, T: BlockWriteCommand + 'a>(
        &mut self,
        cmd: T,
        auto_stop: bool,
    ) -> Result<T::Resp<'a>, MmcError> {
        let ((index, arg), len, n) = (shape(&cmd), cmd.block_size().len(), cmd.block_count());
        let (words, phase) = self.exchange::<T::Resp<'a>>(index, arg)?;
        let end = self.phase(phase, false, len, n)?;
        self.clock.advance_to(end);
        for block in cmd.buf().chunks_exact(len.max(1)).take(n as usize) {
            match self.card.take(block, true, end) {
                Token::Accepted => {}
                Token::CrcError => return Err(MmcError::Crc),
                Token::Nothing => return Err(self.time_out()),
            }
        }
        if auto_stop {
            self.stop()?;
        }
        self.settle()?;
        Ok(T::Resp::from_words(&words))
    }

    async fn read_bytes<'a, T: ByteReadCommand + 'a>(&mut self, _: T) -> Result<T::Resp<'a>, MmcError> {
        Err(MmcError::Unsupported)
    }
    async fn write_bytes<'a, T: ByteWriteCommand + 'a>(&mut self, _: T) -> Result<T::Resp<'a>, MmcError> {
        Err(MmcError::Unsupported)
    }
    /// Cycles the supply; 80 clocks.
    async fn init_idle(&mut self, hz: u32) -> Result<(), MmcError> {
        self.card.power(false, self.clock.now());
        self.card.power(true, self.clock.now());
        self.set_bus(BusWidth::W1, hz)?;
        self.card.idle_clocks(80);
        self.pass(80);
        Ok(())
    }
    fn set_bus(&mut self, width: BusWidth, hz: u32) -> Result<(), MmcError> {
        let lines = match width {
            BusWidth::W1 => 1,
            BusWidth::W4 => 4,
            BusWidth::W8 => return Err(MmcError::BusWidth),
        };
        self.wire = Wire { hz: hz.min(self.supports_frequency()), lines };
        self.card.bus(self.wire.hz, lines, self.clock.now());
        Ok(())
    }
    fn supports_mmc(&self) -> bool {
        true
    }
    fn supports_bus_width(&self) -> BusWidth {
        BusWidth::W4
    }
    fn supports_frequency(&self) -> u32 {
        50_000_000
    }
}
