//! What a mouth says when it is given tokens, and that forms and guesses get along.

use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::ids::{RequestId, Tenant};
use firsttoken_logic::engine::scheduler::{Limits, Scheduler};
use firsttoken_logic::engine::sequence::Priority;
use serde_json::json;

use std::sync::atomic::AtomicU64;

use super::*;
use crate::draft::Draft;
use crate::driver::Stepped;
use crate::fake::{Fake, Language, Machine};
use crate::grammar::{Form, Grammars};
use crate::tools::{Calls, Family, form};
use crate::vocabulary::Bytes;

fn vocabulary() -> Bytes {
    Bytes::new(&["<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]"], false)
}

fn compile(form: &Form) -> Grammar {
    Grammars::new(&vocabulary()).unwrap().compile(form).unwrap()
}

fn mouth(manner: Manner) -> (Mouth, mpsc::Receiver<Piece>) {
    // Nobody listens until all is said.
    let (sender, pieces) = mpsc::channel(2 * WHOLE);
    (Mouth::new(manner, &[], Arc::new(vocabulary()), sender, Arc::default()), pieces)
}

/// What was handed over: deltas of a kind joined, and the end.
fn heard(pieces: &mut mpsc::Receiver<Piece>) -> (Vec<Delta>, Option<End>) {
    let (mut deltas, mut end): (Vec<Delta>, _) = (Vec::new(), None);
    while let Ok(piece) = pieces.try_recv() {
        assert_eq!(end, None, "nothing comes after the end");
        match piece {
            Piece::Said(said, _) => said.into_iter().for_each(|delta| join(&mut deltas, delta)),
            Piece::End(ended) => end = Some(ended),
            Piece::Refused(why) => panic!("{why:?}"),
        }
    }
    (deltas, end)
}

fn join(deltas: &mut Vec<Delta>, next: Delta) {
    match (deltas.last_mut(), next) {
        (Some(Delta::Text(text)), Delta::Text(more))
        | (Some(Delta::Reasoning(text)), Delta::Reasoning(more)) => text.push_str(&more),
        (Some(Delta::Arguments { json, .. }), Delta::Arguments { json: more, .. }) => json.push_str(&more),
        (_, next) => deltas.push(next),
    }
}

/// What is told of a model that writes `text`, and then ends.
fn told(manner: Manner, text: &str) -> (Vec<Delta>, End) {
    let (mut mouth, mut pieces) = mouth(manner);
    let mut flow = Flow::More;
    for token in vocabulary().tokenize(text, true).into_iter().chain(vocabulary().eos()) {
        assert_ne!(flow, Flow::End, "it ended before its text did");
        flow = mouth.on_token(token, false);
    }
    assert_eq!(flow, Flow::End);
    let (deltas, end) = heard(&mut pieces);
    (deltas, end.unwrap())
}

fn hermes() -> Expect {
    Expect { family: Some(Family::Hermes), names: vec!["time".to_owned()], ..Expect::default() }
}

const CALLING: &str = "<think>well</think>Sure.\n<tool_call>\n{\"name\": \"time\", \"arguments\": {\"zone\": \"CET\"}}\n</tool_call>";

#[test]
fn thinking_text_and_calls_are_told_apart() {
    let (deltas, end) = told(Manner { expect: Some(hermes()), ..Manner::default() }, CALLING);
    let [
        Delta::Reasoning(thought),
        Delta::Text(text),
        Delta::CallBegin { name, .. },
        arguments,
        Delta::CallEnd { .. },
    ] = &deltas[..]
    else {
        panic!("{deltas:?}");
    };
    assert_eq!((thought.as_str(), text.as_str(), name.as_str()), ("well", "Sure.", "time"));
    assert_eq!(*arguments, Delta::Arguments { index: 0, json: "{\"zone\": \"CET\"}".to_owned() });
    assert_eq!(end.reason, Reason::Called);
    // The four letters, and the mark that ends them.
    assert_eq!(end.thought, 5);
    assert_eq!(end.generated as usize, vocabulary().tokenize(CALLING, true).len() + 1);
}

#[test]
fn without_expectations_text_is_as_it_stands_and_marks_are_none() {
    let (deltas, end) = told(Manner::default(), "<think>well</think> {\"name\"");
    assert_eq!(deltas, [Delta::Text("well {\"name\"".to_owned())]);
    assert_eq!((end.reason, end.thought), (Reason::Finished, 0));
}

/// Lets the mouth choose, from a model that would rather end than say one of `wish`, and rather that than
/// anything else.
fn chosen(mouth: &mut Mouth, wish: &[u8], most: usize) -> usize {
    let mut logits = vec![0.0; vocabulary().size() as usize];
    wish.iter().for_each(|byte| logits[usize::from(*byte)] = 10.0);
    if most == WHOLE {
        logits[vocabulary().eos().unwrap() as usize] = 20.0;
    }
    for count in 1..=most {
        let token = mouth.choose(&logits);
        if mouth.on_token(token, false) == Flow::End {
            return count;
        }
    }
    most
}

/// More tokens than any of these forms has: up to its end.
const WHOLE: usize = 1000;

fn greedy() -> Sampling {
    Sampling { temperature: 0.0, ..Sampling::default() }
}

#[test]
fn a_form_holds_against_the_models_wish_and_ends_when_it_is_whole() {
    let schema = json!({"enum": ["red", "green"]});
    let form = Some(compile(&Form::Schema(schema)));
    let manner = Manner { sampling: greedy(), form, ignore_end: true, ..Manner::default() };
    let (mut mouth, mut pieces) = mouth(manner);
    assert_eq!(chosen(&mut mouth, b"g", 100), "\"green\"".len());
    let (deltas, end) = heard(&mut pieces);
    assert_eq!(deltas, [Delta::Text("\"green\"".to_owned())]);
    assert_eq!(end.unwrap().reason, Reason::Finished);
}

#[test]
fn thinking_has_no_form() {
    let form = Some(compile(&Form::Regex("[0-9]{3}".to_owned())));
    let expect = Some(Expect { is_thinking: true, ..Expect::default() });
    let (mut mouth, mut pieces) = mouth(Manner { sampling: greedy(), form, expect, ..Manner::default() });
    assert_eq!(chosen(&mut mouth, b"x", 4), 4);
    assert_eq!(mouth.on_token(vocabulary().special("</think>").unwrap(), false), Flow::More);
    assert_eq!(chosen(&mut mouth, b"x", WHOLE), 3);
    let (deltas, end) = heard(&mut pieces);
    let expected = [Delta::Reasoning("xxxx".to_owned()), Delta::Text("000".to_owned())];
    assert_eq!((&deltas[..], end.unwrap().reason), (&expected[..], Reason::Finished));
}

#[test]
fn a_call_that_has_to_be_made_is_made_in_every_family() {
    let schema = json!({
        "$defs": {"zone": {"enum": ["CET", "UTC"]}},
        "type": "object", "properties": {"zone": {"$ref": "#/$defs/zone"}}, "required": ["zone"],
        "additionalProperties": false,
    });
    for family in [Family::Hermes, Family::Llama3, Family::Mistral, Family::Generic] {
        for many in [false, true] {
            let calls = Calls { family, tools: vec![("day", &schema), ("time", &schema)], many };
            let form = Some(compile(&form(&calls, None, &vocabulary())));
            let expect = Expect {
                family: Some(family),
                names: vec!["day".into(), "time".into()],
                ..Expect::default()
            };
            let (mut mouth, mut pieces) =
                mouth(Manner { sampling: greedy(), form, expect: Some(expect), ..Manner::default() });
            assert!(chosen(&mut mouth, b"t]", WHOLE) < WHOLE);
            let (deltas, end) = heard(&mut pieces);
            assert_eq!(end.unwrap().reason, Reason::Called);
            let first = deltas.iter().find_map(|delta| match delta {
                Delta::CallBegin { name, .. } => Some(name.as_str()),
                _ => None,
            });
            assert_eq!(first, Some("time"), "{family:?}: {deltas:?}");
            let json = deltas.iter().find_map(|delta| match delta {
                Delta::Arguments { json, .. } => Some(json.as_str()),
                _ => None,
            });
            let arguments: serde_json::Value = serde_json::from_str(json.unwrap()).unwrap();
            assert!(arguments["zone"].is_string(), "{family:?}: {arguments}");
            assert!(!deltas.iter().any(|delta| matches!(delta, Delta::Text(_))), "{family:?}: {deltas:?}");
        }
    }
}

#[test]
fn an_answer_may_stand_in_the_place_of_calls() {
    let (arguments, answer) = (json!({"type": "object"}), json!({"enum": [7]}));
    let calls = Calls { family: Family::Hermes, tools: vec![("time", &arguments)], many: false };
    let form = Some(compile(&form(&calls, Some(&answer), &vocabulary())));
    let manner = Manner { sampling: greedy(), form, expect: Some(hermes()), ..Manner::default() };
    let (mut mouth, mut pieces) = mouth(manner);
    assert_eq!(chosen(&mut mouth, b"7", WHOLE), 1);
    assert_eq!(heard(&mut pieces).0, [Delta::Text("7".to_owned())]);
}

/// The text of an answer, and how many steps it took; with a draft that is wrong so often, if there is one.
fn spoken(language: Language, manner: Manner, astray_percent: Option<u64>) -> (Vec<Delta>, u64) {
    let (limits, time) = (Limits::default(), Arc::new(AtomicU64::new(0)));
    // Weights are what a step reads longest: rows more are cheap.
    let machine = Machine { step_ns: 20_000_000, row_ns: 400_000, ..Machine::default() };
    let fake = Fake::new(limits.cells, limits.ids, language, machine).moving(&time);
    let draft = Fake::new(limits.cells, limits.ids, language, Machine::DRAFT).moving(&time);
    let clock = move || firsttoken_logic::time::Instant::from_ns(time.load(Relaxed));
    let (engine, seat) = Engine::new();
    let mut driver = seat.driver(fake, Scheduler::new(limits, StepCost::default()), || {}, clock);
    if let Some(percent) = astray_percent {
        let draft = Draft::new(draft.astray(percent), StepCost::default());
        driver = driver.with_draft(draft, |failed| panic!("{failed}"));
    }
    let request = Request {
        id: RequestId(0),
        tenant: Tenant(0),
        // What would follow here has no place in the form.
        prompt: b"uvwxyz{|}~ uvwxyz{|}~ uvw".iter().map(|byte| u32::from(*byte)).collect(),
        output_max: 100,
        priority: Priority::Interactive,
        itl_target: None,
        deadline: None,
    };
    let mut ear = speak(&engine, request, manner, Arc::new(vocabulary())).unwrap();
    while driver.step().unwrap() == Stepped::Worked {}
    (heard(&mut ear.pieces).0, engine.status().counters.steps)
}

#[test]
fn a_guess_that_the_form_forbids_is_wrong() {
    let letters: String = ('x'..='z').chain(('a'..='z').cycle()).take(60).collect();
    let lettered = |guesses_max, astray| {
        let form = Some(compile(&Form::Regex("[a-z]{60}".to_owned())));
        let manner = Manner { sampling: greedy(), form, guesses_max, ..Manner::default() };
        spoken(Language::Looping(256), manner, astray)
    };
    let (plain, steps) = lettered(0, None);
    assert_eq!(plain, [Delta::Text(letters)]);
    for (guesses_max, astray) in [(8, None), (0, Some(0)), (0, Some(20)), (8, Some(20))] {
        let (guessed, fewer) = lettered(guesses_max, astray);
        assert_eq!(guessed, plain);
        assert!(fewer < steps * 3 / 4, "{fewer} steps with guesses, {steps} without");
    }
}

#[test]
fn draws_are_the_same_with_a_draft_and_without() {
    for seed in 0..20 {
        let drawn = |astray| {
            let sampling = Sampling { temperature: 2.0, seed, ..Sampling::default() };
            spoken(Language::Hashed, Manner { sampling, ignore_end: true, ..Manner::default() }, astray)
        };
        let (plain, steps) = drawn(None);
        for astray in [0, 20, 100] {
            let (guessed, fewer) = drawn(Some(astray));
            assert_eq!(guessed, plain, "seed {seed}");
            // Each model that is alike draws alike.
            assert!(fewer <= steps && (astray > 0 || fewer < steps / 2), "{fewer} steps, {steps} without");
        }
    }
}
