//! Weight raising, what `low_latency` = 1 switches on: streams that look interactive or like soft real time get
//! 30 or 3000 times their weight for a while (spec §10, as the kernels of 2018 had it; bursts are left out).

use mmc_time::{Duration, Instant};

/// Weight factor of an interactive stream.
const INTERACTIVE: u32 = 30;
/// Weight factor of a soft real-time stream.
const SOFT_RT: u32 = 3000;
/// A stream that was idle for longer is interactive when it comes back. Every new stream is.
pub(crate) const LONG_IDLE: Duration = Duration::from_secs(2);
/// A busy async stream whose requests come further apart than this is raised too.
const ASYNC_GAP: Duration = Duration::from_millis(500);
/// Soft real time is granted for this long, again with every request that comes in time.
const SOFT_RT_TIME: Duration = Duration::from_millis(300);
/// Highest rate of a soft real-time stream, in sectors a second.
const SOFT_RT_RATE: u64 = 7000;
/// Interactive raising ends after this many sectors.
const SERVICE_CAP: u64 = 120_000;
/// How long a stream stays interactive: what the kernel begins with. There it grows as its estimate of the rate
/// comes down from that of a fast disk, to 25 s at most; what was measured of its code looks as if it did not.
const INTERACTIVE_TIME: Duration = Duration::from_millis(3750);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Not,
    Interactive,
    SoftRt,
}

/// What is known when an empty stream gets a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wake {
    /// Sync, of default weight, best effort.
    pub(crate) eligible: bool,
    /// Nothing queued and nothing in flight for more than [`LONG_IDLE`], or new.
    pub(crate) long_idle: bool,
    /// Nothing in flight.
    pub(crate) quiet: bool,
    /// Its last 32 requests were all far apart and small.
    pub(crate) totally_seeky: bool,
}

/// The raising of one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raise {
    kind: Kind,
    /// Start of the raising, or last request while not raised.
    since: Instant,
    /// Start of the interactive period that soft real time replaced.
    replaced: Option<Instant>,
    /// Sectors served while interactive.
    served: u64,
    /// Not before this a request counts as soft real time.
    soft_next: Instant,
    woke: Instant,
    served_since_woke: u64,
}

impl Raise {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            kind: Kind::Not,
            since: now,
            replaced: None,
            served: 0,
            soft_next: now,
            woke: now,
            served_since_woke: 0,
        }
    }
    /// Factor of the weight: 1, 30 or 3000.
    pub(crate) const fn coefficient(&self) -> u32 {
        match self.kind {
            Kind::Not => 1,
            Kind::Interactive => INTERACTIVE,
            Kind::SoftRt => SOFT_RT,
        }
    }
    pub(crate) const fn is_raised(&self) -> bool {
        !matches!(self.kind, Kind::Not)
    }
    /// Factor of the slot's time limit: only interactive streams get more.
    pub(crate) const fn time_factor(&self) -> u32 {
        if matches!(self.kind, Kind::Interactive) { INTERACTIVE } else { 1 }
    }
    /// Ends it at once.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.kind = Kind::Not;
        self.replaced = None;
        self.since = now;
    }

    /// An empty stream got a request.
    pub(crate) fn woken(&mut self, w: Wake, now: Instant) {
        let interactive = w.eligible && w.long_idle;
        let soft = w.eligible && w.quiet && !w.totally_seeky && now > self.soft_next;
        match self.kind {
            Kind::Not if interactive => self.interactive(now),
            Kind::Not if soft => {
                self.kind = Kind::SoftRt;
                self.replaced = None;
                self.since = now;
            }
            Kind::Not => self.since = now,
            _ if interactive => self.interactive(now),
            _ if soft => {
                if self.kind == Kind::Interactive {
                    self.replaced = Some(self.since);
                }
                self.kind = Kind::SoftRt;
                self.since = now;
            }
            _ => {}
        }
        self.woke = now;
        self.served_since_woke = 0;
    }
    fn interactive(&mut self, now: Instant) {
        self.kind = Kind::Interactive;
        self.replaced = None;
        self.served = 0;
        self.since = now;
    }

    /// A busy stream got a request. This is the rule that hits writeback which was held back for half a second.
    pub(crate) fn more(&mut self, is_async: bool, now: Instant) {
        if self.kind == Kind::Not {
            if is_async && now.since(self.since) > ASYNC_GAP {
                self.interactive(now);
            }
            self.since = now;
        }
    }

    /// It was charged `sectors`.
    pub(crate) fn served(&mut self, sectors: u64, now: Instant) {
        self.served_since_woke = self.served_since_woke.saturating_add(sectors);
        match self.kind {
            Kind::Not => {}
            Kind::Interactive => {
                self.served = self.served.saturating_add(sectors);
                if now.since(self.since) > INTERACTIVE_TIME || self.served > SERVICE_CAP {
                    self.stop(now);
                }
            }
            Kind::SoftRt if now.since(self.since) > SOFT_RT_TIME => match self.replaced.take() {
                Some(start) if now.since(start) <= INTERACTIVE_TIME => {
                    self.kind = Kind::Interactive;
                    self.since = start;
                }
                _ => self.stop(now),
            },
            Kind::SoftRt => {}
        }
    }

    /// Its slot began after it waited for the device: soft real time does not run while it waits.
    pub(crate) fn slot_began(&mut self, waited: Duration) {
        if self.kind == Kind::SoftRt {
            self.since += waited;
        }
    }
    /// Its slot ended.
    pub(crate) fn slot_ended(&mut self, now: Instant) {
        if self.kind == Kind::Not {
            self.since = now;
        }
    }
    /// It is empty and nothing of it is in flight: from when on the next request counts as soft real time.
    pub(crate) fn drained(&mut self, slice_idle: Duration, now: Instant) {
        let ns = self.served_since_woke.saturating_mul(1_000_000_000).checked_div(SOFT_RT_RATE);
        let by_rate = self.woke + Duration::from_nanos(ns.unwrap_or(0));
        let by_pause = now + slice_idle + Duration::from_millis(4);
        self.soft_next = by_rate.max(by_pause).max(self.soft_next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_real_time_inside_an_interactive_period_falls_back_to_it() {
        let at = Instant::from_millis;
        let wake = Wake { eligible: true, long_idle: true, quiet: true, totally_seeky: false };
        let mut r = Raise::new(at(0));
        r.woken(wake, at(1));
        assert_eq!((r.coefficient(), r.time_factor()), (30, 30));
        r.woken(Wake { long_idle: false, ..wake }, at(500));
        assert_eq!((r.coefficient(), r.time_factor()), (3000, 1));
        r.served(8, at(900));
        assert_eq!(r.coefficient(), 30);
        r.served(8, at(3751));
        assert_eq!(r.coefficient(), 30, "3.75 s from its beginning");
        r.served(8, at(3752));
        assert!(!r.is_raised());
    }

    #[test]
    fn soft_real_time_needs_a_low_rate_and_a_pause() {
        let at = Instant::from_millis;
        let wake = Wake { eligible: true, long_idle: false, quiet: true, totally_seeky: false };
        let raised_at = |ms, served| {
            let mut r = Raise::new(at(0));
            r.woken(Wake { eligible: false, ..wake }, at(1000));
            r.served(served, at(1000));
            r.drained(Duration::from_millis(8), at(1001));
            r.woken(wake, at(ms));
            r.is_raised()
        };
        assert!(!raised_at(1010, 8), "12 ms after it was drained at the earliest");
        assert!(raised_at(1014, 8));
        assert!(!raised_at(1290, 2048), "2048 sectors at 7000 a second are 292 ms");
        assert!(raised_at(1294, 2048));
    }
}
