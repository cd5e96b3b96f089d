//! Many connections at once, most of which never say anything worth hearing.

use std::net::TcpStream;

use crate::client::{self, Client};
use crate::rig::{Gate, Provider, body, eventually, toml};

const CHAT: &str = "/v1/chat/completions";

#[test]
fn thousands_of_half_open_connections_disturb_nobody() {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    // Nothing, half of a method, half of HTTP/2's preface, half a head, half a body.
    let halves: [&[u8]; 5] = [
        b"",
        b"P",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{\"model\":",
    ];
    let crowd: Vec<TcpStream> = (0..2_000)
        .map(|n| {
            let mut client = Client::connect(gate.addr);
            client.send(halves[n % halves.len()]);
            client.socket
        })
        .collect();
    eventually("all of them are connected", || {
        (gate.metric("firsttoken_connections")? >= 2_000.0).then_some(())
    });
    for _ in 0..5 {
        let answer = gate.post(CHAT, &["connection: close"], &body(CHAT, "m"));
        assert!(answer.status == 200 && answer.text().ends_with("data: [DONE]\n\n"));
    }
    drop(crowd);
    gate.is_quiet();
    assert_eq!(provider.sim.stats(0).started, 5);
}

#[test]
fn one_connection_too_many_is_told_so_and_one_that_leaves_makes_room() {
    let provider = Provider::quick();
    let gate = Gate::start(&toml(&provider.url(), "", "[limits]\nconnections_max = 4\n"));
    let mut first = Client::connect(gate.addr);
    eventually("those who asked for readiness have left", || {
        first.send(&client::request("GET", "/metrics", &[], b""));
        first.answer().text().contains("firsttoken_connections 1\n").then_some(())
    });
    let health = client::request("GET", "/healthz", &[], b"");
    let mut inside = vec![first];
    inside.extend((0..3).map(|_| Client::connect(gate.addr)));
    for client in &mut inside {
        client.send(&health);
        assert_eq!(client.answer().status, 200);
    }
    for _ in 0..3 {
        let mut refused = Client::connect(gate.addr);
        let answer = refused.answer();
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        let _ = refused.end();
    }
    inside[0].send(&client::request("POST", CHAT, &[], body(CHAT, "m").to_string().as_bytes()));
    assert_eq!(inside[0].answer().status, 200, "who is inside is served");
    drop(inside.pop());
    eventually("there is room again", || {
        let mut client = Client::connect(gate.addr);
        client.send_if_taken(&health);
        (client.answer().status == 200).then_some(())
    });
    inside[0].send(&client::request("GET", "/metrics", &[], b""));
    let metrics = inside[0].answer().text();
    assert!(metrics.contains("firsttoken_connections_refused_total "), "{metrics}");
}

#[test]
fn http2_is_known_by_its_preface_however_slowly_that_comes() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let mut client = Client::connect(gate.addr);
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
        client.send(&[*byte]);
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    // An empty SETTINGS frame; the gateway's own comes back: type 4, stream 0.
    client.send(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let frame = client.take(9);
    assert_eq!((frame[3], &frame[5..9]), (4, &[0, 0, 0, 0][..]), "{frame:?}");
    let mut client = Client::connect(gate.addr);
    for byte in client::request("GET", "/healthz", &[], b"") {
        client.send(&[byte]);
    }
    assert_eq!(client.answer().status, 200);
}
