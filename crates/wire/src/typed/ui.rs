//! Requests of `/api/chat`, as an unmodified `useChat` sends them.
//!
//! A message is a list of parts. What was only shown (sources, `data-…`) or broke off half-way says
//! nothing to a model and is skipped. An answer of several steps is several turns: what the tools of one
//! step gave stands before the next. Message kinds of a newer protocol are refused, not guessed.

use serde_json::Value;

use super::{OURS, REDACTED, SIGNATURE};
use crate::ApiError;
use crate::chat::{Media, MediaKind, Message, Part, Reasoning, Request, Role, ToolIds};
use crate::fields::{Fields, invalid, unsupported};
use crate::media;
use crate::openai_chat::common;

/// What `useChat` asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UiRequest {
    /// The request; the model may be left to the gateway (then it is empty).
    pub request: Request,
    /// The id of the chat, as the application named it.
    pub chat_id: Option<String>,
    /// The id of the caller's own last message, where that is the assistant's: the answer goes on with it
    /// and must carry its id ([`super::Renderer::message_id`]).
    pub continues: Option<String>,
}

/// Reads the body of a request. Beside the fields of `useChat` it may have those of a chat: `model`,
/// `system`, `temperature`, `max_tokens` or `maxOutputTokens`, `tools` in OpenAI's form.
pub fn parse_ui_request(body: &[u8]) -> Result<UiRequest, ApiError> {
    let mut fields = Fields::read(body)?;
    let mut ui = UiRequest { chat_id: fields.string("id")?, ..UiRequest::default() };
    // Which message was sent or asked for again: the conversation says it, too.
    fields.take("trigger");
    fields.take("messageId");
    ui.request.model = fields.string("model")?.unwrap_or_default();
    ui.request.stream = fields.bool("stream")?.unwrap_or(true);
    if let Some(system) = fields.string("system")? {
        ui.request.system.push(Part::Text(system));
    }
    let messages =
        fields.array("messages")?.ok_or_else(|| invalid("messages are required").at("messages"))?;
    let mut ids = ToolIds::default();
    for (i, message) in messages.into_iter().enumerate() {
        ui.continues = read_message(message, &format!("messages[{i}]"), &mut ids, &mut ui.request)?;
    }
    if ui.request.messages.is_empty() {
        return Err(invalid("the conversation needs at least one message of the user").at("messages"));
    }
    let max_output_tokens = fields.positive("maxOutputTokens")?;
    common(&mut fields, &mut ui.request)?;
    ui.request.max_tokens = ui.request.max_tokens.or(max_output_tokens);
    ui.request.rest = fields.rest();
    Ok(ui)
}

/// Reads one message; returns its id where an answer would go on with it.
fn read_message(
    message: Value,
    path: &str,
    ids: &mut ToolIds,
    request: &mut Request,
) -> Result<Option<String>, ApiError> {
    let mut message = Fields::of(message, path)?;
    let role = required(&mut message, "role", path)?;
    let Some(parts) = message.array("parts").map_err(|error| error.under(path))? else {
        return Err(without_parts(&mut message, path));
    };
    match role.as_str() {
        "system" => {
            read_plain(parts, path, &role, &mut request.system)?;
            Ok(None)
        }
        "user" => {
            let mut said = Vec::new();
            read_plain(parts, path, &role, &mut said)?;
            if said.is_empty() {
                return Err(invalid("the message says nothing").at(format!("{path}.parts")));
            }
            request.messages.push(Message { role: Role::User, parts: said });
            Ok(None)
        }
        "assistant" => {
            read_assistant(parts, path, ids, &mut request.messages)?;
            message.string("id").map_err(|error| error.under(path))
        }
        _ => Err(invalid("expected `system`, `user` or `assistant`").at(format!("{path}.role"))),
    }
}

/// A message of another protocol.
fn without_parts(message: &mut Fields, path: &str) -> ApiError {
    if message.take("content").is_some() {
        let hint = "a message of `useChat` has `parts`; for messages with `content`, as Ollama's own API and \
                    older releases of the AI SDK have them, ask /v1/chat/completions";
        return unsupported(hint).at(format!("{path}.content"));
    }
    invalid("parts are required").at(format!("{path}.parts"))
}

/// A message that calls no tools.
fn read_plain(parts: Vec<Value>, path: &str, role: &str, out: &mut Vec<Part>) -> Result<(), ApiError> {
    for (i, part) in parts.into_iter().enumerate() {
        let path = format!("{path}.parts[{i}]");
        let mut part = Fields::of(part, &path)?;
        match (required(&mut part, "type", &path)?.as_str(), role) {
            ("text", _) => out.extend(text(&mut part, &path)?),
            ("file", "user") => out.push(file(&mut part, &path)?),
            (kind, _) if is_shown_only(kind) => {}
            (kind, _)
                if ["file", "reasoning", "dynamic-tool"].contains(&kind) || kind.starts_with("tool-") =>
            {
                let message = format!("a message of role `{role}` cannot hold a part of type `{kind}`");
                return Err(invalid(message).at(format!("{path}.type")));
            }
            (kind, _) => return Err(unknown_kind(kind, &path)),
        }
    }
    Ok(())
}

/// An answer of the assistant: its steps, each followed by what its tools gave.
fn read_assistant(
    parts: Vec<Value>,
    path: &str,
    ids: &mut ToolIds,
    messages: &mut Vec<Message>,
) -> Result<(), ApiError> {
    let mut step = Step::default();
    for (i, part) in parts.into_iter().enumerate() {
        let path = format!("{path}.parts[{i}]");
        let mut part = Fields::of(part, &path)?;
        let kind = required(&mut part, "type", &path)?;
        match kind.as_str() {
            "step-start" => step.end(messages),
            "text" => step.said.extend(text(&mut part, &path)?),
            "reasoning" => step.said.extend(reasoning(&mut part, &path)?),
            "dynamic-tool" => {
                let name = required(&mut part, "toolName", &path)?;
                step.tool(part, name, &path, ids)?;
            }
            "file" => {
                let message = "a file of the assistant cannot be translated to another dialect";
                return Err(unsupported(message).at(format!("{path}.type")));
            }
            kind if is_shown_only(kind) => {}
            kind => match kind.strip_prefix("tool-") {
                Some(name) => step.tool(part, name.to_owned(), &path, ids)?,
                None => return Err(unknown_kind(kind, &path)),
            },
        }
    }
    step.end(messages);
    Ok(())
}

/// One step of an answer.
#[derive(Default)]
struct Step {
    said: Vec<Part>,
    results: Vec<Part>,
}

impl Step {
    fn tool(
        &mut self,
        mut part: Fields,
        name: String,
        path: &str,
        ids: &mut ToolIds,
    ) -> Result<(), ApiError> {
        if part.bool("providerExecuted").map_err(|error| error.under(path))? == Some(true) {
            let message = "a tool that a provider ran itself cannot be translated to another dialect";
            return Err(unsupported(message).at(format!("{path}.providerExecuted")));
        }
        let id = required(&mut part, "toolCallId", path)?;
        let (output, is_error) = match required(&mut part, "state", path)?.as_str() {
            // The answer broke off within the call.
            "input-streaming" => return Ok(()),
            "input-available" => (None, false),
            "output-available" => (Some(json_text(part.take("output"))), false),
            "output-error" => (Some(json_text(part.take("errorText"))), true),
            state => {
                let message = format!("`{state}` is no state of a tool call in release 5 of the AI SDK");
                return Err(unsupported(message).at(format!("{path}.state")));
            }
        };
        let arguments = json_text(part.take("input").or_else(|| part.take("rawInput")));
        let id_path = format!("{path}.toolCallId");
        ids.made(&id, &id_path)?;
        if let Some(output) = output {
            ids.answered(&id, &id_path)?;
            let content = vec![Part::Text(output)];
            self.results.push(Part::ToolResult { id: id.clone(), content, is_error });
        }
        self.said.push(Part::ToolCall { id, name, arguments });
        Ok(())
    }

    /// A step that only thought says nothing to go on from: it broke off.
    fn end(&mut self, messages: &mut Vec<Message>) {
        let said = std::mem::take(&mut self.said);
        if said.iter().any(|part| !matches!(part, Part::Reasoning(_))) {
            messages.push(Message { role: Role::Assistant, parts: said });
        }
        let results = std::mem::take(&mut self.results);
        if !results.is_empty() {
            messages.push(Message { role: Role::Tool, parts: results });
        }
    }
}

/// What an application shows beside the answer.
fn is_shown_only(kind: &str) -> bool {
    kind.starts_with("data-") || kind.starts_with("source-") || kind == "step-start"
}

fn unknown_kind(kind: &str, path: &str) -> ApiError {
    let message = format!(
        "`{kind}` is no part of a message in release 5 of the AI SDK; send text, files, reasoning and tools"
    );
    unsupported(message).at(format!("{path}.type"))
}

/// The text, if it says something.
fn text(part: &mut Fields, path: &str) -> Result<Option<Part>, ApiError> {
    let text = part.string("text").map_err(|error| error.under(path))?;
    let text = text.ok_or_else(|| invalid("a text is required").at(format!("{path}.text")))?;
    Ok(Some(text).filter(|text| !text.is_empty()).map(Part::Text))
}

/// The thinking, with what its provider gave to prove it: through us, or through the AI SDK itself.
fn reasoning(part: &mut Fields, path: &str) -> Result<Option<Part>, ApiError> {
    let text = part.string("text").map_err(|error| error.under(path))?.unwrap_or_default();
    let metadata = part.take("providerMetadata").unwrap_or_default();
    let field = |name| {
        let mut providers = [OURS, "anthropic"].into_iter();
        let found = providers.find_map(|provider| metadata.get(provider)?.get(name)?.as_str());
        found.filter(|proof| !proof.is_empty()).map(str::to_owned)
    };
    let reasoning = Reasoning { text, signature: field(SIGNATURE), redacted: field(REDACTED) };
    Ok(Some(reasoning).filter(|reasoning| *reasoning != Reasoning::default()).map(Part::Reasoning))
}

/// A file of the user. What kind it is says its media type.
fn file(part: &mut Fields, path: &str) -> Result<Part, ApiError> {
    let media_type = required(part, "mediaType", path)?;
    let name = part.string("filename").map_err(|error| error.under(path))?;
    let url = required(part, "url", path)?;
    let kind = match media_type.split('/').next() {
        Some("image") => MediaKind::Image,
        Some("audio" | "video") => {
            let message = format!("`{media_type}` cannot be translated to another dialect");
            return Err(unsupported(message).at(format!("{path}.mediaType")));
        }
        _ => MediaKind::Document,
    };
    let path = format!("{path}.url");
    // The media type need not stand in the URL as well.
    let url = match url.strip_prefix("data:;") {
        Some(rest) => format!("data:{media_type};{rest}"),
        None => url,
    };
    let source = media::source(url).map_err(|error| error.at(path.as_str()))?;
    Ok(Part::Media(Media { kind, source, name, detail: None, path }))
}

/// A string that must be there and say something.
fn required(fields: &mut Fields, name: &str, path: &str) -> Result<String, ApiError> {
    let text = fields.string(name).map_err(|error| error.under(path))?.filter(|text| !text.is_empty());
    text.ok_or_else(|| invalid(format!("`{name}` is required")).at(format!("{path}.{name}")))
}

/// A string as it is, anything else as JSON, nothing as nothing. Our renderer tells arguments that are
/// no JSON object as a string, so this is how a model reads again what it wrote.
fn json_text(value: Option<Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    }
}
