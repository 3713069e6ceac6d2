//! The card status of R1, bit by bit as the card sent it.
//!
//! Names are the SD standard's; where eMMC means something else by a bit, its documentation says so
//! (`spec/card.md` §4).

use core::fmt;

bitflags::bitflags! {
    /// The 32 bits of R1. Bits without a name are kept.
    ///
    /// Errors of a command the card did not accept ([`COM_CRC_ERROR`](Self::COM_CRC_ERROR),
    /// [`ILLEGAL_COMMAND`](Self::ILLEGAL_COMMAND)) show up in the *next* response, because the bad command
    /// gets none.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CardStatus: u32 {
        /// The address or the range is beyond the card's end.
        const OUT_OF_RANGE = 1 << 31;
        /// The address does not fit the block length.
        const ADDRESS_ERROR = 1 << 30;
        /// The block length is not allowed.
        const BLOCK_LEN_ERROR = 1 << 29;
        /// Erase commands in a wrong order.
        const ERASE_SEQ_ERROR = 1 << 28;
        /// A wrong choice of blocks to erase.
        const ERASE_PARAM = 1 << 27;
        /// A write to a protected block.
        const WP_VIOLATION = 1 << 26;
        /// The card is locked by a password.
        const CARD_IS_LOCKED = 1 << 25;
        /// A lock or unlock failed.
        const LOCK_UNLOCK_FAILED = 1 << 24;
        /// The CRC of the command before was wrong.
        const COM_CRC_ERROR = 1 << 23;
        /// The command before was not legal in the card's state.
        const ILLEGAL_COMMAND = 1 << 22;
        /// The card's own error correction failed.
        const CARD_ECC_FAILED = 1 << 21;
        /// An error of the card's controller.
        const CC_ERROR = 1 << 20;
        /// A general or unknown error.
        const ERROR = 1 << 19;
        /// Old MMC: underrun. Reserved on SD.
        const UNDERRUN = 1 << 18;
        /// Old MMC: overrun. Reserved on SD.
        const OVERRUN = 1 << 17;
        /// A read-only part of the CSD does not match (eMMC: CID or CSD).
        const CSD_OVERWRITE = 1 << 16;
        /// Part of the address space was not erased because it is write protected.
        const WP_ERASE_SKIP = 1 << 15;
        /// The card ran without its internal error correction. Reserved on eMMC.
        const CARD_ECC_DISABLED = 1 << 14;
        /// An erase sequence was dropped because a foreign command came between.
        const ERASE_RESET = 1 << 13;
        /// The card is ready for data.
        const READY_FOR_DATA = 1 << 8;
        /// eMMC: the last CMD6 did not switch. Reserved on SD.
        const SWITCH_ERROR = 1 << 7;
        /// SD: an extension function has an event. eMMC: EXCEPTION_EVENT.
        const FX_EVENT = 1 << 6;
        /// The next command is taken as an application command.
        const APP_CMD = 1 << 5;
        /// An error in the authentication sequence. Reserved on eMMC.
        const AKE_SEQ_ERROR = 1 << 3;

        const _ = !0;
    }
}

impl CardStatus {
    /// Bits that say that data were not moved right; checked in each response of a transfer.
    pub const DATA_ERRORS: Self = Self::from_bits_retain(
        Self::OUT_OF_RANGE.bits()
            | Self::ADDRESS_ERROR.bits()
            | Self::BLOCK_LEN_ERROR.bits()
            | Self::WP_VIOLATION.bits()
            | Self::CARD_ECC_FAILED.bits()
            | Self::CC_ERROR.bits()
            | Self::ERROR.bits(),
    );
    /// Every bit that stands for an error rather than a state, whichever command it is of: `0xFDFF_A008` and,
    /// on eMMC, [`SWITCH_ERROR`](Self::SWITCH_ERROR) besides.
    pub const ERRORS: Self = Self::from_bits_retain(
        Self::DATA_ERRORS.bits()
            | Self::ERASE_SEQ_ERROR.bits()
            | Self::ERASE_PARAM.bits()
            | Self::LOCK_UNLOCK_FAILED.bits()
            | Self::COM_CRC_ERROR.bits()
            | Self::ILLEGAL_COMMAND.bits()
            | Self::UNDERRUN.bits()
            | Self::OVERRUN.bits()
            | Self::CSD_OVERWRITE.bits()
            | Self::WP_ERASE_SKIP.bits()
            | Self::ERASE_RESET.bits()
            | Self::AKE_SEQ_ERROR.bits(),
    );
    /// The card's electronics failed, not the request: asking again may succeed.
    pub const TRANSIENT: Self = Self::from_bits_retain(
        Self::COM_CRC_ERROR.bits()
            | Self::CARD_ECC_FAILED.bits()
            | Self::CC_ERROR.bits()
            | Self::ERROR.bits(),
    );

    /// The state the card was in when it received the command.
    #[must_use]
    pub const fn state(self) -> CardState {
        CardState::from_code(((self.bits() >> 9) & 0xf) as u8)
    }
    /// Ready to take data *and* in the transfer state. Both are asked for, because some cards set only one of
    /// them early.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        self.contains(Self::READY_FOR_DATA) && matches!(self.state(), CardState::Tran)
    }
}

impl fmt::Display for CardStatus {
    /// `0x00000900 tran READY_FOR_DATA`: the number, the state, the names of the other bits that are set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x} {}", self.bits(), self.state())?;
        for (name, _) in self.iter_names() {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}

/// `CURRENT_STATE`, bits 12:9 of R1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CardState {
    /// 0: after power-up or CMD0.
    Idle,
    /// 1: initialised, not yet identified.
    Ready,
    /// 2: its CID was sent.
    Ident,
    /// 3: has an address, not selected.
    Stby,
    /// 4: selected, waits for commands.
    Tran,
    /// 5: sends data.
    Data,
    /// 6: receives data.
    Rcv,
    /// 7: programs.
    Prg,
    /// 8: programs, not selected.
    Dis,
    /// 9: eMMC bus test. Reserved on SD.
    Btst,
    /// 10: eMMC sleep. Reserved on SD.
    Slp,
    /// 15: SDIO card in I/O mode. Reserved on eMMC.
    Io,
    /// Any other code.
    Reserved(u8),
}

impl CardState {
    /// The state of a 4-bit code; the upper bits of `code` are ignored.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code & 0xf {
            0 => Self::Idle,
            1 => Self::Ready,
            2 => Self::Ident,
            3 => Self::Stby,
            4 => Self::Tran,
            5 => Self::Data,
            6 => Self::Rcv,
            7 => Self::Prg,
            8 => Self::Dis,
            9 => Self::Btst,
            10 => Self::Slp,
            15 => Self::Io,
            other => Self::Reserved(other),
        }
    }
    /// The 4-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Idle => 0,
            Self::Ready => 1,
            Self::Ident => 2,
            Self::Stby => 3,
            Self::Tran => 4,
            Self::Data => 5,
            Self::Rcv => 6,
            Self::Prg => 7,
            Self::Dis => 8,
            Self::Btst => 9,
            Self::Slp => 10,
            Self::Io => 15,
            Self::Reserved(code) => code & 0xf,
        }
    }
}

impl fmt::Display for CardState {
    /// The standard's short name: `tran`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Ready => "ready",
            Self::Ident => "ident",
            Self::Stby => "stby",
            Self::Tran => "tran",
            Self::Data => "data",
            Self::Rcv => "rcv",
            Self::Prg => "prg",
            Self::Dis => "dis",
            Self::Btst => "btst",
            Self::Slp => "slp",
            Self::Io => "i/o",
            Self::Reserved(code) => return write!(f, "state {code}"),
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_state_code_comes_back() {
        for code in 0..=255 {
            assert_eq!(CardState::from_code(code).code(), code & 0xf);
        }
    }

    #[test]
    fn unknown_bits_are_kept() {
        assert_eq!(CardStatus::from_bits_truncate(0xffff_ffff).bits(), 0xffff_ffff);
        assert_eq!(CardStatus::from_bits_retain(0x17).bits(), 0x17);
    }

    #[test]
    fn a_status_prints_its_state_and_its_bits() {
        let s = CardStatus::from_bits_retain(0x0400_0900);
        assert_eq!(s.to_string(), "0x04000900 tran WP_VIOLATION READY_FOR_DATA");
        assert!(s.is_ready(), "ready for the next command in spite of the error");
        assert!(!CardStatus::from_bits_retain(0x0000_0e00).is_ready(), "programming");
        assert!(!CardStatus::from_bits_retain(0x0000_0800).is_ready(), "tran, but not ready");
        assert!(!CardStatus::from_bits_retain(0x0000_0f00).is_ready(), "ready, but programming");
    }

    #[test]
    fn the_masks_are_the_ones_of_the_spec() {
        assert_eq!(CardStatus::DATA_ERRORS.bits(), 0xe438_0000);
        assert_eq!(CardStatus::ERRORS.bits(), 0xfdff_a008);
    }
}
