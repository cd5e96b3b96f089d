//! A connection as its requests see it: how much the socket took, whether the peer has left, and how
//! to break it.
//!
//! hyper owns the socket, so a scripted break goes through here: the body asks for it, hyper flushes
//! what came before, and [`Wire`] answers that flush with an error, which ends the connection. A
//! reset also turns `SO_LINGER` to zero, so that the kernel says RST instead of FIN. Over a pipe,
//! which knows neither, both are an abrupt drop.
//!
//! Invariant: everything written before the break was asked for has been handed to the socket.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How a connection is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// FIN in the middle.
    Cut = 1,
    /// RST.
    Reset = 2,
}

/// What a connection and its requests share.
#[derive(Debug, Default)]
pub(crate) struct Link {
    written: Arc<AtomicU64>,
    gone: AtomicBool,
    broken: AtomicU8,
    /// The meter of the latest HTTP/1.1 request, to be stopped when the next one comes.
    running: Mutex<Option<Arc<Meter>>>,
}

impl Link {
    /// Asks for the connection to be broken at its next flush.
    pub(crate) fn break_off(&self, how: Break) {
        self.broken.store(how as u8, Relaxed);
    }

    /// Whether the connection knows that its peer has left.
    pub(crate) fn peer_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Counts the bytes of a request that starts now.
    pub(crate) fn meter(&self, http2: bool) -> Arc<Meter> {
        if http2 {
            return Arc::new(Meter::Body(AtomicU64::new(0)));
        }
        let (written, from) = (Arc::clone(&self.written), self.written.load(Relaxed));
        let meter = Arc::new(Meter::Socket { written, from, to: AtomicU64::new(u64::MAX) });
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Meter::Socket { to, .. }) = running.replace(Arc::clone(&meter)).as_deref() {
            to.store(from, Relaxed);
        }
        meter
    }
}

/// Counts the bytes of one answer.
#[derive(Debug)]
pub(crate) enum Meter {
    /// HTTP/1.1: what the socket took from `from` to `to`, or to now.
    Socket { written: Arc<AtomicU64>, from: u64, to: AtomicU64 },
    /// HTTP/2, where answers share the socket: the bytes of the body.
    Body(AtomicU64),
}

impl Meter {
    pub(crate) fn body(&self, bytes: u64) {
        if let Self::Body(count) = self {
            count.fetch_add(bytes, Relaxed);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Socket { written, from, to } => written.load(Relaxed).min(to.load(Relaxed)) - from,
            Self::Body(count) => count.load(Relaxed),
        }
    }
}

/// The socket under a [`Link`].
pub(crate) struct Wire<IO> {
    io: IO,
    link: Arc<Link>,
    /// How this kind of socket prepares for RST.
    on_reset: fn(&IO),
}

impl<IO> Wire<IO> {
    pub(crate) fn new(io: IO, link: Arc<Link>, on_reset: fn(&IO)) -> Self {
        Self { io, link, on_reset }
    }

    fn seen<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.link.gone.store(true, Relaxed);
        }
        result
    }
}

impl<IO> Drop for Wire<IO> {
    fn drop(&mut self) {
        if self.link.broken.load(Relaxed) == Break::Reset as u8 {
            (self.on_reset)(&self.io);
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Wire<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let result = std::task::ready!(Pin::new(&mut this.io).poll_read(cx, buf));
        if result.is_ok() && buf.filled().len() == before && buf.remaining() > 0 {
            this.link.gone.store(true, Relaxed);
        }
        Poll::Ready(this.seen(result))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Wire<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = std::task::ready!(Pin::new(&mut this.io).poll_write(cx, buf));
        if let Ok(bytes) = result {
            this.link.written.fetch_add(bytes as u64, Relaxed);
        }
        Poll::Ready(this.seen(result))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // hyper flushes the socket once its own buffer is empty: all that came before has been taken.
        let result = std::task::ready!(Pin::new(&mut this.io).poll_flush(cx));
        if this.link.broken.load(Relaxed) != 0 {
            return Poll::Ready(Err(io::Error::other("broken off as scripted")));
        }
        Poll::Ready(this.seen(result))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
