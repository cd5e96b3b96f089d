//! One stream from the upstream to the client: the source, its watcher, the clocks, the commits.
//!
//! Pull-based: the client's connection asks ([`Relay::poll_frame`]), the relay reads once and hands on
//! what is whole. Nothing is read ahead, nothing waits to be coalesced. One timer per stream, re-armed
//! from stamps when it fires and never per token.
//!
//! Invariant: a failure after the head commit becomes one typed error event and the end; a stream is
//! never closed silently and never given an end that the upstream did not send.

use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use firsttoken_logic::clocks::Clocks;
use firsttoken_logic::commit::{Commit, Stage};
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_logic::time::Instant;
use firsttoken_wire::chat::{Event, Meta};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, StreamRenderer, typed};
use tokio::time::Sleep;

use crate::clock;
use crate::evidence::{Phase, Record};
use crate::front::client::Drain;
use crate::stream::failures;
use crate::stream::inflate::Decoded;
use crate::stream::tee::{Face, Tee};
use crate::upstream::Broken;

/// How long an upstream may take to end a body whose last event has come, for its connection's sake.
const LINGER: Duration = Duration::from_secs(1);

/// A running stream.
pub(crate) struct Relay {
    record: Record,
    source: Option<Decoded>,
    tee: Tee,
    clocks: Clocks,
    commit: Commit,
    timer: Timer,
    last_read: Instant,
    /// What goes out before anything else is read: held events, an error event.
    ready: VecDeque<Bytes>,
    dialect: Dialect,
    upstream: Arc<str>,
    hold_bytes_max: usize,
    /// What came before the break has had its chance to be written.
    may_break: bool,
    /// The round in which everything was pending; see [`crate::front::client::ClientState::round`].
    pending_in: Option<u64>,
}

/// What a relay is made of.
pub(crate) struct Parts {
    pub(crate) record: Record,
    pub(crate) source: Decoded,
    pub(crate) tee: Tee,
    pub(crate) clocks: Clocks,
    pub(crate) commit: Commit,
    /// The caller's dialect, for errors and keepalives.
    pub(crate) dialect: Dialect,
    pub(crate) upstream: Arc<str>,
    /// How much may be held back before the head is committed.
    pub(crate) hold_bytes_max: usize,
}

/// What one step brought.
enum Step {
    /// Bytes for the client; perhaps none.
    Data(Bytes),
    /// The client has heard nothing for as long as it may.
    Due,
    /// The answer is complete.
    Complete(Bytes),
    /// It failed.
    Failed(Failure),
}

impl Relay {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { record, source, tee, clocks, commit, dialect, upstream, hold_bytes_max } = parts;
        let timer = Timer::at(due(&clocks, &commit));
        let last_read = record.accepted;
        let ready = VecDeque::new();
        let source = Some(source);
        Self {
            record,
            source,
            tee,
            clocks,
            commit,
            timer,
            last_read,
            ready,
            dialect,
            upstream,
            hold_bytes_max,
            may_break: false,
            pending_in: None,
        }
    }

    /// Holds the head back until there is content, an end, or no more time. An error means that
    /// nothing has reached the client: it can still get a true status.
    pub(crate) async fn hold(&mut self) -> Result<(), ApiError> {
        let now = clock::now();
        if self.commit.is_due(now) {
            // The head came due before there was an upstream to relay, and is out already.
            self.commit.on_write(now, false);
        }
        if matches!(self.tee.face, Face::Opaque) && self.source.as_ref().is_some_and(Decoded::is_over) {
            // There is no body, as after HEAD, and hyper does not ask for one.
            self.end();
            return Ok(());
        }
        let mut held_bytes = 0;
        while self.commit.stage() == Stage::Held {
            match poll_fn(|cx| self.poll_step(cx)).await {
                Step::Data(bytes) => {
                    held_bytes += bytes.len();
                    self.ready.push_back(bytes);
                    if self.record.has_content() || held_bytes > self.hold_bytes_max {
                        self.commit.on_write(clock::now(), self.record.has_content());
                        self.timer.not_later_than(due(&self.clocks, &self.commit));
                    }
                }
                Step::Due => self.keepalive(),
                Step::Complete(bytes) => {
                    self.ready.push_back(bytes);
                    self.end();
                    return Ok(());
                }
                Step::Failed(failure) => return Err(self.fail(&failure)),
            }
        }
        Ok(())
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
            if self.source.is_none() {
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
                    self.commit.on_write(self.last_read, self.record.has_content());
                    self.record.bytes_out += bytes.len() as u64;
                    return Poll::Ready(Some(bytes));
                }
                Step::Due => self.keepalive(),
                Step::Complete(bytes) => {
                    self.ready.push_back(bytes);
                    self.end();
                }
                Step::Failed(failure) => {
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

    /// Goes on with a renderer that has spoken already.
    pub(crate) fn continue_with(&mut self, renderer: typed::Renderer) {
        self.tee.face = Face::Rendered(Box::new(StreamRenderer::Typed(renderer)));
    }

    /// Goes on where something was written to the client already, at `last_write`.
    pub(crate) fn continue_after(&mut self, last_write: Instant) {
        if self.commit.stage() < Stage::Content {
            self.commit.on_write(last_write, false);
            self.timer.not_later_than(due(&self.clocks, &self.commit));
        }
    }

    /// The record, when nothing will be relayed after all.
    pub(crate) fn into_record(self) -> Record {
        self.record
    }

    /// Books the status that the client gets, and tells what is known of the time so far.
    pub(crate) fn on_head(&mut self, status: u16) -> (String, String) {
        self.record.status = status;
        (self.record.id.clone(), self.record.server_timing(clock::now()))
    }

    /// Whether nothing is left, without asking: lets the last bytes and the end go out in one write.
    pub(crate) fn is_over(&self) -> bool {
        self.source.is_none() && self.ready.is_empty()
    }

    /// Whether a stream broke in which nobody knows where an event ends: all that is left is to close.
    pub(crate) fn broke_opaquely(&self) -> bool {
        self.is_raw() && matches!(self.record.outcome, Some(crate::evidence::Outcome::Failed(_)))
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
        matches!(self.tee.face, Face::Same { .. })
    }

    /// Whether the bytes pass without being cut into events: between them nothing can be inserted.
    const fn is_raw(&self) -> bool {
        match self.tee.face {
            Face::Opaque => true,
            Face::Same { .. } => self.tee.seen.overlong,
            Face::Rendered(_) => false,
        }
    }

    fn keepalive(&mut self) {
        self.commit.on_write(clock::now(), false);
        if !self.is_raw() {
            self.ready.push_back(Bytes::from_static(self.dialect.keepalive()));
        }
    }

    /// Reads once, or says what is due.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.record.client_drain() == Drain::Now {
            return Poll::Ready(Step::Failed(self.failure(Kind::Draining, String::new())));
        }
        loop {
            let Some(source) = &mut self.source else { return Poll::Ready(Step::Complete(Bytes::new())) };
            match source.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => return Poll::Ready(self.on_bytes(bytes)),
                // All that matters came; only the connection did not end as it should.
                Poll::Ready(Some(Err(_))) if self.tee.seen.is_complete() && !self.is_raw() => {
                    return Poll::Ready(self.on_end());
                }
                Poll::Ready(Some(Err(broken))) => return Poll::Ready(Step::Failed(self.broken(broken))),
                Poll::Ready(None) => return Poll::Ready(self.on_end()),
                Poll::Pending => {}
            }
            // The timer only wakes us; what is due is decided from the stamps.
            if self.timer.poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = clock::now();
            if let Some(clock) = self.clocks.expired(now) {
                return Poll::Ready(Step::Failed(self.failure(Kind::Timeout(clock), String::new())));
            }
            if self.commit.is_due(now) {
                return Poll::Ready(Step::Due);
            }
            self.timer.reset(due(&self.clocks, &self.commit));
        }
    }

    fn on_bytes(&mut self, bytes: Bytes) -> Step {
        let now = clock::now();
        self.last_read = now;
        let had_content = self.record.has_content();
        let (out, content) = self.watch(now, |tee, on_event| tee.push(bytes, on_event));
        self.clocks.on_bytes(now, content);
        if content && !had_content {
            // Other clocks run from here on, and one of them may be due before the timer is.
            self.timer.not_later_than(due(&self.clocks, &self.commit));
        }
        match self.judge(out) {
            // Once a body of known length is written, hyper asks for no more: this was the end.
            Step::Data(out)
                if matches!(self.tee.face, Face::Opaque)
                    && self.source.as_ref().is_some_and(Decoded::is_over) =>
            {
                Step::Complete(out)
            }
            step => step,
        }
    }

    fn on_end(&mut self) -> Step {
        let (out, _) = self.watch(clock::now(), |tee, on_event| tee.end(on_event));
        match self.judge(out) {
            Step::Data(bytes) if matches!(self.tee.face, Face::Opaque) || self.tee.seen.is_complete() => {
                Step::Complete(self.closing(bytes))
            }
            Step::Data(bytes) => {
                self.ready.push_back(bytes);
                Step::Failed(self.failure(Kind::Truncated, String::new()))
            }
            other => other,
        }
    }

    /// Lets the tee look at something and books what it sees; says whether there was content.
    fn watch(
        &mut self,
        now: Instant,
        look: impl FnOnce(&mut Tee, &mut dyn FnMut(&Event<'_>)) -> Bytes,
    ) -> (Bytes, bool) {
        let record = &mut self.record;
        let mut content = false;
        let out = look(&mut self.tee, &mut |event| match event {
            Event::Usage(usage) => record.usage.update(*usage),
            event if event.is_content() => {
                content = true;
                record.on_content(event, now);
            }
            _ => {}
        });
        (out, content)
    }

    /// What the stream has said decides how it goes on.
    fn judge(&mut self, out: Bytes) -> Step {
        let seen = &self.tee.seen;
        if seen.overlong && !self.record.unmetered {
            self.record.unmetered = true;
            self.clocks.on_unmetered();
        }
        if seen.malformed && seen.overlong {
            let upstream = &self.upstream;
            let detail = format!(
                "{upstream} sent an event that is too large to translate; the bound is limits.event_bytes_max"
            );
            return Step::Failed(self.failure(Kind::Protocol, detail));
        }
        if seen.malformed {
            self.ready.push_back(out);
            return Step::Failed(self.failure(Kind::Malformed, String::new()));
        }
        if let Some(error) = &seen.error {
            let detail = error.message.clone();
            if self.commit.stage() != Stage::Held {
                self.ready.push_back(out);
            }
            return Step::Failed(self.failure(Kind::Reported, detail));
        }
        if seen.ended {
            return Step::Complete(self.closing(out));
        }
        Step::Data(out)
    }

    /// The bytes of a good end: as they came, or what the caller's dialect says of it.
    fn closing(&mut self, out: Bytes) -> Bytes {
        let Face::Rendered(renderer) = &mut self.tee.face else { return out };
        let mut bytes = out.to_vec();
        let record = &self.record;
        let ms = |d: Duration| (d.as_secs_f64() * 1e6).round() / 1e3;
        let meta = Meta {
            request_id: &record.id,
            model: record.model.as_deref(),
            upstream: Some(&self.upstream),
            ttft_ms: record.ttft().map(ms),
            overhead_ms: record.overhead().map(ms),
            usage: Some(record.usage),
        };
        renderer.render(&Event::Meta(meta), &mut bytes);
        renderer.render(&Event::End, &mut bytes);
        bytes.into()
    }

    fn end(&mut self) {
        self.record.complete();
        self.record.stamps.enter(Phase::NetworkOut);
        if let Some(source) = self.source.take() {
            linger(source);
        }
    }

    fn failure(&self, kind: Kind, detail: String) -> Failure {
        let reached = if self.record.has_content() { Reached::Content } else { Reached::Head };
        Failure::new(kind, reached, detail)
    }

    fn broken(&self, broken: Broken) -> Failure {
        match broken {
            Broken::Io(e) => self.failure(Kind::Cut, e.to_string()),
            Broken::Protocol(what) => self.failure(Kind::Protocol, format!("{} sent {what}", self.upstream)),
        }
    }

    /// Ends the stream: the upstream is let go, and the record knows why.
    fn fail(&mut self, failure: &Failure) -> ApiError {
        self.source = None;
        self.record.fail(failures::code(&failure.kind));
        self.record.stamps.enter(Phase::NetworkOut);
        match (&failure.kind, self.tee.seen.error.take()) {
            // Whoever the upstream does not let in, it is not the caller whose key this gateway checked.
            (Kind::Reported, Some(reported))
                if matches!(reported.kind, ErrorKind::Authentication | ErrorKind::Permission) =>
            {
                ApiError { kind: ErrorKind::Upstream, ..reported }
            }
            (Kind::Reported, Some(reported)) => reported,
            _ => failures::error(failure, &self.upstream),
        }
    }

    fn error_event(&mut self, error: &ApiError) -> Bytes {
        match &mut self.tee.face {
            // Behind half an event it would not be one.
            Face::Same { .. } if self.tee.seen.overlong => Bytes::new(),
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

/// When a clock runs out or the client has to hear something.
fn due(clocks: &Clocks, commit: &Commit) -> Instant {
    let written = commit.deadline();
    clocks.deadline().map_or(written, |(at, _)| at.min(written))
}

/// A timer that is looked at once per token and fires a few times a minute. It is moved only to an
/// earlier time: to fire too early costs one look at the stamps, to be moved costs one each time, and
/// a timer that is due before all others wakes the event loop by a system call.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    at: Instant,
    waker: Option<Waker>,
}

impl Timer {
    fn at(at: Instant) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep_until(clock::to_tokio(at))), at, waker: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let registered = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if registered && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        let polled = self.sleep.as_mut().poll(cx);
        self.waker = polled.is_pending().then(|| cx.waker().clone());
        polled
    }

    fn reset(&mut self, at: Instant) {
        self.waker = None;
        self.at = at;
        self.sleep.as_mut().reset(clock::to_tokio(at));
    }

    fn not_later_than(&mut self, at: Instant) {
        if at < self.at {
            self.reset(at);
        }
    }
}

/// Reads a body to its end, so that its connection can be used again. The client does not wait for it.
fn linger(mut source: Decoded) {
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(None) = source.poll_data(&mut context) {
        return;
    }
    drop(tokio::spawn(tokio::time::timeout(LINGER, async move {
        while let Some(Ok(_)) = source.data().await {}
    })));
}
