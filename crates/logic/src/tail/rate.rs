//! How often a key may ask.
//!
//! The generic cell rate algorithm: each request moves a time of arrival in theory one interval ahead, and
//! who is further ahead of the clock than a burst allows is told when it will not be (ATM Forum, Traffic
//! Management 4.0; the leaky bucket as a meter). One number is all it keeps.
//!
//! Invariant: over any time `t` no more requests pass than a burst, and one for each interval of `t`.

use core::time::Duration;

use crate::time::Instant;

/// Nanoseconds of a minute.
const MINUTE_NS: u64 = 60_000_000_000;
/// Part of a minute whose requests may come at once: a sixth, ten seconds' worth.
const BURST: u64 = 6;

/// The rate of one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    /// When the next request would come, if all came evenly.
    next: Instant,
}

impl Rate {
    /// A request of a key that may ask so often a minute, at least once. Refused, it is told when to come back.
    ///
    /// # Errors
    /// How long it has to wait.
    pub fn take(&mut self, per_minute: u32, now: Instant) -> Result<(), Duration> {
        let interval = MINUTE_NS / u64::from(per_minute.max(1));
        let burst = (u64::from(per_minute) / BURST).max(1) * interval;
        let next = self.next.max(now) + Duration::from_nanos(interval);
        let ahead = next.since(now);
        let most = Duration::from_nanos(burst);
        if ahead > most {
            return Err(ahead - most);
        }
        self.next = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_burst_passes_and_then_one_for_each_interval() {
        let mut rate = Rate::default();
        for _ in 0..10 {
            assert_eq!(rate.take(60, at(5000)), Ok(()));
        }
        assert_eq!(rate.take(60, at(5000)), Err(Duration::from_secs(1)));
        assert_eq!(rate.take(60, at(5400)), Err(Duration::from_millis(600)));
        assert_eq!(rate.take(60, at(6000)), Ok(()));
        assert!(rate.take(60, at(6000)).is_err());
    }

    #[test]
    fn one_a_minute_is_one_a_minute() {
        let mut rate = Rate::default();
        assert_eq!(rate.take(1, at(0)), Ok(()));
        assert_eq!(rate.take(1, at(0)), Err(Duration::from_secs(60)));
        assert_eq!(rate.take(1, at(60_000)), Ok(()));
    }

    proptest! {
        #[test]
        fn who_waits_as_long_as_told_passes(per_minute in 1..5_000_u32, gaps in prop::collection::vec(0..3_000_u64, 1..200)) {
            let (mut rate, mut now, mut passed) = (Rate::default(), at(0), 0_u64);
            for gap in &gaps {
                now = now + Duration::from_millis(*gap);
                match rate.take(per_minute, now) {
                    Ok(()) => passed += 1,
                    Err(wait) => {
                        now = now + wait;
                        prop_assert_eq!(rate.take(per_minute, now), Ok(()));
                        passed += 1;
                    }
                }
            }
            let intervals = now.ns() / (MINUTE_NS / u64::from(per_minute));
            prop_assert!(passed <= intervals + (u64::from(per_minute) / BURST).max(1) + 1);
        }
    }
}
