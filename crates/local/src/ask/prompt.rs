//! The conversation, as the model's own template puts it.
//!
//! Templates are written for what the Transformers library gives them: contents are texts, arguments of
//! calls are objects, and who shall think is a variable.
//!
//! Invariant: what the template is told was said in the request.

use std::time::SystemTime;

use firsttoken_engine::template::{Conversation, UnixSeconds};
use firsttoken_wire::chat::{self, Thinking};
use firsttoken_wire::{ApiError, Dialect};
use serde_json::{Map, Value};

use super::invalid;
use crate::model::Model;

/// The text of the prompt; its tools are shown to the model where it may call them.
pub(super) fn text(model: &Model, request: &chat::Request, may_call: bool) -> Result<String, ApiError> {
    let rendered = Dialect::OpenAiChat.render_request(request)?;
    let mut body: Map<String, Value> = serde_json::from_slice(&rendered.body).unwrap_or_default();
    let mut messages = body.remove("messages").unwrap_or_default();
    messages.as_array_mut().into_iter().flatten().for_each(as_templates_read);
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let conversation = Conversation {
        messages: &messages,
        tools: body.get("tools").filter(|_| may_call),
        add_generation_prompt: true,
        variables: &variables(request)?,
        now: UnixSeconds(now),
    };
    let text = model.template.render(&conversation);
    text.map_err(|error| invalid(error.to_string()).at("messages").code("template"))
}

/// What else the template is told.
fn variables(request: &chat::Request) -> Result<Map<String, Value>, ApiError> {
    let mut variables = match request.rest.get("chat_template_kwargs") {
        None => Map::new(),
        Some(Value::Object(variables)) => variables.clone(),
        Some(_) => return Err(invalid("expected an object").at("chat_template_kwargs")),
    };
    if let Some(thinking) = &request.thinking {
        variables.insert("enable_thinking".to_owned(), Value::Bool(*thinking != Thinking::Off));
        if let Thinking::Effort(word) = thinking {
            variables.insert("reasoning_effort".to_owned(), Value::from(word.as_str()));
        }
    }
    Ok(variables)
}

/// Several texts become one, and arguments what they are the JSON of.
fn as_templates_read(message: &mut Value) {
    if let Some(Value::Array(parts)) = message.get("content") {
        let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
        message["content"] = Value::from(texts.join("\n"));
    }
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(arguments) = call.pointer_mut("/function/arguments") else { continue };
        if let Some(object) = arguments.as_str().and_then(|text| serde_json::from_str(text).ok()) {
            *arguments = object;
        }
    }
}
