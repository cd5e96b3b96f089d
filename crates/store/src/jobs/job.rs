//! What is said of a job, by those who submit it, run it, and ask for it.
//!
//! Invariant: what carries bytes or addresses of a caller has no `Debug`.

use super::error::SubmitError;
use super::id::JobId;
use super::length;
use crate::limits::{Limits, TEXT_BYTES_MAX};

/// A job to be accepted.
#[derive(Clone)]
pub struct NewJob {
    /// Whose it is.
    pub tenant: String,
    /// What makes two submissions the same job.
    pub key: Option<IdempotencyKey>,
    /// What shall be done, encoded by who runs it.
    pub request: Vec<u8>,
    /// Whether it is begun again when its process dies. Whom it asks may then see it twice.
    pub retry: bool,
    /// Who is told when it has ended.
    pub webhook: Option<Webhook>,
    /// For how long it is kept after its end.
    pub ttl_ms: u64,
}

/// What a caller calls its request, so that sending it twice does it once.
#[derive(Clone)]
pub struct IdempotencyKey {
    /// The caller's own words, unique within a tenant for as long as the job is kept.
    pub key: String,
    /// A hash of what was asked: the same key with something else is refused.
    pub body: [u8; 32],
}

/// Where to tell that a job has ended.
#[derive(Clone)]
pub struct Webhook {
    /// Where.
    pub url: String,
    /// What the event is called, however often it is sent.
    pub event_id: String,
}

impl NewJob {
    /// Whether all of it is within its limits.
    pub(super) fn fits(&self, limits: &Limits) -> Result<(), SubmitError> {
        let key = self.key.as_ref().map_or("", |key| &key.key);
        let (url, event) = self.webhook.as_ref().map_or(("", ""), |hook| (&hook.url, &hook.event_id));
        let parts = [
            ("request", length(&self.request), limits.request_bytes_max),
            ("tenant's name", length(self.tenant.as_bytes()), TEXT_BYTES_MAX),
            ("idempotency key", length(key.as_bytes()), TEXT_BYTES_MAX),
            ("webhook's URL", length(url.as_bytes()), TEXT_BYTES_MAX),
            ("webhook's event id", length(event.as_bytes()), TEXT_BYTES_MAX),
        ];
        match parts.into_iter().find(|(_, bytes, bytes_max)| bytes > bytes_max) {
            Some((what, bytes, bytes_max)) => Err(SubmitError::TooLarge { what, bytes, bytes_max }),
            None => Ok(()),
        }
    }
}

/// A job that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Now.
    New(JobId),
    /// Before, with the same idempotency key.
    Known(JobId),
}

impl Submitted {
    /// Which.
    #[must_use]
    pub const fn id(self) -> JobId {
        let (Self::New(id) | Self::Known(id)) = self;
        id
    }
}

/// One attempt at a job: the right to report about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub(super) id: JobId,
    pub(super) attempt: u32,
}

impl Lease {
    /// Which job.
    #[must_use]
    pub const fn id(self) -> JobId {
        self.id
    }

    /// Which attempt, from 1.
    #[must_use]
    pub const fn attempt(self) -> u32 {
        self.attempt
    }
}

/// A job to be run.
pub struct Claimed {
    /// What reports about it are made with.
    pub lease: Lease,
    /// Whose it is.
    pub tenant: String,
    /// What shall be done.
    pub request: Vec<u8>,
    /// Whether it would be begun again.
    pub retry: bool,
    /// When it was submitted.
    pub created_ms: u64,
}

/// What a runner is told with a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Go on.
    GoOn,
    /// The job was cancelled: finish it.
    Cancel,
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With its result.
    Succeeded,
    /// With an error.
    Failed,
    /// Its owner has given it up.
    Cancelled,
    /// Its process has ended, and it was not to be begun again.
    Interrupted,
}

impl End {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits to be run, for the first time or again.
    Queued,
    /// It is run.
    Running {
        /// Whether it is to be given up.
        cancel_asked: bool,
    },
    /// It has ended.
    Ended {
        /// How.
        end: End,
        /// When.
        at_ms: u64,
        /// Until when it is kept.
        expires_ms: u64,
    },
}

/// A job as its tenant sees it, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInfo {
    /// Which.
    pub id: JobId,
    /// Where it stands.
    pub state: State,
    /// How often it was begun.
    pub attempts: u32,
    /// Whether it is begun again when its process dies.
    pub retry: bool,
    /// When it was submitted.
    pub created_ms: u64,
    /// The size of its request.
    pub request_bytes: u64,
    /// The size of its output so far.
    pub output_bytes: u64,
    /// What became of its webhook.
    pub webhook: Option<WebhookState>,
}

/// A job as its tenant sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct Job {
    /// All but its bytes.
    pub info: JobInfo,
    /// What was saved of it while it runs; its result once it has ended.
    pub output: Option<Vec<u8>>,
}

/// What a cancellation has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The job was queued, and has ended.
    Now,
    /// It is running; its runner will be told.
    Asked,
    /// It had ended before.
    TooLate(End),
}

/// What became of jobs whose process has died, or whose runner fell silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Queued again.
    pub queued: u64,
    /// Not to be begun again, or begun too often: `interrupted`.
    pub interrupted: u64,
    /// Given up by their owners before: `cancelled`.
    pub cancelled: u64,
}

/// What became of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookState {
    /// Its job has not ended.
    Waiting,
    /// It is to be sent, or sent again.
    Due,
    /// It has arrived.
    Delivered,
    /// It was tried as often as it may be.
    GaveUp,
}

/// A webhook to be sent.
pub struct DueWebhook {
    /// The job that has ended.
    pub job: JobId,
    /// Whose it is.
    pub tenant: String,
    /// Where.
    pub url: String,
    /// What the event is called.
    pub event_id: String,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Jobs.
    pub jobs: u64,
    /// Those among them whose webhook had not been delivered yet.
    pub webhooks_undelivered: u64,
}
