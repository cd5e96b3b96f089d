//! Jobs: what was accepted to be done later.
//!
//! - `id`: what a job is called. `job`: what is said of one.
//! - `life`: submitted, claimed, heard of, finished, cancelled; [`recover`](Recovered): lost with its process.
//! - `reading`: told to its tenant. `webhooks`: told to others. `sweep`: forgotten.
//!
//! A job is *queued*, then *running*, then *ended* in one of four ways, once. Who runs it holds a [`Lease`],
//! which is one attempt; a job that is begun again has another, and whoever comes with the former is refused. Jobs
//! that were running when their process died are queued again, unless they asked not to be (`retry: false`):
//! those are `interrupted`, with what was saved of them.
//!
//! A tenant sees its own jobs. Those of others look to it like jobs that there are not.
//!
//! Invariant: every accepted job ends exactly once, with one output, and its webhook falls due in that same
//! transaction.

mod error;
mod id;
mod job;
mod life;
#[cfg(test)]
mod model;
mod reading;
mod recovery;
mod sweep;
#[cfg(test)]
mod tests;
mod webhooks;

pub use error::{LeaseError, SubmitError};
pub use id::{JobId, NoJobId};
pub use job::{
    Cancelled, Claimed, DueWebhook, End, IdempotencyKey, Job, JobInfo, Lease, NewJob, Recovered, State,
    Submitted, Swept, Told, Webhook, WebhookState,
};
pub(crate) use recovery::recover;

use crate::database::Database;
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::Full;

/// Jobs of a list, at most.
pub const LIST_MAX: u32 = 100;
/// The latest that a time may be, in ms: sums of two stay numbers in SQLite.
const MS_MAX: u64 = 1 << 52;

/// A command that may be refused: the outer error is the file's, the inner one the caller's.
type Outcome<T, E> = rusqlite::Result<Result<T, E>>;

/// The jobs of a store. What callers ask is refused as [`StoreError::Busy`] where too much waits already; what runners
/// report waits for room.
///
/// A future that is dropped may or may not have done what it was to do. A dropped [`claim`](Self::claim)
/// leaves a job that nobody runs, until [`take_back`](Self::take_back).
#[derive(Clone, Copy)]
pub struct Jobs<'a> {
    pub(crate) store: &'a Store,
}

impl Jobs<'_> {
    /// Accepts a job. When this returns, it will be run. The same idempotency key again is the same job.
    ///
    /// # Errors
    /// When it is too large, there are too many, or its key came with something else before.
    pub async fn submit(&self, job: NewJob, now_ms: u64) -> Result<Submitted, SubmitError> {
        job.fits(&self.store.limits)?;
        let id = JobId::generate().map_err(|error| StoreError::Failed(error.to_string()))?;
        self.ask(move |database| life::submit(database, id, &job, ms(now_ms))).await?
    }

    /// The next job to be run: the one that has waited longest. None when none waits.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim(&self, now_ms: u64) -> Result<Option<Claimed>, StoreError> {
        self.report(move |database| life::claim(database, ms(now_ms))).await
    }

    /// A sign of life from who runs a job, with what was produced so far, all of it, where that has changed. It
    /// replaces what was saved before.
    ///
    /// # Errors
    /// When the lease is no longer good, or the output is too large.
    pub async fn heartbeat(
        &self,
        lease: Lease,
        output: Option<Vec<u8>>,
        now_ms: u64,
    ) -> Result<Told, LeaseError> {
        self.output_fits(output.as_deref())?;
        self.report(move |database| life::heartbeat(database, lease, output.as_deref(), ms(now_ms))).await?
    }

    /// A job has ended. Without an output, what was saved of it stays.
    ///
    /// # Errors
    /// When the lease is no longer good, or the output is too large; the job is then as it was.
    pub async fn finish(
        &self,
        lease: Lease,
        end: End,
        output: Option<Vec<u8>>,
        now_ms: u64,
    ) -> Result<(), LeaseError> {
        self.output_fits(output.as_deref())?;
        self.report(move |database| life::finish(database, lease, end, output.as_deref(), ms(now_ms))).await?
    }

    /// Gives up a job. One that runs is marked, and its runner is told with the next heartbeat. None when this
    /// tenant has no such job.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn cancel(
        &self,
        tenant: &str,
        id: JobId,
        now_ms: u64,
    ) -> Result<Option<Cancelled>, StoreError> {
        let tenant = tenant.to_owned();
        self.ask(move |database| life::cancel(database, &tenant, id, ms(now_ms))).await
    }

    /// Takes back the jobs whose runners have not been heard of since `silent_since_ms`, as if their process had
    /// died: see [`Recovered`].
    ///
    /// # Errors
    /// When the store fails.
    pub async fn take_back(&self, silent_since_ms: u64, now_ms: u64) -> Result<Recovered, StoreError> {
        self.report(move |database| recover(database, Some(ms(silent_since_ms)), ms(now_ms))).await
    }

    /// One job, with its output so far. None when this tenant has no such job.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn get(&self, tenant: &str, id: JobId) -> Result<Option<Job>, StoreError> {
        let tenant = tenant.to_owned();
        self.ask(move |database| reading::get(database, &tenant, id)).await
    }

    /// What a job was submitted with. None when this tenant has no such job.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn request(&self, tenant: &str, id: JobId) -> Result<Option<Vec<u8>>, StoreError> {
        let tenant = tenant.to_owned();
        self.ask(move |database| reading::request(database, &tenant, id)).await
    }

    /// The jobs of a tenant, newest first, at most [`LIST_MAX`]; those that were accepted before `before`, where
    /// that is one of them.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(
        &self,
        tenant: &str,
        before: Option<JobId>,
        count: u32,
    ) -> Result<Vec<JobInfo>, StoreError> {
        let tenant = tenant.to_owned();
        self.ask(move |database| reading::list(database, &tenant, before, count.min(LIST_MAX))).await
    }

    /// The next webhook to be delivered. It falls due again after `patience_ms`, unless it is told before then
    /// what came of it: so it is sent at least once, and each time with the same event id.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim_webhook(
        &self,
        patience_ms: u64,
        now_ms: u64,
    ) -> Result<Option<DueWebhook>, StoreError> {
        self.report(move |database| webhooks::claim(database, ms(patience_ms), ms(now_ms))).await
    }

    /// A webhook has arrived; it is not sent again.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn webhook_delivered(&self, job: JobId) -> Result<(), StoreError> {
        self.report(move |database| webhooks::delivered(database, job)).await
    }

    /// An attempt to deliver a webhook has failed. It is tried again at `next_ms`, if there is such a time and it has
    /// attempts left. Returns what it is now; none when its job is no longer kept.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn webhook_failed(
        &self,
        job: JobId,
        attempt: u32,
        next_ms: Option<u64>,
    ) -> Result<Option<WebhookState>, StoreError> {
        self.report(move |database| webhooks::failed(database, job, attempt, next_ms.map(ms))).await
    }

    /// When the next webhook falls due; none while there is none. It may lie in the past.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn webhook_due_ms(&self) -> Result<Option<u64>, StoreError> {
        self.report(webhooks::due_ms).await
    }

    /// Forgets jobs that have been kept for as long as they asked, with all that is theirs. A few at a time, so
    /// that nobody waits for long: it is called until there are none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn sweep(&self, now_ms: u64) -> Result<Swept, StoreError> {
        self.report(move |database| sweep::sweep(database, ms(now_ms))).await
    }

    /// What callers ask.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl Fn(&Database) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.store.writer.ask(Full::Refuse, work).await
    }

    /// What runners report.
    async fn report<T: Send + 'static>(
        &self,
        work: impl Fn(&Database) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.store.writer.ask(Full::Wait, work).await
    }

    fn output_fits(&self, output: Option<&[u8]>) -> Result<(), LeaseError> {
        let (bytes, bytes_max) = (length(output.unwrap_or_default()), self.store.limits.output_bytes_max);
        if bytes > bytes_max { Err(LeaseError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
    }
}

/// A time that the file can hold.
fn ms(at: u64) -> u64 {
    at.min(MS_MAX)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
