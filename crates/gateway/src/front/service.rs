//! From an HTTP request to an HTTP response: the order in which a request is judged.
//!
//! Path, key, body, model, upstream: each refusal comes as early as it can, in the caller's dialect,
//! and nothing leaves for an upstream before all of them have passed.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request};
use hyper::body::Incoming;

use crate::clock;
use crate::config::Provider;
use crate::evidence::{Phase, Record};
use crate::front::body::{Body, EarlyBody, Opening, Telling, Voice};
use crate::front::client::{ClientState, Drain};
use crate::front::cors;
use crate::front::endpoint::{self, Endpoint};
use crate::front::engines;
use crate::front::forwarded;
use crate::front::headers;
use crate::front::inbound;
use crate::front::models;
use crate::front::openapi;
use crate::front::page;
use crate::front::plan::Inbound;
use crate::gateway::Setup;
use crate::stream::exchange::{self, Call, Leg, Opened, Refusal};
use crate::stream::failures;

/// Callers' libraries wait no longer than that.
const RETRY_SECONDS_MAX: u32 = 60;

/// Who is at the other end of the connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) addr: IpAddr,
    pub(crate) state: Arc<ClientState>,
}

/// Answers one request. Dropping the future abandons it, wherever it stands.
pub(crate) async fn handle(
    setup: Arc<Setup>,
    peer: Peer,
    request: http::Request<Incoming>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let origin = cors::allowed(setup.config(), &parts.headers);
    let mut response =
        if parts.method == Method::OPTIONS && parts.headers.contains_key("access-control-request-method") {
            cors::preflight(&parts.headers)
        } else {
            route(&setup, peer, &parts, body).await
        };
    if let Some(origin) = origin {
        cors::permit(response.headers_mut(), origin);
    }
    response
}

async fn route(setup: &Arc<Setup>, peer: Peer, parts: &request::Parts, body: Incoming) -> Response<Body> {
    let path = parts.uri.path();
    let dialect = endpoint::dialect_of(path, parts.headers.contains_key("anthropic-version"));
    if setup.keys().is_open()
        && let Err(error) = cors::local(setup.config(), parts)
    {
        return error_response(dialect, &error, None);
    }
    let endpoint = match Endpoint::of(&parts.method, path) {
        Ok(endpoint) => endpoint,
        Err(nothing) => return misplaced(dialect, &nothing),
    };
    match endpoint {
        Endpoint::Health => plain(StatusCode::OK, "ok\n"),
        Endpoint::Ready => ready(setup).await,
        Endpoint::Metrics => metrics(setup, &peer, &parts.headers).await,
        Endpoint::OpenApi => json(StatusCode::OK, openapi::document()),
        Endpoint::Page => page::index(),
        Endpoint::Sample => {
            page::sample(path).unwrap_or_else(|| misplaced(dialect, &endpoint::unknown(path).into()))
        }
        Endpoint::Typed
        | Endpoint::Models
        | Endpoint::Timeline
        | Endpoint::Other
        | Endpoint::Model { .. } => request(setup, peer, parts, body, endpoint, dialect).await,
    }
}

/// Whether traffic may come: not once a drain began, and not while an engine of this machine is stuck.
async fn ready(setup: &Arc<Setup>) -> Response<Body> {
    if !setup.shared.ready.load(Relaxed) {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    let faults = engines::faults(setup).await;
    match faults.is_empty() {
        true => plain(StatusCode::OK, "ready\n"),
        false => plain(StatusCode::SERVICE_UNAVAILABLE, faults),
    }
}

async fn metrics(setup: &Arc<Setup>, peer: &Peer, headers: &HeaderMap) -> Response<Body> {
    let (key, _) = headers::presented_key(headers);
    // A proxy on this machine brings callers from others, known to us or not.
    let is_local = peer.addr.is_loopback() && !forwarded::is_forwarded(headers);
    if !is_local && setup.keys().authenticate(key).is_err() {
        let error =
            ApiError::new(ErrorKind::Authentication, "metrics need one of the gateway's keys, or loopback");
        return error_response(Dialect::OpenAiOther, &error, None);
    }
    let mut response = plain(StatusCode::OK, engines::metrics(setup).await);
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Everything that needs a key and leaves a timeline.
async fn request(
    setup: &Arc<Setup>,
    peer: Peer,
    parts: &request::Parts,
    body: Incoming,
    endpoint: Endpoint,
    dialect: Dialect,
) -> Response<Body> {
    let shared = &setup.shared;
    let state = peer.state.clone();
    let mut record = Record::new(shared.evidence.clone(), peer.state, parts.uri.path());
    record.client_addr =
        Some(forwarded::client_addr(peer.addr, &parts.headers, &setup.config().trusted_proxies));
    let (key, place) = headers::presented_key(&parts.headers);
    match setup.keys().authenticate(key) {
        Ok(caller) => {
            (record.tenant, record.key) = (caller.tenant.clone(), caller.key.clone());
            if matches!(endpoint, Endpoint::Model { .. } | Endpoint::Typed | Endpoint::Other) {
                match shared.quotas.enter(&caller) {
                    Ok(admitted) => record.admitted = admitted,
                    Err(error) => return refusal_response(dialect, exchange::invalid(error, record)),
                }
            }
        }
        Err(e) => {
            let error = ApiError::new(ErrorKind::Authentication, e.to_string()).code("invalid_api_key");
            return refusal_response(dialect, exchange::invalid(error, record));
        }
    }
    let inbound = match Inbound::new(parts, place, dialect) {
        Ok(inbound) => inbound,
        Err(error) => return refusal_response(dialect, exchange::invalid(error, record)),
    };
    let answering = async {
        match endpoint {
            Endpoint::Models => Ok(local(record, models::list(setup.config(), dialect))),
            Endpoint::Timeline => timeline(setup, record, endpoint::request_id(parts.uri.path())),
            Endpoint::Typed => inbound.typed(setup, record, body).await,
            Endpoint::Model { dialect, operation } => {
                record.operation = operation;
                inbound.model(setup, record, body, dialect).await
            }
            _ => inbound.other(setup, record, body).await,
        }
    };
    match until_drained(state, std::pin::pin!(answering)).await {
        Some(Ok(response)) => response,
        Some(Err(refusal)) => refusal_response(dialect, *refusal),
        None => error_response(dialect, &failures::draining(), None),
    }
}

/// Runs `future` until the shutdown's patience is over.
async fn until_drained<T>(
    state: Arc<ClientState>,
    mut future: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    std::future::poll_fn(move |cx| {
        if state.drain() == Drain::Now {
            return std::task::Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

type Answered = Result<Response<Body>, Box<Refusal>>;

impl Inbound<'_> {
    /// The body names a model, the model decides the upstream; the dialects must be of one family.
    async fn model(
        &self,
        setup: &Arc<Setup>,
        mut record: Record,
        body: Incoming,
        dialect: Dialect,
    ) -> Answered {
        let bytes = match self.body(setup, &mut record, body).await {
            Ok(bytes) => bytes,
            Err(error) => return Err(Box::new(exchange::invalid(error, record))),
        };
        match self.plan(setup, &mut record, &bytes, dialect) {
            Ok(call) if call.stream => stream(setup, call, record).await,
            Ok(call) => answered(Box::pin(exchange::open(setup, call, record)).await),
            Err(error) => Err(Box::new(exchange::invalid(error, record))),
        }
    }

    async fn body(&self, setup: &Setup, record: &mut Record, body: Incoming) -> Result<Bytes, ApiError> {
        record.heard.stamps.enter(Phase::NetworkIn);
        let config = setup.config();
        let total = self.deadline.or(config.defaults.clocks.total).unwrap_or(Duration::MAX);
        let reading = inbound::read_body(&self.parts.headers, body, &config.limits);
        let bytes = tokio::time::timeout(total, reading).await.unwrap_or_else(|_| {
            let message = "the request body took longer to come than the whole request may";
            Err(ApiError::new(ErrorKind::Timeout, message).code("body_timeout"))
        });
        record.heard.stamps.enter(Phase::Route);
        bytes
    }

    /// Anything else under `/v1/`: to the upstream that the caller names, or the first of its family.
    async fn other(&self, setup: &Arc<Setup>, mut record: Record, body: Incoming) -> Answered {
        let config = setup.config();
        let bytes = match self.body(setup, &mut record, body).await {
            Ok(bytes) => bytes,
            Err(error) => return Err(Box::new(exchange::invalid(error, record))),
        };
        let family = if self.dialect == Dialect::Anthropic { Provider::Anthropic } else { Provider::OpenAi };
        let named = self.parts.headers.get(headers::UPSTREAM).map(|v| v.to_str().unwrap_or_default());
        let found =
            config.upstreams.iter().position(|u| named.map_or(u.provider == family, |name| u.name == name));
        let Some(upstream) = found else {
            let error = models::no_owner(self.parts.uri.path(), named);
            return Err(Box::new(exchange::invalid(error, record)));
        };
        let call = self.passed(setup, &mut record, upstream, bytes);
        answered(Box::pin(exchange::open(setup, call, record)).await)
    }

    /// Our typed events: the head goes out at once, what happens then is told in the stream.
    async fn typed(&self, setup: &Arc<Setup>, mut record: Record, body: Incoming) -> Answered {
        record.operation = "chat";
        let planned = match self.body(setup, &mut record, body).await {
            Ok(bytes) => self.plan_typed(setup, &mut record, &bytes),
            Err(error) => Err(error),
        };
        let call = match planned {
            Ok(call) => call,
            Err(error) => return Err(Box::new(exchange::invalid(error, record))),
        };
        let (keepalive, accepted, id) = (call.policy.keepalive, record.accepted, record.id.clone());
        let first = call.legs.first();
        let dropped = first.and_then(Leg::dropped);
        let (progress, client) = (record.watch(), record.client.clone());
        let message_id = first
            .and_then(|leg| leg.translation.as_ref())
            .map_or_else(String::new, |t| t.identity.id.clone());
        record.status = 200;
        let timing = record.server_timing(clock::now());
        let setup = setup.clone();
        let opening = Box::pin(async move { exchange::open(&setup, call, record).await });
        let voice = Voice::Typed(Box::new(Telling::new(progress, accepted, &id, message_id)));
        let body = EarlyBody::new(opening, voice, client, keepalive, keepalive);
        let mut response = early(body, &id, &timing, dropped);
        headers::ui_message_stream(response.headers_mut());
        Ok(response)
    }
}

/// Holds the head back for the first content, but no longer than it may be: if the upstream has said
/// nothing by then, the head goes out alone, and what becomes of the request is told in the stream.
async fn stream(setup: &Arc<Setup>, call: Call, mut record: Record) -> Answered {
    let (hold, keepalive) = (call.policy.head_commit, call.policy.keepalive);
    let due = clock::to_tokio(record.accepted + hold);
    let (dialect, id, client) = (call.dialect, record.id.clone(), record.client.clone());
    let (stamps, opened_at) = (record.heard.stamps.clone(), clock::now());
    let dropped = call.legs.first().and_then(Leg::dropped);
    record.status = 200;
    let setup = setup.clone();
    let mut opening: Opening = Box::pin(async move { exchange::open(&setup, call, record).await });
    if let Ok(opened) = tokio::time::timeout_at(due, &mut opening).await {
        return answered(opened);
    }
    // A head that was held for some time brings the first sign of life with it.
    let first = if hold.is_zero() { keepalive } else { Duration::ZERO };
    let voice = Voice::Dialect(dialect, id.clone());
    let body = EarlyBody::new(opening, voice, client, first, keepalive);
    Ok(early(body, &id, &stamps.server_timing(opened_at), dropped))
}

/// A head that goes out before the upstream has said anything.
fn early(body: EarlyBody, id: &str, timing: &str, dropped: Option<HeaderValue>) -> Response<Body> {
    let mut response = Response::new(Body::early(body));
    headers::event_stream(response.headers_mut());
    headers::name_dropped(response.headers_mut(), dropped);
    headers::identify(response.headers_mut(), id, timing);
    response
}

fn answered(opened: Result<Opened, Refusal>) -> Answered {
    let (status, headers, body, id, timing) = match opened.map_err(Box::new)? {
        Opened::Stream { status, headers, mut relay } => {
            let (id, timing) = relay.on_head(status.as_u16());
            (status, headers, Body::relay(relay), id, timing)
        }
        Opened::Whole { status, headers, body, mut record } => {
            record.complete();
            record.status = status.as_u16();
            record.bytes_out = body.len() as u64;
            let timing = record.server_timing(clock::now());
            (status, headers, Body::full(body), record.id.clone(), timing)
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    headers::identify(response.headers_mut(), &id, &timing);
    Ok(response)
}

fn timeline(setup: &Setup, record: Record, id: &str) -> Answered {
    match setup.shared.evidence.timeline(id, &record.tenant) {
        Some(timeline) => Ok(local(record, serde_json::to_vec(&*timeline).unwrap_or_default())),
        None => {
            let message =
                format!("no finished request {id} of yours is remembered here; it may still be running");
            let error = ApiError::new(ErrorKind::NotFound, message).code("unknown_request");
            Err(Box::new(exchange::invalid(error, record)))
        }
    }
}

/// JSON of our own making.
fn local(mut record: Record, body: Vec<u8>) -> Response<Body> {
    record.complete();
    record.status = 200;
    let mut response = json(StatusCode::OK, body);
    headers::identify(response.headers_mut(), &record.id, &record.server_timing(clock::now()));
    response
}

fn refusal_response(dialect: Dialect, refusal: Refusal) -> Response<Body> {
    let Refusal { error, answer, retried, mut record } = refusal;
    let shed_for = error.retry_after_s.filter(|_| error.code.as_deref() == Some("shed"));
    let (id, timing) = (record.id.clone(), record.server_timing(clock::now()));
    let mut response = match answer {
        Some((status, headers, body)) => {
            let mut response = Response::new(Body::full(body));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            response
        }
        None => error_response(dialect, &error, Some(&id)),
    };
    record.status = response.status().as_u16();
    headers::identify(response.headers_mut(), &id, &timing);
    if let Some(word) = should_retry(retried, shed_for) {
        response.headers_mut().insert("x-should-retry", HeaderValue::from_static(word));
    }
    response
}

/// What callers' libraries, which retry, too, are told of it: what was tried here several times they need not;
/// who was told when to come back may, if that is soon. Else it is theirs to judge.
const fn should_retry(retried: bool, shed_for: Option<u32>) -> Option<&'static str> {
    match shed_for {
        Some(seconds) if seconds <= RETRY_SECONDS_MAX => Some("true"),
        None if retried => Some("false"),
        _ => None,
    }
}

/// A path or a method that is not served.
fn misplaced(dialect: Dialect, nothing: &endpoint::Nothing) -> Response<Body> {
    let mut response = error_response(dialect, &nothing.error, None);
    let methods: Vec<&str> = nothing.allowed.iter().map(Method::as_str).collect();
    if let (false, Ok(allow)) = (methods.is_empty(), HeaderValue::try_from(methods.join(", "))) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

fn error_response(dialect: Dialect, error: &ApiError, request_id: Option<&str>) -> Response<Body> {
    let status =
        StatusCode::from_u16(dialect.status(error.kind)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(status, dialect.error_body(error, request_id));
    let kind = HeaderValue::from_static(dialect.error_media_type());
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    if let Some(seconds) = error.retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn plain(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::full(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
