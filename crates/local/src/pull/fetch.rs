//! Requests, redirects, and whom the token is told.
//!
//! A hub answers a request for a file with a redirect to whoever stores it. So the chain is followed
//! here, step by step, and each step decides anew what it may say.
//!
//! Invariant: the token goes to the hub and to nobody else; a chain of redirects ends; nobody is waited
//! for longer than the patience lasts.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::address::{is_one_server, redirected, shown};
use super::{Checksum, Error};

/// Redirects in a row.
const REDIRECTS_MAX: usize = 8;
/// Where the hub says the checksum of a large file, in the redirect to it.
const LINKED_ETAG: &str = "x-linked-etag";

/// Who fetches.
pub(super) struct Web {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    hub: Uri,
    authorization: Option<HeaderValue>,
    patience: Duration,
}

/// An answer at the end of all redirects.
pub(super) struct Answer {
    /// Who gave it.
    pub(super) uri: Uri,
    /// It.
    pub(super) response: Response<Incoming>,
    /// The checksum that the first server named on the way.
    pub(super) linked: Option<Checksum>,
}

impl Web {
    /// `token` is for the server of `hub` alone.
    pub(super) fn new(hub: Uri, token: Option<&str>, patience: Duration) -> Result<Self, Error> {
        let authorization = token
            .map(|token| HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| Error::Token))
            .transpose()?
            .map(|mut value| {
                value.set_sensitive(true);
                value
            });
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(Error::Roots)?
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, hub, authorization, patience })
    }

    /// Follows `uri` to its end. Any answer but a redirect is one.
    pub(super) async fn get(&self, uri: &Uri, headers: &HeaderMap) -> Result<Answer, Error> {
        let (mut at, mut linked) = (uri.clone(), None);
        for _ in 0..=REDIRECTS_MAX {
            let response = self.ask(&at, headers).await?;
            if is_one_server(&at, uri) {
                linked = linked.or_else(|| checksum_in(response.headers()));
            }
            let moved = response.status().is_redirection().then(|| response.headers().get(header::LOCATION));
            let Some(location) = moved.flatten() else { return Ok(Answer { uri: at, response, linked }) };
            at = redirected(&at, &String::from_utf8_lossy(location.as_bytes()))?;
        }
        Err(Error::Redirects(shown(uri)))
    }

    /// The body of an answer that is a success and not long.
    pub(super) async fn read(&self, uri: &Uri, bytes_max: usize) -> Result<Bytes, Error> {
        let Answer { uri, response, .. } = self.get(uri, &HeaderMap::new()).await?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(&uri, response.status()));
        }
        let body = Limited::new(response.into_body(), bytes_max).collect();
        let wrong = |why: String| Error::Answer { address: shown(&uri), why };
        match self.soon(&uri, body).await? {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(wrong(format!("its answer broke off or was too long ({error})"))),
        }
    }

    /// Waits for something of `uri`, as long as the patience lasts.
    pub(super) async fn soon<T>(&self, uri: &Uri, coming: impl Future<Output = T>) -> Result<T, Error> {
        tokio::time::timeout(self.patience, coming)
            .await
            .map_err(|_| Error::Silent { server: server(uri), seconds: self.patience.as_secs() })
    }

    /// What an answer that is no success means to a person.
    pub(super) fn refused(&self, uri: &Uri, status: StatusCode) -> Error {
        let hint = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if is_one_server(uri, &self.hub) => {
                match self.authorization {
                    Some(_) => "; the token in HF_TOKEN may not see it, or its terms are not accepted yet",
                    None => "; it may not exist, or needs a token: set HF_TOKEN",
                }
            }
            StatusCode::NOT_FOUND => "; there is no such file or repository",
            StatusCode::TOO_MANY_REQUESTS => "; ask again later",
            _ => "",
        };
        Error::Status { address: shown(uri), status, hint }
    }

    async fn ask(&self, uri: &Uri, headers: &HeaderMap) -> Result<Response<Incoming>, Error> {
        let mut request = Request::get(uri.clone());
        if let Some(all) = request.headers_mut() {
            all.extend(headers.clone());
            let agent = concat!("firsttoken/", env!("CARGO_PKG_VERSION"));
            all.insert(header::USER_AGENT, HeaderValue::from_static(agent));
            // The bytes of a file are counted; nobody shall compress them on the way.
            all.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if let Some(value) = self.authorization.as_ref().filter(|_| is_one_server(uri, &self.hub)) {
                all.insert(header::AUTHORIZATION, value.clone());
            }
        }
        let wrong = |why| Error::Address { address: shown(uri), why };
        let request = request.body(Empty::new()).map_err(|_| wrong("this is no address"))?;
        let asked = self.soon(uri, self.client.request(request)).await?;
        asked.map_err(|error| Error::Unreachable { server: server(uri), why: innermost(&error) })
    }
}

/// The checksum of a large file, where the answer has one: `"…"` of 64 digits.
fn checksum_in(headers: &HeaderMap) -> Option<Checksum> {
    headers.get(LINKED_ETAG)?.to_str().ok()?.trim_matches('"').parse().ok()
}

fn server(uri: &Uri) -> String {
    uri.authority().map_or_else(String::new, ToString::to_string)
}

/// The cause that a person can act on.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
