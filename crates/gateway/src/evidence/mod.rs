//! What happened to every request, and when: the gateway's evidence.
//!
//! [`Stamps`] tell when each phase of a request began, a [`Record`] gathers what is known while it runs,
//! a [`timeline::Timeline`] is what is left of it; [`metrics`] count them, and the [`canary`] watches
//! the event loop itself. What has to be done about a finished request is done beside the event loops
//! ([`filing`]).
//!
//! Invariant: measuring never waits: no lock is held across an await, and nothing here does I/O.

pub(crate) mod canary;
mod filing;
mod heard;
pub(crate) mod merge;
pub(crate) mod metrics;
mod record;
mod stamps;
pub(crate) mod timeline;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) use heard::Heard;
pub(crate) use record::{Finished, Outcome, Record};
pub(crate) use stamps::{Phase, Progress, Stamps};

use filing::Desk;
use metrics::Metrics;
use timeline::{Ring, Timeline};

/// Where finished requests are filed.
pub(crate) struct Evidence {
    pub(crate) metrics: Metrics,
    timelines: Ring,
    desk: Desk,
    ids: Ids,
}

impl Evidence {
    /// Keeps the last `timelines_max` timelines.
    pub(crate) fn new(timelines_max: usize) -> Arc<Self> {
        Arc::new(Self {
            metrics: Metrics::new(),
            timelines: Ring::new(timelines_max),
            desk: Desk::default(),
            ids: Ids::new(),
        })
    }

    /// The finished request with this id, if it is this tenant's.
    pub(crate) fn timeline(&self, id: &str, tenant: &str) -> Option<Arc<Timeline>> {
        self.file();
        self.timelines.find(id, tenant)
    }

    /// All metrics as OpenMetrics text.
    pub(crate) fn render_metrics(&self) -> String {
        self.file();
        self.metrics.render()
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
        let mut id = String::with_capacity(28);
        id.push_str("req_");
        hex(&mut id, self.process, 16);
        hex(&mut id, self.next.fetch_add(1, Relaxed), 8);
        id
    }
}

/// The last `digits` hexadecimal digits of `number`.
fn hex(out: &mut String, number: u64, digits: u32) {
    let digit = |place: u32| char::from_digit((number >> (4 * place) & 0xF) as u32, 16).unwrap_or('0');
    out.extend((0..digits).rev().map(digit));
}
