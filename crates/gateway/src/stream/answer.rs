//! A good status has come: the answer behind it becomes what the client can be given.
//!
//! Invariant: a status goes to the client only when it is true: not before a whole answer is there, and
//! for a stream not before its first content, unless the head is due.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use firsttoken_logic::clocks::{self, Clocks};
use firsttoken_logic::commit::Commit;
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_wire::Dialect;
use firsttoken_wire::chat::Facts;
use http::header;
use serde::de::IgnoredAny;

use crate::clock;
use crate::config::Limits;
use crate::evidence::{Phase, Record};
use crate::front::headers;
use crate::gateway::Bounds;
use crate::stream::exchange::{Call, ERROR_BYTES_MAX, ERROR_PATIENCE, Opened, Refusal, media_type, refuse};
use crate::stream::inflate::Decoded;
use crate::stream::relay::{Parts, Relay};
use crate::stream::tee::{Face, Tee};
use crate::upstream::{Broken, Head};

const EVENT_STREAM: &str = "text/event-stream";

/// A response of an upstream, its body still to come.
pub(super) struct Arrived {
    pub(super) head: Head,
    pub(super) body: Decoded,
    pub(super) clocks: Clocks,
    pub(super) upstream: Arc<str>,
    pub(super) record: Record,
}

impl Arrived {
    /// What the client can be given of a good answer.
    pub(super) async fn open(self: Box<Self>, call: Call, limits: &Limits) -> Result<Opened, Refusal> {
        let announced = self.head.headers.get(header::CONTENT_LENGTH);
        let length: Option<usize> = announced.and_then(|v| v.to_str().ok()?.parse().ok());
        let small = length.is_none_or(|n| n <= limits.answer_bytes_max);
        match call.answers {
            Some(dialect) if !call.stream && (small || call.translation.is_some()) => {
                self.whole(dialect, &call, limits.answer_bytes_max).await
            }
            Some(_) if call.stream && !self.is(EVENT_STREAM) => Err(self.not_a_stream(&call).await),
            _ => self.stream(call, limits).await,
        }
    }

    fn is(&self, media: &str) -> bool {
        media_type(&self.head.headers, media)
    }

    fn refuse(self: Box<Self>, kind: Kind, detail: impl Into<String>) -> Refusal {
        refuse(&Failure::new(kind, Reached::Head, detail), &self.upstream, self.record)
    }

    /// Collects an answer that is not streamed, so that a broken one is still a true status.
    async fn whole(
        mut self: Box<Self>,
        dialect: Dialect,
        call: &Call,
        bytes_max: usize,
    ) -> Result<Opened, Refusal> {
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
            Err((kind, detail)) => return Err(self.refuse(kind, detail)),
        };
        self.record.stamps.enter(Phase::NetworkOut);
        let html = self.is("text/html");
        if html || body.is_empty() {
            let what = if html { "an HTML page" } else { "an empty body" };
            let upstream = &self.upstream;
            let detail =
                format!("{upstream} answered with {what} instead of JSON. Check base_url of this upstream.");
            return Err(self.refuse(Kind::Protocol, detail));
        }
        let answer = dialect.facts(&body);
        // Read twice only where the first reading found nothing, as in half an answer.
        if answer == Facts::default() && serde_json::from_slice::<IgnoredAny>(&body).is_err() {
            let upstream = &self.upstream;
            let detail =
                format!("{upstream} answered with something that is not JSON: it may have broken off");
            return Err(self.refuse(Kind::Protocol, detail));
        }
        self.record.usage.update(answer.usage);
        let mut headers = headers::downward(&self.head.headers);
        let body = match &call.translation {
            None => body,
            Some(translation) => {
                headers::name_dropped(&mut headers, translation.dropped.clone());
                match dialect.parse_answer(&body) {
                    Ok(answer) => call.dialect.render_answer(&answer, &translation.identity).into(),
                    Err(error) => return Err(self.refuse(Kind::Protocol, error.message)),
                }
            }
        };
        Ok(Opened::Whole { status: self.head.status, headers, body, record: self.record })
    }

    /// A stream was asked for and something else came: says what, in the upstream's own words where it
    /// has some.
    async fn not_a_stream(mut self: Box<Self>, call: &Call) -> Refusal {
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
        self.refuse(Kind::Protocol, detail)
    }

    /// Bytes that flow: watched where we know how to read them, raw otherwise.
    async fn stream(mut self: Box<Self>, call: Call, limits: &Limits) -> Result<Opened, Refusal> {
        let policy = &call.policy;
        let (face, answers, hold) = match call.answers.filter(|_| self.is(EVENT_STREAM)) {
            Some(answers) => (face(&call), answers, policy.head_commit),
            None => (Face::Opaque, Dialect::OpenAiOther, Duration::ZERO),
        };
        let opaque = matches!(face, Face::Opaque);
        if opaque {
            // The content clocks mean nothing where content cannot be seen.
            let seen = clocks::Limits { first_content: None, stall: None, ..policy.clocks };
            self.clocks = Clocks::new(seen, self.record.accepted);
            self.clocks.on_head(clock::now());
        }
        let mut headers = headers::downward(&self.head.headers);
        if !opaque {
            headers::event_stream(&mut headers);
            headers::name_dropped(&mut headers, call.dropped());
        } else if let Some(length) = self.head.headers.get(header::CONTENT_LENGTH)
            && !self.body.is_coded()
        {
            headers.insert(header::CONTENT_LENGTH, length.clone());
        }
        // Boxed before it is awaited on: what a future holds is moved with it.
        let mut relay = Box::new(Relay::new(Parts {
            commit: Commit::new(self.record.accepted, hold, policy.keepalive),
            record: self.record,
            source: self.body,
            tee: Tee::new(answers, face, limits.event_bytes_max),
            clocks: self.clocks,
            dialect: call.dialect,
            upstream: self.upstream,
            hold_bytes_max: Bounds::of(limits.stream_bytes_max).write_buffer,
        }));
        match relay.hold().await {
            Ok(()) => Ok(Opened::Stream { status: self.head.status, headers, relay }),
            Err(error) => Err(Refusal { error, answer: None, record: relay.into_record() }),
        }
    }
}

/// How an answer that can be read reaches the caller.
fn face(call: &Call) -> Face {
    match &call.translation {
        Some(translation) => Face::Rendered(Box::new(call.dialect.renderer(&translation.identity))),
        None => Face::Same { strip_usage: call.strip_usage },
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
