//! What can be made to go wrong (`spec/dw-mshc-model.md` A6).

use mmc_time::{Duration, Instant};

/// One thing that goes wrong, once.
///
/// Those *of a command* strike the next command the controller sends (clock updates do not count), those *of
/// data* the next command with a data phase in their direction, those *of a block* in that phase at that block,
/// counted from 0. The others strike at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Of a command: it never reaches the card.
    CommandLost,
    /// Of a command: the card acts on it, its response is lost.
    NoResponse,
    /// Of a command: the CRC7 of its response is wrong.
    ResponseCrc,
    /// Of a command: its response carries another index.
    ResponseIndex,
    /// Of a command: the end bit of its response is 0.
    ResponseEndBit,
    /// Of a command: its response comes this many card clocks late.
    ResponseDelay(u32),
    /// Of a block read: wrong CRC16.
    ReadCrc(u32),
    /// Of a block read: no start bit, now or later.
    ReadNothing(u32),
    /// Of a block read: start bits missing on some lines (SBE).
    ReadStartBit(u32),
    /// Of a block read: wrong end bit (EBE); the transfer ends.
    ReadEndBit(u32),
    /// Of a block written: the card says "CRC error".
    WriteCrc(u32),
    /// Of a block written: no CRC status; the card does not get the block, the transfer ends.
    WriteNothing(u32),
    /// Of a command: after it (its data phase, if it has one) DAT0 is held low for so long;
    /// [`Duration::MAX`]: until the supply is switched off.
    Busy(Duration),
    /// Of a command: neither command done nor its error bits are raised.
    SwallowCommandDone,
    /// Of data: data transfer over is not raised.
    SwallowDataOver,
    /// Of data: the last block of an IDMAC read, its close and RI come so many register accesses late, as
    /// [`Config::posted`](super::Config::posted).
    LateData(u32),
    /// Of data: OWN is written back so many register accesses late, as
    /// [`Config::late_own`](super::Config::late_own).
    LateOwner(u32),
    /// Of a command: the card side never takes it; START stays until a controller reset.
    StuckStart,
    /// The next write of CMD with START is lost and raises HLE.
    LoseCommand,
    /// The next reset by CTRL bits 2:0 never ends and does nothing, nor does any after it, until
    /// [`heal`](super::Dw::heal).
    StuckReset,
    /// CMD11: the lines stay low after the next voltage switch.
    StuckVoltSwitch,
    /// These bits of RINTSTS rise at once, out of nothing (`0x80` is a spurious data CRC error).
    Spurious(u32),
    /// The next time one of these bits of RINTSTS is due, it and all that are due with it appear only when so
    /// many register accesses more have been made.
    Defer {
        /// Bits of RINTSTS.
        bits: u32,
        /// Register accesses, both reads and writes.
        accesses: u32,
    },
    /// The card leaves the slot: pin, supply and lines.
    Remove,
    /// It is back, without power until PWREN gives it some.
    Insert,
    /// Only the card-detect pin moves (a bounce); `true`: it says there is a card.
    Pin(bool),
    /// The write-protect pin.
    WriteProtect(bool),
    /// The supply fails and comes back: the card forgets its state.
    PowerFail,
    /// The controller's power domain goes off and comes back: all registers but PWREN, which the board keeps, are at
    /// their reset values, and whatever ran is gone. The card keeps its supply.
    DomainLost,
    /// The level of the card's SDIO interrupt.
    SdioInterrupt(bool),
}

impl Fault {
    /// Waits for a command to strike at; the others are done at once.
    pub(super) fn strikes(self, data: bool, write: bool) -> bool {
        match self {
            Self::CommandLost
            | Self::NoResponse
            | Self::ResponseCrc
            | Self::ResponseIndex
            | Self::ResponseEndBit
            | Self::ResponseDelay(_)
            | Self::Busy(_)
            | Self::SwallowCommandDone
            | Self::StuckStart => true,
            Self::SwallowDataOver | Self::LateData(_) | Self::LateOwner(_) => data,
            Self::ReadCrc(_) | Self::ReadNothing(_) | Self::ReadStartBit(_) | Self::ReadEndBit(_) => {
                data && !write
            }
            Self::WriteCrc(_) | Self::WriteNothing(_) => data && write,
            _ => false,
        }
    }
    pub(crate) fn of_command(self) -> bool {
        self.strikes(true, true) || self.strikes(true, false)
    }
    /// The block it strikes at.
    pub(super) fn block(self) -> Option<u32> {
        match self {
            Self::ReadCrc(k)
            | Self::ReadNothing(k)
            | Self::ReadStartBit(k)
            | Self::ReadEndBit(k)
            | Self::WriteCrc(k)
            | Self::WriteNothing(k) => Some(k),
            _ => None,
        }
    }
}

/// When a fault comes into force.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    At(Instant),
    Access(u64),
}

/// The faults that wait, and those of the command and the data phase that run.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Come into force later.
    pub(super) timeline: Vec<(When, Fault)>,
    /// In force after so many more commands.
    pub(super) armed: Vec<(u32, Fault)>,
    /// Of the running command.
    pub(super) command: Vec<Fault>,
    /// Of the running data phase.
    pub(super) data: Vec<Fault>,
    pub(super) lose_command: bool,
    pub(super) stuck_reset: bool,
    pub(super) stuck_volt: bool,
    pub(super) defer: Option<(u32, u32)>,
}

impl Faults {
    /// A command is about to be sent: moves the faults that strike at it.
    pub(super) fn strike(&mut self, data: bool, write: bool) {
        self.command.clear();
        let command = &mut self.command;
        self.armed.retain_mut(|(skip, fault)| {
            if *skip > 0 {
                *skip -= 1;
                return true;
            }
            let hit = fault.strikes(data, write);
            if hit {
                command.push(*fault);
            }
            !hit
        });
    }
    pub(super) fn has(&self, f: Fault) -> bool {
        self.command.contains(&f)
    }
    /// The fault of block `k`, and the first block from `k` on that has one.
    pub(super) fn of_block(&self, k: u32) -> (Option<Fault>, Option<u32>) {
        let at = |f: &&Fault| f.block() == Some(k);
        let next = self.data.iter().filter_map(|f| f.block()).filter(|b| *b >= k).min();
        (self.data.iter().find(at).copied(), next)
    }
}
