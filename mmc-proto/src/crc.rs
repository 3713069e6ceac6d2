//! The checksums of the bus: CRC7 of commands and registers, CRC16 of data blocks, one CRC16 per data line.
//!
//! All of them are MSB first, start at 0 and are not inverted (`spec/card.md` §1.3, §1.4). Beware: 15 zero
//! bytes have CRC7 0x00 and 15 bytes of 0xFF have 0x7F, so an all-one register passes with its end bit.

use crc::{CRC_7_MMC, CRC_16_XMODEM, Crc, Table};

/// Tables of 256 entries for CRC16: one, or with the feature `crc-large-table` sixteen.
const LANES: usize = if cfg!(feature = "crc-large-table") { 16 } else { 1 };

static CRC7: Crc<u8> = Crc::<u8>::new(&CRC_7_MMC);
static CRC16: Crc<u16, Table<LANES>> = Crc::<u16, Table<LANES>>::new(&CRC_16_XMODEM);

/// CRC7 of `bytes` (x⁷ + x³ + 1): 0..=127.
///
/// ```
/// assert_eq!(mmc_proto::crc::crc7(&[0x40, 0, 0, 0, 0]), 0x4a);
/// ```
#[must_use]
pub fn crc7(bytes: &[u8]) -> u8 {
    CRC7.checksum(bytes)
}

/// The last byte of a frame or register: CRC7 of `bytes`, then an end bit of 1.
#[must_use]
pub fn crc7_byte(bytes: &[u8]) -> u8 {
    (crc7(bytes) << 1) | 1
}

/// CRC16 of a block as it goes over one data line (x¹⁶ + x¹² + x⁵ + 1), or over SPI.
#[must_use]
pub fn crc16(block: &[u8]) -> u16 {
    CRC16.checksum(block)
}

/// CRC16 of each of four data lines, `[DAT0, DAT1, DAT2, DAT3]`: DATn carries bit n of each nibble, the high
/// nibble first.
#[must_use]
pub fn crc16_lines4(block: &[u8]) -> [u16; 4] {
    let mut crc = [0; 4];
    for &byte in block {
        for nibble in [byte >> 4, byte & 0xf] {
            for (line, crc) in crc.iter_mut().enumerate() {
                *crc = shift_in(*crc, (nibble >> line) & 1);
            }
        }
    }
    crc
}

/// CRC16 of each of eight data lines, `[DAT0 … DAT7]`: DATn carries bit n of each byte.
#[must_use]
pub fn crc16_lines8(block: &[u8]) -> [u16; 8] {
    let mut crc = [0; 8];
    for &byte in block {
        for (line, crc) in crc.iter_mut().enumerate() {
            *crc = shift_in(*crc, (byte >> line) & 1);
        }
    }
    crc
}

fn shift_in(crc: u16, bit: u8) -> u16 {
    let feedback = (crc >> 15) ^ u16::from(bit);
    (crc << 1) ^ if feedback == 1 { 0x1021 } else { 0 }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn the_traps_of_constant_registers() {
        assert_eq!(crc7(&[0; 15]), 0);
        assert_eq!(crc7(&[0xff; 15]), 0x7f);
        assert_eq!(crc7_byte(&[0xff; 15]), 0xff);
    }

    #[test]
    fn all_ones_on_four_lines_have_the_same_crc_on_each() {
        assert_eq!(crc16_lines4(&[0xff; 512]), [0xeda9; 4]);
        assert_eq!(crc16(&[0xff; 512]), 0x7fa1);
    }

    proptest! {
        #[test]
        fn a_line_has_the_crc_of_the_bits_it_carries(block in proptest::collection::vec(any::<u8>(), 0..64)) {
            // The stream of `block` sent on all lines at once: each line has the CRC of the block itself.
            let bits: Vec<u8> = block.iter().flat_map(|b| (0..8).rev().map(move |i| (b >> i) & 1)).collect();
            let on_eight: Vec<u8> = bits.iter().map(|bit| bit * 0xff).collect();
            let on_four: Vec<u8> = bits.chunks(2).map(|two| (two[0] * 0xf0) | (two[1] * 0xf)).collect();
            prop_assert_eq!(crc16_lines8(&on_eight), [crc16(&block); 8]);
            prop_assert_eq!(crc16_lines4(&on_four), [crc16(&block); 4]);
            // And a line alone: the others carry nothing.
            let on_dat2: Vec<u8> = bits.chunks(2).map(|two| (two[0] << 6) | (two[1] << 2)).collect();
            prop_assert_eq!(crc16_lines4(&on_dat2), [0, 0, crc16(&block), 0]);
        }
    }
}
