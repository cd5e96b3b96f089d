//! One stream to the client: what has come already, then what flows; the commits, and the words in between.
//!
//! Pull-based: the client's connection asks ([`Relay::poll_frame`]), the relay has the stream read once and
//! hands on what is whole. Nothing is read ahead, nothing waits to be coalesced.
//!
//! Invariant: a failure after the head commit becomes one typed error event and the end; a stream is
//! never closed silently and never given an end that the upstream did not send.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use firsttoken_logic::commit::{Commit, Stage};
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_logic::time::Instant;
use firsttoken_wire::chat::{Event, Meta};
use firsttoken_wire::{ApiError, Dialect, StreamRenderer, typed};

use crate::clock;
use crate::evidence::{Phase, Record};
use crate::front::client::Drain;
use crate::stream::failures;
use crate::stream::flow::{Flow, Step};
use crate::stream::tee::Face;

/// A stream on its way to the client.
pub(crate) struct Relay {
    record: Record,
    flow: Flow,
    commit: Commit,
    /// What goes out before anything else is read: what was held, an error event.
    ready: VecDeque<Bytes>,
    /// What was read behind that.
    next: Option<Step>,
    dialect: Dialect,
    /// What came before the break has had its chance to be written.
    may_break: bool,
    /// The round in which everything was pending; see [`crate::front::client::ClientState::round`].
    pending_in: Option<u64>,
}

/// What an attempt hands over: a stream that has begun.
pub(crate) struct Begun {
    pub(super) flow: Flow,
    /// What has come of it.
    pub(super) held: VecDeque<Bytes>,
    /// Its end, if that has come, too.
    pub(super) next: Option<Step>,
}

impl Relay {
    /// Goes on with a stream whose first content is there, or which has none: the head goes out now.
    pub(crate) fn new(record: Record, begun: Begun, dialect: Dialect, keepalive: Duration) -> Self {
        let Begun { mut flow, held, next } = begun;
        let now = clock::now();
        let mut commit = Commit::new(now, keepalive);
        commit.on_write(now, record.heard.has_content());
        flow.wake_by(commit.deadline());
        let (may_break, pending_in) = (false, None);
        let mut relay = Self { record, flow, commit, ready: held, next, dialect, may_break, pending_in };
        relay.record.watch_first_content();
        if !matches!(dialect, Dialect::Typed | Dialect::Ui) {
            relay.settle();
        }
        relay
    }

    /// A good end that has come already goes out with the rest.
    fn settle(&mut self) {
        self.next = match self.next.take() {
            Some(Step::Complete(bytes)) => {
                self.complete(bytes);
                None
            }
            next => next,
        };
    }

    /// The next bytes for the client; `None` at the end.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                if bytes.is_empty() {
                    continue;
                }
                self.record.bytes_out += bytes.len() as u64;
                return Poll::Ready(Some(bytes));
            }
            if self.flow.is_over() && self.next.is_none() {
                return Poll::Ready(None);
            }
            let round = self.record.client.round();
            if self.pending_in == Some(round) {
                return Poll::Pending;
            }
            let Poll::Ready(step) = self.poll_step(cx) else {
                self.pending_in = Some(round);
                return Poll::Pending;
            };
            match step {
                Step::Data(bytes) if bytes.is_empty() => {}
                Step::Data(bytes) => {
                    self.commit.on_write(self.flow.last_read, self.record.heard.has_content());
                    self.record.bytes_out += bytes.len() as u64;
                    return Poll::Ready(Some(bytes));
                }
                Step::Due => self.keepalive(),
                Step::Complete(bytes) => self.complete(bytes),
                Step::Failed(before, failure) => {
                    self.ready.push_back(before);
                    let error = self.fail(&failure);
                    // Where the upstream's own error event went through, the client has been told.
                    if failure.kind != Kind::Reported || !self.passes_events() {
                        let event = self.error_event(&error);
                        self.ready.push_back(event);
                    }
                }
            }
        }
    }

    /// Goes on with a renderer that has spoken already: it tells what was held, too.
    pub(crate) fn continue_with(&mut self, renderer: typed::Renderer) {
        let behind = match &mut self.next {
            Some(Step::Data(bytes) | Step::Complete(bytes) | Step::Failed(bytes, _)) => Some(bytes),
            Some(Step::Due) | None => None,
        };
        let mut held: Vec<&mut Bytes> = self.ready.iter_mut().chain(behind).collect();
        self.flow.tee.render_from(StreamRenderer::Typed(renderer), &mut held);
        self.settle();
    }

    /// Goes on where something was written to the client already, at `last_write`.
    pub(crate) fn continue_after(&mut self, last_write: Instant) {
        if self.commit.stage() < Stage::Content {
            self.commit.on_write(last_write, false);
            self.flow.wake_by(self.commit.deadline());
        }
    }

    /// Books the status that the client gets, and tells what is known of the time so far.
    pub(crate) fn on_head(&mut self, status: u16) -> (String, String) {
        self.record.status = status;
        (self.record.id.clone(), self.record.server_timing(clock::now()))
    }

    /// Whether nothing is left, without asking: lets the last bytes and the end go out in one write.
    pub(crate) fn is_over(&self) -> bool {
        self.flow.is_over() && self.ready.is_empty() && self.next.is_none()
    }

    /// Whether a stream broke in which nobody knows where an event ends: all that is left is to close.
    pub(crate) fn broke_opaquely(&self) -> bool {
        self.flow.is_raw() && matches!(self.record.outcome, Some(crate::evidence::Outcome::Failed(_)))
    }

    /// Ready when the connection may be broken: breaking it drops what is not written yet, so that
    /// gets one more round.
    pub(crate) fn poll_break(&mut self, cx: &Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.may_break, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn passes_events(&self) -> bool {
        matches!(self.flow.tee.face, Face::Same { .. })
    }

    fn keepalive(&mut self) {
        self.commit.on_write(clock::now(), false);
        if !self.flow.is_raw() {
            self.ready.push_back(Bytes::from_static(self.dialect.keepalive()));
        }
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.record.client_drain() == Drain::Now {
            let reached = if self.record.heard.has_content() { Reached::Content } else { Reached::Head };
            return Poll::Ready(Step::Failed(Bytes::new(), Failure::new(Kind::Draining, reached, "")));
        }
        if let Some(step) = self.next.take() {
            return Poll::Ready(step);
        }
        let due = Some(self.commit.deadline());
        let step = self.flow.poll_step(&mut self.record.heard, due, cx);
        self.record.watch_first_content();
        step
    }

    fn complete(&mut self, bytes: Bytes) {
        let bytes = self.closing(bytes);
        self.ready.push_back(bytes);
        self.record.complete();
        self.record.heard.stamps.enter(Phase::NetworkOut);
        self.flow.end();
    }

    /// The bytes of a good end: as they came, or what the caller's dialect says of it.
    fn closing(&mut self, out: Bytes) -> Bytes {
        let Face::Rendered(renderer) = &mut self.flow.tee.face else { return out };
        let mut bytes = out.to_vec();
        let record = &self.record;
        let ms = |d: Duration| (d.as_secs_f64() * 1e6).round() / 1e3;
        let meta = Meta {
            request_id: &record.id,
            model: record.model.as_deref(),
            upstream: Some(&self.flow.upstream),
            ttft_ms: record.ttft().map(ms),
            overhead_ms: record.overhead().map(ms),
            usage: Some(record.heard.usage),
        };
        renderer.render(&Event::Meta(meta), &mut bytes);
        renderer.render(&Event::End, &mut bytes);
        bytes.into()
    }

    /// Ends the stream: the upstream is let go, and the record knows why.
    fn fail(&mut self, failure: &Failure) -> ApiError {
        self.flow.stop();
        self.record.fail(failures::code(&failure.kind));
        self.record.heard.stamps.enter(Phase::NetworkOut);
        failures::streamed(failure, self.flow.tee.seen.error.take(), &self.flow.upstream)
    }

    fn error_event(&mut self, error: &ApiError) -> Bytes {
        match &mut self.flow.tee.face {
            // Behind half an event it would not be one.
            Face::Same { .. } if self.flow.tee.seen.overlong => Bytes::new(),
            Face::Same { .. } => self.dialect.error_event(error, Some(&self.record.id)).into(),
            Face::Rendered(renderer) => {
                let mut bytes = Vec::new();
                renderer.render(&Event::Error(error.clone()), &mut bytes);
                bytes.into()
            }
            Face::Opaque => Bytes::new(),
        }
    }
}
