//! From the pieces of an answer to a stream of Chat Completions, or to a whole body.
//!
//! hyper pulls the body; a reader who does not keep up is not pulled for, and its sequence pauses.
//! When the client leaves, hyper drops the body, and with it the ear that cancels.
//!
//! Invariant: a stream ends with its stop reason, its usage and its terminal event, or with an error.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use firsttoken_engine::driver::{NotTaken, Refused};
use firsttoken_engine::speech::{Ear, End, Piece, Reason};
use firsttoken_logic::engine::scheduler::Refusal;
use firsttoken_wire::chat::{Answer, Event, Part, StopReason, Usage};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity, StreamRenderer};
use http_body::Frame;

/// A stream of events.
pub(crate) struct Stream {
    ear: Ear,
    renderer: StreamRenderer,
    prompt: u32,
    first: Option<Piece>,
    over: bool,
}

impl Stream {
    /// What follows `first`, rendered.
    pub(crate) fn new(ear: Ear, first: Piece, identity: &Identity, prompt: u32) -> Self {
        let mut renderer = Dialect::OpenAiChat.renderer(identity);
        let mut nothing = Vec::new();
        let start = Event::Start { id: identity.id.as_str().into(), model: identity.model.as_str().into() };
        renderer.render(&start, &mut nothing);
        Self { ear, renderer, prompt, first: Some(first), over: false }
    }

    /// The bytes of a piece.
    fn render(&mut self, piece: Piece) -> Bytes {
        let mut out = Vec::with_capacity(256);
        match piece {
            Piece::Text(text) => self.renderer.render(&Event::Text(text.into()), &mut out),
            Piece::End(end) => {
                self.over = true;
                self.renderer.render(&Event::Stop(stop(end.reason)), &mut out);
                self.renderer.render(&Event::Usage(usage(self.prompt, end)), &mut out);
                self.renderer.render(&Event::End, &mut out);
            }
            Piece::Refused(why) => {
                self.over = true;
                self.renderer.render(&Event::Error(refusal(&why)), &mut out);
            }
        }
        out.into()
    }
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let piece = match self.first.take() {
            Some(first) => first,
            None => match ready!(self.ear.poll(cx)) {
                Some(piece) => piece,
                None => Piece::Refused(Refused::Failed("the engine has ended".to_owned())),
            },
        };
        let bytes = self.render(piece);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

/// The whole body, once all has been heard.
pub(crate) async fn whole(
    mut ear: Ear,
    first: Piece,
    identity: &Identity,
    prompt: u32,
) -> Result<Vec<u8>, ApiError> {
    let (mut text, mut next) = (String::new(), Some(first));
    loop {
        match next {
            Some(Piece::Text(piece)) => text.push_str(&piece),
            Some(Piece::End(end)) => {
                let answer = Answer {
                    id: Some(identity.id.clone()),
                    model: Some(identity.model.clone()),
                    parts: vec![Part::Text(text)],
                    usage: usage(prompt, end),
                    stop: Some(stop(end.reason)),
                };
                return Ok(Dialect::OpenAiChat.render_answer(&answer, identity));
            }
            Some(Piece::Refused(why)) => return Err(refusal(&why)),
            None => return Err(refusal(&Refused::Failed("the engine has ended".to_owned()))),
        }
        next = ear.hear().await;
    }
}

const fn stop(reason: Reason) -> StopReason {
    match reason {
        Reason::Finished | Reason::Stopped => StopReason::Stop,
        Reason::Length => StopReason::Length,
    }
}

fn usage(prompt: u32, end: End) -> Usage {
    Usage {
        input_tokens: Some(prompt.into()),
        cache_read_tokens: Some(end.cached.into()),
        output_tokens: Some(end.generated.into()),
        ..Usage::default()
    }
}

/// A refusal of the engine, as callers are told.
pub(crate) fn refusal(why: &Refused) -> ApiError {
    match why {
        Refused::Scheduler(Refusal::Empty) => {
            ApiError::new(ErrorKind::InvalidRequest, "there is nothing to answer, or no room for an answer")
        }
        Refused::Scheduler(Refusal::TooLong { tokens, cells }) => {
            let message = format!("this needs {tokens} tokens of memory, and there are {cells}");
            ApiError::new(ErrorKind::InvalidRequest, message).code("context_length_exceeded")
        }
        Refused::Scheduler(Refusal::QueueFull { waiting }) => {
            let message = format!("{waiting} requests wait for this model, and no more may");
            ApiError::new(ErrorKind::RateLimit, message).code("queue_full").retry_after_s(1)
        }
        Refused::Scheduler(Refusal::Busy { retry_after }) => {
            let seconds = u32::try_from(retry_after.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
            let message = format!(
                "this model has more to do than it can do in time; come back in {seconds} s and you will be taken"
            );
            ApiError::new(ErrorKind::RateLimit, message).code("busy").retry_after_s(seconds)
        }
        Refused::Scheduler(Refusal::Deadline) => {
            ApiError::new(ErrorKind::Timeout, "the deadline passed while this waited").code("deadline")
        }
        Refused::Failed(what) => ApiError::new(ErrorKind::Internal, what.clone()).code("engine_failed"),
    }
}

/// Why the engine did not even take a request, as callers are told.
pub(crate) fn not_taken(why: NotTaken) -> ApiError {
    let (kind, code) = match why {
        NotTaken::Crowded => (ErrorKind::RateLimit, "queue_full"),
        NotTaken::Failed => (ErrorKind::Unavailable, "engine_failed"),
    };
    ApiError::new(kind, why.to_string()).code(code).retry_after_s(1)
}
