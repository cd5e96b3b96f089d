//! Connections and routes.
//!
//! Invariant: bodies are bounded, and a connection holds nothing after it has ended.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use firsttoken_engine::speech;
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity, openai_chat};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::answer::{self, Stream, Voice};
use crate::ask::{self, Asked, Texts, invalid};
use crate::completion::Completion;
use crate::health;
use crate::hearing::{Hearing, Tally};
use crate::metrics::Metrics;
use crate::model::Model;
use crate::slot::{Lease, Loaded, Slot};

/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Most bytes that a connection buffers in each direction.
const CONNECTION_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// What is answered.
const PATHS: &str = "POST /v1/chat/completions, /v1/completions, /v1/embeddings, /tokenize and /detokenize, \
    and GET /v1/models, /health and /metrics";
const EVENT_STREAM: &str = "text/event-stream";
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a body asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Chat,
    Completion,
    Embeddings,
    Tokens,
    Content,
}

impl Task {
    fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completion,
            "/v1/embeddings" => Self::Embeddings,
            "/tokenize" => Self::Tokens,
            "/detokenize" => Self::Content,
            _ => return None,
        })
    }
}

/// Whose request it is. The gateway says so, and passes on no word of its callers about it.
const TENANT: HeaderName = HeaderName::from_static("x-firsttoken-tenant");
/// In how many milliseconds its answer is worth nothing any more.
const DEADLINE: HeaderName = HeaderName::from_static("x-firsttoken-deadline-ms");

/// Who asks.
struct Caller {
    tenant: Vec<u8>,
    deadline: Option<Duration>,
}

impl Caller {
    /// As the gateway says.
    fn of(headers: &HeaderMap) -> Self {
        let tenant = headers.get(TENANT).map_or(Vec::new(), |name| name.as_bytes().to_vec());
        let deadline = headers.get(DEADLINE).and_then(|ms| ms.to_str().ok()?.parse().ok());
        Self { tenant, deadline: deadline.map(Duration::from_millis) }
    }
}

/// A request that was read.
enum Read {
    /// The engine has to answer.
    Asked(Box<Ask>),
    /// Embeddings have to be made.
    Texts(Lease, Texts),
    /// It is known without a computation: this body.
    Known { body: Vec<u8>, stream: bool },
    /// Its model has to be loaded first.
    Idle(Arc<Slot>),
}

/// What the engine has to answer.
struct Ask {
    lease: Lease,
    model: Arc<Model>,
    asked: Asked,
    /// Whether a stream shall end with its usage.
    include_usage: bool,
}

type Reply = Response<Either<Full<Bytes>, Stream>>;

/// The models of this machine.
pub struct Local {
    slots: Vec<Arc<Slot>>,
    answers: AtomicU64,
    metrics: Arc<Metrics>,
}

impl Local {
    /// A server of these models; a request that names none of them is refused.
    #[must_use]
    pub fn new<L: Into<Loaded>>(models: Vec<L>) -> Arc<Self> {
        let slots: Vec<Arc<Slot>> = models.into_iter().map(|model| Slot::new(model.into())).collect();
        let metrics = Metrics::new(slots.clone());
        Arc::new(Self { slots, answers: AtomicU64::new(0), metrics })
    }

    /// The models that are loaded now. Whoever holds one keeps it loaded.
    #[must_use]
    pub fn loaded(&self) -> Vec<Loaded> {
        self.slots.iter().filter_map(|slot| slot.loaded()).collect()
    }

    /// Ends the engines, and waits until what is worth keeping is on disk, where there is one.
    pub fn end(&self) {
        for loaded in self.loaded() {
            if let Loaded::Writes(model) = loaded {
                model.end();
            }
        }
    }

    /// Serves one connection until it ends. That it broke is no error: its requests are cancelled.
    pub async fn serve_connection<IO>(self: Arc<Self>, io: IO)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(move |request| {
            let local = Arc::clone(&self);
            async move { Ok::<_, Infallible>(local.respond(request).await) }
        });
        let mut server = auto::Builder::new(TokioExecutor::new());
        server.http1().max_buf_size(CONNECTION_BUFFER_BYTES_MAX);
        let _ = server.serve_connection(TokioIo::new(io), service).await;
    }

    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Reply {
        let asked = Instant::now();
        let (head, body) = request.into_parts();
        let answered = match (&head.method, head.uri.path()) {
            (&Method::GET, "/v1/models") => Ok(json_reply(StatusCode::OK, &self.list())),
            (&Method::GET, "/health") => Ok(self.health()),
            (&Method::GET, "/metrics") => {
                Ok(reply(StatusCode::OK, METRICS_TYPE, self.metrics.text().into_bytes()))
            }
            (&Method::POST, path) if let Some(task) = Task::at(path) => match whole(body).await {
                Ok(body) => {
                    let caller = Caller::of(&head.headers);
                    self.answer(task, body, caller, asked).await
                }
                Err(error) => Err(error),
            },
            (method, path) => {
                let message = format!("{method} {path}: models on this machine answer {PATHS}");
                Err(ApiError::new(ErrorKind::NotFound, message).code("unknown_path"))
            }
        };
        answered.unwrap_or_else(|error| refusal(&error))
    }

    async fn answer(
        self: Arc<Self>,
        task: Task,
        body: Bytes,
        caller: Caller,
        asked: Instant,
    ) -> Result<Reply, ApiError> {
        let mut lease = None;
        loop {
            let (local, bytes) = (Arc::clone(&self), body.clone());
            // Long texts and large schemas take their time, and others are answered on this thread.
            let read = tokio::task::spawn_blocking(move || local.read(task, &bytes)).await;
            drop(lease.take());
            match read.map_err(|_| ApiError::new(ErrorKind::Internal, "the request could not be read"))?? {
                Read::Asked(mut ask) => {
                    ask.asked.request.tenant = ask.model.tenant(&caller.tenant);
                    ask.asked.request.deadline = caller.deadline.map(|left| ask.model.now() + left);
                    return self.speak(task, *ask, asked).await;
                }
                Read::Texts(lease, texts) => return self.embed(&lease, texts, asked).await,
                Read::Known { body, stream: false } => {
                    return Ok(reply(StatusCode::OK, "application/json", body));
                }
                Read::Known { body, stream: true } => {
                    return Ok(streaming(reply(StatusCode::OK, EVENT_STREAM, body)));
                }
                // Held until it is read again.
                Read::Idle(slot) => lease = Some(slot.lease().await?),
            }
        }
    }

    /// What the engine is asked, or what is known without it.
    fn read(&self, task: Task, body: &[u8]) -> Result<Read, ApiError> {
        let slot = self.slot(body, task)?;
        let Some(lease) = slot.held() else { return Ok(Read::Idle(slot)) };
        if task == Task::Embeddings {
            let texts = ask::embeddings(lease.embeddings()?, body)?;
            return Ok(Read::Texts(lease, texts));
        }
        let model = Arc::clone(lease.model()?);
        let include_usage = openai_chat::wants_stream_usage(body);
        let known = |value: Value| Read::Known { body: value.to_string().into_bytes(), stream: false };
        let asked = match task {
            Task::Completion => ask::completion(&model, body)?,
            Task::Tokens => return ask::tokens(&model, body).map(known),
            Task::Content => return ask::content(&model, body).map(known),
            Task::Chat | Task::Embeddings => match ask::chat(&model, body)? {
                ask::Outcome::Ask(asked) => *asked,
                ask::Outcome::Say { text, stream } => {
                    let identity = self.identity(task, &model, include_usage);
                    return Ok(Read::Known { body: answer::said(text, stream, &identity), stream });
                }
            },
        };
        Ok(Read::Asked(Box::new(Ask { lease, model, asked, include_usage })))
    }

    /// Whose answer the next one is.
    fn identity(&self, task: Task, model: &Model, include_usage: bool) -> Identity {
        let number = self.answers.fetch_add(1, Relaxed);
        let kind = if task == Task::Chat { "chatcmpl" } else { "cmpl" };
        let id = format!("{kind}-local-{number}");
        Identity { id, model: model.name.clone(), created: unix_seconds(), include_usage }
    }

    async fn embed(&self, lease: &Lease, texts: Texts, since: Instant) -> Result<Reply, ApiError> {
        let (tokens, tell) = (texts.tokens(), texts.teller());
        let vectors = lease.embeddings()?.embed(texts.texts).await;
        match &vectors {
            Ok(_) => self.metrics.on_embedded(lease.name(), tokens, since.elapsed()),
            Err(_) => self.metrics.on_over(lease.name(), "error"),
        }
        Ok(reply(StatusCode::OK, "application/json", tell(lease.name(), vectors?)))
    }

    async fn speak(&self, task: Task, ask: Ask, since: Instant) -> Result<Reply, ApiError> {
        let Ask { lease, model, asked, include_usage } = ask;
        let identity = self.identity(task, &model, include_usage);
        let voice = match task {
            Task::Completion => Voice::Completion(Completion::new(identity.clone(), asked.echo)),
            _ => Voice::chat(&identity, asked.cites),
        };
        let prompt = u32::try_from(asked.request.prompt.len()).unwrap_or(u32::MAX);
        let tally = Tally::new(&self.metrics, lease, prompt, since);
        let vocabulary = Arc::clone(&model.vocabulary);
        let ear = speech::speak(&model.engine, asked.request, asked.manner, vocabulary);
        let hearing = Hearing::begin(ear.map_err(answer::unheard)?, tally).await;
        // Until something is said, a refusal is still a true status.
        if let Some(why) = hearing.refused() {
            return Err(answer::refusal(why));
        }
        if !asked.stream {
            let body = answer::whole(hearing, voice, &identity).await?;
            return Ok(reply(StatusCode::OK, "application/json", body));
        }
        let mut reply = Response::new(Either::Right(Stream::new(hearing, voice, &identity)));
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
        Ok(streaming(reply))
    }

    /// The model that a body names. Where there is only one, tokens need not say whose they are.
    fn slot(&self, body: &[u8], task: Task) -> Result<Arc<Slot>, ApiError> {
        let body: Value =
            serde_json::from_slice(body).map_err(|error| invalid(format!("not JSON: {error}")))?;
        let name = body.get("model").and_then(Value::as_str).unwrap_or_default();
        if let ([only], "", Task::Tokens | Task::Content) = (&self.slots[..], name, task) {
            return Ok(Arc::clone(only));
        }
        self.slots.iter().find(|slot| slot.name() == name).map(Arc::clone).ok_or_else(|| {
            let names: Vec<&str> = self.slots.iter().map(|slot| slot.name()).collect();
            let message =
                format!("no model on this machine is called {name:?}; there are {}", names.join(", "));
            ApiError::new(ErrorKind::NotFound, message).at("model").code("model_not_found")
        })
    }

    /// Green only while every engine works.
    fn health(&self) -> Reply {
        let faults: Vec<Value> = self.slots.iter().filter_map(|slot| health::fault(slot)).collect();
        match faults.is_empty() {
            true => json_reply(StatusCode::OK, &json!({"status": "ok"})),
            false => {
                json_reply(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "error", "faults": faults}))
            }
        }
    }

    fn list(&self) -> Value {
        let model = |slot: &Arc<Slot>| {
            json!({"id": slot.name(), "object": "model", "created": 0, "owned_by": "this machine",
                "context_length": slot.context})
        };
        json!({"object": "list", "data": self.slots.iter().map(model).collect::<Vec<_>>()})
    }
}

/// A request's body.
async fn whole(body: Incoming) -> Result<Bytes, ApiError> {
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| {
        let message = format!("the body is over {BODY_BYTES_MAX} bytes, or broke off");
        ApiError::new(ErrorKind::TooLarge, message)
    })?;
    Ok(body.to_bytes())
}

fn unix_seconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

fn refusal(error: &ApiError) -> Reply {
    let status = StatusCode::from_u16(error.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = reply(status, "application/json", Dialect::OpenAiChat.error_body(error, None));
    if let Some(seconds) = error.retry_after_s {
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    reply
}

fn json_reply(status: StatusCode, body: &Value) -> Reply {
    reply(status, "application/json", body.to_string().into_bytes())
}

/// A stream is not kept for others.
fn streaming(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    reply
}

fn reply(status: StatusCode, media_type: &'static str, body: Vec<u8>) -> Reply {
    let mut reply = Response::new(Either::Left(Full::new(Bytes::from(body))));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}
