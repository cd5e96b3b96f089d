//! A server of files on this machine that does what servers do wrong: it cuts, forgets ranges, redirects,
//! lies, and falls silent.
//!
//! Written on bare sockets, because a well-behaved library would keep it from misbehaving.
//!
//! Invariant: every request is recorded before it is answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    headers: BTreeMap<String, String>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    status: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Bytes of the body after which the connection is closed, or held in silence.
    cut_after: Option<usize>,
    is_silent: bool,
}

impl Reply {
    /// An answer with that body, whose length it says.
    pub(crate) fn new(status: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let length = ("content-length", body.len().to_string());
        Self { status: status.to_owned(), headers: vec![length], body, ..Self::default() }
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::new("302 Found", "moved").with("location", to)
    }

    /// The header, instead of one that was there.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self
    }

    pub(crate) const fn cut_after(mut self, bytes: usize) -> Self {
        self.cut_after = Some(bytes);
        self
    }

    pub(crate) const fn silent_after(mut self, bytes: usize) -> Self {
        self.is_silent = true;
        self.cut_after(bytes)
    }

    /// What a server that knows ranges answers for a file.
    pub(crate) fn file(asked: &Asked, bytes: &[u8], etag: Option<&str>) -> Self {
        let is_same = asked.header("if-range").is_none_or(|known| Some(known) == etag);
        let from = asked.header("range").filter(|_| is_same).map(|range| {
            let from = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
            from.and_then(|from| from.parse::<usize>().ok()).expect("a range from somewhere")
        });
        let reply = match from {
            None => Self::new("200 OK", bytes),
            Some(from) if from >= bytes.len() => Self::new("416 Range Not Satisfiable", ""),
            Some(from) => Self::new("206 Partial Content", &bytes[from..])
                .with("content-range", &format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len())),
        };
        match etag {
            Some(etag) => reply.with("etag", etag),
            None => reply,
        }
    }
}

/// The server; it ends with the runtime.
pub(crate) struct Server {
    /// Its address, without a path.
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// `answer` is given each request and how many came before it.
    pub(crate) async fn start(answer: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let record = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let Some(request) = request(&mut stream).await else { continue };
                let before = {
                    let mut record = record.lock().expect("no panic");
                    record.push(request.clone());
                    record.len() - 1
                };
                tokio::spawn(reply(stream, answer(&request, before)));
            }
        });
        Self { url, asked }
    }

    /// Every request so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }
}

async fn request(stream: &mut TcpStream) -> Option<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(head).ok()?;
    let mut lines = text.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_owned()))
    };
    Some(Asked { path, headers: lines.filter_map(header).collect() })
}

async fn reply(mut stream: TcpStream, reply: Reply) {
    let mut head = format!("HTTP/1.1 {}\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let bytes = reply.cut_after.unwrap_or(reply.body.len());
    // A client that has seen enough may be gone.
    let _ = stream.write_all(format!("{head}\r\n").as_bytes()).await;
    let _ = stream.write_all(&reply.body[..bytes]).await;
    if reply.is_silent {
        std::future::pending::<()>().await;
    }
    let _ = stream.shutdown().await;
}
