//! Who is let in, which keys go where, and who the client is taken for.

use serde_json::{Value, json};

use crate::client::{self, Answer};
use crate::rig::{Gate, PATHS, Provider, body, error_of, new_key, toml};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

/// A gateway with two keys of two tenants; the keys.
fn locked(provider: &Provider, top: &str) -> (Gate, String, String) {
    let ((web, web_entry), (batch, batch_entry)) = (new_key("web"), new_key("batch"));
    let gate = Gate::start(&toml(&provider.url(), top, &format!("{web_entry}{batch_entry}")));
    (gate, web, batch)
}

/// A gateway whose upstreams get the caller's own key.
fn passing(provider: &Provider, keys: &str) -> Gate {
    Gate::start(&toml(&provider.url(), "", keys).replace("api_key = \"sk-theirs\"", "auth = \"caller\""))
}

fn post(gate: &Gate, path: &str, headers: &[&str]) -> Answer {
    gate.post(path, headers, &body(path, "m"))
}

#[test]
fn a_wrong_key_is_refused_in_every_dialect_and_either_of_two_lets_in() {
    let provider = Provider::quick();
    let (gate, web, batch) = locked(&provider, "");
    for path in PATHS {
        let cut = format!("authorization: Bearer {}", &web[..web.len() - 1]);
        let wrong = [
            "x-none: 1",
            "authorization: Bearer nonsense",
            "authorization: Basic eDp5",
            "x-api-key: ft-",
            "x-firsttoken-key: ",
            &cut,
        ];
        for header in wrong {
            let answer = post(&gate, path, &[header]);
            let (message, code) = error_of(path, &answer);
            assert_eq!(answer.status, 401, "{path} {header}: {message}");
            assert!(path == MESSAGES || code == "invalid_api_key", "{path} {header}: {message} {code}");
            assert!(!answer.text().contains(&web[..20]), "the key is not repeated");
        }
    }
    assert_eq!(provider.sim.stats(0).started, 0);
    for path in PATHS {
        for key in [&web, &batch] {
            for header in
                ["authorization: Bearer ", "authorization: bearer ", "x-api-key: ", "x-firsttoken-key: "]
            {
                let answer = post(&gate, path, &[&format!("{header}{key}")]);
                assert_eq!(answer.status, 200, "{path} {header}: {}", answer.text());
            }
        }
    }
}

#[test]
fn our_key_never_goes_up_wherever_it_stood() {
    let provider = Provider::quick();
    let (gate, web, _) = locked(&provider, "");
    let bearer = format!("authorization: Bearer {web}");
    let (api, own, azure) =
        (format!("x-api-key: {web}"), format!("x-firsttoken-key: {web}"), format!("api-key: {web}"));
    let places: [&[&str]; 6] = [
        &[&bearer],
        &[&api],
        &[&own],
        &[&bearer, &api],
        &[&own, &bearer, &azure],
        &[&bearer, &bearer, &azure],
    ];
    for headers in places {
        for (path, theirs) in [(CHAT, "authorization: Bearer sk-theirs"), (MESSAGES, "x-api-key: sk-theirs")]
        {
            assert_eq!(post(&gate, path, headers).status, 200, "{headers:?}");
            let (seen, _) = provider.last();
            assert!(!seen.iter().any(|h| h.contains(&web)), "{headers:?}: {seen:?}");
            assert!(seen.iter().any(|h| h == theirs), "{headers:?}: {seen:?}");
            let keys = seen.iter().filter(|h| h.starts_with("authorization") || h.starts_with("x-api-key"));
            assert_eq!(keys.count(), 1, "{headers:?}: {seen:?}");
        }
    }
}

#[test]
fn the_callers_own_key_goes_up_beside_ours_and_instead_of_none() {
    let provider = Provider::quick();
    let (web, entry) = new_key("web");
    let gate = passing(&provider, &entry);
    let (own, bearer, api) = (
        format!("x-firsttoken-key: {web}"),
        format!("authorization: Bearer {web}"),
        format!("x-api-key: {web}"),
    );
    let cases: [(&[&str], Option<&str>); 6] = [
        (&[&own, "authorization: Bearer sk-mine"], Some("authorization: Bearer sk-mine")),
        (&[&own, "x-api-key: sk-mine"], Some("x-api-key: sk-mine")),
        (&[&bearer, "x-api-key: sk-mine"], Some("x-api-key: sk-mine")),
        (&[&bearer], None),
        (&[&api], None),
        (&[&bearer, &api], None),
    ];
    for (headers, wanted) in cases {
        for path in [CHAT, MESSAGES] {
            assert_eq!(post(&gate, path, headers).status, 200, "{headers:?}");
            let (seen, _) = provider.last();
            let keys: Vec<_> = seen
                .iter()
                .filter(|h| h.starts_with("authorization") || h.starts_with("x-api-key"))
                .collect();
            assert_eq!(keys, wanted.iter().collect::<Vec<_>>(), "{headers:?}");
        }
    }
    let open = passing(&provider, "");
    assert_eq!(post(&open, CHAT, &["authorization: Bearer sk-mine"]).status, 200);
    assert!(provider.last().0.contains(&"authorization: Bearer sk-mine".to_owned()));
}

#[test]
fn hop_by_hop_headers_and_who_the_caller_is_stay_here() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let stays = [
        "connection: keep-alive, X-Private, x-other",
        "x-private: 1",
        "X-OTHER: 2",
        "keep-alive: timeout=5",
        "te: trailers",
        "proxy-authorization: Basic secret",
        "proxy-connection: keep-alive",
        "upgrade: websocket",
        "cookie: session=secret",
        "origin: http://localhost",
        "referer: https://page.example/chat",
        "x-forwarded-for: 203.0.113.7",
        "forwarded: for=203.0.113.7",
        "x-real-ip: 203.0.113.7",
        "accept-encoding: br, gzip",
        "x-firsttoken-deadline-ms: 5000",
    ];
    let goes = [
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "openai-beta: a",
        "openai-organization: o",
        "x-request-id: mine",
        "x-custom: Größe",
    ];
    let headers: Vec<&str> = stays.into_iter().chain(goes).collect();
    assert_eq!(post(&gate, CHAT, &headers).status, 200);
    let (seen, _) = provider.last();
    for header in goes {
        assert!(seen.iter().any(|h| h == header), "{header} is missing: {seen:?}");
    }
    for header in stays {
        let header = header.to_ascii_lowercase();
        assert!(!seen.iter().any(|h| h.to_ascii_lowercase() == header), "{header} went up: {seen:?}");
    }
    let text = seen.join("\n");
    for secret in ["secret", "page.example", "203.0.113.7", "x-private", "x-other"] {
        assert!(!text.contains(secret), "{secret} went up: {text}");
    }
    assert!(
        seen.contains(&"accept-encoding: identity".to_owned())
            && seen.contains(&format!("host: {}", provider.addr))
    );
}

#[test]
fn unknown_fields_go_up_byte_for_byte() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let texts = [
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"x_new\": {\"a\" : [1.50, 1e3, -0]},\n\t\"seed\":18446744073709551615}",
        " { \"zz\" : null , \"model\" : \"m\" , \"messages\" : [ { \"content\" : \"\\u00e9\\ud83e\\udd80\" , \"role\" : \"user\" } ] } \r\n",
    ];
    for text in texts {
        for path in [CHAT, MESSAGES] {
            let text = text.replacen('{', "{\"max_tokens\":9,", 1);
            let answer = client::ask(gate.addr, &client::request("POST", path, &[], text.as_bytes()));
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            assert_eq!(provider.last().1, text, "{path}");
        }
    }
    let text = body(CHAT, "m").to_string();
    assert_eq!(post(&gate, CHAT, &[]).status, 200);
    let usage = "{\"stream_options\":{\"include_usage\":true},";
    assert_eq!(
        provider.last().1,
        text.replacen('{', usage, 1),
        "a stream is asked for its usage, and no more is changed"
    );
}

#[test]
fn an_alias_is_spliced_and_nothing_else_is_touched() {
    let provider = Provider::quick();
    let url = provider.url();
    let gate = Gate::start(&format!(
        "threads = 1\ndrain_ms = 1000\n[[upstreams]]\nname = \"u\"\nprovider = \"openai\"\nbase_url = \"{url}\"\nauth = \"none\"\n\
         [[models]]\nname = \"fast\"\nupstream_model = \"gpt-\\\"5\\\"\"\n[[models]]\nname = \"local/*\"\nupstream_model = \"*\"\n"
    ));
    let text = |model: &str| {
        format!(
            "{{\"x\": 1.50,\"model\" : {model} ,\"messages\":[{{\"role\":\"user\",\"content\":\"model\\\":\\\"fast\"}}]}}"
        )
    };
    for (asked, sent) in [
        ("\"fast\"", "\"gpt-\\\"5\\\"\""),
        ("\"f\\u0061st\"", "\"gpt-\\\"5\\\"\""),
        ("\"local/llama\"", "\"llama\""),
    ] {
        let answer = client::ask(gate.addr, &client::request("POST", CHAT, &[], text(asked).as_bytes()));
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(provider.last().1, text(sent));
    }
    let twice = "{\"model\":\"fast\",\"model\":\"other\",\"messages\":[1]}";
    let answer = client::ask(gate.addr, &client::request("POST", CHAT, &[], twice.as_bytes()));
    assert_eq!(answer.status, 400, "a second model is no way around the first: {}", answer.text());
}

#[test]
fn a_timeline_is_its_tenants_alone_and_knows_no_secret() {
    let provider = Provider::quick();
    let (gate, web, batch) = locked(&provider, "");
    let (web, batch) = (format!("x-api-key: {web}"), format!("x-api-key: {batch}"));
    let answer = gate.post(
        &format!("{CHAT}?key=in-the-query"),
        &[&web],
        &json!({"model": "m", "messages": [{"role": "user", "content": "a-private-word"}]}),
    );
    let timeline = gate.timeline(&answer.id(), &[&web]);
    assert_eq!((timeline["key"].clone(), timeline["outcome"].clone()), (json!("web"), json!("complete")));
    let text = timeline.to_string();
    assert!(
        !text.contains("a-private-word") && !text.contains("in-the-query") && !text.contains("ft-"),
        "{text}"
    );
    let path = format!("/v1/requests/{}", answer.id());
    for (headers, status) in [(&[batch.as_str()][..], 404), (&[], 401)] {
        assert_eq!(client::ask(gate.addr, &client::request("GET", &path, headers, b"")).status, status);
    }
}

/// The client's address in the timeline of a request with these headers.
fn seen_as(gate: &Gate, headers: &[&str]) -> Value {
    let answer = post(gate, CHAT, headers);
    gate.timeline(&answer.id(), &[])["client_addr"].clone()
}

#[test]
fn x_forwarded_for_counts_from_trusted_peers_alone() {
    let provider = Provider::quick();
    let plain = Gate::before(&provider);
    assert_eq!(seen_as(&plain, &["x-forwarded-for: 203.0.113.7"]), "127.0.0.1");
    let top = "trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]";
    let gate = Gate::start(&toml(&provider.url(), top, ""));
    let cases: [(&[&str], &str); 9] = [
        (&[], "127.0.0.1"),
        (&["x-forwarded-for: 203.0.113.7"], "203.0.113.7"),
        (&["x-forwarded-for: 198.51.100.1, 203.0.113.7"], "203.0.113.7"),
        (&["x-forwarded-for: 203.0.113.7, 10.1.1.1, 10.2.2.2"], "203.0.113.7"),
        (&["x-forwarded-for: 198.51.100.1", "x-forwarded-for: 203.0.113.7"], "203.0.113.7"),
        (&["x-forwarded-for: 203.0.113.7:4711"], "203.0.113.7"),
        (&["x-forwarded-for: [2001:db8::7]:4711"], "2001:db8::7"),
        (&["x-forwarded-for: nonsense, 10.1.1.1"], "10.1.1.1"),
        (&["x-forwarded-for: 10.1.1.1"], "10.1.1.1"),
    ];
    for (headers, wanted) in cases {
        assert_eq!(seen_as(&gate, headers), wanted, "{headers:?}");
    }
}

#[test]
fn metrics_are_for_this_machine_and_for_keys() {
    let provider = Provider::quick();
    let (gate, web, _) = locked(&provider, "trusted_proxies = [\"127.0.0.0/8\"]");
    let key = format!("authorization: Bearer {web}");
    let status =
        |headers: &[&str]| client::ask(gate.addr, &client::request("GET", "/metrics", headers, b"")).status;
    assert_eq!(status(&[]), 200);
    assert_eq!(status(&["x-forwarded-for: 203.0.113.7"]), 401, "a proxy on this machine brings others");
    assert_eq!(status(&["x-forwarded-for: 203.0.113.7", &key]), 200);
    let (plain, ..) = locked(&provider, "");
    let ask =
        |header: &str| client::ask(plain.addr, &client::request("GET", "/metrics", &[header], b"")).status;
    assert_eq!(ask("x-forwarded-for: 203.0.113.7"), 401, "also a proxy that nobody has named");
    assert_eq!(ask("forwarded: for=203.0.113.7"), 401);
}
