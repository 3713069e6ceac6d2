//! What is odd about a simulated card, in words.

use crate::units::format_size;
use mmc_mock::card::{MmcQuirks, Quirks};
use mmc_time::Duration;

/// Of an SD card. Each field is named, so that none is forgotten.
pub(super) fn sd(quirks: &Quirks) -> String {
    let Quirks {
        cmd23_hangs,
        wraps_at,
        low_voltage,
        read_delay,
        busy_delay,
        tran_speed,
        flush_never_ends,
        left_at_1_8,
        switch_hangs,
        ddr50_tuning_hangs,
        deaf_acmd41,
        echo_without_voltage,
        dies_after,
        forgets_after,
        erase_spills,
        discard_fails,
    } = *quirks;
    let flag = |it: bool, text: &str| it.then(|| text.to_owned());
    let late = |d: Duration, text: &str| (d != Duration::ZERO).then(|| format!("{text} {d}"));
    join([
        flag(cmd23_hangs, "locks up at a transfer with a count set by CMD23"),
        wraps_at.map(|n| {
            format!(
                "has {n} sectors ({}) in truth; addresses above wrap around",
                format_size(n.saturating_mul(512))
            )
        }),
        flag(low_voltage, "claims the low voltage range"),
        late(read_delay, "each read comes later by"),
        late(busy_delay, "each write stays busy longer by"),
        tran_speed.map(|code| format!("TRAN_SPEED is {code:#04x} at any speed")),
        flag(flush_never_ends, "a flush of the cache never ends"),
        flag(left_at_1_8, "was left signalling with 1.8 V"),
        flag(switch_hangs, "holds its lines low for ever after CMD11"),
        flag(ddr50_tuning_hangs, "locks up at a CMD19 in DDR50"),
        (deaf_acmd41 > 0).then(|| format!("answers no ACMD41 the first {deaf_acmd41} times after power-up")),
        flag(echo_without_voltage, "answers CMD8 with the pattern but no voltage"),
        dies_after
            .map(|n| format!("refuses writes after {n} blocks, and after the next power cycle forgets them")),
        forgets_after.map(|n| format!("forgets what is written after {n} blocks")),
        flag(erase_spills, "an erase takes the sector behind its range with it"),
        flag(discard_fails, "refuses a discard"),
    ])
}

/// Of an MMC or eMMC card. Each field is named, so that none is forgotten.
pub(super) fn mmc(quirks: &MmcQuirks) -> String {
    let MmcQuirks {
        early_cmd0_kills,
        flush_never_ends,
        hpi_kills,
        trim_does_nothing,
        trim_corrupts,
        erase_by_byte_113,
        secure_kills,
        secure_time,
        empty_flush_hangs,
        cache_corrupts,
        hides_busy,
        garbled_ext_csd,
        restless,
        read_delay,
        count_delay,
        bkops_time,
    } = *quirks;
    let flag = |it: bool, text: &str| it.then(|| text.to_owned());
    let time = |d: Duration, text: &str| (d != Duration::ZERO).then(|| format!("{text} {d}"));
    join([
        flag(early_cmd0_kills, "a CMD0 during power-up makes it inactive"),
        flag(flush_never_ends, "a flush of the cache ends only by an interrupt"),
        flag(hpi_kills, "a high priority interrupt makes it inactive"),
        flag(trim_does_nothing, "trim does nothing"),
        flag(trim_corrupts, "trim takes the eight sectors behind its range with it"),
        flag(erase_by_byte_113, "CMD38 follows byte 113 of the EXT_CSD, not its argument"),
        flag(secure_kills, "a secure erase or trim makes it silent for ever"),
        time(secure_time, "a secure erase or trim takes"),
        flag(empty_flush_hangs, "a flush of an empty cache ends only by an interrupt"),
        flag(cache_corrupts, "one in sixteen writes into the cache stores a wrong bit"),
        flag(hides_busy, "DAT0 is high although it is busy"),
        (garbled_ext_csd > 0).then(|| {
            format!("the first {garbled_ext_csd} reads of the EXT_CSD after power-up have a wrong CRC")
        }),
        time(restless, "power-up begins again at a CMD1 that comes sooner than"),
        time(read_delay, "each read comes later by"),
        time(count_delay, "each transfer with a count set by CMD23 takes longer by"),
        time(bkops_time, "each step of background operations takes"),
    ])
}

fn join<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
