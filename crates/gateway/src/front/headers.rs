//! Which headers cross the gateway, in both directions.
//!
//! Invariant: our keys never go upstream, hop-by-hop headers never cross, and who the caller is
//! (cookies, addresses) stays here.

use std::time::Duration;

use firsttoken_logic::tail::admission::Priority;
use firsttoken_wire::{ApiError, ErrorKind};
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::config::{Auth, Provider, UpstreamConfig};

/// Carries our key where `authorization` carries the caller's own provider key.
pub(crate) const OUR_KEY: HeaderName = HeaderName::from_static("x-firsttoken-key");
/// Our id of the request, in every response.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-firsttoken-request-id");
/// Names what the upstream could not be told, since it speaks another dialect.
const DROPPED: HeaderName = HeaderName::from_static("x-firsttoken-dropped");
/// Names the upstream where no model does.
pub(crate) const UPSTREAM: HeaderName = HeaderName::from_static("x-firsttoken-upstream");
/// Whose request it is, for the engine of this process: what it shares, it shares within a tenant.
const TENANT: HeaderName = HeaderName::from_static("x-firsttoken-tenant");
/// A caller's word on whether its request may be sent twice: `off`.
const HEDGE: HeaderName = HeaderName::from_static("x-firsttoken-hedge");
/// A caller's word on whether somebody looks on: `batch` steps back.
const PRIORITY: HeaderName = HeaderName::from_static("x-firsttoken-priority");
const DEADLINE: HeaderName = HeaderName::from_static("x-firsttoken-deadline-ms");
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const UI_MESSAGE_STREAM: HeaderName = HeaderName::from_static("x-vercel-ai-ui-message-stream");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Every header that we made up.
#[cfg(test)]
pub(crate) const OURS: [HeaderName; 7] = [OUR_KEY, REQUEST_ID, DROPPED, UPSTREAM, DEADLINE, HEDGE, PRIORITY];

/// Never cross, by RFC 9110 §7.6.1; `connection` may name more.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Stay here on the way up: about the caller, about the hop, or set anew below.
const NOT_UP: [&str; 13] = [
    "host",
    "content-length",
    "content-encoding",
    "accept-encoding",
    "expect",
    "cookie",
    "origin",
    "referer",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Where the caller's key for us stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPlace {
    None,
    OurHeader,
    Authorization,
    ApiKey,
}

/// How long the caller gives its request, from its acceptance: the one bound of time a caller can set
/// that cuts. (A latency *budget* only steers.)
pub(crate) fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let Some(value) = headers.get(DEADLINE) else { return Ok(None) };
    let ms = value.to_str().ok().and_then(|v| v.trim().parse().ok()).filter(|ms| *ms > 0);
    ms.map(|ms| Some(Duration::from_millis(ms))).ok_or_else(|| {
        let message = "x-firsttoken-deadline-ms must be a whole number of milliseconds above 0";
        ApiError::new(ErrorKind::InvalidRequest, message)
            .at("x-firsttoken-deadline-ms")
            .code("invalid_header")
    })
}

/// Whether the caller has nothing against two copies of its request.
pub(crate) fn may_hedge(headers: &HeaderMap) -> Result<bool, ApiError> {
    match headers.get(HEDGE).map(HeaderValue::as_bytes) {
        None | Some(b"on") => Ok(true),
        Some(b"off") => Ok(false),
        Some(_) => Err(ApiError::new(ErrorKind::InvalidRequest, "x-firsttoken-hedge must be on or off")
            .at("x-firsttoken-hedge")
            .code("invalid_header")),
    }
}

/// Whether somebody waits for the answer, as the caller says; not to be had back where the route says batch.
pub(crate) fn priority(headers: &HeaderMap) -> Result<Priority, ApiError> {
    match headers.get(PRIORITY).map(HeaderValue::as_bytes) {
        None | Some(b"interactive") => Ok(Priority::Interactive),
        Some(b"batch") => Ok(Priority::Batch),
        Some(_) => {
            let message = "x-firsttoken-priority must be interactive or batch";
            Err(ApiError::new(ErrorKind::InvalidRequest, message)
                .at("x-firsttoken-priority")
                .code("invalid_header"))
        }
    }
}

/// The key that the caller presents to us, and where it stands.
pub(crate) fn presented_key(headers: &HeaderMap) -> (Option<&str>, KeyPlace) {
    if let Some(key) = headers.get(OUR_KEY) {
        return (key.to_str().ok(), KeyPlace::OurHeader);
    }
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let value = value.to_str().unwrap_or_default();
        let bearer = value.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("bearer "));
        return (bearer.map(|_| value[7..].trim()), KeyPlace::Authorization);
    }
    match headers.get(X_API_KEY) {
        Some(key) => (key.to_str().ok(), KeyPlace::ApiKey),
        None => (None, KeyPlace::None),
    }
}

/// What the engine of this process is told besides: whose request it is, and when its answer is worth
/// nothing any more. No caller can say so itself.
pub(crate) fn inside(headers: &mut Vec<(HeaderName, HeaderValue)>, tenant: &str, deadline: Option<Duration>) {
    if let Ok(tenant) = HeaderValue::from_str(tenant) {
        headers.push((TENANT, tenant));
    }
    if let Some(deadline) = deadline {
        headers.push((DEADLINE, u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX).into()));
    }
}

/// The headers that go up. `key_place` tells which header held our key: that one never does, nor does
/// any other that holds the same key, as clients do that fill in every place they know.
pub(crate) fn upward(
    from: &HeaderMap,
    upstream: &UpstreamConfig,
    key_place: KeyPlace,
    has_keys: bool,
    request_id: &str,
) -> Vec<(HeaderName, HeaderValue)> {
    let named = connection_names(from);
    let caller_auth = matches!(upstream.auth, Auth::Caller);
    let ours = presented_key(from).0.filter(|_| has_keys).map(str::as_bytes);
    let is_ours =
        |value: &HeaderValue| value.as_bytes().split(|b| b" ,;=".contains(b)).any(|word| Some(word) == ours);
    let crosses = |name: &HeaderName, value: &HeaderValue| {
        let s = name.as_str();
        if HOP_BY_HOP.contains(&s)
            || NOT_UP.contains(&s)
            || s.starts_with("x-firsttoken-")
            || named.iter().any(|n| n.eq_ignore_ascii_case(s))
            || is_ours(value)
        {
            return false;
        }
        match key_of(name) {
            None => true,
            Some(place) => caller_auth && !(has_keys && place == key_place),
        }
    };
    let mut up: Vec<_> = from
        .iter()
        .filter(|(name, value)| crosses(name, value))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    if let Auth::Key(key) = &upstream.auth {
        up.extend(credential(upstream.provider, key));
    }
    if upstream.provider == Provider::Anthropic && !from.contains_key(&ANTHROPIC_VERSION) {
        up.push((ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01")));
    }
    up.push((header::ACCEPT_ENCODING, HeaderValue::from_static("identity")));
    if !from.contains_key(&X_REQUEST_ID)
        && let Ok(id) = HeaderValue::from_str(request_id)
    {
        up.push((X_REQUEST_ID, id));
    }
    up
}

fn key_of(name: &HeaderName) -> Option<KeyPlace> {
    if *name == header::AUTHORIZATION {
        Some(KeyPlace::Authorization)
    } else if *name == X_API_KEY {
        Some(KeyPlace::ApiKey)
    } else {
        None
    }
}

fn credential(provider: Provider, key: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = match provider {
        Provider::OpenAi => (header::AUTHORIZATION, format!("Bearer {key}")),
        Provider::Anthropic => (X_API_KEY, key.to_owned()),
    };
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// Which headers a `connection` header names as belonging to the hop.
fn connection_names(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|v| v.to_str().ok());
    values.flat_map(|v| v.split(',').map(str::trim)).collect()
}

/// The upstream's headers as the caller gets them: request ids, rate limits and `retry-after` come
/// back; framing and coding are ours.
pub(crate) fn downward(from: &HeaderMap) -> HeaderMap {
    let named = connection_names(from);
    let stays = |s: &str| {
        HOP_BY_HOP.contains(&s)
            || named.iter().any(|n| n.eq_ignore_ascii_case(s))
            || matches!(
                s,
                "content-length" | "content-encoding" | "set-cookie" | "alt-svc" | "date" | "server"
            )
            || s.starts_with("access-control-")
    };
    let mut down = HeaderMap::with_capacity(from.len() + 4);
    for (name, value) in from {
        if !stays(name.as_str()) {
            down.append(name.clone(), value.clone());
        }
    }
    down
}

/// What every response carries. The provider's own `x-request-id` stays where there is one.
pub(crate) fn identify(headers: &mut HeaderMap, request_id: &str, server_timing: &str) {
    if let Ok(id) = HeaderValue::from_str(request_id) {
        if !headers.contains_key(&X_REQUEST_ID) && !headers.contains_key("request-id") {
            headers.insert(X_REQUEST_ID, id.clone());
        }
        headers.insert(REQUEST_ID, id);
    }
    if let Ok(timing) = HeaderValue::from_str(server_timing) {
        headers.append(SERVER_TIMING, timing);
    }
}

/// The names of what was dropped, as a header value; none where there are none.
pub(crate) fn list(names: &[String]) -> Option<HeaderValue> {
    let plain = |name: &&String| name.bytes().all(|b| b.is_ascii_graphic());
    let names: Vec<&str> = names.iter().filter(plain).map(String::as_str).collect();
    HeaderValue::try_from(names.join(", ")).ok().filter(|value| !value.is_empty())
}

/// Tells the caller what its upstream could not be told.
pub(crate) fn name_dropped(headers: &mut HeaderMap, names: Option<HeaderValue>) {
    if let Some(names) = names {
        headers.insert(DROPPED, names);
    }
}

/// Makes the headers of a request fit an upstream that speaks another dialect than its caller: what
/// belongs to the caller's dialect alone stays here, and a key of the caller's stands where that
/// `provider` looks for it.
pub(crate) fn translate(up: &mut Vec<(HeaderName, HeaderValue)>, provider: Provider) {
    let foreign: &str = match provider {
        Provider::OpenAi => "anthropic-",
        Provider::Anthropic => "openai-",
    };
    up.retain(|(name, _)| {
        let s = name.as_str();
        let about_body = *name == header::CONTENT_TYPE || *name == header::ACCEPT;
        !(about_body || s.starts_with(foreign) || s.starts_with("x-stainless-"))
    });
    up.push((header::CONTENT_TYPE, HeaderValue::from_static("application/json")));
    for (name, value) in up {
        let Some(key) = key_of(name).and_then(|_| value.to_str().ok()) else { continue };
        let key = key.get(..7).filter(|s| s.eq_ignore_ascii_case("bearer ")).map_or(key, |_| key[7..].trim());
        if let Some((place, key)) = credential(provider, key) {
            (*name, *value) = (place, key);
        }
    }
}

/// What an event stream needs so that nothing on its way holds it back.
pub(crate) fn event_stream(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

/// Says that the stream is the AI SDK's UI message stream, which our typed events are.
pub(crate) fn ui_message_stream(headers: &mut HeaderMap) {
    headers.insert(UI_MESSAGE_STREAM, HeaderValue::from_static("v1"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn upstream(provider: Provider, auth: Auth) -> UpstreamConfig {
        let base_url = http::Uri::from_static("http://127.0.0.1:1");
        UpstreamConfig {
            name: "u".to_owned(),
            provider,
            base_url,
            auth,
            proxy: None,
            h2c: false,
            responses: true,
            local: false,
            concurrency: None,
        }
    }

    fn names(from: &HeaderMap, u: &UpstreamConfig, has_keys: bool) -> Vec<String> {
        let (_, place) = presented_key(from);
        let up = upward(from, u, place, has_keys, "req_1");
        up.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect()
    }

    #[test]
    fn a_deadline_is_a_number_or_a_refusal() {
        let of = |value| deadline(&map(&[("x-firsttoken-deadline-ms", value)])).map_err(|e| e.code);
        assert_eq!(of("1500"), Ok(Some(Duration::from_millis(1500))));
        for bad in ["0", "-1", "soon", "1.5"] {
            assert_eq!(of(bad), Err(Some("invalid_header".to_owned())), "{bad}");
        }
    }

    #[test]
    fn our_key_and_the_hop_stay_here() {
        let from = map(&[
            ("authorization", "Bearer ours"),
            ("connection", "X-Hop"),
            ("x-hop", "1"),
            ("cookie", "c"),
            ("x-forwarded-for", "10.0.0.1"),
            ("traceparent", "00-1"),
            ("openai-beta", "b"),
        ]);
        let up = names(&from, &upstream(Provider::OpenAi, Auth::Key("theirs".to_owned())), true);
        assert_eq!(
            up,
            [
                "traceparent: 00-1",
                "openai-beta: b",
                "authorization: Bearer theirs",
                "accept-encoding: identity",
                "x-request-id: req_1"
            ]
        );
    }

    #[test]
    fn the_callers_own_key_passes_only_where_it_may() {
        let both = map(&[("x-firsttoken-key", "ours"), ("x-api-key", "theirs")]);
        let up = names(&both, &upstream(Provider::Anthropic, Auth::Caller), true);
        assert!(
            up.contains(&"x-api-key: theirs".to_owned()) && !up.iter().any(|h| h.contains("ours")),
            "{up:?}"
        );
        let twice = map(&[("authorization", "Bearer ours"), ("x-api-key", "ours"), ("api-key", "ours")]);
        let up = names(&twice, &upstream(Provider::Anthropic, Auth::Caller), true);
        assert!(!up.iter().any(|h| h.contains("ours")), "{up:?}");
        let ours = map(&[("x-api-key", "ours")]);
        let up = names(&ours, &upstream(Provider::Anthropic, Auth::Caller), true);
        assert!(!up.iter().any(|h| h.contains("ours")), "{up:?}");
        let up = names(&ours, &upstream(Provider::Anthropic, Auth::Caller), false);
        assert!(
            up.contains(&"x-api-key: ours".to_owned()),
            "without keys of ours it is the provider's: {up:?}"
        );
    }
}
