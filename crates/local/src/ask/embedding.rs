//! What embeddings are asked of, and how they are told.
//!
//! Invariant: every text fits; what OpenAI's API has and this model has not is refused by its field.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firsttoken_wire::ApiError;
use serde::Serialize;
use serde_json::Value;

use super::completion::{ids, object};
use super::{invalid, unsupported};
use crate::embeddings::Embeddings;

/// Most texts of one request, as OpenAI has it.
const TEXTS_MAX: usize = 2048;

/// Texts that were asked for.
pub(crate) struct Texts {
    /// Their tokens.
    pub(crate) texts: Vec<Vec<u32>>,
    /// Whether vectors are told as base64 of their bytes.
    is_base64: bool,
}

/// Reads an embeddings request's body.
pub(crate) fn embeddings(model: &Embeddings, body: &[u8]) -> Result<Texts, ApiError> {
    let fields = object(body)?;
    if fields.get("dimensions").is_some_and(|dimensions| !dimensions.is_null()) {
        return Err(unsupported("vectors have the width of the model; leave this out").at("dimensions"));
    }
    let is_base64 = match fields.get("encoding_format").map(|format| format.as_str()) {
        None | Some(Some("float")) => false,
        Some(Some("base64")) => true,
        Some(_) => return Err(invalid("expected \"float\" or \"base64\"").at("encoding_format")),
    };
    let input = fields
        .get("input")
        .ok_or_else(|| invalid("input is missing: a text, or a list of them").at("input"))?;
    let texts = texts(model, input)?;
    for (at, text) in texts.iter().enumerate() {
        let (tokens, max) = (text.len(), model.tokens_max());
        if tokens == 0 {
            return Err(invalid("a text without tokens has no embedding").at(format!("input[{at}]")));
        }
        if tokens > max as usize {
            let message =
                format!("input[{at}]: these are {tokens} tokens, and at most {max} fit; split the text");
            return Err(invalid(message).at(format!("input[{at}]")).code("context_length_exceeded"));
        }
    }
    Ok(Texts { texts, is_base64 })
}

/// A text, tokens, or a list of either.
fn texts(model: &Embeddings, input: &Value) -> Result<Vec<Vec<u32>>, ApiError> {
    let wrong = || invalid("expected a text, a list of texts, or lists of tokens").at("input");
    let list = match input {
        Value::String(text) => return Ok(vec![model.tokens(text)]),
        Value::Array(list) => list,
        _ => return Err(wrong()),
    };
    if list.len() > TEXTS_MAX && !list[0].is_number() {
        return Err(invalid(format!("{} texts; {TEXTS_MAX} at most in one request", list.len())).at("input"));
    }
    let one = |(at, item): (usize, &Value)| match item {
        Value::String(text) => Ok(model.tokens(text)),
        Value::Array(tokens) => ids(model.vocabulary(), tokens, &format!("input[{at}]")),
        _ => Err(wrong()),
    };
    match list.first() {
        None => Err(invalid("the list is empty").at("input")),
        Some(Value::Number(_)) => Ok(vec![ids(model.vocabulary(), list, "input")?]),
        Some(_) => list.iter().enumerate().map(one).collect(),
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    object: &'static str,
    data: Vec<Item>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Item {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Floats(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl Texts {
    /// How many tokens all of them have.
    pub(crate) fn tokens(&self) -> usize {
        self.texts.iter().map(Vec::len).sum()
    }

    /// How vectors are told.
    pub(crate) fn teller(&self) -> impl FnOnce(&str, Vec<Vec<f32>>) -> Vec<u8> + use<> {
        let (is_base64, tokens) = (self.is_base64, self.tokens());
        move |model, vectors| {
            let told = |vector: Vec<f32>| match is_base64 {
                true => Vector::Base64(
                    STANDARD.encode(vector.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()),
                ),
                false => Vector::Floats(vector),
            };
            let item = |(index, vector)| Item { object: "embedding", index, embedding: told(vector) };
            let data = vectors.into_iter().enumerate().map(item).collect();
            let usage = Usage { prompt_tokens: tokens, total_tokens: tokens };
            // Plain values are written without fail.
            serde_json::to_vec(&Answer { object: "list", data, model, usage }).unwrap_or_default()
        }
    }
}
