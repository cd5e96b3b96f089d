//! The books: who started, who ended how, when an abort was noticed, and that nothing follows it.

use std::sync::Arc;
use std::time::Duration;

use firsttoken_sim::{Ended, Options, Sim};
use serde_json::Value;
use tokio::io::AsyncReadExt;

use crate::client::{Failure, STREAMS, Server, ask, ask_h2, body, pipe, sim};

const CHAT: &str = "/v1/chat/completions";
const PATIENCE: Duration = Duration::from_secs(600);

fn of_one(sim: &Sim) -> (u64, u64, u64, u64, u64, u64) {
    let s = sim.stats(1);
    assert_eq!(s.started, s.completed + s.faulted + s.refused + s.aborted + s.active, "{s:?}");
    (s.started, s.completed, s.faulted, s.refused, s.aborted, s.active)
}

#[tokio::test(start_paused = true)]
async fn a_finished_request_is_recorded() -> Result<(), Failure> {
    let sim = sim();
    tokio::time::sleep(Duration::from_millis(7)).await;
    let answer = ask(&sim, CHAT, "", &body(CHAT, true), PATIENCE).await?;
    assert_eq!(answer.headers["x-request-id"], "mine");
    assert_eq!(of_one(&sim), (1, 1, 0, 0, 0, 0));
    let stats = sim.stats(10);
    let record = &stats.records[0];
    let ms = |ns: u64| ns / 1_000_000;
    assert_eq!(
        (record.id.as_str(), record.endpoint, record.model.as_str()),
        ("mine", "chat.completions", "sim")
    );
    assert_eq!(
        (ms(record.arrived_ns), record.first_token_ns.map(ms), record.ended_ns.map(ms)),
        (7, Some(107), Some(197))
    );
    assert_eq!((record.ended, record.abort_noticed_ns, record.tokens), (Ended::Completed, None, 10));
    // The head and the chunked framing are on top of the body.
    let body_bytes = answer.bytes().len() as u64;
    assert!((body_bytes..body_bytes + 1000).contains(&record.bytes_accepted), "{}", record.bytes_accepted);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_leaves_is_an_abort_and_nothing_follows() -> Result<(), Failure> {
    for path in STREAMS {
        // Before the head, between head and content, in the middle, and while silent; streamed or not.
        for (knobs, stream, after_ms, tokens) in [
            ("", true, 50, 0),
            ("head=10", true, 50, 0),
            ("", true, 125, 3),
            ("fault=stall@2", true, 400, 2),
            ("fault=silent", true, 400, 0),
            ("", false, 125, 0),
        ] {
            let sim = sim();
            let mut connection = pipe(&sim, path, knobs, &body(path, stream)).await?;
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            assert_eq!(of_one(&sim), (1, 0, 0, 0, 0, 1), "{path} {knobs}");
            let mut buffer = [0; 1 << 14];
            if tokens > 0 {
                assert!(connection.read(&mut buffer).await? > 0);
            }
            drop(connection);
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(of_one(&sim), (1, 0, 0, 0, 1, 0), "{path} {knobs}");
            let stats = sim.stats(1);
            let record = &stats.records[0];
            assert_eq!(record.abort_noticed_ns, Some(after_ms * 1_000_000), "{path} {knobs}");
            assert_eq!((record.tokens, record.tokens_after_abort), (tokens, 0), "{path} {knobs}");
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_slot_can_leave() -> Result<(), Failure> {
    let sim = sim();
    let holds = pipe(&sim, CHAT, "slots=1 fault=silent", &body(CHAT, true)).await?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let waits = pipe(&sim, CHAT, "slots=1", &body(CHAT, true)).await?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    drop(waits);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(of_one(&sim), (2, 0, 0, 0, 1, 1));
    drop(holds);
    let answer = ask(&sim, CHAT, "slots=1", &body(CHAT, true), PATIENCE).await?;
    assert!(answer.whole, "the slot came free with the abort");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_reset_http2_stream_is_an_abort_too() -> Result<(), Failure> {
    let sim = sim();
    let request = body(CHAT, true);
    let asking = ask_h2(&sim, CHAT, "n=1000", &request);
    let asking = tokio::time::timeout(Duration::from_millis(125), asking);
    assert!(asking.await.is_err());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(of_one(&sim).4, 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn scripted_failures_and_refusals_are_apart() -> Result<(), Failure> {
    let sim = sim();
    for knobs in ["fault=cut@3", "fault=status:500", "fault=end@2", "fault=html"] {
        ask(&sim, CHAT, knobs, &body(CHAT, true), PATIENCE).await?;
    }
    assert_eq!(of_one(&sim), (4, 0, 4, 0, 0, 0));
    ask(&sim, CHAT, "nonsense", &body(CHAT, true), PATIENCE).await?;
    assert_eq!(of_one(&sim), (5, 0, 4, 1, 0, 0));
    sim.reset();
    assert_eq!(of_one(&sim), (0, 0, 0, 0, 0, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_stops_the_production() -> Result<(), Failure> {
    let sim = sim();
    let connection = pipe(&sim, CHAT, "fault=endless itl=0 bytes=1000", &body(CHAT, true)).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let stats = sim.stats(1);
    let record = &stats.records[0];
    // The pipe holds 64 KiB, and the connection buffers at most as much and a frame.
    assert!(record.bytes_accepted <= 64 * 1024, "{}", record.bytes_accepted);
    assert!((40..=130).contains(&record.tokens), "{} tokens of 1,000 bytes", record.tokens);
    drop(connection);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((of_one(&sim).4, sim.stats(1).tokens_after_abort), (1, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_ring_forgets_the_oldest() -> Result<(), Failure> {
    let sim = Sim::new(Options { records_max: 3, ..Options::default() });
    for _ in 0..5 {
        ask(&sim, CHAT, "n=1", &body(CHAT, true), PATIENCE).await?;
    }
    assert_eq!((sim.stats(10).records.len(), sim.stats(2).records.len(), sim.stats(0).started), (3, 2, 5));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_last_request_is_kept_as_it_came() -> Result<(), Failure> {
    let sim = sim();
    let request = body("/v1/messages", true);
    ask(&sim, "/v1/messages?beta=true", "n=1", &request, PATIENCE).await?;
    let last = sim.last().ok_or("there was a request")?;
    assert_eq!((last.method.as_str(), last.version.as_str()), ("POST", "HTTP/1.1"));
    assert_eq!(last.path, "/v1/messages?beta=true");
    assert!(last.headers.contains(&("x-sim".to_owned(), "n=1".to_owned())), "{last:?}");
    assert_eq!(last.body, request.to_string());
    Ok(())
}

#[tokio::test]
async fn the_books_can_be_read_over_a_socket() -> Result<(), Failure> {
    let server = Server::start(sim()).await?;
    let fetch = async |request: &str| -> Result<Value, Failure> {
        let (mut mine, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(Arc::clone(&server.sim).serve_connection(theirs));
        let request = format!("{request} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut mine, request.as_bytes()).await?;
        let mut answer = String::new();
        mine.read_to_string(&mut answer).await?;
        Ok(serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap_or_default())?)
    };
    server.ask(CHAT, "ttft=1 itl=1", &body(CHAT, true), Duration::from_millis(300)).await?;
    assert_eq!(fetch("GET /last").await?["path"], CHAT);
    let stats = fetch("GET /stats?records=1").await?;
    assert_eq!((&stats["completed"], &stats["records"][0]["ended"]), (&1.into(), &"completed".into()));
    assert_eq!(fetch("GET /v1/models").await?["data"][0]["id"], "sim");
    assert_eq!(fetch("GET /v1/models/any").await?["id"], "any");
    assert_eq!(fetch("POST /reset").await?["reset"], true);
    assert_eq!(fetch("GET /stats").await?["started"], 0);
    assert!(fetch("GET /v1/messages").await?["error"].is_object());
    Ok(())
}

#[tokio::test]
async fn an_abort_on_a_real_socket_is_noticed_within_milliseconds() -> Result<(), Failure> {
    let server = Server::start(sim()).await?;
    for knobs in ["fault=silent", "fault=rolesilence ttft=1", "fault=endless ttft=1 itl=1"] {
        server.sim.reset();
        let socket = server.connect(CHAT, knobs, &body(CHAT, true)).await?;
        tokio::time::sleep(Duration::from_millis(30)).await;
        let left_ns = server.sim.stats(0).now_ns;
        drop(socket);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let stats = server.sim.stats(1);
        let noticed_ns = stats.records[0].abort_noticed_ns.ok_or_else(|| format!("{knobs}: {stats:?}"))?;
        assert!(noticed_ns.saturating_sub(left_ns) < 50_000_000, "{knobs}: {} ns", noticed_ns - left_ns);
        assert_eq!(stats.tokens_after_abort, 0, "{knobs}");
    }
    Ok(())
}
