//! Phases against a server of this test, which knows what it was asked and in what order.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use serde_json::{Value, json};

type Outcome = Result<(), Box<dyn Error>>;

/// Answers with so many tokens are streams beside the others: they stop half-way until one of those is over.
const LONG: u64 = 1_000;

/// Prompts of so many letters are refused, the first three times.
const REFUSED: usize = 77;

/// What the server has seen.
#[derive(Default)]
struct Seen {
    prompts: Mutex<Vec<String>>,
    answered: Mutex<u64>,
    refusals: Mutex<u64>,
    /// Clients that closed in mid-stream.
    gone: Mutex<u64>,
    closed: Condvar,
    changed: Condvar,
}

fn serve(seen: &Arc<Seen>) -> Result<String, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    let seen = Arc::clone(seen);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let seen = Arc::clone(&seen);
            // A client that leaves is what ends a stream beside the others.
            std::thread::spawn(move || _ = answer(client, &seen));
        }
    });
    Ok(url)
}

fn answer(client: TcpStream, seen: &Seen) -> Outcome {
    let mut reader = BufReader::new(client.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body)?;
    let prompt = body["messages"][0]["content"].as_str().ok_or("no content")?.to_owned();
    let out = body["max_tokens"].as_u64().ok_or("no max_tokens")?;
    let letters = prompt.len();
    seen.prompts.lock().unwrap_or_else(PoisonError::into_inner).push(prompt);
    let mut client = client;
    if letters == REFUSED {
        let mut refusals = seen.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        *refusals += 1;
        if *refusals <= 3 {
            write!(client, "HTTP/1.1 429 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n")?;
            return Ok(());
        }
    }
    write!(client, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")?;
    let token = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
    if out >= LONG {
        client.write_all(token.repeat(10).as_bytes())?;
        let answered = seen.answered.lock().unwrap_or_else(PoisonError::into_inner);
        drop(seen.changed.wait_while(answered, |answered| *answered == 0));
        while client.write_all(token.as_bytes()).is_ok() {}
        *seen.gone.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        seen.closed.notify_all();
        return Ok(());
    }
    for _ in 0..out {
        client.write_all(token.as_bytes())?;
    }
    let usage = json!({ "prompt_tokens": letters, "completion_tokens": out,
        "prompt_tokens_details": { "cached_tokens": 3 } });
    write!(client, "data: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n")?;
    *seen.answered.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    seen.changed.notify_all();
    Ok(())
}

fn run(url: &str, phases: &[&str]) -> Result<Value, Box<dyn Error>> {
    let phases = phases.iter().flat_map(|phase| ["--phase", phase]);
    let output = Command::new(env!("CARGO_BIN_EXE_load-client"))
        .args(["phases", "--url", url])
        .args(phases)
        .output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[test]
fn phases_follow_each_other_and_are_counted() -> Outcome {
    let seen = Arc::default();
    let url = serve(&seen)?;
    let report = run(
        &url,
        &["one:in-turn,count=3,shared=30,own=10,out=5", "two:together,count=2,shared=30,each=5,out=2"],
    )?;
    assert_eq!(report["failed"], 0, "{report}");
    let one = &report["phases"]["one"];
    assert_eq!((&one["requests"], &one["prompt_tokens"]), (&json!(3), &json!(40)), "{report}");
    assert_eq!((&one["output_tokens"], &one["cached_tokens"]), (&json!(15), &json!(9)), "{report}");
    assert_eq!((&one["ttft_us"]["n"], &one["itl_us"]["n"]), (&json!(3), &json!(12)), "{report}");
    assert_eq!(report["phases"]["two"]["tpot_us"]["n"], 2, "{report}");
    let prompts = seen.prompts.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(prompts.len(), 5);
    assert!(prompts.iter().all(|prompt| prompt[..30] == prompts[0][..30]));
    drop(prompts);
    Ok(())
}

#[test]
fn streams_beside_are_waited_for_and_a_refusal_is_a_failure() -> Outcome {
    let seen = Arc::default();
    let url = serve(&seen)?;
    let report = run(&url, &["streams:beside,count=2,own=8,out=1000", "prompt:together,own=50"])?;
    assert_eq!(report["failed"], 0, "{report}");
    assert_eq!(report["phases"]["streams"]["requests"], 2, "{report}");
    // The gap in which both stood still is among theirs.
    assert!(report["phases"]["streams"]["itl_us"]["n"].as_u64() >= Some(2), "{report}");
    assert_eq!(report["phases"]["prompt"]["ttft_us"]["n"], 1, "{report}");
    // Too short to last beside the others.
    let report = run(&url, &["streams:beside,own=8,out=9", "prompt:together,own=50"])?;
    assert_eq!(report["failed"], 1, "{report}");
    Ok(())
}

#[test]
fn who_arrives_in_time_is_good_and_who_is_refused_comes_again() -> Outcome {
    let url = serve(&Arc::default())?;
    let fine = "fine:arriving,own=9,out=3,rate=6000,seconds=1,ttft_ms=60000,itl_ms=60000";
    // An answer within no time at all is nobody's.
    let late = "late:arriving,own=9,out=3,rate=600,seconds=1,itl_ms=0";
    let report = run(&url, &[fine, late])?;
    let (fine, late) = (&report["phases"]["fine"], &report["phases"]["late"]);
    assert_eq!(report["failed"], 0, "{report}");
    assert!(fine["requests"].as_u64() > Some(50) && fine["good"] == fine["requests"], "{report}");
    assert!(late["requests"].as_u64() > Some(0), "{report}");
    // Refused twice; refused once and then taken; taken.
    let report = run(&url, &["turned:in-turn,count=3,own=77"])?;
    let turned = &report["phases"]["turned"];
    assert_eq!((&turned["refused"], &turned["refused_again"]), (&json!(2), &json!(1)), "{report}");
    assert_eq!((&turned["requests"], &report["failed"]), (&json!(2), &json!(1)), "{report}");
    Ok(())
}

#[test]
fn who_is_told_to_leave_closes_the_connection() -> Outcome {
    let seen = Arc::default();
    let url = serve(&seen)?;
    let report = run(
        &url,
        &[
            "readers:together,count=2,own=8,out=1000,leave_ms=30",
            "stalled:together,count=2,own=8,out=1000,stall,leave_ms=30",
            "prompt:together,own=50",
        ],
    )?;
    assert_eq!(report["failed"], 0, "{report}");
    for phase in ["readers", "stalled"] {
        let phase = &report["phases"][phase];
        assert_eq!((&phase["left"], &phase["requests"]), (&json!(2), &json!(0)), "{report}");
    }
    let gone = seen.gone.lock().unwrap_or_else(PoisonError::into_inner);
    drop(seen.closed.wait_while(gone, |gone| *gone < 4));
    Ok(())
}
