//! A process that works on a store is killed, again and again, at any time: what it was told stays true.
//!
//! The child submits, claims, saves, finishes, cancels and delivers from several tasks at once, and writes a line
//! for every answer that it got. After each kill the store is opened here and held against all lines so far.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use firsttoken_store::jobs::{Cancelled, End, Job, JobId, NewJob, State, Told, Webhook, WebhookState};
use firsttoken_store::{Limits, OpenError, Store};

const KILLS: u64 = 25;
const TENANT: &str = "acme";
const PATH: &str = "KILLED_STORE_PATH";
const SEED: &str = "KILLED_STORE_SEED";

/// Jobs are killed more often here than a limit on attempts would have it.
const LIMITS: Limits = Limits {
    request_bytes_max: 1 << 20,
    output_bytes_max: 1 << 20,
    jobs_per_tenant_max: 1 << 20,
    jobs_max: 1 << 20,
    bytes_max: 1 << 40,
    attempts_max: 1000,
    webhook_attempts_max: 1000,
};

/// What was answered about a job.
#[derive(Default)]
struct Heard {
    /// Whether it may be begun again. A job is claimed before who submitted it is told, now and then.
    retry: Option<bool>,
    claims: Vec<u32>,
    /// The attempt and number of the last output that was saved.
    saved: Option<(u32, u32)>,
    ended: Option<(String, u32)>,
    cancel_asked: bool,
    delivered: bool,
}

#[test]
fn what_was_answered_stays_true_after_a_kill_at_any_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut heard: BTreeMap<JobId, Heard> = BTreeMap::new();
    for round in 0..KILLS {
        for line in killed(&path, round) {
            note(&mut heard, &line);
        }
        // Its own recovery is one more process that may have died; ours settles what is left.
        let store = Store::open(&path, LIMITS, 0).unwrap();
        run(check(&store, &heard));
    }
    assert!(heard.len() > 100, "only {} jobs: the child has done too little", heard.len());
    let store = Store::open(&path, LIMITS, 0).unwrap();
    run(drained(&store, &heard));
}

/// Starts a child and kills it; returns what it wrote.
fn killed(path: &Path, round: u64) -> Vec<String> {
    let mut rng = Rng::with_seed(round);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(PATH, path)
        .env(SEED, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    // Some die while they open it; the others after a while at work.
    if !round.is_multiple_of(5) {
        while !text.ends_with("opened\n") {
            assert!(lines.read_line(&mut text).unwrap() > 0, "the child has ended: {text}");
        }
        assert!(matches!(Store::open(path, LIMITS, 0), Err(OpenError::InUse { .. })));
    }
    // Not a wait for anything: it chooses the moment.
    std::thread::sleep(Duration::from_micros(rng.u64(0..80_000)));
    child.kill().unwrap();
    lines.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "it has ended before it was killed: {text}");
    text.lines().map(str::to_owned).collect()
}

fn note(heard: &mut BTreeMap<JobId, Heard>, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    // The test runner has lines of its own.
    let Some(id) = words.get(1).and_then(|word| word.parse::<JobId>().ok()) else { return };
    let number = |at: usize| words[at].parse::<u32>().unwrap();
    let job = heard.entry(id).or_default();
    match words[0] {
        "submitted" => job.retry = Some(words[2] == "again"),
        "claimed" => job.claims.push(number(2)),
        "saved" => job.saved = Some((number(2), number(3))),
        "cancelled" => (job.cancel_asked, job.ended) = (true, Some(("Cancelled".to_owned(), 0))),
        "cancelling" => job.cancel_asked = true,
        "delivered" => job.delivered = true,
        "finished" => {
            assert!(job.ended.is_none(), "{id} was finished twice");
            job.ended = Some((words[3].to_owned(), number(2)));
        }
        _ => panic!("unexpected: {line}"),
    }
}

/// Everything that was answered so far, in a store that has just been opened.
async fn check(store: &Store, heard: &BTreeMap<JobId, Heard>) {
    for (id, told) in heard {
        let job = store.jobs().get(TENANT, *id).await.unwrap().expect("an accepted job is there");
        let last = told.claims.iter().max().copied().unwrap_or(0);
        assert!(job.info.attempts >= last, "{id}: {} attempts, {last} claimed", job.info.attempts);
        assert_eq!(
            told.claims.iter().collect::<BTreeSet<_>>().len(),
            told.claims.len(),
            "{id}: claimed twice"
        );
        assert!(told.retry.is_none_or(|retry| retry == job.info.retry), "{id}");
        assert!(job.info.retry || job.info.attempts <= 1, "{id} was begun again");
        match (&told.ended, job.info.state) {
            (Some((how, attempt)), State::Ended { end, .. }) => {
                assert_eq!(*how, format!("{end:?}"), "{id}");
                assert!(*attempt == 0 || output(&job) == format!("result {id} {attempt}"), "{id}");
            }
            (Some((how, _)), state) => panic!("{id} has ended ({how}), and is {state:?}"),
            (None, State::Ended { end, .. }) => check_untold_end(*id, told, &job, end),
            (None, State::Queued) => {
                assert!(job.info.retry || job.info.attempts == 0, "{id} is to be begun again");
                assert!(!told.cancel_asked, "{id} was given up and is to be begun again");
            }
            (None, state) => panic!("{id} is {state:?}, and nobody runs it"),
        }
        assert!(
            !told.delivered || job.info.webhook == Some(WebhookState::Delivered),
            "{id}: delivered again"
        );
    }
}

/// A job that has ended without that it was told, since whoever ended it was killed in that moment.
fn check_untold_end(id: JobId, told: &Heard, job: &Job, end: End) {
    match end {
        End::Interrupted => {
            assert!(!job.info.retry, "{id} is interrupted, and was to be begun again");
            let Some((attempt, number)) = told.saved else { return };
            let output = output(job);
            let kept = output.strip_prefix(&format!("part {id} {attempt} ")).map(|kept| kept.parse::<u32>());
            assert!(
                kept.is_some_and(|kept| kept.unwrap() >= number),
                "{id}: {output}, saved {attempt} {number}"
            );
        }
        // Asked in a moment that was not told either, it may have been found queued.
        End::Cancelled | End::Succeeded | End::Failed => {}
    }
}

fn output(job: &Job) -> String {
    String::from_utf8(job.output.clone().unwrap_or_default()).unwrap()
}

/// Runs what is left: then every job has ended, and every webhook was sent that was not told to have arrived.
async fn drained(store: &Store, heard: &BTreeMap<JobId, Heard>) {
    let jobs = store.jobs();
    while let Some(claimed) = jobs.claim(1).await.unwrap() {
        let id = claimed.lease.id();
        let bytes = claimed.request.len();
        assert_eq!(claimed.request, format!("{bytes:>bytes$}").into_bytes());
        assert!(claimed.retry || claimed.lease.attempt() == 1, "{id} is begun again");
        jobs.finish(claimed.lease, End::Succeeded, None, 1).await.unwrap();
    }
    let mut sent = BTreeSet::new();
    while let Some(due) = jobs.claim_webhook(1_000_000, 1_000_000).await.unwrap() {
        assert!(due.event_id.starts_with("event "));
        assert!(sent.insert(due.job), "one that was just sent");
        jobs.webhook_delivered(due.job).await.unwrap();
    }
    let (mut all, mut before) = (0, None);
    while let page = jobs.list(TENANT, before, 100).await.unwrap()
        && !page.is_empty()
    {
        for info in &page {
            assert!(matches!(info.state, State::Ended { .. }), "{} is {:?}", info.id, info.state);
            assert!(info.webhook.is_none_or(|state| state == WebhookState::Delivered), "{}", info.id);
        }
        (all, before) = (all + page.len(), page.last().map(|info| info.id));
    }
    for (id, told) in heard {
        assert!(!told.delivered || !sent.contains(id), "{id}: sent again after it had arrived");
    }
    assert!(all >= heard.len(), "{all} jobs, {} accepted", heard.len());
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
#[ignore = "is killed: run by the test above, in a process of its own"]
fn child() {
    let path = PathBuf::from(std::env::var_os(PATH).unwrap());
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let store = Arc::new(Store::open(&path, LIMITS, 0).unwrap());
    say("opened");
    run(async {
        let mut work = tokio::task::JoinSet::new();
        for task in 0..4 {
            let rng = || Rng::with_seed(seed * 1000 + task);
            work.spawn(submitting(Arc::clone(&store), rng()));
            work.spawn(running(Arc::clone(&store), rng()));
            work.spawn(delivering(Arc::clone(&store)));
        }
        while let Some(ended) = work.join_next().await {
            ended.unwrap();
        }
    });
}

/// A line in one piece: a kill leaves it whole or not there.
fn say(line: &str) {
    std::io::stdout().write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

/// Accepts jobs and cancels some of them.
async fn submitting(store: Arc<Store>, mut rng: Rng) {
    loop {
        // A request says how long it is.
        let bytes = if rng.bool() { 100 } else { 20_000 };
        let request = format!("{bytes:>bytes$}").into_bytes();
        let (retry, hooked) = (rng.u8(0..3) > 0, rng.bool());
        let hook =
            Webhook { url: "https://example.com".to_owned(), event_id: format!("event {}", rng.u64(..)) };
        let job = NewJob {
            tenant: TENANT.to_owned(),
            key: None,
            request,
            retry,
            webhook: hooked.then_some(hook),
            ttl_ms: 1 << 40,
        };
        let id = store.jobs().submit(job, 0).await.unwrap().id();
        say(&format!("submitted {id} {}", if retry { "again" } else { "once" }));
        if rng.u8(0..6) == 0 {
            match store.jobs().cancel(TENANT, id, 0).await.unwrap().unwrap() {
                Cancelled::Now => say(&format!("cancelled {id}")),
                Cancelled::Asked => say(&format!("cancelling {id}")),
                Cancelled::TooLate(_) => {}
            }
        }
    }
}

/// Runs jobs.
async fn running(store: Arc<Store>, mut rng: Rng) {
    loop {
        let Some(claimed) = store.jobs().claim(0).await.unwrap() else {
            tokio::task::yield_now().await;
            continue;
        };
        let (id, attempt) = (claimed.lease.id(), claimed.lease.attempt());
        say(&format!("claimed {id} {attempt}"));
        let mut told = Told::GoOn;
        for number in 0..rng.u32(0..4) {
            let part = format!("part {id} {attempt} {number}").into_bytes();
            told = store.jobs().heartbeat(claimed.lease, Some(part), 0).await.unwrap();
            say(&format!("saved {id} {attempt} {number}"));
        }
        let end = match told {
            Told::Cancel => End::Cancelled,
            Told::GoOn if rng.bool() => End::Succeeded,
            Told::GoOn => End::Failed,
        };
        let result = format!("result {id} {attempt}").into_bytes();
        store.jobs().finish(claimed.lease, end, Some(result), 0).await.unwrap();
        say(&format!("finished {id} {attempt} {end:?}"));
    }
}

/// Delivers webhooks.
async fn delivering(store: Arc<Store>) {
    loop {
        let Some(due) = store.jobs().claim_webhook(0, 0).await.unwrap() else {
            tokio::task::yield_now().await;
            continue;
        };
        store.jobs().webhook_delivered(due.job).await.unwrap();
        say(&format!("delivered {}", due.job));
    }
}
