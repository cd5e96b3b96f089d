//! Renders events as Anthropic's block structure.
//!
//! `message_start` waits for the first event that needs it, so that counts which come early are in
//! it. A text or thinking block ends where another kind begins. A tool block ends where the next block
//! begins, if its arguments are whole by then, and otherwise where the message ends: calls may be
//! announced together, and a delta behind the end of its block would break the stream. `message_delta`
//! waits for the end, because other dialects report counts after the stop reason.

use serde_json::{Value, json};

use super::{PING, stop_word, write_error};
use crate::chat::{Event, StopReason, Usage};
use crate::json::{number, string, value};
use crate::nesting::Nesting;
use crate::{ApiError, ErrorKind};

/// Renders one stream. After `End` or `Error` it renders nothing more.
#[derive(Clone, Debug)]
pub struct Renderer {
    id: String,
    model: String,
    started: bool,
    closed: bool,
    /// Index of the next block.
    next: u64,
    /// The text or thinking block that is open.
    open: Option<Open>,
    tools: Vec<ToolBlock>,
    usage: Usage,
    stop: Option<StopReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    kind: Kind,
    block: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    /// A thinking block that has its signature: it can only end.
    Signed,
}

#[derive(Clone, Debug)]
struct ToolBlock {
    /// Index of the call.
    call: u32,
    block: u64,
    /// How far its arguments are.
    arguments: Nesting,
    open: bool,
}

impl Renderer {
    /// A renderer whose message has this id and this model.
    #[must_use]
    pub fn new(id: &str, model: &str) -> Self {
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            started: false,
            closed: false,
            next: 0,
            open: None,
            tools: Vec::new(),
            usage: Usage::default(),
            stop: None,
        }
    }

    /// Appends what `event` is in this dialect; nothing where the dialect has no word for it.
    pub fn render(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.closed {
            return;
        }
        match event {
            Event::Text(text) if !text.is_empty() => {
                self.delta(Kind::Text, b"\"text_delta\",\"text\":", text, out);
            }
            Event::Reasoning(text) if !text.is_empty() => {
                self.delta(Kind::Thinking, b"\"thinking_delta\",\"thinking\":", text, out);
            }
            Event::Signature(text) if !text.is_empty() => self.signature(text, out),
            Event::Redacted(data) if !data.is_empty() => self.redacted(data, out),
            Event::ToolStart { index, id, name } => self.tool_start(*index, id, name, out),
            Event::ToolArguments { index, json } if !json.is_empty() => {
                self.tool_arguments(*index, json, out)
            }
            Event::Usage(usage) => self.usage.update(*usage),
            Event::Stop(reason) => self.stop = Some(reason.clone()),
            Event::Error(error) => self.error(error, out),
            Event::Ping => out.extend_from_slice(PING),
            Event::End => self.end(out),
            Event::Start { .. }
            | Event::Text(_)
            | Event::Reasoning(_)
            | Event::Signature(_)
            | Event::Redacted(_)
            | Event::Citation(_)
            | Event::ToolArguments { .. }
            | Event::Status(_)
            | Event::Meta(_)
            | Event::Other
            | Event::Malformed => {}
        }
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if self.started {
            return;
        }
        self.started = true;
        // Clients require both counts here; what is not known yet comes in `message_delta`.
        let mut usage = usage_json(&self.usage);
        if usage.get("input_tokens").is_none() {
            usage["input_tokens"] = json!(0);
        }
        let message = json!({ "type": "message_start", "message": {
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage,
        }});
        event(out, "message_start", &message);
    }

    fn delta(&mut self, kind: Kind, head: &[u8], text: &str, out: &mut Vec<u8>) {
        let block = self.block(kind, out);
        write_delta(out, block, head, text);
    }

    fn signature(&mut self, text: &str, out: &mut Vec<u8>) {
        let block = self.block(Kind::Thinking, out);
        write_delta(out, block, b"\"signature_delta\",\"signature\":", text);
        self.open = Some(Open { kind: Kind::Signed, block });
    }

    /// A block that is there at once.
    fn redacted(&mut self, data: &str, out: &mut Vec<u8>) {
        self.start(out);
        self.stop_whole(out);
        let block = self.take_index();
        start_block(out, block, &json!({ "type": "redacted_thinking", "data": data }));
        stop_block(out, block);
    }

    /// The open block of `kind`; another one that is open ends first.
    fn block(&mut self, kind: Kind, out: &mut Vec<u8>) -> u64 {
        if let Some(open) = self.open
            && open.kind == kind
        {
            return open.block;
        }
        self.start(out);
        self.stop_whole(out);
        let block = self.take_index();
        self.open = Some(Open { kind, block });
        let content = match kind {
            Kind::Text => json!({ "type": "text", "text": "" }),
            Kind::Thinking | Kind::Signed => json!({ "type": "thinking", "thinking": "", "signature": "" }),
        };
        start_block(out, block, &content);
        block
    }

    fn tool_start(&mut self, call: u32, id: &str, name: &str, out: &mut Vec<u8>) {
        self.start(out);
        self.stop_whole(out);
        let block = self.take_index();
        self.tools.push(ToolBlock { call, block, arguments: Nesting::default(), open: true });
        start_block(out, block, &json!({ "type": "tool_use", "id": id, "name": name, "input": {} }));
    }

    fn tool_arguments(&mut self, call: u32, json: &str, out: &mut Vec<u8>) {
        // Arguments of a call that never began have no block to be in.
        let Some(tool) = self.tools.iter_mut().rev().find(|tool| tool.call == call) else { return };
        if tool.open {
            tool.arguments.push(json);
            write_delta(out, tool.block, b"\"input_json_delta\",\"partial_json\":", json);
        } else if !json.trim().is_empty() {
            let message = "The arguments of a tool call went on behind their end.";
            self.error(&ApiError::new(ErrorKind::Upstream, message).code("tool_arguments_broken"), out);
        }
    }

    fn error(&mut self, error: &ApiError, out: &mut Vec<u8>) {
        self.closed = true;
        out.extend_from_slice(b"event: error\ndata: ");
        write_error(out, error, None);
        out.extend_from_slice(b"\n\n");
    }

    /// Ends the message. A stop reason that nobody gave stays null.
    fn end(&mut self, out: &mut Vec<u8>) {
        self.start(out);
        self.closed = true;
        self.stop_blocks(|_| true, out);
        let stop_reason = self.stop.as_ref().map(stop_word);
        let delta = json!({
            "type": "message_delta", "delta": { "stop_reason": stop_reason, "stop_sequence": null },
            "usage": usage_json(&self.usage),
        });
        event(out, "message_delta", &delta);
        out.extend_from_slice(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }

    /// Ends the text that is open and the calls that are whole. What others still have to say must be said
    /// in their blocks: calls may be announced together, or with text between them.
    fn stop_whole(&mut self, out: &mut Vec<u8>) {
        self.stop_blocks(|tool| tool.arguments.is_whole(), out);
    }

    fn stop_blocks(&mut self, ends: impl Fn(&ToolBlock) -> bool, out: &mut Vec<u8>) {
        if let Some(open) = self.open.take() {
            stop_block(out, open.block);
        }
        for tool in self.tools.iter_mut().filter(|tool| tool.open && ends(tool)) {
            tool.open = false;
            stop_block(out, tool.block);
        }
    }

    fn take_index(&mut self) -> u64 {
        let index = self.next;
        self.next += 1;
        index
    }
}

fn event(out: &mut Vec<u8>, name: &str, data: &Value) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    value(out, data);
    out.extend_from_slice(b"\n\n");
}

fn start_block(out: &mut Vec<u8>, index: u64, content: &Value) {
    event(
        out,
        "content_block_start",
        &json!({ "type": "content_block_start", "index": index, "content_block": content }),
    );
}

fn stop_block(out: &mut Vec<u8>, index: u64) {
    out.extend_from_slice(b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":");
    number(out, index);
    out.extend_from_slice(b"}\n\n");
}

/// Once per token, so without a tree of values.
fn write_delta(out: &mut Vec<u8>, index: u64, head: &[u8], text: &str) {
    out.extend_from_slice(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
    number(out, index);
    out.extend_from_slice(b",\"delta\":{\"type\":");
    out.extend_from_slice(head);
    string(out, text);
    out.extend_from_slice(b"}}\n\n");
}

/// Anthropic's `usage` object: input without what the cache read or wrote. Only `output_tokens` is
/// always there, because clients require it.
pub(super) fn usage_json(usage: &Usage) -> Value {
    let mut object = json!({ "output_tokens": usage.output_tokens.unwrap_or(0) });
    let cached = usage.cache_read_tokens.unwrap_or(0).saturating_add(usage.cache_write_tokens.unwrap_or(0));
    let counts = [
        ("input_tokens", usage.input_tokens.map(|input| input.saturating_sub(cached))),
        ("cache_read_input_tokens", usage.cache_read_tokens),
        ("cache_creation_input_tokens", usage.cache_write_tokens),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            object[name] = json!(count);
        }
    }
    if let Some(count) = usage.reasoning_tokens {
        object["output_tokens_details"] = json!({ "thinking_tokens": count });
    }
    object
}
