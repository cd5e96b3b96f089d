//! An event loop that something blocks: the canary sees it.

use std::sync::Arc;
use std::time::Duration;

use firsttoken_gateway::{Network, Pipes};

use crate::rig::{Gate, Provider, body, eventually, toml};

const CHAT: &str = "/v1/chat/completions";

/// How often the loop came round later than that many seconds.
fn later_than(gate: &Gate, seconds: &str) -> Option<f64> {
    let all = gate.metric("runtime_stall_seconds_count")?;
    Some(all - gate.metric(&format!("runtime_stall_seconds_bucket{{le=\"{seconds}\"}}"))?)
}

#[test]
fn a_blocked_event_loop_shows_in_the_metrics() {
    let provider = Provider::quick();
    let sim = provider.sim.clone();
    let pipes: Pipes = Arc::new(move |_| {
        // What must never happen on an event loop.
        std::thread::sleep(Duration::from_millis(200));
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        drop(tokio::spawn(sim.clone().serve_connection(theirs)));
        Ok(ours)
    });
    let gate = Gate::over(&toml("http://pipe", "", ""), Network::Pipes(pipes));
    let before = later_than(&gate, "0.1").unwrap();
    assert_eq!(gate.post(CHAT, &[], &body(CHAT, "m")).status, 200);
    eventually("the block is on record", || (later_than(&gate, "0.1")? > before).then_some(()));
    assert!(gate.metric("runtime_stall_seconds_sum").unwrap() >= 0.15);
}
