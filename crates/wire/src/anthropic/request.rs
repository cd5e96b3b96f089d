//! Requests. Tool results are blocks of a user's message here and messages of their own in our model.

use serde_json::{Value, json};

use crate::capabilities::Capabilities;
use crate::chat::{Message, Part, Request, Role, Tool, ToolChoice};
use crate::fields::{Fields, invalid, unsupported};
use crate::{ApiError, Rendered};

/// Reads the body of a request. What this model has no place for stays in `rest`. Reasoning blocks of
/// earlier turns are left out: their signatures mean nothing to another provider.
pub fn parse_request(body: &[u8]) -> Result<Request, ApiError> {
    let mut fields = Fields::read(body)?;
    let model = fields.string("model")?.filter(|model| !model.is_empty());
    let model = model.ok_or_else(|| invalid("a model is required").at("model"))?;
    let mut request = Request { model, ..Request::default() };
    if let Some(system) = fields.take("system") {
        texts(system, "system", &mut request.system)?;
    }
    let conversation =
        fields.array("messages")?.ok_or_else(|| invalid("messages are required").at("messages"))?;
    for (i, message) in conversation.into_iter().enumerate() {
        parse_message(message, &format!("messages[{i}]"), &mut request)?;
    }
    if request.messages.is_empty() {
        return Err(invalid("the conversation needs at least one message").at("messages"));
    }
    request.stream = fields.bool("stream")?.unwrap_or(false);
    request.max_tokens = fields.natural("max_tokens")?;
    request.temperature = fields.number("temperature")?;
    request.top_p = fields.number("top_p")?;
    request.stop = fields.strings("stop_sequences")?;
    for (i, tool) in fields.array("tools")?.unwrap_or_default().into_iter().enumerate() {
        request.tools.push(parse_tool(tool, &format!("tools[{i}]"))?);
    }
    if let Some(choice) = fields.take("tool_choice") {
        request.tool_choice = Some(parse_tool_choice(&choice)?);
    }
    request.rest = fields.rest();
    Ok(request)
}

fn parse_message(message: Value, path: &str, request: &mut Request) -> Result<(), ApiError> {
    let mut message = Fields::of(message, path)?;
    let role = message.string("role").map_err(|error| error.under(path))?;
    let content = message.take("content");
    let content = content.ok_or_else(|| invalid("content is required").at(format!("{path}.content")))?;
    let role = match role.as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => return texts(content, &format!("{path}.content"), &mut request.system),
        Some(_) => return Err(invalid("expected `user` or `assistant`").at(format!("{path}.role"))),
        None => return Err(invalid("a role is required").at(format!("{path}.role"))),
    };
    let blocks = match content {
        Value::String(text) => {
            request.messages.push(Message { role, parts: vec![Part::Text(text)] });
            return Ok(());
        }
        Value::Array(blocks) => blocks,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(invalid("expected a string or a list of blocks").at(format!("{path}.content")));
        }
    };
    let (mut results, mut parts) = (Vec::new(), Vec::new());
    for (i, block) in blocks.into_iter().enumerate() {
        match parse_block(block, &format!("{path}.content[{i}]"))? {
            Some(result @ Part::ToolResult { .. }) => results.push(result),
            Some(part) => parts.push(part),
            None => {}
        }
    }
    let said_nothing = results.is_empty();
    if !said_nothing {
        request.messages.push(Message { role: Role::Tool, parts: results });
    }
    if !parts.is_empty() || said_nothing {
        request.messages.push(Message { role, parts });
    }
    Ok(())
}

fn parse_block(block: Value, path: &str) -> Result<Option<Part>, ApiError> {
    let mut block = Fields::of(block, path)?;
    let mut string = |name: &str| {
        let text = block.string(name).map_err(|error| error.under(path))?;
        text.ok_or_else(|| invalid(format!("a {name} is required")).at(format!("{path}.{name}")))
    };
    Ok(Some(match string("type")?.as_str() {
        "text" => Part::Text(string("text")?),
        "tool_use" => {
            let (id, name) = (string("id")?, string("name")?);
            let input = block.take("input").unwrap_or_else(|| json!({}));
            Part::ToolCall { id, name, arguments: input.to_string() }
        }
        "tool_result" => {
            let id = string("tool_use_id")?;
            let mut said = Vec::new();
            if let Some(content) = block.take("content") {
                texts(content, &format!("{path}.content"), &mut said)?;
            }
            let is_error = block.bool("is_error").map_err(|error| error.under(path))?.unwrap_or(false);
            Part::ToolResult { id, content: said, is_error }
        }
        "thinking" | "redacted_thinking" => return Ok(None),
        other => {
            let message = format!("a block of type `{other}` cannot be translated to another dialect");
            return Err(unsupported(message).at(path));
        }
    }))
}

/// A string, or a list of text blocks.
fn texts(value: Value, path: &str, out: &mut Vec<Part>) -> Result<(), ApiError> {
    let blocks = match value {
        Value::String(text) => {
            out.push(Part::Text(text));
            return Ok(());
        }
        Value::Array(blocks) => blocks,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(invalid("expected a string or a list of text blocks").at(path));
        }
    };
    for (i, block) in blocks.into_iter().enumerate() {
        let path = format!("{path}[{i}]");
        match parse_block(block, &path)? {
            Some(text @ Part::Text(_)) => out.push(text),
            _ => return Err(unsupported("only text can be translated to another dialect").at(path)),
        }
    }
    Ok(())
}

fn parse_tool(tool: Value, path: &str) -> Result<Tool, ApiError> {
    let mut tool = Fields::of(tool, path)?;
    let kind = tool.string("type").map_err(|error| error.under(path))?;
    if kind.as_deref().is_some_and(|kind| kind != "custom") {
        let message = "a tool that the provider runs cannot be translated to another dialect";
        return Err(unsupported(message).at(format!("{path}.type")));
    }
    let name = tool.string("name").map_err(|error| error.under(path))?.filter(|name| !name.is_empty());
    Ok(Tool {
        name: name.ok_or_else(|| invalid("a tool needs a name").at(format!("{path}.name")))?,
        description: tool.string("description").map_err(|error| error.under(path))?,
        parameters: tool
            .take("input_schema")
            .unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
        strict: tool.bool("strict").map_err(|error| error.under(path))?,
    })
}

fn parse_tool_choice(choice: &Value) -> Result<ToolChoice, ApiError> {
    let word = |key: &str| choice.get(key).and_then(Value::as_str);
    match (word("type"), word("name")) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("any"), _) => Ok(ToolChoice::Required),
        (Some("tool"), Some(name)) => Ok(ToolChoice::Named(name.to_owned())),
        _ => Err(invalid("expected type `auto`, `any`, `none`, or `tool` with a name").at("tool_choice")),
    }
}

/// Writes a request. `rest` is another dialect's and is left out: the caller names it as dropped.
#[must_use]
pub fn render_request(request: &Request) -> Rendered {
    let mut messages: Vec<Value> = Vec::with_capacity(request.messages.len());
    let mut tool_turn = false;
    for message in &request.messages {
        let content: Vec<Value> = message.parts.iter().filter_map(render_part).collect();
        if content.is_empty() {
            // This API refuses a message that says nothing; leaving it out says the same.
            continue;
        }
        let role = match message.role {
            Role::User | Role::Tool => "user",
            Role::Assistant => "assistant",
        };
        // All results of one turn must stand in one message.
        let results = message.role == Role::Tool;
        match messages.last_mut().and_then(|last| last["content"].as_array_mut()) {
            Some(last) if results && tool_turn => last.extend(content),
            _ => messages.push(json!({ "role": role, "content": content })),
        }
        tool_turn = results;
    }
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.max_tokens.unwrap_or(Capabilities::of(&request.model).output_tokens_max),
        "messages": messages,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "tool_choice": request.tool_choice.as_ref().map(render_tool_choice),
    });
    let system: Vec<Value> = request.system.iter().filter_map(render_part).collect();
    let tools: Vec<Value> = request.tools.iter().map(render_tool).collect();
    for (name, list) in [
        ("system", system),
        ("tools", tools),
        ("stop_sequences", request.stop.iter().map(|s| json!(s)).collect()),
    ] {
        if !list.is_empty() {
            body[name] = Value::Array(list);
        }
    }
    if request.stream {
        body["stream"] = Value::Bool(true);
    }
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| !value.is_null());
    }
    Rendered { body: body.to_string().into_bytes(), dropped: request.rest.keys().cloned().collect() }
}

/// A block; nothing for an empty text, which this API refuses.
fn render_part(part: &Part) -> Option<Value> {
    Some(match part {
        Part::Text(text) if text.is_empty() => return None,
        Part::Media(_) | Part::Reasoning(_) => return None,
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::ToolCall { id, name, arguments } => {
            json!({ "type": "tool_use", "id": id, "name": name, "input": input(arguments) })
        }
        Part::ToolResult { id, content, is_error } => {
            let content: Vec<Value> = content.iter().filter_map(render_part).collect();
            let mut result = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
            if *is_error {
                result["is_error"] = Value::Bool(true);
            }
            result
        }
    })
}

/// Arguments as the object that this dialect requires. A model may have written something else.
fn input(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return json!({});
    }
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ => json!({ "arguments": arguments }),
    }
}

fn render_tool(tool: &Tool) -> Value {
    let mut rendered = json!({ "name": tool.name, "input_schema": tool.parameters });
    if let Some(description) = &tool.description {
        rendered["description"] = json!(description);
    }
    rendered
}

fn render_tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({ "type": "auto" }),
        ToolChoice::None => json!({ "type": "none" }),
        ToolChoice::Required => json!({ "type": "any" }),
        ToolChoice::Named(name) => json!({ "type": "tool", "name": name }),
    }
}
