//! What hyper writes to a client: a whole body, a relayed stream, or typed events that begin before
//! there is an upstream.
//!
//! Invariant: dropping a body ends everything behind it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use firsttoken_logic::time::Instant;
use firsttoken_wire::chat::{Event, Status};
use firsttoken_wire::{Dialect, typed};
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use crate::clock;
use crate::exchange::{Opened, Refusal};
use crate::relay::Relay;
use crate::timeline::{Phase, Progress};

/// A response body.
pub(crate) struct Body(Kind);

enum Kind {
    Full(Bytes),
    Relay(Box<Relay>),
    Typed(Box<TypedBody>),
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

    /// Typed events, from the very first moment on.
    pub(crate) fn typed(body: TypedBody) -> Self {
        Self(Kind::Typed(Box::new(body)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let data = match &mut self.get_mut().0 {
            Kind::Full(bytes) => Some(std::mem::take(bytes)).filter(|b| !b.is_empty()),
            Kind::Relay(relay) => {
                let data = ready!(relay.poll_frame(cx));
                if data.is_none() && relay.broke_opaquely() {
                    return Poll::Ready(Some(Err(io::Error::other("the upstream broke off"))));
                }
                data
            }
            Kind::Typed(body) => ready!(body.poll_frame(cx)),
        };
        Poll::Ready(data.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Relay(relay) => relay.is_over() && !relay.broke_opaquely(),
            Kind::Typed(body) => matches!(&body.state, State::Relaying(relay) if relay.is_over()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Relay(_) | Kind::Typed(_) => SizeHint::default(),
        }
    }
}

/// A request being opened while its events already flow.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Opened, Refusal>> + Send>>;

/// Typed events: `status` as the phases happen, then what the relay brings.
pub(crate) struct TypedBody {
    state: State,
    renderer: typed::Renderer,
    progress: Progress,
    accepted: Instant,
    told: Option<Phase>,
    keepalive: Duration,
    timer: Pin<Box<Sleep>>,
}

enum State {
    Opening(Opening),
    Relaying(Box<Relay>),
    Over,
}

impl TypedBody {
    pub(crate) fn new(
        opening: Opening,
        progress: Progress,
        accepted: Instant,
        keepalive: Duration,
        request_id: &str,
    ) -> Self {
        Self {
            state: State::Opening(opening),
            renderer: typed::Renderer::new().request_id(request_id),
            progress,
            accepted,
            told: None,
            keepalive,
            timer: Box::pin(tokio::time::sleep(keepalive)),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let opening = match &mut self.state {
                State::Over => return Poll::Ready(None),
                State::Relaying(relay) => return relay.poll_frame(cx),
                State::Opening(opening) => opening,
            };
            if self.told.is_none() {
                self.told = Some(Phase::Auth);
                return Poll::Ready(Some(self.status("accepted")));
            }
            match opening.as_mut().poll(cx) {
                Poll::Ready(Ok(Opened::Stream { mut relay, .. })) => {
                    relay.continue_with(std::mem::take(&mut self.renderer));
                    self.state = State::Relaying(relay);
                }
                // Typed requests are always streamed; anything else was refused while opening.
                Poll::Ready(Ok(Opened::Whole { .. })) => self.state = State::Over,
                Poll::Ready(Err(refusal)) => {
                    self.state = State::Over;
                    let mut out = Vec::new();
                    self.renderer.render(&Event::Error(refusal.error), &mut out);
                    return Poll::Ready(Some(out.into()));
                }
                Poll::Pending => return self.poll_waiting(cx),
            }
        }
    }

    /// Nothing has come yet: tells the phase if it is new, or that we are alive if it is time.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let phase = self.progress.phase();
        if self.told != Some(phase) {
            self.told = Some(phase);
            return Poll::Ready(Some(self.status(phase.name())));
        }
        ready!(self.timer.as_mut().poll(cx));
        self.timer.as_mut().reset(tokio::time::Instant::now() + self.keepalive);
        Poll::Ready(Some(Bytes::from_static(Dialect::Typed.keepalive())))
    }

    fn status(&mut self, phase: &str) -> Bytes {
        let elapsed = clock::now().since(self.accepted).as_millis();
        let status = Status { phase, elapsed_ms: u64::try_from(elapsed).unwrap_or(u64::MAX) };
        let mut out = Vec::with_capacity(128);
        self.renderer.render(&Event::Status(status), &mut out);
        out.into()
    }
}
