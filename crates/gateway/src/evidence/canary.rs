//! A canary in the event loop: it wants to wake every few milliseconds, and how late it wakes is how
//! long something has blocked every stream on that loop.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::gateway::Shared;

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(20);
/// Later than this is worth a line in the log.
const BLOCKED: Duration = Duration::from_millis(100);

/// Runs as long as the event loop.
pub(crate) async fn watch(shared: Arc<Shared>) {
    loop {
        let due = Instant::now() + INTERVAL;
        tokio::time::sleep_until(due).await;
        let late = due.elapsed();
        shared.evidence.metrics.runtime_stall_seconds.observe(late.as_secs_f64());
        if late > BLOCKED {
            tracing::warn!(late_ms = late.as_millis(), "the event loop was blocked");
        }
    }
}
