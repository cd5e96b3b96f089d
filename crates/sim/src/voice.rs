//! How each provider puts an answer on the wire.
//!
//! One [`Voice`] per dialect, written from the providers' documentation and not from the gateway's
//! codecs: the stand-in and the code that it tests must not share a misunderstanding. The tests then
//! read every voice with those codecs.
//!
//! Invariant: opening, pieces, finish, terminal, in this order, make a stream that the provider's own
//! SDK takes without complaint.

mod anthropic;
mod openai_chat;
mod openai_completions;
mod openai_responses;

use serde::Serialize;
use serde_json::Value;

use crate::ask::{Ask, Endpoint};
use crate::content::{Piece, Said, Stop};

/// When every simulated answer says it was made (Unix seconds): an answer depends on no clock.
const CREATED_S: u64 = 1_790_000_000;

/// What the provider says of the tokens it counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All of the prompt.
    pub(crate) prompt: u32,
    /// What of it came from the cache.
    pub(crate) cached: u32,
    /// All that was generated.
    pub(crate) output: u64,
    /// What of it was thinking.
    pub(crate) reasoning: u64,
}

/// One dialect's frames. Every method appends whole SSE frames.
pub(crate) trait Voice: Send {
    /// What comes before any content.
    fn opening(&mut self, out: &mut Vec<u8>);
    /// One chunk of content.
    fn piece(&mut self, piece: &Piece, out: &mut Vec<u8>);
    /// Why it ends, and the token counts where they are reported.
    fn finish(&mut self, stop: Stop, counts: Option<Counts>, out: &mut Vec<u8>);
    /// What says that nothing follows.
    fn terminal(&mut self, out: &mut Vec<u8>);
    /// A failure in the middle of the stream.
    fn error(&mut self, out: &mut Vec<u8>);
    /// A sign of life.
    fn ping(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b": keepalive\n\n");
    }
    /// A frame that is not JSON.
    fn garbled(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: {\"id\":\"garbled\",\"choices\":[{\"delta\n\n");
    }
    /// The whole answer at once, for a caller that did not ask for a stream.
    fn whole(&mut self, said: &Said, stop: Stop, counts: Option<Counts>) -> Value;
}

/// The voice of an endpoint; `number` makes the answer's id.
pub(crate) fn of(endpoint: Endpoint, ask: &Ask, number: u64, counts: Option<Counts>) -> Box<dyn Voice> {
    let model = ask.model.clone();
    match endpoint {
        Endpoint::Messages | Endpoint::CountTokens => {
            Box::new(anthropic::Anthropic::new(model, number, counts))
        }
        Endpoint::Completions => {
            Box::new(openai_completions::Completions::new(model, number, ask.include_usage))
        }
        Endpoint::Responses => Box::new(openai_responses::Responses::new(model, number)),
        Endpoint::Chat | Endpoint::Embeddings => {
            Box::new(openai_chat::Chat::new(model, number, ask.include_usage))
        }
    }
}

/// Appends `value` as JSON.
fn push_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("a Vec takes everything, and the value has string keys");
}

/// Appends a frame without a name.
fn push_data(out: &mut Vec<u8>, value: &Value) {
    out.extend_from_slice(b"data: ");
    push_json(out, value);
    out.extend_from_slice(b"\n\n");
}

/// Appends a frame named by the `type` of its data.
fn push_named(out: &mut Vec<u8>, value: &Value) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(value.get("type").and_then(Value::as_str).unwrap_or("error").as_bytes());
    out.push(b'\n');
    push_data(out, value);
}
