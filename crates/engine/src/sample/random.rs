//! Draws that are the same on every machine.
//!
//! splitmix64 (Steele, Lea and Flood 2014): a counter and a finaliser, 64 bits of state.
//!
//! Invariant: the same seed gives the same row, whatever the platform and the release.

/// From one number's state to the next one's.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A row of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// The row of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The row after so many numbers more.
    #[must_use]
    pub const fn after(&self, numbers: u32) -> Self {
        Self(self.0.wrapping_add((numbers as u64).wrapping_mul(STEP)))
    }

    /// 64 bits, each as likely as not.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Uniform in `[0, 1)`, as fine as the type.
    #[expect(clippy::cast_precision_loss, reason = "24 bits fit")]
    pub const fn uniform(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1_u32 << 24) as f32
    }

    /// Uniform in `[0, 1)`, as fine as the type.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub const fn uniform_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_is_the_published_one() {
        // The reference implementation's first numbers for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let row = [(); 3].map(|()| random.next_u64());
        assert_eq!(Random::new(1_234_567).after(2).next_u64(), row[2]);
        assert_eq!(row, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn uniform_numbers_are_below_one() {
        let mut random = Random::new(7);
        let mean =
            (0..10_000).map(|_| random.uniform()).inspect(|n| assert!((0.0..1.0).contains(n))).sum::<f32>();
        assert!((mean / 10_000.0 - 0.5).abs() < 0.02);
    }
}
