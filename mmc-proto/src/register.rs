//! Registers of a card: for each a raw view (bytes as sent, every accessor total) and an owned plain `Info`.
//!
//! A raw view takes any bytes; `check` says whether they can be a register of that kind at all. `info` gives
//! plain fields, and `Info::emit` builds the register with reserved bits 0, a right CRC7 and the end bit.

/// Declares a register: its raw view, its accessors, its `Info` and the way back.
macro_rules! register {
    ($(#[$doc:meta])* $raw:ident, $info:ident, $len:literal { $($(#[$fdoc:meta])* $field:ident: $ty:ty [$hi:literal : $lo:literal],)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $raw([u8; $len]);

        /// The same as plain values, one field for each of the register's, codes as they are.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[allow(missing_docs, reason = "each field is documented at the accessor of the same name")]
        pub struct $info { $(pub $field: $ty,)* }

        impl $raw {
            /// Bytes of the register.
            pub const LEN: usize = $len;

            /// Takes the bytes as they are, most significant first.
            #[must_use]
            pub const fn new(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }
            /// Takes bytes of any length.
            ///
            /// # Errors
            /// [`RegisterError::Length`](crate::register::RegisterError::Length) if there are more or fewer
            /// than the register has.
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::register::RegisterError> {
                match <[u8; $len]>::try_from(bytes) {
                    Ok(bytes) => Ok(Self(bytes)),
                    Err(_) => Err($crate::register::RegisterError::Length { expected: $len, got: bytes.len() }),
                }
            }
            /// The bytes again.
            #[must_use]
            pub const fn emit(&self) -> [u8; $len] {
                self.0
            }
            /// Calls `f` with the name and the value of every field, in the order of the standard.
            pub fn fields(&self, f: &mut dyn FnMut(&'static str, u64)) {
                $(f(stringify!($field), u64::from(self.$field()));)*
            }
            $($(#[$fdoc])* #[must_use]
            pub fn $field(&self) -> $ty {
                $crate::register::get(&self.0, $hi, $lo) as $ty
            })*
            fn fields_of(&self) -> $info {
                $info { $($field: self.$field(),)* }
            }
        }
        impl $info {
            fn bits(&self) -> $raw {
                let mut bytes = [0; $len];
                $($crate::register::set(&mut bytes, $hi, $lo, u64::from(self.$field));)*
                $raw(bytes)
            }
        }
        impl core::fmt::Debug for $raw {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($raw), "("))?;
                for byte in self.0 {
                    write!(f, "{byte:02x}")?;
                }
                f.write_str(")")
            }
        }
    };
}

/// What the 16-byte registers have in common that end in a CRC7: they come in a long response, and an `Info` of
/// theirs emits a right CRC7.
macro_rules! sealed {
    ($raw:ident, $info:ident) => {
        impl $raw {
            /// From the words of a long response.
            #[must_use]
            pub fn from_words(words: [u32; 4]) -> Self {
                Self($crate::register::bytes_of_words(words))
            }
            /// CRC7 as it is there.
            #[must_use]
            pub fn crc7(&self) -> u8 {
                self.0.last().map_or(0, |b| b >> 1)
            }
            /// End bit as it is there.
            #[must_use]
            pub fn end_bit(&self) -> u8 {
                self.0.last().map_or(0, |b| b & 1)
            }
            /// What the last byte looks like.
            #[must_use]
            pub fn crc_state(&self) -> $crate::register::CrcState {
                $crate::register::CrcState::of(&self.0)
            }
            /// Plain values.
            #[must_use]
            pub fn info(&self) -> $info {
                self.fields_of()
            }
        }
        impl $info {
            /// The register, with a right CRC7.
            #[must_use]
            pub fn emit(&self) -> $raw {
                $raw($crate::register::seal(self.bits().0))
            }
        }
    };
}

mod cid;
mod csd;
pub mod ext_csd;
pub mod extension;
mod mmc;
mod ocr;
mod scr;
pub mod sdio;
mod ssr;
mod switch;

pub use cid::{Cid, CidInfo};
pub use csd::{Csd, CsdInfo};
pub use ext_csd::{ExtCsd, ExtCsdInfo};
pub use mmc::{MmcCid, MmcCidInfo, MmcCidV1, MmcCidV1Info, MmcCsd, MmcCsdInfo, mmc_year};
pub use ocr::Ocr;
pub use scr::{Scr, ScrInfo, SpecVersion};
pub use ssr::{Ssr, SsrInfo};
pub use switch::{SwitchInfo, SwitchStatus};

use crate::crc;
use core::fmt;

/// What the last byte of a CID or CSD looks like. Hosts differ in what they keep of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum CrcState {
    /// Right CRC7 and end bit 1.
    Valid,
    /// Right CRC7, end bit 0: the host masks bit 0.
    EndBitZero,
    /// `0x00` instead of the CRC: the host kept bits 127:8.
    Stripped00,
    /// `0x01` instead of the CRC: likewise.
    Stripped01,
    /// Something else: the register was damaged, or shifted.
    Bad,
}

impl CrcState {
    /// The state of a 16-byte register.
    #[must_use]
    pub fn of(register: &[u8; 16]) -> Self {
        let [body @ .., last] = register;
        let crc = crc::crc7(body);
        match *last {
            l if l == (crc << 1) | 1 => Self::Valid,
            l if l == crc << 1 => Self::EndBitZero,
            0 => Self::Stripped00,
            1 => Self::Stripped01,
            _ => Self::Bad,
        }
    }
    /// The name used in register dumps: `valid`, `crc_ok_end_bit_zero`, `stripped_00`, `stripped_01`, `bad`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::EndBitZero => "crc_ok_end_bit_zero",
            Self::Stripped00 => "stripped_00",
            Self::Stripped01 => "stripped_01",
            Self::Bad => "bad",
        }
    }
}

impl fmt::Display for CrcState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which last bytes of a CID or CSD are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CrcPolicy {
    /// Only a right CRC7 with end bit 1: bits straight from the wire.
    Wire,
    /// Also what hosts that check the CRC themselves leave of it: end bit 0, or no CRC at all. Never a wrong
    /// one.
    #[default]
    Host,
    /// Anything.
    Ignore,
}

impl CrcPolicy {
    /// Whether `state` is accepted.
    #[must_use]
    pub const fn accepts(self, state: CrcState) -> bool {
        match self {
            Self::Wire => matches!(state, CrcState::Valid),
            Self::Host => !matches!(state, CrcState::Bad),
            Self::Ignore => true,
        }
    }
    pub(crate) fn check(self, register: &[u8; 16]) -> Result<(), RegisterError> {
        let state = CrcState::of(register);
        if self.accepts(state) { Ok(()) } else { Err(RegisterError::Crc(state)) }
    }
}

/// Why bytes are not a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RegisterError {
    /// Too many or too few bytes.
    #[error("{got} bytes where the register has {expected}")]
    Length {
        /// Bytes of the register.
        expected: usize,
        /// Bytes there were.
        got: usize,
    },
    /// The last byte is not accepted by the [`CrcPolicy`].
    #[error("the CRC7 is not accepted: {0}")]
    Crc(CrcState),
    /// A field holds what no card can mean: damaged bits, a line stuck at 0 or 1, or a shifted register.
    #[error("{field} is {value}: {why}")]
    Field {
        /// Name of the field in the standard.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No maker and no name: a counterfeit, or a line stuck low.
    #[error("the card has no identity: manufacturer 0 and an empty product name")]
    Identity,
}

/// Bits `hi..=lo` of big-endian `bytes`, bit 0 being the least significant of the last byte. At most 64; bits
/// outside read as 0.
pub(crate) fn get(bytes: &[u8], hi: u16, lo: u16) -> u64 {
    let mut value = 0;
    for bit in (lo..=hi).rev() {
        value = (value << 1) | u64::from(bit_at(bytes, bit));
    }
    value
}

fn bit_at(bytes: &[u8], bit: u16) -> u8 {
    let from_end = usize::from(bit / 8);
    bytes.iter().rev().nth(from_end).map_or(0, |byte| (byte >> (bit % 8)) & 1)
}

/// Sets bits `hi..=lo` to the low bits of `value`; bits outside are left out.
pub(crate) fn set(bytes: &mut [u8], hi: u16, lo: u16, value: u64) {
    let mut value = value;
    for bit in lo..=hi {
        if let Some(byte) = bytes.iter_mut().rev().nth(usize::from(bit / 8)) {
            let mask = 1 << (bit % 8);
            *byte = if value & 1 == 1 { *byte | mask } else { *byte & !mask };
        }
        value >>= 1;
    }
}

/// The sixteen bytes of an R2 that a host delivers as four words, most significant first.
#[must_use]
pub(crate) fn bytes_of_words(words: [u32; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (chunk, word) in bytes.chunks_exact_mut(4).zip(words) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Puts a right CRC7 and the end bit into the last byte.
pub(crate) fn seal(mut register: [u8; 16]) -> [u8; 16] {
    let [body @ .., last] = &mut register;
    *last = crc::crc7_byte(body);
    register
}

/// Text of a card, one byte a character; what is not printable ASCII shows as `\x00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in &self.0 {
            match byte {
                0x20..=0x7e => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

/// Mantissa of TAAC and of SD's TRAN_SPEED in tenths; 0 is reserved.
pub(crate) const fn mantissa(code: u8) -> u64 {
    match (code >> 3) & 0xf {
        1 => 10,
        2 => 12,
        3 => 13,
        4 => 15,
        5 => 20,
        6 => 25,
        7 => 30,
        8 => 35,
        9 => 40,
        10 => 45,
        11 => 50,
        12 => 55,
        13 => 60,
        14 => 70,
        15 => 80,
        _ => 0,
    }
}

/// TAAC in picoseconds; 0 for a reserved code.
pub(crate) const fn taac_ps(code: u8) -> u64 {
    let unit = match code & 7 {
        0 => 100,
        1 => 1_000,
        2 => 10_000,
        3 => 100_000,
        4 => 1_000_000,
        5 => 10_000_000,
        6 => 100_000_000,
        _ => 1_000_000_000,
    };
    mantissa(code).saturating_mul(unit)
}

/// TRAN_SPEED's unit in bit/s divided by ten; 0 for a reserved code.
pub(crate) const fn speed_unit(code: u8) -> u32 {
    match code & 7 {
        0 => 10_000,
        1 => 100_000,
        2 => 1_000_000,
        3 => 10_000_000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_a_field_before_does_not_matter() {
        for (before, after) in
            [([0; 2], [0x05, 0xa0]), ([0xff; 2], [0xf5, 0xaf]), ([0x0a, 0x50], [0x05, 0xa0])]
        {
            let mut bytes = before;
            set(&mut bytes, 11, 4, 0x5a);
            assert_eq!(bytes, after, "{before:x?}");
        }
    }

    #[test]
    fn bits_are_counted_from_the_last_byte() {
        let bytes = [0x12, 0x34, 0x56];
        assert_eq!(get(&bytes, 23, 20), 1);
        assert_eq!(get(&bytes, 11, 4), 0x45);
        assert_eq!(get(&bytes, 31, 16), 0x12, "bits outside are 0");
        let mut b = [0; 3];
        set(&mut b, 11, 4, 0xff45);
        assert_eq!(b, [0, 0x04, 0x50]);
    }

    #[test]
    fn words_of_a_response_are_in_the_order_of_the_wire() {
        let b = bytes_of_words([0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f]);
        assert_eq!(b[0], 0);
        assert_eq!(b[15], 15);
        assert_eq!(b[5], 5);
    }
}
