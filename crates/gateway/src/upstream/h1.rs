//! HTTP/1.1 toward an upstream, in the task that wants the answer.
//!
//! The relay's cost per token is what this product is judged by, and a general client puts a channel,
//! a second task and two wake-ups between socket and reader. Here the reader polls the socket itself:
//! one `recv` into a scratch buffer of the thread, one copy of the payload, nothing held between
//! reads, so an idle stream costs no buffer. Heads are parsed by `httparse`; framing by [`super::chunked`].
//!
//! Invariant: a connection goes back to the pool only after a complete answer with nothing behind it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::chunked::{Chunk, Framing};
use super::io::Io;
use super::{Head, Request};

/// Most bytes taken by one read.
const READ_BYTES: usize = 16 * 1024;
/// Largest response head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most response headers.
const HEADERS_MAX: usize = 128;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// Why an exchange broke.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection failed or ended early.
    Io(io::Error),
    /// What came is not HTTP.
    Protocol(String),
}

impl From<io::Error> for Broken {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// A connection on which one exchange runs at a time.
pub(crate) struct Connection {
    io: Io,
    framing: Framing,
    /// Read beyond the head, not decoded yet.
    ahead: BytesMut,
    keep_alive: bool,
    /// The upstream refused the request before it had all of it.
    refused_early: bool,
    /// A byte of the current request has left.
    sent: bool,
}

impl Connection {
    pub(crate) fn new(io: Io) -> Self {
        Self {
            io,
            framing: Framing::Empty,
            ahead: BytesMut::new(),
            keep_alive: true,
            refused_early: false,
            sent: false,
        }
    }

    /// Whether the peer closed while the connection lay idle.
    pub(crate) fn is_stale(&mut self) -> bool {
        self.io.is_stale()
    }

    /// Whether the answer has come to its end.
    pub(crate) fn is_done(&self) -> bool {
        self.framing.is_done()
    }

    /// Whether another request may follow: the answer is complete and nothing stands behind it.
    pub(crate) fn is_reusable(&self) -> bool {
        self.keep_alive && self.framing.is_done() && self.ahead.is_empty()
    }

    /// Sends the request and waits for the response head. An upstream that refuses early may close
    /// its reading side: what it had to say can still be read, so a failed write counts only when
    /// no head comes either. `None` if the very first write failed: nothing of the request left.
    pub(crate) async fn exchange(&mut self, request: &Request) -> Result<Option<Head>, Broken> {
        self.sent = false;
        let written = self.write_request(request).await;
        if written.is_err() && !self.sent {
            return Ok(None);
        }
        let head = self.read_head(&request.method).await;
        if written.is_err() {
            self.keep_alive = false;
        }
        match (written, head) {
            (_, Ok(head)) => Ok(Some(head)),
            (Err(e), Err(_)) => Err(e.into()),
            (Ok(()), Err(broken)) => Err(broken),
        }
    }

    async fn write_request(&mut self, request: &Request) -> io::Result<()> {
        let mut head = encode_head(request);
        let whole = head.len() + request.body.len() <= READ_BYTES;
        if whole {
            head.extend_from_slice(&request.body);
        }
        let first = self.io.write(&head).await?;
        self.sent = true;
        self.io.write_all(&head[first..]).await?;
        if !whole && !self.write_unless_refused(&request.body).await? {
            self.refused_early = true;
            return Ok(());
        }
        self.io.flush().await
    }

    /// Writes a long body, and listens while the upstream takes none of it. Says whether all was
    /// written: once an error is the answer, nobody wants the rest (RFC 9112 §9.5).
    async fn write_unless_refused(&mut self, mut body: &[u8]) -> io::Result<bool> {
        poll_fn(|cx| {
            while !body.is_empty() {
                match Pin::new(&mut self.io).poll_write(cx, body)? {
                    Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(n) => body = &body[n..],
                    Poll::Pending if self.ahead.len() >= HEAD_BYTES_MAX => return Poll::Pending,
                    Poll::Pending => {
                        let mut scratch = [0; 2048];
                        let mut read = ReadBuf::new(&mut scratch);
                        ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
                        if read.filled().is_empty() {
                            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                        }
                        self.ahead.extend_from_slice(read.filled());
                        if is_refusal(&self.ahead) {
                            return Poll::Ready(Ok(false));
                        }
                    }
                }
            }
            Poll::Ready(Ok(true))
        })
        .await
    }

    /// Waits for the response head; skips 1xx.
    async fn read_head(&mut self, method: &http::Method) -> Result<Head, Broken> {
        let mut buf = std::mem::take(&mut self.ahead);
        loop {
            while let Some((head, length)) = parse_head(&buf)? {
                let _ = buf.split_to(length);
                if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
                    continue;
                }
                self.framing = framing(method, &head)?;
                self.keep_alive = keeps_alive(&head) && !self.refused_early;
                self.ahead = buf;
                return Ok(head);
            }
            if buf.len() >= HEAD_BYTES_MAX {
                return Err(Broken::Protocol(format!("a response head of more than {HEAD_BYTES_MAX} bytes")));
            }
            buf.reserve(2048);
            if self.io.read_buf(&mut buf).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// The next payload, whatever one read brought. `None` at the end of a complete body.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if !self.ahead.is_empty() && !self.framing.is_done() {
            let mut ahead = std::mem::take(&mut self.ahead);
            let bytes = match self.framing.decode(&mut ahead) {
                Ok(decoded) => {
                    self.ahead.extend_from_slice(&ahead[decoded.taken..]);
                    Bytes::copy_from_slice(&ahead[..decoded.payload])
                }
                Err(e) => return Poll::Ready(Some(Err(Broken::Protocol(e.0.to_owned())))),
            };
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(bytes)));
            }
        }
        while !self.framing.is_done() {
            match ready!(self.poll_read(cx)) {
                Ok(Some(bytes)) if bytes.is_empty() => {}
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(None) => break,
                Err(e) => return Poll::Ready(Some(Err(e))),
            }
        }
        Poll::Ready(None)
    }

    /// One read and its decoding; `None` at an orderly end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            let read = buf.filled_mut();
            if read.is_empty() {
                self.keep_alive = false;
                return Poll::Ready(if self.framing.ends_at_close() {
                    self.framing = Framing::Empty;
                    Ok(None)
                } else {
                    Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
                });
            }
            Poll::Ready(match self.framing.decode(read) {
                Ok(decoded) => {
                    self.ahead.extend_from_slice(&read[decoded.taken..]);
                    Ok(Some(Bytes::copy_from_slice(&read[..decoded.payload])))
                }
                Err(e) => Err(Broken::Protocol(e.0.to_owned())),
            })
        })
    }
}

fn encode_head(request: &Request) -> BytesMut {
    let mut out = BytesMut::with_capacity(1024 + request.body.len().min(READ_BYTES));
    let mut put = |s: &[u8]| out.extend_from_slice(s);
    put(request.method.as_str().as_bytes());
    put(b" ");
    put(request.path.as_bytes());
    put(b" HTTP/1.1\r\nhost: ");
    put(request.authority.as_bytes());
    put(b"\r\n");
    for (name, value) in &request.headers {
        put(name.as_str().as_bytes());
        put(b": ");
        put(value.as_bytes());
        put(b"\r\n");
    }
    let may_omit = matches!(request.method, http::Method::GET | http::Method::HEAD | http::Method::OPTIONS);
    if !(request.body.is_empty() && may_omit) {
        put(b"content-length: ");
        put(request.body.len().to_string().as_bytes());
        put(b"\r\n");
    }
    put(b"\r\n");
    out
}

fn parse_head(buf: &[u8]) -> Result<Option<(Head, usize)>, Broken> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(buf) {
        Ok(httparse::Status::Complete(n)) => n,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(e) => return Err(Broken::Protocol(format!("a response head that is not HTTP/1.1 ({e})"))),
    };
    let bad = |what: &str| Broken::Protocol(format!("a response head with a bad {what}"));
    let status = StatusCode::from_u16(response.code.unwrap_or(0)).map_err(|_| bad("status"))?;
    let mut map = HeaderMap::with_capacity(response.headers.len());
    for h in response.headers.iter() {
        let name = HeaderName::from_bytes(h.name.as_bytes()).map_err(|_| bad("header name"))?;
        let value = HeaderValue::from_bytes(h.value).map_err(|_| bad("header value"))?;
        map.append(name, value);
    }
    Ok(Some((Head { status, headers: map, http_10: response.version == Some(0) }, length)))
}

/// Whether `buf` begins with the head of an error, behind any number of 1xx.
fn is_refusal(mut buf: &[u8]) -> bool {
    while let Ok(Some((head, length))) = parse_head(buf) {
        if !head.status.is_informational() {
            return head.status.as_u16() >= 300;
        }
        buf = &buf[length..];
    }
    false
}

fn framing(method: &http::Method, head: &Head) -> Result<Framing, Broken> {
    if method == http::Method::HEAD || matches!(head.status.as_u16(), 204 | 304) {
        return Ok(Framing::Empty);
    }
    if let Some(coding) = head.headers.get_all(header::TRANSFER_ENCODING).iter().next_back() {
        let chunked = coding.as_bytes().rsplit(|b| *b == b',').next().unwrap_or_default().trim_ascii();
        return if chunked.eq_ignore_ascii_case(b"chunked") {
            Ok(Framing::Chunked(Chunk::START))
        } else {
            Ok(Framing::Close)
        };
    }
    let mut lengths = head.headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(Framing::Close) };
    // Digits alone: Rust would take a sign, too.
    let digits = |s: &&str| s.bytes().all(|b| b.is_ascii_digit());
    let parsed = first.to_str().ok().map(str::trim).filter(digits).and_then(|s| s.parse().ok());
    match parsed {
        Some(n) if lengths.all(|other| other == first) => Ok(Framing::Length(n)),
        _ => Err(Broken::Protocol("a response with contradicting content-length".to_owned())),
    }
}

fn keeps_alive(head: &Head) -> bool {
    let mut says = head.headers.get_all(header::CONNECTION).iter().filter_map(|v| v.to_str().ok());
    let has = |word: &str, v: &str| v.split(',').any(|t| t.trim().eq_ignore_ascii_case(word));
    if head.http_10 { says.any(|v| has("keep-alive", v)) } else { !says.any(|v| has("close", v)) }
}
