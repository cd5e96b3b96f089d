//! Any sequence of commands, restarts among them, against a model that is a list of jobs.
//!
//! After each step every tenant asks for every job that there is or was, and gets exactly what the model says:
//! its own with one state and one output, those of others never.

use std::path::PathBuf;

use proptest::prelude::*;

use super::tests::folder;
use super::*;
use crate::limits::Limits;

const TENANTS: [&str; 3] = ["a", "b", "c"];

const LIMITS: Limits = Limits {
    request_bytes_max: 40,
    output_bytes_max: 30,
    jobs_per_tenant_max: 4,
    jobs_max: 9,
    bytes_max: 220,
    attempts_max: 3,
    webhook_attempts_max: 2,
};

#[derive(Clone, Debug)]
enum Step {
    Submit { tenant: usize, key: Option<(u8, u8)>, bytes: usize, retry: bool, webhook: bool, ttl_ms: u64 },
    Claim,
    Heartbeat { lease: usize, output: Option<usize> },
    Finish { lease: usize, end: End, output: Option<usize> },
    Cancel { tenant: usize, job: usize },
    TakeBack { silent_ms: u64 },
    Reopen,
    Sweep,
    ClaimWebhook { patience_ms: u64 },
    Delivered { job: usize },
    WebhookFailed { job: usize, next_in_ms: Option<u64> },
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let end = prop::sample::select(vec![End::Succeeded, End::Failed, End::Cancelled, End::Interrupted]);
    let output = prop::option::of(0..32_usize);
    let key = prop::option::of((0..3_u8, 0..2_u8));
    let step = prop_oneof![
        6 => (0..3_usize, key, 0..42_usize, any::<bool>(), any::<bool>(), 0..300_u64).prop_map(
            |(tenant, key, bytes, retry, webhook, ttl_ms)| Step::Submit { tenant, key, bytes, retry, webhook, ttl_ms }
        ),
        5 => Just(Step::Claim),
        4 => (any::<usize>(), output.clone()).prop_map(|(lease, output)| Step::Heartbeat { lease, output }),
        4 => (any::<usize>(), end, output).prop_map(|(lease, end, output)| Step::Finish { lease, end, output }),
        2 => (0..3_usize, any::<usize>()).prop_map(|(tenant, job)| Step::Cancel { tenant, job }),
        1 => (0..100_u64).prop_map(|silent_ms| Step::TakeBack { silent_ms }),
        2 => Just(Step::Reopen),
        1 => Just(Step::Sweep),
        3 => (0..100_u64).prop_map(|patience_ms| Step::ClaimWebhook { patience_ms }),
        1 => any::<usize>().prop_map(|job| Step::Delivered { job }),
        2 => (any::<usize>(), prop::option::of(0..100_u64))
            .prop_map(|(job, next_in_ms)| Step::WebhookFailed { job, next_in_ms }),
    ];
    prop::collection::vec((0..50_u64, step), 1..80)
}

/// What the model knows of a job.
struct Known {
    info: JobInfo,
    tenant: usize,
    key: Option<(u8, u8)>,
    request: Vec<u8>,
    output: Option<Vec<u8>>,
    ttl_ms: u64,
    heard_ms: u64,
    webhook_attempts: u32,
    due_ms: u64,
}

impl Known {
    fn end(&mut self, end: End, now_ms: u64) {
        assert!(!matches!(self.info.state, State::Ended { .. }), "the model ends a job once");
        self.info.state = State::Ended { end, at_ms: now_ms, expires_ms: now_ms + self.ttl_ms };
        if self.info.webhook.is_some() {
            (self.info.webhook, self.due_ms) = (Some(WebhookState::Due), now_ms);
        }
    }

    fn keep(&mut self, output: Option<Vec<u8>>) {
        if output.is_some() {
            self.output = output;
            self.info.output_bytes = self.output.as_ref().map_or(0, |output| length(output));
        }
    }

    fn lost(&mut self, recovered: &mut Recovered, now_ms: u64) {
        let State::Running { cancel_asked } = self.info.state else { return };
        if cancel_asked {
            self.end(End::Cancelled, now_ms);
            recovered.cancelled += 1;
        } else if self.info.retry && self.info.attempts < LIMITS.attempts_max {
            self.info.state = State::Queued;
            recovered.queued += 1;
        } else {
            self.end(End::Interrupted, now_ms);
            recovered.interrupted += 1;
        }
    }

    fn bytes(&self) -> u64 {
        self.info.request_bytes + self.info.output_bytes
    }
}

/// The model beside the store.
struct Pair {
    store: Option<Store>,
    path: PathBuf,
    now_ms: u64,
    /// In the order in which they were accepted.
    jobs: Vec<Known>,
    forgotten: Vec<JobId>,
    leases: Vec<Lease>,
}

impl Pair {
    fn jobs_of(&self) -> Jobs<'_> {
        self.store.as_ref().unwrap().jobs()
    }

    fn pick(&self, job: usize) -> Option<JobId> {
        let ids: Vec<JobId> =
            self.jobs.iter().map(|job| job.info.id).chain(self.forgotten.iter().copied()).collect();
        (!ids.is_empty()).then(|| ids[job % ids.len()])
    }

    fn find(&mut self, id: JobId) -> Option<&mut Known> {
        self.jobs.iter_mut().find(|job| job.info.id == id)
    }

    /// The job that a lease is good for.
    fn held(&mut self, lease: Lease) -> Option<&mut Known> {
        self.find(lease.id).filter(|job| {
            matches!(job.info.state, State::Running { .. }) && job.info.attempts == lease.attempt
        })
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Submit { .. } => self.submit(step).await,
            Step::Claim => self.claim().await,
            Step::Heartbeat { lease, output } => self.report(lease, None, output).await,
            Step::Finish { lease, end, output } => self.report(lease, Some(end), output).await,
            Step::Cancel { tenant, job } => self.cancel(tenant, job).await,
            Step::TakeBack { silent_ms } => self.take_back(silent_ms).await,
            Step::Reopen => self.reopen(),
            Step::Sweep => self.sweep().await,
            Step::ClaimWebhook { patience_ms } => self.claim_webhook(patience_ms).await,
            Step::Delivered { job } => self.delivered(job).await,
            Step::WebhookFailed { job, next_in_ms } => self.webhook_failed(job, next_in_ms).await,
        }
    }

    async fn submit(&mut self, step: Step) {
        let Step::Submit { tenant, key, bytes, retry, webhook, ttl_ms } = step else { unreachable!() };
        let request = vec![b'r'; bytes];
        let hook =
            Webhook { url: "https://example.com".to_owned(), event_id: format!("event {}", self.now_ms) };
        let job = NewJob {
            tenant: TENANTS[tenant].to_owned(),
            key: key.map(|(key, body)| IdempotencyKey { key: key.to_string(), body: [body; 32] }),
            request: request.clone(),
            retry,
            webhook: webhook.then_some(hook),
            ttl_ms,
        };
        let answer = self.jobs_of().submit(job, self.now_ms).await;
        let of_tenant = self.jobs.iter().filter(|job| job.tenant == tenant);
        let twin = key.and_then(|(key, _)| of_tenant.clone().find(|job| job.key.is_some_and(|k| k.0 == key)));
        let bytes_kept: u64 = self.jobs.iter().map(Known::bytes).sum();
        match (&answer, twin) {
            (Err(SubmitError::TooLarge { what: "request", .. }), _) => assert!(bytes > 40),
            (Ok(Submitted::Known(id)), Some(twin)) => assert_eq!((*id, key), (twin.info.id, twin.key)),
            (Err(SubmitError::KeyReused), Some(twin)) => assert_ne!(key, twin.key),
            (Err(SubmitError::TenantFull { .. }), None) => assert_eq!(of_tenant.count(), 4),
            (Err(SubmitError::Full { .. }), None) => assert_eq!(self.jobs.len(), 9),
            (Err(SubmitError::FullBytes { .. }), None) => assert!(bytes_kept + length(&request) > 220),
            (Ok(Submitted::New(id)), None) => {
                assert!(bytes <= 40 && of_tenant.count() < 4 && self.jobs.len() < 9);
                assert!(bytes_kept + length(&request) <= 220);
                let info = JobInfo {
                    id: *id,
                    state: State::Queued,
                    attempts: 0,
                    retry,
                    created_ms: self.now_ms,
                    request_bytes: length(&request),
                    output_bytes: 0,
                    webhook: webhook.then_some(WebhookState::Waiting),
                };
                let (output, heard_ms, webhook_attempts, due_ms) = (None, 0, 0, 0);
                self.jobs.push(Known {
                    info,
                    tenant,
                    key,
                    request,
                    output,
                    ttl_ms,
                    heard_ms,
                    webhook_attempts,
                    due_ms,
                });
            }
            (answer, _) => panic!("unexpected: {answer:?}"),
        }
    }

    async fn claim(&mut self) {
        let now_ms = self.now_ms;
        let claimed = self.jobs_of().claim(now_ms).await.unwrap();
        let next = self.jobs.iter_mut().find(|job| job.info.state == State::Queued);
        let (Some(claimed), Some(next)) = (&claimed, &next) else {
            return assert!(claimed.is_none() && next.is_none());
        };
        let lease = Lease { id: next.info.id, attempt: next.info.attempts + 1 };
        assert_eq!((claimed.lease, claimed.tenant.as_str()), (lease, TENANTS[next.tenant]));
        assert_eq!((&claimed.request, claimed.created_ms), (&next.request, next.info.created_ms));
        self.leases.push(lease);
        let job = self.find(lease.id).unwrap();
        job.info.state = State::Running { cancel_asked: false };
        (job.info.attempts, job.heard_ms) = (lease.attempt, now_ms);
    }

    /// A heartbeat, or the end.
    async fn report(&mut self, lease: usize, end: Option<End>, output: Option<usize>) {
        let (Some(&lease), now_ms) = (self.leases.get(lease % self.leases.len().max(1)), self.now_ms) else {
            return;
        };
        let output = output.map(|bytes| vec![b'o'; bytes]);
        let told = match end {
            None => self.jobs_of().heartbeat(lease, output.clone(), now_ms).await,
            Some(end) => self.jobs_of().finish(lease, end, output.clone(), now_ms).await.map(|()| Told::GoOn),
        };
        let too_large = output.as_ref().is_some_and(|output| output.len() > 30);
        let held = self.held(lease);
        match (told, held) {
            (Err(LeaseError::TooLarge { .. }), _) if too_large => {}
            (Err(LeaseError::Lost), None) => {}
            (Ok(told), Some(job)) if !too_large => {
                let cancel = job.info.state == State::Running { cancel_asked: true } && end.is_none();
                assert_eq!(told == Told::Cancel, cancel);
                job.keep(output);
                job.heard_ms = now_ms;
                if let Some(end) = end {
                    job.end(end, now_ms);
                }
            }
            (told, held) => panic!("unexpected: {told:?}, held: {}", held.is_some()),
        }
    }

    async fn cancel(&mut self, tenant: usize, job: usize) {
        let (Some(id), now_ms) = (self.pick(job), self.now_ms) else { return };
        let answer = self.jobs_of().cancel(TENANTS[tenant], id, now_ms).await.unwrap();
        let job = self.find(id).filter(|job| job.tenant == tenant);
        let expected = job.map(|job| match job.info.state {
            State::Queued => {
                job.end(End::Cancelled, now_ms);
                Cancelled::Now
            }
            State::Running { .. } => {
                job.info.state = State::Running { cancel_asked: true };
                Cancelled::Asked
            }
            State::Ended { end, .. } => Cancelled::TooLate(end),
        });
        assert_eq!(answer, expected);
    }

    async fn take_back(&mut self, silent_ms: u64) {
        let (since_ms, now_ms) = (self.now_ms.saturating_sub(silent_ms), self.now_ms);
        let answer = self.jobs_of().take_back(since_ms, now_ms).await.unwrap();
        let mut expected = Recovered::default();
        self.jobs
            .iter_mut()
            .filter(|job| job.heard_ms < since_ms)
            .for_each(|job| job.lost(&mut expected, now_ms));
        assert_eq!(answer, expected);
    }

    fn reopen(&mut self) {
        self.store = None;
        let store = Store::open_without_thread(&self.path, LIMITS, self.now_ms).unwrap();
        let mut expected = Recovered::default();
        self.jobs.iter_mut().for_each(|job| job.lost(&mut expected, self.now_ms));
        assert_eq!(store.recovered(), expected);
        self.store = Some(store);
    }

    async fn sweep(&mut self) {
        let now_ms = self.now_ms;
        let answer = self.jobs_of().sweep(now_ms).await.unwrap();
        let expired = |job: &mut Known| matches!(job.info.state, State::Ended { expires_ms, .. } if expires_ms <= now_ms);
        let gone: Vec<Known> = self.jobs.extract_if(.., expired).collect();
        let undelivered = gone.iter().filter(|job| job.info.webhook == Some(WebhookState::Due)).count();
        let (jobs, webhooks_undelivered) = (gone.len() as u64, undelivered as u64);
        assert_eq!(answer, Swept { jobs, webhooks_undelivered });
        self.forgotten.extend(gone.into_iter().map(|job| job.info.id));
    }

    async fn claim_webhook(&mut self, patience_ms: u64) {
        let now_ms = self.now_ms;
        let answer = self.jobs_of().claim_webhook(patience_ms, now_ms).await.unwrap();
        let due = |job: &Known| job.info.webhook == Some(WebhookState::Due) && job.due_ms <= now_ms;
        for job in self.jobs.iter_mut().filter(|job| due(job) && job.webhook_attempts >= 2) {
            job.info.webhook = Some(WebhookState::GaveUp);
        }
        let Some(claimed) = answer else { return assert!(!self.jobs.iter().any(due)) };
        let soonest = self.jobs.iter().filter(|job| due(job)).map(|job| job.due_ms).min();
        let job = self.find(claimed.job).unwrap();
        assert!(due(job) && Some(job.due_ms) == soonest);
        job.webhook_attempts += 1;
        job.due_ms = now_ms + patience_ms;
        assert_eq!((claimed.attempt, claimed.tenant.as_str()), (job.webhook_attempts, TENANTS[job.tenant]));
        assert_eq!(claimed.event_id, format!("event {}", job.info.created_ms));
    }

    async fn delivered(&mut self, job: usize) {
        let Some(id) = self.pick(job) else { return };
        self.jobs_of().webhook_delivered(id).await.unwrap();
        let told = |job: &&mut Known| job.info.webhook.is_some_and(|state| state != WebhookState::Waiting);
        if let Some(job) = self.find(id).filter(told) {
            job.info.webhook = Some(WebhookState::Delivered);
        }
    }

    async fn webhook_failed(&mut self, job: usize, next_in_ms: Option<u64>) {
        let Some(id) = self.pick(job) else { return };
        let attempt = self.find(id).map_or(1, |job| job.webhook_attempts);
        let next_ms = next_in_ms.map(|ms| self.now_ms + ms);
        let answer = self.jobs_of().webhook_failed(id, attempt, next_ms).await.unwrap();
        let expected = self.find(id).and_then(|job| {
            if job.info.webhook == Some(WebhookState::Due) {
                match next_ms.filter(|_| attempt < 2) {
                    Some(next_ms) => job.due_ms = next_ms,
                    None => job.info.webhook = Some(WebhookState::GaveUp),
                }
            }
            job.info.webhook
        });
        assert_eq!(answer, expected);
    }

    /// Every tenant asks for everything.
    async fn check(&self) {
        let jobs = self.jobs_of();
        for (tenant, name) in TENANTS.iter().enumerate() {
            let own: Vec<&Known> = self.jobs.iter().rev().filter(|job| job.tenant == tenant).collect();
            let expected: Vec<JobInfo> = own.iter().map(|job| job.info.clone()).collect();
            assert_eq!(jobs.list(name, None, LIST_MAX).await.unwrap(), expected);
            for job in &self.jobs {
                let found = jobs.get(name, job.info.id).await.unwrap();
                let request = jobs.request(name, job.info.id).await.unwrap();
                if job.tenant == tenant {
                    assert!(found == Some(Job { info: job.info.clone(), output: job.output.clone() }));
                    assert_eq!(request.as_ref(), Some(&job.request));
                } else {
                    assert!(found.is_none() && request.is_none(), "a tenant sees another's job");
                }
            }
            for id in &self.forgotten {
                assert!(jobs.get(name, *id).await.unwrap().is_none());
            }
        }
        let sql = "SELECT jobs, bytes, (SELECT coalesce(sum(jobs), 0) FROM job_tenants),
            (SELECT count(*) FROM job_requests), (SELECT count(*) FROM job_outputs) FROM job_totals";
        let counted = jobs.ask(move |database| {
            let number = |row: &rusqlite::Row<'_>, at| row.get::<_, u64>(at);
            database.row(sql, [], |row| {
                Ok([number(row, 0)?, number(row, 1)?, number(row, 2)?, number(row, 3)?, number(row, 4)?])
            })
        });
        let (count, bytes) = (self.jobs.len() as u64, self.jobs.iter().map(Known::bytes).sum::<u64>());
        let outputs = self.jobs.iter().filter(|job| job.output.is_some()).count() as u64;
        assert_eq!(counted.await.unwrap(), Some([count, bytes, count, count, outputs]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_job_ends_once_and_is_its_tenants_alone(steps in steps()) {
        let folder = folder();
        let path = folder.path().join("store.db");
        let store = Some(Store::open_without_thread(&path, LIMITS, 0).unwrap());
        let mut pair =
            Pair { store, path, now_ms: 0, jobs: Vec::new(), forgotten: Vec::new(), leases: Vec::new() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for (later_ms, step) in steps {
                pair.now_ms += later_ms;
                pair.step(step).await;
                pair.check().await;
            }
        });
    }
}
