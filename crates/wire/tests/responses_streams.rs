//! Streams of OpenAI Responses as we write them: byte for byte, valid whatever the events are, and read
//! back as what they were.

mod valid;

use firsttoken_wire::chat::{Event, StopReason, Usage};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, openai_responses, sse};
use insta::assert_snapshot;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use valid::responses::check;

fn renderer() -> openai_responses::Renderer {
    openai_responses::Renderer::new("resp_1", "fast", 1_700_000_000)
}

fn rendered(events: &[Event<'_>]) -> Vec<u8> {
    let (mut renderer, mut out) = (renderer(), Vec::new());
    events.iter().for_each(|event| renderer.render(event, &mut out));
    out
}

fn written(events: &[Event<'_>]) -> String {
    String::from_utf8_lossy(&rendered(events)).into_owned()
}

/// What a stream says, without what says nothing. Written down, because events borrow.
fn said(stream: &[u8]) -> Vec<String> {
    let (mut parser, mut all) = (Dialect::OpenAiResponses.parser(), Vec::new());
    for event in sse::events(stream) {
        parser.parse(&event, &mut |event| {
            if event != Event::Other {
                all.push(format!("{event:?}"));
            }
        });
    }
    all
}

fn call(index: u32) -> Event<'static> {
    Event::ToolStart { index, id: format!("call_{index}").into(), name: "f".into() }
}

fn arguments(index: u32, json: &'static str) -> Event<'static> {
    Event::ToolArguments { index, json: json.into() }
}

fn usage() -> Usage {
    Usage {
        input_tokens: Some(20),
        cache_read_tokens: Some(16),
        cache_write_tokens: Some(2),
        output_tokens: Some(7),
        reasoning_tokens: Some(0),
    }
}

#[test]
fn a_stream() {
    let events = [
        Event::Start { id: "upstream-id".into(), model: "upstream-model".into() },
        Event::Ping,
        Event::Reasoning("Hm".into()),
        Event::Reasoning("…".into()),
        Event::Signature("sig".into()),
        Event::Redacted("gAAAA".into()),
        Event::Text("".into()),
        Event::Text("Hello \"you\"\n".into()),
        Event::Other,
        call(0),
        arguments(0, "{\"a\":"),
        arguments(0, "1}"),
        Event::Stop(StopReason::Tool),
        Event::Usage(usage()),
        Event::End,
        Event::Text("after the end".into()),
    ];
    assert_snapshot!(written(&events));
}

#[test]
fn calls_whose_arguments_come_in_turns() {
    let events = [
        call(0),
        call(1),
        arguments(1, "{\"b\":"),
        arguments(0, "{}"),
        Event::Text("Both.".into()),
        arguments(1, "2}"),
        arguments(7, "lost"),
        Event::Stop(StopReason::Tool),
        Event::End,
    ];
    assert_snapshot!(written(&events));
}

#[test]
fn a_stream_that_was_cut() {
    let events = [
        call(0),
        arguments(0, "{}"),
        call(1),
        arguments(1, "{\"b\":"),
        Event::Stop(StopReason::Length),
        Event::End,
    ];
    let stream = rendered(&events);
    check(&stream).unwrap();
    let end = terminal(&stream);
    assert_eq!(end["type"], "response.incomplete");
    assert_eq!(end["response"]["incomplete_details"]["reason"], "max_output_tokens");
    let statuses: Vec<&str> = end["response"]["output"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["status"].as_str())
        .collect();
    assert_eq!(statuses, ["completed", "incomplete"]);
}

#[test]
fn an_end_that_nobody_explained_is_not_a_good_one() {
    let end = terminal(&rendered(&[Event::Text("a".into()), Event::End]));
    assert_eq!(
        (end["type"].as_str(), end["response"]["status"].as_str()),
        (Some("response.incomplete"), Some("incomplete"))
    );
    assert_eq!(end["response"]["incomplete_details"], Value::Null);
}

#[test]
fn an_error_is_last() {
    let error = ApiError::new(ErrorKind::Timeout, "The provider fell silent.").code("stall_timeout");
    let events = [Event::Text("Hel".into()), Event::Error(error), Event::Text("lo".into()), Event::End];
    let stream = written(&events);
    let last = stream.trim_end().rsplit("\n\n").next().unwrap_or_default();
    assert_snapshot!(last);
    assert_eq!(
        said(stream.as_bytes()).last().map(String::as_str),
        Some(
            "Error(ApiError { kind: Timeout, message: \"The provider fell silent.\", param: None, code: Some(\"stall_timeout\"), retry_after_s: None })"
        )
    );
}

#[test]
fn a_signature_without_a_text_is_still_one() {
    for event in
        [Event::Signature("sig".into()), Event::Redacted("gAAAA".into()), Event::Redacted("a\"b".into())]
    {
        let expected = format!("{event:?}");
        let stream = rendered(&[event, Event::Text("a".into()), Event::End]);
        check(&stream).unwrap();
        assert_eq!(said(&stream)[1], expected);
    }
}

#[test]
fn an_answer_too_long_to_repeat_does_not_look_whole() {
    let megabyte = "x".repeat(1 << 20);
    let mut events = vec![call(0), arguments(0, "{\"a\":1}")];
    events.extend((0..6).map(|_| Event::Text(megabyte.as_str().into())));
    events.extend([
        Event::Reasoning("b".into()),
        Event::Text("c".into()),
        Event::Stop(StopReason::Stop),
        Event::End,
    ]);
    let stream = rendered(&events);
    let texts = sse::events(&stream).filter(|event| event.name == Some("response.output_text.delta"));
    assert_eq!(texts.count(), 7, "every delta is there");
    let end = terminal(&stream);
    assert_eq!(end["response"]["status"], "incomplete");
    assert_eq!(end["response"]["incomplete_details"]["reason"], "answer_too_long");
    let said = said(&stream);
    assert_eq!(said[said.len() - 2], "Stop(Other(\"answer_too_long\"))");
    assert!(end["response"].to_string().len() < 2_000, "what is over is forgotten");
}

fn terminal(stream: &[u8]) -> Value {
    let last = sse::events(stream).filter(|event| event.has_data).last();
    last.and_then(|event| serde_json::from_slice(&event.data).ok()).unwrap_or_default()
}

/// Any event, in any order; a call may be unknown, announced twice, or go on late.
fn event() -> impl Strategy<Value = Event<'static>> {
    let text = || any::<String>();
    prop_oneof![
        8 => text().prop_map(|text| Event::Text(text.into())),
        4 => text().prop_map(|text| Event::Reasoning(text.into())),
        2 => text().prop_map(|text| Event::Signature(text.into())),
        2 => text().prop_map(|text| Event::Redacted(text.into())),
        3 => (0..4_u32, "[a-z]{0,3}").prop_map(|(index, id)| Event::ToolStart { index, id: id.into(), name: "f".into() }),
        6 => (0..5_u32, text()).prop_map(|(index, json)| Event::ToolArguments { index, json: json.into() }),
        1 => Just(Event::Start { id: "a".into(), model: "b".into() }),
        1 => Just(Event::Ping),
        1 => Just(Event::Other),
        1 => Just(Event::Usage(usage())),
        1 => prop_oneof![Just(StopReason::Stop), Just(StopReason::Length), Just(StopReason::Filter)].prop_map(Event::Stop),
    ]
}

/// All texts of a kind in one.
fn all(events: &[Event<'_>], pick: impl Fn(&Event<'_>) -> Option<String>) -> String {
    events.iter().filter_map(pick).collect()
}

proptest! {
    #[test]
    fn any_events_make_a_valid_stream(mut events in vec(event(), 0..40), fails: bool) {
        events.push(if fails { Event::Error(ApiError::new(ErrorKind::Upstream, "broke")) } else { Event::End });
        let stream = rendered(&events);
        check(&stream).map_err(TestCaseError::fail)?;
        // Nothing is lost or said twice.
        let (mut text, mut reasoning) = (String::new(), String::new());
        let mut parser = Dialect::OpenAiResponses.parser();
        for frame in sse::events(&stream) {
            parser.parse(&frame, &mut |event| match event {
                Event::Text(said) => text.push_str(&said),
                Event::Reasoning(said) => reasoning.push_str(&said),
                _ => {}
            });
        }
        prop_assert_eq!(text, all(&events, |event| match event { Event::Text(text) => Some(text.to_string()), _ => None }));
        prop_assert_eq!(reasoning, all(&events, |event| match event { Event::Reasoning(text) => Some(text.to_string()), _ => None }));
    }

    #[test]
    fn it_reads_what_it_renders(content in vec(event(), 0..20), stop in 0..4_usize) {
        // As a model speaks: calls are numbered in order and named once.
        let (mut events, mut calls) = (vec![Event::Start { id: "resp_1".into(), model: "fast".into() }], 0);
        for event in content {
            match event {
                Event::Text(text) | Event::Reasoning(text) | Event::Signature(text) | Event::Redacted(text) if text.is_empty() => {}
                Event::Redacted(sealed) if sealed.starts_with("signature:") => {}
                Event::ToolStart { .. } => { events.push(call(calls)); calls += 1; }
                Event::ToolArguments { index, json } if index < calls && !json.is_empty() => {
                    events.push(Event::ToolArguments { index, json });
                }
                Event::Text(_) | Event::Reasoning(_) | Event::Signature(_) | Event::Redacted(_) => events.push(event),
                _ => {}
            }
        }
        let good = if calls > 0 { StopReason::Tool } else { StopReason::Stop };
        let stops = [good, StopReason::Length, StopReason::Filter, StopReason::Other("odd".to_owned())];
        events.extend([Event::Usage(usage()), Event::Stop(stops[stop].clone()), Event::End]);
        let stream = rendered(&events);
        check(&stream).map_err(TestCaseError::fail)?;
        let expected: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
        prop_assert_eq!(said(&stream), expected);
    }
}
