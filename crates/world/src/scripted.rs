//! An upstream that writes any bytes in any pieces and ends in any way.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Every piece is a chunk.
    Chunked,
    /// The body ends where the connection does.
    Close,
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// As its framing says.
    Proper,
    /// The connection is closed before that.
    Cut,
    /// Nothing more comes.
    Silence,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Script {
    /// How the body is framed.
    pub framing: Framing,
    /// What is written, each after a pause.
    pub pieces: Vec<(Duration, Bytes)>,
    /// What comes then.
    pub finish: Finish,
}

impl Script {
    /// Reads one request and answers it by the script.
    ///
    /// The peer may leave at any time: what cannot be written then is not.
    pub async fn play(self, mut io: DuplexStream) {
        if read_request(&mut io).await.is_none() {
            return;
        }
        let framing: &[u8] = match self.framing {
            Framing::Chunked => b"transfer-encoding: chunked\r\n",
            Framing::Close => b"connection: close\r\n",
        };
        let head = [b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n", framing, b"\r\n"].concat();
        if io.write_all(&head).await.is_err() {
            return;
        }
        for (pause, piece) in self.pieces {
            // Whatever comes before the answer is complete is the peer's leaving.
            if !pause.is_zero() && tokio::time::timeout(pause, io.read_u8()).await.is_ok() {
                return;
            }
            let framed = match self.framing {
                Framing::Chunked => [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat(),
                Framing::Close => piece.to_vec(),
            };
            if !piece.is_empty() && io.write_all(&framed).await.is_err() {
                return;
            }
        }
        match (self.finish, self.framing) {
            (Finish::Proper, Framing::Chunked) => drop(io.write_all(b"0\r\n\r\n").await),
            (Finish::Proper, Framing::Close) | (Finish::Cut, _) => {}
            // Until the peer leaves.
            (Finish::Silence, _) => drop(io.read_u8().await),
        }
    }
}

/// Reads a head and the body that its `content-length` says. `None` if the peer leaves first.
async fn read_request(io: &mut DuplexStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    io.read_exact(&mut body).await.ok()?;
    Some(())
}
