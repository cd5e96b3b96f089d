//! The conversation of a request, read block by block.

use serde_json::{Value, json};

use crate::ApiError;
use crate::chat::{Media, MediaKind, Message, Part, Reasoning, Request, Role, Source, ToolIds};
use crate::fields::{Fields, invalid, unsupported};

/// Reads messages in order, and remembers what their order decides.
#[derive(Default)]
pub(super) struct Reader {
    ids: ToolIds,
    /// Names of what our model has no place for.
    pub(super) dropped: Vec<String>,
}

/// Whose block it is: not every kind may stand everywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    System,
    User,
    Assistant,
    Result,
}

impl Reader {
    /// Reads one message into `request`. `path` is its place: media keep theirs.
    pub(super) fn message(
        &mut self,
        mut fields: Fields,
        path: &str,
        request: &mut Request,
    ) -> Result<(), ApiError> {
        let role = fields.string("role")?;
        let content = fields.take("content").ok_or_else(|| invalid("content is required").at("content"))?;
        fields.leave(&mut self.dropped);
        let (role, place) = match role.as_deref() {
            Some("user") => (Role::User, Place::User),
            Some("assistant") => (Role::Assistant, Place::Assistant),
            Some("system") => {
                let path = format!("{path}.content");
                let texts = self.texts(content, &path).map_err(|error| error.under("content"))?;
                request.system.extend(texts);
                return Ok(());
            }
            Some(_) => return Err(invalid("expected `user` or `assistant`").at("role")),
            None => return Err(invalid("a role is required").at("role")),
        };
        let path = format!("{path}.content");
        if role == Role::Assistant {
            self.ids.over();
        }
        let parts = self.content(content, place, &path).map_err(|error| error.under("content"))?;
        if parts.is_empty() && role == Role::User {
            return Err(invalid("the user must say something").at("content"));
        }
        let is_result = |part: &Part| matches!(part, Part::ToolResult { .. });
        let (results, parts): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(is_result);
        let only_results = parts.is_empty() && !results.is_empty();
        if !results.is_empty() {
            request.messages.push(Message { role: Role::Tool, parts: results });
        } else if role == Role::User {
            self.ids.over();
        }
        if !only_results {
            request.messages.push(Message { role, parts });
        }
        Ok(())
    }

    /// Instructions: a string, or a list of text blocks.
    pub(super) fn texts(&mut self, value: Value, path: &str) -> Result<Vec<Part>, ApiError> {
        self.content(value, Place::System, path)
    }

    /// A string, or a list of blocks. Errors name the place in the list.
    fn content(&mut self, value: Value, place: Place, path: &str) -> Result<Vec<Part>, ApiError> {
        let blocks = match value {
            Value::String(text) => return Ok(vec![Part::Text(text)]),
            Value::Array(blocks) => blocks,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                return Err(invalid("expected a string or a list of blocks"));
            }
        };
        let mut parts = Vec::with_capacity(blocks.len());
        for (i, block) in blocks.into_iter().enumerate() {
            let path = format!("{path}[{i}]");
            let read = Fields::object(block).and_then(|fields| self.block(fields, place, &path));
            parts.push(read.map_err(|error| error.under(&format!("[{i}]")))?);
        }
        Ok(parts)
    }

    fn block(&mut self, mut fields: Fields, place: Place, path: &str) -> Result<Part, ApiError> {
        let kind = fields.filled("type")?;
        let part = match (kind.as_str(), place) {
            ("text", _) => Part::Text(fields.required("text")?),
            ("image", Place::User | Place::Result) => self.media(&mut fields, MediaKind::Image, path)?,
            ("document", Place::User | Place::Result) => {
                self.media(&mut fields, MediaKind::Document, path)?
            }
            ("tool_result", Place::User) => self.result(&mut fields, path)?,
            ("tool_use", Place::Assistant) => self.call(&mut fields)?,
            ("thinking", Place::Assistant) => Part::Reasoning(Reasoning {
                text: fields.string("thinking")?.unwrap_or_default(),
                signature: fields.string("signature")?.filter(|text| !text.is_empty()),
                redacted: None,
            }),
            ("redacted_thinking", Place::Assistant) => {
                Part::Reasoning(Reasoning { redacted: Some(fields.filled("data")?), ..Reasoning::default() })
            }
            ("image" | "document" | "tool_result" | "tool_use" | "thinking" | "redacted_thinking", _) => {
                return Err(invalid(format!("a block of type `{kind}` cannot stand here")));
            }
            _ => {
                let message = format!("a block of type `{kind}` cannot be translated to another dialect");
                return Err(unsupported(message));
            }
        };
        fields.leave(&mut self.dropped);
        Ok(part)
    }

    fn call(&mut self, fields: &mut Fields) -> Result<Part, ApiError> {
        let (id, name) = (fields.filled("id")?, fields.filled("name")?);
        self.ids.made(&id, "id")?;
        // Says that the model called it itself, or that code did which only the provider runs.
        fields.take("caller");
        let input = fields.take("input").unwrap_or_else(|| json!({}));
        if !input.is_object() {
            return Err(invalid("expected an object").at("input").code("invalid_tool_arguments"));
        }
        Ok(Part::ToolCall { id, name, arguments: input.to_string() })
    }

    fn result(&mut self, fields: &mut Fields, path: &str) -> Result<Part, ApiError> {
        let id = fields.filled("tool_use_id")?;
        self.ids.answered(&id, "tool_use_id")?;
        let content = fields.take("content").map(|content| {
            let path = format!("{path}.content");
            self.content(content, Place::Result, &path).map_err(|error| error.under("content"))
        });
        let content = content.transpose()?.unwrap_or_default();
        let is_error = fields.bool("is_error")?.unwrap_or(false);
        Ok(Part::ToolResult { id, content, is_error })
    }

    fn media(&mut self, fields: &mut Fields, kind: MediaKind, path: &str) -> Result<Part, ApiError> {
        let source = fields.inside("source", |fields| self.source(fields, kind))?;
        let source = source.ok_or_else(|| invalid("source is required").at("source"))?;
        let name = if kind == MediaKind::Document { fields.string("title")? } else { None };
        Ok(Part::Media(Media { kind, source, name, detail: None, path: format!("{path}.source") }))
    }

    fn source(&mut self, mut fields: Fields, kind: MediaKind) -> Result<Source, ApiError> {
        let word = fields.filled("type")?;
        match (word.as_str(), kind) {
            ("base64", _) => {
                let (media_type, data) = (fields.filled("media_type")?, fields.filled("data")?);
                Ok(Source::Base64 { media_type, data })
            }
            ("url", _) => Ok(Source::Url(fields.filled("url")?)),
            ("file", _) => Ok(Source::File(fields.filled("file_id")?)),
            ("text", MediaKind::Document) => Ok(Source::Text(fields.required("data")?)),
            ("content", MediaKind::Document) => {
                let content = fields.take("content").unwrap_or_default();
                let texts = self.texts(content, "").map_err(|error| error.under("content"))?;
                let texts: Vec<&str> = texts.iter().filter_map(Part::text).collect();
                Ok(Source::Text(texts.join("\n\n")))
            }
            _ => Err(unsupported(format!("a source of type `{word}` cannot be translated")).at("type")),
        }
    }
}
