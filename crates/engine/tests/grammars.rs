//! Constrained answers: whatever a mask lets through has the form, however foolish the model.

use firsttoken_engine::grammar::{FORM_BYTES_MAX, Form, GrammarError, Grammars};
use firsttoken_engine::sample::{Random, Sampler, Sampling, Scratch};
use firsttoken_engine::vocabulary::{Bytes, Vocabulary as _};
use insta::assert_snapshot;
use serde_json::{Value, json};

fn vocabulary() -> Bytes {
    Bytes::new(&["<|im_start|>"], false)
}

fn grammars() -> Grammars {
    Grammars::new(&vocabulary()).expect("a vocabulary of bytes")
}

/// What a model says that knows nothing but the mask; it closes what it opened a little rather than
/// not, or it would go on for ever. None where it had not finished after so many tokens.
fn babble(grammars: &Grammars, form: &Form, seed: u64) -> Option<String> {
    let vocabulary = vocabulary();
    let mut grammar = grammars.compile(form).expect("a form");
    let bias =
        b"\"}],".iter().map(|byte| (u32::from(*byte), 3.0)).chain(vocabulary.eos().map(|end| (end, 6.0)));
    let sampling = Sampling { seed, bias: bias.collect(), ..Sampling::default() };
    let (mut sampler, mut scratch) = (Sampler::new(sampling, &[]), Scratch::default());
    let mut noise = Random::new(seed ^ 0x5eed);
    let mut bytes = Vec::new();
    for _ in 0..4000 {
        let logits: Vec<f32> = (0..vocabulary.size()).map(|_| noise.uniform() * 2.0).collect();
        let mask = grammar.mask().expect("a mask");
        let token = sampler.sample(&mut scratch, &logits, Some(mask)).expect("no dead end");
        grammar.advance(token).expect("what the mask allows");
        if vocabulary.is_end(token) {
            return Some(String::from_utf8(bytes).expect("text"));
        }
        assert!(!vocabulary.is_special(token), "a grammar of text allows no marks");
        vocabulary.push_piece(token, false, &mut bytes);
    }
    None
}

/// All that some seeds say, and that most of them come to an end.
fn babbles(form: &Form) -> Vec<String> {
    let grammars = grammars();
    let said: Vec<_> = (0..40).filter_map(|seed| babble(&grammars, form, seed)).collect();
    assert!(said.len() >= 20, "{} of 40 ended", said.len());
    said
}

#[test]
fn babble_under_a_schema_fits_it() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "kind": {"enum": ["cat", "dog", null]},
            "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
        },
        "required": ["name", "age", "kind", "tags"],
        "additionalProperties": false,
    });
    for text in babbles(&Form::Schema(schema)) {
        let value: Value = serde_json::from_str(&text).expect(&text);
        let object = value.as_object().expect("an object");
        assert_eq!(object.len(), 4, "{text}");
        assert!(value["name"].as_str().is_some_and(|name| name.chars().count() <= 12), "{text}");
        assert!(value["age"].as_u64().is_some_and(|age| age <= 150), "{text}");
        assert!([json!("cat"), json!("dog"), Value::Null].contains(&value["kind"]), "{text}");
        let tags = value["tags"].as_array().expect("a list");
        assert!((1..=3).contains(&tags.len()) && tags.iter().all(Value::is_boolean), "{text}");
    }
}

#[test]
fn babble_under_json_object_is_one() {
    for text in babbles(&Form::JsonObject) {
        assert!(serde_json::from_str::<Value>(&text).expect(&text).is_object(), "{text}");
    }
}

#[test]
fn a_schema_may_refer_to_itself() {
    let schema = json!({
        "$defs": {"tree": {"type": "object", "properties": {"sub": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["sub"], "additionalProperties": false}},
        "$ref": "#/$defs/tree",
    });
    fn is_tree(value: &Value) -> bool {
        value["sub"].as_array().is_some_and(|sub| sub.iter().all(is_tree))
    }
    for text in babbles(&Form::Schema(schema)) {
        assert!(is_tree(&serde_json::from_str(&text).expect(&text)), "{text}");
    }
}

#[test]
fn a_grammar_and_an_expression_are_followed() {
    let lark = Form::Lark("start: sum\nsum: NUMBER (\"+\" NUMBER)*\nNUMBER: /[1-9][0-9]{0,3}/\n".to_owned());
    for text in babbles(&lark) {
        assert!(text.split('+').all(|number| number.parse::<u16>().is_ok_and(|n| n > 0)), "{text}");
    }
    for text in babbles(&Form::Regex("(yes|no), (sir|madam)".to_owned())) {
        assert!(["yes, sir", "yes, madam", "no, sir", "no, madam"].contains(&text.as_str()), "{text}");
    }
}

#[test]
fn a_grammar_goes_forth_and_back() {
    let mut grammar = grammars().compile(&Form::Regex("abc?".to_owned())).unwrap();
    let [a, b, c, end] = [97, 98, 99, 257];
    assert_eq!(grammar.allowed(&[a, b, b, c]).unwrap(), 2);
    assert!(grammar.mask().unwrap().allows(a) && !grammar.mask().unwrap().allows(b));
    grammar.advance(a).unwrap();
    let mut other = grammar.clone();
    grammar.advance(b).unwrap();
    assert!(grammar.may_end().unwrap() && grammar.mask().unwrap().allows(end));
    grammar.advance(c).unwrap();
    grammar.rollback(2).unwrap();
    assert!(!grammar.may_end().unwrap() && grammar.mask().unwrap().allows(b));
    assert!(other.mask().unwrap().allows(b), "a copy stays where it was");
    other.advance(b).unwrap();
    other.advance(c).unwrap();
    assert!(other.is_finished(), "nothing can follow");
    let mask = other.mask().unwrap();
    let allowed: Vec<_> = (0..vocabulary().size()).filter(|token| mask.allows(*token)).collect();
    assert_eq!(allowed, [end]);
    assert!(matches!(grammar.advance(c), Err(GrammarError::Stuck(_))), "the mask said no");
}

#[test]
fn a_form_that_cannot_be_is_refused_before_anything_is_computed() {
    let grammars = grammars();
    let said = |form: Form| grammars.compile(&form).unwrap_err().to_string();
    assert_snapshot!(
        [
            said(Form::Schema(json!({"type": "objekt"}))),
            said(Form::Schema(json!("text"))),
            said(Form::Schema(json!({"$ref": "#/$defs/nothing"}))),
            said(Form::Schema(json!({"$ref": "https://example.com/schema.json"}))),
            said(Form::Schema(json!({"type": "integer", "minimum": 5, "maximum": 4}))),
            said(Form::Lark("start: nothing\n".to_owned())),
            said(Form::Lark("start: \"a\n".to_owned())),
            said(Form::Lark(String::new())),
            said(Form::Regex("(a".to_owned())),
            said(Form::Lark("(".repeat(100))),
            said(Form::Regex("a".repeat(FORM_BYTES_MAX + 1))),
        ]
        .join("\n")
    );
}

/// A grammar as long as it may be, of rules that each need the next.
fn chain(name: &str, around: [&str; 2]) -> Form {
    let [before, after] = around;
    let (mut text, mut at) = (format!("start: {name}0\n"), 0);
    while text.len() + 100 < FORM_BYTES_MAX {
        text.push_str(&format!("{name}{at}:{before} {name}{} {after}\n", at + 1));
        at += 1;
    }
    Form::Lark(format!("{text}{name}{at}: \"x\"\n"))
}

#[test]
fn a_deep_form_is_no_deep_stack() {
    let mut schema = json!({"$ref": "#/$defs/d0", "$defs": {}});
    for at in 0..1000 {
        schema["$defs"][format!("d{at}")] = json!({"not": {"$ref": format!("#/$defs/d{}", at + 1)}});
    }
    let mut references = json!({"$ref": "#/$defs/0", "$defs": {}});
    for at in 0..1800 {
        references["$defs"][at.to_string()] = json!({"$ref": format!("#/$defs/{}", at + 1)});
    }
    references["$defs"]["1800"] = json!({"type": "boolean"});
    let forms = [
        chain("a", ["", ""]),
        chain("A", ["", ""]),
        chain("A", ["\"x\"", ""]),
        chain("a", ["\"x\"", "\"y\""]),
        Form::Regex(format!("a{}", "?".repeat(FORM_BYTES_MAX - 1))),
        Form::Regex("a|".repeat(FORM_BYTES_MAX / 2)),
        Form::Schema(schema),
        Form::Schema(references),
    ];
    let grammars = grammars();
    let compiled = forms.each_ref().map(|form| {
        let mut grammar = grammars.compile(form).map_err(|error| {
            assert!(matches!(error, GrammarError::Invalid(_)), "{error}");
        })?;
        // On this stack, which is a small one, a step must do.
        for _ in 0..3 {
            let Ok(mask) = grammar.mask() else { break };
            let token = (0..vocabulary().size()).find(|token| mask.allows(*token)).expect("no dead end");
            grammar.advance(token).unwrap();
        }
        Ok::<_, ()>(())
    });
    assert!(compiled[0].is_ok() && compiled[7].is_ok(), "long chains are no error");
}
