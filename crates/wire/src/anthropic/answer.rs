//! Whole answers. Read leniently, as streams are: a block that we do not know must not cost the answer.

use serde_json::{Value, json};

use super::render::usage_json;
use super::{Counts, UsageFields, stop_reason, stop_word};
use crate::chat::{Answer, Part, Reasoning};
use crate::json::word;
use crate::{ApiError, ErrorKind, Identity};

/// Reads a whole answer.
///
/// # Errors
/// If it is none, or says an error.
pub fn parse_answer(body: &[u8]) -> Result<Answer, ApiError> {
    let whole: Value = serde_json::from_slice(body).unwrap_or_default();
    if whole.get("error").is_some_and(|error| !error.is_null()) {
        return Err(crate::error::parse(0, body));
    }
    let Some(blocks) = whole.get("content").and_then(Value::as_array) else {
        return Err(ApiError::new(ErrorKind::Upstream, "the answer holds no `content`"));
    };
    let usage = whole.get("usage").cloned().unwrap_or_default();
    let usage: Option<UsageFields> = serde_json::from_value(usage).ok();
    Ok(Answer {
        id: word(&whole, "id"),
        model: word(&whole, "model"),
        parts: blocks.iter().filter_map(part).collect(),
        citations: Vec::new(),
        usage: usage.map(|fields| Counts::default().update(fields)).unwrap_or_default(),
        stop: word(&whole, "stop_reason").map(|word| stop_reason(&word)),
    })
}

/// Tools that the provider runs itself (`server_tool_use`) are no calls of ours.
fn part(block: &Value) -> Option<Part> {
    match block.get("type").and_then(Value::as_str)? {
        "text" => word(block, "text").map(Part::Text),
        "thinking" => Some(Part::Reasoning(Reasoning {
            text: word(block, "thinking").unwrap_or_default(),
            signature: word(block, "signature"),
            redacted: None,
        })),
        "redacted_thinking" => {
            let data = word(block, "data")?;
            Some(Part::Reasoning(Reasoning { redacted: Some(data), ..Reasoning::default() }))
        }
        "tool_use" => Some(Part::ToolCall {
            id: word(block, "id").unwrap_or_default(),
            name: word(block, "name")?,
            arguments: block.get("input").map_or_else(|| "{}".to_owned(), Value::to_string),
        }),
        _ => None,
    }
}

/// Writes a whole answer.
#[must_use]
pub fn render_answer(answer: &Answer, identity: &Identity) -> Vec<u8> {
    let mut usage = usage_json(&answer.usage);
    // Clients require both counts.
    if usage.get("input_tokens").is_none() {
        usage["input_tokens"] = json!(0);
    }
    let whole = json!({
        "id": identity.id, "type": "message", "role": "assistant", "model": identity.model,
        "content": answer.parts.iter().filter_map(block).collect::<Vec<Value>>(),
        "stop_reason": answer.stop.as_ref().map(stop_word), "stop_sequence": null, "usage": usage,
    });
    whole.to_string().into_bytes()
}

fn block(part: &Part) -> Option<Value> {
    match part {
        Part::Text(text) if text.is_empty() => None,
        Part::Text(text) => Some(json!({ "type": "text", "text": text })),
        // A caller that gets it unsigned sends it back unsigned, and we know what to do with that.
        Part::Reasoning(block) => Some(
            thinking_block(block)
                .unwrap_or_else(|| json!({ "type": "thinking", "thinking": block.text, "signature": "" })),
        ),
        Part::ToolCall { id, name, arguments } => {
            Some(json!({ "type": "tool_use", "id": id, "name": name, "input": input(arguments) }))
        }
        Part::Media(_) | Part::ToolResult { .. } => None,
    }
}

/// A block of thinking, if it is proven to be the provider's.
pub(super) fn thinking_block(block: &Reasoning) -> Option<Value> {
    if let Some(data) = &block.redacted {
        return Some(json!({ "type": "redacted_thinking", "data": data }));
    }
    let signature = block.signature.as_ref()?;
    Some(json!({ "type": "thinking", "thinking": block.text, "signature": signature }))
}

/// Arguments as the object that this dialect requires. A model may have written something else.
pub(super) fn input(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return json!({});
    }
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ => json!({ "arguments": arguments }),
    }
}
