//! The one clock of mock and client: `CLOCK_MONOTONIC`, which all processes of a machine share.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds on the machine's monotonic clock.
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has a monotonic clock");
    ns(t)
}

/// Nanoseconds in a time that cannot be negative.
pub(crate) fn ns(t: nix::sys::time::TimeSpec) -> u64 {
    u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0)
}
