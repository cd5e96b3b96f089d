//! The client's side of a connection: what was written when, whether it still reads, and the cut.
//!
//! [`ClientIo`] wraps the accepted socket. It stamps the first byte and the first content as they are
//! handed to the kernel, which is what *delivered* means here, and ends the connection when written
//! bytes have not moved for too long. It knows nothing of HTTP; [`ClientState`] is what it shares with
//! the bodies that are written through it.
//!
//! Invariant: a client that does not read holds at most the stream's byte bound, for at most
//! `client_stall`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use firsttoken_logic::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::clock;
use crate::evidence::Finished;
use crate::front::streams;

/// How far the shutdown of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Drain {
    /// Not at all.
    No = 0,
    /// The current request is the last one.
    LastRequest = 1,
    /// Time is up: what runs ends with an error.
    Now = 2,
}

/// What a connection and the responses on it tell each other.
#[derive(Default)]
pub(crate) struct ClientState {
    /// Bytes will be written that begin the response: stamp them.
    watch_first_byte: AtomicBool,
    /// Bytes will be written that hold the first content: stamp them.
    watch_first_content: AtomicBool,
    first_byte_ns: AtomicU64,
    first_content_ns: AtomicU64,
    stalled: AtomicBool,
    drain: AtomicU8,
    waker: Mutex<Option<Waker>>,
    streams: Mutex<Streams>,
    /// A request that is over, but for the writing of its first content.
    unwritten: Mutex<Option<Box<Finished>>>,
}

/// The tasks of an HTTP/2 connection's streams.
#[derive(Default)]
struct Streams {
    next: u64,
    wakers: Vec<(u64, Waker)>,
}

impl ClientState {
    pub(crate) fn begin_request(&self) {
        drop(self.unwritten());
        self.first_byte_ns.store(0, Relaxed);
        self.first_content_ns.store(0, Relaxed);
        self.watch_first_content.store(false, Relaxed);
        self.watch_first_byte.store(true, Relaxed);
    }

    /// What is written next holds the first content.
    pub(crate) fn watch_first_content(&self) {
        self.watch_first_content.store(true, Relaxed);
    }

    /// Keeps a finished request until its first content is written, or never will be.
    pub(crate) fn park(&self, finished: Box<Finished>) {
        *self.unwritten.lock().unwrap_or_else(PoisonError::into_inner) = Some(finished);
    }

    fn unwritten(&self) -> Option<Box<Finished>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn first_byte_written(&self) -> Option<Instant> {
        stamp(&self.first_byte_ns)
    }

    pub(crate) fn first_content_written(&self) -> Option<Instant> {
        stamp(&self.first_content_ns)
    }

    /// Why we cut the connection, if we did.
    pub(crate) fn cut_reason(&self) -> Option<&'static str> {
        if self.stalled.load(Relaxed) || streams::is_stalled() {
            Some("client_stalled")
        } else if self.drain() == Drain::Now {
            Some("draining")
        } else {
            None
        }
    }

    pub(crate) fn drain(&self) -> Drain {
        match self.drain.load(Relaxed) {
            0 => Drain::No,
            1 => Drain::LastRequest,
            _ => Drain::Now,
        }
    }

    /// Moves the shutdown on and wakes the connection to see it.
    pub(crate) fn set_drain(&self, drain: Drain) {
        self.drain.fetch_max(drain as u8, Relaxed);
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
        for (_, waker) in &self.streams().wakers {
            waker.wake_by_ref();
        }
    }

    /// Whom [`Self::set_drain`] wakes, too: a stream's task, in place of `old`. Returns its number.
    pub(crate) fn register_stream(&self, old: Option<u64>, waker: &Waker) -> u64 {
        let mut streams = self.streams();
        streams.wakers.retain(|(id, _)| Some(*id) != old);
        streams.next += 1;
        let id = streams.next;
        streams.wakers.push((id, waker.clone()));
        id
    }

    /// The stream's task has ended.
    pub(crate) fn forget_stream(&self, id: u64) {
        self.streams().wakers.retain(|(other, _)| *other != id);
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a shutdown to begin.
    pub(crate) async fn draining(&self) {
        std::future::poll_fn(|cx| {
            self.register(cx.waker());
            if self.drain() == Drain::No { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Whom [`Self::set_drain`] wakes.
    pub(crate) fn register(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    fn on_written(&self) {
        if self.watch_first_byte.load(Relaxed) {
            self.watch_first_byte.store(false, Relaxed);
            self.first_byte_ns.store(clock::now().ns(), Relaxed);
        }
        if self.watch_first_content.load(Relaxed) {
            self.watch_first_content.store(false, Relaxed);
            let now = clock::now();
            self.first_content_ns.store(now.ns(), Relaxed);
            if let Some(finished) = self.unwritten() {
                finished.on_written(now);
            }
        }
    }
}

fn stamp(ns: &AtomicU64) -> Option<Instant> {
    Some(ns.load(Relaxed)).filter(|ns| *ns > 0).map(Instant::from_ns)
}

/// An accepted connection.
pub(crate) struct ClientIo<S> {
    socket: S,
    state: Arc<ClientState>,
    client_stall: Duration,
    /// Armed while the client takes nothing.
    blocked: Option<Pin<Box<Sleep>>>,
    /// Read already, to find out what the client speaks.
    ahead: Bytes,
}

impl<S> ClientIo<S> {
    /// `ahead` is what was read of `socket` before.
    pub(crate) fn new(socket: S, state: Arc<ClientState>, client_stall: Duration, ahead: Bytes) -> Self {
        Self { socket, state, client_stall, blocked: None, ahead }
    }

    fn on_write(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Ready(Ok(_)) => {
                self.blocked = None;
                self.state.on_written();
                result
            }
            Poll::Ready(Err(_)) => result,
            Poll::Pending => {
                let client_stall = self.client_stall;
                let sleep = self.blocked.get_or_insert_with(|| Box::pin(tokio::time::sleep(client_stall)));
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.state.stalled.store(true, Relaxed);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let n = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(n));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.on_write(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.on_write(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
