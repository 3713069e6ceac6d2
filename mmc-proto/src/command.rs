//! Commands as a host sees them: an index, an argument, and the shape of what follows.

mod address;
mod bring_up;
mod mmc;
mod name;
mod sd;

pub use address::{Address, Addressing};
pub use bring_up::SwitchAccess;
pub use mmc::CountFlags;
pub use name::{Dialect, name};
pub use sd::{ExtPlace, ExtUnit, IoCount, SecurityProtocol, TaskOp};

use crate::bus::Width;
use mmc_hal::Dir;

/// The form of a response; a host needs no more than this to receive one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Response {
    /// No response (CMD0, CMD4, CMD15).
    None,
    /// 48 bits with index and CRC7: R1, R1b, R4/R5 of MMC, R5 of SDIO, R6, R7.
    Short,
    /// 48 bits without index and CRC: R3, R4 of SDIO.
    ShortNoCrc,
    /// 136 bits: R2, a CID or CSD.
    Long,
}

/// Who ends a multi-block data phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// It ends by itself: a single block, a register, or a count given before by CMD23.
    None,
    /// The conversation sends CMD12 as a command of its own after the data.
    Manual,
    /// The host sends CMD12 by itself when the last block has passed, and waits out its busy; only where
    /// [`Capabilities::auto_stop`](crate::host::Capabilities) says so. After an error it does not, or not reliably:
    /// the conversation stops the card itself then.
    Auto,
    /// It ends by itself after a count that the host gives: CMD23 with this argument, right before; only where
    /// [`Capabilities::auto_count`](crate::host::Capabilities) says so.
    Count(u32),
}

/// The data phase of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataShape {
    /// Which way.
    pub dir: Dir,
    /// Bytes of one block, 1..=2048 (512 for sectors, 8 for an SCR, 64 for a switch status).
    pub block_len: u16,
    /// How many blocks, at least 1.
    pub blocks: u32,
    /// Who ends it.
    pub stop: Stop,
}

impl DataShape {
    /// Bytes of the whole data phase.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        (self.blocks as u64).saturating_mul(self.block_len as u64)
    }
}

/// When a command may leave the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// Once the data lines are idle: no data phase is running and the card does not hold DAT0 low (busy).
    /// A host that can hold a command back in hardware does; one that cannot waits for DAT0 first.
    Idle,
    /// At once, even in the middle of data or busy (CMD0, CMD12, CMD13 used as a poll).
    Now,
}

/// One command, as plain data. A host never matches on `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    /// 0..=63.
    pub index: u8,
    /// The 32-bit argument.
    pub arg: u32,
    /// What answer to expect.
    pub response: Response,
    /// R1b: the card may hold DAT0 low after the response; the command ends when it lets go.
    pub busy: bool,
    /// The data phase, if there is one.
    pub data: Option<DataShape>,
    /// When it may be sent.
    pub gate: Gate,
    /// At least 74 clocks must precede it (the first command after power-up).
    pub init_clocks: bool,
    /// It begins a switch of the signal level (CMD11): after the response the card holds CMD and DAT3:0 low until
    /// [`Operation::Bus`](crate::host::Operation) with the new level has done the switch. A controller may need to
    /// be told.
    pub voltage_switch: bool,
    /// Its data are the tuning block. A host that finds the sample point by itself
    /// ([`Capabilities::self_tuning`](crate::host::Capabilities)) sends it as often as it needs, and keeps the blocks: the
    /// payload stays as it is. To all others it is a read.
    pub tuning: bool,
}

impl Command {
    /// A command without data.
    #[must_use]
    pub const fn plain(index: u8, arg: u32, response: Response) -> Self {
        Self {
            index,
            arg,
            response,
            busy: false,
            data: None,
            gate: Gate::Idle,
            init_clocks: false,
            voltage_switch: false,
            tuning: false,
        }
    }
    /// A command with a data phase; R1.
    #[must_use]
    pub const fn data(index: u8, arg: u32, dir: Dir, block_len: u16, blocks: u32, stop: Stop) -> Self {
        let data = Some(DataShape { dir, block_len, blocks, stop });
        Self { data, ..Self::plain(index, arg, Response::Short) }
    }
}

const fn rca_arg(rca: u16) -> u32 {
    (rca as u32) << 16
}

/// Class 0: basic commands.
impl Command {
    /// CMD0: everything but the bus lines back to the idle state; no response.
    #[must_use]
    pub const fn go_idle_state() -> Self {
        Self { gate: Gate::Now, ..Self::plain(0, 0, Response::None) }
    }
    /// CMD2: every card in the ready state sends its CID.
    #[must_use]
    pub const fn all_send_cid() -> Self {
        Self::plain(2, 0, Response::Long)
    }
    /// CMD3 of SD: the card picks a new relative address and sends it (R6).
    #[must_use]
    pub const fn send_relative_addr() -> Self {
        Self::plain(3, 0, Response::Short)
    }
    /// CMD4: sets the driver stage register, if the CSD says there is one.
    #[must_use]
    pub const fn set_dsr(dsr: u16) -> Self {
        Self::plain(4, rca_arg(dsr), Response::None)
    }
    /// CMD7: selects the card with this address; R1b.
    #[must_use]
    pub const fn select_card(rca: u16) -> Self {
        Self { busy: true, ..Self::plain(7, rca_arg(rca), Response::Short) }
    }
    /// CMD7 with address 0: deselects all cards; nobody answers.
    #[must_use]
    pub const fn deselect_cards() -> Self {
        Self::plain(7, 0, Response::None)
    }
    /// CMD8 of SD: supply 2.7–3.6 V and a pattern to echo (R7).
    #[must_use]
    pub const fn send_if_cond(pattern: u8) -> Self {
        Self::plain(8, 0x100 | pattern as u32, Response::Short)
    }
    /// CMD9: the card's CSD.
    #[must_use]
    pub const fn send_csd(rca: u16) -> Self {
        Self::plain(9, rca_arg(rca), Response::Long)
    }
    /// CMD10: the card's CID.
    #[must_use]
    pub const fn send_cid(rca: u16) -> Self {
        Self::plain(10, rca_arg(rca), Response::Long)
    }
    /// CMD11: begins the switch to 1.8 V signalling.
    #[must_use]
    pub const fn voltage_switch() -> Self {
        Self { voltage_switch: true, ..Self::plain(11, 0, Response::Short) }
    }
    /// CMD12: ends a multi-block data phase; R1b (a read has no busy to speak of).
    #[must_use]
    pub const fn stop_transmission() -> Self {
        Self { busy: true, gate: Gate::Now, ..Self::plain(12, 0, Response::Short) }
    }
    /// CMD13: the card status. As it is it waits for the data lines; with [`Gate::Now`] it is a poll.
    #[must_use]
    pub const fn send_status(rca: u16) -> Self {
        Self::plain(13, rca_arg(rca), Response::Short)
    }
    /// CMD15: the card leaves the bus until the next power cycle; no response.
    #[must_use]
    pub const fn go_inactive_state(rca: u16) -> Self {
        Self::plain(15, rca_arg(rca), Response::None)
    }
}

/// Classes 2 and 4: reading and writing blocks. Addresses come from [`Addressing::address`].
impl Command {
    /// CMD16: the block length of byte-addressed cards.
    #[must_use]
    pub const fn set_blocklen(bytes: u32) -> Self {
        Self::plain(16, bytes, Response::Short)
    }
    /// CMD17: one block of 512 bytes.
    #[must_use]
    pub const fn read_single_block(address: u32) -> Self {
        Self::data(17, address, Dir::Read, 512, 1, Stop::None)
    }
    /// CMD18: `blocks` blocks of 512 bytes.
    #[must_use]
    pub const fn read_multiple_block(address: u32, blocks: u32, stop: Stop) -> Self {
        Self::data(18, address, Dir::Read, 512, blocks, stop)
    }
    /// CMD19 of SD: the 64-byte tuning block.
    #[must_use]
    pub const fn send_tuning_block() -> Self {
        Self { tuning: true, ..Self::data(19, 0, Dir::Read, 64, 1, Stop::None) }
    }
    /// CMD20: speed class control; `function` 0..=15; R1b.
    #[must_use]
    pub const fn speed_class_control(function: u8) -> Self {
        Self { busy: true, ..Self::plain(20, ((function & 0xf) as u32) << 28, Response::Short) }
    }
    /// CMD22 of SDUC: the upper six bits of the next address.
    #[must_use]
    pub const fn address_extension(upper: u8) -> Self {
        Self::plain(22, (upper & 0x3f) as u32, Response::Short)
    }
    /// CMD23: the block count of the CMD18 or CMD25 that follows at once.
    #[must_use]
    pub const fn set_block_count(blocks: u32) -> Self {
        Self::plain(23, blocks, Response::Short)
    }
    /// CMD24: one block of 512 bytes.
    #[must_use]
    pub const fn write_block(address: u32) -> Self {
        Self::data(24, address, Dir::Write, 512, 1, Stop::None)
    }
    /// CMD25: `blocks` blocks of 512 bytes.
    #[must_use]
    pub const fn write_multiple_block(address: u32, blocks: u32, stop: Stop) -> Self {
        Self::data(25, address, Dir::Write, 512, blocks, stop)
    }
    /// CMD27: the 16 bytes of a CSD whose writable bits are to be programmed.
    #[must_use]
    pub const fn program_csd() -> Self {
        Self::data(27, 0, Dir::Write, 16, 1, Stop::None)
    }
}

/// Class 5: erase.
impl Command {
    /// CMD32 of SD: the first block to erase.
    #[must_use]
    pub const fn erase_wr_blk_start(address: u32) -> Self {
        Self::plain(32, address, Response::Short)
    }
    /// CMD33 of SD: the last block to erase (inclusive).
    #[must_use]
    pub const fn erase_wr_blk_end(address: u32) -> Self {
        Self::plain(33, address, Response::Short)
    }
    /// CMD38: erases (0), discards (1) or erases the full user area (2); R1b.
    #[must_use]
    pub const fn erase(arg: u32) -> Self {
        Self { busy: true, ..Self::plain(38, arg, Response::Short) }
    }
}

/// Class 8: application commands; each `acmd` must follow an [`app_cmd`](Self::app_cmd).
impl Command {
    /// CMD55: the next command is an application command; `rca` 0 in the idle state.
    #[must_use]
    pub const fn app_cmd(rca: u16) -> Self {
        Self::plain(55, rca_arg(rca), Response::Short)
    }
    /// CMD56: 512 bytes of the maker's own, `arg` bit 0 says which way (1 = read).
    #[must_use]
    pub const fn gen_cmd(arg: u32) -> Self {
        let dir = if arg & 1 == 1 { Dir::Read } else { Dir::Write };
        Self::data(56, arg, dir, 512, 1, Stop::None)
    }
    /// ACMD6: one data line or four; the card knows no other width and takes eight for four.
    #[must_use]
    pub const fn acmd_set_bus_width(width: Width) -> Self {
        let arg = match width {
            Width::One => 0,
            Width::Four | Width::Eight => 2,
        };
        Self::plain(6, arg, Response::Short)
    }
    /// ACMD13: the SD status, 64 bytes.
    #[must_use]
    pub const fn acmd_sd_status() -> Self {
        Self::data(13, 0, Dir::Read, 64, 1, Stop::None)
    }
    /// ACMD22: how many blocks of the last write are stored, 4 bytes big-endian.
    #[must_use]
    pub const fn acmd_send_num_wr_blocks() -> Self {
        Self::data(22, 0, Dir::Read, 4, 1, Stop::None)
    }
    /// ACMD23: how many blocks the next CMD25 will write (a hint to erase ahead); 23 bits.
    #[must_use]
    pub const fn acmd_set_wr_blk_erase_count(blocks: u32) -> Self {
        Self::plain(23, blocks & 0x007f_ffff, Response::Short)
    }
    /// ACMD41: the host's supply window and what it can do; R3.
    #[must_use]
    pub const fn acmd_sd_send_op_cond(arg: u32) -> Self {
        Self::plain(41, arg, Response::ShortNoCrc)
    }
    /// ACMD42: connects or disconnects the pull-up on DAT3.
    #[must_use]
    pub const fn acmd_set_clr_card_detect(connect: bool) -> Self {
        Self::plain(42, connect as u32, Response::Short)
    }
    /// ACMD51: the SCR, 8 bytes.
    #[must_use]
    pub const fn acmd_send_scr() -> Self {
        Self::data(51, 0, Dir::Read, 8, 1, Stop::None)
    }
}

/// Class 10: switch.
impl Command {
    /// CMD6 of SD: checks (`set` false) or switches to `function` (0..=15) in `group` (1..=6), keeping the
    /// other groups; the 64-byte switch status. A group outside 1..=6 keeps all six.
    #[must_use]
    pub const fn switch_function(set: bool, group: u8, function: u8) -> Self {
        let mut arg = if set { 0x80ff_ffff } else { 0x00ff_ffff };
        if let 1..=6 = group {
            let shift = (group as u32).saturating_sub(1).saturating_mul(4);
            arg = (arg & !(0xf << shift)) | (((function & 0xf) as u32) << shift);
        }
        Self::data(6, arg, Dir::Read, 64, 1, Stop::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_arguments_are_the_ones_of_the_standard() {
        assert_eq!(Command::switch_function(false, 1, 1).arg, 0x00ff_fff1);
        assert_eq!(Command::switch_function(true, 1, 1).arg, 0x80ff_fff1);
        assert_eq!(Command::switch_function(true, 4, 0x1f).arg, 0x80ff_ffff);
        assert_eq!(Command::switch_function(true, 4, 1).arg, 0x80ff_1fff);
        assert_eq!(Command::switch_function(true, 0, 1).arg, 0x80ff_ffff);
        assert_eq!(Command::switch_function(true, 7, 1).arg, 0x80ff_ffff);
    }
}
