//! Which browsers' pages may call (Fetch standard, CORS protocol).

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use crate::config::Config;
use crate::front::body::Body;

/// The caller's origin, if it may read our answers.
pub(crate) fn allowed(config: &Config, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let any = |allowed: &String| allowed == "*" || allowed.as_bytes() == origin.as_bytes();
    config.cors_origins.iter().any(any).then(|| origin.clone())
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
