//! One request: read, limited, scripted, answered.
//!
//! Everything before the response head happens here; what comes after it is the body's. The ticket
//! lives in this future until it goes into the body, so a peer that leaves early is an abort too.
//!
//! Invariant: a request that is refused or fails before its head has ended its ticket.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::ask::{Ask, Endpoint};
use crate::body::{Played, Scripted, SimBody};
use crate::fault::{Fault, FaultSpec};
use crate::link::Break;
use crate::player::Player;
use crate::refusal::Refusal;
use crate::script::Script;
use crate::server::Sim;
use crate::stats::{Ended, Ticket};
use crate::voice::{self, Counts};

/// Most bytes of text in an answer that is not streamed.
const WHOLE_BYTES_MAX: u64 = 64 << 20;
/// Bytes that a word of the canned text counts for.
const WORD_BYTES: u32 = 16;
/// How late the head comes with [`Fault::SlowHead`], where the script does not say.
const SLOW_HEAD_MS: u64 = 60_000;

pub(crate) type Reply = Response<SimBody>;

/// A request whose body has been read.
pub(crate) struct Exchange {
    pub(crate) sim: Arc<Sim>,
    pub(crate) endpoint: Endpoint,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) http2: bool,
    /// Counts the requests; the answer's id and its random numbers come from it.
    pub(crate) number: u64,
    pub(crate) ticket: Ticket,
}

/// A request that knows its script.
struct Act {
    ask: Ask,
    script: Script,
    fault: Option<FaultSpec>,
}

impl Exchange {
    /// Answers.
    ///
    /// # Errors
    /// Where the script wants an HTTP/2 stream reset before its head.
    pub(crate) async fn answer(mut self) -> Result<Reply, Scripted> {
        let act = match self.prepare().await {
            Ok(act) => act,
            Err(refusal) => return Ok(self.refuse(&refusal, Ended::Refused)),
        };
        if let Some(reply) = self.fail_early(&act).await? {
            return Ok(reply);
        }
        match self.endpoint {
            Endpoint::CountTokens => {
                let count = json!({"input_tokens": act.ask.prompt_tokens});
                Ok(self.complete(&count))
            }
            Endpoint::Embeddings => {
                let mut rng = self.rng();
                sleep(act.script.ttft.sample(&mut rng)).await;
                match crate::embeddings::answer(&act.ask) {
                    Ok(answer) => Ok(self.complete(&answer)),
                    Err(refusal) => Ok(self.refuse(&refusal, Ended::Refused)),
                }
            }
            Endpoint::Chat | Endpoint::Messages | Endpoint::Completions | Endpoint::Responses => {
                Ok(self.generate(act).await)
            }
        }
    }

    async fn prepare(&mut self) -> Result<Act, Refusal> {
        let ask = Ask::read(self.endpoint, &self.body)?;
        self.ticket.model(&ask.model);
        let knobs = self.headers.get("x-sim").map(HeaderValue::to_str).transpose();
        let knobs = knobs.map_err(|_| Refusal::invalid("x-sim: not plain ASCII"))?;
        let sim = &self.sim;
        let script = sim.options().script.turned(&ask.model, knobs);
        let script = script.map_err(|error| Refusal::invalid(error.to_string()))?;
        check(self.endpoint, &ask, &script)?;
        sim.limits().rate(&ask.model, &script, Instant::now())?;
        self.ticket.slot = sim.limits().slot(&ask.model, &script).await?;
        let fault = sim.limits().fault(&ask.model, &script)?;
        Ok(Act { ask, script, fault })
    }

    /// The faults that strike before the head.
    async fn fail_early(&mut self, act: &Act) -> Result<Option<Reply>, Scripted> {
        let Some(spec) = act.fault else { return Ok(None) };
        let fault = spec.fault;
        if let Some(status) = fault.status() {
            let seconds = act.script.retry_after_s.or_else(|| (fault == Fault::Status429).then_some(1));
            let seconds = seconds.filter(|_| fault != Fault::Status429Bare);
            let message = format!("status {status}, as the script says");
            return Ok(Some(
                self.refuse(&Refusal::new(status, message).retry_after(seconds), Ended::Faulted),
            ));
        }
        match fault {
            Fault::Reset => {
                self.ticket.end(Ended::Faulted);
                if self.http2 {
                    return Err(Scripted);
                }
                self.ticket.link.break_off(Break::Reset);
                // hyper flushes after this poll, and that flush breaks the connection.
                std::future::pending().await
            }
            Fault::Silent => std::future::pending().await,
            Fault::SlowHead => {
                sleep(spec.time.unwrap_or(std::time::Duration::from_millis(SLOW_HEAD_MS))).await;
                Ok(None)
            }
            Fault::ErrorEvent if !act.ask.stream => {
                let refusal =
                    Refusal::new(500, "an answer that is not streamed has no place for an error event");
                Ok(Some(self.refuse(&refusal, Ended::Faulted)))
            }
            Fault::Redirect => {
                let mut reply = self.reply(StatusCode::TEMPORARY_REDIRECT, "text/plain", Bytes::new());
                reply.headers_mut().insert(LOCATION, HeaderValue::from_static("/elsewhere"));
                self.ticket.end(Ended::Faulted);
                Ok(Some(reply))
            }
            Fault::Empty => {
                self.ticket.end(Ended::Faulted);
                Ok(Some(self.reply(StatusCode::OK, content_type(act.ask.stream), Bytes::new())))
            }
            Fault::Html => {
                self.ticket.end(Ended::Faulted);
                let page = "<!doctype html><html><head><title>Simulated</title></head>\
                    <body><h1>This page should have been an answer</h1></body></html>\n";
                Ok(Some(self.reply(
                    StatusCode::OK,
                    "text/html; charset=utf-8",
                    Bytes::from_static(page.as_bytes()),
                )))
            }
            _ => Ok(None),
        }
    }

    /// The faults that strike later, or none.
    async fn generate(self, act: Act) -> Reply {
        let start = Instant::now();
        let Act { ask, script, fault } = act;
        let stream = ask.stream && fault.is_none_or(|spec| spec.fault != Fault::Json);
        let counts = Counts {
            prompt: ask.prompt_tokens,
            cached: script.cached_tokens.min(ask.prompt_tokens),
            ..Counts::default()
        };
        let voice = voice::of(self.endpoint, &ask, self.number, script.usage.then_some(counts));
        let mut player = Player::new(&ask, &script, fault, voice, counts, self.rng(), start);
        let head_at = if stream { player.head_at(start) } else { player.make_whole() };
        sleep_until(head_at).await;

        let mut reply = Response::new(SimBody::Full(Full::default()));
        self.set_headers(reply.headers_mut(), content_type(stream), start);
        if fault.is_some_and(|spec| spec.fault == Fault::Gzip) {
            reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let Some(length) = player.length() {
            reply.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        *reply.body_mut() = SimBody::Played(Box::new(Played::new(player, self.ticket, self.http2)));
        reply
    }

    fn complete(&mut self, answer: &Value) -> Reply {
        let reply = self.reply(StatusCode::OK, "application/json", answer.to_string().into());
        self.ticket.end(Ended::Completed);
        reply
    }

    fn refuse(&mut self, refusal: &Refusal, ended: Ended) -> Reply {
        self.ticket.end(ended);
        let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = refusal.body(self.endpoint.is_anthropic(), self.ticket.id());
        let mut reply = self.reply(status, "application/json", body.to_string().into());
        if let Some(seconds) = refusal.retry_after_s {
            reply.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        reply
    }

    fn reply(&self, status: StatusCode, content_type: &'static str, body: Bytes) -> Reply {
        self.ticket.produced(0, body.len());
        let mut reply = Response::new(SimBody::Full(Full::new(body)));
        *reply.status_mut() = status;
        self.set_headers(reply.headers_mut(), content_type, Instant::now());
        reply
    }

    /// What the endpoint's own provider says in its heads, so that passing it on can be tested.
    fn set_headers(&self, headers: &mut HeaderMap, content_type: &'static str, start: Instant) {
        let id = HeaderValue::from_str(self.ticket.id()).unwrap_or(HeaderValue::from_static("sim"));
        let mut set = |name: &'static str, value| headers.insert(HeaderName::from_static(name), value);
        if self.endpoint.is_anthropic() {
            set("request-id", id);
            set("anthropic-ratelimit-requests-limit", HeaderValue::from_static("1000"));
            set("anthropic-ratelimit-requests-remaining", HeaderValue::from_static("999"));
        } else {
            set("x-request-id", id);
            set(
                "openai-processing-ms",
                u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX).into(),
            );
            set("x-ratelimit-limit-requests", HeaderValue::from_static("1000"));
            set("x-ratelimit-remaining-requests", HeaderValue::from_static("999"));
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }

    fn rng(&self) -> fastrand::Rng {
        // Far-apart seeds for neighbouring requests: the golden ratio's multiples.
        fastrand::Rng::with_seed(self.sim.options().seed ^ self.number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

const fn content_type(stream: bool) -> &'static str {
    if stream { "text/event-stream; charset=utf-8" } else { "application/json" }
}

/// What a script asks for and an endpoint cannot do.
fn check(endpoint: Endpoint, ask: &Ask, script: &Script) -> Result<(), Refusal> {
    let text_only = matches!(endpoint, Endpoint::Completions | Endpoint::Responses);
    if text_only && (script.tool_calls > 0 || ask.must_call || script.reasoning_tokens > 0) {
        let message = format!("calls of tools and reasoning are not simulated at {}", endpoint.name());
        return Err(Refusal::invalid(message));
    }
    let token_bytes = u64::from(script.token_bytes.unwrap_or(WORD_BYTES));
    let tokens = u64::from(script.text_tokens.unwrap_or(0)) + u64::from(script.reasoning_tokens);
    if !ask.stream && tokens * token_bytes > WHOLE_BYTES_MAX {
        let message =
            format!("an answer of over {WHOLE_BYTES_MAX} bytes has to be streamed: n × bytes is too much");
        return Err(Refusal::invalid(message));
    }
    Ok(())
}
