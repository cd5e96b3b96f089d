//! How many calls may be sent on top of those that were asked for.
//!
//! Hedges and retries draw on one balance, which grows by a share of every call; so together they stay
//! within that share of the load, and where retries are needed hedges are not sent. A hedge needs a
//! whole call on the balance. A retry does not, since what it saves is an error and not milliseconds: it may
//! overdraw, by [`RETRY_PERCENT`] of the calls of the last seconds (Finagle's default) and a few for
//! those who call rarely.
//!
//! Invariant: hedges never exceed the share of the calls so far; retries never exceed theirs of the last
//! two windows.

use core::time::Duration;

use crate::time::Instant;

/// The most that the balance holds, in calls: what a burst may draw.
pub const BALANCE_MAX: u32 = 100;
/// Retries for each hundred calls of a window.
pub const RETRY_PERCENT: u32 = 20;
/// Retries that are never refused within a window.
pub const RETRIES_MIN: u32 = 10;
/// Calls are counted for so long.
const WINDOW: Duration = Duration::from_secs(10);
/// The balance counts in these parts of a call.
const PARTS: i64 = 1_000;

/// The balance of one group of calls. It begins empty, and without a share it stays so.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    share_per_mille: u32,
    parts: i64,
    window: Window,
    before: Window,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Instant,
    calls: u32,
    retries: u32,
}

impl Budget {
    /// An empty balance that grows by so many thousandths of a call with each call.
    #[must_use]
    pub fn new(share_per_mille: u32) -> Self {
        Self { share_per_mille, ..Self::default() }
    }

    /// From here on it grows so.
    pub const fn set_share(&mut self, share_per_mille: u32) {
        self.share_per_mille = share_per_mille;
    }

    /// A call is made.
    pub fn on_call(&mut self, now: Instant) {
        self.roll(now);
        self.window.calls = self.window.calls.saturating_add(1);
        self.parts = (self.parts + i64::from(self.share_per_mille)).min(i64::from(BALANCE_MAX) * PARTS);
    }

    /// Whether a hedge may be sent; if so it is paid for.
    pub fn take_hedge(&mut self) -> bool {
        let may = self.parts >= PARTS;
        self.parts -= if may { PARTS } else { 0 };
        may
    }

    /// Whether a retry may be sent; if so it is paid for.
    pub fn take_retry(&mut self, now: Instant) -> bool {
        self.roll(now);
        let (calls, retries) =
            (self.window.calls + self.before.calls, self.window.retries + self.before.retries);
        let may = retries
            < RETRIES_MIN.saturating_add(calls / 100 * RETRY_PERCENT + calls % 100 * RETRY_PERCENT / 100);
        if may {
            self.window.retries += 1;
            self.parts = (self.parts - PARTS).max(-i64::from(BALANCE_MAX) * PARTS);
        }
        may
    }

    /// How full the balance is: 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let fill = self.parts.max(0) as f32 / (i64::from(BALANCE_MAX) * PARTS) as f32;
        fill
    }

    fn roll(&mut self, now: Instant) {
        let passed = now.since(self.window.since);
        if passed < WINDOW {
            return;
        }
        self.before = if passed < WINDOW * 2 { self.window } else { Window::default() };
        self.window = Window { since: now, calls: 0, retries: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::from_ns(s * 1_000_000_000)
    }

    #[test]
    fn hedges_are_earned_by_calls_and_bursts_are_bounded() {
        let mut budget = Budget::new(50);
        assert!(!budget.take_hedge(), "nothing is earned yet");
        (0..20).for_each(|_| budget.on_call(at(0)));
        assert!(budget.take_hedge() && !budget.take_hedge());
        (0..1_000_000).for_each(|_| budget.on_call(at(1)));
        assert_eq!((0..1000).filter(|_| budget.take_hedge()).count(), BALANCE_MAX as usize);
    }

    #[test]
    fn a_retry_is_there_from_the_first_call_on_and_is_bounded_by_calls() {
        let mut budget = Budget::new(50);
        budget.on_call(at(0));
        assert_eq!((0..100).filter(|_| budget.take_retry(at(0))).count(), RETRIES_MIN as usize);
        (0..1000).for_each(|_| budget.on_call(at(1)));
        assert_eq!((0..1000).filter(|_| budget.take_retry(at(1))).count(), 200);
        assert!(!budget.take_hedge(), "where retries are needed hedges are not sent");
        assert!(!budget.take_retry(at(11)) || !budget.take_retry(at(12)), "the window before still counts");
        assert_eq!((0..100).filter(|_| budget.take_retry(at(60))).count(), RETRIES_MIN as usize);
    }
}
