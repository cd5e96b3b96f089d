//! An upstream that says exactly the bytes it was told to.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::client::find;
use crate::rig::{PATIENCE, eventually};

/// One chat stream, event by event, as OpenAI says it.
pub(crate) const EVENTS: [&str; 4] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Blue\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
];

/// A head that announces an event stream.
pub(crate) fn stream_head(framing: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n\r\n")
}

/// What the upstream's side of a connection has.
pub(crate) struct Served {
    pub(crate) socket: TcpStream,
    requests: Arc<Mutex<Vec<String>>>,
    released: Arc<AtomicBool>,
    ahead: Vec<u8>,
}

impl Served {
    /// Reads one request, body included; `None` where the peer has left.
    pub(crate) fn request(&mut self) -> Option<String> {
        self.request_bytes().map(|(head, body)| head + &String::from_utf8_lossy(&body))
    }

    /// Reads one request: its head, and the bytes of its body.
    pub(crate) fn request_bytes(&mut self) -> Option<(String, Vec<u8>)> {
        let head = loop {
            if let Some(at) = find(&self.ahead, b"\r\n\r\n") {
                break at + 4;
            }
            self.read()?;
        };
        let text = String::from_utf8_lossy(&self.ahead[..head]).into_owned();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |n| n.parse().unwrap());
        while self.ahead.len() < head + length {
            self.read()?;
        }
        let body = self.ahead.drain(..head + length).skip(head).collect::<Vec<u8>>();
        self.requests.lock().unwrap().push(format!("{text}{}", String::from_utf8_lossy(&body)));
        Some((text, body))
    }

    fn read(&mut self) -> Option<()> {
        let mut buffer = [0; 16 * 1024];
        let n = self.socket.read(&mut buffer).ok().filter(|n| *n > 0)?;
        self.ahead.extend_from_slice(&buffer[..n]);
        Some(())
    }

    /// Reads a head and leaves the rest where it is.
    pub(crate) fn head_only(&mut self) {
        let mut byte = [0];
        while !self.ahead.ends_with(b"\r\n\r\n") && self.socket.read(&mut byte).is_ok_and(|n| n > 0) {
            self.ahead.extend_from_slice(&byte);
        }
    }

    /// What was read and not taken as a request.
    pub(crate) fn heard(&self) -> String {
        String::from_utf8_lossy(&self.ahead).into_owned()
    }

    /// Does nothing, reading included, until the test releases it.
    pub(crate) fn wait_without_reading(&self) {
        eventually("the upstream is released", || self.released.load(SeqCst).then_some(()));
    }

    /// Writes; that the peer has left is no error.
    pub(crate) fn say(&mut self, text: impl AsRef<[u8]>) {
        let _ = self.socket.write_all(text.as_ref());
    }

    /// Waits until the peer has left.
    pub(crate) fn until_left(&mut self) {
        while self.read().is_some() {}
    }
}

/// A listening upstream; each connection gets a thread and the handler.
pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    released: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Upstream {
    pub(crate) fn start(handle: impl Fn(&mut Served) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let handle = Arc::new(handle);
        let (connections, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (requests, over) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(false)));
        let released = Arc::<AtomicBool>::default();
        let upstream = Self { addr, connections, open, requests, released: released.clone(), over };
        let (connections, open) = (upstream.connections.clone(), upstream.open.clone());
        let (requests, over) = (upstream.requests.clone(), upstream.over.clone());
        drop(std::thread::spawn(move || {
            for socket in listener.incoming() {
                if over.load(SeqCst) {
                    return;
                }
                let Ok(socket) = socket else { continue };
                connections.fetch_add(1, SeqCst);
                open.fetch_add(1, SeqCst);
                let (handle, open) = (handle.clone(), open.clone());
                let (requests, released) = (requests.clone(), released.clone());
                drop(std::thread::spawn(move || {
                    let _ = socket.set_nodelay(true);
                    let _ = socket.set_read_timeout(Some(PATIENCE));
                    handle(&mut Served { socket, requests, released, ahead: Vec::new() });
                    open.fetch_sub(1, SeqCst);
                }));
            }
        }));
        upstream
    }

    /// One that answers every request on a connection with the same bytes.
    pub(crate) fn saying(answer: impl Into<String>) -> Self {
        let answer = answer.into();
        Self::start(move |peer| {
            while peer.request().is_some() {
                peer.say(&answer);
            }
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Lets handlers go on that wait in [`Served::wait_without_reading`].
    pub(crate) fn release(&self) {
        self.released.store(true, SeqCst);
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Connections whose handler still runs.
    pub(crate) fn open(&self) -> usize {
        self.open.load(SeqCst)
    }

    /// Whole requests as they came, in order.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        self.release();
        // Wakes the accept loop, so that its thread ends.
        let _ = TcpStream::connect(self.addr);
    }
}
