//! The typed events as the AI SDK's client reads them.

use std::collections::{HashMap, HashSet};

use firsttoken_wire::sse::events;
use serde_json::Value;

/// What the AI SDK's client would have in hand.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) chunks: Vec<Value>,
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) proofs: Vec<String>,
    /// Id, pieces and input of each call.
    pub(crate) calls: Vec<(String, String, Value)>,
    pub(crate) finished: bool,
    pub(crate) failed: bool,
}

/// The fields of each chunk, as `uiMessageChunkSchema` of `ai` 5.0.0 has them: one more is refused.
const FIELDS: &[(&str, &[&str], &[&str])] = &[
    ("start", &[], &["messageId", "messageMetadata"]),
    ("start-step", &[], &[]),
    ("finish-step", &[], &[]),
    ("finish", &[], &["messageMetadata"]),
    ("message-metadata", &["messageMetadata"], &[]),
    ("error", &["errorText"], &[]),
    ("text-start", &["id"], &["providerMetadata"]),
    ("text-delta", &["id", "delta"], &["providerMetadata"]),
    ("text-end", &["id"], &["providerMetadata"]),
    ("reasoning-start", &["id"], &["providerMetadata"]),
    ("reasoning-delta", &["id", "delta"], &["providerMetadata"]),
    ("reasoning-end", &["id"], &["providerMetadata"]),
    ("source-url", &["sourceId", "url"], &["title", "providerMetadata"]),
    ("tool-input-start", &["toolCallId", "toolName"], &["providerExecuted", "dynamic"]),
    ("tool-input-delta", &["toolCallId", "inputTextDelta"], &[]),
    (
        "tool-input-available",
        &["toolCallId", "toolName", "input"],
        &["providerExecuted", "providerMetadata", "dynamic"],
    ),
    ("tool-output-error", &["toolCallId", "errorText"], &["providerExecuted", "dynamic"]),
    ("data-status", &["data"], &["id", "transient"]),
    ("data-error", &["data"], &["id", "transient"]),
    ("data-finish", &["data"], &["id", "transient"]),
];

fn has_its_fields(chunk: &Value) -> Result<(), String> {
    let kind = chunk["type"].as_str().unwrap_or_default();
    let row = FIELDS.iter().find(|row| row.0 == kind).ok_or_else(|| format!("{kind} is unknown"))?;
    let all = chunk.as_object().ok_or("no object")?;
    let known = |name: &str| name == "type" || row.1.contains(&name) || row.2.contains(&name);
    let strings =
        ["id", "delta", "toolCallId", "toolName", "inputTextDelta", "errorText", "messageId", "url", "title"];
    match all
        .iter()
        .find(|(name, value)| !known(name) || (strings.contains(&name.as_str()) && !value.is_string()))
    {
        Some((name, _)) => Err(format!("{kind} has a wrong {name}: {chunk}")),
        None if row.1.iter().all(|name| all.contains_key(*name)) => Ok(()),
        None => Err(format!("{kind} lacks a field: {chunk}")),
    }
}

/// Reads a stream as the AI SDK's client does, and refuses what that would refuse or be confused by.
pub(crate) fn judge(stream: &[u8]) -> Result<Judged, String> {
    let (mut judge, mut done) = (Judge::default(), false);
    for (at, event) in events(stream).filter(|event| event.has_data).enumerate() {
        if done || judge.seen.failed || judge.seen.finished && &*event.data != b"[DONE]" {
            return Err(format!("behind the end: {event:?}"));
        }
        if &*event.data == b"[DONE]" {
            done = true;
            continue;
        }
        if event.id != Some((at + 1).to_string().as_str()) {
            return Err(format!("id {:?} at {at}", event.id));
        }
        let chunk: Value = serde_json::from_slice(&event.data).map_err(|error| error.to_string())?;
        has_its_fields(&chunk)?;
        if chunk["transient"] == true {
            continue;
        }
        if !judge.takes(&chunk) {
            return Err(format!("{chunk} stands wrong: {judge:?}"));
        }
        judge.seen.chunks.push(chunk);
    }
    if judge.seen.finished == done { Ok(judge.seen) } else { Err("no [DONE] behind finish".to_owned()) }
}

#[derive(Debug, Default)]
struct Judge {
    seen: Judged,
    /// The kind of each part that is open, by id, and every id that was used.
    open: HashMap<String, &'static str>,
    parts: HashSet<String>,
    /// The calls whose input is available.
    whole: HashSet<String>,
}

impl Judge {
    /// Whether the chunk may stand here.
    fn takes(&mut self, chunk: &Value) -> bool {
        let word = |name: &str| chunk[name].as_str().unwrap_or_default().to_owned();
        let starts = self.seen.chunks.len();
        match chunk["type"].as_str().unwrap_or_default() {
            "error" => {
                self.seen.failed = true;
                true
            }
            "start" => starts == 0,
            _ if starts == 0 => false,
            "start-step" => starts == 1,
            "text-start" => self.part_starts(word("id"), "text"),
            "reasoning-start" => self.part_starts(word("id"), "reasoning"),
            "text-delta" => {
                self.seen.text.push_str(&word("delta"));
                self.open.get(&word("id")) == Some(&"text")
            }
            "reasoning-delta" => {
                self.seen.reasoning.push_str(&word("delta"));
                self.open.get(&word("id")) == Some(&"reasoning")
            }
            "text-end" => self.open.remove(&word("id")) == Some("text"),
            "reasoning-end" => {
                let proof = chunk["providerMetadata"]["firsttoken"].as_object().into_iter().flatten().next();
                self.seen.proofs.extend(proof.and_then(|(_, text)| text.as_str()).map(str::to_owned));
                self.open.remove(&word("id")) == Some("reasoning")
            }
            "tool-input-start" => {
                let new = self.seen.calls.iter().all(|call| call.0 != word("toolCallId"));
                self.seen.calls.push((word("toolCallId"), String::new(), Value::Null));
                new && self.open.is_empty()
            }
            "tool-input-delta" | "tool-input-available" => self.call_goes_on(chunk),
            "tool-output-error" => {
                self.seen.chunks.last().is_some_and(|last| {
                    last["input"].is_string() && last["toolCallId"] == chunk["toolCallId"]
                })
            }
            "finish-step" => self.open.is_empty() && self.whole.len() == self.seen.calls.len(),
            "finish" => {
                self.seen.finished = true;
                self.seen.chunks.last().is_some_and(|last| last["type"] == "finish-step")
            }
            kind => matches!(kind, "message-metadata" | "source-url"),
        }
    }

    fn part_starts(&mut self, id: String, kind: &'static str) -> bool {
        self.parts.insert(id.clone()) && self.open.is_empty() && self.open.insert(id, kind).is_none()
    }

    fn call_goes_on(&mut self, chunk: &Value) -> bool {
        let Some(call) = self.seen.calls.iter_mut().find(|call| chunk["toolCallId"] == call.0) else {
            return false;
        };
        call.1.push_str(chunk["inputTextDelta"].as_str().unwrap_or_default());
        if chunk["type"] == "tool-input-delta" {
            self.whole.remove(&call.0);
            return true;
        }
        call.2 = chunk["input"].clone();
        self.whole.insert(call.0.clone())
    }
}
