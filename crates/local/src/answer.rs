//! From the pieces of an answer to a stream, or to a whole body: chat completions, and the older
//! completions.
//!
//! hyper pulls the body; a reader who does not keep up is not pulled for, and its sequence pauses.
//! When the client leaves, hyper drops the body, and with it the ear that cancels.
//!
//! Invariant: a stream ends with its stop reason, its usage and its terminal event, or with an error.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use firsttoken_engine::driver::{NotTaken, Refused};
use firsttoken_engine::speech::{End, Piece, Reason};
use firsttoken_engine::tools::Delta;
use firsttoken_logic::engine::scheduler::Refusal;
use firsttoken_wire::chat::{Answer, Citation, Event, Part, Reasoning, StopReason, Usage};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity, StreamRenderer};
use http_body::Frame;
use serde_json::{Value, json};

use crate::completion::Completion;
use crate::demo::Cites;
use crate::hearing::Hearing;

/// How an answer is told.
pub(crate) enum Voice {
    /// As a chat completion, with what it cites.
    Chat(Box<StreamRenderer>, Option<Cites>),
    /// As one of the older completions.
    Completion(Completion),
}

impl Voice {
    /// As a chat completion, with what it cites.
    pub(crate) fn chat(identity: &Identity, cites: Option<Cites>) -> Self {
        Self::Chat(Box::new(Dialect::OpenAiChat.renderer(identity)), cites)
    }

    /// What stands before anything is said.
    fn begin(&mut self, identity: &Identity, out: &mut Vec<u8>) {
        match self {
            Self::Chat(renderer, _) => {
                let (id, model) = (identity.id.as_str().into(), identity.model.as_str().into());
                renderer.render(&Event::Start { id, model }, out);
            }
            Self::Completion(completion) => completion.begin(out),
        }
    }

    fn say(&mut self, delta: Delta, out: &mut Vec<u8>) {
        match (self, delta) {
            (Self::Chat(renderer, cites), delta) => {
                let (delta, cited) = cited(cites, delta);
                let events = event(delta).into_iter().chain(cited.into_iter().map(Event::Citation));
                events.for_each(|event| renderer.render(&event, out));
            }
            (Self::Completion(completion), Delta::Text(text)) => completion.say(&text, out),
            // Out of a plain text nothing else is read.
            (Self::Completion(_), _) => {}
        }
    }

    fn end(&mut self, prompt: u32, end: &End, out: &mut Vec<u8>) {
        match self {
            Self::Chat(renderer, _) => {
                renderer.render(&Event::Stop(stop(end.reason)), out);
                put_timings(out, prompt, end);
                renderer.render(&Event::Usage(usage(prompt, end)), out);
                renderer.render(&Event::End, out);
            }
            Self::Completion(completion) => completion.end(prompt, end, out),
        }
    }
}

/// A stream of events.
pub(crate) struct Stream {
    hearing: Hearing,
    voice: Voice,
    /// What is to be written before the next piece.
    out: Vec<u8>,
    is_over: bool,
}

impl Stream {
    /// All that is heard, told by `voice`.
    pub(crate) fn new(hearing: Hearing, mut voice: Voice, identity: &Identity) -> Self {
        let mut out = Vec::with_capacity(256);
        voice.begin(identity, &mut out);
        Self { hearing, voice, out, is_over: false }
    }

    /// The bytes of a piece.
    fn render(&mut self, piece: Piece) -> Bytes {
        let mut out = std::mem::take(&mut self.out);
        match piece {
            Piece::Said(deltas, _) => deltas.into_iter().for_each(|delta| self.voice.say(delta, &mut out)),
            Piece::End(end) => {
                self.is_over = true;
                self.voice.end(self.hearing.tally.prompt, &end, &mut out);
            }
            Piece::Refused(why) => {
                self.is_over = true;
                out.extend(Dialect::OpenAiChat.error_event(&refusal(&why), None));
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
        while !self.is_over {
            let piece = ready!(self.hearing.poll(cx));
            let bytes = self.render(piece);
            // The end of a call is no event of its own.
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
        }
        Poll::Ready(None)
    }
}

/// The whole body, once all has been heard.
pub(crate) async fn whole(
    mut hearing: Hearing,
    voice: Voice,
    identity: &Identity,
) -> Result<Vec<u8>, ApiError> {
    let mut said: Vec<Delta> = Vec::new();
    let end = loop {
        match hearing.hear().await {
            Piece::Said(deltas, _) => said.extend(deltas),
            Piece::End(end) => break end,
            Piece::Refused(why) => return Err(refusal(&why)),
        }
    };
    let prompt = hearing.tally.prompt;
    let mut body = match voice {
        Voice::Chat(_, mut cites) => {
            let read = said.into_iter().map(|delta| cited(&mut cites, delta));
            let (said, citations): (_, Vec<_>) = read.unzip();
            let answer = Answer {
                id: Some(identity.id.clone()),
                model: Some(identity.model.clone()),
                parts: parts(said),
                citations: citations.concat(),
                usage: usage(prompt, &end),
                stop: Some(stop(end.reason)),
            };
            Dialect::OpenAiChat.render_answer(&answer, identity)
        }
        Voice::Completion(completion) => completion.whole(parts(said), prompt, &end),
    };
    put_timings(&mut body, prompt, &end);
    Ok(body)
}

/// A piece of the answer, as readers get it, and what it cites.
fn cited(cites: &mut Option<Cites>, delta: Delta) -> (Delta, Vec<Citation<'static>>) {
    match (cites, delta) {
        (Some(cites), Delta::Text(text)) => {
            let (text, cited) = cites.next(text);
            (Delta::Text(text), cited)
        }
        (_, delta) => (delta, Vec::new()),
    }
}

/// What is said without anything being computed, as a stream or as a whole body.
pub(crate) fn said(text: &str, stream: bool, identity: &Identity) -> Vec<u8> {
    let usage = Usage { input_tokens: Some(0), output_tokens: Some(0), ..Usage::default() };
    let (id, model) = (identity.id.clone(), identity.model.clone());
    if !stream {
        let parts = vec![Part::Text(text.to_owned())];
        let stop = Some(StopReason::Stop);
        let answer = Answer { id: Some(id), model: Some(model), parts, usage, stop, ..Answer::default() };
        return Dialect::OpenAiChat.render_answer(&answer, identity);
    }
    let (mut renderer, mut out) = (Dialect::OpenAiChat.renderer(identity), Vec::new());
    let events = [
        Event::Start { id: id.into(), model: model.into() },
        Event::Text(text.into()),
        Event::Stop(StopReason::Stop),
        Event::Usage(usage),
        Event::End,
    ];
    events.iter().for_each(|event| renderer.render(event, &mut out));
    out
}

/// What was said, in its parts.
fn parts(said: Vec<Delta>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for delta in said {
        match (delta, parts.last_mut()) {
            (Delta::Text(more), Some(Part::Text(text)))
            | (Delta::Reasoning(more), Some(Part::Reasoning(Reasoning { text, .. })))
            | (Delta::Arguments { json: more, .. }, Some(Part::ToolCall { arguments: text, .. })) => {
                text.push_str(&more);
            }
            (Delta::Text(text), _) => parts.push(Part::Text(text)),
            (Delta::Reasoning(text), _) => {
                parts.push(Part::Reasoning(Reasoning { text, ..Reasoning::default() }))
            }
            (Delta::CallBegin { id, name, .. }, _) => {
                parts.push(Part::ToolCall { id, name, arguments: String::new() });
            }
            // Arguments follow their call's beginning.
            (Delta::Arguments { .. } | Delta::CallEnd { .. }, _) => {}
        }
    }
    if parts.is_empty() { vec![Part::Text(String::new())] } else { parts }
}

fn event(delta: Delta) -> Option<Event<'static>> {
    Some(match delta {
        Delta::Text(text) => Event::Text(text.into()),
        Delta::Reasoning(text) => Event::Reasoning(text.into()),
        Delta::CallBegin { index, id, name } => Event::ToolStart { index, id: id.into(), name: name.into() },
        Delta::Arguments { index, json } => Event::ToolArguments { index, json: json.into() },
        Delta::CallEnd { .. } => return None,
    })
}

const fn stop(reason: Reason) -> StopReason {
    match reason {
        Reason::Finished | Reason::Stopped => StopReason::Stop,
        Reason::Called => StopReason::Tool,
        Reason::Length => StopReason::Length,
    }
}

fn usage(prompt: u32, end: &End) -> Usage {
    Usage {
        input_tokens: Some(prompt.into()),
        cache_read_tokens: Some(end.cached.into()),
        output_tokens: Some(end.generated.into()),
        reasoning_tokens: (end.thought > 0).then_some(end.thought.into()),
        ..Usage::default()
    }
}

/// Puts `timings`, in the words of llama.cpp's server, into the JSON object that ends last in `out`.
pub(crate) fn put_timings(out: &mut Vec<u8>, prompt: u32, end: &End) {
    let Some(at) = out.iter().rposition(|byte| *byte == b'}') else { return };
    let field = format!(",\"timings\":{}", timings(prompt, end));
    out.splice(at..at, field.into_bytes());
}

fn timings(prompt: u32, end: &End) -> Value {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    json!({
        "cache_n": end.cached, "prompt_n": prompt.saturating_sub(end.cached), "prompt_ms": ms(end.timings.prompt),
        "predicted_n": end.generated, "predicted_ms": ms(end.timings.spoken),
    })
}

/// Nobody listens.
pub(crate) fn unheard(why: NotTaken) -> ApiError {
    let (kind, code) = match why {
        NotTaken::Crowded => (ErrorKind::RateLimit, "queue_full"),
        NotTaken::Failed => (ErrorKind::Unavailable, "engine_failed"),
    };
    ApiError::new(kind, why.to_string()).code(code).retry_after_s(1)
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
