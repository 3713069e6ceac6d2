//! The random numbers of a scenario file: Python's, so that a run has the very draws of the one that was recorded.
//!
//! MT19937 seeded from an array, as CPython seeds it from an integer, and Python's way from its words to numbers.
//! Not for secrets, and no better than [`Random`](crate::scenario::Random) where nothing was recorded.

use rand_mt::Mt;

/// `random.Random(seed)`.
///
/// ```
/// use mmc_mock::mersenne::Mersenne;
///
/// // >>> random.Random(2).uniform(150, 450)
/// assert_eq!(Mersenne::new(2).uniform(150.0, 450.0), 436.810_281_566_774_8);
/// ```
#[derive(Clone, Debug)]
pub struct Mersenne(Mt);

impl Mersenne {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (low, high) = (seed as u32, (seed >> 32) as u32);
        Self(Mt::new_with_key([low, high].into_iter().take(if high == 0 { 1 } else { 2 })))
    }

    /// The next 32 bits.
    pub fn draw(&mut self) -> u32 {
        self.0.next_u32()
    }
    /// `random()`: at least 0, below 1, with 53 bits.
    pub fn unit(&mut self) -> f64 {
        let (a, b) = (self.draw() >> 5, self.draw() >> 6);
        (f64::from(a) * 67_108_864.0 + f64::from(b)) / 9_007_199_254_740_992.0
    }
    /// `uniform(from, to)`.
    pub fn uniform(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }
    /// `randrange(n)`: 0 to n − 1; 0 if n is.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        // As many bits as n has, again until they are less.
        let spare = n.leading_zeros();
        loop {
            let r = if spare >= 32 {
                u64::from(self.draw() >> (spare - 32))
            } else {
                let low = u64::from(self.draw());
                low | u64::from(self.draw() >> spare) << 32
            };
            if r < n {
                return r;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What CPython 3.11 prints for `r.getrandbits(32)`, `r.random()` and `r.randrange(n)`.
    #[test]
    fn it_draws_what_python_draws() {
        let mut r = Mersenne::new(10_001);
        let draws: Vec<u32> = (0..1000).map(|_| r.draw()).collect();
        let picked = [draws[0], draws[623], draws[624], draws[999]];
        assert_eq!(picked, [1_530_254_181, 1_038_414_683, 4_008_985_321, 1_793_179_233]);

        let mut r = Mersenne::new(5 << 32 | 7);
        assert_eq!(r.draw(), 334_492_092);
        assert_eq!(r.unit(), 0.030_324_639_159_142_963);

        let mut r = Mersenne::new(1050);
        assert_eq!([262_144; 3].map(|n| r.below(n)), [168_829, 219_550, 235_519]);
        assert_eq!(r.below(100), 44);
        assert_eq!(r.uniform(0.9, 1.1), 1.095_041_522_125_672_6);
        let wide = [3 << 33; 3].map(|n| r.below(n));
        assert_eq!(wide, [4_561_883_430, 14_734_124_852, 18_774_756_358]);
        assert_eq!((r.below(1), r.below(0)), (0, 0));
    }
}
