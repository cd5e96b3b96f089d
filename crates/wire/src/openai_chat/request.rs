//! Requests. Read through `serde_json::Value`, because they come once per call and every error must
//! name the path that is wrong.

use serde_json::{Value, json};

use crate::capabilities::Capabilities;
use crate::chat::{Message, Part, Request, Role, Tool, ToolChoice};
use crate::fields::{Fields, invalid, unsupported};
use crate::{ApiError, Rendered};

use super::render::prune;

/// Reads the body of a request. What this model has no place for stays in `rest`, except the
/// options of the stream ([`wants_stream_usage`]), which belong to the transport.
pub fn parse_request(body: &[u8]) -> Result<Request, ApiError> {
    let mut fields = Fields::read(body)?;
    let model = fields.string("model")?.filter(|model| !model.is_empty());
    let model = model.ok_or_else(|| invalid("a model is required").at("model"))?;
    let conversation =
        fields.array("messages")?.ok_or_else(|| invalid("messages are required").at("messages"))?;
    let mut request = Request { model, ..Request::default() };
    messages(conversation, &mut request)?;
    request.stream = fields.bool("stream")?.unwrap_or(false);
    fields.take("stream_options");
    common(&mut fields, &mut request)?;
    request.rest = fields.rest();
    Ok(request)
}

/// Whether the caller of a stream asked for the usage chunk. False for whatever is not such a request.
#[must_use]
pub fn wants_stream_usage(body: &[u8]) -> bool {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Shape {
        stream_options: Option<Options>,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Options {
        include_usage: Option<bool>,
    }
    let shape: Shape = serde_json::from_slice(body).unwrap_or_default();
    shape.stream_options.and_then(|options| options.include_usage).unwrap_or(false)
}

/// Writes a request; `stream_usage` asks for the usage chunk. `rest` is another dialect's and is
/// left out: the caller names it as dropped.
#[must_use]
pub fn render_request(request: &Request, stream_usage: bool) -> Rendered {
    let mut conversation = Vec::with_capacity(request.messages.len() + 1);
    let system: Vec<&str> = request.system.iter().filter_map(Part::text).collect();
    if !system.is_empty() {
        // One string: the templates of many open models take nothing else here.
        conversation.push(json!({ "role": "system", "content": system.join("\n\n") }));
    }
    request.messages.iter().for_each(|message| render_message(message, &mut conversation));
    let tools: Vec<Value> = request.tools.iter().map(render_tool).collect();
    let stop = if request.stop.is_empty() { Value::Null } else { json!(request.stop) };
    let mut body = json!({
        "model": request.model,
        "messages": conversation,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": stop,
        "tool_choice": request.tool_choice.as_ref().map(render_tool_choice),
    });
    body[max_tokens_field(&request.model)] = json!(request.max_tokens);
    if !tools.is_empty() {
        body["tools"] = Value::Array(tools);
    }
    if request.stream {
        body["stream"] = Value::Bool(true);
        if stream_usage {
            body["stream_options"] = json!({ "include_usage": true });
        }
    }
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| !value.is_null());
    }
    Rendered { body: body.to_string().into_bytes(), dropped: request.rest.keys().cloned().collect() }
}

/// OpenAI's newer models refuse `max_tokens`; most compatible servers know nothing else.
fn max_tokens_field(model: &str) -> &'static str {
    if Capabilities::of(model).completion_tokens { "max_completion_tokens" } else { "max_tokens" }
}

fn render_message(message: &Message, out: &mut Vec<Value>) {
    // Each result is a message of its own here, and stands before what else the message says.
    for part in &message.parts {
        if let Part::ToolResult { id, content, .. } = part {
            let texts: Vec<&str> = content.iter().filter_map(Part::text).collect();
            out.push(json!({ "role": "tool", "tool_call_id": id, "content": texts.join("\n") }));
        }
    }
    let texts: Vec<&str> = message.parts.iter().filter_map(Part::text).collect();
    let content = match texts.as_slice() {
        [] => Value::Null,
        [one] => json!(one),
        many => many.iter().map(|text| json!({ "type": "text", "text": text })).collect(),
    };
    let calls: Vec<Value> = message.parts.iter().filter_map(render_call).collect();
    if texts.is_empty() && calls.is_empty() {
        return;
    }
    let role = match message.role {
        Role::User | Role::Tool => "user",
        Role::Assistant => "assistant",
    };
    let mut rendered = json!({ "role": role, "content": content });
    if !calls.is_empty() {
        rendered["tool_calls"] = Value::Array(calls);
    }
    out.push(rendered);
}

fn render_call(part: &Part) -> Option<Value> {
    match part {
        Part::ToolCall { id, name, arguments } => Some(
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }),
        ),
        Part::Text(_) | Part::Media(_) | Part::Reasoning(_) | Part::ToolResult { .. } => None,
    }
}

fn render_tool(tool: &Tool) -> Value {
    let mut function = json!({ "name": tool.name, "description": tool.description });
    prune(&mut function);
    function["parameters"] = tool.parameters.clone();
    json!({ "type": "function", "function": function })
}

fn render_tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({ "type": "function", "function": { "name": name } }),
    }
}

/// The fields that our own dialect shares: limits, sampling, tools.
pub(crate) fn common(fields: &mut Fields, request: &mut Request) -> Result<(), ApiError> {
    let older = fields.natural("max_tokens")?;
    request.max_tokens = fields.natural("max_completion_tokens")?.or(older);
    request.temperature = fields.number("temperature")?;
    request.top_p = fields.number("top_p")?;
    request.stop = fields.strings("stop")?;
    for (i, tool) in fields.array("tools")?.unwrap_or_default().into_iter().enumerate() {
        request.tools.push(parse_tool(tool, &format!("tools[{i}]"))?);
    }
    request.tool_choice = fields.take("tool_choice").map(parse_tool_choice).transpose()?;
    Ok(())
}

fn parse_tool(tool: Value, path: &str) -> Result<Tool, ApiError> {
    let mut tool = Fields::of(tool, path)?;
    let kind = tool.string("type").map_err(|error| error.under(path))?;
    if kind.as_deref().is_some_and(|kind| kind != "function") {
        return Err(unsupported("only tools of type `function` can be translated").at(format!("{path}.type")));
    }
    let path = format!("{path}.function");
    let mut function = Fields::of(tool.take("function").unwrap_or_default(), &path)?;
    let name = function.string("name").map_err(|error| error.under(&path))?.filter(|name| !name.is_empty());
    Ok(Tool {
        name: name.ok_or_else(|| invalid("a tool needs a name").at(format!("{path}.name")))?,
        description: function.string("description").map_err(|error| error.under(&path))?,
        parameters: function
            .take("parameters")
            .unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
        strict: function.bool("strict").map_err(|error| error.under(&path))?,
    })
}

fn parse_tool_choice(choice: Value) -> Result<ToolChoice, ApiError> {
    let named = choice.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
    match (choice.as_str(), named) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("required"), _) => Ok(ToolChoice::Required),
        (None, Some(name)) => Ok(ToolChoice::Named(name.to_owned())),
        _ => Err(invalid("expected `auto`, `none`, `required` or a function by name").at("tool_choice")),
    }
}

/// Reads a conversation into `request`: instructions to `system`, the rest to `messages`.
pub(crate) fn messages(conversation: Vec<Value>, request: &mut Request) -> Result<(), ApiError> {
    for (i, message) in conversation.into_iter().enumerate() {
        let path = format!("messages[{i}]");
        let mut message = Fields::of(message, &path)?;
        let role = message.string("role").map_err(|error| error.under(&path))?;
        let content = message.take("content");
        let role = match role.as_deref() {
            Some("system" | "developer") => {
                let text =
                    content.ok_or_else(|| invalid("content is required").at(format!("{path}.content")))?;
                parts(text, &path, &mut request.system)?;
                continue;
            }
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("tool") => Role::Tool,
            Some(_) => {
                let message = "expected `system`, `developer`, `user`, `assistant` or `tool`";
                return Err(invalid(message).at(format!("{path}.role")));
            }
            None => return Err(invalid("a role is required").at(format!("{path}.role"))),
        };
        let mut said = Vec::new();
        if let Some(content) = content {
            parts(content, &path, &mut said)?;
        } else if role != Role::Assistant {
            return Err(invalid("content is required").at(format!("{path}.content")));
        }
        let said = match role {
            Role::User => said,
            Role::Tool => vec![tool_result(&mut message, said, &path)?],
            Role::Assistant => {
                tool_calls(&mut message, &path, &mut said)?;
                said
            }
        };
        request.messages.push(Message { role, parts: said });
    }
    if request.messages.is_empty() {
        return Err(invalid("the conversation needs at least one message of the user").at("messages"));
    }
    Ok(())
}

/// The content of a message: a string or a list of text parts.
fn parts(content: Value, path: &str, out: &mut Vec<Part>) -> Result<(), ApiError> {
    let list = match content {
        Value::String(text) => {
            out.push(Part::Text(text));
            return Ok(());
        }
        Value::Array(list) => list,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(invalid("expected a string or a list of parts").at(format!("{path}.content")));
        }
    };
    for (i, part) in list.into_iter().enumerate() {
        let path = format!("{path}.content[{i}]");
        let mut part = Fields::of(part, &path)?;
        let kind = part.string("type").map_err(|error| error.under(&path))?.unwrap_or_default();
        let field = match kind.as_str() {
            "text" => "text",
            "refusal" => "refusal",
            "" => return Err(invalid("a type is required").at(format!("{path}.type"))),
            other => {
                let message = format!("`{other}` cannot be translated to another dialect, only text can");
                return Err(unsupported(message).at(format!("{path}.{other}")));
            }
        };
        let text = part.string(field).map_err(|error| error.under(&path))?;
        out.push(Part::Text(
            text.ok_or_else(|| invalid("a text is required").at(format!("{path}.{field}")))?,
        ));
    }
    Ok(())
}

fn tool_result(message: &mut Fields, said: Vec<Part>, path: &str) -> Result<Part, ApiError> {
    let id = message.string("tool_call_id").map_err(|error| error.under(path))?;
    Ok(Part::ToolResult {
        id: id.ok_or_else(|| invalid("a tool_call_id is required").at(format!("{path}.tool_call_id")))?,
        content: said,
        is_error: false,
    })
}

fn tool_calls(message: &mut Fields, path: &str, out: &mut Vec<Part>) -> Result<(), ApiError> {
    let calls = message.array("tool_calls").map_err(|error| error.under(path))?.unwrap_or_default();
    for (i, call) in calls.into_iter().enumerate() {
        let path = format!("{path}.tool_calls[{i}]");
        let mut call = Fields::of(call, &path)?;
        let id = call.string("id").map_err(|error| error.under(&path))?;
        let id = id.ok_or_else(|| invalid("an id is required").at(format!("{path}.id")))?;
        let path = format!("{path}.function");
        let mut function = Fields::of(call.take("function").unwrap_or_default(), &path)?;
        let name = function.string("name").map_err(|error| error.under(&path))?;
        let arguments = function.string("arguments").map_err(|error| error.under(&path))?;
        out.push(Part::ToolCall {
            id,
            name: name.ok_or_else(|| invalid("a name is required").at(format!("{path}.name")))?,
            arguments: arguments.unwrap_or_default(),
        });
    }
    Ok(())
}
