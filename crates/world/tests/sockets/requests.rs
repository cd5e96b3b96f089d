//! Requests that are wrong, too large, or oddly spelled: each a clear error in the caller's dialect.

use std::io::Write as _;

use serde_json::json;

use crate::client::{self, Client};
use crate::rig::{Gate, PATHS, Provider, body, error_of, toml};

/// A gateway that takes bodies of up to 20,000 bytes and heads of up to 8 KiB.
fn narrow(provider: &Provider) -> Gate {
    let limits = "[limits]\nbody_bytes_max = 20_000\nheader_bytes_max = 8_192\n";
    Gate::start(&toml(&provider.url(), "", limits))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn malformed_json_is_refused_in_every_dialect_and_nothing_goes_up() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    for path in PATHS {
        for bad in
            ["{\"model\":", "nonsense", "[1]", "\"text\"", "{\"model\":\"m\"}}", "null", "{'model':'m'}"]
        {
            let answer = client::ask(gate.addr, &client::request("POST", path, &[], bad.as_bytes()));
            let (message, _) = error_of(path, &answer);
            assert_eq!(answer.status, 400, "{path} {bad}: {message}");
        }
    }
    assert_eq!(provider.sim.stats(0).started, 0);
    gate.is_quiet();
}

#[test]
fn wrong_types_are_named_with_their_field() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    for path in PATHS {
        let mut fields = vec![("model", json!(7)), ("model", json!({})), ("stream", json!("yes"))];
        if !path.ends_with("responses") && path != "/v1/completions" {
            fields.push(("messages", json!("hello")));
        }
        for (field, wrong) in fields {
            let mut request = body(path, "m");
            request[field] = wrong.clone();
            let answer = gate.post(path, &[], &request);
            let (message, _) = error_of(path, &answer);
            assert_eq!(answer.status, 400, "{path} {field}={wrong}: {message}");
            assert!(message.contains(field), "{path} {field}={wrong}: {message}");
        }
    }
    assert_eq!(provider.sim.stats(0).started, 0);
}

#[test]
fn an_empty_body_is_named() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    for path in PATHS {
        let answer = client::ask(gate.addr, &client::request("POST", path, &["content-length: 0"], b""));
        let (message, _) = error_of(path, &answer);
        assert_eq!(answer.status, 400, "{path}: {message}");
    }
}

#[test]
fn an_unknown_model_is_named_with_the_one_that_was_meant() {
    let provider = Provider::quick();
    let url = provider.url();
    let gate = Gate::start(&format!(
        "threads = 1\ndrain_ms = 1000\n[[upstreams]]\nname = \"u\"\nprovider = \"openai\"\nbase_url = \"{url}\"\nauth = \"none\"\n\
         [[models]]\nname = \"gpt-5-mini\"\naliases = [\"fast\"]\n"
    ));
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/chat"] {
        let answer = gate.post(path, &[], &body(path, "gpt-5-mni"));
        let (message, code) = error_of(path, &answer);
        assert_eq!((answer.status, code.as_str()), (404, "model_not_found"), "{path}");
        assert!(message.contains("gpt-5-mni") && message.contains("Did you mean gpt-5-mini?"), "{message}");
    }
    let long = "x".repeat(5_000);
    let answer = gate.post("/v1/chat", &[], &body("/v1/chat", &long));
    assert!(answer.status == 404 && answer.body.len() < 1_000, "a name is not repeated at any length");
}

#[test]
fn a_body_over_the_bound_is_refused_whether_or_not_it_says_its_length() {
    let provider = Provider::quick();
    let gate = narrow(&provider);
    let large = format!("{{\"model\":\"m\",\"messages\":[\"{}\"]}}", "x".repeat(3_000_000));
    for path in PATHS {
        let mut client = Client::connect(gate.addr);
        client.send_if_taken(&client::request("POST", path, &[], large.as_bytes()));
        let answer = client.answer();
        let (message, _) = error_of(path, &answer);
        assert_eq!(answer.status, 413, "{path}: {message}");
        assert!(message.contains("20000") && message.contains("body_bytes_max"), "{path}: {message}");

        let mut client = Client::connect(gate.addr);
        client.send(&client::request("POST", path, &["transfer-encoding: chunked"], b""));
        for piece in large.as_bytes().chunks(8_000) {
            client.send_if_taken(format!("{:x}\r\n", piece.len()).as_bytes());
            client.send_if_taken(piece);
            client.send_if_taken(b"\r\n");
        }
        client.send_if_taken(b"0\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, error_of(path, &answer).0.contains("20000")), (413, true), "{path}");
    }
    let absurd = "content-length: 18446744073709551614";
    let answer = client::ask(gate.addr, &client::request("POST", "/v1/messages", &[absurd], b""));
    assert!(matches!(answer.status, 400 | 413 | 431), "{answer:?}");
    assert_eq!(provider.sim.stats(0).started, 0);
    gate.is_quiet();
}

#[test]
fn bad_utf8_is_refused_with_its_place() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    for path in PATHS {
        let bad =
            b"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}],\"input\":\"\"}";
        let answer = client::ask(gate.addr, &client::request("POST", path, &[], bad));
        let (message, _) = error_of(path, &answer);
        assert_eq!(answer.status, 400, "{path}: {message}");
        assert!(message.contains("UTF-8") && message.contains("51"), "{path}: {message}");
    }
    assert_eq!(provider.sim.stats(0).started, 0);
}

#[test]
fn a_gzip_body_is_decoded_and_goes_up_plain() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let plain = json!({"model": "m", "messages": [{"role": "user", "content": "Größe"}]}).to_string();
    for coding in ["content-encoding: gzip", "content-encoding: x-gzip", "content-encoding: GZIP"] {
        let request = client::request("POST", "/v1/chat/completions", &[coding], &gzip(plain.as_bytes()));
        let answer = client::ask(gate.addr, &request);
        assert_eq!(answer.status, 200, "{coding}: {answer:?}");
        let (headers, body) = provider.last();
        assert_eq!(body, plain);
        assert!(!headers.iter().any(|h| h.starts_with("content-encoding")), "{headers:?}");
        assert!(headers.contains(&format!("content-length: {}", plain.len())), "{headers:?}");
    }
}

#[test]
fn a_gzip_bomb_meets_the_bound_of_the_body() {
    let provider = Provider::quick();
    let gate = narrow(&provider);
    let bomb = gzip(&vec![b' '; 15_000_000]);
    assert!(bomb.len() < 20_000, "it is within the bound before it is decoded");
    for bytes in [bomb.clone(), [bomb.as_slice(), &bomb[..10]].concat()] {
        let request = client::request(
            "POST",
            "/v1/messages",
            &["content-encoding: gzip"],
            &bytes[..bytes.len().min(19_000)],
        );
        let answer = client::ask(gate.addr, &request);
        let (message, _) = error_of("/v1/messages", &answer);
        assert_eq!(answer.status, 413, "{message}");
    }
    let broken = &gzip(b"{\"model\":\"m\"}")[..12];
    let request = client::request("POST", "/v1/messages", &["content-encoding: gzip"], broken);
    let answer = client::ask(gate.addr, &request);
    let (message, _) = error_of("/v1/messages", &answer);
    assert!(answer.status == 400 && message.contains("gzip"), "{message}");
}

#[test]
fn an_unknown_content_encoding_is_named() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    for path in PATHS {
        for coding in ["br", "zstd", "gzip, gzip", "deflate"] {
            let header = format!("content-encoding: {coding}");
            let answer = client::ask(gate.addr, &client::request("POST", path, &[&header], b"{}"));
            let (message, _) = error_of(path, &answer);
            assert!((400..=415).contains(&answer.status) && message.contains(coding), "{path}: {message}");
        }
    }
    assert_eq!(provider.sim.stats(0).started, 0);
}

#[test]
fn a_head_that_is_too_large_is_431() {
    let provider = Provider::quick();
    let gate = narrow(&provider);
    let long = format!("x-long: {}", "x".repeat(60_000));
    let mut client = Client::connect(gate.addr);
    client.send_if_taken(&client::request("POST", "/v1/messages", &[&long], b"{}"));
    assert_eq!(client.answer().status, 431);
    let many: Vec<String> = (0..500).map(|n| format!("x-{n}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut client = Client::connect(gate.addr);
    client.send_if_taken(&client::request("GET", "/v1/models", &many, b""));
    assert_eq!(client.answer().status, 431);
    let long = format!("/v1/{}", "x".repeat(60_000));
    let mut client = Client::connect(gate.addr);
    client.send_if_taken(&client::request("GET", &long, &[], b""));
    assert!(matches!(client.answer().status, 414 | 431));
    assert_eq!(gate.get("/healthz").status, 200);
    gate.is_quiet();
}

#[test]
fn unknown_paths_and_methods_are_named_in_the_callers_dialect() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    for path in PATHS {
        for method in ["GET", "PUT", "DELETE"] {
            let answer = client::ask(gate.addr, &client::request(method, path, &[], b""));
            let (message, _) = error_of(path, &answer);
            assert_eq!(answer.status, 405, "{method} {path}: {message}");
            assert!(message.contains("POST") && message.contains(method), "{message}");
            assert_eq!(answer.header("allow"), Some("POST"), "{method} {path}");
        }
    }
    for path in ["/v2/chat/completions", "/chat/completions", "/v1", "/favicon.ico"] {
        let answer = client::ask(gate.addr, &client::request("POST", path, &[], b"{}"));
        let (message, _) = error_of(path, &answer);
        assert!(answer.status == 404 && message.contains(path) && message.contains("/v1/"), "{message}");
    }
    let answer = client::ask(
        gate.addr,
        &client::request("POST", "/nowhere", &["anthropic-version: 2023-06-01"], b"{}"),
    );
    assert_eq!((answer.status, answer.json()["type"].clone()), (404, json!("error")));
    for strange in ["TRACE", "CONNECT", "BREW", "PATCH"] {
        let answer = client::ask(gate.addr, &client::request(strange, "/v1/messages", &[], b""));
        assert_eq!(answer.status, 405, "{strange}");
    }
}

#[test]
fn a_path_with_dot_segments_goes_nowhere() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    for path in ["/v1/../admin", "/v1/files/../../admin", "/v1/%2e%2e/admin", "/v1/.%2E/admin", "/v1/.."] {
        let answer = gate.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
        let (message, _) = error_of(path, &answer);
        assert!(!message.contains("simulator"), "{path} went up: {message}");
    }
}

#[test]
fn pages_of_allowed_origins_may_call_and_others_may_not_read() {
    let provider = Provider::quick();
    let gate = Gate::start(&toml(&provider.url(), "cors_origins = [\"https://app.example\"]\n", ""));
    let preflight = |origin: &str| {
        let headers = [
            &format!("origin: {origin}"),
            "access-control-request-method: POST",
            "access-control-request-headers: authorization, content-type",
        ];
        client::ask(gate.addr, &client::request("OPTIONS", "/v1/chat/completions", &headers, b""))
    };
    let answer = preflight("https://app.example");
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("authorization, content-type"));
    assert!(answer.header("access-control-allow-methods").unwrap().contains("POST"));
    assert_eq!(preflight("https://evil.example").header("access-control-allow-origin"), None);
    for (origin, allowed) in
        [("https://app.example", true), ("https://app.example.evil", false), ("null", false)]
    {
        let header = format!("origin: {origin}");
        for path in ["/v1/chat/completions", "/nowhere"] {
            let answer = gate.post(path, &[&header], &body("/v1/chat/completions", "m"));
            let said = answer.header("access-control-allow-origin");
            assert_eq!(said, allowed.then_some(origin), "{path}");
        }
    }
    let (headers, _) = provider.last();
    assert!(!headers.iter().any(|h| h.starts_with("origin")), "{headers:?}");
    let plain = client::ask(gate.addr, &client::request("OPTIONS", "/v1/chat/completions", &[], b""));
    assert_eq!((plain.status, plain.header("allow")), (405, Some("POST")));
}

#[test]
fn head_gets_the_head_alone() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let mut client = Client::connect(gate.addr);
    for path in ["/healthz", "/readyz", "/metrics", "/v1/models"] {
        client.send(&client::request("HEAD", path, &[], b""));
        let answer = client.answer_to_head();
        assert_eq!(answer.status, 200, "{path}");
        let length: usize = answer.header("content-length").unwrap().parse().unwrap();
        assert!(length > 0, "{path} says how long it would be");
    }
    client.send(&client::request("GET", "/healthz", &[], b""));
    assert_eq!(client.answer().text(), "ok\n", "no body was left on the connection");
}
