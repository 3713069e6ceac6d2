//! Commands of MMC and eMMC that SD has not, or has otherwise (`spec/card.md` §3).

use super::sd::{TaskOp, task_arg};
use super::{Command, Gate, Response, Stop, rca_arg};
use mmc_hal::Dir;

/// Class 0.
impl Command {
    /// CMD0 with 0xF0F0F0F0: back to the state before identification, where the boot partition can be read.
    #[must_use]
    pub const fn go_pre_idle_state() -> Self {
        Self { arg: 0xf0f0_f0f0, ..Self::go_idle_state() }
    }
    /// CMD0 with 0xFFFFFFFA: the card begins to send its boot partition, after at least 74 clocks; no response. The
    /// boot data have no command of their own: a host that can receive them has its own way to be told.
    #[must_use]
    pub const fn boot_initiation() -> Self {
        Self { arg: 0xffff_fffa, init_clocks: true, ..Self::go_idle_state() }
    }
    /// CMD5: to sleep, from stand-by, or awake again; R1b.
    #[must_use]
    pub const fn sleep_awake(rca: u16, sleep: bool) -> Self {
        let arg = rca_arg(rca) | (sleep as u32) << 15;
        Self { busy: true, ..Self::plain(5, arg, Response::Short) }
    }
    /// CMD12 as high priority interrupt: ends what the card programs as soon as it can; R1b.
    #[must_use]
    pub const fn stop_transmission_hpi(rca: u16) -> Self {
        Self { arg: rca_arg(rca) | 1, ..Self::stop_transmission() }
    }
    /// CMD13 as high priority interrupt, for cards that want it this way.
    #[must_use]
    pub const fn send_status_hpi(rca: u16) -> Self {
        Self { gate: Gate::Now, ..Self::plain(13, rca_arg(rca) | 1, Response::Short) }
    }
    /// CMD14: the card sends the pattern of CMD19 back, inverted; `bytes` is 8 for eight lines, 4 for four. No CRC.
    #[must_use]
    pub const fn bustest_r(bytes: u16) -> Self {
        Self::data(14, 0, Dir::Read, bytes, 1, Stop::None)
    }
    /// CMD19: a pattern for each line; the card checks no CRC.
    #[must_use]
    pub const fn bustest_w(bytes: u16) -> Self {
        Self::data(19, 0, Dir::Write, bytes, 1, Stop::None)
    }
}

bitflags::bitflags! {
    /// What CMD23 of eMMC says of the write that follows, beside the count. The flag for packed commands (bit 30) is
    /// left out: they are gone from the standard, and a count above 65,535 must not become one by chance.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CountFlags: u32 {
        /// Reliable write: old or new data after a loss of power, nothing else.
        const RELIABLE = 1 << 31;
        /// The data carry a tag (metadata, to be read fast).
        const TAG = 1 << 29;
        /// Past the cache.
        const FORCED = 1 << 24;
    }
}

/// Class 2 and 4.
impl Command {
    /// CMD23 of eMMC: a count of 16 bits (0: open-ended), flags, and a context (0..=15, 0 none).
    #[must_use]
    pub const fn set_block_count_mmc(blocks: u16, flags: CountFlags, context: u8) -> Self {
        // Only the flags that have a name: bits kept by `from_bits_retain` are not sent.
        let flags = flags.bits() & CountFlags::all().bits();
        Self::set_block_count(flags | ((context & 0xf) as u32) << 25 | blocks as u32)
    }
    /// CMD26: the 16 bytes of a CID, once in the life of a card.
    #[must_use]
    pub const fn program_cid() -> Self {
        Self::data(26, 0, Dir::Write, 16, 1, Stop::None)
    }
    /// CMD49: the real time, 512 bytes.
    #[must_use]
    pub const fn set_time() -> Self {
        Self::data(49, 0, Dir::Write, 512, 1, Stop::None)
    }
}

/// Classes 5 and 6.
impl Command {
    /// CMD31: two bits for each write-protect group from this address on: how it is protected; 8 bytes.
    #[must_use]
    pub const fn send_write_prot_type(address: u32) -> Self {
        Self::data(31, address, Dir::Read, 8, 1, Stop::None)
    }
    /// CMD35: the first erase group, or block of a trim.
    #[must_use]
    pub const fn erase_group_start(address: u32) -> Self {
        Self::plain(35, address, Response::Short)
    }
    /// CMD36: the last erase group, or block of a trim (inclusive).
    #[must_use]
    pub const fn erase_group_end(address: u32) -> Self {
        Self::plain(36, address, Response::Short)
    }
}

/// Class 9: I/O mode, hardly found any more.
impl Command {
    /// CMD39 of MMC: reads an 8-bit register of the application (0..=127), or writes it; R4 of MMC.
    #[must_use]
    pub const fn fast_io(rca: u16, register: u8, write: Option<u8>) -> Self {
        let data = match write {
            Some(data) => 1 << 15 | data as u32,
            None => 0,
        };
        Self::plain(39, rca_arg(rca) | ((register & 0x7f) as u32) << 8 | data, Response::Short)
    }
    /// CMD40: all cards wait for an interrupt; the one that has it answers (R5 of MMC), perhaps never.
    #[must_use]
    pub const fn go_irq_state() -> Self {
        Self::plain(40, 0, Response::Short)
    }
}

/// Class 10: security protocols.
impl Command {
    /// CMD53 of MMC: `blocks` blocks from security `protocol`; CMD23 has given the count.
    #[must_use]
    pub const fn protocol_rd(protocol: u8, specific: u16, blocks: u32) -> Self {
        Self::data(53, (specific as u32) << 16 | (protocol as u32) << 8, Dir::Read, 512, blocks, Stop::None)
    }
    /// CMD54 of MMC: `blocks` blocks to security `protocol`; CMD23 has given the count.
    #[must_use]
    pub const fn protocol_wr(protocol: u8, specific: u16, blocks: u32) -> Self {
        Self::data(54, (specific as u32) << 16 | (protocol as u32) << 8, Dir::Write, 512, blocks, Stop::None)
    }
}

/// Class 11: the command queue of eMMC 5.1.
impl Command {
    /// CMD44: describes task `task` (0..=31): direction, blocks, flags and context as of CMD23; CMD45 follows.
    #[must_use]
    pub const fn queued_task_params(
        dir: Dir,
        task: u8,
        blocks: u16,
        priority: bool,
        flags: CountFlags,
        context: u8,
    ) -> Self {
        let read = if matches!(dir, Dir::Read) { 1 << 30 } else { 0 };
        let flags = flags.bits() & CountFlags::all().bits() | ((context & 0xf) as u32) << 25;
        let priority = (priority as u32) << 23;
        Self::plain(44, flags | read | priority | task_arg(task) | blocks as u32, Response::Short)
    }
    /// CMD45: the first sector of the task.
    #[must_use]
    pub const fn queued_task_address(sector: u32) -> Self {
        Self::plain(45, sector, Response::Short)
    }
    /// CMD46: runs a queued read of `blocks` blocks.
    #[must_use]
    pub const fn execute_read_task(task: u8, blocks: u32) -> Self {
        Self::q_rd_task(task, blocks)
    }
    /// CMD47: runs a queued write of `blocks` blocks.
    #[must_use]
    pub const fn execute_write_task(task: u8, blocks: u32) -> Self {
        Self::q_wr_task(task, blocks)
    }
    /// CMD48 of eMMC: drops queued tasks; R1b.
    #[must_use]
    pub const fn cmdq_task_mgmt(op: TaskOp) -> Self {
        Self { busy: true, ..Self::plain(48, op.arg(), Response::Short) }
    }
}
