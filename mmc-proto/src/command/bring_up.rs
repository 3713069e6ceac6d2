//! Commands that find MMC and SDIO cards and set up a card's bus (`spec/card.md` §2.7, §3, §15).

use super::{Command, Response, Stop, rca_arg};
use crate::bus::Width;
use mmc_hal::Dir;

/// What CMD6 of MMC does to the EXT_CSD byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchAccess {
    /// Change the command set; the byte's index and value are ignored.
    CommandSet,
    /// Set the bits that are one in the value.
    SetBits,
    /// Clear the bits that are one in the value.
    ClearBits,
    /// Write the value.
    WriteByte,
}

/// Identification of MMC and SDIO cards.
impl Command {
    /// CMD1 of MMC: the host's supply window (bits 23:7) and access modes (bits 30:29, 2: it knows sector addresses);
    /// R3. An argument of 0 asks without starting anything.
    #[must_use]
    pub const fn send_op_cond(arg: u32) -> Self {
        Self::plain(1, arg, Response::ShortNoCrc)
    }
    /// CMD3 of MMC: gives the card its relative address, not 0; R1.
    #[must_use]
    pub const fn set_relative_addr(rca: u16) -> Self {
        Self::plain(3, rca_arg(rca), Response::Short)
    }
    /// CMD5 of SDIO: the host's supply window (bits 23:0), bit 24 asks for 1.8 V signalling; R4. A window of 0 asks
    /// without starting anything.
    #[must_use]
    pub const fn io_send_op_cond(arg: u32) -> Self {
        Self::plain(5, arg & 0x01ff_ffff, Response::ShortNoCrc)
    }
    /// CMD8 of MMC 4.0 and later: the EXT_CSD, 512 bytes.
    #[must_use]
    pub const fn send_ext_csd() -> Self {
        Self::data(8, 0, Dir::Read, 512, 1, Stop::None)
    }
}

/// Setting up the bus.
impl Command {
    /// CMD6 of MMC: changes the EXT_CSD byte `index`; R1b. Whether the card took it shows only in the R1 of a CMD13
    /// after the busy (SWITCH_ERROR).
    #[must_use]
    pub const fn mmc_switch(access: SwitchAccess, index: u8, value: u8) -> Self {
        let access: u32 = match access {
            SwitchAccess::CommandSet => 0,
            SwitchAccess::SetBits => 1,
            SwitchAccess::ClearBits => 2,
            SwitchAccess::WriteByte => 3,
        };
        let arg = (access << 24) | ((index as u32) << 16) | ((value as u32) << 8) | 1;
        Self { busy: true, ..Self::plain(6, arg, Response::Short) }
    }
    /// CMD6 of SD: checks (`set` false) or switches to a function (0..=15; 15 keeps what is) in each of the groups 1 to
    /// 6, in that order; the 64-byte switch status.
    #[must_use]
    pub const fn switch_functions(set: bool, functions: [u8; 6]) -> Self {
        let [g1, g2, g3, g4, g5, g6] = functions;
        let low = ((g4 & 0xf) as u32) << 12 | ((g3 & 0xf) as u32) << 8 | ((g2 & 0xf) as u32) << 4;
        let high = ((g6 & 0xf) as u32) << 20 | ((g5 & 0xf) as u32) << 16;
        let mode = if set { 1 << 31 } else { 0 };
        Self::data(6, mode | high | low | (g1 & 0xf) as u32, Dir::Read, 64, 1, Stop::None)
    }
    /// CMD21 of eMMC in HS200: the tuning block, 128 bytes on eight lines, 64 on four.
    #[must_use]
    pub const fn send_tuning_block_mmc(width: Width) -> Self {
        let bytes = match width {
            Width::Eight => 128,
            Width::One | Width::Four => 64,
        };
        Self { tuning: true, ..Self::data(21, 0, Dir::Read, bytes, 1, Stop::None) }
    }
    /// CMD52 of SDIO: reads one register byte of `function` (0..=7) at `address` (17 bits); R5.
    #[must_use]
    pub const fn io_read_direct(function: u8, address: u32) -> Self {
        let arg = ((function & 7) as u32) << 28 | (address & 0x1_ffff) << 9;
        Self::plain(52, arg, Response::Short)
    }
    /// CMD52 of SDIO: writes one register byte of `function` (0..=7) at `address` (17 bits); R5.
    #[must_use]
    pub const fn io_write_direct(function: u8, address: u32, value: u8) -> Self {
        let read = Self::io_read_direct(function, address);
        Self { arg: 1 << 31 | read.arg | value as u32, ..read }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_the_ones_of_the_standards() {
        let set = Command::mmc_switch(SwitchAccess::WriteByte, 185, 1);
        assert_eq!((set.index, set.arg, set.busy), (6, 0x03b9_0101, true));
        assert_eq!(Command::mmc_switch(SwitchAccess::SetBits, 163, 0x80).arg, 0x01a3_8001);
        assert_eq!(Command::switch_functions(true, [3, 15, 1, 2, 15, 15]).arg, 0x80ff_21f3);
        assert_eq!(
            Command::switch_functions(false, [1, 15, 15, 15, 15, 15]),
            Command::switch_function(false, 1, 1)
        );
        assert_eq!(Command::io_write_direct(0, 6, 8).arg, 0x8000_0c08, "the I/O reset of the standard");
        assert_eq!(Command::io_read_direct(7, 0x1_ffff).arg, 0x73ff_fe00);
        assert_eq!(Command::send_tuning_block_mmc(Width::Four).data.unwrap().block_len, 64);
        assert_eq!(Command::send_tuning_block_mmc(Width::Eight).data.unwrap().block_len, 128);
    }
}
