//! What is known of a request while it runs.
//!
//! A [`Record`] lives as long as its request. Whoever drops it ends it: if nobody said how it ended,
//! the client left. What it knows is then laid on the desk, to become a [`Timeline`]; see
//! [`super::filing`].
//!
//! Invariant: every request ends in exactly one timeline; without usage TPOT is absent.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use firsttoken_logic::sketch::Sketch;
use firsttoken_logic::time::Instant;
use firsttoken_wire::chat::{Event, Usage};

use super::metrics::Labels;
use super::timeline::{Itl, Span, Timeline, ms};
use super::{Evidence, Phase, Progress, Stamps};
use crate::clock;
use crate::front::client::ClientState;
use crate::front::delivery::Delivery;

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The client has, or can have, everything.
    Complete,
    /// It was refused or failed; the code says why.
    Failed(&'static str),
}

/// Kinds of content whose first appearance is reported apart.
#[derive(Clone, Copy, Debug)]
enum Content {
    Text,
    Reasoning,
    Tool,
}

/// How much of a request's path is kept.
const PATH_BYTES_MAX: usize = 256;

/// A request's record, as long as it runs.
pub(crate) struct Record {
    evidence: Arc<Evidence>,
    /// Taken when the record ends.
    running: Option<Box<Running>>,
}

/// What a record knows.
pub(crate) struct Running {
    pub(crate) client: Arc<ClientState>,
    delivery: Arc<Delivery>,
    pub(crate) id: String,
    pub(crate) tenant: Arc<str>,
    pub(crate) key: Arc<str>,
    pub(crate) path: String,
    pub(crate) operation: &'static str,
    pub(crate) model: Option<String>,
    /// The model's name where names are bounded: the rule that matched it.
    pub(crate) model_label: Arc<str>,
    pub(crate) upstream: Option<Arc<str>>,
    pub(crate) provider: &'static str,
    pub(crate) route: Arc<str>,
    pub(crate) stream: bool,
    pub(crate) accepted: Instant,
    accepted_unix_ms: u64,
    /// Who asks, as far as trusted proxies vouch for it.
    pub(crate) client_addr: Option<IpAddr>,
    pub(crate) stamps: Stamps,
    pub(crate) stall_threshold: Duration,
    first: [Option<Instant>; 3],
    first_content: Option<Instant>,
    last_content: Option<Instant>,
    content_events: u64,
    itl: Sketch,
    stalls: u32,
    pub(crate) usage: Usage,
    pub(crate) unmetered: bool,
    pub(crate) bytes_out: u64,
    pub(crate) status: u16,
    pub(crate) outcome: Option<Outcome>,
    ended: Ended,
}

/// What only the end knows.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    at: Instant,
    /// Why we cut the client off, if we did.
    cut: Option<&'static str>,
    first_byte_written: Option<Instant>,
    first_content_written: Option<Instant>,
}

impl Deref for Record {
    type Target = Running;

    fn deref(&self) -> &Running {
        self.running.as_deref().expect("only the drop takes it")
    }
}

impl DerefMut for Record {
    fn deref_mut(&mut self) -> &mut Running {
        self.running.as_deref_mut().expect("only the drop takes it")
    }
}

impl Record {
    /// A request whose head has just been read.
    pub(crate) fn new(evidence: Arc<Evidence>, client: Arc<ClientState>, path: &str) -> Self {
        let accepted = clock::now();
        let delivery = client.begin_request();
        evidence.metrics.active.inc();
        let running = Box::new(Running {
            id: evidence.ids.next(),
            client,
            delivery,
            tenant: "".into(),
            key: "".into(),
            path: path[..path.floor_char_boundary(PATH_BYTES_MAX)].to_owned(),
            operation: "other",
            model: None,
            model_label: "".into(),
            upstream: None,
            provider: "",
            route: "default".into(),
            stream: false,
            accepted,
            accepted_unix_ms: clock::unix_ms(),
            client_addr: None,
            stamps: Stamps::new(accepted, None),
            stall_threshold: Duration::MAX,
            first: [None; 3],
            first_content: None,
            last_content: None,
            content_events: 0,
            itl: Sketch::default(),
            stalls: 0,
            usage: Usage::default(),
            unmetered: false,
            bytes_out: 0,
            status: 0,
            outcome: None,
            ended: Ended::default(),
        });
        Self { evidence, running: Some(running) }
    }
}

impl Running {
    /// Lets the phases be watched from outside.
    pub(crate) fn watch(&mut self) -> Progress {
        let progress = Progress::new();
        self.stamps.progress = Some(progress.clone());
        progress
    }

    /// A content event came from the upstream at `now`. One sample of ITL each; events that came
    /// together have a gap of zero, which is how bunching shows.
    pub(crate) fn on_content(&mut self, event: &Event<'_>, now: Instant) {
        let kind = match event {
            Event::Reasoning(_) => Content::Reasoning,
            Event::ToolStart { .. } | Event::ToolArguments { .. } => Content::Tool,
            _ => Content::Text,
        };
        self.first[kind as usize].get_or_insert(now);
        self.content_events += 1;
        match self.last_content.replace(now) {
            None => {
                self.first_content = Some(now);
                self.stamps.enter_at(Phase::Decode, now);
                self.delivery.watch_first_content();
            }
            Some(last) => {
                let gap = now.since(last);
                self.itl.record(gap);
                self.stalls += u32::from(gap > self.stall_threshold);
            }
        }
    }

    /// Whether content has come.
    pub(crate) fn has_content(&self) -> bool {
        self.first_content.is_some()
    }

    /// The request failed; `code` is one of ours, so that metrics stay bounded.
    pub(crate) fn fail(&mut self, code: &'static str) {
        self.outcome.get_or_insert(Outcome::Failed(code));
    }

    /// How far the shutdown of the client's connection has come.
    pub(crate) fn client_drain(&self) -> crate::front::client::Drain {
        self.client.drain()
    }

    /// Everything went as it should.
    pub(crate) fn complete(&mut self) {
        self.outcome.get_or_insert(Outcome::Complete);
    }

    /// What is known when the head goes out; see [`Stamps::server_timing`].
    pub(crate) fn server_timing(&self, now: Instant) -> String {
        self.stamps.server_timing(now)
    }

    /// Everything that we add before the first content: from the head to the request being sent,
    /// less the time the caller's body took to come, plus first content read to first content written.
    pub(crate) fn overhead(&self) -> Option<Duration> {
        self.overhead_until(self.delivery.first_content_written())
    }

    fn overhead_until(&self, delivered: Option<Instant>) -> Option<Duration> {
        let sent = self.stamps.began(Phase::Provider)?;
        let body = match (self.stamps.began(Phase::NetworkIn), self.stamps.began(Phase::Route)) {
            (Some(from), Some(to)) => to.since(from),
            _ => Duration::ZERO,
        };
        let out = delivered.zip(self.first_content).map_or(Duration::ZERO, |(d, f)| d.since(f));
        Some(sent.since(self.accepted).saturating_sub(body) + out)
    }

    /// Request accepted → first content written, or read if it is not written yet.
    pub(crate) fn ttft(&self) -> Option<Duration> {
        let delivered = self.delivery.first_content_written().or(self.first_content)?;
        Some(delivered.since(self.accepted))
    }

    /// What is known at the end, before the connection goes on to its next answer.
    fn end(&mut self) {
        self.ended = Ended {
            at: clock::now(),
            cut: if self.outcome.is_none() { self.client.cut_reason() } else { None },
            first_byte_written: self.delivery.first_byte_written(),
            first_content_written: self.first_content.and_then(|_| self.delivery.first_content_written()),
        };
    }

    /// What it is counted under.
    pub(super) fn labels(&self) -> Labels {
        Labels::of(self)
    }

    /// The time between consecutive content events.
    pub(super) const fn itl(&self) -> &Sketch {
        &self.itl
    }

    /// The timeline of a request that has ended.
    pub(super) fn timeline(&self) -> Timeline {
        let Ended { at: now, cut, first_byte_written, first_content_written: delivered } = self.ended;
        let outcome = match self.outcome {
            Some(Outcome::Complete) => "complete",
            Some(Outcome::Failed(code)) => code,
            None => cut.unwrap_or("cancelled"),
        };
        let since = |at: Option<Instant>| at.map(|at| ms(at.since(self.accepted)));
        let decode = self.first_content.zip(self.last_content).map(|(f, l)| l.since(f));
        // Of an answer that broke off the provider's count is not final: it is no usage, only a floor.
        let (output_tokens, output_tokens_estimate) = if outcome == "complete" {
            (self.usage.output_tokens, None)
        } else {
            let floor = self.usage.output_tokens.unwrap_or(0).max(self.content_events);
            (None, Some(floor).filter(|n| *n > 0))
        };
        let tpot =
            decode.zip(output_tokens.filter(|n| *n > 1)).map(|(d, n)| d.as_secs_f64() / (n - 1) as f64);
        let q = |per_mille| self.itl.quantile(per_mille).map(ms);
        Timeline {
            id: self.id.clone(),
            tenant: self.tenant.clone(),
            key: self.key.clone(),
            path: self.path.clone(),
            operation: self.operation,
            model: self.model.clone(),
            upstream: self.upstream.clone(),
            route: self.route.clone(),
            stream: self.stream,
            status: self.status,
            outcome,
            accepted_unix_ms: self.accepted_unix_ms,
            client_addr: self.client_addr,
            phases: self
                .stamps
                .phases(now)
                .map(|(phase, from, to)| Span {
                    phase: phase.name(),
                    start_ms: ms(from.since(self.accepted)),
                    duration_ms: ms(to.since(from)),
                })
                .collect(),
            connection_reused: self.stamps.reused,
            ttfb_ms: since(first_byte_written),
            headers_ms: since(self.stamps.headers),
            ttft_ms: since(delivered),
            ttft_upstream_ms: since(self.first_content),
            first_text_ms: since(self.first[Content::Text as usize]),
            first_reasoning_ms: since(self.first[Content::Reasoning as usize]),
            first_tool_ms: since(self.first[Content::Tool as usize]),
            content_events: self.content_events,
            itl_ms: Itl { p50: q(500), p95: q(950), p99: q(990), max: q(1000) },
            stalls: self.stalls,
            tpot_ms: tpot.map(|s| s * 1e3),
            overhead_ms: self.overhead_until(delivered).map(ms),
            total_ms: ms(now.since(self.accepted)),
            input_tokens: self.usage.input_tokens,
            cache_read_tokens: self.usage.cache_read_tokens,
            output_tokens,
            output_tokens_estimate,
            metered: !self.unmetered,
            bytes_out: self.bytes_out,
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        running.end();
        self.evidence.metrics.active.dec();
        let unwritten = running.first_content.is_some() && running.ended.first_content_written.is_none();
        let delivery = running.delivery.clone();
        let finished = Finished { evidence: self.evidence.clone(), running: Some(running) };
        if unwritten {
            delivery.park(finished);
        }
    }
}

/// A finished request. One whose whole answer came in a single read is over before its first content is
/// written, and waits for that; it is laid on the desk when it is dropped.
pub(crate) struct Finished {
    evidence: Arc<Evidence>,
    running: Option<Box<Running>>,
}

impl Finished {
    /// The first content, and all that came with it, was written at `now`.
    pub(crate) fn on_written(mut self, now: Instant) {
        let Some(running) = &mut self.running else { return };
        running.ended.at = now;
        running.ended.first_content_written = Some(now);
        running.ended.first_byte_written.get_or_insert(now);
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.evidence.lay_down(running);
        }
    }
}
