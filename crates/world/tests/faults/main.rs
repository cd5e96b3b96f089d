//! Every fault of an upstream, at every moment, in every dialect: what the client gets is what the table
//! says, what it got before is a prefix of what the upstream sent, and the upstream saw one request.

mod docs;
mod table;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firsttoken_gateway::config::Config;
use firsttoken_sim::{Fault, FaultSpec, Options, Sim};
use firsttoken_world::caller::{Fields, events};
use firsttoken_world::world::{PIPE_BYTES, config};
use firsttoken_world::{Caller, Client, End, Got, Relayed, World};
use http::Request;
use http_body_util::Full;
use table::{Cell, Interval, ROWS, Row, Whole};

/// What is wrong with one case.
type Wrong = String;

fn check(ok: bool, wrong: impl FnOnce() -> Wrong) -> Result<(), Wrong> {
    if ok { Ok(()) } else { Err(wrong()) }
}

/// Faults that strike before a stream's head: only a busy provider makes them come late.
fn strikes_early(fault: Fault) -> bool {
    fault.status().is_some()
        || matches!(fault, Fault::Reset | Fault::Redirect | Fault::Empty | Fault::Html | Fault::Json)
}

/// How the provider is told to fail in this interval.
fn knobs(row: &Row, interval: Interval) -> String {
    let mut spec = FaultSpec::new(row.fault);
    spec.after_tokens = if interval == Interval::After { 3 } else { 0 };
    if row.fault == Fault::SlowHead {
        spec.time = Some(Duration::from_secs(if interval == Interval::Before { 5 } else { 20 }));
    }
    let pace = match interval {
        Interval::Between if strikes_early(row.fault) => "slots=1 ttft=0",
        Interval::Between if row.fault == Fault::SlowHead => "ttft=0",
        Interval::Between => "head=1000 ttft=20000",
        Interval::Before | Interval::After => "ttft=1000",
    };
    format!("n=6 itl=100 {pace} fault={spec}")
}

/// Before the head commit some faults only show by a clock: here the clocks are shorter than that.
fn config_for(interval: Interval) -> Config {
    let mut config = config();
    if interval == Interval::Before {
        let clocks = &mut config.defaults.clocks;
        clocks.headers = Some(Duration::from_secs(10));
        clocks.idle = Some(Duration::from_secs(10));
        clocks.first_content = Some(Duration::from_secs(12));
    }
    config
}

async fn over(sim: &Arc<Sim>) -> Client {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    drop(tokio::spawn(sim.clone().serve_connection(theirs)));
    Client::new(ours, false).await
}

/// Keeps the provider's only slot for 20 s.
async fn occupy(sim: &Arc<Sim>) {
    let mut client = over(sim).await;
    let answer = client.ask(Caller::Chat, "slots=1 head=0 ttft=20000 n=1", true).await;
    drop(tokio::spawn(async move {
        drop(answer.rest().await);
        drop(client);
    }));
}

/// What the provider answers to the request that the gateway sent, asked directly: its events, as far
/// as `bytes` of them.
async fn replay(world: &World, row: &Row, interval: Interval, bytes: usize) -> Vec<Bytes> {
    let last = world.sim().last().expect("a request arrived");
    let sim = Sim::new(Options::default());
    let mut client = over(&sim).await;
    if interval == Interval::Between && strikes_early(row.fault) {
        // The answer's id counts the requests, and the first one held the slot.
        client.ask(Caller::Chat, "ttft=0 n=0", false).await.rest().await;
    }
    let knobs = knobs(row, interval);
    // What was compressed is compared as it was before.
    let knobs = if row.fault == Fault::Gzip { knobs.replace("fault=gzip", "") } else { knobs };
    let request = Request::post(format!("http://sim{}", last.path)).header("x-sim", knobs);
    let request = request.body(Full::new(Bytes::from(last.body))).expect("it was valid before");
    let mut all = Vec::new();
    let reading = async {
        let Ok(mut answer) = client.send(request).await else { return };
        while let Some((_, read)) = answer.next().await
            && all.len() <= bytes
        {
            all.extend_from_slice(&read);
        }
    };
    // A provider that has fallen silent has sent what it sends.
    let _ = tokio::time::timeout(Duration::from_secs(700), reading).await;
    events(&all.into())
}

/// Whether an error of ours names this failure: Messages has no codes, only types.
fn names(caller: Caller, said: &str, code: &str) -> bool {
    let kind = match code {
        "upstream_overloaded" => "overloaded_error",
        _ if code.ends_with("_timeout") => "timeout_error",
        _ => "api_error",
    };
    said == if caller == Caller::Messages { kind } else { code }
}

/// One request through a gateway of its own.
async fn one(row: &Row, interval: Interval, caller: Caller) -> Result<(), Wrong> {
    let world = World::new(config_for(interval));
    let blocked = interval == Interval::Between && strikes_early(row.fault);
    if blocked {
        occupy(world.sim()).await;
    }
    let mut client = world.client().await;
    let got = client.ask(caller, &knobs(row, interval), true).await.rest().await;
    let (status, cell, code) = row.expects(caller, interval);

    let stats = world.sim().stats(0);
    check(stats.started == 1 + u64::from(blocked), || format!("{} upstream requests", stats.started))?;
    check(world.dials() == 1, || format!("{} connections", world.dials()))?;
    check(got.end == End::Proper, || format!("the answer broke off: {:?}", got.end))?;
    let outcome = world.timeline(&got.header("x-firsttoken-request-id")).await;
    check(outcome["outcome"] == code, || format!("outcome {} instead of {code}", outcome["outcome"]))?;
    check(outcome["status"] == got.status, || format!("status {} on record", outcome["status"]))?;

    if interval == Interval::Before && caller != Caller::Typed && cell != Cell::Full {
        return refused(&got, caller, status, cell, code, row.fault);
    }
    check(got.status == 200, || format!("status {}: {}", got.status, got.text()))?;
    if interval == Interval::Between && caller != Caller::Typed {
        check(got.head_at == Duration::from_secs(15), || format!("head after {:?}", got.head_at))?;
    }
    if caller == Caller::Typed {
        return typed(&world, row, interval, &got, cell, code).await;
    }
    let mut sent = replay(&world, row, interval, got.body().len() + 4096).await;
    if caller == Caller::Chat && row.fault != Fault::BigEvent {
        // The gateway asked for usage, the caller did not: that chunk is taken out while events are seen.
        sent.retain(|event| !Fields::of(event).data.contains("\"choices\":[],"));
    }
    if interval == Interval::Between && row.fault != Fault::Pings {
        let first = got.times_of(caller.keepalive()).first().copied();
        check(first == Some(Duration::from_secs(15)), || format!("the first keepalive came at {first:?}"))?;
    }
    streamed(&sent, &got, caller, interval, cell, code)
}

/// Nothing had been written: a true status, and an error body in the caller's dialect.
fn refused(
    got: &Got,
    caller: Caller,
    status: u16,
    cell: Cell,
    code: &str,
    fault: Fault,
) -> Result<(), Wrong> {
    check(got.status == status, || format!("status {} instead of {status}: {}", got.status, got.text()))?;
    let said = caller.error_body(&got.body());
    let said = said.ok_or_else(|| format!("not an error body of this dialect: {}", got.text()))?;
    check(cell == Cell::Theirs || names(caller, &said, code), || format!("code {said}"))?;
    if cell == Cell::Theirs && fault.status().is_some() {
        check(got.text().contains("as the script says"), || format!("not its words: {}", got.text()))?;
    }
    let retry_after = if fault == Fault::Status429 { "1" } else { "" };
    check(got.header("retry-after") == retry_after, || format!("retry-after {}", got.header("retry-after")))
}

/// A stream in the upstream's own dialect: its bytes, and an error event where it failed.
fn streamed(
    sent: &[Bytes],
    got: &Got,
    caller: Caller,
    interval: Interval,
    cell: Cell,
    code: &str,
) -> Result<(), Wrong> {
    let relayed = Relayed::read(&got.body(), sent, caller.keepalive());
    let fields: Vec<Fields> = sent[..relayed.events].iter().map(|event| Fields::of(event)).collect();
    let text: Vec<String> =
        fields.iter().map(|event| caller.text(event)).filter(|text| !text.is_empty()).collect();
    let ends = fields.iter().filter(|event| caller.is_terminal(event)).count();
    match cell {
        Cell::Never => return Err("this cannot happen".to_owned()),
        Cell::Full => {
            check(relayed.rest.is_empty(), || format!("behind the answer: {:?}", relayed.rest))?;
            let last = fields.last();
            let ended = last.is_some_and(|event| caller.is_terminal(event) || caller.is_finish(event));
            check(ended, || format!("the last event is {last:?}"))?;
            return check(ends <= 1 && text.len() >= 6, || format!("{ends} ends, {} texts", text.len()));
        }
        Cell::Theirs => {
            // It went through as the upstream's own event, or it is the only one.
            let last = fields.last().and_then(|event| caller.error_event(event));
            let own = caller.error_event(&Fields::of(&relayed.rest));
            check(last.is_some() != own.is_some(), || format!("error events: {last:?} and {own:?}"))?;
        }
        Cell::Fails => {
            let said = caller.error_event(&Fields::of(&relayed.rest));
            let said = said.ok_or_else(|| format!("no error event at the end: {:?}", relayed.rest))?;
            check(names(caller, &said, code), || format!("code {said} instead of {code}"))?;
            check(events(&relayed.rest).len() == 1, || format!("more than one event: {:?}", relayed.rest))?;
        }
    }
    check(ends == 0, || "an end and an error".to_owned())?;
    let expected = match interval {
        Interval::Before | Interval::Between => 0,
        Interval::After => 3,
    };
    // An endless answer, or one without its terminal event, brings more than that.
    let enough = if matches!(code, "total_timeout" | "upstream_truncated") {
        text.len() >= expected
    } else {
        text.len() == expected
    };
    check(enough, || format!("{} texts instead of {expected}", text.len()))
}

/// Typed events: rendered anew, so the text is compared.
async fn typed(
    world: &World,
    row: &Row,
    interval: Interval,
    got: &Got,
    cell: Cell,
    code: &str,
) -> Result<(), Wrong> {
    let all: Vec<Fields> = events(&got.body()).iter().map(|event| Fields::of(event)).collect();
    let text: String = all.iter().map(|event| Caller::Typed.text(event)).collect();
    let first = all.first().ok_or("nothing came")?;
    let accepted = first.name == "status" && first.json()["data"]["phase"] == "accepted";
    check(accepted, || format!("first {first:?}"))?;
    let last = all.last().ok_or("nothing came")?;
    let failed: Vec<String> = all.iter().filter_map(|event| Caller::Typed.error_event(event)).collect();
    let done = all.iter().filter(|event| Caller::Typed.is_terminal(event)).count();
    let sent = replay(world, row, interval, got.body().len() * 10).await;
    let said: String = sent.iter().map(|event| Caller::Chat.text(&Fields::of(event))).collect();
    if cell == Cell::Full {
        check(failed.is_empty() && done == 1, || format!("errors {failed:?}, {done} ends"))?;
        check(Caller::Typed.is_terminal(last), || format!("last {last:?}"))?;
        let finish = all.iter().find(|event| event.name == "done").ok_or("no `done`")?.json();
        check(finish["messageMetadata"]["finishReason"] == "stop", || format!("reason in {finish}"))?;
        let whole = said.strip_suffix(" after the end").unwrap_or(&said);
        return check(text == whole, || format!("text {text:?} instead of {said:?}"));
    }
    check(failed.len() == 1 && done == 0, || format!("errors {failed:?}, {done} ends"))?;
    let own = cell == Cell::Theirs || failed[0] == code;
    check(last.json()["type"] == "error" && own, || format!("last {last:?} instead of {code}"))?;
    let enough = if interval == Interval::After { !text.is_empty() } else { text.is_empty() };
    check(enough && said.starts_with(&text), || format!("text {text:?} of {said:?}"))
}

/// A request that is not streamed.
async fn whole(row: &Row, caller: Caller) -> Result<(), Wrong> {
    let world = World::new(config());
    let mut client = world.client().await;
    let got = client.ask(caller, &knobs(row, Interval::After), false).await.rest().await;
    check(world.sim().stats(0).started == 1, || "more than one upstream request".to_owned())?;
    check(got.end == End::Proper, || format!("the answer broke off: {:?}", got.end))?;
    let outcome = world.timeline(&got.header("x-firsttoken-request-id")).await;
    let (status, code) = match row.whole {
        Whole::Full => {
            check(got.status == 200, || format!("status {}: {}", got.status, got.text()))?;
            let json = got.json();
            let text = match caller {
                Caller::Messages => &json["content"][0]["text"],
                _ => &json["choices"][0]["message"]["content"],
            };
            check(text.as_str().is_some_and(|text| !text.is_empty()), || format!("text {text}"))?;
            (200, "complete")
        }
        Whole::Fails(status, code) => {
            let status =
                if caller == Caller::Messages && row.fault == Fault::Status529 { 529 } else { status };
            refused(&got, caller, status, Cell::Fails, code, row.fault)?;
            (status, code)
        }
        Whole::Theirs(status, code) => {
            let fault = if row.fault == Fault::ErrorEvent { Fault::Cut } else { row.fault };
            refused(&got, caller, status, Cell::Theirs, code, fault)?;
            (status, code)
        }
    };
    check(got.status == status, || format!("status {}", got.status))?;
    check(outcome["outcome"] == code, || format!("outcome {} instead of {code}", outcome["outcome"]))
}

async fn walk(caller: Caller) {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for row in &ROWS {
        for interval in [Interval::Before, Interval::Between, Interval::After] {
            if row.cells[interval as usize] != Cell::Never {
                cases += 1;
                if let Err(what) = one(row, interval, caller).await {
                    wrong.push(format!("{:?} {interval:?}: {what:.400}", row.fault));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{caller:?}: {} of {cases} cases are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[tokio::test(start_paused = true)]
async fn chat_completions() {
    walk(Caller::Chat).await;
}

#[tokio::test(start_paused = true)]
async fn messages() {
    walk(Caller::Messages).await;
}

#[tokio::test(start_paused = true)]
async fn responses() {
    walk(Caller::Responses).await;
}

#[tokio::test(start_paused = true)]
async fn completions() {
    walk(Caller::Completions).await;
}

#[tokio::test(start_paused = true)]
async fn typed_events() {
    walk(Caller::Typed).await;
}

#[tokio::test(start_paused = true)]
async fn not_streamed() {
    let mut wrong = Vec::new();
    for row in &ROWS {
        for caller in [Caller::Chat, Caller::Messages] {
            if let Err(what) = whole(row, caller).await {
                wrong.push(format!("{:?} {caller:?}: {what:.400}", row.fault));
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_fault_of_the_provider_has_its_row() {
    for fault in Fault::ALL {
        assert!(ROWS.iter().any(|row| row.fault == fault), "{fault:?} is not in the table");
    }
}

#[test]
fn the_page_is_written_from_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/faults.md");
    let page = docs::page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page, "docs/faults.md is stale: write it with UPDATE_DOCS=1");
}
