//! A refusal in the words that each provider has for it.
//!
//! Invariant: the shape of the body is the one the endpoint's own provider documents, whatever the
//! status, so that an SDK raises its typed error for it.

use std::fmt;

use serde_json::{Value, json};

/// An answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// The field at fault, where there is one.
    pub(crate) param: Option<String>,
    pub(crate) retry_after_s: Option<u32>,
}

impl Refusal {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, retry_after_s: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    pub(crate) fn at(mut self, param: &str) -> Self {
        self.param = Some(param.to_owned());
        self
    }

    pub(crate) fn retry_after(mut self, seconds: Option<u32>) -> Self {
        self.retry_after_s = seconds;
        self
    }

    /// The body of the answer.
    pub(crate) fn body(&self, anthropic: bool, request_id: &str) -> Value {
        if anthropic {
            let error = json!({"type": self.anthropic_type(), "message": self.message});
            return json!({"type": "error", "error": error, "request_id": request_id});
        }
        let (kind, code) = self.openai_type();
        json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": code}})
    }

    const fn anthropic_type(&self) -> &'static str {
        match self.status {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        }
    }

    const fn openai_type(&self) -> (&'static str, Option<&'static str>) {
        match self.status {
            401 => ("invalid_request_error", Some("invalid_api_key")),
            403 => ("invalid_request_error", Some("insufficient_permissions")),
            404 => ("invalid_request_error", Some("model_not_found")),
            429 => ("requests", Some("rate_limit_exceeded")),
            400..=499 => ("invalid_request_error", None),
            529 => ("server_error", Some("overloaded")),
            _ => ("server_error", None),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
