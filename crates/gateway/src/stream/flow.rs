//! The upstream's half of a stream: read once for each time somebody asks, watched, judged.
//!
//! It does not know who reads it, nor whether anything has reached a client: an attempt holds it until there is
//! content, the relay goes on from there. One timer, re-armed from stamps when it fires and never per token.
//!
//! Invariant: after an end or a failure nothing more comes, and the upstream is let go.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use firsttoken_logic::clocks::Clocks;
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_logic::time::Instant;
use firsttoken_wire::chat::Event;
use tokio::time::Sleep;

use crate::clock;
use crate::evidence::Heard;
use crate::stream::inflate::Decoded;
use crate::stream::tee::{Face, Tee};
use crate::upstream::Broken;

/// When a stream is looked at that nothing is due for.
const FAR: Duration = Duration::from_hours(24);
/// How long an upstream may take to end a body whose last event has come, for its connection's sake.
const LINGER: Duration = Duration::from_secs(1);

/// A stream that is read.
pub(crate) struct Flow {
    source: Option<Decoded>,
    pub(super) tee: Tee,
    clocks: Clocks,
    timer: Timer,
    pub(super) upstream: Arc<str>,
    pub(super) last_read: Instant,
}

/// What one step brought.
pub(super) enum Step {
    /// Bytes for the client; perhaps none.
    Data(Bytes),
    /// The time has come for which the reader asked to be woken.
    Due,
    /// The answer is complete, with these.
    Complete(Bytes),
    /// It failed, behind these.
    Failed(Bytes, Failure),
}

impl Flow {
    pub(super) fn new(source: Decoded, tee: Tee, clocks: Clocks, upstream: Arc<str>) -> Self {
        let now = clock::now();
        let timer = Timer::at(clocks.deadline().map_or(now + FAR, |(at, _)| at));
        Self { source: Some(source), tee, clocks, timer, upstream, last_read: now }
    }

    /// Reads once, or says that `wake_at` has come.
    pub(super) fn poll_step(
        &mut self,
        heard: &mut Heard,
        wake_at: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<Step> {
        loop {
            let Some(source) = &mut self.source else { return Poll::Ready(Step::Complete(Bytes::new())) };
            match source.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => return Poll::Ready(self.on_bytes(heard, bytes)),
                // All that matters came; only the connection did not end as it should.
                Poll::Ready(Some(Err(_))) if self.tee.seen.is_complete() && !self.is_raw() => {
                    return Poll::Ready(self.on_end(heard));
                }
                Poll::Ready(Some(Err(broken))) => return Poll::Ready(self.broken(heard, broken)),
                Poll::Ready(None) => return Poll::Ready(self.on_end(heard)),
                Poll::Pending => {}
            }
            // The timer only wakes us; what is due is decided from the stamps.
            ready!(self.timer.poll(cx));
            let now = clock::now();
            if let Some(clock) = self.clocks.expired(now) {
                return Poll::Ready(self.failed(heard, Bytes::new(), Kind::Timeout(clock), ""));
            }
            if wake_at.is_some_and(|at| at <= now) {
                return Poll::Ready(Step::Due);
            }
            self.timer.reset(self.due(wake_at));
        }
    }

    /// Looks at the clocks at `at`, if not before.
    pub(super) fn wake_by(&mut self, at: Instant) {
        self.timer.not_later_than(at);
    }

    /// Whether the bytes pass without being cut into events: between them nothing can be inserted.
    pub(super) const fn is_raw(&self) -> bool {
        match self.tee.face {
            Face::Opaque => true,
            Face::Same { .. } => self.tee.seen.overlong,
            Face::Rendered(_) => false,
        }
    }

    /// Whether the whole body has come already, so that a read would only bring its end.
    pub(super) fn has_come(&self) -> bool {
        self.source.as_ref().is_none_or(Decoded::is_over)
    }

    /// Whether nothing more is read.
    pub(super) const fn is_over(&self) -> bool {
        self.source.is_none()
    }

    /// A good end: the body is read to its end, for its connection's sake.
    pub(super) fn end(&mut self) {
        if let Some(source) = self.source.take() {
            linger(source);
        }
    }

    /// Lets the upstream go.
    pub(super) fn stop(&mut self) {
        self.source = None;
    }

    fn due(&self, wake_at: Option<Instant>) -> Instant {
        let clock = self.clocks.deadline().map(|(at, _)| at);
        let soonest = clock.into_iter().chain(wake_at).min();
        soonest.unwrap_or_else(|| clock::now() + FAR)
    }

    fn on_bytes(&mut self, heard: &mut Heard, bytes: Bytes) -> Step {
        let now = clock::now();
        self.last_read = now;
        let had_content = heard.has_content();
        let (out, content) = self.watch(heard, now, |tee, on_event| tee.push(bytes, on_event));
        self.clocks.on_bytes(now, content);
        if content && !had_content {
            // Other clocks run from here on, and one of them may be due before the timer is.
            self.timer.not_later_than(self.due(None));
        }
        match self.judge(heard, out) {
            // Once a body of known length is written, hyper asks for no more: this was the end.
            Step::Data(out) if matches!(self.tee.face, Face::Opaque) && self.has_come() => {
                Step::Complete(out)
            }
            step => step,
        }
    }

    fn on_end(&mut self, heard: &mut Heard) -> Step {
        let (out, _) = self.watch(heard, clock::now(), |tee, on_event| tee.end(on_event));
        match self.judge(heard, out) {
            Step::Data(bytes) if matches!(self.tee.face, Face::Opaque) || self.tee.seen.is_complete() => {
                Step::Complete(bytes)
            }
            Step::Data(bytes) => self.failed(heard, bytes, Kind::Truncated, ""),
            other => other,
        }
    }

    /// Lets the tee look at something and books what it sees; says whether there was content.
    fn watch(
        &mut self,
        heard: &mut Heard,
        now: Instant,
        look: impl FnOnce(&mut Tee, &mut dyn FnMut(&Event<'_>)) -> Bytes,
    ) -> (Bytes, bool) {
        let mut content = false;
        let out = look(&mut self.tee, &mut |event| match event {
            Event::Usage(usage) => heard.usage.update(*usage),
            event if event.is_content() => {
                content = true;
                heard.on_content(event, now);
            }
            _ => {}
        });
        (out, content)
    }

    /// What the stream has said decides how it goes on.
    fn judge(&mut self, heard: &mut Heard, out: Bytes) -> Step {
        let seen = &self.tee.seen;
        if seen.overlong && !heard.unmetered {
            heard.unmetered = true;
            self.clocks.on_unmetered();
        }
        if seen.malformed && seen.overlong {
            let upstream = &self.upstream;
            let detail = format!(
                "{upstream} sent an event that is too large to translate; the bound is limits.event_bytes_max"
            );
            return self.failed(heard, Bytes::new(), Kind::Protocol, detail);
        }
        if seen.malformed {
            return self.failed(heard, out, Kind::Malformed, "");
        }
        if let Some(error) = &seen.error {
            let detail = error.message.clone();
            return self.failed(heard, out, Kind::Reported, detail);
        }
        if seen.ended {
            return Step::Complete(out);
        }
        Step::Data(out)
    }

    fn broken(&mut self, heard: &Heard, broken: Broken) -> Step {
        let (kind, detail) = match broken {
            Broken::Io(e) => (Kind::Cut, e.to_string()),
            Broken::Protocol(what) => (Kind::Protocol, format!("{} sent {what}", self.upstream)),
        };
        self.failed(heard, Bytes::new(), kind, detail)
    }

    fn failed(&mut self, heard: &Heard, out: Bytes, kind: Kind, detail: impl Into<String>) -> Step {
        self.stop();
        let reached = if heard.has_content() { Reached::Content } else { Reached::Head };
        Step::Failed(out, Failure::new(kind, reached, detail))
    }
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
