//! Embeddings over real kernels.

use base64::Engine as _;
use firsttoken_synth::Recipe;
use serde_json::{Value, json};

use crate::rig::{NAME, PLAIN, Rig, asking};

/// Longest text, in tokens.
const TOKENS_MAX: u32 = 256;

fn rig() -> Rig {
    Rig::run(Recipe { pooling: Some(1), context: TOKENS_MAX, ..Recipe::default() }, PLAIN, |options| {
        firsttoken_local::Options { cells: None, ..options }
    })
}

async fn ask(rig: &Rig, more: Value) -> (u16, Value) {
    let mut body = json!({"model": NAME});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rig.post("/v1/embeddings", &body).await
}

async fn vectors(rig: &Rig, input: Value) -> Vec<Vec<f32>> {
    let (status, answer) = ask(rig, json!({"input": input})).await;
    assert_eq!((status, &answer["object"]), (200, &json!("list")), "{answer}");
    let data = answer["data"].as_array().unwrap();
    for (at, item) in data.iter().enumerate() {
        assert_eq!((&item["object"], &item["index"]), (&json!("embedding"), &json!(at)));
    }
    data.iter().map(|item| serde_json::from_value(item["embedding"].clone()).unwrap()).collect()
}

#[tokio::test]
async fn texts_and_tokens_have_the_same_vectors_of_length_one() {
    let rig = rig();
    let one = vectors(&rig, json!("one text")).await;
    let bytes: Vec<u32> = "one text".bytes().map(u32::from).collect();
    assert_eq!(vectors(&rig, json!(bytes)).await, one);
    let both = vectors(&rig, json!(["another", "one text"])).await;
    assert_eq!(both[1], one[0]);
    assert_ne!(both[0], both[1]);
    assert_eq!(vectors(&rig, json!(["another".bytes().collect::<Vec<u8>>(), bytes])).await, both);
    for vector in &both {
        let length: f32 = vector.iter().map(|value| value * value).sum();
        assert!(vector.len() == 64 && (length - 1.0).abs() < 1e-4, "{length}");
    }
}

#[tokio::test]
async fn base64_is_the_same_vector_and_usage_counts_tokens() {
    let rig = rig();
    let (_, answer) = ask(&rig, json!({"input": ["one text", "x"], "encoding_format": "base64"})).await;
    let text = answer["data"][0]["embedding"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let vector: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(vec![vector], vectors(&rig, json!("one text")).await);
    assert_eq!(answer["usage"], json!({"prompt_tokens": 9, "total_tokens": 9}));
    let page = rig.get("/metrics").await.1;
    assert!(page.contains("vllm:prompt_tokens_total{model_name=\"nano\"} 17"), "{page}");
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_by_its_field() {
    let rig = rig();
    let long = "x".repeat(TOKENS_MAX as usize + 1);
    for (more, field) in [
        (json!({"input": "x", "dimensions": 8}), "dimensions"),
        (json!({"input": "x", "encoding_format": "int8"}), "encoding_format"),
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": 7}), "input"),
        (json!({"input": ["x", 7]}), "input"),
        (json!({"input": ["x", ""]}), "input[1]"),
        (json!({"input": [1, 320]}), "input[1]"),
        (json!({"input": ["x", long]}), "input[1]"),
        (json!({"input": vec!["x"; 2049]}), "input"),
    ] {
        let (status, error) = ask(&rig, more).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!(field)), "{error}");
    }
    let (status, _) = ask(&rig, json!({"input": "x".repeat(TOKENS_MAX as usize)})).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn who_writes_makes_none_and_who_makes_them_does_not_write() {
    let (status, error) = rig().post("/v1/chat/completions", &asking(json!({}))).await;
    assert!(
        status == 400 && error["error"]["message"].as_str().unwrap().contains("/v1/embeddings"),
        "{error}"
    );
    let (status, error) = ask(&Rig::new(PLAIN), json!({"input": "x"})).await;
    assert!(status == 400 && error["error"]["message"].as_str().unwrap().contains("pooling"), "{error}");
}
