//! The tunables, with Linux' names, units, defaults and clamping (spec §15).

use crate::scheduler::{TunableInfo, TuneError};
use crate::seek::BackSeek;
use crate::tunable::{self, Row};

/// Largest value of a C `unsigned int`, at which the kernel clamps.
const MAX: u32 = u32::MAX;
const MS: i64 = 1_000_000;
const US: i64 = 1_000;

/// All times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) quantum: u32,
    expire_sync: u32,
    expire_async: u32,
    back_seek_kib: u32,
    back_seek_penalty: u32,
    pub(super) slice_sync: i64,
    pub(super) slice_async: i64,
    slice_async_rq: u32,
    pub(super) low_latency: bool,
    pub(super) target_latency: i64,
    /// 1/HZ; no tunable.
    pub(super) tick: i64,
}

const fn row(
    name: &'static str,
    unit: &'static str,
    (min, max): (u32, u32),
    get: fn(&Settings) -> u64,
    set: fn(&mut Settings, u32),
) -> Row<Settings> {
    Row { name, unit, min, max, get, set }
}

/// One that is there, but can only be 0.
const fn fixed(name: &'static str, unit: &'static str) -> Row<Settings> {
    row(name, unit, (0, 0), |_| 0, |_, _| ())
}

const fn time(v: u32, unit: i64) -> i64 {
    (v as i64).saturating_mul(unit)
}

fn units(t: i64, unit: i64) -> u64 {
    t.checked_div(unit).map_or(0, i64::unsigned_abs)
}

const ROWS: [Row<Settings>; 17] = [
    row("quantum", "requests", (1, MAX), |s| s.quantum.into(), |s, v| s.quantum = v),
    row("fifo_expire_sync", "ms", (1, MAX), |s| s.expire_sync.into(), |s, v| s.expire_sync = v),
    row("fifo_expire_async", "ms", (1, MAX), |s| s.expire_async.into(), |s, v| s.expire_async = v),
    row("back_seek_max", "KiB", (0, MAX), |s| s.back_seek_kib.into(), |s, v| s.back_seek_kib = v),
    row(
        "back_seek_penalty",
        "times",
        (1, MAX),
        |s| s.back_seek_penalty.into(),
        |s, v| s.back_seek_penalty = v,
    ),
    row("slice_sync", "ms", (1, MAX), |s| units(s.slice_sync, MS), |s, v| s.slice_sync = time(v, MS)),
    row("slice_sync_us", "us", (1, MAX), |s| units(s.slice_sync, US), |s, v| s.slice_sync = time(v, US)),
    row("slice_async", "ms", (1, MAX), |s| units(s.slice_async, MS), |s, v| s.slice_async = time(v, MS)),
    row("slice_async_us", "us", (0, MAX), |s| units(s.slice_async, US), |s, v| s.slice_async = time(v, US)),
    row("slice_async_rq", "requests", (1, MAX), |s| s.slice_async_rq.into(), |s, v| s.slice_async_rq = v),
    fixed("slice_idle", "ms"),
    fixed("slice_idle_us", "us"),
    fixed("group_idle", "ms"),
    fixed("group_idle_us", "us"),
    row("low_latency", "0/1", (0, 1), |s| s.low_latency.into(), |s, v| s.low_latency = v != 0),
    row(
        "target_latency",
        "ms",
        (1, MAX),
        |s| units(s.target_latency, MS),
        |s, v| s.target_latency = time(v, MS),
    ),
    row(
        "target_latency_us",
        "us",
        (1, MAX),
        |s| units(s.target_latency, US),
        |s, v| s.target_latency = time(v, US),
    ),
];

impl Settings {
    /// Linux' defaults for a device that does not rotate.
    pub(super) const DEFAULT: Self = Self {
        quantum: 8,
        expire_sync: 125,
        expire_async: 250,
        back_seek_kib: 16 * 1024,
        back_seek_penalty: 2,
        slice_sync: 100 * MS,
        slice_async: 40 * MS,
        slice_async_rq: 2,
        low_latency: true,
        target_latency: 300 * MS,
        tick: 4 * MS,
    };

    pub(super) fn seek(&self) -> BackSeek {
        BackSeek {
            max: u64::from(self.back_seek_kib).saturating_mul(2),
            penalty: self.back_seek_penalty.into(),
        }
    }

    /// How long a request may wait before it is overdue, in nanoseconds.
    pub(super) fn expire(&self, sync: bool) -> u64 {
        let ms = if sync { self.expire_sync } else { self.expire_async };
        u64::from(ms).saturating_mul(1_000_000)
    }

    /// Length of a slice at this level, before all slices are made to fit the target (§3).
    pub(super) fn length(&self, sync: bool, level: u8) -> i64 {
        let base = if sync { self.slice_sync } else { self.slice_async };
        let step = base / 5;
        base.saturating_add(step.saturating_mul(4_i64.saturating_sub(level.into())))
    }

    /// Requests an async queue may send in a slice while others are busy (§7 e).
    pub(super) fn async_quota(&self, level: u8) -> u64 {
        let factor = 8_u64.saturating_sub(level.into()).saturating_mul(2);
        factor.saturating_mul(self.slice_async_rq.into())
    }

    pub(super) fn info(&self, i: usize) -> Option<TunableInfo> {
        tunable::info(&ROWS, self, i)
    }

    pub(super) fn set(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        tunable::set(&ROWS, self, name, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(s: &Settings, name: &str) -> i64 {
        (0..ROWS.len()).find_map(|i| s.info(i).filter(|t| t.name == name)).unwrap().value
    }

    #[test]
    fn slices_by_level_are_the_kernels() {
        let ms = |sync| [0, 1, 2, 3, 4, 5, 6, 7].map(|level| Settings::DEFAULT.length(sync, level) / MS);
        assert_eq!(ms(true), [180, 160, 140, 120, 100, 80, 60, 40]);
        assert_eq!(ms(false), [72, 64, 56, 48, 40, 32, 24, 16]);
        assert_eq!([0, 4, 7].map(|level| Settings::DEFAULT.async_quota(level)), [32, 16, 4]);
    }

    #[test]
    fn values_are_clamped_as_the_kernel_clamps_them() {
        let mut s = Settings::DEFAULT;
        for (name, text, becomes) in [
            ("quantum", "0", 1),
            ("fifo_expire_sync", "60", 60),
            ("fifo_expire_async", "99999999999", MAX.into()),
            ("back_seek_max", "0x400", 1024),
            ("slice_sync_us", "2500", 2500),
            ("slice_sync_us", "0", 1),
            ("slice_async_us", "0", 0),
            ("target_latency", "0", 1),
            ("low_latency", "7", 1),
            ("slice_idle", "0", 0),
        ] {
            assert_eq!(s.set(name, text), Ok(()), "{name} {text}");
            assert_eq!(value(&s, name), becomes, "{name} {text}");
        }
        assert_eq!(value(&s, "slice_sync"), 1, "a part of a millisecond is shown as the least there is");
    }

    #[test]
    fn what_is_left_out_says_so_and_junk_changes_nothing() {
        let mut s = Settings::DEFAULT;
        assert_eq!(s.set("slice_idle", "8"), Err(TuneError::Range));
        assert_eq!(s.set("group_idle_us", "8000"), Err(TuneError::Range));
        assert_eq!(s.set("quantum", "much"), Err(TuneError::Invalid));
        assert_eq!(s.set("quantum", "-1"), Err(TuneError::Invalid));
        assert_eq!(s.set("quantity", "1"), Err(TuneError::Unknown));
        assert_eq!(value(&s, "quantum"), 8);
    }
}
