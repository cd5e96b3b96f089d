//! Text that is known, whole, streamed, shared, guessed, thought and completed.

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::rig::{HERMES, HISTORY, NAME, PLAIN, Rig, THINKING, asking, joined};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

#[tokio::test]
async fn a_text_is_what_the_model_says_whole_and_streamed() {
    let rig = Rig::new(PLAIN);
    let expected = rig.text_after(':', 40);
    let whole = rig.chat(json!({})).await;
    assert_eq!(whole["choices"][0]["message"]["content"], expected);
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    let usage = &whole["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(15), &json!(40)));

    let asked = asking(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let events = rig.stream(CHAT, &asked).await;
    assert_eq!(joined(&events, "/choices/0/delta/content"), expected);
    let [.., stop, usage] = &events[..] else { panic!("{events:?}") };
    assert_eq!(stop["choices"][0]["finish_reason"], "length");
    assert_eq!(usage["usage"]["completion_tokens"], 40);
    let timings = &stop["timings"];
    assert_eq!(timings["predicted_n"], 40);
    let counted = timings["prompt_n"].as_u64().unwrap() + timings["cache_n"].as_u64().unwrap();
    assert_eq!(counted, 15);
    assert!(timings["prompt_ms"].as_f64() >= Some(0.0) && timings["predicted_ms"].as_f64() > Some(0.0));
    assert_eq!(whole["timings"]["predicted_n"], 40);
}

#[tokio::test]
async fn eight_at_once_behind_one_prefix_get_each_their_own_text() {
    let rig = Rig::of(PLAIN, 12, 8);
    let shared = "All of them have read this before. ".repeat(16);
    let asked = |own: u32| {
        let content = format!("{shared}{own}");
        asking(
            json!({"messages": [{"role": "user", "content": content}], "max_tokens": 60, "stream": own.is_multiple_of(2)}),
        )
    };
    let expected = rig.text_after(':', 60);
    let one = async |own: u32| match own.is_multiple_of(2) {
        true => joined(&rig.stream(CHAT, &asked(own)).await, "/choices/0/delta/content"),
        false => {
            let answer = rig.post(CHAT, &asked(own)).await.1;
            answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
        }
    };
    let texts = tokio::join!(one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7));
    let texts: [String; 8] = texts.into();
    assert!(texts.iter().all(|text| *text == expected), "{texts:?}");
    let after = rig.post(CHAT, &asked(9)).await.1;
    let cached = after["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached >= 512, "{cached} of {} tokens were there", after["usage"]["prompt_tokens"]);
    assert!(rig.status().counters.accepted > 0, "rings can be guessed");
}

#[tokio::test]
async fn tenants_find_nothing_of_each_other() {
    let rig = Rig::of(PLAIN, 12, 0);
    let content = "Only one of them has read this before. ".repeat(8);
    let asked = asking(json!({"messages": [{"role": "user", "content": content}], "max_tokens": 2}));
    let cached = async |tenant: &str| {
        let reply = rig.send_as(tenant, Method::POST, CHAT, &asked).await;
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached("one").await, 0);
    assert_eq!(cached("other").await, 0);
    assert!(cached("one").await >= 256);
}

#[tokio::test]
async fn a_model_that_shall_think_thinks_and_one_that_shall_not_does_not() {
    let rig = Rig::new(THINKING);
    let message = |answer: &Value| answer["choices"][0]["message"].clone();
    let thinking = rig.chat(json!({"reasoning_effort": "low"})).await;
    assert_eq!(message(&thinking)["reasoning_content"], rig.text_after('>', 40).trim());
    assert_eq!(message(&thinking)["content"], Value::Null);
    assert_eq!(thinking["usage"]["completion_tokens_details"]["reasoning_tokens"], 40);
    for off in
        [json!({"reasoning_effort": "none"}), json!({"chat_template_kwargs": {"enable_thinking": false}})]
    {
        let answer = rig.chat(off).await;
        assert_eq!(message(&answer)["content"], rig.text_after(':', 40));
        assert_eq!(message(&answer)["reasoning_content"], Value::Null);
    }
    let asked = asking(json!({"stream": true, "chat_template_kwargs": {"enable_thinking": true}}));
    let events = rig.stream(CHAT, &asked).await;
    assert_eq!(joined(&events, "/choices/0/delta/reasoning_content"), rig.text_after('>', 40).trim());
}

#[tokio::test]
async fn a_conversation_is_put_as_templates_want_it() {
    let rig = Rig::new(HISTORY);
    let call = json!({"id": "a", "type": "function", "function": {"name": "time", "arguments": "{\"zone\": \"CET\"}"}});
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "12"},
    ]);
    let answer = rig.chat(json!({"messages": messages})).await;
    assert_eq!(answer["usage"]["prompt_tokens"], "ab\ncdCET12:".len());
    assert_eq!(answer["choices"][0]["message"]["content"], rig.text_after(':', 40));
}

#[tokio::test]
async fn stops_and_biases_change_the_text() {
    let rig = Rig::new(PLAIN);
    let text = rig.text_after(':', 40);
    let stop = &text[10..14];
    let answer = rig.chat(json!({"stop": stop})).await;
    assert_eq!(answer["choices"][0]["message"]["content"], text.split(stop).next().unwrap());
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let (banned, wanted) = (rig.tokens_after(':', 1)[0].to_string(), u32::from('x').to_string());
    let answer = rig.chat(json!({"logit_bias": {(banned): -100, (wanted): 100}, "max_tokens": 1})).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "x");
}

#[tokio::test]
async fn a_completion_goes_on_from_its_prompt() {
    let rig = Rig::new(PLAIN);
    let completed = |more: Value| {
        let mut body = json!({"model": NAME, "temperature": 0, "prompt": "Go on a"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let answer = rig.post(COMPLETIONS, &completed(json!({}))).await.1;
    assert_eq!(
        (&answer["object"], &answer["choices"][0]["text"]),
        (&json!("text_completion"), &json!(rig.text_after('a', 16)))
    );
    assert_eq!(answer["usage"]["prompt_tokens"], 7);
    let tokens = json!({"prompt": [u32::from('b')], "max_tokens": 5, "echo": true});
    let answer = rig.post(COMPLETIONS, &completed(tokens)).await.1;
    assert_eq!(answer["choices"][0]["text"], format!("b{}", rig.text_after('b', 5)));
    let text = rig.text_after('a', 16);
    let stopped = json!({"stop": [&text[5..8]], "stream": true, "stream_options": {"include_usage": true}});
    let events = rig.stream(COMPLETIONS, &completed(stopped)).await;
    assert_eq!(joined(&events, "/choices/0/text"), text[..5]);
    let [.., stop, usage] = &events[..] else { panic!("{events:?}") };
    assert_eq!(stop["choices"][0]["finish_reason"], "stop");
    assert!(stop["timings"]["predicted_n"].is_u64());
    assert_eq!(usage["usage"]["prompt_tokens"], 7);
}

#[tokio::test]
async fn tokens_are_text_and_text_is_tokens() {
    let rig = Rig::new(HERMES);
    let tokens = rig.post("/tokenize", &json!({"content": "a<|im_end|>b"})).await.1;
    assert_eq!(tokens, json!({"tokens": [97, 258, 98]}));
    let plain = json!({"model": NAME, "content": "<|im_end|>", "parse_special": false});
    assert_eq!(rig.post("/tokenize", &plain).await.1["tokens"].as_array().unwrap().len(), 10);
    assert_eq!(rig.post("/detokenize", &tokens).await.1, json!({"content": "a<|im_end|>b"}));
}
