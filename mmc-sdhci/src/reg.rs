//! Offsets and bits of the registers, as 32-bit words (§2 of the specification).

use bitflags::bitflags;
use mmc_time::Duration;

/// The argument of an automatic CMD23 (version 3).
pub const ARGUMENT_2: u32 = 0x00;
/// Block size in bits 11:0, SDMA boundary in 14:12, block count in 31:16.
pub const BLOCK: u32 = 0x04;
/// The command's argument.
pub const ARGUMENT: u32 = 0x08;
/// Transfer mode in bits 15:0, command in 31:16; writing the upper byte sends it.
pub const COMMAND: u32 = 0x0c;
/// Response bits 39:8; of a long response, bits 39:8, and 71:40, 103:72, 127:104 in the three that follow.
pub const RESPONSE0: u32 = 0x10;
/// The last word of a long response, or the response of an automatic CMD12.
pub const RESPONSE3: u32 = 0x1c;
/// The buffer port.
pub const BUFFER: u32 = 0x20;
/// Present state.
pub const PRESENT: u32 = 0x24;
/// Host control 1 in bits 7:0, power control in 15:8, block gap and wake-up above.
pub const HOST: u32 = 0x28;
/// Clock control in bits 15:0, data timeout in 19:16, software reset in 26:24.
pub const CLOCK: u32 = 0x2c;
/// Interrupt status; a written one clears.
pub const STATUS: u32 = 0x30;
/// Which events are latched in [`STATUS`].
pub const STATUS_ENABLE: u32 = 0x34;
/// Which latched events raise the interrupt line.
pub const SIGNAL_ENABLE: u32 = 0x38;
/// Errors of automatic commands in bits 15:0 (read only), host control 2 in 31:16.
pub const HOST2: u32 = 0x3c;
/// Capabilities, low word.
pub const CAPS: u32 = 0x40;
/// Capabilities, high word (version 3).
pub const CAPS_HIGH: u32 = 0x44;
/// Bus address of the ADMA descriptors, low word.
pub const ADMA: u32 = 0x58;
/// Bus address of the ADMA descriptors, high word.
pub const ADMA_HIGH: u32 = 0x5c;
/// Slot interrupt status in bits 15:0, version in 23:16 (0 = 1.00, 1 = 2.00, 2 = 3.00, 3 and more = 4), vendor above.
pub const VERSION: u32 = 0xfc;

bitflags! {
    /// [`PRESENT`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Present: u32 {
        /// No command may be written.
        const CMD_INHIBIT = 1 << 0;
        /// No command that uses the data lines may be written.
        const DAT_INHIBIT = 1 << 1;
        /// The sample point is to be found again.
        const RETUNE = 1 << 3;
        /// A whole block may be written to the buffer port.
        const WRITE_READY = 1 << 10;
        /// A whole block can be read from the buffer port.
        const READ_READY = 1 << 11;
        /// A card is in the slot (debounced).
        const INSERTED = 1 << 16;
        /// The write-protect switch is *off*.
        const WRITABLE = 1 << 19;
        /// Level of DAT0; low is busy.
        const DAT0 = 1 << 20;
        /// Levels of DAT3:0.
        const DAT = 0xf << 20;
    }
}

bitflags! {
    /// [`HOST`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HostControl: u32 {
        /// Four data lines.
        const WIDTH_4 = 1 << 1;
        /// Outputs change on the rising edge.
        const HIGH_SPEED = 1 << 2;
        /// DMA is ADMA2 with 32-bit addresses.
        const ADMA_32 = 2 << 3;
        /// DMA is ADMA2 with 64-bit addresses and descriptors of 96 bits.
        const ADMA_64 = 3 << 3;
        /// Eight data lines.
        const WIDTH_8 = 1 << 5;
        /// The card's supply is on.
        const POWER = 1 << 8;
        /// It is 1.8 V.
        const SUPPLY_1_8 = 5 << 9;
        /// It is 3.0 V.
        const SUPPLY_3_0 = 6 << 9;
        /// It is 3.3 V.
        const SUPPLY_3_3 = 7 << 9;
    }
}

bitflags! {
    /// [`CLOCK`] without its fields.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ClockControl: u32 {
        /// The internal clock may run.
        const INTERNAL = 1 << 0;
        /// It is stable.
        const STABLE = 1 << 1;
        /// The card's clock runs.
        const CARD = 1 << 2;
        /// Frequency by the programmable generator, not by the divider.
        const PROGRAMMABLE = 1 << 5;
        /// Resets everything but the card detection.
        const RESET_ALL = 1 << 24;
        /// Resets the command circuit.
        const RESET_CMD = 1 << 25;
        /// Resets the data circuit and DMA.
        const RESET_DAT = 1 << 26;
        /// All resets; each clears itself.
        const RESETS = 7 << 24;
    }
}

bitflags! {
    /// [`STATUS`] and its two enables: normal events in the lower half, errors in the upper.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Events: u32 {
        /// The command has been answered.
        const COMMAND = 1 << 0;
        /// The data or the busy are over.
        const TRANSFER = 1 << 1;
        /// The buffer port has room for a block.
        const WRITE_READY = 1 << 4;
        /// The buffer port has a block.
        const READ_READY = 1 << 5;
        /// A card went in.
        const INSERTION = 1 << 6;
        /// A card went out.
        const REMOVAL = 1 << 7;
        /// [`Present::RETUNE`] went up.
        const RETUNE = 1 << 12;
        /// No response within 64 clocks.
        const CMD_TIMEOUT = 1 << 16;
        /// CRC7 of the response.
        const CMD_CRC = 1 << 17;
        /// End bit of the response.
        const CMD_END = 1 << 18;
        /// Index in the response.
        const CMD_INDEX = 1 << 19;
        /// Data, CRC status or end of busy did not come.
        const DATA_TIMEOUT = 1 << 20;
        /// CRC16 of read data, or a bad CRC status of written ones.
        const DATA_CRC = 1 << 21;
        /// End bit of read data or of a CRC status.
        const DATA_END = 1 << 22;
        /// The card draws too much current.
        const CURRENT = 1 << 23;
        /// An automatic command failed.
        const AUTO = 1 << 24;
        /// A descriptor cannot be used, or a bus error.
        const ADMA = 1 << 25;
        /// The tuning circuit has failed, and not while it was tuning.
        const TUNING = 1 << 26;
    }
}

impl Events {
    /// What says that something went wrong.
    pub const ERRORS: Self = Self::from_bits_truncate(0x07ff_0000);
    /// A card went in or out.
    pub const SLOT: Self = Self::INSERTION.union(Self::REMOVAL);
    /// A card has been asked for its response and it was not right.
    pub const RESPONSE_ERRORS: Self = Self::from_bits_truncate(0x000f_0000);
}

/// Host control 2 in [`HOST2`]: signals at 1.8 V.
pub const SIGNAL_1_8: u32 = 1 << 19;
/// Host control 2 in [`HOST2`]: the controller tunes; it clears the bit when it is done.
pub const EXECUTE_TUNING: u32 = 1 << 22;
/// Host control 2 in [`HOST2`]: it samples where tuning has found to be right. Written 0: by the book again.
pub const SAMPLING_CLOCK: u32 = 1 << 23;

/// What [`CAPS`], [`CAPS_HIGH`] and [`VERSION`] say, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// [`CAPS`].
    pub low: u32,
    /// [`CAPS_HIGH`]; 0 before version 3.
    pub high: u32,
    /// 0 is 1.00, 1 is 2.00, 2 is 3.00, 3 and more are 4.
    pub version: u8,
}

impl Caps {
    const fn low_bit(&self, bit: u32) -> bool {
        self.low >> bit & 1 != 0
    }
    const fn high_bit(&self, bit: u32) -> bool {
        self.high >> bit & 1 != 0
    }
    /// Version 3 or later: long dividers, 1.8 V signalling, UHS-I.
    #[must_use]
    pub const fn v3(&self) -> bool {
        self.version >= 2
    }
    /// The base clock in Hz; 0: not told.
    #[must_use]
    pub const fn base_hz(&self) -> u32 {
        let mhz = self.low >> 8 & if self.v3() { 0xff } else { 0x3f };
        mhz.saturating_mul(1_000_000)
    }
    /// The clock of the data timeout in Hz; 0: not told.
    #[must_use]
    pub const fn timeout_hz(&self) -> u32 {
        (self.low & 0x3f).saturating_mul(if self.low_bit(7) { 1_000_000 } else { 1000 })
    }
    /// The programmable generator multiplies the base clock by this; 0: there is none.
    #[must_use]
    pub const fn multiplier(&self) -> u32 {
        match self.high >> 16 & 0xff {
            0 => 0,
            m => m.saturating_add(1),
        }
    }
    /// The longest block in bytes.
    #[must_use]
    pub const fn max_block(&self) -> u16 {
        match self.low >> 16 & 3 {
            0 => 512,
            1 => 1024,
            _ => 2048,
        }
    }
    /// Eight data lines in an embedded slot.
    #[must_use]
    pub const fn eight_lines(&self) -> bool {
        self.low_bit(18)
    }
    /// ADMA2.
    #[must_use]
    pub const fn adma2(&self) -> bool {
        self.low_bit(19)
    }
    /// ADMA2 with 64-bit addresses in the version 3 mode.
    #[must_use]
    pub const fn wide(&self) -> bool {
        self.low_bit(28)
    }
    /// High speed.
    #[must_use]
    pub const fn high_speed(&self) -> bool {
        self.low_bit(21)
    }
    /// 3.3 V supply.
    #[must_use]
    pub const fn supply_3_3(&self) -> bool {
        self.low_bit(24)
    }
    /// 3.0 V supply.
    #[must_use]
    pub const fn supply_3_0(&self) -> bool {
        self.low_bit(25)
    }
    /// 1.8 V supply, and with version 3 what 1.8 V signalling needs.
    #[must_use]
    pub const fn supply_1_8(&self) -> bool {
        self.low_bit(26)
    }
    /// The slot is for a chip on the board: nothing goes in or out.
    #[must_use]
    pub const fn embedded(&self) -> bool {
        self.low >> 30 == 1
    }
    /// UHS-I SDR50.
    #[must_use]
    pub const fn sdr50(&self) -> bool {
        self.high_bit(0)
    }
    /// UHS-I SDR104, and with it HS200.
    #[must_use]
    pub const fn sdr104(&self) -> bool {
        self.high_bit(1)
    }
    /// SDR50 needs tuning, too.
    #[must_use]
    pub const fn tuned_sdr50(&self) -> bool {
        self.high_bit(13)
    }
    /// How long a sample point may be used (re-tuning timer); `None`: as long as it is good, or another source tells.
    #[must_use]
    pub fn retuning_time(&self) -> Option<Duration> {
        match self.high >> 8 & 0xf {
            n @ 1..=11 => Some(Duration::from_secs(1_u64.wrapping_shl(n.saturating_sub(1)))),
            _ => None,
        }
    }
    /// The controller follows the sample point within a data phase by itself (re-tuning mode 3); else a data phase must not be
    /// longer than 4 MiB.
    #[must_use]
    pub const fn follows(&self) -> bool {
        self.high >> 14 & 3 == 2
    }
    /// UHS-I DDR50.
    #[must_use]
    pub const fn ddr50(&self) -> bool {
        self.high_bit(2)
    }
}
