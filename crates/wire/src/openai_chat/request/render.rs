//! Requests, written. What the model is not known to take is left out and named.

use serde_json::{Map, Value, json};

use crate::capabilities::{Capabilities, ThinkingStyle};
use crate::chat::{
    Format, Media, MediaKind, Message, Part, Reasoning, Request, Role, Source, Thinking, Tool, ToolChoice,
    arguments_json, note,
};
use crate::fields::unsupported;
use crate::render::unless_default;
use crate::{ApiError, Rendered, effort, media};

use super::super::reasoning;
use super::super::render::prune;

/// Writes a request; `stream_usage` asks for the usage chunk.
///
/// # Errors
/// What this dialect, or this model, cannot do, where leaving it out would be a lie.
pub fn render_request(request: &Request, stream_usage: bool) -> Result<Rendered, ApiError> {
    let can = Capabilities::of(&request.model);
    let mut writer =
        Writer { request, can, messages: Vec::new(), seen: Vec::new(), dropped: request.unsaid() };
    writer.conversation()?;
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    body.insert("messages".to_owned(), Value::Array(std::mem::take(&mut writer.messages)));
    writer.options(&mut body);
    if request.stream {
        body.insert("stream".to_owned(), Value::Bool(true));
        if stream_usage {
            body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
        }
    }
    Ok(Rendered { body: Value::Object(body).to_string().into_bytes(), dropped: writer.dropped })
}

struct Writer<'a> {
    request: &'a Request,
    can: &'static Capabilities,
    messages: Vec<Value>,
    /// Media of tool results. A result can hold none here, so they follow it in a message of the user.
    seen: Vec<Value>,
    dropped: Vec<String>,
}

impl Writer<'_> {
    fn options(&mut self, body: &mut Map<String, Value>) {
        let (request, can) = (self.request, self.can);
        // OpenAI's newer models refuse `max_tokens`; most compatible servers know nothing else.
        let bound = if can.completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        let sampled = |value, default| json!(unless_default(value, default, can.sampling));
        let stop = if request.stop.is_empty() { Value::Null } else { json!(request.stop) };
        let has_tools = !request.tools.is_empty();
        let tools = request.tools.iter().map(tool).collect();
        for (name, value, takes) in [
            (bound, json!(request.max_tokens), true),
            ("temperature", sampled(request.temperature, 1.0), can.sampling),
            ("top_p", sampled(request.top_p, 1.0), can.sampling),
            ("top_k", json!(request.top_k), can.top_k),
            ("seed", json!(request.seed), true),
            ("presence_penalty", sampled(request.presence_penalty, 0.0), can.sampling),
            ("frequency_penalty", sampled(request.frequency_penalty, 0.0), can.sampling),
            ("stop", stop, can.stop),
            ("user", json!(request.user), true),
            ("tools", if has_tools { Value::Array(tools) } else { Value::Null }, true),
            ("tool_choice", request.tool_choice.as_ref().map(tool_choice).unwrap_or_default(), has_tools),
        ] {
            self.write_or_name(body, name, name, value, takes);
        }
        self.write_or_name(
            body,
            "parallel_tool_calls",
            "parallel_tools",
            json!(request.parallel_tools),
            has_tools,
        );
        let format = request.format.as_ref().map(format).unwrap_or_default();
        let takes = can.schema || request.format == Some(Format::Json);
        self.write_or_name(body, "response_format", "format", format, takes);
        self.thinking(body);
    }

    /// Writes a field, or names it where it is not taken.
    fn write_or_name(
        &mut self,
        body: &mut Map<String, Value>,
        name: &str,
        ours: &str,
        value: Value,
        takes: bool,
    ) {
        if value.is_null() {
            return;
        }
        if takes {
            body.insert(name.to_owned(), value);
        } else {
            note(&mut self.dropped, ours);
        }
    }

    fn thinking(&mut self, body: &mut Map<String, Value>) {
        let word = match (&self.request.thinking, self.can.thinking) {
            // A model that cannot be told to think needs not be told not to.
            (None, _) | (Some(Thinking::Off), ThinkingStyle::None) => return,
            (Some(Thinking::Off), _) if self.can.thinking_off => Some("none"),
            (Some(Thinking::Off | Thinking::Adaptive), _) | (_, ThinkingStyle::None) => None,
            // Anthropic's word for the most.
            (Some(Thinking::Effort(word)), _) if word == "max" => Some("xhigh"),
            (Some(Thinking::Effort(word)), _) => Some(word.as_str()),
            (Some(Thinking::Budget(tokens)), _) => Some(effort::word(*tokens)),
        };
        self.write_or_name(body, "reasoning_effort", "thinking", json!(word), true);
        if word.is_none() {
            note(&mut self.dropped, "thinking");
        }
    }

    fn conversation(&mut self) -> Result<(), ApiError> {
        let request = self.request;
        let system: Vec<&str> = request.system.iter().filter_map(Part::text).collect();
        if !system.is_empty() {
            // One string: the templates of many open models take nothing else here.
            self.messages.push(json!({ "role": "system", "content": system.join("\n\n") }));
        }
        for message in &request.messages {
            if message.role != Role::Tool {
                self.show_seen();
            }
            self.message(message)?;
        }
        self.show_seen();
        Ok(())
    }

    fn show_seen(&mut self) {
        if !self.seen.is_empty() {
            let content = std::mem::take(&mut self.seen);
            self.messages.push(json!({ "role": "user", "content": content }));
        }
    }

    fn message(&mut self, message: &Message) -> Result<(), ApiError> {
        let (mut content, mut calls, mut thoughts) = (Vec::new(), Vec::new(), Vec::new());
        for part in &message.parts {
            match part {
                Part::Text(text) => content.push(json!({ "type": "text", "text": text })),
                Part::Media(media) => content.push(self.media(media)?),
                Part::Reasoning(block) => thoughts.push(block),
                Part::ToolCall { id, name, arguments } => calls.push(json!({
                    "id": id, "type": "function", "function": { "name": name, "arguments": arguments_json(arguments) },
                })),
                // Each result is a message of its own here, and stands before what else the message says.
                Part::ToolResult { id, content, is_error } => self.result(id, content, *is_error)?,
            }
        }
        let mut rendered = Map::new();
        self.reasoning(&thoughts, &mut rendered);
        if !calls.is_empty() {
            rendered.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        if content.is_empty() && rendered.is_empty() {
            return Ok(());
        }
        let content = match content.as_slice() {
            [] => Value::Null,
            [one] => one.get("text").cloned().unwrap_or_else(|| json!([one])),
            _ => Value::Array(content),
        };
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        let mut whole = json!({ "role": role, "content": content });
        for (name, value) in rendered {
            whole[name] = value;
        }
        self.messages.push(whole);
        Ok(())
    }

    fn result(&mut self, id: &str, content: &[Part], is_error: bool) -> Result<(), ApiError> {
        let mut texts = Vec::new();
        for part in content {
            match part {
                Part::Text(text) => texts.push(text.as_str()),
                Part::Media(media) => {
                    let media = self.media(media)?;
                    self.seen.push(media);
                }
                Part::Reasoning(_) | Part::ToolCall { .. } | Part::ToolResult { .. } => {}
            }
        }
        if is_error {
            note(&mut self.dropped, "is_error");
        }
        self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": texts.join("\n") }));
        Ok(())
    }

    /// Thinking goes back to a model that signs it, with its signature, and to one that wants it without.
    fn reasoning(&mut self, blocks: &[&Reasoning], rendered: &mut Map<String, Value>) {
        let signs = matches!(self.can.thinking, ThinkingStyle::Budget | ThinkingStyle::Adaptive);
        let is_proven = |block: &&Reasoning| block.signature.is_some() || block.redacted.is_some();
        let (proven, bare): (Vec<_>, Vec<_>) = blocks.iter().copied().partition(is_proven);
        if signs && !proven.is_empty() {
            rendered.insert("reasoning_details".to_owned(), Value::Array(reasoning::details(proven)));
        } else if !proven.is_empty() {
            note(&mut self.dropped, "reasoning");
        }
        if self.can.reasoning_back && !bare.is_empty() {
            let text: String = bare.iter().map(|block| block.text.as_str()).collect();
            rendered.insert("reasoning_content".to_owned(), Value::String(text));
        } else if !bare.is_empty() {
            note(&mut self.dropped, "reasoning");
        }
    }

    fn media(&self, media: &Media) -> Result<Value, ApiError> {
        media::check(media, &self.request.model)?;
        let cannot =
            |what: &str| Err(unsupported(format!("Chat Completions takes no {what}")).at(&media.path));
        match (media.kind, &media.source) {
            (MediaKind::Image, Source::Url(url)) => Ok(image(url, media)),
            (MediaKind::Image, Source::Base64 { media_type, data }) => {
                Ok(image(&media::data_url(media_type, data), media))
            }
            (MediaKind::Document, Source::Base64 { media_type, data }) => {
                let name = media.name.as_deref().unwrap_or("document.pdf");
                let data = media::data_url(media_type, data);
                Ok(json!({ "type": "file", "file": { "filename": name, "file_data": data } }))
            }
            (MediaKind::Document, Source::Text(text)) => {
                let title = media.name.as_ref().map(|name| format!("{name}\n\n")).unwrap_or_default();
                Ok(json!({ "type": "text", "text": format!("{title}{text}") }))
            }
            (MediaKind::Document, Source::Url(_)) => cannot("document by its URL; send the file itself"),
            (MediaKind::Image, Source::Text(_)) | (_, Source::File(_)) => cannot("media of this form"),
        }
    }
}

fn image(url: &str, media: &Media) -> Value {
    let mut image = json!({ "type": "image_url", "image_url": { "url": url } });
    if let Some(detail) = &media.detail {
        image["image_url"]["detail"] = json!(detail);
    }
    image
}

fn format(format: &Format) -> Value {
    match format {
        Format::Json => json!({ "type": "json_object" }),
        Format::Schema { name, description, schema, strict } => {
            // A name is required here.
            let name = name.as_deref().unwrap_or("answer");
            let mut rendered = json!({ "name": name, "description": description, "strict": strict });
            prune(&mut rendered);
            rendered["schema"] = schema.clone();
            json!({ "type": "json_schema", "json_schema": rendered })
        }
    }
}

fn tool(tool: &Tool) -> Value {
    let mut function = json!({ "name": tool.name, "description": tool.description, "strict": tool.strict });
    prune(&mut function);
    function["parameters"] = tool.parameters.clone();
    json!({ "type": "function", "function": function })
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({ "type": "function", "function": { "name": name } }),
    }
}
