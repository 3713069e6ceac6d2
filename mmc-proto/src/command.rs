//! Commands as a host sees them: an index, an argument, and the shape of what follows.

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
}

impl Command {
    /// A command without data.
    #[must_use]
    pub const fn plain(index: u8, arg: u32, response: Response) -> Self {
        Self { index, arg, response, busy: false, data: None, gate: Gate::Idle, init_clocks: false }
    }
}
