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

use super::heard::{Content, Heard};
use super::metrics::Labels;
use super::timeline::{Itl, LostAttempt, Span, Timeline, ms};
use super::{Evidence, Phase, Progress, Stamps};
use crate::clock;
use crate::front::client::ClientState;
use crate::front::delivery::Delivery;
use crate::quotas::Admitted;

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The client has, or can have, everything.
    Complete,
    /// It was refused or failed; the code says why.
    Failed(&'static str),
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
    /// Its part of what its key may have at a time.
    pub(crate) admitted: Option<Admitted>,
    /// What the attempt has said that answers, or the last one.
    pub(crate) heard: Heard,
    /// Attempts that did not.
    lost: Vec<Lost>,
    /// Whether the client's connection tells when the first content is written.
    watched: bool,
    pub(crate) bytes_out: u64,
    pub(crate) status: u16,
    pub(crate) outcome: Option<Outcome>,
    ended: Ended,
}

/// An attempt that did not answer.
struct Lost {
    upstream: Arc<str>,
    began: Instant,
    took: Duration,
    outcome: &'static str,
}

impl Lost {
    fn told(&self, accepted: Instant) -> LostAttempt {
        LostAttempt {
            upstream: self.upstream.clone(),
            start_ms: ms(self.began.since(accepted)),
            duration_ms: ms(self.took),
            outcome: self.outcome,
        }
    }
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
            admitted: None,
            heard: Heard::new(Stamps::new(accepted, None)),
            lost: Vec::new(),
            watched: false,
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
        self.heard.stamps.progress = Some(progress.clone());
        progress
    }

    /// Has the client's connection tell when the first content is written, once there is some.
    pub(crate) fn watch_first_content(&mut self) {
        if self.heard.has_content() && !std::mem::replace(&mut self.watched, true) {
            self.delivery.watch_first_content();
        }
    }

    /// An attempt at `upstream` that began at `began` did not answer: it failed with that code, or another one
    /// was faster.
    pub(crate) fn on_lost(&mut self, upstream: Arc<str>, began: Instant, outcome: &'static str) {
        self.lost.push(Lost { upstream, began, took: clock::now().since(began), outcome });
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
        self.heard.stamps.server_timing(now)
    }

    /// Everything that we add before the first content: judging the request and getting a connection, for
    /// each attempt, plus first content read to first content written. What attempts took that failed, or
    /// the wait for one, is told apart.
    pub(crate) fn overhead(&self) -> Option<Duration> {
        self.overhead_until(self.delivery.first_content_written())
    }

    fn overhead_until(&self, delivered: Option<Instant>) -> Option<Duration> {
        let stamps = &self.heard.stamps;
        let sent = stamps.began(Phase::Provider)?;
        let ours = stamps.phases(sent).filter(|(phase, ..)| phase.is_ours());
        let before: Duration = ours.map(|(_, from, to)| to.since(from)).sum();
        let out = delivered.zip(self.heard.first_content).map_or(Duration::ZERO, |(d, f)| d.since(f));
        Some(before + out)
    }

    /// Request accepted → first content written, or read if it is not written yet.
    pub(crate) fn ttft(&self) -> Option<Duration> {
        let delivered = self.delivery.first_content_written().or(self.heard.first_content)?;
        Some(delivered.since(self.accepted))
    }

    /// What is known at the end, before the connection goes on to its next answer.
    fn end(&mut self) {
        self.ended = Ended {
            at: clock::now(),
            cut: if self.outcome.is_none() { self.client.cut_reason() } else { None },
            first_byte_written: self.delivery.first_byte_written(),
            first_content_written: self
                .heard
                .first_content
                .and_then(|_| self.delivery.first_content_written()),
        };
    }

    /// What it is counted under.
    pub(super) fn labels(&self) -> Labels {
        Labels::of(self)
    }

    /// The time between consecutive content events.
    pub(super) const fn itl(&self) -> &Sketch {
        &self.heard.itl
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
        let decode = self.heard.first_content.zip(self.heard.last_content).map(|(f, l)| l.since(f));
        // Of an answer that broke off the provider's count is not final: it is no usage, only a floor.
        let (output_tokens, output_tokens_estimate) = if outcome == "complete" {
            (self.heard.usage.output_tokens, None)
        } else {
            let floor = self.heard.usage.output_tokens.unwrap_or(0).max(self.heard.content_events);
            (None, Some(floor).filter(|n| *n > 0))
        };
        let tpot =
            decode.zip(output_tokens.filter(|n| *n > 1)).map(|(d, n)| d.as_secs_f64() / (n - 1) as f64);
        let q = |per_mille| self.heard.itl.quantile(per_mille).map(ms);
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
                .heard
                .stamps
                .phases(now)
                .map(|(phase, from, to)| Span {
                    phase: phase.name(),
                    start_ms: ms(from.since(self.accepted)),
                    duration_ms: ms(to.since(from)),
                })
                .collect(),
            lost_attempts: self.lost.iter().map(|lost| lost.told(self.accepted)).collect(),
            connection_reused: self.heard.stamps.reused,
            ttfb_ms: since(first_byte_written),
            headers_ms: since(self.heard.stamps.headers),
            ttft_ms: since(delivered),
            ttft_upstream_ms: since(self.heard.first_content),
            first_text_ms: since(self.heard.first(Content::Text)),
            first_reasoning_ms: since(self.heard.first(Content::Reasoning)),
            first_tool_ms: since(self.heard.first(Content::Tool)),
            content_events: self.heard.content_events,
            itl_ms: Itl { p50: q(500), p95: q(950), p99: q(990), max: q(1000) },
            stalls: self.heard.stalls,
            tpot_ms: tpot.map(|s| s * 1e3),
            overhead_ms: self.overhead_until(delivered).map(ms),
            total_ms: ms(now.since(self.accepted)),
            input_tokens: self.heard.usage.input_tokens,
            cache_read_tokens: self.heard.usage.cache_read_tokens,
            output_tokens,
            output_tokens_estimate,
            metered: !self.heard.unmetered,
            bytes_out: self.bytes_out,
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        running.end();
        // It is filed later, and others wait.
        (running.heard.place, running.admitted) = (None, None);
        self.evidence.metrics.active.dec();
        let unwritten = running.heard.has_content() && running.ended.first_content_written.is_none();
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
