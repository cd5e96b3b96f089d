//! Which dialect is which. The one place that dispatches on it; everything else holds a value.

use crate::{ApiError, ErrorKind, chat, sse};
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
    /// firsttoken's own typed events, `/v1/chat`.
    Typed,
}
