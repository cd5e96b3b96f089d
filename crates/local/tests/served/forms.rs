//! Answers that must have a form, from a model that has none in mind.

use serde_json::{Value, json};

use crate::rig::{HERMES, PLAIN, Rig, asking, joined};

fn schema() -> Value {
    json!({
        "type": "object", "required": ["kind", "age", "tags"], "additionalProperties": false,
        "properties": {
            "kind": {"enum": ["cat", "dog"]},
            "age": {"type": "integer", "minimum": 0, "maximum": 20},
            "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
        },
    })
}

fn tools() -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": schema()}});
    json!([tool("adopt"), tool("release")])
}

fn assert_fits(text: &str) {
    let value: Value = serde_json::from_str(text).expect(text);
    assert_eq!(value.as_object().unwrap().len(), 3, "{text}");
    assert!(["cat", "dog"].contains(&value["kind"].as_str().unwrap()), "{text}");
    assert!(value["age"].as_u64().unwrap() <= 20, "{text}");
    assert!(value["tags"].as_array().unwrap().iter().all(Value::is_boolean), "{text}");
}

#[tokio::test]
async fn an_answer_fits_its_schema_whatever_the_model_would_say() {
    let rig = Rig::of(PLAIN, 0, 8);
    let format = json!({"type": "json_schema", "json_schema": {"name": "pet", "schema": schema()}});
    for temperature in [0, 1] {
        let more = json!({"response_format": format, "max_tokens": 1000, "temperature": temperature});
        let answer = rig.chat(more.clone()).await;
        assert_fits(answer["choices"][0]["message"]["content"].as_str().unwrap());
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        let mut more = more;
        more["stream"] = json!(true);
        let events = rig.stream("/v1/chat/completions", &asking(more)).await;
        assert_fits(&joined(&events, "/choices/0/delta/content"));
    }
    // An object of any kind has no end that this model would find: how it begins is the grammar's.
    let answer = rig.chat(json!({"response_format": {"type": "json_object"}, "max_tokens": 10})).await;
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().starts_with('{'));
}

#[tokio::test]
async fn a_tool_that_must_be_called_is_called() {
    for template in [PLAIN, HERMES] {
        let rig = Rig::new(template);
        for choice in [json!("required"), json!({"type": "function", "function": {"name": "release"}})] {
            let more = json!({
                "tools": tools(), "tool_choice": choice, "parallel_tool_calls": false, "max_tokens": 1000,
            });
            let answer = rig.chat(more.clone()).await;
            let message = &answer["choices"][0]["message"];
            assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{answer}");
            assert_eq!(message["content"], Value::Null);
            let [call] = &message["tool_calls"].as_array().unwrap()[..] else { panic!("{message}") };
            assert_fits(call["function"]["arguments"].as_str().unwrap());
            let name = call["function"]["name"].as_str().unwrap();
            assert!(if choice == "required" {
                ["adopt", "release"].contains(&name)
            } else {
                name == "release"
            });

            let mut more = more;
            more["stream"] = json!(true);
            let events = rig.stream("/v1/chat/completions", &asking(more)).await;
            assert_eq!(joined(&events, "/choices/0/delta/tool_calls/0/function/name"), name);
            assert_fits(&joined(&events, "/choices/0/delta/tool_calls/0/function/arguments"));
            assert_eq!(joined(&events, "/choices/0/finish_reason"), "tool_calls");
        }
    }
}

#[tokio::test]
async fn tools_that_may_not_be_called_are_not_shown() {
    let rig = Rig::new(HERMES);
    let prompt = async |choice: &str| {
        let answer = rig.chat(json!({"tools": tools(), "tool_choice": choice})).await;
        assert_eq!(answer["choices"][0]["message"]["content"], rig.text_after(':', 40));
        answer["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(prompt("auto").await, prompt("none").await + "with tools".len() as u64);
}
