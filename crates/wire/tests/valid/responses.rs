//! A stream of OpenAI Responses.

use std::collections::BTreeMap;

use firsttoken_wire::sse::events;
use serde_json::Value;

use super::{ensure, equal};

/// An item of a stream while it is checked.
#[derive(Default)]
struct Seen {
    id: String,
    /// The part that is open; a call has none.
    part: bool,
    text: String,
    done: Option<Value>,
}

/// Whether a stream is valid: numbered without gaps, items and parts nested, closing events that repeat the
/// deltas, and all of it in the last event.
pub(crate) fn check(stream: &[u8]) -> Result<(), String> {
    let (mut items, mut names) = (BTreeMap::<u64, Seen>::new(), Vec::<String>::new());
    for (number, event) in events(stream).filter(|event| event.has_data).enumerate() {
        let data: Value = serde_json::from_slice(&event.data).unwrap_or_default();
        let name = event.name.unwrap_or_default().to_owned();
        equal!(data["type"].as_str(), Some(name.as_str()));
        equal!(data["sequence_number"].as_u64(), Some(number as u64));
        ensure!(!names.iter().any(|name| is_end(name)), "{} after the end", name);
        if let Some(index) = data["output_index"].as_u64() {
            check_item(&name, &data, index, &mut items)?;
        }
        if is_end(&name) && name != "error" {
            let done: Option<Vec<Value>> = items.values().map(|seen| seen.done.clone()).collect();
            equal!(Some(data["response"]["output"].clone()), done.map(Value::Array));
        }
        names.push(name);
    }
    if names.first().is_some_and(|name| name != "error") {
        equal!(&names[..2], ["response.created", "response.in_progress"]);
    }
    ensure!(names.last().is_none_or(|name| is_end(name)));
    Ok(())
}

fn is_end(name: &str) -> bool {
    matches!(name, "response.completed" | "response.incomplete" | "error")
}

fn check_item(name: &str, data: &Value, index: u64, items: &mut BTreeMap<u64, Seen>) -> Result<(), String> {
    if name == "response.output_item.added" {
        equal!(index, items.len() as u64);
        let id = data["item"]["id"].as_str().unwrap_or_default().to_owned();
        ensure!(!id.is_empty() && items.values().all(|seen| seen.id != id));
        items.insert(index, Seen { id, ..Seen::default() });
        return Ok(());
    }
    let seen = items.get_mut(&index).ok_or_else(|| format!("{name} before its item"))?;
    ensure!(seen.done.is_none(), "{} after its item was done", name);
    if name == "response.output_item.done" {
        let item = &data["item"];
        let repeated = [&item["arguments"], &item["content"][0]["text"], &item["summary"][0]["text"]];
        let text = repeated.into_iter().find_map(Value::as_str).unwrap_or_default();
        equal!((text, item["id"].as_str()), (seen.text.as_str(), Some(seen.id.as_str())));
        ensure!(!seen.part);
        seen.done = Some(item.clone());
        return Ok(());
    }
    equal!(data["item_id"].as_str(), Some(seen.id.as_str()));
    match name {
        "response.content_part.added" | "response.reasoning_summary_part.added" => {
            ensure!(!seen.part && seen.text.is_empty());
            seen.part = true;
        }
        "response.output_text.delta" | "response.reasoning_summary_text.delta" => {
            ensure!(seen.part);
            seen.text.push_str(data["delta"].as_str().unwrap_or_default());
        }
        "response.output_text.annotation.added" => ensure!(seen.part),
        "response.function_call_arguments.delta" => {
            ensure!(!seen.part);
            seen.text.push_str(data["delta"].as_str().unwrap_or_default());
        }
        "response.output_text.done" | "response.reasoning_summary_text.done" => {
            equal!((data["text"].as_str(), seen.part), (Some(seen.text.as_str()), true));
        }
        "response.function_call_arguments.done" => {
            equal!(data["arguments"].as_str(), Some(seen.text.as_str()));
        }
        "response.content_part.done" | "response.reasoning_summary_part.done" => {
            equal!((data["part"]["text"].as_str(), seen.part), (Some(seen.text.as_str()), true));
            seen.part = false;
        }
        other => return Err(format!("unknown event {other}")),
    }
    Ok(())
}
