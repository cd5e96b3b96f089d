//! OpenAI Responses.
//!
//! A conversation and an answer are lists of items: messages, reasoning, function calls, their outputs, and
//! tools of OpenAI's own. Every event of a stream names itself in its `type` and carries a number; output
//! items are numbered together. A stream ends with `response.completed`, `.incomplete` or `.failed`, each
//! with the whole answer in it.
//!
//! Nothing is stored here: what refers to an earlier answer by its id is refused.

mod answer;
mod item;
mod render;
mod request;
mod sealed;
mod stream;

use serde_json::json;

use crate::ApiError;
use crate::openai_chat::error_type;

pub use answer::{parse_answer, render_answer};
pub use render::Renderer;
pub use request::{parse_request, render_request};

pub(crate) use answer::facts;
pub(crate) use stream::Parser;

/// The data of an `error` event. OpenAI sends the error in two forms, and its SDKs and the AI SDK each
/// know one of them: an object of its own (what makes the Python SDK raise) and fields of the event. The
/// AI SDK takes neither for an error without a number.
pub(crate) fn write_error(out: &mut Vec<u8>, error: &ApiError, sequence_number: u64) {
    let body = json!({
        "type": "error", "sequence_number": sequence_number,
        "code": error.reason(), "message": error.message, "param": error.param,
        "error": {
            "type": error_type(error.kind), "code": error.reason(),
            "message": error.message, "param": error.param,
        },
    });
    crate::json::value(out, &body);
}
