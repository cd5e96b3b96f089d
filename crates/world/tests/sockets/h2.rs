//! An HTTP/2 client that speaks it from the first byte on (prior knowledge).

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::rig::PATIENCE;

/// A connection, and the event loop that it lives on: it moves only while [`H2::run`] does.
pub(crate) struct H2 {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    connection: tokio::task::JoinHandle<()>,
}

impl H2 {
    /// Connects; each stream may have `window_bytes` on its way.
    pub(crate) fn connect(addr: SocketAddr, window_bytes: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, connection) = runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(addr).await.unwrap();
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(window_bytes).initial_connection_window_size(1 << 24);
            let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.unwrap();
            (sender, tokio::spawn(async move { drop(connection.await) }))
        });
        Self { runtime, sender, connection }
    }

    /// Runs `future` on the connection's event loop, for at most as long as anything may take.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.unwrap() })
    }

    /// Lets the connection move until `so`.
    pub(crate) fn until(&self, so: impl Fn() -> bool) {
        self.run(async {
            while !so() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }

    /// A request whose answer's head may be awaited.
    pub(crate) fn post(
        &self,
        path: &str,
        body: &Value,
    ) -> impl Future<Output = hyper::Result<http::Response<Incoming>>> + use<> {
        let request = http::Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let mut sender = self.sender.clone();
        async move { sender.send_request(request).await }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Drops the connection without a word of HTTP/2.
    pub(crate) fn drop_connection(self) {
        self.connection.abort();
    }
}

/// Reads a body until `text` is in it, and returns what came.
pub(crate) async fn read_to(body: &mut Incoming, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        let frame = body.frame().await.unwrap_or_else(|| panic!("the body ended before {text:?}: {all}"));
        all.push_str(&String::from_utf8_lossy(&frame.unwrap().into_data().unwrap_or_default()));
    }
    all
}
