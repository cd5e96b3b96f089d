//! The conversation of a request, read: instructions to `system`, the rest to `messages`.

use serde_json::Value;

use crate::ApiError;
use crate::chat::{Media, MediaKind, Message, Part, Request, Role, Source, ToolIds, check_arguments};
use crate::fields::{Fields, invalid, unsupported};
use crate::media;

use super::super::reasoning;

/// Reads a conversation into `request`.
pub(crate) fn messages(conversation: Vec<Value>, request: &mut Request) -> Result<(), ApiError> {
    let mut ids = ToolIds::default();
    for (i, message) in conversation.into_iter().enumerate() {
        let path = format!("messages[{i}]");
        let read = Fields::object(message).and_then(|fields| message_of(fields, &path, &mut ids, request));
        read.map_err(|error| error.under(&path))?;
    }
    if request.messages.is_empty() {
        return Err(invalid("the conversation needs at least one message of the user").at("messages"));
    }
    Ok(())
}

/// Reads one message. `path` is its place: media keep theirs.
fn message_of(
    mut fields: Fields,
    path: &str,
    ids: &mut ToolIds,
    request: &mut Request,
) -> Result<(), ApiError> {
    let role = fields.string("role")?;
    let role = role.ok_or_else(|| invalid("a role is required").at("role"))?;
    let mut said = Said { path, takes_media: matches!(role.as_str(), "user" | "tool"), dropped: Vec::new() };
    let content = fields.take("content").map(|content| said.content(content)).transpose()?;
    let required = || invalid("content is required").at("content");
    match role.as_str() {
        "system" | "developer" => request.system.extend(content.ok_or_else(required)?),
        "user" => {
            let parts = content.filter(|parts| !parts.is_empty()).ok_or_else(required)?;
            ids.over();
            request.messages.push(Message { role: Role::User, parts });
        }
        "assistant" => {
            ids.over();
            let parts = assistant(&mut fields, content.unwrap_or_default(), ids, &mut said.dropped)?;
            request.messages.push(Message { role: Role::Assistant, parts });
        }
        "tool" => {
            let id = fields.filled("tool_call_id")?;
            ids.answered(&id, "tool_call_id")?;
            let result = Part::ToolResult { id, content: content.ok_or_else(required)?, is_error: false };
            request.messages.push(Message { role: Role::Tool, parts: vec![result] });
        }
        "function" => {
            let message = "functions of the older form cannot be translated; use the role `tool`";
            return Err(unsupported(message).at("role"));
        }
        _ => {
            let message = "expected `system`, `developer`, `user`, `assistant` or `tool`";
            return Err(invalid(message).at("role"));
        }
    }
    said.dropped.iter().for_each(|name| crate::chat::note(&mut request.dropped, name));
    fields.leave(&mut request.dropped);
    Ok(())
}

/// The turn of an assistant: what it thought, what it said, what it called.
fn assistant(
    fields: &mut Fields,
    content: Vec<Part>,
    ids: &mut ToolIds,
    dropped: &mut Vec<String>,
) -> Result<Vec<Part>, ApiError> {
    for name in ["function_call", "audio"] {
        if fields.take(name).is_some() {
            return Err(unsupported(format!("{name} cannot be translated to another dialect")).at(name));
        }
    }
    let mut parts = reasoning::take(fields, dropped)?;
    parts.extend(content);
    parts.extend(fields.string("refusal")?.map(Part::Text));
    let calls = fields.each("tool_calls", |mut call| {
        let id = call.filled("id")?;
        ids.made(&id, "id")?;
        if call.string("type")?.is_some_and(|kind| kind != "function") {
            return Err(unsupported("only calls of type `function` can be translated").at("type"));
        }
        let function = call.inside("function", |mut function| {
            let name = function.filled("name")?;
            let arguments = function.string("arguments")?.unwrap_or_default();
            check_arguments(&arguments, "arguments")?;
            Ok(Part::ToolCall { id, name, arguments })
        });
        function?.ok_or_else(|| invalid("function is required").at("function"))
    })?;
    parts.extend(calls);
    Ok(parts)
}

/// Reads the content of one message.
struct Said<'a> {
    /// Where the message is.
    path: &'a str,
    takes_media: bool,
    dropped: Vec<String>,
}

impl Said<'_> {
    /// A string or a list of parts.
    fn content(&mut self, content: Value) -> Result<Vec<Part>, ApiError> {
        let list = match content {
            Value::String(text) => return Ok(vec![Part::Text(text)]),
            Value::Array(list) => list,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                return Err(invalid("expected a string or a list of parts").at("content"));
            }
        };
        let mut parts = Vec::with_capacity(list.len());
        for (i, part) in list.into_iter().enumerate() {
            let place = format!("content[{i}]");
            let read = Fields::object(part).and_then(|fields| self.part(fields, &place));
            parts.push(read.map_err(|error| error.under(&place))?);
        }
        Ok(parts)
    }

    fn part(&mut self, mut fields: Fields, place: &str) -> Result<Part, ApiError> {
        let kind = fields.filled("type")?;
        let part = match kind.as_str() {
            "text" | "refusal" => Part::Text(fields.required(&kind)?),
            "image_url" | "file" if self.takes_media => {
                let path = format!("{}.{place}.{kind}", self.path);
                let media = if kind == "file" { file(&mut fields, path) } else { image(&mut fields, path) };
                Part::Media(media?)
            }
            "image_url" | "file" => {
                return Err(invalid("only a message of the user can hold this").at(kind));
            }
            _ => {
                let message = format!("a part of type `{kind}` cannot be translated to another dialect");
                return Err(unsupported(message).at(kind));
            }
        };
        fields.leave(&mut self.dropped);
        Ok(part)
    }
}

fn image(fields: &mut Fields, path: String) -> Result<Media, ApiError> {
    let url = |url: String| media::source(url).map_err(|error| error.at("image_url"));
    let (source, detail) = match fields.take("image_url") {
        // Not in the specification, and common.
        Some(Value::String(text)) => (url(text)?, None),
        Some(object) => {
            let mut object = Fields::of(object, "image_url")?;
            let text = object.string("url").map_err(|error| error.under("image_url"))?;
            let text = text.ok_or_else(|| invalid("url is required").at("image_url.url"))?;
            (url(text)?, object.string("detail").map_err(|error| error.under("image_url"))?)
        }
        None => return Err(invalid("image_url is required").at("image_url")),
    };
    Ok(Media { kind: MediaKind::Image, source, name: None, detail, path })
}

fn file(fields: &mut Fields, path: String) -> Result<Media, ApiError> {
    let read = |mut fields: Fields| {
        let name = fields.string("filename")?;
        let source = match (fields.string("file_data")?, fields.string("file_id")?) {
            (Some(data), _) if data.starts_with("data:") => {
                media::source(data).map_err(|error| error.at("file_data"))?
            }
            (Some(_), _) => {
                return Err(invalid("expected a data URL, `data:application/pdf;base64,…`").at("file_data"));
            }
            (None, Some(id)) => Source::File(id),
            (None, None) => return Err(invalid("file_data or file_id is required").at("file_data")),
        };
        let kind = match &source {
            Source::Base64 { media_type, .. } if media_type.starts_with("image/") => MediaKind::Image,
            _ => MediaKind::Document,
        };
        Ok(Media { kind, source, name, detail: None, path })
    };
    fields.inside("file", read)?.ok_or_else(|| invalid("file is required").at("file"))
}
