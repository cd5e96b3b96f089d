//! HTTP/2 toward an upstream: hyper's client, a few shared connections, one stream per request.
//!
//! Invariant: a stream that nobody reads cannot starve its neighbours: the connection's window is
//! the sum of its streams' windows, and a connection carries at most [`STREAMS_MAX`] of them.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use firsttoken_logic::time::Instant;
use http_body::Body as _;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::h1::Broken;
use super::io::Io;
use super::{Head, Request};
use crate::clock;

/// Streams per connection; more open a further connection.
const STREAMS_MAX: u32 = 100;
/// Time between pings, and for their answer: a dead connection is noticed within twice that.
const PING: Duration = Duration::from_secs(20);

/// One open connection.
struct Shared {
    sender: SendRequest<Full<Bytes>>,
    streams: Arc<AtomicU32>,
    /// When it last carried a stream, as far as was looked.
    used: Instant,
}

/// The connections to one upstream.
#[derive(Default)]
pub(crate) struct Connections(Mutex<Vec<Shared>>);

/// A place on a connection; dropping it frees the place.
pub(crate) struct Place {
    sender: SendRequest<Full<Bytes>>,
    streams: Arc<AtomicU32>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.streams.fetch_sub(1, Relaxed);
    }
}

impl Connections {
    /// A place on an open connection, if there is one.
    pub(crate) fn take(&self) -> Option<Place> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|c| !c.sender.is_closed());
        open.iter().find(|c| c.streams.load(Relaxed) < STREAMS_MAX).map(place)
    }

    /// Lets go of connections that have carried nothing for `idle_timeout`.
    pub(crate) fn sweep(&self, idle_timeout: Duration) {
        let now = clock::now();
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain_mut(|c| {
            if c.streams.load(Relaxed) > 0 {
                c.used = now;
            }
            !c.sender.is_closed() && now.since(c.used) < idle_timeout
        });
    }

    /// Starts HTTP/2 on a fresh connection and takes a place on it.
    pub(crate) async fn start(&self, io: Io, window_bytes: u32) -> hyper::Result<Place> {
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(window_bytes)
            .initial_connection_window_size(window_bytes * STREAMS_MAX)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .keep_alive_while_idle(true);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        // Ends by itself when every sender and stream is gone, or the peer closes.
        drop(tokio::spawn(connection));
        let shared = Shared { sender, streams: Arc::default(), used: clock::now() };
        let place = place(&shared);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(shared);
        Ok(place)
    }
}

fn place(c: &Shared) -> Place {
    c.streams.fetch_add(1, Relaxed);
    Place { sender: c.sender.clone(), streams: c.streams.clone() }
}

/// The body of one answer.
pub(crate) struct Stream {
    body: hyper::body::Incoming,
    _place: Place,
}

impl Stream {
    pub(crate) fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(e)) => return Poll::Ready(Some(Err(broken(&e)))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
            }
        }
    }
}

impl Place {
    /// Sends the request and waits for the head. `None` if the connection was closing and nothing of the
    /// request left.
    pub(crate) async fn exchange(
        mut self,
        scheme: &str,
        request: &Request,
    ) -> Result<Option<(Head, Stream)>, Broken> {
        let uri = format!("{scheme}://{}{}", request.authority, request.path);
        let mut message = http::Request::builder()
            .method(request.method.clone())
            .uri(uri)
            .version(http::Version::HTTP_2)
            .body(Full::new(request.body.clone()))
            .map_err(|e| Broken::Protocol(e.to_string()))?;
        for (name, value) in &request.headers {
            message.headers_mut().append(name, value.clone());
        }
        let response = match self.sender.try_send_request(message).await {
            Ok(response) => response,
            Err(mut e) => {
                return if e.take_message().is_some() { Ok(None) } else { Err(broken(e.error())) };
            }
        };
        let (parts, body) = response.into_parts();
        let head = Head { status: parts.status, headers: parts.headers, http_10: false };
        Ok(Some((head, Stream { body, _place: self })))
    }
}

fn broken(e: &hyper::Error) -> Broken {
    Broken::Io(std::io::Error::other(e.to_string()))
}
