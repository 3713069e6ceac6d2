//! What an identification finds, and how it can fail.

use super::{
    Family, Identify, MMC_READ_LIMIT, MMC_WRITE_LIMIT, Out, SD_READ_LIMIT, SD_WRITE_LIMIT, State, block_time,
};
use crate::bus::BusConfig;
use crate::host::HostError;
use crate::machine::Step;
use crate::machine::speed::Fallbacks;
use crate::machine::transfer::CardTraits;
use crate::quirk::{self, Avoid};
use crate::register::ext_csd::{DATA_SECTOR_SIZE, EXT_CSD_REV};
use crate::register::sdio::Cccr;
use crate::register::{Cid, Csd, ExtCsd, MmcCid, MmcCsd, Ocr, RegisterError, Scr, Ssr, SwitchStatus};
use crate::status::CardStatus;
use core::fmt;

/// An identified card: in the transfer state, on the bus as [`bus`](Self::bus) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identified {
    /// What a transfer needs to know; of an SDIO card without memory `blocks` is 0.
    pub traits: CardTraits,
    /// What the card answered to the last ACMD41, CMD1 or CMD5.
    pub ocr: Ocr,
    /// The bus as it is now.
    pub bus: BusConfig,
    /// The card answered CMD8: SD of version 2.00 or later.
    pub v2: bool,
    /// What must not be used with it although its registers offer it; [`traits`](Self::traits) has heeded it.
    pub avoid: Avoid,
    /// The registers of its memory.
    pub registers: Registers,
    /// Its I/O part, of SDIO and combo cards.
    pub io: Option<IoPart>,
    /// Modes that were tried and left: the bus could be faster but for these.
    pub fallbacks: Fallbacks,
}

impl Identified {
    /// The registers of an SD memory card.
    #[must_use]
    pub const fn sd(&self) -> Option<&SdPart> {
        match &self.registers {
            Registers::Sd(part) => Some(part),
            _ => None,
        }
    }
    /// The registers of an MMC or eMMC.
    #[must_use]
    pub const fn mmc(&self) -> Option<&MmcPart> {
        match &self.registers {
            Registers::Mmc(part) => Some(part),
            _ => None,
        }
    }
}

/// The registers of a card's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "no allocator, and there is one of it")]
pub enum Registers {
    /// SD, and the memory of a combo card.
    Sd(SdPart),
    /// MMC and eMMC.
    Mmc(MmcPart),
    /// An SDIO card has no memory.
    None,
}

/// The registers of an SD memory card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdPart {
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
}

/// The registers of an MMC or eMMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmcPart {
    /// Its identity, unchecked.
    pub cid: MmcCid,
    /// Its specific data.
    pub csd: MmcCsd,
    /// Its extended data as they were read, `ERASE_GROUP_DEF` as it is now, `BUS_WIDTH` and `HS_TIMING` as they were
    /// before the bus was chosen; `None` before version 4.0, or if it could not be read.
    pub ext_csd: Option<ExtCsd>,
}

/// The I/O part of an SDIO or combo card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoPart {
    /// Functions beside function 0, 1..=7.
    pub functions: u8,
    /// Its common registers as they were before the bus was chosen.
    pub cccr: Cccr,
}

/// Where in the identification something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdentifyStep {
    /// Before the first step.
    Start,
    /// Switching the supply.
    Power,
    /// Setting the clock.
    Bus,
    /// CMD52: the reset of an I/O part.
    IoReset,
    /// CMD0.
    Reset,
    /// CMD8 of SD.
    IfCond,
    /// CMD5 of SDIO.
    IoOpCond,
    /// CMD55 and ACMD41.
    OpCond,
    /// CMD1 of MMC.
    MmcOpCond,
    /// CMD11 and the switch to 1.8 V.
    Voltage,
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
    /// CMD52: the CCCR.
    IoRegisters,
    /// CMD8 of MMC.
    ExtCsd,
    /// CMD6 of MMC: `ERASE_GROUP_DEF`.
    EraseGroup,
    /// Width and speed: see [`Speed`](crate::machine::Speed).
    Speed,
    /// The conversation is over.
    Over,
}

impl fmt::Display for IdentifyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Power => "switching the supply",
            Self::Bus => "setting the bus",
            Self::IoReset => "CMD52, reset",
            Self::Reset => "CMD0",
            Self::IfCond | Self::ExtCsd => "CMD8",
            Self::IoOpCond => "CMD5",
            Self::OpCond => "ACMD41",
            Self::MmcOpCond => "CMD1",
            Self::Voltage => "CMD11",
            Self::Cid => "CMD2",
            Self::Address => "CMD3",
            Self::Csd => "CMD9",
            Self::Select => "CMD7",
            Self::BlockLen => "CMD16",
            Self::Scr => "ACMD51",
            Self::IoRegisters => "CMD52, CCCR",
            Self::EraseGroup => "CMD6, ERASE_GROUP_DEF",
            Self::Speed => "choosing width and speed",
            Self::Over => "end",
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
    /// Nothing answers.
    #[error("no card answers, neither CMD5 nor CMD55 nor CMD1: check that one is inserted and has supply")]
    NoAnswer,
    /// Something answers, but not as any card does.
    #[error("not a card this knows: {0}")]
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
    #[error("the card was not ready 2 s after it was first asked ({0}): switch it off and on")]
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
    /// The card's answers contradict each other about sectors or bytes: every address would be wrong.
    #[error("the card's registers contradict each other about addressing (sectors or bytes)")]
    Addressing,
    /// The scratch payload is missing or shorter than 512 bytes.
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

impl Identify {
    /// The card as it was found.
    pub(super) fn finish(&mut self, switch: Option<SwitchStatus>, ssr: Option<Ssr>) -> Step<Out> {
        self.state = State::Over;
        let (cid, csd, scr) = (self.cid, self.csd, self.scr);
        let mut avoid = Avoid::empty();
        let block_time = block_time(&self.bus);
        let mut traits = CardTraits {
            rca: self.rca,
            blocks: 0,
            byte_addressed: false,
            cmd23: false,
            read_limit: SD_READ_LIMIT,
            write_limit: SD_WRITE_LIMIT,
            block_time,
            unit: 1,
        };
        let registers = match self.family {
            Family::Sd => {
                avoid = quirk::avoid(&cid, quirk::SD);
                traits.blocks = csd.blocks();
                traits.byte_addressed = csd.byte_addressed();
                traits.cmd23 = scr.is_some_and(|scr| scr.has_cmd23()) && !avoid.contains(Avoid::CMD23);
                Registers::Sd(SdPart { cid, csd, scr, ssr, switch })
            }
            Family::Mmc => {
                traits.blocks = self.mmc_blocks();
                traits.byte_addressed = self.mmc_byte_addressed();
                // CMD23: from version 3.1 on.
                let rev = self.ext_csd.and_then(|e| u8::try_from(e.get(EXT_CSD_REV)).ok());
                avoid = quirk::avoid_mmc(&self.mmc_cid, rev, quirk::MMC);
                traits.cmd23 = self.mmc_csd.spec_vers() >= 3 && !avoid.contains(Avoid::CMD23);
                (traits.read_limit, traits.write_limit) = (MMC_READ_LIMIT, MMC_WRITE_LIMIT);
                let native = self.ext_csd.is_some_and(|e| e.get(DATA_SECTOR_SIZE) == 1);
                traits.unit = if native { 8 } else { 1 };
                Registers::Mmc(MmcPart { cid: self.mmc_cid, csd: self.mmc_csd, ext_csd: self.ext_csd })
            }
            Family::Io => Registers::None,
        };
        let functions = self.io.map_or(0, |io| io.functions);
        let io = self.cccr().map(|cccr| IoPart { functions, cccr });
        Step::Done(Ok(Identified {
            traits,
            ocr: self.ocr,
            bus: self.bus,
            v2: self.v2,
            avoid,
            registers,
            io,
            fallbacks: self.fallbacks,
        }))
    }
}
