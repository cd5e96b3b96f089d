//! Anthropic Messages.
//!
//! A stream is `message_start`, then blocks (`content_block_start`, deltas, `content_block_stop`),
//! `message_delta` with the stop reason and the counts so far, `message_stop`; `ping` and unknown
//! events may stand anywhere, and `error` may come after status 200. Input tokens are counted without
//! those of the prompt cache; our model includes them.

mod answer;
mod render;
mod request;
mod stream;

use serde::Deserialize;
use serde_json::json;

use crate::chat::{Facts, StopReason, Usage};
use crate::json::{Few, Num, Obj, Str};
use crate::{ApiError, ErrorKind};

pub use answer::{parse_answer, render_answer};
pub use render::Renderer;
pub use request::{parse_request, render_request};

pub(crate) use stream::Parser;

/// The frame that keeps a stream alive.
pub(crate) const PING: &[u8] = b"event: ping\ndata: {\"type\": \"ping\"}\n\n";

/// Anthropic's `usage`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UsageFields {
    input_tokens: Num,
    cache_read_input_tokens: Num,
    cache_creation_input_tokens: Num,
    output_tokens: Num,
    output_tokens_details: Obj<OutputDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    thinking_tokens: Num,
    reasoning_tokens: Num,
}

/// The counts of an answer so far, as Anthropic counts: a later report may leave out what it does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    uncached: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
}

impl Counts {
    fn update(&mut self, fields: UsageFields) -> Usage {
        self.uncached = fields.input_tokens.0.or(self.uncached);
        self.cache_read = fields.cache_read_input_tokens.0.or(self.cache_read);
        self.cache_write = fields.cache_creation_input_tokens.0.or(self.cache_write);
        let cached = self.cache_read.unwrap_or(0).saturating_add(self.cache_write.unwrap_or(0));
        let details = fields.output_tokens_details.0.unwrap_or_default();
        Usage {
            input_tokens: self.uncached.map(|uncached| uncached.saturating_add(cached)),
            cache_read_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            output_tokens: fields.output_tokens.0,
            reasoning_tokens: details.thinking_tokens.0.or(details.reasoning_tokens.0),
        }
    }
}

/// The meaning of a `stop_reason`.
fn stop_reason(word: &str) -> StopReason {
    match word {
        "end_turn" | "stop_sequence" => StopReason::Stop,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "tool_use" => StopReason::Tool,
        "refusal" => StopReason::Filter,
        "cancelled" => StopReason::Cancelled,
        other => StopReason::Other(other.to_owned()),
    }
}

/// Anthropic's word for a reason.
fn stop_word(reason: &StopReason) -> &str {
    match reason {
        StopReason::Stop => "end_turn",
        StopReason::Length => "max_tokens",
        StopReason::Tool => "tool_use",
        StopReason::Filter => "refusal",
        StopReason::Cancelled => "cancelled",
        StopReason::Other(word) => word,
    }
}

/// `{"type":"error","error":{…},"request_id":…}`.
pub(crate) fn write_error(out: &mut Vec<u8>, error: &ApiError, request_id: Option<&str>) {
    // This dialect has no field for the place, so the sentence names it, as Anthropic's own do.
    let message = match &error.param {
        Some(param) => format!("{param}: {}", error.message),
        None => error.message.clone(),
    };
    let mut body = json!({
        "type": "error", "error": { "type": error_type(error.kind), "message": message },
    });
    if let Some(id) = request_id {
        body["request_id"] = json!(id);
    }
    crate::json::value(out, &body);
}

const fn error_type(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest | ErrorKind::MethodNotAllowed | ErrorKind::Cancelled => {
            "invalid_request_error"
        }
        ErrorKind::Authentication => "authentication_error",
        ErrorKind::Permission => "permission_error",
        ErrorKind::NotFound => "not_found_error",
        ErrorKind::TooLarge => "request_too_large",
        ErrorKind::Conflict => "conflict_error",
        ErrorKind::RateLimit => "rate_limit_error",
        ErrorKind::Unavailable | ErrorKind::Overloaded => "overloaded_error",
        ErrorKind::Timeout => "timeout_error",
        ErrorKind::Upstream | ErrorKind::Internal => "api_error",
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Whole<'a> {
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    model: Str<'a>,
    #[serde(borrow)]
    content: Few<WholeBlock<'a>>,
    #[serde(borrow)]
    stop_reason: Str<'a>,
    usage: Obj<UsageFields>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WholeBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    text: Str<'a>,
}

pub(crate) fn facts(body: &[u8]) -> Facts {
    let whole: Whole<'_> = serde_json::from_slice(body).unwrap_or_default();
    let has_content = |block: &WholeBlock<'_>| match block.kind.0.as_deref() {
        Some("text") => block.text.0.as_deref().is_some_and(|text| !text.is_empty()),
        other => other.is_some(),
    };
    Facts {
        has_content: whole.content.iter().any(has_content),
        id: whole.id.filled().map(Into::into),
        model: whole.model.filled().map(Into::into),
        usage: whole.usage.0.map(|fields| Counts::default().update(fields)).unwrap_or_default(),
        stop: whole.stop_reason.filled().map(|word| stop_reason(&word)),
    }
}
