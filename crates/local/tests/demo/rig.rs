//! The real server over the committed model, and the short way to ask it.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use firsttoken_local::{Loaded, Local, demo};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

/// The demo model's server.
pub(crate) struct Demo(Arc<Local>);

impl Demo {
    pub(crate) fn new() -> Self {
        // One thread: several wait for each other, and other tests keep the cores.
        Self(Local::new(vec![demo::start(Some(NonZeroU32::MIN)).unwrap()]))
    }

    /// Tokens that were guessed so far, and those of them that were right.
    pub(crate) fn guesses(&self) -> (u64, u64) {
        let loaded = self.0.loaded();
        let Some(Loaded::Writes(model)) = loaded.first() else { panic!("it stays loaded") };
        let counters = model.engine().status().counters;
        (counters.drafted, counters.accepted)
    }

    /// Asks; the status, and the body as it came.
    pub(crate) async fn post(&self, body: &Value) -> (u16, Bytes) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(Arc::clone(&self.0).serve_connection(theirs));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("/v1/chat/completions").header("host", "local");
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let reply = sender.send_request(request).await.unwrap();
        let status = reply.status().as_u16();
        (status, reply.into_body().collect().await.unwrap().to_bytes())
    }

    /// A whole answer to a body, which gets the model's name.
    pub(crate) async fn ask(&self, mut body: Value) -> (u16, Value) {
        body["model"] = json!(demo::NAME);
        let (status, bytes) = self.post(&body).await;
        (status, serde_json::from_slice(&bytes).unwrap())
    }
}

/// A body that asks this and nothing else.
pub(crate) fn asking(question: &str) -> Value {
    json!({"messages": [{"role": "user", "content": question}]})
}
