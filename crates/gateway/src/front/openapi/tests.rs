//! What is described is what is read and written, in both directions.
//!
//! Which fields a parser reads is found out by asking it: every word of its source is tried as the name of a
//! field. One that nobody reads is left over, and named so.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use firsttoken_wire::{ApiError, ErrorKind};

use super::*;
use crate::evidence::timeline::{Itl, LostAttempt, Span, Timeline};
use crate::front::headers;
use crate::front::inbound::Fields;

/// Every word that stands in the sources of the parsers, ours and those of the dialects.
fn words() -> BTreeSet<String> {
    fn gather(at: &Path, words: &mut BTreeSet<String>) {
        if at.is_dir() {
            std::fs::read_dir(at).unwrap().for_each(|entry| gather(&entry.unwrap().path(), words));
        } else {
            let text = std::fs::read_to_string(at).unwrap();
            let split = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            words.extend(split.filter(|word| !word.is_empty()).map(str::to_owned));
        }
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut words = BTreeSet::new();
    gather(&here.join("../wire/src"), &mut words);
    gather(&here.join("src/front/inbound.rs"), &mut words);
    words
}

/// The names of the properties of `schema`, what it refers to by `allOf` included.
fn properties(schemas: &Value, schema: &Value) -> BTreeSet<String> {
    let schema = resolved(schemas, schema);
    let own = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
    let parts = schema["allOf"].as_array().into_iter().flatten();
    own.chain(parts.flat_map(|part| properties(schemas, part))).collect()
}

fn resolved<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    name.map_or(schema, |name| &schemas[name])
}

fn dialect(route: &Route) -> Option<Dialect> {
    match route.endpoint {
        Endpoint::Model { dialect, .. } => Some(dialect),
        Endpoint::Typed => route.errors,
        _ => None,
    }
}

/// The least that this dialect takes.
fn least(dialect: Dialect) -> Value {
    match dialect {
        Dialect::OpenAiResponses => json!({ "model": "m", "input": "Hi" }),
        Dialect::OpenAiCompletions | Dialect::OpenAiOther => json!({ "model": "m" }),
        Dialect::Ui => {
            json!({ "messages": [{ "role": "user", "parts": [{ "type": "text", "text": "Hi" }] }] })
        }
        Dialect::OpenAiChat | Dialect::Anthropic | Dialect::Typed => {
            json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] })
        }
    }
}

/// Whether the field `name` is read on the way of a request of `dialect`.
fn is_read(route: &Route, dialect: Dialect, name: &str) -> bool {
    let with = |value: Value| {
        let mut body = least(dialect);
        body[name] = value;
        body.to_string().into_bytes()
    };
    let decides = route.endpoint != Endpoint::Typed && Fields::find(&with(json!(7)), dialect).is_err();
    let translated = matches!(route.endpoint, Endpoint::Model { operation: "chat", .. } | Endpoint::Typed);
    let parsed = dialect.parse_request(&with(json!({ "?": 1 }))).filter(|_| translated);
    decides
        || parsed.is_some_and(|parsed| parsed.is_err() || parsed.is_ok_and(|r| !r.rest.contains_key(name)))
}

#[test]
fn requests_are_described_as_they_are_read() {
    let document = describe();
    let schemas = &document["components"]["schemas"];
    let words = words();
    for route in ROUTES {
        let (Some(dialect), Some(asked)) = (dialect(route), route.asks) else { continue };
        let described = properties(schemas, &schemas[asked]);
        let known = words.union(&described);
        let read: BTreeSet<_> = known.filter(|word| is_read(route, dialect, word)).cloned().collect();
        assert_eq!(described, read, "{}", route.path);
    }
}

#[test]
fn messages_of_our_own_dialect_are_described_as_they_are_read() {
    let document = describe();
    let described =
        properties(&document["components"]["schemas"], &document["components"]["schemas"]["ChatMessage"]);
    let call = json!({ "id": "c", "function": { "name": "f" } });
    let messages = json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c", "content": "42" }]);
    let is_read = |name: &str| {
        (0..3).any(|at| {
            let mut messages = messages.clone();
            messages[at][name] = json!({ "?": 1 });
            let body = json!({ "messages": messages }).to_string();
            let parsed = Dialect::Typed.parse_request(body.as_bytes()).unwrap();
            parsed.is_err() || parsed.is_ok_and(|request| !request.dropped.iter().any(|lost| lost == name))
        })
    };
    let read: BTreeSet<_> = words().into_iter().filter(|word| is_read(word)).collect();
    assert_eq!(described, read);
}

/// The names in `value`, at every depth, as paths.
fn names(value: &Value, at: &str, out: &mut BTreeSet<String>) {
    for (name, inside) in value.as_object().into_iter().flatten() {
        out.insert(format!("{at}{name}"));
        names(inside, &format!("{at}{name}."), out);
    }
    value.as_array().into_iter().flatten().for_each(|item| names(item, at, out));
}

/// The names that `schema` describes, likewise.
fn described(schema: &Value, at: &str, out: &mut BTreeSet<String>) {
    for (name, inside) in schema["properties"].as_object().into_iter().flatten() {
        out.insert(format!("{at}{name}"));
        described(inside, &format!("{at}{name}."), out);
        described(&inside["items"], &format!("{at}{name}."), out);
    }
}

fn assert_describes(schema: &str, written: &Value) {
    let document = describe();
    let (mut said, mut found) = (BTreeSet::new(), BTreeSet::new());
    described(&document["components"]["schemas"][schema], "", &mut said);
    names(written, "", &mut found);
    assert_eq!(said, found, "{schema}");
}

#[test]
fn errors_and_timelines_are_described_as_they_are_written() {
    let error = ApiError::new(ErrorKind::RateLimit, "Slowly.").at("messages").code("slow").retry_after_s(1);
    for (schema, dialect) in [
        ("OpenAiError", Dialect::OpenAiOther),
        ("AnthropicError", Dialect::Anthropic),
        ("TypedError", Dialect::Typed),
    ] {
        let body = dialect.error_body(&error, Some("req_1"));
        assert_describes(schema, &serde_json::from_slice(&body).unwrap());
    }
    let document = describe();
    let kinds = &document["components"]["schemas"]["TypedError"]["properties"]["error"]["properties"]["type"];
    assert_eq!(kinds["enum"], json!(ErrorKind::ALL.map(ErrorKind::name)));
    let text: Arc<str> = "x".into();
    let timeline = Timeline {
        id: String::new(),
        tenant: text.clone(),
        key: text.clone(),
        path: String::new(),
        operation: "chat",
        model: None,
        upstream: None,
        route: text,
        stream: true,
        status: 200,
        outcome: "complete",
        accepted_unix_ms: 0,
        client_addr: None,
        phases: vec![Span { phase: "auth", start_ms: 0.0, duration_ms: 0.0 }],
        lost_attempts: vec![LostAttempt {
            upstream: "x".into(),
            start_ms: 0.0,
            duration_ms: 0.0,
            outcome: "late",
        }],
        connection_reused: false,
        headers_ms: None,
        ttfb_ms: None,
        ttft_ms: None,
        ttft_upstream_ms: None,
        first_text_ms: None,
        first_reasoning_ms: None,
        first_tool_ms: None,
        content_events: 0,
        itl_ms: Itl { p50: None, p95: None, p99: None, max: None },
        stalls: 0,
        tpot_ms: None,
        overhead_ms: None,
        total_ms: 0.0,
        input_tokens: None,
        cache_read_tokens: None,
        output_tokens: None,
        output_tokens_estimate: None,
        metered: false,
        bytes_out: 0,
    };
    assert_describes("Timeline", &serde_json::to_value(timeline).unwrap());
}

#[test]
fn every_header_of_ours_is_described() {
    let text = describe().to_string();
    for name in headers::OURS {
        assert!(text.contains(name.as_str()), "{name}");
    }
}

#[test]
fn every_reference_leads_somewhere_and_nothing_is_left_over() {
    let document = describe();
    let text = document.to_string();
    let mut referred = BTreeSet::new();
    for path in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(document.pointer(path).is_some(), "{path}");
        referred.insert(path.to_owned());
    }
    for kind in ["schemas", "responses", "parameters", "headers"] {
        for (name, _) in document["components"][kind].as_object().unwrap() {
            assert!(referred.contains(&format!("/components/{kind}/{name}")), "{kind} {name}");
        }
    }
    let summaries: BTreeSet<&str> = ROUTES.iter().map(|route| route.summary).collect();
    assert_eq!(summaries.len(), ROUTES.len());
}
