//! What commands cost: the model of `spec/card-timing.md` (open allocation units, merges, stalls, cache).
//!
//! It knows nothing of wires: a [`Service`] is the time from the arrival of a data command until the card is ready
//! for the next one, were the wire infinitely fast.

use crate::storage::Storage;
use mmc_time::Duration;
use std::collections::VecDeque;

/// The numbers of one card. 1 MB is 10⁶ bytes here, as in the table they come from; 1 MiB is 2²⁰.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Command, response and the card's own overhead, once per command (per piece of a write).
    pub cmd: Duration,
    /// A read that does not continue the last one, until its first data.
    pub rd_access: Duration,
    /// A read that does.
    pub rd_seq: Duration,
    /// Streaming read, bytes per second; 0: no limit.
    pub rd_bps: u64,
    /// Streaming program, bytes per second; 0: no limit.
    pub wr_bps: u64,
    /// A write that continues where its allocation unit was left (or starts one).
    pub wr_seq: Duration,
    /// A write somewhere else in its allocation unit.
    pub wr_rand: Duration,
    /// Allocation unit (erase-block group) in sectors, at least 1.
    pub au: u64,
    /// Allocation units the card keeps open, at least 1.
    pub open: usize,
    /// Copying the unwritten rest of an evicted unit, bytes per second; 0: no limit.
    pub copy_bps: u64,
    /// Erasing one allocation unit.
    pub erase: Duration,
    /// Chance of an extra pause per write (per piece), 0…1.
    pub stall_p: f64,
    /// Shortest pause.
    pub stall_min: Duration,
    /// Longest pause; pauses are log-uniform between the two.
    pub stall_max: Duration,
    /// Bytes of volatile cache that a flush may have to write out; 0: no cache, a flush is free.
    pub cache: u64,
}

/// No preset has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no card preset is called `{0}`; there are slow2018, cheap, a1, a2 and ideal")]
pub struct UnknownProfile(pub String);

impl Profile {
    /// The names [`Profile::named`] knows: the presets of `spec/card-timing.md`, and `ideal`.
    pub const NAMES: [&'static str; 5] = ["slow2018", "cheap", "a1", "a2", "ideal"];

    /// A preset by name.
    ///
    /// # Errors
    /// [`UnknownProfile`] for any other name; its text lists the accepted ones.
    pub fn named(name: &str) -> Result<Self, UnknownProfile> {
        match name {
            "slow2018" => Ok(Self::slow2018()),
            "cheap" => Ok(Self::cheap()),
            "a1" => Ok(Self::a1()),
            "a2" => Ok(Self::a2()),
            "ideal" => Ok(Self::ideal()),
            _ => Err(UnknownProfile(name.to_owned())),
        }
    }
    /// The card of the measured runs.
    #[must_use]
    pub const fn slow2018() -> Self {
        Self {
            cmd: Duration::from_micros(250),
            rd_access: Duration::from_micros(750),
            rd_seq: Duration::from_micros(250),
            rd_bps: 18_000_000,
            wr_bps: 6_500_000,
            wr_seq: Duration::from_micros(1000),
            wr_rand: Duration::from_micros(4000),
            au: 8192,
            open: 6,
            copy_bps: 25_000_000,
            erase: Duration::from_millis(5),
            stall_p: 0.002,
            stall_min: Duration::from_millis(40),
            stall_max: Duration::from_millis(400),
            cache: 0,
        }
    }
    /// A card without a name.
    #[must_use]
    pub const fn cheap() -> Self {
        Self {
            cmd: Duration::from_micros(300),
            rd_access: Duration::from_micros(1000),
            rd_seq: Duration::from_micros(300),
            rd_bps: 15_000_000,
            wr_bps: 8_000_000,
            wr_seq: Duration::from_micros(1500),
            wr_rand: Duration::from_micros(6000),
            au: 8192,
            open: 2,
            copy_bps: 20_000_000,
            erase: Duration::from_millis(5),
            stall_p: 0.004,
            stall_min: Duration::from_millis(50),
            stall_max: Duration::from_millis(500),
            cache: 0,
        }
    }
    /// An application class 1 card.
    #[must_use]
    pub const fn a1() -> Self {
        Self {
            cmd: Duration::from_micros(80),
            rd_access: Duration::from_micros(350),
            rd_seq: Duration::from_micros(100),
            rd_bps: 45_000_000,
            wr_bps: 18_000_000,
            wr_seq: Duration::from_micros(400),
            wr_rand: Duration::from_micros(1200),
            au: 8192,
            open: 32,
            copy_bps: 60_000_000,
            erase: Duration::from_millis(3),
            stall_p: 0.001,
            stall_min: Duration::from_millis(20),
            stall_max: Duration::from_millis(150),
            cache: 0,
        }
    }
    /// An application class 2 or eMMC-like card: a proposal that was not measured. The size of its cache is not in
    /// the table; 1 MiB is this crate's choice.
    #[must_use]
    pub const fn a2() -> Self {
        Self {
            cmd: Duration::from_micros(50),
            rd_access: Duration::from_micros(150),
            rd_seq: Duration::from_micros(50),
            rd_bps: 90_000_000,
            wr_bps: 40_000_000,
            wr_seq: Duration::from_micros(150),
            wr_rand: Duration::from_micros(300),
            au: 8192,
            open: 64,
            copy_bps: 150_000_000,
            erase: Duration::from_millis(3),
            stall_p: 0.0005,
            stall_min: Duration::from_millis(10),
            stall_max: Duration::from_millis(100),
            cache: 1 << 20,
        }
    }
    /// A card that takes no time at all: only the wire costs.
    #[must_use]
    pub const fn ideal() -> Self {
        Self {
            cmd: Duration::ZERO,
            rd_access: Duration::ZERO,
            rd_seq: Duration::ZERO,
            rd_bps: 0,
            wr_bps: 0,
            wr_seq: Duration::ZERO,
            wr_rand: Duration::ZERO,
            au: 8192,
            open: 1,
            copy_bps: 0,
            erase: Duration::ZERO,
            stall_p: 0.0,
            stall_min: Duration::ZERO,
            stall_max: Duration::ZERO,
            cache: 0,
        }
    }
}

/// What one data command costs, from its arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Everything, the next two included.
    pub total: Duration,
    /// Of it, merging evicted allocation units.
    pub merge: Duration,
    /// Of it, pauses.
    pub stall: Duration,
}

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Read commands.
    pub reads: u64,
    /// Bytes they read.
    pub read_bytes: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes they wrote.
    pub write_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Evicted allocation units that were merged.
    pub merges: u64,
    /// Time spent on that.
    pub merge_time: Duration,
    /// Pauses.
    pub stalls: u64,
    /// Time spent on them.
    pub stall_time: Duration,
    /// Sum of all services.
    pub busy: Duration,
    /// The longest service.
    pub longest: Duration,
}

/// One open allocation unit.
#[derive(Clone, Copy, Debug)]
struct Open {
    au: u64,
    /// The sector that would continue it.
    next: u64,
    /// Sectors written into it since it was opened (rewrites count again).
    written: u64,
}

/// The state that makes the next command cheap or dear.
///
/// Sectors at and above [`Storage::MAX_SECTORS`], which no card has, are not counted.
#[derive(Clone, Debug)]
pub struct Timing {
    profile: Profile,
    rng: SplitMix64,
    /// Least recently written first.
    open: VecDeque<Open>,
    last_read_end: u64,
    last_was_read: bool,
    dirty: u64,
    stats: Stats,
}

impl Timing {
    /// A fresh card; `seed` decides its pauses, nothing else.
    #[must_use]
    pub fn new(profile: Profile, seed: u64) -> Self {
        Self {
            profile: Profile { au: profile.au.max(1), open: profile.open.max(1), ..profile },
            rng: SplitMix64(seed),
            open: VecDeque::new(),
            last_read_end: 0,
            last_was_read: true,
            dirty: 0,
            stats: Stats::default(),
        }
    }
    /// The numbers it runs on.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }
    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }
    /// Overhead and access time of a read at sector `start` that came now: until its first byte.
    #[must_use]
    pub fn read_access(&self, start: u64) -> Duration {
        let p = &self.profile;
        let continues = start == self.last_read_end && self.last_was_read;
        p.cmd + if continues { p.rd_seq } else { p.rd_access }
    }
    /// Time to stream `bytes` out of the card.
    #[must_use]
    pub fn read_stream(&self, bytes: u64) -> Duration {
        span(bytes, self.profile.rd_bps)
    }
    /// A read of `sectors` sectors from `start` on ends.
    pub fn read(&mut self, start: u64, sectors: u64) -> Service {
        let (start, sectors) = clamp(start, sectors);
        let total = self.read_access(start) + self.read_stream(sectors * 512);
        (self.last_read_end, self.last_was_read) = (start + sectors, true);
        self.stats.reads += 1;
        self.stats.read_bytes += sectors * 512;
        self.account(Service { total, ..Service::default() })
    }
    /// A write of `sectors` sectors from `start` on. It is split at borders of allocation units; each piece pays
    /// for itself, may evict the least recently written unit, and may bring a pause.
    pub fn write(&mut self, start: u64, sectors: u64) -> Service {
        let (start, sectors) = clamp(start, sectors);
        let mut s = Service::default();
        let (mut at, end) = (start, start + sectors);
        while at < end {
            let au = at / self.profile.au;
            let stop = end.min((au + 1) * self.profile.au);
            let mut unit = self.open(au, &mut s);
            let p = &self.profile;
            s.total += p.cmd + if at == unit.next { p.wr_seq } else { p.wr_rand };
            s.total += span((stop - at) * 512, p.wr_bps);
            unit.next = stop;
            unit.written += stop - at;
            self.open.push_back(unit);
            let stall = self.stall();
            s.total += stall;
            s.stall += stall;
            at = stop;
        }
        self.last_was_read = false;
        self.dirty = (self.dirty + sectors * 512).min(self.profile.cache);
        self.stats.writes += 1;
        self.stats.write_bytes += sectors * 512;
        self.account(s)
    }
    /// Writes the cache out; free for a card without one.
    pub fn flush(&mut self) -> Service {
        let p = &self.profile;
        let total = if p.cache == 0 { Duration::ZERO } else { p.cmd + span(self.dirty, p.wr_bps) };
        self.dirty = 0;
        self.stats.flushes += 1;
        self.account(Service { total, ..Service::default() })
    }
    /// Erasing `sectors` sectors from `start` on: overhead and [`Profile::erase`] for each allocation unit
    /// touched. (The table of `spec/card-timing.md` says nothing of CMD38; a card's SSR here promises the same.)
    #[must_use]
    pub fn erase(&self, start: u64, sectors: u64) -> Duration {
        let (p, (start, sectors)) = (&self.profile, clamp(start, sectors));
        let last = start + sectors.saturating_sub(1);
        p.cmd + p.erase.saturating_mul(last / p.au - start / p.au + 1)
    }

    /// Takes unit `au` out of the open set, opening it (and closing another) where it is not in it.
    fn open(&mut self, au: u64, s: &mut Service) -> Open {
        if let Some(i) = self.open.iter().position(|o| o.au == au)
            && let Some(unit) = self.open.remove(i)
        {
            return unit;
        }
        if self.open.len() >= self.profile.open
            && let Some(victim) = self.open.pop_front()
        {
            let rest = self.profile.au.saturating_sub(victim.written);
            let merge = span(rest * 512, self.profile.copy_bps) + self.profile.erase;
            s.total += merge;
            s.merge += merge;
            self.stats.merges += 1;
            self.stats.merge_time += merge;
        }
        Open { au, next: au * self.profile.au, written: 0 }
    }
    fn stall(&mut self) -> Duration {
        let p = &self.profile;
        if p.stall_p <= 0.0 || self.rng.unit() >= p.stall_p {
            return Duration::ZERO;
        }
        let (min, max) = (p.stall_min.as_nanos().max(1) as f64, p.stall_max.as_nanos().max(1) as f64);
        let stall = Duration::from_nanos((min * (max / min).powf(self.rng.unit())) as u64);
        self.stats.stalls += 1;
        self.stats.stall_time += stall;
        stall
    }
    fn account(&mut self, s: Service) -> Service {
        self.stats.busy += s.total;
        self.stats.longest = self.stats.longest.max(s.total);
        s
    }
}

/// The part of a range that a card can have.
fn clamp(start: u64, sectors: u64) -> (u64, u64) {
    let start = start.min(Storage::MAX_SECTORS);
    (start, sectors.min(Storage::MAX_SECTORS - start))
}

/// `bytes` at `bps` bytes per second, rounded to the nearest nanosecond.
fn span(bytes: u64, bps: u64) -> Duration {
    if bps == 0 {
        return Duration::ZERO;
    }
    let (bytes, bps) = (u128::from(bytes), u128::from(bps));
    let ns = (bytes * 1_000_000_000 + bps / 2) / bps;
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Steele, Lea and Flood's generator: 64 bits of state, good enough to decide pauses, the same everywhere.
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Uniform in 0…1, 1 excluded.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_published_sequence() {
        // First outputs for seed 1234567, as published with the reference implementation.
        let mut r = SplitMix64(1_234_567);
        assert_eq!(r.next(), 6_457_827_717_110_365_317);
        assert_eq!(r.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_flush_costs_the_dirty_cache_and_nothing_without_one() {
        let mut t = Timing::new(Profile { stall_p: 0.0, ..Profile::a2() }, 1);
        t.write(0, 800);
        assert_eq!(t.flush().total, Duration::from_micros(50 + 10_240));
        assert_eq!(t.flush().total, Duration::from_micros(50));
        t.write(0, 8192);
        assert_eq!(
            t.flush().total,
            Duration::from_nanos(50_000 + 26_214_400),
            "no more than the cache holds"
        );
        let mut plain = Timing::new(Profile::slow2018(), 1);
        plain.write(0, 800);
        assert_eq!(plain.flush().total, Duration::ZERO);
    }

    #[test]
    fn ranges_that_no_card_has_are_cut_and_harm_nothing() {
        let mut t = Timing::new(Profile { au: 0, open: 0, ..Profile::slow2018() }, 1);
        assert_eq!(t.write(u64::MAX, 4).total, Duration::ZERO);
        t.write((1 << 38) - 2, u64::MAX);
        t.read(u64::MAX, u64::MAX);
        let _ = t.erase(u64::MAX, u64::MAX);
        assert_eq!((t.stats().write_bytes, t.stats().read_bytes), (1024, 0));
    }

    #[test]
    fn an_unknown_preset_is_refused_with_the_list() {
        for name in Profile::NAMES {
            assert!(Profile::named(name).is_ok());
            assert!(Profile::named("slow2081").unwrap_err().to_string().contains(name));
        }
    }
}
