//! Whether the evidence holds where answers share a connection.

use crate::h2::{self, H2};
use crate::rig::{Gate, Provider, body};

const CHAT: &str = "/v1/chat/completions";

#[test]
fn streams_of_one_connection_have_their_own_times() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let client = H2::connect(gate.addr, 1 << 20);
    let asked = tokio::time::Instant::now();
    let first = client.run(client.post(CHAT, &body(CHAT, "sim-ttft1-itl10-n100"))).unwrap();
    let id = first.headers()["x-firsttoken-request-id"].to_str().unwrap().to_owned();
    let mut first = first.into_body();
    let _ = client.run(h2::read_to(&mut first, "data:"));
    let seen_ms = asked.elapsed().as_secs_f64() * 1e3;
    let second = client.run(client.post(CHAT, &body(CHAT, "sim-ttft300-itl1-n3"))).unwrap();
    let _ = client.run(h2::read_to(&mut second.into_body(), "[DONE]"));
    let _ = client.run(h2::read_to(&mut first, "[DONE]"));
    let timeline = gate.timeline(&id, &[]);
    let ttft_ms = timeline["ttft_ms"].as_f64().unwrap();
    assert!(ttft_ms <= seen_ms, "{ttft_ms} ms, and the client saw it after {seen_ms} ms: {timeline}");
}
