//! A client: sends a request, notes what came when and how it ended, and can leave at any moment.
//!
//! It is hyper's, so that framing errors show; [`World::pipe`](crate::World::pipe) gives the bare pipe
//! to a test that wants to misbehave below HTTP.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Caller;

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As HTTP says that a message ends.
    Proper,
    /// It broke off.
    Broken(String),
}

/// One connection.
pub struct Client {
    sender: Sender,
    /// None for a neighbour on somebody else's connection.
    driver: Option<JoinHandle<()>>,
}

enum Sender {
    H1(http1::SendRequest<Full<Bytes>>),
    H2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    /// A client over `io`.
    pub async fn new(io: DuplexStream, h2: bool) -> Self {
        let io = TokioIo::new(io);
        let why = "the handshake needs no answer";
        if h2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            let (sender, connection) = builder.timer(TokioTimer::new()).handshake(io).await.expect(why);
            return Self {
                sender: Sender::H2(sender),
                driver: Some(tokio::spawn(async { drop(connection.await) })),
            };
        }
        let (sender, connection) = http1::handshake(io).await.expect(why);
        Self { sender: Sender::H1(sender), driver: Some(tokio::spawn(async { drop(connection.await) })) }
    }

    /// Another client on the same HTTP/2 connection; none over HTTP/1.1.
    #[must_use]
    pub fn neighbour(&self) -> Option<Self> {
        match &self.sender {
            Sender::H1(_) => None,
            Sender::H2(sender) => Some(Self { sender: Sender::H2(sender.clone()), driver: None }),
        }
    }

    /// Sends a request and waits for the head. `Err` if the connection ends without one.
    ///
    /// # Errors
    /// What hyper says.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
        let sent = Instant::now();
        let response = match &mut self.sender {
            Sender::H1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::H2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        Ok(Answer { sent, head_at: sent.elapsed(), response })
    }

    /// Asks `caller`'s question with these knobs of the simulated provider, and waits for the head.
    ///
    /// # Panics
    /// If the connection ends without one.
    pub async fn ask(&mut self, caller: Caller, knobs: &str, stream: bool) -> Answer {
        self.send(ask(caller, knobs, stream)).await.expect("the gateway always answers")
    }

    /// Gets a path, and the whole answer.
    ///
    /// # Panics
    /// If the connection ends without an answer.
    pub async fn get(&mut self, path: &str) -> Got {
        let request = Request::get(uri(path)).header("host", "localhost").body(Full::default());
        let answer = self.send(request.expect("the path is valid")).await;
        answer.expect("the gateway always answers").rest().await
    }

    /// Closes the connection, whatever is going on.
    pub async fn leave(self) {
        let Some(driver) = self.driver else { return };
        driver.abort();
        // Once it is joined the pipe is dropped.
        let _ = driver.await;
    }
}

/// `caller`'s question, with these knobs of the simulated provider.
///
/// # Panics
/// If the knobs are no header.
#[must_use]
pub fn ask(caller: Caller, knobs: &str, stream: bool) -> Request<Full<Bytes>> {
    let body = caller.body("sim", stream).to_string();
    Request::post(uri(caller.path()))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("x-sim", knobs)
        .body(Full::new(body.into()))
        .expect("the knobs are ASCII")
}

/// The same question as bytes on an HTTP/1.1 connection, for a client below HTTP.
#[must_use]
pub fn raw(caller: Caller, knobs: &str, stream: bool) -> Vec<u8> {
    let body = caller.body("sim", stream).to_string();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-sim: {knobs}\r\n\
         content-length: {}\r\n\r\n",
        caller.path(),
        body.len()
    );
    (head + &body).into_bytes()
}

/// HTTP/2 wants scheme and authority; HTTP/1.1 servers take both.
fn uri(path: &str) -> String {
    format!("http://localhost{path}")
}

/// An answer whose head has come.
pub struct Answer {
    sent: Instant,
    /// When the head came, from the sending on.
    pub head_at: Duration,
    response: Response<Incoming>,
}

impl Answer {
    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The value of a header, empty where there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> String {
        header(self.response.headers(), name)
    }

    /// The next bytes, and when they came; `None` at the end, a proper one or not.
    pub async fn next(&mut self) -> Option<(Duration, Bytes)> {
        loop {
            match self.response.body_mut().frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some((self.sent.elapsed(), data));
                    }
                }
                Err(_) => return None,
            }
        }
    }

    /// Everything up to the end.
    pub async fn rest(mut self) -> Got {
        let mut chunks = Vec::new();
        let end = loop {
            match self.response.body_mut().frame().await {
                None => break End::Proper,
                Some(Err(e)) => break End::Broken(e.to_string()),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        chunks.push((self.sent.elapsed(), data));
                    }
                }
            }
        };
        Got {
            status: self.status(),
            headers: self.response.headers().clone(),
            head_at: self.head_at,
            chunks,
            end,
            end_at: self.sent.elapsed(),
        }
    }
}

/// A whole answer. Times count from the sending of the request.
#[derive(Clone, Debug)]
pub struct Got {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// When the head came.
    pub head_at: Duration,
    /// What came when.
    pub chunks: Vec<(Duration, Bytes)>,
    /// How it ended.
    pub end: End,
    /// When it ended.
    pub end_at: Duration,
}

impl Got {
    /// The whole body.
    #[must_use]
    pub fn body(&self) -> Bytes {
        self.chunks.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body()).into_owned()
    }

    /// The body as JSON; null where it is not.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body()).unwrap_or(Value::Null)
    }

    /// The value of a header, empty where there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> String {
        header(&self.headers, name)
    }

    /// When the chunks came that are exactly these bytes.
    #[must_use]
    pub fn times_of(&self, bytes: &[u8]) -> Vec<Duration> {
        self.chunks.iter().filter(|(_, chunk)| *chunk == bytes).map(|(at, _)| *at).collect()
    }
}

fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map_or_else(String::new, |v| String::from_utf8_lossy(v.as_bytes()).into_owned())
}
