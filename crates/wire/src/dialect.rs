//! Which dialect is which. The one place that dispatches on it; everything else holds a value.

use std::borrow::Cow;

use crate::chat::{self, Event, Facts};
use crate::template::Template;
use crate::{ApiError, ErrorKind, Identity, Rendered, StreamRenderer, sse};
use crate::{anthropic, openai_chat, openai_completions, openai_responses, typed};

/// How a caller or an upstream talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI Chat Completions, `/v1/chat/completions`.
    OpenAiChat,
    /// OpenAI Responses, `/v1/responses`.
    OpenAiResponses,
    /// OpenAI's legacy `/v1/completions`.
    OpenAiCompletions,
    /// Other OpenAI-style JSON endpoints (embeddings, models, …): errors in OpenAI's form, no stream model.
    OpenAiOther,
    /// Anthropic Messages, `/v1/messages`.
    Anthropic,
    /// firsttoken's own typed events, `/v1/chat`, which are the AI SDK's UI message stream, too.
    Typed,
    /// The same events for the AI SDK's `useChat`, which asks in a form of its own and shows the body of
    /// an error as it is, `/api/chat`.
    Ui,
}

impl Dialect {
    /// What to write, between two events, to a client that waits: a comment, or a ping where the
    /// dialect has one.
    #[must_use]
    pub const fn keepalive(self) -> &'static [u8] {
        match self {
            Self::OpenAiChat
            | Self::OpenAiResponses
            | Self::OpenAiCompletions
            | Self::OpenAiOther
            | Self::Typed
            | Self::Ui => b": keepalive\n\n",
            Self::Anthropic => anthropic::PING,
        }
    }

    /// The HTTP status of a failure of `kind`.
    #[must_use]
    pub const fn status(self, kind: ErrorKind) -> u16 {
        match (kind, self) {
            (ErrorKind::Overloaded, Self::Anthropic) => 529,
            _ => kind.status(),
        }
    }

    /// The body of an answer that is `error`, as JSON in this dialect's form.
    #[must_use]
    pub fn error_body(self, error: &ApiError, request_id: Option<&str>) -> Vec<u8> {
        let mut body = Vec::with_capacity(256);
        match self {
            Self::OpenAiChat | Self::OpenAiResponses | Self::OpenAiCompletions | Self::OpenAiOther => {
                openai_chat::write_error(&mut body, error);
            }
            Self::Anthropic => anthropic::write_error(&mut body, error, request_id),
            Self::Ui => {
                // A sentence has no field for the place, so it names it.
                let place = error.param.as_ref().map_or_else(String::new, |param| format!("{param}: "));
                body.extend_from_slice(place.as_bytes());
                body.extend_from_slice(error.message.as_bytes());
            }
            Self::Typed => {
                body.extend_from_slice(b"{\"error\":");
                typed::write_error(&mut body, error, request_id);
                body.push(b'}');
            }
        }
        body
    }

    /// What the body of an error is.
    #[must_use]
    pub const fn error_media_type(self) -> &'static str {
        match self {
            Self::Ui => "text/plain; charset=utf-8",
            Self::OpenAiChat
            | Self::OpenAiResponses
            | Self::OpenAiCompletions
            | Self::OpenAiOther
            | Self::Anthropic
            | Self::Typed => "application/json",
        }
    }

    /// How this dialect says `error` in a stream that already has status 200: one SSE frame, and in
    /// the typed events one for each of their faces. It is the last; no terminal event of a good end may
    /// follow.
    #[must_use]
    pub fn error_event(self, error: &ApiError, request_id: Option<&str>) -> Vec<u8> {
        let mut frame = Vec::with_capacity(256);
        match self {
            Self::OpenAiChat | Self::OpenAiCompletions | Self::OpenAiOther => {
                frame.extend_from_slice(b"data: ");
                openai_chat::write_error(&mut frame, error);
            }
            Self::OpenAiResponses => {
                frame.extend_from_slice(b"event: error\ndata: ");
                // The relay does not count the provider's events.
                openai_responses::write_error(&mut frame, error, 0);
            }
            Self::Anthropic => {
                frame.extend_from_slice(b"event: error\ndata: ");
                anthropic::write_error(&mut frame, error, request_id);
            }
            Self::Typed | Self::Ui => {
                frame.extend_from_slice(b"event: error\ndata: ");
                typed::write_error_data(&mut frame, error, request_id);
                frame.extend_from_slice(b"\n\ndata: ");
                typed::write_error_text(&mut frame, error);
            }
        }
        frame.extend_from_slice(b"\n\n");
        frame
    }

    /// Reads the body of an upstream's error answer. Takes anything, HTML and nothing included.
    #[must_use]
    pub fn parse_error_body(self, status: u16, body: &[u8]) -> ApiError {
        // The dialects' forms do not collide, and a proxy in front of a provider speaks yet
        // another, so one tolerant reader serves all.
        if matches!(self, Self::Typed | Self::Ui) {
            crate::error::parse_own(status, body)
        } else {
            crate::error::parse(status, body)
        }
    }

    /// Reads the body of a caller's request into the one model; `None` where this dialect is only passed
    /// through.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse_request(self, body: &[u8]) -> Option<Result<chat::Request, ApiError>> {
        Some(match self {
            Self::OpenAiChat => openai_chat::parse_request(body),
            Self::Anthropic => anthropic::parse_request(body),
            Self::Typed => typed::parse_request(body),
            Self::Ui => typed::parse_ui_request(body).map(|ui| ui.request),
            Self::OpenAiResponses => openai_responses::parse_request(body),
            Self::OpenAiCompletions | Self::OpenAiOther => return None,
        })
    }

    /// Writes a request for an upstream of this dialect.
    ///
    /// # Errors
    /// What this dialect, or this model, cannot do, where leaving it out would be a lie.
    pub fn render_request(self, request: &chat::Request) -> Result<Rendered, ApiError> {
        match self {
            Self::Anthropic => anthropic::render_request(request),
            Self::OpenAiResponses => openai_responses::render_request(request),
            Self::OpenAiChat | Self::OpenAiCompletions | Self::OpenAiOther | Self::Typed | Self::Ui => {
                openai_chat::render_request(request, true)
            }
        }
    }

    /// A renderer of one stream for a caller of this dialect.
    #[must_use]
    pub fn renderer(self, identity: &Identity) -> StreamRenderer {
        let Identity { id, model, created, include_usage } = identity;
        match self {
            Self::Anthropic => StreamRenderer::Anthropic(anthropic::Renderer::new(id, model)),
            Self::Typed | Self::Ui => StreamRenderer::Typed(typed::Renderer::new().request_id(id)),
            Self::OpenAiResponses => {
                StreamRenderer::OpenAiResponses(openai_responses::Renderer::new(id, model, *created))
            }
            Self::OpenAiChat | Self::OpenAiCompletions | Self::OpenAiOther => {
                let renderer = openai_chat::Renderer::new(id, model, *created);
                StreamRenderer::OpenAiChat(renderer.include_usage(*include_usage))
            }
        }
    }

    /// The id of an answer that we render, in this dialect's form, from the id of its request.
    #[must_use]
    pub fn answer_id(self, request_id: &str) -> String {
        let own = request_id.strip_prefix("req_").unwrap_or(request_id);
        match self {
            Self::OpenAiChat => format!("chatcmpl-{own}"),
            Self::OpenAiResponses => format!("resp_{own}"),
            Self::OpenAiCompletions => format!("cmpl-{own}"),
            Self::Anthropic => format!("msg_{own}"),
            Self::OpenAiOther | Self::Typed | Self::Ui => request_id.to_owned(),
        }
    }

    /// Reads a whole (not streamed) answer of an upstream that speaks this dialect.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse_answer(self, body: &[u8]) -> Result<chat::Answer, ApiError> {
        match self {
            Self::OpenAiChat => openai_chat::parse_answer(body),
            Self::OpenAiResponses => openai_responses::parse_answer(body),
            Self::Anthropic => anthropic::parse_answer(body),
            Self::OpenAiCompletions | Self::OpenAiOther | Self::Typed | Self::Ui => {
                Err(ApiError::new(ErrorKind::Upstream, "this answer cannot be translated"))
            }
        }
    }

    /// A whole answer for a caller of this dialect.
    #[must_use]
    pub fn render_answer(self, answer: &chat::Answer, identity: &Identity) -> Vec<u8> {
        match self {
            Self::Anthropic => anthropic::render_answer(answer, identity),
            Self::OpenAiResponses => openai_responses::render_answer(answer, identity),
            Self::OpenAiChat | Self::OpenAiCompletions | Self::OpenAiOther | Self::Typed | Self::Ui => {
                openai_chat::render_answer(answer, identity)
            }
        }
    }

    /// What is booked of a whole (not streamed) answer, as far as it can be read.
    #[must_use]
    pub fn facts(self, body: &[u8]) -> Facts {
        match self {
            Self::OpenAiChat | Self::OpenAiCompletions => openai_chat::facts(body),
            Self::OpenAiResponses => openai_responses::facts(body),
            Self::OpenAiOther => openai_chat::other_facts(body),
            Self::Anthropic => anthropic::facts(body),
            // It is always a stream.
            Self::Typed | Self::Ui => Facts::default(),
        }
    }

    /// A parser for one stream of this dialect.
    #[must_use]
    pub fn parser(self) -> StreamParser {
        let inner = match self {
            Self::OpenAiChat | Self::OpenAiOther => Inner::OpenAiChat(openai_chat::Parser::default()),
            Self::OpenAiResponses => Inner::OpenAiResponses(openai_responses::Parser::default()),
            Self::OpenAiCompletions => Inner::OpenAiCompletions(openai_completions::Parser::default()),
            Self::Anthropic => Inner::Anthropic(anthropic::Parser::default()),
            Self::Typed | Self::Ui => Inner::Typed(typed::Parser::default()),
        };
        StreamParser { inner, template: None, lessons: LESSONS }
    }
}

/// How often in a row a stream may fail to repeat itself before it is taken to be one that never does.
const LESSONS: u8 = 8;

/// Reads the frames of one stream. Its state is a few hundred bytes.
#[derive(Clone, Debug)]
pub struct StreamParser {
    inner: Inner,
    template: Option<Template>,
    lessons: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner {
    OpenAiChat(openai_chat::Parser),
    OpenAiResponses(openai_responses::Parser),
    OpenAiCompletions(openai_completions::Parser),
    Anthropic(anthropic::Parser),
    Typed(typed::Parser),
}

impl StreamParser {
    /// Says what `event` says: one or several events. Within one frame the order is start, content,
    /// usage, stop, then end or error. A comment is a ping; a stray blank line says nothing.
    pub fn parse<'a>(&mut self, event: &'a sse::Event<'_>, sink: &mut dyn FnMut(Event<'a>)) {
        if !event.has_data {
            if event.is_comment() {
                sink(if event.name.is_some() { Event::Other } else { Event::Ping });
            }
            return;
        }
        if let Some(text) = self.template.as_ref().and_then(|template| template.text(event)) {
            self.lessons = LESSONS;
            return sink(Event::Text(text.into()));
        }
        // Some servers keep a stream alive by empty data.
        if event.data.iter().all(u8::is_ascii_whitespace) {
            return sink(Event::Ping);
        }
        let before = (self.lessons > 0).then(|| self.inner.clone());
        let (mut said, mut only) = (0_u32, None);
        let read = self.inner.parse(event, &mut |event: Event<'a>| {
            said += 1;
            only = None;
            if let (1, Event::Text(Cow::Borrowed(text))) = (said, &event) {
                only = Some(*text);
            }
            sink(event);
        });
        if read.is_err() {
            return sink(Event::Malformed);
        }
        if said == 0 {
            return sink(Event::Other);
        }
        if let (Some(text), Some(before)) = (only, before)
            && before == self.inner
        {
            self.lessons -= 1;
            self.template = Template::learn(event, text);
        }
    }
}

#[cfg(test)]
impl StreamParser {
    /// A parser that parses every frame: the oracle for [`Template`].
    pub(crate) fn without_recognition(mut self) -> Self {
        self.lessons = 0;
        self
    }

    /// The text of `event`, if it needs no parse.
    pub(crate) fn recognises<'a>(&self, event: &'a sse::Event<'_>) -> Option<&'a str> {
        self.template.as_ref()?.text(event)
    }
}

impl Inner {
    fn parse<'a>(
        &mut self,
        event: &'a sse::Event<'_>,
        tell: &mut dyn FnMut(Event<'a>),
    ) -> Result<(), NotJson> {
        match self {
            Self::OpenAiChat(parser) => parser.parse(event, tell),
            Self::OpenAiResponses(parser) => parser.parse(event, tell),
            Self::OpenAiCompletions(parser) => parser.parse(event, tell),
            Self::Anthropic(parser) => parser.parse(event, tell),
            Self::Typed(parser) => parser.parse(event, tell),
        }
    }
}

/// A frame that is not JSON.
#[derive(Debug)]
pub(crate) struct NotJson;
