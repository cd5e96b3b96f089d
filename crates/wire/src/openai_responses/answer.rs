//! Whole answers.

use serde_json::Value;

use super::item::{Head, Item, Kind, annotation, status, usage};
use super::request::input;
use super::sealed::seal;
use super::stream::Response;
use crate::chat::{Answer, Facts, Part};
use crate::fields::Fields;
use crate::{ApiError, ErrorKind, Identity};

pub(crate) fn facts(body: &[u8]) -> Facts {
    let response: Response<'_> = serde_json::from_slice(body).unwrap_or_default();
    response.facts()
}

/// Reads a whole answer. Items of tools that the provider ran are left out.
///
/// # Errors
/// If it is none, or says that it failed.
pub fn parse_answer(body: &[u8]) -> Result<Answer, ApiError> {
    let mut fields = Fields::read(body).map_err(broken)?;
    if let Some(error) = fields.take("error") {
        return Err(crate::error::parse(0, error.to_string().as_bytes()));
    }
    let output = fields.array("output").map_err(broken)?;
    let output =
        output.ok_or_else(|| ApiError::new(ErrorKind::Upstream, "the answer has no output").at("output"))?;
    let mut parts = Vec::new();
    for (i, item) in output.into_iter().enumerate() {
        parse_item(item, &format!("output[{i}]"), &mut parts).map_err(broken)?;
    }
    let Facts { id, model, usage, stop, has_content: _ } = facts(body);
    Ok(Answer { id, model, parts, citations: Vec::new(), usage, stop })
}

fn parse_item(item: Value, path: &str, parts: &mut Vec<Part>) -> Result<(), ApiError> {
    let mut item = Fields::of(item, path)?;
    match item.string("type").map_err(|error| error.under(path))?.as_deref() {
        Some("message") => input::content(&mut item, path, parts)?,
        Some("reasoning") => parts.extend(input::reasoning(&mut item, path)?),
        // A call that the token limit cut is passed on as it is.
        Some("function_call") => parts.push(input::call(&mut item, path)?),
        _ => {}
    }
    Ok(())
}

/// What is wrong with an answer is not the caller's fault.
fn broken(error: ApiError) -> ApiError {
    let place = error.param.map_or_else(String::new, |param| format!(" at {param}"));
    ApiError::new(ErrorKind::Upstream, format!("the answer cannot be read{place}: {}", error.message))
}

/// Writes a whole answer.
#[must_use]
pub fn render_answer(answer: &Answer, identity: &Identity) -> Vec<u8> {
    let (status, reason) = status(answer.stop.as_ref());
    let mut output = Vec::with_capacity(answer.parts.len());
    for part in &answer.parts {
        let (kind, text) = match part {
            Part::Text(text) => (Kind::Message, text),
            Part::Reasoning(said) => {
                (Kind::Reasoning { shown: !said.text.is_empty(), sealed: seal(said) }, &said.text)
            }
            Part::ToolCall { id, name, arguments } => {
                (Kind::Call { id: id.clone(), name: name.clone() }, arguments)
            }
            // No model answers with these.
            Part::Media(_) | Part::ToolResult { .. } => continue,
        };
        let mut item = Item::new(kind, &identity.id, output.len() as u64);
        item.text.clone_from(text);
        output.push(item);
    }
    // They count in the text, and that is one message's.
    if let Some(message) = output.iter_mut().find(|item| matches!(item.kind, Kind::Message)) {
        message.annotations = answer.citations.iter().map(annotation).collect();
    }
    let last = output.len().saturating_sub(1);
    let output = output.iter().enumerate().map(|(at, item)| {
        // Only what came last can have been broken off.
        item.json(if at == last { item.status(status) } else { "completed" })
    });
    let Identity { id, model, created, .. } = identity;
    let head = Head { id: id.clone(), model: model.clone(), created: *created };
    head.json(status, reason, output.collect(), usage(&answer.usage)).to_string().into_bytes()
}
