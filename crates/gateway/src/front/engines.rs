//! What engines of this machine say of themselves, asked over the same way as requests: their metrics are
//! part of ours, and one that is stuck makes us not ready.
//!
//! Invariant: an engine that does not answer holds up nobody for longer than [`PATIENCE`].

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use firsttoken_logic::clocks::{Clocks, Limits};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::clock;
use crate::evidence::{Stamps, merge};
use crate::gateway::Setup;
use crate::upstream::{Attempt, Request};

/// How long an engine may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most that it may say, in bytes.
const SAID_BYTES_MAX: usize = 4 << 20;

/// Our metrics, and those of the engines that answer.
pub(super) async fn metrics(setup: &Arc<Setup>) -> String {
    setup.shared.evidence.metrics.show_lines(setup.shared.lines.standings());
    let ours = setup.shared.evidence.render_metrics();
    let said = ask(setup, "/metrics").await;
    let pages = said.iter().filter_map(|(_, said)| match said {
        Some((StatusCode::OK, page)) => std::str::from_utf8(page).ok(),
        _ => None,
    });
    let pages: Vec<&str> = std::iter::once(ours.as_str()).chain(pages).collect();
    if pages.len() == 1 { ours } else { merge::merge(&pages) }
}

/// What is wrong with engines, a line each; empty where all of them work.
pub(super) async fn faults(setup: &Arc<Setup>) -> String {
    let mut lines = String::new();
    for (name, said) in ask(setup, "/health").await {
        let errors = match &said {
            Some((StatusCode::OK, _)) => continue,
            Some((_, body)) => errors(body),
            None => vec!["it does not answer".to_owned()],
        };
        for error in errors {
            lines.push_str(&format!("engine {name}: {error}\n"));
        }
    }
    lines
}

/// The errors in what an engine says of its health.
fn errors(body: &[u8]) -> Vec<String> {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let faults = said["faults"].as_array().into_iter().flatten();
    let errors: Vec<String> = faults.filter_map(|fault| fault["error"].as_str().map(str::to_owned)).collect();
    if errors.is_empty() { vec!["it is not well, and does not say why".to_owned()] } else { errors }
}

/// What an engine said, if it did.
type Said = Option<(StatusCode, Bytes)>;

/// What each engine says at `path`, in the order of the configuration.
async fn ask(setup: &Arc<Setup>, path: &'static str) -> Vec<(Arc<str>, Said)> {
    let mut asking = JoinSet::new();
    for (index, upstream) in setup.config().upstreams.iter().enumerate() {
        if upstream.local {
            let setup = setup.clone();
            asking.spawn(async move {
                let said = tokio::time::timeout(PATIENCE, say(&setup, index, path)).await.ok().flatten();
                (index, said)
            });
        }
    }
    let mut said = asking.join_all().await;
    said.sort_by_key(|(index, _)| *index);
    said.into_iter().map(|(index, said)| (setup.upstream(index).0.clone(), said)).collect()
}

async fn say(setup: &Setup, upstream: usize, path: &str) -> Said {
    let request = Request {
        method: Method::GET,
        path: path.to_owned(),
        authority: "engine".to_owned(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    let now = clock::now();
    let limits = Limits {
        connect: None,
        headers: None,
        first_content: None,
        stall: None,
        idle: None,
        total: Some(PATIENCE),
    };
    let mut attempt = Attempt { clocks: Clocks::new(limits, now), stamps: Stamps::new(now, None) };
    let answer = setup.upstream(upstream).1.send(&request, &mut attempt).await.ok()?;
    let (status, mut source) = (answer.head.status, answer.source);
    let mut body = BytesMut::new();
    while let Some(read) = std::future::poll_fn(|cx| source.poll_data(cx)).await {
        body.extend_from_slice(&read.ok()?);
        if body.len() > SAID_BYTES_MAX {
            return None;
        }
    }
    Some((status, body.freeze()))
}
