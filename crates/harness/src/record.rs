//! Samples of one figure, all of them, and their exact percentiles.

use serde::Serialize;

/// Most samples kept of one figure; more are counted and the summary says so.
const SAMPLES_MAX: usize = 8_000_000;

/// Delays in nanoseconds; negative ones are kept (they would show a broken clock).
#[derive(Debug, Default)]
pub struct Samples {
    ns: Vec<i64>,
    beyond: u64,
}

/// The exact distribution of one figure.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Samples.
    pub n: usize,
    /// Arithmetic mean, µs.
    pub mean: f64,
    /// Median, µs.
    pub p50: f64,
    /// 90th percentile, µs.
    pub p90: f64,
    /// 99th percentile, µs.
    pub p99: f64,
    /// Largest, µs.
    pub max: f64,
    /// Samples beyond the bound on what is kept, not in the figures above.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_kept: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Samples {
    /// Adds `to - from`.
    pub fn add(&mut self, from_ns: u64, to_ns: u64) {
        self.add_ns(signed(to_ns) - signed(from_ns));
    }

    /// Adds one delay.
    pub fn add_ns(&mut self, ns: i64) {
        if self.ns.len() < SAMPLES_MAX {
            self.ns.push(ns);
        } else {
            self.beyond += 1;
        }
    }

    /// All samples, µs, in the order they came.
    pub fn micros(&self) -> Vec<f64> {
        self.ns.iter().map(|ns| micros(*ns)).collect()
    }

    /// The distribution; `None` without a sample.
    pub fn summary(&mut self) -> Option<Summary> {
        self.ns.sort_unstable();
        let n = self.ns.len();
        let last = n.checked_sub(1)?;
        // Nearest rank: the smallest sample that at least q of all samples do not exceed.
        let at =
            |per_mille: usize| micros(self.ns[(n * per_mille).div_ceil(1000).saturating_sub(1).min(last)]);
        let sum: i128 = self.ns.iter().map(|ns| i128::from(*ns)).sum();
        let mean = micros(i64::try_from(sum / i128::try_from(n).ok()?).ok()?);
        Some(Summary {
            n,
            mean,
            p50: at(500),
            p90: at(900),
            p99: at(990),
            max: micros(self.ns[last]),
            not_kept: self.beyond,
        })
    }
}

/// Monotonic nanoseconds stay below 2^63 for 292 years.
fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Microseconds with one decimal.
#[expect(clippy::cast_precision_loss, reason = "a delay of 2^53 ns is 104 days")]
fn micros(ns: i64) -> f64 {
    (ns as f64 / 100.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let mut s = Samples::default();
        for us in (1..=200).rev() {
            s.add(1_000, 1_000 + us * 1_000);
        }
        let got = s.summary().unwrap();
        assert_eq!(
            (got.n, got.p50, got.p90, got.p99, got.max, got.mean),
            (200, 100.0, 180.0, 198.0, 200.0, 100.5)
        );
        assert!(Samples::default().summary().is_none());
    }
}
