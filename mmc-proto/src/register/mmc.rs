//! CID and CSD of MMC and eMMC (`spec/card.md` §6.2, §7.4).

use super::{CrcPolicy, RegisterError, Text, mantissa, speed_unit, taac_ps};

register! {
    /// The card identification of an MMC of specification 2.0 and later, 16 bytes.
    MmcCid, MmcCidInfo, 16 {
        /// Manufacturer.
        mid: u8 [127:120],
        /// Reserved, 0; the upper six bits of the old 16-bit OID.
        reserved: u8 [119:114],
        /// 0 removable card, 1 BGA, 2 package on package.
        cbx: u8 [113:112],
        /// OEM or application.
        oid8: u8 [111:104],
        /// Product name, six bytes of ASCII, the first in the highest byte.
        pnm: u64 [103:56],
        /// Product revision; two BCD figures by the standard, any number in the wild.
        prv: u8 [55:48],
        /// Serial number.
        psn: u32 [47:16],
        /// Month of making, 1..=12.
        mdt_month: u8 [15:12],
        /// Year of making, coded: see [`mmc_year`].
        mdt_year_code: u8 [11:8],
    }
}

impl MmcCid {
    /// The 16-bit OID of older cards (bits 119:104).
    #[must_use]
    pub fn oid16(&self) -> u16 {
        u16::try_from(super::get(&self.0, 119, 104)).unwrap_or(0)
    }
    /// Product name as text.
    #[must_use]
    pub fn pnm_text(&self) -> Text<6> {
        let [_, _, name @ ..] = self.pnm().to_be_bytes();
        Text(name)
    }
    /// Whether this can be a CID.
    ///
    /// # Errors
    /// The CRC is not accepted; no maker and no name; all bits one.
    pub fn check(&self, policy: CrcPolicy) -> Result<(), RegisterError> {
        policy.check(&self.0)?;
        if self.mid() == 0 && self.pnm() == 0 {
            return Err(RegisterError::Identity);
        }
        if self.mid() == 0xff && self.pnm() == 0xffff_ffff_ffff {
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

sealed!(MmcCid, MmcCidInfo);

register! {
    /// The card identification of an MMC of specification 1.x (`SPEC_VERS` 0 or 1 in its CSD), 16 bytes.
    MmcCidV1, MmcCidV1Info, 16 {
        /// Manufacturer.
        mid: u32 [127:104],
        /// Product name, seven bytes of ASCII, the first in the highest byte.
        pnm: u64 [103:48],
        /// Revision of the hardware.
        hwrev: u8 [47:44],
        /// Revision of the firmware.
        fwrev: u8 [43:40],
        /// Serial number.
        psn: u32 [39:16],
        /// Month of making, 1..=12.
        mdt_month: u8 [15:12],
        /// Year of making minus 1997.
        mdt_year_code: u8 [11:8],
    }
}

sealed!(MmcCidV1, MmcCidV1Info);

impl MmcCidV1 {
    /// Product name as text.
    #[must_use]
    pub fn pnm_text(&self) -> Text<7> {
        let [_, name @ ..] = self.pnm().to_be_bytes();
        Text(name)
    }
    /// Whether this can be a CID.
    ///
    /// # Errors
    /// The CRC is not accepted; no maker and no name; all bits one.
    pub fn check(&self, policy: CrcPolicy) -> Result<(), RegisterError> {
        policy.check(&self.0)?;
        if self.mid() == 0 && self.pnm() == 0 {
            return Err(RegisterError::Identity);
        }
        if self.mid() == 0x00ff_ffff && self.pnm() == 0x00ff_ffff_ffff_ffff {
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

/// The year of a date code 0..=15 (upper bits are ignored).
///
/// 1997 + code; from `EXT_CSD_REV` 5 on codes 0..=12 mean 2013..=2025; from 9 on the codes mean 2023..=2038.
/// Without `ext_csd_rev` the first rule holds.
#[must_use]
pub fn mmc_year(code: u8, ext_csd_rev: Option<u8>) -> u16 {
    let base = u16::from(code & 0xf).saturating_add(1997);
    match ext_csd_rev {
        Some(9..) => {
            let year = base.saturating_add(16);
            if year < 2023 { year.saturating_add(16) } else { year }
        }
        Some(5..) if base < 2010 => base.saturating_add(16),
        _ => base,
    }
}

register! {
    /// The card specific data of an MMC or eMMC, 16 bytes.
    MmcCsd, MmcCsdInfo, 16 {
        /// CSD_STRUCTURE: 0 version 1.0, 1 version 1.1, 2 version 1.2, 3 see EXT_CSD byte 194.
        structure: u8 [127:126],
        /// SPEC_VERS: 0 1.0–1.2, 1 1.4, 2 2.0–2.2, 3 3.1–3.31, 4 4.0 and later.
        spec_vers: u8 [125:122],
        /// Access time, coded; see [`taac_ps`](Self::taac_ps).
        taac: u8 [119:112],
        /// Access time in units of 100 clocks.
        nsac: u8 [111:104],
        /// Highest clock, coded; see [`tran_speed_hz`](Self::tran_speed_hz).
        tran_speed: u8 [103:96],
        /// Command classes, bit n for class n.
        ccc: u16 [95:84],
        /// Longest read block, 2ⁿ bytes.
        read_bl_len: u8 [83:80],
        /// Shorter read blocks are allowed.
        read_bl_partial: u8 [79:79],
        /// A written block may cross a physical one.
        write_blk_misalign: u8 [78:78],
        /// A read block may cross a physical one.
        read_blk_misalign: u8 [77:77],
        /// There is a driver stage register.
        dsr_imp: u8 [76:76],
        /// C_SIZE; 0xFFF above 2 GB, where EXT_CSD's SEC_COUNT holds the size.
        c_size: u16 [73:62],
        /// Lowest read current, coded.
        vdd_r_curr_min_code: u8 [61:59],
        /// Highest read current, coded.
        vdd_r_curr_max_code: u8 [58:56],
        /// Lowest write current, coded.
        vdd_w_curr_min_code: u8 [55:53],
        /// Highest write current, coded.
        vdd_w_curr_max_code: u8 [52:50],
        /// C_SIZE_MULT.
        c_size_mult: u8 [49:47],
        /// Erase group size, minus one.
        erase_grp_size: u8 [46:42],
        /// Erase group multiplier, minus one.
        erase_grp_mult: u8 [41:37],
        /// Write protect group in erase groups, minus one.
        wp_grp_size: u8 [36:32],
        /// Groups can be write protected.
        wp_grp_enable: u8 [31:31],
        /// Default ECC.
        default_ecc: u8 [30:29],
        /// Write time is read time times 2ⁿ.
        r2w_factor: u8 [28:26],
        /// Longest write block, 2ⁿ bytes.
        write_bl_len: u8 [25:22],
        /// Shorter write blocks are allowed.
        write_bl_partial: u8 [21:21],
        /// Content protection.
        content_prot_app: u8 [16:16],
        /// Group of [`file_format`](Self::file_format).
        file_format_grp: u8 [15:15],
        /// The contents are a copy.
        copy: u8 [14:14],
        /// Write protected for ever.
        perm_write_protect: u8 [13:13],
        /// Write protected for now.
        tmp_write_protect: u8 [12:12],
        /// 0 partition table, 1 floppy-like, 2 universal, 3 other.
        file_format: u8 [11:10],
        /// ECC code.
        ecc: u8 [9:8],
    }
}

impl MmcCsd {
    /// Access time in picoseconds, 0 for a reserved code.
    #[must_use]
    pub fn taac_ps(&self) -> u64 {
        taac_ps(self.taac())
    }
    /// Highest clock in Hz, 0 for a reserved code. MMC has 2.6 and 5.2 where SD has 2.5 and 5.0.
    #[must_use]
    pub fn tran_speed_hz(&self) -> u32 {
        let m = match (self.tran_speed() >> 3) & 0xf {
            6 => 26,
            11 => 52,
            _ => u32::try_from(mantissa(self.tran_speed())).unwrap_or(0),
        };
        m.saturating_mul(speed_unit(self.tran_speed()))
    }
    /// Capacity in bytes as the CSD states it; a lie when
    /// [`capacity_from_ext_csd`](Self::capacity_from_ext_csd).
    #[must_use]
    pub fn csd_capacity_bytes(&self) -> u64 {
        let shift = u32::from(self.c_size_mult()).saturating_add(2).saturating_add(self.read_bl_len().into());
        u64::from(self.c_size()).saturating_add(1).checked_shl(shift).unwrap_or(0)
    }
    /// The size must be taken from EXT_CSD's SEC_COUNT.
    #[must_use]
    pub fn capacity_from_ext_csd(&self) -> bool {
        self.c_size() == 0xfff
    }
    /// Bytes of one erase group.
    #[must_use]
    pub fn erase_group_bytes(&self) -> u64 {
        let groups = u64::from(self.erase_grp_size())
            .saturating_add(1)
            .saturating_mul(u64::from(self.erase_grp_mult()).saturating_add(1));
        groups.checked_shl(self.write_bl_len().into()).unwrap_or(0)
    }
    /// Whether this can be the CSD of an MMC.
    ///
    /// # Errors
    /// The CRC is not accepted; no command class at all (all zeros); a block length below 512 or above 4096
    /// (all ones).
    pub fn check(&self, policy: CrcPolicy) -> Result<(), RegisterError> {
        policy.check(&self.0)?;
        let bad = |field, value: u64, why| Err(RegisterError::Field { field, value, why });
        if self.ccc() == 0 {
            return bad("CCC", 0, "a card without any command class; all bits may be zero");
        }
        let n = self.read_bl_len();
        if !(9..=12).contains(&n) {
            return bad("READ_BL_LEN", n.into(), "not a block length of an MMC; all bits may be one");
        }
        Ok(())
    }
}

sealed!(MmcCsd, MmcCsdInfo);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_mmc_are_26_and_52_where_those_of_sd_are_25_and_50() {
        for (code, hz) in
            [(0x2a, 20_000_000), (0x32, 26_000_000), (0x5a, 52_000_000), (0x4a, 40_000_000), (0x02, 0)]
        {
            let csd = MmcCsdInfo { tran_speed: code, ..MmcCsdInfo::default() }.emit();
            assert_eq!(csd.tran_speed_hz(), hz, "{code:#x}");
        }
    }

    #[test]
    fn the_oldest_cards_have_a_longer_name_and_a_shorter_serial_number() {
        let info = MmcCidV1Info {
            mid: 0x01_0203,
            pnm: 0x41_4243_4445_4647,
            hwrev: 2,
            fwrev: 3,
            psn: 0x5e_ed01,
            mdt_month: 7,
            mdt_year_code: 3,
        };
        let cid = info.emit();
        assert_eq!(cid.emit()[..15], *b"\x01\x02\x03ABCDEFG\x23\x5e\xed\x01\x73");
        assert_eq!((cid.info(), cid.pnm_text().0), (info, *b"ABCDEFG"));
        assert_eq!(cid.check(CrcPolicy::Wire), Ok(()));
        for stuck in [0x00, 0xff] {
            assert!(MmcCidV1::new([stuck; 16]).check(CrcPolicy::Ignore).is_err());
        }
    }

    #[test]
    fn years_follow_the_revision_of_the_ext_csd() {
        assert_eq!(mmc_year(0, None), 1997);
        assert_eq!(mmc_year(0, Some(4)), 1997);
        assert_eq!((mmc_year(0, Some(5)), mmc_year(12, Some(8))), (2013, 2025));
        assert_eq!((mmc_year(13, Some(5)), mmc_year(15, Some(8))), (2010, 2012));
        assert_eq!((mmc_year(10, Some(9)), mmc_year(12, Some(9))), (2023, 2025));
        assert_eq!((mmc_year(13, Some(9)), mmc_year(15, Some(9))), (2026, 2028));
        assert_eq!((mmc_year(0, Some(9)), mmc_year(9, Some(255))), (2029, 2038));
    }
}
