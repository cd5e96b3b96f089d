//! The one error model. Every refusal and failure that a caller can meet is an [`ApiError`];
//! [`crate::Dialect::error_body`] and [`crate::Dialect::error_event`] say it in the caller's words.

use serde_json::Value;

/// What kind of failure it is: decides the status and the dialect's type string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is malformed or asks for something impossible (400).
    InvalidRequest,
    /// Our key is missing or wrong (401).
    Authentication,
    /// The key may not do this (403).
    Permission,
    /// No such model, endpoint or resource (404).
    NotFound,
    /// The method is not served here (405).
    MethodNotAllowed,
    /// The body or a header is over its bound (413).
    TooLarge,
    /// The same key with another body (422) or while in progress (409).
    Conflict,
    /// Too many requests, ours or the provider's (429).
    RateLimit,
    /// The gateway is full or draining (503).
    Unavailable,
    /// The provider is overloaded (529 in the Anthropic dialect, 503 in the others).
    Overloaded,
    /// The provider answered wrongly, refused our key, or broke off (502).
    Upstream,
    /// One of the clocks ran out (504).
    Timeout,
    /// The client cancelled (499); seen in logs and timelines only.
    Cancelled,
    /// A fault of ours (500).
    Internal,
}

/// A failure as the caller shall see it: what was wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// One or two sentences for a person. No secrets, no prompt text.
    pub message: String,
    /// Path of the offending field, `messages[3].content[0]`, where there is one.
    pub param: Option<String>,
    /// Stable machine-readable reason, `model_not_found`, `stall_timeout`, …
    pub code: Option<String>,
    /// When to try again, in whole seconds.
    pub retry_after_s: Option<u32>,
}

impl ApiError {
    /// An error of `kind` with a message and nothing else.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), param: None, code: None, retry_after_s: None }
    }

    /// Names the offending field.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Names the machine-readable reason.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after_s(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }
}

impl ErrorKind {
    /// The HTTP status, where the dialect has no other.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Authentication => 401,
            Self::Permission => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::TooLarge => 413,
            Self::Conflict => 409,
            Self::RateLimit => 429,
            Self::Unavailable | Self::Overloaded => 503,
            Self::Upstream => 502,
            Self::Timeout => 504,
            Self::Cancelled => 499,
            Self::Internal => 500,
        }
    }

    /// Its stable name: the `type` in our own dialect, and the code of an error that has no finer one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Authentication => "authentication",
            Self::Permission => "permission",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::TooLarge => "too_large",
            Self::Conflict => "conflict",
            Self::RateLimit => "rate_limit",
            Self::Unavailable => "unavailable",
            Self::Overloaded => "overloaded",
            Self::Upstream => "upstream",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Unavailable
            | Self::Overloaded
            | Self::Upstream
            | Self::Timeout
            | Self::Internal => true,
            Self::InvalidRequest
            | Self::Authentication
            | Self::Permission
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::TooLarge
            | Self::Conflict
            | Self::Cancelled => false,
        }
    }

    /// The kind that a provider's `type` or `code` names, if it is one that we know.
    fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "invalid_request_error"
            | "invalid_request"
            | "invalid_prompt"
            | "context_length_exceeded"
            | "string_above_max_length" => Self::InvalidRequest,
            "authentication_error" | "authentication" | "invalid_api_key" => Self::Authentication,
            "permission_error" | "permission" | "permission_denied" | "billing_error" => Self::Permission,
            "not_found_error" | "not_found" | "model_not_found" => Self::NotFound,
            "method_not_allowed" => Self::MethodNotAllowed,
            "request_too_large" | "too_large" => Self::TooLarge,
            "conflict_error" | "conflict" => Self::Conflict,
            "rate_limit_error"
            | "rate_limit"
            | "rate_limit_exceeded"
            | "insufficient_quota"
            | "requests"
            | "tokens"
            | "too_many_requests" => Self::RateLimit,
            "unavailable" | "service_unavailable" => Self::Unavailable,
            "overloaded_error"
            | "overloaded"
            | "server_is_overloaded"
            | "engine_overloaded"
            | "slow_down" => Self::Overloaded,
            "timeout_error" | "timeout" => Self::Timeout,
            "cancelled" => Self::Cancelled,
            "api_error" | "server_error" | "internal_server_error" | "InternalServerError" | "upstream" => {
                Self::Upstream
            }
            "internal" => Self::Internal,
            _ => return None,
        })
    }

    /// The kind that a provider's status says.
    const fn of_status(status: u16) -> Option<Self> {
        Some(match status {
            401 => Self::Authentication,
            402 | 403 => Self::Permission,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            408 | 504 | 524 => Self::Timeout,
            409 => Self::Conflict,
            413 => Self::TooLarge,
            429 => Self::RateLimit,
            499 => Self::Cancelled,
            503 | 529 => Self::Overloaded,
            400..=498 => Self::InvalidRequest,
            500..=599 => Self::Upstream,
            _ => return None,
        })
    }
}

impl ApiError {
    /// The machine-readable reason: its code, or the name of its kind.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.code.as_deref().unwrap_or_else(|| self.kind.name())
    }
}

/// Longest message that is taken over from a provider, in characters.
const MESSAGE_CHARS_MAX: usize = 1_000;
/// Longest part of an error body that is read. No provider's JSON comes near it; a proxy's page may.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest plain-text body that is quoted, in bytes.
const PLAIN_BYTES_MAX: usize = 300;

/// Reads an error as any provider or proxy may write it: OpenAI's and Anthropic's `error` object,
/// our own, a bare `message`, FastAPI's `detail`, an `error` string, plain text, HTML, nothing.
/// `status` is 0 for an error inside a stream.
pub(crate) fn parse(status: u16, body: &[u8]) -> ApiError {
    let json: Option<Value> =
        if body.len() <= BODY_BYTES_MAX { serde_json::from_slice(body).ok() } else { None };
    let Some(json) = json else {
        let mut error =
            ApiError::new(ErrorKind::of_status(status).unwrap_or(ErrorKind::Upstream), sentence(status));
        if let Some(text) = plain(body) {
            error.message = format!("{}: {text}", error.message.trim_end_matches('.'));
        }
        return error;
    };
    // Some wrap the object in a list (Gemini's OpenAI endpoint), some have none and are it.
    let outer = json.get(0).unwrap_or(&json);
    let inner = outer.get("error").filter(|inner| inner.is_object()).unwrap_or(outer);
    let word = |key: &str| match inner.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Some(bounded(text)),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let code = word("code");
    // Our `type` is a kind; OpenAI's and Anthropic's are words of their own. A frame's own type is `error`.
    let kind_word = word("type").filter(|word| word != "error");
    let named = [&code, &kind_word].into_iter().flatten().find_map(|word| ErrorKind::of_word(word));
    let by_status = ErrorKind::of_status(status);
    let kind = match named {
        // These two are what providers say of nearly everything; the status knows more.
        Some(ErrorKind::InvalidRequest | ErrorKind::Upstream) => by_status.or(named),
        Some(_) => named,
        None => by_status,
    };
    let message =
        [inner.get("message"), outer.get("error"), outer.get("detail"), outer.get("message"), Some(outer)]
            .into_iter()
            .flatten()
            .find_map(text)
            .unwrap_or_else(|| sentence(status));
    ApiError {
        kind: kind.unwrap_or(ErrorKind::Upstream),
        message,
        param: word("param"),
        code: code.or(kind_word),
        retry_after_s: inner
            .get("retry_after_ms")
            .and_then(Value::as_u64)
            .and_then(|ms| u32::try_from(ms.div_ceil(1_000)).ok()),
    }
}

/// A message: a non-empty string, or the first `msg` of FastAPI's list.
fn text(value: &Value) -> Option<String> {
    let text = value.as_str().or_else(|| value.get(0)?.get("msg")?.as_str())?.trim();
    (!text.is_empty()).then(|| bounded(text))
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn sentence(status: u16) -> String {
    if status == 0 || status == 200 {
        "The provider ended the answer with an error that says nothing more.".to_owned()
    } else {
        format!("The provider answered with status {status}.")
    }
}

/// A short line of plain text, such as a proxy's own error. Not a page.
fn plain(body: &[u8]) -> Option<&str> {
    if body.len() > PLAIN_BYTES_MAX {
        return None;
    }
    let text = str::from_utf8(body).ok()?.trim();
    let prose = !text.is_empty() && !text.starts_with(['<', '{', '[']) && !text.chars().any(char::is_control);
    prose.then_some(text)
}
