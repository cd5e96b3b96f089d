//! `/embeddings`: unit vectors that depend on the text alone.
//!
//! Words are hashed into the dimensions of the vector, so equal texts are equal, texts that share
//! words are near, and others are close to orthogonal. That is enough to test retrieval's plumbing;
//! it knows nothing of meaning.
//!
//! Invariant: every vector has length 1, the empty text's too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ask::Ask;
use crate::refusal::Refusal;

/// Dimensions where the request does not say.
const DIMENSIONS: u64 = 1536;
/// Most dimensions that a request can ask for.
const DIMENSIONS_MAX: u64 = 8192;
/// Most texts in one request.
const INPUTS_MAX: usize = 2048;

pub(crate) fn answer(ask: &Ask) -> Result<Value, Refusal> {
    let dimensions = match ask.body.get("dimensions") {
        None | Some(Value::Null) => DIMENSIONS,
        Some(asked) => asked.as_u64().filter(|n| (1..=DIMENSIONS_MAX).contains(n)).ok_or_else(|| {
            Refusal::invalid(format!("`dimensions` has to be a whole number from 1 to {DIMENSIONS_MAX}"))
                .at("dimensions")
        })?,
    };
    let base64 = ask.body.get("encoding_format").and_then(Value::as_str) == Some("base64");
    let inputs = inputs(ask.body.get("input").unwrap_or(&Value::Null))?;
    let data = inputs.iter().enumerate().map(|(index, text)| {
        let vector = vector(text, usize::try_from(dimensions).unwrap_or(1));
        let embedding = if base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            json!(STANDARD.encode(bytes))
        } else {
            json!(vector)
        };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    let data: Vec<_> = data.collect();
    let usage = json!({"prompt_tokens": ask.prompt_tokens, "total_tokens": ask.prompt_tokens});
    Ok(json!({"object": "list", "data": data, "model": ask.model, "usage": usage}))
}

/// The texts of a request: one, several, or token ids that stand for one or several.
fn inputs(input: &Value) -> Result<Vec<String>, Refusal> {
    let bad = || {
        let what = format!("`input` has to be a text, token ids, or a list of up to {INPUTS_MAX} of them");
        Refusal::invalid(what).at("input")
    };
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(ids) if ids.iter().all(Value::is_number) => Some(value.to_string()),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    match input.as_array() {
        Some(list) if list.is_empty() || list.len() > INPUTS_MAX => Err(bad()),
        Some(list) if !list.iter().all(Value::is_number) => {
            list.iter().map(text).collect::<Option<Vec<_>>>().ok_or_else(bad)
        }
        _ => Ok(vec![text(input).ok_or_else(bad)?]),
    }
}

fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0_f32; dimensions];
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    for word in words.chain(text.is_empty().then_some("")) {
        let hash = Sha256::digest(word.to_lowercase());
        let mut number = [0; 8];
        number.copy_from_slice(&hash[..8]);
        let place = u64::from_le_bytes(number) % dimensions as u64;
        vector[usize::try_from(place).unwrap_or(0)] += if hash[8] & 1 == 0 { 1.0 } else { -1.0 };
    }
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    } else {
        // Nothing but punctuation, or words that cancel out.
        vector[0] = 1.0;
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(a: &str, b: &str) -> f32 {
        vector(a, 512).iter().zip(vector(b, 512)).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn vectors_have_length_one_and_shared_words_bring_them_near() {
        for text in ["", "?!", "one", "the sky is blue"] {
            assert!((dot(text, text) - 1.0).abs() < 1e-5, "{text}");
        }
        let near = dot("why is the sky blue", "The sky is blue.");
        let far = dot("why is the sky blue", "invoice number seven");
        assert!(near > 0.7 && far.abs() < 0.3, "near {near}, far {far}");
    }
}
