//! SCR of SD cards (`spec/card.md` §8).

use super::RegisterError;
use core::fmt;

register! {
    /// The SD configuration register, 8 bytes. It travels as data: a CRC16 guards it, nothing in it does.
    Scr, ScrInfo, 8 {
        /// SCR_STRUCTURE, 0.
        structure: u8 [63:60],
        /// SD_SPEC: 0 1.0x, 1 1.10, 2 2.00 or later.
        sd_spec: u8 [59:56],
        /// What erased blocks read as.
        data_stat_after_erase: u8 [55:55],
        /// 0 none, 2 SDSC, 3 SDHC, 4 SDXC.
        sd_security: u8 [54:52],
        /// Bit 0 one line, bit 2 four lines.
        bus_widths: u8 [51:48],
        /// 3.0x or later.
        sd_spec3: u8 [47:47],
        /// Extended security.
        ex_security: u8 [46:43],
        /// 4.xx or later.
        sd_spec4: u8 [42:42],
        /// 1 5.xx, 2 6.xx and so on.
        sd_specx: u8 [41:38],
        /// CMD_SUPPORT: bit 0 CMD20, 1 CMD23, 2 CMD48/49, 3 CMD58/59, 4 ACMD53/54; valid only with
        /// [`sd_spec3`](Self::sd_spec3).
        cmd_support: u8 [36:32],
        /// The maker's own.
        mfg: u32 [31:0],
    }
}

/// The version of the physical layer specification a card follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecVersion {
    /// 1.0 or 1.01.
    V1_0,
    /// 1.10.
    V1_10,
    /// 2.00.
    V2_00,
    /// 3.0x, or `n`.xx for 4 and later.
    Major(u8),
    /// Codes that mean nothing yet.
    Unknown,
}

impl fmt::Display for SpecVersion {
    /// `1.0/1.01`, `1.10`, `2.00`, `3.0X`, `6.XX`, `unknown`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V1_0 => f.write_str("1.0/1.01"),
            Self::V1_10 => f.write_str("1.10"),
            Self::V2_00 => f.write_str("2.00"),
            Self::Major(3) => f.write_str("3.0X"),
            Self::Major(n) => write!(f, "{n}.XX"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl Scr {
    /// The version the three version fields name together.
    #[must_use]
    pub fn version(&self) -> SpecVersion {
        match (self.sd_spec(), self.sd_spec3(), self.sd_spec4(), self.sd_specx()) {
            (0, ..) => SpecVersion::V1_0,
            (1, ..) => SpecVersion::V1_10,
            (2, 0, ..) => SpecVersion::V2_00,
            (2, _, 0, 0) => SpecVersion::Major(3),
            (2, _, _, 0) => SpecVersion::Major(4),
            (2, _, _, x @ 1..=5) => SpecVersion::Major(x.saturating_add(4)),
            _ => SpecVersion::Unknown,
        }
    }
    /// Bit `n` of CMD_SUPPORT, where it is valid.
    fn supports(&self, n: u8) -> bool {
        self.sd_spec3() == 1 && (self.cmd_support() >> n) & 1 == 1
    }
    /// The card has CMD20.
    #[must_use]
    pub fn has_cmd20(&self) -> bool {
        self.supports(0)
    }
    /// The card has CMD23.
    #[must_use]
    pub fn has_cmd23(&self) -> bool {
        self.supports(1)
    }
    /// The card has CMD48 and CMD49.
    #[must_use]
    pub fn has_cmd48_49(&self) -> bool {
        self.supports(2)
    }
    /// The card has CMD58 and CMD59.
    #[must_use]
    pub fn has_cmd58_59(&self) -> bool {
        self.supports(3)
    }
    /// The card has ACMD53 and ACMD54.
    #[must_use]
    pub fn has_acmd53_54(&self) -> bool {
        self.supports(4)
    }
    /// The card can use four data lines.
    #[must_use]
    pub fn four_lines(&self) -> bool {
        self.bus_widths() & 4 != 0
    }
    /// Plain values.
    #[must_use]
    pub fn info(&self) -> ScrInfo {
        self.fields_of()
    }
    /// Whether this can be an SCR.
    ///
    /// # Errors
    /// An unknown structure (all ones), or a card that has not even one data line (all zeros).
    pub fn check(&self) -> Result<(), RegisterError> {
        let bad = |field, value: u8, why| Err(RegisterError::Field { field, value: value.into(), why });
        if self.structure() != 0 {
            return bad("SCR_STRUCTURE", self.structure(), "unknown; all bits may be one");
        }
        if self.bus_widths() & 5 == 0 {
            return bad(
                "SD_BUS_WIDTHS",
                self.bus_widths(),
                "neither one nor four lines; all bits may be zero",
            );
        }
        Ok(())
    }
}

impl ScrInfo {
    /// The register.
    #[must_use]
    pub fn emit(&self) -> Scr {
        self.bits()
    }
}
