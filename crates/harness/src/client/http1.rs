//! HTTP/1.1 as far as a load client needs it: write a request, read its response piece by piece.
//!
//! [`Reader`] is pure: bytes in, body pieces out. [`Conn`] is the socket, read into one buffer per
//! thread, so that thousands of open streams cost no memory here.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

use crate::clock::now_ns;

/// Longest response head, bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most header lines of a response.
const HEADERS_MAX: usize = 64;
/// One read, bytes.
const READ_BYTES_MAX: usize = 256 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES_MAX]);
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Conn {
    socket: TcpStream,
}

/// How a response stands after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More is to come.
    Open,
    /// Complete, and the connection can carry another request.
    Complete,
    /// Complete, and the connection is over.
    CompleteAndClosed,
}

impl Conn {
    /// Dials. `receive_buffer_bytes` replaces the kernel's own (it has to be set before the handshake).
    pub(crate) async fn open(addr: SocketAddr, receive_buffer_bytes: Option<usize>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(bytes) = receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        let socket = TcpSocket::from_std_stream(socket.into()).connect(addr).await?;
        Ok(Self { socket })
    }

    /// Writes a whole request.
    pub(crate) async fn write(&mut self, request: &[u8]) -> io::Result<()> {
        self.socket.write_all(request).await
    }

    /// One read: hands each piece of body to `piece` with the time at which the read returned, ns.
    pub(crate) async fn read(
        &mut self,
        reader: &mut Reader,
        mut piece: impl FnMut(u64, &[u8]),
    ) -> io::Result<Progress> {
        poll_fn(|cx| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                match Pin::new(&mut self.socket).poll_read(cx, &mut buffer) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
                    Poll::Ready(Ok(())) if buffer.filled().is_empty() => Poll::Ready(reader.end()),
                    Poll::Ready(Ok(())) => {
                        let ns = now_ns();
                        Poll::Ready(reader.feed(buffer.filled(), |bytes| piece(ns, bytes)))
                    }
                }
            })
        })
        .await
    }

    /// Sends FIN, and goes on reading until the peer closes too.
    pub(crate) async fn half_close(&mut self) -> io::Result<()> {
        self.socket.shutdown().await
    }

    /// Reads and forgets until the peer closes.
    pub(crate) async fn discard(&mut self) {
        let one = |socket: &mut TcpStream, cx: &mut std::task::Context<'_>| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                Pin::new(socket).poll_read(cx, &mut buffer).map_ok(|()| buffer.filled().len())
            })
        };
        while let Ok(1..) = poll_fn(|cx| one(&mut self.socket, cx)).await {}
    }

    /// Closes with an empty receive buffer, so that the kernel sends FIN and not RST.
    pub(crate) fn close(self) {
        SCRATCH.with_borrow_mut(|scratch| while let Ok(1..) = self.socket.try_read(scratch) {});
    }
}

/// Reads one response.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    state: State,
    head: Vec<u8>,
    status: u16,
    retry_after: Option<u64>,
    close: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Head,
    /// Body bytes left.
    Length(u64),
    /// In the line that says how long the next chunk is.
    ChunkSize {
        size: u64,
        digits_over: bool,
    },
    /// Chunk bytes left.
    Chunk(u64),
    /// The line end after a chunk: bytes left of it.
    ChunkEnd(u8),
    /// After the last chunk, bytes so far in this line.
    Trailer(u32),
    UntilClose,
    Over,
}

impl Reader {
    /// Status of the response; 0 before its head is complete.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// When one may come again, s, if the response says so.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Takes what was read.
    ///
    /// # Errors
    /// When it is not HTTP, or goes on after its end.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut piece: impl FnMut(&[u8])) -> io::Result<Progress> {
        while !bytes.is_empty() {
            let used = self.step(bytes, &mut piece)?;
            bytes = &bytes[used..];
        }
        Ok(match (matches!(self.state, State::Over), self.close) {
            (false, _) => Progress::Open,
            (true, false) => Progress::Complete,
            (true, true) => Progress::CompleteAndClosed,
        })
    }

    /// The peer closed.
    ///
    /// # Errors
    /// When the response was not complete.
    pub(crate) fn end(&mut self) -> io::Result<Progress> {
        match self.state {
            State::UntilClose | State::Over => Ok(Progress::CompleteAndClosed),
            State::Head => Err(io::Error::other("closed before the head")),
            State::Length(_)
            | State::ChunkSize { .. }
            | State::Chunk(_)
            | State::ChunkEnd(_)
            | State::Trailer(_) => Err(io::Error::other("closed in the middle of the body")),
        }
    }

    fn step(&mut self, bytes: &[u8], piece: &mut impl FnMut(&[u8])) -> io::Result<usize> {
        match self.state {
            State::Head => return self.head(bytes),
            State::Length(left) => {
                let used = take(left, bytes);
                piece(&bytes[..used]);
                let left = left - used as u64;
                self.state = if left == 0 { State::Over } else { State::Length(left) };
                return Ok(used);
            }
            State::Chunk(left) => {
                let used = take(left, bytes);
                piece(&bytes[..used]);
                let left = left - used as u64;
                self.state = if left == 0 { State::ChunkEnd(2) } else { State::Chunk(left) };
                return Ok(used);
            }
            State::UntilClose => {
                piece(bytes);
                return Ok(bytes.len());
            }
            State::ChunkSize { size, digits_over } => self.state = chunk_size(bytes[0], size, digits_over)?,
            State::ChunkEnd(2) => self.state = State::ChunkEnd(1),
            State::ChunkEnd(_) => self.state = State::ChunkSize { size: 0, digits_over: false },
            State::Trailer(0) if bytes[0] == b'\n' => self.state = State::Over,
            State::Trailer(n) => {
                self.state = State::Trailer(match bytes[0] {
                    b'\r' => n,
                    b'\n' => 0,
                    _ => n.saturating_add(1),
                });
            }
            State::Over => return Err(io::Error::other("bytes after the end of the response")),
        }
        Ok(1)
    }

    /// Collects the head; how many of the bytes belong to it.
    fn head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let from = before.saturating_sub(3);
        let Some(at) = memchr::memmem::find(&self.head[from..], b"\r\n\r\n") else {
            if self.head.len() > HEAD_BYTES_MAX {
                return Err(io::Error::other("the head has no end"));
            }
            return Ok(bytes.len());
        };
        let end = from + at + 4;
        let head = std::mem::take(&mut self.head);
        self.parse(&head[..end])?;
        Ok(end - before)
    }

    fn parse(&mut self, head: &[u8]) -> io::Result<()> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        response.parse(head).map_err(|e| io::Error::other(format!("head: {e}")))?;
        self.status = response.code.unwrap_or(0);
        if (100..200).contains(&self.status) {
            return Ok(());
        }
        let value = |name: &str| {
            let header = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(header.value).ok()
        };
        let has = |name: &str, word: &str| value(name).is_some_and(|v| v.to_ascii_lowercase().contains(word));
        self.close = has("connection", "close");
        self.retry_after = value("retry-after").and_then(|seconds| seconds.trim().parse().ok());
        self.state = if has("transfer-encoding", "chunked") {
            State::ChunkSize { size: 0, digits_over: false }
        } else if let Some(length) = value("content-length") {
            match length.parse().map_err(|e| io::Error::other(format!("content-length {length}: {e}")))? {
                0 => State::Over,
                n => State::Length(n),
            }
        } else {
            self.close = true;
            State::UntilClose
        };
        Ok(())
    }
}

/// How many of the bytes belong to a part that has `left` to come.
fn take(left: u64, bytes: &[u8]) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len())
}

/// One byte of a chunk's size line.
fn chunk_size(byte: u8, size: u64, digits_over: bool) -> io::Result<State> {
    let digit = char::from(byte).to_digit(16);
    match (byte, digit) {
        (b'\n', _) if size == 0 => Ok(State::Trailer(0)),
        (b'\n', _) => Ok(State::Chunk(size)),
        (_, Some(d)) if !digits_over && size < 1 << 56 => {
            Ok(State::ChunkSize { size: size * 16 + u64::from(d), digits_over })
        }
        (b'\r' | b';' | b' ', _) => Ok(State::ChunkSize { size, digits_over: true }),
        _ if digits_over => Ok(State::ChunkSize { size, digits_over }),
        _ => Err(io::Error::other(format!("chunk size: byte {byte:#04x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> io::Result<(Vec<u8>, u16, Progress)> {
        let (mut reader, mut body) = (Reader::default(), Vec::new());
        let mut progress = Progress::Open;
        for p in pieces {
            progress = reader.feed(p, |b| body.extend_from_slice(b))?;
        }
        Ok((body, reader.status(), progress))
    }

    #[test]
    fn every_split_reads_the_same() {
        let chunked = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            5;x=y\r\nhello\r\n1A \r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nx-t: 1\r\n\r\n";
        for split in 0..=chunked.len() {
            let got = read(&[&chunked[..split], &chunked[split..]]).unwrap();
            assert_eq!(
                got,
                (b"helloabcdefghijklmnopqrstuvwxyz".to_vec(), 200, Progress::Complete),
                "split at {split}"
            );
        }
        let length = b"HTTP/1.1 429 Slow\r\nconnection: close\r\ncontent-length: 3\r\n\r\nno!";
        for split in 0..=length.len() {
            let got = read(&[&length[..split], &length[split..]]).unwrap();
            assert_eq!(got, (b"no!".to_vec(), 429, Progress::CompleteAndClosed), "split at {split}");
        }
    }

    #[test]
    fn a_cut_is_an_error() {
        let mut reader = Reader::default();
        assert!(reader.end().is_err());
        reader.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nn", |_| {}).unwrap();
        assert!(reader.end().is_err());
        assert!(read(&[b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"]).is_err());
        assert!(read(&[b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab"]).is_err());
    }
}
