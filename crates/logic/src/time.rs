//! Time as a number of nanoseconds since an epoch that the shell chose: printable, replayable,
//! and impossible to read from inside a decision.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point on the shell's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// A point `ns` nanoseconds after the shell's epoch.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the shell's epoch.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Time since `earlier`, zero if that lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}
