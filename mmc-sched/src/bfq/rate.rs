//! What the device can do: its rate in the recent past and the largest budget that follows from it, and whether it
//! takes several requests at a time.
//!
//! The kernel's estimator (spec §5) starts from the rate of a fast disk, 8 to 15 times that of an SD card. This one
//! starts from nothing, or from what the caller says, and measures the time the device is busy.

use mmc_time::{Duration, Instant};

/// Largest budget while the rate is not known, in sectors (spec §4.2).
pub(crate) const DEFAULT_BUDGET: u64 = 16_384;
/// Smallest "largest budget" that a slow measurement can lead to, in sectors.
const LEAST_BUDGET: u64 = 256;
/// Requests and busy time that make one measurement.
const SAMPLES: u32 = 32;
const WINDOW: Duration = Duration::from_millis(300);
/// Farther than this from the end of the last request is not sequential, in sectors.
pub(crate) const SEEK: u64 = 800;

/// More at a time than this is queueing in the device (spec §7.4).
pub(crate) const DEEP: u32 = 3;

/// The measured rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Sectors a second; 0: not known.
    peak: u64,
    busy_since: Instant,
    busy: Duration,
    sectors: u64,
    samples: u32,
    sequential: u32,
    /// Most requests at the device since the last verdict, completions that count for the next one, and the verdict.
    most: u32,
    loaded: u32,
    queueing: Option<bool>,
}

impl Rate {
    pub(crate) const fn new() -> Self {
        Self {
            peak: 0,
            busy_since: Instant::ZERO,
            busy: Duration::ZERO,
            sectors: 0,
            samples: 0,
            sequential: 0,
            most: 0,
            loaded: 0,
            queueing: None,
        }
    }
    /// A request came back while `in_flight`, itself included, were at the device; `loaded` if more would have been
    /// there could the device take them. Each so many of those give a verdict; one that it does is final.
    pub(crate) fn depth(&mut self, in_flight: u32, loaded: bool) {
        if self.queueing == Some(true) {
            return;
        }
        self.most = self.most.max(in_flight);
        self.loaded = self.loaded.saturating_add(loaded.into());
        if self.loaded > SAMPLES {
            self.queueing = Some(self.most > DEEP);
            (self.most, self.loaded) = (0, 0);
        }
    }
    /// The device is known to take one or two requests at a time, so that it gains from waiting for the next
    /// request of a sequential stream. Not while that is not known.
    pub(crate) fn one_at_a_time(&self) -> bool {
        self.queueing == Some(false)
    }
    /// Sectors a second, 0 while not known.
    pub(crate) const fn get(&self) -> u64 {
        self.peak
    }
    /// Starts from a rate the caller knows.
    pub(crate) fn set(&mut self, sectors_per_second: u64) {
        self.peak = sectors_per_second;
    }
    /// The budget that fills a slot of `timeout`.
    pub(crate) fn budget(&self, timeout: Duration) -> u64 {
        if self.peak == 0 {
            return DEFAULT_BUDGET;
        }
        let ms = timeout.as_millis();
        self.peak.saturating_mul(ms).checked_div(1000).unwrap_or(0).clamp(LEAST_BUDGET, i32::MAX as u64)
    }

    /// A run goes out; `near`: it begins close to where the last one ended.
    pub(crate) fn dispatched(&mut self, near: bool, in_flight_before: u32, now: Instant) {
        if in_flight_before == 0 {
            self.busy_since = now;
        }
        if near {
            self.sequential = self.sequential.saturating_add(1);
        }
    }

    /// `sectors` came back, with them the last ones of a `run` or not. The time the device spent on them: since
    /// the last ones came back, or since it was given something to do.
    pub(crate) fn completed(&mut self, sectors: u32, run: bool, now: Instant) -> Duration {
        let took = now.since(self.busy_since);
        self.busy += took;
        self.busy_since = now;
        self.sectors = self.sectors.saturating_add(sectors.into());
        self.samples = self.samples.saturating_add(run.into());
        if self.samples < SAMPLES || self.busy < WINDOW {
            return took;
        }
        let ns = self.busy.as_nanos();
        let rate = self.sectors.saturating_mul(1_000_000_000).checked_div(ns).unwrap_or(0);
        let sequential = self.sequential.min(self.samples);
        // Seeks may hide what the device can do, they never show less than it can.
        let mostly = sequential.saturating_mul(4) >= self.samples.saturating_mul(3);
        if self.peak == 0 {
            self.peak = rate;
        } else if mostly || rate > self.peak {
            let weight = sequential.saturating_mul(9).checked_div(self.samples).unwrap_or(0).min(8);
            let d = u64::from(10_u32.saturating_sub(weight));
            let kept = self.peak.saturating_sub(self.peak.checked_div(d).unwrap_or(0));
            self.peak = kept.saturating_add(rate.checked_div(d).unwrap_or(0)).max(1);
        }
        (self.busy, self.sectors, self.samples, self.sequential) = (Duration::ZERO, 0, 0, 0);
        took
    }
}
