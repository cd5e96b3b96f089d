//! Renders events as chunks. What does not change from chunk to chunk is written once.

use serde_json::{Value, json};

use super::citation;
use super::reasoning::FORMAT;
use crate::chat::{Citation, Event, StopReason, Usage};
use crate::json::{number, string, value};
use crate::{ApiError, Dialect};

/// Renders one stream. After `End` or `Error` it renders nothing more.
#[derive(Clone, Debug)]
pub struct Renderer {
    /// `data: {…"choices":[{"index":0,"delta":`
    head: Vec<u8>,
    /// Length of the part of `head` before `"choices"`.
    envelope_bytes: usize,
    include_usage: bool,
    started: bool,
    stopped: bool,
    closed: bool,
    /// Number of the reasoning block that a proof belongs to.
    block: u64,
    /// The calls that began.
    calls: Vec<u32>,
    usage: Usage,
}

impl Renderer {
    /// A renderer whose chunks carry this id, this model and this time (Unix seconds).
    #[must_use]
    pub fn new(id: &str, model: &str, created: u64) -> Self {
        let mut head = b"data: {\"id\":".to_vec();
        string(&mut head, id);
        head.extend_from_slice(b",\"object\":\"chat.completion.chunk\",\"created\":");
        number(&mut head, created);
        head.extend_from_slice(b",\"model\":");
        string(&mut head, model);
        head.push(b',');
        let envelope_bytes = head.len();
        head.extend_from_slice(b"\"choices\":[{\"index\":0,\"delta\":{");
        Self {
            head,
            envelope_bytes,
            include_usage: false,
            started: false,
            stopped: false,
            closed: false,
            block: 0,
            calls: Vec::new(),
            usage: Usage::default(),
        }
    }

    /// Whether the caller asked for the usage chunk (`stream_options.include_usage`).
    #[must_use]
    pub const fn include_usage(mut self, include_usage: bool) -> Self {
        self.include_usage = include_usage;
        self
    }

    /// Appends what `event` is in this dialect; nothing where the dialect has no word for it.
    pub fn render(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.closed {
            return;
        }
        match event {
            Event::Start { .. } => self.start(out),
            Event::Text(text) if !text.is_empty() => self.text(out, b"\"content\":", text),
            Event::Reasoning(text) if !text.is_empty() => self.text(out, b"\"reasoning_content\":", text),
            Event::Signature(text) if !text.is_empty() => {
                // The text went out before it, piece by piece.
                self.detail(out, b"\"reasoning.text\",\"text\":\"\",\"signature\":", text);
            }
            Event::Redacted(data) if !data.is_empty() => {
                self.detail(out, b"\"reasoning.encrypted\",\"data\":", data);
            }
            Event::ToolStart { index, id, name } => self.tool_start(out, *index, id, name),
            Event::ToolArguments { index, json } if !json.is_empty() => {
                self.tool_arguments(out, *index, json)
            }
            Event::Citation(citation) => self.citation(out, citation),
            Event::Usage(usage) => self.usage.update(*usage),
            Event::Stop(reason) => self.stop(out, reason),
            Event::Error(error) => self.error(out, error),
            Event::Ping => out.extend_from_slice(Dialect::OpenAiChat.keepalive()),
            Event::End => self.end(out),
            Event::Text(_)
            | Event::Reasoning(_)
            | Event::ToolArguments { .. }
            | Event::Status(_)
            | Event::Signature(_)
            | Event::Redacted(_)
            | Event::Meta(_)
            | Event::Other
            | Event::Malformed => {}
        }
    }

    /// The chunk that names the role; every stream begins with it.
    fn start(&mut self, out: &mut Vec<u8>) {
        if !self.started {
            self.started = true;
            self.open(out);
            out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"");
            self.close(out, None);
        }
    }

    fn text(&mut self, out: &mut Vec<u8>, key: &[u8], text: &str) {
        self.start(out);
        self.open(out);
        out.extend_from_slice(key);
        string(out, text);
        self.close(out, None);
    }

    /// What proves a block of reasoning, or stands in its place.
    fn detail(&mut self, out: &mut Vec<u8>, head: &[u8], proof: &str) {
        self.start(out);
        self.open(out);
        out.extend_from_slice(b"\"reasoning_details\":[{\"type\":");
        out.extend_from_slice(head);
        string(out, proof);
        out.extend_from_slice(b",\"format\":");
        string(out, FORMAT);
        out.extend_from_slice(b",\"index\":");
        number(out, self.block);
        self.block += 1;
        out.extend_from_slice(b"}]");
        self.close(out, None);
    }

    fn citation(&mut self, out: &mut Vec<u8>, citation: &Citation<'_>) {
        self.start(out);
        self.open(out);
        out.extend_from_slice(b"\"annotations\":[");
        value(out, &citation::annotation(citation));
        out.push(b']');
        self.close(out, None);
    }

    fn tool_start(&mut self, out: &mut Vec<u8>, index: u32, id: &str, name: &str) {
        self.start(out);
        self.calls.push(index);
        self.open(out);
        out.extend_from_slice(b"\"tool_calls\":[{\"index\":");
        number(out, index.into());
        out.extend_from_slice(b",\"id\":");
        string(out, id);
        out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
        string(out, name);
        out.extend_from_slice(b",\"arguments\":\"\"}}]");
        self.close(out, None);
    }

    fn tool_arguments(&mut self, out: &mut Vec<u8>, index: u32, json: &str) {
        // Arguments of a call that never began are of no call.
        if !self.calls.contains(&index) {
            return;
        }
        self.open(out);
        out.extend_from_slice(b"\"tool_calls\":[{\"index\":");
        number(out, index.into());
        out.extend_from_slice(b",\"function\":{\"arguments\":");
        string(out, json);
        out.extend_from_slice(b"}}]");
        self.close(out, None);
    }

    fn stop(&mut self, out: &mut Vec<u8>, reason: &StopReason) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        self.start(out);
        self.open(out);
        self.close(out, Some(finish_reason(reason)));
    }

    fn error(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        self.closed = true;
        out.extend_from_slice(&Dialect::OpenAiChat.error_event(error, None));
    }

    /// The usage chunk, if asked for and known, and `[DONE]`. A stop that nobody gave is not made up.
    fn end(&mut self, out: &mut Vec<u8>) {
        self.closed = true;
        if self.include_usage && !self.usage.is_empty() {
            out.extend_from_slice(&self.head[..self.envelope_bytes]);
            out.extend_from_slice(b"\"choices\":[],\"usage\":");
            value(out, &usage_json(&self.usage));
            out.extend_from_slice(b"}\n\n");
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn open(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
    }

    fn close(&self, out: &mut Vec<u8>, finish_reason: Option<&str>) {
        match finish_reason {
            Some(word) => {
                out.extend_from_slice(b"},\"finish_reason\":");
                string(out, word);
            }
            None => out.extend_from_slice(b"},\"finish_reason\":null"),
        }
        let end: &[u8] = if self.include_usage { b"}],\"usage\":null}\n\n" } else { b"}]}\n\n" };
        out.extend_from_slice(end);
    }
}

/// OpenAI's word for a reason. It has five; a provider's own word that is none of them stays itself.
pub(super) fn finish_reason(reason: &StopReason) -> &str {
    match reason {
        StopReason::Stop => "stop",
        StopReason::Length => "length",
        StopReason::Tool => "tool_calls",
        StopReason::Filter => "content_filter",
        StopReason::Cancelled => "cancelled",
        StopReason::Other(word) => word,
    }
}

/// OpenAI's `usage` object. Counts that are not known are left out.
pub(super) fn usage_json(usage: &Usage) -> Value {
    let mut object = json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.zip(usage.output_tokens).map(|(input, output)| input.saturating_add(output)),
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
    });
    prune(&mut object);
    object
}

/// Takes out nulls and the objects that they leave empty.
pub(crate) fn prune(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(prune);
        fields
            .retain(|_, value| !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty()));
    }
}
