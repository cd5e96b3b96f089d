//! Every fault on a raw socket, in every dialect: does it do what its name says?

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use firsttoken_sim::{Fault, FaultSpec};
use tokio::task::JoinSet;

use crate::client::{End, Failure, Raw, STREAMS, Server, ask, ask_h2, body, sim};

/// How long the socket may be silent before a test takes it for silent for ever.
const PATIENCE: Duration = Duration::from_millis(500);

/// What says that nothing follows.
fn terminal(path: &str) -> &'static str {
    match path {
        "/v1/messages" => "event: message_stop",
        "/v1/responses" => "event: response.completed",
        _ => "data: [DONE]",
    }
}

/// What comes before any content.
fn opening(path: &str) -> &'static str {
    match path {
        "/v1/messages" => "event: message_start",
        "/v1/responses" => "event: response.created",
        "/v1/completions" => "\"text\":\"\"",
        _ => "\"role\":\"assistant\"",
    }
}

/// What one token of the canned text looks like in each dialect's frames: the fourth word and after.
fn words(body: &str) -> usize {
    ["\"This\"", "\" is\"", "\" a\"", "\" simulated\"", "\" answer\"", "\" to:\""]
        .iter()
        .take_while(|word| body.contains(**word))
        .count()
}

fn spec(fault: Fault) -> FaultSpec {
    FaultSpec { after_tokens: 3, ..FaultSpec::new(fault) }
}

#[tokio::test]
async fn every_fault_does_what_its_name_says() -> Result<(), Failure> {
    let server = Arc::new(Server::start(sim()).await?);
    let mut walks = JoinSet::new();
    for path in STREAMS {
        for fault in Fault::ALL {
            walks.spawn(walk(Arc::clone(&server), path, fault));
        }
    }
    while let Some(walked) = walks.join_next().await {
        walked??;
    }
    Ok(())
}

async fn walk(server: Arc<Server>, path: &'static str, fault: Fault) -> Result<(), Failure> {
    let spec = match fault {
        Fault::SlowHead => "slowhead:60".to_owned(),
        Fault::Pings => "pings:20".to_owned(),
        _ => spec(fault).to_string(),
    };
    let knobs = if fault == Fault::Endless { "ttft=1 itl=1" } else { "ttft=1 itl=1 n=8" };
    let raw = server.ask(path, &format!("{knobs} fault={spec}"), &body(path, true), PATIENCE).await?;
    check(path, fault, &raw).map_err(|wrong| format!("{path} {spec}: {wrong}\n{}", raw.text()).into())
}

fn ensure(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}

fn check(path: &str, fault: Fault, raw: &Raw) -> Result<(), &'static str> {
    if let Some(status) = fault.status() {
        return check_status(fault, status, raw);
    }
    match fault {
        Fault::Reset => {
            ensure(raw.reads.is_empty(), "bytes before the reset")?;
            ensure(raw.end == End::Rst, "no RST")
        }
        Fault::Silent => ensure(raw.reads.is_empty() && raw.end == End::Open, "it is not silent"),
        Fault::Redirect => {
            ensure(raw.text().starts_with("HTTP/1.1 307 ") && raw.text().contains("location: "), "no 307")
        }
        Fault::Empty => {
            ensure(raw.text().contains("content-length: 0") && raw.text().ends_with("\r\n\r\n"), "not empty")
        }
        Fault::Html => {
            ensure(raw.text().contains("content-type: text/html") && raw.text().contains("<html>"), "no page")
        }
        Fault::Json => {
            ensure(raw.text().contains("content-type: application/json"), "not JSON")?;
            ensure(raw.text().contains("simulated answer to: "), "no answer in it")
        }
        Fault::Endless => ensure(raw.end == End::Open && raw.bytes().len() > 10_000, "it ended"),
        Fault::Gzip => check_gzip(path, raw),
        _ => check_stream(path, fault, raw),
    }
}

fn check_status(fault: Fault, status: u16, raw: &Raw) -> Result<(), &'static str> {
    ensure(raw.text().starts_with(&format!("HTTP/1.1 {status} ")), "another status")?;
    let has_retry_after = raw.text().contains("retry-after: 1\r\n");
    ensure(has_retry_after == (fault == Fault::Status429), "Retry-After is wrong")?;
    ensure(raw.text().contains("\"message\":"), "no message")
}

fn check_gzip(path: &str, raw: &Raw) -> Result<(), &'static str> {
    ensure(raw.text().contains("content-encoding: gzip"), "it does not say gzip")?;
    let (chunks, ended) = raw.chunks();
    ensure(ended, "the body does not end")?;
    let mut text = String::new();
    let unpacked = flate2::read::GzDecoder::new(&chunks.concat()[..]).read_to_string(&mut text);
    ensure(unpacked.is_ok() && text.contains(terminal(path)), "not a whole stream in gzip")
}

/// The faults whose head is a stream's.
fn check_stream(path: &str, fault: Fault, raw: &Raw) -> Result<(), &'static str> {
    let (chunks, ended) = raw.chunks();
    let bytes = chunks.concat();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    ensure(raw.text().contains("content-type: text/event-stream"), "no stream")?;
    ensure(text.contains(opening(path)), "no opening")?;
    let terminals = text.matches(terminal(path)).count();
    let cut = |chunk: &&Vec<u8>| chunk.last() >= Some(&0xC0);
    let expected = match fault {
        Fault::TwoDone => 2,
        _ if fault.answers_in_full() => 1,
        _ => 0,
    };
    ensure(terminals == expected, "wrong number of terminal events")?;
    ensure(
        fault.takes_position() == (words(&text) == 3) || fault.answers_in_full(),
        "not after three tokens",
    )?;
    match fault {
        Fault::RoleSilence | Fault::Pings => {
            ensure(words(&text) == 0 && !ended && raw.end == End::Open, "it is not silent")?;
            let pings = text.matches(": keepalive").count() + text.matches("event: ping").count();
            ensure(fault == Fault::RoleSilence || pings >= 2, "no pings")
        }
        Fault::Stall => ensure(!ended && raw.end == End::Open, "it goes on"),
        Fault::Cut => ensure(!ended && raw.end == End::Fin, "no FIN in the middle"),
        Fault::ResetAt => ensure(!ended && raw.end == End::Rst, "no RST in the middle"),
        Fault::End => ensure(ended && !text.contains("\"stop\""), "it does not just end"),
        Fault::NoDone => ensure(ended && words(&text) == 6, "it is not all there"),
        Fault::BadJson => {
            let bad = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let bad = bad.filter(|d| *d != "[DONE]" && serde_json::from_str::<serde_json::Value>(d).is_err());
            ensure(ended && bad.count() == 1, "not one malformed frame")
        }
        Fault::ErrorEvent => {
            ensure(ended && text.contains("\"message\":\"the simulated provider"), "no error event")
        }
        Fault::BigEvent => ensure(ended && text.lines().any(|line| line.len() >= 2_000_000), "no big event"),
        Fault::SplitUtf8 => ensure(chunks.iter().filter(cut).count() >= 5, "not every character in two"),
        Fault::Trickle => ensure(ended && chunks.iter().all(|chunk| chunk.len() == 1), "it does not trickle"),
        Fault::After => {
            ensure(ended && text.rfind(" after the end") > text.rfind(terminal(path)), "nothing after")
        }
        _ => ensure(ended && words(&text) == 6, "it is not all there"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_written_apart_arrives_apart() -> Result<(), Failure> {
    let patience = Duration::from_secs(600);
    let split = ask(&sim(), STREAMS[0], "fault=splitutf8 n=5", &body(STREAMS[0], true), patience).await?;
    let halves: Vec<_> = split.pieces.windows(2).filter(|pair| pair[0].1.last() >= Some(&0xC0)).collect();
    assert_eq!(halves.len(), 5);
    assert!(halves.iter().all(|pair| pair[1].0 - pair[0].0 == Duration::from_millis(1)));
    let trickle = ask(&sim(), STREAMS[0], "fault=trickle:2 n=1", &body(STREAMS[0], true), patience).await?;
    assert!(trickle.pieces.iter().all(|(_, piece)| piece.len() == 1));
    assert!(trickle.pieces.windows(2).all(|pair| pair[1].0 - pair[0].0 <= Duration::from_millis(2)));
    let last = trickle.pieces.last().ok_or("there was an answer")?.0;
    assert!(last >= Duration::from_millis(2 * (trickle.pieces.len() as u64 - 10)), "{last:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn faults_strike_exactly_after_their_tokens() -> Result<(), Failure> {
    let sim = sim();
    for after in 0..6 {
        // Chunks of four would step over most places.
        let knobs = format!("chunk=4 write=2 fault=cut@{after}");
        let answer = ask(&sim, STREAMS[0], &knobs, &body(STREAMS[0], true), Duration::from_secs(60)).await?;
        let text: usize = answer.text().matches("\"content\":\"").count();
        assert!(!answer.whole && text > 0, "the opening came");
        assert_eq!(sim.stats(1).records[0].tokens, after, "{knobs}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stall_can_end() -> Result<(), Failure> {
    let answer =
        ask(&sim(), STREAMS[0], "fault=stall@2:5000", &body(STREAMS[0], true), Duration::from_secs(60))
            .await?;
    assert!(answer.whole);
    let longest = answer.pieces.windows(2).map(|pair| pair[1].0 - pair[0].0).max();
    assert_eq!(longest, Some(Duration::from_millis(5010)), "an ordinary gap and the stall");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn over_http2_the_stream_is_reset_and_the_tokens_before_it_arrive() -> Result<(), Failure> {
    let sim = sim();
    for spec in ["cut@3", "resetat@3"] {
        let answer = ask_h2(&sim, STREAMS[0], &format!("fault={spec}"), &body(STREAMS[0], true)).await?;
        assert!(!answer.whole && words(&answer.text()) == 3, "{spec}: {}", answer.text());
    }
    assert!(ask_h2(&sim, STREAMS[0], "fault=reset", &body(STREAMS[0], true)).await.is_err());
    assert_eq!(sim.stats(0).faulted, 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_streamed_fails_too() -> Result<(), Failure> {
    let sim = sim();
    for path in STREAMS {
        for (spec, whole, valid) in [
            ("cut@3", false, false),
            ("end@3", true, false),
            ("badjson@3", true, false),
            ("stall@3", false, false),
            ("stall@3:1000", true, true),
            ("rolesilence", false, false),
            ("pings", false, false),
            ("endless", false, false),
            ("bigevent@3", true, true),
            ("trickle", true, true),
            ("splitutf8", true, true),
            ("nodone", true, true),
        ] {
            let answer =
                ask(&sim, path, &format!("fault={spec}"), &body(path, false), Duration::from_secs(60))
                    .await?;
            assert_eq!((answer.status.as_u16(), answer.whole), (200, whole), "{path} {spec}");
            assert_eq!(answer.json().is_ok(), valid, "{path} {spec}: {}", answer.text());
        }
        let refused =
            ask(&sim, path, "fault=errorevent@3", &body(path, false), Duration::from_secs(60)).await?;
        assert_eq!(refused.status.as_u16(), 500, "{path}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn over_a_pipe_a_reset_is_an_abrupt_end() -> Result<(), Failure> {
    let sim = sim();
    let asked =
        ask(&Arc::clone(&sim), STREAMS[0], "fault=reset", &body(STREAMS[0], true), Duration::from_secs(60))
            .await;
    assert!(asked.is_err());
    assert_eq!((sim.stats(0).faulted, sim.stats(0).aborted), (1, 0));
    Ok(())
}
