//! The client's side of a connection: that bytes were written, whether it still reads, and the cut.
//!
//! [`ClientIo`] wraps the accepted socket. It tells each [`Delivery`] when bytes go to the kernel, and ends the connection when written
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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::front::delivery::Delivery;
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
    /// Of the answer that an HTTP/1.1 connection is giving.
    delivery: Arc<Delivery>,
    /// Of the answers of an HTTP/2 connection that go out with the next write, and whether there are any.
    next_write: Mutex<Vec<Arc<Delivery>>>,
    is_awaited: AtomicBool,
    stalled: AtomicBool,
    drain: AtomicU8,
    /// Counts how often a task of this connection was woken; see [`Self::round`].
    round: AtomicU64,
    waker: Mutex<Option<Waker>>,
    streams: Mutex<Streams>,
}

/// The tasks of an HTTP/2 connection's streams.
#[derive(Default)]
struct Streams {
    next: u64,
    wakers: Vec<(u64, Waker)>,
}

impl ClientState {
    /// A request has come; its answer is stamped here.
    pub(crate) fn begin_request(&self) -> Arc<Delivery> {
        let delivery = streams::delivery().unwrap_or_else(|| self.delivery.clone());
        delivery.begin();
        delivery
    }

    /// A frame of an HTTP/2 answer goes out with the next write.
    pub(crate) fn await_write(&self, delivery: Arc<Delivery>) {
        self.next_write.lock().unwrap_or_else(PoisonError::into_inner).push(delivery);
        self.is_awaited.store(true, Relaxed);
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

    /// A task of this connection was woken and is about to be polled.
    pub(crate) fn begin_round(&self) {
        self.round.store(self.round.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// As long as this is the same, whatever was pending still is, and will wake the task: hyper asks a
    /// body for more up to three times each time it is woken.
    pub(crate) fn round(&self) -> u64 {
        self.round.load(Relaxed)
    }

    fn on_written(&self) {
        self.delivery.on_written();
        if self.is_awaited.load(Relaxed) {
            self.is_awaited.store(false, Relaxed);
            let written =
                std::mem::take(&mut *self.next_write.lock().unwrap_or_else(PoisonError::into_inner));
            written.iter().for_each(|delivery| delivery.on_written());
        }
    }
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
