//! Addresses and secrets of upstreams: base URLs, proxies, provider keys.
//!
//! A base URL is kept in one form, with nothing of `/v1` in it, whichever of the two usual ways it
//! was given in. Messages never repeat the user part of a URL, nor any part of a key.

use http::Uri;
use http::uri::{Authority, Scheme};

use super::env::Text;
use super::problems::Complaint;

/// Paths that people paste together with the base.
const ENDPOINTS: [&str; 5] = ["/chat/completions", "/messages", "/responses", "/completions", "/embeddings"];

/// Where a provider is: `https://api.openai.com`, with or without `/v1`.
pub(super) fn base_url(text: &Text) -> Result<Uri, Complaint> {
    let (uri, scheme) = absolute(text, "https://api.openai.com")?;
    let shown = shown(text);
    if text.value.contains(['?', '#']) {
        return Err(Complaint::new(format!("`{shown}` has a query or fragment"))
            .hint("a base URL is only scheme, host and path"));
    }
    let authority = authority(&uri, &shown)?;
    if authority.as_str().contains('@') {
        return Err(
            Complaint::new(format!("`{shown}` has a user name in it")).hint("take it out and use `api_key`")
        );
    }
    let path = uri.path().trim_end_matches('/');
    if let Some(endpoint) = ENDPOINTS.iter().find(|endpoint| path.ends_with(*endpoint)) {
        return Err(Complaint::new(format!("`{shown}` names an endpoint"))
            .hint(format!("leave out `{endpoint}`: callers choose the endpoint")));
    }
    let prefix = path.strip_suffix("/v1").unwrap_or(path).trim_end_matches('/');
    let path = if prefix.is_empty() { "/" } else { prefix };
    build(scheme, authority.clone(), path)
}

/// A proxy that tunnels: `http://host:port`; `none` for no proxy at all.
pub(super) fn proxy(text: &Text) -> Result<Option<Uri>, Complaint> {
    if text.value == "none" {
        return Ok(None);
    }
    // Everyone's HTTPS_PROXY may be just host:port.
    let with_scheme =
        if text.value.contains("://") { text.value.clone() } else { format!("http://{}", text.value) };
    let text = Text { value: with_scheme, shown: text.shown.clone() };
    let (uri, scheme) = absolute(&text, "http://proxy.example:3128")?;
    let shown = shown(&text);
    if scheme != Scheme::HTTP {
        return Err(Complaint::new(format!("`{shown}` is a proxy reached over TLS, which is not supported"))
            .hint("write http://host:port; what goes through the tunnel is encrypted all the same"));
    }
    if uri.path() != "/" || text.value.contains(['?', '#']) {
        return Err(
            Complaint::new(format!("`{shown}` has a path")).hint("a proxy is only scheme, host and port")
        );
    }
    build(scheme, authority(&uri, &shown)?.clone(), "/").map(Some)
}

/// A provider's key: what may stand in a header.
pub(super) fn api_key(text: &Text) -> Result<String, Complaint> {
    let key = text.value.trim();
    if key.is_empty() {
        return Err(Complaint::new("is empty").hint("`auth = \"none\"` for an upstream without keys"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Complaint::new("has characters that no API key has (spaces, line ends or accents)")
            .hint("copy it again"));
    }
    Ok(key.to_owned())
}

/// An origin that a browser names: `https://app.example`, or `*`.
pub(super) fn origin(text: &Text) -> Result<String, Complaint> {
    if text.value == "*" {
        return Ok(text.value.clone());
    }
    let (uri, scheme) = absolute(text, "https://app.example, or *")?;
    let shown = shown(text);
    let authority = authority(&uri, &shown)?;
    let origin = format!("{scheme}://{authority}").to_lowercase();
    if text.value.to_lowercase() == origin && !authority.as_str().contains('@') {
        return Ok(origin);
    }
    Err(Complaint::new(format!("`{shown}` is more than an origin"))
        .hint("browsers send scheme, host and port only, without a `/` at the end"))
}

/// Parses a URL that must be `http` or `https`.
fn absolute(text: &Text, example: &str) -> Result<(Uri, Scheme), Complaint> {
    let shown = shown(text);
    let Some((scheme, _)) = text.value.split_once("://") else {
        return Err(Complaint::new(format!("`{shown}` is not a URL: it has no scheme"))
            .hint(format!("write {example}")));
    };
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::HTTP,
        "https" => Scheme::HTTPS,
        _ => {
            return Err(Complaint::new(format!("`{shown}` is neither http nor https"))
                .hint(format!("write {example}")));
        }
    };
    match text.value.parse::<Uri>() {
        Ok(uri) => Ok((uri, scheme)),
        Err(error) => Err(Complaint::new(format!("`{shown}` is not a URL: {error}"))),
    }
}

fn authority<'a>(uri: &'a Uri, shown: &str) -> Result<&'a Authority, Complaint> {
    let missing = || Complaint::new(format!("`{shown}` names no host"));
    let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(missing)?;
    let after_user = authority.as_str().rsplit('@').next().unwrap_or_default();
    let port_given = after_user.len() > authority.host().len();
    match authority.port_u16() {
        Some(1..) => Ok(authority),
        None if !port_given => Ok(authority),
        Some(0) | None => Err(Complaint::new(format!("`{shown}` has a port that is not 1 to 65535"))),
    }
}

fn build(scheme: Scheme, authority: Authority, path: &str) -> Result<Uri, Complaint> {
    Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query(path)
        .build()
        .map_err(|error| Complaint::new(format!("is not a URL: {error}")))
}

/// The spelling of a URL that messages may repeat: without its user part.
fn shown(text: &Text) -> String {
    redact(&text.shown)
}

/// `url` with `…` for its user part.
pub(super) fn redact(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(user)) if scheme < user => {
            let (before, _) = url.split_at(scheme);
            let (_, after) = url.split_at(user);
            format!("{before}://…{after}")
        }
        (None, Some(user)) => format!("…{}", url.split_at(user).1),
        _ => url.to_owned(),
    }
}
