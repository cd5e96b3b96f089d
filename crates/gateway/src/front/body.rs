//! What hyper writes to a client: a whole body, a relayed stream, or a stream that begins before its
//! upstream has said anything.
//!
//! Invariant: dropping a body ends everything behind it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use firsttoken_logic::time::Instant;
use firsttoken_wire::chat::{Event, Status};
use firsttoken_wire::{ApiError, Dialect, typed};
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use crate::clock;
use crate::evidence::{Phase, Progress};
use crate::front::client::{ClientState, Drain};
use crate::front::streams;
use crate::stream::exchange::{Opened, Refusal};
use crate::stream::failures;
use crate::stream::relay::Relay;

/// A response body.
pub(crate) struct Body(Kind);

enum Kind {
    Full(Bytes),
    Relay(Box<Relay>),
    Early(Box<EarlyBody>),
}

impl Body {
    /// Everything at once.
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Full(bytes.into()))
    }

    /// A stream.
    pub(crate) fn relay(relay: Box<Relay>) -> Self {
        Self(Kind::Relay(relay))
    }

    /// A stream that begins before its upstream has said anything.
    pub(crate) fn early(body: EarlyBody) -> Self {
        Self(Kind::Early(Box::new(body)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let data = match &mut self.get_mut().0 {
            Kind::Full(bytes) => {
                Poll::Ready(Some(Ok(std::mem::take(bytes))).filter(|b| !matches!(b, Ok(b) if b.is_empty())))
            }
            Kind::Relay(relay) => poll_relay(relay, cx),
            Kind::Early(body) => body.poll_frame(cx),
        };
        streams::on_frame(&data);
        data.map(|data| data.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Relay(relay) => is_over(relay),
            Kind::Early(body) => matches!(&body.state, State::Relaying(relay) if is_over(relay)),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Relay(_) | Kind::Early(_) => SizeHint::default(),
        }
    }
}

fn poll_relay(relay: &mut Relay, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
    let data = ready!(relay.poll_frame(cx));
    if data.is_none() && relay.broke_opaquely() {
        ready!(relay.poll_break(cx));
        return Poll::Ready(Some(Err(io::Error::other("the upstream broke off"))));
    }
    Poll::Ready(data.map(Ok))
}

fn is_over(relay: &Relay) -> bool {
    relay.is_over() && !relay.broke_opaquely()
}

/// A request being opened while its events already flow.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Opened, Refusal>> + Send>>;

/// What is written while a request is still being opened.
pub(crate) enum Voice {
    /// Keepalives of this dialect, and an error event of it that names the request.
    Dialect(Dialect, String),
    /// Typed events: `status` as the phases happen.
    Typed(Box<Telling>),
}

/// Tells the phases of a request as they happen.
pub(crate) struct Telling {
    renderer: typed::Renderer,
    progress: Progress,
    accepted: Instant,
    told: Option<(Phase, Option<u64>)>,
}

impl Telling {
    pub(crate) fn new(progress: Progress, accepted: Instant, request_id: &str, message_id: String) -> Self {
        let renderer = typed::Renderer::new().request_id(request_id).message_id(message_id);
        Self { renderer, progress, accepted, told: None }
    }

    /// The phase, if it is news. The first thing told is that the request was accepted.
    fn news(&mut self) -> Option<Bytes> {
        let (phase, word) = match self.told {
            None => (Phase::Auth, "accepted"),
            Some(_) => (self.progress.phase(), self.progress.phase().name()),
        };
        let place = (phase == Phase::Queue).then(|| self.progress.place());
        let (ahead, wait_ms) = (place.map(|(ahead, _)| ahead), place.and_then(|(_, wait_ms)| wait_ms));
        if self.told == Some((phase, ahead)) {
            return None;
        }
        self.told = Some((phase, ahead));
        let elapsed = clock::now().since(self.accepted).as_millis();
        let elapsed_ms = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let status = Status { phase: word, elapsed_ms, ahead, wait_ms };
        let mut out = Vec::with_capacity(128);
        self.renderer.render(&Event::Status(status), &mut out);
        Some(out.into())
    }
}

/// A stream that begins before its upstream has said anything, then what the relay brings.
pub(crate) struct EarlyBody {
    state: State,
    voice: Voice,
    client: Arc<ClientState>,
    keepalive: Duration,
    last_write: Instant,
    timer: Pin<Box<Sleep>>,
}

enum State {
    Opening(Opening),
    Relaying(Box<Relay>),
    Over,
}

impl EarlyBody {
    /// The first keepalive comes after `first`, the others after as much silence as `keepalive` says.
    pub(crate) fn new(
        opening: Opening,
        voice: Voice,
        client: Arc<ClientState>,
        first: Duration,
        keepalive: Duration,
    ) -> Self {
        Self {
            state: State::Opening(opening),
            voice,
            client,
            keepalive,
            last_write: clock::now(),
            timer: Box::pin(tokio::time::sleep(first)),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let opening = match &mut self.state {
                State::Over => return Poll::Ready(None),
                State::Relaying(relay) => return poll_relay(relay, cx),
                State::Opening(opening) => opening,
            };
            if let Voice::Typed(telling) = &mut self.voice
                && telling.told.is_none()
            {
                return Poll::Ready(telling.news().map(Ok));
            }
            if self.client.drain() == Drain::Now {
                self.state = State::Over;
                return Poll::Ready(Some(Ok(self.error(&failures::draining()))));
            }
            match opening.as_mut().poll(cx) {
                Poll::Ready(Ok(Opened::Stream { mut relay, .. })) => {
                    if let Voice::Typed(telling) = &mut self.voice {
                        relay.continue_with(std::mem::take(&mut telling.renderer));
                    }
                    relay.continue_after(self.last_write);
                    self.state = State::Relaying(relay);
                }
                // Whoever asked for a stream gets one; anything else was refused while opening.
                Poll::Ready(Ok(Opened::Whole { .. })) => self.state = State::Over,
                Poll::Ready(Err(refusal)) => {
                    self.state = State::Over;
                    return Poll::Ready(Some(Ok(self.error(&refusal.error))));
                }
                Poll::Pending => return self.poll_waiting(cx).map(|bytes| Some(Ok(bytes))),
            }
        }
    }

    fn error(&mut self, error: &ApiError) -> Bytes {
        match &mut self.voice {
            Voice::Dialect(dialect, id) => dialect.error_event(error, Some(id)).into(),
            Voice::Typed(telling) => {
                let mut out = Vec::new();
                telling.renderer.render(&Event::Error(error.clone()), &mut out);
                out.into()
            }
        }
    }

    /// Nothing has come yet: tells the phase if it is new, or that we are alive if it is time.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let (news, dialect) = match &mut self.voice {
            Voice::Dialect(dialect, _) => (None, *dialect),
            Voice::Typed(telling) => (telling.news(), Dialect::Typed),
        };
        let bytes = match news {
            Some(bytes) => bytes,
            None => {
                ready!(self.timer.as_mut().poll(cx));
                Bytes::from_static(dialect.keepalive())
            }
        };
        self.last_write = clock::now();
        self.timer.as_mut().reset(clock::to_tokio(self.last_write + self.keepalive));
        Poll::Ready(bytes)
    }
}
