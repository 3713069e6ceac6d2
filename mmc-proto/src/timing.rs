//! Time limits that follow from a card's registers (`spec/card.md` §14).

use crate::register::Ssr;
use mmc_time::Duration;

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
