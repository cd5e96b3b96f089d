//! Two clients: one that reads an answer through hyper and stamps every piece, over a pipe; and one
//! that sees the raw bytes of a real socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firsttoken_sim::{Options, Script, Sim};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Room of the pipe in each direction.
const PIPE_BYTES: usize = 64 * 1024;

/// Longest that a raw answer is read: some never end and are never silent.
const ASK_MAX: Duration = Duration::from_secs(3);

/// The endpoints that stream.
pub(crate) const STREAMS: [&str; 4] =
    ["/v1/chat/completions", "/v1/messages", "/v1/completions", "/v1/responses"];

/// A simulator with a script that a test can reckon with: 100 ms, then every 10 ms, ten tokens.
pub(crate) fn sim() -> Arc<Sim> {
    let script = Script {
        ttft: firsttoken_sim::Latency::constant(100.0),
        itl: firsttoken_sim::Latency::constant(10.0),
        text_tokens: Some(10),
        ..Script::default()
    };
    Sim::new(Options { script, ..Options::default() })
}

/// A request body that the endpoint takes.
pub(crate) fn body(path: &str, stream: bool) -> Value {
    let mut body = json!({"model": "sim", "stream": stream});
    if path.ends_with("messages") || path.ends_with("chat/completions") {
        body["messages"] = json!([{"role": "user", "content": "Why is the sky blue?"}]);
        body["max_tokens"] = json!(100_000);
    } else if path.ends_with("responses") {
        body["input"] = json!("Why is the sky blue?");
    } else {
        body["prompt"] = json!("Why is the sky blue?");
    }
    if stream && path.ends_with("completions") {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Request sent → head.
    pub(crate) head: Duration,
    /// Request sent → each piece of the body.
    pub(crate) pieces: Vec<(Duration, Bytes)>,
    /// Whether the body ended properly.
    pub(crate) whole: bool,
}

impl Answer {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|(_, piece)| piece.to_vec()).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    pub(crate) fn json(&self) -> Result<Value, Failure> {
        Ok(serde_json::from_slice(&self.bytes())?)
    }
}

/// Asks over a new pipe and reads to the end, or for `patience`.
pub(crate) async fn ask(
    sim: &Arc<Sim>,
    path: &str,
    knobs: &str,
    body: &Value,
    patience: Duration,
) -> Result<Answer, Failure> {
    let (mine, theirs) = tokio::io::duplex(PIPE_BYTES);
    let serving = tokio::spawn(Arc::clone(sim).serve_connection(theirs));
    let (mut sender, connection) = http1::handshake(TokioIo::new(mine)).await?;
    let driving = tokio::spawn(connection);
    let sent = Instant::now();
    let answer = sender.send_request(request(path, knobs, body)?).await;
    let answer = read(answer?, sent, patience).await;
    driving.abort();
    serving.abort();
    answer
}

/// Like [`ask`], over HTTP/2.
pub(crate) async fn ask_h2(sim: &Arc<Sim>, path: &str, knobs: &str, body: &Value) -> Result<Answer, Failure> {
    let (mine, theirs) = tokio::io::duplex(PIPE_BYTES);
    let serving = tokio::spawn(Arc::clone(sim).serve_connection(theirs));
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(mine)).await?;
    let driving = tokio::spawn(connection);
    let sent = Instant::now();
    let answer = sender.send_request(request(path, knobs, body)?).await?;
    let answer = read(answer, sent, Duration::from_secs(600)).await;
    driving.abort();
    serving.abort();
    answer
}

fn request(path: &str, knobs: &str, body: &Value) -> Result<Request<Full<Bytes>>, Failure> {
    let request = Request::post(format!("http://sim.test{path}"))
        .header("host", "sim.test")
        .header("content-type", "application/json")
        .header("x-request-id", "mine")
        .header("x-sim", knobs);
    Ok(request.body(Full::new(body.to_string().into()))?)
}

async fn read(
    answer: http::Response<hyper::body::Incoming>,
    sent: Instant,
    patience: Duration,
) -> Result<Answer, Failure> {
    let (head, mut body) = answer.into_parts();
    let mut answer = Answer {
        status: head.status,
        headers: head.headers,
        head: sent.elapsed(),
        pieces: Vec::new(),
        whole: false,
    };
    loop {
        match tokio::time::timeout_at(sent + patience, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Ok(piece) = frame.into_data() {
                    answer.pieces.push((sent.elapsed(), piece));
                }
            }
            Ok(None) => {
                answer.whole = true;
                return Ok(answer);
            }
            Ok(Some(Err(_))) | Err(_) => return Ok(answer),
        }
    }
}

/// A pipe on which the raw request has been written.
pub(crate) async fn pipe(
    sim: &Arc<Sim>,
    path: &str,
    knobs: &str,
    body: &Value,
) -> Result<DuplexStream, Failure> {
    let (mut mine, theirs) = tokio::io::duplex(PIPE_BYTES);
    tokio::spawn(Arc::clone(sim).serve_connection(theirs));
    mine.write_all(&raw_request(path, knobs, body)).await?;
    Ok(mine)
}

fn raw_request(path: &str, knobs: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: sim.test\r\nx-sim: {knobs}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// How a raw answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// FIN.
    Fin,
    /// RST.
    Rst,
    /// It had not when the reader stopped.
    Open,
}

/// An answer as the socket gave it.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) reads: Vec<Vec<u8>>,
    pub(crate) end: End,
}

impl Raw {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.reads.concat()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// The pieces in which the body was written (each is one chunk of HTTP/1.1's framing, however
    /// the reads fell), and whether the last chunk came.
    pub(crate) fn chunks(&self) -> (Vec<Vec<u8>>, bool) {
        let bytes = self.bytes();
        let mut chunks = Vec::new();
        let Some(head) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { return (chunks, false) };
        let mut rest = &bytes[head + 4..];
        loop {
            let Some(line) = rest.windows(2).position(|w| w == b"\r\n") else { return (chunks, false) };
            let size =
                std::str::from_utf8(&rest[..line]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
            let Some(size) = size else { return (chunks, false) };
            rest = &rest[line + 2..];
            if size == 0 {
                return (chunks, true);
            }
            chunks.push(rest[..size.min(rest.len())].to_vec());
            rest = rest.get(size + 2..).unwrap_or_default();
        }
    }
}

/// A simulator on a loopback port.
pub(crate) struct Server {
    pub(crate) sim: Arc<Sim>,
    address: std::net::SocketAddr,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Server {
    pub(crate) async fn start(sim: Arc<Sim>) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(Arc::clone(&sim).serve(listener, std::future::pending::<()>()));
        Ok(Self { sim, address, serving })
    }

    /// A connection on which the request has been written.
    pub(crate) async fn connect(&self, path: &str, knobs: &str, body: &Value) -> Result<TcpStream, Failure> {
        let mut socket = TcpStream::connect(self.address).await?;
        socket.write_all(&raw_request(path, knobs, body)).await?;
        Ok(socket)
    }

    /// Asks, and reads until the end of the answer, a silence as long as the patience, or [`ASK_MAX`].
    pub(crate) async fn ask(
        &self,
        path: &str,
        knobs: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<Raw, Failure> {
        let mut socket = self.connect(path, knobs, body).await?;
        let mut raw = Raw { reads: Vec::new(), end: End::Open };
        let mut buffer = vec![0; 1 << 16];
        let end = Instant::now() + ASK_MAX;
        loop {
            match tokio::time::timeout_at(end.min(Instant::now() + patience), socket.read(&mut buffer)).await
            {
                Err(_) => return Ok(raw),
                Ok(Ok(0)) => raw.end = End::Fin,
                Ok(Ok(n)) => {
                    raw.reads.push(buffer[..n].to_vec());
                    continue;
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => raw.end = End::Rst,
                Ok(Err(error)) => return Err(error.into()),
            }
            return Ok(raw);
        }
    }
}
