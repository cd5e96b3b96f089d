//! Requests for an upstream that speaks another dialect than their caller: what is sent, what is named,
//! what is refused.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::rig::{Gate, Provider, error_of, toml};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

/// A gateway whose model `claude` is Anthropic's and whose model `open` is OpenAI's.
fn gate(provider: &Provider, rest: &str) -> Gate {
    let models = "[[models]]\nname = \"claude\"\nupstream = \"claude\"\nupstream_model = \"claude-sonnet-4-5\"\n\
                  [[models]]\nname = \"open\"\nupstream = \"open\"\nupstream_model = \"gpt-4o\"\n";
    let all = toml(&provider.url(), "", rest);
    let (before, after) = all.split_at(all.find("[[models]]").unwrap());
    Gate::start(&format!("{before}{models}{after}"))
}

fn chat(model: &str, more: &Value) -> Value {
    let mut body = json!({"model": model, "messages": [{"role": "user", "content": "Why?"}]});
    more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
    body
}

fn sent(provider: &Provider) -> (String, Vec<(String, String)>, Value) {
    let last = provider.sim.last().expect("a request arrived");
    (last.path, last.headers, serde_json::from_str(&last.body).unwrap())
}

fn refused(answer: &Answer, path: &str, provider: &Provider) -> (String, Value) {
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(provider.sim.stats(0).started, 0, "nothing was sent");
    let (message, _) = error_of(path, answer);
    (message, answer.json()["error"]["param"].clone())
}

#[test]
fn what_the_upstream_cannot_be_told_is_named() {
    let provider = Provider::quick();
    let gate = gate(&provider, "");
    let more = json!({"seed": 7, "frequency_penalty": 0.5, "temperature": 0.2, "store": true});
    let answer = gate.post(CHAT, &["connection: close"], &chat("claude", &more));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut dropped: Vec<&str> = answer.header("x-firsttoken-dropped").unwrap().split(", ").collect();
    dropped.sort_unstable();
    assert_eq!(dropped, ["frequency_penalty", "seed", "store"]);
    let (path, headers, body) = sent(&provider);
    assert_eq!((path.as_str(), &body["temperature"], &body["seed"]), (MESSAGES, &json!(0.2), &Value::Null));
    assert!(body["max_tokens"].as_u64() > Some(4096), "the model's own bound: {body}");
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    assert_eq!((header("x-api-key"), header("anthropic-version")), (Some("sk-theirs"), Some("2023-06-01")));
    let plain = gate.post(CHAT, &["connection: close"], &chat("claude", &json!({"temperature": 0.2})));
    assert_eq!(plain.header("x-firsttoken-dropped"), None);
}

#[test]
fn who_wants_nothing_dropped_is_refused_instead() {
    let provider = Provider::quick();
    let gate = gate(&provider, "[stream]\nstrict = true\n");
    let answer = gate.post(CHAT, &["connection: close"], &chat("claude", &json!({"seed": 7})));
    let (message, param) = refused(&answer, CHAT, &provider);
    assert!(message.contains("seed") && message.contains("strict"), "{message}");
    assert_eq!(param, "seed");
    let passed = gate.post(CHAT, &["connection: close"], &chat("open", &json!({"seed": 7})));
    assert_eq!(passed.status, 200, "to its own kind it passes");
}

#[test]
fn what_is_wrong_is_named_by_its_path_and_not_sent() {
    let provider = Provider::quick();
    let gate = gate(&provider, "");
    let user = json!({"role": "user", "content": "Hi"});
    let call = |id: &str, arguments: &str| json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}]});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "1"});
    let cases = [
        (json!({"messages": [user, result("a")]}), "messages[1].tool_call_id"),
        (
            json!({"messages": [user, call("a", "{}"), result("a"), call("a", "{}")]}),
            "messages[3].tool_calls[0].id",
        ),
        (json!({"messages": [user, call("a", "{oops")]}), "messages[1].tool_calls[0].function.arguments"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}),
            "messages[0].content[0].input_audio",
        ),
        (json!({"messages": [{"role": "wizard", "content": "Hi"}]}), "messages[0].role"),
        (json!({"n": 2}), "n"),
        (json!({"logprobs": true}), "logprobs"),
    ];
    for (more, place) in cases {
        let answer = gate.post(CHAT, &["connection: close"], &chat("claude", &more));
        assert_eq!(refused(&answer, CHAT, &provider).1, place, "{more}");
    }
}

#[test]
fn what_has_no_form_there_is_told_so() {
    let provider = Provider::quick();
    let gate = gate(&provider, "");
    for (path, model) in
        [("/v1/messages/count_tokens", "open"), ("/v1/embeddings", "claude"), ("/v1/completions", "claude")]
    {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "input": "Hi"});
        let answer = gate.post(path, &["connection: close"], &body);
        let (message, _) = refused(&answer, path, &provider);
        assert!(message.contains("no translation"), "{path}: {message}");
    }
}

#[test]
fn a_callers_own_key_stands_where_the_provider_looks_for_it() {
    let provider = Provider::quick();
    let all = toml(&provider.url(), "", "").replace("api_key = \"sk-theirs\"", "auth = \"caller\"");
    let gate = Gate::start(&all.replacen(
        "name = \"*\"\nupstream = \"open\"",
        "name = \"o\"\nupstream = \"open\"",
        1,
    ));
    let headers = ["connection: close", "authorization: Bearer sk-mine", "openai-organization: org-1"];
    assert_eq!(gate.post(CHAT, &headers, &chat("claude-x", &json!({}))).status, 200);
    let (_, headers, _) = sent(&provider);
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    assert_eq!((header("x-api-key"), header("authorization")), (Some("sk-mine"), None));
    assert_eq!(header("openai-organization"), None, "it means nothing there");
}

#[test]
fn use_chat_is_answered_in_its_own_stream_and_refused_in_plain_words() {
    let provider = Provider::quick();
    let gate = gate(&provider, "");
    let ask = |messages: Value| json!({"id": "c1", "trigger": "submit-message", "messages": messages, "model": "claude"});
    let good = json!([{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Why?"}]}]);
    let answer = gate.post("/api/chat", &["connection: close"], &ask(good));
    assert_eq!(answer.header("x-vercel-ai-ui-message-stream"), Some("v1"));
    let text = answer.text();
    assert!(text.contains("\"type\":\"text-delta\"") && text.ends_with("data: [DONE]\n\n"), "{text}");
    let bad = json!([{"id": "m1", "role": "user", "parts": [{"type": "hologram"}]}]);
    let answer = gate.post("/api/chat", &["connection: close"], &ask(bad));
    assert_eq!((answer.status, answer.header("content-type")), (400, Some("text/plain; charset=utf-8")));
    assert!(answer.text().starts_with("messages[0].parts[0]"), "{}", answer.text());
    let ollama = json!({"model": "claude", "messages": [{"role": "user", "content": "Hi"}]});
    let answer = gate.post("/api/chat", &["connection: close"], &ollama);
    assert!(answer.status == 400 && answer.text().contains("/v1/chat/completions"), "{}", answer.text());
}
