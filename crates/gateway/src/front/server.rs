//! Sockets, threads, and the shutdown.
//!
//! One event loop per core, each with its own upstream connections; all accept from one listener, so
//! a loop that is busy simply accepts less. A connection lives and dies on the loop that accepted it.
//!
//! Shutdown: readiness first, so that load balancers look away; then the listener; every connection
//! ends after its current request; what is left when patience ends gets an error in its dialect.
//!
//! Invariant: `connections_max` connections at most; one more is told so and closed.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::config::Config;
use crate::evidence::canary;
use crate::front::body::Body;
use crate::front::client::{ClientIo, ClientState, Drain};
use crate::front::service::{self, Peer};
use crate::front::streams::Streams;
use crate::gateway::{Bounds, Shared, Worker};
use crate::upstream::Network;

/// Connections waiting to be accepted.
const BACKLOG: i32 = 4096;
/// How long an idle connection is kept, and how long a head may take to come: above the 60 s after
/// which common load balancers drop theirs, so that they never send into a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// How often idle upstream connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long the last error events may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What an HTTP/2 client says first (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Opens a listening socket with room for a burst.
///
/// # Errors
/// Whatever the system says: the address is in use, or not ours.
pub fn listen(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(addr), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The gateway, configured and ready to serve.
pub struct Gateway {
    shared: Arc<Shared>,
    network: Network,
}

impl Gateway {
    /// A gateway for this configuration.
    #[must_use]
    pub fn new(config: Config, network: Network) -> Self {
        Self { shared: Shared::new(config), network }
    }

    /// Serves on `listener` until `stop` says so and everything has drained. Blocks. Takes the listener,
    /// so that nobody is left holding it open when the drain closes it.
    ///
    /// # Errors
    /// If a thread or an event loop cannot be had.
    pub fn serve(self, listener: std::net::TcpListener, stop: &Stopping) -> io::Result<()> {
        self.shared.evidence.start_clerk()?;
        let mut threads = Vec::new();
        for index in 0..self.shared.loaded().config.threads.max(1) {
            let (shared, network) = (self.shared.clone(), self.network.clone());
            let (listener, stop) = (listener.try_clone()?, stop.0.clone());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let serving = move || {
                runtime.block_on(async move { EventLoop::new(shared, &network).run(listener, stop).await })
            };
            threads.push(std::thread::Builder::new().name(format!("loop-{index}")).spawn(serving)?);
        }
        drop(listener);
        self.shared.ready.store(true, Relaxed);
        for thread in threads {
            match thread.join() {
                Ok(served) => served?,
                Err(_) => return Err(io::Error::other("an event loop panicked")),
            }
        }
        self.shared.evidence.file();
        Ok(())
    }

    /// Replaces the configuration while it serves.
    #[must_use]
    pub fn reload(&self) -> Reload {
        Reload(self.shared.clone())
    }

    /// Serves connections that the caller brings, on the caller's event loop: tests over pipes.
    #[must_use]
    pub fn on_this_loop(&self) -> EventLoop {
        self.shared.ready.store(true, Relaxed);
        EventLoop::new(self.shared.clone(), &self.network)
    }
}

/// Replaces the configuration of a gateway that runs.
#[derive(Clone)]
pub struct Reload(Arc<Shared>);

impl Reload {
    /// Requests that begin from now on go by `config`; what runs goes on as it began, and so do
    /// connections to upstreams that are configured as before. Returns the keys that were changed and
    /// only count after a restart.
    ///
    /// # Errors
    /// If it cannot hold for the address that is listened on: without keys that must be this machine's.
    pub fn apply(&self, config: Config) -> Result<Vec<&'static str>, String> {
        let before = self.0.loaded();
        let (old, new) = (&before.config, &config);
        let changed = [
            ("listen", old.listen != new.listen),
            ("threads", old.threads != new.threads),
            ("engines", old.engines != new.engines),
            ("limits.timelines_max", old.limits.timelines_max != new.limits.timelines_max),
        ];
        let late = changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect();
        let config = config.listen_on(old.listen).map_err(|e| e.to_string())?;
        self.0.replace(config);
        Ok(late)
    }
}

/// Begins a shutdown.
pub struct Stop(watch::Sender<Option<Duration>>);

/// Waits for a shutdown.
#[derive(Clone)]
pub struct Stopping(watch::Receiver<Option<Duration>>);

/// The two ends of a shutdown.
#[must_use]
pub fn stop() -> (Stop, Stopping) {
    let (sender, receiver) = watch::channel(None);
    (Stop(sender), Stopping(receiver))
}

impl Stop {
    /// Readiness goes at once; the listener after `notice`, so that whoever watches readiness can look away.
    pub fn begin(&self, notice: Duration) {
        self.0.send_replace(Some(notice));
    }
}

/// One event loop's share of the gateway.
pub struct EventLoop {
    worker: Arc<Worker>,
    connections: Arc<Mutex<HashMap<u64, Arc<ClientState>>>>,
    next: u64,
}

impl EventLoop {
    fn new(shared: Arc<Shared>, network: &Network) -> Self {
        Self { worker: Worker::new(shared, network), connections: Arc::default(), next: 0 }
    }

    async fn run(
        mut self,
        listener: std::net::TcpListener,
        mut stop: watch::Receiver<Option<Duration>>,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        let shared = self.worker.shared.clone();
        let worker = self.worker.clone();
        drop(tokio::spawn(canary::watch(shared.clone())));
        drop(tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                worker.sweep();
            }
        }));
        let stopping = async {
            let notice = stop.wait_for(Option::is_some).await.map_or(None, |n| *n);
            shared.ready.store(false, Relaxed);
            tokio::time::sleep(notice.unwrap_or_default()).await;
        };
        tokio::select! {
            () = stopping => {}
            () = self.accept(&listener) => {}
        }
        drop(listener);
        self.drain(shared.loaded().config.drain).await;
        Ok(())
    }

    async fn accept(&mut self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((socket, addr)) => self.accepted(socket, addr),
                // Out of descriptors, most likely: others will be freed, spinning frees none.
                Err(e) => {
                    tracing::warn!(error = %e, "cannot accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn accepted(&mut self, socket: TcpStream, addr: SocketAddr) {
        let shared = &self.worker.shared;
        let limits = &shared.loaded().config.limits;
        // A socket that is gone already says so when it is used.
        let _ = socket.set_nodelay(true);
        let _ = socket2::SockRef::from(&socket)
            .set_send_buffer_size(Bounds::of(limits.stream_bytes_max).client_socket);
        let open = shared.evidence.metrics.connections.get();
        if usize::try_from(open).unwrap_or(0) >= limits.connections_max {
            shared.evidence.metrics.connections_refused.inc();
            let said = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = socket.try_write(said);
            return;
        }
        let serving = self.register(addr);
        drop(tokio::spawn(serve_socket(serving, socket)));
    }

    /// Serves one connection over `io`, `is_h2` by prior knowledge, to its end.
    pub async fn serve_connection(
        &mut self,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        addr: SocketAddr,
        is_h2: bool,
    ) {
        self.register(addr).run(io, is_h2, Bytes::new()).await;
    }

    fn register(&mut self, addr: SocketAddr) -> Serving {
        let peer = Peer { addr: addr.ip(), state: Arc::default() };
        let id = self.next;
        self.next += 1;
        self.worker.shared.evidence.metrics.connections.inc();
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).insert(id, peer.state.clone());
        Serving { worker: self.worker.clone(), connections: self.connections.clone(), id, peer }
    }

    async fn drain(&self, patience: Duration) {
        self.tell(Drain::LastRequest);
        let deadline = tokio::time::Instant::now() + patience;
        while self.is_busy() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.tell(Drain::Now);
        let deadline = tokio::time::Instant::now() + LAST_WORDS;
        while self.is_busy() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn tell(&self, drain: Drain) {
        for state in self.connections.lock().unwrap_or_else(PoisonError::into_inner).values() {
            state.set_drain(drain);
        }
    }

    fn is_busy(&self) -> bool {
        !self.connections.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// What the first bytes say the client speaks, and these bytes; none if it left first.
async fn speaks(socket: &mut TcpStream) -> (bool, Bytes) {
    let mut seen = [0; PREFACE.len()];
    let mut length = 0;
    while length < PREFACE.len() && PREFACE.starts_with(&seen[..length]) {
        match socket.read(&mut seen[length..]).await {
            Ok(n) if n > 0 => length += n,
            _ => break,
        }
    }
    (seen == *PREFACE, Bytes::copy_from_slice(&seen[..length]))
}

async fn serve_socket(serving: Serving, mut socket: TcpStream) {
    let state = serving.peer.state.clone();
    let spoke = tokio::select! {
        biased;
        spoke = tokio::time::timeout(IDLE_TIMEOUT, speaks(&mut socket)) => spoke.ok(),
        // Who has not even begun a request is not waited for.
        () = state.draining() => None,
    };
    match spoke {
        Some((is_h2, ahead)) if !ahead.is_empty() => serving.run(socket, is_h2, ahead).await,
        _ => {}
    }
}

/// One connection being served; dropping it takes it off the books.
struct Serving {
    worker: Arc<Worker>,
    connections: Arc<Mutex<HashMap<u64, Arc<ClientState>>>>,
    id: u64,
    peer: Peer,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.worker.shared.evidence.metrics.connections.dec();
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, io::Error>> + Send>>;

impl Serving {
    fn run(
        self,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        is_h2: bool,
        ahead: Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let limits = self.worker.setup().config().limits.clone();
            let bounds = Bounds::of(limits.stream_bytes_max);
            let state = self.peer.state.clone();
            let io = TokioIo::new(ClientIo::new(io, state.clone(), limits.client_stall, ahead));
            let (worker, peer) = (self.worker.clone(), self.peer.clone());
            // Boxed: hyper keeps room for the future as long as the connection lives.
            let service = service_fn(move |request: Request<Incoming>| -> Answering {
                let (setup, peer) = (worker.setup(), peer.clone());
                // Called in there, not out here: a future that is moved into another takes its room twice.
                Box::pin(async move { Ok(service::handle(setup, peer, request).await) })
            });
            // What ends a connection with an error is the client's leaving or our cut; both are on record.
            if is_h2 {
                let streams = Streams::new(state.clone(), limits.client_stall);
                let mut builder = hyper::server::conn::http2::Builder::new(streams);
                builder
                    .timer(TokioTimer::new())
                    .max_send_buf_size(bounds.write_buffer)
                    .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
                    .keep_alive_interval(IDLE_TIMEOUT / 2);
                // Boxed: it is twice as large as the other kind, which would have to keep room for it.
                let mut connection = Box::pin(builder.serve_connection(io, service));
                let _ = Driven { connection: connection.as_mut(), state, seen: None }.await;
            } else {
                let mut builder = hyper::server::conn::http1::Builder::new();
                builder
                    .timer(TokioTimer::new())
                    .header_read_timeout(IDLE_TIMEOUT)
                    // Tokens are small: to copy them together costs less than a vectored write of their parts.
                    .writev(false)
                    // One bound for what is written and for a head: hyper knows no other.
                    .max_buf_size(bounds.write_buffer.max(limits.header_bytes_max))
                    .max_header_size(limits.header_bytes_max);
                let connection = std::pin::pin!(builder.serve_connection(io, service));
                let _ = Driven { connection, state, seen: None }.await;
            }
        })
    }
}

/// A connection that can be told to end after its current request.
trait Graceful: Future {
    fn shut(self: Pin<&mut Self>);
}

impl<I, S> Graceful for hyper::server::conn::http1::Connection<I, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = Body>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    fn shut(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S, E> Graceful for hyper::server::conn::http2::Connection<I, S, E>
where
    S: hyper::service::HttpService<Incoming, ResBody = Body>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, Body>,
{
    fn shut(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Drives a connection to its end; passes a shutdown on when it comes.
struct Driven<'a, C> {
    connection: Pin<&'a mut C>,
    state: Arc<ClientState>,
    seen: Option<Drain>,
}

impl<C: Graceful> Future for Driven<'_, C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        self.state.begin_round();
        if self.seen != Some(self.state.drain()) {
            self.state.register(cx.waker());
            self.seen = Some(self.state.drain());
            if self.seen > Some(Drain::No) {
                self.connection.as_mut().shut();
            }
        }
        self.connection.as_mut().poll(cx)
    }
}
