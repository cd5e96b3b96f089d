//! Whole answers, from one dialect to another.

use firsttoken_wire::chat::{Answer, Part, Reasoning, StopReason};
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
    serde_json::from_str(include_str!("golden/answers/anthropic.json")).expect("JSON")
}

fn gpt() -> Value {
    serde_json::from_str(include_str!("golden/answers/openai_chat.json")).expect("JSON")
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
fn mistral_thinks_within_the_content() {
    let thinking = |text: &str| json!({ "type": "thinking", "thinking": [{ "type": "text", "text": text }] });
    let content = json!([thinking("Seven"), thinking(" is odd."), { "type": "text", "text": "Odd." }]);
    let body = json!({ "choices": [{ "message": { "role": "assistant", "content": content } }] });
    let thought = Reasoning { text: "Seven is odd.".to_owned(), ..Reasoning::default() };
    assert_eq!(
        parse(Dialect::OpenAiChat, &body).parts,
        [Part::Reasoning(thought), Part::Text("Odd.".to_owned())]
    );
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
