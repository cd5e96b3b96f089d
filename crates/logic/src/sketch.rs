//! Quantiles of durations in 512 bytes, mergeable, with a bounded relative error.
//!
//! Log-linear buckets over nanoseconds: four per octave between 1 µs and 2^32 µs (71 minutes), so a
//! quantile is at most 25 % too high. Integers only, so replay is bit-exact.
//!
//! Invariant: the bucket counts always sum to `count()`.

use core::time::Duration;

use crate::buckets::{bucket_of, first_of};

/// Buckets per octave, as a power of two.
const SUB_BITS: u32 = 2;
/// Number of buckets.
pub const BUCKETS: usize = 128;

/// Durations, counted in buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    counts: [u32; BUCKETS],
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

/// First microsecond that lies **above** bucket `index`.
#[must_use]
pub const fn upper_bound_us(index: usize) -> u64 {
    first_of::<SUB_BITS>(index + 1)
}

impl Sketch {
    /// Counts one duration.
    pub fn record(&mut self, d: Duration) {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of::<SUB_BITS>(ns / 1_000).min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine = mine.saturating_add(theirs);
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many durations were counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The longest, exactly.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// Count per bucket; bucket `i` ends below [`upper_bound_us`]`(i)`.
    #[must_use]
    pub const fn counts(&self) -> &[u32; BUCKETS] {
        &self.counts
    }

    /// The duration below which a share of `per_mille` / 1000 lies, rounded up to its bucket's end
    /// but never above the maximum. `None` when empty.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let rank = (self.count * per_mille.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (i, n) in self.counts.iter().enumerate() {
            seen += u64::from(*n);
            if seen >= rank {
                return Some(Duration::from_micros(upper_bound_us(i)).min(self.max()));
            }
        }
        Some(self.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_an_eighth() {
        let mut s = Sketch::default();
        for ms in 1..=1000 {
            s.record(Duration::from_millis(ms));
        }
        for (q, exact_ms) in [(500, 500.0), (950, 950.0), (990, 990.0)] {
            let got = s.quantile(q).map_or(0.0, |d| d.as_secs_f64() * 1e3);
            assert!((got / exact_ms - 1.0).abs() <= 0.25, "{q}: {got}");
        }
        assert_eq!(s.quantile(1000), Some(Duration::from_secs(1)));
        assert_eq!(s.count(), 1000);
        s.record(Duration::MAX);
        assert_eq!(s.counts()[BUCKETS - 1], 1);
    }

    #[test]
    fn merging_equals_counting_together() {
        let (mut a, mut b, mut both) = (Sketch::default(), Sketch::default(), Sketch::default());
        for i in 0..500_u64 {
            let d = Duration::from_micros(i * i);
            if i % 3 == 0 {
                a.record(d)
            } else {
                b.record(d)
            }
            both.record(d);
        }
        a.merge(&b);
        assert_eq!(a, both);
    }
}
