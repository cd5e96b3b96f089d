//! Reads chunks. They say what they are in `type`, whatever `event:` says, so that a stream of the AI
//! SDK's own servers is read, too.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::reason;
use crate::chat::{Citation, Event, Meta, Status, StopReason, Usage};
use crate::dialect::NotJson;
use crate::error::parse_own;
use crate::json::{Num, Obj, Str, frame};
use crate::{ApiError, ErrorKind, sse};

/// All fields of all chunks; each chunk has its own few of them.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    delta: Str<'a>,
    #[serde(borrow)]
    tool_call_id: Str<'a>,
    #[serde(borrow)]
    tool_name: Str<'a>,
    #[serde(borrow)]
    input_text_delta: Str<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    message_id: Str<'a>,
    #[serde(borrow)]
    error_text: Str<'a>,
    #[serde(borrow)]
    url: Str<'a>,
    #[serde(borrow)]
    title: Str<'a>,
    #[serde(borrow)]
    finish_reason: Str<'a>,
    #[serde(borrow)]
    data: Obj<Box<Data<'a>>>,
    #[serde(borrow)]
    message_metadata: Obj<Box<Metadata<'a>>>,
    #[serde(borrow)]
    provider_metadata: Obj<Box<Providers<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data<'a> {
    #[serde(borrow)]
    phase: Str<'a>,
    elapsed_ms: Num,
    ahead: Num,
    wait_ms: Num,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    request_id: Str<'a>,
    #[serde(borrow)]
    model: Str<'a>,
    #[serde(borrow)]
    upstream: Str<'a>,
    ttft_ms: Option<f64>,
    overhead_ms: Option<f64>,
    usage: Obj<UsageFields>,
    #[serde(borrow)]
    finish_reason: Str<'a>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct UsageFields {
    input_tokens: Num,
    cache_read_tokens: Num,
    cache_write_tokens: Num,
    output_tokens: Num,
    reasoning_tokens: Num,
}

impl UsageFields {
    const fn usage(self) -> Usage {
        Usage {
            input_tokens: self.input_tokens.0,
            cache_read_tokens: self.cache_read_tokens.0,
            cache_write_tokens: self.cache_write_tokens.0,
            output_tokens: self.output_tokens.0,
            reasoning_tokens: self.reasoning_tokens.0,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Providers<'a> {
    #[serde(borrow)]
    firsttoken: Obj<Ours<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ours<'a> {
    #[serde(borrow)]
    signature: Str<'a>,
    #[serde(borrow)]
    redacted_data: Str<'a>,
    start: Num,
    end: Num,
    #[serde(borrow)]
    passage: Str<'a>,
}

/// Reads one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parser {
    calls: Vec<Call>,
    /// An end or an error was told.
    over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    id: Box<str>,
    has_arguments: bool,
}

impl Parser {
    pub(crate) fn parse<'a>(
        &mut self,
        event: &'a sse::Event<'_>,
        sink: &mut dyn FnMut(Event<'a>),
    ) -> Result<(), NotJson> {
        if &*event.data == b"[DONE]" {
            self.once(Event::End, sink);
            return Ok(());
        }
        let chunk: Option<Chunk<'a>> = frame(&event.data)?;
        let chunk = chunk.unwrap_or_default();
        match chunk.kind.0.as_deref().unwrap_or_default() {
            "text-delta" => chunk.delta.filled().map(Event::Text).into_iter().for_each(sink),
            "reasoning-delta" => chunk.delta.filled().map(Event::Reasoning).into_iter().for_each(sink),
            "reasoning-end" => proof(chunk, sink),
            "source-url" => citation(chunk).map(Event::Citation).into_iter().for_each(sink),
            "tool-input-start" | "tool-input-delta" | "tool-input-available" => self.tool(chunk, sink),
            "start" => sink(Event::Start {
                id: chunk.message_id.0.unwrap_or_default(),
                model: chunk.message_metadata.0.and_then(|metadata| metadata.model.0).unwrap_or_default(),
            }),
            "data-status" => {
                let data = chunk.data.0.unwrap_or_default();
                let elapsed_ms = data.elapsed_ms.0.unwrap_or(0);
                let (ahead, wait_ms) = (data.ahead.0, data.wait_ms.0);
                sink(Event::Status(Status { phase: data.phase.plain(), elapsed_ms, ahead, wait_ms }));
            }
            "message-metadata" => sink(Event::Meta(meta(&chunk.message_metadata.0.unwrap_or_default()))),
            "data-error" => self.once(Event::Error(data_error(&event.data)), sink),
            "error" => {
                let text = chunk.error_text.0.unwrap_or_default();
                self.once(Event::Error(ApiError::new(ErrorKind::Upstream, text)), sink);
            }
            "abort" => sink(Event::Stop(StopReason::Cancelled)),
            "finish" => self.finish(chunk, sink),
            // The frames around parts, and whatever they add: unknown chunks must be tolerated.
            _ => {}
        }
        Ok(())
    }

    /// An end or an error, unless one was told: what stands for both faces says it twice.
    fn once<'a>(&mut self, event: Event<'a>, sink: &mut dyn FnMut(Event<'a>)) {
        if !std::mem::replace(&mut self.over, true) {
            sink(event);
        }
    }

    fn finish<'a>(&mut self, chunk: Chunk<'a>, sink: &mut dyn FnMut(Event<'a>)) {
        let metadata = *chunk.message_metadata.0.unwrap_or_default();
        if let Some(usage) = metadata.usage.0 {
            sink(Event::Usage(usage.usage()));
        }
        let word = chunk.finish_reason.filled().or_else(|| metadata.finish_reason.filled());
        word.and_then(|word| reason(&word)).map(Event::Stop).into_iter().for_each(&mut *sink);
        self.once(Event::End, sink);
    }

    /// A call is told where it begins, and its arguments piece by piece, or at once where no piece came.
    fn tool<'a>(&mut self, chunk: Chunk<'a>, sink: &mut dyn FnMut(Event<'a>)) {
        let Some(id) = chunk.tool_call_id.0 else { return };
        let known = self.calls.iter().rposition(|call| *call.id == *id);
        let at = known.unwrap_or(self.calls.len());
        let index = u32::try_from(at).unwrap_or(u32::MAX);
        if known.is_none() {
            // A piece of what never began is of no call.
            let Some(name) = chunk.tool_name.0 else { return };
            self.calls.push(Call { id: (&*id).into(), has_arguments: false });
            sink(Event::ToolStart { index, id, name });
        }
        let piece = chunk.input_text_delta.filled();
        let whole =
            chunk.input.map(RawValue::get).filter(|input| *input != "{}" && !self.calls[at].has_arguments);
        if let Some(json) = piece.or_else(|| whole.map(Into::into)) {
            self.calls[at].has_arguments = true;
            sink(Event::ToolArguments { index, json });
        }
    }
}

fn proof<'a>(chunk: Chunk<'a>, sink: &mut dyn FnMut(Event<'a>)) {
    let Some(proof) = chunk.provider_metadata.0.and_then(|providers| providers.firsttoken.0) else { return };
    proof.signature.filled().map(Event::Signature).into_iter().for_each(&mut *sink);
    proof.redacted_data.filled().map(Event::Redacted).into_iter().for_each(sink);
}

fn citation<'a>(chunk: Chunk<'a>) -> Option<Citation<'a>> {
    let ours = chunk.provider_metadata.0.and_then(|providers| providers.firsttoken.0).unwrap_or_default();
    Some(Citation {
        start: ours.start.0.unwrap_or(0),
        end: ours.end.0.unwrap_or(0),
        url: chunk.url.filled()?,
        title: chunk.title.0.unwrap_or_default(),
        passage: ours.passage.0.unwrap_or_default(),
    })
}

fn meta<'a>(metadata: &Metadata<'a>) -> Meta<'a> {
    Meta {
        request_id: metadata.request_id.plain(),
        model: Some(metadata.model.plain()).filter(|name| !name.is_empty()),
        upstream: Some(metadata.upstream.plain()).filter(|name| !name.is_empty()),
        ttft_ms: metadata.ttft_ms,
        overhead_ms: metadata.overhead_ms,
        usage: metadata.usage.0.map(UsageFields::usage),
    }
}

/// The error in the data of a chunk.
fn data_error(chunk: &[u8]) -> ApiError {
    let chunk: Value = serde_json::from_slice(chunk).unwrap_or_default();
    parse_own(0, chunk.get("data").map(Value::to_string).unwrap_or_default().as_bytes())
}
