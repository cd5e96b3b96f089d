//! What else an upstream serves under `/v1/`, passed through in both directions.

use serde_json::json;

use crate::client::{self, Client};
use crate::rig::{Gate, Provider, error_of, eventually, toml};
use crate::upstream::Upstream;

/// Bytes of every value, that no coding would leave alone.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn methods_paths_and_queries_arrive_as_they_were_sent() {
    let upstream =
        Upstream::saying("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
    let gate = Gate::start(&toml(&format!("{}/prefix/", upstream.url()), "", ""));
    let lines = [
        ("GET", "/v1/files?limit=2&after=a%20b&x=%2Fy"),
        ("DELETE", "/v1/files/file-1"),
        ("POST", "/v1/fine_tuning/jobs?x"),
        ("PUT", "/v1/uploads/u%2F1"),
        ("PATCH", "/v1/threads/t"),
        ("HEAD", "/v1/files/f"),
    ];
    for (method, path) in lines {
        let body: &[u8] = if matches!(method, "POST" | "PUT" | "PATCH") { b"[1, 2]" } else { b"" };
        let answer = client::ask(gate.addr, &client::request(method, path, &[], body));
        assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
        let seen = upstream.requests().pop().unwrap();
        assert!(seen.starts_with(&format!("{method} /prefix{path} HTTP/1.1\r\n")), "{seen}");
        assert!(seen.contains("authorization: Bearer sk-theirs\r\n"), "{seen}");
        assert!(seen.ends_with(&format!("\r\n\r\n{}", String::from_utf8_lossy(body))), "{seen}");
    }
    let named = ["x-firsttoken-upstream: claude"];
    let answer = client::ask(gate.addr, &client::request("GET", "/v1/files", &named, b""));
    let seen = upstream.requests().pop().unwrap();
    assert!(answer.status == 200 && seen.contains("x-api-key: sk-theirs"), "{seen}");
    let named = ["x-firsttoken-upstream: nobody"];
    let answer = client::ask(gate.addr, &client::request("GET", "/v1/files", &named, b""));
    assert_eq!(answer.status, 404);
    assert!(error_of("/v1/files", &answer).0.contains("nobody"));
}

#[test]
fn what_nobody_here_reads_comes_back_whatever_its_status() {
    for (head, status, body) in [
        ("302 Found\r\nlocation: https://files.example/f", 302, ""),
        ("404 Not Found\r\ncontent-type: application/json", 404, "{\"detail\": \"no such file\"}"),
        ("500 Internal Server Error\r\ncontent-type: text/plain", 500, "oh"),
    ] {
        let upstream =
            Upstream::saying(format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        let gate = Gate::start(&toml(&upstream.url(), "", ""));
        let answer = client::ask(gate.addr, &client::request("GET", "/v1/files/f/content", &[], b""));
        assert_eq!((answer.status, answer.text().as_str()), (status, body));
        let location = head.contains("location").then_some("https://files.example/f");
        assert_eq!(answer.header("location"), location);
    }
}

#[test]
fn statuses_and_headers_come_back_as_they_were() {
    let answer = "HTTP/1.1 204 No Content\r\nx-ratelimit-remaining: 7\r\nset-cookie: a=b\r\nconnection: X-Hop\r\nx-hop: 1\r\nx-request-id: up-1\r\n\r\n";
    let upstream = Upstream::saying(answer);
    let gate = Gate::start(&toml(&upstream.url(), "", ""));
    let mut client = Client::connect(gate.addr);
    for _ in 0..3 {
        client.send(&client::request("DELETE", "/v1/files/f", &[], b""));
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (204, Some("7")));
        assert_eq!((answer.header("x-request-id"), answer.header("x-hop")), (Some("up-1"), None));
        assert_eq!(answer.header("set-cookie"), None);
        assert_eq!(gate.timeline(&answer.id(), &[])["outcome"], "complete");
    }
    let mut head = Client::connect(gate.addr);
    head.send(&client::request("HEAD", "/v1/files/f", &[], b""));
    let id = head.answer_to_head().id();
    assert_eq!(gate.timeline(&id, &[])["outcome"], "complete");
    assert_eq!(upstream.connections(), 1, "an answer without a body leaves its connection usable");
}

#[test]
fn a_multipart_upload_arrives_unchanged() {
    let upstream = Upstream::start(|peer| {
        // Says back what came, so that every byte can be compared.
        while let Some((_, body)) = peer.request_bytes() {
            peer.say(format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {}\r\n\r\n",
                body.len()
            ));
            peer.say(&body);
        }
    });
    let gate = Gate::start(&toml(&upstream.url(), "", ""));
    let mut part =
        b"--XX\r\ncontent-disposition: form-data; name=\"file\"; filename=\"\xff.bin\"\r\n\r\n".to_vec();
    part.extend(noise(2_000_000));
    part.extend(b"\r\n--XX--\r\n");
    let framing = format!("content-length: {}", part.len());
    let mut client = Client::connect(gate.addr);
    client.send(&client::request(
        "POST",
        "/v1/files",
        &["content-type: multipart/form-data; boundary=XX", &framing],
        b"",
    ));
    client.send(&part);
    let answer = client.answer();
    assert_eq!((answer.status, answer.body == part), (200, true));
    let head = upstream.requests().pop().unwrap();
    assert!(head.contains("content-type: multipart/form-data; boundary=XX\r\n"), "{}", &head[..500]);
}

#[test]
fn a_large_download_flows_while_it_is_still_coming() {
    let length = 40_000_000;
    let upstream = Upstream::start(move |peer| {
        while peer.request().is_some() {
            peer.say(format!("HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {length}\r\n\r\n"));
            let piece = noise(1_000_000);
            for _ in 0..length / piece.len() {
                peer.say(&piece);
            }
        }
    });
    let gate = Gate::start(&toml(&upstream.url(), "", ""));
    let mut client = Client::connect(gate.addr);
    client.send(&client::request("GET", "/v1/files/f/content", &[], b""));
    let answer = client.answer();
    assert_eq!(answer.header("content-length"), Some(length.to_string().as_str()));
    assert!(answer.whole && answer.body.len() == length);
    assert_eq!(gate.timeline(&answer.id(), &[])["outcome"], "complete");
    assert!(answer.body.chunks(1_000_000).all(|piece| piece == noise(1_000_000)));
    client.send(&client::request("GET", "/v1/files/f/content", &[], b""));
    assert_eq!(client.head().status, 200);
    client.reset();
    eventually("the abandoned download has ended at the upstream", || (upstream.open() == 0).then_some(()));
    gate.is_quiet();
}

#[test]
fn a_download_that_breaks_off_is_seen_to_break_off() {
    let upstream = Upstream::start(|peer| {
        let _ = peer.request();
        peer.say(
            "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: 1000\r\n\r\nhalf",
        );
    });
    let gate = Gate::start(&toml(&upstream.url(), "", ""));
    let answer = client::ask(gate.addr, &client::request("GET", "/v1/files/f/content", &[], b""));
    assert_eq!((answer.status, answer.whole, answer.body.as_slice()), (200, false, b"half".as_slice()));
    let upstream = Upstream::start(|peer| {
        let _ = peer.request();
        peer.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    });
    let gate = Gate::start(&toml(&upstream.url(), "", ""));
    let answer = client::ask(gate.addr, &client::request("GET", "/v1/files/f/content", &[], b""));
    assert_eq!((answer.status, answer.whole, answer.body.as_slice()), (200, false, b"half".as_slice()));
}

#[test]
fn an_upstreams_own_refusal_passes_as_it_is() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let answer = gate.get("/v1/nothing/there");
    assert_eq!(answer.status, 404);
    assert!(error_of("/v1/nothing", &answer).0.contains("simulator"), "{}", answer.text());
    let answer = gate.post("/v1/embeddings", &[], &json!({"model": "m", "input": ["a", "b"]}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["data"].as_array().unwrap().len(), 2);
    let count = json!({"model": "m", "messages": [{"role": "user", "content": "How many?"}]});
    let answer = gate.post("/v1/messages/count_tokens", &[], &count);
    assert!(answer.json()["input_tokens"].is_u64(), "{}", answer.text());
    assert_eq!(gate.timeline(&answer.id(), &[])["outcome"], "complete");
}
