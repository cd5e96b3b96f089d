//! Connections and routes.
//!
//! HTTP/1.1 and HTTP/2 (prior knowledge) over any byte stream: TCP as shipped, an in-memory pipe in
//! tests with a paused clock.
//!
//! Invariant: bodies, connections, records and buffered bytes are bounded, each by an [`Options`]
//! field or a named constant.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ask::Endpoint;
use crate::body::{Scripted, SimBody};
use crate::exchange::{Exchange, Reply};
use crate::limits::Limits;
use crate::link::{Link, Wire};
use crate::refusal::Refusal;
use crate::script::Script;
use crate::stats::{Book, Clock, Ended, Stats};

/// Most bytes that one HTTP/1.1 connection buffers in each direction.
const CONNECTION_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Most streams of one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 10_000;
/// Most bytes of one HTTP/2 stream that are buffered for sending.
const H2_SEND_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// How long to wait when no socket can be accepted, for want of file descriptors most of all.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);
/// The models that `/models` lists; any other name answers too.
const MODELS: [&str; 2] = ["sim", "sim-ttft200-itl20-n50"];

/// How the simulator is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The script that model names and headers start from.
    pub script: Script,
    /// Seed of everything random.
    pub seed: u64,
    /// What the clock of the statistics says at the start, in nanoseconds.
    pub origin_ns: u64,
    /// Largest request body, in bytes.
    pub body_bytes_max: usize,
    /// Most connections at once; more of them wait to be accepted.
    pub connections_max: usize,
    /// How many requests the statistics remember one by one.
    pub records_max: usize,
    /// `SO_SNDBUF` of accepted sockets in bytes, where the kernel's own choice is not wanted.
    pub send_buffer_bytes: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            script: Script::default(),
            seed: 1,
            origin_ns: 0,
            body_bytes_max: 64 << 20,
            connections_max: 65_536,
            records_max: 65_536,
            send_buffer_bytes: None,
        }
    }
}

/// The last request to a model endpoint, as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastRequest {
    /// Its method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    /// Names in lower case, in the order in which they are held; bytes that are no text are replaced.
    pub headers: Vec<(String, String)>,
    /// The body; bytes that are no text are replaced.
    pub body: String,
}

/// The simulated provider.
#[derive(Debug)]
pub struct Sim {
    options: Options,
    book: Mutex<Arc<Book>>,
    clock: Clock,
    limits: Limits,
    numbers: AtomicU64,
    last: Mutex<Option<Kept>>,
}

/// A request as it is kept; it is rendered only when somebody asks.
#[derive(Clone, Debug)]
struct Kept {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    body: Bytes,
}

impl Sim {
    /// A provider that has seen nothing yet. Its clock starts now.
    #[must_use]
    pub fn new(options: Options) -> Arc<Self> {
        let clock = Clock { start: Instant::now(), origin_ns: options.origin_ns };
        Arc::new(Self {
            book: Mutex::new(Arc::new(Book::new(options.records_max, clock))),
            options,
            clock,
            limits: Limits::default(),
            numbers: AtomicU64::new(0),
            last: Mutex::default(),
        })
    }

    /// Accepts connections until `shutdown` resolves, and drops those that are open then.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: impl Future) {
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            while connections.try_join_next().is_some() {}
            let room = connections.len() < self.options.connections_max;
            tokio::select! {
                biased;
                _ = &mut shutdown => return,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = listener.accept(), if room => match accepted {
                    Ok((socket, _)) => {
                        connections.spawn(Arc::clone(&self).serve_tcp(socket));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
                },
            }
        }
    }

    /// Serves one connection over any byte stream until it ends. That it broke is no error: the
    /// statistics say what became of its requests.
    pub async fn serve_connection<IO>(self: Arc<Self>, io: IO)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_io(io, |_| {}).await;
    }

    /// The counters and the last `records` requests.
    #[must_use]
    pub fn stats(&self, records: usize) -> Stats {
        self.book().stats(records)
    }

    /// Forgets the statistics, the last request, slots, rates and fault counts. Requests that are
    /// active go on and are counted nowhere.
    pub fn reset(&self) {
        let book = Arc::new(Book::new(self.options.records_max, self.clock));
        *self.book.lock().unwrap_or_else(PoisonError::into_inner) = book;
        self.limits.clear();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The last request to a model endpoint.
    #[must_use]
    pub fn last(&self) -> Option<LastRequest> {
        let kept = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(LastRequest {
            method: kept.method.to_string(),
            path: kept.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            version: format!("{:?}", kept.version),
            headers: kept.headers.iter().map(|(n, v)| (n.to_string(), text(v.as_bytes()))).collect(),
            body: text(&kept.body),
        })
    }

    pub(crate) const fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn serve_tcp(self: Arc<Self>, socket: TcpStream) {
        // Without these the figures would be off, but the answers right.
        let _ = socket.set_nodelay(true);
        if let Some(bytes) = self.options.send_buffer_bytes {
            let _ = socket2::SockRef::from(&socket).set_send_buffer_size(bytes);
        }
        let on_reset = |socket: &TcpStream| {
            let _: io::Result<()> = socket.set_zero_linger();
        };
        self.serve_io(socket, on_reset).await;
    }

    async fn serve_io<IO>(self: Arc<Self>, io: IO, on_reset: fn(&IO))
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let link = Arc::new(Link::default());
        let wire = TokioIo::new(Wire::new(io, Arc::clone(&link), on_reset));
        let service = service_fn(move |request| {
            let (sim, link) = (Arc::clone(&self), Arc::clone(&link));
            async move { sim.respond(request, link).await }
        });
        let mut server = auto::Builder::new(TokioExecutor::new());
        server.http1().max_buf_size(CONNECTION_BUFFER_BYTES_MAX);
        server.http2().max_concurrent_streams(H2_STREAMS_MAX).max_send_buf_size(H2_SEND_BUFFER_BYTES_MAX);
        let _ = server.serve_connection(wire, service).await;
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        link: Arc<Link>,
    ) -> Result<Reply, Scripted> {
        let path = request.uri().path();
        match Endpoint::of_path(path) {
            Some(endpoint) if request.method() == Method::POST => {
                Box::pin(self.exchange(endpoint, request, link)).await
            }
            Some(endpoint) => Ok(not_allowed(endpoint.is_anthropic())),
            None => Ok(self.manage(request.method(), path, request.uri().query())),
        }
    }

    async fn exchange(
        self: Arc<Self>,
        endpoint: Endpoint,
        request: Request<Incoming>,
        link: Arc<Link>,
    ) -> Result<Reply, Scripted> {
        let number = self.numbers.fetch_add(1, Relaxed);
        let (head, body) = request.into_parts();
        let http2 = head.version == Version::HTTP_2;
        let given = head.headers.get("x-request-id").and_then(|id| id.to_str().ok());
        let id = given.map_or_else(|| format!("sim-{number}"), str::to_owned);
        let mut ticket = self.book().open(id, endpoint.name(), &link, http2);
        let body = match Limited::new(body, self.options.body_bytes_max).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                ticket.end(Ended::Refused);
                let message = format!("the body is over {} bytes", self.options.body_bytes_max);
                return Ok(json_reply(
                    413,
                    &Refusal::new(413, message).body(endpoint.is_anthropic(), ticket.id()),
                ));
            }
            // The peer left in the middle of its own request: dropping the ticket says so.
            Err(_) => return Err(Scripted),
        };
        let kept = Kept {
            method: head.method,
            uri: head.uri,
            version: head.version,
            headers: head.headers.clone(),
            body: body.clone(),
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Exchange { sim: self, endpoint, headers: head.headers, body, http2, number, ticket }.answer().await
    }

    /// What is asked of the simulator and not of a model.
    fn manage(&self, method: &Method, path: &str, query: Option<&str>) -> Reply {
        let (get, post) = (method == Method::GET, method == Method::POST);
        if path.ends_with("/models") && get {
            return json_reply(200, &models());
        }
        if let Some((_, id)) = path.rsplit_once("/models/").filter(|_| get) {
            return json_reply(200, &model(id));
        }
        match path {
            "/stats" if get => {
                let asked = query.and_then(|q| q.strip_prefix("records=")?.parse().ok());
                json_reply(200, &json!(self.stats(asked.unwrap_or(usize::MAX))))
            }
            "/last" if get => json_reply(200, &json!(self.last())),
            "/reset" if post => {
                self.reset();
                json_reply(200, &json!({"reset": true}))
            }
            "/stats" | "/last" | "/reset" => not_allowed(false),
            _ => {
                let message = format!("{method} {path}: the simulator has no such endpoint");
                json_reply(404, &Refusal::new(404, message).body(false, ""))
            }
        }
    }
}

/// The list in both providers' shapes at once.
fn models() -> Value {
    let data: Vec<_> = MODELS.into_iter().map(model).collect();
    json!({"object": "list", "data": data, "has_more": false, "first_id": MODELS[0], "last_id": MODELS[1]})
}

fn model(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 1_790_000_000, "owned_by": "firsttoken-sim",
        "type": "model", "display_name": id, "created_at": "2026-09-21T14:13:20Z"})
}

fn not_allowed(anthropic: bool) -> Reply {
    let refusal = Refusal::new(405, "this endpoint does not take that method");
    let mut reply = json_reply(405, &refusal.body(anthropic, ""));
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(if anthropic { "POST" } else { "GET, POST" }));
    reply
}

fn json_reply(status: u16, body: &Value) -> Reply {
    let mut reply = Response::new(SimBody::Full(Full::new(Bytes::from(body.to_string()))));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}
