//! Where a request ends: chunks, lengths, pipelines, and requests that try to hide another.

use serde_json::json;

use crate::client::{self, Client, End};
use crate::rig::{Gate, Provider, body};

const CHAT: &str = "/v1/chat/completions";

/// Sends bytes that must be at most one request; says which answers came before the connection ended.
/// A client that closes its side is gone, so that waits until something has come.
fn statuses(gate: &Gate, bytes: &[u8]) -> Vec<u16> {
    let mut client = Client::connect(gate.addr);
    client.send_if_taken(bytes);
    let mut all = client.read_some().unwrap_or_default();
    client.half_close();
    while let Some(text) = client.read_some() {
        all.push_str(&text);
    }
    let heads = all.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head[..3].parse().unwrap()).collect()
}

#[test]
fn a_chunked_body_goes_up_byte_for_byte_with_its_length() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let text = json!({"model": "m", "messages": [{"role": "user", "content": "Größe 🦀"}]}).to_string();
    let mut client = Client::connect(gate.addr);
    client.send(&client::request("POST", CHAT, &["transfer-encoding: chunked"], b""));
    for byte in text.as_bytes() {
        client.send(&[b"1;x=y\r\n", std::slice::from_ref(byte), b"\r\n"].concat());
    }
    client.send(b"0\r\nx-trailer: 1\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    let (headers, seen) = provider.last();
    assert_eq!(seen, text);
    assert!(headers.contains(&format!("content-length: {}", text.len())), "{headers:?}");
    assert!(
        !headers.iter().any(|h| h.starts_with("transfer-encoding") || h.starts_with("x-trailer")),
        "{headers:?}"
    );
}

#[test]
fn expect_continue_is_answered_before_the_body_is_sent() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let text = body(CHAT, "m").to_string();
    let head = format!("content-length: {}", text.len());
    let mut client = Client::connect(gate.addr);
    client.send(&client::request("POST", CHAT, &["expect: 100-continue", &head], b""));
    assert!(client.read_to("\r\n\r\n").starts_with("HTTP/1.1 100 "));
    client.send(text.as_bytes());
    assert_eq!(client.answer().status, 200);
    assert!(!provider.last().0.iter().any(|h| h.starts_with("expect")));
}

#[test]
fn expect_continue_is_refused_without_asking_for_a_body_that_is_too_large() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let mut client = Client::connect(gate.addr);
    let head = ["expect: 100-continue", "content-length: 1000000000"];
    client.send(&client::request("POST", CHAT, &head, b""));
    assert_eq!(client.answer().status, 413);
    let _ = client.end();
}

#[test]
fn a_request_that_hides_another_is_never_two_requests() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let hidden = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let post =
        |headers: &str, rest: &str| format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n{rest}");
    let both = "content-length: 5\r\ntransfer-encoding: chunked\r\n";
    let htob = "transfer-encoding: chunked\r\ncontent-length: 5\r\n";
    let two = "content-length: 5\r\ncontent-length: 6\r\n";
    let attacks = [
        ("both framings", post(both, &format!("0\r\n\r\n{hidden}"))),
        ("both framings, turned round", post(htob, &format!("0\r\n\r\n{hidden}"))),
        ("two lengths", post(two, &format!("hello{hidden}"))),
        ("two lengths in one", post("content-length: 5, 6\r\n", &format!("hello{hidden}"))),
        ("a signed length", post("content-length: +5\r\n", &format!("hello{hidden}"))),
        ("a length in hexadecimal", post("content-length: 0x5\r\n", &format!("hello{hidden}"))),
        ("a folded header", post("x-a: 1\r\n content-length: 5\r\n", &format!("hello{hidden}"))),
        ("a folded coding", post("transfer-encoding:\r\n chunked\r\n", &format!("0\r\n\r\n{hidden}"))),
        ("a coding that is not chunked", post("transfer-encoding: identity\r\n", hidden)),
        ("chunked is not last", post("transfer-encoding: chunked, gzip\r\n", &format!("0\r\n\r\n{hidden}"))),
        ("chunked by another name", post("transfer-encoding: xchunked\r\n", &format!("0\r\n\r\n{hidden}"))),
        ("a space before the colon", post("content-length : 5\r\n", &format!("hello{hidden}"))),
        ("a header without a name", post(": 5\r\n", hidden)),
        ("a carriage return alone", post("x-a: 1\rcontent-length: 5\r\n", &format!("hello{hidden}"))),
        ("a zero byte", post("x-a: \0\r\n", hidden)),
        (
            "a chunk size with a sign",
            post("transfer-encoding: chunked\r\n", &format!("+5\r\nhello\r\n0\r\n\r\n{hidden}")),
        ),
        (
            "a chunk size too large",
            post("transfer-encoding: chunked\r\n", &format!("ffffffffffffffff1\r\n{hidden}")),
        ),
        (
            "a bare line feed in a chunk",
            post("transfer-encoding: chunked\r\n", &format!("5\nhello\n0\n\n{hidden}")),
        ),
        (
            "a chunk longer than it says",
            post("transfer-encoding: chunked\r\n", &format!("2\r\nhello\r\n0\r\n\r\n{hidden}")),
        ),
        (
            "an HTTP/1.0 request in chunks",
            format!("POST {CHAT} HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        ("no such version", format!("POST {CHAT} HTTP/3.7\r\nhost: localhost\r\n\r\n{hidden}")),
        ("two spaces", format!("POST  {CHAT}  HTTP/1.1\r\nhost: localhost\r\n\r\n{hidden}")),
    ];
    for (what, bytes) in attacks {
        let answers = statuses(&gate, bytes.as_bytes());
        assert!(answers.len() <= 1 && answers.iter().all(|s| (400..=505).contains(s)), "{what}: {answers:?}");
    }
    assert_eq!(provider.sim.stats(0).started, 0, "nothing of them went up");
    let answer = gate.post(CHAT, &[], &body(CHAT, "m"));
    assert_eq!(answer.status, 200, "others are served as before");
    gate.is_quiet();
}

#[test]
fn bare_line_feeds_hide_nothing() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let text = body(CHAT, "m").to_string();
    let bytes =
        format!("POST {CHAT} HTTP/1.1\nhost: localhost\nx-a: 1\ncontent-length: {}\n\n{text}", text.len());
    let answers = statuses(&gate, bytes.as_bytes());
    assert!(answers.len() == 1, "{answers:?}");
    if let Some(last) = provider.sim.last() {
        assert!(!last.headers.iter().any(|(_, v)| v.contains('\n')), "{last:?}");
        assert!(last.body.ends_with(&text[1..]), "{}", last.body);
    }
}

#[test]
fn garbage_is_answered_with_400_or_nothing() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice();
    for garbage in [
        tls,
        b"\0\0\0\0",
        b"SSH-2.0-x\r\n\r\n",
        b"\r\n\r\n\r\n\r\nx\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense",
    ] {
        let answers = statuses(&gate, garbage);
        assert!(answers.iter().all(|s| *s == 400), "{garbage:?}: {answers:?}");
    }
    assert_eq!(gate.get("/healthz").status, 200);
    gate.is_quiet();
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let mut client = Client::connect(gate.addr);
    let chat = client::request("POST", CHAT, &[], body(CHAT, "m").to_string().as_bytes());
    let bad = client::request("POST", CHAT, &[], b"{");
    let health = client::request("GET", "/healthz", &[], b"");
    client.send(&[&chat[..], &bad, &health, &chat].concat());
    let answers = [client.answer(), client.answer(), client.answer(), client.answer()];
    assert_eq!(answers.each_ref().map(|a| a.status), [200, 400, 200, 200]);
    assert!(
        answers[0].text().ends_with("data: [DONE]\n\n") && answers[3].text().ends_with("data: [DONE]\n\n")
    );
    assert_eq!(answers[2].text(), "ok\n");
    client.half_close();
    assert_eq!(client.end(), End::Fin);
    gate.is_quiet();
}

#[test]
fn a_connection_serves_request_after_request_and_reuses_the_upstreams() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let mut client = Client::connect(gate.addr);
    let mut reused = Vec::new();
    for n in 0..5 {
        client.send(&client::request("POST", CHAT, &[], body(CHAT, "m").to_string().as_bytes()));
        let answer = client.answer();
        assert!(answer.status == 200 && answer.whole, "{n}: {answer:?}");
        reused.push(gate.timeline(&answer.id(), &[])["connection_reused"].as_bool().unwrap());
    }
    assert_eq!(reused, [false, true, true, true, true]);
    assert_eq!(provider.sim.stats(0).completed, 5);
}

#[test]
fn an_http_10_client_gets_its_stream_and_the_end_of_the_connection() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let text = body(CHAT, "m").to_string();
    let mut client = Client::connect(gate.addr);
    client.send(format!("POST {CHAT} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{text}", text.len()).as_bytes());
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("transfer-encoding")), (200, None), "{answer:?}");
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    let mut client = Client::connect(gate.addr);
    client.send(b"GET /healthz HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text().as_str(), client.end()), (200, "ok\n", End::Fin));
}

#[test]
fn a_body_that_breaks_off_reaches_nobody() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let mut client = Client::connect(gate.addr);
    client.send(&client::request("POST", CHAT, &["content-length: 5000"], b""));
    client.send(b"{\"model\":\"m\",");
    client.half_close();
    let _ = client.end();
    let mut client = Client::connect(gate.addr);
    client.send(&client::request("POST", CHAT, &["transfer-encoding: chunked"], b""));
    client.send(b"5\r\n{\"mod\r\n");
    client.reset();
    gate.is_quiet();
    assert_eq!(provider.sim.stats(0).started, 0);
}

#[test]
fn a_client_that_says_it_will_close_is_closed_after_its_answer() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let mut client = Client::connect(gate.addr);
    client.send(&client::request(
        "POST",
        CHAT,
        &["connection: close"],
        body(CHAT, "m").to_string().as_bytes(),
    ));
    let answer = client.answer();
    assert!(answer.whole && answer.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(client.end(), End::Fin);
}
