//! Renders events as chunks of one message.
//!
//! `start` waits for the first chunk that belongs to the message, so that an application that waits is
//! not told that the answer streams already. A text or reasoning part ends where another kind of content
//! begins. A tool's input is available where the next call begins, if it is whole by then, and otherwise
//! where the model stops: calls may be announced together, and a chunk behind it would reopen it.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::{NO_REASON, OURS, REDACTED, SIGNATURE, reason_word, write_error_data, write_error_text};
use crate::chat::{Citation, Event, Meta, StopReason, Usage};
use crate::json::{number, string, value};
use crate::openai_chat::prune;
use crate::{ApiError, Dialect, ErrorKind};

/// Longest arguments of all tool calls of an answer together. They are kept until their call is whole.
const ARGUMENTS_BYTES_MAX: usize = 1 << 20;

/// Renders one stream. After `done` or an error it renders nothing more.
#[derive(Clone, Debug, Default)]
pub struct Renderer {
    request_id: Option<String>,
    message_id: Option<String>,
    last_id: u64,
    began: bool,
    closed: bool,
    /// Id of the next text or reasoning part.
    next: u64,
    open: Option<Open>,
    calls: Vec<Call>,
    arguments_bytes: usize,
    usage: Usage,
    /// Whether the counts were told already.
    counted: bool,
    stop: Option<StopReason>,
}

/// The text or reasoning part that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    kind: Kind,
    part: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

#[derive(Clone, Debug)]
struct Call {
    index: u32,
    id: String,
    name: String,
    arguments: String,
    /// Whether its input is not available yet.
    open: bool,
}

impl Renderer {
    /// A renderer that starts with `id: 1`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the request, in an error and in the metadata of the message.
    #[must_use]
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Names the message; otherwise it is named as the request. An answer that goes on with a message of
    /// the caller's must name that one, or the caller has it twice.
    #[must_use]
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = Some(id.into());
        self
    }

    /// The id of the last frame rendered; 0 before the first.
    #[must_use]
    pub const fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Appends what `event` is in this dialect; nothing where the dialect has no word for it.
    pub fn render(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.closed {
            return;
        }
        match event {
            Event::Status(status) => {
                let mut data = json!({ "phase": status.phase, "elapsed_ms": status.elapsed_ms });
                for (name, value) in [("ahead", status.ahead), ("wait_ms", status.wait_ms)] {
                    if let Some(value) = value {
                        data[name] = value.into();
                    }
                }
                let chunk = json!({ "type": "data-status", "data": data, "transient": true });
                self.chunk("status", &chunk, out);
            }
            Event::Text(text) if !text.is_empty() => self.delta(Kind::Text, text, out),
            Event::Reasoning(text) if !text.is_empty() => self.delta(Kind::Reasoning, text, out),
            Event::Signature(proof) if !proof.is_empty() => self.seal(SIGNATURE, proof, out),
            Event::Redacted(data) if !data.is_empty() => {
                self.end_part(out);
                self.seal(REDACTED, data, out);
            }
            Event::ToolStart { index, id, name } => self.tool_start(*index, id, name, out),
            Event::ToolArguments { index, json } if !json.is_empty() => {
                self.tool_arguments(*index, json, out)
            }
            Event::Citation(citation) => self.citation(citation, out),
            Event::Usage(usage) => self.usage.update(*usage),
            Event::Stop(reason) => {
                self.stop = Some(reason.clone());
                self.end_content(out);
            }
            Event::Meta(meta) => self.meta(meta, out),
            Event::Error(error) => self.error(error, out),
            Event::Ping => out.extend_from_slice(Dialect::Typed.keepalive()),
            Event::End => self.end(out),
            Event::Text(_)
            | Event::Reasoning(_)
            | Event::Signature(_)
            | Event::Redacted(_)
            | Event::ToolArguments { .. }
            | Event::Start { .. }
            | Event::Other
            | Event::Malformed => {}
        }
    }

    /// The chunks that every message begins with.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if self.began {
            return;
        }
        self.began = true;
        let message_id = self.message_id.as_ref().or(self.request_id.as_ref());
        let metadata = json!({ "requestId": self.request_id });
        let mut start = json!({ "type": "start", "messageId": message_id, "messageMetadata": metadata });
        prune(&mut start);
        self.chunk("meta", &start, out);
        self.chunk("meta", &json!({ "type": "start-step" }), out);
    }

    /// Once per token, so without a tree of values.
    fn delta(&mut self, kind: Kind, text: &str, out: &mut Vec<u8>) {
        let part = self.part(kind, out);
        self.frame("token", out);
        out.extend_from_slice(match kind {
            Kind::Text => b"{\"type\":\"text-delta\",\"id\":\"",
            Kind::Reasoning => b"{\"type\":\"reasoning-delta\",\"id\":\"",
        });
        number(out, part);
        out.extend_from_slice(b"\",\"delta\":");
        string(out, text);
        out.extend_from_slice(b"}\n\n");
    }

    /// The open part of `kind`; another one that is open ends first.
    fn part(&mut self, kind: Kind, out: &mut Vec<u8>) -> u64 {
        if let Some(open) = self.open
            && open.kind == kind
        {
            return open.part;
        }
        self.begin(out);
        self.end_part(out);
        let part = self.next;
        self.next += 1;
        self.open = Some(Open { kind, part });
        let name = match kind {
            Kind::Text => "text-start",
            Kind::Reasoning => "reasoning-start",
        };
        self.chunk("token", &json!({ "type": name, "id": part.to_string() }), out);
        part
    }

    fn end_part(&mut self, out: &mut Vec<u8>) {
        if let Some(Open { kind, part }) = self.open.take() {
            let name = match kind {
                Kind::Text => "text-end",
                Kind::Reasoning => "reasoning-end",
            };
            self.chunk("token", &json!({ "type": name, "id": part.to_string() }), out);
        }
    }

    /// Ends a reasoning part with what its provider wants back; an application hands it back unread.
    fn seal(&mut self, field: &str, text: &str, out: &mut Vec<u8>) {
        let part = self.part(Kind::Reasoning, out);
        self.open = None;
        let metadata = json!({ OURS: { field: text } });
        let end = json!({ "type": "reasoning-end", "id": part.to_string(), "providerMetadata": metadata });
        self.chunk("token", &end, out);
    }

    /// A source, as the AI SDK has them; what it has no field for is metadata of ours. Its id is where the
    /// piece begins and ends: the same piece is cited once.
    fn citation(&mut self, citation: &Citation<'_>, out: &mut Vec<u8>) {
        self.begin(out);
        let Citation { start, end, url, title, passage } = citation;
        let ours = json!({ "start": start, "end": end, "passage": passage });
        let chunk = json!({
            "type": "source-url", "sourceId": format!("{start}-{end}"), "url": url, "title": title,
            "providerMetadata": { OURS: ours },
        });
        self.chunk("citation", &chunk, out);
    }

    fn tool_start(&mut self, index: u32, id: &str, name: &str, out: &mut Vec<u8>) {
        self.begin(out);
        self.end_part(out);
        if self.calls.last().is_some_and(|call| call.open && is_object(&call.arguments)) {
            self.make_available(self.calls.len() - 1, out);
        }
        // Clients know a call by its id alone, and some servers send none.
        let taken = id.is_empty() || self.calls.iter().any(|call| call.id == id);
        let id = if taken {
            format!("call_{}_{}", self.request_id.as_deref().unwrap_or_default(), self.calls.len())
        } else {
            id.to_owned()
        };
        let chunk = json!({ "type": "tool-input-start", "toolCallId": id, "toolName": name });
        self.calls.push(Call { index, id, name: name.to_owned(), arguments: String::new(), open: true });
        self.chunk("token", &chunk, out);
    }

    fn tool_arguments(&mut self, index: u32, json: &str, out: &mut Vec<u8>) {
        // Arguments of a call that never began have no call to be of.
        let Some(at) = self.calls.iter().rposition(|call| call.index == index) else { return };
        if !self.calls[at].open && json.trim().is_empty() {
            return;
        }
        self.arguments_bytes += json.len();
        if self.arguments_bytes > ARGUMENTS_BYTES_MAX {
            let message = "The arguments of the tool calls are too large to be passed on.";
            return self
                .error(&ApiError::new(ErrorKind::Upstream, message).code("tool_arguments_too_large"), out);
        }
        self.frame("token", out);
        out.extend_from_slice(b"{\"type\":\"tool-input-delta\",\"toolCallId\":");
        let call = &mut self.calls[at];
        call.open = true;
        call.arguments.push_str(json);
        string(out, &call.id);
        out.extend_from_slice(b",\"inputTextDelta\":");
        string(out, json);
        out.extend_from_slice(b"}\n\n");
    }

    /// Says that a call is whole. What is no JSON object is told as the text that it is, and that it failed.
    fn make_available(&mut self, at: usize, out: &mut Vec<u8>) {
        self.frame("token", out);
        let call = &mut self.calls[at];
        call.open = false;
        out.extend_from_slice(b"{\"type\":\"tool-input-available\",\"toolCallId\":");
        string(out, &call.id);
        out.extend_from_slice(b",\"toolName\":");
        string(out, &call.name);
        out.extend_from_slice(b",\"input\":");
        let mut failure = None;
        if call.arguments.trim().is_empty() {
            out.extend_from_slice(b"{}");
        } else if is_object(&call.arguments) {
            // As the model wrote it. In JSON a line end can only be a space between two words.
            out.extend(call.arguments.bytes().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }));
        } else {
            string(out, &call.arguments);
            failure = Some(json!({
                "type": "tool-output-error", "toolCallId": call.id,
                "errorText": "The arguments of this call are not a JSON object.",
            }));
        }
        out.extend_from_slice(b"}\n\n");
        if let Some(chunk) = failure {
            self.chunk("token", &chunk, out);
        }
    }

    /// Ends what is open: the model has said all.
    fn end_content(&mut self, out: &mut Vec<u8>) {
        self.end_part(out);
        for at in 0..self.calls.len() {
            if self.calls[at].open {
                self.make_available(at, out);
            }
        }
    }

    fn meta(&mut self, meta: &Meta<'_>, out: &mut Vec<u8>) {
        self.begin(out);
        let usage = meta.usage.unwrap_or(self.usage);
        self.counted |= !usage.is_empty();
        let metadata = json!({
            "requestId": meta.request_id,
            "model": meta.model,
            "upstream": meta.upstream,
            "ttftMs": meta.ttft_ms,
            "overheadMs": meta.overhead_ms,
            "usage": usage_json(&usage),
        });
        let mut chunk = json!({ "type": "message-metadata", "messageMetadata": metadata });
        prune(&mut chunk);
        self.chunk("meta", &chunk, out);
    }

    /// Parts stay open: what is there of them is not the whole.
    fn error(&mut self, error: &ApiError, out: &mut Vec<u8>) {
        self.closed = true;
        self.frame("error", out);
        write_error_data(out, error, self.request_id.as_deref());
        out.extend_from_slice(b"\n\n");
        self.frame("", out);
        write_error_text(out, error);
        out.extend_from_slice(b"\n\n");
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
        self.end_content(out);
        self.closed = true;
        self.chunk("meta", &json!({ "type": "finish-step" }), out);
        let reason = self.stop.as_ref().map_or(NO_REASON, reason_word);
        let data = json!({ "type": "data-finish", "data": { "reason": reason }, "transient": true });
        let usage = if self.counted { Value::Null } else { usage_json(&self.usage) };
        let metadata = json!({ "finishReason": reason, "usage": usage });
        let mut finish = json!({ "type": "finish", "messageMetadata": metadata });
        prune(&mut finish);
        self.chunk("meta", &data, out);
        self.chunk("done", &finish, out);
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// Opens a frame of this name, or of none.
    fn frame(&mut self, name: &str, out: &mut Vec<u8>) {
        self.last_id += 1;
        out.extend_from_slice(b"id: ");
        number(out, self.last_id);
        if !name.is_empty() {
            out.extend_from_slice(b"\nevent: ");
            out.extend_from_slice(name.as_bytes());
        }
        out.extend_from_slice(b"\ndata: ");
    }

    fn chunk(&mut self, name: &str, chunk: &Value, out: &mut Vec<u8>) {
        self.frame(name, out);
        value(out, chunk);
        out.extend_from_slice(b"\n\n");
    }
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "inputTokens": usage.input_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
        "outputTokens": usage.output_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    })
}

/// Whether this is one whole JSON object.
fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}
