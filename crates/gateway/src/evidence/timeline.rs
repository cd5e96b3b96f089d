//! A finished request: what `GET /v1/requests/{id}` tells, and the line in the log.
//!
//! Invariant: no prompt, no answer, no secret.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

/// Milliseconds with microseconds behind the point: what people read.
pub(crate) fn ms(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
}

/// One phase of a finished request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Span {
    pub(crate) phase: &'static str,
    pub(crate) start_ms: f64,
    pub(crate) duration_ms: f64,
}

/// An attempt that did not answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LostAttempt {
    pub(crate) upstream: Arc<str>,
    pub(crate) start_ms: f64,
    pub(crate) duration_ms: f64,
    /// The code of its failure, or `late`.
    pub(crate) outcome: &'static str,
}

/// Quantiles of the inter-token latency.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Itl {
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// A finished request, as `GET /v1/requests/{id}` tells it. Times count from its acceptance.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Timeline {
    pub(crate) id: String,
    #[serde(skip)]
    pub(crate) tenant: Arc<str>,
    pub(crate) key: Arc<str>,
    pub(crate) path: String,
    pub(crate) operation: &'static str,
    pub(crate) model: Option<String>,
    pub(crate) upstream: Option<Arc<str>>,
    pub(crate) route: Arc<str>,
    pub(crate) stream: bool,
    pub(crate) status: u16,
    pub(crate) outcome: &'static str,
    pub(crate) accepted_unix_ms: u64,
    pub(crate) client_addr: Option<IpAddr>,
    pub(crate) phases: Vec<Span>,
    /// Attempts that did not answer: they failed, or another one was faster.
    pub(crate) lost_attempts: Vec<LostAttempt>,
    pub(crate) connection_reused: bool,
    pub(crate) headers_ms: Option<f64>,
    pub(crate) ttfb_ms: Option<f64>,
    pub(crate) ttft_ms: Option<f64>,
    pub(crate) ttft_upstream_ms: Option<f64>,
    pub(crate) first_text_ms: Option<f64>,
    pub(crate) first_reasoning_ms: Option<f64>,
    pub(crate) first_tool_ms: Option<f64>,
    pub(crate) content_events: u64,
    pub(crate) itl_ms: Itl,
    pub(crate) stalls: u32,
    pub(crate) tpot_ms: Option<f64>,
    pub(crate) overhead_ms: Option<f64>,
    pub(crate) total_ms: f64,
    pub(crate) input_tokens: Option<u64>,
    pub(crate) cache_read_tokens: Option<u64>,
    /// As the provider counts; absent where it did not say or the answer broke off.
    pub(crate) output_tokens: Option<u64>,
    /// Of an answer that broke off: at least so many, by what was reported or by content events.
    pub(crate) output_tokens_estimate: Option<u64>,
    pub(crate) metered: bool,
    pub(crate) bytes_out: u64,
}

impl Timeline {
    /// One structured line, without prompts, answers or secrets.
    pub(crate) fn log(&self) {
        tracing::info!(
            target: "request",
            id = %self.id,
            tenant = %self.tenant,
            client = self.client_addr.map(tracing::field::display),
            path = %self.path,
            model = self.model.as_deref(),
            upstream = self.upstream.as_deref(),
            status = self.status,
            outcome = %self.outcome,
            ttft_ms = self.ttft_ms,
            itl_p99_ms = self.itl_ms.p99,
            stalls = self.stalls,
            output_tokens = self.output_tokens,
            overhead_ms = self.overhead_ms,
            total_ms = self.total_ms,
        );
    }
}

/// The last finished requests.
pub(crate) struct Ring {
    kept: Mutex<VecDeque<Arc<Timeline>>>,
    timelines_max: usize,
}

impl Ring {
    pub(crate) fn new(timelines_max: usize) -> Self {
        Self { kept: Mutex::default(), timelines_max }
    }

    pub(crate) fn push(&self, timeline: Timeline) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.len() >= self.timelines_max.max(1) {
            kept.pop_front();
        }
        kept.push_back(Arc::new(timeline));
    }

    /// The request with this id, if it is this tenant's.
    pub(crate) fn find(&self, id: &str, tenant: &str) -> Option<Arc<Timeline>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().find(|t| t.id == id && &*t.tenant == tenant).cloned()
    }
}
