//! Which path is what. The one table of everything that is served: where a request goes, how errors there
//! are worded, what a 404 names, and what [`super::openapi`] describes all follow from it.

use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use http::Method;

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The timeline of one request; see [`request_id`].
    Timeline,
    /// Anything else under `/v1/`: passed to the upstream that owns it.
    Other,
    /// Does the process live?
    Health,
    /// May traffic come?
    Ready,
    /// Prometheus.
    Metrics,
    /// The description of this table.
    OpenApi,
    /// A page for a browser.
    Page,
    /// A sample document, for a browser.
    Sample,
}

/// One row of the table.
pub(crate) struct Route {
    /// The path; where it ends in `{…}`, whatever begins as it does.
    pub(crate) path: &'static str,
    /// The methods that are answered there; of [`Endpoint::Other`] the usual ones, it takes any.
    pub(crate) methods: &'static [Method],
    /// What is there.
    pub(crate) endpoint: Endpoint,
    /// How errors are worded; none where that is the caller's choice, see [`dialect_of`].
    pub(crate) errors: Option<Dialect>,
    /// What it is for, in a line.
    pub(crate) summary: &'static str,
    /// The schema of what is asked, in the description.
    pub(crate) asks: Option<&'static str>,
    /// What is answered, in the description.
    pub(crate) answers: &'static str,
}

const POST: &[Method] = &[Method::POST];
const GET: &[Method] = &[Method::GET, Method::HEAD];
const ANY: &[Method] = &[Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Everything that is served; the first row that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "/v1/chat/completions",
        methods: POST,
        endpoint: Endpoint::Model { dialect: Dialect::OpenAiChat, operation: "chat" },
        errors: Some(Dialect::OpenAiChat),
        summary: "OpenAI Chat Completions",
        asks: Some("ChatCompletionsRequest"),
        answers: "ChatCompletions",
    },
    Route {
        path: "/v1/messages",
        methods: POST,
        endpoint: Endpoint::Model { dialect: Dialect::Anthropic, operation: "chat" },
        errors: Some(Dialect::Anthropic),
        summary: "Anthropic Messages",
        asks: Some("MessagesRequest"),
        answers: "Messages",
    },
    Route {
        path: "/v1/messages/count_tokens",
        methods: POST,
        endpoint: Endpoint::Model { dialect: Dialect::Anthropic, operation: "count_tokens" },
        errors: Some(Dialect::Anthropic),
        summary: "Anthropic's count of a request's tokens",
        asks: Some("CountTokensRequest"),
        answers: "CountTokens",
    },
    Route {
        path: "/v1/responses",
        methods: POST,
        endpoint: Endpoint::Model { dialect: Dialect::OpenAiResponses, operation: "chat" },
        errors: Some(Dialect::OpenAiResponses),
        summary: "OpenAI Responses",
        asks: Some("ResponsesRequest"),
        answers: "Responses",
    },
    Route {
        path: "/v1/completions",
        methods: POST,
        endpoint: Endpoint::Model { dialect: Dialect::OpenAiCompletions, operation: "text_completion" },
        errors: Some(Dialect::OpenAiCompletions),
        summary: "OpenAI's older completions",
        asks: Some("CompletionsRequest"),
        answers: "Completions",
    },
    Route {
        path: "/v1/embeddings",
        methods: POST,
        endpoint: Endpoint::Model { dialect: Dialect::OpenAiOther, operation: "embeddings" },
        errors: None,
        summary: "OpenAI embeddings",
        asks: Some("EmbeddingsRequest"),
        answers: "Embeddings",
    },
    Route {
        path: "/v1/chat",
        methods: POST,
        endpoint: Endpoint::Typed,
        errors: Some(Dialect::Typed),
        summary: "firsttoken's own typed events",
        asks: Some("TypedRequest"),
        answers: "TypedEvents",
    },
    Route {
        path: "/api/chat",
        methods: POST,
        endpoint: Endpoint::Typed,
        errors: Some(Dialect::Ui),
        summary: "The same events for an unmodified useChat of the AI SDK",
        asks: Some("UiRequest"),
        answers: "TypedEvents",
    },
    Route {
        path: "/v1/models",
        methods: GET,
        endpoint: Endpoint::Models,
        errors: None,
        summary: "The models that can be asked",
        asks: None,
        answers: "Models",
    },
    Route {
        path: "/v1/requests/{id}",
        methods: GET,
        endpoint: Endpoint::Timeline,
        errors: None,
        summary: "The timeline of a finished request of yours",
        asks: None,
        answers: "Timeline",
    },
    Route {
        path: "/v1/{path}",
        methods: ANY,
        endpoint: Endpoint::Other,
        errors: None,
        summary: "Anything else: passed to an upstream as it is",
        asks: None,
        answers: "Passed",
    },
    Route {
        path: "/healthz",
        methods: GET,
        endpoint: Endpoint::Health,
        errors: None,
        summary: "Whether the process lives",
        asks: None,
        answers: "Health",
    },
    Route {
        path: "/readyz",
        methods: GET,
        endpoint: Endpoint::Ready,
        errors: None,
        summary: "Whether traffic may come",
        asks: None,
        answers: "Ready",
    },
    Route {
        path: "/metrics",
        methods: GET,
        endpoint: Endpoint::Metrics,
        errors: None,
        summary: "Metrics, for Prometheus",
        asks: None,
        answers: "Metrics",
    },
    Route {
        path: "/openapi.json",
        methods: GET,
        endpoint: Endpoint::OpenApi,
        errors: None,
        summary: "This document",
        asks: None,
        answers: "OpenApi",
    },
    Route {
        path: "/",
        methods: GET,
        endpoint: Endpoint::Page,
        errors: None,
        summary: "A page to ask a question on",
        asks: None,
        answers: "Page",
    },
    Route {
        path: "/samples",
        methods: GET,
        endpoint: Endpoint::Sample,
        errors: None,
        summary: "The sample documents that the demo model answers from",
        asks: None,
        answers: "Page",
    },
    Route {
        path: "/samples/{page}",
        methods: GET,
        endpoint: Endpoint::Sample,
        errors: None,
        summary: "One of them",
        asks: None,
        answers: "Page",
    },
];

impl Route {
    /// Whether paths here may go on behind where the row's ends.
    fn goes_on(&self) -> bool {
        self.path.ends_with('}')
    }

    fn fits(&self, path: &str) -> bool {
        match self.path.split_once('{') {
            Some((prefix, _)) => path.starts_with(prefix),
            None => path == self.path,
        }
    }
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
        let Some(route) = ROUTES.iter().find(|route| route.fits(path)) else {
            return Err(unknown(path).into());
        };
        if route.endpoint == Self::Other || route.methods.contains(method) {
            return Ok(route.endpoint);
        }
        let message = format!("{path} takes {}, not {method}", route.methods[0]);
        let error = ApiError::new(ErrorKind::MethodNotAllowed, message).code("method_not_allowed");
        Err(Nothing { error, allowed: route.methods })
    }
}

/// Nothing is served at `path`. Says what was probably meant, or all that is served.
pub(crate) fn unknown(path: &str) -> ApiError {
    let below = format!("/v1{path}");
    let hint = if path.starts_with("/api/") {
        "This looks like Ollama's own API; what its OpenAI API has at /v1/ is served: \
         POST /v1/chat/completions for an answer, GET /v1/models for the models."
            .to_owned()
    } else if ROUTES.iter().any(|route| route.path == below) {
        format!("It is at {below}: a base URL for this client ends in /v1.")
    } else {
        format!("Try POST {}; GET {}.", served(&Method::POST), served(&Method::GET))
    };
    let message = format!("nothing is served at {path}. {hint}");
    ApiError::new(ErrorKind::NotFound, message).code("unknown_path")
}

/// The paths that take `method`, as a person reads them.
fn served(method: &Method) -> String {
    let all = ROUTES.iter().filter(|route| route.methods.contains(method) && !route.goes_on());
    all.map(|route| route.path).collect::<Vec<_>>().join(", ")
}

/// The id in the path of [`Endpoint::Timeline`].
pub(crate) fn request_id(path: &str) -> &str {
    path.strip_prefix("/v1/requests/").unwrap_or_default()
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

/// How errors at `path` are worded. `anthropic` tells whether the caller sent that API's own header.
pub(crate) fn dialect_of(path: &str, anthropic: bool) -> Dialect {
    match ROUTES.iter().find(|route| route.fits(path)).and_then(|route| route.errors) {
        Some(dialect) => dialect,
        None if anthropic || path.starts_with("/v1/messages") => Dialect::Anthropic,
        None => Dialect::OpenAiOther,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_their_endpoints() {
        let of =
            |method: Method, path: &str| Endpoint::of(&method, path).map_err(|nothing| nothing.error.kind);
        let messages = Endpoint::Model { dialect: Dialect::Anthropic, operation: "chat" };
        assert_eq!(of(Method::POST, "/v1/messages"), Ok(messages));
        assert_eq!(of(Method::GET, "/v1/messages"), Err(ErrorKind::MethodNotAllowed));
        assert_eq!(of(Method::DELETE, "/v1/files/f"), Ok(Endpoint::Other));
        assert_eq!(of(Method::GET, "/v1/requests/req_1"), Ok(Endpoint::Timeline));
        assert_eq!(request_id("/v1/requests/req_1"), "req_1");
        assert_eq!(of(Method::GET, "/favicon.ico"), Err(ErrorKind::NotFound));
    }

    #[test]
    fn an_unknown_path_leads_on() {
        let said = |path: &str| Endpoint::of(&Method::POST, path).unwrap_err().error.message;
        assert!(said("/api/generate").contains("Ollama"), "{}", said("/api/generate"));
        assert!(said("/chat/completions").contains("at /v1/chat/completions:"));
        let known = said("/favicon.ico");
        assert!(!known.contains("Ollama") && known.contains("GET /v1/models"), "{known}");
        for route in ROUTES.iter().filter(|route| !route.goes_on()) {
            assert!(known.contains(route.path), "{known}");
        }
    }

    #[test]
    fn every_row_is_reached() {
        for route in ROUTES {
            let path = route.path.replace(['{', '}'], "");
            for method in route.methods {
                let found = Endpoint::of(method, &path).map_err(|nothing| nothing.error);
                assert_eq!(found, Ok(route.endpoint), "{method} {path}");
            }
        }
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
