//! From one slow line to the widest and fastest bus that card and host have in common, with a way down from every
//! rung: `spec/card.md` §10, §13.2, §13.3.
//!
//! ```text
//!  SD    ACMD42, ACMD6, four lines · CMD6 lists · per rung: CMD6, bus, tuning, CMD13, SD status
//!  MMC   CMD6 BUS_WIDTH 8, 4 or 1, EXT_CSD compared · per rung: CMD6 HS_TIMING (…), bus, CMD13, tuning, EXT_CSD
//!  SDIO  CMD52 to CCCR 0x07 · per rung: CMD52 to CCCR 0x13, bus, CMD52
//! ```
//!
//! A mode the card refuses leaves it where it was: the next lower one is tried at once. Where nobody knows any more
//! which mode the card is in, the conversation ends with [`SpeedCause::Lost`], which names the mode: after a power
//! cycle all goes again without it ([`Identify`](super::Identify) does so).

mod ladder;
mod types;

pub use ladder::Subject;
pub use types::{
    Fallback, Fallbacks, Mode, Raised, Reason, SpeedCause, SpeedError, SpeedOptions, SpeedPhase,
};

use super::recover::{moves_data, stop_now};
use super::reply::{EXT_CSD_LIMIT, HARD_ERRORS, REGISTER_LIMIT, register};
use super::transfer::{COMMAND_LIMIT, status_of};
use super::tune::{Tune, TuneCause, TuneError};
use super::{Action, Machine, Step};
use crate::bus::{BusConfig, Signal, Timing, Width};
use crate::command::{Command, Gate, SwitchAccess};
use crate::host::{Capabilities, Cause, HostError, Reply};
use crate::register::{Ssr, SwitchStatus};
use crate::response::R5;
use crate::status::CardStatus;
use ladder::{BUS_WIDTH, Kind, Op, digest, narrower, power_limit};
use mmc_time::{Duration, Instant};

/// How often a step that harms nothing is tried.
const TRIES: u8 = 3;
/// CCCR: the bus interface and the bus speed.
const IO_BUS: u32 = 0x07;
const IO_SPEED: u32 = 0x13;

/// The application commands of this conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acmd {
    Detect,
    Width,
    SdStatus,
}

/// What comes once the card is settled after bad data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The same read again.
    WidthCheck,
    List,
    Verify,
    /// A narrower bus (MMC).
    Narrow,
    /// The lists, on one line (SD).
    OneLine,
    /// The ladder.
    Climb,
    /// The next step of the way up.
    Go,
    /// The card is given up with this mode.
    Lose(Fallback),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    App(Acmd),
    Acmd(Acmd),
    IoWidth,
    Width,
    WidthStatus,
    WideBus,
    WidthCheck,
    List,
    /// A step of the way into the rung.
    Op(Op),
    Settle(After),
    Stop(After),
    Over,
}

/// Chooses width and speed for a card that is selected, in the transfer state, on one line at its base timing.
///
/// Ends within [`Speed::LIMIT`] plus the last step's own limit. Needs a scratch payload (see [`Machine::scratch`]).
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    caps: Capabilities,
    options: SpeedOptions,
    card: Subject,
    rca: u16,
    bus: BusConfig,
    state: State,
    tune: Option<Tune>,
    /// The width being tried.
    width: Width,
    rung: Timing,
    /// The next step of the rung's program.
    at: usize,
    /// The card has taken a switch of this rung.
    switched: bool,
    /// The sample point the tuning of this rung found.
    sample: u16,
    /// SD's function of group 1 in force, SDIO's bus speed in force.
    function: u8,
    io_speed: u8,
    tries: u8,
    settles: u8,
    list: Option<SwitchStatus>,
    ssr: Option<Ssr>,
    fallbacks: Fallbacks,
    started: Option<Instant>,
}

type Out = Result<Raised, SpeedError>;

impl Speed {
    /// The longest the whole takes; a step that runs then is still waited for.
    pub const LIMIT: Duration = Duration::from_secs(10);

    /// For the card at `rca` on the bus as it is.
    #[must_use]
    pub fn new(caps: &Capabilities, options: SpeedOptions, card: Subject, rca: u16, bus: BusConfig) -> Self {
        Self {
            caps: *caps,
            options,
            card,
            rca,
            bus,
            state: State::Start,
            tune: None,
            width: Width::One,
            rung: card.base(bus.signal),
            at: 0,
            switched: false,
            sample: 0,
            function: 0,
            io_speed: 0,
            tries: 0,
            settles: 0,
            list: None,
            ssr: None,
            fallbacks: Fallbacks::default(),
            started: None,
        }
    }

    /// Where it is.
    #[must_use]
    pub const fn phase(&self) -> SpeedPhase {
        match self.state {
            State::Start => SpeedPhase::Start,
            State::App(_) => SpeedPhase::App,
            State::Acmd(Acmd::Detect) => SpeedPhase::Detect,
            State::Acmd(Acmd::Width) | State::Width => SpeedPhase::Width,
            State::Acmd(Acmd::SdStatus) | State::Op(Op::Verify) => SpeedPhase::Verify,
            State::IoWidth => SpeedPhase::IoWidth,
            State::WidthStatus => SpeedPhase::WidthStatus,
            State::WideBus => SpeedPhase::WideBus,
            State::WidthCheck => SpeedPhase::WidthCheck,
            State::List => SpeedPhase::List,
            State::Op(Op::Slow | Op::Signal | Op::Gentle(_) | Op::Bus(_)) => SpeedPhase::Bus,
            State::Op(Op::Function(_)) => SpeedPhase::Function,
            State::Op(Op::Write(..) | Op::Double(_)) => SpeedPhase::Switch,
            State::Op(Op::Io(_)) => SpeedPhase::IoSpeed,
            State::Op(Op::Tune) => SpeedPhase::Tune,
            State::Op(Op::Status) => SpeedPhase::Status,
            State::Settle(_) => SpeedPhase::Settle,
            State::Stop(_) => SpeedPhase::Stop,
            State::Over => SpeedPhase::Over,
        }
    }
    /// The tuning, while one runs.
    #[must_use]
    pub const fn tune(&self) -> Option<&Tune> {
        self.tune.as_ref()
    }

    fn end(&mut self, cause: SpeedCause, host: Option<HostError>, status: Option<CardStatus>) -> Step<Out> {
        let phase = self.phase();
        self.state = State::Over;
        Step::Done(Err(SpeedError { cause, phase, host, status, fallbacks: self.fallbacks }))
    }
    fn lost(
        &mut self,
        mode: Mode,
        reason: Reason,
        host: Option<HostError>,
        status: Option<CardStatus>,
    ) -> Step<Out> {
        self.end(SpeedCause::Lost(Fallback { mode, reason }), host, status)
    }
    fn go(&mut self, state: State, command: Command, limit: Duration) -> Step<Out> {
        self.state = state;
        Step::Do(Action { command, limit })
    }
    fn set_bus(&mut self, state: State, bus: BusConfig) -> Step<Out> {
        self.state = state;
        self.bus = bus;
        Step::Bus(bus)
    }
    /// Counts a failure of a step that harms nothing; whether to try it again.
    fn again(&mut self) -> bool {
        self.tries = self.tries.saturating_add(1);
        self.tries < TRIES
    }
    fn mmc(&self) -> Option<ladder::Mmc> {
        match self.card.kind {
            Kind::Mmc(mmc) => Some(mmc),
            _ => None,
        }
    }
    fn base(&self) -> Timing {
        self.card.base(self.bus.signal)
    }
    fn hz(&self, timing: Timing) -> u32 {
        self.card.hz(timing).min(self.caps.max_hz)
    }

    // Width.

    fn widen(&mut self) -> Step<Out> {
        self.width = self.card.width().min(self.caps.width).min(self.options.width);
        if self.width == Width::One {
            return self.list();
        }
        match self.card.kind {
            Kind::Sd { .. } => {
                self.width = Width::Four;
                self.app(Acmd::Detect)
            }
            Kind::Io => {
                self.width = Width::Four;
                self.io_width()
            }
            Kind::Mmc(_) => self.switch_width(),
        }
    }
    fn app(&mut self, acmd: Acmd) -> Step<Out> {
        self.go(State::App(acmd), Command::app_cmd(self.rca), COMMAND_LIMIT)
    }
    fn io_width(&mut self) -> Step<Out> {
        // Four lines, and no pull-up on DAT3.
        self.go(State::IoWidth, Command::io_write_direct(0, IO_BUS, 0x82), COMMAND_LIMIT)
    }
    fn switch_width(&mut self) -> Step<Out> {
        self.tries = 0;
        self.write(State::Width, BUS_WIDTH, code(self.width, false))
    }
    /// CMD6 of MMC.
    fn write(&mut self, state: State, index: u8, value: u8) -> Step<Out> {
        let limit = self.mmc().map_or(COMMAND_LIMIT, |mmc| mmc.switch_limit);
        self.go(state, Command::mmc_switch(SwitchAccess::WriteByte, index, value), limit)
    }
    fn status(&mut self, state: State) -> Step<Out> {
        self.go(state, Command::send_status(self.rca), COMMAND_LIMIT)
    }
    /// MMC: the next narrower bus, after one that did not work.
    fn narrow(&mut self, reason: Reason) -> Step<Out> {
        self.fallbacks.push(Mode::Width(self.width), reason);
        match narrower(self.width) {
            Some(width) => {
                self.width = width;
                self.switch_width()
            }
            None => self.lost(Mode::Width(Width::One), reason, None, None),
        }
    }

    // The ladder.

    fn list(&mut self) -> Step<Out> {
        self.tries = 0;
        let asks = matches!(self.card.kind, Kind::Sd { switch: true, .. });
        if asks && self.card.may_climb(&self.caps, &self.options, self.bus.signal) {
            self.ask()
        } else {
            self.climb()
        }
    }
    fn ask(&mut self) -> Step<Out> {
        self.go(State::List, Command::switch_function(false, 1, 1), REGISTER_LIMIT)
    }
    /// Begins the way into the best mode left.
    fn climb(&mut self) -> Step<Out> {
        self.tries = 0;
        let (lines, signal) = (self.bus.width, self.bus.signal);
        self.rung = self.card.best(&self.caps, &self.options, lines, signal, self.list.as_ref());
        (self.at, self.switched, self.sample) = (0, false, 0);
        self.advance()
    }
    /// The card said no and is where it was: the next lower mode.
    fn refused(&mut self, reason: Reason, status: Option<CardStatus>) -> Step<Out> {
        let mode = Mode::Timing(self.rung);
        if !self.options.leave_out(mode, self.base()) {
            return self.lost(mode, reason, None, status);
        }
        self.fallbacks.push(mode, reason);
        self.climb()
    }
    /// Step `at` of the program and those after it, up to the first that has something to do.
    fn advance(&mut self) -> Step<Out> {
        loop {
            let Some(op) = self.card.program(self.rung).get(self.at) else {
                self.state = State::Over;
                return Step::Done(Ok(Raised {
                    bus: self.bus,
                    switch: self.list,
                    ssr: self.ssr,
                    fallbacks: self.fallbacks,
                }));
            };
            self.at = self.at.saturating_add(1);
            self.tries = 0;
            if let Some(step) = self.begin(*op) {
                return step;
            }
        }
    }
    /// `None` where there is nothing to do.
    fn begin(&mut self, op: Op) -> Option<Step<Out>> {
        let state = State::Op(op);
        Some(match op {
            Op::Slow => {
                let base = self.base();
                let bus = BusConfig { hz: self.hz(base), timing: base, sample: 0, ..self.bus };
                if bus == self.bus {
                    return None;
                }
                self.set_bus(state, bus)
            }
            Op::Signal if self.bus.signal == Signal::V1_8 => return None,
            Op::Signal => self.set_bus(state, BusConfig { signal: Signal::V1_8, ..self.bus }),
            Op::Write(index, value) => self.write(state, index, value),
            Op::Double(more) => self.write(state, BUS_WIDTH, code(self.bus.width, true) | more),
            Op::Function(function) if function == self.function => return None,
            Op::Function(function) => {
                let (mut driver, mut power) = (15, 15);
                if self.bus.signal == Signal::V1_8 {
                    power = power_limit(self.list.as_ref(), self.options.max_current_ma);
                    let wanted = self.options.driver;
                    if wanted != 0 && self.list.is_some_and(|list| list.can(3, wanted)) {
                        driver = wanted;
                    }
                }
                let command = Command::switch_functions(true, [function, 15, driver, power, 15, 15]);
                self.go(state, command, REGISTER_LIMIT)
            }
            Op::Io(speed) if self.card.io.is_none() || speed == self.io_speed => return None,
            Op::Io(speed) => self.go(state, Command::io_write_direct(0, IO_SPEED, speed << 1), COMMAND_LIMIT),
            Op::Gentle(timing) => {
                let bus = BusConfig { timing, ..self.bus };
                self.set_bus(state, bus)
            }
            Op::Bus(timing) => {
                // 0 but in a rung that is tuned; on its way HS400 passes a slow mode once more.
                let sample = if timing == Timing::High { 0 } else { self.sample };
                let bus = BusConfig { hz: self.hz(timing), timing, sample, ..self.bus };
                self.set_bus(state, bus)
            }
            Op::Tune if self.caps.sample_points == 0 => return None,
            Op::Tune => {
                self.state = state;
                let tune = match self.card.kind {
                    Kind::Mmc(_) => Tune::mmc(&self.caps, self.bus),
                    _ => Tune::sd(&self.caps, self.bus),
                };
                self.tune = Some(tune);
                // The caller asks again at once; nothing is on the bus.
                Step::Sleep(Duration::ZERO)
            }
            Op::Status => self.status(state),
            Op::Verify => self.verify(),
        })
    }
    fn verify(&mut self) -> Step<Out> {
        match self.card.kind {
            Kind::Sd { .. } => self.app(Acmd::SdStatus),
            Kind::Mmc(_) => self.go(State::Op(Op::Verify), Command::send_ext_csd(), EXT_CSD_LIMIT),
            Kind::Io => self.go(State::Op(Op::Verify), Command::io_read_direct(0, IO_SPEED), COMMAND_LIMIT),
        }
    }
    /// Data at the new speed never came whole.
    fn bad_speed(&mut self, reason: Reason) -> After {
        let mode = if self.rung != self.base() {
            Mode::Timing(self.rung)
        } else if self.bus.width > Width::One {
            Mode::Width(self.bus.width)
        } else {
            // One slow line: it is the card, and it can live without an SD status.
            return if self.mmc().is_some() {
                After::Lose(Fallback { mode: Mode::Timing(self.rung), reason })
            } else {
                After::Go
            };
        };
        After::Lose(Fallback { mode, reason })
    }

    // After data that went wrong.

    /// Sees that the card sends no more, then goes on with `after`.
    fn settle(&mut self, after: After) -> Step<Out> {
        let command = Command { gate: Gate::Now, ..Command::send_status(self.rca) };
        self.go(State::Settle(after), command, COMMAND_LIMIT)
    }
    fn settled(&mut self, after: After) -> Step<Out> {
        self.settles = 0;
        match after {
            After::WidthCheck => self.check_width(),
            After::List => self.ask(),
            After::Verify => self.verify(),
            After::Narrow => self.narrow(Reason::Data),
            After::OneLine => self.list(),
            After::Climb => self.climb(),
            After::Go => self.advance(),
            After::Lose(Fallback { mode, reason }) => self.lost(mode, reason, None, None),
        }
    }
    fn check_width(&mut self) -> Step<Out> {
        self.go(State::WidthCheck, Command::send_ext_csd(), EXT_CSD_LIMIT)
    }
    /// The mode to blame where the card is lost.
    fn suspect(&self) -> Mode {
        match self.state {
            State::Op(_) | State::App(Acmd::SdStatus) | State::Acmd(Acmd::SdStatus) => {
                Mode::Timing(self.rung)
            }
            State::Settle(After::Lose(f)) | State::Stop(After::Lose(f)) => f.mode,
            State::Settle(After::Verify | After::Go) | State::Stop(After::Verify | After::Go) => {
                Mode::Timing(self.rung)
            }
            _ => Mode::Width(self.width),
        }
    }

    /// The last step failed on the bus.
    fn failed(&mut self, e: HostError) -> Step<Out> {
        let noise = matches!(e.cause, Cause::Crc | Cause::Framing);
        if e.media_gone() || e.cause == Cause::Aborted {
            return self.end(SpeedCause::Host(e), Some(e), None);
        }
        let bus = matches!(
            self.state,
            State::WideBus | State::Op(Op::Slow | Op::Signal | Op::Gentle(_) | Op::Bus(_))
        );
        if matches!(e.cause, Cause::Unsupported(_)) && !bus {
            return self.end(SpeedCause::Host(e), Some(e), None);
        }
        let state = self.state;
        match state {
            State::App(acmd) if self.again() => self.app(acmd),
            // Only a pull-up.
            State::App(Acmd::Detect) | State::Acmd(Acmd::Detect) => {
                self.tries = 0;
                self.app(Acmd::Width)
            }
            // The card has not got ACMD6; or it has heard CMD55, and would take the CMD6 to come for that.
            State::App(Acmd::Width) => self.settle(After::OneLine),
            State::Acmd(Acmd::Width) if self.again() => self.app(Acmd::Width),
            State::App(Acmd::SdStatus) => match self.bad_speed(Reason::NoAnswer) {
                After::Lose(f) => self.lost(f.mode, f.reason, Some(e), None),
                after => self.settle(after),
            },
            State::Acmd(Acmd::SdStatus) => {
                let after = if !noise {
                    After::Go
                } else if self.again() {
                    After::Verify
                } else {
                    self.bad_speed(Reason::Data)
                };
                self.settle(after)
            }
            State::WidthCheck => {
                let after = if self.again() { After::WidthCheck } else { After::Narrow };
                self.settle(after)
            }
            State::List => {
                let after = if noise && self.again() {
                    After::List
                } else if noise && self.bus.width > Width::One {
                    let (mode, reason) = (Mode::Width(self.bus.width), Reason::Data);
                    After::Lose(Fallback { mode, reason })
                } else {
                    After::Climb
                };
                self.settle(after)
            }
            State::WidthStatus | State::Op(Op::Status) if self.again() => self.status(state),
            State::Op(Op::Verify) => {
                let again = self.again();
                if self.card.kind == Kind::Io {
                    return if again {
                        self.verify()
                    } else {
                        self.lost(Mode::Timing(self.rung), Reason::NoAnswer, Some(e), None)
                    };
                }
                let after = if again { After::Verify } else { self.bad_speed(Reason::Data) };
                self.settle(after)
            }
            State::Op(Op::Signal) if matches!(e.cause, Cause::Unsupported(_)) => {
                self.bus.signal = Signal::V3_3;
                self.refused(Reason::Host, None)
            }
            State::Settle(after) => {
                self.settles = self.settles.saturating_add(1);
                if self.settles < TRIES {
                    self.settle(after)
                } else {
                    self.lost(self.suspect(), Reason::NoAnswer, Some(e), None)
                }
            }
            // No answer: it had stopped by itself, or CMD13 will tell.
            State::Stop(after) => self.settle(after),
            _ => {
                let reason = if bus { Reason::Host } else { Reason::NoAnswer };
                self.lost(self.suspect(), reason, Some(e), None)
            }
        }
    }

    /// The last step worked.
    fn done(&mut self, reply: &Reply, scratch: &[u8]) -> Step<Out> {
        let status = status_of(reply);
        let bad = status.intersects(HARD_ERRORS);
        match self.state {
            State::App(acmd) => {
                if !status.contains(CardStatus::APP_CMD) {
                    return match acmd {
                        _ if self.again() => self.app(acmd),
                        Acmd::Detect | Acmd::Width => self.list(),
                        Acmd::SdStatus => self.advance(),
                    };
                }
                let (command, limit) = match acmd {
                    Acmd::Detect => (Command::acmd_set_clr_card_detect(false), COMMAND_LIMIT),
                    Acmd::Width => (Command::acmd_set_bus_width(Width::Four), COMMAND_LIMIT),
                    Acmd::SdStatus => (Command::acmd_sd_status(), REGISTER_LIMIT),
                };
                self.go(State::Acmd(acmd), command, limit)
            }
            State::Acmd(Acmd::Detect) => {
                self.tries = 0;
                self.app(Acmd::Width)
            }
            State::Acmd(Acmd::Width) if bad => self.list(),
            State::Acmd(Acmd::Width) if self.card.io.is_some() => self.io_width(),
            State::Acmd(Acmd::Width) => self.wide_bus(),
            State::IoWidth => {
                if R5::from(reply).errors() != 0 {
                    // A combo card's memory is on four lines already.
                    return self.lost(Mode::Width(self.width), Reason::Refused, None, None);
                }
                self.wide_bus()
            }
            State::Width | State::Op(Op::Write(..) | Op::Double(_)) if bad => {
                self.lost(self.suspect(), Reason::Refused, None, Some(status))
            }
            State::Width => {
                self.tries = 0;
                self.status(State::WidthStatus)
            }
            State::WidthStatus => {
                if status.contains(CardStatus::SWITCH_ERROR) {
                    self.narrow(Reason::Refused)
                } else if status.is_ready() && !bad {
                    self.wide_bus()
                } else if self.again() {
                    self.status(State::WidthStatus)
                } else {
                    self.lost(Mode::Width(self.width), Reason::NoAnswer, None, Some(status))
                }
            }
            State::WideBus if self.mmc().is_some() => {
                self.tries = 0;
                self.check_width()
            }
            State::WideBus => self.list(),
            State::WidthCheck => {
                if self.same_ext_csd(reply, scratch) {
                    self.list()
                } else if self.again() {
                    self.check_width()
                } else {
                    self.narrow(Reason::Data)
                }
            }
            State::List => {
                let list = register(reply, scratch).map(SwitchStatus::new);
                self.list = list.filter(|list| !bad && list.check().is_ok());
                self.climb()
            }
            State::Op(op) => self.op_done(op, reply, scratch),
            State::Acmd(Acmd::SdStatus) => {
                let ssr = register(reply, scratch).map(Ssr::new);
                self.ssr = ssr.filter(|ssr| !bad && ssr.check().is_ok());
                self.advance()
            }
            State::Settle(after) if moves_data(status) && self.settles < TRIES => {
                self.settles = self.settles.saturating_add(1);
                self.go(State::Stop(after), stop_now(), COMMAND_LIMIT)
            }
            State::Settle(after) => self.settled(after),
            State::Stop(after) => self.settle(after),
            State::Start | State::Over => self.end(SpeedCause::OutOfTurn, None, None),
        }
    }
    fn wide_bus(&mut self) -> Step<Out> {
        let bus = BusConfig { width: self.width, ..self.bus };
        self.set_bus(State::WideBus, bus)
    }
    fn same_ext_csd(&self, reply: &Reply, scratch: &[u8]) -> bool {
        reply.bytes == 512 && self.mmc().is_some_and(|mmc| digest(scratch) == mmc.digest)
    }
    /// A step of the way up worked on the bus; whether it did for the card.
    fn op_done(&mut self, op: Op, reply: &Reply, scratch: &[u8]) -> Step<Out> {
        let status = status_of(reply);
        let bad = status.intersects(HARD_ERRORS);
        match op {
            Op::Function(function) => {
                let list = register(reply, scratch).map(SwitchStatus::new);
                match list.filter(|list| !bad && list.check().is_ok()) {
                    // The timing is unknown now, and the standard asks for a power cycle.
                    None => self.lost(self.suspect(), Reason::Data, None, Some(status)),
                    // Groups that were asked to stay as they are may be told as 15, too (QEMU's card does).
                    Some(now)
                        if now.selected(1) == function
                            && (self.bus.signal == Signal::V3_3
                                || now.selected(3) != 15 && now.selected(4) != 15) =>
                    {
                        self.function = function;
                        self.switched = true;
                        self.advance()
                    }
                    Some(_) => self.refused(Reason::Refused, Some(status)),
                }
            }
            Op::Io(speed) => {
                if R5::from(reply).errors() != 0 {
                    return if self.switched {
                        self.lost(self.suspect(), Reason::Refused, None, None)
                    } else {
                        self.refused(Reason::Refused, None)
                    };
                }
                self.io_speed = speed;
                self.switched = true;
                self.advance()
            }
            Op::Status => {
                if self.mmc().is_some() && status.contains(CardStatus::SWITCH_ERROR) {
                    if self.switched {
                        self.lost(self.suspect(), Reason::Refused, None, Some(status))
                    } else {
                        self.refused(Reason::Refused, Some(status))
                    }
                } else if status.is_ready() && !bad {
                    self.switched = true;
                    self.advance()
                } else if self.again() {
                    self.status(State::Op(Op::Status))
                } else {
                    self.lost(self.suspect(), Reason::NoAnswer, None, Some(status))
                }
            }
            Op::Verify => {
                let good = match self.card.kind {
                    Kind::Io => R5::from(reply).errors() == 0,
                    _ => self.same_ext_csd(reply, scratch),
                };
                if good {
                    self.advance()
                } else if self.again() {
                    self.verify()
                } else {
                    self.lost(self.suspect(), Reason::Data, None, None)
                }
            }
            Op::Slow | Op::Signal | Op::Write(..) | Op::Double(_) | Op::Gentle(_) | Op::Bus(_) | Op::Tune => {
                self.advance()
            }
        }
    }

    fn tuned(&mut self, result: Result<super::Tuned, TuneError>) -> Step<Out> {
        match result {
            Ok(tuned) => {
                self.sample = tuned.bus.sample;
                self.bus = tuned.bus;
                self.advance()
            }
            Err(TuneError { cause: TuneCause::Host(e), .. })
                if matches!(e.cause, Cause::NoCard | Cause::Aborted) =>
            {
                self.end(SpeedCause::Host(e), Some(e), None)
            }
            // An SD card takes another function as it is; an eMMC must begin again.
            Err(e) if self.mmc().is_none() && !matches!(e.cause, TuneCause::Host(_)) => {
                self.refused(Reason::Tuning, None)
            }
            Err(e) => {
                let host = match e.cause {
                    TuneCause::Host(host) => Some(host),
                    _ => None,
                };
                self.lost(self.suspect(), Reason::Tuning, host, None)
            }
        }
    }
}

/// The value of `BUS_WIDTH` for this many lines.
const fn code(width: Width, double: bool) -> u8 {
    match (width, double) {
        (Width::Eight, true) => 6,
        (_, true) => 5,
        (Width::Eight, false) => 2,
        (Width::Four, false) => 1,
        (Width::One, false) => 0,
    }
}

impl Machine for Speed {
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
            return self.end(SpeedCause::OutOfTurn, None, None);
        }
        if now > started + Self::LIMIT {
            return self.end(SpeedCause::Limit, None, None);
        }
        if self.state == State::Start {
            if scratch.len() < 512 {
                return self.end(SpeedCause::Scratch, None, None);
            }
            return self.widen();
        }
        if let Some(tune) = &mut self.tune {
            return match tune.next(last, scratch, now) {
                Step::Done(result) => {
                    self.tune = None;
                    self.tuned(result)
                }
                Step::Do(action) => Step::Do(action),
                Step::Bus(bus) => Step::Bus(bus),
                Step::Power(power) => Step::Power(power),
                Step::Sleep(time) => Step::Sleep(time),
            };
        }
        match last {
            Some(Ok(reply)) => self.done(&reply, scratch),
            Some(Err(e)) => self.failed(e),
            None => self.end(SpeedCause::OutOfTurn, None, None),
        }
    }
}
