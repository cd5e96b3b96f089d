//! The events of a stream.

use serde::Deserialize;

use super::{Counts, UsageFields, stop_reason};
use crate::calls::Calls;
use crate::chat::Event;
use crate::dialect::NotJson;
use crate::json::{Num, Obj, Str, frame};
use crate::openai_chat::data_error;
use crate::sse;

/// All fields of all events; each event has its own few of them. What is not in a delta is boxed, so
/// that the frame of a token is small to move.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    index: Num,
    #[serde(borrow)]
    delta: Obj<Delta<'a>>,
    #[serde(borrow)]
    content_block: Obj<Box<Block<'a>>>,
    #[serde(borrow)]
    message: Obj<Box<Message<'a>>>,
    usage: Obj<Box<UsageFields>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    text: Str<'a>,
    #[serde(borrow)]
    thinking: Str<'a>,
    #[serde(borrow)]
    signature: Str<'a>,
    #[serde(borrow)]
    partial_json: Str<'a>,
    #[serde(borrow)]
    stop_reason: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    text: Str<'a>,
    #[serde(borrow)]
    thinking: Str<'a>,
    #[serde(borrow)]
    signature: Str<'a>,
    #[serde(borrow)]
    data: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    model: Str<'a>,
    usage: Obj<Box<UsageFields>>,
}

/// Reads one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parser {
    calls: Calls,
    counts: Counts,
}

impl Parser {
    pub(crate) fn parse<'a>(
        &mut self,
        event: &'a sse::Event<'_>,
        sink: &mut dyn FnMut(Event<'a>),
    ) -> Result<(), NotJson> {
        let frame: Option<Frame<'a>> = frame(&event.data)?;
        let frame = frame.unwrap_or_default();
        match frame.kind.0.as_deref().or(event.name).unwrap_or_default() {
            "content_block_delta" => {
                if let Some(delta) = frame.delta.0 {
                    self.delta(delta, frame.index.0, sink);
                }
            }
            "content_block_start" => {
                if let Some(block) = frame.content_block.0 {
                    self.block(*block, frame.index.0, sink);
                }
            }
            "message_start" => {
                let message = *frame.message.0.unwrap_or_default();
                let (id, model) = (message.id.0.unwrap_or_default(), message.model.0.unwrap_or_default());
                sink(Event::Start { id, model });
                self.usage(message.usage, sink);
            }
            "message_delta" => {
                self.usage(frame.usage, sink);
                if let Some(word) = frame.delta.0.and_then(|delta| delta.stop_reason.filled()) {
                    sink(Event::Stop(stop_reason(&word)));
                }
            }
            "message_stop" => sink(Event::End),
            "ping" => sink(Event::Ping),
            "error" => sink(Event::Error(data_error(event))),
            // `content_block_stop`, and whatever they add: unknown events must be tolerated.
            _ => {}
        }
        Ok(())
    }

    fn usage<'a>(&mut self, fields: Obj<Box<UsageFields>>, sink: &mut dyn FnMut(Event<'a>)) {
        if let Some(fields) = fields.0 {
            sink(Event::Usage(self.counts.update(*fields)));
        }
    }

    /// A block begins. Tools that the provider runs itself (`server_tool_use`) are no calls of ours.
    fn block<'a>(&mut self, block: Block<'a>, index: Option<u64>, sink: &mut dyn FnMut(Event<'a>)) {
        match block.kind.0.as_deref() {
            Some("tool_use") => {
                let index = self.calls.begin(index);
                let (id, name) = (block.id.0.unwrap_or_default(), block.name.0.unwrap_or_default());
                sink(Event::ToolStart { index, id, name });
            }
            Some("text") => block.text.filled().map(Event::Text).into_iter().for_each(sink),
            Some("thinking") => {
                block.thinking.filled().map(Event::Reasoning).into_iter().for_each(&mut *sink);
                block.signature.filled().map(Event::Signature).into_iter().for_each(sink);
            }
            Some("redacted_thinking") => block.data.filled().map(Event::Redacted).into_iter().for_each(sink),
            _ => {}
        }
    }

    fn delta<'a>(&self, delta: Delta<'a>, index: Option<u64>, sink: &mut dyn FnMut(Event<'a>)) {
        let event = match delta.kind.0.as_deref() {
            Some("text_delta") => delta.text.filled().map(Event::Text),
            Some("thinking_delta") => delta.thinking.filled().map(Event::Reasoning),
            Some("signature_delta") => delta.signature.filled().map(Event::Signature),
            Some("input_json_delta") => {
                let index = self.calls.index(index);
                delta
                    .partial_json
                    .filled()
                    .zip(index)
                    .map(|(json, index)| Event::ToolArguments { index, json })
            }
            _ => None,
        };
        event.into_iter().for_each(sink);
    }
}
