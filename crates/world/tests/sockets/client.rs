//! A client that writes what it is told and reads what comes, byte by byte.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use serde_json::Value;

use crate::rig::PATIENCE;

/// A request with a `content-length`.
pub(crate) fn request(method: &str, path: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut out = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n").into_bytes();
    for header in headers {
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if !body.is_empty() {
        let framing = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        out.extend_from_slice(framing.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// Sends one request on a connection of its own and reads the answer.
pub(crate) fn ask(addr: SocketAddr, request: &[u8]) -> Answer {
    let mut client = Client::connect(addr);
    client.send(request);
    if request.starts_with(b"HEAD ") { client.answer_to_head() } else { client.answer() }
}

/// An answer, read to the end of its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its framing says.
    pub(crate) whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The gateway's own id of the request.
    pub(crate) fn id(&self) -> String {
        self.header("x-firsttoken-request-id").unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Fin,
    Rst,
}

/// A connection.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    ahead: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self::over(socket)
    }

    pub(crate) const fn over(socket: TcpStream) -> Self {
        Self { socket, ahead: Vec::new() }
    }

    /// Reads that many bytes.
    pub(crate) fn take(&mut self, length: usize) -> Vec<u8> {
        assert!(self.fill(length), "the connection ended before {length} bytes: {}", self.rest());
        self.ahead.drain(..length).collect()
    }

    /// Reads until `text` has come, takes nothing of it, and returns the status.
    pub(crate) fn peek_to(&mut self, text: &str) -> u16 {
        while find(&self.ahead, text.as_bytes()).is_none() {
            assert!(self.read().unwrap(), "the connection ended before {text:?}: {}", self.rest());
        }
        self.rest()[9..12].parse().unwrap()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends as much as the other side takes; that it stops taking is no error.
    pub(crate) fn send_if_taken(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Reads once. `Ok(false)` at the end of the connection.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        let n = self.socket.read(&mut buffer)?;
        self.ahead.extend_from_slice(&buffer[..n]);
        Ok(n > 0)
    }

    /// Reads until `text` has come, and returns all that came up to there.
    pub(crate) fn read_to(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = find(&self.ahead, text.as_bytes()) {
                let taken: Vec<u8> = self.ahead.drain(..at + text.len()).collect();
                return String::from_utf8_lossy(&taken).into_owned();
            }
            let more = self.read().unwrap_or_else(|e| panic!("{e} before {text:?}: {}", self.rest()));
            assert!(more, "the connection ended before {text:?}: {}", self.rest());
        }
    }

    /// What comes next, whole lines or not; `None` at the end of the connection, however it ended.
    pub(crate) fn read_some(&mut self) -> Option<String> {
        let more = self.read().unwrap_or(false);
        more.then(|| String::from_utf8_lossy(&std::mem::take(&mut self.ahead)).into_owned())
    }

    fn rest(&self) -> String {
        String::from_utf8_lossy(&self.ahead).into_owned()
    }

    /// Reads an answer.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if matches!(answer.status, 204 | 304) {
            return answer;
        }
        let is_chunked = answer.header("transfer-encoding").is_some_and(|v| v.contains("chunked"));
        let length = answer.header("content-length").map(|v| v.parse::<usize>().unwrap());
        answer.whole = match (is_chunked, length) {
            (true, _) => self.chunks(&mut answer.body),
            (false, Some(length)) => {
                let complete = self.fill(length);
                answer.body = self.ahead.drain(..length.min(self.ahead.len())).collect();
                complete
            }
            (false, None) => {
                while self.read().unwrap_or(false) {}
                answer.body = std::mem::take(&mut self.ahead);
                true
            }
        };
        answer
    }

    /// Reads the answer to a HEAD request: what it says of a body is not about what follows.
    pub(crate) fn answer_to_head(&mut self) -> Answer {
        self.head()
    }

    /// Reads a head; a body is left unread.
    pub(crate) fn head(&mut self) -> Answer {
        let head = self.read_to("\r\n\r\n");
        let mut lines = head.lines();
        let mut status = lines.next().unwrap_or_default().split(' ');
        assert!(status.next().is_some_and(|version| version.starts_with("HTTP/1.")), "{head:?}");
        let status = status.next().unwrap_or_default().parse().unwrap_or_else(|_| panic!("{head:?}"));
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Answer { status, headers, body: Vec::new(), whole: true }
    }

    /// Whether `length` bytes came.
    fn fill(&mut self, length: usize) -> bool {
        while self.ahead.len() < length {
            if !self.read().unwrap_or(false) {
                return false;
            }
        }
        true
    }

    /// Reads chunks into `body`; says whether the last one came.
    fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let end = loop {
                match find(&self.ahead, b"\r\n") {
                    Some(at) => break at,
                    None if self.read().unwrap_or(false) => {}
                    None => return false,
                }
            };
            let line: Vec<u8> = self.ahead.drain(..end + 2).collect();
            let size = usize::from_str_radix(std::str::from_utf8(&line[..end]).unwrap(), 16).unwrap();
            if !self.fill(size + 2) {
                body.append(&mut self.ahead);
                return false;
            }
            body.extend(self.ahead.drain(..size));
            drop(self.ahead.drain(..2));
            if size == 0 {
                return true;
            }
        }
    }

    /// Waits for the end of the connection; what still comes is passed over.
    pub(crate) fn end(&mut self) -> End {
        loop {
            match self.read() {
                Ok(true) => {}
                Ok(false) => return End::Fin,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return End::Rst,
                Err(e) => panic!("the connection did not end: {e}"),
            }
        }
    }

    /// Says that nothing more will be sent, and goes on reading.
    pub(crate) fn half_close(&self) {
        // A connection that the other side has broken has no side to close.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Closes with RST.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

pub(crate) fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, text)
}
