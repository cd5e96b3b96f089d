//! A configuration that is replaced while streams run.

use crate::client::{self, Client};
use crate::rig::{Gate, Provider, body, config, new_key, toml};

const CHAT: &str = "/v1/chat/completions";

fn ask(gate: &Gate, key: &str) -> u16 {
    gate.post(CHAT, &["connection: close", &format!("authorization: Bearer {key}")], &body(CHAT, "m")).status
}

#[test]
fn a_stream_runs_on_while_keys_and_upstreams_change_under_it() {
    let (before, after) = (Provider::quick(), Provider::quick());
    let ((old_key, old_entry), (new_key, new_entry)) = (new_key("old"), new_key("new"));
    let gate = Gate::start(&toml(&before.url(), "", &old_entry));
    let mut running = Client::connect(gate.addr);
    let request = body(CHAT, "sim-ttft1-itl10-n100").to_string();
    let headers = [format!("authorization: Bearer {old_key}")];
    running.send(&client::request("POST", CHAT, &[&headers[0]], request.as_bytes()));
    assert_eq!(running.peek_to("data:"), 200);

    let late = gate.reload.apply(config(&toml(&after.url(), "", &new_entry)));
    assert_eq!(late, Ok(Vec::new()));
    assert_eq!((ask(&gate, &old_key), ask(&gate, &new_key)), (401, 200));
    assert_eq!((before.sim.stats(0).started, after.sim.stats(0).started), (1, 1));

    let answer = running.answer();
    assert!(answer.whole && answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    assert_eq!((before.sim.stats(0).completed, before.sim.stats(0).aborted), (1, 0));
}

#[test]
fn an_upstream_that_stays_as_it_was_keeps_its_connections() {
    let provider = Provider::quick();
    let gate = Gate::before(&provider);
    let first = gate.post(CHAT, &["connection: close"], &body(CHAT, "m"));
    let again = toml(&provider.url(), "", "[stream]\nkeepalive_ms = 5000\n");
    assert_eq!(gate.reload.apply(config(&again)), Ok(Vec::new()));
    let second = gate.post(CHAT, &["connection: close"], &body(CHAT, "m"));
    let reused = |answer: &client::Answer| {
        gate.timeline(answer.header("x-firsttoken-request-id").unwrap(), &[])["connection_reused"].as_bool()
    };
    assert_eq!((reused(&first), reused(&second)), (Some(false), Some(true)));
}

#[test]
fn what_takes_a_restart_is_named_and_an_open_gateway_stays_shut() {
    let provider = Provider::quick();
    let (key, entry) = new_key("k");
    let listen = "listen = \"0.0.0.0:9000\"";
    let gate = Gate::start(&toml(&provider.url(), listen, &entry));
    let other =
        toml(&provider.url(), "listen = \"0.0.0.0:9001\"", &entry).replace("threads = 1", "threads = 2");
    assert_eq!(gate.reload.apply(config(&other)), Ok(vec!["listen", "threads"]));
    // Without keys it would have to listen on this machine alone, and it does not.
    let refused = gate.reload.apply(config(&toml(&provider.url(), "", ""))).unwrap_err();
    assert!(refused.contains("key"), "{refused}");
    assert_eq!((ask(&gate, "ft-wrong"), ask(&gate, &key)), (401, 200));
}
