//! EXT_CSD, the 512 bytes of eMMC's CMD8 (`spec/card.md` §12).

mod table;

pub use table::*;

use super::RegisterError;
use core::fmt;

/// The extended card specific data of an MMC of version 4.0 or later: raw bytes, byte 0 first. No checksum of
/// its own guards it, only the CRC16 of the transfer.
///
/// ```
/// use mmc_proto::register::ext_csd::{self, ExtCsd};
/// let mut bytes = [0; 512];
/// bytes[212..216].copy_from_slice(&7_634_944_u32.to_le_bytes());
/// let ext_csd = ExtCsd::new(bytes);
/// assert_eq!(ext_csd.get(ext_csd::SEC_COUNT), 7_634_944);
/// assert_eq!(ext_csd.capacity_bytes(), 3_909_091_328);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtCsd([u8; 512]);

impl fmt::Debug for ExtCsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtCsd").field("rev", &self.get(EXT_CSD_REV)).finish_non_exhaustive()
    }
}

/// What most callers want to know of an EXT_CSD, in plain units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ExtCsdInfo {
    /// `EXT_CSD_REV`.
    pub rev: u8,
    /// Sectors of 512 bytes; 0: the CSD has the size.
    pub sectors: u64,
    /// Bytes of each of the two boot partitions.
    pub boot_partition_bytes: u64,
    /// Bytes of the RPMB partition.
    pub rpmb_bytes: u64,
    /// Bytes of a high-capacity erase group; 0 if not defined.
    pub erase_group_bytes: u64,
    /// Longest erase of one group in ms.
    pub erase_timeout_ms: u32,
    /// Longest trim or discard of one group in ms.
    pub trim_timeout_ms: u32,
    /// Longest CMD6 in ms; 0 if not stated.
    pub switch_timeout_ms: u32,
    /// Longest switch of partitions in ms; 0 if not stated.
    pub partition_switch_timeout_ms: u32,
    /// Size of the cache as the register has it; 0 none.
    pub cache_size: u32,
    /// Commands that can be queued; 0 none.
    pub queue_depth: u8,
    /// Speed modes, bits of `DEVICE_TYPE`.
    pub device_type: u8,
    /// Logical sectors are 4 KiB now.
    pub native_4k: bool,
    /// `PRE_EOL_INFO`: 1 normal, 2 warning, 3 urgent, 0 not stated.
    pub pre_eol: u8,
    /// Life used, types A and B.
    pub life_time: [u8; 2],
}

impl ExtCsd {
    /// Bytes of the register.
    pub const LEN: usize = 512;

    /// Takes the bytes as they are, byte 0 first.
    #[must_use]
    pub const fn new(bytes: [u8; 512]) -> Self {
        Self(bytes)
    }
    /// Takes bytes of any length.
    ///
    /// # Errors
    /// [`RegisterError::Length`] if there are not 512.
    pub fn parse(bytes: &[u8]) -> Result<Self, RegisterError> {
        match <[u8; 512]>::try_from(bytes) {
            Ok(bytes) => Ok(Self(bytes)),
            Err(_) => Err(RegisterError::Length { expected: 512, got: bytes.len() }),
        }
    }
    /// The bytes again.
    #[must_use]
    pub const fn emit(&self) -> [u8; 512] {
        self.0
    }
    /// The bytes of `field`; empty if it is not inside the register.
    #[must_use]
    pub fn bytes(&self, field: Field) -> &[u8] {
        let from = usize::from(field.offset);
        let to = from.saturating_add(field.len.into());
        self.0.get(from..to).unwrap_or(&[])
    }
    /// The value of `field`; of one longer than eight bytes the first eight.
    #[must_use]
    pub fn get(&self, field: Field) -> u64 {
        self.bytes(field).iter().take(8).rev().fold(0, |value, byte| (value << 8) | u64::from(*byte))
    }
    /// Sets `field` to the low bytes of `value`, for models and tests; a field outside changes nothing.
    pub fn set(&mut self, field: Field, value: u64) {
        let from = usize::from(field.offset);
        let to = from.saturating_add(field.len.into());
        if let Some(bytes) = self.0.get_mut(from..to) {
            for (byte, new) in bytes.iter_mut().zip(value.to_le_bytes()) {
                *byte = new;
            }
        }
    }
    fn byte(&self, field: Field) -> u8 {
        self.bytes(field).first().copied().unwrap_or(0)
    }
    fn times(&self, field: Field, unit: u32) -> u32 {
        u32::from(self.byte(field)).saturating_mul(unit)
    }

    /// `EXT_CSD_REV` as a version of the standard: `5.1`; `None` for one this crate does not know.
    #[must_use]
    pub fn rev_name(&self) -> Option<&'static str> {
        Some(match self.byte(EXT_CSD_REV) {
            0 => "4.0",
            1 => "4.1",
            2 => "4.2",
            3 => "4.3",
            4 => "4.4",
            5 => "4.41",
            6 => "4.5",
            7 => "5.0",
            8 => "5.1",
            9 => "5.1B",
            _ => return None,
        })
    }
    /// `SEC_COUNT` × 512; 0: the CSD has the size.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.get(SEC_COUNT).saturating_mul(512)
    }
    /// Bytes of each of the two boot partitions.
    #[must_use]
    pub fn boot_partition_bytes(&self) -> u64 {
        self.get(BOOT_SIZE_MULT).saturating_mul(128 * 1024)
    }
    /// Bytes of the RPMB partition.
    #[must_use]
    pub fn rpmb_bytes(&self) -> u64 {
        self.get(RPMB_SIZE_MULT).saturating_mul(128 * 1024)
    }
    /// Bytes of a high-capacity erase group.
    #[must_use]
    pub fn hc_erase_group_bytes(&self) -> u64 {
        self.get(HC_ERASE_GRP_SIZE).saturating_mul(512 * 1024)
    }
    /// Bytes of a high-capacity write protect group.
    #[must_use]
    pub fn hc_wp_group_bytes(&self) -> u64 {
        self.get(HC_WP_GRP_SIZE).saturating_mul(self.hc_erase_group_bytes())
    }
    /// Bytes of general purpose partition `n` (1..=4), 0 for any other; more than 4 GiB is possible.
    #[must_use]
    pub fn gp_partition_bytes(&self, n: u8) -> u64 {
        let field = match n {
            1 => GP_SIZE_MULT_1,
            2 => GP_SIZE_MULT_2,
            3 => GP_SIZE_MULT_3,
            4 => GP_SIZE_MULT_4,
            _ => return 0,
        };
        self.get(field).saturating_mul(self.hc_wp_group_bytes())
    }
    /// Longest erase of one high-capacity group in ms.
    #[must_use]
    pub fn erase_timeout_ms(&self) -> u32 {
        self.times(ERASE_TIMEOUT_MULT, 300)
    }
    /// Longest trim or discard of one high-capacity group in ms.
    #[must_use]
    pub fn trim_timeout_ms(&self) -> u32 {
        self.times(TRIM_MULT, 300)
    }
    /// Longest CMD6 in ms; 0 if not stated.
    #[must_use]
    pub fn generic_cmd6_time_ms(&self) -> u32 {
        self.times(GENERIC_CMD6_TIME, 10)
    }
    /// Longest switch of partitions in ms; 0 if not stated.
    #[must_use]
    pub fn partition_switch_time_ms(&self) -> u32 {
        self.times(PARTITION_SWITCH_TIME, 10)
    }
    /// Longest power-off notification (long form) in ms.
    #[must_use]
    pub fn power_off_long_time_ms(&self) -> u32 {
        self.times(POWER_OFF_LONG_TIME, 10)
    }
    /// Longest wait after a high priority interrupt in ms.
    #[must_use]
    pub fn out_of_interrupt_time_ms(&self) -> u32 {
        self.times(OUT_OF_INTERRUPT_TIME, 10)
    }
    /// Longest first initialisation after partitioning in ms.
    #[must_use]
    pub fn ini_timeout_ap_ms(&self) -> u32 {
        self.times(INI_TIMEOUT_AP, 100)
    }
    /// Longest CMD5 in ns; 0 for a code that is not defined.
    #[must_use]
    pub fn sleep_awake_timeout_ns(&self) -> u64 {
        match self.byte(S_A_TIMEOUT) {
            n @ 1..=0x17 => 100_u64.checked_shl(n.into()).unwrap_or(0),
            _ => 0,
        }
    }
    /// Commands that can be queued; 0 if queueing is not supported.
    #[must_use]
    pub fn cmdq_depth(&self) -> u8 {
        if self.byte(CMDQ_SUPPORT) & 1 == 0 { 0 } else { (self.byte(CMDQ_DEPTH) & 0x1f).saturating_add(1) }
    }
    /// Plain values.
    #[must_use]
    pub fn info(&self) -> ExtCsdInfo {
        ExtCsdInfo {
            rev: self.byte(EXT_CSD_REV),
            sectors: self.get(SEC_COUNT),
            boot_partition_bytes: self.boot_partition_bytes(),
            rpmb_bytes: self.rpmb_bytes(),
            erase_group_bytes: self.hc_erase_group_bytes(),
            erase_timeout_ms: self.erase_timeout_ms(),
            trim_timeout_ms: self.trim_timeout_ms(),
            switch_timeout_ms: self.generic_cmd6_time_ms(),
            partition_switch_timeout_ms: self.partition_switch_time_ms(),
            cache_size: u32::try_from(self.get(CACHE_SIZE)).unwrap_or(u32::MAX),
            queue_depth: self.cmdq_depth(),
            device_type: self.byte(DEVICE_TYPE),
            native_4k: self.byte(DATA_SECTOR_SIZE) == 1,
            pre_eol: self.byte(PRE_EOL_INFO),
            life_time: [self.byte(DEVICE_LIFE_TIME_EST_TYP_A), self.byte(DEVICE_LIFE_TIME_EST_TYP_B)],
        }
    }
    /// Whether this can be an EXT_CSD. Unknown revisions are not refused: features have bits of their own.
    ///
    /// # Errors
    /// No speed mode at all (all zeros), or a structure that does not exist (all ones).
    pub fn check(&self) -> Result<(), RegisterError> {
        let bad =
            |field: Field, why| Err(RegisterError::Field { field: field.name, value: self.get(field), why });
        if self.byte(DEVICE_TYPE) == 0 {
            return bad(DEVICE_TYPE, "a device without any speed mode; all bits may be zero");
        }
        if self.byte(CSD_STRUCTURE) > 3 {
            return bad(CSD_STRUCTURE, "unknown; all bits may be one");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_0_to_3_are_known_and_no_speed_mode_is_none() {
        for (structure, device, good) in
            [(0, 1, true), (3, 1, true), (4, 1, false), (255, 1, false), (3, 0, false)]
        {
            let mut ext = ExtCsd::new([0; 512]);
            ext.set(CSD_STRUCTURE, structure);
            ext.set(DEVICE_TYPE, device);
            assert_eq!(ext.check().is_ok(), good, "{structure} {device}");
        }
    }

    #[test]
    fn the_fields_do_not_overlap_and_lie_inside() {
        let mut seen = [0_u8; 512];
        for field in ALL {
            for at in field.offset..field.offset + u16::from(field.len) {
                assert_eq!(seen[usize::from(at)], 0, "{} and another hold byte {at}", field.name);
                seen[usize::from(at)] = 1;
            }
        }
        assert!(ALL.windows(2).all(|two| two[0].offset > two[1].offset), "from the last byte to the first");
    }

    #[test]
    fn a_field_that_was_set_is_read_again_and_no_other_changes() {
        for field in ALL {
            let mut e = ExtCsd::new([0; 512]);
            e.set(*field, u64::MAX);
            let ones: u32 = e.emit().iter().map(|b| b.count_ones()).sum();
            assert_eq!(ones, 8 * u32::from(field.len.min(8)), "{}", field.name);
            assert_eq!(e.get(*field), u64::MAX >> (64 - 8 * field.len.min(8)), "{}", field.name);
        }
    }

    #[test]
    fn general_purpose_partitions_may_exceed_four_gibibytes() {
        let mut e = ExtCsd::new([0; 512]);
        e.set(GP_SIZE_MULT_2, 0xff_ffff);
        e.set(HC_WP_GRP_SIZE, 16);
        e.set(HC_ERASE_GRP_SIZE, 1);
        assert_eq!(e.gp_partition_bytes(2), 0xff_ffff * 8 * 1024 * 1024);
        assert_eq!(e.gp_partition_bytes(5), 0);
    }

    #[test]
    fn stuck_lines_are_no_register_and_a_new_revision_is_one() {
        assert!(ExtCsd::new([0; 512]).check().is_err());
        assert!(ExtCsd::new([0xff; 512]).check().is_err());
        let mut e = ExtCsd::new([0; 512]);
        e.set(DEVICE_TYPE, 3);
        e.set(EXT_CSD_REV, 200);
        assert!(e.check().is_ok() && e.rev_name().is_none());
    }
}
