//! Frames as they are on the CMD line: 48-bit commands and responses, 136-bit responses (`spec/card.md` §1).
//!
//! Parsing takes any bytes and says what is wrong with them; it is what the command fuzzer drives. In SPI
//! mode a command has the same six bytes, but some indices mean something else: see [`Dialect`].

use crate::command::{Command, Dialect, name};
use crate::crc;
use core::fmt;

/// What is wrong with a frame. Checked in this order; the first one is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum FrameError {
    /// Too many or too few bytes.
    #[error("{got} bytes where the frame has {expected}")]
    Length {
        /// Bytes of the frame.
        expected: usize,
        /// Bytes there were.
        got: usize,
    },
    /// Bit 47 (or 135) is not 0: no frame begins here.
    #[error("the start bit is 1")]
    StartBit,
    /// A response where a command was expected, or the other way round.
    #[error("the transmission bit is {0}: the frame goes the other way")]
    Direction(u8),
    /// Bits 133:128 of a long response are not all ones, or an R3's index is not 63.
    #[error("the index field is {0} where 63 is fixed")]
    Index(u8),
    /// Bit 0 is not 1.
    #[error("the end bit is 0")]
    EndBit,
    /// The CRC7 is another one.
    #[error("the CRC7 is {got:#04x} where {expected:#04x} is right")]
    Crc {
        /// Computed from the frame.
        expected: u8,
        /// Found in the frame.
        got: u8,
    },
}

impl FrameError {
    /// A short name: `length`, `start_bit`, `direction`, `index`, `end_bit`, `crc`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Length { .. } => "length",
            Self::StartBit => "start_bit",
            Self::Direction(_) => "direction",
            Self::Index(_) => "index",
            Self::EndBit => "end_bit",
            Self::Crc { .. } => "crc",
        }
    }
}

/// A command on the wire.
///
/// ```
/// use mmc_proto::frame::CommandFrame;
/// let f = CommandFrame::parse(&[0x48, 0, 0, 1, 0xaa, 0x87])?;
/// assert_eq!((f.index, f.arg), (8, 0x1aa));
/// assert_eq!(f.emit(), [0x48, 0, 0, 1, 0xaa, 0x87]);
/// # Ok::<(), mmc_proto::frame::FrameError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CommandFrame {
    /// 0..=63; [`emit`](Self::emit) takes the low six bits.
    pub index: u8,
    /// The argument.
    pub arg: u32,
}

/// A short response on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ResponseFrame {
    /// The command's index, or 63 where the response has none.
    pub index: u8,
    /// Bits 39:8: the card status, an OCR, …
    pub word: u32,
}

/// A long response on the wire: the 16 bytes of a CID or CSD, the last one with the register's own CRC7 and
/// the end bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LongFrame(pub [u8; 16]);

fn short(bytes: &[u8], direction: u8) -> Result<([u8; 6], u8, u32), FrameError> {
    let Ok(frame) = <[u8; 6]>::try_from(bytes) else {
        return Err(FrameError::Length { expected: 6, got: bytes.len() });
    };
    let [first, a, b, c, d, last] = frame;
    if first & 0x80 != 0 {
        return Err(FrameError::StartBit);
    }
    let transmission = (first >> 6) & 1;
    if transmission != direction {
        return Err(FrameError::Direction(transmission));
    }
    if last & 1 == 0 {
        return Err(FrameError::EndBit);
    }
    Ok((frame, first & 0x3f, u32::from_be_bytes([a, b, c, d])))
}

fn check_crc(frame: &[u8; 6]) -> Result<(), FrameError> {
    let [body @ .., last] = frame;
    let (expected, got) = (crc::crc7(body), last >> 1);
    if expected == got { Ok(()) } else { Err(FrameError::Crc { expected, got }) }
}

fn build(first: u8, word: u32) -> [u8; 6] {
    let [a, b, c, d] = word.to_be_bytes();
    let body = [first, a, b, c, d];
    [first, a, b, c, d, crc::crc7_byte(&body)]
}

impl CommandFrame {
    /// Reads the six bytes of a command.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        let (frame, index, arg) = short(bytes, 1)?;
        check_crc(&frame)?;
        Ok(Self { index, arg })
    }
    /// The six bytes, with the right CRC7.
    #[must_use]
    pub fn emit(&self) -> [u8; 6] {
        build(0x40 | (self.index & 0x3f), self.arg)
    }
}

impl From<&Command> for CommandFrame {
    fn from(command: &Command) -> Self {
        Self { index: command.index & 0x3f, arg: command.arg }
    }
}

impl ResponseFrame {
    /// Reads the six bytes of a response with index and CRC7: R1, R6, R7, and R4, R5 of MMC.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        let (frame, index, word) = short(bytes, 0)?;
        check_crc(&frame)?;
        Ok(Self { index, word })
    }
    /// Reads the six bytes of a response without index and CRC7 (both fields all ones): R3, and R4 of SDIO.
    ///
    /// # Errors
    /// The first thing that is wrong with them. The CRC field is not judged: some cards send something else.
    pub fn parse_without_crc(bytes: &[u8]) -> Result<Self, FrameError> {
        let (_, index, word) = short(bytes, 0)?;
        if index != 63 {
            return Err(FrameError::Index(index));
        }
        Ok(Self { index, word })
    }
    /// The six bytes, with the right CRC7.
    #[must_use]
    pub fn emit(&self) -> [u8; 6] {
        build(self.index & 0x3f, self.word)
    }
    /// The six bytes of an R3: index and CRC7 all ones.
    #[must_use]
    pub fn emit_without_crc(&self) -> [u8; 6] {
        let [a, b, c, d] = self.word.to_be_bytes();
        [0x3f, a, b, c, d, 0xff]
    }
}

impl LongFrame {
    /// Reads the seventeen bytes of an R2.
    ///
    /// # Errors
    /// The first thing that is wrong with them. The CRC7 is over the register's 120 bits, without the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        let Ok(frame) = <[u8; 17]>::try_from(bytes) else {
            return Err(FrameError::Length { expected: 17, got: bytes.len() });
        };
        let [first, register @ ..] = frame;
        if first & 0x80 != 0 {
            return Err(FrameError::StartBit);
        }
        if first & 0x40 != 0 {
            return Err(FrameError::Direction(1));
        }
        if first != 0x3f {
            return Err(FrameError::Index(first & 0x3f));
        }
        let [body @ .., last] = &register;
        if last & 1 == 0 {
            return Err(FrameError::EndBit);
        }
        let (expected, got) = (crc::crc7(body), last >> 1);
        if expected != got {
            return Err(FrameError::Crc { expected, got });
        }
        Ok(Self(register))
    }
    /// The seventeen bytes; CRC7 and end bit are the register's own last byte.
    #[must_use]
    pub fn emit(&self) -> [u8; 17] {
        let mut frame = [0x3f; 17];
        let [_, register @ ..] = &mut frame;
        *register = self.0;
        frame
    }
}

/// Six bytes as text for people: `CMD18 READ_MULTIPLE_BLOCK arg=0x00002000 crc=0x02 ok`.
///
/// Shows what is there, right or wrong; instead of `ok` the error.
#[derive(Clone, Copy, Debug)]
pub struct CommandText<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// What the indices mean.
    pub dialect: Dialect,
    /// It follows CMD55.
    pub app: bool,
}

impl fmt::Display for CommandText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = CommandFrame::parse(self.bytes);
        if let Ok([first, a, b, c, d, last]) = <[u8; 6]>::try_from(self.bytes) {
            let (index, arg) = (first & 0x3f, u32::from_be_bytes([a, b, c, d]));
            write!(f, "{}CMD{index}", if self.app { "A" } else { "" })?;
            if let Some(name) = name(index, self.dialect, self.app) {
                write!(f, " {name}")?;
            }
            write!(f, " arg={arg:#010x} crc={:#04x} ", last >> 1)?;
        }
        match verdict {
            Ok(_) => f.write_str("ok"),
            Err(e) => write!(f, "{e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn a_frame_prints_its_name_by_dialect() {
        let bytes = CommandFrame { index: 18, arg: 0x2000 }.emit();
        let text = |bytes: &[u8], dialect, app| CommandText { bytes, dialect, app }.to_string();
        assert_eq!(text(&bytes, Dialect::Sd, false), "CMD18 READ_MULTIPLE_BLOCK arg=0x00002000 crc=0x02 ok");
        let ocr = [0x7a, 0, 0, 0, 0, 0xfd];
        assert_eq!(text(&ocr, Dialect::Spi, false), "CMD58 READ_OCR arg=0x00000000 crc=0x7e ok");
        assert_eq!(text(&ocr, Dialect::Sd, false), "CMD58 READ_EXTR_MULTI arg=0x00000000 crc=0x7e ok");
        let op = [0x69, 0x40, 0, 0, 0, 0x75];
        assert_eq!(
            text(&op, Dialect::Sd, true),
            "ACMD41 SD_SEND_OP_COND arg=0x40000000 crc=0x3a the CRC7 is 0x3a where 0x3b is right"
        );
        assert_eq!(text(&op[..5], Dialect::Sd, false), "5 bytes where the frame has 6");
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_and_what_parses_is_emitted(index in 0_u8..64, arg: u32, register: [u8; 15]) {
            let c = CommandFrame { index, arg };
            prop_assert_eq!(CommandFrame::parse(&c.emit()), Ok(c));
            let r = ResponseFrame { index, word: arg };
            prop_assert_eq!(ResponseFrame::parse(&r.emit()), Ok(r));
            let r3 = ResponseFrame { index: 63, word: arg };
            prop_assert_eq!(ResponseFrame::parse_without_crc(&r3.emit_without_crc()), Ok(r3));
            let mut long = [0; 16];
            long[..15].copy_from_slice(&register);
            long[15] = crc::crc7_byte(&register);
            prop_assert_eq!(LongFrame::parse(&LongFrame(long).emit()), Ok(LongFrame(long)));
        }

        #[test]
        fn one_flipped_bit_never_passes(index in 0_u8..64, arg: u32, bit in 0_usize..48) {
            let mut bytes = CommandFrame { index, arg }.emit();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(CommandFrame::parse(&bytes).is_err());
        }
    }
}
