//! The body of an answer: whole, or a stream of tokens on a schedule.
//!
//! Each token (or batch) is one write: an unpaced stream yields between two, so that the connection
//! flushes. A stream that fell behind its schedule never bursts to catch up, because a model does not
//! either. A silent one stays pending; the connection still watches its peer and drops the body,
//! and with it the ticket, when that goes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::ledger::Ticket;
use super::wire::{Asked, Frames, Wire};
use crate::spec::Spec;

/// A response body of the mock.
#[derive(Debug)]
pub(super) struct Answer(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Option<Bytes>),
    Stream(Box<Stream>),
}

/// Everything a stream needs to know at its start.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) wire: Wire,
    pub(super) asked: Asked,
    pub(super) spec: Spec,
    pub(super) ticket: Ticket,
    pub(super) arrived_ns: u64,
    pub(super) first_at: Instant,
    pub(super) body_bytes: usize,
}

#[derive(Debug)]
struct Stream {
    spec: Spec,
    frames: Frames,
    ticket: Ticket,
    arrived_ns: u64,
    due: Instant,
    sleep: Pin<Box<Sleep>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Sleeping until `due`.
    Waiting,
    /// Unpaced: lets the connection flush first.
    Yielding,
    /// A token may go out.
    Ready,
    /// Only the end is left.
    Closing,
    Over,
}

impl Answer {
    pub(super) fn whole(body: Bytes) -> Self {
        Self(Kind::Whole(Some(body)))
    }

    pub(super) fn stream(script: Script) -> Self {
        let Script { wire, asked, spec, ticket, arrived_ns, first_at, body_bytes } = script;
        let frames = Frames::new(wire, &asked, &spec, body_bytes);
        let sleep = Box::pin(tokio::time::sleep_until(first_at));
        let state = if first_at > Instant::now() { State::Waiting } else { State::Ready };
        Self(Kind::Stream(Box::new(Stream { spec, frames, ticket, arrived_ns, due: first_at, sleep, state })))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let bytes = match &mut self.get_mut().0 {
            Kind::Whole(bytes) => bytes.take(),
            Kind::Stream(stream) => ready!(stream.poll(cx)),
        };
        Poll::Ready(bytes.map(|b| Ok(Frame::data(b))))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match self.state {
                State::Waiting => {
                    ready!(self.sleep.as_mut().poll(cx));
                    self.state = State::Ready;
                }
                State::Yielding => {
                    self.state = State::Ready;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                State::Ready if self.silent() => return Poll::Pending,
                State::Ready if self.left() == 0 => self.state = State::Closing,
                State::Ready => return Poll::Ready(Some(self.tokens())),
                State::Closing => {
                    self.state = State::Over;
                    let closing = self.frames.closing(self.ticket.tokens());
                    self.ticket.sent(0, closing.len());
                    self.ticket.done();
                    return Poll::Ready(Some(closing.into()));
                }
                State::Over => return Poll::Ready(None),
            }
        }
    }

    fn silent(&self) -> bool {
        self.spec.silent_after.is_some_and(|k| self.ticket.tokens() >= k)
    }

    fn left(&self) -> u64 {
        self.spec.tokens.map_or(u64::MAX, |n| n.saturating_sub(self.ticket.tokens()))
    }

    /// The next write, and when the one after it is due.
    fn tokens(&mut self) -> Bytes {
        let opening = std::mem::take(&mut self.frames.opening);
        let first = (!opening.is_empty()).then_some(self.arrived_ns);
        let count = self.spec.batch.min(self.left());
        let room = usize::try_from(count).unwrap_or(1) * self.frames.token_bytes_max();
        let mut out = Vec::with_capacity(opening.len() + room);
        out.extend_from_slice(&opening);
        for i in 0..count {
            self.frames.token(&mut out, first.filter(|_| i == 0));
        }
        self.ticket.sent(count, out.len());
        self.state = if self.left() == 0 {
            State::Closing
        } else if self.spec.itl.is_zero() {
            State::Yielding
        } else {
            self.due = (self.due + self.spec.itl).max(Instant::now());
            self.sleep.as_mut().reset(self.due);
            State::Waiting
        };
        out.into()
    }
}
