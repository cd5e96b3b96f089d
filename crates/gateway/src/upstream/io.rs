//! What an upstream connection runs over: TCP, TLS over TCP, and to engines of this machine
//! a Unix socket or an in-memory pipe; tests use pipes too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A connected byte stream.
pub(crate) enum Io {
    /// Plain TCP.
    Tcp(TcpStream),
    /// TLS; boxed, since its state is fifty times as large.
    Tls(Box<TlsStream<TcpStream>>),
    /// A Unix socket.
    Unix(UnixStream),
    /// An in-memory pipe.
    Pipe(DuplexStream),
}

impl Io {
    /// Whether the peer has closed, or said something that nobody asked for, while the connection
    /// lay idle: exact at this moment. Of TLS also what is decrypted already and waits to be read.
    pub(crate) fn is_stale(&mut self) -> bool {
        let socket = match self {
            Self::Tcp(s) => socket2::SockRef::from(&*s),
            Self::Unix(s) => socket2::SockRef::from(&*s),
            Self::Tls(s) => {
                let mut byte = [0; 1];
                let mut context = Context::from_waker(Waker::noop());
                if Pin::new(&mut **s).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_ready() {
                    return true;
                }
                socket2::SockRef::from(s.get_ref().0)
            }
            Self::Pipe(_) => return false,
        };
        let mut byte = [std::mem::MaybeUninit::uninit(); 1];
        match socket.peek(&mut byte) {
            Err(e) => e.kind() != io::ErrorKind::WouldBlock,
            Ok(_) => true,
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_read(cx, buf),
            Self::Unix(s) => Pin::new(s).poll_read(cx, buf),
            Self::Tls(s) => Pin::new(s).poll_read(cx, buf),
            Self::Pipe(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_write(cx, buf),
            Self::Unix(s) => Pin::new(s).poll_write(cx, buf),
            Self::Tls(s) => Pin::new(s).poll_write(cx, buf),
            Self::Pipe(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_flush(cx),
            Self::Unix(s) => Pin::new(s).poll_flush(cx),
            Self::Tls(s) => Pin::new(s).poll_flush(cx),
            Self::Pipe(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_shutdown(cx),
            Self::Unix(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tls(s) => Pin::new(s).poll_shutdown(cx),
            Self::Pipe(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}
