//! What models write, family by family, and what is read from it.

use firsttoken_engine::text::Characters;
use firsttoken_engine::tools::{Delta, Expect, Family, Parser, opens_thinking};
use insta::assert_snapshot;
use proptest::prelude::*;

const FAMILIES: [Family; 4] = [Family::Hermes, Family::Llama3, Family::Mistral, Family::Generic];

fn expect(family: impl Into<Option<Family>>) -> Expect {
    let names = vec!["weather".to_owned(), "time".to_owned()];
    Expect { family: family.into(), names, is_thinking: false, seed: 1 }
}

/// What comes of `pieces` of a text, equal neighbours joined.
fn read<'a>(expect: Expect, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Delta> {
    let (mut parser, mut characters) = (Parser::new(expect), Characters::default());
    let (mut deltas, mut text) = (Vec::new(), String::new());
    for piece in pieces {
        text.clear();
        characters.push(piece, &mut text);
        let mut out = Vec::new();
        parser.push(&text, &mut out);
        deltas.extend(out);
    }
    parser.finish(&mut deltas);
    deltas.into_iter().fold(Vec::new(), join)
}

fn join(mut deltas: Vec<Delta>, next: Delta) -> Vec<Delta> {
    match (deltas.last_mut(), next) {
        (Some(Delta::Text(text)), Delta::Text(more))
        | (Some(Delta::Reasoning(text)), Delta::Reasoning(more)) => {
            text.push_str(&more);
        }
        (Some(Delta::Arguments { json, .. }), Delta::Arguments { json: more, .. }) => json.push_str(&more),
        (_, next) => deltas.push(next),
    }
    deltas
}

fn whole(expect: Expect, text: &str) -> Vec<Delta> {
    read(expect, std::iter::once(text.as_bytes()))
}

/// Deltas as lines, after a check that every split gives the same.
fn lines(expect: &Expect, text: &str) -> String {
    let deltas = whole(expect.clone(), text);
    for at in 0..=text.len() {
        let (before, after) = text.as_bytes().split_at(at);
        assert_eq!(read(expect.clone(), [before, after].into_iter()), deltas, "split at byte {at} of {text}");
    }
    assert_eq!(read(expect.clone(), text.as_bytes().chunks(1)), deltas, "byte by byte: {text}");
    let line = |delta: &Delta| match delta {
        Delta::Text(text) => format!("  text {text:?}"),
        Delta::Reasoning(text) => format!("  reasoning {text:?}"),
        Delta::CallBegin { index, id, name } => format!("  call {index} {id} {name}"),
        Delta::Arguments { index, json } => format!("  arguments {index} {json}"),
        Delta::CallEnd { index } => format!("  end {index}"),
    };
    let lines: Vec<_> = deltas.iter().map(line).collect();
    format!("{text:?}\n{}", lines.join("\n"))
}

fn golden(expect: &Expect, texts: &[&str]) -> String {
    texts.iter().map(|text| lines(expect, text)).collect::<Vec<_>>().join("\n")
}

#[test]
fn hermes() {
    assert_snapshot!(golden(
        &expect(Family::Hermes),
        &[
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\", \"deep\": {\"a\": [1, \"}\"]}}}\n</tool_call>",
            "Let me look. \n<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"other\"}</tool_call>\n\
         <tool_call>\n{\"name\": \"time\"}\n</tool_call>\n",
            "<think>\nWhich city?\n</think>\n\n<tool_call>{\"name\":\"weather\",\"arguments\":\"{\\\"city\\\":\\\"Bonn\\\"}\"}</tool_call>done",
            "a <tool_call>nothing</tool_call> and <tool",
            "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"K",
            "<tool_call>{\"name\": 5}</tool_call>",
            "<tool_call>{\"name\": \"weather\", \"arg",
            "<tool_call>{\"name\": \"weather\", \"arguments\": null, \"id\": \"abc\"}}</tool_call>",
            "1 < 2, <b>bold</b> and {\"name\": \"weather\", \"arguments\": {}}",
        ]
    ));
}

#[test]
fn llama3() {
    assert_snapshot!(golden(
        &expect(Family::Llama3),
        &[
            "{\"name\": \"weather\", \"parameters\": {\"city\": \"Köln\"}}",
            "\n\n{\"type\": \"function\", \"name\": \"weather\", \"parameters\": {}}; {\"name\": \"time\", \"parameters\": {\"zone\": 1}}",
            "<|python_tag|>{\"name\": \"weather\", \"parameters\": {}}",
            "<|python_tag|>weather.call(city=\"Köln\")",
            "{\"name\": \"Ada\", \"born\": 1815}",
            "{\"answer\": {\"name\": \"weather\"}}",
            "Here: {\"name\": \"weather\", \"parameters\": {}}",
            "{\"name\": \"weather\", \"parameters\": {}}, and so on",
            "{",
        ]
    ));
}

#[test]
fn mistral() {
    assert_snapshot!(golden(
        &expect(Family::Mistral),
        &[
            "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}, \"id\": \"Vva1b2c3d\"}]",
            "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {}}, {\"name\": \"time\", \"arguments\": {\"l\": [[1], 2]}}]",
            "[TOOL_CALLS]weather[ARGS]{\"city\": \"Köln\"}[TOOL_CALLS]time[CALL_ID]Abcdefgh1[ARGS]{}",
            "[TOOL_CALLS]weather{\"city\": \"Bonn\"}",
            "[TOOL_CALLS] none of them",
            "[TOOL_CALLS] []",
            "[1] and [TOOL",
        ]
    ));
}

#[test]
fn generic() {
    assert_snapshot!(golden(
        &expect(Family::Generic),
        &[
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}}",
            "[{\"name\": \"weather\", \"parameters\": {}}, {\"name\": \"time\", \"arguments\": {}}]",
            "[1, 2]",
            "{\"name\": \"nobody\", \"arguments\": {}}",
            "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>",
        ]
    ));
}

#[test]
fn thinking() {
    let begun = Expect { is_thinking: true, ..Expect::default() };
    assert!(opens_thinking("<|Assistant|><think>\n") && !opens_thinking("<think>\n\n</think>\n\n"));
    assert_snapshot!(golden(&begun, &["\nHm, 1 < 2.\n\n So.\n</think>\n\nYes.\n", "never ends </thi"]));
    assert_snapshot!(
        "thinking_marked",
        golden(
            &Expect::default(),
            &["\n<think>a</think>b", "<think></think>\n\nb", "The mark <think> in a text</think>",]
        )
    );
}

#[test]
fn what_is_sure_is_out_at_once() {
    let mut parser = Parser::new(expect(Family::Hermes));
    let mut said = |text: &str| {
        let mut out = Vec::new();
        parser.push(text, &mut out);
        out
    };
    assert_eq!(said("Well"), [Delta::Text("Well".to_owned())]);
    assert_eq!(said(" <tool_call>{\"name\": \"time\", \"arguments\": "), []);
    assert_eq!(said("{\"a").len(), 2, "the call and its first arguments");
    assert_eq!(said("\": 1"), [Delta::Arguments { index: 0, json: "\": 1".to_owned() }]);
    let mut json = Parser::new(expect(Family::Llama3));
    let mut out = Vec::new();
    json.push("{\"answer\":", &mut out);
    assert_eq!(out, [Delta::Text("{\"answer\":".to_owned())], "an answer in JSON streams");
}

#[test]
fn families_are_known_by_their_templates() {
    let of = |name: &str| match name {
        "chatml" => Family::of_template(include_str!("templates/chatml.jinja")),
        "llama3" => Family::of_template(include_str!("templates/llama3.jinja")),
        "mistral" => Family::of_template(include_str!("templates/mistral.jinja")),
        _ => Family::of_template(include_str!("templates/gemma.jinja")),
    };
    assert_eq!(["chatml", "llama3", "mistral", "gemma"].map(of), FAMILIES);
}

/// Pieces of what models write, in any order.
fn soup() -> impl Strategy<Value = String> {
    let pieces = vec![
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[",
        "]",
        "{\"name\": \"weather\", \"arguments\": ",
        "{\"name\": \"x\", ",
        "\"parameters\": ",
        "{\"a\": \"b\\\"\"}",
        "{",
        "}",
        ", ",
        ";",
        "\n",
        " ",
        "é",
        "word",
        "\"",
        ":",
        "<",
        "weather",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_says_the_same(text in soup(), family in 0..5_usize, is_thinking: bool, cut in 1..7_usize) {
        let expect = Expect { is_thinking, ..expect(FAMILIES.get(family).copied()) };
        let deltas = whole(expect.clone(), &text);
        prop_assert_eq!(&read(expect, text.as_bytes().chunks(cut)), &deltas);
        // Calls come one after the other, each with an end, and arguments only within.
        let mut open = None;
        let mut next = 0;
        for delta in deltas {
            match delta {
                Delta::CallBegin { index, id, .. } => {
                    prop_assert!(open.is_none() && index == next && !id.is_empty());
                    open = Some(index);
                }
                Delta::Arguments { index, .. } => prop_assert_eq!(open, Some(index)),
                Delta::CallEnd { index } => {
                    prop_assert_eq!(open.take(), Some(index));
                    next += 1;
                }
                Delta::Text(_) | Delta::Reasoning(_) => prop_assert!(open.is_none()),
            }
        }
        prop_assert!(open.is_none());
    }

    #[test]
    fn text_without_a_call_is_text(text in "[a-z<>{}\\[\\]\":,/_ \\n]{0,60}", family in 0..5_usize) {
        let said = whole(expect(FAMILIES.get(family).copied()), &text);
        let said: String = said.into_iter().map(|delta| match delta {
            Delta::Text(text) => text,
            other => format!("{other:?}"),
        }).collect();
        prop_assert_eq!(said, text);
    }
}
