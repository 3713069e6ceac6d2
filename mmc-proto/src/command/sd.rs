//! SD's later command classes: write protection, passwords, the command queue, extension registers, security
//! (`spec/card.md` §2.3–2.9).

use super::{Command, Response, Stop};
use mmc_hal::Dir;

/// Classes 6 and 7, common to SD and MMC.
impl Command {
    /// CMD28: protects the write-protect group of this address (SDSC and MMC); R1b.
    #[must_use]
    pub const fn set_write_prot(address: u32) -> Self {
        Self { busy: true, ..Self::plain(28, address, Response::Short) }
    }
    /// CMD29: lifts the protection; R1b.
    #[must_use]
    pub const fn clr_write_prot(address: u32) -> Self {
        Self { busy: true, ..Self::plain(29, address, Response::Short) }
    }
    /// CMD30: 32 bits, one for each group from this address on, the first in the lowest; 4 bytes, big-endian.
    #[must_use]
    pub const fn send_write_prot(address: u32) -> Self {
        Self::data(30, address, Dir::Read, 4, 1, Stop::None)
    }
    /// CMD42: the lock structure of `len` bytes (1..=512), the length that CMD16 has set.
    #[must_use]
    pub const fn lock_unlock(len: u16) -> Self {
        Self::data(42, 0, Dir::Write, len, 1, Stop::None)
    }
    /// CMD13 with bit 15: the status of the tasks of a command queue instead of the card's.
    #[must_use]
    pub const fn send_task_status(rca: u16) -> Self {
        Self::plain(13, super::rca_arg(rca) | 0x8000, Response::Short)
    }
}

/// What CMD43 of SD and CMD48 of eMMC do to queued tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskOp {
    /// 1: drops all tasks.
    All,
    /// 2: drops the one with this number, 0..=31.
    One(u8),
}

impl TaskOp {
    pub(super) const fn arg(self) -> u32 {
        match self {
            Self::All => 1,
            Self::One(task) => 2 | task_arg(task),
        }
    }
}

pub(super) const fn task_arg(task: u8) -> u32 {
    ((task & 0x1f) as u32) << 16
}

/// Class 1: the command queue of SD (6.0).
impl Command {
    /// CMD43: drops queued tasks; R1b.
    #[must_use]
    pub const fn q_management(op: TaskOp) -> Self {
        Self { busy: true, ..Self::plain(43, op.arg(), Response::Short) }
    }
    /// CMD44: direction, number (0..=31), blocks and, on SDUC, the upper six address bits of a task; CMD45 must follow
    /// at once.
    #[must_use]
    pub const fn q_task_info_a(dir: Dir, task: u8, blocks: u16, priority: bool, upper: u8) -> Self {
        let read = if matches!(dir, Dir::Read) { 1 << 30 } else { 0 };
        let priority = (priority as u32) << 23;
        let arg = read | ((upper & 0x3f) as u32) << 24 | priority | task_arg(task) | blocks as u32;
        Self::plain(44, arg, Response::Short)
    }
    /// CMD45: the lower 32 bits of the first sector of the task CMD44 described.
    #[must_use]
    pub const fn q_task_info_b(sector: u32) -> Self {
        Self::plain(45, sector, Response::Short)
    }
    /// CMD46: runs a queued read of `blocks` blocks.
    #[must_use]
    pub const fn q_rd_task(task: u8, blocks: u32) -> Self {
        Self::data(46, task_arg(task), Dir::Read, 512, blocks, Stop::None)
    }
    /// CMD47: runs a queued write of `blocks` blocks.
    #[must_use]
    pub const fn q_wr_task(task: u8, blocks: u32) -> Self {
        Self::data(47, task_arg(task), Dir::Write, 512, blocks, Stop::None)
    }
}

/// A place in the extension registers of an SD card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtPlace {
    /// In the I/O space instead of the memory space.
    pub io: bool,
    /// Function, 0..=15.
    pub function: u8,
    /// Byte, 17 bits: the page in bits 16:9, the offset in it in bits 8:0.
    pub address: u32,
}

impl ExtPlace {
    const fn arg(self) -> u32 {
        (self.io as u32) << 31 | ((self.function & 0xf) as u32) << 27 | (self.address & 0x1_ffff) << 9
    }
}

/// The unit of CMD58 and CMD59.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtUnit {
    /// 512 bytes.
    Block,
    /// 32 KiB.
    Large,
}

/// Class 11: extension registers. One block of 512 bytes moves whatever the length says.
impl Command {
    /// CMD48: `len` bytes (1..=512) from `place` on, at the start of a block.
    #[must_use]
    pub const fn read_extr_single(place: ExtPlace, len: u16) -> Self {
        Self::data(48, place.arg() | (len.saturating_sub(1) & 0x1ff) as u32, Dir::Read, 512, 1, Stop::None)
    }
    /// CMD49: the first `len` bytes (1..=512) of a block to `place`.
    #[must_use]
    pub const fn write_extr_single(place: ExtPlace, len: u16) -> Self {
        Self::data(49, place.arg() | (len.saturating_sub(1) & 0x1ff) as u32, Dir::Write, 512, 1, Stop::None)
    }
    /// CMD49 in mask mode: of the byte at `place` the bits set in `mask` become those of the block's first byte.
    #[must_use]
    pub const fn write_extr_masked(place: ExtPlace, mask: u8) -> Self {
        Self::data(49, place.arg() | 1 << 26 | mask as u32, Dir::Write, 512, 1, Stop::None)
    }
    /// CMD58: `units` units (1..=512) from `place` on.
    #[must_use]
    pub const fn read_extr_multi(place: ExtPlace, unit: ExtUnit, units: u16) -> Self {
        Self::extr_multi(58, Dir::Read, place, unit, units)
    }
    /// CMD59: `units` units (1..=512) to `place`.
    #[must_use]
    pub const fn write_extr_multi(place: ExtPlace, unit: ExtUnit, units: u16) -> Self {
        Self::extr_multi(59, Dir::Write, place, unit, units)
    }
    const fn extr_multi(index: u8, dir: Dir, place: ExtPlace, unit: ExtUnit, units: u16) -> Self {
        let count = units.saturating_sub(1) & 0x1ff;
        let (bus, blocks) = match unit {
            ExtUnit::Block => (0, 1),
            ExtUnit::Large => (1 << 26, 64),
        };
        let blocks = (count as u32).saturating_add(1).saturating_mul(blocks);
        Self::data(index, place.arg() | bus | count as u32, dir, 512, blocks, Stop::None)
    }
    /// CMD39 of SD (9.00): selects a partition; R1b.
    #[must_use]
    pub const fn select_card_partition(partition: u8) -> Self {
        Self { busy: true, ..Self::plain(39, (partition as u32) << 24, Response::Short) }
    }
}

/// Who speaks in ACMD53 and ACMD54.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SecurityProtocol {
    /// Bits 31:24.
    pub protocol: u8,
    /// Bits 23:8, the specific part.
    pub specific: u16,
    /// Bits 7:0, the feature.
    pub feature: u8,
}

impl SecurityProtocol {
    const fn arg(self) -> u32 {
        (self.protocol as u32) << 24 | (self.specific as u32) << 8 | self.feature as u32
    }
}

/// Class 8, further application commands.
impl Command {
    /// ACMD22 of SDUC: how many blocks of the last write are stored, 8 bytes big-endian.
    #[must_use]
    pub const fn acmd_send_num_wr_blocks_sduc() -> Self {
        Self::data(22, 0, Dir::Read, 8, 1, Stop::None)
    }
    /// ACMD53: receives `blocks` blocks of a security protocol; CMD23 has given the count.
    #[must_use]
    pub const fn acmd_secure_receive(protocol: SecurityProtocol, blocks: u32) -> Self {
        Self::data(53, protocol.arg(), Dir::Read, 512, blocks, Stop::None)
    }
    /// ACMD54: sends `blocks` blocks of a security protocol; CMD23 has given the count.
    #[must_use]
    pub const fn acmd_secure_send(protocol: SecurityProtocol, blocks: u32) -> Self {
        Self::data(54, protocol.arg(), Dir::Write, 512, blocks, Stop::None)
    }
}

/// How much CMD53 of SDIO moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoCount {
    /// So many bytes, 1..=512, as one block.
    Bytes(u16),
    /// So many blocks, 1..=511, of so many bytes (1..=2048, the function's block size).
    Blocks {
        /// Bytes of a block.
        len: u16,
        /// How many.
        blocks: u16,
    },
}

/// Class 9: I/O.
impl Command {
    /// CMD53: reads or writes registers of an I/O `function` (0..=7) from `address` (17 bits) on; with `increment` one
    /// after the other, without it always the same one (a FIFO). R5.
    #[must_use]
    pub const fn io_rw_extended(
        dir: Dir,
        function: u8,
        address: u32,
        increment: bool,
        count: IoCount,
    ) -> Self {
        let write = if matches!(dir, Dir::Write) { 1 << 31 } else { 0 };
        let (mode, len, blocks, n) = match count {
            // 512 bytes are written as 0.
            IoCount::Bytes(n) => (0, n, 1, n & 0x1ff),
            IoCount::Blocks { len, blocks } => (1 << 27, len, blocks & 0x1ff, blocks & 0x1ff),
        };
        let arg = write
            | ((function & 7) as u32) << 28
            | mode
            | (increment as u32) << 26
            | (address & 0x1_ffff) << 9
            | n as u32;
        Self::data(53, arg, dir, len, blocks as u32, Stop::None)
    }
}
