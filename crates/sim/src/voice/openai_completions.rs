//! OpenAI's legacy Completions: text chunks, `[DONE]` last. It knows neither thinking nor tools;
//! the server refuses scripts that ask it for them.

use serde_json::{Value, json};

use super::openai_chat::{finish_reason, stream_error, usage};
use super::{CREATED_S, Counts, Voice, push_data};
use crate::content::{Piece, Said, Stop};

pub(super) struct Completions {
    id: String,
    model: String,
    include_usage: bool,
}

impl Completions {
    pub(super) fn new(model: String, number: u64, include_usage: bool) -> Self {
        Self { id: format!("cmpl-sim{number}"), model, include_usage }
    }

    fn answer(&self, text: &str, reason: Option<&str>) -> Value {
        let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": reason});
        json!({"id": self.id, "object": "text_completion", "created": CREATED_S, "model": self.model,
            "choices": [choice]})
    }

    fn chunk(&self, text: &str, reason: Option<&str>, out: &mut Vec<u8>) {
        let mut chunk = self.answer(text, reason);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        push_data(out, &chunk);
    }
}

impl Voice for Completions {
    /// There is no role to say: an empty text opens the stream.
    fn opening(&mut self, out: &mut Vec<u8>) {
        self.chunk("", None, out);
    }

    fn piece(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Text(text) => self.chunk(text, None, out),
            Piece::Reasoning(_) | Piece::ToolStart { .. } | Piece::ToolArguments { .. } => {}
        }
    }

    fn finish(&mut self, stop: Stop, counts: Option<Counts>, out: &mut Vec<u8>) {
        self.chunk("", Some(finish_reason(stop)), out);
        if let Some(counts) = counts.filter(|_| self.include_usage) {
            let mut last = self.answer("", None);
            last["choices"] = json!([]);
            last["usage"] = usage(counts);
            push_data(out, &last);
        }
    }

    fn terminal(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn error(&mut self, out: &mut Vec<u8>) {
        push_data(out, &stream_error());
    }

    fn whole(&mut self, said: &Said, stop: Stop, counts: Option<Counts>) -> Value {
        let mut answer = self.answer(&said.text, Some(finish_reason(stop)));
        if let Some(counts) = counts {
            answer["usage"] = usage(counts);
        }
        answer
    }
}
