//! Requests: read in one dialect, written in another; see translation.rs for all that they can hold.

use firsttoken_wire::chat::{Part, Request, Role};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, anthropic, openai_chat, typed};
use insta::assert_snapshot;
use serde_json::{Value, json};

fn openai_example() -> Value {
    json!({
        "model": "gpt-4o", "stream": true, "stream_options": { "include_usage": true },
        "max_completion_tokens": 100, "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "stop": "END",
        "seed": 3, "n": null, "user": "u1",
        "tools": [{ "type": "function", "function": {
            "name": "get_weather", "description": "Weather of a city",
            "parameters": { "type": "object", "properties": { "city": { "type": "string" } } } } }],
        "tool_choice": { "type": "function", "function": { "name": "get_weather" } },
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "developer", "content": [{ "type": "text", "text": "Be kind." }] },
            { "role": "user", "content": [{ "type": "text", "text": "Weather" }, { "type": "text", "text": "in Paris and Rome?" }] },
            { "role": "assistant", "content": null, "tool_calls": [
                { "id": "call_a", "type": "function", "function": { "name": "get_weather", "arguments": "{\"city\":\"Paris\"}" } },
                { "id": "call_b", "type": "function", "function": { "name": "get_weather", "arguments": "" } }] },
            { "role": "tool", "tool_call_id": "call_a", "content": "sunny" },
            { "role": "tool", "tool_call_id": "call_b", "content": [{ "type": "text", "text": "rain" }] },
            { "role": "assistant", "content": "Sun and rain." },
            { "role": "user", "content": "Thanks" }
        ]
    })
}

fn anthropic_example() -> Value {
    json!({
        "model": "claude-sonnet-4-5", "stream": true, "max_tokens": 1024, "temperature": 1, "top_k": 5,
        "stop_sequences": ["END"], "metadata": { "user_id": "u1" }, "thinking": { "type": "enabled", "budget_tokens": 2048 },
        "system": [{ "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } }],
        "tools": [{ "name": "get_weather", "description": "Weather of a city", "input_schema": { "type": "object" } }],
        "tool_choice": { "type": "any" },
        "messages": [
            { "role": "user", "content": "Weather in Paris?" },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "A tool.", "signature": "sig" },
                { "type": "text", "text": "Let me look." },
                { "type": "tool_use", "id": "toolu_a", "name": "get_weather", "input": { "city": "Paris" } }] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_a", "content": [{ "type": "text", "text": "no such city" }], "is_error": true },
                { "type": "text", "text": "Well?" }] }
        ]
    })
}

fn parse_openai(body: &Value) -> Result<Request, ApiError> {
    openai_chat::parse_request(body.to_string().as_bytes())
}

fn parse_anthropic(body: &Value) -> Result<Request, ApiError> {
    anthropic::parse_request(body.to_string().as_bytes())
}

fn pretty(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    format!("{value:#}")
}

#[test]
fn openai_to_anthropic() {
    let request = parse_openai(&openai_example()).unwrap();
    assert_eq!(request.max_tokens, Some(100));
    assert_snapshot!(pretty(&anthropic::render_request(&request).unwrap().body));
}

#[test]
fn anthropic_to_openai() {
    let request = parse_anthropic(&anthropic_example()).unwrap();
    assert_eq!(request.dropped, ["cache_control"]);
    let roles: Vec<Role> = request.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::User]);
    assert_snapshot!(pretty(&openai_chat::render_request(&request, true).unwrap().body));
}

#[test]
fn what_anthropic_requires_is_filled_in() {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "" }] });
    let rendered = anthropic::render_request(&parse_openai(&body).unwrap()).unwrap().body;
    let rendered: Value = serde_json::from_slice(&rendered).unwrap();
    assert_eq!(rendered["max_tokens"], 4096);
    assert_eq!(rendered["messages"].as_array().unwrap().len(), 1);
}

#[test]
fn the_name_of_the_token_bound_follows_the_model() {
    for (model, field) in [
        ("gpt-4o", "max_completion_tokens"),
        ("openai/gpt-5.1-mini", "max_completion_tokens"),
        ("o3", "max_completion_tokens"),
        ("gpt-oss-120b", "max_tokens"),
        ("Qwen/Qwen3-8B", "max_tokens"),
        ("olmo", "max_tokens"),
    ] {
        let request = Request { model: model.to_owned(), max_tokens: Some(5), ..Request::default() };
        let rendered: Value =
            serde_json::from_slice(&openai_chat::render_request(&request, true).unwrap().body).unwrap();
        assert_eq!(rendered[field], 5, "{model}");
    }
}

#[test]
fn typed_requests() {
    let parse = |body: Value| typed::parse_request(body.to_string().as_bytes());
    let request = parse(json!({ "question": "Why?", "system": "Be brief.", "conversation": "c1" })).unwrap();
    assert!(request.stream && request.model.is_empty());
    assert_eq!(request.messages[0].parts, [Part::Text("Why?".to_owned())]);
    assert_eq!(request.rest.keys().collect::<Vec<_>>(), ["conversation"]);
    let request =
        parse(json!({ "messages": [{ "role": "user", "content": "Hi" }], "stream": false, "max_tokens": 5 }))
            .unwrap();
    assert_eq!((request.stream, request.max_tokens), (false, Some(5)));
    let param = |body: Value| parse(body).unwrap_err().param;
    assert_eq!(param(json!({})).as_deref(), Some("messages"));
    assert_eq!(param(json!({ "question": " " })).as_deref(), Some("question"));
    assert_eq!(param(json!({ "question": "a", "messages": [] })).as_deref(), Some("question"));
}

#[test]
fn the_usage_chunk_is_asked_for_explicitly() {
    assert!(openai_chat::wants_stream_usage(openai_example().to_string().as_bytes()));
    assert!(!openai_chat::wants_stream_usage(b"{\"stream_options\":null}"));
    assert!(!openai_chat::wants_stream_usage(b"nonsense"));
}

#[test]
fn errors_in_every_dialect() {
    let error = ApiError::new(ErrorKind::InvalidRequest, "expected a \"string\"")
        .at("messages[3].content")
        .retry_after_s(2);
    let mut all = String::new();
    for dialect in [
        Dialect::OpenAiChat,
        Dialect::OpenAiResponses,
        Dialect::OpenAiCompletions,
        Dialect::OpenAiOther,
        Dialect::Anthropic,
        Dialect::Typed,
    ] {
        let body = dialect.error_body(&error, Some("req_1"));
        let event = dialect.error_event(&error, Some("req_1"));
        let overloaded = dialect.status(ErrorKind::Overloaded);
        all.push_str(&format!(
            "{dialect:?}: overloaded is {overloaded}\n{}\n{}{}",
            String::from_utf8_lossy(&body),
            String::from_utf8_lossy(&event),
            String::from_utf8_lossy(dialect.keepalive()),
        ));
    }
    assert_snapshot!(all);
}

#[test]
fn whole_answers() {
    let answers = [
        (
            Dialect::OpenAiChat,
            json!({ "id": "c1", "model": "m", "choices": [{ "message": { "role": "assistant", "content": "Hi" }, "finish_reason": "stop" }],
                "usage": { "prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": { "cached_tokens": 4 } } }),
        ),
        (
            Dialect::OpenAiChat,
            json!({ "choices": [{ "message": { "content": null, "tool_calls": [{ "id": "a" }] }, "finish_reason": "tool_calls" }] }),
        ),
        (
            Dialect::OpenAiChat,
            json!({ "choices": [{ "message": { "content": "" }, "finish_reason": "length" }] }),
        ),
        (
            Dialect::OpenAiCompletions,
            json!({ "id": "c", "choices": [{ "text": "x", "finish_reason": "length" }] }),
        ),
        (
            Dialect::OpenAiOther,
            json!({ "object": "list", "model": "e", "data": [{ "embedding": [0.1] }], "usage": { "prompt_tokens": 8 } }),
        ),
        (
            Dialect::OpenAiResponses,
            json!({ "id": "r1", "model": "m", "status": "completed", "output": [{ "type": "message", "content": [{ "type": "output_text", "text": "x" }] }],
                "usage": { "input_tokens": 3, "output_tokens": 1 } }),
        ),
        (
            Dialect::Anthropic,
            json!({ "id": "msg_1", "model": "c", "content": [{ "type": "text", "text": "x" }], "stop_reason": "end_turn",
                "usage": { "input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1 } }),
        ),
        (Dialect::Anthropic, json!({ "content": [], "stop_reason": "max_tokens" })),
        (Dialect::Typed, json!("junk")),
    ];
    let lines = answers
        .map(|(dialect, body)| format!("{dialect:?} {:?}\n", dialect.facts(body.to_string().as_bytes())));
    assert_snapshot!(lines.concat());
}
