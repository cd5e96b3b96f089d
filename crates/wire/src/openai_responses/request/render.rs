//! Writes requests, for an upstream that speaks this dialect.
//!
//! Nothing is stored there, so the reasoning of an earlier turn goes back only with what its provider wrote
//! into it, and is asked for in that form.

use serde_json::{Value, json};

use super::super::sealed::seal;
use crate::capabilities::{Capabilities, ThinkingStyle};
use crate::chat::{
    Format, Media, MediaKind, Message, Part, Request, Role, Source, Thinking, Tool, ToolChoice,
    arguments_json,
};
use crate::fields::unsupported;
use crate::openai_chat::prune;
use crate::{ApiError, Rendered, effort, media};

/// Writes a request. What this dialect or this model cannot be told is named in `dropped`; `rest` is another
/// dialect's and is named, too.
///
/// # Errors
/// What this dialect, or this model, cannot do, where leaving it out would be a lie.
pub fn render_request(request: &Request) -> Result<Rendered, ApiError> {
    let able = Capabilities::of(&request.model);
    let mut items = Items { model: &request.model, list: Vec::new(), dropped: dropped(request, able) };
    for message in &request.messages {
        items.message(message)?;
    }
    let effort = effort(request.thinking.as_ref(), able);
    let system: Vec<&str> = request.system.iter().filter_map(Part::text).collect();
    let sampling = |value: Option<f64>| value.filter(|_| able.sampling);
    let mut body = json!({
        "model": request.model,
        "instructions": if system.is_empty() { Value::Null } else { json!(system.join("\n\n")) },
        "max_output_tokens": request.max_tokens,
        "temperature": sampling(request.temperature),
        "top_p": sampling(request.top_p),
        "tool_choice": request.tool_choice.as_ref().map(render_tool_choice),
        "parallel_tool_calls": request.parallel_tools,
        "reasoning": { "effort": effort },
        "user": request.user,
    });
    prune(&mut body);
    body["input"] = Value::Array(items.list);
    body["store"] = Value::Bool(false);
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(render_tool).collect();
    }
    if let Some(format) = &request.format {
        body["text"] = json!({ "format": render_format(format) });
    }
    let thought =
        body["input"].as_array().is_some_and(|list| list.iter().any(|item| item["type"] == "reasoning"));
    if thought || effort.is_some_and(|effort| effort != "none") {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    if request.stream {
        body["stream"] = Value::Bool(true);
        // Padding against those who watch the length of packets; it costs more than the text.
        body["stream_options"] = json!({ "include_obfuscation": false });
    }
    Ok(Rendered { body: body.to_string().into_bytes(), dropped: items.dropped })
}

/// Names of the fields that are left out.
fn dropped(request: &Request, able: &Capabilities) -> Vec<String> {
    let thinking = !matches!(request.thinking, None | Some(Thinking::Off | Thinking::Adaptive));
    let mut names = request.unsaid();
    for (name, is_dropped) in [
        ("temperature", request.temperature.is_some() && !able.sampling),
        ("top_p", request.top_p.is_some() && !able.sampling),
        ("top_k", request.top_k.is_some()),
        ("seed", request.seed.is_some()),
        ("presence_penalty", request.presence_penalty.is_some()),
        ("frequency_penalty", request.frequency_penalty.is_some()),
        ("stop", !request.stop.is_empty()),
        ("thinking", thinking && able.thinking != ThinkingStyle::Effort),
    ] {
        if is_dropped {
            names.push(name.to_owned());
        }
    }
    names
}

/// The word for how much the model shall think. By itself it thinks as much as it finds right.
fn effort<'a>(thinking: Option<&'a Thinking>, able: &Capabilities) -> Option<&'a str> {
    match thinking? {
        _ if able.thinking != ThinkingStyle::Effort => None,
        Thinking::Off => Some("none"),
        Thinking::Adaptive => None,
        Thinking::Effort(word) => Some(word),
        Thinking::Budget(tokens) => Some(effort::word(*tokens)),
    }
}

/// The conversation as it is written.
struct Items<'a> {
    model: &'a str,
    list: Vec<Value>,
    dropped: Vec<String>,
}

impl Items<'_> {
    fn message(&mut self, message: &Message) -> Result<(), ApiError> {
        let (role, kind) = match message.role {
            Role::User | Role::Tool => ("user", "input_text"),
            Role::Assistant => ("assistant", "output_text"),
        };
        let mut content = Vec::new();
        for part in &message.parts {
            let item = match part {
                Part::Text(text) => {
                    content.push(json!({ "type": kind, "text": text }));
                    continue;
                }
                Part::Media(media) => {
                    content.push(self.media(media)?);
                    continue;
                }
                Part::Reasoning(reasoning) => {
                    let Some(sealed) = seal(reasoning) else {
                        self.drop("reasoning");
                        continue;
                    };
                    let summary = match reasoning.text.as_str() {
                        "" => json!([]),
                        text => json!([{ "type": "summary_text", "text": text }]),
                    };
                    json!({ "type": "reasoning", "summary": summary, "encrypted_content": sealed })
                }
                Part::ToolCall { id, name, arguments } => {
                    json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments_json(arguments) })
                }
                Part::ToolResult { id, content, is_error } => {
                    if *is_error {
                        self.drop("is_error");
                    }
                    let output = self.output(content)?;
                    json!({ "type": "function_call_output", "call_id": id, "output": output })
                }
            };
            self.say(role, &mut content);
            self.list.push(item);
        }
        self.say(role, &mut content);
        Ok(())
    }

    /// A message of what was said so far.
    fn say(&mut self, role: &str, content: &mut Vec<Value>) {
        if !content.is_empty() {
            let content = std::mem::take(content);
            self.list.push(json!({ "type": "message", "role": role, "content": content }));
        }
    }

    /// What a tool returned: a string, where one can say it.
    fn output(&self, content: &[Part]) -> Result<Value, ApiError> {
        match content {
            [] => return Ok(json!("")),
            [Part::Text(text)] => return Ok(json!(text)),
            _ => {}
        }
        let mut list = Vec::with_capacity(content.len());
        for part in content {
            match part {
                Part::Text(text) => list.push(json!({ "type": "input_text", "text": text })),
                Part::Media(media) => list.push(self.media(media)?),
                // A result holds neither.
                Part::Reasoning(_) | Part::ToolCall { .. } | Part::ToolResult { .. } => {}
            }
        }
        Ok(Value::Array(list))
    }

    fn media(&self, media: &Media) -> Result<Value, ApiError> {
        if let Source::Text(text) = &media.source {
            return Ok(json!({ "type": "input_text", "text": text }));
        }
        media::check(media, self.model)?;
        let mut part = match (media.kind, &media.source) {
            (MediaKind::Image, Source::Url(url)) => json!({ "type": "input_image", "image_url": url }),
            (MediaKind::Image, Source::Base64 { media_type, data }) => {
                json!({ "type": "input_image", "image_url": media::data_url(media_type, data) })
            }
            (MediaKind::Document, Source::Url(url)) => json!({ "type": "input_file", "file_url": url }),
            (MediaKind::Document, Source::Base64 { media_type, data }) => json!({
                "type": "input_file", "filename": media.name.as_deref().unwrap_or("document"),
                "file_data": media::data_url(media_type, data),
            }),
            (_, Source::File(_) | Source::Text(_)) => {
                let message = "a file id means nothing to another provider: send the file itself";
                return Err(unsupported(message).at(media.path.clone()));
            }
        };
        if let Some(detail) = media.detail.as_ref().filter(|_| media.kind == MediaKind::Image) {
            part["detail"] = json!(detail);
        }
        Ok(part)
    }

    fn drop(&mut self, name: &str) {
        if !self.dropped.iter().any(|dropped| dropped == name) {
            self.dropped.push(name.to_owned());
        }
    }
}

fn render_tool(tool: &Tool) -> Value {
    // Where it is left out, this dialect alone takes it for true.
    let mut rendered =
        json!({ "type": "function", "name": tool.name, "strict": tool.strict.unwrap_or(false) });
    if let Some(description) = &tool.description {
        rendered["description"] = json!(description);
    }
    rendered["parameters"] = tool.parameters.clone();
    rendered
}

fn render_tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({ "type": "function", "name": name }),
    }
}

fn render_format(format: &Format) -> Value {
    match format {
        Format::Json => json!({ "type": "json_object" }),
        Format::Schema { name, description, schema, strict } => {
            let name = name.as_deref().unwrap_or("answer");
            let mut rendered = json!({ "type": "json_schema", "name": name, "schema": schema });
            if let Some(description) = description {
                rendered["description"] = json!(description);
            }
            if let Some(strict) = strict {
                rendered["strict"] = json!(strict);
            }
            rendered
        }
    }
}
