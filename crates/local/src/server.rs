//! Connections and routes.
//!
//! Invariant: bodies are bounded, and a connection holds nothing after it has ended.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use bytes::Bytes;
use firsttoken_engine::speech::{self, Piece};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity, openai_chat};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::answer::{self, Stream};
use crate::ask::{self, invalid};
use crate::model::Model;

/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Most bytes that a connection buffers in each direction.
const CONNECTION_BUFFER_BYTES_MAX: usize = 64 * 1024;

type Reply = Response<Either<Full<Bytes>, Stream>>;

/// The models of this machine.
pub struct Local {
    models: Vec<Model>,
    answers: AtomicU64,
}

impl Local {
    /// A server of these models; a request that names none of them is refused.
    #[must_use]
    pub fn new(models: Vec<Model>) -> Arc<Self> {
        Arc::new(Self { models, answers: AtomicU64::new(0) })
    }

    /// The models.
    #[must_use]
    pub fn models(&self) -> &[Model] {
        &self.models
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

    async fn respond(&self, request: Request<Incoming>) -> Reply {
        let (head, body) = request.into_parts();
        let answered = match (&head.method, head.uri.path()) {
            (&Method::GET, "/v1/models") => return json_reply(StatusCode::OK, &self.list()),
            (&Method::GET, "/health") => return json_reply(StatusCode::OK, &json!({"status": "ok"})),
            (&Method::POST, "/v1/chat/completions") => {
                match Limited::new(body, BODY_BYTES_MAX).collect().await {
                    Ok(body) => self.chat(&body.to_bytes()).await,
                    Err(_) => {
                        let message = format!("the body is over {BODY_BYTES_MAX} bytes, or broke off");
                        Err(ApiError::new(ErrorKind::TooLarge, message))
                    }
                }
            }
            (method, path) => {
                let message = format!(
                    "{method} {path}: models on this machine answer POST /v1/chat/completions and GET /v1/models"
                );
                Err(ApiError::new(ErrorKind::NotFound, message).code("unknown_path"))
            }
        };
        answered.unwrap_or_else(|error| refusal(&error))
    }

    async fn chat(&self, body: &[u8]) -> Result<Reply, ApiError> {
        let model = self.model(body)?;
        let asked = ask::chat(model, body)?;
        let prompt = u32::try_from(asked.request.prompt.len()).unwrap_or(u32::MAX);
        let identity = Identity {
            id: format!("chatcmpl-local-{}", self.answers.fetch_add(1, Relaxed)),
            model: model.name.clone(),
            created: unix_seconds(),
            include_usage: openai_chat::wants_stream_usage(body),
        };
        let vocabulary = Arc::clone(&model.vocabulary);
        let heard = speech::speak(&model.engine, asked.request, asked.manner, vocabulary);
        let mut ear = heard.map_err(answer::not_taken)?;
        // Until something is said, a refusal is still a true status.
        let first = match ear.hear().await {
            Some(Piece::Refused(why)) => return Err(answer::refusal(&why)),
            Some(first) => first,
            None => {
                return Err(ApiError::new(ErrorKind::Internal, "the engine has ended").code("engine_failed"));
            }
        };
        if !asked.stream {
            let body = answer::whole(ear, first, &identity, prompt).await?;
            return Ok(reply(StatusCode::OK, "application/json", body));
        }
        let mut reply = Response::new(Either::Right(Stream::new(ear, first, &identity, prompt)));
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Ok(reply)
    }

    /// The model that a body names.
    fn model(&self, body: &[u8]) -> Result<&Model, ApiError> {
        let body: Value =
            serde_json::from_slice(body).map_err(|error| invalid(format!("not JSON: {error}")))?;
        let name = body.get("model").and_then(Value::as_str).unwrap_or_default();
        self.models.iter().find(|model| model.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
            let message =
                format!("no model on this machine is called {name:?}; there are {}", names.join(", "));
            ApiError::new(ErrorKind::NotFound, message).at("model").code("model_not_found")
        })
    }

    fn list(&self) -> Value {
        let model = |model: &Model| {
            json!({"id": model.name, "object": "model", "created": 0, "owned_by": "this machine",
                "context_length": model.context})
        };
        json!({"object": "list", "data": self.models.iter().map(model).collect::<Vec<_>>()})
    }
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

fn reply(status: StatusCode, media_type: &'static str, body: Vec<u8>) -> Reply {
    let mut reply = Response::new(Either::Left(Full::new(Bytes::from(body))));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}
