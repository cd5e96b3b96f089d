//! What cannot be done is refused with its status and its field, and costs no step.

use serde_json::{Value, json};

use crate::rig::{CONTEXT, NAME, PLAIN, Rig, asking};

#[tokio::test]
async fn what_is_wrong_is_named() {
    let rig = Rig::new(PLAIN);
    let image = json!([{"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    ]}]);
    let format =
        |schema: Value| json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let tool = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}]);
    let long = "x".repeat(CONTEXT as usize);
    let schema_at = "response_format.json_schema.schema";
    let chats = [
        (json!({"model": "other"}), 404, "model", "model_not_found"),
        (json!({"messages": []}), 400, "messages", "invalid_request"),
        (
            json!({"messages": [{"role": "user", "content": long}]}),
            400,
            "messages",
            "context_length_exceeded",
        ),
        (json!({"messages": image}), 400, "messages[0].content[1].image_url", "unsupported_content"),
        (json!({"response_format": format(json!({"type": "objekt"}))}), 400, schema_at, "invalid_schema"),
        (json!({"response_format": format(json!({"$ref": "#/x"}))}), 400, schema_at, "invalid_schema"),
        (json!({"tools": tool, "tool_choice": "required"}), 400, "tools", "invalid_schema"),
        (json!({"tool_choice": "required"}), 400, "tool_choice", "invalid_request"),
        (json!({"n": 2}), 400, "n", "unsupported"),
        (json!({"logprobs": true}), 400, "logprobs", "unsupported"),
        (json!({"top_logprobs": 3}), 400, "top_logprobs", "unsupported"),
        (json!({"logit_bias": {"97": 101}}), 400, "logit_bias.97", "invalid_request"),
        (json!({"logit_bias": {"9999": 1}}), 400, "logit_bias", "invalid_request"),
        (json!({"logit_bias": {"a": 1}}), 400, "logit_bias", "invalid_request"),
        (json!({"top_p": 0}), 400, "top_p", "invalid_request"),
        (json!({"stop": [""]}), 400, "stop", "invalid_request"),
        (json!({"chat_template_kwargs": 1}), 400, "chat_template_kwargs", "invalid_request"),
    ];
    for (more, status, field, code) in chats {
        assert_refused(&rig, "/v1/chat/completions", asking(more), (status, json!(field), code)).await;
    }
    let others = [
        ("/v1/completions", json!({"prompt": ["a", "b"]}), "prompt", "unsupported"),
        ("/v1/completions", json!({"prompt": [97, 320]}), "prompt[1]", "invalid_request"),
        ("/v1/completions", json!({"prompt": ""}), "prompt", "invalid_request"),
        ("/v1/completions", json!({}), "prompt", "invalid_request"),
        ("/v1/completions", json!({"prompt": "a", "logprobs": 1}), "logprobs", "unsupported"),
        ("/v1/completions", json!({"prompt": "a", "suffix": "b"}), "suffix", "unsupported"),
        ("/v1/completions", json!({"prompt": "a", "best_of": 2}), "best_of", "unsupported"),
        ("/tokenize", json!({}), "content", "invalid_request"),
        ("/detokenize", json!({"tokens": [1, -1]}), "tokens[1]", "invalid_request"),
    ];
    for (path, mut body, field, code) in others {
        body["model"] = json!(NAME);
        assert_refused(&rig, path, body, (400, json!(field), code)).await;
    }
    assert_refused(&rig, "/v1/images", json!({}), (404, Value::Null, "unknown_path")).await;
    assert_eq!(rig.status().counters.steps, 0, "nothing was computed");
}

async fn assert_refused(rig: &Rig, path: &str, body: Value, expected: (u16, Value, &str)) {
    let (status, answer) = rig.post(path, &body).await;
    let error = &answer["error"];
    let said = (status, error["param"].clone(), error["code"].as_str().unwrap());
    assert_eq!(said, expected, "{path} {body}: {answer}");
    assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{answer}");
}
