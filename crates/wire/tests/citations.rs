//! Where a text comes from, in every dialect that has a word for it.

use firsttoken_wire::chat::{Answer, Citation, Event, Part, StopReason};
use firsttoken_wire::{Dialect, Identity};
use serde_json::{Value, json};

mod valid;

use valid::said::{Said, translated};

fn citation() -> Citation<'static> {
    Citation {
        start: 0,
        end: 3,
        url: "/samples/billing/refunds#2".into(),
        title: "Refunds \"and\" more".into(),
        passage: "Money\ncomes back.".into(),
    }
}

fn identity() -> Identity {
    Identity { id: "a".to_owned(), model: "m".to_owned(), created: 1, include_usage: false }
}

/// A Chat Completions stream that cites.
fn stream() -> Vec<u8> {
    let (mut renderer, mut out) = (Dialect::OpenAiChat.renderer(&identity()), Vec::new());
    let events = [
        Event::Text("[2]".into()),
        Event::Citation(citation()),
        Event::Text(" Money comes back.".into()),
        Event::Stop(StopReason::Stop),
        Event::End,
    ];
    events.iter().for_each(|event| renderer.render(event, &mut out));
    out
}

#[test]
fn a_stream_that_cites_does_so_in_every_dialect_that_can() {
    for to in [Dialect::OpenAiChat, Dialect::Typed] {
        let (told, out) = translated(Dialect::OpenAiChat, to, &stream());
        assert_eq!(told.citations, [citation()]);
        assert_eq!(Said::of(to, &[&out]).citations, [citation()], "{to:?}");
    }
    for to in valid::RENDERED {
        let (_, out) = translated(Dialect::OpenAiChat, to, &stream());
        valid::check(to, &out).unwrap();
        assert_eq!(Said::of(to, &[&out]).text, "[2] Money comes back.", "{to:?}");
    }
}

#[test]
fn responses_add_an_annotation_and_repeat_it_in_what_is_done() {
    let (_, out) = translated(Dialect::OpenAiChat, Dialect::OpenAiResponses, &stream());
    let events: Vec<Value> = firsttoken_wire::sse::events(&out)
        .map(|event| serde_json::from_slice(&event.data).unwrap())
        .collect();
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
    let added = of("response.output_text.annotation.added");
    assert_eq!((&added["annotation_index"], &added["content_index"]), (&json!(0), &json!(0)));
    let annotation = &added["annotation"];
    assert_eq!((&annotation["type"], &annotation["end_index"]), (&json!("url_citation"), &json!(3)));
    let whole = &of("response.completed")["response"]["output"][0]["content"][0];
    assert_eq!(whole["annotations"], json!([annotation]));
}

#[test]
fn a_whole_answer_cites() {
    let answer = Answer {
        id: Some("a".to_owned()),
        model: Some("m".to_owned()),
        parts: vec![Part::Text("[2] Money comes back.".to_owned())],
        citations: vec![citation()],
        stop: Some(StopReason::Stop),
        ..Answer::default()
    };
    let chat = Dialect::OpenAiChat.render_answer(&answer, &identity());
    assert_eq!(Dialect::OpenAiChat.parse_answer(&chat).unwrap(), answer);
    let responses: Value =
        serde_json::from_slice(&Dialect::OpenAiResponses.render_answer(&answer, &identity())).unwrap();
    let annotations = &responses["output"][0]["content"][0]["annotations"];
    assert_eq!(annotations[0]["url"], "/samples/billing/refunds#2");
}

#[test]
fn an_annotation_that_cites_no_address_costs_nothing() {
    let chunk = json!({"choices": [{"delta": {"content": "a", "annotations": [
        7, {"type": "file_citation", "file_citation": {}}, {"type": "url_citation", "url_citation": {"url": 7}},
        {"type": "url_citation", "url_citation": {"url": "u", "start_index": -1, "title": null}},
    ]}}]});
    let said = Said::of(Dialect::OpenAiChat, &[format!("data: {chunk}\n\n").as_bytes()]);
    assert_eq!(said.text, "a");
    assert_eq!(said.citations, [Citation { url: "u".into(), ..Citation::default() }]);
}
