//! Requests, read. Tool results are blocks of a user's message here and messages of their own in our
//! model. Errors are made where they are seen, with the name of the field, and get the path before it on
//! their way up.

mod blocks;
mod render;
mod thinking;

use serde_json::{Value, json};

use crate::ApiError;
use crate::chat::{Format, Request, Thinking, Tool, ToolChoice, note};
use crate::fields::{Fields, invalid, unsupported};

use blocks::Reader;
pub use render::render_request;

/// Reads the body of a request. What this model has no place for stays in `rest`, or is named in
/// `dropped` where it stands deeper.
///
/// # Errors
/// What is wrong with it, or cannot be translated, and where.
pub fn parse_request(body: &[u8]) -> Result<Request, ApiError> {
    let mut fields = Fields::read(body)?;
    let model = fields.string("model")?.filter(|model| !model.is_empty());
    let model = model.ok_or_else(|| invalid("a model is required").at("model"))?;
    let mut request = Request { model, ..Request::default() };
    let mut reader = Reader::default();
    if let Some(system) = fields.take("system") {
        request.system = reader.texts(system, "system").map_err(|error| error.under("system"))?;
    }
    let conversation =
        fields.array("messages")?.ok_or_else(|| invalid("messages are required").at("messages"))?;
    for (i, message) in conversation.into_iter().enumerate() {
        let path = format!("messages[{i}]");
        let read = Fields::object(message).and_then(|fields| reader.message(fields, &path, &mut request));
        read.map_err(|error| error.under(&path))?;
    }
    request.dropped = reader.dropped;
    if request.messages.is_empty() {
        return Err(invalid("the conversation needs at least one message").at("messages"));
    }
    options(&mut fields, &mut request)?;
    request.rest = fields.rest();
    Ok(request)
}

fn options(fields: &mut Fields, request: &mut Request) -> Result<(), ApiError> {
    for name in ["mcp_servers", "container"] {
        if fields.take(name).is_some_and(|value| !value.as_array().is_some_and(Vec::is_empty)) {
            return Err(unsupported("what the provider runs itself cannot be translated").at(name));
        }
    }
    request.stream = fields.bool("stream")?.unwrap_or(false);
    request.max_tokens = fields.positive("max_tokens")?;
    request.temperature = fields.within("temperature", 0.0..=1.0)?;
    request.top_p = fields.within("top_p", 0.0..=1.0)?;
    request.top_k = fields.natural("top_k")?;
    request.stop = fields.strings("stop_sequences")?;
    let Request { dropped, .. } = request;
    request.tools = fields.each("tools", |fields| tool(fields, dropped))?;
    if let Some((choice, parallel)) = fields.inside("tool_choice", tool_choice)? {
        request.tool_choice = Some(choice);
        request.parallel_tools = parallel;
    }
    let user = fields.inside("metadata", |mut fields| {
        let user = fields.string("user_id")?;
        fields.leave(dropped);
        Ok(user)
    });
    request.user = user?.flatten();
    let thought = fields.inside("thinking", |fields| thinking(fields, dropped))?;
    let older = fields.inside("output_format", format)?;
    let config = fields.inside("output_config", |mut fields| {
        let config = (fields.string("effort")?, fields.inside("format", format)?);
        fields.leave(dropped);
        Ok(config)
    });
    let (effort, newer) = config?.unwrap_or_default();
    request.format = newer.or(older);
    request.thinking = match (thought, effort) {
        (None | Some(Thinking::Adaptive), Some(word)) => Some(Thinking::Effort(word)),
        (thought, effort) => {
            // Our model says how much in one way only, and a number says it best.
            effort.iter().for_each(|_| note(dropped, "effort"));
            thought
        }
    };
    Ok(())
}

fn thinking(mut fields: Fields, dropped: &mut Vec<String>) -> Result<Thinking, ApiError> {
    let thinking = match fields.filled("type")?.as_str() {
        "disabled" => Thinking::Off,
        "adaptive" => Thinking::Adaptive,
        "enabled" => {
            let budget = fields.positive("budget_tokens")?;
            Thinking::Budget(budget.ok_or_else(|| invalid("a budget is required").at("budget_tokens"))?)
        }
        _ => return Err(invalid("expected `enabled`, `disabled` or `adaptive`").at("type")),
    };
    fields.leave(dropped);
    Ok(thinking)
}

fn format(mut fields: Fields) -> Result<Format, ApiError> {
    if fields.filled("type")? != "json_schema" {
        return Err(invalid("expected `json_schema`").at("type"));
    }
    let schema = schema(&mut fields, "schema")?.ok_or_else(|| invalid("schema is required").at("schema"))?;
    Ok(Format::Schema { name: None, description: None, schema, strict: None })
}

/// A JSON schema, as far as we look at it.
fn schema(fields: &mut Fields, name: &str) -> Result<Option<Value>, ApiError> {
    match fields.take(name) {
        Some(schema) if !schema.is_object() => Err(invalid("expected an object").at(name)),
        schema => Ok(schema),
    }
}

fn tool(mut fields: Fields, dropped: &mut Vec<String>) -> Result<Tool, ApiError> {
    if fields.string("type")?.is_some_and(|kind| kind != "custom") {
        let message = "a tool that the provider runs or defines cannot be translated to another dialect";
        return Err(unsupported(message).at("type"));
    }
    let tool = Tool {
        name: fields.filled("name")?,
        description: fields.string("description")?,
        parameters: schema(&mut fields, "input_schema")?
            .unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
        strict: fields.bool("strict")?,
    };
    fields.leave(dropped);
    Ok(tool)
}

/// The choice, and whether several tools may be called at once.
fn tool_choice(mut fields: Fields) -> Result<(ToolChoice, Option<bool>), ApiError> {
    let choice = match fields.filled("type")?.as_str() {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "any" => ToolChoice::Required,
        "tool" => ToolChoice::Named(fields.filled("name")?),
        _ => return Err(invalid("expected `auto`, `any`, `none`, or `tool` with a name").at("type")),
    };
    Ok((choice, fields.bool("disable_parallel_tool_use")?.map(|disable| !disable)))
}
