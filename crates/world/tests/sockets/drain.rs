//! The end: readiness first, then the listener, then what is idle, and what runs when patience is over.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::client::{self, Client, End};
use crate::h2::{self, H2};
use crate::rig::{Gate, Provider, body, error_of, eventually, toml};

const CHAT: &str = "/v1/chat/completions";

/// A gateway whose drain is that patient.
fn gate(provider: &Provider, drain_ms: u32) -> Gate {
    let config = toml(&provider.url(), "", "").replace("drain_ms = 3000", &format!("drain_ms = {drain_ms}"));
    Gate::start(&config.replace("threads = 1", "threads = 2"))
}

/// A client in the middle of a stream.
fn streaming(gate: &Gate, path: &str, model: &str) -> Client {
    let mut client = Client::connect(gate.addr);
    client.send(&client::request("POST", path, &[], body(path, model).to_string().as_bytes()));
    assert_eq!(client.peek_to("data:"), 200, "{path}");
    client
}

#[test]
fn readiness_goes_first_then_the_listener_and_running_streams_end_well() {
    let provider = Provider::quick();
    let gate = gate(&provider, 60_000);
    let mut running = streaming(&gate, CHAT, "sim-ttft1-itl10-n600");
    let mut idle = Client::connect(gate.addr);
    idle.send(&client::request("GET", "/healthz", &[], b""));
    assert_eq!(idle.answer().status, 200);
    gate.stop(Duration::from_secs(3));
    eventually("it says that it is not ready", || (gate.get("/readyz").status == 503).then_some(()));
    assert_eq!(gate.get("/healthz").status, 200, "it is still alive");
    let answer = gate.post(CHAT, &["connection: close"], &body(CHAT, "m"));
    assert!(answer.status == 200 && answer.whole, "during the notice new requests are served");
    eventually("the listener is gone", || TcpStream::connect(gate.addr).is_err().then_some(()));
    assert_eq!(idle.end(), End::Fin, "who is idle is sent home");
    assert_eq!(provider.sim.stats(0).active, 1, "the stream runs on");
    let answer = running.answer();
    assert!(answer.whole && answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    assert_eq!(running.end(), End::Fin);
    gate.join();
    assert_eq!(provider.sim.stats(0).aborted, 0);
}

#[test]
fn connections_that_say_nothing_do_not_hold_up_the_end() {
    let provider = Provider::quick();
    let gate = gate(&provider, 600_000);
    let mut quiet = [
        Client::connect(gate.addr),
        Client::connect(gate.addr),
        Client::connect(gate.addr),
        Client::connect(gate.addr),
    ];
    quiet[1].send(b"P");
    quiet[2].send(b"PRI * HTTP/2.0\r\n");
    quiet[3].send(&client::request("GET", "/healthz", &[], b""));
    assert_eq!(quiet[3].answer().status, 200);
    let http2 = H2::connect(gate.addr, 65_535);
    drop(http2.run(http2.post(CHAT, &body(CHAT, "m"))));
    eventually("all are connected", || (gate.metric("firsttoken_connections")? >= 5.0).then_some(()));
    gate.stop(Duration::ZERO);
    let ended = std::thread::spawn(move || gate.join());
    http2.until(|| ended.is_finished());
    ended.join().unwrap();
}

#[test]
fn past_its_patience_a_stream_ends_with_an_error_event_of_its_dialect() {
    let provider = Provider::quick();
    let gate = gate(&provider, 300);
    let paths = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions", "/v1/chat"];
    let endless = "sim-ttft1-itl5-n1000000";
    let mut clients = paths.map(|path| (path, streaming(&gate, path, endless)));
    let mut silent = streaming(&gate, CHAT, "sim-ttft1-itl1-faultstall@3");
    let http2 = H2::connect(gate.addr, 65_535);
    let mut h2_body = http2.run(http2.post(CHAT, &body(CHAT, endless))).unwrap().into_body();
    let mut h2_silent =
        http2.run(http2.post(CHAT, &body(CHAT, "sim-ttft1-itl1-faultstall@3"))).unwrap().into_body();
    let h2_waits = http2.runtime().spawn(http2.post(CHAT, &body(CHAT, "sim-faultsilent")));
    http2.until(|| provider.sim.stats(0).active == 9);
    gate.stop(Duration::ZERO);
    for (path, client) in &mut clients {
        let answer = client.answer();
        let text = answer.text();
        let last = text.trim_end().rsplit("\n\n").next().unwrap();
        let data = last.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let event: serde_json::Value = serde_json::from_str(data).unwrap();
        let said = event.to_string();
        assert!(answer.whole && said.contains("shutting down"), "{path}: {said}");
        assert!(!text.contains("[DONE]") && !text.contains("message_stop"), "{path}: {said}");
        assert_eq!(client.end(), End::Fin, "{path}");
    }
    assert!(silent.answer().text().contains("shutting down"));
    for stream in [&mut h2_body, &mut h2_silent] {
        let text = http2.run(h2::read_to(stream, "shutting down"));
        assert!(!text.contains("[DONE]"), "{text}");
    }
    let refused = http2.run(h2_waits).unwrap().unwrap();
    assert_eq!(refused.status(), 503);
    let ended = std::thread::spawn(move || gate.join());
    http2.until(|| ended.is_finished());
    ended.join().unwrap();
    provider.all_over();
}

#[test]
fn past_its_patience_a_request_without_an_answer_is_refused_truthfully() {
    let provider = Provider::quick();
    let gate = gate(&provider, 300);
    let mut clients: Vec<_> = [CHAT, "/v1/messages", "/v1/responses"]
        .into_iter()
        .map(|path| {
            let mut client = Client::connect(gate.addr);
            let mut request = body(path, "sim-faultsilent");
            request["stream"] = json!(path == CHAT);
            client.send(&client::request("POST", path, &[], request.to_string().as_bytes()));
            (path, client)
        })
        .collect();
    eventually("they wait", || (provider.sim.stats(0).active == 3).then_some(()));
    gate.stop(Duration::ZERO);
    for (path, client) in &mut clients {
        let answer = client.answer();
        assert_eq!(answer.status, 503, "{path}");
        assert!(error_of(path, &answer).0.contains("shutting down"), "{path}");
    }
    gate.join();
    provider.all_over();
}
