//! A provider, or a server of our own, over HTTP: its connections, and one exchange on one of them.
//!
//! Connections belong to the event loop that opened them, so a pool belongs to one worker thread.
//!
//! Invariant: a pooled connection is used only if the peer has kept it open up to that moment; a
//! request is never sent twice once a byte of it has left.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use firsttoken_logic::clocks::Clock;
use firsttoken_logic::failure::{Failure, Kind, Reached};

use super::dial::{Dialer, Network};
use super::h1::{Broken, Connection};
use super::{Answer, Answering, Attempt, Request, Source, Upstream, h2};
use crate::clock;
use crate::config::UpstreamConfig;
use crate::evidence::Phase;

/// Idle connections kept per upstream and worker.
const IDLE_MAX: usize = 1024;
/// How long an idle connection is kept: below the 60 s after which common servers close theirs.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// An upstream reached over the network.
pub(crate) struct Remote {
    config: Arc<UpstreamConfig>,
    dialer: Dialer,
    idle: Arc<Idle>,
    h2: h2::Connections,
    h2_window_bytes: u32,
    /// Whether it was seen to speak HTTP/2, or is configured to.
    speaks_h2: AtomicBool,
    /// Held while dialling an upstream that is known to speak HTTP/2, so that a burst opens one connection.
    dialing_h2: tokio::sync::Mutex<()>,
}

impl Remote {
    /// `buffer_bytes` bounds what the kernel (HTTP/1.1) or the peer (HTTP/2) may send ahead of the reader.
    pub(crate) fn new(config: Arc<UpstreamConfig>, network: Network, buffer_bytes: usize) -> Self {
        Self {
            dialer: Dialer::new(config.clone(), network, buffer_bytes),
            speaks_h2: AtomicBool::new(config.h2c),
            config,
            idle: Arc::default(),
            h2: h2::Connections::default(),
            h2_window_bytes: u32::try_from(buffer_bytes).unwrap_or(u32::MAX).max(65_535),
            dialing_h2: tokio::sync::Mutex::default(),
        }
    }

    /// Closes connections that have lain idle for too long, or that the peer has closed.
    pub(crate) fn sweep(&self) {
        self.idle.sweep();
        self.h2.sweep(IDLE_TIMEOUT);
    }

    async fn open(&self, attempt: &mut Attempt) -> Result<Opened, Failure> {
        attempt.stamps.enter(Phase::Connect);
        if let Some(connection) = self.idle.take() {
            attempt.stamps.reused = true;
            return Ok(Opened::H1(connection));
        }
        if let Some(place) = self.h2.take() {
            attempt.stamps.reused = true;
            return Ok(Opened::H2(place));
        }
        let now = clock::now();
        attempt.clocks.on_dial(now);
        let dialing = async {
            let _one_at_a_time =
                if self.speaks_h2.load(Relaxed) { Some(self.dialing_h2.lock().await) } else { None };
            if let Some(place) = self.h2.take() {
                return Ok(Opened::H2(place));
            }
            let dialed = self.dialer.dial().await?;
            self.speaks_h2.store(dialed.is_h2, Relaxed);
            if !dialed.is_h2 {
                return Ok(Opened::H1(Connection::new(dialed.io)));
            }
            let place = self.h2.start(dialed.io, self.h2_window_bytes).await;
            place.map(Opened::H2).map_err(|e| Failure::new(Kind::Protocol, Reached::Nothing, e.to_string()))
        };
        within(attempt.clocks.deadline(), Reached::Nothing, dialing).await?
    }

    /// A connection that turns out to be closed before a byte of the request has left costs nothing: the
    /// next one is tried, as long as they come from the pool. A fresh one is the last.
    async fn exchange(&self, request: &Request, attempt: &mut Attempt) -> Result<Answer, Failure> {
        loop {
            let opened = self.open(attempt).await?;
            let fresh = !attempt.stamps.reused;
            attempt.stamps.enter(Phase::Provider);
            attempt.clocks.on_sent(clock::now());
            let sent =
                within(attempt.clocks.deadline(), Reached::Sent, self.send_on(opened, request)).await?;
            match sent.map_err(|broken| before_head(&self.config, broken))? {
                Some(answer) => {
                    let now = clock::now();
                    attempt.clocks.on_head(now);
                    attempt.stamps.headers = Some(now);
                    return Ok(answer);
                }
                None if fresh => {
                    let detail =
                        format!("{} closed the connection before the request was sent", self.config.name);
                    return Err(Failure::new(Kind::Closed, Reached::Nothing, detail));
                }
                None => attempt.stamps.reused = false,
            }
        }
    }

    /// Sends the request; `None` if nothing of it left.
    async fn send_on(&self, opened: Opened, request: &Request) -> Result<Option<Answer>, Broken> {
        match opened {
            Opened::H1(mut connection) => Ok(connection.exchange(request).await?.map(|head| {
                let lease = Lease { connection: Some(connection), idle: self.idle.clone() };
                Answer { head, source: Source::H1(lease) }
            })),
            Opened::H2(place) => {
                let scheme = self.config.base_url.scheme_str().unwrap_or("http");
                let answered = place.exchange(scheme, request).await?;
                Ok(answered.map(|(head, stream)| Answer { head, source: Source::H2(stream) }))
            }
        }
    }
}

impl Upstream for Remote {
    fn send<'a>(&'a self, request: &'a Request, attempt: &'a mut Attempt) -> Answering<'a> {
        Box::pin(self.exchange(request, attempt))
    }
}

enum Opened {
    H1(Connection),
    H2(h2::Place),
}

/// Runs `future` until the clock that is due first runs out.
async fn within<T>(
    deadline: Option<(firsttoken_logic::time::Instant, Clock)>,
    reached: Reached,
    future: impl Future<Output = T>,
) -> Result<T, Failure> {
    let Some((at, clock)) = deadline else { return Ok(future.await) };
    let result = tokio::time::timeout_at(clock::to_tokio(at), future).await;
    result.map_err(|_| Failure::new(Kind::Timeout(clock), reached, ""))
}

fn before_head(config: &UpstreamConfig, broken: Broken) -> Failure {
    let (kind, detail) = match broken {
        Broken::Io(e) => {
            (Kind::Closed, format!("{} closed the connection without an answer ({e})", config.name))
        }
        Broken::Protocol(what) => (Kind::Protocol, format!("{} sent {what}", config.name)),
    };
    Failure::new(kind, Reached::Sent, detail)
}

/// Connections that wait for their next request; the one used last is taken first.
#[derive(Default)]
pub(crate) struct Idle(Mutex<VecDeque<(Connection, firsttoken_logic::time::Instant)>>);

impl Idle {
    fn take(&self) -> Option<Connection> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((mut connection, _)) = idle.pop_back() {
            if !connection.is_stale() {
                return Some(connection);
            }
        }
        None
    }

    fn put(&self, connection: Connection) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push_back((connection, clock::now()));
        }
    }

    fn sweep(&self) {
        let now = clock::now();
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain_mut(|(connection, since)| now.since(*since) < IDLE_TIMEOUT && !connection.is_stale());
        if idle.is_empty() {
            idle.shrink_to_fit();
        }
    }
}

/// A connection in use. After a complete answer it goes back; dropped earlier, it is closed, which is
/// how the upstream learns that nobody wants the rest.
pub(crate) struct Lease {
    connection: Option<Connection>,
    idle: Arc<Idle>,
}

impl Lease {
    pub(crate) fn is_over(&self) -> bool {
        self.connection.as_ref().is_none_or(Connection::is_done)
    }

    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
        let data = ready!(connection.poll_data(cx));
        if data.is_none()
            && let Some(connection) = self.connection.take()
            && connection.is_reusable()
        {
            self.idle.put(connection);
        }
        Poll::Ready(data)
    }
}
