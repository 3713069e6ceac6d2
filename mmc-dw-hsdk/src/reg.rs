//! Registers: offsets and bits, as the register manuals name them (`spec/dw-mshc.md` §1).
//!
//! Only what this driver touches. All registers are 32 bits wide and little-endian.

use bitflags::bitflags;

/// Control.
pub const CTRL: u32 = 0x000;
/// Card supply switches; a plain output port.
pub const PWREN: u32 = 0x004;
/// Clock dividers; the divisor is twice the value, 0 is bypass.
pub const CLKDIV: u32 = 0x008;
/// Which divider a card uses.
pub const CLKSRC: u32 = 0x00c;
/// Clock enable, one bit per card; low-power gating in the upper half.
pub const CLKENA: u32 = 0x010;
/// Response timeout in bits 7:0, data timeout in 31:8, in card clocks.
pub const TMOUT: u32 = 0x014;
/// Bus width per card.
pub const CTYPE: u32 = 0x018;
/// Block size in bytes.
pub const BLKSIZ: u32 = 0x01c;
/// Bytes of the whole data phase.
pub const BYTCNT: u32 = 0x020;
/// Which events raise the interrupt line.
pub const INTMASK: u32 = 0x024;
/// Argument of the next command.
pub const CMDARG: u32 = 0x028;
/// The command; writing it with `START` is the doorbell.
pub const CMD: u32 = 0x02c;
/// Response bits 31:0 of a long response, bits 39:8 of a short one. RESP1…RESP3 follow.
pub const RESP0: u32 = 0x030;
/// Response bits 63:32 of a long response.
pub const RESP1: u32 = 0x034;
/// Response bits 95:64 of a long response.
pub const RESP2: u32 = 0x038;
/// Response bits 127:96 of a long response.
pub const RESP3: u32 = 0x03c;
/// Events that are enabled and pending.
pub const MINTSTS: u32 = 0x040;
/// Events pending, enabled or not; writing a one clears it.
pub const RINTSTS: u32 = 0x044;
/// Status of the FIFO and the state machines.
pub const STATUS: u32 = 0x048;
/// FIFO watermarks and DMA burst size.
pub const FIFOTH: u32 = 0x04c;
/// Card detect pins: 0 is a card.
pub const CDETECT: u32 = 0x050;
/// Write-protect pins: 1 is protected.
pub const WRTPRT: u32 = 0x054;
/// Bytes moved between card and controller in the present transfer.
pub const TCBCNT: u32 = 0x05c;
/// Card-detect debounce in biu clocks.
pub const DEBNCE: u32 = 0x064;
/// How the block was built.
pub const HCON: u32 = 0x070;
/// Signal level (bit 0: 1.8 V) and double data rate (bit 16).
pub const UHS_REG: u32 = 0x074;
/// Bus mode of the internal DMA controller.
pub const BMOD: u32 = 0x080;
/// Poll demand: the DMA controller fetches a descriptor (again).
pub const PLDMND: u32 = 0x084;
/// Where the descriptor list starts.
pub const DBADDR: u32 = 0x088;
/// Status of the internal DMA controller; writing a one clears it.
pub const IDSTS: u32 = 0x08c;
/// Which DMA events raise the interrupt line.
pub const IDINTEN: u32 = 0x090;
/// Version: the low half as digits, 0x270a is 2.70a.
pub const VERID: u32 = 0x06c;
/// The FIFO's window from version 2.40a on.
pub const DATA: u32 = 0x200;
/// The FIFO's window before version 2.40a.
pub const DATA_OLD: u32 = 0x100;
/// Card read threshold: bit 0 on, bytes in bits 28:16. From version 2.40a on.
pub const CARDTHRCTL: u32 = 0x100;
/// eMMC's double data rate: half start bit (bit 0), HS400 (bit 31). From version 2.40a on.
pub const EMMC_DDR_REG: u32 = 0x10c;
/// On the HSDK: select of the divider in front of ciu, in bits 31:30; sample and drive phases elsewhere.
pub const UHS_REG_EXT: u32 = 0x108;

bitflags! {
    /// [`CTRL`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Ctrl: u32 {
        /// State machines and the card side; forgets what the card side knew of the clock.
        const CONTROLLER_RESET = 1 << 0;
        /// FIFO pointers.
        const FIFO_RESET = 1 << 1;
        /// DMA interface.
        const DMA_RESET = 1 << 2;
        /// Gate of the interrupt pin.
        const INT_ENABLE = 1 << 4;
        /// DMA on; needed by external DMA only, set by every driver.
        const DMA_ENABLE = 1 << 5;
        /// The internal DMA controller moves the data.
        const USE_IDMAC = 1 << 25;
    }
}

impl Ctrl {
    /// The three reset bits; each clears itself.
    pub const RESETS: Self = Self::CONTROLLER_RESET.union(Self::FIFO_RESET).union(Self::DMA_RESET);
}

bitflags! {
    /// [`CMD`]; bits 5:0 are the index.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Cmd: u32 {
        /// A response will come.
        const RESPONSE_EXPECT = 1 << 6;
        /// It is 136 bits long.
        const RESPONSE_LONG = 1 << 7;
        /// Check its CRC7.
        const CHECK_CRC = 1 << 8;
        /// A data phase follows.
        const DATA_EXPECTED = 1 << 9;
        /// The host sends the data.
        const WRITE = 1 << 10;
        /// Send CMD12 after the last byte.
        const AUTO_STOP = 1 << 12;
        /// Hold the command until the last transfer and the card's busy are over.
        const WAIT_PRVDATA = 1 << 13;
        /// This command ends a transfer in flight.
        const STOP_ABORT = 1 << 14;
        /// 80 clocks before it.
        const SEND_INIT = 1 << 15;
        /// No command: hand the clock registers to the card side.
        const UPDATE_CLOCK = 1 << 21;
        /// Part of a switch of the signal level.
        const VOLT_SWITCH = 1 << 28;
        /// Through the hold register; right for every mode up to 50 MHz.
        const USE_HOLD_REG = 1 << 29;
        /// Go; cleared by the controller when it has taken the command.
        const START = 1 << 31;
    }
}

bitflags! {
    /// [`RINTSTS`], [`MINTSTS`] and [`INTMASK`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Events: u32 {
        /// A card came or went.
        const CARD_DETECT = 1 << 0;
        /// Response error: a wrong bit or index.
        const RE = 1 << 1;
        /// Command done.
        const CDONE = 1 << 2;
        /// Data transfer over.
        const DTO = 1 << 3;
        /// The FIFO wants data.
        const TXDR = 1 << 4;
        /// The FIFO has data.
        const RXDR = 1 << 5;
        /// CRC error in the response.
        const RCRC = 1 << 6;
        /// CRC error in the data, or the card's negative CRC status.
        const DCRC = 1 << 7;
        /// No response.
        const RTO = 1 << 8;
        /// No data.
        const DRTO = 1 << 9;
        /// The host starved the data path (or, during CMD11, the voltage switch goes on).
        const HTO = 1 << 10;
        /// FIFO overrun or underrun.
        const FRUN = 1 << 11;
        /// A locked register was written; a command may be lost.
        const HLE = 1 << 12;
        /// Start bit error.
        const SBE = 1 << 13;
        /// Auto-stop done.
        const ACD = 1 << 14;
        /// End bit error (read) or no CRC status (write).
        const EBE = 1 << 15;
        /// The SDIO interrupt, as the mailbox carries it; in the register it is where the platform says.
        const SDIO = 1 << 16;
    }
}

impl Events {
    /// Everything that says an operation failed.
    pub const ERRORS: Self = Self::RE
        .union(Self::RCRC)
        .union(Self::DCRC)
        .union(Self::RTO)
        .union(Self::DRTO)
        .union(Self::HTO)
        .union(Self::FRUN)
        .union(Self::HLE)
        .union(Self::SBE)
        .union(Self::EBE);
    /// Everything the interrupt half acknowledges without being asked. The FIFO's own requests and SDIO are not among
    /// them.
    pub const HANDLED: Self =
        Self::ERRORS.union(Self::CARD_DETECT).union(Self::CDONE).union(Self::DTO).union(Self::ACD);
}

bitflags! {
    /// [`STATUS`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Status: u32 {
        /// DAT3 is high.
        const DAT3 = 1 << 8;
        /// DAT0 is low: the card is busy.
        const BUSY = 1 << 9;
        /// The data state machine works.
        const DATA_FSM = 1 << 10;
        /// The FIFO asks for DMA.
        const DMA_REQ = 1 << 31;
    }
}

bitflags! {
    /// [`BMOD`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bmod: u32 {
        /// Software reset of the internal DMA controller; clears itself, keeps DBADDR and IDINTEN.
        const SWR = 1 << 0;
        /// Fixed bursts.
        const FB = 1 << 1;
        /// Enable.
        const DE = 1 << 7;
    }
}

bitflags! {
    /// [`IDSTS`] and [`IDINTEN`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DmaEvents: u32 {
        /// A written descriptor is closed.
        const TI = 1 << 0;
        /// A read descriptor is closed.
        const RI = 1 << 1;
        /// Bus error; the unit is off until a reset.
        const FBE = 1 << 2;
        /// A descriptor was not the unit's own.
        const DU = 1 << 4;
        /// OR of the errors in [`Events`].
        const CES = 1 << 5;
        /// Summary of TI and RI.
        const NIS = 1 << 8;
        /// Summary of FBE, DU (and CES on some versions).
        const AIS = 1 << 9;
    }
}

impl DmaEvents {
    /// What raises the line: what would otherwise be silence. TI and RI come before or with DTO and are looked at
    /// then (one interrupt a transfer); CES only repeats what [`Events`] says.
    pub const ENABLED: Self = Self::AIS.union(Self::FBE).union(Self::DU);
    /// The end of the list, either way.
    pub const CLOSED: Self = Self::TI.union(Self::RI);
}

/// Where the registers of the DMA controller are that move when addresses are 64 bits wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// Upper half of the list's address, if there is one.
    pub dbaddr_high: Option<u32>,
    /// [`DmaEvents`] pending.
    pub idsts: u32,
    /// [`DmaEvents`] enabled.
    pub idinten: u32,
}

impl DmaMap {
    /// 32-bit addresses: [`DBADDR`], [`IDSTS`], [`IDINTEN`].
    pub const NARROW: Self = Self { dbaddr_high: None, idsts: IDSTS, idinten: IDINTEN };
    /// 64-bit addresses: the upper half of the list's address is where IDSTS was, the rest one word further on.
    pub const WIDE: Self = Self { dbaddr_high: Some(0x08c), idsts: 0x090, idinten: 0x094 };
}

/// HCON: the build saves area, TCBCNT reads 0 during a transfer.
pub const HCON_AREA_OPTIMIZED: u32 = 1 << 26;
/// HCON: descriptors have 64-bit addresses and the IDMAC registers lie elsewhere.
pub const HCON_ADDRESS_64: u32 = 1 << 27;
/// HCON: which DMA the build has; 0 is the internal one.
pub const HCON_DMA: u32 = 3 << 16;
