//! The dialects in which a stream can be asked for, as a test needs to know them: what to send, and how
//! to tell content, the end, an error and a keepalive apart.
//!
//! Written from the providers' documentation and the simulated provider's frames, not from the
//! gateway's codecs.

use bytes::Bytes;
use serde_json::{Value, json};

/// One way to ask for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// OpenAI Chat Completions.
    Chat,
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// OpenAI's legacy completions.
    Completions,
    /// firsttoken's typed events.
    Typed,
}

/// The fields of one server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// `event`, empty where there is none.
    pub name: String,
    /// `data`, its lines joined by LF.
    pub data: String,
}

impl Fields {
    /// Reads one event.
    #[must_use]
    pub fn of(event: &[u8]) -> Self {
        let text = String::from_utf8_lossy(event);
        let mut fields = Self::default();
        let mut data = Vec::new();
        for line in text.split(['\n', '\r']) {
            if let Some(value) = line.strip_prefix("event:") {
                value.trim_start().clone_into(&mut fields.name);
            } else if let Some(value) = line.strip_prefix("data:") {
                data.push(value.strip_prefix(' ').unwrap_or(value));
            }
        }
        fields.data = data.join("\n");
        fields
    }

    /// The data as JSON; null where it is not.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or(Value::Null)
    }
}

/// Cuts a stream that uses only LF into its events; an unfinished last one comes last.
#[must_use]
pub fn events(stream: &Bytes) -> Vec<Bytes> {
    let mut events = Vec::new();
    let mut from = 0;
    while let Some(at) = stream[from..].windows(2).position(|two| two == b"\n\n") {
        events.push(stream.slice(from..from + at + 2));
        from += at + 2;
    }
    if from < stream.len() {
        events.push(stream.slice(from..));
    }
    events
}

impl Caller {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Chat, Self::Messages, Self::Responses, Self::Completions, Self::Typed];

    /// Where it asks.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
            Self::Completions => "/v1/completions",
            Self::Typed => "/v1/chat",
        }
    }

    /// What it asks.
    #[must_use]
    pub fn body(self, model: &str, stream: bool) -> Value {
        let messages = json!([{"role": "user", "content": "Why is the sky blue?"}]);
        match self {
            Self::Chat | Self::Typed => json!({"model": model, "stream": stream, "messages": messages}),
            Self::Messages => {
                json!({"model": model, "stream": stream, "messages": messages, "max_tokens": 100_000})
            }
            Self::Responses => json!({"model": model, "stream": stream, "input": "Why is the sky blue?"}),
            Self::Completions => json!({"model": model, "stream": stream, "prompt": "Why is the sky blue?"}),
        }
    }

    /// What the gateway writes to a client that waits.
    #[must_use]
    pub const fn keepalive(self) -> &'static [u8] {
        match self {
            Self::Messages => b"event: ping\ndata: {\"type\": \"ping\"}\n\n",
            Self::Chat | Self::Responses | Self::Completions | Self::Typed => b": keepalive\n\n",
        }
    }

    /// Whether the event is the last one of a good end.
    #[must_use]
    pub fn is_terminal(self, event: &Fields) -> bool {
        match self {
            Self::Chat | Self::Completions | Self::Typed => event.data == "[DONE]",
            Self::Messages => event.name == "message_stop",
            Self::Responses => event.name == "response.completed" || event.name == "response.incomplete",
        }
    }

    /// Why the model stopped, if the event says so in OpenAI's dialects, where that is a good end too.
    #[must_use]
    pub fn is_finish(self, event: &Fields) -> bool {
        matches!(self, Self::Chat | Self::Completions)
            && event.json()["choices"][0]["finish_reason"].is_string()
    }

    /// The text that the event brings.
    #[must_use]
    pub fn text(self, event: &Fields) -> String {
        let json = event.json();
        let text = match self {
            Self::Chat => &json["choices"][0]["delta"]["content"],
            Self::Completions => &json["choices"][0]["text"],
            Self::Messages if event.name == "content_block_delta" => &json["delta"]["text"],
            Self::Responses if event.name == "response.output_text.delta" => &json["delta"],
            Self::Typed if json["type"] == "text-delta" => &json["delta"],
            Self::Messages | Self::Responses | Self::Typed => &Value::Null,
        };
        text.as_str().unwrap_or_default().to_owned()
    }

    /// What an error event says as its code, where it is one, in this dialect's own shape. Messages has
    /// no code: there it is the `type` of the error.
    #[must_use]
    pub fn error_event(self, event: &Fields) -> Option<String> {
        let json = event.json();
        let (shape, code) = match self {
            Self::Chat | Self::Completions => (event.name.is_empty(), &json["error"]["code"]),
            Self::Messages => (event.name == "error" && json["type"] == "error", &json["error"]["type"]),
            Self::Responses => (event.name == "error" && json["type"] == "error", &json["code"]),
            Self::Typed => (event.name == "error" && json["type"] == "data-error", &json["data"]["code"]),
        };
        let said = match self {
            Self::Chat | Self::Completions | Self::Messages => &json["error"]["message"],
            Self::Responses => &json["message"],
            Self::Typed => &json["data"]["message"],
        };
        (shape && said.is_string()).then(|| code.as_str().unwrap_or_default().to_owned())
    }

    /// The same of an error body.
    #[must_use]
    pub fn error_body(self, body: &[u8]) -> Option<String> {
        let json: Value = serde_json::from_slice(body).ok()?;
        let error = &json["error"];
        let key = if self == Self::Messages { "type" } else { "code" };
        let framed = self != Self::Messages || json["type"] == "error";
        (framed && error["message"].is_string()).then(|| error[key].as_str().unwrap_or_default().to_owned())
    }
}
