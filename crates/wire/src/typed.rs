//! firsttoken's own typed events, `POST /v1/chat`, and the AI SDK's UI message stream, `POST /api/chat`:
//! the same bytes with two faces.
//!
//! The `data:` of every frame is a chunk that `useChat` takes since release 5.0.0 of the AI SDK, which
//! refuses every type and every field that it does not know. So what only we say stands in `data-…`
//! chunks, in the metadata of the message, and in lines that it does not read: `id:` counts the frames
//! from 1, without gaps, and `event:` names them.
//!
//! | `event:` | chunks |
//! |---|---|
//! | `status`, the first is `accepted` | `data-status` |
//! | `token` | `text-…`, `reasoning-…`, `tool-…` |
//! | `citation` | `source-url` |
//! | `meta` | `start`, `start-step`, `finish-step`, `message-metadata`, `data-finish` |
//! | `error`, the last | `data-error`, and behind it `error` without a name |
//! | `done`, the last of a good end | `finish`, and behind it `[DONE]` without a name |
//!
//! Clients must skip names, chunks and fields that they do not know.
//!
//! Invariant: no chunk, and no field of a chunk, that release 5.0.0 refuses.

mod render;
mod request;
mod stream;
mod ui;

use serde_json::json;

use crate::ApiError;
use crate::chat::StopReason;
use crate::json::{string, value};
use crate::openai_chat::prune;

pub use render::Renderer;
pub use request::parse_request;
pub use ui::{UiRequest, parse_ui_request};

pub(crate) use stream::Parser;

/// Whose metadata a reasoning part carries; see [`SIGNATURE`] and [`REDACTED`].
const OURS: &str = "firsttoken";
/// The field with the provider's proof, named as the AI SDK's own Anthropic provider names it.
const SIGNATURE: &str = "signature";
/// The field with what only the provider can read, likewise.
const REDACTED: &str = "redactedData";
/// What stands for a reason that nobody gave: an end without one is not called a stop.
const NO_REASON: &str = "unknown";

/// The AI SDK's word for a reason.
fn reason_word(reason: &StopReason) -> &str {
    match reason {
        StopReason::Stop => "stop",
        StopReason::Length => "length",
        StopReason::Tool => "tool-calls",
        StopReason::Filter => "content-filter",
        StopReason::Cancelled => "cancelled",
        StopReason::Other(word) => word,
    }
}

fn reason(word: &str) -> Option<StopReason> {
    Some(match word {
        NO_REASON => return None,
        "stop" => StopReason::Stop,
        "length" => StopReason::Length,
        "tool-calls" => StopReason::Tool,
        "content-filter" => StopReason::Filter,
        "cancelled" => StopReason::Cancelled,
        other => StopReason::Other(other.to_owned()),
    })
}

/// The `data` of a `data-error` chunk, and the `error` of an error body.
pub(crate) fn write_error(out: &mut Vec<u8>, error: &ApiError, request_id: Option<&str>) {
    let mut object = json!({
        "type": error.kind.name(),
        "code": error.reason(),
        "message": error.message,
        "param": error.param,
        "retryable": error.kind.is_retryable(),
        "retry_after_ms": error.retry_after_s.map(|seconds| u64::from(seconds) * 1_000),
        "request_id": request_id,
    });
    prune(&mut object);
    value(out, &object);
}

/// The chunk that says all of an error; only who listens for it gets it.
pub(crate) fn write_error_data(out: &mut Vec<u8>, error: &ApiError, request_id: Option<&str>) {
    out.extend_from_slice(b"{\"type\":\"data-error\",\"data\":");
    write_error(out, error, request_id);
    out.extend_from_slice(b",\"transient\":true}");
}

/// The chunk that makes the AI SDK's client fail, with a sentence for a person.
pub(crate) fn write_error_text(out: &mut Vec<u8>, error: &ApiError) {
    out.extend_from_slice(b"{\"type\":\"error\",\"errorText\":");
    string(out, &error.message);
    out.push(b'}');
}
