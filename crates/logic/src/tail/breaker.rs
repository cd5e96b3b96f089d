//! Which upstream is left alone for a while, since it has failed too often.
//!
//! *Closed*: it is asked. After [`FAILURES`] failures in a row, or when half of the last calls failed, it is *open*:
//! others are asked in its place. When its pause is over, one call at a time finds out whether it works
//! again (*half-open*); each that fails doubles the pause. A breaker steers and never refuses: where there is nobody
//! else the upstream is asked all the same.
//!
//! Invariant: the pause is bounded, and there is at most one probe at a time.

use core::time::Duration;

use crate::failure::{Failure, Kind};
use crate::time::Instant;

/// Failures in a row that open it.
pub const FAILURES: u32 = 5;
/// The first pause, and the longest.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
/// See [`PAUSE_MIN`].
pub const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A probe that has told nothing for so long is given up.
const PROBE: Duration = Duration::from_secs(30);
/// How much a call moves the share of failures.
const RATE: f32 = 1.0 / 16.0;
/// The share of failures that opens it.
const SHARE: f32 = 0.5;

#[derive(Clone, Copy, Debug)]
enum State {
    Closed,
    Open { until: Instant, pause: Duration },
    Probing { since: Instant, pause: Duration },
}

/// The breaker of one upstream.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    in_a_row: u32,
    /// Of the last calls, the share that failed.
    failed: f32,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed, in_a_row: 0, failed: 0.0 }
    }
}

/// Whether a failure says that its upstream is unwell. What a request, an account or a rate limit has caused
/// does not.
#[must_use]
pub const fn blames(failure: &Failure) -> bool {
    !matches!(failure.kind, Kind::Draining | Kind::Shed | Kind::Status(..=499))
}

impl Breaker {
    /// Whether it may be asked now, where there are others. Who is told so and asks must tell how it went.
    pub fn allows(&mut self, now: Instant) -> bool {
        let allowed = self.would_allow(now);
        if let (true, State::Open { pause, .. } | State::Probing { pause, .. }) = (allowed, self.state) {
            self.state = State::Probing { since: now, pause };
        }
        allowed
    }

    /// Whether it would be allowed: for who is yet to choose among several, and asks one of them.
    #[must_use]
    pub fn would_allow(&self, now: Instant) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until, .. } => now >= until,
            State::Probing { since, .. } => now.since(since) >= PROBE,
        }
    }

    /// It has answered, or refused for a reason that is not its own.
    pub fn on_success(&mut self) {
        self.in_a_row = 0;
        self.failed -= self.failed * RATE;
        // While it is open an answer is one to a call from before.
        if matches!(self.state, State::Probing { .. }) {
            *self = Self::default();
        }
    }

    /// It has failed.
    pub fn on_failure(&mut self, now: Instant) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.failed += (1.0 - self.failed) * RATE;
        match self.state {
            State::Closed if self.in_a_row >= FAILURES || self.failed > SHARE => {
                self.state = State::Open { until: now + PAUSE_MIN, pause: PAUSE_MIN };
            }
            State::Probing { pause, .. } => {
                let pause = pause.saturating_mul(2).min(PAUSE_MAX);
                self.state = State::Open { until: now + pause, pause };
            }
            State::Closed | State::Open { .. } => {}
        }
    }

    /// Whether it is asked like any other.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Reached;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    #[test]
    fn it_opens_probes_and_closes() {
        let mut breaker = Breaker::default();
        (0..FAILURES).for_each(|_| breaker.on_failure(at(0)));
        assert!(!breaker.allows(at(999)));
        assert!(breaker.would_allow(at(1000)) && breaker.would_allow(at(1000)), "to ask is not to probe");
        assert!(breaker.allows(at(1000)) && !breaker.would_allow(at(1001)), "one probe at a time");
        assert!(!breaker.allows(at(1001)));
        breaker.on_failure(at(1100));
        assert!(!breaker.allows(at(3099)) && breaker.allows(at(3100)), "the pause has doubled");
        breaker.on_success();
        assert!(breaker.is_closed() && breaker.allows(at(3101)) && breaker.allows(at(3102)));
    }

    #[test]
    fn half_of_the_calls_are_enough_and_a_few_are_not() {
        let mut breaker = Breaker::default();
        for _ in 0..100 {
            breaker.on_failure(at(0));
            (0..3).for_each(|_| breaker.on_success());
        }
        assert!(breaker.is_closed());
        for _ in 0..100 {
            breaker.on_success();
            (0..2).for_each(|_| breaker.on_failure(at(0)));
        }
        assert!(!breaker.is_closed(), "two of three fail");
    }

    #[test]
    fn the_pause_is_bounded_and_a_probe_that_says_nothing_is_followed_by_another() {
        let mut breaker = Breaker::default();
        (0..FAILURES).for_each(|_| breaker.on_failure(at(0)));
        let mut now = at(0);
        for _ in 0..20 {
            now = now + PAUSE_MAX;
            assert!(breaker.allows(now));
            breaker.on_failure(now);
        }
        now = now + PAUSE_MAX;
        assert!(breaker.allows(now) && !breaker.allows(now));
        assert!(breaker.allows(now + PROBE));
    }

    #[test]
    fn a_callers_mistake_is_not_the_upstreams() {
        let failure = |kind| Failure::new(kind, Reached::Head, "");
        assert!(!blames(&failure(Kind::Status(400))) && !blames(&failure(Kind::Status(429))));
        assert!(blames(&failure(Kind::Status(500))) && blames(&failure(Kind::Connect)));
    }
}
