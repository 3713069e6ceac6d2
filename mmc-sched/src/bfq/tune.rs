//! The tunables, with Linux' names, units, defaults and clamping (spec §16); `charge_time` is ours.

use crate::scheduler::{TunableInfo, TuneError};
use crate::seek::BackSeek;
use crate::tunable::{self, Row};
use mmc_time::Duration;

/// Largest value of a C `int`, at which the kernel clamps.
const INT_MAX: u32 = i32::MAX.unsigned_abs();
/// What strict guarantees need to wait at least.
const STRICT_IDLE: Duration = Duration::from_millis(8);

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) slice_idle: Duration,
    pub(super) low_latency: bool,
    /// Of a slot, sync or not; the largest budget is what the device does in this time.
    pub(super) timeout: Duration,
    /// Sectors; 0: from the measured rate.
    pub(super) max_budget: u64,
    pub(super) strict: bool,
    /// Charge the time a request had the device (in µs) instead of its sectors.
    pub(super) charge_time: bool,
    pub(super) expire_sync: Duration,
    pub(super) expire_async: Duration,
    back_seek_kib: u64,
    back_seek_penalty: u64,
}

const ROWS: [Row<Settings>; 11] = [
    Row {
        name: "slice_idle",
        unit: "ms",
        min: 0,
        max: INT_MAX,
        get: |s| s.slice_idle.as_millis(),
        set: |s, v| s.slice_idle = Duration::from_millis(v.into()),
    },
    Row {
        name: "slice_idle_us",
        unit: "us",
        min: 0,
        max: u32::MAX,
        get: |s| s.slice_idle.as_micros(),
        set: |s, v| s.slice_idle = Duration::from_micros(v.into()),
    },
    Row {
        name: "low_latency",
        unit: "0/1",
        min: 0,
        max: 1,
        get: |s| s.low_latency.into(),
        set: |s, v| s.low_latency = v != 0,
    },
    Row {
        name: "timeout_sync",
        unit: "ms",
        min: 1,
        max: INT_MAX,
        get: |s| s.timeout.as_millis(),
        set: |s, v| s.timeout = Duration::from_millis(v.into()),
    },
    Row {
        name: "max_budget",
        unit: "sectors",
        min: 0,
        max: INT_MAX,
        get: |s| s.max_budget,
        set: |s, v| s.max_budget = v.into(),
    },
    Row {
        name: "strict_guarantees",
        unit: "0/1",
        min: 0,
        max: 1,
        get: |s| s.strict.into(),
        set: |s, v| {
            s.strict = v != 0;
            if s.strict && s.slice_idle < STRICT_IDLE {
                s.slice_idle = STRICT_IDLE;
            }
        },
    },
    Row {
        name: "charge_time",
        unit: "0/1",
        min: 0,
        max: 1,
        get: |s| s.charge_time.into(),
        set: |s, v| s.charge_time = v != 0,
    },
    Row {
        name: "fifo_expire_sync",
        unit: "ms",
        min: 1,
        max: INT_MAX,
        get: |s| s.expire_sync.as_millis(),
        set: |s, v| s.expire_sync = Duration::from_millis(v.into()),
    },
    Row {
        name: "fifo_expire_async",
        unit: "ms",
        min: 1,
        max: INT_MAX,
        get: |s| s.expire_async.as_millis(),
        set: |s, v| s.expire_async = Duration::from_millis(v.into()),
    },
    Row {
        name: "back_seek_max",
        unit: "KiB",
        min: 0,
        max: INT_MAX,
        get: |s| s.back_seek_kib,
        set: |s, v| s.back_seek_kib = v.into(),
    },
    Row {
        name: "back_seek_penalty",
        unit: "times",
        min: 1,
        max: INT_MAX,
        get: |s| s.back_seek_penalty,
        set: |s, v| s.back_seek_penalty = v.into(),
    },
];

impl Settings {
    /// Linux' defaults, but for `low_latency`, which is 1 there.
    pub(super) const DEFAULT: Self = Self {
        slice_idle: Duration::from_millis(8),
        low_latency: false,
        timeout: Duration::from_millis(125),
        max_budget: 0,
        strict: false,
        charge_time: false,
        expire_sync: Duration::from_millis(125),
        expire_async: Duration::from_millis(250),
        back_seek_kib: 16 * 1024,
        back_seek_penalty: 2,
    };

    pub(super) const fn seek(&self) -> BackSeek {
        BackSeek { max: self.back_seek_kib.saturating_mul(2), penalty: self.back_seek_penalty }
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
    fn values_are_clamped_as_the_kernel_clamps_them() {
        let mut s = Settings::DEFAULT;
        for (name, text, becomes) in [
            ("slice_idle", "0", 0),
            ("slice_idle", "99999999999", i64::from(i32::MAX)),
            ("slice_idle_us", "2500", 2500),
            ("low_latency", "7", 1),
            ("timeout_sync", "0", 1),
            ("max_budget", "2048\n", 2048),
            ("fifo_expire_async", "0", 1),
            ("back_seek_max", "0x10", 16),
            ("back_seek_penalty", "0", 1),
        ] {
            assert_eq!(s.set(name, text), Ok(()), "{name} {text}");
            assert_eq!(value(&s, name), becomes, "{name} {text}");
        }
    }

    #[test]
    fn junk_changes_nothing() {
        let mut s = Settings::DEFAULT;
        assert_eq!(s.set("slice_idel", "1"), Err(TuneError::Unknown));
        assert_eq!(s.set("slice_idle", "fast"), Err(TuneError::Invalid));
        assert_eq!(s.set("slice_idle", "-1"), Err(TuneError::Invalid));
        assert_eq!(s.set("slice_idle", "99999999999999999999"), Err(TuneError::Range));
        assert_eq!(value(&s, "slice_idle"), 8);
    }

    #[test]
    fn both_names_of_the_idle_time_are_one_value_and_strict_needs_some() {
        let mut s = Settings::DEFAULT;
        s.set("slice_idle_us", "1500").unwrap();
        assert_eq!(value(&s, "slice_idle"), 1);
        s.set("strict_guarantees", "1").unwrap();
        assert_eq!(value(&s, "slice_idle_us"), 8000);
    }
}
