//! What must hold for every input: the splitter loses nothing, what is rendered is read back, and no
//! bytes make anything panic.

mod valid;

use std::borrow::Cow;

use bytes::Bytes;
use firsttoken_wire::chat::{Event, StopReason, Usage};
use firsttoken_wire::sse::{Split, Splitter, events};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity, anthropic, openai_chat, typed};
use proptest::collection::vec;
use proptest::prelude::*;

const DIALECTS: [Dialect; 6] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiResponses,
    Dialect::OpenAiCompletions,
    Dialect::OpenAiOther,
    Dialect::Anthropic,
    Dialect::Typed,
];

/// Bytes in which line ends and fields are frequent.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("\n"),
        Just("\r"),
        Just("\r\n"),
        Just("\n\n"),
        Just("\r\n\r\n"),
        Just("data: x"),
        Just("data"),
        Just("event: e"),
        Just(": c"),
        Just("id: 1"),
        Just("é"),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes())
}

fn cut(bytes: &[u8], cuts: &[usize]) -> Vec<Bytes> {
    let mut cuts: Vec<usize> = cuts.iter().map(|at| at % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| Bytes::copy_from_slice(&bytes[pair[0]..pair[1]])).collect()
}

fn dispatched(block: &[u8]) -> Vec<(Option<String>, Vec<u8>)> {
    let with_data = events(block).filter(|event| event.has_data);
    with_data.map(|event| (event.name.map(str::to_owned), event.data.into_owned())).collect()
}

proptest! {
    #[test]
    fn splitting_loses_nothing(bytes in stream(), cuts in vec(any::<usize>(), 0..8), bound in 0..80_usize) {
        let mut splitter = Splitter::new(bound);
        let (mut out, mut seen, mut overlong) = (Vec::new(), Vec::new(), false);
        for chunk in cut(&bytes, &cuts) {
            match splitter.push(chunk) {
                Split::Whole(block) => {
                    prop_assert!(!overlong && !block.is_empty());
                    let tiled: Vec<u8> = events(&block).flat_map(|event| event.raw.to_vec()).collect();
                    prop_assert_eq!(&tiled, &block);
                    seen.extend(dispatched(&block));
                    out.extend_from_slice(&block);
                }
                Split::Partial => prop_assert!(!overlong && splitter.tail_len() <= bound),
                Split::Overlong(raw) => {
                    overlong = true;
                    out.extend_from_slice(&raw);
                }
            }
        }
        if !overlong {
            prop_assert_eq!(seen, dispatched(&bytes));
        }
        out.extend_from_slice(&splitter.take_tail());
        prop_assert_eq!(out, bytes);
    }

    #[test]
    fn no_bytes_make_a_codec_panic(bytes in prop_oneof![stream(), vec(any::<u8>(), 0..200), json()], status in any::<u16>()) {
        let frame = [b"data: ".as_slice(), &bytes, b"\n\n"].concat();
        for dialect in DIALECTS {
            let mut parser = dialect.parser();
            for event in events(&bytes).chain(events(&frame)) {
                parser.parse(&event, &mut |_| {});
                let _ = openai_chat::has_no_choices(&event);
            }
            let error = dialect.parse_error_body(status, &bytes);
            prop_assert!(error.message.len() < 5_000);
            let _ = dialect.facts(&bytes);
            if let Ok(answer) = dialect.parse_answer(&bytes) {
                for dialect in DIALECTS {
                    let _ = dialect.render_answer(&answer, &Identity::default());
                }
            }
        }
        let requests = [openai_chat::parse_request(&bytes), anthropic::parse_request(&bytes), typed::parse_request(&bytes), typed::parse_ui_request(&bytes).map(|ui| ui.request)];
        for request in requests.into_iter().flatten() {
            for dialect in DIALECTS {
                let _ = dialect.render_request(&request);
            }
        }
    }
}

/// Frames of the right words with values of any type.
fn json() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<i64>().prop_map(Into::into),
        prop_oneof![
            Just("text_delta"),
            Just("content_block_delta"),
            Just("message_delta"),
            Just("response.completed"),
            Just("tool_use"),
            Just("tool-f"),
            Just("tool-input-delta"),
            Just("tool-input-available"),
            Just("output-available"),
            Just("finish"),
            Just("user"),
            Just("assistant"),
            Just("")
        ]
        .prop_map(Into::into),
    ];
    let key = prop_oneof![
        Just("type"),
        Just("choices"),
        Just("delta"),
        Just("content"),
        Just("usage"),
        Just("error"),
        Just("index"),
        Just("message"),
        Just("messages"),
        Just("role"),
        Just("model"),
        Just("tool_calls"),
        Just("function"),
        Just("response"),
        Just("item"),
        Just("output_index"),
        Just("system"),
        Just("tools"),
        Just("text"),
        Just("parts"),
        Just("state"),
        Just("toolCallId"),
        Just("toolName"),
        Just("messageMetadata"),
        Just("providerMetadata"),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(serde_json::Value::Array),
            vec((key.clone(), inner), 0..5)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
    .prop_map(|value| value.to_string().into_bytes())
}

/// An answer as a model gives it.
#[derive(Clone, Debug)]
struct Answer {
    pieces: Vec<Piece>,
    usage: Usage,
    stop: StopReason,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Reasoning(String),
    Signature(String),
    Redacted(String),
    Tool { name: String, arguments: Vec<String> },
}

fn answer() -> impl Strategy<Value = Answer> {
    let text = any::<String>().prop_filter("content is not empty", |text| !text.is_empty());
    let piece = prop_oneof![
        text.clone().prop_map(Piece::Text),
        text.clone().prop_map(Piece::Reasoning),
        text.clone().prop_map(Piece::Signature),
        text.clone().prop_map(Piece::Redacted),
        ("[a-z_]{1,9}", vec(text, 0..3)).prop_map(|(name, arguments)| Piece::Tool { name, arguments }),
    ];
    let stop = prop_oneof![
        Just(StopReason::Stop),
        Just(StopReason::Length),
        Just(StopReason::Tool),
        Just(StopReason::Filter),
        Just(StopReason::Other("odd".to_owned())),
    ];
    let usage = any::<[u16; 5]>().prop_map(|[uncached, read, write, output, reasoning]| Usage {
        input_tokens: Some(u64::from(uncached) + u64::from(read) + u64::from(write)),
        cache_read_tokens: Some(read.into()),
        cache_write_tokens: Some(write.into()),
        output_tokens: Some(output.into()),
        reasoning_tokens: Some(reasoning.into()),
    });
    (vec(piece, 0..12), usage, stop).prop_map(|(pieces, usage, stop)| Answer { pieces, usage, stop })
}

impl Answer {
    fn content(&self) -> Vec<Event<'static>> {
        let (mut all, mut calls) = (Vec::new(), 0);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => all.push(Event::Text(Cow::Owned(text.clone()))),
                Piece::Reasoning(text) => all.push(Event::Reasoning(Cow::Owned(text.clone()))),
                Piece::Signature(text) => all.push(Event::Signature(Cow::Owned(text.clone()))),
                Piece::Redacted(data) => all.push(Event::Redacted(Cow::Owned(data.clone()))),
                Piece::Tool { name, arguments } => {
                    let index = calls;
                    calls += 1;
                    let id = format!("call_{index}").into();
                    all.push(Event::ToolStart { index, id, name: name.clone().into() });
                    all.extend(
                        arguments
                            .iter()
                            .map(|json| Event::ToolArguments { index, json: json.clone().into() }),
                    );
                }
            }
        }
        all
    }

    fn events(&self) -> Vec<Event<'static>> {
        let mut all = vec![Event::Start { id: "id".into(), model: "m".into() }];
        all.extend(self.content());
        all.extend([Event::Stop(self.stop.clone()), Event::Usage(self.usage), Event::End]);
        all
    }
}

fn rendered(events: &[Event<'_>], mut render: impl FnMut(&Event<'_>, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    events.iter().for_each(|event| render(event, &mut out));
    out
}

/// What a stream says, without what says nothing. Written down, because events borrow.
fn said(dialect: Dialect, stream: &[u8]) -> Vec<String> {
    let mut parser = dialect.parser();
    let mut all = Vec::new();
    for event in events(stream) {
        parser.parse(&event, &mut |event| {
            if event != Event::Other {
                all.push(format!("{event:?}"));
            }
        });
    }
    all
}

fn written(events: impl IntoIterator<Item = Event<'static>>) -> Vec<String> {
    events.into_iter().map(|event| format!("{event:?}")).collect()
}

proptest! {
    #[test]
    fn openai_chat_reads_what_it_renders(answer in answer()) {
        let mut renderer = openai_chat::Renderer::new("id", "m", 1).include_usage(true);
        let stream = rendered(&answer.events(), |event, out| renderer.render(event, out));
        prop_assert_eq!(said(Dialect::OpenAiChat, &stream), written(answer.events()));
    }

    #[test]
    fn anthropic_reads_what_it_renders(answer in answer()) {
        let mut renderer = anthropic::Renderer::new("id", "m");
        let stream = rendered(&answer.events(), |event, out| renderer.render(event, out));
        let got = said(Dialect::Anthropic, &stream);
        let counts = |line: &&String| line.starts_with("Usage");
        let without: Vec<String> = got.iter().filter(|line| !counts(line)).cloned().collect();
        let mut expected = answer.events();
        expected.retain(|event| !matches!(event, Event::Usage(_)));
        prop_assert_eq!(without, written(expected));
        prop_assert_eq!(got.iter().rfind(counts).cloned(), written([Event::Usage(answer.usage)]).pop());
        valid::anthropic::check(&stream).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn typed_reads_what_it_renders(answer in answer()) {
        let mut renderer = typed::Renderer::new();
        let stream = rendered(&answer.events(), |event, out| renderer.render(event, out));
        let mut expected = vec![Event::Start { id: "".into(), model: "".into() }];
        expected.extend(answer.content());
        expected.extend([Event::Usage(answer.usage), Event::Stop(answer.stop), Event::End]);
        prop_assert_eq!(said(Dialect::Typed, &stream), written(expected));
        let ids: Vec<u64> = events(&stream).filter_map(|event| event.id?.parse().ok()).collect();
        prop_assert_eq!(ids, (1..=renderer.last_id()).collect::<Vec<u64>>());
    }

    #[test]
    fn nothing_follows_an_error(answer in answer(), at in any::<prop::sample::Index>()) {
        let mut all = answer.events();
        let at = at.index(all.len());
        let error = ApiError::new(ErrorKind::Timeout, "silent").code("timeout");
        all.insert(at, Event::Error(error.clone()));
        let mut openai = openai_chat::Renderer::new("id", "m", 1);
        let mut claude = anthropic::Renderer::new("id", "m");
        let mut ours = typed::Renderer::new();
        for (dialect, stream) in [
            (Dialect::OpenAiChat, rendered(&all, |event, out| openai.render(event, out))),
            (Dialect::Anthropic, rendered(&all, |event, out| claude.render(event, out))),
            (Dialect::Typed, rendered(&all, |event, out| ours.render(event, out))),
        ] {
            let said = said(dialect, &stream);
            prop_assert!(said.iter().all(|line| line != "End" && line != "Malformed"));
            let last = said.last().cloned().unwrap_or_default();
            prop_assert!(last.starts_with("Error(ApiError { kind: Timeout, message: \"silent\""), "{}", last);
        }
    }
}

/// What a provider may say, in any order: calls are numbered as they come, arguments may come in turns.
fn anything() -> impl Strategy<Value = Vec<Event<'static>>> {
    let text = || any::<String>().prop_filter("content is not empty", |text| !text.is_empty());
    let piece = prop_oneof![Just("{}"), Just("{\"a\":"), Just("1}"), Just(" "), Just("[")];
    let event = prop_oneof![
        4 => text().prop_map(|text| Event::Text(text.into())),
        2 => text().prop_map(|text| Event::Reasoning(text.into())),
        1 => text().prop_map(|text| Event::Signature(text.into())),
        1 => "[a-z]{1,9}".prop_map(|text| Event::Redacted(text.into())),
        3 => "[a-z]{0,2}".prop_map(|id| Event::ToolStart { index: 0, id: id.into(), name: "f".into() }),
        6 => (0..4_u32, piece).prop_map(|(index, json)| Event::ToolArguments { index, json: json.into() }),
        1 => Just(Event::Usage(Usage { output_tokens: Some(3), ..Usage::default() })),
        1 => Just(Event::Ping),
        1 => Just(Event::Other),
    ];
    let end = prop_oneof![
        Just(vec![Event::Stop(StopReason::Stop), Event::End]),
        Just(vec![Event::Stop(StopReason::Tool), Event::End]),
        Just(vec![Event::End]),
        Just(vec![Event::Error(ApiError::new(ErrorKind::Timeout, "silent"))]),
    ];
    (vec(event, 0..30), end).prop_map(|(mut events, end)| {
        let mut calls = 0;
        for event in &mut events {
            if let Event::ToolStart { index, .. } = event {
                *index = calls;
                calls += 1;
            }
        }
        events.into_iter().chain(end).collect()
    })
}

proptest! {
    #[test]
    fn any_order_of_events_is_valid_in_every_dialect(events in anything()) {
        for dialect in valid::RENDERED {
            let identity = Identity { include_usage: true, ..Identity::default() };
            let (mut renderer, mut said) = (dialect.renderer(&identity), valid::said::Said::default());
            events.iter().for_each(|event| said.hear(event));
            let stream = rendered(&events, |event, out| renderer.render(event, out));
            let read = valid::said::Said::of(dialect, &[&stream]);
            let checked = valid::check(dialect, &stream).and_then(|()| said.survives_in(dialect, &read));
            let stream = String::from_utf8_lossy(&stream);
            prop_assert!(checked.is_ok(), "{:?}: {:?}\n{}", dialect, checked, stream);
        }
    }
}
