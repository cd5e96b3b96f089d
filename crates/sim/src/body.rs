//! The response body: a [`Player`] behind hyper's pull.
//!
//! hyper asks for a frame when it has room for one, so nothing is produced ahead of the reader. When
//! the peer leaves, hyper drops the body, and the ticket in it books the abort.
//!
//! Invariant: the ticket is ended before the connection is broken on purpose, so that a scripted
//! failure is never taken for an abort.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::time::{Instant, Sleep};

use crate::link::Break;
use crate::player::{Player, Step};
use crate::stats::{Ended, Ticket};

/// How long an HTTP/2 stream lets its frames go out before it is reset: a reset overtakes them.
const H2_RESET_DELAY: Duration = Duration::from_millis(1);

/// The script wants this exchange to break off.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("broken off as scripted")]
pub(crate) struct Scripted;

impl From<Infallible> for Scripted {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The body of any answer of the simulator.
pub(crate) enum SimBody {
    /// All there at once.
    Full(Full<Bytes>),
    /// Played from a script.
    Played(Box<Played>),
}

/// A script being played.
pub(crate) struct Played {
    player: Player,
    ticket: Ticket,
    sleep: Pin<Box<Sleep>>,
    /// Whether `sleep` has to end before the next step.
    asleep: bool,
    http2: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Playing,
    Breaking,
    Hanging,
    Ended,
}

impl Played {
    pub(crate) fn new(player: Player, ticket: Ticket, http2: bool) -> Self {
        let sleep = Box::pin(tokio::time::sleep_until(Instant::now()));
        Self { player, ticket, sleep, asleep: false, http2, state: State::Playing }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Scripted>>> {
        loop {
            if self.asleep {
                ready!(self.sleep.as_mut().poll(cx));
                self.asleep = false;
            }
            match self.state {
                State::Playing => {}
                State::Breaking => return Poll::Ready(Some(Err(Scripted))),
                State::Hanging => return Poll::Pending,
                State::Ended => return Poll::Ready(None),
            }
            match self.player.next() {
                Step::Until(at) => self.sleep_until(at),
                Step::Write { bytes, .. } if bytes.is_empty() => {}
                Step::Write { bytes, tokens } => {
                    self.ticket.produced(tokens, bytes.len());
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Step::Flush => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Step::Hang => self.state = State::Hanging,
                Step::Break(how) => self.break_off(how, cx),
                Step::End(ended) => {
                    self.ticket.end(ended);
                    self.state = State::Ended;
                }
            }
        }
    }

    fn sleep_until(&mut self, at: Instant) {
        if at > Instant::now() {
            self.sleep.as_mut().reset(at);
            self.asleep = true;
        }
    }

    fn break_off(&mut self, how: Break, cx: &mut Context<'_>) {
        self.ticket.end(Ended::Faulted);
        if self.http2 {
            self.state = State::Breaking;
            return self.sleep_until(Instant::now() + H2_RESET_DELAY);
        }
        self.ticket.link.break_off(how);
        self.state = State::Hanging;
        cx.waker().wake_by_ref();
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = Scripted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Full(full) => Pin::new(full).poll_frame(cx).map_err(Scripted::from),
            Self::Played(played) => played.poll(cx),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(full) => full.size_hint(),
            Self::Played(_) => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(full) => full.is_end_stream(),
            Self::Played(_) => false,
        }
    }
}
