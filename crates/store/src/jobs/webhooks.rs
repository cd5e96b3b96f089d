//! Webhooks: who is told that a job has ended.
//!
//! One that was claimed falls due again by itself, so a process that dies while it sends loses nothing, and
//! whom it tells may hear it twice: the event id says that it is the same event.
//!
//! Invariant: one that has arrived is not sent again; one that has not is tried a bounded number of times.

use rusqlite::params;

use super::id::JobId;
use super::job::{DueWebhook, WebhookState};
use crate::database::Database;

pub(super) fn claim(
    database: &Database,
    patience_ms: u64,
    now_ms: u64,
) -> rusqlite::Result<Option<DueWebhook>> {
    // Those whose last attempt was never reported.
    let sql = "UPDATE job_webhooks SET state = 'gave_up', due_ms = NULL
        WHERE state = 'due' AND due_ms <= ?1 AND attempts >= ?2";
    database.execute(sql, params![now_ms, database.limits.webhook_attempts_max])?;
    let sql = "UPDATE job_webhooks SET attempts = attempts + 1, due_ms = ?1 + ?2
        WHERE seq = (SELECT seq FROM job_webhooks WHERE state = 'due' AND due_ms <= ?1 ORDER BY due_ms LIMIT 1)
        RETURNING seq, url, event_id, attempts";
    let claimed = database.row(sql, params![now_ms, patience_ms], |row| {
        Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })?;
    let Some((seq, url, event_id, attempt)) = claimed else { return Ok(None) };
    database.row("SELECT id, tenant FROM jobs WHERE seq = ?1", [seq], |row| {
        Ok(DueWebhook { job: row.get(0)?, tenant: row.get(1)?, url, event_id, attempt })
    })
}

pub(super) fn delivered(database: &Database, job: JobId) -> rusqlite::Result<()> {
    let sql = "UPDATE job_webhooks SET state = 'delivered', due_ms = NULL
        WHERE seq = (SELECT seq FROM jobs WHERE id = ?1) AND state <> 'waiting'";
    database.execute(sql, [job]).map(drop)
}

pub(super) fn failed(
    database: &Database,
    job: JobId,
    attempt: u32,
    next_ms: Option<u64>,
) -> rusqlite::Result<Option<WebhookState>> {
    let next_ms = next_ms.filter(|_| attempt < database.limits.webhook_attempts_max);
    let state = if next_ms.is_some() { "due" } else { "gave_up" };
    // Another attempt may have begun since, or this one have arrived after all.
    let sql = "UPDATE job_webhooks SET state = ?3, due_ms = ?4
        WHERE seq = (SELECT seq FROM jobs WHERE id = ?1) AND state = 'due' AND attempts = ?2";
    database.execute(sql, params![job, attempt, state, next_ms])?;
    let sql = "SELECT job_webhooks.state FROM job_webhooks JOIN jobs USING (seq) WHERE id = ?1";
    database.row(sql, [job], |row| row.get(0))
}

pub(super) fn due_ms(database: &Database) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT due_ms FROM job_webhooks WHERE state = 'due' ORDER BY due_ms LIMIT 1";
    database.row(sql, [], |row| row.get(0))
}
