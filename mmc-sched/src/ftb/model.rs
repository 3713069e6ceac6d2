//! What a command will take: `a + b·n`, learned from those that ended.
//!
//! It is not a model of any card: two numbers for reads, two for writes; what a change of place costs is kept
//! by the streams.

use crate::request::Op;

/// `b` counts 256ths of a nanosecond a sector.
const FINE: u64 = 256;
/// Until a small command was seen, `a` is so many sectors' worth.
const UNSEEN: u64 = 33;
/// A small command says something of `a`, a large one of `b`.
const SMALL: u32 = 64;
const LARGE: u32 = 200;
/// So many commands without a sample, and another kind of sample will do.
const PATIENCE: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Line {
    a: u64,
    b: u64,
    small_seen: bool,
    large_seen: bool,
    /// Commands since the last sample.
    age: u32,
    /// Commands since the last large sample.
    since_large: u32,
    /// A command ended; and the last one stood still.
    tried: bool,
    stalled: bool,
}

impl Line {
    const fn new(a: u64, b: u64) -> Self {
        let fine = b.saturating_mul(FINE);
        Self {
            a,
            b: fine,
            small_seen: false,
            large_seen: false,
            age: 0,
            since_large: PATIENCE,
            tried: false,
            stalled: false,
        }
    }
    fn est(&self, n: u32) -> u64 {
        self.a.saturating_add(self.b.saturating_mul(u64::from(n)) / FINE)
    }
    /// A command of `n` sectors took `m` ns.
    fn sample(&mut self, n: u32, m: u64) {
        let sectors = u64::from(n);
        if n <= SMALL {
            let half = self.b.saturating_mul(sectors) / FINE / 2;
            let a = m.saturating_sub(half).min(self.a.saturating_mul(4));
            self.a = closer(self.a, a).max(1);
            self.small_seen = true;
            self.age = 0;
        } else if n >= LARGE {
            let (rest, sectors) = if self.small_seen {
                (m.saturating_sub(self.a), sectors)
            } else {
                (m, sectors.saturating_add(UNSEEN))
            };
            let b = rest.saturating_mul(FINE).checked_div(sectors).unwrap_or(0);
            self.b = if self.large_seen { closer(self.b, b.min(self.b.saturating_mul(3))) } else { b };
            self.b = self.b.max(1);
            self.large_seen = true;
            (self.age, self.since_large) = (0, 0);
            if !self.small_seen {
                self.a = (self.b.saturating_mul(UNSEEN) / FINE).max(1);
            }
        }
    }
}

/// A sixteenth of the way from `old` to `new`, and a step at least.
fn closer(old: u64, new: u64) -> u64 {
    if new >= old {
        old.saturating_add(new.saturating_sub(old).div_ceil(16))
    } else {
        old.saturating_sub(old.saturating_sub(new).div_ceil(16))
    }
}

/// The device as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    read: Line,
    write: Line,
}

impl Model {
    /// Until something was measured: reads 1 ms and 40 MB/s, writes 13 MB/s and what so many sectors take.
    pub(super) const NEW: Self =
        Self { read: Line::new(1_000_000, 12_500), write: Line::new(40_000 * UNSEEN, 40_000) };

    /// What a command on its own will take, in ns; what an erase takes is not known beforehand.
    pub(super) fn est(&self, op: Op, n: u32) -> u64 {
        match op {
            Op::Read => self.read.est(n),
            Op::Write => self.write.est(n),
            _ => self.write.a,
        }
    }
    /// Sectors of a write that spend 1/`share` of its time on what the command itself costs.
    pub(super) fn chunk(&self, share: u32, min: u32) -> u32 {
        let times = u64::from(share.saturating_sub(1));
        let n = self.write.a.saturating_mul(times).saturating_mul(FINE).checked_div(self.write.b);
        let n = u32::try_from(n.unwrap_or(0)).unwrap_or(u32::MAX);
        n.max(min) & !15
    }
    /// How much more than expected (`est`) is the card's doing and nobody's: 64 times what a command costs by itself.
    /// While that is a guess, three times a large command; a small one may open a unit for many times its own time.
    pub(super) fn stall(&self, n: u32, est: u64) -> u64 {
        let w = &self.write;
        let guess = w.large_seen && !w.small_seen && n >= LARGE;
        let limit = if guess { est.saturating_mul(3) } else { w.a.saturating_mul(64) };
        limit.clamp(4_000_000, 128_000_000)
    }
    /// A write ended, measured or not.
    pub(super) fn tried(&self) -> bool {
        self.write.tried
    }
    /// A write was measured.
    pub(super) fn wrote(&self) -> bool {
        self.write.small_seen || self.write.large_seen
    }
    /// No large write was seen for long: what a change of place costs cannot be told from what a write costs.
    pub(super) fn blind(&self) -> bool {
        self.write.since_large >= PATIENCE
    }
    /// A command ended. `est`: what it should have taken. `first`: it came from another place than the last. `stall`:
    /// it stood still, which says nothing of commands, unless it does so twice in a row or nothing was measured yet.
    pub(super) fn learn(&mut self, op: Op, n: u32, m: u64, est: u64, first: bool, stall: bool) {
        let line = match op {
            Op::Read => &mut self.read,
            Op::Write => &mut self.write,
            _ => return,
        };
        line.tried = true;
        let again = core::mem::replace(&mut line.stalled, stall);
        if stall && !again && (line.small_seen || line.large_seen) {
            return;
        }
        line.age = line.age.saturating_add(1);
        line.since_large = line.since_large.saturating_add(1);
        let will_do = op == Op::Read && line.age > PATIENCE && m < est.saturating_mul(2);
        if !first || will_do {
            line.sample(n, m);
        }
    }
}

/// The size of the next part of `n` sectors: equal parts about as long as `chunk`, no small rest.
pub(super) fn part(n: u32, chunk: u32) -> u32 {
    let parts = n.saturating_add(chunk / 2).checked_div(chunk).unwrap_or(1);
    if parts <= 1 {
        return n;
    }
    let even = n.checked_div(parts).unwrap_or(n).saturating_add(15) & !15;
    even.min(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_a_card_of_one_millisecond_and_six_and_a_half_megabytes() {
        let mut m = Model::NEW;
        let takes = |n: u32| 1_000_000 + u64::from(n) * 78_769;
        for _ in 0..60 {
            let est = m.est(Op::Write, 1024);
            m.learn(Op::Write, 1024, takes(1024), est, false, false);
            m.learn(Op::Write, 8, takes(8), m.est(Op::Write, 8), false, false);
        }
        let (est, is) = (m.est(Op::Write, 1024), takes(1024));
        assert!(est.abs_diff(is) < is / 50, "{est} {is}");
        // 31 times 1.3 ms (half of a small command counts as setup), in sectors.
        let chunk = m.chunk(32, 256);
        assert!((400..560).contains(&chunk), "{chunk}");
    }

    #[test]
    fn the_first_large_write_counts_in_full_and_later_ones_little() {
        let mut m = Model::NEW;
        m.learn(Op::Write, 967, 100_000_000, 1, false, false);
        assert_eq!(m.est(Op::Write, 967), 100_000_000);
        m.learn(Op::Write, 967, 1_000_000_000, 1, false, true);
        assert_eq!(m.est(Op::Write, 967), 100_000_000, "it stood still");
        m.learn(Op::Write, 967, 1_000_000_000, 1, false, true);
        assert!(
            m.est(Op::Write, 967) < 113_000_000,
            "twice in a row it is its pace, clipped at three times: an eighth more"
        );
    }

    #[test]
    fn random_reads_teach_only_when_nothing_else_does() {
        let mut m = Model::NEW;
        let est = m.est(Op::Read, 8);
        for n in 0..80 {
            m.learn(Op::Read, 8, est + est / 2, est, true, false);
            assert_eq!(m.est(Op::Read, 8) > est, n >= 64, "{n}");
        }
    }

    #[test]
    fn parts_are_even() {
        assert_eq!(part(1024, 1008), 1024);
        assert_eq!(part(1024, 400), 352, "three, not two and a rest");
        assert_eq!(part(672, 400), 336);
        assert_eq!(part(336, 400), 336);
        assert_eq!(part(2048, 1008), 1024);
        assert_eq!(part(5, 16), 5);
        for n in 1..3000 {
            let mut left = n;
            while left > 0 {
                let p = part(left, 256);
                assert!(p >= 1 && p <= left && (p == left || p >= 192), "{p} of {left}");
                left -= p;
            }
        }
    }
}
