//! Offsets and bits (`spec/dw-mshc.md` §1).

pub(super) const CTRL: u32 = 0x00;
pub(super) const PWREN: u32 = 0x04;
pub(super) const CLKDIV: u32 = 0x08;
pub(super) const CLKSRC: u32 = 0x0c;
pub(super) const CLKENA: u32 = 0x10;
pub(super) const TMOUT: u32 = 0x14;
pub(super) const CTYPE: u32 = 0x18;
pub(super) const BLKSIZ: u32 = 0x1c;
pub(super) const BYTCNT: u32 = 0x20;
pub(super) const INTMASK: u32 = 0x24;
pub(super) const CMDARG: u32 = 0x28;
pub(super) const CMD: u32 = 0x2c;
pub(super) const RESP0: u32 = 0x30;
pub(super) const RESP3: u32 = 0x3c;
pub(super) const MINTSTS: u32 = 0x40;
pub(super) const RINTSTS: u32 = 0x44;
pub(super) const STATUS: u32 = 0x48;
pub(super) const FIFOTH: u32 = 0x4c;
pub(super) const CDETECT: u32 = 0x50;
pub(super) const WRTPRT: u32 = 0x54;
pub(super) const GPIO: u32 = 0x58;
pub(super) const TCBCNT: u32 = 0x5c;
pub(super) const TBBCNT: u32 = 0x60;
pub(super) const DEBNCE: u32 = 0x64;
pub(super) const USRID: u32 = 0x68;
pub(super) const VERID: u32 = 0x6c;
pub(super) const HCON: u32 = 0x70;
pub(super) const UHS_REG: u32 = 0x74;
pub(super) const RST_N: u32 = 0x78;
pub(super) const BMOD: u32 = 0x80;
pub(super) const PLDMND: u32 = 0x84;
pub(super) const DBADDR: u32 = 0x88;
pub(super) const CARDTHRCTL: u32 = 0x100;
pub(super) const BACK_END_POWER: u32 = 0x104;
pub(super) const UHS_REG_EXT: u32 = 0x108;
pub(super) const EMMC_DDR_REG: u32 = 0x10c;
pub(super) const ENABLE_SHIFT: u32 = 0x110;

/// The registers that are locked while `start_cmd` is set, and their names.
pub(super) const LOCKED: [(u32, &str); 9] = [
    (CMD, "CMD"),
    (CMDARG, "CMDARG"),
    (BYTCNT, "BYTCNT"),
    (BLKSIZ, "BLKSIZ"),
    (CLKDIV, "CLKDIV"),
    (CLKENA, "CLKENA"),
    (CLKSRC, "CLKSRC"),
    (TMOUT, "TMOUT"),
    (CTYPE, "CTYPE"),
];

/// CTRL.
pub(super) mod ctrl {
    pub(in super::super) const RESET: u32 = 1 << 0;
    pub(in super::super) const FIFO_RESET: u32 = 1 << 1;
    pub(in super::super) const DMA_RESET: u32 = 1 << 2;
    pub(in super::super) const RESETS: u32 = 7;
    pub(in super::super) const INT_ENABLE: u32 = 1 << 4;
    pub(in super::super) const READ_WAIT: u32 = 1 << 6;
    pub(in super::super) const ABORT_READ: u32 = 1 << 8;
    /// `send_ccsd` and `send_auto_stop_ccsd`.
    pub(in super::super) const CE_ATA: u32 = 3 << 9;
    pub(in super::super) const INTERNAL_DMAC: u32 = 1 << 25;
    /// `send_irq_response`, `abort_read_data`, `send_ccsd`, `send_auto_stop_ccsd` clear themselves.
    pub(in super::super) const SELF_CLEARING: u32 = RESETS | 0xf << 7;
}

/// CMD.
pub(super) mod cmd {
    pub(in super::super) const INDEX: u32 = 0x3f;
    pub(in super::super) const RESPONSE: u32 = 1 << 6;
    pub(in super::super) const LONG: u32 = 1 << 7;
    pub(in super::super) const CHECK_CRC: u32 = 1 << 8;
    pub(in super::super) const DATA: u32 = 1 << 9;
    pub(in super::super) const WRITE: u32 = 1 << 10;
    pub(in super::super) const STREAM: u32 = 1 << 11;
    pub(in super::super) const AUTO_STOP: u32 = 1 << 12;
    pub(in super::super) const WAIT_DATA: u32 = 1 << 13;
    pub(in super::super) const STOP_ABORT: u32 = 1 << 14;
    pub(in super::super) const INIT: u32 = 1 << 15;
    pub(in super::super) const UPDATE_CLOCK: u32 = 1 << 21;
    /// `read_ceata`, `ccs_expected`.
    pub(in super::super) const CE_ATA: u32 = 3 << 22;
    /// `enable_boot`, `expect_boot_ack`, `disable_boot`, `boot_mode`.
    pub(in super::super) const BOOT: u32 = 0xf << 24;
    pub(in super::super) const VOLT_SWITCH: u32 = 1 << 28;
    pub(in super::super) const START: u32 = 1 << 31;
}

/// RINTSTS, MINTSTS, INTMASK.
pub(super) mod int {
    pub(in super::super) const CARD_DETECT: u32 = 1 << 0;
    pub(in super::super) const RE: u32 = 1 << 1;
    pub(in super::super) const CDONE: u32 = 1 << 2;
    pub(in super::super) const DTO: u32 = 1 << 3;
    pub(in super::super) const TXDR: u32 = 1 << 4;
    pub(in super::super) const RXDR: u32 = 1 << 5;
    pub(in super::super) const RCRC: u32 = 1 << 6;
    pub(in super::super) const DCRC: u32 = 1 << 7;
    pub(in super::super) const RTO: u32 = 1 << 8;
    pub(in super::super) const DRTO: u32 = 1 << 9;
    pub(in super::super) const HTO: u32 = 1 << 10;
    pub(in super::super) const VOLT: u32 = 1 << 10;
    pub(in super::super) const FRUN: u32 = 1 << 11;
    pub(in super::super) const HLE: u32 = 1 << 12;
    pub(in super::super) const SBE: u32 = 1 << 13;
    pub(in super::super) const BCI: u32 = 1 << 13;
    pub(in super::super) const ACD: u32 = 1 << 14;
    pub(in super::super) const EBE: u32 = 1 << 15;
}

/// IDSTS, IDINTEN.
pub(super) mod idsts {
    pub(in super::super) const TI: u32 = 1 << 0;
    pub(in super::super) const RI: u32 = 1 << 1;
    pub(in super::super) const FBE: u32 = 1 << 2;
    pub(in super::super) const DU: u32 = 1 << 4;
    pub(in super::super) const CES: u32 = 1 << 5;
    pub(in super::super) const NIS: u32 = 1 << 8;
    pub(in super::super) const AIS: u32 = 1 << 9;
    pub(in super::super) const ALL: u32 = TI | RI | FBE | DU | CES | NIS | AIS;
}

/// BMOD.
pub(super) mod bmod {
    pub(in super::super) const SWR: u32 = 1 << 0;
    pub(in super::super) const DE: u32 = 1 << 7;
    /// Fixed burst, descriptor skip length, enable: what is stored.
    pub(in super::super) const STORED: u32 = 0xfe;
}

/// DES0.
pub(super) mod des0 {
    pub(in super::super) const OWN: u32 = 1 << 31;
    pub(in super::super) const CES: u32 = 1 << 30;
    pub(in super::super) const ER: u32 = 1 << 5;
    pub(in super::super) const CH: u32 = 1 << 4;
    pub(in super::super) const FD: u32 = 1 << 3;
    pub(in super::super) const LD: u32 = 1 << 2;
    pub(in super::super) const DIC: u32 = 1 << 1;
}
