//! SD status, the 512 bits of ACMD13 (`spec/card.md` §9).

use super::RegisterError;

register! {
    /// The SD status, 64 bytes. It travels as data: a CRC16 guards it, nothing in it does.
    Ssr, SsrInfo, 64 {
        /// 0 one data line, 2 four.
        dat_bus_width_code: u8 [511:510],
        /// In secured mode.
        secured_mode: u8 [509:509],
        /// Low byte: 0 read-write, 1 ROM, 2 OTP.
        sd_card_type: u16 [495:480],
        /// SDSC: in units of MULT × BLOCK_LEN; SDHC and SDXC: bytes.
        size_of_protected_area: u32 [479:448],
        /// Speed class code: 0 to 4 for class 0, 2, 4, 6, 10.
        speed_class_code: u8 [447:440],
        /// MB/s while moving, 255 infinite.
        performance_move: u8 [439:432],
        /// Allocation unit, coded; see [`au_size_kib`](Self::au_size_kib).
        au_size_code: u8 [431:428],
        /// Allocation units erased within [`erase_timeout_s`](Self::erase_timeout_s); 0 not stated.
        erase_size: u16 [423:408],
        /// Seconds.
        erase_timeout_s: u8 [407:402],
        /// Seconds to add to every erase.
        erase_offset_s: u8 [401:400],
        /// 0, 1 (10 MB/s) or 3 (30 MB/s).
        uhs_speed_grade: u8 [399:396],
        /// Allocation unit of UHS modes, coded 7..=15.
        uhs_au_size_code: u8 [395:392],
        /// Video speed class, MB/s.
        video_speed_class: u8 [391:384],
        /// Allocation unit of video speed classes, MB.
        vsc_au_size_mb: u16 [377:368],
        /// Suspension address, units of 512 KB.
        sus_addr: u32 [367:346],
        /// Application performance class 0, 1, 2.
        app_perf_class: u8 [339:336],
        /// Bits 335:328: queue depth minus one, cache, host and card maintenance.
        performance_enhance: u8 [335:328],
        /// Write protection until power cycle.
        wp_upc: u8 [315:315],
        /// Boot partition.
        boot_partition: u8 [314:314],
        /// CMD38 with argument 1 is supported.
        discard_support: u8 [313:313],
        /// CMD38 with argument 2 is supported.
        fule_support: u8 [312:312],
    }
}

impl Ssr {
    /// Data lines in use: 1, 4, or 0 for a reserved code.
    #[must_use]
    pub fn dat_bus_width(&self) -> u8 {
        match self.dat_bus_width_code() {
            0 => 1,
            2 => 4,
            _ => 0,
        }
    }
    /// Speed class: 0, 2, 4, 6 or 10 MB/s; codes above 4 count as the highest known.
    #[must_use]
    pub fn speed_class(&self) -> u8 {
        match self.speed_class_code() {
            0 => 0,
            1 => 2,
            2 => 4,
            3 => 6,
            _ => 10,
        }
    }
    /// Size of an allocation unit in KiB; 0 if not stated.
    #[must_use]
    pub fn au_size_kib(&self) -> u32 {
        match self.au_size_code() {
            0 => 0,
            n @ 1..=9 => 8_u32.checked_shl(n.into()).unwrap_or(0),
            10 => 8 * 1024,
            11 => 12 * 1024,
            12 => 16 * 1024,
            13 => 24 * 1024,
            14 => 32 * 1024,
            _ => 64 * 1024,
        }
    }
    /// Commands the card can queue; 0 none.
    #[must_use]
    pub fn cq_depth(&self) -> u8 {
        match self.performance_enhance() >> 3 {
            0 => 0,
            n => n.saturating_add(1),
        }
    }
    /// The card has a cache.
    #[must_use]
    pub fn has_cache(&self) -> bool {
        (self.performance_enhance() >> 2) & 1 == 1
    }
    /// The host may start maintenance.
    #[must_use]
    pub fn has_host_maintenance(&self) -> bool {
        (self.performance_enhance() >> 1) & 1 == 1
    }
    /// The card starts maintenance by itself.
    #[must_use]
    pub fn has_card_maintenance(&self) -> bool {
        self.performance_enhance() & 1 == 1
    }
    /// Milliseconds the erase of one allocation unit takes, without the offset, rounded down; 0 if not
    /// stated.
    #[must_use]
    pub fn erase_ms_per_au(&self) -> u32 {
        u32::from(self.erase_timeout_s())
            .saturating_mul(1000)
            .checked_div(self.erase_size().into())
            .unwrap_or(0)
    }
    /// Plain values.
    #[must_use]
    pub fn info(&self) -> SsrInfo {
        self.fields_of()
    }
    /// Whether this can be an SD status.
    ///
    /// # Errors
    /// A reserved bus width (all ones), or nothing but zeros (a stuck line; a card that really says nothing
    /// loses nothing by it).
    pub fn check(&self) -> Result<(), RegisterError> {
        let bad = |field, value: u8, why| Err(RegisterError::Field { field, value: value.into(), why });
        if self.dat_bus_width() == 0 {
            return bad("DAT_BUS_WIDTH", self.dat_bus_width_code(), "reserved; all bits may be one");
        }
        if self.0.iter().all(|b| *b == 0) {
            return bad("SD_STATUS", 0, "all bits are zero");
        }
        Ok(())
    }
}

impl SsrInfo {
    /// The register.
    #[must_use]
    pub fn emit(&self) -> Ssr {
        self.bits()
    }
}
