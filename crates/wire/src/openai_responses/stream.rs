//! The events of a stream, and the whole answer as the last of them and an unstreamed one have it.

use serde::Deserialize;
use serde_json::Value;

use super::sealed;
use crate::ApiError;
use crate::calls::Calls;
use crate::chat::{Event, Facts, StopReason, Usage};
use crate::dialect::NotJson;
use crate::json::{Few, Num, Obj, Present, Str, frame};
use crate::openai_chat::data_error;
use crate::sse;

/// Stands between the parts of a summary.
pub(super) const PARAGRAPH: &str = "\n\n";

/// All fields of all events; each event has its own few of them. What is not in a delta is boxed, so that
/// the frame of a token is small to move.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    delta: Str<'a>,
    output_index: Num,
    summary_index: Num,
    #[serde(borrow)]
    item: Obj<Box<Item<'a>>>,
    #[serde(borrow)]
    response: Obj<Box<Response<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Item<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    call_id: Str<'a>,
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    encrypted_content: Str<'a>,
    content: Few<Present>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    model: Str<'a>,
    #[serde(borrow)]
    status: Str<'a>,
    usage: Obj<UsageFields>,
    #[serde(borrow)]
    incomplete_details: Obj<Incomplete<'a>>,
    #[serde(borrow)]
    output: Few<Item<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Incomplete<'a> {
    #[serde(borrow)]
    reason: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageFields {
    input_tokens: Num,
    output_tokens: Num,
    input_tokens_details: Obj<InputDetails>,
    output_tokens_details: Obj<OutputDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Num,
    cache_write_tokens: Num,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Num,
}

impl UsageFields {
    fn usage(self) -> Usage {
        let input = self.input_tokens_details.0.unwrap_or_default();
        Usage {
            input_tokens: self.input_tokens.0,
            cache_read_tokens: input.cached_tokens.0,
            cache_write_tokens: input.cache_write_tokens.0,
            output_tokens: self.output_tokens.0,
            reasoning_tokens: self.output_tokens_details.0.and_then(|details| details.reasoning_tokens.0),
        }
    }
}

impl Response<'_> {
    pub(super) fn facts(self) -> Facts {
        Facts {
            stop: self.stop(),
            has_content: self.output.iter().any(|item| item.is_call() || item.content.first.is_some()),
            id: self.id.filled().map(Into::into),
            model: self.model.filled().map(Into::into),
            usage: self.usage.0.map(UsageFields::usage).unwrap_or_default(),
        }
    }

    /// Why it ended, if it did. A call among its items means that it wants tools.
    fn stop(&self) -> Option<StopReason> {
        let reason = self.incomplete_details.0.as_ref().and_then(|details| details.reason.0.as_deref());
        Some(match (self.status.0.as_deref()?, reason) {
            ("completed", _) if self.output.iter().any(Item::is_call) => StopReason::Tool,
            ("completed", _) => StopReason::Stop,
            ("incomplete", Some("max_output_tokens")) => StopReason::Length,
            ("incomplete", Some("content_filter")) => StopReason::Filter,
            ("incomplete", Some("cancelled")) => StopReason::Cancelled,
            ("incomplete", Some(other)) => StopReason::Other(other.to_owned()),
            ("incomplete", None) => StopReason::Other("incomplete".to_owned()),
            ("cancelled", _) => StopReason::Cancelled,
            _ => return None,
        })
    }
}

impl Item<'_> {
    fn is_call(&self) -> bool {
        self.is("function_call")
    }

    fn is(&self, kind: &str) -> bool {
        self.kind.0.as_deref() == Some(kind)
    }
}

/// Reads one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parser {
    calls: Calls,
    /// Whether the reasoning item that is open has a text.
    thought: bool,
}

impl Parser {
    pub(crate) fn parse<'a>(
        &mut self,
        event: &'a sse::Event<'_>,
        sink: &mut dyn FnMut(Event<'a>),
    ) -> Result<(), NotJson> {
        // Some servers end this dialect, too, in OpenAI's older way.
        if event.data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let frame: Option<Frame<'a>> = frame(&event.data)?;
        let frame = frame.unwrap_or_default();
        let kind = frame.kind.0.as_deref().or(event.name).unwrap_or_default();
        match kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                frame.delta.filled().map(Event::Text).into_iter().for_each(sink);
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                if let Some(text) = frame.delta.filled() {
                    self.thought = true;
                    sink(Event::Reasoning(text));
                }
            }
            // The parts of a summary are paragraphs.
            "response.reasoning_summary_part.added" if self.thought && frame.summary_index.0 > Some(0) => {
                sink(Event::Reasoning(PARAGRAPH.into()));
            }
            "response.function_call_arguments.delta" => {
                if let (Some(index), Some(json)) =
                    (self.calls.index(frame.output_index.0), frame.delta.filled())
                {
                    sink(Event::ToolArguments { index, json });
                }
            }
            "response.output_item.added" => {
                if let Some(item) = frame.item.0 {
                    self.begin(*item, frame.output_index.0, sink);
                }
            }
            "response.output_item.done" => {
                let item = frame.item.0.filter(|item| item.is("reasoning"));
                if let Some(sealed) = item.and_then(|item| item.encrypted_content.filled()) {
                    sink(sealed::event(sealed, self.thought));
                }
            }
            "response.created" => {
                let response = *frame.response.0.unwrap_or_default();
                let (id, model) = (response.id.0.unwrap_or_default(), response.model.0.unwrap_or_default());
                sink(Event::Start { id, model });
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                self.end(kind, *frame.response.0.unwrap_or_default(), event, sink);
            }
            "error" => sink(Event::Error(data_error(event))),
            _ => {}
        }
        Ok(())
    }

    fn begin<'a>(&mut self, item: Item<'a>, index: Option<u64>, sink: &mut dyn FnMut(Event<'a>)) {
        if item.is("reasoning") {
            self.thought = false;
        }
        if item.is_call() {
            let index = self.calls.begin(index);
            let id = item.call_id.filled().or_else(|| item.id.filled()).unwrap_or_default();
            sink(Event::ToolStart { index, id, name: item.name.0.unwrap_or_default() });
        }
    }

    fn end<'a>(
        &self,
        kind: &str,
        response: Response<'a>,
        event: &'a sse::Event<'_>,
        sink: &mut dyn FnMut(Event<'a>),
    ) {
        // The event's name counts where the answer in it does not repeat its status.
        let stop = response.stop().or_else(|| match kind {
            "response.completed" => Some(StopReason::Stop),
            "response.incomplete" => Some(StopReason::Other("incomplete".to_owned())),
            "response.cancelled" => Some(StopReason::Cancelled),
            _ => None,
        });
        if let Some(usage) = response.usage.0 {
            sink(Event::Usage(usage.usage()));
        }
        if kind == "response.failed" {
            sink(Event::Error(failure(event)));
        } else {
            // What the stream showed counts even if the answer at its end leaves its items out.
            let tools = self.calls.count() > 0 && stop == Some(StopReason::Stop);
            stop.map(|stop| Event::Stop(if tools { StopReason::Tool } else { stop }))
                .into_iter()
                .for_each(&mut *sink);
        }
        sink(Event::End);
    }
}

/// The error of an answer that failed: it stands inside the answer, which may be long.
fn failure(event: &sse::Event<'_>) -> ApiError {
    let frame: Value = serde_json::from_slice(&event.data).unwrap_or_default();
    let error = frame.get("response").and_then(|response| response.get("error")).unwrap_or(&Value::Null);
    crate::error::parse(0, error.to_string().as_bytes())
}
