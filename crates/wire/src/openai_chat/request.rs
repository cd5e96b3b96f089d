//! Requests, read. Through `serde_json::Value`, because they come once per call and every error must
//! name the path that is wrong. Errors are made where they are seen, with the name of the field, and
//! get the path before it on their way up.

mod messages;
mod render;

use serde_json::{Value, json};

use crate::ApiError;
use crate::chat::{Format, Request, Thinking, Tool, ToolChoice};
use crate::fields::{Fields, invalid, unsupported};

pub(crate) use messages::messages;
pub use render::render_request;

/// Reads the body of a request. What this model has no place for stays in `rest`, except the
/// options of the stream ([`wants_stream_usage`]), which belong to the transport.
///
/// # Errors
/// What is wrong with it, or cannot be had in a translated request, and where.
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

/// The fields that our own dialect shares: limits, sampling, tools, the form of the answer.
pub(crate) fn common(fields: &mut Fields, request: &mut Request) -> Result<(), ApiError> {
    refuse(fields)?;
    let older = fields.positive("max_tokens")?;
    request.max_tokens = fields.positive("max_completion_tokens")?.or(older);
    request.temperature = fields.within("temperature", 0.0..=2.0)?;
    request.top_p = fields.within("top_p", 0.0..=1.0)?;
    request.top_k = fields.natural("top_k")?;
    request.seed = fields.integer("seed")?;
    request.presence_penalty = fields.within("presence_penalty", -2.0..=2.0)?;
    request.frequency_penalty = fields.within("frequency_penalty", -2.0..=2.0)?;
    request.stop = fields.strings("stop")?;
    request.format = fields.inside("response_format", format)?.flatten();
    request.thinking = fields.string("reasoning_effort")?.map(|word| match word.as_str() {
        "none" => Thinking::Off,
        _ => Thinking::Effort(word),
    });
    let older = fields.string("user")?;
    request.user = fields.string("safety_identifier")?.or(older);
    request.tools = fields.each("tools", tool)?;
    request.tool_choice = fields.take("tool_choice").map(tool_choice).transpose()?;
    request.parallel_tools = fields.bool("parallel_tool_calls")?;
    Ok(())
}

/// What a translated request cannot have: an answer without it would not be what was asked for. Asking
/// explicitly for none of it says nothing.
fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    let refused = |name: &str, what: &str| {
        unsupported(format!("{what} cannot be had in a request that is translated to another dialect"))
            .at(name)
    };
    if fields.natural("n")?.is_some_and(|n| n != 1) {
        return Err(refused("n", "anything but one answer"));
    }
    if fields.bool("logprobs")?.unwrap_or(false) {
        return Err(refused("logprobs", "log probabilities"));
    }
    if fields.natural("top_logprobs")?.is_some_and(|count| count > 0) {
        return Err(refused("top_logprobs", "log probabilities"));
    }
    if fields.strings("modalities")?.iter().any(|kind| kind != "text") {
        return Err(refused("modalities", "anything but text"));
    }
    for (name, what) in [
        ("audio", "audio"),
        ("functions", "functions of the older form (use `tools`)"),
        ("function_call", "functions of the older form (use `tool_choice`)"),
        ("web_search_options", "a search that the provider runs itself"),
    ] {
        if fields.take(name).is_some() {
            return Err(refused(name, what));
        }
    }
    Ok(())
}

fn format(mut fields: Fields) -> Result<Option<Format>, ApiError> {
    match fields.filled("type")?.as_str() {
        "text" => Ok(None),
        "json_object" => Ok(Some(Format::Json)),
        "json_schema" => {
            let read = |mut fields: Fields| {
                Ok(Format::Schema {
                    name: fields.string("name")?,
                    description: fields.string("description")?,
                    schema: schema(&mut fields, "schema")?
                        .ok_or_else(|| invalid("schema is required").at("schema"))?,
                    strict: fields.bool("strict")?,
                })
            };
            let format = fields.inside("json_schema", read)?;
            format.map(Some).ok_or_else(|| invalid("json_schema is required").at("json_schema"))
        }
        _ => Err(invalid("expected `text`, `json_object` or `json_schema`").at("type")),
    }
}

/// A JSON schema, as far as we look at it.
fn schema(fields: &mut Fields, name: &str) -> Result<Option<Value>, ApiError> {
    match fields.take(name) {
        Some(schema) if !schema.is_object() => Err(invalid("expected an object").at(name)),
        schema => Ok(schema),
    }
}

fn tool(mut fields: Fields) -> Result<Tool, ApiError> {
    if fields.string("type")?.is_some_and(|kind| kind != "function") {
        return Err(unsupported("only tools of type `function` can be translated").at("type"));
    }
    let read = |mut fields: Fields| {
        Ok(Tool {
            name: fields.filled("name")?,
            description: fields.string("description")?,
            parameters: schema(&mut fields, "parameters")?
                .unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
            strict: fields.bool("strict")?,
        })
    };
    fields.inside("function", read)?.ok_or_else(|| invalid("function is required").at("function"))
}

fn tool_choice(choice: Value) -> Result<ToolChoice, ApiError> {
    let named = choice.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
    match (choice.as_str(), named) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("required"), _) => Ok(ToolChoice::Required),
        (None, Some(name)) => Ok(ToolChoice::Named(name.to_owned())),
        _ => Err(invalid("expected `auto`, `none`, `required` or a function by name").at("tool_choice")),
    }
}
