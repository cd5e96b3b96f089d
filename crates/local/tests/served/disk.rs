//! Prefixes on disk, over real kernels and a restart.

use std::path::Path;

use firsttoken_local::{KvDir, Options, StartError};
use firsttoken_synth::{Mind, Recipe, Shape};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::rig::{CONTEXT, PLAIN, Rig, asking};

/// What all prompts begin with, in characters; each is a token.
const SHARED: usize = 1500;

/// A server whose answers depend on every token before, of a size at which computing takes its time.
fn server(kv_dir: Option<&Path>) -> Rig {
    let shape = Shape { layers: 4, width: 512, heads: 8, shared_heads: 4, inner: 1536, vocabulary: 320 };
    let recipe = Recipe { shape, mind: Mind::Random, context: CONTEXT, ..Recipe::default() };
    let kv_dir = kv_dir.map(|path| KvDir { path: path.to_owned(), bytes_max: 1 << 30 });
    Rig::run(recipe, PLAIN, |options| Options { kv_dir, ..options })
}

/// What a tenant is answered, and how much of its prompt was there.
async fn ask(rig: &Rig, tenant: &str, own: char) -> (String, u64) {
    let shared: String = "The quick brown fox jumps over a dog. ".chars().cycle().take(SHARED).collect();
    let content = format!("{shared}{}", own.to_string().repeat(100));
    let asked = asking(json!({"messages": [{"role": "user", "content": content}], "max_tokens": 8}));
    let reply = rig.send_as(tenant, Method::POST, "/v1/chat/completions", &asked).await;
    assert_eq!(reply.status(), 200);
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    (text, answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap())
}

#[tokio::test]
async fn a_tenant_finds_its_prefix_after_a_restart_and_no_other_does() {
    let dir = tempfile::tempdir().unwrap();
    let first = server(Some(dir.path()));
    ask(&first, "one", 'a').await;
    while first.status().tokens_saved < SHARED as u64 {
        tokio::task::yield_now().await;
    }
    ask(&first, "one", 'b').await;
    first.local.end();
    drop(first);

    let second = server(Some(dir.path()));
    let other = ask(&second, "other", 'c').await;
    assert_eq!(other.1, 0, "another tenant's");
    let own = ask(&second, "one", 'c').await;
    assert!(own.1 >= SHARED as u64, "{} tokens were there", own.1);
    let computed = ask(&server(None), "one", 'c').await;
    assert_eq!((own.0, other.0), (computed.0.clone(), computed.0), "read or computed, it is the same");
    let page = second.get("/metrics").await.1;
    let line = "firsttoken_engine_prefix_hit_tokens_total{model_name=\"nano\",tier=\"disk\"} ";
    let tokens = page.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    assert!(tokens.parse::<usize>().unwrap() >= SHARED, "{page}");
}

#[test]
fn a_directory_that_cannot_be_one_is_said_at_the_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let kv_dir = Some(KvDir { path: file.path().to_owned(), bytes_max: 1 << 30 });
    let options = Options { kv_dir, ..Options::new("none.gguf", "none") };
    let Err(error) = firsttoken_local::Model::start(options) else { panic!("a file is no directory") };
    assert!(matches!(error, StartError::KvDir(_)), "{error}");
    assert!(error.to_string().starts_with("--kv-dir "), "{error}");
}
