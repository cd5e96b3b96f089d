//! The one error model. Every refusal and failure that a caller can meet is an [`ApiError`];
//! [`crate::Dialect::error_body`] and [`crate::Dialect::error_event`] say it in the caller's words.

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
