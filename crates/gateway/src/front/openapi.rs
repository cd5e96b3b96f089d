//! `/openapi.json`: everything that is served, described for programs (OpenAPI 3.1).
//!
//! Paths, methods and words for errors come from the table of [`super::endpoint`]. Bodies stand in
//! `openapi/schemas.json`, answers and headers in `openapi/frame.json`: our parsers take their fields one by
//! one, so there are no types to derive them from; tests hold them to what is read and written instead.
//!
//! Invariant: no field that a parser reads, and none that we write, is missing there; none is made up.

use std::sync::LazyLock;

use bytes::Bytes;
use firsttoken_wire::Dialect;
use http::Method;
use serde_json::{Map, Value, json};

use crate::front::endpoint::{Endpoint, ROUTES, Route};

/// What does not follow from the table.
const FRAME: &str = include_str!("openapi/frame.json");
/// The bodies of requests, answers and errors.
const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// The document, written once.
pub(crate) fn document() -> Bytes {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| describe().to_string().into());
    DOCUMENT.clone()
}

fn describe() -> Value {
    let part =
        |text| serde_json::from_str::<Value>(text).expect("a part of this program, and a test reads it");
    let mut document = part(FRAME);
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    document["components"]["schemas"] = part(SCHEMAS);
    document["paths"] = ROUTES.iter().map(|route| (route.path.to_owned(), path(route))).collect();
    document
}

/// All methods of one path.
fn path(route: &Route) -> Value {
    let methods = route.methods.iter();
    methods
        .map(|method| (method.as_str().to_ascii_lowercase(), operation(route, method)))
        .collect::<Map<_, _>>()
        .into()
}

fn operation(route: &Route, method: &Method) -> Value {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let id: Vec<&str> = std::iter::once(method.as_str()).chain(words).collect();
    let of_a_model = matches!(route.endpoint, Endpoint::Model { .. } | Endpoint::Typed | Endpoint::Other);
    let mut operation = json!({
        "operationId": id.join("_").to_ascii_lowercase(),
        "summary": route.summary,
        "tags": [if of_a_model { "models" } else { "gateway" }],
        "parameters": parameters(route),
        "responses": responses(route, method),
        "security": security(route.endpoint),
    });
    if let Some(asked) = route.asks {
        let schema = json!({ "$ref": format!("#/components/schemas/{asked}") });
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    } else if route.endpoint == Endpoint::Other && ![Method::GET, Method::HEAD].contains(method) {
        operation["requestBody"] = json!({ "content": { "*/*": { "schema": {} } } });
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let in_path = route.path.split_once('{').map(|(_, name)| name.trim_end_matches('}'));
    let of_a_request: &[&str] = match route.endpoint {
        Endpoint::Model { .. } | Endpoint::Typed => &["Deadline", "Hedge", "Priority", "CallersId"],
        Endpoint::Other => &["Deadline", "CallersId", "Upstream"],
        Endpoint::Models | Endpoint::Timeline => &["Deadline"],
        Endpoint::Health
        | Endpoint::Ready
        | Endpoint::Metrics
        | Endpoint::OpenApi
        | Endpoint::Page
        | Endpoint::Sample => &[],
    };
    let wording: &[&str] = if route.errors.is_none() { &["AnthropicVersion"] } else { &[] };
    let names = in_path.iter().chain(of_a_request).chain(wording);
    names.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect()
}

/// Where a key of the gateway's may stand; any place will do.
fn security(endpoint: Endpoint) -> Value {
    match endpoint {
        Endpoint::Health | Endpoint::Ready | Endpoint::OpenApi | Endpoint::Page | Endpoint::Sample => {
            json!([])
        }
        // From this machine it needs none.
        Endpoint::Metrics => json!([{ "bearer": [] }, { "apiKey": [] }, { "ourKey": [] }, {}]),
        _ => json!([{ "bearer": [] }, { "apiKey": [] }, { "ourKey": [] }]),
    }
}

fn responses(route: &Route, method: &Method) -> Value {
    let response = |name: &str| json!({ "$ref": format!("#/components/responses/{name}") });
    let errors = response(match route.errors {
        None => "CallersError",
        Some(Dialect::Anthropic) => "AnthropicError",
        Some(Dialect::Typed) => "TypedError",
        Some(Dialect::Ui) => "TextError",
        Some(_) => "OpenAiError",
    });
    if method == Method::HEAD {
        return json!({ "default": { "description": "The head of what GET answers, and no body." } });
    }
    if route.endpoint == Endpoint::Other {
        return json!({ "default": response(route.answers) });
    }
    let mut all = json!({ "200": response(route.answers), "4XX": errors, "5XX": errors });
    if route.endpoint == Endpoint::Ready {
        all["503"] = response("Draining");
    }
    all
}

#[cfg(test)]
mod tests;
