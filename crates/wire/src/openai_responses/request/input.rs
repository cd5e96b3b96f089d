//! The items of a conversation. What the model said in one turn is several items here and one message in
//! our model; so are the results of its calls.
//!
//! The ids of items, their status and annotations say nothing to another provider and are left out.

use serde_json::Value;

use super::super::sealed;
use super::super::stream::PARAGRAPH;
use crate::ApiError;
use crate::chat::{Media, MediaKind, Message, Part, Request, Role, Source, ToolIds, check_arguments};
use crate::fields::{Fields, invalid, unsupported};
use crate::media;

/// Reads `input`: instructions to `system`, the rest to `messages`.
pub(super) fn conversation(input: Option<Value>, request: &mut Request) -> Result<(), ApiError> {
    let items = match input {
        None => return Err(invalid("an input is required").at("input")),
        Some(Value::String(text)) => {
            request.messages.push(Message { role: Role::User, parts: vec![Part::Text(text)] });
            return Ok(());
        }
        Some(Value::Array(items)) => items,
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            return Err(invalid("expected a string or a list of items").at("input"));
        }
    };
    let mut ids = ToolIds::default();
    for (i, item) in items.into_iter().enumerate() {
        parse_item(item, &format!("input[{i}]"), &mut ids, request)?;
    }
    if request.messages.is_empty() {
        return Err(invalid("the conversation needs at least one message of the user").at("input"));
    }
    Ok(())
}

fn parse_item(item: Value, path: &str, ids: &mut ToolIds, request: &mut Request) -> Result<(), ApiError> {
    let mut item = Fields::of(item, path)?;
    let kind = item.string("type").map_err(|error| error.under(path))?;
    match kind.as_deref() {
        None | Some("message") => {
            message(&mut item, path, request)?;
            if request.messages.last().is_some_and(|last| last.role == Role::User) {
                ids.over();
            }
        }
        Some("reasoning") => say(Role::Assistant, reasoning(&mut item, path)?, request),
        Some("function_call") => {
            let part = call(&mut item, path)?;
            if let Part::ToolCall { id, arguments, .. } = &part {
                ids.made(id, &format!("{path}.call_id"))?;
                check_arguments(arguments, &format!("{path}.arguments"))?;
            }
            say(Role::Assistant, [part], request);
        }
        Some("function_call_output") => {
            let id = required(&mut item, "call_id", path)?;
            ids.answered(&id, &format!("{path}.call_id"))?;
            let mut content = Vec::new();
            parts(item.take("output"), &format!("{path}.output"), &mut content)?;
            say(Role::Tool, [Part::ToolResult { id, content, is_error: false }], request);
        }
        Some("item_reference") => {
            let message = "this gateway keeps no responses: send the item itself; the AI SDK does with \
                           `providerOptions: { openai: { store: false } }`";
            return Err(unsupported(message).at(path));
        }
        Some(other) => {
            let message = format!("an item of type `{other}` cannot be translated to another dialect");
            return Err(unsupported(message).at(format!("{path}.type")));
        }
    }
    Ok(())
}

/// Adds to the turn that goes on, or begins one.
fn say(role: Role, said: impl IntoIterator<Item = Part>, request: &mut Request) {
    let mut said = said.into_iter().peekable();
    match request.messages.last_mut() {
        Some(last) if last.role == role => last.parts.extend(said),
        _ if said.peek().is_some() => request.messages.push(Message { role, parts: said.collect() }),
        _ => {}
    }
}

fn message(item: &mut Fields, path: &str, request: &mut Request) -> Result<(), ApiError> {
    let role = item.string("role").map_err(|error| error.under(path))?;
    let mut said = Vec::new();
    let role = match role.as_deref() {
        Some("user") => {
            content(item, path, &mut said)?;
            request.messages.push(Message { role: Role::User, parts: said });
            return Ok(());
        }
        Some("assistant") => Some(Role::Assistant),
        Some("system" | "developer") => None,
        Some(_) => {
            let message = "expected `system`, `developer`, `user` or `assistant`";
            return Err(invalid(message).at(format!("{path}.role")));
        }
        None => return Err(invalid("a role is required").at(format!("{path}.role"))),
    };
    content(item, path, &mut said)?;
    if let Some(Part::Media(media)) = said.iter().find(|part| matches!(part, Part::Media(_))) {
        return Err(unsupported("only the user and tools can show images and files").at(media.path.clone()));
    }
    match role {
        Some(role) => say(role, said, request),
        None => request.system.extend(said),
    }
    Ok(())
}

/// The `content` of a message.
pub(in super::super) fn content(item: &mut Fields, path: &str, out: &mut Vec<Part>) -> Result<(), ApiError> {
    parts(item.take("content"), &format!("{path}.content"), out)
}

/// A string or a list of parts.
fn parts(content: Option<Value>, path: &str, out: &mut Vec<Part>) -> Result<(), ApiError> {
    let list = match content {
        Some(Value::String(text)) => {
            out.push(Part::Text(text));
            return Ok(());
        }
        Some(Value::Array(list)) => list,
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            return Err(invalid("expected a string or a list of parts").at(path));
        }
    };
    for (i, part) in list.into_iter().enumerate() {
        let path = format!("{path}[{i}]");
        let mut part = Fields::of(part, &path)?;
        out.push(match required(&mut part, "type", &path)?.as_str() {
            "input_text" | "output_text" => Part::Text(required(&mut part, "text", &path)?),
            "refusal" => Part::Text(required(&mut part, "refusal", &path)?),
            "input_image" => Part::Media(image(&mut part, &path)?),
            "input_file" => Part::Media(file(&mut part, &path)?),
            other => {
                let message = format!("a part of type `{other}` cannot be translated to another dialect");
                return Err(unsupported(message).at(format!("{path}.type")));
            }
        });
    }
    Ok(())
}

fn image(part: &mut Fields, path: &str) -> Result<Media, ApiError> {
    let detail = part.string("detail").map_err(|error| error.under(path))?;
    let url = part.string("image_url").map_err(|error| error.under(path))?;
    let id = part.string("file_id").map_err(|error| error.under(path))?;
    let (source, field) = match (url, id) {
        (Some(url), _) => (located(url, path, "image_url")?, "image_url"),
        (None, Some(id)) => (Source::File(id), "file_id"),
        (None, None) => {
            return Err(invalid("an image_url or a file_id is required").at(format!("{path}.image_url")));
        }
    };
    Ok(Media { kind: MediaKind::Image, source, name: None, detail, path: format!("{path}.{field}") })
}

fn file(part: &mut Fields, path: &str) -> Result<Media, ApiError> {
    let name = part.string("filename").map_err(|error| error.under(path))?;
    let mut field = |name: &str| part.string(name).map_err(|error| error.under(path));
    let (source, field) = match (field("file_data")?, field("file_url")?, field("file_id")?) {
        (Some(data), _, _) => (located(data, path, "file_data")?, "file_data"),
        (None, Some(url), _) => (located(url, path, "file_url")?, "file_url"),
        (None, None, Some(id)) => (Source::File(id), "file_id"),
        (None, None, None) => {
            let message = "file_data, a file_url or a file_id is required";
            return Err(invalid(message).at(format!("{path}.file_data")));
        }
    };
    Ok(Media { kind: MediaKind::Document, source, name, detail: None, path: format!("{path}.{field}") })
}

fn located(url: String, path: &str, field: &str) -> Result<Source, ApiError> {
    media::source(url).map_err(|error| error.at(format!("{path}.{field}")))
}

/// The thinking of an item; nothing where it says nothing.
pub(in super::super) fn reasoning(item: &mut Fields, path: &str) -> Result<Option<Part>, ApiError> {
    let sealed = item.string("encrypted_content").map_err(|error| error.under(path))?;
    let mut texts = Vec::new();
    // The summary, or the thinking itself where a server shows it.
    for name in ["summary", "content"] {
        let list = item.array(name).map_err(|error| error.under(path))?.unwrap_or_default();
        for (i, part) in list.into_iter().enumerate() {
            let path = format!("{path}.{name}[{i}]");
            texts.push(required(&mut Fields::of(part, &path)?, "text", &path)?);
        }
    }
    Ok(sealed::open(texts.join(PARAGRAPH), sealed).map(Part::Reasoning))
}

/// A call that the assistant made.
pub(in super::super) fn call(item: &mut Fields, path: &str) -> Result<Part, ApiError> {
    Ok(Part::ToolCall {
        id: required(item, "call_id", path)?,
        name: required(item, "name", path)?,
        arguments: item.string("arguments").map_err(|error| error.under(path))?.unwrap_or_default(),
    })
}

pub(super) fn required(fields: &mut Fields, name: &str, path: &str) -> Result<String, ApiError> {
    let text = fields.string(name).map_err(|error| error.under(path))?;
    text.ok_or_else(|| invalid(format!("{name} is required")).at(format!("{path}.{name}")))
}
