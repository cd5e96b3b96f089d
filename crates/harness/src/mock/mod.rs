//! The mock upstream: one thread, HTTP/1.1 and h2c, two dialects, and a ledger of what became of
//! every request.
//!
//! | request | answer |
//! |---|---|
//! | `POST …/chat/completions`, `POST …/messages` | what the prompt's [`spec`](crate::spec) says |
//! | `GET /stats` | counts, as JSON |
//! | `GET /log` | one line per request: `rid end ns tokens bytes`, end = `done`, `aborted` or `running` |
//! | `POST /reset` | forgets what has ended |
//!
//! Invariant: a request is in the ledger from the moment its body is complete, and its end is
//! stamped when the mock notices it, not when it next has something to write.

mod answer;
mod ledger;
mod wire;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::TcpListener;

use crate::clock::now_ns;
use crate::spec::{Spec, request_id};
use answer::Answer;
use ledger::Ledger;
use wire::{Asked, Wire};

/// Longest request body, bytes.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// How the mock listens.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kernel send buffer of each accepted socket, bytes; the system's own if `None`. A small one makes
    /// the bytes that the mock has written a close bound on what its peer has taken.
    pub send_buffer_bytes: Option<usize>,
}

/// Binds a listener with a backlog that a burst of thousands fits in.
///
/// # Errors
/// When the address is taken or not ours.
pub fn bind(addr: std::net::SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves until dropped. Runs inside a [`tokio::task::LocalSet`].
pub async fn serve(listener: TcpListener, options: Options) {
    let ledger = Rc::new(Ledger::default());
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of file descriptors: the ones in use end sooner or later.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        ledger.connected();
        // Both only fail on a connection that is gone already, which the first read will say.
        let _ = socket.set_nodelay(true);
        if let Some(bytes) = options.send_buffer_bytes {
            let _ = SockRef::from(&socket).set_send_buffer_size(bytes);
        }
        let ledger = Rc::clone(&ledger);
        tokio::task::spawn_local(async move {
            let service = hyper::service::service_fn(move |request| route(request, Rc::clone(&ledger)));
            // An error here is a peer that left; the ledger has it.
            let _ = auto::Builder::new(LocalExec).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

/// Spawns on the current thread, because nothing here is `Send`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalExec;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExec {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

async fn route(request: Request<Incoming>, ledger: Rc<Ledger>) -> io::Result<Response<Answer>> {
    let path = request.uri().path();
    let post = request.method() == Method::POST;
    match path {
        _ if post && path.ends_with("/chat/completions") => chat(request, Wire::OpenAi, &ledger).await,
        _ if post && path.ends_with("/messages") => chat(request, Wire::Anthropic, &ledger).await,
        "/reset" if post => {
            ledger.reset();
            Ok(whole(StatusCode::OK, "application/json", "{}"))
        }
        "/stats" => Ok(whole(StatusCode::OK, "application/json", ledger.stats())),
        "/log" => Ok(whole(StatusCode::OK, "text/plain", ledger.log())),
        "/v1/models" => Ok(whole(StatusCode::OK, "application/json", wire::MODELS)),
        _ => Ok(refusal(StatusCode::NOT_FOUND, &format!("no such path: {path}"))),
    }
}

async fn chat(request: Request<Incoming>, wire: Wire, ledger: &Rc<Ledger>) -> io::Result<Response<Answer>> {
    let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(e) => return Ok(refusal(StatusCode::BAD_REQUEST, &format!("body: {e}"))),
    };
    let arrived_ns = now_ns();
    let arrived = tokio::time::Instant::now();
    let asked: Asked = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(e) => return Ok(refusal(StatusCode::BAD_REQUEST, &format!("body: {e}"))),
    };
    let spec = match Spec::find(&body) {
        Ok(spec) => spec,
        Err(e) => return Ok(refusal(StatusCode::BAD_REQUEST, &e)),
    };
    // From here on a drop of this future is the peer's abort, and the ticket notes it.
    let ticket = ledger.begin(request_id(&body));
    let first_at = arrived + spec.ttft;
    if !asked.stream {
        let total = spec.itl * u32::try_from(spec.tokens.unwrap_or(0)).unwrap_or(u32::MAX);
        until(first_at + total).await;
        let text = wire.whole(&asked, &spec, arrived_ns, body.len());
        ticket.sent(spec.tokens.unwrap_or(0), text.len());
        ticket.done();
        return Ok(whole(StatusCode::OK, "application/json", text));
    }
    if !spec.head_first {
        until(first_at).await;
    }
    let answer = Answer::stream(answer::Script {
        wire,
        asked,
        spec,
        ticket,
        arrived_ns,
        first_at,
        body_bytes: body.len(),
    });
    Ok(respond(StatusCode::OK, "text/event-stream; charset=utf-8", answer))
}

/// Sleeps, but not for a time that has come: that would cost a turn of the timer.
async fn until(at: tokio::time::Instant) {
    if at > tokio::time::Instant::now() {
        tokio::time::sleep_until(at).await;
    }
}

fn refusal(status: StatusCode, message: &str) -> Response<Answer> {
    let body = serde_json::json!({ "error": { "message": message, "type": "invalid_request_error" } });
    whole(status, "application/json", body.to_string())
}

fn whole(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Answer> {
    respond(status, content_type, Answer::whole(body.into()))
}

fn respond(status: StatusCode, content_type: &'static str, answer: Answer) -> Response<Answer> {
    let response = Response::builder().status(status).header("content-type", content_type);
    response.body(answer).expect("the status and the header are constants")
}
