//! The one clock of the gateway: tokio's, so that tests can pause it, as the number that `logic` wants.

use std::sync::OnceLock;

use firsttoken_logic::time::Instant;

static EPOCH: OnceLock<tokio::time::Instant> = OnceLock::new();

fn epoch() -> tokio::time::Instant {
    // An hour back, so that points before the first reading can be written down.
    *EPOCH.get_or_init(|| {
        let now = tokio::time::Instant::now();
        now.checked_sub(std::time::Duration::from_secs(3600)).unwrap_or(now)
    })
}

/// Now.
pub(crate) fn now() -> Instant {
    let ns = tokio::time::Instant::now().saturating_duration_since(epoch()).as_nanos();
    Instant::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// The same point on tokio's clock, to sleep until.
pub(crate) fn to_tokio(at: Instant) -> tokio::time::Instant {
    epoch() + std::time::Duration::from_nanos(at.ns())
}

/// Milliseconds since 1970, for people and logs; never for measuring.
pub(crate) fn unix_ms() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the one wall clock of the crate")]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
