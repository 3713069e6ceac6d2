//! The tunables. Out of range is an error; nothing is clamped.

use crate::scheduler::{TunableInfo, TuneError};
use crate::tunable::parse;
use mmc_time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Commands the device takes: one that runs and those prepared behind it.
    pub(super) device_slots: u32,
    /// One part in so many of the time may be spent on what splitting and changing streams cost.
    pub(super) overhead_share: u32,
    /// One part in so many of the time may be spent waiting in vain.
    pub(super) idle_share: u32,
    pub(super) idle_cap: Duration,
    /// A write slot, in times of what changing to the stream costs, when a sync write waits.
    pub(super) slot_factor: u32,
    pub(super) slot_cap: Duration,
    pub(super) slot_cap_async: Duration,
    /// Sectors.
    pub(super) min_chunk: u32,
    pub(super) expire_sync: Duration,
    pub(super) expire_async: Duration,
    /// Time of all commands at a device with more than two slots.
    pub(super) window: Duration,
}

struct Row {
    name: &'static str,
    unit: &'static str,
    min: u32,
    max: u32,
    get: fn(&Settings) -> u64,
    set: fn(&mut Settings, u32),
}

const fn ms(v: u32) -> Duration {
    Duration::from_millis(v as u64)
}

const ROWS: [Row; 11] = [
    Row {
        name: "device_slots",
        unit: "commands",
        min: 1,
        max: 32,
        get: |s| s.device_slots.into(),
        set: |s, v| s.device_slots = v,
    },
    Row {
        name: "overhead_share",
        unit: "1/x",
        min: 4,
        max: 1024,
        get: |s| s.overhead_share.into(),
        set: |s, v| s.overhead_share = v,
    },
    Row {
        name: "idle_share",
        unit: "1/x",
        min: 4,
        max: 1024,
        get: |s| s.idle_share.into(),
        set: |s, v| s.idle_share = v,
    },
    Row {
        name: "idle_cap",
        unit: "us",
        min: 0,
        max: 100_000,
        get: |s| s.idle_cap.as_micros(),
        set: |s, v| s.idle_cap = Duration::from_micros(v.into()),
    },
    Row {
        name: "slot_factor",
        unit: "times",
        min: 0,
        max: 100,
        get: |s| s.slot_factor.into(),
        set: |s, v| s.slot_factor = v,
    },
    Row {
        name: "slot_cap",
        unit: "ms",
        min: 0,
        max: 10_000,
        get: |s| s.slot_cap.as_millis(),
        set: |s, v| s.slot_cap = ms(v),
    },
    Row {
        name: "slot_cap_async",
        unit: "ms",
        min: 0,
        max: 10_000,
        get: |s| s.slot_cap_async.as_millis(),
        set: |s, v| s.slot_cap_async = ms(v),
    },
    Row {
        name: "min_chunk",
        unit: "sectors",
        min: 16,
        max: 65_536,
        get: |s| s.min_chunk.into(),
        set: |s, v| s.min_chunk = v,
    },
    Row {
        name: "fifo_expire_sync",
        unit: "ms",
        min: 0,
        max: 1_000_000,
        get: |s| s.expire_sync.as_millis(),
        set: |s, v| s.expire_sync = ms(v),
    },
    Row {
        name: "fifo_expire_async",
        unit: "ms",
        min: 0,
        max: 1_000_000,
        get: |s| s.expire_async.as_millis(),
        set: |s, v| s.expire_async = ms(v),
    },
    Row {
        name: "window",
        unit: "us",
        min: 0,
        max: 1_000_000,
        get: |s| s.window.as_micros(),
        set: |s, v| s.window = Duration::from_micros(v.into()),
    },
];

impl Settings {
    pub(super) const DEFAULT: Self = Self {
        device_slots: 2,
        overhead_share: 32,
        idle_share: 64,
        idle_cap: ms(8),
        slot_factor: 10,
        slot_cap: ms(400),
        slot_cap_async: ms(1000),
        min_chunk: 256,
        expire_sync: ms(200),
        expire_async: ms(4000),
        window: ms(4),
    };

    pub(super) fn info(&self, i: usize) -> Option<TunableInfo> {
        let row = ROWS.get(i)?;
        Some(TunableInfo {
            name: row.name,
            unit: row.unit,
            min: row.min.into(),
            max: row.max.into(),
            value: i64::try_from((row.get)(self)).unwrap_or(i64::MAX),
        })
    }

    /// `slots`: the most commands there is room for.
    pub(super) fn set(&mut self, name: &str, text: &str, slots: u32) -> Result<(), TuneError> {
        let row = ROWS.iter().find(|row| row.name == name).ok_or(TuneError::Unknown)?;
        let (negative, value) = parse(text)?;
        let value = u32::try_from(value).map_err(|_| TuneError::Range)?;
        let max = if row.name == "device_slots" { row.max.min(slots) } else { row.max };
        if (negative && value != 0) || value < row.min || value > max {
            return Err(TuneError::Range);
        }
        (row.set)(self, value);
        Ok(())
    }
}
