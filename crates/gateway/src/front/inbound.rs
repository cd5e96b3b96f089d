//! The caller's request: its body, read within bounds, and the few fields that decide its way.
//!
//! The body is not parsed into a model and written again: the fields are found where they stand, and
//! what has to change (a model's alias, a wish for usage) is spliced in there. Everything else goes
//! upstream byte for byte, so that the provider's prompt cache sees what the caller wrote.
//!
//! Invariant: a body that is not JSON, or that has a field of the wrong type where we look, is refused
//! here with the field's name; nothing of it goes upstream.

use std::borrow::Cow;
use std::io::Read as _;
use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::config::Limits;
use crate::stream::inflate::Coding;

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::InvalidRequest, message)
}

/// Reads the body, decodes gzip, keeps the bounds.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: Incoming,
    limits: &Limits,
) -> Result<Bytes, ApiError> {
    let max = limits.body_bytes_max;
    if body.size_hint().lower() > max as u64 {
        return Err(too_large(max));
    }
    let bytes = collect(body, max, limits.request_timeout).await?;
    match Coding::of(headers) {
        Coding::Plain => Ok(bytes),
        Coding::Gzip => gunzip(&bytes, max),
        Coding::Unknown(other) => Err(invalid(format!(
            "content-encoding {other} is not understood here; send gzip, or no encoding"
        ))
        .at("content-encoding")
        .code("unsupported_encoding")),
    }
}

async fn collect(mut body: Incoming, max: usize, pause_max: Duration) -> Result<Bytes, ApiError> {
    let mut first = Bytes::new();
    let mut rest: Option<BytesMut> = None;
    loop {
        let frame = match tokio::time::timeout(pause_max, body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(e))) => {
                return Err(broke_off(&e));
            }
            Err(_) => {
                let message = format!("no byte of the request body came for {} s", pause_max.as_secs());
                return Err(invalid(message).code("body_timeout"));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.as_ref().map_or(0, BytesMut::len) + data.len() > max {
            return Err(too_large(max));
        }
        match &mut rest {
            None if first.is_empty() => first = data,
            None => {
                let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0).min(max);
                let mut joined = BytesMut::with_capacity(first.len() + data.len() + expected);
                joined.extend_from_slice(&std::mem::take(&mut first));
                joined.extend_from_slice(&data);
                rest = Some(joined);
            }
            Some(joined) => joined.extend_from_slice(&data),
        }
    }
    Ok(rest.map_or(first, BytesMut::freeze))
}

/// A connection that ends within the body is a client that left; anything else is a mistake of its.
fn broke_off(error: &hyper::Error) -> ApiError {
    let io = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let left = io.is_some_and(|e| e.kind() == std::io::ErrorKind::UnexpectedEof);
    let kind = if left { ErrorKind::Cancelled } else { ErrorKind::InvalidRequest };
    ApiError::new(kind, format!("the request body broke off: {error}")).code("incomplete_body")
}

fn too_large(max: usize) -> ApiError {
    let message = format!("the request body is larger than {max} bytes; the bound is limits.body_bytes_max");
    ApiError::new(ErrorKind::TooLarge, message).code("body_too_large")
}

fn gunzip(bytes: &[u8], max: usize) -> Result<Bytes, ApiError> {
    let mut out = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    let read = flate2::read::MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut out);
    if let Err(e) = read {
        return Err(invalid(format!("the request body is not valid gzip: {e}")).code("bad_gzip"));
    }
    if out.len() > max { Err(too_large(max)) } else { Ok(out.into()) }
}

/// The body as text, or the place from which on it is none.
pub(crate) fn text(body: &[u8]) -> Result<&str, ApiError> {
    std::str::from_utf8(body).map_err(|e| {
        invalid(format!("the request body is not UTF-8 from byte {} on", e.valid_up_to()))
            .code("invalid_utf8")
    })
}

/// The fields that decide a request's way, found in its body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    /// The model's name.
    pub(crate) model: String,
    /// Where it stands, quotes included.
    model_at: Range<usize>,
    /// Whether the answer shall be streamed.
    pub(crate) stream: bool,
    /// Where `stream_options` stands, and whether it asks for usage.
    stream_options: Option<(Range<usize>, bool)>,
    /// Whether it asks for one answer, of an endpoint that keeps none.
    single: bool,
    /// Where `tools` stands.
    tools: Option<Range<usize>>,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    model: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    stream: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    stream_options: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    messages: Option<&'a RawValue>,
    #[serde(borrow, default)]
    n: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    mcp_servers: Option<&'a RawValue>,
}

/// A tool, as far as it says who runs it.
#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

/// A field that is there, be it `null`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Fields {
    /// Finds the fields of a `dialect` body.
    pub(crate) fn find(body: &[u8], dialect: Dialect) -> Result<Self, ApiError> {
        if body.is_empty() {
            return Err(invalid("the request has no body; send JSON with content-type application/json"));
        }
        let text = text(body)?;
        // An array would pass for the struct's fields in their order.
        let object = text.trim_start().starts_with('{');
        let raw: Raw<'_> = serde_json::from_str(text).map_err(|e| not_json(&e))?;
        if !object {
            return Err(invalid("the request body must be a JSON object").code("invalid_type"));
        }
        let model_raw =
            raw.model.ok_or_else(|| invalid("model is missing").at("model").code("missing_field"))?;
        let model: String = typed(model_raw, "model", "a string")?;
        let stream = raw.stream.map_or(Ok(None), |r| typed(r, "stream", "true or false"))?.unwrap_or(false);
        if matches!(dialect, Dialect::OpenAiChat | Dialect::Anthropic) {
            let messages = raw
                .messages
                .ok_or_else(|| invalid("messages is missing").at("messages").code("missing_field"))?;
            let messages = messages.get().trim_start();
            if !messages.starts_with('[') {
                return Err(invalid("messages must be an array").at("messages").code("invalid_type"));
            }
            if messages[1..].trim_start().starts_with(']') {
                return Err(invalid("messages must not be empty").at("messages").code("empty_array"));
            }
        }
        let stream_options = match raw.stream_options {
            None => None,
            Some(r) => {
                let options: Option<serde_json::Map<String, serde_json::Value>> =
                    typed(r, "stream_options", "an object")?;
                let asks = options.and_then(|o| o.get("include_usage")?.as_bool()).unwrap_or(false);
                Some((range(text, r), asks))
            }
        };
        let single = matches!(dialect, Dialect::OpenAiChat | Dialect::Anthropic)
            && raw.n.is_none_or(|n| matches!(n.get(), "1" | "null"))
            && raw.mcp_servers.is_none();
        let tools = raw.tools.map(|tools| range(text, tools));
        Ok(Self { model, model_at: range(text, model_raw), stream, stream_options, single, tools })
    }

    /// Whether to ask twice does nothing that to ask once does not: one answer, and no tool that the provider
    /// runs itself.
    pub(crate) fn is_repeatable(&self, body: &[u8]) -> bool {
        // Tools that callers run, by the beginning of their type; all others may be run by the provider.
        const CALLERS: [&str; 6] = ["function", "custom", "bash_", "text_editor_", "computer_", "memory_"];
        let is_callers = |tool: &Tool<'_>| {
            tool.kind.as_ref().is_none_or(|kind| CALLERS.iter().any(|callers| kind.starts_with(callers)))
        };
        let all_callers = |tools: &Range<usize>| {
            let tools = serde_json::from_slice::<Option<Vec<Tool<'_>>>>(&body[tools.clone()]);
            tools.is_ok_and(|tools| tools.iter().flatten().all(is_callers))
        };
        self.single && self.tools.as_ref().is_none_or(all_callers)
    }

    /// Whether the caller asked for usage in the stream.
    pub(crate) fn asks_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|(_, asks)| *asks)
    }

    /// The body with the model renamed, and with a wish for usage, where these differ from what it says.
    pub(crate) fn splice(&self, body: &Bytes, rename: Option<&str>, add_usage: bool) -> Bytes {
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        if let Some(name) = rename.filter(|name| *name != self.model) {
            edits.push((self.model_at.clone(), serde_json::Value::from(name).to_string()));
        }
        if add_usage && !self.asks_usage() {
            match &self.stream_options {
                // After the opening brace; there is a field behind it, the model's at least.
                None => {
                    let at = body.iter().position(|b| *b == b'{').map_or(0, |i| i + 1);
                    edits.push((at..at, "\"stream_options\":{\"include_usage\":true},".to_owned()));
                }
                Some((at, _)) => {
                    let mut options: serde_json::Map<String, serde_json::Value> =
                        serde_json::from_slice(&body[at.clone()]).unwrap_or_default();
                    options.insert("include_usage".to_owned(), true.into());
                    edits.push((at.clone(), serde_json::Value::from(options).to_string()));
                }
            }
        }
        if edits.is_empty() {
            return body.clone();
        }
        edits.sort_by_key(|(at, _)| at.start);
        let mut out = BytesMut::with_capacity(body.len() + edits.iter().map(|(_, s)| s.len()).sum::<usize>());
        let mut from = 0;
        for (at, text) in edits {
            out.extend_from_slice(&body[from..at.start]);
            out.extend_from_slice(text.as_bytes());
            from = at.end;
        }
        out.extend_from_slice(&body[from..]);
        out.freeze()
    }
}

fn range(text: &str, raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
    start..start + raw.get().len()
}

fn typed<'a, T: Deserialize<'a>>(raw: &'a RawValue, field: &str, expected: &str) -> Result<T, ApiError> {
    serde_json::from_str(raw.get())
        .map_err(|_| invalid(format!("{field} must be {expected}")).at(field).code("invalid_type"))
}

fn not_json(e: &serde_json::Error) -> ApiError {
    if e.is_data() {
        return invalid("the request body must be a JSON object").code("invalid_type");
    }
    invalid(format!("the request body is not valid JSON: {e}")).code("invalid_json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(body: &str) -> Result<Fields, String> {
        Fields::find(body.as_bytes(), Dialect::OpenAiChat)
            .map_err(|e| format!("{:?}: {}", e.param, e.message))
    }

    fn splice(body: &str, rename: Option<&str>, usage: bool) -> String {
        let fields = find(body).unwrap();
        String::from_utf8(fields.splice(&Bytes::copy_from_slice(body.as_bytes()), rename, usage).to_vec())
            .unwrap()
    }

    #[test]
    fn fields_are_found_wherever_they_stand() {
        let body = r#" {"messages":[{"role":"user","content":"\"model\":\"no\""}], "stream" : true, "model":"gp\u0074"}"#;
        let fields = find(body).unwrap();
        assert_eq!((fields.model.as_str(), fields.stream, fields.asks_usage()), ("gpt", true, false));
        assert_eq!(&body[fields.model_at], r#""gp\u0074""#);
    }

    #[test]
    fn only_what_differs_is_spliced() {
        let body = r#"{"x": 1.50,"model":"fast","messages":[1],"stream_options":{"a":1}}"#;
        assert_eq!(splice(body, None, false), body);
        assert_eq!(splice(body, Some("fast"), false), body);
        assert_eq!(
            splice(body, Some("gpt"), true),
            r#"{"x": 1.50,"model":"gpt","messages":[1],"stream_options":{"a":1,"include_usage":true}}"#
        );
        assert_eq!(
            splice(r#" { "model":"m","messages":[1]}"#, None, true),
            r#" {"stream_options":{"include_usage":true}, "model":"m","messages":[1]}"#
        );
        let null = r#"{"model":"m","messages":[1],"stream_options":null}"#;
        assert_eq!(splice(null, None, true), null.replace("null", r#"{"include_usage":true}"#));
        let asked = r#"{"model":"m","messages":[1],"stream_options":{"include_usage":true}}"#;
        assert_eq!(splice(asked, None, true), asked);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let all = [
            "",
            "[]",
            "{\"model\":",
            r#"{"messages":[1]}"#,
            r#"{"model":7,"messages":[1]}"#,
            r#"{"model":"m"}"#,
            r#"{"model":"m","messages":{}}"#,
            r#"{"model":"m","messages":[ ]}"#,
            r#"{"model":"m","messages":[1],"stream":"yes"}"#,
            r#"{"model":"m","messages":[1],"stream_options":[]}"#,
        ];
        let said: Vec<String> = all.into_iter().map(|body| find(body).unwrap_err()).collect();
        insta::assert_snapshot!(said.join("\n"), @r#"
        None: the request has no body; send JSON with content-type application/json
        None: the request body must be a JSON object
        None: the request body is not valid JSON: EOF while parsing a value at line 1 column 9
        Some("model"): model is missing
        Some("model"): model must be a string
        Some("messages"): messages is missing
        Some("messages"): messages must be an array
        Some("messages"): messages must not be empty
        Some("stream"): stream must be true or false
        Some("stream_options"): stream_options must be an object
        "#);
        let bad = Fields::find(b"{\"model\":\"\xff\"}", Dialect::OpenAiChat).unwrap_err();
        assert_eq!(bad.message, "the request body is not UTF-8 from byte 10 on");
    }
}
