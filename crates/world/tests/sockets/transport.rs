//! The way to the upstream and back: what may stand in a head, how a body ends, what a failure is called.

use crate::client::{self, Answer, Client};
use crate::rig::{Gate, Provider, body, error_of, eventually, toml};
use crate::upstream::{EVENTS, Served, Upstream, stream_head};

const CHAT: &str = "/v1/chat/completions";

fn chat(gate: &Gate) -> Answer {
    gate.post(CHAT, &[], &body(CHAT, "m"))
}

/// A chat through a gateway before `upstream`, which must come out whole.
fn whole(upstream: &Upstream) {
    let gate = Gate::start(&toml(&upstream.url(), "", ""));
    for _ in 0..2 {
        let answer = chat(&gate);
        assert_eq!((answer.status, answer.text()), (200, EVENTS.concat()));
        assert_eq!(gate.timeline(&answer.id(), &[])["outcome"], "complete");
    }
}

#[test]
fn chunk_extensions_and_trailers_are_taken() {
    let upstream = Upstream::start(|peer| {
        while peer.request().is_some() {
            peer.say(stream_head("transfer-encoding: Chunked"));
            for event in EVENTS {
                peer.say(format!("{:04X} ; a=\"b;c\"\r\n{event}\r\n", event.len()));
            }
            peer.say("0;last\r\nx-checksum: 1\r\nx-more: 2\r\n\r\n");
        }
    });
    whole(&upstream);
    assert_eq!(upstream.connections(), 1, "the connection is in order after its trailers");
}

#[test]
fn a_stream_in_content_length_framing_is_taken() {
    let all = EVENTS.concat();
    let upstream = Upstream::saying(stream_head(&format!("content-length: {}", all.len())) + &all);
    whole(&upstream);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_http_10_upstream_ends_its_stream_by_closing() {
    let upstream = Upstream::start(|peer| {
        let _ = peer.request();
        peer.say("HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
        EVENTS.into_iter().for_each(|event| peer.say(event));
    });
    whole(&upstream);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn informational_answers_are_passed_over() {
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n";
    let all = EVENTS.concat();
    let head = stream_head(&format!("content-length: {}", all.len()));
    let upstream = Upstream::saying(format!("{early}{head}{all}"));
    whole(&upstream);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_answer_that_comes_byte_by_byte_comes_whole() {
    let upstream = Upstream::start(|peer| {
        while peer.request().is_some() {
            let mut bytes = stream_head("transfer-encoding: chunked").into_bytes();
            for event in EVENTS {
                bytes.extend(format!("{:x}\r\n{event}\r\n", event.len()).bytes());
            }
            bytes.extend(b"0\r\n\r\n");
            bytes.into_iter().for_each(|byte| peer.say([byte]));
        }
    });
    whole(&upstream);
}

#[test]
fn an_upstream_that_talks_out_of_turn_is_not_used_again() {
    let all = EVENTS.concat();
    let head = stream_head(&format!("content-length: {}", all.len()));
    let upstream =
        Upstream::saying(format!("{head}{all}HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\npoison!"));
    whole(&upstream);
    assert_eq!(upstream.connections(), 2, "what stands behind an answer is nobody's");
}

#[test]
fn answers_that_are_not_http_are_a_named_502() {
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(100_000));
    let cases = [
        ("SSH-2.0-server\r\n\r\n".to_owned(), "upstream_protocol"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!".to_owned(),
            "upstream_protocol",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello".to_owned(), "upstream_protocol"),
        ("HTTP/1.1 200 OK\r\nx: \0\r\n\r\n".to_owned(), "upstream_protocol"),
        (endless, "upstream_protocol"),
        ("HTTP/1.1 200 OK\r\ncontent-ty".to_owned(), "upstream_closed"),
        ("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n".to_owned(), "upstream_error"),
        (String::new(), "upstream_closed"),
    ];
    for (said, code) in cases {
        let upstream = {
            let said = said.clone();
            Upstream::start(move |peer| {
                let _ = peer.request();
                peer.say(&said);
            })
        };
        let gate = Gate::start(&toml(&upstream.url(), "", ""));
        let answer = chat(&gate);
        let (message, found) = error_of(CHAT, &answer);
        let said: String = said.chars().take(60).collect();
        assert_eq!((answer.status, found.as_str()), (502, code), "{said:?}: {message}");
        assert!(message.contains("open"), "the upstream is named: {message}");
    }
}

#[test]
fn a_refused_connection_is_named() {
    let addr = {
        let nobody = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        nobody.local_addr().unwrap()
    };
    let gate = Gate::start(&toml(&format!("http://{addr}"), "", ""));
    for path in [CHAT, "/v1/messages", "/v1/files"] {
        let answer = gate.post(path, &[], &body(path, "m"));
        let (message, code) = error_of(path, &answer);
        assert_eq!(answer.status, 502, "{message}");
        assert!(path == "/v1/messages" || code == "upstream_connect", "{code}");
        assert!(message.contains(&addr.to_string()) && message.contains("refused"), "{message}");
    }
}

#[test]
fn a_name_that_does_not_resolve_is_named() {
    let gate = Gate::start(&toml("http://nobody.invalid:1234", "", ""));
    let answer = chat(&gate);
    let (message, code) = error_of(CHAT, &answer);
    assert_eq!((answer.status, code.as_str()), (502, "upstream_dns"), "{message}");
    assert!(message.contains("nobody.invalid"), "{message}");
}

#[test]
fn a_connection_that_the_upstream_closed_while_idle_is_not_used() {
    let upstream = Upstream::start(|peer| {
        // One answer for each connection, then the end that a server makes of an idle one.
        if peer.request().is_some() {
            let all = EVENTS.concat();
            peer.say(stream_head(&format!("content-length: {}", all.len())) + &all);
        }
    });
    let gate = Gate::start(&toml(&upstream.url(), "", ""));
    for n in 1..=5 {
        assert_eq!(chat(&gate).text(), EVENTS.concat(), "{n}");
        eventually("the upstream has closed", || (upstream.open() == 0).then_some(()));
    }
    assert_eq!((upstream.requests().len(), upstream.connections()), (5, 5), "each request was sent once");
}

#[test]
fn an_early_refusal_is_heard_while_the_body_is_still_being_sent() {
    let refusal = "{\"error\":{\"message\":\"far too long\",\"type\":\"invalid_request_error\"}}";
    let answer = format!(
        "HTTP/1.1 413 Payload Too Large\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{refusal}",
        refusal.len()
    );
    let early = |after: fn(&mut Served)| {
        let answer = answer.clone();
        Upstream::start(move |peer| {
            // Only the head is read; of the body no byte.
            peer.head_only();
            peer.say(&answer);
            after(peer);
        })
    };
    let upstreams = [("and closes", early(|_| {})), ("and waits", early(|peer| peer.wait_without_reading()))];
    let long =
        serde_json::json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(20_000_000)}]});
    for (what, upstream) in upstreams {
        let gate = Gate::start(&toml(&upstream.url(), "", ""));
        let answer = gate.post(CHAT, &[], &long);
        assert_eq!(answer.status, 413, "{what}: {}", answer.text());
        assert!(error_of(CHAT, &answer).0.contains("far too long"), "{what}: {}", answer.text());
        gate.is_quiet();
        upstream.release();
    }
}

#[test]
fn a_slow_upstream_gets_a_long_body_whole() {
    let upstream = Upstream::start(|peer| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        while let Some(request) = peer.request() {
            let length = request.len().to_string();
            peer.say(format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{length}",
                length.len()
            ));
        }
    });
    let gate = Gate::start(&toml(&upstream.url(), "", ""));
    let long =
        serde_json::json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(9_000_000)}]});
    let mut client = Client::connect(gate.addr);
    for _ in 0..2 {
        client.send(&client::request("POST", CHAT, &[], long.to_string().as_bytes()));
        let answer = client.answer();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().parse::<usize>().unwrap() > 9_000_000);
    }
}

#[test]
fn http2_with_prior_knowledge_is_spoken_to_the_upstream() {
    let provider = Provider::quick();
    let gate = Gate::start(&toml(&provider.url(), "", "").replace("api_key", "h2c = true\napi_key"));
    for path in [CHAT, "/v1/messages", "/v1/chat"] {
        let answer = gate.post(path, &[], &body(path, "m"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(gate.timeline(&answer.id(), &[])["outcome"], "complete", "{path}");
        assert_eq!(provider.sim.last().unwrap().version, "HTTP/2.0");
    }
    let twice = ["openai-beta: one", "openai-beta: two"];
    assert_eq!(gate.post(CHAT, &twice, &body(CHAT, "m")).status, 200);
    let seen = provider.sim.last().unwrap().headers;
    let betas: Vec<_> =
        seen.iter().filter(|(name, _)| name == "openai-beta").map(|(_, v)| v.as_str()).collect();
    assert_eq!(betas, ["one", "two"], "a header that comes twice goes up twice");
    let long =
        serde_json::json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(3_000_000)}]});
    assert_eq!(gate.post(CHAT, &[], &long).status, 200);
    assert!(gate.get("/v1/nothing").status == 404);
    assert_eq!(provider.all_over(), 0);
}
