//! CSD of SD cards, structures 1.0 (SDSC), 2.0 (SDHC, SDXC) and 3.0 (SDUC) (`spec/card.md` §7).

use super::{CrcPolicy, RegisterError, mantissa, speed_unit, taac_ps};

register! {
    /// The card specific data of an SD card, 16 bytes. Which layout it has is said by
    /// [`structure`](Self::structure) alone, never by the answers to CMD8 or ACMD41.
    Csd, CsdInfo, 16 {
        /// CSD_STRUCTURE: 0 SDSC, 1 SDHC and SDXC, 2 SDUC.
        structure: u8 [127:126],
        /// Access time, coded; see [`taac_ps`](Self::taac_ps).
        taac: u8 [119:112],
        /// Access time in units of 100 clocks.
        nsac: u8 [111:104],
        /// Highest clock, coded; see [`tran_speed_bps`](Self::tran_speed_bps).
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
        /// Bits 75:47, which differ between structures; see [`c_size`](Self::c_size).
        size_bits: u32 [75:47],
        /// Blocks of 512 bytes can be erased.
        erase_blk_en: u8 [46:46],
        /// Erase unit in write blocks, minus one.
        sector_size: u8 [45:39],
        /// Write protect group in erase units, minus one.
        wp_grp_size: u8 [38:32],
        /// Groups can be write protected.
        wp_grp_enable: u8 [31:31],
        /// Write time is read time times 2ⁿ.
        r2w_factor: u8 [28:26],
        /// Longest write block, 2ⁿ bytes.
        write_bl_len: u8 [25:22],
        /// Shorter write blocks are allowed.
        write_bl_partial: u8 [21:21],
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
        /// Write protection until power cycle is supported (9.00).
        wp_upc: u8 [9:9],
    }
}

impl Csd {
    /// C_SIZE: bits 73:62 (structure 0), 69:48 (1), 75:48 (2, and 3, which is reserved).
    #[must_use]
    pub fn c_size(&self) -> u32 {
        let bits = match self.structure() {
            0 => super::get(&self.0, 73, 62),
            1 => super::get(&self.0, 69, 48),
            _ => super::get(&self.0, 75, 48),
        };
        u32::try_from(bits).unwrap_or(u32::MAX)
    }
    /// C_SIZE_MULT; `None` if the structure has none.
    #[must_use]
    pub fn c_size_mult(&self) -> Option<u8> {
        self.v1(49, 47)
    }
    /// Currents in µA `[read min, read max, write min, write max]`; `None` if the structure has none.
    #[must_use]
    pub fn currents_ua(&self) -> Option<[u32; 4]> {
        const MIN: [u32; 8] = [500, 1_000, 5_000, 10_000, 25_000, 35_000, 60_000, 100_000];
        const MAX: [u32; 8] = [1_000, 5_000, 10_000, 25_000, 35_000, 45_000, 80_000, 200_000];
        let at = |table: [u32; 8], hi, lo| table.get(usize::from(self.v1(hi, lo)?)).copied();
        Some([at(MIN, 61, 59)?, at(MAX, 58, 56)?, at(MIN, 55, 53)?, at(MAX, 52, 50)?])
    }
    fn v1(&self, hi: u16, lo: u16) -> Option<u8> {
        if self.structure() == 0 { u8::try_from(super::get(&self.0, hi, lo)).ok() } else { None }
    }
    /// Access time in picoseconds, 0 for a reserved code.
    #[must_use]
    pub fn taac_ps(&self) -> u64 {
        taac_ps(self.taac())
    }
    /// Highest bit rate of one line in bit/s, 0 for a reserved code.
    #[must_use]
    pub fn tran_speed_bps(&self) -> u32 {
        let m = u32::try_from(mantissa(self.tran_speed())).unwrap_or(0);
        m.saturating_mul(speed_unit(self.tran_speed()))
    }
    /// Capacity in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        let units = u64::from(self.c_size()).saturating_add(1);
        match self.c_size_mult() {
            Some(mult) => {
                let shift = u32::from(mult).saturating_add(2).saturating_add(self.read_bl_len().into());
                units.checked_shl(shift).unwrap_or(0)
            }
            None => units.saturating_mul(512 * 1024),
        }
    }
    /// Capacity in blocks of 512 bytes, rounded down.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.capacity_bytes() / 512
    }
    /// Bytes of the smallest unit that can be erased.
    #[must_use]
    pub fn erase_sector_bytes(&self) -> u32 {
        if self.structure() != 0 || self.erase_blk_en() == 1 {
            return 512;
        }
        let units = u32::from(self.sector_size()).saturating_add(1);
        units.checked_shl(self.write_bl_len().into()).unwrap_or(0)
    }
    /// Addresses on the bus are bytes (SDSC).
    #[must_use]
    pub fn byte_addressed(&self) -> bool {
        self.structure() == 0
    }
    /// Whether the card has command class `n` (0..=11).
    #[must_use]
    pub fn has_class(&self, n: u8) -> bool {
        u32::from(self.ccc()).checked_shr(n.into()).unwrap_or(0) & 1 == 1
    }
    /// Whether this can be the CSD of an SD card. Only what the capacity depends on is judged: real cards
    /// have odd TRAN_SPEED, TAAC and reserved bits.
    ///
    /// # Errors
    /// The CRC is not accepted; a reserved structure (all ones); no basic command class (all zeros); a block
    /// length below 512 or above 2048.
    pub fn check(&self, policy: CrcPolicy) -> Result<(), RegisterError> {
        policy.check(&self.0)?;
        let bad = |field, value: u64, why| Err(RegisterError::Field { field, value, why });
        if self.structure() == 3 {
            return bad("CSD_STRUCTURE", 3, "reserved for SD; an MMC, or all bits are one");
        }
        if self.ccc() == 0 {
            return bad("CCC", 0, "a card without any command class; all bits may be zero");
        }
        let n = self.read_bl_len();
        if !(9..=11).contains(&n) || (self.structure() != 0 && n != 9) {
            return bad(
                "READ_BL_LEN",
                n.into(),
                "not a block length of such a card; the register may be shifted",
            );
        }
        Ok(())
    }
}

sealed!(Csd, CsdInfo);
