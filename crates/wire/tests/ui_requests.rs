//! What an unmodified `useChat` sends, read into the one model, and every refusal by its path.

use firsttoken_wire::chat::{Event, Part, Reasoning, StopReason};
use firsttoken_wire::typed::{Renderer, UiRequest, parse_ui_request};
use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use insta::assert_debug_snapshot;
use serde_json::{Value, json};

fn parse(body: &Value) -> Result<UiRequest, ApiError> {
    parse_ui_request(body.to_string().as_bytes())
}

fn chat(messages: Value) -> Value {
    json!({ "id": "chat-1", "trigger": "submit-message", "messages": messages })
}

fn user(parts: Value) -> Value {
    json!({ "id": "m1", "role": "user", "parts": parts })
}

fn assistant(parts: Value) -> Value {
    chat(json!([
        { "role": "user", "parts": [{ "type": "text", "text": "Why?" }] },
        { "id": "m2", "role": "assistant", "parts": parts },
    ]))
}

#[test]
fn a_conversation_of_every_part() {
    let body: Value = serde_json::from_str(include_str!("golden/requests/ui.json")).expect("JSON");
    assert_debug_snapshot!(parse(&body).unwrap());
}

#[test]
fn an_answer_goes_on_where_its_tools_gave_something() {
    let call =
        |state| json!({ "type": "tool-f", "toolCallId": "a", "state": state, "input": {}, "output": "x" });
    let ui = parse(&assistant(json!([call("output-available")]))).unwrap();
    assert_eq!((ui.continues.as_deref(), ui.request.messages.len()), (Some("m2"), 3));
    let open = parse(&assistant(json!([call("input-available")]))).unwrap();
    assert_eq!(open.request.messages.len(), 2);
    assert_eq!(
        parse(&chat(json!([user(json!([{ "type": "text", "text": "a" }]))]))).unwrap().continues,
        None
    );
}

/// The stream as the client's message, part by part, as `tests/clients/ui` lets the client itself do it.
#[test]
fn what_we_stream_comes_back_as_it_was() {
    let call = |index, id: &'static str| Event::ToolStart { index, id: id.into(), name: "f".into() };
    let arguments = |index, json: &'static str| Event::ToolArguments { index, json: json.into() };
    let events = [
        Event::Reasoning("Hm".into()),
        Event::Signature("sig".into()),
        Event::Redacted("hidden".into()),
        call(0, "a"),
        arguments(0, "{ \"x\": 1.50,\n \"a\": [] }"),
        call(1, "b"),
        arguments(1, "{cut"),
        Event::Stop(StopReason::Tool),
        Event::End,
    ];
    let (mut renderer, mut stream) = (Renderer::new(), Vec::new());
    events.iter().for_each(|event| renderer.render(event, &mut stream));
    let mut parts = Vec::new();
    for event in firsttoken_wire::sse::events(&stream) {
        let chunk: Value = serde_json::from_slice(&event.data).unwrap_or_default();
        match chunk["type"].as_str().unwrap_or_default() {
            "reasoning-start" => parts.push(json!({ "type": "reasoning", "text": "" })),
            "reasoning-delta" => parts.last_mut().unwrap()["text"] = chunk["delta"].clone(),
            "reasoning-end" => {
                parts.last_mut().unwrap()["providerMetadata"] = chunk["providerMetadata"].clone();
            }
            "tool-input-available" => parts.push(json!({
                "type": "tool-f", "toolCallId": chunk["toolCallId"], "input": chunk["input"],
                "state": "output-available", "output": "done",
            })),
            "tool-output-error" => {
                let part = parts.last_mut().unwrap();
                part["state"] = json!("output-error");
                part["errorText"] = chunk["errorText"].clone();
            }
            _ => {}
        }
    }
    let request = parse(&assistant(json!(parts))).unwrap().request;
    let reasoning = |text: &str, signature: Option<&str>, redacted: Option<&str>| {
        let (signature, redacted) = (signature.map(Into::into), redacted.map(Into::into));
        Part::Reasoning(Reasoning { text: text.into(), signature, redacted })
    };
    let called = |id: &str, arguments: &str| Part::ToolCall {
        id: id.into(),
        name: "f".into(),
        arguments: arguments.into(),
    };
    let expected = [
        reasoning("Hm", Some("sig"), None),
        reasoning("", None, Some("hidden")),
        called("a", "{\"x\":1.5,\"a\":[]}"),
        called("b", "{cut"),
    ];
    assert_eq!(request.messages[1].parts, expected);
    let result = |id: &str, text: &str, is_error| Part::ToolResult {
        id: id.into(),
        content: vec![Part::Text(text.into())],
        is_error,
    };
    let failed = "The arguments of this call are not a JSON object.";
    assert_eq!(request.messages[2].parts, [result("a", "done", false), result("b", failed, true)]);
}

/// The client keeps what a model wrote, and some servers read the arguments of every call.
#[test]
fn arguments_that_are_no_json_reach_no_provider_as_they_are() {
    let part = json!({ "type": "tool-f", "toolCallId": "a", "state": "output-error", "input": "{cut", "errorText": "no" });
    let request = parse(&assistant(json!([part]))).unwrap().request;
    let written = |dialect: Dialect| -> Value {
        serde_json::from_slice(&dialect.render_request(&request).unwrap().body).unwrap()
    };
    let told = "{\"arguments\":\"{cut\"}";
    assert_eq!(written(Dialect::OpenAiChat)["messages"][1]["tool_calls"][0]["function"]["arguments"], told);
    assert_eq!(written(Dialect::OpenAiResponses)["input"][1]["arguments"], told);
    assert_eq!(
        written(Dialect::Anthropic)["messages"][1]["content"][0]["input"],
        json!({ "arguments": "{cut" })
    );
}

fn refused(body: &Value, path: &str, words: &str) {
    let error = parse(body).expect_err(path);
    assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::InvalidRequest, Some(path)), "{body}");
    assert!(error.message.contains(words), "{}", error.message);
}

#[test]
fn errors_name_the_place() {
    let part = |part: Value| chat(json!([user(json!([{ "type": "text", "text": "a" }, part]))]));
    let at = |field: &str| format!("messages[0].parts[1]{field}");
    refused(&json!({ "id": "c" }), "messages", "required");
    refused(&chat(json!([])), "messages", "at least one");
    refused(&chat(json!({})), "messages", "a list");
    refused(&chat(json!(["a"])), "messages[0]", "an object");
    refused(&chat(json!([{ "parts": [] }])), "messages[0].role", "required");
    refused(&chat(json!([{ "role": "tool", "parts": [] }])), "messages[0].role", "assistant");
    refused(&chat(json!([{ "role": "user" }])), "messages[0].parts", "required");
    refused(&chat(json!([user(json!([{ "type": "data-x" }]))])), "messages[0].parts", "says nothing");
    refused(&part(json!({})), &at(".type"), "required");
    refused(&part(json!({ "type": "text" })), &at(".text"), "required");
    refused(&part(json!({ "type": "text", "text": 1 })), &at(".text"), "a string");
    refused(&part(json!({ "type": "reasoning", "text": "a" })), &at(".type"), "role `user`");
    refused(&part(json!({ "type": "tool-f" })), &at(".type"), "role `user`");
    let file =
        |media_type: &str, url: &str| part(json!({ "type": "file", "mediaType": media_type, "url": url }));
    refused(&file("", "https://example.com"), &at(".mediaType"), "required");
    refused(&file("audio/mp3", "https://example.com"), &at(".mediaType"), "audio/mp3");
    refused(&file("image/png", "blob:abc"), &at(".url"), "data URL");
    refused(&file("image/png", "data:image/png,AAAA"), &at(".url"), "base64");
    refused(&file("image/png", "data:image/png;base64"), &at(".url"), "base64");
    let system = chat(json!([{ "role": "system", "parts": [{ "type": "file" }] }]));
    refused(&system, "messages[0].parts[0].type", "role `system`");
}

#[test]
fn errors_of_tools_name_the_place() {
    let at = |field: &str| format!("messages[1].parts[0]{field}");
    let tool = |more: Value| {
        let mut part =
            json!({ "type": "tool-f", "toolCallId": "a", "state": "input-available", "input": {} });
        for (name, value) in more.as_object().unwrap() {
            part[name] = value.clone();
        }
        assistant(json!([part]))
    };
    refused(&tool(json!({ "toolCallId": null })), &at(".toolCallId"), "required");
    refused(&tool(json!({ "state": null })), &at(".state"), "required");
    refused(&tool(json!({ "type": "dynamic-tool" })), &at(".toolName"), "required");
    refused(&tool(json!({ "providerExecuted": true })), &at(".providerExecuted"), "ran itself");
    for state in ["approval-requested", "approval-responded", "output-denied"] {
        refused(&tool(json!({ "state": state })), &at(".state"), "release 5");
    }
    for kind in ["reasoning-file", "custom", "later"] {
        refused(&assistant(json!([{ "type": kind }])), &at(".type"), "release 5");
    }
    refused(&assistant(json!([{ "type": "file" }])), &at(".type"), "file of the assistant");
    let part = json!({ "type": "tool-f", "toolCallId": "a", "state": "input-available" });
    refused(&assistant(json!([part, part])), "messages[1].parts[1].toolCallId", "used before");
}

#[test]
fn ollamas_own_body_is_told_where_to_go() {
    let body =
        json!({ "model": "llama3", "messages": [{ "role": "user", "content": "Why?" }], "stream": false });
    refused(&body, "messages[0].content", "/v1/chat/completions");
    refused(&body, "messages[0].content", "Ollama");
}
