//! What a stream says, gathered, and the same in another dialect.

use bytes::Bytes;
use firsttoken_wire::chat::{Citation, Event, StopReason, Usage};
use firsttoken_wire::sse::{Split, Splitter, events};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity};

use super::{ensure, equal};

/// What a dialect says that ended a call where another goes on with it.
const BROKEN: &str = "The arguments of a tool call went on behind their end.";

/// All that a stream says to its reader.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Said {
    /// Visible text.
    pub(crate) text: String,
    /// Thinking.
    pub(crate) thought: String,
    /// Signatures, and what stands in place of thinking.
    pub(crate) proofs: Vec<String>,
    /// Id, name and arguments of each call.
    pub(crate) calls: Vec<[String; 3]>,
    /// Where the text comes from.
    pub(crate) citations: Vec<Citation<'static>>,
    /// Every reason to stop that was given.
    pub(crate) stops: Vec<StopReason>,
    /// The counts at the end.
    pub(crate) usage: Usage,
    /// Whether it ended well.
    pub(crate) ended: bool,
    /// The error that ended it.
    pub(crate) error: Option<ApiError>,
    /// How many frames could not be read.
    pub(crate) malformed: u32,
    indices: Vec<u32>,
}

impl Said {
    /// What a stream says that comes in these reads.
    pub(crate) fn of(dialect: Dialect, reads: &[&[u8]]) -> Self {
        let mut said = Self::default();
        each(dialect, reads, &mut |event| said.hear(&event));
        said
    }

    /// Adds what an event says. Nothing counts behind the end.
    pub(crate) fn hear(&mut self, event: &Event<'_>) {
        if self.over() {
            return;
        }
        match event {
            Event::Text(text) => self.text.push_str(text),
            Event::Reasoning(text) => self.thought.push_str(text),
            Event::Signature(text) | Event::Redacted(text) if !text.is_empty() => {
                self.proofs.push(text.to_string());
            }
            Event::ToolStart { index, id, name } => {
                self.indices.push(*index);
                self.calls.push([id.to_string(), name.to_string(), String::new()]);
            }
            Event::ToolArguments { index, json } => {
                if let Some(at) = self.indices.iter().rposition(|known| known == index) {
                    self.calls[at][2].push_str(json);
                }
            }
            Event::Citation(citation) => self.citations.push(citation.clone().into_owned()),
            Event::Usage(usage) => self.usage.update(*usage),
            Event::Stop(reason) => self.stops.push(reason.clone()),
            Event::Error(error) => self.error = Some(error.clone()),
            Event::End => self.ended = true,
            Event::Malformed => self.malformed += 1,
            _ => {}
        }
    }

    fn over(&self) -> bool {
        self.ended || self.error.is_some()
    }

    /// Whether `other`, which was rendered from this in `dialect`, lost or repeated anything.
    ///
    /// # Errors
    /// What is not the same.
    pub(crate) fn survives_in(&self, dialect: Dialect, other: &Self) -> Result<(), String> {
        equal!(other.malformed, 0);
        if other.error.as_ref().is_some_and(|error| error.message == BROKEN) {
            return Ok(());
        }
        equal!(other.text, self.text);
        equal!(other.thought, self.thought);
        equal!(other.proofs, self.proofs);
        // The other two have no such word, or none that we read.
        if matches!(dialect, Dialect::OpenAiChat | Dialect::Typed) {
            equal!(other.citations, self.citations);
        }
        self.calls_survive_in(dialect, other)?;
        equal!(other.ended, self.ended);
        if !self.ended {
            ensure!(other.error.is_some(), "the error is lost");
            return Ok(());
        }
        // A word of its own may be one that the other dialect knows.
        if let [stop] = &self.stops[..]
            && !matches!(stop, StopReason::Other(_))
        {
            // A good end behind a call is the wish for its result there.
            let called = dialect == Dialect::OpenAiResponses && !self.calls.is_empty();
            let good = matches!(stop, StopReason::Stop | StopReason::Tool);
            match &other.stops[..] {
                [StopReason::Tool] if called && good => {}
                // It has no word for a wish without a call.
                [StopReason::Stop] if dialect == Dialect::OpenAiResponses && good && !called => {}
                stops => equal!(stops, std::slice::from_ref(stop)),
            }
        }
        if self.usage.output_tokens.is_some() {
            equal!(other.usage.output_tokens, self.usage.output_tokens);
        }
        Ok(())
    }

    fn calls_survive_in(&self, dialect: Dialect, other: &Self) -> Result<(), String> {
        equal!(other.calls.len(), self.calls.len());
        for (at, ([id, name, json], [other_id, other_name, other_json])) in
            self.calls.iter().zip(&other.calls).enumerate()
        {
            equal!(other_name, name);
            // An id that is missing or was used is made up where calls are known by it.
            let taken = id.is_empty() || self.calls[..at].iter().any(|call| call[0] == *id);
            ensure!(other_id == id || taken, "{other_id:?}, not {id:?}");
            // Spaces behind a whole input say nothing and may go there.
            match dialect {
                Dialect::Anthropic | Dialect::Typed | Dialect::Ui => equal!(dense(other_json), dense(json)),
                _ => equal!(other_json, json),
            }
        }
        Ok(())
    }
}

fn dense(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Tells `sink` everything that a stream says.
fn each(dialect: Dialect, reads: &[&[u8]], sink: &mut dyn FnMut(Event<'_>)) {
    let (mut parser, mut splitter) = (dialect.parser(), Splitter::new(1 << 20));
    for read in reads {
        if let Split::Whole(block) = splitter.push(Bytes::copy_from_slice(read)) {
            for event in events(&block) {
                parser.parse(&event, &mut *sink);
            }
        }
    }
}

/// The same stream in another dialect, as the gateway passes it on: what is no JSON or breaks off ends it
/// with an error. Says what was told to the renderer, too.
pub(crate) fn translated(from: Dialect, to: Dialect, stream: &[u8]) -> (Said, Vec<u8>) {
    let identity = Identity { id: "a".to_owned(), model: "m".to_owned(), created: 1, include_usage: true };
    let (mut renderer, mut out, mut said) = (to.renderer(&identity), Vec::new(), Said::default());
    let broken = || Event::Error(ApiError::new(ErrorKind::Upstream, "the stream broke"));
    each(from, &[stream], &mut |event| {
        let event = if event == Event::Malformed { broken() } else { event };
        said.hear(&event);
        renderer.render(&event, &mut out);
    });
    if !said.over() {
        said.hear(&broken());
        renderer.render(&broken(), &mut out);
    }
    (said, out)
}

/// Whether a stream, told in every dialect, is valid there and says the same.
///
/// # Errors
/// What is wrong, and in which dialect.
pub(crate) fn survives_everywhere(from: Dialect, stream: &[u8]) -> Result<(), String> {
    for to in super::RENDERED {
        let (told, rendered) = translated(from, to, stream);
        let read = Said::of(to, &[&rendered]);
        super::check(to, &rendered).and_then(|()| told.survives_in(to, &read)).map_err(|wrong| {
            format!("{from:?} as {to:?}: {wrong}\n{}", String::from_utf8_lossy(&rendered))
        })?;
    }
    Ok(())
}
