//! Clients that leave, in every state of a request and in every way: what they asked for ends with them.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{self, Client};
use crate::h2::{self, H2};
use crate::rig::{Gate, Provider, body, eventually, toml};

const PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/messages", "/v1/chat"];

/// What the request is doing when its client leaves: the model that makes it so, whether it streams,
/// and what the client has read by then.
const STATES: [(&str, &str, bool, Option<&str>); 5] = [
    ("between tokens", "sim-ttft1-itl5-n1000000", true, Some("data:")),
    ("in a silence", "sim-ttft1-itl1-n100-faultstall@3", true, Some("data:")),
    ("before the first content", "sim-faultrolesilence", true, None),
    ("before the head", "sim-faultsilent", true, None),
    ("before a whole answer", "sim-ttft600000", false, None),
];

/// The requests of every state that `path` has.
fn states(path: &'static str) -> impl Iterator<Item = (&'static str, Value, Option<&'static str>)> {
    STATES.into_iter().filter(move |(_, _, stream, _)| *stream || path != "/v1/chat").map(
        move |(state, model, stream, wait)| {
            let mut request = body(path, model);
            if path != "/v1/chat" {
                request["stream"] = json!(stream);
            }
            (state, request, wait)
        },
    )
}

/// Checks that what was left has ended everywhere.
fn over(provider: &Provider, gate: &Gate, what: &str, left: u64) {
    eventually(&format!("{what}: the provider knows that its caller has left"), || {
        let stats = provider.sim.stats(0);
        (stats.active == 0 && stats.aborted == left).then_some(())
    });
    gate.is_quiet();
}

fn leave(way: &str, how: impl Fn(Client)) {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let mut left = 0;
    for path in PATHS {
        for (state, request, wait) in states(path) {
            let mut client = Client::connect(gate.addr);
            client.send(&client::request("POST", path, &[], request.to_string().as_bytes()));
            eventually("the provider has the request", || {
                (provider.sim.stats(0).started == left + 1).then_some(())
            });
            let mut id = None;
            if let Some(text) = wait {
                id = Some(client.head().id());
                let _ = client.read_to(text);
            }
            how(client);
            left += 1;
            over(&provider, &gate, &format!("{way}, {path}, {state}"), left);
            if let Some(id) = id {
                assert_eq!(gate.timeline(&id, &[])["outcome"], "cancelled", "{way}, {path}, {state}");
            }
        }
    }
    assert_eq!(provider.sim.stats(0).tokens_after_abort, 0);
}

#[test]
fn a_client_that_closes_ends_its_request_in_every_state() {
    leave("FIN", drop);
}

#[test]
fn a_client_that_closes_its_side_counts_as_gone_in_every_state() {
    leave("half-close", |mut client| {
        client.half_close();
        let _ = client.end();
    });
}

#[test]
fn a_client_that_resets_ends_its_request_in_every_state() {
    leave("RST", Client::reset);
}

#[test]
fn an_http2_reset_ends_its_request_in_every_state_and_leaves_its_neighbours() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let client = H2::connect(gate.addr, 65_535);
    let mut left = 0;
    for path in PATHS {
        for (state, request, wait) in states(path) {
            let started = provider.sim.stats(0).started;
            let asking = client.runtime().spawn(client.post(path, &request));
            client.until(|| provider.sim.stats(0).started == started + 1);
            if let Some(text) = wait {
                let mut body = client.run(async { asking.await.unwrap().unwrap().into_body() });
                let _ = client.run(h2::read_to(&mut body, text));
            } else {
                asking.abort();
                // With it goes an answer that had come already.
                drop(asking);
            }
            left += 1;
            client.until(|| provider.sim.stats(0).active == 0 && provider.sim.stats(0).aborted == left);
            let answer = client.run(client.post("/v1/chat", &body("/v1/chat", "m"))).unwrap();
            let text = client.run(async { h2::read_to(&mut answer.into_body(), "event: done").await });
            assert!(text.contains("token"), "{path}, {state}: {text}");
        }
    }
    client.drop_connection();
    gate.is_quiet();
}

#[test]
fn an_http2_connection_that_breaks_ends_all_its_requests() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let client = H2::connect(gate.addr, 65_535);
    let requests: Vec<_> =
        PATHS.into_iter().flat_map(|path| states(path).map(move |(_, r, _)| (path, r))).collect();
    let running = requests.len() as u64;
    let asking: Vec<_> =
        requests.iter().map(|(path, request)| client.runtime().spawn(client.post(path, request))).collect();
    client.until(|| provider.sim.stats(0).started == running);
    client.drop_connection();
    over(&provider, &gate, "all at once", running);
    drop(asking);
}

#[test]
fn clients_of_an_http2_upstream_end_their_own_stream_alone() {
    let provider = Provider::quick();
    let gate = Gate::start(&toml(&provider.url(), "", "").replace("api_key", "h2c = true\napi_key"));
    let mut stays = Client::connect(gate.addr);
    let path = PATHS[0];
    let endless = body(path, "sim-ttft1-itl5-n1000000").to_string();
    stays.send(&client::request("POST", path, &[], endless.as_bytes()));
    let _ = stays.read_to("data:");
    for (left, (state, request, wait)) in (1..).zip(states(path)) {
        let mut client = Client::connect(gate.addr);
        client.send(&client::request("POST", path, &[], request.to_string().as_bytes()));
        eventually("the provider has the request", || (provider.sim.stats(0).active == 2).then_some(()));
        if let Some(text) = wait {
            let _ = client.read_to(text);
        }
        drop(client);
        eventually(&format!("{state}: the provider's stream is reset"), || {
            (provider.sim.stats(0).aborted == left && provider.sim.stats(0).active == 1).then_some(())
        });
        let _ = stays.read_to("data:");
    }
    drop(stays);
    gate.is_quiet();
    provider.all_over();
}

#[test]
fn a_client_that_leaves_while_we_connect_costs_the_upstream_no_byte() {
    // A listener whose queue is full takes no further connection and refuses none.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let addr = listener.local_addr().unwrap();
    let mut fillers = Vec::new();
    while let Ok(filler) = std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
        fillers.push(filler);
        assert!(fillers.len() < 100, "the queue of the listener has an end");
    }
    let gate = Gate::start(&toml(&format!("http://{addr}"), "", ""));
    let mut client = Client::connect(gate.addr);
    client.send(&client::request("POST", PATHS[0], &[], body(PATHS[0], "m").to_string().as_bytes()));
    eventually("the request is under way", || {
        (gate.metric("firsttoken_requests_active")? >= 1.0).then_some(())
    });
    drop(client);
    gate.is_quiet();
    listener.set_nonblocking(true).unwrap();
    drop(fillers);
    while let Ok((mut accepted, _)) = listener.accept() {
        accepted.set_nonblocking(true).unwrap();
        let mut bytes = [0; 1];
        let read = std::io::Read::read(&mut accepted, &mut bytes);
        assert!(!matches!(read, Ok(n) if n > 0), "a byte of the request went up");
    }
}

#[test]
fn a_client_that_has_pipelined_a_request_is_missed_with_the_next_keepalive() {
    let provider = Provider::quick();
    let gate = Gate::start(&toml(&provider.url(), "", "[stream]\nkeepalive_ms = 500\n"));
    let request = body(PATHS[0], "sim-ttft1-itl1-n100-faultstall@3").to_string();
    for behind in ["\r\n", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let mut client = Client::connect(gate.addr);
        client.send(&client::request("POST", PATHS[0], &[], request.as_bytes()));
        let _ = client.read_to("data:");
        client.send(behind.as_bytes());
        std::thread::sleep(Duration::from_millis(20));
        drop(client);
    }
    over(&provider, &gate, "pipelined", 2);
}
