//! The thinking of an assistant in this dialect, which has no word of its own for it.
//!
//! The text is `reasoning_content`, as most servers have it. What proves it, or stands in its place, is
//! `reasoning_details` in OpenRouter's form: a `reasoning.text` with a signature, a `reasoning.encrypted`
//! with data. So what a signing provider wants back unchanged survives a caller of this dialect.
//!
//! Invariant: a proof of a form that is not ours is never passed off as one that is.

use serde_json::{Value, json};

use crate::ApiError;
use crate::chat::{Part, Reasoning, note};
use crate::fields::Fields;

/// The form of the signatures that we pass on.
pub(super) const FORMAT: &str = "anthropic-claude-v1";

/// The thinking that stands in the message of a request.
pub(super) fn take(fields: &mut Fields, dropped: &mut Vec<String>) -> Result<Vec<Part>, ApiError> {
    let newer = fields.string("reasoning_content")?;
    let shown = fields.string("reasoning")?.or(newer);
    let details = fields.array("reasoning_details")?.unwrap_or_default();
    Ok(read(shown, &details, || note(dropped, "reasoning_details")))
}

/// What the text that was shown and the details say together. `lost` is told of what cannot be passed on.
pub(super) fn read(shown: Option<String>, details: &[Value], mut lost: impl FnMut()) -> Vec<Part> {
    let mut blocks: Vec<Reasoning> = Vec::new();
    for detail in details {
        let Some(block) = block(detail) else {
            lost();
            continue;
        };
        match blocks.last_mut() {
            // The pieces of a stream, gathered as they came.
            Some(last) if block.redacted.is_none() && last.signature.is_none() && last.redacted.is_none() => {
                last.text.push_str(&block.text);
                last.signature = block.signature;
            }
            _ => blocks.push(block),
        }
    }
    // The details repeat the text that was shown, or they are signatures alone: a stream brings the text
    // apart. Several signatures share one text; each stands for its part of it.
    if let Some(text) = shown.filter(|_| blocks.iter().all(|block| block.text.is_empty())) {
        let mut bare = blocks.iter_mut().filter(|block| block.redacted.is_none());
        match (bare.next(), bare.next()) {
            (Some(one), None) => one.text = text,
            (None, _) => blocks.insert(0, Reasoning { text, ..Reasoning::default() }),
            (Some(_), Some(_)) => {}
        }
    }
    blocks.retain(|block| *block != Reasoning::default());
    blocks.into_iter().map(Part::Reasoning).collect()
}

fn block(detail: &Value) -> Option<Reasoning> {
    let word = |key: &str| detail.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let ours = is_ours(word("format"));
    let text = |key: &str| word(key).unwrap_or_default().to_owned();
    Some(match word("type")? {
        "reasoning.text" => {
            let signature = word("signature").filter(|_| ours).map(str::to_owned);
            Reasoning { text: text("text"), signature, redacted: None }
        }
        "reasoning.summary" => Reasoning { text: text("summary"), ..Reasoning::default() },
        "reasoning.encrypted" if ours => {
            Reasoning { redacted: Some(word("data")?.to_owned()), ..Reasoning::default() }
        }
        _ => return None,
    })
}

/// Whether a proof of this form is one that we pass on.
pub(super) fn is_ours(format: Option<&str>) -> bool {
    format.is_none_or(|format| format == FORMAT || format == "unknown")
}

/// The details of `blocks`, one each.
pub(super) fn details<'a>(blocks: impl IntoIterator<Item = &'a Reasoning>) -> Vec<Value> {
    let detail = |(index, block): (usize, &Reasoning)| match &block.redacted {
        Some(data) => {
            json!({ "type": "reasoning.encrypted", "data": data, "format": FORMAT, "index": index })
        }
        None => json!({
            "type": "reasoning.text", "text": block.text, "signature": block.signature,
            "format": FORMAT, "index": index,
        }),
    };
    blocks.into_iter().enumerate().map(detail).collect()
}
