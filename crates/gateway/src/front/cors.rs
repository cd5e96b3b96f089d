//! Which browsers' pages may call (Fetch standard, CORS protocol), and whom a gateway without keys answers.

use std::net::IpAddr;

use firsttoken_wire::{ApiError, ErrorKind};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request};

use crate::config::Config;
use crate::front::body::Body;

/// The caller's origin, if it may read our answers.
pub(crate) fn allowed(config: &Config, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let any = |allowed: &String| allowed == "*" || allowed.as_bytes() == origin.as_bytes();
    config.cors_origins.iter().any(any).then(|| origin.clone())
}

/// Whether a request may come to a gateway without keys. It serves whoever is on this machine, and a
/// browser on this machine runs pages of others: one of those could spend our provider's money by a plain
/// form post, or read answers after pointing its own name at 127.0.0.1 (DNS rebinding). So the name it
/// was asked under must be this machine's, and a page must be our own or an allowed one.
pub(crate) fn local(config: &Config, parts: &request::Parts) -> Result<(), ApiError> {
    let refuse = |message: String, code: &str| Err(ApiError::new(ErrorKind::Permission, message).code(code));
    let asked = parts.uri.authority().map(Authority::as_str).or_else(|| text(&parts.headers, header::HOST));
    let asked = asked.unwrap_or_default();
    if !is_this_machine(asked) {
        let message = format!(
            "without keys this gateway answers only to names of this machine, and was asked as {asked:?}. \
             Ask it as 127.0.0.1 or localhost, or configure a key (firsttoken key new)."
        );
        return refuse(message, "foreign_host");
    }
    let Some(origin) = text(&parts.headers, header::ORIGIN) else { return Ok(()) };
    let own = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(asked));
    if own || allowed(config, &parts.headers).is_some() {
        return Ok(());
    }
    let message = format!("pages of {origin:?} may not call this gateway; cors_origins allows them");
    refuse(message, "foreign_origin")
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Whether this is a name that only this machine has: loopback, or `localhost`.
fn is_this_machine(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return authority.is_empty() };
    let host = authority.host().trim_matches(['[', ']']).trim_end_matches('.');
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost"),
    }
}

/// The answer to a preflight. Whether it permits anything is [`permit`]'s to say.
pub(crate) fn preflight(headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::full(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let out = response.headers_mut();
    out.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
    if let Some(asked) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        out.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    out.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    response
}

/// Lets the page at `origin` read this response.
pub(crate) fn permit(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let exposed = "x-firsttoken-request-id, x-request-id, request-id, server-timing, retry-after";
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(exposed));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(uri: &str, host: Option<&str>, origin: Option<&str>) -> Option<String> {
        let mut request = http::Request::get(uri);
        for (name, value) in [("host", host), ("origin", origin)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut config = Config::for_upstream(&"http://127.0.0.1:1".parse().unwrap());
        config.cors_origins = vec!["https://mine.example".to_owned()];
        local(&config, &parts).err().and_then(|error| error.code)
    }

    #[test]
    fn without_keys_only_this_machine_is_answered() {
        for host in ["127.0.0.1:8080", "localhost", "LOCALHOST:8080", "app.localhost", "[::1]:8080"] {
            assert_eq!(code("/v1/models", Some(host), None), None, "{host}");
        }
        assert_eq!(code("http://127.0.0.1:8080/v1/models", None, None), None);
        for host in ["evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1", "a b"] {
            assert_eq!(code("/v1/models", Some(host), None).as_deref(), Some("foreign_host"), "{host}");
        }
    }

    #[test]
    fn without_keys_a_page_must_be_ours_or_allowed() {
        let from = |origin| code("/v1/chat", Some("127.0.0.1:8080"), Some(origin));
        assert_eq!(from("http://127.0.0.1:8080"), None);
        assert_eq!(from("https://mine.example"), None);
        for origin in ["https://evil.example", "http://127.0.0.1:9999", "null"] {
            assert_eq!(from(origin).as_deref(), Some("foreign_origin"), "{origin}");
        }
    }
}
