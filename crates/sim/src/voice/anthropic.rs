//! Anthropic Messages: named events, content in blocks, `message_stop` last.
//!
//! Invariant: a block is started before its first delta and stopped before the next starts; input
//! tokens are counted without those that came from the cache.

use serde_json::{Value, json};

use super::{Counts, Voice, push_json, push_named};
use crate::content::{Piece, Said, Stop};

/// The proof that a thinking block is the provider's own.
const SIGNATURE: &str = "c2ltdWxhdGVk";

pub(super) struct Anthropic {
    id: String,
    model: String,
    counts: Option<Counts>,
    /// Index and kind of the block that is open.
    block: Option<(u32, Kind)>,
    next_block: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Tool(u32),
}

impl Anthropic {
    pub(super) fn new(model: String, number: u64, counts: Option<Counts>) -> Self {
        Self { id: format!("msg_sim{number}"), model, counts, block: None, next_block: 0 }
    }

    fn message(&self, content: Value, stop: Option<Stop>, counts: Option<Counts>) -> Value {
        let mut message = json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop.map(stop_reason), "stop_sequence": null,
        });
        if let Some(counts) = counts {
            message["usage"] = usage(counts);
        }
        message
    }

    /// The index of an open block of this kind, opened if need be.
    fn block(&mut self, kind: Kind, content_block: impl FnOnce() -> Value, out: &mut Vec<u8>) -> u32 {
        if let Some((index, open)) = self.block {
            if open == kind {
                return index;
            }
            self.close_block(out);
        }
        let index = self.next_block;
        self.next_block += 1;
        self.block = Some((index, kind));
        let start = json!({"type": "content_block_start", "index": index, "content_block": content_block()});
        push_named(out, &start);
        index
    }

    fn close_block(&mut self, out: &mut Vec<u8>) {
        let Some((index, kind)) = self.block.take() else { return };
        if kind == Kind::Thinking {
            delta(index, "signature_delta", "signature", SIGNATURE, out);
        }
        push_named(out, &json!({"type": "content_block_stop", "index": index}));
    }
}

impl Voice for Anthropic {
    fn opening(&mut self, out: &mut Vec<u8>) {
        let counts = self.counts.map(|counts| Counts { output: 1, ..counts });
        let message = self.message(json!([]), None, counts);
        push_named(out, &json!({"type": "message_start", "message": message}));
        self.ping(out);
    }

    fn piece(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Text(text) => {
                let index = self.block(Kind::Text, || json!({"type": "text", "text": ""}), out);
                delta(index, "text_delta", "text", text, out);
            }
            Piece::Reasoning(text) => {
                let block = || json!({"type": "thinking", "thinking": "", "signature": ""});
                let index = self.block(Kind::Thinking, block, out);
                delta(index, "thinking_delta", "thinking", text, out);
            }
            Piece::ToolStart { index: call, name } => {
                let block = || json!({"type": "tool_use", "id": tool_id(*call), "name": name, "input": {}});
                let index = self.block(Kind::Tool(*call), block, out);
                // The provider opens every call with an empty piece.
                delta(index, "input_json_delta", "partial_json", "", out);
            }
            Piece::ToolArguments { index: call, json } => {
                let block = || json!({"type": "tool_use", "id": tool_id(*call), "name": "", "input": {}});
                let index = self.block(Kind::Tool(*call), block, out);
                delta(index, "input_json_delta", "partial_json", json, out);
            }
        }
    }

    fn finish(&mut self, stop: Stop, counts: Option<Counts>, out: &mut Vec<u8>) {
        self.close_block(out);
        let mut last = json!({"type": "message_delta",
            "delta": {"stop_reason": stop_reason(stop), "stop_sequence": null}});
        if let Some(counts) = counts {
            last["usage"] = usage(counts);
        }
        push_named(out, &last);
    }

    fn terminal(&mut self, out: &mut Vec<u8>) {
        push_named(out, &json!({"type": "message_stop"}));
    }

    fn error(&mut self, out: &mut Vec<u8>) {
        let error = json!({"type": "overloaded_error", "message": "the simulated provider is overloaded"});
        push_named(out, &json!({"type": "error", "error": error}));
    }

    fn ping(&self, out: &mut Vec<u8>) {
        push_named(out, &json!({"type": "ping"}));
    }

    fn garbled(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"ind\n\n",
        );
    }

    fn whole(&mut self, said: &Said, stop: Stop, counts: Option<Counts>) -> Value {
        let mut content = Vec::new();
        if !said.reasoning.is_empty() {
            content.push(json!({"type": "thinking", "thinking": said.reasoning, "signature": SIGNATURE}));
        }
        if !said.text.is_empty() {
            content.push(json!({"type": "text", "text": said.text}));
        }
        for (index, call) in (0..).zip(&said.calls) {
            let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            content
                .push(json!({"type": "tool_use", "id": tool_id(index), "name": call.name, "input": input}));
        }
        self.message(Value::Array(content), Some(stop), counts)
    }
}

/// A `content_block_delta` whose one payload field is a string. Most of all frames are this one, so
/// it is written without building a value.
fn delta(index: u32, kind: &str, field: &str, text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
    push_json(out, &index);
    out.extend_from_slice(b",\"delta\":{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"");
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(b"\":");
    push_json(out, &text);
    out.extend_from_slice(b"}}\n\n");
}

const fn stop_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::End => "end_turn",
        Stop::Length => "max_tokens",
        Stop::Tool => "tool_use",
    }
}

fn usage(counts: Counts) -> Value {
    json!({
        "input_tokens": counts.prompt - counts.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.output,
    })
}

fn tool_id(index: u32) -> String {
    format!("toolu_sim{index}")
}
