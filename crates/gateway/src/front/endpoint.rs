//! Which path is what. The one table of everything that is served.

use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use http::Method;

/// What a path asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A model's work: the body names the model, the model decides the upstream.
    Model {
        /// How the caller talks.
        dialect: Dialect,
        /// Name of the operation in metrics (GenAI conventions).
        operation: &'static str,
    },
    /// Our own typed events, as we ask for them or as `useChat` does.
    Typed,
    /// The models that can be asked.
    Models,
    /// The timeline of one request.
    Timeline(String),
    /// Anything else under `/v1/`: passed to the upstream that owns it.
    Other,
    /// Does the process live?
    Health,
    /// May traffic come?
    Ready,
    /// Prometheus.
    Metrics,
}

/// Why nothing is served there.
#[derive(Debug)]
pub(crate) struct Nothing {
    /// What is wrong.
    pub(crate) error: ApiError,
    /// The methods that the path takes; none where there is no such path.
    pub(crate) allowed: &'static [Method],
}

impl From<ApiError> for Nothing {
    fn from(error: ApiError) -> Self {
        Self { error, allowed: &[] }
    }
}

impl Endpoint {
    /// The endpoint at `path`, or the refusal.
    pub(crate) fn of(method: &Method, path: &str) -> Result<Self, Nothing> {
        if matches!(*method, Method::TRACE | Method::CONNECT) {
            let error = ApiError::new(ErrorKind::MethodNotAllowed, format!("{method} is not served"));
            return Err(Nothing {
                error: error.code("method_not_allowed"),
                allowed: &[Method::GET, Method::POST],
            });
        }
        if path.contains("//") || path.len() > 1 && path.ends_with('/') {
            let message = format!("{path} has an empty segment; name the path itself");
            return Err(ApiError::new(ErrorKind::InvalidRequest, message).code("invalid_path").into());
        }
        if has_dot_segment(path) {
            let message = format!("{path} has a segment `.` or `..`; name the path itself");
            return Err(ApiError::new(ErrorKind::InvalidRequest, message).code("invalid_path").into());
        }
        let (endpoint, allowed): (Self, &'static [Method]) = match path {
            "/v1/chat/completions" => (model(Dialect::OpenAiChat, "chat"), &[Method::POST]),
            "/v1/messages" => (model(Dialect::Anthropic, "chat"), &[Method::POST]),
            "/v1/messages/count_tokens" => (model(Dialect::Anthropic, "count_tokens"), &[Method::POST]),
            "/v1/responses" => (model(Dialect::OpenAiResponses, "chat"), &[Method::POST]),
            "/v1/completions" => (model(Dialect::OpenAiCompletions, "text_completion"), &[Method::POST]),
            "/v1/embeddings" => (model(Dialect::OpenAiOther, "embeddings"), &[Method::POST]),
            "/v1/chat" | "/api/chat" => (Self::Typed, &[Method::POST]),
            "/v1/models" => (Self::Models, &[Method::GET, Method::HEAD]),
            "/healthz" => (Self::Health, &[Method::GET, Method::HEAD]),
            "/readyz" => (Self::Ready, &[Method::GET, Method::HEAD]),
            "/metrics" => (Self::Metrics, &[Method::GET, Method::HEAD]),
            _ if path.starts_with("/v1/requests/") => {
                (Self::Timeline(path["/v1/requests/".len()..].to_owned()), &[Method::GET])
            }
            _ if path.starts_with("/v1/") => return Ok(Self::Other),
            _ => {
                let known =
                    "POST /v1/chat/completions, /v1/messages, /v1/responses, /v1/chat; GET /v1/models";
                let message = format!("nothing is served at {path}. Try {known}.");
                return Err(ApiError::new(ErrorKind::NotFound, message).code("unknown_path").into());
            }
        };
        if allowed.contains(method) {
            return Ok(endpoint);
        }
        let message = format!("{path} takes {}, not {method}", allowed[0]);
        let error = ApiError::new(ErrorKind::MethodNotAllowed, message).code("method_not_allowed");
        Err(Nothing { error, allowed })
    }
}

/// Whether a server that resolves `.` and `..` could read `path` as another one. Ours decides by the
/// path as it stands, an upstream may not, and it would be reached with our key.
fn has_dot_segment(path: &str) -> bool {
    if !path.contains(['.', '%']) {
        return false;
    }
    path.split(['/', '\\']).any(|segment| {
        let plain = segment.replace("%2e", ".").replace("%2E", ".");
        plain == "." || plain == ".."
    })
}

const fn model(dialect: Dialect, operation: &'static str) -> Endpoint {
    Endpoint::Model { dialect, operation }
}

/// How errors at `path` are worded. `anthropic` tells whether the caller sent that API's own header.
pub(crate) fn dialect_of(path: &str, anthropic: bool) -> Dialect {
    match path {
        "/v1/chat/completions" => Dialect::OpenAiChat,
        "/v1/responses" => Dialect::OpenAiResponses,
        "/v1/completions" => Dialect::OpenAiCompletions,
        "/v1/chat" => Dialect::Typed,
        "/api/chat" => Dialect::Ui,
        _ if anthropic || path.starts_with("/v1/messages") => Dialect::Anthropic,
        _ => Dialect::OpenAiOther,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_their_endpoints() {
        let of =
            |method: Method, path: &str| Endpoint::of(&method, path).map_err(|nothing| nothing.error.kind);
        assert_eq!(of(Method::POST, "/v1/messages"), Ok(model(Dialect::Anthropic, "chat")));
        assert_eq!(of(Method::GET, "/v1/messages"), Err(ErrorKind::MethodNotAllowed));
        assert_eq!(of(Method::DELETE, "/v1/files/f"), Ok(Endpoint::Other));
        assert_eq!(of(Method::GET, "/v1/requests/req_1"), Ok(Endpoint::Timeline("req_1".to_owned())));
        assert_eq!(of(Method::GET, "/favicon.ico"), Err(ErrorKind::NotFound));
    }

    #[test]
    fn what_only_looks_like_a_path_is_refused() {
        let of = |method, path: &str| Endpoint::of(&method, path).map_err(|nothing| nothing.error.kind);
        assert_eq!(of(Method::TRACE, "/v1/files"), Err(ErrorKind::MethodNotAllowed));
        assert_eq!(of(Method::POST, "/v1//chat/completions"), Err(ErrorKind::InvalidRequest));
        assert_eq!(of(Method::POST, "/v1/chat/completions/"), Err(ErrorKind::InvalidRequest));
    }

    #[test]
    fn dot_segments_are_refused_however_they_are_spelled() {
        for path in ["/v1/../x", "/v1/./x", "/v1/%2e%2E/x", "/v1/.%2e", "/v1/x\\..\\y"] {
            let refused = Endpoint::of(&Method::GET, path).map_err(|nothing| nothing.error.kind);
            assert_eq!(refused, Err(ErrorKind::InvalidRequest), "{path}");
        }
        for path in ["/v1/files/a..b", "/v1/models/.hidden", "/v1/x/..."] {
            assert!(Endpoint::of(&Method::GET, path).is_ok(), "{path}");
        }
    }
}
