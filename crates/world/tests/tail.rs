//! An upstream that fails or is late is not what callers feel: another attempt answers, where one may.
//!
//! The upstreams here are one simulated provider under two names; a fault with `times=1` strikes the first
//! attempt only.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use firsttoken_gateway::config::{Config, Fallback};
use firsttoken_sim::{Ended, Options, Sim};
use firsttoken_world::world::{PIPE_BYTES, config};
use firsttoken_world::{Caller, End, Got, Said, World};
use serde_json::Value;
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// Every model has a second upstream of the same dialect, which is asked when the first one fails.
fn with_fallback(change: impl FnOnce(&mut Config)) -> World {
    let mut config = fallbacks(config());
    change(&mut config);
    World::new(config)
}

fn fallbacks(mut config: Config) -> Config {
    for at in 0..config.models.len() {
        let mut second = config.upstreams[at].clone();
        second.name = format!("second-{}", second.name);
        config.models[at].fallbacks = vec![Fallback { upstream: config.upstreams.len(), rename: None }];
        config.upstreams.push(second);
    }
    config
}

/// A world in which those upstreams refuse connections, and `sim` is all others.
fn refusing(config: Config, sim: &Arc<Sim>, refuses: impl Fn(&str) -> bool + Send + Sync + 'static) -> World {
    let sim = sim.clone();
    World::dialling(
        config,
        Arc::new(move |upstream| {
            if refuses(&upstream.name) {
                return Err(ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            drop(tokio::spawn(sim.clone().serve_connection(theirs)));
            Ok(ours)
        }),
    )
}

/// What a caller gets, and the request's timeline.
async fn ask(world: &World, caller: Caller, knobs: &str, stream: bool) -> (Got, Value) {
    let got = world.client().await.ask(caller, knobs, stream).await.rest().await;
    let timeline = world.timeline(&got.header("x-firsttoken-request-id")).await;
    (got, timeline)
}

fn lost(timeline: &Value) -> Vec<(String, String)> {
    let text = |lost: &Value, key: &str| lost[key].as_str().unwrap_or_default().to_owned();
    let attempts = timeline["lost_attempts"].as_array().into_iter().flatten();
    attempts.map(|lost| (text(lost, "upstream"), text(lost, "outcome"))).collect()
}

#[tokio::test(start_paused = true)]
async fn what_fails_before_content_is_answered_by_the_next_upstream() {
    for (fault, outcome) in [
        ("reset", "upstream_closed"),
        ("status:401", "upstream_auth"),
        ("status:404", "upstream_refused"),
        ("status:429", "upstream_rate_limit"),
        ("status:500", "upstream_error"),
        ("status:503", "upstream_error"),
        ("status:529", "upstream_overloaded"),
        ("silent", "headers_timeout"),
        ("redirect", "upstream_redirect"),
        ("empty", "upstream_truncated"),
        ("html", "upstream_protocol"),
        ("rolesilence", "first_content_timeout"),
        ("pings", "first_content_timeout"),
        ("cut@0", "upstream_cut"),
        ("badjson@0", "upstream_malformed"),
        ("errorevent@0", "upstream_reported"),
    ] {
        for caller in [Caller::Chat, Caller::Messages, Caller::Typed] {
            let world = with_fallback(|config| {
                config.defaults.clocks.headers = Some(2 * S);
                config.defaults.clocks.first_content = Some(3 * S);
            });
            let knobs = format!("n=5 times=1 fault={fault}");
            let (got, timeline) = ask(&world, caller, &knobs, true).await;
            assert_eq!((got.status, &got.end), (200, &End::Proper), "{fault} {caller:?}: {}", got.text());
            assert_eq!(timeline["outcome"], "complete", "{fault} {caller:?}");
            let first = if caller == Caller::Messages { "anthropic" } else { "openai" };
            assert_eq!(lost(&timeline), [(first.to_owned(), outcome.to_owned())], "{fault} {caller:?}");
            assert_eq!(timeline["upstream"], format!("second-{first}"), "{fault} {caller:?}");
            assert_eq!(world.sim().stats(0).active, 0, "{fault} {caller:?}: the first attempt is over");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_so_long_that_the_head_is_out_is_answered_by_the_next_upstream_too() {
    for caller in [Caller::Chat, Caller::Messages] {
        let world = with_fallback(|config| config.defaults.clocks.headers = Some(20 * S));
        let (got, timeline) = ask(&world, caller, "n=5 times=1 fault=silent", true).await;
        assert_eq!((got.status, &got.end), (200, &End::Proper), "{caller:?}: {}", got.text());
        assert_eq!(got.times_of(caller.keepalive()), [15 * S], "{caller:?}");
        assert_eq!(lost(&timeline).len(), 1, "{caller:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_upstream_may_speak_another_dialect() {
    let mut config = config();
    let messages = config.models[1].upstream;
    config.models.truncate(1);
    config.models[0].fallbacks =
        vec![Fallback { upstream: messages, rename: Some("claude-haiku-4-5".to_owned()) }];
    let sim = Sim::new(Options::default());
    let world = refusing(config, &sim, |name| name == "openai");
    for stream in [true, false] {
        let (got, timeline) = ask(&world, Caller::Chat, "n=5", stream).await;
        assert_eq!((got.status, &got.end), (200, &End::Proper), "{}", got.text());
        assert_eq!(timeline["upstream"], "anthropic");
        assert_eq!(lost(&timeline), [("openai".to_owned(), "upstream_connect".to_owned())]);
        let said = if stream {
            Said::of_stream(Caller::Chat, &got.body())
        } else {
            Said::of_body(Caller::Chat, &got.body())
        };
        assert_eq!((said.text.split_whitespace().count(), said.stop.as_str()), (5, "stop"), "{said:?}");
    }
    assert!(sim.last().is_some_and(|last| last.body.contains("claude-haiku-4-5")));
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_comes_from_the_next_upstream_too() {
    for fault in ["status:500", "cut@1", "html", "empty"] {
        let world = with_fallback(|_| {});
        let (got, timeline) = ask(&world, Caller::Chat, &format!("n=5 times=1 fault={fault}"), false).await;
        assert_eq!(got.status, 200, "{fault}: {}", got.text());
        assert_eq!(timeline["upstream"], "second-openai", "{fault}");
        assert!(got.json()["choices"][0]["message"]["content"].is_string(), "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_fail_the_last_ones_error_is_told_and_callers_need_not_repeat_it() {
    let world = with_fallback(|_| {});
    let (got, timeline) = ask(&world, Caller::Chat, "fault=status:503", true).await;
    assert_eq!((got.status, got.header("x-should-retry").as_str()), (503, "false"), "{}", got.text());
    assert_eq!((lost(&timeline).len(), world.sim().stats(0).started), (1, 2));
    let alone = World::new(config());
    let (got, _) = ask(&alone, Caller::Chat, "fault=status:503", true).await;
    assert_eq!((got.status, got.header("x-should-retry").as_str()), (503, ""));
    assert_eq!(alone.sim().stats(0).started, 1, "where there is no other the caller's library may repeat it");
}

#[tokio::test(start_paused = true)]
async fn the_same_upstream_is_asked_again_where_the_route_says_so() {
    let mut config = config();
    config.defaults.retry.same_upstream = true;
    let world = World::new(config);
    let begun = Instant::now();
    let (got, timeline) = ask(&world, Caller::Chat, "ttft=0 itl=0 n=3 times=2 fault=status:500", true).await;
    assert_eq!((got.status, world.sim().stats(0).started), (200, 3), "{}", got.text());
    assert_eq!(lost(&timeline).len(), 2);
    let phases: Vec<&str> = timeline["phases"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|span| span["phase"].as_str())
        .collect();
    assert_eq!(phases.iter().filter(|phase| **phase == "retry").count(), 2, "{phases:?}");
    // 100 and 200 ms, each a fifth more or less.
    assert!((240 * MS..400 * MS).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let overhead = timeline["overhead_ms"].as_f64().unwrap_or(1e9);
    assert!(overhead < 50.0, "pauses are not what we add to an answer, they are told: {overhead}");
}

#[tokio::test(start_paused = true)]
async fn the_callers_own_mistakes_and_broken_answers_are_not_tried_again() {
    let world = with_fallback(|_| {});
    let (got, _) = ask(&world, Caller::Chat, "n=nonsense", true).await;
    assert_eq!((got.status, world.sim().stats(0).started), (400, 1), "{}", got.text());
    let world = with_fallback(|_| {});
    let (got, timeline) = ask(&world, Caller::Chat, "n=9 times=1 fault=cut@4", true).await;
    assert_eq!((got.status, timeline["outcome"].as_str()), (200, Some("upstream_cut")));
    assert_eq!(world.sim().stats(0).started, 1, "the caller has a part of that answer");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_fails_again_and_again_is_left_alone_for_a_while() {
    let (sim, broken) = (Sim::new(Options::default()), Arc::new(AtomicBool::new(true)));
    let is_broken = broken.clone();
    let world = refusing(fallbacks(config()), &sim, move |name| {
        is_broken.load(Relaxed) && !name.starts_with("second")
    });
    let asked_first = async || {
        let (got, timeline) = ask(&world, Caller::Chat, "ttft=0 itl=0 n=2", true).await;
        assert_eq!(got.status, 200, "{}", got.text());
        !lost(&timeline).is_empty() || timeline["upstream"] == "openai"
    };
    for _ in 0..5 {
        assert!(asked_first().await);
    }
    for _ in 0..5 {
        assert!(!asked_first().await, "the breaker is open");
    }
    sleep(S).await;
    assert!(asked_first().await, "a probe, which fails");
    assert!(!asked_first().await);
    broken.store(false, Relaxed);
    assert!(!asked_first().await, "nobody knows yet");
    sleep(2 * S).await;
    assert!(asked_first().await && asked_first().await, "it works again");
}

/// Some calls are slow by chance: with hedging few callers feel it, and few copies are sent.
#[tokio::test(start_paused = true)]
async fn a_late_request_is_sent_twice_and_the_first_content_wins() {
    let mut world_of = Vec::new();
    for percent in [0, 50] {
        let mut config = config();
        config.defaults.hedge.share_per_mille = percent;
        let world = World::new(config);
        let mut took = Vec::new();
        for _ in 0..1_500 {
            let begun = Instant::now();
            let (got, _) = ask(&world, Caller::Chat, "ttft=200~0.2x10p0.02 itl=0 n=2", true).await;
            assert_eq!((got.status, got.end), (200, End::Proper));
            took.push(begun.elapsed());
        }
        let mut late = took.split_off(500);
        late.sort_unstable();
        sleep(S).await;
        world_of.push((late[late.len() * 99 / 100], world.sim().stats(5_000)));
    }
    let (without, with) = (&world_of[0], &world_of[1]);
    assert!(with.0 < without.0 * 4 / 10, "p99 {:?} instead of {:?}", with.0, without.0);
    let (sent, aborted) = (with.1.started, with.1.aborted);
    assert_eq!(sent - 1_500, aborted, "who loses is cancelled, and nobody else");
    assert!((20..=75).contains(&aborted), "{aborted} hedges of 1,500 calls");
    assert_eq!(with.1.tokens_after_abort, 0);
    assert!(with.1.records.iter().all(|record| record.ended != Ended::Active));
    assert_eq!(without.1.started, 1_500);
}

#[tokio::test(start_paused = true)]
async fn what_has_effects_or_does_not_want_it_is_sent_once() {
    let mut config = config();
    config.defaults.hedge.share_per_mille = 200;
    config.defaults.hedge.samples_min = 10;
    let world = World::new(config);
    for _ in 0..40 {
        ask(&world, Caller::Chat, "ttft=100 itl=0 n=2", true).await;
    }
    for (header, body) in [
        ("off", serde_json::json!({})),
        ("on", serde_json::json!({"n": 2})),
        ("on", serde_json::json!({"tools": [{"type": "web_search"}]})),
        ("on", serde_json::json!({"tools": [{"type": "function", "function": {"name": "f"}}]})),
    ] {
        let before = world.sim().stats(0).started;
        let mut request = Caller::Chat.body("sim", true);
        let expected = if body["tools"][0]["type"] == "function" { 2 } else { 1 };
        request.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let request = http::Request::post("http://localhost/v1/chat/completions")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("x-sim", "ttft=5000 itl=0 n=2")
            .header("x-firsttoken-hedge", header)
            .body(http_body_util::Full::new(request.to_string().into()))
            .unwrap();
        let got = world.client().await.send(request).await.unwrap().rest().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(world.sim().stats(0).started - before, expected, "{header} {body}");
    }
    let request = http::Request::get("http://localhost/v1/models")
        .header("host", "localhost")
        .header("x-firsttoken-hedge", "maybe")
        .body(http_body_util::Full::default())
        .unwrap();
    let got = world.client().await.send(request).await.unwrap().rest().await;
    assert_eq!(got.status, 400, "{}", got.text());
}
