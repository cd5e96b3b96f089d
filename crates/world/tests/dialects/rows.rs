//! The fields of each dialect, each as two requests: without it, and with it.

use firsttoken_wire::Dialect;
use serde_json::{Value, json};

/// One field.
pub(crate) struct Row {
    /// Its path, as a caller writes it.
    pub(crate) field: &'static str,
    pub(crate) without: Value,
    pub(crate) with: Value,
    /// Whether it may say nothing to an upstream: it is about the answer, or is what the upstream does anyway.
    pub(crate) may_be_silent: bool,
}

const IMAGE: &str = "data:image/png;base64,iVBORw0KGgo=";
const PDF: &str = "data:application/pdf;base64,JVBERi0=";

/// The fields of `dialect`.
pub(crate) fn rows(dialect: Dialect) -> Vec<Row> {
    match dialect {
        Dialect::OpenAiChat => chat(&json!({ "messages": [{ "role": "user", "content": "Hi" }] }), true),
        Dialect::Typed => {
            let mut rows = vec![row("question", &json!({ "question": "a" }), json!({ "question": "b" }))];
            rows.push(row("system", &json!({ "question": "a" }), json!({ "system": "Be brief." })));
            rows.extend(chat(&json!({ "messages": [{ "role": "user", "content": "Hi" }] }), false));
            rows
        }
        Dialect::Anthropic => messages(),
        Dialect::OpenAiResponses => responses(),
        Dialect::Ui => ui(),
        Dialect::OpenAiCompletions | Dialect::OpenAiOther => Vec::new(),
    }
}

/// A field at the top: `patch` on `base`.
fn row(field: &'static str, base: &Value, patch: Value) -> Row {
    let mut with = base.clone();
    if let (Some(with), Value::Object(patch)) = (with.as_object_mut(), patch) {
        with.extend(patch);
    }
    Row { field, without: base.clone(), with, may_be_silent: false }
}

fn quiet(mut row: Row) -> Row {
    row.may_be_silent = true;
    row
}

/// The limits, sampling and tools of Chat Completions, which the typed dialects share.
fn common(base: &Value) -> Vec<Row> {
    let function = json!({ "name": "f", "parameters": { "type": "object" } });
    let tool = |function: Value| json!({ "tools": [{ "type": "function", "function": function }] });
    let mut tooled = base.clone();
    tooled["tools"] = tool(function.clone())["tools"].clone();
    let function_with = |name: &str, value: Value| {
        let mut function = function.clone();
        function[name] = value;
        tool(function)
    };
    let schema = json!({ "name": "a", "schema": { "type": "object" } });
    vec![
        row("max_tokens", base, json!({ "max_tokens": 99 })),
        row("max_completion_tokens", base, json!({ "max_completion_tokens": 99 })),
        row("temperature", base, json!({ "temperature": 0.5 })),
        row("top_p", base, json!({ "top_p": 0.5 })),
        row("top_k", base, json!({ "top_k": 5 })),
        row("seed", base, json!({ "seed": 5 })),
        row("presence_penalty", base, json!({ "presence_penalty": 0.5 })),
        row("frequency_penalty", base, json!({ "frequency_penalty": 0.5 })),
        row("stop", base, json!({ "stop": ["END"] })),
        row("response_format: json_object", base, json!({ "response_format": { "type": "json_object" } })),
        row(
            "response_format: json_schema",
            base,
            json!({ "response_format": { "type": "json_schema", "json_schema": schema } }),
        ),
        row("reasoning_effort", base, json!({ "reasoning_effort": "high" })),
        row("user", base, json!({ "user": "u" })),
        row("safety_identifier", base, json!({ "safety_identifier": "u" })),
        row("tools[].function", base, tool(function.clone())),
        row("tools[].function.description", &tooled, function_with("description", json!("Looks."))),
        row("tools[].function.strict", &tooled, function_with("strict", json!(true))),
        row("tool_choice", &tooled, json!({ "tool_choice": "required" })),
        row("parallel_tool_calls", &tooled, json!({ "parallel_tool_calls": false })),
        row("n", base, json!({ "n": 2 })),
        row("logprobs", base, json!({ "logprobs": true })),
        row("modalities: audio", base, json!({ "modalities": ["text", "audio"] })),
        row("logit_bias", base, json!({ "logit_bias": { "5": 1 } })),
        row("service_tier", base, json!({ "service_tier": "auto" })),
    ]
}

fn chat(base: &Value, streams: bool) -> Vec<Row> {
    let user = |part: Value| json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi" }, part] }] });
    let plain = json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi" }] }] });
    let image =
        |detail: Value| json!({ "type": "image_url", "image_url": { "url": IMAGE, "detail": detail } });
    let turn = |message: Value| json!({ "messages": [{ "role": "user", "content": "Hi" }, message, { "role": "user", "content": "Go on" }] });
    let said = turn(json!({ "role": "assistant", "content": "Well." }));
    let assistant =
        |name: &str, value: Value| turn(json!({ "role": "assistant", "content": "Well.", name: value }));
    let proof = json!([{ "type": "reasoning.text", "text": "Hm", "signature": "s", "format": "anthropic-claude-v1" }]);
    let call = json!([{ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
    let called = assistant("tool_calls", call);
    let mut answered = called.clone();
    answered["messages"][2] = json!({ "role": "tool", "tool_call_id": "a", "content": "x" });
    let instructed = json!({ "messages": [{ "role": "developer", "content": "Be brief." }, { "role": "user", "content": "Hi" }] });
    let mut rows = vec![
        row("messages[]: system, developer", base, instructed),
        row("messages[].content[]: image_url", &plain, user(image(Value::Null))),
        row("messages[].content[].image_url.detail", &user(image(Value::Null)), user(image(json!("low")))),
        row(
            "messages[].content[]: file",
            &plain,
            user(json!({ "type": "file", "file": { "filename": "a.pdf", "file_data": PDF } })),
        ),
        row(
            "messages[].content[]: input_audio",
            &plain,
            user(json!({ "type": "input_audio", "input_audio": {} })),
        ),
        row(
            "messages[].name",
            &plain,
            json!({ "messages": [{ "role": "user", "name": "ann", "content": "Hi" }] }),
        ),
        row("messages[].reasoning_content", &said, assistant("reasoning_content", json!("Hm"))),
        row("messages[].reasoning_details", &said, assistant("reasoning_details", proof)),
        row("messages[].tool_calls", &said, called.clone()),
        row("messages[]: tool", &called, answered),
    ];
    rows.extend(common(base));
    if streams {
        rows.push(row("stream", base, json!({ "stream": true })));
        rows.push(quiet(row("stream_options", base, json!({ "stream_options": { "include_usage": true } }))));
    }
    rows
}

fn messages() -> Vec<Row> {
    let base = &json!({ "max_tokens": 4000, "messages": [{ "role": "user", "content": "Hi" }] });
    let talk = |messages: Value| json!({ "max_tokens": 4000, "messages": messages });
    let user = |more: &[Value]| {
        let content = [&[json!({ "type": "text", "text": "Hi" })], more].concat();
        talk(json!([{ "role": "user", "content": content }]))
    };
    let block = |kind: &str, media_type: &str, data: &str| json!({ "type": kind, "source": { "type": "base64", "media_type": media_type, "data": data } });
    let turn = |more: &[Value]| {
        let content = [more, &[json!({ "type": "text", "text": "Well." })]].concat();
        talk(
            json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": content }, { "role": "user", "content": "Go on" }]),
        )
    };
    let call = json!({ "type": "tool_use", "id": "a", "name": "f", "input": { "x": 1 } });
    let called = turn(&[call]);
    let result = |more: Value| {
        let mut block = json!({ "type": "tool_result", "tool_use_id": "a", "content": "x" });
        block.as_object_mut().expect("it is one").extend(more.as_object().cloned().unwrap_or_default());
        let mut answered = called.clone();
        answered["messages"][2]["content"] = json!([block]);
        answered
    };
    let mut cached = user(&[]);
    cached["messages"][0]["content"][0]["cache_control"] = json!({ "type": "ephemeral" });
    let mut rows = vec![
        row("max_tokens", base, json!({ "max_tokens": 99 })),
        row("system", base, json!({ "system": "Be brief." })),
        row("messages[].content[]: image", &user(&[]), user(&[block("image", "image/png", "iVBORw0KGgo=")])),
        row(
            "messages[].content[]: document",
            &user(&[]),
            user(&[block("document", "application/pdf", "JVBERi0=")]),
        ),
        row(
            "messages[].content[]: document of text",
            &user(&[]),
            user(&[
                json!({ "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "a" } }),
            ]),
        ),
        row(
            "messages[].content[]: document by its URL",
            &user(&[]),
            user(&[
                json!({ "type": "document", "source": { "type": "url", "url": "https://example.org/a.pdf" } }),
            ]),
        ),
        row("messages[].content[].cache_control", &user(&[]), cached),
        row(
            "messages[].content[]: thinking",
            &turn(&[]),
            turn(&[json!({ "type": "thinking", "thinking": "Hm", "signature": "s" })]),
        ),
        row(
            "messages[].content[]: redacted_thinking",
            &turn(&[]),
            turn(&[json!({ "type": "redacted_thinking", "data": "d" })]),
        ),
        row("messages[].content[]: tool_use", &turn(&[]), called.clone()),
        row("messages[].content[]: tool_result", &called, result(json!({}))),
        row("messages[].content[].is_error", &result(json!({})), result(json!({ "is_error": true }))),
    ];
    rows.extend(messages_options(base));
    rows
}

/// Sampling, thinking and tools of Messages.
fn messages_options(base: &Value) -> Vec<Row> {
    let tool = json!({ "name": "f", "input_schema": { "type": "object" } });
    let tooled = &json!({ "max_tokens": 4000, "messages": base["messages"], "tools": [tool] });
    let tool_with = |name: &str, value: Value| {
        let mut tool = tool.clone();
        tool[name] = value;
        json!({ "tools": [tool] })
    };
    let schema = json!({ "type": "json_schema", "schema": { "type": "object" } });
    vec![
        row("temperature", base, json!({ "temperature": 0.5 })),
        row("top_p", base, json!({ "top_p": 0.5 })),
        row("top_k", base, json!({ "top_k": 5 })),
        row("stop_sequences", base, json!({ "stop_sequences": ["END"] })),
        row("metadata.user_id", base, json!({ "metadata": { "user_id": "u" } })),
        row("thinking: enabled", base, json!({ "thinking": { "type": "enabled", "budget_tokens": 2000 } })),
        row("thinking: adaptive", base, json!({ "thinking": { "type": "adaptive" } })),
        row("output_config.effort", base, json!({ "output_config": { "effort": "low" } })),
        row("output_config.format", base, json!({ "output_config": { "format": schema } })),
        row("tools[]", base, json!({ "tools": [tool] })),
        row("tools[].description", tooled, tool_with("description", json!("Looks."))),
        row("tools[].strict", tooled, tool_with("strict", json!(true))),
        row("tools[].cache_control", tooled, tool_with("cache_control", json!({ "type": "ephemeral" }))),
        row(
            "tools[]: that the provider runs",
            base,
            json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] }),
        ),
        row("tool_choice", tooled, json!({ "tool_choice": { "type": "any" } })),
        row(
            "tool_choice.disable_parallel_tool_use",
            tooled,
            json!({ "tool_choice": { "type": "auto", "disable_parallel_tool_use": true } }),
        ),
        row("mcp_servers", base, json!({ "mcp_servers": [{ "url": "https://a" }] })),
        row("service_tier", base, json!({ "service_tier": "auto" })),
        row("stream", base, json!({ "stream": true })),
    ]
}

fn responses() -> Vec<Row> {
    let base = &json!({ "input": "Hi" });
    let user = |more: &[Value]| {
        let content = [&[json!({ "type": "input_text", "text": "Hi" })], more].concat();
        json!({ "input": [{ "role": "user", "content": content }] })
    };
    let turn = |more: &[Value]| {
        let first = [json!({ "role": "user", "content": "Hi" })];
        let last = [
            json!({ "role": "assistant", "content": "Well." }),
            json!({ "role": "user", "content": "Go on" }),
        ];
        let input = [&first[..], more, &last[..]].concat();
        json!({ "input": input })
    };
    let call = json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}" });
    let result = json!({ "type": "function_call_output", "call_id": "a", "output": "x" });
    let mut rows = vec![
        row("instructions", base, json!({ "instructions": "Be brief." })),
        row(
            "input[].content[]: input_image",
            &user(&[]),
            user(&[json!({ "type": "input_image", "image_url": IMAGE })]),
        ),
        row(
            "input[].content[]: input_file",
            &user(&[]),
            user(&[json!({ "type": "input_file", "filename": "a.pdf", "file_data": PDF })]),
        ),
        row(
            "input[].content[]: input_file by its id",
            &user(&[]),
            user(&[json!({ "type": "input_file", "file_id": "file-1" })]),
        ),
        row(
            "input[]: reasoning",
            &turn(&[]),
            turn(&[json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Hm" }] })]),
        ),
        row(
            "input[].encrypted_content",
            &turn(&[]),
            turn(&[
                json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Hm" }], "encrypted_content": "s" }),
            ]),
        ),
        row("input[]: function_call", &turn(&[]), turn(std::slice::from_ref(&call))),
        row(
            "input[]: function_call_output",
            &turn(std::slice::from_ref(&call)),
            turn(&[call.clone(), result]),
        ),
        row("input[]: web_search_call", &turn(&[]), turn(&[json!({ "type": "web_search_call", "id": "a" })])),
    ];
    rows.extend(responses_options(base));
    rows
}

/// Sampling, thinking, tools and storage of Responses.
fn responses_options(base: &Value) -> Vec<Row> {
    let tool =
        json!({ "type": "function", "name": "f", "parameters": { "type": "object" }, "strict": false });
    let tooled = &json!({ "input": "Hi", "tools": [tool] });
    let format = json!({ "type": "json_schema", "name": "a", "schema": { "type": "object" } });
    vec![
        row("max_output_tokens", base, json!({ "max_output_tokens": 99 })),
        row("temperature", base, json!({ "temperature": 0.5 })),
        row("top_p", base, json!({ "top_p": 0.5 })),
        row("reasoning.effort", base, json!({ "reasoning": { "effort": "high" } })),
        row("reasoning.summary", base, json!({ "reasoning": { "summary": "auto" } })),
        row("text.format: json_schema", base, json!({ "text": { "format": format } })),
        row("text.verbosity", base, json!({ "text": { "verbosity": "low" } })),
        row("user", base, json!({ "user": "u" })),
        row("safety_identifier", base, json!({ "safety_identifier": "u" })),
        row("tools[]: function", base, json!({ "tools": [tool] })),
        row("tools[]: that the provider runs", base, json!({ "tools": [{ "type": "web_search" }] })),
        row("tool_choice", tooled, json!({ "tool_choice": "required" })),
        row("parallel_tool_calls", tooled, json!({ "parallel_tool_calls": false })),
        row("metadata", base, json!({ "metadata": { "k": "v" } })),
        row("store: true", base, json!({ "store": true })),
        row("truncation: auto", base, json!({ "truncation": "auto" })),
        row("include: logprobs", base, json!({ "include": ["message.output_text.logprobs"] })),
        quiet(row(
            "include: encrypted reasoning",
            base,
            json!({ "include": ["reasoning.encrypted_content"] }),
        )),
        row("previous_response_id", base, json!({ "previous_response_id": "resp_1" })),
        row("background", base, json!({ "background": true })),
        row("stream", base, json!({ "stream": true })),
    ]
}

fn ui() -> Vec<Row> {
    let text = json!({ "type": "text", "text": "Hi" });
    let talk = |messages: Value| json!({ "messages": messages });
    let user = json!({ "role": "user", "parts": [text] });
    let base = &talk(json!([user]));
    let turn = |more: &[Value]| {
        let parts = [more, &[json!({ "type": "text", "text": "Well." })]].concat();
        talk(json!([user, { "id": "2", "role": "assistant", "parts": parts }, user]))
    };
    let tool = |more: Value| {
        let mut part = json!({ "type": "tool-f", "toolCallId": "a", "input": {}, "state": "output-available", "output": "x" });
        part.as_object_mut().expect("it is one").extend(more.as_object().cloned().unwrap_or_default());
        part
    };
    let file = |media_type: &str, url: &str| {
        talk(
            json!([{ "role": "user", "parts": [text, { "type": "file", "mediaType": media_type, "url": url }] }]),
        )
    };
    let proven = json!({ "type": "reasoning", "text": "Hm", "providerMetadata": { "firsttoken": { "signature": "s" } } });
    let mut rows = vec![
        row("system", base, json!({ "system": "Be brief." })),
        row("messages[]: system", base, talk(json!([{ "role": "system", "parts": [text] }, user]))),
        row("messages[].parts[]: file, image", base, file("image/png", IMAGE)),
        row("messages[].parts[]: file, document", base, file("application/pdf", PDF)),
        row("messages[].parts[]: file, audio", base, file("audio/wav", "data:audio/wav;base64,AA==")),
        row(
            "messages[].parts[]: reasoning",
            &turn(&[]),
            turn(&[json!({ "type": "reasoning", "text": "Hm" })]),
        ),
        row("messages[].parts[].providerMetadata", &turn(&[]), turn(&[proven])),
        row("messages[].parts[]: tool-…", &turn(&[]), turn(&[tool(json!({}))])),
        row(
            "messages[].parts[].state: output-error",
            &turn(&[tool(json!({}))]),
            turn(&[tool(json!({ "state": "output-error", "errorText": "no" }))]),
        ),
        row(
            "messages[].parts[].state: approval-requested",
            &turn(&[]),
            turn(&[tool(json!({ "state": "approval-requested" }))]),
        ),
        quiet(row(
            "messages[].parts[]: source-…, data-…",
            &turn(&[]),
            turn(&[json!({ "type": "data-x", "data": 1 })]),
        )),
        quiet(row(
            "messages[].metadata",
            base,
            talk(json!([{ "role": "user", "metadata": { "a": 1 }, "parts": [text] }])),
        )),
        quiet(row("id", base, json!({ "id": "chat-1" }))),
        quiet(row("trigger", base, json!({ "trigger": "submit-message" }))),
        quiet(row("messageId", base, json!({ "messageId": "m1" }))),
        row("maxOutputTokens", base, json!({ "maxOutputTokens": 99 })),
    ];
    rows.extend(common(base));
    rows
}
