//! What is asked without a conversation: the older completions, and tokens for text and back.
//!
//! Invariant: text goes to the model as it stands, with what begins every text before it and nothing
//! else.

use firsttoken_wire::ApiError;
use serde_json::{Map, Value, json};

use super::{Asked, asked, invalid, manner, no_logprobs, parse, room, unsupported};
use crate::model::Model;

/// Tokens of an answer, where nobody says how many, as OpenAI has it.
const OUTPUT_TOKENS: u64 = 16;

/// Reads a completion's body.
pub(crate) fn completion(model: &Model, body: &[u8]) -> Result<Asked, ApiError> {
    let mut fields = object(body)?;
    let prompt = prompt(model, &fields.remove("prompt").unwrap_or_default())?;
    let echo = fields.remove("echo").is_some_and(|echo| echo == true);
    if fields.remove("logprobs").is_some_and(|logprobs| !logprobs.is_null()) {
        return Err(no_logprobs().at("logprobs"));
    }
    if fields.remove("suffix").is_some_and(|suffix| !suffix.is_null() && suffix != "") {
        return Err(unsupported("models on this machine write on, and fill nothing in").at("suffix"));
    }
    if fields.remove("best_of").is_some_and(|best_of| !best_of.is_null() && best_of != 1) {
        return Err(unsupported("models on this machine give one answer").at("best_of"));
    }
    // What is left are fields of a chat completion, which has a conversation.
    fields.insert("messages".to_owned(), json!([{"role": "user", "content": "-"}]));
    let request = parse(Value::Object(fields).to_string().as_bytes())?;
    let max_tokens = request.max_tokens.unwrap_or(OUTPUT_TOKENS);
    let output_max = room(model, prompt.len(), Some(max_tokens), "prompt")?;
    let echo = echo.then(|| text(model, &prompt));
    let manner = manner(model, &request)?;
    Ok(Asked {
        manner,
        request: asked(model, prompt, output_max, request.stream),
        stream: request.stream,
        echo,
        cites: None,
    })
}

/// The tokens of a prompt: a text, or tokens. A list may hold one of them.
fn prompt(model: &Model, prompt: &Value) -> Result<Vec<u32>, ApiError> {
    let read = match prompt {
        Value::String(text) => model.vocabulary.prompt(text),
        Value::Array(list) => match list.as_slice() {
            [one @ (Value::String(_) | Value::Array(_))] => return self::prompt(model, one),
            [Value::String(_) | Value::Array(_), ..] => {
                return Err(unsupported("one prompt at a time; ask once for each").at("prompt"));
            }
            tokens => ids(model.vocabulary.size(), tokens, "prompt")?,
        },
        _ => return Err(invalid("expected a text or a list of tokens").at("prompt")),
    };
    match read.is_empty() {
        true => Err(invalid("the prompt is empty; there is nothing to go on from").at("prompt")),
        false => Ok(read),
    }
}

/// Tokens of a vocabulary of that size.
pub(super) fn ids(size: u32, list: &[Value], field: &str) -> Result<Vec<u32>, ApiError> {
    let id = |(at, token): (usize, &Value)| {
        let known = token.as_u64().and_then(|token| u32::try_from(token).ok()).filter(|token| *token < size);
        let wrong = || invalid(format!("expected a token of this model, 0 to {}", size - 1));
        known.ok_or_else(|| wrong().at(format!("{field}[{at}]")))
    };
    list.iter().enumerate().map(id).collect()
}

fn text(model: &Model, tokens: &[u32]) -> String {
    let mut bytes = Vec::new();
    tokens.iter().for_each(|token| model.vocabulary.push_piece(*token, true, &mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `{content, add_special, parse_special}` to `{tokens}`, as llama.cpp's server has it.
pub(crate) fn tokens(model: &Model, body: &[u8]) -> Result<Value, ApiError> {
    let fields = object(body)?;
    let Some(Value::String(content)) = fields.get("content") else {
        return Err(invalid("expected a text").at("content"));
    };
    let flag = |name: &str, default| fields.get(name).and_then(Value::as_bool).unwrap_or(default);
    let mut tokens = model.vocabulary.tokenize(content, flag("parse_special", true));
    if let Some(bos) = model.vocabulary.bos().filter(|_| flag("add_special", false))
        && model.vocabulary.adds_bos()
    {
        tokens.insert(0, bos);
    }
    Ok(json!({ "tokens": tokens }))
}

/// `{tokens}` to `{content}`.
pub(crate) fn content(model: &Model, body: &[u8]) -> Result<Value, ApiError> {
    let fields = object(body)?;
    let Some(Value::Array(tokens)) = fields.get("tokens") else {
        return Err(invalid("expected a list of tokens").at("tokens"));
    };
    Ok(json!({ "content": text(model, &ids(model.vocabulary.size(), tokens, "tokens")?) }))
}

pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    serde_json::from_slice(body).map_err(|error| invalid(format!("the body is no JSON object: {error}")))
}
