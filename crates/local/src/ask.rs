//! From a request to a prompt, and to the manner of its answer.
//!
//! - `prompt`: the conversation as the model's own template puts it.
//! - `form`: the form that the answer must have, from its format and its tools.
//! - `completion`: what is asked without a conversation. `embedding`: what is asked of other models.
//!
//! All of it takes its time, with a long text or a large schema, so it is done on no thread that others
//! wait for.
//!
//! Invariant: what cannot be done is refused with the path of its field, before anything is computed.

mod completion;
mod embedding;
mod form;
mod prompt;

use firsttoken_engine::sample::{Invalid, Sampling};
use firsttoken_engine::speech::Manner;
use firsttoken_engine::text::Stops;
use firsttoken_engine::tools::{Expect, opens_thinking};
use firsttoken_logic::engine::ids::{RequestId, Tenant};
use firsttoken_logic::engine::sequence::{Priority, Request};
use firsttoken_wire::chat::{self, MediaKind, Part};
use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use serde_json::Value;

use crate::demo::Cites;
use crate::model::Model;

pub(crate) use completion::{completion, content, tokens};
pub(crate) use embedding::{Texts, embeddings};

/// From here on a bias is a ban, as OpenAI has it.
const BIAS_BAN: f64 = -100.0;

/// What the engine is asked.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) manner: Manner,
    pub(crate) stream: bool,
    /// What the answer begins with, though nobody has to say it.
    pub(crate) echo: Option<String>,
    /// What its markers stand for, where it cites.
    pub(crate) cites: Option<Cites>,
}

/// What becomes of a chat.
pub(crate) enum Outcome {
    /// The engine answers.
    Ask(Box<Asked>),
    /// This is said in its place.
    Say { text: &'static str, stream: bool },
}

/// Reads a chat completion's body.
pub(crate) fn chat(model: &Model, body: &[u8]) -> Result<Outcome, ApiError> {
    let request = parse(body)?;
    refuse_media(&request)?;
    if let Some(documents) = &model.documents {
        return documents.ask(model, &request);
    }
    let wanted = form::wanted(model.family, &request)?;
    let text = prompt::text(model, &request, wanted.is_some())?;
    let prompt = model.vocabulary.prompt(&text);
    let output_max = room(model, prompt.len(), request.max_tokens, "messages")?;
    let expect = Expect {
        family: wanted.as_ref().map(|wanted| wanted.calls.family),
        names: request.tools.iter().map(|tool| tool.name.clone()).collect(),
        is_thinking: opens_thinking(&text),
        // Not the caller's: in a conversation each call has its own id.
        seed: random_seed(),
    };
    let manner = Manner {
        form: form::compile(model, wanted.as_ref(), request.format.as_ref())?,
        expect: Some(expect),
        ..manner(model, &request)?
    };
    let stream = request.stream;
    let request = asked(model, prompt, output_max, stream);
    Ok(Outcome::Ask(Box::new(Asked { manner, request, stream, echo: None, cites: None })))
}

/// Reads what the one model of requests can say; the rest is refused in words that are true here.
fn parse(body: &[u8]) -> Result<chat::Request, ApiError> {
    let fields: Value = serde_json::from_slice(body).unwrap_or_default();
    let is_more = |name: &str, than: u64| fields.get(name).and_then(Value::as_u64).is_some_and(|n| n > than);
    if is_more("n", 1) {
        return Err(unsupported("models on this machine give one answer; ask again for another").at("n"));
    }
    if fields.get("logprobs").and_then(Value::as_bool) == Some(true) {
        return Err(no_logprobs().at("logprobs"));
    }
    if is_more("top_logprobs", 0) {
        return Err(no_logprobs().at("top_logprobs"));
    }
    let parsed = Dialect::OpenAiChat.parse_request(body);
    parsed.unwrap_or_else(|| Err(invalid("this is no chat completion")))
}

fn no_logprobs() -> ApiError {
    unsupported("models on this machine tell no log probabilities; leave this out")
}

fn refuse_media(request: &chat::Request) -> Result<(), ApiError> {
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    let parts = parts.flat_map(|part| match part {
        Part::ToolResult { content, .. } => content.as_slice(),
        part => std::slice::from_ref(part),
    });
    for part in parts {
        if let Part::Media(media) = part {
            let what = match media.kind {
                MediaKind::Image => "images",
                MediaKind::Document => "documents",
            };
            let message = format!("models on this machine take text only, and no {what}");
            return Err(invalid(message).at(media.path.clone()).code("unsupported_content"));
        }
    }
    Ok(())
}

/// How many tokens the answer may have behind a prompt of so many.
pub(crate) fn room(model: &Model, prompt: usize, asked: Option<u64>, field: &str) -> Result<u32, ApiError> {
    let tokens = u32::try_from(prompt).unwrap_or(u32::MAX);
    if tokens >= model.context {
        let message = format!(
            "{field}: these are {tokens} tokens, and {} has a context of {}; leave some out",
            model.name, model.context
        );
        return Err(invalid(message).at(field).code("context_length_exceeded"));
    }
    let room = model.context - tokens;
    Ok(asked.map_or(room, |max| u32::try_from(max).unwrap_or(room).min(room)))
}

pub(crate) fn asked(model: &Model, prompt: Vec<u32>, output_max: u32, stream: bool) -> Request {
    Request {
        id: RequestId(0),
        tenant: Tenant(0),
        prompt,
        output_max,
        priority: Priority::Interactive,
        itl_target: model.options.itl_target.filter(|_| stream),
        deadline: None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the sampler computes in single precision")]
pub(crate) fn manner(model: &Model, request: &chat::Request) -> Result<Manner, ApiError> {
    let number = |value: Option<f64>, default: f32| value.map_or(default, |value| value as f32);
    let rest = |name: &str| request.rest.get(name).and_then(Value::as_f64);
    let usual = Sampling::default();
    let sampling = Sampling {
        temperature: number(request.temperature, usual.temperature),
        top_k: request.top_k.map_or(0, |top_k| u32::try_from(top_k).unwrap_or(u32::MAX)),
        top_p: number(request.top_p, usual.top_p),
        min_p: number(rest("min_p"), usual.min_p),
        repetition_penalty: number(rest("repetition_penalty"), usual.repetition_penalty),
        frequency_penalty: number(request.frequency_penalty, usual.frequency_penalty),
        presence_penalty: number(request.presence_penalty, usual.presence_penalty),
        bias: request.rest.get("logit_bias").map_or_else(|| Ok(Vec::new()), bias)?,
        seed: request.seed.map_or_else(random_seed, i64::cast_unsigned),
        ..usual
    };
    let field = |error: &Invalid| match error {
        Invalid::Range { name, .. } => *name,
        Invalid::Bias { .. } => "logit_bias",
    };
    let checked = sampling.check(model.vocabulary.size());
    checked.map_err(|error| invalid(error.to_string()).at(field(&error)))?;
    let stops = Stops::new(request.stop.clone()).map_err(|error| invalid(error.to_string()).at("stop"))?;
    let ignore_end = request.rest.get("ignore_eos").and_then(Value::as_bool).unwrap_or(false);
    Ok(Manner { sampling, stops, ignore_end, guesses_max: model.options.guesses_max, ..Manner::default() })
}

/// `{"token": bias}`, with numbers from -100, which is a ban, to 100.
#[expect(clippy::cast_possible_truncation, reason = "the sampler computes in single precision")]
fn bias(value: &Value) -> Result<Vec<(u32, f32)>, ApiError> {
    let wrong = || invalid("expected an object of token ids, each with a number").at("logit_bias");
    let one = |(token, bias): (&String, &Value)| {
        let bias = bias
            .as_f64()
            .filter(|bias| (BIAS_BAN..=-BIAS_BAN).contains(bias))
            .ok_or_else(|| invalid("expected a number from -100 to 100").at(format!("logit_bias.{token}")))?;
        let token = token.parse().map_err(|_| wrong())?;
        Ok((token, if bias == BIAS_BAN { f32::NEG_INFINITY } else { bias as f32 }))
    };
    value.as_object().ok_or_else(wrong)?.iter().map(one).collect()
}

/// A seed for who has not asked for one: hashing with fresh keys is the standard library's randomness.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(())
}

pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::InvalidRequest, message)
}

pub(crate) fn unsupported(message: impl Into<String>) -> ApiError {
    invalid(message).code("unsupported")
}
