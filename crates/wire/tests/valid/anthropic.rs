//! A stream of Anthropic Messages.

use firsttoken_wire::sse::events;
use serde_json::Value;

use super::{ensure, equal};

/// Whether blocks are numbered in order, deltas stand inside theirs, and all end before the message does.
pub(crate) fn check(stream: &[u8]) -> Result<(), String> {
    let (mut next, mut open, mut names) = (0, Vec::new(), Vec::new());
    for event in events(stream).filter(|event| event.has_data) {
        let data: Value = serde_json::from_slice(&event.data).map_err(|error| error.to_string())?;
        equal!(data["type"].as_str(), event.name);
        if event.name == Some("ping") {
            // It may stand anywhere.
            continue;
        }
        let index = data["index"].as_u64();
        match event.name {
            Some("content_block_start") => {
                equal!(index, Some(next));
                open.push(next);
                next += 1;
            }
            Some("content_block_delta") => ensure!(open.iter().any(|block| Some(*block) == index)),
            Some("content_block_stop") => {
                ensure!(open.iter().any(|block| Some(*block) == index));
                open.retain(|block| Some(*block) != index);
            }
            Some("message_stop") => ensure!(open.is_empty()),
            _ => {}
        }
        names.push(event.name.unwrap_or_default().to_owned());
    }
    let failed = names.last().is_some_and(|name| name == "error");
    ensure!(failed || names.last().is_some_and(|name| name == "message_stop"), "{:?}", names.last());
    ensure!(names.first().is_some_and(|name| name == "message_start") || (failed && names.len() == 1));
    let once = |word: &str| names.iter().filter(|name| *name == word).count() <= 1;
    ensure!(once("message_start") && once("message_stop"), "{names:?}");
    Ok(())
}
