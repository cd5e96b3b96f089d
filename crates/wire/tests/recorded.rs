//! Streams of real providers, written out by hand from what they publish (`golden/README.md` names the
//! pages; the texts are ours). Each is read without a frame that is not known, and told in every other
//! dialect it is valid there and says the same.

mod streams;
mod valid;

use std::path::PathBuf;

use firsttoken_wire::chat::Event;
use firsttoken_wire::{Dialect, sse};
use serde_json::Value;
use valid::said::survives_everywhere;

const DIALECTS: [(&str, Dialect); 4] = [
    ("openai_chat", Dialect::OpenAiChat),
    ("openai_responses", Dialect::OpenAiResponses),
    ("anthropic", Dialect::Anthropic),
    ("typed", Dialect::Typed),
];

/// Streams that hold on purpose what no provider sends.
const STRANGE: [&str; 2] = ["odd_but_tolerated", "unknown_events"];

/// The kinds of frames that say nothing to our reader, and that we know to say nothing: what tools of the
/// provider do, and what surrounds or repeats the content.
const SILENT: [&str; 17] = [
    "content_block_stop",
    "message_delta",
    "response.in_progress",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.done",
    "response.output_text.annotation.added",
    "response.refusal.done",
    "response.function_call_arguments.done",
    "response.reasoning_part.added",
    "response.reasoning_part.done",
    "response.reasoning_text.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.reasoning_summary_text.done",
];

/// What Responses streams tell of the tools that the provider runs.
const RUN_THERE: [&str; 5] =
    ["web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools"];

/// Blocks of Messages that say nothing yet, or are of tools that the provider runs.
const BLOCKS: [&str; 8] = [
    "text",
    "thinking",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "bash_code_execution_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
];

fn streams() -> Vec<(PathBuf, Dialect, Vec<u8>)> {
    let all = streams::golden(&DIALECTS);
    assert!(all.len() > 70, "the golden streams are missing");
    all
}

#[test]
fn every_stream_survives_in_every_dialect() {
    let mut wrong = Vec::new();
    for (path, dialect, stream) in streams() {
        if let Err(what) = survives_everywhere(dialect, &stream) {
            wrong.push(format!("{}: {what}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn no_frame_is_unknown() {
    let mut unknown = Vec::new();
    for (path, dialect, stream) in streams() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        // The typed events are ours: `typed.rs` knows each of their chunks.
        if dialect == Dialect::Typed || STRANGE.contains(&&*name) {
            continue;
        }
        let mut parser = dialect.parser();
        for event in sse::events(&stream) {
            let mut silent = false;
            parser.parse(&event, &mut |said| silent |= matches!(said, Event::Other | Event::Malformed));
            if silent && !is_known(dialect, &event.data) {
                unknown.push(format!("{}: {}", path.display(), String::from_utf8_lossy(&event.data)));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

/// Whether a frame that said nothing is one that has nothing to say.
fn is_known(dialect: Dialect, data: &[u8]) -> bool {
    let frame: Value = serde_json::from_slice(data).unwrap_or_default();
    let kind = frame["type"].as_str().unwrap_or_default();
    match dialect {
        Dialect::OpenAiChat => frame["choices"].as_array().is_some_and(|all| all.iter().all(is_empty)),
        Dialect::Anthropic if kind == "content_block_start" => {
            frame["content_block"]["type"].as_str().is_some_and(|block| BLOCKS.contains(&block))
        }
        // The input of a tool that the provider runs, and pieces that are empty.
        Dialect::Anthropic if kind == "content_block_delta" => ["citations_delta", "input_json_delta"]
            .contains(&frame["delta"]["type"].as_str().unwrap_or_default()),
        // An empty piece.
        Dialect::OpenAiResponses if frame["delta"] == "" => kind == "response.function_call_arguments.delta",
        _ => {
            SILENT.contains(&kind)
                || RUN_THERE.iter().any(|tool| kind.starts_with(&format!("response.{tool}")))
        }
    }
}

/// Whether a choice names a role at most.
fn is_empty(choice: &Value) -> bool {
    let nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };
    let delta = choice["delta"].as_object();
    delta.is_some_and(|delta| delta.iter().all(|(key, value)| key == "role" || nothing(value)))
}
