//! Quantiles of what took how long lately, by a histogram that forgets.
//!
//! Buckets are log-linear over microseconds, sixteen to an octave, and a quantile lies within its bucket by
//! interpolation: exact to a few percent at most, which [`crate::sketch`] with its four is not. Each new
//! sample weighs a little more than the one before, so that the last of them count ([`WINDOW`], unless it is told
//! otherwise) and what lies further back fades.
//!
//! Invariant: a quantile never falls when its share rises, and is `None` only before the first sample.

use core::time::Duration;

use crate::buckets;

/// Samples that count unless said otherwise; older ones fade.
pub const WINDOW: f32 = 1_000.0;
/// Buckets to an octave, as a power of two.
const SUB_BITS: u32 = 4;
/// Up to 2^32 µs.
const BUCKETS: usize = ((32 - SUB_BITS as usize) + 1) << SUB_BITS;
/// Weight of a sample at which all are made lighter.
const WEIGHT_MAX: f32 = 1e4;

/// A histogram that forgets.
#[derive(Clone, Debug)]
pub struct Live {
    weights: [f32; BUCKETS],
    total: f32,
    window: f32,
    /// Of the next sample.
    weight: f32,
    count: u64,
}

impl Default for Live {
    fn default() -> Self {
        Self::new(WINDOW)
    }
}

impl Live {
    /// No samples yet; the last `window` will count.
    #[must_use]
    pub const fn new(window: f32) -> Self {
        Self { weights: [0.0; BUCKETS], total: 0.0, window, weight: 1.0, count: 0 }
    }

    /// Something took so long.
    pub fn record(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.weights[bucket_of(us)] += self.weight;
        self.total += self.weight;
        self.count += 1;
        self.weight_next(self.weight * (1.0 + 1.0 / self.window));
    }

    /// What is known shall count for no more than so many samples beside those that come.
    pub fn fade(&mut self, samples_max: f32) {
        if self.evidence() > samples_max {
            self.weight_next(self.total / samples_max.max(f32::MIN_POSITIVE));
        }
    }

    /// Samples that what is known counts for beside the next one: at most about the window.
    #[must_use]
    pub fn evidence(&self) -> f32 {
        self.total / self.weight
    }

    fn weight_next(&mut self, weight: f32) {
        self.weight = weight;
        if weight > WEIGHT_MAX {
            self.weights.iter_mut().for_each(|other| *other /= weight);
            self.total = self.weights.iter().sum();
            self.weight = 1.0;
        }
    }

    /// How many there have been, faded ones included.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// What a share of `quantile` (0 to 1) took no longer than. `None` before the first sample.
    #[must_use]
    pub fn quantile(&self, quantile: f32) -> Option<Duration> {
        let rank = self.total * quantile.clamp(0.0, 1.0);
        let (mut below, mut last) = (0.0, None);
        for (bucket, weight) in self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            let (from, to) = bounds_us(bucket);
            if below + weight >= rank {
                let way = ((rank - below) / weight).clamp(0.0, 1.0);
                return Some(micros(from + (to - from) * way));
            }
            below += weight;
            last = Some(micros(to));
        }
        // Sums of floats may differ by what rounding took.
        last
    }

    /// The share (0 to 1) of what took longer than `than`.
    #[must_use]
    pub fn share_above(&self, than: Duration) -> f32 {
        if self.total <= 0.0 {
            return 0.0;
        }
        let bucket = bucket_of(u64::try_from(than.as_micros()).unwrap_or(u64::MAX));
        let (from, to) = bounds_us(bucket);
        let within = (than.as_secs_f32() * 1e6 - from) / (to - from);
        let below: f32 = self.weights[..bucket].iter().sum();
        (1.0 - (below + self.weights[bucket] * within.clamp(0.0, 1.0)) / self.total).clamp(0.0, 1.0)
    }
}

fn micros(us: f32) -> Duration {
    Duration::from_secs_f64(f64::from(us) / 1e6)
}

/// The bucket that holds `us`; what takes longer than all of them lies in the last.
fn bucket_of(us: u64) -> usize {
    buckets::bucket_of::<SUB_BITS>(us).min(BUCKETS - 1)
}

/// First microsecond of a bucket, and the first one above it.
fn bounds_us(bucket: usize) -> (f32, f32) {
    #[expect(clippy::cast_precision_loss, reason = "a few of them are wide")]
    let first = |bucket: usize| buckets::first_of::<SUB_BITS>(bucket) as f32;
    (first(bucket), first(bucket + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_close_and_shares_are_their_inverse() {
        let mut live = Live::default();
        for ms in (1..=1000).cycle().take(5000) {
            live.record(Duration::from_millis((ms * 7919) % 1000 + 1));
        }
        for quantile in [0.5_f32, 0.9, 0.95, 0.99] {
            let took = live.quantile(quantile).unwrap_or_default();
            assert!((took.as_secs_f32() / quantile - 1.0).abs() < 0.03, "{quantile}: {took:?}");
            assert!((live.share_above(took) - (1.0 - quantile)).abs() < 0.005);
        }
    }

    #[test]
    fn what_lies_back_fades() {
        let mut live = Live::default();
        (0..3000).for_each(|_| live.record(Duration::from_millis(100)));
        (0..3000).for_each(|_| live.record(Duration::from_millis(10)));
        assert!(live.quantile(0.9).is_some_and(|took| took < Duration::from_millis(11)));
        (0..40_000).for_each(|_| live.record(Duration::from_millis(50)));
        assert_eq!(live.count(), 46_000);
        live.record(Duration::MAX);
        assert!(live.quantile(1.0) > Some(Duration::from_secs(4_000)), "the last bucket has no end");
        assert!((live.share_above(Duration::from_millis(20)) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn what_is_faded_counts_for_as_much_as_was_said() {
        let mut live = Live::new(4_000.0);
        (0..20_000).for_each(|_| live.record(Duration::from_millis(10)));
        assert!((live.evidence() / 4_000.0 - 1.0).abs() < 0.01, "{}", live.evidence());
        live.fade(100.0);
        assert!((live.evidence() - 100.0).abs() < 0.1);
        (0..100).for_each(|_| live.record(Duration::from_millis(100)));
        assert!((live.share_above(Duration::from_millis(50)) - 0.5).abs() < 0.02);
        live.fade(1e9);
        assert!(live.evidence() > 190.0, "it never gains by it");
    }

    proptest! {
        #[test]
        fn a_larger_share_never_takes_less(samples in prop::collection::vec(0..10_000_000_u64, 1..300)) {
            let mut live = Live::default();
            samples.iter().for_each(|us| live.record(Duration::from_micros(*us)));
            let quantiles: alloc::vec::Vec<_> =
                (0..=20_u8).map(|step| live.quantile(f32::from(step) / 20.0)).collect();
            prop_assert!(quantiles.is_sorted() && quantiles[0].is_some());
        }
    }
}
