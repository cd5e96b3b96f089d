//! Reads the errors that others write. There is no telling who answers: a provider, a proxy in front
//! of it, a load balancer with a page of HTML. So one tolerant reader takes anything, and what it takes
//! over is bounded.

use serde_json::Value;

use super::{ApiError, ErrorKind};

/// Longest message that is taken over from a provider, in characters.
const MESSAGE_CHARS_MAX: usize = 1_000;
/// Longest part of an error body that is read. No provider's JSON comes near it; a proxy's page may.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest plain-text body that is quoted, in bytes.
const PLAIN_BYTES_MAX: usize = 300;

/// Reads an error of this gateway, whose `type` names the kind.
pub(crate) fn parse_own(status: u16, body: &[u8]) -> ApiError {
    let (mut error, word) = read(status, body);
    error.kind = word.and_then(|word| ErrorKind::of_name(&word)).unwrap_or(error.kind);
    error
}

/// Reads a provider's error. `status` is 0 for an error inside a stream.
pub(crate) fn parse(status: u16, body: &[u8]) -> ApiError {
    read(status, body).0
}

/// Reads an error as any provider or proxy may write it (OpenAI's and Anthropic's `error` object,
/// our own, a bare `message`, FastAPI's `detail`, an `error` string, plain text, HTML, nothing), and
/// its `type`.
fn read(status: u16, body: &[u8]) -> (ApiError, Option<String>) {
    let json: Option<Value> =
        if body.len() <= BODY_BYTES_MAX { serde_json::from_slice(body).ok() } else { None };
    let Some(json) = json else {
        let mut error =
            ApiError::new(ErrorKind::of_status(status).unwrap_or(ErrorKind::Upstream), sentence(status));
        if let Some(text) = plain(body) {
            error.message = format!("{}: {text}", error.message.trim_end_matches('.'));
        }
        return (error, None);
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
    let error = ApiError {
        kind: kind.unwrap_or(ErrorKind::Upstream),
        message,
        param: word("param"),
        code: code.or_else(|| kind_word.clone()),
        retry_after_s: inner
            .get("retry_after_ms")
            .and_then(Value::as_u64)
            .and_then(|ms| u32::try_from(ms.div_ceil(1_000)).ok()),
    };
    (error, kind_word)
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

impl ErrorKind {
    /// The kind of that [`Self::name`].
    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
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
            "unavailable"
            | "service_unavailable"
            | "overloaded_error"
            | "overloaded"
            | "server_is_overloaded"
            | "engine_overloaded"
            | "slow_down" => Self::Overloaded,
            "timeout_error" | "timeout" => Self::Timeout,
            "api_error" | "server_error" | "internal_server_error" | "InternalServerError" | "upstream" => {
                Self::Upstream
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    fn check(status: u16, body: &str, kind: ErrorKind, message: &str) {
        let error = parse(status, body.as_bytes());
        assert_eq!((error.kind, error.message.as_str()), (kind, message), "{status} {body}");
    }

    #[test]
    fn errors_of_providers_and_proxies() {
        use ErrorKind as K;
        check(
            429,
            r#"{"error":{"message":"slow","type":"tokens","code":"rate_limit_exceeded"}}"#,
            K::RateLimit,
            "slow",
        );
        check(
            404,
            r#"{"error":{"message":"no","type":"invalid_request_error","code":null}}"#,
            K::NotFound,
            "no",
        );
        check(
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            K::Overloaded,
            "Overloaded",
        );
        check(500, r#"{"type":"error","error":{"type":"api_error","message":"Oops"}}"#, K::Upstream, "Oops");
        check(
            400,
            r#"[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]"#,
            K::InvalidRequest,
            "bad",
        );
        check(
            422,
            r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#,
            K::InvalidRequest,
            "field required",
        );
        check(404, r#"{"error":"model 'x' not found"}"#, K::NotFound, "model 'x' not found");
        check(401, r#"{"message":"no key"}"#, K::Authentication, "no key");
        check(502, "<html>nginx</html>", K::Upstream, "The provider answered with status 502.");
        check(
            503,
            "no healthy upstream",
            K::Overloaded,
            "The provider answered with status 503: no healthy upstream",
        );
        check(504, "", K::Timeout, "The provider answered with status 504.");
        check(0, "null", K::Upstream, "The provider ended the answer with an error that says nothing more.");
        check(500, r#"{"error":{"type":"internal","message":"x"}}"#, K::Upstream, "x");
    }

    #[test]
    fn a_message_is_bounded() {
        let long = format!(r#"{{"error":{{"message":"{}"}}}}"#, "ü".repeat(5_000));
        assert_eq!(parse(500, long.as_bytes()).message.chars().count(), MESSAGE_CHARS_MAX + 1);
        assert_eq!(parse(500, &[b'['; 100_000]).message, "The provider answered with status 500.");
        assert_eq!(parse(500, &[b'['; 1_000]).message, "The provider answered with status 500.");
    }

    #[test]
    fn our_own_errors_come_back_whole() {
        for kind in ErrorKind::ALL {
            let error = ApiError::new(kind, "why").at("messages[0]").code("some_code").retry_after_s(3);
            let body = Dialect::Typed.error_body(&error, Some("req_1"));
            assert_eq!(Dialect::Typed.parse_error_body(kind.status(), &body), error);
        }
    }

    #[test]
    fn every_dialect_keeps_kind_and_message() {
        for dialect in [Dialect::OpenAiChat, Dialect::Anthropic] {
            for kind in [
                ErrorKind::InvalidRequest,
                ErrorKind::Authentication,
                ErrorKind::NotFound,
                ErrorKind::RateLimit,
                ErrorKind::Overloaded,
                ErrorKind::Upstream,
                ErrorKind::Timeout,
            ] {
                let error = ApiError::new(kind, "why");
                let read = dialect.parse_error_body(dialect.status(kind), &dialect.error_body(&error, None));
                assert_eq!((read.kind, read.message.as_str()), (kind, "why"), "{dialect:?}");
            }
        }
    }
}
