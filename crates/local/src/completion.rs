//! The older completions, told: `text` in the place of a message.
//!
//! Invariant: a stream ends with its reason, its usage where that was asked for, and `[DONE]`.

use firsttoken_engine::speech::{End, Reason};
use firsttoken_wire::Identity;
use firsttoken_wire::chat::Part;
use serde_json::{Value, json};

use crate::answer::put_timings;

/// Tells one completion.
pub(crate) struct Completion {
    identity: Identity,
    /// The prompt, where the answer is to begin with it.
    echo: Option<String>,
}

impl Completion {
    pub(crate) const fn new(identity: Identity, echo: Option<String>) -> Self {
        Self { identity, echo }
    }

    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(echo) = self.echo.take() {
            self.say(&echo, out);
        }
    }

    pub(crate) fn say(&self, text: &str, out: &mut Vec<u8>) {
        put_event(out, &self.object(text, None));
    }

    pub(crate) fn end(&self, prompt: u32, end: &End, out: &mut Vec<u8>) {
        put_event(out, &self.object("", Some(end.reason)));
        put_timings(out, prompt, end);
        if self.identity.include_usage {
            let mut last = self.object("", None);
            last["choices"] = json!([]);
            last["usage"] = usage(prompt, end);
            put_event(out, &last);
        }
        out.extend(b"data: [DONE]\n\n");
    }

    pub(crate) fn whole(self, parts: Vec<Part>, prompt: u32, end: &End) -> Vec<u8> {
        let said: String = parts.iter().filter_map(Part::text).collect();
        let text = self.echo.as_deref().unwrap_or_default().to_owned() + &said;
        let mut whole = self.object(&text, Some(end.reason));
        whole["usage"] = usage(prompt, end);
        whole.to_string().into_bytes()
    }

    fn object(&self, text: &str, reason: Option<Reason>) -> Value {
        let Identity { id, model, created, .. } = &self.identity;
        let reason = reason.map(|reason| match reason {
            Reason::Finished | Reason::Stopped | Reason::Called => "stop",
            Reason::Length => "length",
        });
        json!({
            "id": id, "object": "text_completion", "created": created, "model": model,
            "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}],
        })
    }
}

fn put_event(out: &mut Vec<u8>, object: &Value) {
    out.extend(format!("data: {object}\n\n").into_bytes());
}

fn usage(prompt: u32, end: &End) -> Value {
    json!({
        "prompt_tokens": prompt, "completion_tokens": end.generated,
        "total_tokens": prompt.saturating_add(end.generated),
        "prompt_tokens_details": {"cached_tokens": end.cached},
    })
}
