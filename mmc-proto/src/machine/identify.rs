//! From an empty slot to a selected card on its fastest bus: `spec/card.md` §13 with the limits of §14.
//!
//! ```text
//!  power on, 400 kHz, one line     CMD52 (I/O reset), CMD0, CMD8
//!  SDIO?   CMD5 until ready        then CMD3, CMD7, the CCCR; a combo card goes on as SD
//!  SD?     CMD55, ACMD41 until ready (CMD11, 1.8 V)
//!                                  CMD2, CMD3, CMD9 · 25 MHz · CMD7, CMD16 where addresses are bytes, SCR
//!  MMC?    CMD1 until ready        CMD2, CMD3, CMD9 · 26 MHz · CMD7, EXT_CSD, CMD16
//!  width and speed                 the conversation Speed
//! ```
//!
//! What a card can live without (SCR, SD status, CMD6, more lines, 1.8 V) never fails the identification. A step
//! that leaves the card in an unknown state begins all again with a power cycle: without the mode that did it, which
//! [`Identified::fallbacks`] names; or else as it was, at most [`Identify::RESTARTS`] times.

mod io;
mod mmc;
mod sd;
mod types;

pub use types::{Identified, IdentifyCause, IdentifyError, IdentifyStep, IoPart, MmcPart, Registers, SdPart};

use super::recover::{moves_data, stop_now};
use super::reply::HARD_ERRORS;
use super::speed::{Fallbacks, Mode, Reason, Speed, SpeedCause, SpeedError, SpeedOptions, Subject};
use super::transfer::{COMMAND_LIMIT, status_of};
use super::{Action, Machine, Step};
use crate::bus::{BusConfig, Power, Signal, Timing, Width};
use crate::command::{Command, Gate};
use crate::host::{Capabilities, Cause, HostError, Reply};
use crate::register::sdio::Cccr;
use crate::register::{Cid, Csd, ExtCsd, MmcCid, MmcCsd, Ocr, Scr};
use crate::status::CardStatus;
use mmc_time::{Duration, Instant};

/// Longest CMD7 may keep DAT0 low.
const SELECT_LIMIT: Duration = Duration::from_millis(500);
/// From the first CMD5, ACMD41 or CMD1 on. The standards say 1 s; cards are known that need more.
const POWER_UP_LIMIT: Duration = Duration::from_secs(2);
/// Pause after the supply or the clock changed, and after CMD0.
const SETTLE: Duration = Duration::from_millis(1);
/// Between two questions whether the card is ready: first, and then …
const POLL: Duration = Duration::from_millis(10);
/// … from the fourth on.
const SLOW_POLL: Duration = Duration::from_millis(20);
/// Supply off before it is switched on again.
const OFF: Duration = Duration::from_millis(10);
/// How often a step that harms nothing is tried.
const TRIES: u8 = 3;
/// How often in a row ACMD41 may go unanswered before CMD1 is tried …
const SD_TRIES: u8 = 3;
/// … and before the slot counts as one without a card (about 170 ms; a cold card of version 1 may need them).
const ALL_TRIES: u8 = 10;

/// Longest wait for read data that [`CardTraits`](super::CardTraits) of an SD card state. The standard says 100 ms; cards that
/// need up to 250 ms have been reported.
pub const SD_READ_LIMIT: Duration = Duration::from_millis(500);
/// Longest busy after a write that [`CardTraits`](super::CardTraits) of an SD card state. The standard says 250 ms (SDHC) and
/// 500 ms (SDXC); real cards take more than 900 ms, and Linux allows this.
pub const SD_WRITE_LIMIT: Duration = Duration::from_secs(3);
/// Longest wait for read data that [`CardTraits`](super::CardTraits) of an MMC state: what the slowest known parts need.
pub const MMC_READ_LIMIT: Duration = Duration::from_millis(600);
/// Longest busy after a write that [`CardTraits`](super::CardTraits) of an MMC state.
pub const MMC_WRITE_LIMIT: Duration = Duration::from_secs(3);

/// The application commands of this conversation; all others are [`Speed`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acmd {
    OpCond,
    Scr,
}

/// What comes once the card is settled after data that went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Scr,
    AfterScr,
    ExtCsd,
    AfterExtCsd,
}

/// What the card has turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Sd,
    Mmc,
    Io,
}

/// The step whose result the next call brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    PowerOff,
    OffPause,
    PowerOn,
    SlowBus,
    BusPause,
    IoReset,
    Reset,
    ResetPause,
    IfCond,
    IoOpCond,
    IoPause,
    /// The CMD55 before it.
    App(Acmd),
    Acmd(Acmd),
    OpCondPause,
    MmcOpCond,
    MmcPause,
    Voltage,
    VoltageBus,
    Cid,
    Address,
    Csd,
    FastBus,
    Select,
    BlockLen,
    IoRegister(u8),
    ExtCsd,
    EraseGroup,
    EraseGroupStatus,
    /// After data that went wrong: CMD13, then CMD12 if the card still sends.
    Settle(Then),
    Stop(Then),
    Speed,
    Over,
}

/// Identifies whatever card is in the slot: SDIO, combo, SD (SDSC 1.x to SDUC), MMC 3.x, eMMC; and brings it to the
/// widest and fastest bus that card and host have in common.
///
/// Ends within [`Identify::LIMIT`] plus the last step's own limit, when it is driven at the instants it
/// names. Needs a scratch payload (see [`Machine::scratch`]).
#[derive(Clone, Copy, Debug)]
pub struct Identify {
    caps: Capabilities,
    options: SpeedOptions,
    /// 1.8 V signalling may be tried (SD).
    uhs: bool,
    state: State,
    started: Option<Instant>,
    power_up_by: Option<Instant>,
    fixed_supply: bool,
    tries: u8,
    settles: u8,
    polls: u8,
    /// ACMD41 went unanswered this often in a row.
    silent: u8,
    restarts: u8,
    v2: bool,
    answered: bool,
    mmc_tried: bool,
    family: Family,
    rca: u16,
    ocr: Ocr,
    cid: Cid,
    csd: Csd,
    scr: Option<Scr>,
    mmc_cid: MmcCid,
    mmc_csd: MmcCsd,
    ext_csd: Option<ExtCsd>,
    io: Option<IoFound>,
    bus: BusConfig,
    speed: Option<Speed>,
    fallbacks: Fallbacks,
}

/// The I/O part as CMD5 and the CCCR show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IoFound {
    functions: u8,
    memory: bool,
    cccr: [u8; Cccr::LEN],
}

type Out = Result<Identified, IdentifyError>;

impl Identify {
    /// The longest the whole takes; a step that runs then is still waited for.
    pub const LIMIT: Duration = Duration::from_secs(20);
    /// How often all of it is begun again, as it was, after a step that left the card in an unknown state. Beginning
    /// again without a mode that failed is not counted: there are only so many modes.
    pub const RESTARTS: u8 = 2;

    /// For a host with these capabilities, up to the best it can.
    #[must_use]
    pub fn new(caps: &Capabilities) -> Self {
        Self::with(caps, SpeedOptions::new(caps))
    }
    /// The same, no further than `options` let it.
    #[must_use]
    pub fn with(caps: &Capabilities, options: SpeedOptions) -> Self {
        let uhs = [Timing::Sdr12, Timing::Sdr25, Timing::Sdr50, Timing::Ddr50, Timing::Sdr104];
        let uhs = uhs.into_iter().any(|t| caps.timings.has(t) && options.timings.has(t));
        let wide = caps.width >= Width::Four && options.width >= Width::Four;
        Self {
            caps: *caps,
            options,
            uhs: caps.v1_8 && wide && uhs,
            state: State::Start,
            started: None,
            power_up_by: None,
            fixed_supply: false,
            tries: 0,
            settles: 0,
            polls: 0,
            silent: 0,
            restarts: 0,
            v2: false,
            answered: false,
            mmc_tried: false,
            family: Family::Sd,
            rca: 0,
            ocr: Ocr(0),
            cid: Cid::new([0; 16]),
            csd: Csd::new([0; 16]),
            scr: None,
            mmc_cid: MmcCid::new([0; 16]),
            mmc_csd: MmcCsd::new([0; 16]),
            ext_csd: None,
            io: None,
            bus: BusConfig::default(),
            speed: None,
            fallbacks: Fallbacks::default(),
        }
    }

    /// Where it is.
    #[must_use]
    pub const fn phase(&self) -> IdentifyStep {
        match self.state {
            State::Start => IdentifyStep::Start,
            State::PowerOff | State::OffPause | State::PowerOn => IdentifyStep::Power,
            State::SlowBus | State::BusPause | State::FastBus => IdentifyStep::Bus,
            State::IoReset => IdentifyStep::IoReset,
            State::Reset | State::ResetPause => IdentifyStep::Reset,
            State::IfCond => IdentifyStep::IfCond,
            State::IoOpCond | State::IoPause => IdentifyStep::IoOpCond,
            State::App(Acmd::OpCond) | State::Acmd(Acmd::OpCond) | State::OpCondPause => IdentifyStep::OpCond,
            State::MmcOpCond | State::MmcPause => IdentifyStep::MmcOpCond,
            State::Voltage | State::VoltageBus => IdentifyStep::Voltage,
            State::Cid => IdentifyStep::Cid,
            State::Address => IdentifyStep::Address,
            State::Csd => IdentifyStep::Csd,
            State::Select => IdentifyStep::Select,
            State::BlockLen => IdentifyStep::BlockLen,
            State::App(Acmd::Scr)
            | State::Acmd(Acmd::Scr)
            | State::Settle(Then::Scr | Then::AfterScr)
            | State::Stop(Then::Scr | Then::AfterScr) => IdentifyStep::Scr,
            State::IoRegister(_) => IdentifyStep::IoRegisters,
            State::ExtCsd
            | State::Settle(Then::ExtCsd | Then::AfterExtCsd)
            | State::Stop(Then::ExtCsd | Then::AfterExtCsd) => IdentifyStep::ExtCsd,
            State::EraseGroup | State::EraseGroupStatus => IdentifyStep::EraseGroup,
            State::Speed => IdentifyStep::Speed,
            State::Over => IdentifyStep::Over,
        }
    }
    /// The choice of width and speed, while it runs.
    #[must_use]
    pub const fn speed(&self) -> Option<&Speed> {
        self.speed.as_ref()
    }

    fn end(&mut self, cause: IdentifyCause, status: Option<CardStatus>) -> Step<Out> {
        let step = self.phase();
        self.state = State::Over;
        Step::Done(Err(IdentifyError { cause, step, status }))
    }
    fn go(&mut self, state: State, command: Command, limit: Duration) -> Step<Out> {
        self.state = state;
        Step::Do(Action { command, limit })
    }
    fn sleep(&mut self, state: State, time: Duration) -> Step<Out> {
        self.state = state;
        Step::Sleep(time)
    }
    fn set_bus(&mut self, state: State, bus: BusConfig) -> Step<Out> {
        self.state = state;
        self.bus = bus;
        Step::Bus(bus)
    }
    /// Counts a failure of a step that harms nothing; whether to try it again.
    fn try_again(&mut self) -> bool {
        self.tries = self.tries.saturating_add(1);
        self.tries < TRIES
    }
    fn window(&self) -> u32 {
        self.caps.ocr & Ocr::WINDOW
    }

    // Power.

    /// All again from a power cycle as it was, or the end.
    fn restart(&mut self, cause: IdentifyCause, status: Option<CardStatus>) -> Step<Out> {
        if self.restarts >= Self::RESTARTS {
            return self.end(cause, status);
        }
        self.restarts = self.restarts.saturating_add(1);
        self.power_off()
    }
    fn power_off(&mut self) -> Step<Out> {
        self.state = State::PowerOff;
        Step::Power(Power::Off)
    }
    fn power_on(&mut self) -> Step<Out> {
        self.state = State::PowerOn;
        Step::Power(Power::On)
    }
    fn slow_bus(&mut self) -> Step<Out> {
        // Only without supply does an SD card go back to 3.3 V.
        let signal = if self.fixed_supply { self.bus.signal } else { Signal::V3_3 };
        let hz = 400_000.max(self.caps.min_hz).min(self.caps.max_hz);
        self.set_bus(State::SlowBus, BusConfig { hz, signal, ..BusConfig::default() })
    }
    /// Back at the beginning of the conversation: forget what the last round found.
    fn io_reset(&mut self) -> Step<Out> {
        (self.tries, self.settles, self.polls, self.silent) = (0, 0, 0, 0);
        (self.power_up_by, self.v2, self.answered, self.mmc_tried) = (None, false, false, false);
        self.family = Family::Sd;
        (self.rca, self.ocr, self.scr, self.ext_csd, self.io) = (0, Ocr(0), None, None, None);
        self.speed = None;
        // CMD0 does not reset an I/O part. Cards without one do not answer.
        let reset = Command { init_clocks: true, ..Command::io_write_direct(0, 6, 8) };
        self.go(State::IoReset, reset, COMMAND_LIMIT)
    }
    fn if_cond(&mut self) -> Step<Out> {
        self.go(State::IfCond, Command::send_if_cond(0xaa), COMMAND_LIMIT)
    }

    /// Asks once more whether the card is ready; `None` after the limit.
    fn poll_again(&mut self, state: State, now: Instant) -> Option<Step<Out>> {
        let by = *self.power_up_by.get_or_insert(now + POWER_UP_LIMIT);
        if now >= by {
            return None;
        }
        self.polls = self.polls.saturating_add(1);
        let pause = if self.polls > 3 { SLOW_POLL } else { POLL };
        Some(self.sleep(state, pause))
    }
    /// The time to get ready is over.
    fn never_ready(&mut self) -> Step<Out> {
        if !self.answered {
            self.end(IdentifyCause::NoAnswer, None)
        } else if let Err(e) = self.ocr.check() {
            self.end(IdentifyCause::Register(e), None)
        } else {
            self.end(IdentifyCause::PowerUp(self.ocr), None)
        }
    }
    /// The supply window has nothing in common with the host's.
    fn no_voltage(&mut self, card: u32) -> Step<Out> {
        self.end(IdentifyCause::Voltage { card, host: self.window() }, None)
    }

    // From the ready state to the transfer state.

    fn all_send_cid(&mut self) -> Step<Out> {
        self.tries = 0;
        self.go(State::Cid, Command::all_send_cid(), COMMAND_LIMIT)
    }
    fn address(&mut self) -> Step<Out> {
        let command = match self.family {
            Family::Mmc => Command::set_relative_addr(mmc::RCA),
            Family::Sd | Family::Io => Command::send_relative_addr(),
        };
        self.go(State::Address, command, COMMAND_LIMIT)
    }
    fn send_csd(&mut self) -> Step<Out> {
        self.go(State::Csd, Command::send_csd(self.rca), COMMAND_LIMIT)
    }
    fn select(&mut self) -> Step<Out> {
        self.go(State::Select, Command::select_card(self.rca), SELECT_LIMIT)
    }
    fn block_len(&mut self) -> Step<Out> {
        self.go(State::BlockLen, Command::set_blocklen(512), COMMAND_LIMIT)
    }
    /// The card is selected: its registers come next.
    fn selected(&mut self) -> Step<Out> {
        self.tries = 0;
        match self.family {
            Family::Io => self.io_register(0),
            Family::Mmc => self.ext_csd(),
            Family::Sd if self.csd.byte_addressed() => self.block_len(),
            Family::Sd => self.app(Acmd::Scr),
        }
    }

    // After data that went wrong.

    /// Sees that the card sends no more, then goes on.
    fn settle(&mut self, then: Then) -> Step<Out> {
        let command = Command { gate: Gate::Now, ..Command::send_status(self.rca) };
        self.go(State::Settle(then), command, COMMAND_LIMIT)
    }
    fn settled(&mut self, then: Then) -> Step<Out> {
        self.settles = 0;
        match then {
            Then::Scr => self.app(Acmd::Scr),
            Then::AfterScr => self.after_scr(),
            Then::ExtCsd => self.ext_csd(),
            Then::AfterExtCsd => self.after_ext_csd(),
        }
    }

    // Speed.

    fn subject(&self) -> Subject {
        let cccr = self.cccr().map(|cccr| cccr.info());
        match (self.family, &cccr) {
            (Family::Mmc, _) => Subject::mmc(&self.mmc_csd, self.ext_csd.as_ref()),
            (Family::Io, Some(cccr)) => Subject::io(cccr),
            _ => Subject::sd(&self.csd, self.scr.as_ref(), cccr.as_ref()),
        }
    }
    fn climb(&mut self) -> Step<Out> {
        self.tries = 0;
        self.speed = Some(Speed::new(&self.caps, self.options, self.subject(), self.rca, self.bus));
        // The caller asks again at once; nothing is on the bus.
        self.sleep(State::Speed, Duration::ZERO)
    }
    fn climbed(&mut self, result: Result<super::Raised, SpeedError>) -> Step<Out> {
        let base = self.subject().base(self.bus.signal);
        match result {
            Ok(raised) => {
                self.bus = raised.bus;
                self.fallbacks.extend(&raised.fallbacks);
                self.finish(raised.switch, raised.ssr)
            }
            Err(SpeedError { cause: SpeedCause::Lost(lost), host, status, fallbacks, .. }) => {
                self.fallbacks.extend(&fallbacks);
                for f in fallbacks.iter() {
                    self.options.leave_out(f.mode, base);
                }
                if self.options.leave_out(lost.mode, base) {
                    self.fallbacks.push(lost.mode, lost.reason);
                    return self.power_off();
                }
                self.restart(host.map_or(IdentifyCause::Card, IdentifyCause::Host), status)
            }
            Err(SpeedError { cause, status, .. }) => {
                let cause = match cause {
                    SpeedCause::Host(e) => IdentifyCause::Host(e),
                    SpeedCause::Scratch => IdentifyCause::Scratch,
                    SpeedCause::OutOfTurn => IdentifyCause::OutOfTurn,
                    _ => IdentifyCause::Limit,
                };
                self.end(cause, status)
            }
        }
    }
    /// 1.8 V did not work: all again at 3.3 V.
    fn without_uhs(&mut self, reason: Reason) -> Step<Out> {
        self.uhs = false;
        self.bus.signal = Signal::V3_3;
        self.fallbacks.push(Mode::Signal, reason);
        self.power_off()
    }

    /// The last step failed on the bus.
    fn failed(&mut self, e: HostError, now: Instant) -> Step<Out> {
        let cause = IdentifyCause::Host(e);
        let unsupported = matches!(e.cause, Cause::Unsupported(_));
        if unsupported && matches!(self.state, State::PowerOff | State::PowerOn) {
            // A board whose supply is always on: CMD0 has to do.
            self.fixed_supply = true;
            return self.done(&Reply::default(), &[], now);
        }
        if e.media_gone() || e.cause == Cause::Aborted || (unsupported && self.state != State::VoltageBus) {
            return self.end(cause, None);
        }
        match self.state {
            // Nobody there, or nobody with I/O.
            State::IoReset => self.done(&Reply::default(), &[], now),
            // A card that holds DAT0 from before it was known lets go without supply.
            State::IfCond
            | State::IoOpCond
            | State::App(Acmd::OpCond)
            | State::Acmd(Acmd::OpCond)
            | State::MmcOpCond
                if e.cause == Cause::Limit && self.restarts < Self::RESTARTS =>
            {
                self.restart(cause, None)
            }
            State::IfCond => {
                if self.try_again() && (e.cause != Cause::Timeout || self.tries < 2) {
                    self.if_cond()
                } else if e.cause == Cause::Timeout {
                    // Version 1.x, or no SD card at all: CMD5, CMD55 and CMD1 will tell.
                    self.ask_io()
                } else {
                    self.end(cause, None)
                }
            }
            State::IoOpCond => self.io_op_cond_failed(e, now),
            State::App(acmd) | State::Acmd(acmd) => self.acmd_failed(acmd, Some(e), None, now),
            State::MmcOpCond => self.mmc_op_cond_failed(now),
            State::Voltage => self.without_uhs(Reason::NoAnswer),
            State::VoltageBus if unsupported => self.without_uhs(Reason::Host),
            State::VoltageBus => self.without_uhs(Reason::NoAnswer),
            State::Csd => {
                if self.try_again() {
                    self.send_csd()
                } else {
                    self.restart(cause, None)
                }
            }
            State::IoRegister(at) => self.io_register_failed(at, cause),
            State::ExtCsd => {
                let again = self.try_again();
                self.settle(if again { Then::ExtCsd } else { Then::AfterExtCsd })
            }
            State::Settle(then) => {
                self.settles = self.settles.saturating_add(1);
                if self.settles < TRIES { self.settle(then) } else { self.restart(cause, None) }
            }
            // No answer: it had stopped by itself, or CMD13 will tell.
            State::Stop(then) => self.settle(then),
            _ => self.restart(cause, None),
        }
    }

    /// The last step worked.
    fn done(&mut self, reply: &Reply, scratch: &[u8], now: Instant) -> Step<Out> {
        let [word, ..] = reply.words;
        let status = status_of(reply);
        match self.state {
            State::PowerOff => self.sleep(State::OffPause, OFF),
            State::PowerOn => self.slow_bus(),
            State::SlowBus => self.sleep(State::BusPause, SETTLE),
            State::IoReset => {
                // The clocks once more: where CMD52 never left the host, the card has had none.
                let reset = Command { init_clocks: true, ..Command::go_idle_state() };
                self.go(State::Reset, reset, COMMAND_LIMIT)
            }
            State::Reset => self.sleep(State::ResetPause, SETTLE),
            State::IfCond => {
                if word & 0xff == 0xaa {
                    self.v2 = true;
                    self.ask_io()
                } else if self.try_again() {
                    self.if_cond()
                } else {
                    self.end(IdentifyCause::Echo(word), None)
                }
            }
            State::IoOpCond => self.io_op_cond_done(reply, now),
            State::App(acmd) => self.app_done(acmd, status, now),
            State::Acmd(Acmd::OpCond) => self.op_cond(reply, now),
            State::Acmd(Acmd::Scr) => self.scr_done(reply, scratch, now),
            State::MmcOpCond => self.mmc_op_cond_done(reply, now),
            State::Voltage if status.intersects(HARD_ERRORS) => self.without_uhs(Reason::Refused),
            State::Voltage => {
                let bus = BusConfig { signal: Signal::V1_8, ..self.bus };
                self.set_bus(State::VoltageBus, bus)
            }
            State::VoltageBus => self.all_send_cid(),
            State::Cid => {
                match self.family {
                    Family::Mmc => self.mmc_cid = MmcCid::from_words(reply.words),
                    Family::Sd | Family::Io => self.cid = Cid::from_words(reply.words),
                }
                self.tries = 0;
                self.address()
            }
            State::Address if self.family == Family::Mmc => self.mmc_addressed(status),
            State::Address => {
                self.rca = u16::try_from(word >> 16).unwrap_or(0);
                if self.rca == 0 {
                    return if self.try_again() {
                        self.address()
                    } else {
                        self.end(IdentifyCause::NoAddress, None)
                    };
                }
                self.tries = 0;
                // How fast an I/O card may go is in its registers.
                if self.family == Family::Io { self.select() } else { self.send_csd() }
            }
            State::Csd => self.csd_done(reply),
            State::FastBus => self.select(),
            State::Select | State::BlockLen => {
                if status.contains(CardStatus::CARD_IS_LOCKED) && self.family != Family::Io {
                    return self.end(IdentifyCause::Locked, Some(status));
                }
                if status.intersects(HARD_ERRORS) {
                    return self.restart(IdentifyCause::Card, Some(status));
                }
                match (self.state, self.family) {
                    (State::Select, _) => self.selected(),
                    (_, Family::Mmc) => self.climb(),
                    _ => self.app(Acmd::Scr),
                }
            }
            State::IoRegister(at) => self.io_register_done(at, reply),
            State::ExtCsd => self.ext_csd_done(reply, scratch),
            State::EraseGroup => {
                self.go(State::EraseGroupStatus, Command::send_status(self.rca), COMMAND_LIMIT)
            }
            State::EraseGroupStatus => self.erase_group_done(status),
            State::Settle(then) if moves_data(status) && self.settles < TRIES => {
                self.settles = self.settles.saturating_add(1);
                self.go(State::Stop(then), stop_now(), COMMAND_LIMIT)
            }
            State::Settle(then) => self.settled(then),
            State::Stop(then) => self.settle(then),
            State::Start
            | State::OffPause
            | State::BusPause
            | State::ResetPause
            | State::IoPause
            | State::OpCondPause
            | State::MmcPause
            | State::Speed
            | State::Over => self.end(IdentifyCause::OutOfTurn, None),
        }
    }
    /// The CSD: what no card can mean is asked for again.
    fn csd_done(&mut self, reply: &Reply) -> Step<Out> {
        let checked = match self.family {
            Family::Mmc => self.take_mmc_csd(reply),
            Family::Sd | Family::Io => self.take_csd(reply),
        };
        match checked {
            Err(IdentifyCause::Register(_)) if self.try_again() => self.send_csd(),
            Err(cause) => self.end(cause, None),
            Ok(()) => {
                let base = self.subject().base(self.bus.signal);
                let hz = self.subject().hz(base).min(self.caps.max_hz);
                let bus = BusConfig { hz, timing: base, ..self.bus };
                self.set_bus(State::FastBus, bus)
            }
        }
    }
}

/// Longest time of 512 bytes on this bus: start, CRC and end bits, the CRC status of a write, and four times
/// all that because a host may only reach a slower clock than asked for.
fn block_time(bus: &BusConfig) -> Duration {
    let lines = u64::from(bus.width.lines());
    let clocks = 4096_u64.checked_div(lines).unwrap_or(4096).saturating_add(28).saturating_mul(4);
    let ns = clocks.saturating_mul(1_000_000_000).checked_div(bus.hz.into());
    Duration::from_nanos(ns.unwrap_or(u64::MAX))
}

impl Machine for Identify {
    type Output = Out;

    fn scratch(&self) -> bool {
        true
    }

    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Out> {
        let started = *self.started.get_or_insert(now);
        if self.state == State::Over {
            return self.end(IdentifyCause::OutOfTurn, None);
        }
        if self.state == State::Start {
            if scratch.len() < ExtCsd::LEN {
                return self.end(IdentifyCause::Scratch, None);
            }
            // A card that an earlier boot left at 1.8 V, or in a fast mode, forgets it only without supply.
            return if self.caps.v1_8 { self.power_off() } else { self.power_on() };
        }
        if now > started + Self::LIMIT {
            return self.end(IdentifyCause::Limit, None);
        }
        match self.state {
            State::OffPause => return self.power_on(),
            State::BusPause => return self.io_reset(),
            State::ResetPause => return self.if_cond(),
            State::IoPause => return self.io_op_cond(self.window()),
            State::OpCondPause => return self.app(Acmd::OpCond),
            State::MmcPause => return self.mmc_op_cond(),
            _ => {}
        }
        if let (State::Speed, Some(speed)) = (self.state, &mut self.speed) {
            return match speed.next(last, scratch, now) {
                Step::Done(result) => self.climbed(result),
                Step::Do(action) => Step::Do(action),
                Step::Bus(bus) => Step::Bus(bus),
                Step::Power(power) => Step::Power(power),
                Step::Sleep(time) => Step::Sleep(time),
            };
        }
        match last {
            Some(Ok(reply)) => self.done(&reply, scratch, now),
            Some(Err(e)) => self.failed(e, now),
            None => self.end(IdentifyCause::OutOfTurn, None),
        }
    }
}
