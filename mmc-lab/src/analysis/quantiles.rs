//! Latencies of any number of bios in bounded memory: each one at first, then how many lie in each narrow range.

use super::class::ClassStats;

/// So many are kept each.
const EXACT: usize = 1 << 18;
/// Beyond that an octave has this many ranges: a value is known within one part in 2048.
const RANGES: u64 = 1024;

/// Latencies being collected, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantiles {
    exact: Vec<u64>,
    /// Counts by [`range`]; empty while all are kept.
    ranges: Vec<u64>,
    count: u64,
    max: u64,
    sum: u64,
}

impl Quantiles {
    pub(crate) fn push(&mut self, ns: u64) {
        self.count += 1;
        self.max = self.max.max(ns);
        self.sum = self.sum.saturating_add(ns);
        if self.ranges.is_empty() {
            self.exact.push(ns);
            if self.exact.len() >= EXACT {
                self.ranges = vec![0; range(u64::MAX) + 1];
                for ns in std::mem::take(&mut self.exact) {
                    self.tally(ns);
                }
            }
        } else {
            self.tally(ns);
        }
    }

    fn tally(&mut self, ns: u64) {
        if let Some(count) = self.ranges.get_mut(range(ns)) {
            *count += 1;
        }
    }

    /// Of all of them together; saturates.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    pub(crate) fn into_stats(mut self) -> ClassStats {
        if self.ranges.is_empty() {
            return ClassStats::of(&mut self.exact);
        }
        let at = |share: u64| {
            let mut left = (u128::from(self.count) * u128::from(share) / 10_000) as u64;
            let found = self.ranges.iter().position(|&n| {
                let here = left < n;
                left = left.saturating_sub(n);
                here
            });
            Some(found.map_or(self.max, middle).min(self.max))
        };
        ClassStats {
            n: self.count,
            p50: at(5000),
            p99: at(9900),
            max: Some(self.max),
            p999: at(9990),
            p9999: at(9999),
        }
    }
}

/// The range that holds `ns`: below two times [`RANGES`] each value has its own, above an octave has [`RANGES`].
fn range(ns: u64) -> usize {
    let octave = u64::from(ns.max(RANGES).ilog2() - RANGES.ilog2());
    (octave * RANGES + (ns >> octave)) as usize
}

/// The value in the middle of a range.
fn middle(range: usize) -> u64 {
    let range = range as u64;
    let octave = (range / RANGES).saturating_sub(1);
    let first = (range - octave * RANGES) << octave;
    first + ((1 << octave) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_middle_and_is_narrow() {
        for ns in
            (0..64).flat_map(|bit| [1_u64 << bit, (1_u64 << bit) + 1, (1_u64 << bit) - 1]).chain([u64::MAX])
        {
            let middle = middle(range(ns));
            assert_eq!(range(middle), range(ns), "{ns}");
            assert!(middle.abs_diff(ns) <= ns / 2048 + 1, "{ns}: {middle}");
        }
        assert!((0..5000).is_sorted_by(|a, b| range(*a) <= range(*b)));
    }

    #[test]
    fn many_give_what_a_few_give_within_a_thousandth() {
        let values = |n: u64| (0..n).map(move |i| i.wrapping_mul(0x9e37_79b9) % 1_000_003 * 1000);
        let n = EXACT as u64 * 2;
        let (mut all, mut quantiles): (Vec<u64>, _) = (values(n).collect(), Quantiles::default());
        values(n).for_each(|ns| quantiles.push(ns));
        assert!(quantiles.exact.is_empty());
        let (exact, coarse) = (ClassStats::of(&mut all), quantiles.into_stats());
        assert_eq!((coarse.n, coarse.max), (exact.n, exact.max));
        for (a, b) in [(coarse.p50, exact.p50), (coarse.p99, exact.p99), (coarse.p9999, exact.p9999)] {
            assert!(a.unwrap().abs_diff(b.unwrap()) <= b.unwrap() / 1000, "{a:?} {b:?}");
        }
    }
}
