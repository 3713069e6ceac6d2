//! The random numbers of a scenario file: Python's, so that a run has the very draws of the one that was recorded.
//!
//! MT19937 as published by Matsumoto and Nishimura (1998), seeded from an array as CPython seeds it from an integer.
//! Not for secrets, and no better than [`Random`](crate::scenario::Random) where nothing was recorded.

const N: usize = 624;
const M: usize = 397;

/// `random.Random(seed)`.
///
/// ```
/// use mmc_mock::mersenne::Mersenne;
///
/// // >>> random.Random(2).uniform(150, 450)
/// assert_eq!(Mersenne::new(2).uniform(150.0, 450.0), 436.810_281_566_774_8);
/// ```
#[derive(Clone, Debug)]
pub struct Mersenne {
    state: [u32; N],
    at: usize,
}

impl Mersenne {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (low, high) = (seed as u32, (seed >> 32) as u32);
        let key: &[u32] = if high == 0 { &[low] } else { &[low, high] };
        let mut s = [0u32; N];
        s[0] = 19_650_218;
        for i in 1..N {
            s[i] = (s[i - 1] ^ (s[i - 1] >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        let mut i = 1;
        let mut mix = |times: usize, factor: u32, add: &dyn Fn(usize, usize) -> u32| {
            for k in 0..times {
                let last = s[i - 1];
                s[i] = (s[i] ^ (last ^ (last >> 30)).wrapping_mul(factor)).wrapping_add(add(k, i));
                i += 1;
                if i == N {
                    s[0] = s[N - 1];
                    i = 1;
                }
            }
        };
        mix(N, 1_664_525, &|k, _| key[k % key.len()].wrapping_add((k % key.len()) as u32));
        mix(N - 1, 1_566_083_941, &|_, i| (i as u32).wrapping_neg());
        s[0] = 1 << 31;
        Self { state: s, at: N }
    }

    /// The next 32 bits.
    pub fn draw(&mut self) -> u32 {
        if self.at == N {
            self.at = 0;
            for i in 0..N {
                let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
                let odd = if y & 1 == 0 { 0 } else { 0x9908_b0df };
                self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
            }
        }
        let mut y = self.state[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
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
