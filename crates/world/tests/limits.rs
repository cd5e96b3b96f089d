//! An upstream gets as many requests as it can take, others wait in line or are told when to come back; and a
//! key gets what it may.

use std::time::Duration;

use firsttoken_gateway::config::{Config, Fallback, Key, KeyLimits};
use firsttoken_logic::tail::admission::Priority;
use firsttoken_logic::tail::limit::Bounds;
use firsttoken_world::client::ask;
use firsttoken_world::world::config;
use firsttoken_world::{Caller, End, Got, World};
use http::HeaderValue;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);

/// Every upstream takes so many requests at a time.
fn limited(calls: u32, change: impl FnOnce(&mut Config)) -> World {
    let mut config = config();
    for upstream in &mut config.upstreams {
        upstream.concurrency = Some(Bounds::fixed(calls));
    }
    change(&mut config);
    World::new(config)
}

/// A request that runs on its own: what it gets, and how long that took.
async fn begin(
    world: &World,
    caller: Caller,
    knobs: &str,
    headers: &[(&'static str, &str)],
) -> JoinHandle<(Got, Duration)> {
    let mut request = ask(caller, knobs, true);
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_str(value).expect("it is ASCII"));
    }
    let mut client = world.client().await;
    let begun = Instant::now();
    let running = tokio::spawn(async move {
        let answer = client.send(request).await.expect("the gateway always answers");
        (answer.rest().await, begun.elapsed())
    });
    // It has its place before the next one comes.
    sleep(MS).await;
    running
}

async fn end(running: JoinHandle<(Got, Duration)>) -> (Got, Duration) {
    running.await.expect("it does not panic")
}

async fn timeline(world: &World, got: &Got) -> Value {
    world.timeline(&got.header("x-firsttoken-request-id")).await
}

fn is_about(took: Duration, ms: u64) -> bool {
    took.abs_diff(Duration::from_millis(ms)) <= 20 * MS
}

const SHORT: &str = "ttft=100 itl=0 n=2";

#[tokio::test(start_paused = true)]
async fn who_finds_no_place_waits_for_one() {
    for caller in [Caller::Chat, Caller::Messages, Caller::Responses, Caller::Typed] {
        let world = limited(2, |_| {});
        let mut running = Vec::new();
        for _ in 0..5 {
            running.push(begin(&world, caller, SHORT, &[]).await);
        }
        assert_eq!(world.sim().stats(0).active, 2, "{caller:?}");
        for (at, running) in running.into_iter().enumerate() {
            let (got, took) = end(running).await;
            assert_eq!((got.status, &got.end), (200, &End::Proper), "{caller:?}: {}", got.text());
            assert!(is_about(took, 100 * (at as u64 / 2 + 1)), "{caller:?}: number {at} took {took:?}");
            let timeline = timeline(&world, &got).await;
            let spans = timeline["phases"].as_array().expect("a timeline has phases").clone();
            let queued = spans.iter().any(|span| span["phase"] == "queue" || span["name"] == "queue");
            assert_eq!(queued, at >= 2, "{caller:?}: {timeline}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_told_when_to_come_back() {
    for caller in Caller::ALL {
        let world = limited(1, |config| config.defaults.queue.wait_max = 50 * MS);
        let first = begin(&world, caller, "ttft=400 itl=0 n=2", &[]).await;
        let (got, took) = end(begin(&world, caller, SHORT, &[]).await).await;
        assert!(is_about(took, 50), "{caller:?}: {took:?}");
        if caller == Caller::Typed {
            // Its head was out already.
            assert!(got.text().contains("as many requests as it can answer"), "{}", got.text());
        } else {
            assert_eq!(got.status, 503, "{caller:?}: {}", got.text());
            assert_eq!(got.header("retry-after"), "1", "{caller:?}");
            assert_eq!(got.header("x-should-retry"), "true", "{caller:?}");
        }
        let timeline = timeline(&world, &got).await;
        assert_eq!(timeline["outcome"], "shed", "{caller:?}");
        assert_eq!(end(first).await.0.status, 200, "{caller:?}");
        assert_eq!(world.sim().stats(0).started, 1, "{caller:?}: what is shed is not sent");
    }
}

#[tokio::test(start_paused = true)]
async fn where_one_upstream_is_full_another_is_asked() {
    let world = limited(1, |config| {
        let mut second = config.upstreams[0].clone();
        second.name = "second".to_owned();
        config.models[0].fallbacks = vec![Fallback { upstream: config.upstreams.len(), rename: None }];
        config.upstreams.push(second);
    });
    let first = begin(&world, Caller::Chat, SHORT, &[]).await;
    let (got, took) = end(begin(&world, Caller::Chat, SHORT, &[]).await).await;
    assert!(is_about(took, 100), "{took:?}");
    assert_eq!(timeline(&world, &got).await["upstream"], "second");
    end(first).await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_gives_its_place_to_others() {
    let world = limited(1, |_| {});
    let mut client = world.client().await;
    let mut answer = client.ask(Caller::Chat, "ttft=10 itl=1000 n=50", true).await;
    assert!(answer.next().await.is_some());
    // One leaves the line, one the middle of its answer.
    let waiting = begin(&world, Caller::Chat, SHORT, &[]).await;
    let next = begin(&world, Caller::Chat, SHORT, &[]).await;
    waiting.abort();
    sleep(10 * MS).await;
    client.leave().await;
    let (got, took) = end(next).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(took < 200 * MS, "{took:?}");
    assert_eq!(world.sim().stats(0).started, 2, "who has left the line was not sent");
}

#[tokio::test(start_paused = true)]
async fn people_go_before_batches_and_nobody_pushes_in() {
    let world = limited(1, |_| {});
    let first = begin(&world, Caller::Chat, SHORT, &[]).await;
    let batch = begin(&world, Caller::Chat, SHORT, &[("x-firsttoken-priority", "batch")]).await;
    let person = begin(&world, Caller::Chat, SHORT, &[]).await;
    assert!(is_about(end(person).await.1, 200) && is_about(end(batch).await.1, 300));
    end(first).await;

    let world = limited(1, |config| config.defaults.priority = Priority::Batch);
    let first = begin(&world, Caller::Chat, SHORT, &[]).await;
    let second = begin(&world, Caller::Chat, SHORT, &[]).await;
    let hasty = begin(&world, Caller::Chat, SHORT, &[("x-firsttoken-priority", "interactive")]).await;
    assert!(is_about(end(second).await.1, 200) && is_about(end(hasty).await.1, 300));
    end(first).await;

    let (got, _) = end(begin(&world, Caller::Chat, SHORT, &[("x-firsttoken-priority", "now")]).await).await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(got.text().contains("interactive or batch"), "{}", got.text());
}

#[tokio::test(start_paused = true)]
async fn who_waits_sees_where_it_stands() {
    let world = limited(1, |_| {});
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(begin(&world, Caller::Typed, "ttft=1500 itl=0 n=2", &[]).await);
    }
    let last = running.pop().expect("there are three");
    let (got, _) = end(last).await;
    let text = got.text();
    let place = |ahead: u32| format!("\"ahead\":{ahead}");
    assert!(text.contains("\"phase\":\"queue\""), "{text}");
    assert!(text.contains(&place(1)) && text.contains(&place(0)), "{text}");
    for running in running {
        end(running).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_learnt_and_shown() {
    let world = limited(1, |config| config.upstreams[0].concurrency = Some(Bounds::default()));
    let mut running = Vec::new();
    for _ in 0..200 {
        running.push(begin(&world, Caller::Chat, "slots=8 queue=1000 ttft=100 itl=0 n=2", &[]).await);
    }
    for running in running {
        assert_eq!(end(running).await.0.status, 200);
    }
    let metrics = world.client().await.get("/metrics").await.text();
    let limit =
        metrics.lines().find_map(|line| line.strip_prefix("firsttoken_upstream_limit{upstream=\"openai\"} "));
    let limit: u32 = limit.and_then(|limit| limit.parse().ok()).expect("the limit is shown");
    assert!((8..=14).contains(&limit), "{limit} for 8 slots");
    assert!(metrics.contains("firsttoken_upstream_active{upstream=\"openai\"} 0"), "{metrics}");
    assert!(metrics.contains("firsttoken_upstream_waiting{upstream=\"openai\"} 0"));
}

#[tokio::test(start_paused = true)]
async fn a_key_gets_what_it_may_and_no_more() {
    use sha2::Digest as _;
    let key = |name: &str, limits| Key {
        name: name.to_owned(),
        tenant: name.to_owned(),
        sha256: sha2::Sha256::digest(format!("ft-{name}")).into(),
        limits,
    };
    let mut config = config();
    let rate = KeyLimits { requests_per_minute: Some(12), ..KeyLimits::default() };
    let few = KeyLimits { concurrency_max: Some(1), ..KeyLimits::default() };
    config.keys = vec![key("often", rate), key("few", few), key("free", KeyLimits::default())];
    let world = World::new(config);
    let (often, few, free) = (
        [("authorization", "Bearer ft-often")],
        [("authorization", "Bearer ft-few")],
        [("authorization", "Bearer ft-free")],
    );
    for _ in 0..2 {
        assert_eq!(end(begin(&world, Caller::Chat, SHORT, &often).await).await.0.status, 200);
    }
    let (got, _) = end(begin(&world, Caller::Chat, SHORT, &often).await).await;
    assert_eq!((got.status, got.header("retry-after").as_str()), (429, "5"), "{}", got.text());
    assert!(got.text().contains("key_rate_limit"), "{}", got.text());
    sleep(5000 * MS).await;
    assert_eq!(end(begin(&world, Caller::Chat, SHORT, &often).await).await.0.status, 200);

    let first = begin(&world, Caller::Chat, SHORT, &few).await;
    let (got, _) = end(begin(&world, Caller::Chat, SHORT, &few).await).await;
    assert_eq!(got.status, 429, "{}", got.text());
    assert!(got.text().contains("key_concurrency_limit"), "{}", got.text());
    assert_eq!(end(begin(&world, Caller::Chat, SHORT, &free).await).await.0.status, 200);
    assert_eq!(end(first).await.0.status, 200);
    assert_eq!(end(begin(&world, Caller::Chat, SHORT, &few).await).await.0.status, 200);
}
