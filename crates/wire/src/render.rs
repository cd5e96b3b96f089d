//! What a renderer is told, and what it gives back.

use crate::chat::Event;
use crate::{anthropic, openai_chat, openai_responses, typed};

/// A request in another dialect than its caller's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The body.
    pub body: Vec<u8>,
    /// Names of what the caller asked for and this dialect, or this model, cannot be told: the fields of
    /// the one request model (`seed`, `reasoning`), or the caller's own where that has none.
    pub dropped: Vec<String>,
}

/// What is said of a parameter: where it is not taken, its default says nothing and needs no mention.
pub(crate) fn unless_default(value: Option<f64>, default: f64, takes: bool) -> Option<f64> {
    value.filter(|value| takes || (value - default).abs() > f64::EPSILON)
}

/// Whose answer is rendered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The id of the answer.
    pub id: String,
    /// The model, as the caller named it.
    pub model: String,
    /// When it was asked, in seconds since 1970.
    pub created: u64,
    /// Whether the caller of an OpenAI chat stream asked for its usage.
    pub include_usage: bool,
}

/// Renders one stream in some dialect. After `End` or `Error` it renders nothing more.
#[derive(Clone, Debug)]
pub enum StreamRenderer {
    /// OpenAI Chat Completions.
    OpenAiChat(openai_chat::Renderer),
    /// OpenAI Responses.
    OpenAiResponses(openai_responses::Renderer),
    /// Anthropic Messages.
    Anthropic(anthropic::Renderer),
    /// Our own typed events.
    Typed(typed::Renderer),
}

impl StreamRenderer {
    /// Appends what `event` is in this dialect; nothing where the dialect has no word for it.
    pub fn render(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(renderer) => renderer.render(event, out),
            Self::OpenAiResponses(renderer) => renderer.render(event, out),
            Self::Anthropic(renderer) => renderer.render(event, out),
            Self::Typed(renderer) => renderer.render(event, out),
        }
    }
}
