//! The one error model. Every refusal and failure that a caller can meet is an [`ApiError`];
//! [`crate::Dialect::error_body`] and [`crate::Dialect::error_event`] say it in the caller's words.

mod parse;

pub(crate) use parse::{parse, parse_own};

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
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::InvalidRequest,
        Self::Authentication,
        Self::Permission,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::TooLarge,
        Self::Conflict,
        Self::RateLimit,
        Self::Unavailable,
        Self::Overloaded,
        Self::Upstream,
        Self::Timeout,
        Self::Cancelled,
        Self::Internal,
    ];

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
}

impl ApiError {
    /// The machine-readable reason: its code, or the name of its kind.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.code.as_deref().unwrap_or_else(|| self.kind.name())
    }
}
