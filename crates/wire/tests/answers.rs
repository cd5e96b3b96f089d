//! Whole answers, from one dialect to another.

use firsttoken_wire::chat::{Answer, Part, StopReason};
use firsttoken_wire::{Dialect, ErrorKind, Identity};
use insta::assert_snapshot;
use serde_json::{Value, json};

fn identity() -> Identity {
    Identity { id: "id-1".to_owned(), model: "fast".to_owned(), created: 1_700_000_000, include_usage: false }
}

fn parse(dialect: Dialect, body: &Value) -> Answer {
    dialect.parse_answer(body.to_string().as_bytes()).expect("known")
}

fn render(dialect: Dialect, answer: &Answer) -> Value {
    serde_json::from_slice(&dialect.render_answer(answer, &identity())).expect("known")
}

fn claude() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [
            { "type": "thinking", "thinking": "A tool.", "signature": "sig" },
            { "type": "redacted_thinking", "data": "opaque" },
            { "type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {} },
            { "type": "text", "text": "Let me look.", "citations": null },
            { "type": "tool_use", "id": "toolu_a", "name": "look", "input": { "at": 1 } },
            { "type": "tool_use", "id": "toolu_b", "name": "look", "input": {} }],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": { "input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 0,
            "output_tokens": 20, "output_tokens_details": { "thinking_tokens": 5 } },
    })
}

fn gpt() -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5",
        "choices": [
            { "index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": {
                "role": "assistant", "content": "Let me look.", "refusal": null, "annotations": [],
                "reasoning_content": "A tool.",
                "tool_calls": [{ "id": "call_a", "type": "function", "function": { "name": "look", "arguments": "{\"at\":1}" } }] } },
            { "index": 1, "finish_reason": "stop", "message": { "role": "assistant", "content": "second" } }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": { "cached_tokens": 90, "audio_tokens": 0 },
            "completion_tokens_details": { "reasoning_tokens": 5 } },
    })
}

#[test]
fn anthropic_to_openai() {
    let rendered = render(Dialect::OpenAiChat, &parse(Dialect::Anthropic, &claude()));
    assert_snapshot!(format!("{rendered:#}"));
}

#[test]
fn openai_to_anthropic() {
    let rendered = render(Dialect::Anthropic, &parse(Dialect::OpenAiChat, &gpt()));
    assert_snapshot!(format!("{rendered:#}"));
}

#[test]
fn there_and_back() {
    for (own, other, body) in [
        (Dialect::Anthropic, Dialect::OpenAiChat, claude()),
        (Dialect::OpenAiChat, Dialect::Anthropic, gpt()),
    ] {
        let answer = parse(own, &body);
        let named = Answer { id: Some("id-1".to_owned()), model: Some("fast".to_owned()), ..answer.clone() };
        assert_eq!(parse(own, &render(own, &answer)), named, "{own:?} to itself");
        let mut back = parse(other, &render(other, &answer));
        // A count that one side always gives is not known to the other.
        back.usage.cache_write_tokens = back.usage.cache_write_tokens.or(answer.usage.cache_write_tokens);
        assert_eq!(back, named, "{own:?} to {other:?}");
    }
}

#[test]
fn answers_that_say_little() {
    let nothing = Answer::default();
    let rendered = render(Dialect::OpenAiChat, &nothing);
    assert_eq!(
        rendered["choices"][0]["message"],
        json!({ "role": "assistant", "content": null, "refusal": null })
    );
    assert_eq!(rendered["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(rendered.get("usage"), None);
    let rendered = render(Dialect::Anthropic, &nothing);
    assert_eq!(rendered["content"], json!([]));
    assert_eq!(rendered["usage"], json!({ "output_tokens": 0, "input_tokens": 0 }));
    assert_eq!(rendered["stop_reason"], Value::Null);
    let filtered = json!({ "choices": [{ "message": { "content": null, "refusal": "No." }, "finish_reason": "content_filter" }] });
    let answer = parse(Dialect::OpenAiChat, &filtered);
    assert_eq!((answer.parts, answer.stop), (vec![Part::Text("No.".to_owned())], Some(StopReason::Filter)));
}

#[test]
fn what_servers_make_of_it() {
    let odd = json!({ "choices": [{ "message": {
        "content": [{ "type": "text", "text": "a" }, { "type": "thinking", "thinking": [] }, { "type": "text", "text": "b" }],
        "reasoning": "Hm.",
        "tool_calls": [
            { "id": "x", "function": { "name": "f", "arguments": { "a": 1 } } }, { "function": { "name": "g" } }, "junk"],
    } }] });
    let call = |id: &str, name: &str, arguments: &str| Part::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let answer = parse(Dialect::OpenAiChat, &odd);
    assert_eq!(
        answer.parts[1..],
        [
            Part::Text("a".to_owned()),
            Part::Text("b".to_owned()),
            call("x", "f", "{\"a\":1}"),
            call("", "g", "")
        ]
    );
    assert!(
        matches!(&answer.parts[0], Part::Reasoning(block) if block.text == "Hm." && block.signature.is_none())
    );
    let rendered = render(Dialect::Anthropic, &answer);
    assert_eq!(rendered["content"][0], json!({ "type": "thinking", "thinking": "Hm.", "signature": "" }));
}

#[test]
fn what_is_no_answer() {
    for (dialect, body) in [
        (Dialect::OpenAiChat, json!({ "choices": [] })),
        (Dialect::OpenAiChat, json!("x")),
        (Dialect::Anthropic, json!({ "content": "x" })),
        (Dialect::Anthropic, json!([])),
    ] {
        let error = dialect.parse_answer(body.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Upstream, "{body}");
    }
    let failed = json!({ "error": { "message": "too many", "type": "overloaded_error" } });
    for dialect in [Dialect::OpenAiChat, Dialect::Anthropic] {
        let error = dialect.parse_answer(failed.to_string().as_bytes()).unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Overloaded, "too many"));
    }
}
