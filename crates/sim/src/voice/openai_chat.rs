//! OpenAI Chat Completions: unnamed chunks, the role first, `[DONE]` last.
//!
//! Invariant: with `include_usage` every chunk has `usage`, null in all but the last one, whose
//! `choices` is empty.

use serde_json::{Value, json};

use super::{CREATED_S, Counts, Voice, push_data, push_json};
use crate::content::{Piece, Said, Stop};

pub(super) struct Chat {
    id: String,
    model: String,
    include_usage: bool,
    /// A chunk up to the value of `delta`, rendered once: it is the same for every token.
    before_delta: Vec<u8>,
    /// A chunk after the value of `delta`.
    after_delta: &'static [u8],
}

impl Chat {
    pub(super) fn new(model: String, number: u64, include_usage: bool) -> Self {
        let mut before_delta = b"data: {\"id\":".to_vec();
        let id = format!("chatcmpl-sim{number}");
        push_json(&mut before_delta, &id);
        before_delta.extend_from_slice(b",\"object\":\"chat.completion.chunk\",\"created\":");
        push_json(&mut before_delta, &CREATED_S);
        before_delta.extend_from_slice(b",\"model\":");
        push_json(&mut before_delta, &model);
        before_delta
            .extend_from_slice(b",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_simulated\"");
        if include_usage {
            before_delta.extend_from_slice(b",\"usage\":null");
        }
        before_delta.extend_from_slice(b",\"choices\":[{\"index\":0,\"delta\":");
        Self {
            id,
            model,
            include_usage,
            before_delta,
            after_delta: b",\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        }
    }

    fn delta(&self, delta: &Value, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_delta);
        push_json(out, delta);
        out.extend_from_slice(self.after_delta);
    }

    fn text_delta(&self, field: &str, text: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_delta);
        out.extend_from_slice(field.as_bytes());
        push_json(out, &text);
        out.push(b'}');
        out.extend_from_slice(self.after_delta);
    }
}

impl Voice for Chat {
    fn opening(&mut self, out: &mut Vec<u8>) {
        self.delta(&json!({"role": "assistant", "content": "", "refusal": null}), out);
    }

    fn piece(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Text(text) => self.text_delta("{\"content\":", text, out),
            Piece::Reasoning(text) => self.text_delta("{\"reasoning_content\":", text, out),
            Piece::ToolStart { index, name } => {
                let function = json!({"name": name, "arguments": ""});
                let call =
                    json!({"index": index, "id": call_id(*index), "type": "function", "function": function});
                self.delta(&json!({"tool_calls": [call]}), out);
            }
            Piece::ToolArguments { index, json } => {
                let call = json!({"index": index, "function": {"arguments": json}});
                self.delta(&json!({"tool_calls": [call]}), out);
            }
        }
    }

    fn finish(&mut self, stop: Stop, counts: Option<Counts>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_delta);
        out.extend_from_slice(b"{},\"logprobs\":null,\"finish_reason\":");
        push_json(out, &finish_reason(stop));
        out.extend_from_slice(b"}]}\n\n");
        if let Some(counts) = counts.filter(|_| self.include_usage) {
            let chunk = json!({
                "id": self.id, "object": "chat.completion.chunk", "created": CREATED_S, "model": self.model,
                "service_tier": "default", "system_fingerprint": "fp_simulated", "choices": [],
                "usage": usage(counts),
            });
            push_data(out, &chunk);
        }
    }

    fn terminal(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn error(&mut self, out: &mut Vec<u8>) {
        push_data(out, &stream_error());
    }

    fn whole(&mut self, said: &Said, stop: Stop, counts: Option<Counts>) -> Value {
        let mut message =
            json!({"role": "assistant", "content": said.text, "refusal": null, "annotations": []});
        if !said.reasoning.is_empty() {
            message["reasoning_content"] = json!(said.reasoning);
        }
        if !said.calls.is_empty() {
            let call = |(index, call): (u32, &crate::ask::Call)| {
                let function = json!({"name": call.name, "arguments": call.arguments});
                json!({"id": call_id(index), "type": "function", "function": function})
            };
            message["content"] = Value::Null;
            message["tool_calls"] = (0..).zip(&said.calls).map(call).collect();
        }
        let choice =
            json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(stop)});
        let mut answer = json!({
            "id": self.id, "object": "chat.completion", "created": CREATED_S, "model": self.model,
            "service_tier": "default", "system_fingerprint": "fp_simulated", "choices": [choice],
        });
        if let Some(counts) = counts {
            answer["usage"] = usage(counts);
        }
        answer
    }
}

pub(super) const fn finish_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::End => "stop",
        Stop::Length => "length",
        Stop::Tool => "tool_calls",
    }
}

/// OpenAI counts cached tokens in the prompt's and thinking in the completion's.
pub(super) fn usage(counts: Counts) -> Value {
    json!({
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.output,
        "total_tokens": u64::from(counts.prompt) + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    })
}

pub(super) fn stream_error() -> Value {
    let message = "the simulated provider failed in the middle of its answer";
    json!({"error": {"message": message, "type": "server_error", "param": null, "code": null}})
}

fn call_id(index: u32) -> String {
    format!("call_sim{index}")
}
