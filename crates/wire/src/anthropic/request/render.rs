//! Requests, written. What the model is not known to take is left out and named.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::super::answer::{input, thinking_block};
use super::thinking;
use crate::capabilities::Capabilities;
use crate::chat::{Format, Media, MediaKind, Message, Part, Request, Role, Source, Tool, ToolChoice, note};
use crate::fields::{invalid, unsupported};
use crate::render::unless_default;
use crate::{ApiError, Rendered, media};

/// Writes a request.
///
/// # Errors
/// What this dialect, or this model, cannot do, where leaving it out would be a lie.
pub fn render_request(request: &Request) -> Result<Rendered, ApiError> {
    let can = Capabilities::of(&request.model);
    let mut writer = Writer { request, can, body: Map::new(), dropped: request.unsaid() };
    let max_tokens = request.max_tokens.unwrap_or(can.output_tokens_max);
    writer.write("model", json!(request.model));
    writer.write("max_tokens", json!(max_tokens));
    let messages = writer.conversation()?;
    writer.write("messages", messages);
    let system: Vec<Value> = writer.content(&request.system)?;
    writer.write("system", list(system));
    writer.write("stream", if request.stream { json!(true) } else { Value::Null });
    let plan = thinking::plan(request, can, max_tokens);
    if plan.is_none() {
        note(&mut writer.dropped, "thinking");
    }
    let plan = plan.unwrap_or_default();
    writer.write("thinking", plan.config);
    writer.sampling(plan.thinks);
    writer.tools();
    writer.form(plan.effort);
    Ok(Rendered { body: Value::Object(writer.body).to_string().into_bytes(), dropped: writer.dropped })
}

struct Writer<'a> {
    request: &'a Request,
    can: &'static Capabilities,
    body: Map<String, Value>,
    dropped: Vec<String>,
}

impl Writer<'_> {
    /// Writes a field that says something.
    fn write(&mut self, name: &str, value: Value) {
        if !value.is_null() {
            self.body.insert(name.to_owned(), value);
        }
    }

    /// Writes a field, or names it as `ours` where it is not taken.
    fn write_or_name(&mut self, name: &str, ours: &str, value: Value, takes: bool) {
        if takes {
            self.write(name, value);
        } else if !value.is_null() {
            note(&mut self.dropped, ours);
        }
    }

    /// The conversation, turn by turn: neighbours of one role are one turn here.
    fn conversation(&mut self) -> Result<Value, ApiError> {
        let mut turns: Vec<(&'static str, Vec<Value>)> = Vec::new();
        let request = self.request;
        for Message { role, parts } in &request.messages {
            let content = self.content(parts)?;
            if content.is_empty() {
                // This API refuses a message that says nothing; leaving it out says the same.
                continue;
            }
            let role = match role {
                Role::User | Role::Tool => "user",
                Role::Assistant => "assistant",
            };
            match turns.last_mut() {
                Some((last, said)) if *last == role => said.extend(content),
                _ => turns.push((role, content)),
            }
        }
        match (turns.first(), turns.last()) {
            (Some(("user", _)), Some((last, _))) if *last == "user" || self.can.prefill => {}
            (Some(("user", _)), _) => {
                let model = &request.model;
                let message =
                    format!("the last message must be the user's: {model} does not continue an answer");
                return Err(unsupported(message).at("messages"));
            }
            _ => {
                return Err(
                    invalid("the first message that says something must be the user's").at("messages")
                );
            }
        }
        Ok(turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect())
    }

    /// Blocks; none for an empty text, which this API refuses.
    fn content(&mut self, parts: &[Part]) -> Result<Vec<Value>, ApiError> {
        let mut blocks = Vec::with_capacity(parts.len());
        for part in parts {
            blocks.push(match part {
                Part::Text(text) if text.trim().is_empty() => continue,
                Part::Text(text) => json!({ "type": "text", "text": text }),
                Part::Media(media) => self.media(media)?,
                Part::Reasoning(block) => match thinking_block(block) {
                    Some(block) => block,
                    None => {
                        note(&mut self.dropped, "reasoning");
                        continue;
                    }
                },
                Part::ToolCall { id, name, arguments } => {
                    json!({ "type": "tool_use", "id": id, "name": name, "input": input(arguments) })
                }
                Part::ToolResult { id, content, is_error } => {
                    let content = self.content(content)?;
                    let mut result = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
                    if *is_error {
                        result["is_error"] = Value::Bool(true);
                    }
                    result
                }
            });
        }
        Ok(blocks)
    }

    fn media(&mut self, media: &Media) -> Result<Value, ApiError> {
        media::check(media, &self.request.model)?;
        if media.detail.as_ref().is_some_and(|detail| detail != "auto") {
            note(&mut self.dropped, "detail");
        }
        let kind = match media.kind {
            MediaKind::Image => "image",
            MediaKind::Document => "document",
        };
        let source = match &media.source {
            Source::Url(url) => json!({ "type": "url", "url": url }),
            Source::Text(text) => text_source(text),
            Source::File(_) => return Err(unsupported("this file cannot be sent").at(&media.path)),
            Source::Base64 { media_type, data }
                if media.kind == MediaKind::Document && media_type.starts_with("text/") =>
            {
                let text = STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                text_source(&text.ok_or_else(|| invalid("expected UTF-8 text in base64").at(&media.path))?)
            }
            Source::Base64 { media_type, .. }
                if media.kind == MediaKind::Document && media_type != "application/pdf" =>
            {
                let message = format!("a document must be PDF or text here, not `{media_type}`");
                return Err(unsupported(message).at(&media.path));
            }
            Source::Base64 { media_type, data } => {
                json!({ "type": "base64", "media_type": media_type, "data": data })
            }
        };
        let mut block = json!({ "type": kind, "source": source });
        match &media.name {
            Some(name) if media.kind == MediaKind::Document => block["title"] = json!(name),
            Some(_) => note(&mut self.dropped, "name"),
            None => {}
        }
        Ok(block)
    }

    /// While a model thinks, only its own way of sampling is taken.
    fn sampling(&mut self, thinks: bool) {
        let (request, can) = (self.request, self.can);
        let takes = can.sampling && !thinks;
        let temperature = unless_default(request.temperature, 1.0, takes);
        // More than 1 is not known here.
        let heated = takes && temperature.is_some_and(|value| value <= 1.0);
        let both = can.sampling_both || !heated;
        let top_p = unless_default(request.top_p, 1.0, takes && both);
        let high = top_p.is_some_and(|mass| mass >= 0.95);
        // Nor is a stop string that is blank.
        let (stop, blank): (Vec<&String>, Vec<_>) =
            request.stop.iter().partition(|stop| !stop.trim().is_empty());
        let penalty = |value| json!(unless_default(value, 0.0, false));
        for (name, value, takes) in [
            ("temperature", json!(temperature), heated),
            ("top_p", json!(top_p), can.sampling && both && (high || !thinks)),
            ("top_k", json!(request.top_k), takes && can.top_k),
            ("seed", json!(request.seed), false),
            ("presence_penalty", penalty(request.presence_penalty), false),
            ("frequency_penalty", penalty(request.frequency_penalty), false),
            ("stop", if blank.is_empty() { Value::Null } else { json!(blank) }, false),
        ] {
            self.write_or_name(name, name, value, takes);
        }
        self.write_or_name(
            "stop_sequences",
            "stop",
            list(stop.into_iter().map(|stop| json!(stop)).collect()),
            can.stop,
        );
    }

    fn tools(&mut self) {
        let request = self.request;
        let strict = |tool: &Tool| tool.strict.filter(|_| self.can.schema);
        let tools: Vec<Value> = request.tools.iter().map(|item| tool(item, strict(item))).collect();
        if !self.can.schema && request.tools.iter().any(|tool| tool.strict == Some(true)) {
            note(&mut self.dropped, "strict");
        }
        let has_tools = !tools.is_empty();
        self.write_or_name("tools", "tools", list(tools), true);
        let choice = request.tool_choice.as_ref().map(tool_choice);
        self.write_or_name("tool_choice", "tool_choice", choice.unwrap_or_default(), has_tools);
        let Some(parallel) = request.parallel_tools else { return };
        if !has_tools || request.tool_choice == Some(ToolChoice::None) {
            return note(&mut self.dropped, "parallel_tools");
        }
        let choice = self.body.entry("tool_choice").or_insert_with(|| json!({ "type": "auto" }));
        choice["disable_parallel_tool_use"] = Value::Bool(!parallel);
    }

    /// How the answer shall look, and who asks.
    fn form(&mut self, effort: Option<&str>) {
        let mut config = Map::new();
        if let Some(word) = effort {
            config.insert("effort".to_owned(), json!(word));
        }
        match &self.request.format {
            Some(Format::Schema { schema, description, .. }) if self.can.schema => {
                config.insert("format".to_owned(), json!({ "type": "json_schema", "schema": schema }));
                if description.is_some() {
                    note(&mut self.dropped, "format.description");
                }
            }
            Some(_) => note(&mut self.dropped, "format"),
            None => {}
        }
        if !config.is_empty() {
            self.write("output_config", Value::Object(config));
        }
        let user = self.request.user.as_ref().map(|id| json!({ "user_id": id }));
        self.write_or_name("metadata", "user", user.unwrap_or_default(), true);
    }
}

/// A list, or nothing where it is empty.
fn list(items: Vec<Value>) -> Value {
    if items.is_empty() { Value::Null } else { Value::Array(items) }
}

fn text_source(text: &str) -> Value {
    json!({ "type": "text", "media_type": "text/plain", "data": text })
}

fn tool(tool: &Tool, strict: Option<bool>) -> Value {
    let mut schema = tool.parameters.clone();
    // Required here; elsewhere no arguments may be an empty schema.
    if let Value::Object(fields) = &mut schema {
        fields.entry("type").or_insert_with(|| json!("object"));
    }
    let mut rendered = json!({ "name": tool.name, "input_schema": schema });
    if let Some(description) = &tool.description {
        rendered["description"] = json!(description);
    }
    if let Some(strict) = strict {
        rendered["strict"] = Value::Bool(strict);
    }
    rendered
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({ "type": "auto" }),
        ToolChoice::None => json!({ "type": "none" }),
        ToolChoice::Required => json!({ "type": "any" }),
        ToolChoice::Named(name) => json!({ "type": "tool", "name": name }),
    }
}
