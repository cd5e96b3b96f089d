//! The relay invariant under a swarm of random streams: what a client gets is a prefix of the upstream's
//! events, each whole and in order, plus keepalives between them and at most one error event at the end.
//!
//! `EVENTS=1000000` runs more of it; `SEED=n` replays one stream.

mod streams;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use firsttoken_world::caller::{Fields, events};
use firsttoken_world::client::{Answer, ask};
use firsttoken_world::scripted::Script;
use firsttoken_world::world::config;
use firsttoken_world::{Client, End, Relayed, World};
use streams::{Ending, Stream};

/// Events of a run, unless `EVENTS` says otherwise.
const EVENTS: u64 = 20_000;
/// Pauses of a slow reader.
const PAUSES_MAX: u32 = 10;

/// A gateway whose upstream plays the next script on every connection.
struct Swarm {
    world: World,
    scripts: Arc<Mutex<VecDeque<(usize, Script)>>>,
    playing: Arc<AtomicU64>,
}

impl Swarm {
    fn new() -> Self {
        let scripts: Arc<Mutex<VecDeque<(usize, Script)>>> = Arc::default();
        let playing = Arc::new(AtomicU64::new(0));
        let (queue, count) = (scripts.clone(), playing.clone());
        let open = move |_: &_| {
            let next = queue.lock().expect("nobody panicked").pop_front();
            let (pipe_bytes, script) = next.ok_or_else(|| std::io::Error::other("a second connection"))?;
            let (ours, theirs) = tokio::io::duplex(pipe_bytes);
            let count = count.clone();
            count.fetch_add(1, Relaxed);
            drop(tokio::spawn(async move {
                script.play(theirs).await;
                count.fetch_sub(1, Relaxed);
            }));
            Ok(ours)
        };
        Self { world: World::dialling(config(), Arc::new(open)), scripts, playing }
    }

    /// Runs the stream of this seed; returns its number of events.
    async fn run(&self, seed: u64) -> Result<u64, String> {
        let mut rng = Rng::with_seed(seed);
        let stream = Stream::new(&mut rng);
        let size = |rng: &mut Rng| 1 << rng.u32(5..17);
        let script = stream.script.clone();
        self.scripts.lock().expect("nobody panicked").push_back((size(&mut rng), script));
        let h2 = rng.u8(..4) == 0;
        let mut client = Client::new(self.world.pipe(size(&mut rng).max(64), h2), h2).await;
        // Most clients stay to the end.
        let leaves_after = (rng.u8(..4) == 0).then(|| rng.usize(..4_000));
        let request = ask(stream.caller, "", true);
        let answer = client.send(request).await.map_err(|e| format!("no answer: {e}"))?;
        let status = answer.status();
        let (got, end) = read(answer, leaves_after, &mut rng).await;
        client.leave().await;
        judge(&stream, status, &got, end.as_ref())?;
        // The upstream ends what nobody wants; what stands behind a good end is read for a second.
        tokio::time::sleep(Duration::from_secs(2)).await;
        match self.playing.load(Relaxed) {
            0 => Ok(stream.events.len() as u64),
            n => Err(format!("{n} upstream answers are left running")),
        }
    }
}

/// Reads with pauses, to the end or until the client has enough. No end: it left.
async fn read(mut answer: Answer, leaves_after: Option<usize>, rng: &mut Rng) -> (Bytes, Option<End>) {
    let mut got = Vec::new();
    let mut pauses = if rng.bool() { PAUSES_MAX } else { 0 };
    loop {
        if leaves_after.is_some_and(|bytes| got.len() > bytes) {
            return (got.into(), None);
        }
        if pauses > 0 && rng.u8(..3) == 0 {
            pauses -= 1;
            tokio::time::sleep(Duration::from_millis(rng.u64(..2_000))).await;
        }
        match answer.next().await {
            Some((_, bytes)) => got.extend_from_slice(&bytes),
            None => return (got.into(), Some(answer.rest().await.end)),
        }
    }
}

fn judge(stream: &Stream, status: u16, got: &Bytes, end: Option<&End>) -> Result<(), String> {
    let what = format!("{:?} {:?}, {} events", stream.caller, stream.ending, stream.events.len());
    let fail = |wrong: String| Err(format!("{what}: {wrong}"));
    if let Some(End::Broken(why)) = end {
        return fail(format!("broke off: {why}"));
    }
    let left = end.is_none();
    let told = stream.fails || stream.ending == Ending::Error;
    if status != 200 {
        let said = stream.caller.error_body(got);
        // Nothing had been written: perhaps content came in one read with the failure, or none at all.
        let early = told && (left || said.is_some());
        return if early { Ok(()) } else { fail(format!("status {status}: {got:?}")) };
    }
    if stream.caller == firsttoken_world::Caller::Typed {
        return judge_typed(stream, got, left, told).or_else(fail);
    }
    let mut atoms: Vec<Bytes> = stream.events.iter().flat_map(atoms_of).collect();
    let mut whole = atoms.len();
    atoms.extend(stream.tail.clone());
    let mut relayed = Relayed::read(got, &atoms, stream.caller.keepalive());
    let stray = stream.stray.map(|events| stream.events[..events].iter().flat_map(atoms_of).count());
    if stray == Some(relayed.events) && relayed.rest.starts_with(b"\n") {
        atoms.insert(relayed.events, Bytes::from_static(b"\n"));
        whole += 1;
        relayed = Relayed::read(got, &atoms, stream.caller.keepalive());
    }
    let missing = whole.saturating_sub(relayed.events);
    let rest = &relayed.rest;
    if left {
        // It may have left in the middle of an event, or of an insertion.
        let next = atoms.get(relayed.events);
        let inside = next.is_some_and(|next| next.starts_with(rest))
            || stream.caller.keepalive().starts_with(rest)
            || (missing <= 1 && told);
        return if inside { Ok(()) } else { fail(format!("after {} events: {rest:?}", relayed.events)) };
    }
    // The LF of a last CRLF may come too late to be of use.
    let line_end = atoms.get(relayed.events).is_some_and(|atom| *atom == "\n");
    if missing > usize::from(line_end) {
        return fail(format!("{missing} of {whole} events are missing; then {rest:?}"));
    }
    let error = stream.caller.error_event(&Fields::of(rest)).filter(|_| events(rest).len() == 1);
    match (stream.fails, error) {
        (false, _) if rest.is_empty() => Ok(()),
        (true, Some(_)) => Ok(()),
        (fails, _) => fail(format!("fails: {fails}, but at the end: {rest:?}")),
    }
}

/// An event in the pieces between which a keepalive may stand: the LF of a last CRLF is one of its own,
/// since the blank line ended before it.
fn atoms_of(event: &Bytes) -> Vec<Bytes> {
    if event.ends_with(b"\r\n") {
        return vec![event.slice(..event.len() - 1), event.slice(event.len() - 1..)];
    }
    vec![event.clone()]
}

fn judge_typed(stream: &Stream, got: &Bytes, left: bool, told: bool) -> Result<(), String> {
    let all: Vec<Fields> = events(got).iter().map(|event| Fields::of(event)).collect();
    let caller = stream.caller;
    let text: String = all.iter().map(|event| caller.text(event)).collect();
    let ends = all.iter().filter(|event| caller.is_terminal(event)).count();
    let errors = all.iter().filter(|event| caller.error_event(event).is_some()).count();
    let tail = stream.tail.as_ref().map_or("", |_| "never seen");
    let whole = text == stream.text || text.strip_suffix(tail) == Some(&stream.text);
    let last = all
        .last()
        .is_some_and(|event| if told { event.json()["type"] == "error" } else { caller.is_terminal(event) });
    match (left, told) {
        (true, _) if stream.text.starts_with(&text) || whole => Ok(()),
        (false, true) if whole && last && (errors, ends) == (1, 0) => Ok(()),
        (false, false) if whole && last && (errors, ends) == (0, 1) => Ok(()),
        _ => Err(format!("{errors} errors, {ends} ends, text {text:?} of {:?}", stream.text)),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.replace('_', "").parse().ok()
}

/// Runs every `step`th seed from `first` on, until that makes `events` events.
fn run(first: u64, step: u64, events: u64) -> (u64, u64, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be had").block_on(async {
        let swarm = Swarm::new();
        let (mut done, mut streams, mut broken) = (0, 0, Vec::new());
        let mut seed = first;
        while done < events && broken.len() < 5 {
            match swarm.run(seed).await {
                Ok(n) => done += n,
                Err(what) => broken.push(format!("SEED={seed}: {what:.1500}")),
            }
            streams += 1;
            seed += step;
        }
        (done, streams, broken)
    })
}

#[test]
#[expect(clippy::print_stdout, reason = "its count is a figure of the product")]
fn invariant() {
    let events = if number("SEED").is_some() { 1 } else { number("EVENTS").unwrap_or(EVENTS) };
    let threads =
        if events == 1 { 1 } else { std::thread::available_parallelism().map_or(1, |n| n.get() as u64) };
    let start = number("SEED").unwrap_or(1);
    let results: Vec<_> = std::thread::scope(|scope| {
        let share = events.div_ceil(threads);
        let running: Vec<_> =
            (0..threads).map(|i| scope.spawn(move || run(start + i, threads, share))).collect();
        running.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let done: u64 = results.iter().map(|result| result.0).sum();
    let streams: u64 = results.iter().map(|result| result.1).sum();
    let broken: Vec<String> = results.into_iter().flat_map(|result| result.2).collect();
    println!("invariant: {done} events, {streams} streams, {} broken", broken.len());
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
