//! The typed events as chunks of the AI SDK: every stream of `tests/golden/typed` is what we render, and
//! no order of events makes a stream that release 5.0.0 of `ai` would refuse. `tests/clients/ui` lets
//! the real releases judge the same files. Run with `UPDATE_GOLDEN=1` to write them anew.

mod valid;

use std::fs;
use std::path::Path;

use firsttoken_wire::chat::{Event, Meta, Status, StopReason, Usage};
use firsttoken_wire::sse::events;
use firsttoken_wire::typed::Renderer;
use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use valid::typed::{Judged, judge};

fn status(phase: &'static str, elapsed_ms: u64) -> Event<'static> {
    Event::Status(Status { phase, elapsed_ms, ahead: None, wait_ms: None })
}

fn call(index: u32, id: &'static str, name: &'static str) -> Event<'static> {
    Event::ToolStart { index, id: id.into(), name: name.into() }
}

fn arguments(index: u32, json: &'static str) -> Event<'static> {
    Event::ToolArguments { index, json: json.into() }
}

fn silent() -> Event<'static> {
    let error = ApiError::new(ErrorKind::Timeout, "The provider fell silent.").code("stall_timeout");
    Event::Error(error.retry_after_s(2))
}

fn meta() -> Event<'static> {
    Event::Meta(Meta {
        request_id: "req_1",
        model: Some("fast"),
        upstream: Some("openai"),
        ttft_ms: Some(181.5),
        overhead_ms: Some(0.4),
        usage: Some(Usage { input_tokens: Some(20), output_tokens: Some(7), ..Usage::default() }),
    })
}

/// The streams by name, each as it would come from an upstream.
fn streams() -> Vec<(&'static str, Vec<Event<'static>>)> {
    let stop = |reason| [Event::Stop(reason), meta(), Event::End];
    let mut text = vec![status("accepted", 0), status("provider", 31), Event::Ping];
    text.extend([Event::Start { id: "theirs".into(), model: "theirs".into() }]);
    text.extend([Event::Text("Hello".into()), Event::Text("! \"Quoted\",\n zwölf 🦀".into())]);
    text.extend(stop(StopReason::Stop));

    let mut reasoning = vec![Event::Reasoning("Let me ".into()), Event::Reasoning("see.".into())];
    reasoning.extend([Event::Signature("c2lnbmVk".into()), Event::Redacted("aGlkZGVu".into())]);
    reasoning.extend([Event::Reasoning("Unsigned.".into()), Event::Text("42".into())]);
    reasoning.extend(stop(StopReason::Length));

    let mut tools = vec![Event::Text("I look.".into()), call(0, "call_a", "get_weather")];
    tools.extend([arguments(0, "{\"city\":"), arguments(0, "\n\"Paris\"}"), call(1, "call_b", "get_time")]);
    tools.extend(stop(StopReason::Tool));

    let mut together = vec![call(0, "call_a", "f"), call(1, "call_b", "f"), call(2, "call_c", "f")];
    together.extend([arguments(1, "{\"b\":1}"), arguments(0, "{\"a\":0}"), arguments(2, "{\"cut\":")]);
    together.extend(stop(StopReason::Length));

    let counted = Usage { input_tokens: Some(3), output_tokens: Some(0), ..Usage::default() };
    vec![
        ("text", text),
        ("reasoning", reasoning),
        ("tools", tools),
        ("tools_together", together),
        ("empty", vec![Event::Usage(counted), Event::End]),
        ("error_at_once", vec![status("accepted", 0), silent()]),
        ("error_mid_stream", vec![status("accepted", 0), Event::Text("Hel".into()), silent(), Event::End]),
    ]
}

fn rendered(mut renderer: Renderer, events: &[Event<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    events.iter().for_each(|event| renderer.render(event, &mut out));
    out
}

#[test]
fn golden_streams_are_what_we_render() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/typed");
    for (name, events) in streams() {
        let stream = rendered(Renderer::new().request_id("req_1"), &events);
        let path = folder.join(name).with_extension("sse");
        if update {
            fs::write(&path, &stream).unwrap();
        }
        let golden = fs::read(&path).unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&stream), String::from_utf8_lossy(&golden), "{name}");
        judge(&stream).unwrap();
    }
}

#[test]
fn an_answer_may_go_on_with_a_message() {
    let renderer = Renderer::new().request_id("req_2").message_id("msg-of-the-app");
    let stream = rendered(renderer, &[Event::Text("more".into()), Event::End]);
    let chunks = judge(&stream).unwrap().chunks;
    let metadata = json!({ "requestId": "req_2" });
    assert_eq!(
        chunks[0],
        json!({ "type": "start", "messageId": "msg-of-the-app", "messageMetadata": metadata })
    );
}

#[test]
fn arguments_are_bounded() {
    let piece = "x".repeat(600_000);
    let arguments = || Event::ToolArguments { index: 0, json: piece.as_str().into() };
    let stream = rendered(Renderer::new(), &[call(0, "a", "f"), arguments(), arguments(), Event::End]);
    let mut parser = Dialect::Typed.parser();
    let mut last = String::new();
    for event in events(&stream) {
        parser.parse(&event, &mut |event| {
            if event != Event::Other {
                last = format!("{event:?}");
            }
        });
    }
    assert!(last.starts_with("Error(") && last.contains("tool_arguments_too_large"), "{last}");
}

fn event() -> impl Strategy<Value = Event<'static>> {
    let text = || prop_oneof![any::<String>(), Just("data: [DONE]\n\n".to_owned()), Just(String::new())];
    let piece = prop_oneof![Just("{}"), Just("{\"a\":"), Just("1}"), Just(" \n"), Just("{\"a\":\r\n{}}")];
    let piece = prop_oneof![piece.prop_map(str::to_owned), any::<String>()];
    let id = prop_oneof![Just(""), Just("a"), Just("b"), Just("call__0"), Just("c")];
    prop_oneof![
        4 => text().prop_map(|text| Event::Text(text.into())),
        4 => text().prop_map(|text| Event::Reasoning(text.into())),
        2 => text().prop_map(|text| Event::Signature(text.into())),
        1 => text().prop_map(|text| Event::Redacted(text.into())),
        3 => (0..3_u32, id).prop_map(|(index, id)| call(index, id, "f")),
        6 => (0..4_u32, piece).prop_map(|(index, json)| Event::ToolArguments { index, json: json.into() }),
        1 => any::<u8>().prop_map(|n| Event::Usage(Usage { output_tokens: Some(n.into()), ..Usage::default() })),
        1 => Just(Event::Stop(StopReason::Stop)),
        1 => Just(meta()),
        1 => Just(status("provider", 3)),
        1 => Just(Event::Ping),
        1 => Just(Event::Other),
        1 => Just(Event::Start { id: "x".into(), model: "y".into() }),
    ]
}

/// What the events say, gathered without a renderer.
fn gathered(events: &[Event<'_>]) -> Judged {
    let mut all = Judged::default();
    let mut indices: Vec<u32> = Vec::new();
    for event in events {
        match event {
            Event::Text(text) => all.text.push_str(text),
            Event::Reasoning(text) => all.reasoning.push_str(text),
            Event::Signature(text) | Event::Redacted(text) if !text.is_empty() => {
                all.proofs.push(text.clone().into_owned());
            }
            Event::ToolStart { index, id, .. } => {
                indices.push(*index);
                all.calls.push((id.clone().into_owned(), String::new(), Value::Null));
            }
            Event::ToolArguments { index, json } => {
                if let Some(at) = indices.iter().rposition(|known| known == index) {
                    all.calls[at].1.push_str(json);
                }
            }
            _ => {}
        }
    }
    all
}

/// Spaces behind a whole input say nothing and may go.
fn dense(text: &str) -> String {
    text.split_whitespace().collect()
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_a_stream(
        mut events in vec(event(), 0..40),
        ends in prop_oneof![Just(Some(Event::End)), Just(Some(silent())), Just(None)],
    ) {
        events.extend(ends.clone());
        let judged = judge(&rendered(Renderer::new(), &events)).map_err(TestCaseError::fail)?;
        let said = gathered(&events);
        prop_assert_eq!(&judged.text, &said.text);
        prop_assert_eq!(&judged.reasoning, &said.reasoning);
        prop_assert_eq!(&judged.proofs, &said.proofs);
        prop_assert_eq!(judged.finished, ends == Some(Event::End));
        prop_assert_eq!(judged.failed, ends.is_some_and(|end| end != Event::End));
        prop_assert_eq!(judged.calls.len(), said.calls.len());
        for ((_, got, input), (_, pieces, _)) in judged.calls.iter().zip(&said.calls) {
            prop_assert_eq!(dense(got), dense(pieces));
            if judged.finished {
                let expected = match serde_json::from_str(got) {
                    Ok(object @ Value::Object(_)) => object,
                    _ if got.trim().is_empty() => json!({}),
                    _ => json!(got),
                };
                prop_assert_eq!(input, &expected);
            }
        }
    }
}
