//! CID of SD cards (`spec/card.md` §6.1).

use super::{CrcPolicy, RegisterError, Text};

register! {
    /// The card identification of an SD card, 16 bytes.
    Cid, CidInfo, 16 {
        /// Manufacturer.
        mid: u8 [127:120],
        /// OEM or application: two bytes of ASCII by the standard, anything in the wild.
        oid: u16 [119:104],
        /// Product name, five bytes of ASCII, the first in the highest byte.
        pnm: u64 [103:64],
        /// Product revision, first figure.
        prv_major: u8 [63:60],
        /// Product revision, second figure.
        prv_minor: u8 [59:56],
        /// Serial number.
        psn: u32 [55:24],
        /// Reserved, 0 (makers use it).
        reserved: u8 [23:20],
        /// Year of making minus 2000 (binary, not BCD).
        mdt_year_code: u8 [19:12],
        /// Month of making, 1..=12.
        mdt_month: u8 [11:8],
    }
}

impl Cid {
    /// OEM as text.
    #[must_use]
    pub fn oid_text(&self) -> Text<2> {
        Text(self.oid().to_be_bytes())
    }
    /// Product name as text.
    #[must_use]
    pub fn pnm_text(&self) -> Text<5> {
        let [_, _, _, name @ ..] = self.pnm().to_be_bytes();
        Text(name)
    }
    /// Year of making, 2000..=2255.
    #[must_use]
    pub fn mdt_year(&self) -> u16 {
        u16::from(self.mdt_year_code()).saturating_add(2000)
    }
    /// Whether this can be a CID. Odd OIDs, names, months and reserved bits are not refused: real cards have
    /// them.
    ///
    /// # Errors
    /// The CRC is not accepted; no maker and no name; all bits one.
    pub fn check(&self, policy: CrcPolicy) -> Result<(), RegisterError> {
        policy.check(&self.0)?;
        if self.mid() == 0 && self.pnm() == 0 {
            return Err(RegisterError::Identity);
        }
        if self.mid() == 0xff && self.pnm() == 0x00ff_ffff_ffff {
            let (field, value) = ("MID", u64::from(self.mid()));
            return Err(RegisterError::Field {
                field,
                value,
                why: "all bits are one: nothing drove the line",
            });
        }
        Ok(())
    }
}

sealed!(Cid, CidInfo);
