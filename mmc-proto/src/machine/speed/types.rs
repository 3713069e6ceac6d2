//! What a caller wants of the bus, what it gets, and how that can fail.

use crate::bus::{BusConfig, Timing, Timings, Width};
use crate::host::{Capabilities, HostError};
use crate::register::{Ssr, SwitchStatus};
use crate::status::CardStatus;
use core::fmt;

/// What the caller wants, beyond what the host can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeedOptions {
    /// Timings that may be used.
    pub timings: Timings,
    /// The widest bus to be used.
    pub width: Width,
    /// SD at 1.8 V: the driver strength wanted, function 0..=3 (B, A, C, D) of group 3; 0 where the card has not got it.
    pub driver: u8,
    /// SD at 1.8 V: the most current in mA the board can supply, at least 200; the card is allowed 400, 600 or 800
    /// where this and the card do.
    pub max_current_ma: u16,
}

impl SpeedOptions {
    /// All that the host can do; driver B and 200 mA.
    #[must_use]
    pub const fn new(caps: &Capabilities) -> Self {
        Self { timings: caps.timings, width: caps.width, driver: 0, max_current_ma: 200 }
    }
}

/// One property of a bus that a card can fail with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// So many lines.
    Width(Width),
    /// This timing.
    Timing(Timing),
    /// 1.8 V signalling.
    Signal,
}

/// Why a mode was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The card said no.
    Refused,
    /// The card answered no more, or not that it is ready.
    NoAnswer,
    /// Data did not arrive whole.
    Data,
    /// No sample point was found.
    Tuning,
    /// The host could not follow.
    Host,
}

/// A mode that was tried and left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fallback {
    /// Which.
    pub mode: Mode,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Mode::Width(width) => write!(f, "{} lines: ", width.lines())?,
            Mode::Timing(timing) => write!(f, "{timing:?}: ")?,
            Mode::Signal => f.write_str("1.8 V: ")?,
        }
        f.write_str(match self.reason {
            Reason::Refused => "the card refused it",
            Reason::NoAnswer => "the card did not answer in it",
            Reason::Data => "data did not arrive whole",
            Reason::Tuning => "no sample point was found",
            Reason::Host => "the host could not follow",
        })
    }
}

/// The modes that were tried and left, in their order; at most ten are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks {
    list: [Option<Fallback>; 10],
}

impl Fallbacks {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Fallback> + '_ {
        self.list.iter().flatten().copied()
    }
    pub(in crate::machine) fn push(&mut self, mode: Mode, reason: Reason) {
        if let Some(free) = self.list.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(Fallback { mode, reason });
        }
    }
    pub(in crate::machine) fn extend(&mut self, more: &Self) {
        more.iter().for_each(|f| self.push(f.mode, f.reason));
    }
}

/// The bus at the end of the climb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Raised {
    /// The bus as it is now.
    pub bus: BusConfig,
    /// SD: its functions, as CMD6 listed them; `None` if it was not asked or could not say.
    pub switch: Option<SwitchStatus>,
    /// SD: its status; `None` if it could not be read.
    pub ssr: Option<Ssr>,
    /// What was tried and left on the way.
    pub fallbacks: Fallbacks,
}

/// Where in the choice of a speed something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpeedPhase {
    /// Before the first step.
    Start,
    /// CMD55.
    App,
    /// ACMD42.
    Detect,
    /// ACMD6, or CMD6 of MMC for the width.
    Width,
    /// CMD52 for the width.
    IoWidth,
    /// The CMD13 after CMD6 of MMC for the width.
    WidthStatus,
    /// The host's width.
    WideBus,
    /// Reading the EXT_CSD over the new width.
    WidthCheck,
    /// CMD6 of SD: what can the card do?
    List,
    /// The host's timing, clock or signal level.
    Bus,
    /// CMD6 of SD.
    Function,
    /// CMD6 of MMC.
    Switch,
    /// CMD52 for the speed.
    IoSpeed,
    /// The tuning.
    Tune,
    /// CMD13.
    Status,
    /// Reading the SD status or the EXT_CSD at the new speed; CMD52 of SDIO.
    Verify,
    /// CMD13 after data that went wrong.
    Settle,
    /// CMD12, for a card that still sends.
    Stop,
    /// The conversation is over.
    Over,
}

impl fmt::Display for SpeedPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::App => "CMD55",
            Self::Detect => "ACMD42",
            Self::Width | Self::WidthStatus | Self::IoWidth => "switching the width",
            Self::WideBus => "setting the width",
            Self::WidthCheck => "checking the width",
            Self::List => "CMD6, list",
            Self::Bus => "setting the bus",
            Self::Function | Self::Switch => "CMD6",
            Self::IoSpeed => "CMD52, speed",
            Self::Tune => "tuning",
            Self::Status => "CMD13",
            Self::Verify => "checking the speed",
            Self::Settle | Self::Stop => "stopping bad data",
            Self::Over => "end",
        })
    }
}

/// Why no speed was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpeedCause {
    /// The host, or the card is gone.
    #[error(transparent)]
    Host(HostError),
    /// Nobody knows which mode the card is in: it must be identified again, without this mode.
    #[error("the card is lost ({0}): switch it off and on and leave this mode out")]
    Lost(Fallback),
    /// The scratch payload is missing or shorter than 512 bytes.
    #[error("choosing a speed needs a scratch payload of at least 512 bytes in its first segment")]
    Scratch,
    /// All of it took longer than [`Speed::LIMIT`](super::Speed::LIMIT).
    #[error("the choice of a speed took too long")]
    Limit,
    /// The machine was driven wrongly: asked again after its end, or without the result of its last step.
    #[error("the choice of a speed is over, or the result of its last step is missing")]
    OutOfTurn,
}

/// The error that ended the choice of a speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} ({phase})")]
pub struct SpeedError {
    /// What went wrong.
    pub cause: SpeedCause,
    /// Where.
    pub phase: SpeedPhase,
    /// The host's error behind a lost card, where there was one.
    pub host: Option<HostError>,
    /// R1 verbatim, where there was one that showed it.
    pub status: Option<CardStatus>,
    /// What was tried and left before.
    pub fallbacks: Fallbacks,
}

impl SpeedError {
    /// There is no card in the slot.
    #[must_use]
    pub const fn media_gone(&self) -> bool {
        match self.cause {
            SpeedCause::Host(e) => e.media_gone(),
            _ => false,
        }
    }
}
