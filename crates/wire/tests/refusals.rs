//! Bad requests: what is wrong is said with the path of the field, and nothing is guessed.

use firsttoken_wire::{ApiError, Dialect, ErrorKind, openai_chat};
use serde_json::{Value, json};

fn parse_error(dialect: Dialect, body: &Value) -> ApiError {
    dialect.parse_request(body.to_string().as_bytes()).expect("known").expect_err("refused")
}

/// The path of the error of a body whose fields are `patch`.
fn path(dialect: Dialect, patch: Value) -> String {
    let mut body =
        json!({ "model": "m", "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }] });
    patch.as_object().expect("known").iter().for_each(|(key, value)| body[key] = value.clone());
    let error = parse_error(dialect, &body);
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
    error.param.unwrap_or_default()
}

/// The path of the error of a conversation whose second message is `message`.
fn second(dialect: Dialect, message: Value) -> String {
    path(dialect, json!({ "messages": [{ "role": "user", "content": "Hi" }, message] }))
}

#[test]
fn openai_fields() {
    let at = |patch: Value| path(Dialect::OpenAiChat, patch);
    for (name, wrong) in [
        ("model", json!(null)),
        ("model", json!(3)),
        ("messages", json!("x")),
        ("messages", json!([])),
        ("stream", json!("yes")),
        ("max_tokens", json!(-1)),
        ("max_completion_tokens", json!(0)),
        ("stop", json!([1])),
        ("temperature", json!(2.1)),
        ("temperature", json!("hot")),
        ("top_p", json!(-0.1)),
        ("top_k", json!(1.5)),
        ("seed", json!(0.5)),
        ("presence_penalty", json!(3)),
        ("frequency_penalty", json!(-3)),
        ("user", json!(1)),
        ("reasoning_effort", json!(1)),
        ("parallel_tool_calls", json!("no")),
        ("tool_choice", json!("maybe")),
        ("response_format", json!("json")),
        ("n", json!(2)),
        ("logprobs", json!(true)),
        ("top_logprobs", json!(1)),
        ("modalities", json!(["text", "audio"])),
        ("audio", json!({ "voice": "alloy" })),
        ("functions", json!([])),
        ("function_call", json!("auto")),
        ("web_search_options", json!({})),
    ] {
        let patch = Value::Object([(name.to_owned(), wrong.clone())].into_iter().collect());
        assert_eq!(at(patch), name, "{wrong}");
    }
    let nothing = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }],
        "n": 1, "logprobs": false, "top_logprobs": 0, "modalities": ["text"], "audio": null, "store": null });
    let request = openai_chat::parse_request(nothing.to_string().as_bytes()).unwrap();
    assert!(request.rest.is_empty() && request.dropped.is_empty());
}

#[test]
fn openai_tools_and_formats() {
    let tools = |tool: Value| path(Dialect::OpenAiChat, json!({ "tools": [tool] }));
    assert_eq!(tools(json!("f")), "tools[0]");
    assert_eq!(tools(json!({ "type": "web_search" })), "tools[0].type");
    assert_eq!(tools(json!({ "type": "function" })), "tools[0].function");
    assert_eq!(tools(json!({ "type": "function", "function": {} })), "tools[0].function.name");
    assert_eq!(
        tools(json!({ "function": { "name": "f", "parameters": [] } })),
        "tools[0].function.parameters"
    );
    assert_eq!(tools(json!({ "function": { "name": "f", "strict": 1 } })), "tools[0].function.strict");
    let format = |format: Value| path(Dialect::OpenAiChat, json!({ "response_format": format }));
    assert_eq!(format(json!({})), "response_format.type");
    assert_eq!(format(json!({ "type": "grammar" })), "response_format.type");
    assert_eq!(format(json!({ "type": "json_schema" })), "response_format.json_schema");
    assert_eq!(
        format(json!({ "type": "json_schema", "json_schema": { "name": "a" } })),
        "response_format.json_schema.schema"
    );
}

#[test]
fn openai_messages() {
    let at = |message: Value| second(Dialect::OpenAiChat, message);
    assert_eq!(at(json!("x")), "messages[1]");
    assert_eq!(at(json!({ "content": "x" })), "messages[1].role");
    assert_eq!(at(json!({ "role": "robot", "content": "x" })), "messages[1].role");
    assert_eq!(at(json!({ "role": "function", "name": "f", "content": "x" })), "messages[1].role");
    for content in [json!(null), json!(3), json!([])] {
        assert_eq!(at(json!({ "role": "user", "content": content })), "messages[1].content");
    }
    assert_eq!(at(json!({ "role": "system" })), "messages[1].content");
    assert_eq!(at(json!({ "role": "assistant", "function_call": {} })), "messages[1].function_call");
    assert_eq!(at(json!({ "role": "assistant", "audio": { "id": "a" } })), "messages[1].audio");
    assert_eq!(at(json!({ "role": "assistant", "reasoning_details": "x" })), "messages[1].reasoning_details");
    let part = |role: &str, part: Value| {
        at(json!({ "role": role, "content": [{ "type": "text", "text": "a" }, part] }))
    };
    let image = json!({ "type": "image_url", "image_url": { "url": "https://a/b.png" } });
    for (role, wrong, field) in [
        ("user", json!("x"), ""),
        ("user", json!({ "text": "x" }), ".type"),
        ("user", json!({ "type": "text" }), ".text"),
        ("user", json!({ "type": "input_audio", "input_audio": {} }), ".input_audio"),
        ("user", json!({ "type": "video_url" }), ".video_url"),
        ("user", json!({ "type": "image_url" }), ".image_url"),
        ("user", json!({ "type": "image_url", "image_url": 3 }), ".image_url"),
        ("user", json!({ "type": "image_url", "image_url": {} }), ".image_url.url"),
        ("user", json!({ "type": "image_url", "image_url": { "url": "x" } }), ".image_url"),
        ("user", json!({ "type": "image_url", "image_url": { "url": "data:image/png,x" } }), ".image_url"),
        (
            "user",
            json!({ "type": "image_url", "image_url": { "url": "https://a", "detail": 1 } }),
            ".image_url.detail",
        ),
        ("user", json!({ "type": "file" }), ".file"),
        ("user", json!({ "type": "file", "file": {} }), ".file.file_data"),
        ("user", json!({ "type": "file", "file": { "file_data": "JVBERi0" } }), ".file.file_data"),
        ("assistant", image.clone(), ".image_url"),
        ("system", image, ".image_url"),
    ] {
        assert_eq!(part(role, wrong), format!("messages[1].content[1]{field}"));
    }
}

#[test]
fn openai_tool_calls() {
    let call = |id: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": arguments } });
    let conversation = |messages: Value| {
        let error = parse_error(Dialect::OpenAiChat, &json!({ "model": "m", "messages": messages }));
        (error.param.unwrap_or_default(), error.code.unwrap_or_default())
    };
    let calls = |calls: Value| conversation(json!([{ "role": "assistant", "tool_calls": calls }]));
    let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "x" });
    let said = |path: &str, code: &str| (path.to_owned(), code.to_owned());
    assert_eq!(conversation(json!([result("a")])), said("messages[0].tool_call_id", "orphan_tool_result"));
    assert_eq!(
        conversation(json!([{ "role": "assistant", "tool_calls": [call("a", "{}")] }, result("b")])),
        said("messages[1].tool_call_id", "orphan_tool_result")
    );
    assert_eq!(
        conversation(
            json!([{ "role": "assistant", "tool_calls": [call("a", "")] }, result("a"), result("a")])
        ),
        said("messages[2].tool_call_id", "duplicate_tool_result")
    );
    assert_eq!(
        calls(json!([call("a", ""), call("a", "")])),
        said("messages[0].tool_calls[1].id", "duplicate_tool_id")
    );
    assert_eq!(
        calls(json!([call("a", "{\"city\":")])),
        said("messages[0].tool_calls[0].function.arguments", "invalid_tool_arguments")
    );
    assert_eq!(calls(json!([{ "function": { "name": "f" } }])), said("messages[0].tool_calls[0].id", ""));
    assert_eq!(calls(json!([{ "id": "a" }])), said("messages[0].tool_calls[0].function", ""));
    assert_eq!(
        calls(json!([{ "id": "a", "function": { "arguments": "{}" } }])),
        said("messages[0].tool_calls[0].function.name", "")
    );
    assert_eq!(
        calls(json!([{ "id": "a", "type": "custom", "custom": {} }])),
        said("messages[0].tool_calls[0].type", "unsupported")
    );
    assert_eq!(
        conversation(json!([{ "role": "tool", "content": "x" }])),
        said("messages[0].tool_call_id", "")
    );
}

#[test]
fn anthropic_fields() {
    let at = |patch: Value| path(Dialect::Anthropic, patch);
    for (field, wrong) in [
        ("model", json!({ "model": "" })),
        ("messages", json!({ "messages": null })),
        ("messages", json!({ "messages": [] })),
        ("system", json!({ "system": 3 })),
        ("system[1]", json!({ "system": [{ "type": "text", "text": "a" }, "b"] })),
        ("system[0]", json!({ "system": [{ "type": "image", "source": {} }] })),
        ("max_tokens", json!({ "max_tokens": 0 })),
        ("temperature", json!({ "temperature": 1.5 })),
        ("top_k", json!({ "top_k": -1 })),
        ("stop_sequences", json!({ "stop_sequences": [3] })),
        ("metadata.user_id", json!({ "metadata": { "user_id": 3 } })),
        ("thinking.type", json!({ "thinking": { "type": "deep" } })),
        ("thinking.budget_tokens", json!({ "thinking": { "type": "enabled" } })),
        ("output_config.effort", json!({ "output_config": { "effort": 3 } })),
        ("output_config.format.type", json!({ "output_config": { "format": { "type": "regex" } } })),
        ("output_config.format.schema", json!({ "output_config": { "format": { "type": "json_schema" } } })),
        ("output_format.schema", json!({ "output_format": { "type": "json_schema", "schema": 1 } })),
        ("tools[0].type", json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] })),
        ("tools[1].name", json!({ "tools": [{ "name": "f" }, { "type": "custom" }] })),
        ("tools[0].input_schema", json!({ "tools": [{ "name": "f", "input_schema": "x" }] })),
        ("tool_choice", json!({ "tool_choice": "auto" })),
        ("tool_choice.type", json!({ "tool_choice": { "type": "required" } })),
        ("tool_choice.name", json!({ "tool_choice": { "type": "tool" } })),
        ("mcp_servers", json!({ "mcp_servers": [{ "url": "https://a" }] })),
        ("container", json!({ "container": "c" })),
    ] {
        assert_eq!(at(wrong), field);
    }
}

#[test]
fn anthropic_blocks() {
    let at =
        |role: &str, blocks: Value| second(Dialect::Anthropic, json!({ "role": role, "content": blocks }));
    assert_eq!(at("user", json!(null)), "messages[1].content");
    assert_eq!(at("user", json!({})), "messages[1].content");
    assert_eq!(at("user", json!([])), "messages[1].content");
    assert_eq!(at("tool", json!("x")), "messages[1].role");
    for (role, wrong, field) in [
        ("user", json!("x"), ""),
        ("user", json!({ "type": "text" }), ".text"),
        ("user", json!({ "type": "search_result" }), ""),
        ("assistant", json!({ "type": "server_tool_use", "id": "a", "name": "web_search" }), ""),
        ("user", json!({ "type": "image" }), ".source"),
        ("user", json!({ "type": "image", "source": {} }), ".source.type"),
        ("user", json!({ "type": "image", "source": { "type": "text", "data": "x" } }), ".source.type"),
        (
            "user",
            json!({ "type": "image", "source": { "type": "base64", "data": "x" } }),
            ".source.media_type",
        ),
        (
            "user",
            json!({ "type": "document", "source": { "type": "content", "content": [{ "type": "image" }] } }),
            ".source.content[0]",
        ),
        ("user", json!({ "type": "tool_use", "id": "a", "name": "f" }), ""),
        ("user", json!({ "type": "thinking", "thinking": "x" }), ""),
        ("assistant", json!({ "type": "image", "source": {} }), ""),
        ("assistant", json!({ "type": "tool_result", "tool_use_id": "a" }), ""),
        ("assistant", json!({ "type": "redacted_thinking" }), ".data"),
        ("assistant", json!({ "type": "tool_use", "name": "f" }), ".id"),
        ("assistant", json!({ "type": "tool_use", "id": "a", "name": "f", "input": "{}" }), ".input"),
        ("user", json!({ "type": "tool_result", "tool_use_id": "a" }), ".tool_use_id"),
    ] {
        let blocks = json!([{ "type": "text", "text": "a" }, wrong]);
        assert_eq!(at(role, blocks), format!("messages[1].content[1]{field}"), "{wrong}");
    }
    let result = |content: Value| {
        let messages = json!([
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "f", "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": content }] },
        ]);
        path(Dialect::Anthropic, json!({ "messages": messages }))
    };
    assert_eq!(result(json!([{ "type": "image" }])), "messages[1].content[0].content[0].source");
    assert_eq!(result(json!([{ "type": "thinking" }])), "messages[1].content[0].content[0]");
    assert_eq!(result(json!(3)), "messages[1].content[0].content");
}

/// What reads well and cannot be written for another provider.
#[test]
fn what_the_target_cannot() {
    let image = json!({ "type": "image_url", "image_url": { "url": "https://a/b.png" } });
    let file = |file: Value| json!({ "type": "file", "file": file });
    let user = |part: &Value| json!([{ "role": "user", "content": [part] }]);
    let refused = |from: Dialect, to: Dialect, model: &str, messages: Value| {
        let body = json!({ "model": model, "max_tokens": 9, "messages": messages }).to_string();
        let request = from.parse_request(body.as_bytes()).unwrap().unwrap();
        to.render_request(&request).unwrap_err().param.unwrap_or_default()
    };
    let (openai, claude) = (Dialect::OpenAiChat, Dialect::Anthropic);
    assert_eq!(refused(openai, claude, "olmo", user(&image)), "messages[0].content[0].image_url");
    assert_eq!(
        refused(openai, claude, "claude-opus-5", user(&file(json!({ "file_id": "file-1" })))),
        "messages[0].content[0].file"
    );
    assert_eq!(
        refused(
            openai,
            claude,
            "claude-opus-5",
            user(&file(json!({ "file_data": "data:application/zip;base64,AA==" })))
        ),
        "messages[0].content[0].file"
    );
    assert_eq!(
        refused(
            openai,
            claude,
            "claude-opus-5",
            user(&file(json!({ "file_data": "data:text/plain;base64,/w==" })))
        ),
        "messages[0].content[0].file"
    );
    let hi = json!({ "role": "user", "content": "Hi" });
    let prefill = json!([hi, { "role": "assistant", "content": "{" }]);
    assert_eq!(refused(openai, claude, "claude-opus-5", prefill), "messages");
    let first = json!([{ "role": "assistant", "content": "Hello" }, hi]);
    assert_eq!(refused(openai, claude, "claude-opus-5", first), "messages");
    assert_eq!(refused(openai, claude, "m", json!([{ "role": "user", "content": " " }])), "messages");
    let document =
        |source: Value| json!([{ "role": "user", "content": [{ "type": "document", "source": source }] }]);
    for source in
        [json!({ "type": "url", "url": "https://a/b.pdf" }), json!({ "type": "file", "file_id": "f" })]
    {
        assert_eq!(refused(claude, openai, "gpt-5", document(source)), "messages[0].content[0].source");
    }
    let seen = json!([
        { "role": "user", "content": "Look" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "f", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": [
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA==" } }] }] },
    ]);
    assert_eq!(refused(claude, openai, "Qwen/Qwen3-8B", seen), "messages[2].content[0].content[0].source");
}

#[test]
fn a_syntax_error_never_quotes_the_body() {
    let error = openai_chat::parse_request(b"{\"model\":").unwrap_err();
    assert_eq!((error.kind, error.code.as_deref()), (ErrorKind::InvalidRequest, Some("invalid_json")));
    assert_eq!(error.param, None);
}
