//! What the renderers write, byte for byte.

use firsttoken_wire::chat::{Event, Meta, Status, StopReason, Usage};
use firsttoken_wire::{ApiError, ErrorKind, anthropic, openai_chat, sse, typed};
use insta::assert_snapshot;

fn answer() -> Vec<Event<'static>> {
    vec![
        Event::Status(Status { phase: "queue", elapsed_ms: 0, ahead: Some(2), wait_ms: None }),
        Event::Start { id: "upstream-id".into(), model: "upstream-model".into() },
        Event::Ping,
        Event::Reasoning("Hm".into()),
        Event::Signature("sig".into()),
        Event::Redacted("opaque".into()),
        Event::Text("".into()),
        Event::Text("Hello \"you\"\n".into()),
        Event::Other,
        Event::ToolStart { index: 0, id: "call_a".into(), name: "f".into() },
        Event::ToolArguments { index: 0, json: "{\"a\":".into() },
        Event::ToolArguments { index: 0, json: "1}".into() },
        Event::ToolStart { index: 1, id: "call_b".into(), name: "g".into() },
        Event::ToolArguments { index: 1, json: "{}".into() },
        Event::Stop(StopReason::Tool),
        Event::Usage(Usage {
            input_tokens: Some(20),
            cache_read_tokens: Some(16),
            output_tokens: Some(7),
            ..Usage::default()
        }),
        Event::Meta(Meta {
            request_id: "req_1",
            model: Some("fast"),
            ttft_ms: Some(181.5),
            ..Meta::default()
        }),
        Event::End,
        Event::Text("after the end".into()),
    ]
}

fn written(events: &[Event<'_>], mut render: impl FnMut(&Event<'_>, &mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    events.iter().for_each(|event| render(event, &mut out));
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn openai_chat_stream() {
    let mut renderer = openai_chat::Renderer::new("chatcmpl-1", "fast", 1_700_000_000).include_usage(true);
    assert_snapshot!(written(&answer(), |event, out| renderer.render(event, out)));
}

#[test]
fn openai_chat_stream_without_usage() {
    let mut renderer = openai_chat::Renderer::new("chatcmpl-1", "fast", 1_700_000_000);
    let events = [Event::Text("a".into()), Event::Usage(Usage::default()), Event::End];
    assert_snapshot!(written(&events, |event, out| renderer.render(event, out)));
}

#[test]
fn anthropic_stream() {
    let mut renderer = anthropic::Renderer::new("msg_1", "fast");
    assert_snapshot!(written(&answer(), |event, out| renderer.render(event, out)));
}

#[test]
fn anthropic_calls_announced_together() {
    let mut renderer = anthropic::Renderer::new("msg_1", "fast");
    let events = [
        Event::ToolStart { index: 0, id: "a".into(), name: "f".into() },
        Event::ToolStart { index: 1, id: "b".into(), name: "g".into() },
        Event::ToolArguments { index: 0, json: "{}".into() },
        Event::ToolArguments { index: 1, json: "{}".into() },
        Event::ToolArguments { index: 7, json: "lost".into() },
        Event::End,
    ];
    assert_snapshot!(written(&events, |event, out| renderer.render(event, out)));
}

/// Text between a call and its arguments; what comes when its block is over can only be an error.
#[test]
fn anthropic_arguments_behind_other_content() {
    let call = |index, id: &'static str| Event::ToolStart { index, id: id.into(), name: "f".into() };
    let arguments = |index, json: &'static str| Event::ToolArguments { index, json: json.into() };
    let mut events =
        vec![call(0, "a"), arguments(0, "{\"a\":"), Event::Text("So".into()), arguments(0, "1}")];
    events.extend([call(1, "b"), arguments(0, " \n"), arguments(1, "{}")]);
    let mut renderer = anthropic::Renderer::new("msg_1", "fast");
    let good = written(&[&events[..], &[Event::End]].concat(), |event, out| renderer.render(event, out));
    assert_snapshot!(good);
    let mut renderer = anthropic::Renderer::new("msg_1", "fast");
    events.extend([arguments(0, "{}"), Event::End]);
    let broken = written(&events, |event, out| renderer.render(event, out));
    assert!(broken.contains("went on behind their end") && !broken.contains("message_stop"), "{broken}");
}

#[test]
fn typed_stream() {
    let mut renderer = typed::Renderer::new();
    assert_snapshot!(written(&answer(), |event, out| renderer.render(event, out)));
}

#[test]
fn typed_error_is_last() {
    let mut renderer = typed::Renderer::new().request_id("req_1");
    let error = ApiError::new(ErrorKind::Timeout, "The provider fell silent.").code("stall_timeout");
    let events = [Event::Text("Hel".into()), Event::Error(error), Event::Text("lo".into()), Event::End];
    assert_snapshot!(written(&events, |event, out| renderer.render(event, out)));
}

#[test]
fn a_chunk_without_choices_is_told_from_all_others() {
    let check = |data: &str| {
        let frame = format!("data: {data}\n\n");
        sse::events(frame.as_bytes()).all(|event| openai_chat::has_no_choices(&event))
    };
    assert!(check(r#"{"id":"a","choices":[],"usage":{"prompt_tokens":1}}"#));
    assert!(check(r#"{"usage": {"prompt_tokens": 1}, "choices" : [ ]}"#));
    assert!(!check(r#"{"object":"choices","usage":{"prompt_tokens":1}}"#));
    assert!(!check(r#"{"choices":[{"delta":{"content":"\"choices\":[]"}}],"usage":{"prompt_tokens":1}}"#));
    assert!(!check("[DONE]"));
}
