//! What happened to every request, and when: the gateway's evidence.
//!
//! [`Stamps`] tell when each phase of a request began, a [`Record`] gathers what is known while it runs,
//! a [`timeline::Timeline`] is what is left of it; [`metrics`] count them, and the [`canary`] watches
//! the event loop itself.
//!
//! Invariant: measuring never waits: no lock is held across an await, and nothing here does I/O.

pub(crate) mod canary;
pub(crate) mod metrics;
mod record;
mod stamps;
pub(crate) mod timeline;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) use record::{Finished, Outcome, Record};
pub(crate) use stamps::{Phase, Progress, Stamps};

use metrics::Metrics;
use timeline::Ring;

/// Where finished requests are filed.
pub(crate) struct Evidence {
    pub(crate) metrics: Metrics,
    pub(crate) timelines: Ring,
    ids: Ids,
}

impl Evidence {
    /// Keeps the last `timelines_max` timelines.
    pub(crate) fn new(timelines_max: usize) -> Arc<Self> {
        Arc::new(Self { metrics: Metrics::new(), timelines: Ring::new(timelines_max), ids: Ids::new() })
    }
}

/// Makes request ids: a random part of the process and a number.
struct Ids {
    process: u64,
    next: AtomicU64,
}

impl Ids {
    fn new() -> Self {
        let mut random = [0; 8];
        // Ids need to differ between processes, not to be secret: without entropy the clock serves.
        if getrandom::fill(&mut random).is_err() {
            random = crate::clock::unix_ms().to_le_bytes();
        }
        Self { process: u64::from_le_bytes(random), next: AtomicU64::new(0) }
    }

    fn next(&self) -> String {
        format!("req_{:016x}{:08x}", self.process, self.next.fetch_add(1, Relaxed))
    }
}
