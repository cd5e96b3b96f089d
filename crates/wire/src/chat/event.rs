//! What a stream says, one event at a time.

use std::borrow::Cow;

/// Everything that a stream can say to a client. One frame of a dialect may be several of them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// What the gateway is doing before the first token.
    Status(Status<'a>),
    /// The answer begins: the provider's id of it and the model that answers.
    Start {
        /// The provider's id of this answer.
        id: Cow<'a, str>,
        /// The model that answers.
        model: Cow<'a, str>,
    },
    /// Visible text.
    Text(Cow<'a, str>),
    /// The model thinking aloud.
    Reasoning(Cow<'a, str>),
    /// The provider's proof that a reasoning block is its own; it must come back unchanged.
    Signature(Cow<'a, str>),
    /// A reasoning block that only its provider can read; it must come back unchanged.
    Redacted(Cow<'a, str>),
    /// A tool call begins.
    ToolStart {
        /// Position among the tool calls of this answer, from 0.
        index: u32,
        /// Identifier that its result refers to.
        id: Cow<'a, str>,
        /// Name of the function.
        name: Cow<'a, str>,
    },
    /// A piece of a tool call's arguments (JSON text, cut anywhere).
    ToolArguments {
        /// Position among the tool calls of this answer, from 0.
        index: u32,
        /// The piece.
        json: Cow<'a, str>,
    },
    /// Where a piece of the text so far comes from.
    Citation(Citation<'a>),
    /// Token counts so far; a later one replaces an earlier one field by field.
    Usage(Usage),
    /// Why the model stopped. The stream may still bring usage and its terminal event.
    Stop(StopReason),
    /// Facts about the request: ids, model, timings.
    Meta(Meta<'a>),
    /// The request failed, after or before content.
    Error(crate::ApiError),
    /// The provider says that it is alive.
    Ping,
    /// The dialect's terminal event: nothing may follow.
    End,
    /// A frame that is valid but says nothing this model knows.
    Other,
    /// A frame that is not JSON where its dialect wants JSON. What to do is for the relay to decide.
    Malformed,
}

impl Event<'_> {
    /// Whether this is content: visible text, reasoning, or a tool call's name or arguments, non-empty.
    /// Only content ends the wait for the first token.
    #[must_use]
    pub fn is_content(&self) -> bool {
        match self {
            Event::Text(s) | Event::Reasoning(s) | Event::ToolArguments { json: s, .. } => !s.is_empty(),
            Event::ToolStart { .. } => true,
            Event::Status(_)
            | Event::Start { .. }
            | Event::Signature(_)
            | Event::Redacted(_)
            | Event::Citation(_)
            | Event::Usage(_)
            | Event::Stop(_)
            | Event::Meta(_)
            | Event::Error(_)
            | Event::Ping
            | Event::End
            | Event::Other
            | Event::Malformed => false,
        }
    }
}

/// A piece of the text, and the passage that it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Citation<'a> {
    /// Where the piece begins in the text, in characters from 0.
    pub start: u64,
    /// Where it has ended.
    pub end: u64,
    /// Where the passage can be read.
    pub url: Cow<'a, str>,
    /// What that page is called; empty where nobody said.
    pub title: Cow<'a, str>,
    /// The passage itself; empty where nobody said.
    pub passage: Cow<'a, str>,
}

impl Citation<'_> {
    /// The same, on its own.
    #[must_use]
    pub fn into_owned(self) -> Citation<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let Self { start, end, url, title, passage } = self;
        Citation { start, end, url: own(url), title: own(title), passage: own(passage) }
    }
}

/// A phase of the request's life, as it happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Status<'a> {
    /// Name of the phase: `accepted`, `connect`, `provider`, …
    pub phase: &'a str,
    /// Milliseconds since the gateway accepted the request.
    pub elapsed_ms: u64,
    /// In line: how many go before it.
    pub ahead: Option<u64>,
    /// In line: how many milliseconds that will probably take, where it is known.
    pub wait_ms: Option<u64>,
}

/// Facts about the request that a client may show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta<'a> {
    /// The gateway's id of the request.
    pub request_id: &'a str,
    /// The model that answers, as the caller named it.
    pub model: Option<&'a str>,
    /// Name of the upstream that answers.
    pub upstream: Option<&'a str>,
    /// Request accepted → first content written, in milliseconds.
    pub ttft_ms: Option<f64>,
    /// What the gateway added before the first content, in milliseconds.
    pub overhead_ms: Option<f64>,
    /// Token counts, where the provider reported them.
    pub usage: Option<Usage>,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model had said everything, or met a stop string.
    Stop,
    /// The token limit.
    Length,
    /// It wants tools to be called.
    Tool,
    /// The provider's filter, or the model refused.
    Filter,
    /// The client left. Only the gateway says this.
    Cancelled,
    /// The provider's own word, where none of the above fits.
    Other(String),
}

/// Token counts in one meaning for every dialect: `input` **includes** what was read from or
/// written to the provider's prompt cache (as OpenAI counts; Anthropic reports the uncached rest).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub input_tokens: Option<u64>,
    /// Prompt tokens read from the provider's cache.
    pub cache_read_tokens: Option<u64>,
    /// Prompt tokens written to the provider's cache.
    pub cache_write_tokens: Option<u64>,
    /// Generated tokens, reasoning included.
    pub output_tokens: Option<u64>,
    /// Generated tokens spent on reasoning.
    pub reasoning_tokens: Option<u64>,
}

impl Usage {
    /// Whether nothing was reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes every count that `later` reports and keeps the rest.
    pub fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_read_tokens = later.cache_read_tokens.or(self.cache_read_tokens);
        self.cache_write_tokens = later.cache_write_tokens.or(self.cache_write_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.reasoning_tokens = later.reasoning_tokens.or(self.reasoning_tokens);
    }
}
