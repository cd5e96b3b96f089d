//! Jobs, one rule at a time. What holds over any sequence of commands is in `model`.

use tempfile::TempDir;

use super::*;
use crate::limits::Limits;

const DAY_MS: u64 = 86_400_000;

/// A store in a directory of its own, in memory where there is such a disk: these tests ask what is decided,
/// and not what survives.
pub(super) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn store(limits: Limits) -> (TempDir, Store) {
    let folder = folder();
    let store = Store::open_without_thread(&folder.path().join("store.db"), limits, 0).unwrap();
    (folder, store)
}

fn reopened(folder: &TempDir, store: Store, now_ms: u64) -> Store {
    let limits = store.limits;
    drop(store);
    Store::open_without_thread(&folder.path().join("store.db"), limits, now_ms).unwrap()
}

fn job(request: &str) -> NewJob {
    NewJob {
        tenant: "acme".to_owned(),
        key: None,
        request: request.as_bytes().to_vec(),
        retry: true,
        webhook: None,
        ttl_ms: DAY_MS,
    }
}

fn keyed(request: &str, key: &str, body: u8) -> NewJob {
    NewJob { key: Some(IdempotencyKey { key: key.to_owned(), body: [body; 32] }), ..job(request) }
}

fn hooked(request: &str) -> NewJob {
    let webhook =
        Webhook { url: "https://example.com/done".to_owned(), event_id: format!("event-{request}") };
    NewJob { webhook: Some(webhook), ..job(request) }
}

async fn state(store: &Store, id: JobId) -> State {
    store.jobs().get("acme", id).await.unwrap().unwrap().info.state
}

#[tokio::test]
async fn a_job_is_submitted_claimed_and_finished_once() {
    let (_folder, store) = store(Limits::default());
    let jobs = store.jobs();
    let id = jobs.submit(job("say hello"), 100).await.unwrap().id();
    assert_eq!(state(&store, id).await, State::Queued);
    let claimed = jobs.claim(200).await.unwrap().unwrap();
    assert_eq!((claimed.lease.id(), claimed.lease.attempt()), (id, 1));
    assert_eq!((claimed.tenant.as_str(), claimed.created_ms), ("acme", 100));
    assert_eq!(claimed.request, b"say hello");
    assert!(jobs.claim(200).await.unwrap().is_none(), "there is no other");
    assert_eq!(jobs.heartbeat(claimed.lease, Some(b"hel".to_vec()), 300).await.unwrap(), Told::GoOn);
    jobs.finish(claimed.lease, End::Succeeded, Some(b"hello".to_vec()), 400).await.unwrap();
    for end in [End::Succeeded, End::Failed] {
        let late = jobs.finish(claimed.lease, end, Some(b"another".to_vec()), 500).await;
        assert!(matches!(late, Err(LeaseError::Lost)));
    }
    let job = jobs.get("acme", id).await.unwrap().unwrap();
    let ended = State::Ended { end: End::Succeeded, at_ms: 400, expires_ms: 400 + DAY_MS };
    assert_eq!((job.info.state, job.output.as_deref()), (ended, Some(&b"hello"[..])));
    assert_eq!((job.info.attempts, job.info.request_bytes, job.info.output_bytes), (1, 9, 5));
    assert_eq!(jobs.request("acme", id).await.unwrap().unwrap(), b"say hello");
}

#[tokio::test]
async fn the_job_that_has_waited_longest_is_next_also_when_it_is_begun_again() {
    let (folder, store) = store(Limits::default());
    let mut ids = Vec::new();
    for request in ["a", "b", "c"] {
        ids.push(store.jobs().submit(job(request), 0).await.unwrap().id());
    }
    assert_eq!(store.jobs().claim(1).await.unwrap().unwrap().lease.id(), ids[0]);
    let store = reopened(&folder, store, 2);
    assert_eq!(store.recovered(), Recovered { queued: 1, ..Recovered::default() });
    for (id, attempt) in ids.into_iter().zip([2, 1, 1]) {
        assert_eq!(store.jobs().claim(3).await.unwrap().unwrap().lease, Lease { id, attempt });
    }
}

#[tokio::test]
async fn a_job_that_is_not_to_be_begun_again_is_interrupted_and_keeps_what_was_saved() {
    let (folder, store) = store(Limits::default());
    let id = store.jobs().submit(NewJob { retry: false, ..hooked("once") }, 0).await.unwrap().id();
    let lease = store.jobs().claim(1).await.unwrap().unwrap().lease;
    store.jobs().heartbeat(lease, Some(b"half of it".to_vec()), 2).await.unwrap();
    let store = reopened(&folder, store, 50);
    assert_eq!(store.recovered(), Recovered { interrupted: 1, ..Recovered::default() });
    let job = store.jobs().get("acme", id).await.unwrap().unwrap();
    let ended = State::Ended { end: End::Interrupted, at_ms: 50, expires_ms: 50 + DAY_MS };
    assert_eq!((job.info.state, job.output.as_deref()), (ended, Some(&b"half of it"[..])));
    assert_eq!(job.info.webhook, Some(WebhookState::Due), "its owner is told of that too");
    let late = store.jobs().finish(lease, End::Succeeded, None, 60).await;
    assert!(matches!(late, Err(LeaseError::Lost)));
}

#[tokio::test]
async fn one_that_takes_its_process_with_it_each_time_is_not_begun_forever() {
    let (folder, mut store) = store(Limits { attempts_max: 3, ..Limits::default() });
    let id = store.jobs().submit(job("poison"), 0).await.unwrap().id();
    for attempt in 1..=3 {
        assert_eq!(store.jobs().claim(1).await.unwrap().unwrap().lease.attempt(), attempt);
        store = reopened(&folder, store, 2);
    }
    assert!(matches!(state(&store, id).await, State::Ended { end: End::Interrupted, .. }));
}

#[tokio::test]
async fn a_silent_runner_loses_its_job_to_the_next_attempt() {
    let (_folder, store) = store(Limits::default());
    let jobs = store.jobs();
    jobs.submit(job("a"), 0).await.unwrap();
    jobs.submit(job("b"), 0).await.unwrap();
    let (silent, alive) = (jobs.claim(10).await.unwrap().unwrap(), jobs.claim(10).await.unwrap().unwrap());
    jobs.heartbeat(alive.lease, None, 100).await.unwrap();
    let recovered = jobs.take_back(100, 100).await.unwrap();
    assert_eq!(recovered, Recovered { queued: 1, ..Recovered::default() });
    let again = jobs.claim(110).await.unwrap().unwrap();
    assert_eq!((again.lease.id(), again.lease.attempt()), (silent.lease.id(), 2));
    assert!(matches!(jobs.heartbeat(silent.lease, None, 120).await, Err(LeaseError::Lost)));
    assert!(matches!(jobs.finish(silent.lease, End::Failed, None, 120).await, Err(LeaseError::Lost)));
    jobs.finish(again.lease, End::Succeeded, None, 130).await.unwrap();
    jobs.finish(alive.lease, End::Succeeded, None, 130).await.unwrap();
}

#[tokio::test]
async fn cancelling_ends_a_queued_job_and_tells_the_runner_of_a_running_one() {
    let (folder, store) = store(Limits::default());
    let jobs = store.jobs();
    let queued = jobs.submit(hooked("a"), 0).await.unwrap().id();
    assert_eq!(jobs.cancel("acme", queued, 5).await.unwrap(), Some(Cancelled::Now));
    assert_eq!(jobs.cancel("acme", queued, 6).await.unwrap(), Some(Cancelled::TooLate(End::Cancelled)));
    assert_eq!(jobs.claim_webhook(1000, 6).await.unwrap().unwrap().job, queued);
    let running = jobs.submit(job("b"), 0).await.unwrap().id();
    let lost = jobs.submit(job("c"), 0).await.unwrap().id();
    let lease = jobs.claim(7).await.unwrap().unwrap().lease;
    jobs.claim(7).await.unwrap().unwrap();
    for id in [running, lost] {
        assert_eq!(jobs.cancel("acme", id, 8).await.unwrap(), Some(Cancelled::Asked));
        assert_eq!(state(&store, id).await, State::Running { cancel_asked: true });
    }
    assert_eq!(jobs.heartbeat(lease, Some(b"so far".to_vec()), 9).await.unwrap(), Told::Cancel);
    jobs.finish(lease, End::Cancelled, None, 10).await.unwrap();
    let job = jobs.get("acme", running).await.unwrap().unwrap();
    assert_eq!(job.output.as_deref(), Some(&b"so far"[..]), "what was saved stays");
    let store = reopened(&folder, store, 20);
    assert_eq!(store.recovered(), Recovered { cancelled: 1, ..Recovered::default() });
    assert!(matches!(state(&store, lost).await, State::Ended { end: End::Cancelled, .. }));
}

#[tokio::test]
async fn another_tenants_job_looks_like_none() {
    let (_folder, store) = store(Limits::default());
    let jobs = store.jobs();
    let id = jobs.submit(job("secret"), 0).await.unwrap().id();
    let unknown = JobId::generate().unwrap();
    for id in [id, unknown] {
        assert!(jobs.get("other", id).await.unwrap().is_none());
        assert!(jobs.request("other", id).await.unwrap().is_none());
        assert_eq!(jobs.cancel("other", id, 1).await.unwrap(), None);
        assert_eq!(jobs.list("other", Some(id), 10).await.unwrap(), []);
    }
    assert_eq!(jobs.list("other", None, 10).await.unwrap(), []);
    assert_eq!(state(&store, id).await, State::Queued);
}

#[tokio::test]
async fn a_tenants_jobs_are_listed_newest_first_page_by_page() {
    let (_folder, store) = store(Limits::default());
    let mut ids = Vec::new();
    for at in 0..5 {
        ids.insert(0, store.jobs().submit(job("x"), at).await.unwrap().id());
    }
    let mut seen = Vec::new();
    while let page = store.jobs().list("acme", seen.last().copied(), 2).await.unwrap()
        && !page.is_empty()
    {
        seen.extend(page.iter().map(|info| info.id));
    }
    assert_eq!(seen, ids);
}

#[tokio::test]
async fn the_same_key_is_the_same_job_and_another_request_under_it_is_refused() {
    let (_folder, store) = store(Limits { jobs_max: 2, ..Limits::default() });
    let jobs = store.jobs();
    let id = jobs.submit(keyed("a", "k", 1), 0).await.unwrap().id();
    assert!(matches!(jobs.submit(keyed("b", "k", 2), 1).await, Err(SubmitError::KeyReused)));
    let other = NewJob { tenant: "other".to_owned(), ..keyed("a", "k", 1) };
    assert!(matches!(jobs.submit(other, 2).await, Ok(Submitted::New(_))), "keys are a tenant's own");
    assert!(matches!(jobs.submit(job("c"), 3).await, Err(SubmitError::Full { jobs_max: 2 })));
    assert_eq!(
        jobs.submit(keyed("a", "k", 1), 4).await.unwrap(),
        Submitted::Known(id),
        "even when all is full"
    );
}

#[tokio::test]
async fn what_is_too_large_or_too_much_is_refused_with_the_limit() {
    let limits = Limits {
        request_bytes_max: 10,
        output_bytes_max: 10,
        jobs_per_tenant_max: 2,
        bytes_max: 16,
        ..Limits::default()
    };
    let (_folder, store) = store(limits);
    let jobs = store.jobs();
    let refused = jobs.submit(job("eleven byte"), 0).await.unwrap_err();
    assert_eq!(refused.to_string(), "the request has 11 bytes, at most 10 are kept");
    let long = NewJob { tenant: "x".repeat(2049), ..job("") };
    assert!(matches!(jobs.submit(long, 0).await, Err(SubmitError::TooLarge { what: "tenant's name", .. })));
    jobs.submit(job("0123456789"), 0).await.unwrap();
    assert!(matches!(jobs.submit(job("0123456"), 0).await, Err(SubmitError::FullBytes { bytes_max: 16 })));
    jobs.submit(job(""), 0).await.unwrap();
    assert!(matches!(jobs.submit(job(""), 0).await, Err(SubmitError::TenantFull { jobs_max: 2 })));
    let lease = jobs.claim(1).await.unwrap().unwrap().lease;
    let refused = jobs.finish(lease, End::Succeeded, Some(vec![0; 11]), 2).await.unwrap_err();
    assert_eq!(refused.to_string(), "the output has 11 bytes, at most 10 are kept");
    jobs.finish(lease, End::Succeeded, Some(vec![0; 10]), 3).await.expect("what was accepted has room");
    let other = NewJob { tenant: "other".to_owned(), ..job("") };
    assert!(matches!(jobs.submit(other, 0).await, Err(SubmitError::FullBytes { .. })), "outputs count");
}

#[tokio::test]
async fn a_webhook_is_sent_until_it_has_arrived_always_as_the_same_event() {
    let (folder, store) = store(Limits::default());
    let id = store.jobs().submit(hooked("x"), 0).await.unwrap().id();
    assert!(store.jobs().claim_webhook(1000, 1).await.unwrap().is_none(), "its job has not ended");
    let lease = store.jobs().claim(1).await.unwrap().unwrap().lease;
    store.jobs().finish(lease, End::Failed, None, 10).await.unwrap();
    assert_eq!(store.jobs().webhook_due_ms().await.unwrap(), Some(10));
    let first = store.jobs().claim_webhook(1000, 10).await.unwrap().unwrap();
    assert_eq!((first.job, first.tenant.as_str(), first.attempt), (id, "acme", 1));
    assert_eq!((first.url.as_str(), first.event_id.as_str()), ("https://example.com/done", "event-x"));
    let store = reopened(&folder, store, 20);
    assert!(store.jobs().claim_webhook(1000, 1009).await.unwrap().is_none(), "it may still be on its way");
    let second = store.jobs().claim_webhook(1000, 1010).await.unwrap().unwrap();
    assert_eq!((second.event_id.as_str(), second.attempt), ("event-x", 2));
    let state = store.jobs().webhook_failed(id, 2, Some(5000)).await.unwrap();
    assert_eq!((state, store.jobs().webhook_due_ms().await.unwrap()), (Some(WebhookState::Due), Some(5000)));
    store.jobs().webhook_delivered(id).await.unwrap();
    let late = store.jobs().webhook_failed(id, 2, Some(6000)).await.unwrap();
    assert_eq!(late, Some(WebhookState::Delivered), "a late report takes nothing back");
    assert!(store.jobs().claim_webhook(1000, u64::MAX).await.unwrap().is_none());
}

#[tokio::test]
async fn a_webhook_that_never_arrives_is_given_up() {
    let (_folder, store) = store(Limits { webhook_attempts_max: 2, ..Limits::default() });
    let jobs = store.jobs();
    let mut ids = Vec::new();
    for request in ["reported", "silent"] {
        let id = jobs.submit(hooked(request), 0).await.unwrap().id();
        jobs.cancel("acme", id, 0).await.unwrap();
        ids.push(id);
    }
    for attempt in 1..=2 {
        for _ in &ids {
            let due = jobs.claim_webhook(10, attempt * 100).await.unwrap().unwrap();
            assert_eq!(u64::from(due.attempt), attempt);
        }
        if attempt == 1 {
            let old = jobs.webhook_failed(ids[0], 7, None).await.unwrap();
            assert_eq!(old, Some(WebhookState::Due), "that is another attempt");
        }
    }
    assert_eq!(jobs.webhook_failed(ids[0], 2, Some(300)).await.unwrap(), Some(WebhookState::GaveUp));
    assert!(jobs.claim_webhook(10, 300).await.unwrap().is_none(), "nobody reported, and it was tried twice");
    for id in ids {
        let info = jobs.get("acme", id).await.unwrap().unwrap().info;
        assert_eq!(info.webhook, Some(WebhookState::GaveUp));
    }
}

#[tokio::test]
async fn what_has_expired_is_forgotten_with_all_that_is_its_own() {
    let (_folder, store) = store(Limits { jobs_per_tenant_max: 2, ..Limits::default() });
    let jobs = store.jobs();
    let id = jobs
        .submit(NewJob { ttl_ms: 100, key: keyed("a", "k", 1).key, ..hooked("a") }, 0)
        .await
        .unwrap()
        .id();
    let waiting = jobs.submit(NewJob { ttl_ms: 0, ..job("b") }, 0).await.unwrap().id();
    let lease = jobs.claim(0).await.unwrap().unwrap().lease;
    jobs.finish(lease, End::Succeeded, Some(b"result".to_vec()), 50).await.unwrap();
    assert_eq!(jobs.sweep(149).await.unwrap(), Swept::default());
    assert_eq!(jobs.sweep(150).await.unwrap(), Swept { jobs: 1, webhooks_undelivered: 1 });
    assert!(
        jobs.get("acme", id).await.unwrap().is_none() && jobs.request("acme", id).await.unwrap().is_none()
    );
    assert!(jobs.claim_webhook(1, 200).await.unwrap().is_none());
    assert_eq!(jobs.webhook_failed(id, 1, None).await.unwrap(), None);
    assert!(matches!(jobs.submit(keyed("a", "k", 2), 200).await, Ok(Submitted::New(_))), "its key is free");
    assert_eq!(state(&store, waiting).await, State::Queued, "what has not ended is not forgotten");
}

#[tokio::test]
async fn times_and_spans_without_end_are_no_error() {
    let (_folder, store) = store(Limits::default());
    let jobs = store.jobs();
    let id = jobs.submit(NewJob { ttl_ms: u64::MAX, ..hooked("x") }, u64::MAX).await.unwrap().id();
    jobs.cancel("acme", id, u64::MAX).await.unwrap();
    jobs.claim_webhook(u64::MAX, u64::MAX).await.unwrap().unwrap();
    assert_eq!(jobs.sweep(u64::MAX).await.unwrap(), Swept::default());
}
