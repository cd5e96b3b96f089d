//! firsttoken's own typed events, `POST /v1/chat`.
//!
//! SSE frames with `id:` (from 1, without gaps), `event:` and JSON data: `status` (the first one is
//! `accepted`), `token`, `meta`, `error`, and `done` as the last of a good end. `citation` and
//! `summary` are reserved. An `error` is last, too: no `done` follows it. Clients must skip names and
//! fields that they do not know.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::chat::{Event, Facts, Message, Meta, Part, Request, Role, Status, StopReason, Usage};
use crate::dialect::NotJson;
use crate::error::parse_own;
use crate::fields::{Fields, invalid};
use crate::json::{Num, Obj, Str, frame, number, string, value};
use crate::openai_chat::{common, messages, prune};
use crate::{ApiError, Dialect, sse};

/// Reads the body of a request: `messages` as in [`crate::openai_chat`] or one `question`, and what
/// else a chat needs. The model may be left to the gateway (then it is empty); `stream` is the default.
pub fn parse_request(body: &[u8]) -> Result<Request, ApiError> {
    let mut fields = Fields::read(body)?;
    let mut request = Request { model: fields.string("model")?.unwrap_or_default(), ..Request::default() };
    if let Some(system) = fields.string("system")? {
        request.system.push(Part::Text(system));
    }
    match (fields.array("messages")?, fields.string("question")?) {
        (Some(conversation), None) => messages(conversation, &mut request)?,
        (None, Some(question)) if !question.trim().is_empty() => {
            request.messages.push(Message { role: Role::User, parts: vec![Part::Text(question)] });
        }
        (None, Some(_)) => return Err(invalid("the question is empty").at("question")),
        (Some(_), Some(_)) => {
            return Err(invalid("give either `messages` or a `question`, not both").at("question"));
        }
        (None, None) => return Err(invalid("give `messages` or a `question`").at("messages")),
    }
    request.stream = fields.bool("stream")?.unwrap_or(true);
    common(&mut fields, &mut request)?;
    request.rest = fields.rest();
    Ok(request)
}

/// Renders one stream. After `done` or an error it renders nothing more.
#[derive(Clone, Debug, Default)]
pub struct Renderer {
    request_id: Option<String>,
    last_id: u64,
    closed: bool,
    usage: Usage,
    stop: Option<StopReason>,
}

impl Renderer {
    /// A renderer that starts with `id: 1`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the request in an error event.
    #[must_use]
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// The id of the last event rendered; 0 before the first.
    #[must_use]
    pub const fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Appends what `event` is in this dialect; nothing where the dialect has no word for it.
    pub fn render(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.closed {
            return;
        }
        match event {
            Event::Status(status) => {
                self.json("status", &json!({ "phase": status.phase, "elapsed_ms": status.elapsed_ms }), out);
            }
            Event::Text(text) if !text.is_empty() => self.token(b"{\"text\":", text, b"}", out),
            Event::Reasoning(text) if !text.is_empty() => self.token(b"{\"reasoning\":", text, b"}", out),
            Event::ToolStart { index, id, name } => {
                self.json("token", &json!({ "tool": { "index": index, "id": id, "name": name } }), out);
            }
            Event::ToolArguments { index, json } if !json.is_empty() => {
                self.open("token", out);
                out.extend_from_slice(b"{\"tool\":{\"index\":");
                number(out, (*index).into());
                out.extend_from_slice(b",\"arguments\":");
                string(out, json);
                out.extend_from_slice(b"}}\n\n");
            }
            Event::Usage(usage) => self.usage.update(*usage),
            Event::Stop(reason) => self.stop = Some(reason.clone()),
            Event::Meta(meta) => self.json("meta", &meta_json(meta, &self.usage), out),
            Event::Error(error) => {
                self.open("error", out);
                write_error(out, error, self.request_id.as_deref());
                out.extend_from_slice(b"\n\n");
                self.closed = true;
            }
            Event::Ping => out.extend_from_slice(Dialect::Typed.keepalive()),
            Event::End => {
                // An end without a reason is not called a stop.
                let reason = self.stop.as_ref().map_or("unknown", reason_word);
                self.json("done", &json!({ "reason": reason }), out);
                self.closed = true;
            }
            Event::Text(_)
            | Event::Reasoning(_)
            | Event::ToolArguments { .. }
            | Event::Start { .. }
            | Event::Signature(_)
            | Event::Redacted(_)
            | Event::Other
            | Event::Malformed => {}
        }
    }

    fn open(&mut self, name: &str, out: &mut Vec<u8>) {
        self.last_id += 1;
        out.extend_from_slice(b"id: ");
        number(out, self.last_id);
        out.extend_from_slice(b"\nevent: ");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\ndata: ");
    }

    fn json(&mut self, name: &str, data: &Value, out: &mut Vec<u8>) {
        self.open(name, out);
        value(out, data);
        out.extend_from_slice(b"\n\n");
    }

    fn token(&mut self, head: &[u8], text: &str, foot: &[u8], out: &mut Vec<u8>) {
        self.open("token", out);
        out.extend_from_slice(head);
        string(out, text);
        out.extend_from_slice(foot);
        out.extend_from_slice(b"\n\n");
    }
}

fn meta_json(meta: &Meta<'_>, seen: &Usage) -> Value {
    let usage = meta.usage.unwrap_or(*seen);
    let mut object = json!({
        "request_id": meta.request_id,
        "model": meta.model,
        "upstream": meta.upstream,
        "ttft_ms": meta.ttft_ms,
        "overhead_ms": meta.overhead_ms,
        "usage": {
            "input_tokens": usage.input_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        },
    });
    prune(&mut object);
    object
}

fn reason_word(reason: &StopReason) -> &str {
    match reason {
        StopReason::Stop => "stop",
        StopReason::Length => "length",
        StopReason::Tool => "tool",
        StopReason::Filter => "filter",
        StopReason::Cancelled => "cancelled",
        StopReason::Other(word) => word,
    }
}

fn reason(word: &str) -> StopReason {
    match word {
        "stop" => StopReason::Stop,
        "length" => StopReason::Length,
        "tool" => StopReason::Tool,
        "filter" => StopReason::Filter,
        "cancelled" => StopReason::Cancelled,
        other => StopReason::Other(other.to_owned()),
    }
}

/// The data of an `error` event, and the `error` of an error body.
pub(crate) fn write_error(out: &mut Vec<u8>, error: &ApiError, request_id: Option<&str>) {
    let mut object = json!({
        "type": error.kind.name(),
        "code": error.reason(),
        "message": error.message,
        "param": error.param,
        "retryable": error.kind.is_retryable(),
        "retry_after_ms": error.retry_after_s.map(|seconds| u64::from(seconds) * 1_000),
        "request_id": request_id,
    });
    prune(&mut object);
    value(out, &object);
}

/// All fields of all events.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'a> {
    #[serde(borrow)]
    text: Str<'a>,
    #[serde(borrow)]
    reasoning: Str<'a>,
    #[serde(borrow)]
    tool: Obj<Box<ToolFields<'a>>>,
    #[serde(borrow)]
    phase: Str<'a>,
    elapsed_ms: Num,
    #[serde(borrow)]
    reason: Str<'a>,
    #[serde(borrow)]
    request_id: Str<'a>,
    #[serde(borrow)]
    model: Str<'a>,
    #[serde(borrow)]
    upstream: Str<'a>,
    ttft_ms: Option<f64>,
    overhead_ms: Option<f64>,
    usage: Obj<Box<UsageFields>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolFields<'a> {
    index: Num,
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    arguments: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageFields {
    input_tokens: Num,
    cache_read_tokens: Num,
    cache_write_tokens: Num,
    output_tokens: Num,
    reasoning_tokens: Num,
}

impl UsageFields {
    fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input_tokens.0,
            cache_read_tokens: self.cache_read_tokens.0,
            cache_write_tokens: self.cache_write_tokens.0,
            output_tokens: self.output_tokens.0,
            reasoning_tokens: self.reasoning_tokens.0,
        }
    }
}

/// Reads one event.
pub(crate) fn parse<'a>(event: &'a sse::Event<'_>, sink: &mut dyn FnMut(Event<'a>)) -> Result<(), NotJson> {
    let frame: Option<Frame<'a>> = frame(&event.data)?;
    let frame = frame.unwrap_or_default();
    match event.name {
        Some("token") => {
            frame.reasoning.filled().map(Event::Reasoning).into_iter().for_each(&mut *sink);
            frame.text.filled().map(Event::Text).into_iter().for_each(&mut *sink);
            frame.tool.0.map(|tool| parse_tool(*tool, sink)).unwrap_or_default();
        }
        Some("status") => {
            let status = Status { phase: frame.phase.plain(), elapsed_ms: frame.elapsed_ms.0.unwrap_or(0) };
            sink(Event::Status(status));
        }
        Some("meta") => sink(Event::Meta(Meta {
            request_id: frame.request_id.plain(),
            model: Some(frame.model.plain()).filter(|name| !name.is_empty()),
            upstream: Some(frame.upstream.plain()).filter(|name| !name.is_empty()),
            ttft_ms: frame.ttft_ms,
            overhead_ms: frame.overhead_ms,
            usage: frame.usage.0.map(|usage| usage.usage()),
        })),
        Some("error") => sink(Event::Error(parse_own(0, &event.data))),
        Some("done") => {
            frame.reason.filled().map(|word| Event::Stop(reason(&word))).into_iter().for_each(&mut *sink);
            sink(Event::End);
        }
        _ => {}
    }
    Ok(())
}

fn parse_tool<'a>(tool: ToolFields<'a>, sink: &mut dyn FnMut(Event<'a>)) {
    let index = tool.index.0.and_then(|index| u32::try_from(index).ok()).unwrap_or(0);
    if let Some(name) = tool.name.0 {
        sink(Event::ToolStart { index, id: tool.id.0.unwrap_or_default(), name });
    }
    if let Some(json) = tool.arguments.filled() {
        sink(Event::ToolArguments { index, json });
    }
}

/// A whole answer: what `meta` and `done` say, in one object.
pub(crate) fn facts(body: &[u8]) -> Facts {
    let whole: Frame<'_> = serde_json::from_slice(body).unwrap_or_default();
    Facts {
        id: whole.request_id.filled().map(Into::into),
        model: whole.model.filled().map(Into::into),
        usage: whole.usage.0.map(|usage| usage.usage()).unwrap_or_default(),
        stop: whole.reason.filled().map(|word| reason(&word)),
        has_content: whole.text.filled().is_some() || whole.tool.0.is_some(),
    }
}
