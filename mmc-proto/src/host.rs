//! The one boundary between conversations and controllers.
//!
//! *For callers*: [`Host`] takes one operation at a time and gives exactly one completion for it, within the
//! limit the caller stated plus the host's own bounded stopping time. *For authors of a backend*: write the
//! small [`Engine`]; [`Supervised`] makes a [`Host`] of it and adds time limits, abort, quarantine and the
//! keeping of payloads, once for all.

mod supervised;

pub use supervised::Supervised;

use crate::bus::{BusConfig, Power};
use crate::command::Command;
use mmc_hal::Payload;
use mmc_time::Instant;

/// What can be asked of a host. One at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<P> {
    /// A command without data.
    Command(Command),
    /// A command with data; the payload is at least as long as the data phase and comes back.
    Transfer(Command, P),
    /// Change clock, width, timing or signal level.
    Bus(BusConfig),
    /// Switch the card's supply.
    Power(Power),
}

/// What a host can do, in plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Longest data phase in blocks of 512 bytes.
    pub max_blocks: u32,
    /// Most segments of one payload.
    pub max_segments: u16,
    /// Slowest card clock in Hz (at most 400 000 is needed for identification).
    pub min_hz: u32,
    /// Fastest card clock in Hz.
    pub max_hz: u32,
    /// Data lines wired to the card: 1, 4 or 8.
    pub width: crate::bus::Width,
    /// The start and length of every segment must be multiples of this many bytes.
    pub align: u16,
    /// Supply window as OCR bits 23:15 (bit 20 = 3.2–3.3 V, bit 21 = 3.3–3.4 V).
    pub ocr: u32,
    /// Bus timings it can drive.
    pub timings: crate::bus::Timings,
    /// It can signal with 1.8 V (UHS-I, HS200 and later, DDR52 at 1.8 V).
    pub v1_8: bool,
    /// How many sample points there are to choose from ([`BusConfig::sample`], spread over one clock period);
    /// 0: none, so no timing that needs tuning.
    pub sample_points: u16,
    /// It finds the sample point by itself when it gets a command with [`tuning`](Command::tuning), which ends with an error
    /// where there is none; `sample_points` is 1 then. It keeps the blocks; where it has nothing to find (DDR50) it reads the
    /// one block like any other.
    pub self_tuning: bool,
    /// It sends CMD12 by itself after the data when [`Stop::Auto`](crate::command::Stop::Auto) asks for it.
    pub auto_stop: bool,
    /// It sends CMD23 by itself before the data when [`Stop::Count`](crate::command::Stop::Count) asks for it.
    pub auto_count: bool,
}

impl Capabilities {
    /// A modest host: one line, 25 MHz, 3.2–3.4 V, one segment of 65,535 blocks; set the fields that differ.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            max_blocks: 65_535,
            max_segments: 1,
            min_hz: 400_000,
            max_hz: 25_000_000,
            width: crate::bus::Width::One,
            align: 1,
            ocr: 0x0030_0000,
            timings: crate::bus::Timings::new(),
            v1_8: false,
            sample_points: 0,
            self_tuning: false,
            auto_stop: false,
            auto_count: false,
        }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::new()
    }
}

/// What a finished operation brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Response bits. Short: `words[0]` holds bits 39:8. Long: `words[0]` holds bits 127:96 … `words[3]` bits
    /// 31:0 (the last byte, CRC and end bit, may be missing: zero). After [`Stop::Auto`](crate::command::Stop::Auto)
    /// `words[1]` holds bits 39:8 of the response to CMD12.
    pub words: [u32; 4],
    /// Bytes moved in the data phase.
    pub bytes: u64,
}

/// In which phase of an operation something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Before anything was sent.
    Submit,
    /// Sending the command, receiving the response.
    Command,
    /// Moving data.
    Data,
    /// Waiting for the card to let DAT0 go.
    Busy,
    /// Changing clock, width, voltage or power.
    Bus,
}

/// What went wrong, without saying where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// No response within 64 clocks, or no data within the controller's own limit.
    #[error("the card did not answer")]
    Timeout,
    /// The caller's limit passed.
    #[error("the time limit passed")]
    Limit,
    /// CRC7 of the response or CRC16 of the data did not match; for writes, the card said so.
    #[error("CRC error")]
    Crc,
    /// Start, end or transmission bit wrong, or the index of the response is not the command's.
    #[error("malformed response or data")]
    Framing,
    /// The card gave no CRC status after a written block.
    #[error("no CRC status from the card")]
    NoCrcStatus,
    /// The DMA unit met a bus error or a descriptor it cannot use.
    #[error("DMA error")]
    Dma,
    /// FIFO overrun, underrun or a command the controller dropped: the driver's or the controller's fault.
    #[error("the controller lost the operation")]
    Controller,
    /// The operation, its payload or its shape is not one this host can do.
    #[error("not possible on this host: {0}")]
    Unsupported(&'static str),
    /// Another operation is running.
    #[error("another operation is running")]
    Busy,
    /// The caller aborted it.
    #[error("aborted")]
    Aborted,
    /// There is no card in the slot.
    #[error("no card")]
    NoCard,
    /// The switch to another signal level failed: the card held its lines low, or never let them go. Only a power
    /// cycle helps (`spec/card.md` §13.2).
    #[error("the card did not follow the voltage switch")]
    VoltageSwitch,
}

/// An error of one operation: what, where, for which command. The first error wins; nothing replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{cause} ({phase:?} phase of CMD{index})")]
pub struct HostError {
    /// What went wrong.
    pub cause: Cause,
    /// Where.
    pub phase: Phase,
    /// Index of the command; 255 for bus and power operations.
    pub index: u8,
    /// Bits 39:8 of the command's short response, if one had come whole before the error: a card that refuses a
    /// data command answers and then sends nothing, so the reason of a data phase that never came is here.
    pub r1: Option<u32>,
}

impl HostError {
    /// An error without a response.
    #[must_use]
    pub const fn new(cause: Cause, phase: Phase, index: u8) -> Self {
        Self { cause, phase, index, r1: None }
    }
    /// Worth trying again as it is: noise, a lost answer, a dropped command.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.cause,
            Cause::Timeout
                | Cause::Crc
                | Cause::Framing
                | Cause::NoCrcStatus
                | Cause::Controller
                | Cause::Dma
        )
    }
    /// The card has left the slot.
    #[must_use]
    pub const fn media_gone(&self) -> bool {
        matches!(self.cause, Cause::NoCard)
    }
}

/// How an [`Engine`]'s operation failed; [`Supervised`] adds the command and makes a [`HostError`] of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// What went wrong.
    pub cause: Cause,
    /// Where.
    pub phase: Phase,
    /// Bits 39:8 of the short response, if one had come whole before (see [`HostError::r1`]).
    pub r1: Option<u32>,
}

impl From<(Cause, Phase)> for Failure {
    fn from((cause, phase): (Cause, Phase)) -> Self {
        Self { cause, phase, r1: None }
    }
}

/// Where the payload of a finished operation is.
#[derive(Debug, PartialEq, Eq)]
pub enum Returned<P> {
    /// There was none.
    None,
    /// Here.
    Back(P),
    /// Kept: the controller could not be stopped and may still write to it (`Supervised::reclaim`).
    Quarantined,
}

/// The end of one operation.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion<P> {
    /// What it brought.
    pub result: Result<Reply, HostError>,
    /// The payload.
    pub payload: Returned<P>,
}

/// Why a host has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// An interrupt will say; `until` is only the limit.
    Interrupt,
    /// Nothing will say: call `poll` again at `until`.
    Timer,
}

/// What `poll` found.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress<P> {
    /// Nothing is running.
    Idle,
    /// Still running; call again at `until` at the latest, and before if `why` is an interrupt and it came.
    Waiting {
        /// What will end the wait.
        why: Why,
        /// When to look again at the latest.
        until: Instant,
    },
    /// The operation ended.
    Done(Completion<P>),
}

/// A refused operation: nothing was started, all of it comes back.
pub struct SubmitError<P> {
    /// Why.
    pub error: HostError,
    /// What was submitted.
    pub operation: Operation<P>,
}

impl<P> core::fmt::Debug for SubmitError<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SubmitError").field("error", &self.error).finish_non_exhaustive()
    }
}

/// What the slot shows beside the operations, as far as the board has wires for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// A card is in the slot (debounced); `None`: nothing tells.
    pub present: Option<bool>,
    /// The mechanical write-protect switch is on; `None`: nothing tells.
    pub write_protected: Option<bool>,
    /// How often a card went in or out since the host was made (wraps); compare with the value seen last.
    pub changes: u32,
    /// An SDIO card asks for attention; stays until [`Host::sdio_interrupt`] enables the next one.
    pub sdio: bool,
    /// The sample point is to be found again ([`Tune`](crate::machine::Tune)) before the next command: the controller asks
    /// for it, or its time is over.
    pub retune: bool,
}

/// A controller with its slot, as conversations use it.
pub trait Host: Send {
    /// What data moves in and out of.
    type Payload: Payload;
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// Starts `op`; it ends at `until` at the latest, plus the host's own stopping time.
    ///
    /// # Errors
    /// Everything comes back when an operation is running or `op` cannot be done; nothing was started.
    fn submit(
        &mut self,
        op: Operation<Self::Payload>,
        until: Instant,
        now: Instant,
    ) -> Result<(), SubmitError<Self::Payload>>;
    /// Drives the running operation; call at the instants it names and after each interrupt. Never blocks.
    fn poll(&mut self, now: Instant) -> Progress<Self::Payload>;
    /// Ends the running operation early; `poll` still delivers exactly one completion.
    fn abort(&mut self, now: Instant);
    /// Hands over the transfer that will follow the running operation, so that the host can map its memory and
    /// write its descriptors meanwhile. It starts by [`submit_prepared`](Self::submit_prepared), and not before. One at a
    /// time; the payload belongs to the host until it is started or taken back.
    ///
    /// # Errors
    /// It comes back: the host prepares nothing (most), not this, or has one already. Submit it when its time comes.
    fn prepare(&mut self, cmd: Command, payload: Self::Payload) -> Result<(), SubmitError<Self::Payload>> {
        let error = HostError::new(Cause::Unsupported("nothing is prepared here"), Phase::Submit, cmd.index);
        Err(SubmitError { error, operation: Operation::Transfer(cmd, payload) })
    }
    /// As [`submit`](Self::submit) of the transfer that was prepared.
    ///
    /// # Errors
    /// Nothing was started; what was prepared still is.
    fn submit_prepared(&mut self, until: Instant, now: Instant) -> Result<(), HostError> {
        let _ = (until, now);
        Err(HostError::new(Cause::Unsupported("nothing is prepared"), Phase::Submit, 255))
    }
    /// Takes back what was prepared and not started.
    fn unprepare(&mut self) -> Option<(Command, Self::Payload)> {
        None
    }
    /// What the slot shows; may be called at any time, also while an operation runs.
    fn slot(&mut self, now: Instant) -> Slot {
        let _ = now;
        Slot::default()
    }
    /// Lets an SDIO card ask for attention once ([`Slot::sdio`]), or not at all.
    fn sdio_interrupt(&mut self, enable: bool) {
        let _ = enable;
    }
}

impl<H: Host + ?Sized> Host for &mut H {
    type Payload = H::Payload;
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
    fn submit(
        &mut self,
        op: Operation<Self::Payload>,
        until: Instant,
        now: Instant,
    ) -> Result<(), SubmitError<Self::Payload>> {
        (**self).submit(op, until, now)
    }
    fn poll(&mut self, now: Instant) -> Progress<Self::Payload> {
        (**self).poll(now)
    }
    fn abort(&mut self, now: Instant) {
        (**self).abort(now);
    }
    fn prepare(&mut self, cmd: Command, payload: Self::Payload) -> Result<(), SubmitError<Self::Payload>> {
        (**self).prepare(cmd, payload)
    }
    fn submit_prepared(&mut self, until: Instant, now: Instant) -> Result<(), HostError> {
        (**self).submit_prepared(until, now)
    }
    fn unprepare(&mut self) -> Option<(Command, Self::Payload)> {
        (**self).unprepare()
    }
    fn slot(&mut self, now: Instant) -> Slot {
        (**self).slot(now)
    }
    fn sdio_interrupt(&mut self, enable: bool) {
        (**self).sdio_interrupt(enable);
    }
}

/// What an interrupt handler tells its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Irq {
    /// The device did not raise it.
    NotMine,
    /// Acknowledged; nobody needs to run.
    Handled,
    /// Acknowledged; call `Host::poll`.
    Wake,
}

/// The interrupt half of a backend: acknowledges, records, says "wake".
pub trait IrqHandler: Send {
    /// Handles one interrupt; bounded, touches only the controller's status registers.
    fn handle(&mut self) -> Irq;
}

/// Access to the running operation's payload; only [`Supervised`] makes one, and it keeps the payload until
/// the engine says the device has stopped.
#[derive(Debug)]
pub struct Lease<'a, P>(&'a mut P, u64);

impl<P> Lease<'_, P> {
    /// The payload.
    pub fn get(&mut self) -> &mut P {
        self.0
    }
    /// Bytes of the data phase: an engine moves no more than this, however long the payload is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.1
    }
}

/// What the author of a backend writes. No time limits, no retries, no keeping of payloads: [`Supervised`]
/// does these.
///
/// A constructor of a DMA engine should return `Supervised<Self>` and never the bare engine, so that no safe
/// wrapper can lie about [`halted`](Engine::halted).
pub trait Engine: Send {
    /// What data moves in and out of.
    type Payload: Payload;
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// Starts a command.
    ///
    /// # Errors
    /// Nothing was started.
    fn start(
        &mut self,
        cmd: &Command,
        data: Option<Lease<'_, Self::Payload>>,
        now: Instant,
    ) -> Result<(), Cause>;
    /// Takes `data` for a later [`start_prepared`](Self::start_prepared) of `cmd`, while another operation may run:
    /// memory is mapped and descriptors are written where the running one's are not.
    ///
    /// # Errors
    /// Nothing was taken.
    fn prepare(&mut self, cmd: &Command, data: Lease<'_, Self::Payload>) -> Result<(), Cause> {
        let _ = (cmd, data);
        Err(Cause::Unsupported("nothing is prepared here"))
    }
    /// As [`start`](Self::start) of what [`prepare`](Self::prepare) took; from now on
    /// [`finish`](Self::finish) gives it back.
    ///
    /// # Errors
    /// Nothing was started; it is still prepared.
    fn start_prepared(
        &mut self,
        cmd: &Command,
        data: Lease<'_, Self::Payload>,
        now: Instant,
    ) -> Result<(), Cause> {
        let _ = (cmd, data, now);
        Err(Cause::Unsupported("nothing is prepared here"))
    }
    /// Gives back what `prepare` took and nobody started; the device has never heard of it.
    fn unprepare(&mut self, data: Lease<'_, Self::Payload>) {
        let _ = data;
    }
    /// Starts a change of the bus; `advance` says when it is done.
    ///
    /// # Errors
    /// Nothing was changed.
    fn set_bus(&mut self, bus: &BusConfig, now: Instant) -> Result<(), Cause>;
    /// Starts a change of the supply; `advance` says when it is done.
    ///
    /// # Errors
    /// Nothing was changed.
    fn set_power(&mut self, power: Power, now: Instant) -> Result<(), Cause>;
    /// Looks at the device and moves on; `Some` when the operation ended. Bounded work.
    fn advance(
        &mut self,
        data: Option<Lease<'_, Self::Payload>>,
        now: Instant,
    ) -> Option<Result<Reply, Failure>>;
    /// What the engine waits for, and until when at most.
    fn waits(&self, now: Instant) -> (Why, Instant);
    /// Tells the device to stop whatever it does. Returns at once.
    fn halt(&mut self, now: Instant);
    /// Whether the device has stopped and touches no memory any more.
    fn halted(&mut self, now: Instant) -> bool;
    /// What the slot shows ([`Host::slot`]); touches nothing the running operation needs.
    fn slot(&mut self, now: Instant) -> Slot {
        let _ = now;
        Slot::default()
    }
    /// Arms or disarms the SDIO interrupt ([`Host::sdio_interrupt`]).
    fn sdio_interrupt(&mut self, enable: bool) {
        let _ = enable;
    }
    /// The operation is over and the device has stopped: give back what `start` took (unmap).
    fn finish(&mut self, data: Lease<'_, Self::Payload>) {
        let _ = data;
    }
}
