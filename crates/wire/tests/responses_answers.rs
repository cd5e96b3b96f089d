//! Whole answers of OpenAI Responses.

use firsttoken_wire::chat::{Answer, Part, Reasoning, StopReason, Usage};
use firsttoken_wire::{ErrorKind, Identity, openai_responses};
use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};

fn pretty(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    format!("{value:#}")
}

fn answer() -> Answer {
    let call = |id: &str, arguments: &str| Part::ToolCall {
        id: id.to_owned(),
        name: "get_weather".to_owned(),
        arguments: arguments.to_owned(),
    };
    let thought = Reasoning { text: "Hm".to_owned(), signature: Some("sig".to_owned()), redacted: None };
    let hidden = Reasoning { redacted: Some("gAAAA".to_owned()), ..Reasoning::default() };
    Answer {
        id: Some("resp_1".to_owned()),
        model: Some("fast".to_owned()),
        parts: vec![
            Part::Reasoning(thought),
            Part::Reasoning(hidden),
            Part::Text("Let me look.".to_owned()),
            call("call_a", "{\"city\":\"Paris\"}"),
            call("call_b", "{\"city\":\"Rome\"}"),
        ],
        citations: Vec::new(),
        usage: Usage {
            input_tokens: Some(20),
            cache_read_tokens: Some(16),
            cache_write_tokens: Some(2),
            output_tokens: Some(7),
            reasoning_tokens: Some(3),
        },
        stop: Some(StopReason::Tool),
    }
}

fn identity() -> Identity {
    let (id, model) = ("resp_1".to_owned(), "fast".to_owned());
    Identity { id, model, created: 1_700_000_000, include_usage: false }
}

#[test]
fn whole_answers_are_read_as_they_are_written() {
    let body = openai_responses::render_answer(&answer(), &identity());
    assert_snapshot!(pretty(&body));
    assert_eq!(openai_responses::parse_answer(&body).unwrap(), answer());
    for stop in
        [StopReason::Length, StopReason::Filter, StopReason::Cancelled, StopReason::Other("odd".to_owned())]
    {
        let cut = Answer { stop: Some(stop), ..answer() };
        let body = openai_responses::render_answer(&cut, &identity());
        assert_eq!(openai_responses::parse_answer(&body).unwrap(), cut);
    }
}

#[test]
fn a_call_that_was_cut_is_not_complete() {
    let cut = Part::ToolCall { id: "a".to_owned(), name: "f".to_owned(), arguments: "{\"a".to_owned() };
    let answer = Answer { parts: vec![cut.clone()], stop: Some(StopReason::Length), ..Answer::default() };
    let body = openai_responses::render_answer(&answer, &identity());
    let value: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(value["output"][0]["status"], "incomplete");
    assert_eq!(openai_responses::parse_answer(&body).unwrap().parts, [cut]);
}

#[test]
fn what_is_no_answer_is_an_error_of_the_upstream() {
    let read = |body: Value| openai_responses::parse_answer(body.to_string().as_bytes());
    let failed = json!({ "id": "r", "status": "failed", "output": [],
        "error": { "code": "rate_limit_exceeded", "message": "slow down" } });
    let error = read(failed).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::RateLimit, "slow down"));
    for body in [json!(3), json!({}), json!({ "output": 3 }), json!({ "output": [{ "type": "message" }] })] {
        assert_eq!(read(body.clone()).unwrap_err().kind, ErrorKind::Upstream, "{body}");
    }
    let ran = json!({ "output": [{ "type": "web_search_call", "id": "ws_1", "status": "completed" }] });
    assert_eq!(read(ran).unwrap().parts, []);
}

/// A field of an item, or none of its.
fn field() -> impl Strategy<Value = (String, Value)> {
    let key = prop::sample::select(vec![
        "type",
        "content",
        "summary",
        "encrypted_content",
        "call_id",
        "name",
        "arguments",
        "text",
    ]);
    let word = prop::sample::select(vec![
        "",
        "message",
        "reasoning",
        "function_call",
        "output_text",
        "refusal",
        "signature:",
        "{",
    ]);
    let leaf = prop_oneof![Just(Value::Null), any::<u8>().prop_map(Into::into), word.prop_map(Into::into)];
    let part = (leaf.clone(), leaf.clone()).prop_map(|(kind, text)| json!([{ "type": kind, "text": text }]));
    (key.prop_map(str::to_owned), prop_oneof![3 => leaf, 1 => part])
}

proptest! {
    #[test]
    fn no_answer_makes_it_panic(
        items in prop::collection::vec(prop::collection::vec(field(), 0..6), 0..4),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = openai_responses::parse_answer(&bytes);
        let items: Vec<Value> = items.into_iter().map(|item| item.into_iter().collect()).collect();
        let read = openai_responses::parse_answer(json!({ "output": items }).to_string().as_bytes());
        if let Ok(answer) = read {
            let body = openai_responses::render_answer(&answer, &identity());
            let mut again = openai_responses::parse_answer(&body).unwrap();
            for (part, was) in again.parts.iter_mut().zip(&answer.parts) {
                // A call without an id is known by its item's.
                if let (Part::ToolCall { id, .. }, Part::ToolCall { id: none, .. }) = (part, was)
                    && none.is_empty()
                {
                    id.clear();
                }
            }
            prop_assert_eq!(again.parts, answer.parts);
        }
    }
}
