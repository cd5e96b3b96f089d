//! The evidence: timelines, `Server-Timing`, usage and metrics, against times that the test itself set.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firsttoken_gateway::config::{Config, Key};
use firsttoken_world::client::{ask, raw};
use firsttoken_world::scripted::{Finish, Framing, Script};
use firsttoken_world::world::{PIPE_BYTES, config};
use firsttoken_world::{Caller, Client, End, Got, World};
use http::Request;
use http_body_util::Full;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const PHASES: [&str; 7] = ["auth", "network_in", "route", "connect", "provider", "decode", "network_out"];

async fn stream(world: &World, caller: Caller, knobs: &str) -> (Got, Value) {
    let got = world.client().await.ask(caller, knobs, true).await.rest().await;
    let timeline = world.timeline(&got.header("x-firsttoken-request-id")).await;
    (got, timeline)
}

fn ms(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[tokio::test(start_paused = true)]
async fn ttft_itl_and_tpot_are_what_the_provider_did() {
    for caller in Caller::ALL {
        let world = World::new(config());
        let (_, t) = stream(&world, caller, "head=200 ttft=1000 itl=50 n=21").await;
        assert_eq!(t["outcome"], "complete", "{caller:?}: {t}");
        assert_eq!((ms(&t["ttft_ms"]), ms(&t["ttft_upstream_ms"])), (1000.0, 1000.0), "{caller:?}");
        assert_eq!((ms(&t["headers_ms"]), ms(&t["first_text_ms"])), (200.0, 1000.0), "{caller:?}");
        assert_eq!((ms(&t["total_ms"]), &t["content_events"]), (2000.0, &21.into()), "{caller:?}");
        let p50 = ms(&t["itl_ms"]["p50"]);
        assert!((49.0..=51.0).contains(&p50), "{caller:?}: ITL p50 {p50}, by a sketch");
        // Completions are not asked for usage unless the caller does.
        if caller == Caller::Completions {
            assert_eq!((&t["output_tokens"], &t["tpot_ms"]), (&Value::Null, &Value::Null), "never guessed");
        } else {
            assert_eq!((&t["output_tokens"], ms(&t["tpot_ms"])), (&21.into(), 50.0), "{caller:?}");
        }
        assert_eq!((&t["first_reasoning_ms"], &t["first_tool_ms"]), (&Value::Null, &Value::Null));
    }
}

#[tokio::test(start_paused = true)]
async fn without_usage_tpot_is_unknown() {
    let world = World::new(config());
    let (_, t) = stream(&world, Caller::Messages, "ttft=100 itl=50 n=21 usage=0").await;
    assert_eq!((&t["output_tokens"], &t["tpot_ms"]), (&Value::Null, &Value::Null));
    assert_eq!(t["content_events"], 21);
}

#[tokio::test(start_paused = true)]
async fn reasoning_and_tools_are_told_apart() {
    let world = World::new(config());
    for caller in [Caller::Chat, Caller::Messages] {
        let (_, t) = stream(&world, caller, "ttft=1000 itl=100 reasoning=5 n=3").await;
        assert_eq!((ms(&t["first_reasoning_ms"]), ms(&t["first_text_ms"])), (1000.0, 1500.0), "{caller:?}");
        let (_, t) = stream(&world, caller, "ttft=1000 itl=100 reasoning=2 tools=1").await;
        assert_eq!((ms(&t["ttft_ms"]), ms(&t["first_tool_ms"])), (1000.0, 1200.0), "{caller:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn stalls_are_counted_by_their_threshold() {
    let world = World::new(config());
    let (_, t) = stream(&world, Caller::Chat, "ttft=100 itl=1001 n=4").await;
    assert_eq!(t["stalls"], 3);
    let (_, t) = stream(&world, Caller::Chat, "ttft=5000 itl=1000 n=4").await;
    assert_eq!(t["stalls"], 0, "a slow first content is no stall, nor is the threshold itself");
    let (_, t) = stream(&world, Caller::Chat, "ttft=100 itl=40 n=9 write=3").await;
    assert!(ms(&t["itl_ms"]["p50"]) <= 0.001, "bunching shows as gaps of nothing: {t}");
}

#[tokio::test(start_paused = true)]
async fn phases_come_in_order_and_add_up() {
    let world = World::new(config());
    for caller in Caller::ALL {
        let (got, t) = stream(&world, caller, "head=200 ttft=1000 itl=50 n=21").await;
        let phases = t["phases"].as_array().expect("a list");
        let names: Vec<&str> = phases.iter().map(|p| p["phase"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, PHASES, "{caller:?}");
        let mut at = 0.0;
        for phase in phases {
            assert!((ms(&phase["start_ms"]) - at).abs() < 0.01, "{caller:?}: a gap before {phase}");
            at += ms(&phase["duration_ms"]);
        }
        assert!((at - ms(&t["total_ms"])).abs() < 0.01, "{caller:?}: {at} of {}", t["total_ms"]);
        assert_eq!((ms(&phases[4]["duration_ms"]), ms(&phases[5]["duration_ms"])), (1000.0, 1000.0));
        // What is known when the head goes out.
        let timing = got.header("server-timing");
        let known: Vec<(&str, f64)> = timing
            .split(", ")
            .filter_map(|part| part.split_once(";dur="))
            .map(|(name, dur)| (name, dur.parse().unwrap_or(f64::NAN)))
            .collect();
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        assert!(PHASES.starts_with(&names) && names.len() >= 3, "{caller:?}: {timing}");
        let sum: f64 = known.iter().map(|(_, dur)| dur).sum();
        assert!((sum - got.head_at.as_secs_f64() * 1e3).abs() < 0.01, "{caller:?}: {timing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_goes_out_alone_says_only_what_is_known() {
    let world = World::new(config());
    let (got, t) = stream(&world, Caller::Chat, "head=20000 ttft=20000 n=2").await;
    assert_eq!(got.header("server-timing"), "auth;dur=0.000, network_in;dur=0.000, route;dur=0.000");
    assert_eq!((ms(&t["ttfb_ms"]), ms(&t["ttft_ms"])), (15_000.0, 20_000.0));
}

#[tokio::test(start_paused = true)]
async fn a_second_request_reuses_the_connection() {
    let world = World::new(config());
    let mut client = world.client().await;
    for reused in [false, true] {
        let got = client.ask(Caller::Chat, "ttft=10 n=2", true).await.rest().await;
        let t = world.timeline(&got.header("x-firsttoken-request-id")).await;
        assert_eq!(t["connection_reused"], reused);
    }
    assert_eq!(world.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn overhead_is_what_we_add_and_not_the_callers_body() {
    let world = World::new(config());
    let (_, t) = stream(&world, Caller::Chat, "ttft=1000 n=3").await;
    assert_eq!(ms(&t["overhead_ms"]), 0.0, "time stands still while the gateway works");

    let id = world.next_id().await;
    let request = raw(Caller::Chat, "ttft=1000 n=3 itl=0", true);
    let mut io = world.pipe(PIPE_BYTES, false);
    let (first, last) = request.split_at(request.len() - 10);
    io.write_all(first).await.expect("the pipe has room");
    sleep(700 * MS).await;
    io.write_all(last).await.expect("the pipe has room");
    sleep(5 * S).await;
    let t = world.timeline(&id).await;
    assert_eq!((ms(&t["overhead_ms"]), ms(&t["ttft_ms"])), (0.0, 1700.0), "the caller sent it so slowly");
}

#[tokio::test(start_paused = true)]
async fn overhead_counts_the_wait_for_a_client_that_does_not_read() {
    let world = World::new(config());
    let id = world.next_id().await;
    // Typed events: the head fills this pipe long before the first content.
    let mut io = world.pipe(300, false);
    io.write_all(&raw(Caller::Typed, "ttft=1000 n=3 itl=0", true)).await.expect("the gateway reads it");
    sleep(1500 * MS).await;
    let mut got = [0; 4096];
    let reading = async { while io.read(&mut got).await.is_ok_and(|n| n > 0) {} };
    let _ = tokio::time::timeout(S, reading).await;
    let t = world.timeline(&id).await;
    assert_eq!((ms(&t["ttft_upstream_ms"]), ms(&t["ttft_ms"])), (1000.0, 1500.0), "{t}");
    assert_eq!((ms(&t["overhead_ms"]), ms(&t["total_ms"])), (500.0, 1500.0));
}

#[tokio::test(start_paused = true)]
async fn usage_is_asked_for_and_its_chunk_taken_out() {
    let has_usage = |got: &Got| got.text().contains("\"completion_tokens\"");
    let upstream_asked =
        |world: &World| world.sim().last().is_some_and(|last| last.body.contains("\"include_usage\":true"));
    let world = World::new(config());
    let (got, t) = stream(&world, Caller::Chat, "ttft=0 n=7").await;
    assert!(upstream_asked(&world) && !has_usage(&got), "{}", got.text());
    assert_eq!((&t["output_tokens"], got.text().ends_with("[DONE]\n\n")), (&7.into(), true));

    // A caller who asks gets it.
    let mut body = Caller::Chat.body("sim-n7", true);
    body["stream_options"] = serde_json::json!({"include_usage": true});
    let request = Request::post("http://localhost/v1/chat/completions").header("host", "localhost");
    let request = request.body(Full::new(body.to_string().into())).expect("it is valid");
    let mut client = world.client().await;
    let got = client.send(request).await.expect("an answer").rest().await;
    assert!(has_usage(&got));
    assert_eq!(world.sim().last().map(|last| last.body), Some(body.to_string()), "byte for byte");

    let mut config = config();
    config.defaults.inject_usage = false;
    let world = World::new(config);
    let (got, t) = stream(&world, Caller::Chat, "ttft=0 n=7").await;
    assert!(!upstream_asked(&world) && !has_usage(&got));
    assert_eq!((&t["output_tokens"], &t["tpot_ms"]), (&Value::Null, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn tenants_do_not_see_each_others_timelines() {
    let mut config = config();
    let key = |name: &str, tenant: &str| Key {
        name: name.to_owned(),
        tenant: tenant.to_owned(),
        sha256: Sha256::digest(format!("secret of {name}")).into(),
        limits: firsttoken_gateway::config::KeyLimits::default(),
    };
    config.keys = vec![key("a", "first"), key("a2", "first"), key("b", "second")];
    let world = World::new(config);
    let with_key = |mut request: Request<Full<Bytes>>, name: &str| {
        let value = format!("Bearer secret of {name}").parse().expect("it is ASCII");
        request.headers_mut().insert("authorization", value);
        request
    };
    let mut client = world.client().await;
    let asked = client.send(with_key(ask(Caller::Chat, "ttft=0 n=2", true), "a")).await;
    let got = asked.expect("an answer").rest().await;
    let id = got.header("x-firsttoken-request-id");
    for (name, status) in [("a", 200), ("a2", 200), ("b", 404), ("nobody", 401)] {
        let request = Request::get(format!("http://localhost/v1/requests/{id}")).header("host", "localhost");
        let request = with_key(request.body(Full::default()).expect("it is valid"), name);
        let got = client.send(request).await.expect("an answer").rest().await;
        assert_eq!(got.status, status, "{name}: {}", got.text());
    }
    let last = world.sim().last().expect("it was asked");
    assert!(last.headers.iter().all(|(_, value)| !value.contains("secret")), "{:?}", last.headers);
}

#[tokio::test(start_paused = true)]
async fn an_oversize_event_passes_and_is_not_metered() {
    let world = World::new(config());
    let (got, t) = stream(&world, Caller::Messages, "ttft=100 itl=10 n=6 fault=bigevent@3").await;
    assert_eq!((&t["outcome"], &t["metered"]), (&"complete".into(), &false.into()), "{t}");
    assert!(got.body().len() > 2 << 20 && got.text().contains("message_stop"));
    // What cannot be seen is not waited for: the text goes on at a pace that every clock but idle minds.
    let (got, t) = stream(&world, Caller::Messages, "ttft=100 itl=50000 n=6 fault=bigevent@1").await;
    assert_eq!((&t["outcome"], &got.end), (&"complete".into(), &End::Proper), "{t}");
    let raw_from = Duration::from_millis(50_100);
    let inserted = got.times_of(Caller::Messages.keepalive()).into_iter().filter(|at| *at > raw_from).count();
    assert_eq!(inserted, 0, "nobody knows what it would stand between");
    let metrics = world.client().await.get("/metrics").await.text();
    assert!(metrics.contains("firsttoken_unmetered_streams_total 2\n"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn an_oversize_event_that_breaks_off_is_seen_to_break_off() {
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}", "x".repeat(300_000));
    let script = Script {
        framing: Framing::Chunked,
        pieces: vec![(Duration::ZERO, event.into())],
        finish: Finish::Cut,
    };
    let open = move |_: &_| {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        drop(tokio::spawn(script.clone().play(theirs)));
        Ok(ours)
    };
    let world = World::dialling(config(), Arc::new(open));
    let (got, t) = stream(&world, Caller::Chat, "").await;
    assert!(matches!(got.end, End::Broken(_)), "an error event would stand inside the text: {:?}", got.end);
    assert_eq!(t["outcome"], "upstream_cut");
}

#[tokio::test(start_paused = true)]
async fn without_a_stream_tokens_are_read_from_the_answer() {
    let world = World::new(config());
    let mut client = world.client().await;
    for caller in [Caller::Chat, Caller::Messages] {
        let got = client.ask(caller, "ttft=1000 itl=10 n=11 cached=2", false).await.rest().await;
        let t = world.timeline(&got.header("x-firsttoken-request-id")).await;
        assert_eq!((&t["output_tokens"], &t["cache_read_tokens"]), (&11.into(), &2.into()), "{caller:?}");
        // Anthropic does not count cached tokens as input, OpenAI does: on record they are alike.
        assert_eq!((&t["input_tokens"], &t["stream"]), (&6.into(), &false.into()), "{caller:?}: {t}");
        assert_eq!((ms(&t["total_ms"]), &t["ttft_ms"]), (1100.0, &Value::Null), "{caller:?}");
    }
}

/// The value of the one series that begins with `name` and has all of `labels`.
fn series(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let found: Vec<&str> = metrics
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name))
        .filter(|line| labels.iter().all(|label| line.contains(label)))
        .collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?} in\n{metrics}");
    found[0].rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
}

async fn asked_for_metrics(config: Config) -> String {
    let world = World::new(config);
    let mut client: Client = world.client().await;
    for _ in 0..2 {
        client.ask(Caller::Chat, "ttft=1000 itl=50 n=21", true).await.rest().await;
    }
    client.ask(Caller::Chat, "ttft=1000 itl=2000 n=3 fault=cut@2", true).await.rest().await;
    client.ask(Caller::Messages, "fault=status:529", true).await.rest().await;
    client.ask(Caller::Messages, "ttft=1000 n=5", false).await.rest().await;
    client.ask(Caller::Typed, "ttft=1000 n=5", true).await;
    client.leave().await;
    world.client().await.get("/metrics").await.text()
}

#[tokio::test(start_paused = true)]
async fn metrics_count_what_happened() {
    let m = asked_for_metrics(config()).await;
    let count = |name: &str, labels: &[&str]| series(&m, name, labels);
    let requests = "firsttoken_requests_total";
    let openai = "upstream=\"openai\"";
    assert_eq!(count(requests, &[openai, "outcome=\"complete\"", "status=\"200\""]), 2.0);
    assert_eq!(count(requests, &[openai, "outcome=\"upstream_cut\"", "status=\"200\""]), 1.0);
    assert_eq!(count(requests, &[openai, "outcome=\"cancelled\""]), 1.0);
    assert_eq!(count(requests, &["outcome=\"upstream_overloaded\"", "status=\"529\""]), 1.0);
    assert_eq!(count(requests, &["upstream=\"anthropic\"", "outcome=\"complete\""]), 1.0);
    let provider = "gen_ai_provider_name=\"openai\"";
    let ttft = "gen_ai_server_time_to_first_token_seconds";
    assert_eq!(count(&format!("{ttft}_count"), &[provider, "gen_ai_request_model=\"*\""]), 3.0);
    assert_eq!(count(&format!("{ttft}_sum"), &[provider]), 3.0);
    assert_eq!(count("gen_ai_server_time_per_output_token_seconds_count", &[provider]), 2.0);
    assert_eq!(count("gen_ai_server_request_duration_seconds_count", &[provider]), 4.0);
    assert_eq!(count("firsttoken_inter_token_latency_seconds_count", &[provider]), 41.0);
    assert_eq!(count("firsttoken_stalls_total", &[provider]), 1.0);
    let output = "gen_ai_token_type=\"output\"";
    assert_eq!(count("gen_ai_client_token_usage_sum", &[openai, output]), 42.0);
    assert_eq!(count("gen_ai_client_token_usage_sum", &["upstream=\"anthropic\"", output]), 5.0);
    assert_eq!((count("firsttoken_requests_active", &[]), count("firsttoken_connections", &[])), (0.0, 1.0));
    assert!(m.ends_with("# EOF\n"));
}
