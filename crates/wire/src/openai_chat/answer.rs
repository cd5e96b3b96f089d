//! Whole answers. Read leniently, as streams are: what a server adds must not cost the answer.

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::citation::{self, Annotation};
use super::render::{finish_reason, usage_json};
use super::{UsageFields, reasoning, stop_reason};
use crate::chat::{Answer, Citation, Part, Reasoning};
use crate::json::word;
use crate::{ApiError, ErrorKind, Identity};

/// Reads a whole answer; of several choices the first.
///
/// # Errors
/// If it is none, or says an error.
pub fn parse_answer(body: &[u8]) -> Result<Answer, ApiError> {
    let whole: Value = serde_json::from_slice(body).unwrap_or_default();
    if whole.get("error").is_some_and(|error| !error.is_null()) {
        return Err(crate::error::parse(0, body));
    }
    let choice = whole.get("choices").and_then(|choices| choices.get(0));
    let Some(choice) = choice else {
        return Err(ApiError::new(ErrorKind::Upstream, "the answer holds no `choices`"));
    };
    let usage = whole.get("usage").cloned().unwrap_or_default();
    let usage: Option<UsageFields> = serde_json::from_value(usage).ok();
    Ok(Answer {
        id: word(&whole, "id"),
        model: word(&whole, "model"),
        parts: choice.get("message").map(parts).unwrap_or_default(),
        citations: choice.get("message").map(citations).unwrap_or_default(),
        usage: usage.map(UsageFields::usage).unwrap_or_default(),
        stop: word(choice, "finish_reason").map(|word| stop_reason(&word)),
    })
}

fn parts(message: &Value) -> Vec<Part> {
    let list = |key: &str| message.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let shown = word(message, "reasoning_content").or_else(|| word(message, "reasoning"));
    // Mistral's models think within a content that is a list.
    let thoughts = list("content").iter().filter_map(|part| part.get("thinking")?.as_array()).flatten();
    let thought: String = thoughts.filter_map(|thought| word(thought, "text")).collect();
    let shown = shown.or_else(|| Some(thought).filter(|thought| !thought.is_empty()));
    let mut parts = reasoning::read(shown, list("reasoning_details"), || {});
    parts.extend(word(message, "content").map(Part::Text));
    parts.extend(list("content").iter().filter_map(|part| word(part, "text")).map(Part::Text));
    parts.extend(word(message, "refusal").map(Part::Text));
    parts.extend(list("tool_calls").iter().filter_map(call));
    parts
}

fn citations(message: &Value) -> Vec<Citation<'static>> {
    let all = message.get("annotations").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| Annotation::deserialize(one).ok()?.citation()).map(Citation::into_owned).collect()
}

fn call(call: &Value) -> Option<Part> {
    let function = call.get("function")?;
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        // Some servers give the object itself.
        Some(object @ Value::Object(_)) => object.to_string(),
        _ => String::new(),
    };
    Some(Part::ToolCall {
        id: word(call, "id").unwrap_or_default(),
        name: word(function, "name")?,
        arguments,
    })
}

/// Writes a whole answer.
#[must_use]
pub fn render_answer(answer: &Answer, identity: &Identity) -> Vec<u8> {
    let (mut text, mut calls, mut thoughts): (Option<String>, Vec<Value>, Vec<&Reasoning>) =
        Default::default();
    for part in &answer.parts {
        match part {
            Part::Text(more) => text.get_or_insert_default().push_str(more),
            Part::Reasoning(block) => thoughts.push(block),
            Part::ToolCall { id, name, arguments } => calls.push(json!({
                "id": id, "type": "function", "function": { "name": name, "arguments": arguments },
            })),
            Part::Media(_) | Part::ToolResult { .. } => {}
        }
    }
    let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
    let thought: String = thoughts.iter().map(|block| block.text.as_str()).collect();
    if !thought.is_empty() {
        message["reasoning_content"] = Value::String(thought);
    }
    if thoughts.iter().any(|block| block.signature.is_some() || block.redacted.is_some()) {
        message["reasoning_details"] = Value::Array(reasoning::details(thoughts));
    }
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    if !answer.citations.is_empty() {
        message["annotations"] = answer.citations.iter().map(citation::annotation).collect();
    }
    let finish_reason = answer.stop.as_ref().map(finish_reason);
    let mut whole = json!({
        "id": identity.id, "object": "chat.completion", "created": identity.created, "model": identity.model,
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason }],
    });
    if !answer.usage.is_empty() {
        whole["usage"] = usage_json(&answer.usage);
    }
    whole.to_string().into_bytes()
}
