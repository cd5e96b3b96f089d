//! A stream of OpenAI Chat Completions.

use firsttoken_wire::sse::events;
use serde_json::Value;

use super::{ensure, equal};

/// Whether every frame is a chunk without a name, the first names the role, and the last is `[DONE]` or
/// an error.
pub(crate) fn check(stream: &[u8]) -> Result<(), String> {
    let (mut over, mut chunks) = (false, 0);
    for event in events(stream).filter(|event| event.has_data) {
        ensure!(!over && event.name.is_none(), "{event:?}");
        if &*event.data == b"[DONE]" {
            over = true;
            continue;
        }
        let chunk: Value = serde_json::from_slice(&event.data).map_err(|error| error.to_string())?;
        if chunk["error"].is_object() {
            over = true;
            continue;
        }
        equal!(chunk["object"].as_str(), Some("chat.completion.chunk"));
        let choices = chunk["choices"].as_array().ok_or("no choices")?;
        ensure!(choices.len() == 1 || chunk["usage"].is_object(), "{chunk}");
        for choice in choices {
            equal!(choice["delta"]["role"] == "assistant", chunks == 0);
        }
        chunks += 1;
    }
    ensure!(over, "no end");
    Ok(())
}
