//! A second model that guesses: it changes no answer, and one that does not fit is told at the start.

use firsttoken_local::{Model, Options};
use firsttoken_synth::{Recipe, Shape};
use serde_json::json;

use crate::rig::{PLAIN, Rig, file, options};

#[tokio::test]
async fn a_draft_changes_no_answer() {
    for astray in [0.0, 0.3, 1.0] {
        let rig = Rig::drafted(PLAIN, Some(astray));
        let expected = rig.text_after(':', 90);
        let asked = |own: usize| {
            // One leaves the text to itself, another has a beginning in common with it.
            let content = format!("{}{own}", "The same beginning for all of them. ".repeat(own % 3 * 2));
            json!({"max_tokens": 90, "messages": [{"role": "user", "content": content}]})
        };
        let answers = [0, 1, 2, 3, 4].map(|own| rig.chat(asked(own)));
        let [a, b, c, d, e] = answers;
        let (a, b, c, d, e) = tokio::join!(a, b, c, d, e);
        for answer in [a, b, c, d, e] {
            assert_eq!(answer["choices"][0]["message"]["content"], expected, "astray {astray}");
        }
        // A draw of a model that is sure is its choice.
        let drawn = rig.chat(json!({"max_tokens": 90, "temperature": 0.2, "seed": 5})).await;
        assert_eq!(drawn["choices"][0]["message"]["content"], expected, "astray {astray}");
        let (done, _) = rig.status().draft;
        assert!(done.drafted > 0 && done.rows > done.drafted, "{done:?}");
        assert!(astray > 0.5 || done.accepted > 0, "{done:?}");
        let page = rig.get("/metrics").await.1;
        for line in [
            format!("firsttoken_engine_draft_tokens_total{{model_name=\"nano\"}} {}", done.drafted),
            format!("firsttoken_engine_draft_accepted_tokens_total{{model_name=\"nano\"}} {}", done.accepted),
            format!("vllm:spec_decode_num_draft_tokens_total{{model_name=\"nano\"}} {}", done.drafted),
            format!("vllm:spec_decode_num_accepted_tokens_total{{model_name=\"nano\"}} {}", done.accepted),
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
    }
}

#[tokio::test]
async fn a_form_holds_whatever_the_draft_says() {
    let asked = json!({"max_tokens": 60, "response_format": {"type": "json_schema", "json_schema": {
        "name": "n", "schema": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}},
        "required": ["n"], "additionalProperties": false}}}});
    let (plain, drafted) = (Rig::drafted(PLAIN, None), Rig::drafted(PLAIN, Some(0.0)));
    let (without, with) = (plain.chat(asked.clone()).await, drafted.chat(asked).await);
    assert_eq!(without["choices"], with["choices"]);
    assert!(drafted.status().draft.0.drafted > 0);
}

#[test]
fn a_draft_that_does_not_fit_is_refused_at_the_start() {
    let model = file(&Recipe::default().bytes().unwrap());
    let shape = Shape { vocabulary: 600, ..Shape::NANO };
    let more = file(&Recipe { shape, ..Recipe::default() }.bytes().unwrap());
    let cut = file(&Recipe::default().bytes().unwrap()[..40_000]);
    let other = file(&renamed(Recipe::default().bytes().unwrap()));
    let missing = std::env::temp_dir().join("firsttoken-no-such-draft.gguf");
    for (draft, what) in [
        (&more, "it knows 600 tokens, the model 320"),
        (&other, "its token 300 is"),
        (&cut, "it is longer than the file"),
        (&missing, "No such file"),
    ] {
        let started = Model::start(Options { draft: Some(draft.clone()), ..options(&model) });
        let Err(error) = started else { panic!("{} is no draft", draft.display()) };
        let error = error.to_string();
        assert!(error.contains(what) && error.contains(draft.to_str().unwrap()), "{error}");
    }
    [model, more, cut, other].iter().for_each(|file| std::fs::remove_file(file).unwrap());
}

/// The file with another word.
fn renamed(mut bytes: Vec<u8>) -> Vec<u8> {
    let word = "w40".as_bytes();
    let at = bytes.windows(word.len()).position(|found| found == word).unwrap();
    bytes[at..at + word.len()].copy_from_slice(b"zzz");
    bytes
}
