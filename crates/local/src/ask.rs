//! From a request to a prompt, and to the manner of its answer.
//!
//! Invariant: what cannot be done is refused with the path of its field, before anything is computed.

use std::time::{Duration, SystemTime};

use firsttoken_engine::sample::Sampling;
use firsttoken_engine::speech::Manner;
use firsttoken_engine::template::{Conversation, UnixSeconds};
use firsttoken_engine::text::Stops;
use firsttoken_logic::engine::ids::{RequestId, Tenant};
use firsttoken_logic::engine::sequence::{Priority, Request};
use firsttoken_wire::chat::{self, MediaKind, Part};
use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use serde_json::{Map, Value};

use crate::model::Model;

/// The pace that a reader is given unless said otherwise: nobody reads faster than ten tokens a second.
const ITL_TARGET: Duration = Duration::from_millis(100);

/// What the engine is asked.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) manner: Manner,
    pub(crate) stream: bool,
}

/// Reads a chat completion's body.
pub(crate) fn chat(model: &Model, body: &[u8]) -> Result<Asked, ApiError> {
    let parsed = Dialect::OpenAiChat.parse_request(body);
    let request = parsed.unwrap_or_else(|| Err(invalid("this is no chat completion")))?;
    refuse_media(&request)?;
    let prompt = prompt(model, &request)?;
    let tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
    if tokens >= model.context {
        let message = format!(
            "the messages are {tokens} tokens, and {} has a context of {}; leave some out",
            model.name, model.context
        );
        return Err(invalid(message).at("messages").code("context_length_exceeded"));
    }
    let room = model.context - tokens;
    let output_max = request.max_tokens.map_or(room, |max| u32::try_from(max).unwrap_or(room).min(room));
    Ok(Asked {
        manner: manner(model, &request)?,
        request: Request {
            id: RequestId(0),
            tenant: Tenant(0),
            prompt,
            output_max,
            priority: Priority::Interactive,
            itl_target: request.stream.then_some(ITL_TARGET),
            deadline: None,
        },
        stream: request.stream,
    })
}

fn refuse_media(request: &chat::Request) -> Result<(), ApiError> {
    for part in request.messages.iter().flat_map(|message| &message.parts) {
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

/// The tokens of the conversation, as the model's own template puts it.
fn prompt(model: &Model, request: &chat::Request) -> Result<Vec<u32>, ApiError> {
    let rendered = Dialect::OpenAiChat.render_request(request)?;
    let body: Map<String, Value> = serde_json::from_slice(&rendered.body).unwrap_or_default();
    let none = Value::Null;
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let conversation = Conversation {
        messages: body.get("messages").unwrap_or(&none),
        tools: body.get("tools"),
        add_generation_prompt: true,
        variables: &Map::new(),
        now: UnixSeconds(now),
    };
    let text = model.template.render(&conversation);
    let text = text.map_err(|error| invalid(error.to_string()).at("messages").code("template"))?;
    Ok(model.vocabulary.prompt(&text))
}

#[expect(clippy::cast_possible_truncation, reason = "the sampler computes in single precision")]
fn manner(model: &Model, request: &chat::Request) -> Result<Manner, ApiError> {
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
        seed: request.seed.map_or_else(random_seed, i64::cast_unsigned),
        ..usual
    };
    sampling.check(model.vocabulary.size()).map_err(|error| invalid(error.to_string()))?;
    let stops = Stops::new(request.stop.clone()).map_err(|error| invalid(error.to_string()).at("stop"))?;
    let ignore_end = request.rest.get("ignore_eos").and_then(Value::as_bool).unwrap_or(false);
    Ok(Manner { sampling, stops, ignore_end, guesses_max: model.guesses_max })
}

/// A seed for who has not asked for one: hashing with fresh keys is the standard library's randomness.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(())
}

pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::InvalidRequest, message)
}
