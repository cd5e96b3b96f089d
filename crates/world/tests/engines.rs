//! Engines of this machine beside other upstreams: how they are, and what they count.

#![cfg(test)]

use std::sync::Arc;

use firsttoken_gateway::config::{EngineConfig, UpstreamConfig};
use firsttoken_sim::{Options, Sim};
use firsttoken_world::world::{PIPE_BYTES, config};
use firsttoken_world::{Caller, End, World};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// An engine that says this whatever it is asked, and the simulated provider for all other names.
fn world(status: &'static str, body: &'static str) -> World {
    let sim = Sim::new(Options::default());
    let open = move |upstream: &UpstreamConfig| {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        if upstream.local {
            drop(tokio::spawn(say(theirs, status, body)));
        } else {
            drop(tokio::spawn(sim.clone().serve_connection(theirs)));
        }
        Ok(ours)
    };
    let config = config().with_engines(vec![EngineConfig::new("m", "/m.gguf")]).unwrap();
    World::dialling(config, Arc::new(open))
}

async fn say(mut io: DuplexStream, status: &str, body: &str) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let Ok(byte) = io.read_u8().await else { return };
        request.push(byte);
    }
    if status.is_empty() {
        // It has the request, and says nothing.
        return std::future::pending().await;
    }
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let _ = io.write_all(answer.as_bytes()).await;
}

#[tokio::test(start_paused = true)]
async fn a_stuck_engine_is_named_and_other_streams_go_on() {
    const STUCK: &str = r#"{"status":"error","faults":[{"model":"m","error":"step 7, of 3 rows, hangs"}]}"#;
    for (status, body, said) in [
        ("503 Service Unavailable", STUCK, "engine m: step 7, of 3 rows, hangs\n"),
        ("500 Internal Server Error", "<html>", "engine m: it is not well, and does not say why\n"),
        ("", "", "engine m: it does not answer\n"),
    ] {
        let world = world(status, body);
        let mut client = world.client().await;
        let stream = client.ask(Caller::Chat, "ttft=10 itl=100 n=60", true).await;
        let ready = world.client().await.get("/readyz").await;
        assert_eq!((ready.status, ready.text()), (503, said.into()));
        let got = stream.rest().await;
        assert_eq!((got.status, &got.end), (200, &End::Proper));
        assert!(got.text().ends_with("data: [DONE]\n\n"), "{}", got.text());
        assert_eq!(world.client().await.get("/healthz").await.status, 200, "the process lives");
    }
    assert_eq!(world("200 OK", "{}").client().await.get("/readyz").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn what_an_engine_counts_is_on_our_page() {
    let page = "# HELP vllm:x What.\n# TYPE vllm:x gauge\nvllm:x{model_name=\"m\"} 3\n# EOF\n";
    let got = world("200 OK", page).client().await.get("/metrics").await;
    let text = got.text();
    assert!(
        text.contains("\nvllm:x{model_name=\"m\"} 3\n") && text.contains("firsttoken_connections "),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    // One that is silent costs its own lines only.
    let silent = world("", "").client().await.get("/metrics").await;
    assert!(silent.status == 200 && silent.text().contains("firsttoken_connections "));
}
