//! OpenAI's legacy completions: a parser, enough to time a stream that passes through.
//! Like the chunks of [`crate::openai_chat`], with `text` in the place of `delta`.

use serde::Deserialize;

use crate::chat::Event;
use crate::dialect::NotJson;
use crate::json::{Few, Obj, Present, Str, frame};
use crate::openai_chat::{UsageFields, data_error, stop_reason};
use crate::sse;

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
    error: Present,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    #[serde(borrow)]
    text: Str<'a>,
    #[serde(borrow)]
    finish_reason: Str<'a>,
}

/// Reads one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parser {
    started: bool,
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
        if chunk.error.0 || event.name == Some("error") {
            sink(Event::Error(data_error(event)));
            return Ok(());
        }
        if !self.started {
            let (id, model) = (chunk.id.0.unwrap_or_default(), chunk.model.0.unwrap_or_default());
            if !id.is_empty() || !model.is_empty() {
                self.started = true;
                sink(Event::Start { id, model });
            }
        }
        let mut stop = None;
        for choice in chunk.choices {
            if let Some(text) = choice.text.filled() {
                sink(Event::Text(text));
            }
            stop = stop.or_else(|| choice.finish_reason.filled());
        }
        if let Some(usage) = chunk.usage.0 {
            sink(Event::Usage(usage.usage()));
        }
        if let Some(word) = stop {
            sink(Event::Stop(stop_reason(&word)));
        }
        Ok(())
    }
}
