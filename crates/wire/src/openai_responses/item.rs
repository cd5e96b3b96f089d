//! Output items and the object around them, as streams and whole answers have them.
//!
//! Invariant: every field that the official SDKs' types require is there, known or not.

use serde_json::{Value, json};

use crate::chat::{Citation, StopReason, Usage};
use crate::openai_chat::citation_fields;

/// One item of an answer.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) kind: Kind,
    /// The text, the thinking or the arguments.
    pub(super) text: String,
    /// Of a message: where its text comes from.
    pub(super) annotations: Vec<Value>,
}

/// What an [`Item`] is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Message,
    Reasoning {
        /// Whether it has a text.
        shown: bool,
        /// What only the provider can read.
        sealed: Option<String>,
    },
    Call {
        id: String,
        name: String,
    },
}

impl Item {
    /// The item that stands at `index` of the answer `response_id`.
    pub(super) fn new(kind: Kind, response_id: &str, index: u64) -> Self {
        let prefix = match kind {
            Kind::Message => "msg",
            Kind::Reasoning { .. } => "rs",
            Kind::Call { .. } => "fc",
        };
        let own = response_id.strip_prefix("resp_").unwrap_or(response_id);
        Self { id: format!("{prefix}_{own}_{index}"), kind, text: String::new(), annotations: Vec::new() }
    }

    pub(super) fn json(&self, status: &str) -> Value {
        match &self.kind {
            Kind::Message => {
                // Its part comes in an event of its own.
                let begins = status == "in_progress";
                let content = if begins { Value::Array(Vec::new()) } else { json!([self.part()]) };
                json!({
                    "id": self.id, "type": "message", "status": status, "role": "assistant", "content": content,
                })
            }
            Kind::Reasoning { shown, sealed } => {
                let summary = if *shown { json!([self.part()]) } else { json!([]) };
                json!({
                    "id": self.id, "type": "reasoning", "summary": summary, "encrypted_content": sealed,
                })
            }
            Kind::Call { id, name } => {
                // Some servers give their calls no id; a result must have one to refer to.
                let id = if id.is_empty() { &self.id } else { id };
                json!({
                    "id": self.id, "type": "function_call", "status": status, "call_id": id, "name": name,
                    "arguments": self.text,
                })
            }
        }
    }

    /// The part of a message or of a summary.
    pub(super) fn part(&self) -> Value {
        match self.kind {
            Kind::Message => {
                let Self { text, annotations, .. } = self;
                json!({ "type": "output_text", "text": text, "annotations": annotations, "logprobs": [] })
            }
            Kind::Reasoning { .. } | Kind::Call { .. } => {
                json!({ "type": "summary_text", "text": self.text })
            }
        }
    }

    /// Its status in an answer that ended with `status`. Of an answer that was broken off, a call is
    /// complete if its arguments are; clients run what is complete.
    pub(super) fn status<'a>(&self, status: &'a str) -> &'a str {
        let whole = matches!(self.kind, Kind::Call { .. })
            && serde_json::from_str::<serde::de::IgnoredAny>(&self.text).is_ok();
        if whole { "completed" } else { status }
    }
}

/// A citation, as a message has it.
pub(super) fn annotation(citation: &Citation<'_>) -> Value {
    let mut annotation = citation_fields(citation);
    annotation["type"] = "url_citation".into();
    annotation
}

/// Whose answer it is.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) created: u64,
}

impl Head {
    /// The answer as an object. Of what was asked, it repeats only what clients require to be there.
    pub(super) fn json(&self, status: &str, reason: Option<&str>, output: Vec<Value>, usage: Value) -> Value {
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status,
            "error": null, "incomplete_details": reason.map(|reason| json!({ "reason": reason })),
            "instructions": null, "metadata": {}, "model": self.model, "output": output,
            "parallel_tool_calls": true, "previous_response_id": null, "store": false,
            "temperature": null, "tool_choice": "auto", "tools": [], "top_p": null, "usage": usage,
        })
    }
}

/// The status of an answer, and why it is incomplete if it is. A stop that nobody gave is not made up.
pub(super) fn status(stop: Option<&StopReason>) -> (&'static str, Option<&str>) {
    let reason = match stop {
        Some(StopReason::Stop | StopReason::Tool) => return ("completed", None),
        Some(StopReason::Length) => Some("max_output_tokens"),
        Some(StopReason::Filter) => Some("content_filter"),
        Some(StopReason::Cancelled) => Some("cancelled"),
        Some(StopReason::Other(word)) => Some(word.as_str()),
        None => None,
    };
    ("incomplete", reason)
}

/// OpenAI's `usage` object. The official SDKs' types require every count, and the AI SDK loses the reason of
/// the end without them, so what is not known is 0.
pub(super) fn usage(usage: &Usage) -> Value {
    let (input, output) = (usage.input_tokens.unwrap_or(0), usage.output_tokens.unwrap_or(0));
    json!({
        "input_tokens": input,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens.unwrap_or(0),
            "cache_write_tokens": usage.cache_write_tokens.unwrap_or(0),
        },
        "output_tokens": output,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens.unwrap_or(0) },
        "total_tokens": input.saturating_add(output),
    })
}
