//! A good status has come: the answer behind it becomes what the client can be given.
//!
//! Invariant: a status goes to the client only when it is true: not before a whole answer is there, and
//! for a stream not before its first content, unless the head is due.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use firsttoken_logic::clocks::Clocks;
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_wire::Dialect;
use firsttoken_wire::chat::Facts;
use http::header;
use serde::de::IgnoredAny;

use crate::clock;
use crate::config::Limits;
use crate::evidence::{Heard, Phase};
use crate::front::headers;
use crate::gateway::Bounds;
use crate::stream::attempt::{Arrival, ERROR_BYTES_MAX, ERROR_PATIENCE, Lost, media_type};
use crate::stream::exchange::{Call, Leg};
use crate::stream::failures;
use crate::stream::flow::{Flow, Step};
use crate::stream::inflate::Decoded;
use crate::stream::relay::Begun;
use crate::stream::tee::{Face, Tee};
use crate::upstream::{Broken, Head};

const EVENT_STREAM: &str = "text/event-stream";

/// A response of an upstream, its body still to come.
pub(super) struct Arrived {
    pub(super) head: Head,
    pub(super) body: Decoded,
    pub(super) clocks: Clocks,
    pub(super) upstream: Arc<str>,
}

impl Arrived {
    /// What the client can be given of a good answer.
    pub(super) async fn open(
        self: Box<Self>,
        call: &Call,
        leg: &Leg,
        limits: &Limits,
        heard: &mut Heard,
    ) -> Result<Arrival, Box<Lost>> {
        let announced = self.head.headers.get(header::CONTENT_LENGTH);
        let length: Option<usize> = announced.and_then(|v| v.to_str().ok()?.parse().ok());
        let small = length.is_none_or(|n| n <= limits.answer_bytes_max);
        match leg.answers {
            Some(dialect) if !call.stream && (small || leg.translation.is_some()) => {
                self.whole(dialect, call, leg, limits.answer_bytes_max, heard).await
            }
            Some(_) if call.stream && !self.is(EVENT_STREAM) => Err(self.not_a_stream(call).await),
            _ => self.stream(call, leg, limits, heard).await,
        }
    }

    fn is(&self, media: &str) -> bool {
        media_type(&self.head.headers, media)
    }

    fn lost(&self, kind: Kind, detail: impl Into<String>) -> Box<Lost> {
        Lost::new(Failure::new(kind, Reached::Head, detail), &self.upstream)
    }

    /// Collects an answer that is not streamed, so that a broken one is still a true status.
    async fn whole(
        mut self: Box<Self>,
        dialect: Dialect,
        call: &Call,
        leg: &Leg,
        bytes_max: usize,
        heard: &mut Heard,
    ) -> Result<Arrival, Box<Lost>> {
        let collecting = collect(&mut self.body, bytes_max);
        let collected = match self.clocks.deadline() {
            None => collecting.await,
            Some((at, clock)) => match tokio::time::timeout_at(clock::to_tokio(at), collecting).await {
                Ok(collected) => collected,
                Err(_) => Err((Kind::Timeout(clock), String::new())),
            },
        };
        let body = match collected {
            Ok(body) => body,
            Err((kind, detail)) => return Err(self.lost(kind, detail)),
        };
        heard.stamps.enter(Phase::NetworkOut);
        let html = self.is("text/html");
        if html || body.is_empty() {
            let what = if html { "an HTML page" } else { "an empty body" };
            let upstream = &self.upstream;
            let detail =
                format!("{upstream} answered with {what} instead of JSON. Check base_url of this upstream.");
            return Err(self.lost(Kind::Protocol, detail));
        }
        let answer = dialect.facts(&body);
        // Read twice only where the first reading found nothing, as in half an answer.
        if answer == Facts::default() && serde_json::from_slice::<IgnoredAny>(&body).is_err() {
            let upstream = &self.upstream;
            let detail =
                format!("{upstream} answered with something that is not JSON: it may have broken off");
            return Err(self.lost(Kind::Protocol, detail));
        }
        heard.usage.update(answer.usage);
        let mut headers = headers::downward(&self.head.headers);
        let body = match &leg.translation {
            None => body,
            Some(translation) => {
                headers::name_dropped(&mut headers, translation.dropped.clone());
                match dialect.parse_answer(&body) {
                    Ok(answer) => call.dialect.render_answer(&answer, &translation.identity).into(),
                    Err(error) => return Err(self.lost(Kind::Protocol, error.message)),
                }
            }
        };
        Ok(Arrival::Whole { status: self.head.status, headers, body })
    }

    /// A stream was asked for and something else came: says what, in the upstream's own words where it
    /// has some.
    async fn not_a_stream(mut self: Box<Self>, call: &Call) -> Box<Lost> {
        let collecting = collect(&mut self.body, ERROR_BYTES_MAX);
        let collected = tokio::time::timeout(ERROR_PATIENCE, collecting).await;
        let body = collected.ok().and_then(Result::ok).unwrap_or_default();
        let kind = self.head.headers.get(header::CONTENT_TYPE);
        let what = kind.map_or("nothing", |v| v.to_str().unwrap_or("something"));
        let mut detail = format!("{} answered with {what} instead of an event stream", self.upstream);
        if self.is("application/json") {
            let said = call.dialect.parse_error_body(self.head.status.as_u16(), &body);
            detail.push_str(": ");
            detail.push_str(&said.message);
        } else {
            detail.push_str(". Check base_url of this upstream.");
        }
        self.lost(Kind::Protocol, detail)
    }

    /// Bytes that flow: watched where we know how to read them, raw otherwise.
    async fn stream(
        mut self: Box<Self>,
        call: &Call,
        leg: &Leg,
        limits: &Limits,
        heard: &mut Heard,
    ) -> Result<Arrival, Box<Lost>> {
        let (face, answers) = match leg.answers.filter(|_| self.is(EVENT_STREAM)) {
            Some(answers) => (face(call, leg), answers),
            None => (Face::Opaque, Dialect::OpenAiOther),
        };
        let opaque = matches!(face, Face::Opaque);
        if opaque {
            // The content clocks mean nothing where content cannot be seen.
            self.clocks.on_unmetered();
        }
        let mut headers = headers::downward(&self.head.headers);
        if !opaque {
            headers::event_stream(&mut headers);
            headers::name_dropped(&mut headers, leg.dropped());
        } else if let Some(length) = self.head.headers.get(header::CONTENT_LENGTH)
            && !self.body.is_coded()
        {
            headers.insert(header::CONTENT_LENGTH, length.clone());
        }
        let status = self.head.status;
        let tee = Tee::new(answers, face, limits.event_bytes_max);
        let flow = Flow::new(self.body, tee, self.clocks, self.upstream);
        // Boxed before it is awaited on: what a future holds is moved with it.
        let mut begun = Box::new(Begun { flow, held: VecDeque::new(), next: None });
        if opaque {
            // There is no body, as after HEAD, and hyper does not ask for one.
            begun.next = begun.flow.has_come().then(|| Step::Complete(Bytes::new()));
        } else {
            hold(&mut begun, Bounds::of(limits.stream_bytes_max).write_buffer, heard).await?;
        }
        Ok(Arrival::Stream { status, headers, begun })
    }
}

/// Reads a stream until there is content, an end, or more than may be held.
async fn hold(begun: &mut Begun, bytes_max: usize, heard: &mut Heard) -> Result<(), Box<Lost>> {
    let Begun { flow, held, next } = begun;
    let mut held_bytes = 0;
    loop {
        match poll_fn(|cx| flow.poll_step(heard, None, cx)).await {
            Step::Data(bytes) => {
                held_bytes += bytes.len();
                held.push_back(bytes);
                if heard.has_content() || held_bytes > bytes_max {
                    return Ok(());
                }
            }
            Step::Due => {}
            Step::Failed(_, failure) if !heard.has_content() => {
                let error = failures::streamed(&failure, flow.tee.seen.error.take(), &flow.upstream);
                return Err(Box::new(Lost { failure, error, answer: None }));
            }
            // What came before it broke is the caller's.
            end => {
                *next = Some(end);
                return Ok(());
            }
        }
    }
}

/// How an answer that can be read reaches the caller.
fn face(call: &Call, leg: &Leg) -> Face {
    match &leg.translation {
        // Whoever tells the caller what is being done goes on telling; see `Relay::continue_with`.
        Some(_) if matches!(call.dialect, Dialect::Typed | Dialect::Ui) => Face::Same { strip_usage: false },
        Some(translation) => Face::Rendered(Box::new(call.dialect.renderer(&translation.identity))),
        None => Face::Same { strip_usage: leg.strip_usage },
    }
}

/// A whole body of at most `bytes_max`; or what is wrong with it.
async fn collect(body: &mut Decoded, bytes_max: usize) -> Result<Bytes, (Kind, String)> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(read) = body.data().await {
        let bytes = read.map_err(|broken| match broken {
            Broken::Io(e) => (Kind::Cut, e.to_string()),
            Broken::Protocol(what) => (Kind::Protocol, what),
        })?;
        if first.len() + rest.len() + bytes.len() > bytes_max {
            let detail =
                format!("an answer of more than {bytes_max} bytes; the bound is limits.answer_bytes_max");
            return Err((Kind::Protocol, detail));
        }
        if first.is_empty() && rest.is_empty() {
            first = bytes;
            continue;
        }
        if rest.is_empty() {
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&bytes);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}
