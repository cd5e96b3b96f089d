//! The chunks of a stream. Called once per token, so the usual chunk is read without allocating.

use serde::Deserialize;

use super::citation::Annotation;
use super::reasoning::is_ours;
use super::{UsageFields, stop_reason};
use crate::chat::Event;
use crate::dialect::NotJson;
use crate::json::{Few, List, Num, Obj, Present, Str, StrOr, frame};
use crate::{ApiError, sse};

/// What is rare is boxed: a chunk is moved about while it is read, and moving a large one took more
/// than a quarter of the time.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    model: Str<'a>,
    #[serde(borrow)]
    choices: Few<Choice<'a>>,
    usage: Obj<Box<UsageFields>>,
    /// Groq tells its usage here, asked or not.
    x_groq: Obj<Box<Groq>>,
    error: Present,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Groq {
    usage: Obj<Box<UsageFields>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Obj<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Str<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: StrOr<'a, Obj<Piece<'a>>>,
    #[serde(borrow)]
    reasoning_content: Str<'a>,
    #[serde(borrow)]
    reasoning: Str<'a>,
    #[serde(borrow)]
    reasoning_details: List<Obj<DetailDelta<'a>>>,
    #[serde(borrow)]
    refusal: Str<'a>,
    #[serde(borrow)]
    tool_calls: List<ToolDelta<'a>>,
    #[serde(borrow)]
    annotations: List<Obj<Annotation<'a>>>,
}

/// A piece of a content that is a list, as Mistral's models have it that think.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Piece<'a> {
    #[serde(borrow)]
    text: Str<'a>,
    #[serde(borrow)]
    thinking: List<Obj<Thought<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Thought<'a> {
    #[serde(borrow)]
    text: Str<'a>,
}

impl<'a> Piece<'a> {
    fn tell(self, sink: &mut dyn FnMut(Event<'a>)) {
        let thoughts = self.thinking.0.into_iter().filter_map(|thought| thought.0?.text.filled());
        thoughts.map(Event::Reasoning).for_each(&mut *sink);
        self.text.filled().map(Event::Text).into_iter().for_each(sink);
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DetailDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    text: Str<'a>,
    #[serde(borrow)]
    summary: Str<'a>,
    #[serde(borrow)]
    signature: Str<'a>,
    #[serde(borrow)]
    data: Str<'a>,
    #[serde(borrow)]
    format: Str<'a>,
}

impl<'a> DetailDelta<'a> {
    /// What the detail says; its text only where that was not `shown` already.
    fn tell(self, shown: bool, sink: &mut dyn FnMut(Event<'a>)) {
        let ours = is_ours(self.format.0.as_deref());
        let text = self.text.filled().or_else(|| self.summary.filled()).filter(|_| !shown);
        let (proof, data) = (self.signature.filled(), self.data.filled());
        text.map(Event::Reasoning).into_iter().for_each(&mut *sink);
        let proof = match self.kind.0.as_deref() {
            Some("reasoning.text") => proof.map(Event::Signature),
            Some("reasoning.encrypted") => data.map(Event::Redacted),
            _ => None,
        };
        proof.filter(|_| ours).into_iter().for_each(sink);
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolDelta<'a> {
    index: Num,
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    function: Obj<FunctionDelta<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    arguments: Str<'a>,
}

/// Reads one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parser {
    started: bool,
    tools: Tools,
}

impl Parser {
    pub(crate) fn parse<'a>(
        &mut self,
        event: &'a sse::Event<'_>,
        sink: &mut dyn FnMut(Event<'a>),
    ) -> Result<(), NotJson> {
        if event.data.trim_ascii() == b"[DONE]" {
            sink(Event::End);
            return Ok(());
        }
        let chunk: Option<Chunk<'a>> = frame(&event.data)?;
        let chunk = chunk.unwrap_or_default();
        let silent = chunk.choices.first.is_none() && chunk.usage.0.is_none();
        if chunk.error.0 || event.name == Some("error") || (silent && is_error_object(&event.data)) {
            sink(Event::Error(data_error(event)));
            return Ok(());
        }
        if !self.started {
            let (id, model) = (chunk.id.0.unwrap_or_default(), chunk.model.0.unwrap_or_default());
            // Azure's first chunk carries filter results and neither.
            if !id.is_empty() || !model.is_empty() {
                self.started = true;
                sink(Event::Start { id, model });
            }
        }
        let mut stop = None;
        for choice in chunk.choices {
            if let Some(delta) = choice.delta.0 {
                self.delta(delta, sink);
            }
            stop = stop.or_else(|| choice.finish_reason.filled());
        }
        if let Some(usage) = chunk.usage.0.or_else(|| chunk.x_groq.0?.usage.0) {
            sink(Event::Usage(usage.usage()));
        }
        if let Some(word) = stop {
            sink(Event::Stop(stop_reason(&word)));
        }
        Ok(())
    }

    fn delta<'a>(&mut self, delta: Delta<'a>, sink: &mut dyn FnMut(Event<'a>)) {
        // The same text under both names, where a server is between the two.
        let thought = delta.reasoning_content.filled().or_else(|| delta.reasoning.filled());
        let shown = thought.is_some();
        thought.map(Event::Reasoning).into_iter().for_each(&mut *sink);
        for detail in delta.reasoning_details.0.into_iter().filter_map(|detail| detail.0) {
            detail.tell(shown, sink);
        }
        if let Some(text) = delta.content.text.filled() {
            sink(Event::Text(text));
        }
        delta.content.list.into_iter().filter_map(|piece| piece.0).for_each(|piece| piece.tell(sink));
        if let Some(text) = delta.refusal.filled() {
            sink(Event::Text(text));
        }
        let cited = delta.annotations.0.into_iter().filter_map(|annotation| annotation.0?.citation());
        cited.map(Event::Citation).for_each(&mut *sink);
        for call in delta.tool_calls.0 {
            let function = call.function.0.unwrap_or_default();
            let (id, name) = (call.id.filled(), function.name.filled());
            let (index, starts) = self.tools.place(call.index.0, id.as_deref(), name.is_some());
            if starts {
                sink(Event::ToolStart { index, id: id.unwrap_or_default(), name: name.unwrap_or_default() });
            }
            if let Some(json) = function.arguments.filled() {
                sink(Event::ToolArguments { index, json });
            }
        }
    }
}

/// Which tool call a delta belongs to. OpenAI numbers them from 0; some servers give no number,
/// or 0 to all of them with an id each, or repeat id and name in every delta.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tools {
    /// Bit per provider's index that began, up to 64.
    seen: u64,
    /// Our index for the next call that the provider's index cannot name.
    next: u32,
    current: Option<Call>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    given: Option<u64>,
    id_hash: u64,
    index: u32,
}

impl Tools {
    /// Our index, and whether the call begins with this delta.
    fn place(&mut self, given: Option<u64>, id: Option<&str>, named: bool) -> (u32, bool) {
        let id_hash = id.map_or(0, hash);
        let bit =
            given.and_then(|given| u32::try_from(given).ok()).and_then(|given| 1_u64.checked_shl(given));
        let seen = bit.is_some_and(|bit| self.seen & bit != 0);
        if let Some(current) = &self.current {
            let same_id = id.is_some() && current.id_hash == id_hash;
            let continues = match given {
                None => same_id || !named,
                _ if given == current.given => same_id || id.is_none() || !named,
                Some(_) => false,
            };
            if continues {
                return (current.index, false);
            }
            if seen && given != current.given {
                return (given.and_then(|given| u32::try_from(given).ok()).unwrap_or(current.index), false);
            }
        }
        let index = match given.and_then(|given| u32::try_from(given).ok()) {
            Some(given) if !seen && given >= self.next => given,
            _ => self.next,
        };
        self.next = index.saturating_add(1);
        self.seen |= bit.unwrap_or(0);
        self.current = Some(Call { given, id_hash, index });
        (index, true)
    }
}

/// FNV-1a: only to tell the ids of one answer apart.
fn hash(id: &str) -> u64 {
    id.bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// `"object":"error"` with the message beside it is how older vLLM reports a failure.
fn is_error_object(data: &[u8]) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Shape<'a> {
        #[serde(borrow)]
        object: Str<'a>,
    }
    let shape: Shape<'_> = serde_json::from_slice(data).unwrap_or_default();
    shape.object.0.as_deref() == Some("error")
}

/// The error in a frame's data.
pub(crate) fn data_error(event: &sse::Event<'_>) -> ApiError {
    crate::error::parse(0, &event.data)
}

/// Whether the chunk's list of choices is there and empty. One that says its usage and nothing else, and
/// has no choices, is the extra chunk that `include_usage` brings.
#[must_use]
pub fn has_no_choices(event: &sse::Event<'_>) -> bool {
    // In a JSON string the quotes would be escaped: this is a key.
    let key = b"\"choices\"";
    let Some(at) = memchr::memmem::find(&event.data, key) else { return false };
    let value = event.data[at + key.len()..].trim_ascii_start().strip_prefix(b":");
    let inside = value.and_then(|value| value.trim_ascii_start().strip_prefix(b"["));
    inside.is_some_and(|inside| inside.trim_ascii_start().starts_with(b"]"))
}
