//! Time limits that follow from a card's registers (`spec/card.md` §14).

use crate::register::ext_csd::{
    ERASE_GROUP_DEF, EXT_CSD_REV, SEC_ERASE_MULT, SEC_FEATURE_SUPPORT, SEC_TRIM_MULT, SLEEP_NOTIFICATION_TIME,
};
use crate::register::{Csd, ExtCsd, MmcCsd, Ssr};
use mmc_time::Duration;

/// An access to an SD extension register, a flush of an SD card's cache, its power-off notification.
pub const SD_REGISTER_LIMIT: Duration = Duration::from_secs(1);
/// A flush of an eMMC's cache. The standard states no bound; Linux waits as long.
pub const FLUSH_LIMIT: Duration = Duration::from_secs(30);
/// A sanitize. The standard states no bound; Linux waits as long.
pub const SANITIZE_LIMIT: Duration = Duration::from_secs(240);
/// Background operations that were asked for. The standard states no bound (a high priority interrupt ends them);
/// Linux waits as long.
pub const BKOPS_LIMIT: Duration = Duration::from_secs(120);
/// A forced erase by CMD42: all of the card and its password, three minutes.
pub const FORCE_ERASE_LIMIT: Duration = Duration::from_secs(180);
/// A data command of SDIO.
pub const IO_LIMIT: Duration = Duration::from_secs(1);
/// CMD6 of an eMMC that states no time.
const SWITCH_LIMIT: Duration = Duration::from_millis(500);

const fn times(per: Duration, n: u64) -> Duration {
    per.saturating_mul(n)
}

/// The access time a CSD states: TAAC and NSAC × 100 clocks at `hz`.
fn access_time(taac_ps: u64, nsac: u8, hz: u32) -> Duration {
    let clocks = u64::from(nsac).saturating_mul(100_000_000_000);
    let nsac_ns = clocks.checked_div(hz.into()).unwrap_or(0);
    Duration::from_nanos(taac_ps.div_ceil(1000).saturating_add(nsac_ns))
}

/// Longest wait of an SD card from a read command, or a block, to the next block, at a clock of `hz`: 100 ms; of an
/// SDSC card 100 times its access time, if that is less.
#[must_use]
pub fn sd_read_limit(csd: &Csd, hz: u32) -> Duration {
    let most = Duration::from_millis(100);
    if !csd.byte_addressed() {
        return most;
    }
    times(access_time(csd.taac_ps(), csd.nsac(), hz), 100).min(most)
}

/// Longest busy of an SD card after written data at a clock of `hz`: 500 ms above 32 GiB, else 250 ms; of an SDSC card
/// its read time × R2W_FACTOR, if that is less. Real cards take longer than the standard lets them: a driver uses at
/// least 500 ms (`spec/card.md` §14).
#[must_use]
pub fn sd_write_limit(csd: &Csd, hz: u32) -> Duration {
    let most = Duration::from_millis(250);
    if !csd.byte_addressed() {
        return if csd.capacity_bytes() > 32 << 30 { Duration::from_millis(500) } else { most };
    }
    let read = times(access_time(csd.taac_ps(), csd.nsac(), hz), 100);
    times(read, 1 << (csd.r2w_factor() & 7)).min(most)
}

/// Longest wait of an MMC for data at a clock of `hz`: ten times its access time, at least 150 ms (what HS200 and
/// later allow).
#[must_use]
pub fn mmc_read_limit(csd: &MmcCsd, hz: u32) -> Duration {
    times(access_time(csd.taac_ps(), csd.nsac(), hz), 10).max(Duration::from_millis(150))
}

/// Longest busy of an MMC after written data at a clock of `hz`: ten times its access time × R2W_FACTOR, at least 1 s
/// (what is usually waited).
#[must_use]
pub fn mmc_write_limit(csd: &MmcCsd, hz: u32) -> Duration {
    let read = times(access_time(csd.taac_ps(), csd.nsac(), hz), 10);
    times(read, 1 << (csd.r2w_factor() & 7)).max(Duration::from_secs(1))
}

/// Longest CMD6 of an eMMC: `GENERIC_CMD6_TIME`, 500 ms where it states none.
#[must_use]
pub fn switch_limit(ext_csd: &ExtCsd) -> Duration {
    match ext_csd.generic_cmd6_time_ms() {
        0 => SWITCH_LIMIT,
        ms => Duration::from_millis(ms.into()),
    }
}

/// Longest change of the partition: `PARTITION_SWITCH_TIME`, at least 300 ms.
#[must_use]
pub fn partition_limit(ext_csd: &ExtCsd) -> Duration {
    Duration::from_millis(ext_csd.partition_switch_time_ms().max(300).into())
}

/// Longest switch of the cache: 1.6 s, or [`switch_limit`] if that is more.
#[must_use]
pub fn cache_limit(ext_csd: &ExtCsd) -> Duration {
    switch_limit(ext_csd).max(Duration::from_millis(1600))
}

/// Longest wait after a high priority interrupt: `OUT_OF_INTERRUPT_TIME`, [`switch_limit`] where it states none.
#[must_use]
pub fn interrupt_limit(ext_csd: &ExtCsd) -> Duration {
    match ext_csd.out_of_interrupt_time_ms() {
        0 => switch_limit(ext_csd),
        ms => Duration::from_millis(ms.into()),
    }
}

/// Longest CMD5 of an eMMC: `S_A_TIMEOUT`, at least 15 ms (what real cards need).
#[must_use]
pub fn sleep_limit(ext_csd: &ExtCsd) -> Duration {
    Duration::from_nanos(ext_csd.sleep_awake_timeout_ns()).max(Duration::from_millis(15))
}

/// Longest notification of sleep: `SLEEP_NOTIFICATION_TIME` in 10 µs × 2ⁿ, n at most 23; [`switch_limit`] where it
/// states none.
#[must_use]
pub fn sleep_notification_limit(ext_csd: &ExtCsd) -> Duration {
    match ext_csd.get(SLEEP_NOTIFICATION_TIME) {
        n @ 1..=23 => Duration::from_micros(10_u64.checked_shl(u32::try_from(n).unwrap_or(0)).unwrap_or(0)),
        _ => switch_limit(ext_csd),
    }
}

/// Longest notification that power goes: short `GENERIC_CMD6_TIME`, long `POWER_OFF_LONG_TIME` (at least the short).
#[must_use]
pub fn power_off_limit(ext_csd: &ExtCsd, long: bool) -> Duration {
    let short = switch_limit(ext_csd);
    if long { short.max(Duration::from_millis(ext_csd.power_off_long_time_ms().into())) } else { short }
}

/// Longest busy of CMD20 of SD (`spec/card.md` §2.2): 1 s to start a recording, 10 ms for an update of the directory
/// or the control information, 50 ms to release it, else 250 ms.
#[must_use]
pub const fn speed_class_limit(function: u8) -> Duration {
    match function {
        0 => Duration::from_secs(1),
        1 | 4 => Duration::from_millis(10),
        8 => Duration::from_millis(50),
        _ => Duration::from_millis(250),
    }
}

/// What an MMC or eMMC may do with blocks nobody needs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MmcEraseKind {
    /// CMD38 argument 0: whole erase groups, which read as `ERASED_MEM_CONT` afterwards.
    Erase,
    /// 0x80000000: whole erase groups, with all copies.
    SecureErase,
    /// 1: any blocks, which read as `ERASED_MEM_CONT` afterwards.
    Trim,
    /// 0x80000001 and then 0x80008000: any blocks, with all copies.
    SecureTrim,
    /// 3: the card may forget the blocks when it likes.
    Discard,
}

impl MmcEraseKind {
    /// CMD38's argument; of a secure trim, which marks first and erases then, the first one.
    #[must_use]
    pub const fn arg(self) -> u32 {
        match self {
            Self::Erase => 0,
            Self::SecureErase => 0x8000_0000,
            Self::Trim => 1,
            Self::SecureTrim => 0x8000_0001,
            Self::Discard => 3,
        }
    }
    /// It takes whole erase groups only.
    #[must_use]
    pub const fn whole_groups(self) -> bool {
        matches!(self, Self::Erase | Self::SecureErase)
    }
    /// Whether the card offers it (`SEC_FEATURE_SUPPORT`; discard by revision 6).
    #[must_use]
    pub fn offered(self, ext_csd: Option<&ExtCsd>) -> bool {
        let has = |bits| ext_csd.is_some_and(|e| e.get(SEC_FEATURE_SUPPORT) & bits == bits);
        match self {
            Self::Erase => true,
            Self::SecureErase => has(1),
            Self::Trim => has(0x10),
            Self::SecureTrim => has(0x11),
            Self::Discard => ext_csd.is_some_and(|e| e.get(EXT_CSD_REV) >= 6),
        }
    }
}

/// Bytes of an erase group of an MMC: the high-capacity one if `ERASE_GROUP_DEF` is set, else the CSD's; at least 512.
#[must_use]
pub fn mmc_erase_group_bytes(csd: &MmcCsd, ext_csd: Option<&ExtCsd>) -> u64 {
    let high = ext_csd.filter(|e| e.get(ERASE_GROUP_DEF) & 1 == 1).map(ExtCsd::hc_erase_group_bytes);
    high.filter(|bytes| *bytes > 0).unwrap_or_else(|| csd.erase_group_bytes()).max(512)
}

/// Longest busy of CMD38 of an MMC over `blocks` blocks of 512 bytes from `lba` on: a time for each erase group that is
/// touched. High-capacity groups: 300 ms × `ERASE_TIMEOUT_MULT`, for trim and discard × `TRIM_MULT`, for the secure
/// ones × `SEC_ERASE_MULT` or `SEC_TRIM_MULT` besides. Groups of the CSD: ten times the write time. At least 1 s.
#[must_use]
pub fn mmc_erase_limit(
    csd: &MmcCsd,
    ext_csd: Option<&ExtCsd>,
    kind: MmcEraseKind,
    lba: u64,
    blocks: u64,
) -> Duration {
    let group = (mmc_erase_group_bytes(csd, ext_csd) / 512).max(1);
    let first = lba.checked_div(group).unwrap_or(0);
    let groups = lba.saturating_add(blocks).div_ceil(group).saturating_sub(first).max(1);
    let legacy = times(Duration::from_nanos(csd.taac_ps() / 100), 1 << (csd.r2w_factor() & 7));
    let or_legacy = |ms: u32| if ms == 0 { legacy } else { Duration::from_millis(ms.into()) };
    let erase = or_legacy(ext_csd.map_or(0, ExtCsd::erase_timeout_ms));
    let by = |field| ext_csd.map_or(1, |e| e.get(field)).max(1);
    let per = match kind {
        MmcEraseKind::Erase => erase,
        MmcEraseKind::SecureErase => times(erase, by(SEC_ERASE_MULT)),
        MmcEraseKind::SecureTrim => times(erase, by(SEC_TRIM_MULT)),
        MmcEraseKind::Trim | MmcEraseKind::Discard => or_legacy(ext_csd.map_or(0, ExtCsd::trim_timeout_ms)),
    };
    times(per, groups).max(Duration::from_secs(1))
}

/// What an SD card may do with blocks nobody needs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EraseKind {
    /// CMD38 argument 0: the blocks read as all zeros or all ones afterwards (SCR's DATA_STAT_AFTER_ERASE).
    Erase,
    /// Argument 1: the card may forget them when it likes; they may read as before (SD status bit 313, not
    /// SDSC).
    Discard,
    /// Argument 2: the full user area at once (SD status bit 312, not SDSC); with any other range a plain
    /// erase.
    FullUserArea,
}

impl EraseKind {
    /// CMD38's argument.
    #[must_use]
    pub const fn arg(self) -> u32 {
        match self {
            Self::Erase => 0,
            Self::Discard => 1,
            Self::FullUserArea => 2,
        }
    }
}

/// Longest busy of CMD38 over `blocks` blocks of 512 bytes from `lba` on.
///
/// With an SD status that states its erase time: that time per allocation unit, the offset once, 250 ms for
/// each unit that is erased in part, and at least 1 s. Without one: 250 ms for each block. A discard ends
/// within 250 ms; where the SD status does not offer it the card runs a plain erase, so that time counts. The
/// full user area takes 1 s where it is offered.
#[must_use]
pub fn erase_limit(ssr: Option<&Ssr>, kind: EraseKind, lba: u64, blocks: u64) -> Duration {
    let offered = |bit: fn(&Ssr) -> u8| ssr.is_some_and(|ssr| bit(ssr) == 1);
    match kind {
        EraseKind::Discard if offered(Ssr::discard_support) => return Duration::from_millis(250),
        EraseKind::FullUserArea if offered(Ssr::fule_support) => return Duration::from_secs(1),
        _ => {}
    }
    let stated = ssr.filter(|ssr| ssr.erase_size() > 0 && ssr.erase_timeout_s() > 0 && ssr.au_size_kib() > 0);
    let Some(ssr) = stated else {
        return Duration::from_millis(250).saturating_mul(blocks.max(1));
    };
    // In blocks; not 0, for au_size_kib is not.
    let au = u64::from(ssr.au_size_kib()).saturating_mul(2).max(1);
    let end = lba.saturating_add(blocks);
    let first = lba.checked_div(au).unwrap_or(0);
    let units = end.div_ceil(au).saturating_sub(first).max(1);
    let partial =
        u64::from(lba.checked_rem(au) != Some(0)).saturating_add(u64::from(end.checked_rem(au) != Some(0)));
    let per_unit = Duration::from_secs(ssr.erase_timeout_s().into())
        .as_nanos()
        .checked_div(ssr.erase_size().into())
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let time = Duration::from_nanos(per_unit).saturating_mul(units)
        + Duration::from_secs(ssr.erase_offset_s().into())
        + Duration::from_millis(250).saturating_mul(partial);
    time.max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register::SsrInfo;

    /// 4 MiB units, 15 of them in 1 s, offset 1 s.
    fn ssr() -> SsrInfo {
        SsrInfo {
            au_size_code: 9,
            erase_size: 15,
            erase_timeout_s: 1,
            erase_offset_s: 1,
            ..SsrInfo::default()
        }
    }

    #[test]
    fn the_erase_time_counts_units_and_those_in_part() {
        let ssr = ssr().emit();
        let au = 8192;
        let ms = |lba, blocks| erase_limit(Some(&ssr), EraseKind::Erase, lba, blocks).as_millis();
        assert_eq!(ms(0, au), 1066, "one unit: 66 ms and the offset");
        assert_eq!(ms(0, 15 * au), 2000);
        assert_eq!(ms(1, au), 1000 + 133 + 500, "two units, both in part");
        assert_eq!(ms(0, 1), 1000 + 66 + 250);
        let short = SsrInfo { erase_offset_s: 0, ..self::ssr() }.emit();
        assert_eq!(erase_limit(Some(&short), EraseKind::Erase, 0, au).as_millis(), 1000, "at least 1 s");
    }

    #[test]
    fn a_card_that_states_its_times_is_given_them() {
        use crate::register::ext_csd as e;
        let mut ext = ExtCsd::new([0; 512]);
        assert_eq!(switch_limit(&ext).as_millis(), 500, "not stated");
        assert_eq!(partition_limit(&ext).as_millis(), 300);
        assert_eq!((sleep_limit(&ext).as_millis(), interrupt_limit(&ext).as_millis()), (15, 500));
        for (field, value) in [
            (e::GENERIC_CMD6_TIME, 25),
            (e::POWER_OFF_LONG_TIME, 60),
            (e::OUT_OF_INTERRUPT_TIME, 5),
            (e::PARTITION_SWITCH_TIME, 50),
            (e::S_A_TIMEOUT, 0x12),
            (e::SLEEP_NOTIFICATION_TIME, 7),
        ] {
            ext.set(field, value);
        }
        let ms = |d: Duration| d.as_micros();
        assert_eq!(ms(switch_limit(&ext)), 250_000);
        assert_eq!((ms(power_off_limit(&ext, false)), ms(power_off_limit(&ext, true))), (250_000, 600_000));
        assert_eq!((ms(interrupt_limit(&ext)), ms(partition_limit(&ext))), (50_000, 500_000));
        assert_eq!((ms(sleep_limit(&ext)), ms(sleep_notification_limit(&ext))), (26_214, 1_280));
        assert_eq!(ms(cache_limit(&ext)), 1_600_000);
        assert_eq!([0, 1, 4, 5, 8].map(|f| speed_class_limit(f).as_millis()), [1000, 10, 10, 250, 50]);
    }

    #[test]
    fn access_times_follow_the_csd() {
        use crate::register::{CsdInfo, MmcCsdInfo};
        // TAAC 0x26: 1.5 ms; NSAC 1: 100 clocks. 100 times that is more than 100 ms.
        let slow = CsdInfo { taac: 0x26, nsac: 1, r2w_factor: 2, ..CsdInfo::default() }.emit();
        assert_eq!(sd_read_limit(&slow, 25_000_000).as_millis(), 100);
        // TAAC 0x2d: 20 µs × … code 0x09 is 10 ns.
        let fast = CsdInfo { taac: 0x0b, nsac: 1, r2w_factor: 2, ..CsdInfo::default() }.emit();
        assert_eq!(sd_read_limit(&fast, 25_000_000), Duration::from_nanos(100 * (1_000 + 4_000)));
        assert_eq!(sd_write_limit(&fast, 25_000_000), Duration::from_nanos(4 * 100 * 5_000));
        let big = CsdInfo { structure: 1, size_bits: 0xffff << 1, ..CsdInfo::default() }.emit();
        assert_eq!((sd_read_limit(&big, 1).as_millis(), sd_write_limit(&big, 1).as_millis()), (100, 250));
        let xc = CsdInfo { structure: 1, size_bits: 0x1_ffff << 1, ..CsdInfo::default() }.emit();
        assert_eq!(sd_write_limit(&xc, 1).as_millis(), 500);
        let mmc = MmcCsdInfo { taac: 0x7f, nsac: 255, r2w_factor: 5, ..MmcCsdInfo::default() }.emit();
        assert_eq!(mmc_read_limit(&mmc, 400_000).as_millis(), 1_437);
        assert_eq!(mmc_write_limit(&mmc, 400_000).as_millis(), 46_000);
        assert_eq!(mmc_write_limit(&MmcCsdInfo::default().emit(), 0).as_millis(), 1_000, "a clock of 0");
    }

    #[test]
    fn an_mmc_erases_by_groups() {
        use crate::register::{MmcCsdInfo, ext_csd as e};
        let csd = MmcCsdInfo {
            taac: 0x26,
            r2w_factor: 2,
            write_bl_len: 9,
            erase_grp_size: 31,
            erase_grp_mult: 31,
            ..MmcCsdInfo::default()
        }
        .emit();
        let mut ext = ExtCsd::new([0; 512]);
        for (field, value) in [
            (e::HC_ERASE_GRP_SIZE, 1),
            (e::ERASE_TIMEOUT_MULT, 2),
            (e::TRIM_MULT, 1),
            (e::SEC_ERASE_MULT, 10),
            (e::SEC_TRIM_MULT, 20),
        ] {
            ext.set(field, value);
        }
        let secs = |ext: Option<&ExtCsd>, kind, lba, blocks| {
            mmc_erase_limit(&csd, ext, kind, lba, blocks).as_millis()
        };
        assert_eq!(mmc_erase_group_bytes(&csd, Some(&ext)), 512 * 1024, "the CSD's: 32 × 32 blocks");
        ext.set(e::ERASE_GROUP_DEF, 1);
        assert_eq!(mmc_erase_group_bytes(&csd, Some(&ext)), 512 * 1024, "high capacity");
        assert_eq!(secs(Some(&ext), MmcEraseKind::Erase, 0, 10 * 1024), 6_000);
        assert_eq!(secs(Some(&ext), MmcEraseKind::Trim, 1, 10 * 1024), 3_300, "eleven groups are touched");
        assert_eq!(secs(Some(&ext), MmcEraseKind::SecureErase, 0, 1024), 6_000);
        assert_eq!(secs(Some(&ext), MmcEraseKind::SecureTrim, 0, 1024), 12_000);
        assert_eq!(secs(Some(&ext), MmcEraseKind::Discard, 0, 1), 1_000, "at least 1 s");
        assert_eq!(secs(None, MmcEraseKind::Erase, 0, 1024 * 1024), 61_440, "ten times 1.5 ms × 4 a group");
        assert!(MmcEraseKind::Erase.offered(None) && !MmcEraseKind::Discard.offered(None));
        assert!(!MmcEraseKind::SecureTrim.offered(Some(&ext)));
        ext.set(e::SEC_FEATURE_SUPPORT, 0x11);
        assert!(MmcEraseKind::SecureTrim.offered(Some(&ext)) && !MmcEraseKind::Discard.offered(Some(&ext)));
    }

    #[test]
    fn without_figures_each_block_counts() {
        let silent = SsrInfo { erase_size: 0, ..ssr() }.emit();
        for ssr in [None, Some(&silent)] {
            assert_eq!(erase_limit(ssr, EraseKind::Erase, 0, 8), Duration::from_secs(2));
            assert_eq!(erase_limit(ssr, EraseKind::Discard, 0, 8), Duration::from_secs(2), "not offered");
        }
        assert_eq!(erase_limit(None, EraseKind::Erase, u64::MAX, u64::MAX), Duration::MAX);
    }

    #[test]
    fn discard_and_full_erase_are_short_where_they_are_offered() {
        let can = SsrInfo { discard_support: 1, fule_support: 1, ..ssr() }.emit();
        assert_eq!(erase_limit(Some(&can), EraseKind::Discard, 0, 1 << 30), Duration::from_millis(250));
        assert_eq!(erase_limit(Some(&can), EraseKind::FullUserArea, 0, 1 << 30), Duration::from_secs(1));
    }
}
