//! Models that nobody asks for.

use std::time::Duration;

use firsttoken_local::Options;
use firsttoken_synth::{Mind, Recipe};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::rig::{CONTEXT, NAME, PLAIN, Rig, asking};

/// Cells whose keys and values take 64 MiB.
const CELLS: u32 = 1 << 18;

/// A model that is unloaded as soon as nobody uses it.
fn rig() -> Rig {
    let recipe =
        Recipe { mind: Mind::Peaked { ring: 0, astray: 0.0 }, context: CONTEXT, ..Recipe::default() };
    let hasty = |options| Options { cells: Some(CELLS), idle_unload: Some(Duration::ZERO), ..options };
    Rig::run(recipe, PLAIN, hasty)
}

async fn until_unloaded(rig: &Rig) {
    while !rig.local.loaded().is_empty() {
        tokio::task::yield_now().await;
    }
}

fn text(answer: &Value) -> &str {
    answer.pointer("/choices/0/message/content").and_then(Value::as_str).unwrap()
}

/// Memory of this process in bytes.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_model_gives_its_memory_back() {
    let rig = rig();
    let asked = asking(json!({"stream": true, "max_tokens": 1000}));
    let mut body = rig.send(Method::POST, "/v1/chat/completions", &asked).await.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(rig.local.loaded().len(), 1, "who hears keeps it loaded");
    let loaded = resident();
    drop(body);
    until_unloaded(&rig).await;
    // It is given back while it goes; the page says that it has gone.
    while !rig.get("/metrics").await.1.contains("firsttoken_engine_loaded{model_name=\"nano\"} 0") {}
    while resident() + (48 << 20) > loaded {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn it_answers_right_when_it_is_loaded_again_and_others_wait_for_the_same() {
    let rig = rig();
    let before = rig.chat(json!({})).await;
    assert_eq!(text(&before), rig.text_after(':', 40));
    until_unloaded(&rig).await;
    assert_eq!(rig.get("/health").await.0, 200, "idle is well");
    assert!(rig.get("/v1/models").await.1.contains(&format!("\"context_length\":{CONTEXT}")));
    let (one, other) = tokio::join!(rig.chat(json!({})), rig.chat(json!({"max_tokens": 7})));
    assert_eq!(text(&one), text(&before));
    assert_eq!(text(&other), rig.text_after(':', 7));
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_again_is_an_error_and_health_says_why() {
    let rig = rig();
    until_unloaded(&rig).await;
    let away = rig.file.with_extension("away");
    std::fs::rename(&rig.file, &away).unwrap();
    let (status, error) = rig.post("/v1/chat/completions", &asking(json!({}))).await;
    assert_eq!((status, &error["error"]["code"]), (503, &json!("model_not_loaded")));
    let (status, health) = rig.get("/health").await;
    assert!(status == 503 && health.contains(NAME) && health.contains("cannot be loaded"), "{health}");
    std::fs::rename(&away, &rig.file).unwrap();
    assert_eq!(text(&rig.chat(json!({})).await), rig.text_after(':', 40));
    assert_eq!(rig.get("/health").await.0, 200);
}
