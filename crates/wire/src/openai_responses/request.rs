//! Requests. Read through `serde_json::Value`, because they come once per call and every error must name
//! the path that is wrong.

pub(super) mod input;
mod render;

use serde_json::{Value, json};

use crate::ApiError;
use crate::chat::{Format, Request, Thinking, Tool, ToolChoice};
use crate::fields::{Fields, invalid, unsupported};

pub use render::render_request;

/// What refers to something that only OpenAI stores.
const STORED: [&str; 3] = ["previous_response_id", "conversation", "prompt"];

/// Reads the body of a request. What this model has no place for stays in `rest`; of an object that is
/// known in part, under its path (`text.verbosity`).
///
/// # Errors
/// What is wrong with it, or cannot be asked of another dialect, and where.
pub fn parse_request(body: &[u8]) -> Result<Request, ApiError> {
    let mut fields = Fields::read(body)?;
    let model = fields.string("model")?.filter(|model| !model.is_empty());
    let model = model.ok_or_else(|| invalid("a model is required").at("model"))?;
    let mut request = Request { model, ..Request::default() };
    refuse(&mut fields)?;
    if let Some(text) = fields.string("instructions")? {
        request.system.push(crate::chat::Part::Text(text));
    }
    input::conversation(fields.take("input"), &mut request)?;
    request.stream = fields.bool("stream")?.unwrap_or(false);
    for (i, tool) in fields.array("tools")?.unwrap_or_default().into_iter().enumerate() {
        request.tools.push(parse_tool(tool, &format!("tools[{i}]"))?);
    }
    request.tool_choice = fields.take("tool_choice").map(|choice| parse_tool_choice(&choice)).transpose()?;
    request.parallel_tools = fields.bool("parallel_tool_calls")?;
    request.max_tokens = fields.positive("max_output_tokens")?;
    request.temperature = fields.within("temperature", 0.0..=2.0)?;
    request.top_p = fields.within("top_p", 0.0..=1.0)?;
    // The newer name of the same.
    let older = fields.string("user")?;
    request.user = fields.string("safety_identifier")?.or(older);
    text(&mut fields, &mut request)?;
    reasoning(&mut fields, &mut request)?;
    request.rest.extend(options(&mut fields)?);
    request.rest.extend(fields.rest());
    Ok(request)
}

/// What would be a lie to leave out.
fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    for name in STORED {
        if fields.take(name).is_some() {
            let message = "this gateway keeps no responses and no prompts: send the whole conversation as \
                           `input`";
            return Err(unsupported(message).at(name));
        }
    }
    if fields.bool("background")?.unwrap_or(false) {
        let message = "this gateway keeps no responses, so that none can be made in the background";
        return Err(unsupported(message).at("background"));
    }
    if fields.natural("top_logprobs")?.unwrap_or(0) > 0 {
        return Err(unsupported("log probabilities cannot be translated").at("top_logprobs"));
    }
    Ok(())
}

/// Fields that say nothing in some of their values; what says something is left over.
fn options(fields: &mut Fields) -> Result<Vec<(String, Value)>, ApiError> {
    let mut left = Vec::new();
    // About the transport, not the answer.
    fields.take("stream_options");
    // Nothing is stored, as if it were false.
    if fields.bool("store")?.unwrap_or(false) {
        left.push(("store".to_owned(), Value::Bool(true)));
    }
    if let Some(word) = fields.string("truncation")?.filter(|word| word != "disabled") {
        left.push(("truncation".to_owned(), Value::String(word)));
    }
    let mut included = fields.strings("include")?;
    if let Some(at) = included.iter().position(|what| what == "message.output_text.logprobs") {
        return Err(unsupported("log probabilities cannot be translated").at(format!("include[{at}]")));
    }
    // That is always included.
    included.retain(|what| what != "reasoning.encrypted_content");
    if !included.is_empty() {
        left.push(("include".to_owned(), json!(included)));
    }
    Ok(left)
}

/// `text`: the form of the answer.
fn text(fields: &mut Fields, request: &mut Request) -> Result<(), ApiError> {
    let Some(value) = fields.take("text") else { return Ok(()) };
    let mut text = Fields::of(value, "text")?;
    if let Some(format) = text.take("format") {
        request.format = parse_format(format, "text.format")?;
    }
    leftover(text, "text", request);
    Ok(())
}

fn parse_format(format: Value, path: &str) -> Result<Option<Format>, ApiError> {
    let mut format = Fields::of(format, path)?;
    match input::required(&mut format, "type", path)?.as_str() {
        "text" => Ok(None),
        "json_object" => Ok(Some(Format::Json)),
        "json_schema" => Ok(Some(Format::Schema {
            name: format.string("name").map_err(|error| error.under(path))?,
            description: format.string("description").map_err(|error| error.under(path))?,
            schema: schema(&mut format, "schema", path)?
                .ok_or_else(|| invalid("a schema is required").at(format!("{path}.schema")))?,
            strict: format.bool("strict").map_err(|error| error.under(path))?,
        })),
        _ => Err(invalid("expected `text`, `json_object` or `json_schema`").at(format!("{path}.type"))),
    }
}

/// A JSON schema, as far as we look at it.
fn schema(fields: &mut Fields, name: &str, path: &str) -> Result<Option<Value>, ApiError> {
    match fields.take(name) {
        Some(schema) if !schema.is_object() => {
            Err(invalid("expected an object").at(format!("{path}.{name}")))
        }
        schema => Ok(schema),
    }
}

/// `reasoning`: how much the model shall think.
fn reasoning(fields: &mut Fields, request: &mut Request) -> Result<(), ApiError> {
    let Some(value) = fields.take("reasoning") else { return Ok(()) };
    let mut reasoning = Fields::of(value, "reasoning")?;
    request.thinking = reasoning.string("effort").map_err(|error| error.under("reasoning"))?.map(|word| {
        match word.as_str() {
            "none" => Thinking::Off,
            _ => Thinking::Effort(word),
        }
    });
    leftover(reasoning, "reasoning", request);
    Ok(())
}

fn leftover(fields: Fields, path: &str, request: &mut Request) {
    let left = fields.rest().into_iter().map(|(name, value)| (format!("{path}.{name}"), value));
    request.rest.extend(left);
}

fn parse_tool(tool: Value, path: &str) -> Result<Tool, ApiError> {
    let mut tool = Fields::of(tool, path)?;
    let kind = input::required(&mut tool, "type", path)?;
    if kind != "function" {
        let message = format!("a tool of type `{kind}` cannot be translated, only functions can");
        return Err(unsupported(message).at(format!("{path}.type")));
    }
    let name = tool.string("name").map_err(|error| error.under(path))?.filter(|name| !name.is_empty());
    Ok(Tool {
        name: name.ok_or_else(|| invalid("a tool needs a name").at(format!("{path}.name")))?,
        description: tool.string("description").map_err(|error| error.under(path))?,
        parameters: schema(&mut tool, "parameters", path)?
            .unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
        strict: tool.bool("strict").map_err(|error| error.under(path))?,
    })
}

fn parse_tool_choice(choice: &Value) -> Result<ToolChoice, ApiError> {
    let word = |name: &str| choice.get(name).and_then(Value::as_str);
    match (choice.as_str(), word("type"), word("name")) {
        (Some("auto"), _, _) => Ok(ToolChoice::Auto),
        (Some("none"), _, _) => Ok(ToolChoice::None),
        (Some("required"), _, _) => Ok(ToolChoice::Required),
        (None, Some("function"), Some(name)) => Ok(ToolChoice::Named(name.to_owned())),
        (None, Some(kind), _) if kind != "function" => {
            let message = format!("a choice of type `{kind}` cannot be translated, only a function by name");
            Err(unsupported(message).at("tool_choice"))
        }
        _ => Err(invalid("expected `auto`, `none`, `required` or a function by name").at("tool_choice")),
    }
}
