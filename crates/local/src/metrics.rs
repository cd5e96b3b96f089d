//! What Prometheus sees: the names of vLLM where they mean what we have, `firsttoken_engine_…` for what
//! only this engine has.
//!
//! What answers took is counted as they end; what the engines are is read when somebody asks.
//!
//! Invariant: labels are bounded, a model's is its own name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firsttoken_engine::driver::Status;
use firsttoken_engine::speech::End;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::slot::{Loaded, Slot};

/// Seconds to the first token, as vLLM has them.
const TTFT_BUCKETS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Seconds for a token, as there.
const TOKEN_BUCKETS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Seconds for a request and its stages, as there.
const REQUEST_BUCKETS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
/// Tokens, powers of four.
const COUNT_BUCKETS: [f64; 10] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    model_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OverLabels {
    model_name: String,
    finished_reason: &'static str,
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

fn seconds_to_first() -> Histograms {
    Family::new_with_constructor(|| Histogram::new(TTFT_BUCKETS))
}

fn seconds_a_token() -> Histograms {
    Family::new_with_constructor(|| Histogram::new(TOKEN_BUCKETS))
}

fn seconds_a_request() -> Histograms {
    Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS))
}

fn counts() -> Histograms {
    Family::new_with_constructor(|| Histogram::new(COUNT_BUCKETS))
}

/// All families.
pub(crate) struct Metrics {
    registry: Registry,
    first: Histograms,
    gap: Histograms,
    token: Histograms,
    whole: Histograms,
    queue: Histograms,
    prefill: Histograms,
    decode: Histograms,
    prompt: Histograms,
    generation: Histograms,
    prompt_tokens: Family<Labels, Counter>,
    generation_tokens: Family<Labels, Counter>,
    queried: Family<Labels, Counter>,
    hit: Family<Labels, Counter>,
    over: Family<OverLabels, Counter>,
}

impl Metrics {
    /// Of these models.
    pub(crate) fn new(slots: Vec<Arc<Slot>>) -> Arc<Self> {
        let mut metrics = Self {
            registry: Registry::default(),
            first: seconds_to_first(),
            gap: seconds_a_token(),
            token: seconds_a_token(),
            whole: seconds_a_request(),
            queue: seconds_a_request(),
            prefill: seconds_a_request(),
            decode: seconds_a_request(),
            prompt: counts(),
            generation: counts(),
            prompt_tokens: Family::default(),
            generation_tokens: Family::default(),
            queried: Family::default(),
            hit: Family::default(),
            over: Family::default(),
        };
        metrics.register();
        metrics.registry.register_collector(Box::new(Engines(slots)));
        Arc::new(metrics)
    }

    fn register(&mut self) {
        let times = [
            ("time_to_first_token", "Asked to first token", &self.first),
            ("inter_token_latency", "Between two pieces of an answer", &self.gap),
            ("request_time_per_output_token", "Of an answer, on average", &self.token),
            ("e2e_request_latency", "Asked to last token", &self.whole),
            ("request_queue_time", "Asked to first step", &self.queue),
            ("request_prefill_time", "First step to first token", &self.prefill),
            ("request_decode_time", "First token to last", &self.decode),
        ];
        for (name, help, family) in times {
            let name = format!("vllm:{name}");
            self.registry.register_with_unit(name, help, Unit::Seconds, family.clone());
        }
        let r = &mut self.registry;
        r.register("vllm:request_prompt_tokens", "Prompt tokens of a request", self.prompt.clone());
        r.register("vllm:request_generation_tokens", "Tokens of an answer", self.generation.clone());
        let counted = [
            ("prompt_tokens", "Prompt tokens", &self.prompt_tokens),
            ("generation_tokens", "Generated tokens", &self.generation_tokens),
            ("prefix_cache_queries", "Prompt tokens that were looked for", &self.queried),
            ("prefix_cache_hits", "Prompt tokens that nobody had to compute", &self.hit),
        ];
        for (name, help, family) in counted {
            r.register(format!("vllm:{name}"), help, family.clone());
        }
        r.register("vllm:request_success", "Requests, by how they ended", self.over.clone());
    }

    /// The first piece of an answer, so long after it was asked for.
    pub(crate) fn on_first(&self, model: &str, took: Duration) {
        self.first.get_or_create(&labels(model)).observe(took.as_secs_f64());
    }

    /// A further piece, so long after the one before.
    pub(crate) fn on_gap(&self, model: &str, took: Duration) {
        self.gap.get_or_create(&labels(model)).observe(took.as_secs_f64());
    }

    /// An answer that came to its end.
    pub(crate) fn on_end(&self, model: &str, prompt: u32, end: &End, took: Duration) {
        let labels = labels(model);
        let timings = end.timings;
        if end.generated > 1 {
            let token = timings.spoken.as_secs_f64() / f64::from(end.generated - 1);
            self.token.get_or_create(&labels).observe(token);
        }
        let times = [
            (&self.whole, took),
            (&self.queue, timings.waited),
            (&self.prefill, timings.prompt),
            (&self.decode, timings.spoken),
        ];
        for (family, time) in times {
            family.get_or_create(&labels).observe(time.as_secs_f64());
        }
        self.prompt.get_or_create(&labels).observe(prompt.into());
        self.generation.get_or_create(&labels).observe(end.generated.into());
        for (family, tokens) in [
            (&self.prompt_tokens, prompt),
            (&self.generation_tokens, end.generated),
            (&self.queried, prompt),
            (&self.hit, end.cached),
        ] {
            family.get_or_create(&labels).inc_by(tokens.into());
        }
    }

    /// Embeddings of so many tokens.
    pub(crate) fn on_embedded(&self, model: &str, tokens: usize, took: Duration) {
        let labels = labels(model);
        self.whole.get_or_create(&labels).observe(took.as_secs_f64());
        self.prompt_tokens.get_or_create(&labels).inc_by(tokens as u64);
        self.on_over(model, "stop");
    }

    /// A request is over, this way or that.
    pub(crate) fn on_over(&self, model: &str, finished_reason: &'static str) {
        let labels = OverLabels { model_name: model.to_owned(), finished_reason };
        self.over.get_or_create(&labels).inc();
    }

    /// The text that is scraped.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut out, &self.registry);
        out
    }
}

fn labels(model: &str) -> Labels {
    Labels { model_name: model.to_owned() }
}

/// What the engines are at the moment.
struct Engines(Vec<Arc<Slot>>);

impl Slot {
    /// How its engine is. One that is unloaded does nothing, and counts anew when it is loaded again, as after
    /// a restart.
    fn status(&self) -> (bool, Status) {
        let loaded = self.loaded();
        let engine = loaded.as_ref().and_then(|loaded| match loaded {
            Loaded::Writes(model) => Some(model.engine().status()),
            Loaded::Embeds(_) => None,
        });
        (loaded.is_some(), engine.unwrap_or_default())
    }
}

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|slot| slot.name())).finish()
    }
}

/// A figure of an engine, and its further label.
type Figure = (&'static str, &'static str, Option<(&'static str, &'static str)>, fn(&Status) -> f64);

#[expect(clippy::cast_precision_loss, reason = "what a person reads")]
const GAUGES: [Figure; 9] = [
    ("vllm:num_requests_running", "Requests at work", None, |s| s.running as f64),
    ("vllm:num_requests_waiting", "Requests that wait", None, |s| s.waiting as f64),
    ("vllm:kv_cache_usage_perc", "Part of the KV memory that somebody works with", None, |s| {
        f64::from(s.cells_used.saturating_sub(s.cells_idle)) / f64::from(s.cells.max(1))
    }),
    ("firsttoken_engine_cells", CELLS, Some(("state", "working")), |s| {
        f64::from(s.cells_used.saturating_sub(s.cells_idle))
    }),
    ("firsttoken_engine_cells", CELLS, Some(("state", "kept")), |s| f64::from(s.cells_idle)),
    ("firsttoken_engine_cells", CELLS, Some(("state", "free")), |s| {
        f64::from(s.cells.saturating_sub(s.cells_used))
    }),
    ("firsttoken_engine_host_tokens", "Tokens kept in host memory", None, |s| s.tokens_saved as f64),
    ("firsttoken_engine_step_rows", "Rows of the step under way", None, |s| {
        s.step.map_or(0.0, |(_, rows)| f64::from(rows))
    }),
    ("firsttoken_engine_batch_rows_mean", "Rows of a step, on average since the start", None, |s| {
        s.counters.rows as f64 / s.counters.steps.max(1) as f64
    }),
];
const CELLS: &str = "Tokens that the KV memory has room for, by what they are";

/// What an engine has counted.
type Counted = (&'static str, &'static str, fn(&Status) -> u64);

const COUNTERS: [Counted; 7] = [
    ("vllm:num_preemptions", "Requests that had to make room", |s| s.counters.preemptions),
    ("vllm:spec_decode_num_draft_tokens", "Guesses that were verified", |s| s.counters.drafted),
    ("vllm:spec_decode_num_accepted_tokens", "Guesses that were right", |s| s.counters.accepted),
    ("firsttoken_engine_steps", "Steps", |s| s.counters.steps),
    ("firsttoken_engine_rows", "Rows of all steps; by steps, how full they are", |s| s.counters.rows),
    ("firsttoken_engine_saved_tokens", "Tokens moved to host memory", |s| s.counters.tokens_saved),
    ("firsttoken_engine_loaded_tokens", "Tokens that came back from there", |s| s.counters.tokens_loaded),
];

impl Collector for Engines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut states: Vec<(&str, Status)> = Vec::with_capacity(self.0.len());
        let help = "Whether the model is in memory; one that nobody asks for may be unloaded";
        let mut metric =
            encoder.encode_descriptor("firsttoken_engine_loaded", help, None, MetricType::Gauge)?;
        for slot in &self.0 {
            let (is_loaded, status) = slot.status();
            let labels = [("model_name", slot.name())];
            ConstGauge::new(i64::from(is_loaded)).encode(metric.encode_family(&labels)?)?;
            states.push((slot.name(), status));
        }
        for family in GAUGES.chunk_by(|a, b| a.0 == b.0) {
            let (name, help, ..) = family[0];
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for ((_, _, label, figure), (model, status)) in
                family.iter().flat_map(|figure| states.iter().map(move |state| (*figure, state)))
            {
                let mut labels = vec![("model_name", *model)];
                labels.extend(label);
                ConstGauge::new(figure(status)).encode(metric.encode_family(&labels)?)?;
            }
        }
        for (name, help, count) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (model, status) in &states {
                let labels = [("model_name", *model)];
                ConstCounter::new(count(status)).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
