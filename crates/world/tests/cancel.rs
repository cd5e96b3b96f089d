//! The client leaves, in every state and in every way: the upstream's work ends at that very moment,
//! nothing is produced after it, and the record says `cancelled`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use firsttoken_gateway::config::Config;
use firsttoken_sim::Ended;
use firsttoken_world::client::raw;
use firsttoken_world::world::{PIPE_BYTES, config};
use firsttoken_world::{Caller, World};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// What is asked, and when the client leaves.
struct State {
    name: &'static str,
    caller: Caller,
    stream: bool,
    knobs: &'static str,
    leaves: Duration,
}

const fn state(name: &'static str, caller: Caller, knobs: &'static str, leaves_ms: u64) -> State {
    State { name, caller, stream: true, knobs, leaves: Duration::from_millis(leaves_ms) }
}

/// Every state in which the upstream is at work.
const STATES: [State; 14] = [
    state("waiting for the head", Caller::Chat, "fault=silent", 3_017),
    state("waiting for the head", Caller::Messages, "ttft=30000", 3_017),
    state("waiting for the head, ours is out", Caller::Responses, "fault=silent", 21_003),
    state("waiting for the head, typed", Caller::Typed, "fault=silent", 5),
    state("between head and content", Caller::Chat, "head=1000 ttft=60000", 7_777),
    state("between head and content, after a keepalive", Caller::Messages, "head=1000 ttft=60000", 17_777),
    state("between head and content, typed", Caller::Typed, "head=1000 ttft=60000", 7_777),
    state("pings instead of content", Caller::Messages, "fault=pings", 10_500),
    state("in the middle", Caller::Chat, "ttft=1000 itl=20 n=5000", 4_321),
    state("in the middle", Caller::Messages, "ttft=1000 itl=20 n=5000", 4_321),
    state("in the middle, typed", Caller::Typed, "ttft=1000 itl=20 n=5000", 4_321),
    state("in a silence", Caller::Completions, "ttft=1000 itl=20 n=9 fault=stall@3", 9_000),
    State { stream: false, ..state("not streamed", Caller::Chat, "ttft=60000", 9_999) },
    State { stream: false, ..state("not streamed, silent", Caller::Messages, "fault=silent", 95_000) },
];

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// It closes the connection.
    Close,
    /// It closes its sending half: a half-close counts as gone.
    HalfClose,
    /// It resets its HTTP/2 stream and keeps the connection.
    Reset,
}

async fn over_pipe(world: &World, state: &State, leave: Leave) {
    let mut io = world.pipe(1 << 20, false);
    io.write_all(&raw(state.caller, state.knobs, state.stream)).await.expect("the pipe has room");
    sleep(state.leaves).await;
    if leave == Leave::Close {
        return drop(io);
    }
    io.shutdown().await.expect("a pipe can be shut down");
    // What had come by then, and the end.
    let mut rest = Vec::new();
    tokio::time::timeout(MS, io.read_to_end(&mut rest)).await.expect("at once").expect("in order");
}

async fn over_h2(world: &World, state: &State, leave: Leave) {
    let mut client = world.client_h2().await;
    let asking = async {
        let mut answer = client.ask(state.caller, state.knobs, state.stream).await;
        while answer.next().await.is_some() {}
    };
    // Dropping the future resets the stream.
    tokio::time::timeout(state.leaves, asking).await.expect_err("it takes longer");
    if leave == Leave::Reset {
        drop(tokio::spawn(async move {
            sleep(S).await;
            drop(client);
        }));
    }
}

async fn check(config: Config, state: &State, leave: Leave, h2: bool) {
    let what = format!("{} ({:?}), {leave:?}, h2: {h2}", state.name, state.caller);
    let start = Instant::now();
    let world = World::new(config);
    let id = world.next_id().await;
    if h2 {
        over_h2(&world, state, leave).await;
    } else {
        over_pipe(&world, state, leave).await;
    }
    let left_ns = u64::try_from(start.elapsed().as_nanos()).expect("not that long");
    sleep(MS).await;
    let stats = world.sim().stats(10);
    assert_eq!((stats.started, stats.aborted, stats.active), (1, 1, 0), "{what}: {stats:?}");
    let record = &stats.records[0];
    assert_eq!(record.ended, Ended::Aborted, "{what}");
    let noticed_ns = record.abort_noticed_ns.expect("an abort has its time");
    assert!(noticed_ns.abs_diff(left_ns) <= 1_000_000, "{what}: left {left_ns}, noticed {noticed_ns}");
    assert_eq!(world.timeline(&id).await["outcome"], "cancelled", "{what}");
    sleep(60 * S).await;
    let later = world.sim().stats(0);
    assert_eq!((later.tokens, later.tokens_after_abort), (stats.tokens, 0), "{what}");
    assert_eq!(world.dials(), 1, "{what}: nothing is tried again");
}

#[tokio::test(start_paused = true)]
async fn the_connection_is_closed() {
    for state in &STATES {
        check(config(), state, Leave::Close, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_half_close_counts_as_gone() {
    for state in &STATES {
        check(config(), state, Leave::HalfClose, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_stream_is_reset_or_its_connection_closed() {
    for state in &STATES {
        check(config(), state, Leave::Reset, true).await;
        check(config(), state, Leave::Close, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_leaves_its_neighbours_alone() {
    let world = World::new(config());
    let client = world.client_h2().await;
    let running: Vec<_> = STATES
        .iter()
        .map(|state| {
            let mut client = client.neighbour().expect("it is HTTP/2");
            tokio::spawn(async move {
                let mut answer = client.ask(state.caller, state.knobs, state.stream).await;
                while answer.next().await.is_some() {}
            })
        })
        .collect();
    sleep(5 * S).await;
    let all = running.len() as u64;
    assert_eq!(world.sim().stats(0).active, all);
    for (reset, request) in (1..).zip(&running) {
        request.abort();
        sleep(MS).await;
        let stats = world.sim().stats(0);
        assert_eq!((stats.aborted, stats.active, stats.tokens_after_abort), (reset, all - reset, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn toward_an_http2_upstream_too() {
    for state in &STATES {
        let mut config = config();
        config.upstreams.iter_mut().for_each(|upstream| upstream.h2c = true);
        check(config.clone(), state, Leave::Close, false).await;
        check(config, state, Leave::Reset, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_body_is_sent() {
    for leave in [Leave::Close, Leave::HalfClose] {
        let world = World::new(config());
        let id = world.next_id().await;
        let request = raw(Caller::Chat, "ttft=0", true);
        let mut io = world.pipe(PIPE_BYTES, false);
        io.write_all(&request[..request.len() - 5]).await.expect("the pipe has room");
        sleep(2 * S).await;
        if leave == Leave::HalfClose {
            io.shutdown().await.expect("a pipe can be shut down");
            sleep(MS).await;
        }
        drop(io);
        sleep(MS).await;
        let timeline = world.timeline(&id).await;
        assert_eq!(timeline["outcome"], "cancelled", "{leave:?}: {timeline}");
        assert_eq!((world.sim().stats(0).started, world.dials()), (0, 0), "nothing went upstream");
    }
}

/// An upstream that takes the connection and never reads: the request cannot be sent.
#[tokio::test(start_paused = true)]
async fn while_the_request_is_sent_upstream() {
    for leave in [Leave::Close, Leave::HalfClose] {
        let theirs: Arc<Mutex<Option<DuplexStream>>> = Arc::default();
        let kept = theirs.clone();
        let world = World::dialling(
            config(),
            Arc::new(move |_| {
                let (ours, theirs) = tokio::io::duplex(16);
                *kept.lock().expect("nobody panicked") = Some(theirs);
                Ok(ours)
            }),
        );
        let id = world.next_id().await;
        let mut io = world.pipe(PIPE_BYTES, false);
        io.write_all(&raw(Caller::Chat, "ttft=0", true)).await.expect("the pipe has room");
        sleep(2 * S).await;
        match leave {
            Leave::HalfClose => io.shutdown().await.expect("a pipe can be shut down"),
            Leave::Close | Leave::Reset => drop(io),
        }
        let mut theirs = theirs.lock().expect("nobody panicked").take().expect("it dialled");
        let mut sent = Vec::new();
        let reading = tokio::time::timeout(MS, theirs.read_to_end(&mut sent));
        reading.await.expect("the connection is closed at once").expect("in order");
        assert!(sent.len() <= 16, "{} bytes went out", sent.len());
        assert_eq!(world.timeline(&id).await["outcome"], "cancelled", "{leave:?}");
    }
}

/// A client that sends its next request before it has the answer to this one, and then leaves.
#[tokio::test(start_paused = true)]
async fn with_another_request_in_the_pipeline() {
    let world = World::new(config());
    let mut io = world.pipe(PIPE_BYTES, false);
    io.write_all(&raw(Caller::Chat, "ttft=1000 itl=20 n=5000", true)).await.expect("the pipe has room");
    io.write_all(&raw(Caller::Chat, "ttft=0 n=1", true)).await.expect("the pipe has room");
    sleep(2 * S).await;
    drop(io);
    sleep(50 * MS).await;
    // The gateway sees it when it writes next.
    let stats = world.sim().stats(0);
    assert_eq!((stats.started, stats.aborted, stats.active), (1, 1, 0), "{stats:?}");
}
