//! OpenAI Responses: named, numbered events around one text item, `response.completed` last. It
//! simulates text alone; the server refuses scripts that ask it for thinking or tools.
//!
//! Invariant: the sequence numbers count up from 0 without a gap.

use serde_json::{Value, json};

use super::{CREATED_S, Counts, Voice, push_named};
use crate::content::{Piece, Said, Stop};

/// Most bytes of the text that the closing events repeat; an endless answer must not fill the memory.
const REPEATED_BYTES_MAX: usize = 1 << 20;

pub(super) struct Responses {
    id: String,
    item_id: String,
    model: String,
    sequence: u64,
    text: String,
    stop: Stop,
    counts: Option<Counts>,
}

impl Responses {
    pub(super) fn new(model: String, number: u64) -> Self {
        Self {
            id: format!("resp_sim{number}"),
            item_id: format!("msg_sim{number}"),
            model,
            sequence: 0,
            text: String::new(),
            stop: Stop::End,
            counts: None,
        }
    }

    /// Appends an event of this type with its number.
    fn event(&mut self, kind: &str, fields: Value, out: &mut Vec<u8>) {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        push_named(out, &event);
    }

    /// An event that belongs to the text part.
    fn part_event(&mut self, kind: &str, fields: Value, out: &mut Vec<u8>) {
        let mut event = json!({"item_id": self.item_id, "output_index": 0, "content_index": 0});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.event(kind, event, out);
    }

    fn part(&self) -> Value {
        json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": []})
    }

    fn item(&self, status: &str, content: Value) -> Value {
        json!({"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": content})
    }

    fn response(&self, status: &str, output: Value) -> Value {
        let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        let usage = self.counts.filter(|_| status != "in_progress").map(usage);
        json!({
            "id": self.id, "object": "response", "created_at": CREATED_S, "status": status, "model": self.model,
            "output": output, "usage": usage, "error": null, "incomplete_details": incomplete,
            "instructions": null, "metadata": {}, "parallel_tool_calls": true, "tool_choice": "auto",
            "tools": [], "temperature": 1.0, "top_p": 1.0, "max_output_tokens": null,
            "previous_response_id": null, "store": false, "truncation": "disabled",
            "text": {"format": {"type": "text"}}, "reasoning": {"effort": null, "summary": null},
        })
    }

    fn status(&self) -> &'static str {
        if self.stop == Stop::Length { "incomplete" } else { "completed" }
    }

    fn ended(&self) -> Value {
        let status = self.status();
        self.response(status, json!([self.item(status, json!([self.part()]))]))
    }
}

impl Voice for Responses {
    fn opening(&mut self, out: &mut Vec<u8>) {
        let response = self.response("in_progress", json!([]));
        self.event("response.created", json!({"response": response}), out);
        self.event("response.in_progress", json!({"response": response}), out);
        let item = self.item("in_progress", json!([]));
        self.event("response.output_item.added", json!({"output_index": 0, "item": item}), out);
        self.part_event("response.content_part.added", json!({"part": self.part()}), out);
    }

    fn piece(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Text(text) => {
                if self.text.len() + text.len() <= REPEATED_BYTES_MAX {
                    self.text.push_str(text);
                }
                self.part_event("response.output_text.delta", json!({"delta": text, "logprobs": []}), out);
            }
            Piece::Reasoning(_) | Piece::ToolStart { .. } | Piece::ToolArguments { .. } => {}
        }
    }

    fn finish(&mut self, stop: Stop, counts: Option<Counts>, out: &mut Vec<u8>) {
        self.stop = stop;
        self.counts = counts;
        self.part_event("response.output_text.done", json!({"text": self.text, "logprobs": []}), out);
        self.part_event("response.content_part.done", json!({"part": self.part()}), out);
        let item = self.item(self.status(), json!([self.part()]));
        self.event("response.output_item.done", json!({"output_index": 0, "item": item}), out);
    }

    fn terminal(&mut self, out: &mut Vec<u8>) {
        let kind = if self.stop == Stop::Length { "response.incomplete" } else { "response.completed" };
        let response = self.ended();
        self.event(kind, json!({"response": response}), out);
    }

    fn error(&mut self, out: &mut Vec<u8>) {
        let message = "the simulated provider failed in the middle of its answer";
        self.event("error", json!({"code": "server_error", "message": message, "param": null}), out);
    }

    fn garbled(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"event: response.output_text.delta\ndata: {\"type\":\"response.output_te\n\n");
    }

    fn whole(&mut self, said: &Said, stop: Stop, counts: Option<Counts>) -> Value {
        self.text.clone_from(&said.text);
        self.stop = stop;
        self.counts = counts;
        self.ended()
    }
}

fn usage(counts: Counts) -> Value {
    json!({
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached},
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": u64::from(counts.prompt) + counts.output,
    })
}
