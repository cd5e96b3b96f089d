//! When something that has ended is started again: at once if it lived well, later each time if it did not.
//!
//! Invariant: the pause is bounded, and grows only while one short life follows another.

use core::time::Duration;

/// The first pause.
pub const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest one.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Who lived so long was not hindered from living.
pub const GOOD_LIFE: Duration = Duration::from_secs(60);

/// How long to wait before the next start.
#[derive(Clone, Copy, Debug)]
pub struct Restarts {
    pause: Duration,
}

impl Default for Restarts {
    fn default() -> Self {
        Self { pause: PAUSE_MIN }
    }
}

impl Restarts {
    /// It has ended, or could not be started, after it `lived` so long: how long to wait now.
    pub fn on_end(&mut self, lived: Duration) -> Duration {
        let pause = if lived >= GOOD_LIFE { PAUSE_MIN } else { self.pause };
        self.pause = pause.saturating_mul(2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_begin_anew_after_a_good_life() {
        let mut restarts = Restarts::default();
        let short = Duration::from_secs(1);
        assert_eq!([(); 3].map(|()| restarts.on_end(short)), [1, 2, 4].map(|n| PAUSE_MIN * n));
        for _ in 0..20 {
            assert!(restarts.on_end(short) <= PAUSE_MAX);
        }
        assert_eq!(restarts.on_end(short), PAUSE_MAX);
        assert_eq!(restarts.on_end(GOOD_LIFE), PAUSE_MIN);
        assert_eq!(restarts.on_end(short), PAUSE_MIN * 2);
    }
}
