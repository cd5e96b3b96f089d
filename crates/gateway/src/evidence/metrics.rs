//! What Prometheus sees: typed families, GenAI names where the conventions have one, `firsttoken_…`
//! for the rest. Every series is registered here and nowhere else.
//!
//! Invariant: labels are bounded. A model's label is the configured rule it matched, never the
//! caller's own spelling.

use std::sync::{Mutex, PoisonError};

use firsttoken_logic::sketch::{self, Sketch};
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

use super::record::Running;
use super::timeline::Timeline;
use crate::lines::Standing;

/// Seconds; from 100 µs (a cached answer on loopback) to a provider's patience.
const TTFT_BUCKETS: [f64; 24] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
];
/// Seconds, as the GenAI conventions give them.
const TPOT_BUCKETS: [f64; 16] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
/// Seconds, the conventions' L with finer steps below.
const DURATION_BUCKETS: [f64; 17] = [
    0.000_5, 0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96,
    81.92,
];
/// Seconds that we add ourselves.
const OVERHEAD_BUCKETS: [f64; 14] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_2, 0.000_4, 0.000_8, 0.001_6, 0.003_2, 0.006_4, 0.012_8,
    0.05, 0.2, 1.0,
];
/// Tokens, powers of four.
const TOKEN_BUCKETS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// What a request is counted under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    gen_ai_operation_name: &'static str,
    gen_ai_provider_name: &'static str,
    gen_ai_request_model: String,
    upstream: String,
    route: String,
}

impl Labels {
    pub(crate) fn of(record: &Running) -> Self {
        Self {
            gen_ai_operation_name: record.operation,
            gen_ai_provider_name: record.provider,
            gen_ai_request_model: record.model_label.to_string(),
            upstream: record.upstream.as_deref().unwrap_or_default().to_owned(),
            route: record.route.to_string(),
        }
    }
}

/// Requests by how they ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    operation: &'static str,
    upstream: String,
    status: u16,
    outcome: &'static str,
}

/// Which tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    gen_ai_token_type: &'static str,
    gen_ai_request_model: String,
    upstream: String,
}

/// Attempts that did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LostLabels {
    upstream: String,
    outcome: &'static str,
}

/// One upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamLabels {
    upstream: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All families.
pub(crate) struct Metrics {
    registry: Registry,
    ttft: Histograms<Labels>,
    tpot: Histograms<Labels>,
    duration: Histograms<Labels>,
    overhead: Histograms<Labels>,
    tokens: Histograms<TokenLabels>,
    itl: Family<Labels, ItlHistogram>,
    requests: Family<EndLabels, Counter>,
    stalls: Family<Labels, Counter>,
    lost_attempts: Family<LostLabels, Counter>,
    upstream_limit: Family<UpstreamLabels, Gauge>,
    upstream_active: Family<UpstreamLabels, Gauge>,
    upstream_waiting: Family<UpstreamLabels, Gauge>,
    unmetered: Counter,
    /// Requests in progress.
    pub(crate) active: Gauge,
    /// Client connections open.
    pub(crate) connections: Gauge,
    /// Connections refused since `connections_max` were open.
    pub(crate) connections_refused: Counter,
    /// How late the event loops came round, looked at every few milliseconds.
    pub(crate) runtime_stall_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Registry::default(),
            ttft: Family::new_with_constructor(|| Histogram::new(TTFT_BUCKETS)),
            tpot: Family::new_with_constructor(|| Histogram::new(TPOT_BUCKETS)),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            overhead: Family::new_with_constructor(|| Histogram::new(OVERHEAD_BUCKETS)),
            tokens: Family::new_with_constructor(|| Histogram::new(TOKEN_BUCKETS)),
            itl: Family::default(),
            requests: Family::default(),
            stalls: Family::default(),
            lost_attempts: Family::default(),
            upstream_limit: Family::default(),
            upstream_active: Family::default(),
            upstream_waiting: Family::default(),
            unmetered: Counter::default(),
            active: Gauge::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            runtime_stall_seconds: Histogram::new([
                0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0,
            ]),
        };
        metrics.registered()
    }

    fn registered(mut self) -> Self {
        let r = &mut self.registry;
        let s = || Unit::Seconds;
        r.register_with_unit(
            "gen_ai_server_time_to_first_token",
            "Request accepted to first content written to the client",
            s(),
            self.ttft.clone(),
        );
        r.register_with_unit(
            "gen_ai_server_time_per_output_token",
            "Decode time per output token after the first, where the provider reported usage",
            s(),
            self.tpot.clone(),
        );
        r.register_with_unit(
            "gen_ai_server_request_duration",
            "Request accepted to last byte",
            s(),
            self.duration.clone(),
        );
        r.register(
            "gen_ai_client_token_usage",
            "Tokens per request as reported by the provider",
            self.tokens.clone(),
        );
        r.register_with_unit(
            "firsttoken_inter_token_latency",
            "Time between consecutive content events as they came from the upstream",
            s(),
            self.itl.clone(),
        );
        r.register_with_unit(
            "firsttoken_overhead",
            "Time added by the gateway before the first content, JSON and waiting included",
            s(),
            self.overhead.clone(),
        );
        r.register("firsttoken_requests", "Requests by how they ended", self.requests.clone());
        r.register("firsttoken_stalls", "Inter-token gaps above the stall threshold", self.stalls.clone());
        r.register(
            "firsttoken_lost_attempts",
            "Attempts that did not answer: they failed and another one was made, or it was faster (`late`)",
            self.lost_attempts.clone(),
        );
        r.register(
            "firsttoken_upstream_limit",
            "Requests that an upstream with a limit may have at a time",
            self.upstream_limit.clone(),
        );
        r.register("firsttoken_upstream_active", "Requests that it has", self.upstream_active.clone());
        r.register("firsttoken_upstream_waiting", "Requests in line for it", self.upstream_waiting.clone());
        r.register(
            "firsttoken_unmetered_streams",
            "Streams passed raw since one event was over event_bytes_max",
            self.unmetered.clone(),
        );
        r.register("firsttoken_requests_active", "Requests in progress", self.active.clone());
        r.register("firsttoken_connections", "Client connections open", self.connections.clone());
        r.register(
            "firsttoken_connections_refused",
            "Connections refused for want of room",
            self.connections_refused.clone(),
        );
        r.register_with_unit(
            "runtime_stall",
            "How late the event loop came round",
            s(),
            self.runtime_stall_seconds.clone(),
        );
        self
    }

    /// Counts a finished request.
    pub(crate) fn observe(&self, labels: &Labels, t: &Timeline, itl: &Sketch) {
        let end = EndLabels {
            operation: labels.gen_ai_operation_name,
            upstream: labels.upstream.clone(),
            status: t.status,
            outcome: t.outcome,
        };
        self.requests.get_or_create(&end).inc();
        if !t.metered {
            self.unmetered.inc();
        }
        for lost in &t.lost_attempts {
            let labels = LostLabels { upstream: lost.upstream.to_string(), outcome: lost.outcome };
            self.lost_attempts.get_or_create(&labels).inc();
        }
        if t.upstream.is_none() {
            return;
        }
        self.duration.get_or_create(labels).observe(t.total_ms / 1e3);
        if let Some(ms) = t.ttft_ms {
            self.ttft.get_or_create(labels).observe(ms / 1e3);
        }
        if let Some(ms) = t.tpot_ms {
            self.tpot.get_or_create(labels).observe(ms / 1e3);
        }
        if let Some(ms) = t.overhead_ms {
            self.overhead.get_or_create(labels).observe(ms / 1e3);
        }
        if t.stalls > 0 {
            self.stalls.get_or_create(labels).inc_by(u64::from(t.stalls));
        }
        if itl.count() > 0 {
            self.itl.get_or_create(labels).merge(itl);
        }
        for (gen_ai_token_type, tokens) in [("input", t.input_tokens), ("output", t.output_tokens)] {
            if let Some(tokens) = tokens {
                let labels = TokenLabels {
                    gen_ai_token_type,
                    gen_ai_request_model: labels.gen_ai_request_model.clone(),
                    upstream: labels.upstream.clone(),
                };
                self.tokens.get_or_create(&labels).observe(tokens as f64);
            }
        }
    }

    /// How the lines before upstreams stand now.
    pub(crate) fn show_lines(&self, standings: Vec<Standing>) {
        for Standing { upstream, limit, at_work, waiting } in standings {
            let labels = UpstreamLabels { upstream: upstream.to_string() };
            self.upstream_limit.get_or_create(&labels).set(limit.into());
            self.upstream_active.get_or_create(&labels).set(at_work.into());
            self.upstream_waiting.get_or_create(&labels).set(waiting.into());
        }
    }

    /// The OpenMetrics text.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut out, &self.registry);
        out
    }
}

/// A histogram that takes whole sketches: a stream of thousands of tokens is one merge. It lives as long
/// as the process, so its counts are wider than a sketch's.
#[derive(Debug)]
struct ItlHistogram(Mutex<Totals>);

#[derive(Clone, Debug)]
struct Totals {
    counts: [u64; sketch::BUCKETS],
    count: u64,
    sum_s: f64,
}

impl Default for ItlHistogram {
    fn default() -> Self {
        Self(Mutex::new(Totals { counts: [0; sketch::BUCKETS], count: 0, sum_s: 0.0 }))
    }
}

impl ItlHistogram {
    fn merge(&self, other: &Sketch) {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (mine, theirs) in totals.counts.iter_mut().zip(other.counts()) {
            *mine += u64::from(*theirs);
        }
        totals.count += other.count();
        totals.sum_s += other.sum().as_secs_f64();
    }
}

impl TypedMetric for ItlHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for ItlHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let totals = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bounds = (0..sketch::BUCKETS).map(|i| sketch::upper_bound_us(i) as f64 / 1e6);
        let mut buckets: Vec<(f64, u64)> = bounds.zip(totals.counts).collect();
        if let Some(last) = buckets.last_mut() {
            last.0 = f64::MAX;
        }
        let no_exemplars = None::<&std::collections::HashMap<usize, _>>;
        encoder.encode_histogram::<prometheus_client::encoding::NoLabelSet>(
            totals.sum_s,
            totals.count,
            &buckets,
            no_exemplars,
        )
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
