//! How long a scripted step takes: one distribution with three well-known special cases.
//!
//! A [`Latency`] is a median, a lognormal spread around it, and a tail: with some probability a
//! sample is several times as long. Spread 0 and probability 0 make it constant; either alone makes
//! it lognormal or bimodal. That is what hedging, stall detection and percentiles are tested on.
//!
//! Invariant: a sample is finite, never negative, and depends on nothing but the generator.

use std::f64::consts::TAU;
use std::time::Duration;

/// Longest time a knob may ask for: one day.
pub(crate) const KNOB_MS_MAX: f64 = 86_400_000.0;
/// Widest spread a knob may ask for; e³ is already a factor of 20 at one deviation.
const SIGMA_MAX: f64 = 3.0;
/// Longest tail a knob may ask for.
const TAIL_FACTOR_MAX: f64 = 10_000.0;

/// A distribution of durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Median of the body of the distribution, in milliseconds.
    pub median_ms: f64,
    /// Standard deviation of the logarithm; 0 is constant.
    pub sigma: f64,
    /// What a sample of the tail is multiplied by.
    pub tail_factor: f64,
    /// How probable the tail is, 0 to 1.
    pub tail_probability: f64,
}

impl Latency {
    /// Always `ms` milliseconds.
    #[must_use]
    pub const fn constant(ms: f64) -> Self {
        Self { median_ms: ms, sigma: 0.0, tail_factor: 1.0, tail_probability: 0.0 }
    }

    /// Lognormal around the median `ms` milliseconds, `sigma` being the deviation of the logarithm.
    #[must_use]
    pub const fn lognormal(ms: f64, sigma: f64) -> Self {
        Self { sigma, ..Self::constant(ms) }
    }

    /// `ms` milliseconds, or with `probability` that times `factor`.
    #[must_use]
    pub const fn bimodal(ms: f64, factor: f64, probability: f64) -> Self {
        Self { tail_factor: factor, tail_probability: probability, ..Self::constant(ms) }
    }

    /// Reads `MS`, `MS~SIGMA`, `MSxFACTORpPROBABILITY`, or both after each other. `None` where
    /// that is not what `text` says, or a number is out of its bounds.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (body, tail) = match text.split_once('x') {
            Some((body, tail)) => (body, Some(tail.split_once('p')?)),
            None => (text, None),
        };
        let (median, sigma) = body.split_once('~').unwrap_or((body, "0"));
        let (factor, probability) = tail.unwrap_or(("1", "0"));
        Some(Self {
            median_ms: number(median, KNOB_MS_MAX)?,
            sigma: number(sigma, SIGMA_MAX)?,
            tail_factor: number(factor, TAIL_FACTOR_MAX)?,
            tail_probability: number(probability, 1.0)?,
        })
    }

    /// Draws one duration. A constant draws nothing from `rng`.
    pub fn sample(&self, rng: &mut fastrand::Rng) -> Duration {
        let mut ms = self.median_ms;
        if self.sigma > 0.0 {
            ms *= (self.sigma * normal(rng)).exp();
        }
        if self.tail_probability > 0.0 && rng.f64() < self.tail_probability {
            ms *= self.tail_factor;
        }
        millis(ms)
    }
}

/// A decimal number from 0 to `max`.
pub(crate) fn number(text: &str, max: f64) -> Option<f64> {
    // `f64::from_str` also takes `inf`, `nan` and `1e9`: no knob means those.
    if !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    text.parse().ok().filter(|n| (0.0..=max).contains(n))
}

/// A duration of `ms` milliseconds, cut at ten days so that no product of knobs can overflow.
pub(crate) fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.clamp(0.0, KNOB_MS_MAX * 10.0) / 1e3)
}

/// A draw from the standard normal distribution (Box and Muller).
fn normal(rng: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted_ms(latency: Latency, n: usize) -> Vec<f64> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut all: Vec<_> = (0..n).map(|_| latency.sample(&mut rng).as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn each_spelling_is_read() {
        assert_eq!(Latency::parse("200"), Some(Latency::constant(200.0)));
        assert_eq!(Latency::parse("0.05"), Some(Latency::constant(0.05)));
        assert_eq!(Latency::parse("200~0.5"), Some(Latency::lognormal(200.0, 0.5)));
        assert_eq!(Latency::parse("20x10p0.01"), Some(Latency::bimodal(20.0, 10.0, 0.01)));
        let both = Latency { tail_factor: 8.0, tail_probability: 0.1, ..Latency::lognormal(20.0, 0.5) };
        assert_eq!(Latency::parse("20~0.5x8p0.1"), Some(both));
        for wrong in ["", "x", "-1", "inf", "1e3", "20x10", "20x10p2", "20~9", "20p0.1", "99999999999"] {
            assert_eq!(Latency::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn constant_is_exact() {
        let all = sorted_ms(Latency::constant(12.5), 100);
        assert!(all.iter().all(|ms| (ms - 12.5).abs() < 1e-9));
    }

    #[test]
    fn lognormal_has_its_median_and_spread() {
        let all = sorted_ms(Latency::lognormal(100.0, 0.5), 20_000);
        let (median, p84) = (all[10_000], all[16_827]);
        assert!((97.0..103.0).contains(&median), "median {median}");
        // One deviation above the median is e^0.5 = 1.649 times it.
        assert!((158.0..172.0).contains(&p84), "p84.1 {p84}");
    }

    #[test]
    fn bimodal_has_its_tail() {
        let all = sorted_ms(Latency::bimodal(20.0, 10.0, 0.05), 20_000);
        let slow = all.iter().filter(|&&ms| ms > 100.0).count();
        assert!((900..1100).contains(&slow), "{slow} of 20,000");
        assert!(all.iter().all(|ms| (ms - 20.0).abs() < 1e-9 || (ms - 200.0).abs() < 1e-9));
    }
}
