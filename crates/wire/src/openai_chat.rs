//! OpenAI Chat Completions, and what the many OpenAI-compatible servers make of it.
//!
//! A stream is unnamed `data:` chunks and ends with `data: [DONE]`. A role alone or an empty delta is
//! not content. Reasoning comes as `reasoning_content` (DeepSeek, vLLM) or `reasoning` (OpenRouter,
//! Ollama), or as both at once with the same text, its signature as `reasoning_details`, or within a content
//! that is a list (Mistral). Usage comes in a last chunk without choices.

mod answer;
mod citation;
mod reasoning;
mod render;
mod request;
mod stream;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::chat::{Facts, StopReason, Usage};
use crate::json::{Few, Num, Obj, Present, Str};
use crate::{ApiError, ErrorKind};

pub use answer::{parse_answer, render_answer};
pub use render::Renderer;
pub use request::{parse_request, render_request, wants_stream_usage};
pub use stream::has_no_choices;

pub(crate) use citation::fields as citation_fields;
pub(crate) use render::prune;
pub(crate) use request::{common, messages};
pub(crate) use stream::{Parser, data_error};

/// OpenAI's `usage`, with the fields of those that count apart.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct UsageFields {
    prompt_tokens: Num,
    completion_tokens: Num,
    prompt_tokens_details: Obj<PromptDetails>,
    completion_tokens_details: Obj<CompletionDetails>,
    /// DeepSeek's word for cached tokens.
    prompt_cache_hit_tokens: Num,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Num,
    cache_write_tokens: Num,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Num,
}

impl UsageFields {
    pub(crate) fn usage(self) -> Usage {
        let prompt = self.prompt_tokens_details.0.unwrap_or_default();
        Usage {
            input_tokens: self.prompt_tokens.0,
            cache_read_tokens: prompt.cached_tokens.0.or(self.prompt_cache_hit_tokens.0),
            cache_write_tokens: prompt.cache_write_tokens.0,
            output_tokens: self.completion_tokens.0,
            reasoning_tokens: self.completion_tokens_details.0.and_then(|details| details.reasoning_tokens.0),
        }
    }
}

/// The meaning of a `finish_reason`.
pub(crate) fn stop_reason(word: &str) -> StopReason {
    match word {
        // TGI says `eos_token` and `stop_sequence`.
        "stop" | "eos_token" | "stop_sequence" => StopReason::Stop,
        "length" => StopReason::Length,
        "tool_calls" | "function_call" => StopReason::Tool,
        "content_filter" => StopReason::Filter,
        "cancelled" => StopReason::Cancelled,
        other => StopReason::Other(other.to_owned()),
    }
}

/// `{"error":{…}}`.
pub(crate) fn write_error(out: &mut Vec<u8>, error: &ApiError) {
    let body = json!({ "error": {
        "message": error.message, "type": error_type(error.kind), "param": error.param, "code": error.reason(),
    }});
    crate::json::value(out, &body);
}

/// OpenAI's `type` for a kind.
pub(crate) const fn error_type(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest
        | ErrorKind::NotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::TooLarge
        | ErrorKind::Conflict
        | ErrorKind::Cancelled => "invalid_request_error",
        ErrorKind::Authentication => "authentication_error",
        ErrorKind::Permission => "permission_error",
        ErrorKind::RateLimit => "rate_limit_error",
        ErrorKind::Timeout => "timeout_error",
        ErrorKind::Unavailable | ErrorKind::Overloaded | ErrorKind::Upstream | ErrorKind::Internal => {
            "server_error"
        }
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
    choices: Few<WholeChoice<'a>>,
    usage: Obj<UsageFields>,
    data: Few<Present>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WholeChoice<'a> {
    #[serde(borrow)]
    message: Obj<WholeMessage<'a>>,
    #[serde(borrow)]
    text: Str<'a>,
    #[serde(borrow)]
    finish_reason: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WholeMessage<'a> {
    content: Value,
    #[serde(borrow)]
    refusal: Str<'a>,
    #[serde(borrow)]
    reasoning_content: Str<'a>,
    #[serde(borrow)]
    reasoning: Str<'a>,
    tool_calls: Few<Present>,
}

impl WholeMessage<'_> {
    fn has_content(self) -> bool {
        let content = match &self.content {
            Value::String(text) => !text.is_empty(),
            Value::Array(parts) => !parts.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
        };
        content
            || self.tool_calls.first.is_some()
            || [self.refusal, self.reasoning_content, self.reasoning]
                .into_iter()
                .any(|text| text.filled().is_some())
    }
}

/// A chat completion or a legacy completion.
pub(crate) fn facts(body: &[u8]) -> Facts {
    let whole: Whole<'_> = serde_json::from_slice(body).unwrap_or_default();
    let mut answer = Facts {
        id: whole.id.filled().map(Into::into),
        model: whole.model.filled().map(Into::into),
        usage: whole.usage.0.map(UsageFields::usage).unwrap_or_default(),
        ..Facts::default()
    };
    for choice in whole.choices {
        answer.has_content |= choice.text.filled().is_some();
        answer.has_content |= choice.message.0.is_some_and(WholeMessage::has_content);
        if answer.stop.is_none() {
            answer.stop = choice.finish_reason.filled().map(|word| stop_reason(&word));
        }
    }
    answer
}

/// An answer of another OpenAI endpoint: embeddings, models.
pub(crate) fn other_facts(body: &[u8]) -> Facts {
    let whole: Whole<'_> = serde_json::from_slice(body).unwrap_or_default();
    Facts {
        id: whole.id.filled().map(Into::into),
        model: whole.model.filled().map(Into::into),
        usage: whole.usage.0.map(UsageFields::usage).unwrap_or_default(),
        stop: None,
        has_content: whole.data.first.is_some(),
    }
}
