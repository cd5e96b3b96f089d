//! What a serving process asks of the system: descriptors, and to be told when to end.

use std::time::Duration;

/// After SIGTERM, how long new connections are still taken, so that load balancers can look away.
const NOTICE: Duration = Duration::from_secs(3);

/// One stream is two sockets: as many descriptors as the system lets us have.
pub(crate) fn raise_descriptor_limit() {
    // Where it cannot be raised, the limit that is there holds.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
}

/// Waits for SIGTERM or SIGINT; says how much notice load balancers shall get.
pub(crate) async fn signalled() -> Duration {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => NOTICE,
        _ = tokio::signal::ctrl_c() => Duration::ZERO,
    }
}

/// Calls `act` for every SIGHUP, for good.
pub(crate) async fn hung_up(act: impl Fn()) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return std::future::pending().await };
    while hangup.recv().await.is_some() {
        act();
    }
}
