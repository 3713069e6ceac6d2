//! From an empty slot to a selected SD card: `spec/card.md` §13.1 with the limits of §14.
//!
//! ```text
//!  power on, 400 kHz, one line                 CMD0, CMD8, (CMD55, ACMD41) until ready, at most 2 s
//!  CMD2, CMD3, CMD9 · 25 MHz · CMD7            byte-addressed cards: CMD16 512
//!  SCR (ACMD51) · ACMD42, ACMD6, four lines    where card and host have them
//!  SD status (ACMD13) · CMD6, 50 MHz           where card and host can
//!  CMD13                                       the card answers at its new speed, or all again without it
//! ```
//!
//! What a card can live without (SCR, SD status, CMD6, four lines) never fails the identification. A step
//! that leaves the card in an unknown state begins all again with a power cycle, at most
//! [`Identify::RESTARTS`] times.

use super::transfer::{COMMAND_LIMIT, CardTraits};
use super::{Action, Machine, Step};
use crate::bus::{BusConfig, Power, Signal, Timing, Width};
use crate::command::{Command, Gate};
use crate::host::{Capabilities, Cause, HostError, Reply};
use crate::quirk::{self, Avoid};
use crate::register::{Cid, CrcPolicy, Csd, Ocr, RegisterError, Scr, Ssr, SwitchStatus};
use crate::status::{CardState, CardStatus};
use core::fmt;
use mmc_time::{Duration, Instant};

/// Longest from CMD6, ACMD13 or ACMD51 to the end of its data: 100 ms by the standard, and room.
const REGISTER_LIMIT: Duration = Duration::from_millis(200);
/// Longest CMD7 may keep DAT0 low.
const SELECT_LIMIT: Duration = Duration::from_millis(500);
/// From the first ACMD41 on. The standard says 1 s; cards are known that need more.
const POWER_UP_LIMIT: Duration = Duration::from_secs(2);
/// Pause after the supply or the clock changed, and after CMD0.
const SETTLE: Duration = Duration::from_millis(1);
/// Between two ACMD41: first, and then …
const POLL: Duration = Duration::from_millis(10);
/// … from the fourth on.
const SLOW_POLL: Duration = Duration::from_millis(20);
/// Supply off before it is switched on again.
const OFF: Duration = Duration::from_millis(10);
/// How often a step that harms nothing is tried.
const TRIES: u8 = 3;
/// How often in a row CMD55 may go unanswered before the slot counts as one without an SD card (about 170
/// ms).
const CMD55_TRIES: u8 = 10;

/// Longest wait for read data that [`CardTraits`] of an SD card state. The standard says 100 ms; cards that
/// need up to 250 ms have been reported.
pub const SD_READ_LIMIT: Duration = Duration::from_millis(500);
/// Longest busy after a write that [`CardTraits`] of an SD card state. The standard says 250 ms (SDHC) and
/// 500 ms (SDXC); real cards take more than 900 ms, and Linux allows this.
pub const SD_WRITE_LIMIT: Duration = Duration::from_secs(3);

/// An identified card: in the transfer state, on the bus as [`bus`](Self::bus) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identified {
    /// What a transfer needs to know.
    pub traits: CardTraits,
    /// What the card answered to the last ACMD41.
    pub ocr: Ocr,
    /// Its identity, unchecked: counterfeits have none, and their data are still somebody's.
    pub cid: Cid,
    /// Its specific data.
    pub csd: Csd,
    /// Its configuration; `None` if it could not be read.
    pub scr: Option<Scr>,
    /// Its SD status; `None` if it could not be read.
    pub ssr: Option<Ssr>,
    /// Its functions, as CMD6 listed them; `None` if it was not asked or could not say.
    pub switch: Option<SwitchStatus>,
    /// The bus as it is now.
    pub bus: BusConfig,
    /// The card answered CMD8: version 2.00 or later.
    pub v2: bool,
    /// What must not be used with it although its registers offer it; [`traits`](Self::traits) has heeded it.
    pub avoid: Avoid,
}

/// Where in the identification something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdentifyStep {
    /// Before the first step.
    Start,
    /// Switching the supply.
    Power,
    /// Setting the clock or the width.
    Bus,
    /// CMD0.
    Reset,
    /// CMD8.
    IfCond,
    /// CMD55 and ACMD41.
    OpCond,
    /// CMD2.
    Cid,
    /// CMD3.
    Address,
    /// CMD9.
    Csd,
    /// CMD7.
    Select,
    /// CMD16.
    BlockLen,
    /// ACMD51.
    Scr,
    /// ACMD42 and ACMD6.
    Width,
    /// ACMD13.
    SdStatus,
    /// CMD6.
    Switch,
    /// The CMD13 at the end.
    Check,
}

impl fmt::Display for IdentifyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Power => "switching the supply",
            Self::Bus => "setting the bus",
            Self::Reset => "CMD0",
            Self::IfCond => "CMD8",
            Self::OpCond => "ACMD41",
            Self::Cid => "CMD2",
            Self::Address => "CMD3",
            Self::Csd => "CMD9",
            Self::Select => "CMD7",
            Self::BlockLen => "CMD16",
            Self::Scr => "ACMD51",
            Self::Width => "ACMD6",
            Self::SdStatus => "ACMD13",
            Self::Switch => "CMD6",
            Self::Check => "CMD13",
        })
    }
}

/// Why a card could not be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentifyCause {
    /// The host, or the bus.
    #[error(transparent)]
    Host(HostError),
    /// Whatever is in the slot, if anything is, does not speak as an SD memory card does.
    #[error("not an SD card: {0}")]
    NotSd(&'static str),
    /// Card and host have no supply voltage in common.
    #[error("no common supply voltage: the card has {card:#08x}, the host {host:#08x} (OCR bits 23:15)")]
    Voltage {
        /// The card's window.
        card: u32,
        /// The host's window.
        host: u32,
    },
    /// The card was still busy with its power-up after 2 s.
    #[error("the card was not ready 2 s after its first ACMD41 ({0}): switch it off and on")]
    PowerUp(Ocr),
    /// The card echoed another pattern than CMD8 sent, each time.
    #[error("the answer to CMD8 is {0:#010x}: the pattern 0xaa did not come back, check supply and CMD line")]
    Echo(u32),
    /// A register makes no sense.
    #[error("the register cannot be right: {0}")]
    Register(RegisterError),
    /// The card gave itself address 0, each time.
    #[error("the card gives itself address 0")]
    NoAddress,
    /// The card reported error bits: see [`IdentifyError::status`].
    #[error("the card reported an error")]
    Card,
    /// The card is locked by a password.
    #[error("the card is locked by a password: unlock it with CMD42")]
    Locked,
    /// OCR says sectors and CSD bytes, or the other way round: every address would be wrong.
    #[error("OCR and CSD contradict each other about addressing")]
    Addressing,
    /// The scratch payload is missing or shorter than 64 bytes.
    #[error("identification needs a scratch payload of at least 512 bytes in its first segment")]
    Scratch,
    /// All of it took longer than [`Identify::LIMIT`].
    #[error("the identification took too long")]
    Limit,
    /// The machine was driven wrongly: asked again after its end, or without the result of its last step.
    #[error("the identification is over, or the result of its last step is missing")]
    OutOfTurn,
}

/// The error that ended an identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} ({step})")]
pub struct IdentifyError {
    /// What went wrong.
    pub cause: IdentifyCause,
    /// Where.
    pub step: IdentifyStep,
    /// R1 verbatim, where there was one that showed it.
    pub status: Option<CardStatus>,
}

impl IdentifyError {
    /// Another attempt may succeed as it is.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self.cause {
            IdentifyCause::Host(e) => e.is_retryable(),
            IdentifyCause::Register(_) | IdentifyCause::Echo(_) | IdentifyCause::Card => true,
            _ => false,
        }
    }
    /// The card should be without supply for a moment before the next attempt.
    #[must_use]
    pub const fn needs_reset(&self) -> bool {
        !self.media_gone() && !matches!(self.cause, IdentifyCause::Scratch | IdentifyCause::OutOfTurn)
    }
    /// There is no card in the slot.
    #[must_use]
    pub const fn media_gone(&self) -> bool {
        match self.cause {
            IdentifyCause::Host(e) => e.media_gone(),
            _ => false,
        }
    }
}

/// The application commands of this conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acmd {
    OpCond,
    Scr,
    Detect,
    Width,
    SdStatus,
}

/// What comes once the card is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Scr,
    Width,
    SdStatus,
    Switch,
    Check,
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
    Reset,
    ResetPause,
    IfCond,
    /// The CMD55 before it.
    App(Acmd),
    Acmd(Acmd),
    OpCondPause,
    Cid,
    Address,
    Csd,
    FastBus,
    Select,
    BlockLen,
    WideBus,
    SwitchCheck,
    SwitchSet,
    HighBus,
    Check,
    /// After data that went wrong: CMD13, then CMD12 if the card still sends.
    Settle(Then),
    SettleStop(Then),
    Over,
}

/// Identifies an SD card: SDSC 1.x and 2.00, SDHC, SDXC. MMC, eMMC and SDIO are refused.
///
/// Ends within [`Identify::LIMIT`] plus the last step's own limit, when it is driven at the instants it
/// names. Needs a scratch payload (see [`Machine::scratch`]).
#[derive(Clone, Copy, Debug)]
pub struct Identify {
    caps: Capabilities,
    state: State,
    started: Option<Instant>,
    power_up_by: Option<Instant>,
    tries: u8,
    settles: u8,
    polls: u8,
    restarts: u8,
    wide: bool,
    high_speed: bool,
    v2: bool,
    answered: bool,
    rca: u16,
    ocr: Ocr,
    cid: Cid,
    csd: Csd,
    scr: Option<Scr>,
    ssr: Option<Ssr>,
    switch: Option<SwitchStatus>,
    bus: BusConfig,
}

type Out = Result<Identified, IdentifyError>;

/// Errors of the command at hand; what the command before did wrong (CMD8 on an old card) shows in the same
/// R1.
const HARD_ERRORS: CardStatus = CardStatus::from_bits_retain(
    CardStatus::ERRORS.bits() & !(CardStatus::ILLEGAL_COMMAND.bits() | CardStatus::COM_CRC_ERROR.bits()),
);

impl Identify {
    /// The longest the whole takes; a step that runs then is still waited for.
    pub const LIMIT: Duration = Duration::from_secs(20);
    /// How often all of it is begun again after a step that left the card in an unknown state.
    pub const RESTARTS: u8 = 2;

    /// For a host with these capabilities.
    #[must_use]
    pub fn new(caps: &Capabilities) -> Self {
        Self {
            caps: *caps,
            state: State::Start,
            started: None,
            power_up_by: None,
            tries: 0,
            settles: 0,
            polls: 0,
            restarts: 0,
            wide: caps.width >= Width::Four,
            high_speed: caps.max_hz > 25_000_000,
            v2: false,
            answered: false,
            rca: 0,
            ocr: Ocr(0),
            cid: Cid::new([0; 16]),
            csd: Csd::new([0; 16]),
            scr: None,
            ssr: None,
            switch: None,
            bus: BusConfig::default(),
        }
    }

    fn end(&mut self, cause: IdentifyCause, status: Option<CardStatus>) -> Step<Out> {
        let step = self.step();
        self.state = State::Over;
        Step::Done(Err(IdentifyError { cause, step, status }))
    }

    fn step(&self) -> IdentifyStep {
        match self.state {
            State::Start | State::Over => IdentifyStep::Start,
            State::PowerOff | State::OffPause | State::PowerOn => IdentifyStep::Power,
            State::SlowBus | State::BusPause | State::FastBus | State::WideBus | State::HighBus => {
                IdentifyStep::Bus
            }
            State::Reset | State::ResetPause => IdentifyStep::Reset,
            State::IfCond => IdentifyStep::IfCond,
            State::OpCondPause => IdentifyStep::OpCond,
            State::App(acmd) | State::Acmd(acmd) => match acmd {
                Acmd::OpCond => IdentifyStep::OpCond,
                Acmd::Scr => IdentifyStep::Scr,
                Acmd::Detect | Acmd::Width => IdentifyStep::Width,
                Acmd::SdStatus => IdentifyStep::SdStatus,
            },
            State::Cid => IdentifyStep::Cid,
            State::Address => IdentifyStep::Address,
            State::Csd => IdentifyStep::Csd,
            State::Select => IdentifyStep::Select,
            State::BlockLen => IdentifyStep::BlockLen,
            State::SwitchCheck | State::SwitchSet => IdentifyStep::Switch,
            State::Check | State::Settle(_) | State::SettleStop(_) => IdentifyStep::Check,
        }
    }

    fn go(&mut self, state: State, command: Command, limit: Duration) -> Step<Out> {
        self.state = state;
        Step::Do(Action { command, limit })
    }

    fn sleep(&mut self, state: State, time: Duration) -> Step<Out> {
        self.state = state;
        Step::Sleep(time)
    }

    fn set_bus(&mut self, state: State, hz: u32, width: Width, timing: Timing) -> Step<Out> {
        self.state = state;
        self.bus = BusConfig { hz: hz.min(self.caps.max_hz), width, timing, signal: Signal::V3_3, sample: 0 };
        Step::Bus(self.bus)
    }

    /// One more try of a step that changes nothing.
    fn try_again(&mut self) -> bool {
        self.tries = self.tries.saturating_add(1);
        self.tries < TRIES
    }

    fn settle_again(&mut self) -> bool {
        self.settles = self.settles.saturating_add(1);
        self.settles < TRIES
    }

    /// All again from a power cycle, or the end.
    fn restart(&mut self, cause: IdentifyCause, status: Option<CardStatus>) -> Step<Out> {
        if self.restarts >= Self::RESTARTS {
            return self.end(cause, status);
        }
        self.restarts = self.restarts.saturating_add(1);
        self.state = State::PowerOff;
        Step::Power(Power::Off)
    }

    fn power_on(&mut self) -> Step<Out> {
        self.state = State::PowerOn;
        Step::Power(Power::On)
    }

    /// Back at the beginning of the conversation: forget what the last round found.
    fn reset(&mut self) -> Step<Out> {
        self.tries = 0;
        self.polls = 0;
        self.power_up_by = None;
        self.v2 = false;
        self.answered = false;
        self.rca = 0;
        self.ocr = Ocr(0);
        self.scr = None;
        self.ssr = None;
        self.switch = None;
        self.go(State::Reset, Command { init_clocks: true, ..Command::go_idle_state() }, COMMAND_LIMIT)
    }

    fn if_cond(&mut self) -> Step<Out> {
        self.go(State::IfCond, Command::send_if_cond(0xaa), COMMAND_LIMIT)
    }

    fn app(&mut self, acmd: Acmd) -> Step<Out> {
        self.go(State::App(acmd), Command::app_cmd(self.rca), COMMAND_LIMIT)
    }

    fn acmd(&mut self, acmd: Acmd) -> Step<Out> {
        let (command, limit) = match acmd {
            Acmd::OpCond => {
                let hcs = if self.v2 { 1 << 30 } else { 0 };
                (Command::acmd_sd_send_op_cond(hcs | self.window()), COMMAND_LIMIT)
            }
            Acmd::Scr => (Command::acmd_send_scr(), REGISTER_LIMIT),
            Acmd::Detect => (Command::acmd_set_clr_card_detect(false), COMMAND_LIMIT),
            Acmd::Width => (Command::acmd_set_bus_width(Width::Four), COMMAND_LIMIT),
            Acmd::SdStatus => (Command::acmd_sd_status(), REGISTER_LIMIT),
        };
        self.go(State::Acmd(acmd), command, limit)
    }

    fn window(&self) -> u32 {
        self.caps.ocr & Ocr::WINDOW
    }

    /// Begins a later part of the conversation, or the one after it where this card or host has no use for
    /// it.
    fn begin(&mut self, then: Then) -> Step<Out> {
        self.settles = 0;
        if then != Then::Scr {
            self.tries = 0;
        }
        match then {
            Then::Scr => self.app(Acmd::Scr),
            Then::Width if self.wide && self.scr.is_some_and(|scr| scr.four_lines()) => {
                self.app(Acmd::Detect)
            }
            Then::Width | Then::SdStatus => self.app(Acmd::SdStatus),
            Then::Switch
                if self.high_speed
                    && self.csd.has_class(10)
                    && self.scr.is_some_and(|scr| scr.sd_spec() >= 1) =>
            {
                self.go(State::SwitchCheck, Command::switch_function(false, 1, 1), REGISTER_LIMIT)
            }
            Then::Switch | Then::Check => {
                self.go(State::Check, Command::send_status(self.rca), COMMAND_LIMIT)
            }
        }
    }

    /// Data went wrong: sees that the card sends no more, then goes on.
    fn settle(&mut self, then: Then) -> Step<Out> {
        let command = Command { gate: Gate::Now, ..Command::send_status(self.rca) };
        self.go(State::Settle(then), command, COMMAND_LIMIT)
    }

    /// ACMD41 brought nothing yet: once more, until the limit.
    fn op_cond_again(&mut self, now: Instant) -> Step<Out> {
        let by = *self.power_up_by.get_or_insert(now + POWER_UP_LIMIT);
        if now >= by {
            return if !self.answered {
                self.end(IdentifyCause::NotSd("no answer to CMD55 and ACMD41 for 2 s"), None)
            } else if let Err(e) = self.ocr.check() {
                self.end(IdentifyCause::Register(e), None)
            } else {
                self.end(IdentifyCause::PowerUp(self.ocr), None)
            };
        }
        self.polls = self.polls.saturating_add(1);
        let pause = if self.polls > 3 { SLOW_POLL } else { POLL };
        self.sleep(State::OpCondPause, pause)
    }

    fn op_cond(&mut self, reply: &Reply, now: Instant) -> Step<Out> {
        let [word, ..] = reply.words;
        self.ocr = Ocr(word);
        self.answered = true;
        if self.ocr.check().is_err() || !self.ocr.power_up() {
            return self.op_cond_again(now);
        }
        if self.ocr.window() & self.window() == 0 {
            let (card, host) = (self.ocr.window(), self.window());
            return self.end(IdentifyCause::Voltage { card, host }, None);
        }
        self.tries = 0;
        self.go(State::Cid, Command::all_send_cid(), COMMAND_LIMIT)
    }

    /// A CMD55 or its application command failed: on the bus (`host`), or by the card's own word (`status`).
    fn acmd_failed(
        &mut self,
        acmd: Acmd,
        host: Option<HostError>,
        status: Option<CardStatus>,
        now: Instant,
    ) -> Step<Out> {
        let sent = matches!(self.state, State::Acmd(_));
        if acmd == Acmd::OpCond {
            self.tries = self.tries.saturating_add(1);
            // A card that answered CMD8 is an SD card, however cold: it gets all of its two seconds.
            if sent || self.v2 || self.tries < CMD55_TRIES {
                return self.op_cond_again(now);
            }
            return match host {
                Some(e) if e.cause != Cause::Timeout => self.end(IdentifyCause::Host(e), None),
                Some(_) => self.end(IdentifyCause::NotSd("no answer to CMD55 (no card, MMC or SDIO?)"), None),
                None => self.end(IdentifyCause::NotSd("CMD55 is not taken as APP_CMD"), status),
            };
        }
        if !sent && self.try_again() {
            return self.app(acmd);
        }
        match acmd {
            Acmd::Scr => {
                let again = sent && self.try_again();
                self.settle(if again { Then::Scr } else { Then::Width })
            }
            // Only a pull-up.
            Acmd::Detect => {
                self.tries = 0;
                self.app(Acmd::Width)
            }
            Acmd::Width => match host {
                Some(e) if sent => {
                    // One line or four? Nobody knows.
                    self.wide = false;
                    self.restart(IdentifyCause::Host(e), None)
                }
                _ => self.begin(Then::SdStatus),
            },
            Acmd::SdStatus | Acmd::OpCond => self.settle(Then::Switch),
        }
    }

    fn acmd_done(&mut self, acmd: Acmd, reply: &Reply, scratch: &[u8], now: Instant) -> Step<Out> {
        if acmd == Acmd::OpCond {
            return self.op_cond(reply, now);
        }
        let status = status_of(reply);
        if status.intersects(HARD_ERRORS) {
            return self.acmd_failed(acmd, None, Some(status), now);
        }
        match acmd {
            Acmd::Scr => match register(reply, scratch).map(Scr::new) {
                Some(scr) if scr.check().is_ok() => {
                    self.scr = Some(scr);
                    self.begin(Then::Width)
                }
                _ => self.acmd_failed(acmd, None, Some(status), now),
            },
            Acmd::SdStatus => {
                self.ssr = register(reply, scratch).map(Ssr::new).filter(|ssr| ssr.check().is_ok());
                self.begin(Then::Switch)
            }
            Acmd::Detect => {
                self.tries = 0;
                self.app(Acmd::Width)
            }
            Acmd::Width => self.set_bus(State::WideBus, self.bus.hz, Width::Four, Timing::Default),
            Acmd::OpCond => self.op_cond(reply, now),
        }
    }

    /// The answer to CMD6.
    fn switched(&mut self, set: bool, reply: &Reply, scratch: &[u8]) -> Step<Out> {
        let errors = status_of(reply).intersects(HARD_ERRORS);
        let status = register(reply, scratch).map(SwitchStatus::new).filter(|s| !errors && s.check().is_ok());
        let Some(status) = status else {
            return self.switch_failed(set, IdentifyCause::Card, Some(status_of(reply)));
        };
        if !set {
            self.switch = Some(status);
            if status.can(1, 1) && status.selected(1) == 1 {
                return self.go(State::SwitchSet, Command::switch_function(true, 1, 1), REGISTER_LIMIT);
            }
        } else if status.selected(1) == 1 {
            return self.set_bus(State::HighBus, 50_000_000, self.bus.width, Timing::High);
        }
        self.begin(Then::Check)
    }

    fn switch_failed(&mut self, set: bool, cause: IdentifyCause, status: Option<CardStatus>) -> Step<Out> {
        if set {
            // The timing is unknown now, and the standard asks for a power cycle.
            self.high_speed = false;
            self.restart(cause, status)
        } else {
            self.settle(Then::Check)
        }
    }

    fn finish(&mut self) -> Step<Out> {
        self.state = State::Over;
        let scr = self.scr;
        let avoid = quirk::avoid(&self.cid, quirk::SD);
        let traits = CardTraits {
            rca: self.rca,
            blocks: self.csd.blocks(),
            byte_addressed: self.csd.byte_addressed(),
            cmd23: scr.is_some_and(|scr| scr.has_cmd23()) && !avoid.contains(Avoid::CMD23),
            read_limit: SD_READ_LIMIT,
            write_limit: SD_WRITE_LIMIT,
            block_time: block_time(&self.bus),
            unit: 1,
        };
        Step::Done(Ok(Identified {
            traits,
            ocr: self.ocr,
            cid: self.cid,
            csd: self.csd,
            scr,
            ssr: self.ssr,
            switch: self.switch,
            bus: self.bus,
            v2: self.v2,
            avoid,
        }))
    }

    /// The last step failed on the bus.
    fn failed(&mut self, e: HostError, now: Instant) -> Step<Out> {
        let cause = IdentifyCause::Host(e);
        if matches!(e.cause, Cause::Unsupported(_)) && matches!(self.state, State::PowerOff | State::PowerOn)
        {
            // A board whose supply is always on: CMD0 has to do.
            return self.done(&Reply::default(), &[], now);
        }
        // Four lines and high speed the host may refuse: then without.
        let optional = matches!(self.state, State::WideBus | State::HighBus);
        if e.media_gone()
            || e.cause == Cause::Aborted
            || (matches!(e.cause, Cause::Unsupported(_)) && !optional)
        {
            return self.end(cause, None);
        }
        match self.state {
            State::IfCond => {
                if self.try_again() && (e.cause != Cause::Timeout || self.tries < 2) {
                    self.if_cond()
                } else if e.cause == Cause::Timeout {
                    // Version 1.x, or no SD card at all: CMD55 will tell.
                    self.tries = 0;
                    self.app(Acmd::OpCond)
                } else {
                    self.end(cause, None)
                }
            }
            State::App(acmd) | State::Acmd(acmd) => self.acmd_failed(acmd, Some(e), None, now),
            State::Csd => {
                if self.try_again() {
                    self.go(State::Csd, Command::send_csd(self.rca), COMMAND_LIMIT)
                } else {
                    self.restart(cause, None)
                }
            }
            State::WideBus => {
                self.wide = false;
                self.restart(cause, None)
            }
            State::SwitchCheck | State::SwitchSet => {
                self.switch_failed(self.state == State::SwitchSet, cause, None)
            }
            State::HighBus | State::Check => {
                // It may be the speed: without it the next time.
                self.high_speed = false;
                self.restart(cause, None)
            }
            State::Settle(then) => {
                if self.settle_again() {
                    self.settle(then)
                } else {
                    self.restart(cause, None)
                }
            }
            // No answer: it had stopped by itself.
            State::SettleStop(then) => self.begin(then),
            _ => self.restart(cause, None),
        }
    }

    /// The last step worked.
    fn done(&mut self, reply: &Reply, scratch: &[u8], now: Instant) -> Step<Out> {
        let [word, ..] = reply.words;
        let status = status_of(reply);
        match self.state {
            State::PowerOff => self.sleep(State::OffPause, OFF),
            State::PowerOn => self.set_bus(State::SlowBus, 400_000, Width::One, Timing::Default),
            State::SlowBus => self.sleep(State::BusPause, SETTLE),
            State::Reset => self.sleep(State::ResetPause, SETTLE),
            State::IfCond => {
                if word & 0xff == 0xaa {
                    self.v2 = true;
                    self.tries = 0;
                    self.app(Acmd::OpCond)
                } else if self.try_again() {
                    self.if_cond()
                } else {
                    self.end(IdentifyCause::Echo(word), None)
                }
            }
            State::App(acmd) => {
                if !status.contains(CardStatus::APP_CMD) {
                    return self.acmd_failed(acmd, None, Some(status), now);
                }
                if acmd == Acmd::OpCond {
                    self.tries = 0;
                    // The standard counts from the first ACMD41.
                    self.power_up_by.get_or_insert(now + POWER_UP_LIMIT);
                }
                self.acmd(acmd)
            }
            State::Acmd(acmd) => self.acmd_done(acmd, reply, scratch, now),
            State::Cid => {
                self.cid = Cid::from_words(reply.words);
                self.tries = 0;
                self.go(State::Address, Command::send_relative_addr(), COMMAND_LIMIT)
            }
            State::Address => {
                self.rca = u16::try_from(word >> 16).unwrap_or(0);
                if self.rca != 0 {
                    self.tries = 0;
                    self.go(State::Csd, Command::send_csd(self.rca), COMMAND_LIMIT)
                } else if self.try_again() {
                    self.go(State::Address, Command::send_relative_addr(), COMMAND_LIMIT)
                } else {
                    self.end(IdentifyCause::NoAddress, None)
                }
            }
            State::Csd => {
                self.csd = Csd::from_words(reply.words);
                if let Err(e) = self.csd.check(CrcPolicy::Host) {
                    return if self.try_again() {
                        self.go(State::Csd, Command::send_csd(self.rca), COMMAND_LIMIT)
                    } else {
                        self.end(IdentifyCause::Register(e), None)
                    };
                }
                if self.csd.byte_addressed() == self.ocr.ccs() {
                    return self.end(IdentifyCause::Addressing, None);
                }
                // TRAN_SPEED is wrong on some cards; every SD card does 25 MHz.
                self.set_bus(State::FastBus, 25_000_000, Width::One, Timing::Default)
            }
            State::FastBus => self.go(State::Select, Command::select_card(self.rca), SELECT_LIMIT),
            State::Select | State::BlockLen => {
                if status.contains(CardStatus::CARD_IS_LOCKED) {
                    return self.end(IdentifyCause::Locked, Some(status));
                }
                if status.intersects(HARD_ERRORS) {
                    return self.restart(IdentifyCause::Card, Some(status));
                }
                self.tries = 0;
                if self.state == State::Select && self.csd.byte_addressed() {
                    return self.go(State::BlockLen, Command::set_blocklen(512), COMMAND_LIMIT);
                }
                self.begin(Then::Scr)
            }
            State::WideBus => self.begin(Then::SdStatus),
            State::SwitchCheck => self.switched(false, reply, scratch),
            State::SwitchSet => self.switched(true, reply, scratch),
            State::HighBus => self.begin(Then::Check),
            State::Check => {
                if status.is_ready() {
                    self.finish()
                } else {
                    self.restart(IdentifyCause::Card, Some(status))
                }
            }
            State::Settle(then) => match status.state() {
                CardState::Data | CardState::Rcv if self.settles < TRIES => {
                    self.settles = self.settles.saturating_add(1);
                    let stop = Command { busy: false, ..Command::stop_transmission() };
                    self.go(State::SettleStop(then), stop, COMMAND_LIMIT)
                }
                _ => self.begin(then),
            },
            State::SettleStop(then) => self.settle(then),
            State::Start
            | State::OffPause
            | State::BusPause
            | State::ResetPause
            | State::OpCondPause
            | State::Over => self.end(IdentifyCause::OutOfTurn, None),
        }
    }
}

fn status_of(reply: &Reply) -> CardStatus {
    let [word, ..] = reply.words;
    CardStatus::from_bits_retain(word)
}

/// The first `N` bytes of `scratch`, if the host moved that many.
fn register<const N: usize>(reply: &Reply, scratch: &[u8]) -> Option<[u8; N]> {
    if reply.bytes != N as u64 {
        return None;
    }
    scratch.first_chunk::<N>().copied()
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
            if scratch.len() < Ssr::LEN {
                return self.end(IdentifyCause::Scratch, None);
            }
            return self.power_on();
        }
        if now > started + Self::LIMIT {
            return self.end(IdentifyCause::Limit, None);
        }
        match self.state {
            State::OffPause => return self.power_on(),
            State::BusPause => return self.reset(),
            State::ResetPause => return self.if_cond(),
            State::OpCondPause => return self.app(Acmd::OpCond),
            _ => {}
        }
        match last {
            Some(Ok(reply)) => self.done(&reply, scratch, now),
            Some(Err(e)) => self.failed(e, now),
            None => self.end(IdentifyCause::OutOfTurn, None),
        }
    }
}
