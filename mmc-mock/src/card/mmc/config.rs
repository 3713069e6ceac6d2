//! The registers an MMC or eMMC card shows: from a dump, or from a size and a revision.

use super::super::registers::{Eye, get, put, seal};
use crate::timing::Profile;
use mmc_time::Duration;

/// Offsets of the EXT_CSD (`spec/card.md` §12).
pub(super) mod at {
    pub(crate) const CMDQ_MODE_EN: usize = 15;
    pub(crate) const MODE_CONFIG: usize = 30;
    pub(crate) const BARRIER_CTRL: usize = 31;
    pub(crate) const FLUSH_CACHE: usize = 32;
    pub(crate) const CACHE_CTRL: usize = 33;
    pub(crate) const POWER_OFF_NOTIFICATION: usize = 34;
    pub(crate) const CONTEXT_CONF: usize = 37;
    pub(crate) const EXCEPTION_EVENTS_STATUS: usize = 54;
    pub(crate) const EXCEPTION_EVENTS_CTRL: usize = 56;
    pub(crate) const CLASS_6_CTRL: usize = 59;
    pub(crate) const DATA_SECTOR_SIZE: usize = 61;
    pub(crate) const USE_NATIVE_SECTOR: usize = 62;
    pub(crate) const NATIVE_SECTOR_SIZE: usize = 63;
    pub(crate) const VENDOR_ERASE: usize = 113;
    pub(crate) const ENH_SIZE_MULT: usize = 140;
    pub(crate) const GP_SIZE_MULT: usize = 143;
    pub(crate) const SETTING_COMPLETED: usize = 155;
    pub(crate) const PARTITIONS_ATTRIBUTE: usize = 156;
    pub(crate) const MAX_ENH_SIZE_MULT: usize = 157;
    pub(crate) const PARTITIONING_SUPPORT: usize = 160;
    pub(crate) const HPI_MGMT: usize = 161;
    pub(crate) const RST_N_FUNCTION: usize = 162;
    pub(crate) const BKOPS_EN: usize = 163;
    pub(crate) const BKOPS_START: usize = 164;
    pub(crate) const SANITIZE_START: usize = 165;
    pub(crate) const WR_REL_PARAM: usize = 166;
    pub(crate) const WR_REL_SET: usize = 167;
    pub(crate) const RPMB_SIZE_MULT: usize = 168;
    pub(crate) const FW_CONFIG: usize = 169;
    pub(crate) const USER_WP: usize = 171;
    pub(crate) const BOOT_WP: usize = 173;
    pub(crate) const BOOT_WP_STATUS: usize = 174;
    pub(crate) const ERASE_GROUP_DEF: usize = 175;
    pub(crate) const BOOT_CONFIG_PROT: usize = 178;
    pub(crate) const PARTITION_CONFIG: usize = 179;
    pub(crate) const ERASED_MEM_CONT: usize = 181;
    pub(crate) const BUS_WIDTH: usize = 183;
    pub(crate) const STROBE_SUPPORT: usize = 184;
    pub(crate) const HS_TIMING: usize = 185;
    pub(crate) const POWER_CLASS: usize = 187;
    pub(crate) const CMD_SET: usize = 191;
    pub(crate) const REV: usize = 192;
    pub(crate) const DEVICE_TYPE: usize = 196;
    pub(crate) const DRIVER_STRENGTH: usize = 197;
    pub(crate) const OUT_OF_INTERRUPT_TIME: usize = 198;
    pub(crate) const PARTITION_SWITCH_TIME: usize = 199;
    pub(crate) const SECURE_WP_INFO: usize = 211;
    pub(crate) const SEC_COUNT: usize = 212;
    pub(crate) const S_A_TIMEOUT: usize = 217;
    pub(crate) const HC_WP_GRP_SIZE: usize = 221;
    pub(crate) const ERASE_TIMEOUT_MULT: usize = 223;
    pub(crate) const HC_ERASE_GRP_SIZE: usize = 224;
    pub(crate) const BOOT_SIZE_MULT: usize = 226;
    pub(crate) const SEC_TRIM_MULT: usize = 229;
    pub(crate) const SEC_ERASE_MULT: usize = 230;
    pub(crate) const SEC_FEATURES: usize = 231;
    pub(crate) const CACHE_FLUSH_POLICY: usize = 240;
    pub(crate) const INI_TIMEOUT_AP: usize = 241;
    pub(crate) const CORRECTLY_PRG: usize = 242;
    pub(crate) const BKOPS_STATUS: usize = 246;
    pub(crate) const CACHE_SIZE: usize = 249;
    pub(crate) const CMDQ_DEPTH: usize = 307;
    pub(crate) const CMDQ_SUPPORT: usize = 308;
    pub(crate) const BARRIER_SUPPORT: usize = 486;
    pub(crate) const MAX_PACKED_WRITES: usize = 500;
    pub(crate) const MAX_PACKED_READS: usize = 501;
    pub(crate) const BKOPS_SUPPORT: usize = 502;
    pub(crate) const HPI_FEATURES: usize = 503;
}

/// What an MMC card does that it should not. All off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmcQuirks {
    /// CMD0 between the first CMD1 and the end of power-up makes it inactive.
    pub early_cmd0_kills: bool,
    /// A flush of the cache stays busy for ever, but for the interrupt (HPI), where it has one.
    pub flush_never_ends: bool,
    /// A high priority interrupt makes it inactive.
    pub hpi_kills: bool,
    /// Trim is offered and does nothing.
    pub trim_does_nothing: bool,
    /// Trim takes the eight sectors behind the range along.
    pub trim_corrupts: bool,
    /// CMD38 looks at byte 113 of the EXT_CSD (00 erase, 01 trim, 80 secure erase, 81 and 88 secure trim), not at its argument.
    pub erase_by_byte_113: bool,
    /// A secure erase or trim makes it silent for ever.
    pub secure_kills: bool,
    /// A secure erase or trim takes this long, whatever its range; zero: as the registers say.
    pub secure_time: Duration,
    /// A flush with nothing in the cache stays busy for ever, but for the interrupt.
    pub empty_flush_hangs: bool,
    /// Of the writes into the cache one in sixteen stores a wrong bit.
    pub cache_corrupts: bool,
    /// DAT0 is high although the card is busy; CMD13 tells the truth.
    pub hides_busy: bool,
    /// So many reads of the EXT_CSD after power-up have a wrong CRC.
    pub garbled_ext_csd: u8,
    /// A CMD1 sooner than this after the last one starts the power-up again.
    pub restless: Duration,
    /// Each read comes later by this, over what the profile says.
    pub read_delay: Duration,
    /// Each read or write that uses a count set by CMD23 takes longer by this.
    pub count_delay: Duration,
    /// How long background operations take for each step of BKOPS_STATUS; zero: 100 ms.
    pub bkops_time: Duration,
}

/// A description of an MMC or eMMC card.
#[derive(Clone, Debug, PartialEq)]
pub struct MmcConfig {
    /// Bits 127:0; CRC7 and end bit are set anew when it is sent.
    pub cid: [u8; 16],
    /// Bits 127:0, likewise.
    pub csd: [u8; 16],
    /// As it is after power-up; `None`: a card before version 4, which has none.
    pub ext_csd: Option<Box<[u8; 512]>>,
    /// From the first CMD1 with a voltage window until it is ready; the standard allows 1 s.
    pub power_up: Duration,
    /// What commands cost.
    pub profile: Profile,
    /// Decides the pauses of `profile`, nothing else.
    pub seed: u64,
    /// Where its bits can be sampled in HS200 and HS400.
    pub eye: Eye,
    /// Where it departs from the standard.
    pub quirks: MmcQuirks,
}

/// An MMC card that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MmcConfigError {
    /// Neither CSD nor EXT_CSD say a size that this card can have.
    #[error("CSD and SEC_COUNT say {0} sectors: an MMC card has 1 to 4294967295")]
    Sectors(u64),
    /// SPEC_VERS of the CSD and the presence of an EXT_CSD contradict each other.
    #[error("SPEC_VERS {0} of the CSD: an EXT_CSD comes with 4, and with nothing less")]
    SpecVersion(u64),
    /// A field of the EXT_CSD.
    #[error("EXT_CSD byte {at} ({name}) is {value}: {rule}")]
    ExtCsd {
        /// Offset.
        at: usize,
        /// Its name.
        name: &'static str,
        /// What is there.
        value: u8,
        /// What may be.
        rule: &'static str,
    },
}

impl MmcConfig {
    /// An eMMC card of `sectors` sectors that follows `revision` (3: 4.3, 5: 4.41, 6: 4.5, 7: 5.0, 8: 5.1), with all that
    /// this crate's card can do and the revision has: boot partitions of 1 MiB, from 4 on an RPMB of 128 KiB and partitions for
    /// general purpose, from 5 on interrupts and background operations, from 6 on a cache of 512 KiB and HS200, from 7 on HS400,
    /// from 8 on its enhanced strobe, barriers and a command queue.
    #[must_use]
    pub fn emmc(revision: u8, sectors: u32, profile: Profile, seed: u64) -> Self {
        let mut e = Box::new([0; 512]);
        let from = |rev: u8, value: u8| if revision >= rev { value } else { 0 };
        e[at::SEC_COUNT..at::SEC_COUNT + 4].copy_from_slice(&sectors.to_le_bytes());
        for (offset, value) in [
            (504, 1),
            (at::HPI_FEATURES, from(5, 3)),
            (at::BKOPS_SUPPORT, from(5, 1)),
            (at::CACHE_SIZE + 1, from(6, 0x10)),
            (248, from(6, 10)),
            (232, from(4, 2)),
            (at::SEC_FEATURES, from(4, 0x15) | from(6, 0x40)),
            (at::BOOT_SIZE_MULT, 8),
            (at::HC_ERASE_GRP_SIZE, 1),
            (at::ERASE_TIMEOUT_MULT, 1),
            (222, 1),
            (221, 16),
            (at::S_A_TIMEOUT, 17),
            (at::PARTITION_SWITCH_TIME, from(4, 1)),
            (at::OUT_OF_INTERRUPT_TIME, from(5, 5)),
            (at::DEVICE_TYPE, 0x07 | from(6, 0x10) | from(7, 0x40)),
            (at::PARTITIONING_SUPPORT, from(4, 3)),
            // As much as there is.
            (at::MAX_ENH_SIZE_MULT, from(4, 0xff)),
            (at::MAX_ENH_SIZE_MULT + 1, from(4, 0xff)),
            (at::RPMB_SIZE_MULT, from(4, 1)),
            (at::WR_REL_PARAM, from(5, 0x05) | from(8, 0x10)),
            (at::WR_REL_SET, from(5, 0x1f)),
            (at::INI_TIMEOUT_AP, from(4, 3)),
            (at::SEC_TRIM_MULT, from(4, 3)),
            (at::SEC_ERASE_MULT, from(4, 3)),
            (at::SECURE_WP_INFO, from(8, 1)),
            (at::STROBE_SUPPORT, from(8, 1)),
            (at::CMDQ_DEPTH, from(8, 31)),
            (at::CMDQ_SUPPORT, from(8, 1)),
            (at::BARRIER_SUPPORT, from(8, 1)),
            (194, 2),
            (at::REV, revision),
        ] {
            e[offset] = value;
        }
        let mut csd = [0; 16];
        put(&mut csd, 127, 126, 3);
        put(&mut csd, 125, 122, 4);
        put(&mut csd, 119, 112, 0x27);
        put(&mut csd, 103, 96, 0x32);
        put(&mut csd, 95, 84, 0x0f5);
        put(&mut csd, 83, 80, 9);
        let (c_size, mult) = Self::geometry(sectors);
        put(&mut csd, 73, 62, c_size);
        put(&mut csd, 49, 47, mult);
        put(&mut csd, 46, 42, 31);
        put(&mut csd, 41, 37, 31);
        put(&mut csd, 36, 32, 15);
        put(&mut csd, 31, 31, 1);
        put(&mut csd, 28, 26, 3);
        put(&mut csd, 25, 22, 9);
        let mut cid = [0; 16];
        put(&mut cid, 127, 120, 0x7d);
        put(&mut cid, 113, 112, 1);
        cid[3..9].copy_from_slice(b"MOCKM1");
        put(&mut cid, 55, 48, 0x10);
        put(&mut cid, 47, 16, 0x2018_0703);
        put(&mut cid, 15, 8, 0x75);
        Self {
            cid: seal(cid),
            csd: seal(csd),
            ext_csd: Some(e),
            power_up: Duration::from_millis(20),
            profile,
            seed,
            eye: Eye::new(seed),
            quirks: MmcQuirks::default(),
        }
    }
    /// The card that showed these registers. Settings that do not outlive a loss of power are those after power-up, even
    /// if the dump was made later; packed commands, which this card does not have, are not shown.
    ///
    /// # Errors
    /// [`MmcConfigError`] names what cannot be.
    pub fn from_registers(
        cid: [u8; 16],
        csd: [u8; 16],
        ext_csd: Option<&[u8; 512]>,
        profile: Profile,
        seed: u64,
    ) -> Result<Self, MmcConfigError> {
        let mut c = Self { cid: seal(cid), csd: seal(csd), ..Self::emmc(3, 1, profile, seed) };
        c.ext_csd = ext_csd.map(|e| {
            let mut e = Box::new(*e);
            super::switch::power_up(&mut e, true);
            (e[at::MAX_PACKED_WRITES], e[at::MAX_PACKED_READS]) = (0, 0);
            e
        });
        c.check()?;
        Ok(c)
    }
    /// C_SIZE and C_SIZE_MULT; 0xFFF and 7 above 2 GiB, or where no pair says the size.
    fn geometry(sectors: u32) -> (u64, u64) {
        for mult in 0..8_u64 {
            let unit = 4 << mult;
            let n = u64::from(sectors) / unit;
            if u64::from(sectors).is_multiple_of(unit) && (1..=4096).contains(&n) {
                return (n - 1, mult);
            }
        }
        (0xfff, 7)
    }
    /// Size of the user area in sectors of 512 bytes: SEC_COUNT where there is one, what the CSD says otherwise.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        let count = self.ext_csd.as_ref().map_or(0, |e| {
            let b = &e[at::SEC_COUNT..];
            u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        });
        if count > 0 {
            return count;
        }
        let csd = |high, low| get(&self.csd, high, low);
        ((csd(73, 62) + 1) << (csd(49, 47) + 2 + csd(83, 80))) / 512
    }
    /// Whether addresses are sectors: above 2 GiB.
    #[must_use]
    pub fn sector_addressed(&self) -> bool {
        self.sectors() > 4_194_304
    }
    /// A byte of the EXT_CSD after power-up; 0 without one.
    pub(super) fn ext(&self, offset: usize) -> u8 {
        self.ext_csd.as_ref().map_or(0, |e| e[offset])
    }
    /// Size of each boot partition in sectors.
    #[must_use]
    pub fn boot_sectors(&self) -> u64 {
        u64::from(self.ext(at::BOOT_SIZE_MULT)) * 256
    }
    /// Size of an area by its number in PARTITION_CONFIG, in sectors; 0: there is none.
    pub(super) fn area_sectors(&self, area: usize) -> u64 {
        match area {
            0 => self.sectors(),
            1 | 2 => self.boot_sectors(),
            3 => u64::from(self.ext(at::RPMB_SIZE_MULT)) * 256,
            _ if self.ext(at::SETTING_COMPLETED) & 1 == 0 => 0,
            gp => self.general_purpose_sectors(gp - 4),
        }
    }
    fn general_purpose_sectors(&self, n: usize) -> u64 {
        self.ext_csd.as_ref().map_or(0, |e| super::switch::general_purpose(e)[n])
    }
    /// Whether such a card can be.
    ///
    /// # Errors
    /// [`MmcConfigError`] names the first thing that is wrong and what it may be.
    pub fn check(&self) -> Result<(), MmcConfigError> {
        let spec = get(&self.csd, 125, 122);
        if (spec >= 4) != self.ext_csd.is_some() {
            return Err(MmcConfigError::SpecVersion(spec));
        }
        let sectors = self.sectors();
        if sectors == 0 || sectors > u64::from(u32::MAX) || (sectors > 1 << 23 && self.ext_csd.is_none()) {
            return Err(MmcConfigError::Sectors(sectors));
        }
        let wrong = |at, name, rule| Err(MmcConfigError::ExtCsd { at, name, value: self.ext(at), rule });
        if self.ext(at::ERASED_MEM_CONT) != 0 {
            return wrong(at::ERASED_MEM_CONT, "ERASED_MEM_CONT", "this card erases to zeros");
        }
        if self.ext_csd.is_some() && self.ext(at::HC_ERASE_GRP_SIZE) == 0 && self.sector_addressed() {
            return wrong(at::HC_ERASE_GRP_SIZE, "HC_ERASE_GRP_SIZE", "above 2 GiB it is at least 1");
        }
        Ok(())
    }
}
