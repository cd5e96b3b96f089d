//! What a request asks for, read leniently out of any of the dialects.
//!
//! A provider's stand-in has to take whatever an SDK or a gateway sends, so this looks for the few
//! things that an answer depends on and ignores the rest. It shares no code with the gateway's own
//! readers: an error there must not be hidden by the same error here.
//!
//! Invariant: the prompt's size is counted over everything that the model would read.

use serde_json::{Map, Value, json};

use crate::refusal::Refusal;

/// Most characters of the question that an answer repeats.
const ECHO_CHARS_MAX: usize = 80;
/// Bytes of prompt that count as one token.
const PROMPT_BYTES_PER_TOKEN: usize = 4;
/// Most properties of a tool's schema that get an invented argument.
const ARGUMENTS_MAX: usize = 32;

/// The endpoints that answer with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Chat,
    Messages,
    CountTokens,
    Completions,
    Responses,
    Embeddings,
}

impl Endpoint {
    /// By the end of the path, whatever prefix a caller's base URL put before it.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        // The longer names first: `/chat/completions` ends in `/completions` too.
        [
            ("/chat/completions", Self::Chat),
            ("/messages", Self::Messages),
            ("/messages/count_tokens", Self::CountTokens),
            ("/completions", Self::Completions),
            ("/responses", Self::Responses),
            ("/embeddings", Self::Embeddings),
        ]
        .into_iter()
        .find_map(|(end, endpoint)| path.ends_with(end).then_some(endpoint))
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat.completions",
            Self::Messages => "messages",
            Self::CountTokens => "messages.count_tokens",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
        }
    }

    pub(crate) const fn is_anthropic(self) -> bool {
        matches!(self, Self::Messages | Self::CountTokens)
    }
}

/// A tool call that the answer will make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// JSON text that fits the tool's schema as far as its top level goes.
    pub(crate) arguments: String,
}

/// The request, as far as the answer depends on it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// OpenAI's `stream_options.include_usage`.
    pub(crate) include_usage: bool,
    pub(crate) prompt_tokens: u32,
    pub(crate) max_tokens: Option<u32>,
    /// The last thing the user said, shortened.
    pub(crate) question: String,
    /// The tools that may be called, with arguments invented for each.
    pub(crate) tools: Vec<Call>,
    /// Whether one of them must be called.
    pub(crate) must_call: bool,
    /// Whether the conversation ends with a tool's result: then the answer is text.
    pub(crate) after_tool: bool,
    /// The JSON that the answer is, where the request gives its schema.
    pub(crate) form: Option<Value>,
    /// The whole body, for what only one endpoint looks at.
    pub(crate) body: Map<String, Value>,
}

impl Ask {
    pub(crate) fn read(endpoint: Endpoint, body: &[u8]) -> Result<Self, Refusal> {
        let body: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|error| Refusal::invalid(format!("the body is not a JSON object: {error}")))?;
        let Some(model) = body.get("model").and_then(Value::as_str).map(str::to_owned) else {
            return Err(Refusal::invalid("`model` is missing or not a string").at("model"));
        };
        let said_in = match endpoint {
            Endpoint::Chat | Endpoint::Messages | Endpoint::CountTokens => "messages",
            Endpoint::Completions => "prompt",
            Endpoint::Responses | Endpoint::Embeddings => "input",
        };
        let Some(said) = body.get(said_in).filter(|said| !said.is_null()) else {
            return Err(Refusal::invalid(format!("`{said_in}` is missing")).at(said_in));
        };
        if said_in == "messages" && said.as_array().is_none_or(Vec::is_empty) {
            return Err(Refusal::invalid("`messages` has to be a list with at least one message").at(said_in));
        }
        let bytes = ["system", "instructions", "tools"].iter().filter_map(|key| body.get(*key));
        let bytes = bytes.map(text_bytes).sum::<usize>() + text_bytes(said);
        let prompt_tokens = u32::try_from(bytes.div_ceil(PROMPT_BYTES_PER_TOKEN)).unwrap_or(u32::MAX).max(1);
        let max_tokens = ["max_completion_tokens", "max_output_tokens", "max_tokens"]
            .iter()
            .find_map(|key| body.get(*key)?.as_u64())
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let mut tools = body.get("tools").and_then(Value::as_array).map_or_else(Vec::new, |t| calls(t));
        let choice = body.get("tool_choice").map_or((false, None), forced);
        tools.retain(|tool| choice.1.is_none_or(|name| tool.name == name));
        Ok(Self {
            model,
            stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
            include_usage: body
                .get("stream_options")
                .and_then(|options| options.get("include_usage")?.as_bool())
                .unwrap_or(false),
            prompt_tokens,
            max_tokens,
            question: question(said),
            must_call: choice.0 && !tools.is_empty(),
            tools,
            after_tool: ends_with_tool_result(said),
            form: form(&body).map(|schema| arguments(Some(schema))),
            body,
        })
    }
}

/// Bytes of all the strings in `value`.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.values().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) => 0,
        // Token ids: each is a token.
        Value::Number(_) => PROMPT_BYTES_PER_TOKEN,
    }
}

/// The last text a user said: of the last user message, or of a bare prompt.
fn question(said: &Value) -> String {
    let is_user = |m: &&Value| m.get("role").and_then(Value::as_str).is_none_or(|role| role == "user");
    let last = match said.as_array() {
        Some(list) => list.iter().rfind(is_user),
        None => Some(said),
    };
    let mut text = String::new();
    for piece in last.into_iter().flat_map(texts) {
        text.push_str(piece);
        if text.len() > ECHO_CHARS_MAX * 4 {
            break;
        }
    }
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(ECHO_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

/// The texts of a message: a string, or the `text` of its parts.
fn texts(message: &Value) -> Vec<&str> {
    match message {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts.iter().flat_map(texts).collect(),
        Value::Object(fields) => {
            let inner = fields.get("text").or_else(|| fields.get("content"));
            inner.map(texts).unwrap_or_default()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn ends_with_tool_result(said: &Value) -> bool {
    let Some(last) = said.as_array().and_then(|list| list.last()) else { return false };
    let is = |value: &Value, key: &str, what: &str| value.get(key).and_then(Value::as_str) == Some(what);
    let parts = last.get("content").and_then(Value::as_array);
    is(last, "role", "tool")
        || is(last, "type", "function_call_output")
        || parts.is_some_and(|parts| parts.iter().any(|part| is(part, "type", "tool_result")))
}

/// The schema that the answer shall fit, wherever the dialect has it.
fn form(body: &Map<String, Value>) -> Option<&Value> {
    let anthropic = || body.get("output_config")?.get("format")?.get("schema");
    let responses = || body.get("text")?.get("format")?.get("schema");
    let chat = || body.get("response_format")?.get("json_schema")?.get("schema");
    chat().or_else(responses).or_else(anthropic)
}

/// Whether a tool has to be called, and which one.
fn forced(choice: &Value) -> (bool, Option<&str>) {
    let name = || choice.get("function").unwrap_or(choice).get("name")?.as_str();
    match choice.as_str().or_else(|| choice.get("type")?.as_str()) {
        Some("required" | "any") => (true, None),
        Some("function" | "tool") => (true, name()),
        _ => (false, None),
    }
}

fn calls(tools: &[Value]) -> Vec<Call> {
    let call = |tool: &Value| {
        // OpenAI nests the function, Anthropic does not.
        let function = tool.get("function").unwrap_or(tool);
        let schema = function.get("parameters").or_else(|| function.get("input_schema"));
        let name = function.get("name")?.as_str()?.to_owned();
        Some(Call { name, arguments: arguments(schema).to_string() })
    };
    tools.iter().filter_map(call).collect()
}

/// Arguments that fit the top level of a JSON schema.
fn arguments(schema: Option<&Value>) -> Value {
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    let invented = properties.into_iter().flatten().take(ARGUMENTS_MAX).map(|(name, property)| {
        let first_choice = property.get("enum").and_then(|choices| choices.get(0)).cloned();
        let value = first_choice.unwrap_or_else(|| match property.get("type").and_then(Value::as_str) {
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("simulated"),
        });
        (name.clone(), value)
    });
    Value::Object(invented.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(endpoint: Endpoint, body: &Value) -> Result<Ask, Refusal> {
        Ask::read(endpoint, body.to_string().as_bytes())
    }

    #[test]
    fn the_path_ends_name_the_endpoints() {
        let of = Endpoint::of_path;
        assert_eq!(of("/v1/chat/completions"), Some(Endpoint::Chat));
        assert_eq!(of("/openai/v1/completions"), Some(Endpoint::Completions));
        assert_eq!(of("/v1/messages"), Some(Endpoint::Messages));
        assert_eq!(of("/v1/messages/count_tokens"), Some(Endpoint::CountTokens));
        assert_eq!(of("/v1/responses"), Some(Endpoint::Responses));
        assert_eq!(of("/v1/files"), None);
    }

    #[test]
    fn the_question_is_the_last_thing_a_user_said() {
        let long = "word ".repeat(100);
        for (messages, question) in [
            (json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]), "a"),
            (json!([{"role": "user", "content": [{"type": "text", "text": "x\n y"}]}]), "x y"),
            (json!([{"role": "user", "content": long}]), &format!("{}…", "word ".repeat(16))),
            (json!([{"role": "assistant", "content": "b"}]), ""),
        ] {
            let ask =
                read(Endpoint::Chat, &json!({"model": "m", "messages": messages})).expect("it is valid");
            assert_eq!(ask.question, question);
        }
        let ask = read(Endpoint::Responses, &json!({"model": "m", "input": "plain"})).expect("it is valid");
        assert_eq!(ask.question, "plain");
    }

    #[test]
    fn tools_of_both_dialects_get_arguments_that_fit() {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
            "unit": {"enum": ["C", "F"]}}});
        let openai = json!([{"type": "function", "function": {"name": "f", "parameters": schema}}]);
        let anthropic = json!([{"name": "f", "input_schema": schema}]);
        let expected = r#"{"city":"simulated","days":1,"unit":"C"}"#;
        for tools in [openai, anthropic] {
            let tools = calls(tools.as_array().expect("a list"));
            assert_eq!(tools, [Call { name: "f".to_owned(), arguments: expected.to_owned() }]);
        }
    }

    #[test]
    fn a_schema_is_seen_in_each_dialect() {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        for (endpoint, field, value) in [
            (
                Endpoint::Chat,
                "response_format",
                json!({"type": "json_schema", "json_schema": {"schema": schema}}),
            ),
            (Endpoint::Responses, "text", json!({"format": {"type": "json_schema", "schema": schema}})),
            (
                Endpoint::Messages,
                "output_config",
                json!({"format": {"type": "json_schema", "schema": schema}}),
            ),
        ] {
            let said = json!([{"role": "user", "content": "q"}]);
            let ask = read(endpoint, &json!({"model": "m", "messages": said, "input": said, field: value}));
            assert_eq!(ask.expect("it is valid").form, Some(json!({"city": "simulated"})), "{endpoint:?}");
        }
    }

    #[test]
    fn a_tool_that_must_be_called_is_seen_in_each_dialect() {
        let tools = json!([{"name": "f"}, {"name": "g"}]);
        let said = json!([{"role": "user", "content": "q"}]);
        for (choice, must_call, offered) in [
            (json!("auto"), false, 2),
            (json!({"type": "auto"}), false, 2),
            (json!("required"), true, 2),
            (json!({"type": "any"}), true, 2),
            (json!({"type": "tool", "name": "g"}), true, 1),
            (json!({"type": "function", "name": "g"}), true, 1),
            (json!({"type": "function", "function": {"name": "g"}}), true, 1),
        ] {
            let body = json!({"model": "m", "messages": said, "tools": tools, "tool_choice": choice});
            let ask = read(Endpoint::Chat, &body).expect("it is valid");
            assert_eq!((ask.must_call, ask.tools.len()), (must_call, offered), "{choice}");
        }
    }

    #[test]
    fn a_tool_result_is_seen_in_each_dialect() {
        for last in [
            json!({"role": "tool", "tool_call_id": "c", "content": "21"}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "21"}]}),
            json!({"type": "function_call_output", "call_id": "c", "output": "21"}),
        ] {
            assert!(ends_with_tool_result(&json!([{"role": "user", "content": "q"}, last])));
        }
        assert!(!ends_with_tool_result(&json!([{"role": "user", "content": "q"}])));
    }

    #[test]
    fn what_is_missing_is_named() {
        let says = |body| read(Endpoint::Chat, &body).expect_err("it is invalid").to_string();
        assert_eq!(says(json!({"messages": []})), "`model` is missing or not a string");
        assert_eq!(says(json!({"model": "m"})), "`messages` is missing");
        assert!(says(json!({"model": "m", "messages": []})).contains("at least one message"));
        assert!(says(json!([1])).starts_with("the body is not a JSON object"));
    }
}
