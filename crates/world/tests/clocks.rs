//! The six clocks, the head commit and the keepalive: each at its time, to the millisecond.

use std::time::Duration;

use firsttoken_gateway::config::Config;
use firsttoken_world::caller::{Fields, events};
use firsttoken_world::world::config;
use firsttoken_world::{Caller, End, Got, World};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

async fn stream(world: &World, caller: Caller, knobs: &str) -> Got {
    world.client().await.ask(caller, knobs, true).await.rest().await
}

/// The code of the error event that ends the stream; the typed events have a second one behind it.
fn error_of(caller: Caller, got: &Got) -> String {
    let behind = usize::from(caller == Caller::Typed);
    let last = events(&got.body()).iter().nth_back(behind).map(|event| Fields::of(event)).unwrap_or_default();
    assert_eq!((got.status, &got.end), (200, &End::Proper), "{}", got.text());
    caller.error_event(&last).unwrap_or_else(|| format!("no error: {last:?}"))
}

fn code(got: &Got) -> String {
    got.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

fn with(change: impl FnOnce(&mut Config)) -> World {
    let mut config = config();
    change(&mut config);
    World::new(config)
}

#[tokio::test(start_paused = true)]
async fn the_headers_clock() {
    let world = World::new(config());
    let got = stream(&world, Caller::Chat, "fault=silent").await;
    assert_eq!((error_of(Caller::Chat, &got), got.end_at), ("headers_timeout".to_owned(), 60 * S));
    // Where the head is not out yet, the status tells.
    let world = with(|c| c.defaults.clocks.headers = Some(1234 * MS));
    let got = stream(&world, Caller::Chat, "fault=silent").await;
    assert_eq!((got.status, code(&got), got.end_at), (504, "headers_timeout".to_owned(), 1234 * MS));
    // A head that comes in time stops it.
    let got = stream(&world, Caller::Chat, "head=1233 ttft=9000 n=3").await;
    assert_eq!((got.status, got.head_at), (200, 9 * S));
}

#[tokio::test(start_paused = true)]
async fn the_first_content_clock_ignores_pings() {
    let world = World::new(config());
    for caller in [Caller::Chat, Caller::Messages, Caller::Typed] {
        let got = stream(&world, caller, "head=500 ttft=500 fault=pings:7000").await;
        let said = error_of(caller, &got);
        let expected = if caller == Caller::Messages { "timeout_error" } else { "first_content_timeout" };
        assert_eq!((said.as_str(), got.end_at), (expected, 120 * S), "{caller:?}");
        let id = got.header("x-firsttoken-request-id");
        assert_eq!(world.timeline(&id).await["outcome"], "first_content_timeout");
    }
}

#[tokio::test(start_paused = true)]
async fn the_stall_clock_runs_from_content_to_content() {
    let world = with(|c| c.defaults.clocks.stall = Some(2500 * MS));
    let got = stream(&world, Caller::Chat, "ttft=1000 itl=2000 n=9 fault=stall@3").await;
    assert_eq!((error_of(Caller::Chat, &got), got.end_at), ("stall_timeout".to_owned(), 7500 * MS));
    let got = stream(&world, Caller::Chat, "ttft=1000 itl=2499 n=9").await;
    assert!(got.text().ends_with("[DONE]\n\n"), "slower than most, but never silent for so long");
}

#[tokio::test(start_paused = true)]
async fn the_stall_clock_ignores_pings_and_the_idle_clock_does_not() {
    // Content once, then pings: the scripted provider has no such fault, so a slow stream stands in, whose
    // text is empty from the gateway's point of view: the role alone.
    let world = with(|c| {
        c.defaults.clocks.idle = Some(3 * S);
        c.defaults.clocks.first_content = Some(20 * S);
    });
    let got = stream(&world, Caller::Chat, "ttft=1000 fault=pings:2900").await;
    assert_eq!((error_of(Caller::Chat, &got), got.end_at), ("first_content_timeout".to_owned(), 20 * S));
    let got = stream(&world, Caller::Chat, "ttft=1000 fault=pings:3001").await;
    assert_eq!((got.status, code(&got), got.end_at), (504, "idle_timeout".to_owned(), 4 * S));
}

#[tokio::test(start_paused = true)]
async fn the_total_clock_ends_what_flows() {
    let world = with(|c| c.defaults.clocks.total = Some(10_003 * MS));
    let got = stream(&world, Caller::Responses, "ttft=1000 itl=100 fault=endless").await;
    assert_eq!((error_of(Caller::Responses, &got), got.end_at), ("total_timeout".to_owned(), 10_003 * MS));
    assert_eq!(world.sim().stats(0).aborted, 1, "and lets the upstream go");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_never_fires() {
    let world = with(|c| {
        c.defaults.clocks = firsttoken_gateway::config::Policy::default().clocks;
        let clocks = &mut c.defaults.clocks;
        (clocks.headers, clocks.first_content, clocks.stall) = (None, None, None);
        (clocks.idle, clocks.total) = (None, None);
    });
    let got = stream(&world, Caller::Chat, "head=3000000 ttft=9000000 itl=5000000 n=3").await;
    assert_eq!((got.status, got.end.clone()), (200, End::Proper));
    assert!(got.text().ends_with("[DONE]\n\n"));
    assert_eq!(got.end_at, 19_000 * S);
}

#[tokio::test(start_paused = true)]
async fn each_route_has_its_own_clocks() {
    let toml = r#"
        [[upstreams]]
        name = "a"
        provider = "openai"
        base_url = "http://a"
        auth = "none"

        [[models]]
        name = "*"

        [[routes]]
        name = "slow"
        paths = ["/v1/completions"]
        [routes.clocks]
        headers_ms = 5000
        first_content_ms = 5000
        [routes.stream]
        head_commit_ms = 0
        keepalive_ms = 2000
    "#;
    let world = World::new(Config::from_toml(toml, "test", &|_| None).unwrap_or_else(|e| panic!("{e}")));
    let got = stream(&world, Caller::Completions, "fault=silent").await;
    assert_eq!(got.head_at, Duration::ZERO, "this route commits at once");
    assert_eq!((error_of(Caller::Completions, &got), got.end_at), ("headers_timeout".to_owned(), 5 * S));
    assert_eq!(got.times_of(Caller::Completions.keepalive()), [2 * S, 4 * S]);
    assert_eq!(world.timeline(&got.header("x-firsttoken-request-id")).await["route"], "slow");
    let got = stream(&world, Caller::Chat, "fault=silent").await;
    assert_eq!((got.head_at, got.end_at), (15 * S, 60 * S));
}

#[tokio::test(start_paused = true)]
async fn without_a_stream_only_connect_and_total_judge() {
    let world = World::new(config());
    let mut client = world.client().await;
    let got = client.ask(Caller::Chat, "ttft=599999 n=1", false).await.rest().await;
    assert_eq!((got.status, got.end_at), (200, 599_999 * MS));
    let got = client.ask(Caller::Messages, "fault=silent", false).await.rest().await;
    assert_eq!((got.status, got.end_at), (504, 600 * S));
    assert_eq!(got.json()["error"]["type"], "timeout_error");
    // Nor does silence in the middle of the body.
    let got = client.ask(Caller::Chat, "ttft=1000 n=3 itl=0 fault=stall:500000", false).await.rest().await;
    assert_eq!((got.status, got.end_at), (200, 501 * S));
}

#[tokio::test(start_paused = true)]
async fn the_head_is_committed_by_content_or_at_its_time() {
    let world = World::new(config());
    for caller in [Caller::Chat, Caller::Messages, Caller::Responses, Caller::Completions] {
        let got = stream(&world, caller, "head=10 ttft=14999 n=2").await;
        assert_eq!(got.head_at, 14_999 * MS, "{caller:?}: content first");
        assert_eq!(got.times_of(caller.keepalive()), [], "{caller:?}");
        for knobs in ["head=10 ttft=20000 n=2", "head=18000 ttft=20000 n=2", "head=20000 ttft=20000 n=2"] {
            let got = stream(&world, caller, knobs).await;
            assert_eq!((got.head_at, &got.end), (15 * S, &End::Proper), "{caller:?} {knobs}");
            assert_eq!(got.times_of(caller.keepalive()), [15 * S], "{caller:?} {knobs}");
            let last = events(&got.body()).last().map(|event| Fields::of(event)).unwrap_or_default();
            assert!(caller.is_terminal(&last), "{caller:?} {knobs}: {last:?}");
        }
    }
    let got = stream(&world, Caller::Typed, "ttft=20000 n=2").await;
    assert_eq!(got.head_at, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_client_hears_of_us_every_15_seconds() {
    for caller in Caller::ALL {
        // Before the upstream's head, between its head and content, and in the middle. The opening frame is
        // held: another attempt may still answer.
        for (knobs, expected) in [
            ("head=50000 ttft=50000 n=2 itl=0", [15, 30, 45].as_slice()),
            ("head=20000 ttft=50000 n=2 itl=0", &[15, 30, 45]),
            ("ttft=1000 n=2 itl=40000", &[16, 31]),
        ] {
            let world = World::new(config());
            let got = stream(&world, caller, knobs).await;
            let expected: Vec<Duration> = expected.iter().map(|s| *s * S).collect();
            assert_eq!(got.times_of(caller.keepalive()), expected, "{caller:?} {knobs}");
            // Only between events: every event is whole.
            for event in events(&got.body()) {
                assert!(event.ends_with(b"\n\n"), "{caller:?}: {event:?}");
                let fields = Fields::of(&event);
                let whole = fields.data.is_empty() || fields.data == "[DONE]" || !fields.json().is_null();
                assert!(whole, "{caller:?}: {event:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_keepalive_is_kept_from_the_first_content_on() {
    let world = with(|c| c.defaults.keepalive = 2 * S);
    let got = stream(&world, Caller::Chat, "ttft=500 n=2 itl=5000").await;
    assert_eq!(got.times_of(Caller::Chat.keepalive()), [2500 * MS, 4500 * MS]);
}
