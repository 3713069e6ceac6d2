//! SPI mode: framing of commands, responses and data, byte by byte (`spec/card.md` §16).
//!
//! It is not a conversation and knows no bus: a backend clocks bytes in and out and asks here what they mean.
//! Commands are the six bytes of [`CommandFrame`](crate::frame::CommandFrame), always with a right CRC7: some
//! cards check it whatever CMD59 said.

use crate::crc;

/// Bytes of 0xFF within which a card begins its R1.
pub const N_CR: usize = 8;
/// What an idle line reads as.
pub const IDLE: u8 = 0xff;
/// Begins a block in either direction, but not of CMD25.
pub const START_BLOCK: u8 = 0xfe;
/// Begins a block of CMD25.
pub const START_MULTIPLE_WRITE: u8 = 0xfc;
/// Ends CMD25; one byte later the card is busy.
pub const STOP_TRANSMISSION: u8 = 0xfd;

bitflags::bitflags! {
    /// The one byte of an R1; unknown bits are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct R1: u8 {
        /// In the idle state: initialisation runs.
        const IDLE = 1 << 0;
        /// An erase sequence was dropped.
        const ERASE_RESET = 1 << 1;
        /// No such command.
        const ILLEGAL_COMMAND = 1 << 2;
        /// The CRC7 was wrong.
        const CRC_ERROR = 1 << 3;
        /// Erase commands in a wrong order.
        const ERASE_SEQUENCE_ERROR = 1 << 4;
        /// The address does not fit the block length.
        const ADDRESS_ERROR = 1 << 5;
        /// The argument is out of range.
        const PARAMETER_ERROR = 1 << 6;

        const _ = !0;
    }
}

impl R1 {
    /// The R1 a received byte is, or `None` while the card still sends 0xFF or something with bit 7 set.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        if byte & 0x80 == 0 { Some(Self::from_bits_retain(byte)) } else { None }
    }
    /// Any bit but [`IDLE`](Self::IDLE).
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.bits() & !Self::IDLE.bits() != 0
    }
    /// Nothing but R1 is sent: after an illegal command or a CRC error the rest of R3 and R7 is missing.
    #[must_use]
    pub const fn ends_here(self) -> bool {
        self.bits() & (Self::ILLEGAL_COMMAND.bits() | Self::CRC_ERROR.bits()) != 0
    }
}

bitflags::bitflags! {
    /// The second byte of an R2 (CMD13, ACMD13).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct R2: u8 {
        /// The card is locked.
        const LOCKED = 1 << 0;
        /// Protected blocks were not erased, or a lock command failed.
        const WP_ERASE_SKIP = 1 << 1;
        /// A general error.
        const ERROR = 1 << 2;
        /// An error of the card's controller.
        const CC_ERROR = 1 << 3;
        /// The card's own error correction failed.
        const CARD_ECC_FAILED = 1 << 4;
        /// A write to a protected block.
        const WP_VIOLATION = 1 << 5;
        /// A wrong choice of blocks to erase.
        const ERASE_PARAM = 1 << 6;
        /// Out of range, or a CSD that does not match.
        const OUT_OF_RANGE = 1 << 7;
    }
}

/// What follows the R1 of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tail {
    /// Nothing.
    None,
    /// Bytes of 0x00 while the card is busy (R1b).
    Busy,
    /// One byte: [`R2`].
    Status,
    /// Four bytes, most significant first: the OCR (R3) or the answer to CMD8 (R7).
    Word,
}

/// What follows the R1 of command `index`, after CMD55 if `app`.
#[must_use]
pub const fn tail(index: u8, app: bool) -> Tail {
    match (app, index) {
        (_, 13) => Tail::Status,
        (false, 8 | 58) => Tail::Word,
        (false, 12 | 28 | 29 | 38) => Tail::Busy,
        _ => Tail::None,
    }
}

/// Whether one byte between CMD12 and its R1 means nothing and must be dropped.
#[must_use]
pub const fn has_stuff_byte(index: u8) -> bool {
    index == 12
}

/// A card in SPI mode lets go of busy when it sends anything but 0x00; only 0xFF is certain, for the byte in
/// which it lets go may hold some of both.
#[must_use]
pub const fn is_ready(byte: u8) -> bool {
    byte == IDLE
}

/// The answer to a written block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataResponse {
    /// `010`: taken.
    Accepted,
    /// `101`: wrong CRC16. CMD25 is ended by CMD12 now, not by the stop token.
    CrcError,
    /// `110`: not stored; CMD13 says why. Ended by CMD12 as well.
    WriteError,
}

impl DataResponse {
    /// What `byte` says: `xxx0sss1`, the upper three bits mean nothing; `None` if it is no data response.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte & 0x1f {
            0b0_0101 => Some(Self::Accepted),
            0b0_1011 => Some(Self::CrcError),
            0b0_1101 => Some(Self::WriteError),
            _ => None,
        }
    }
}

bitflags::bitflags! {
    /// A data error token `0000eeee`: it comes instead of a block that cannot be read. Bit 4 (card locked, in
    /// old texts) is kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DataError: u8 {
        /// A general error.
        const ERROR = 1 << 0;
        /// An error of the card's controller.
        const CC_ERROR = 1 << 1;
        /// The card's own error correction failed.
        const CARD_ECC_FAILED = 1 << 2;
        /// Out of range.
        const OUT_OF_RANGE = 1 << 3;
        /// The card is locked (old cards).
        const LOCKED = 1 << 4;
    }
}

/// What a byte is while the host waits for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadToken {
    /// 0xFF: not yet.
    Wait,
    /// The block begins with the next byte.
    Start,
    /// There will be none.
    Error(DataError),
    /// Nothing a card may send here.
    Unknown(u8),
}

impl ReadToken {
    /// What `byte` is.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        match byte {
            IDLE => Self::Wait,
            START_BLOCK => Self::Start,
            1..=0x1f => Self::Error(DataError::from_bits_retain(byte)),
            _ => Self::Unknown(byte),
        }
    }
}

/// The two bytes after a block: its CRC16, most significant first. They are always there; while CRC is off
/// the card ignores what it gets, and what it sends may be anything.
#[must_use]
pub fn block_crc(block: &[u8]) -> [u8; 2] {
    crc::crc16(block).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_something_in_each_place() {
        let mut accepted = 0;
        for byte in 0..=255_u8 {
            assert_eq!(R1::from_byte(byte).is_some(), byte < 0x80);
            assert_eq!(ReadToken::from_byte(byte) == ReadToken::Start, byte == 0xfe);
            accepted += u32::from(DataResponse::from_byte(byte) == Some(DataResponse::Accepted));
        }
        assert_eq!(accepted, 8, "the upper three bits mean nothing");
        assert_eq!(DataResponse::from_byte(0xe5), Some(DataResponse::Accepted));
        assert_eq!(DataResponse::from_byte(0x0b), Some(DataResponse::CrcError));
        assert_eq!(DataResponse::from_byte(0xed), Some(DataResponse::WriteError));
        assert_eq!(ReadToken::from_byte(0x08), ReadToken::Error(DataError::OUT_OF_RANGE));
        assert_eq!(ReadToken::from_byte(0x00), ReadToken::Unknown(0));
    }

    #[test]
    fn an_r1_with_an_error_has_no_tail() {
        assert!(R1::from_byte(0x05).unwrap().ends_here(), "an old card and CMD8");
        assert!(R1::from_byte(0x09).unwrap().ends_here());
        let idle = R1::from_byte(0x01).unwrap();
        assert!(!idle.is_error() && !idle.ends_here());
        assert_eq!(tail(8, false), Tail::Word);
        assert_eq!(tail(58, false), Tail::Word);
        assert_eq!(tail(13, true), Tail::Status);
        assert_eq!(tail(12, false), Tail::Busy);
        assert_eq!(tail(58, true), Tail::None);
    }

    #[test]
    fn a_block_is_followed_by_its_crc() {
        // The CSD block of a test of embedded-sdmmc-rs.
        let csd = [0, 0x26, 0, 0x32, 0x5f, 0x5a, 0x83, 0xae, 0xfe, 0xfb, 0xcf, 0xff, 0x92, 0x80, 0x40, 0xdf];
        assert_eq!(block_crc(&csd), [0x9f, 0xc5]);
    }
}
