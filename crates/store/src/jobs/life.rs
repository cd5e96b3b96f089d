//! The life of a job: submitted, claimed, heard of, finished, cancelled.
//!
//! Invariant: `end` is the only way into a terminal state, and nothing leads out of one.

use rusqlite::{named_params, params};

use super::error::{LeaseError, SubmitError};
use super::id::JobId;
use super::job::{Cancelled, Claimed, End, IdempotencyKey, Lease, NewJob, State, Submitted, Told};
use super::{Outcome, length, reading};
use crate::database::Database;

pub(super) fn submit(
    database: &Database,
    id: JobId,
    job: &NewJob,
    now_ms: u64,
) -> Outcome<Submitted, SubmitError> {
    // A repetition is answered even where there is no room for anything new.
    if let Some(key) = &job.key
        && let Some(known) = known(database, &job.tenant, key)?
    {
        return Ok(known);
    }
    if let Some(full) = full(database, job)? {
        return Ok(Err(full));
    }
    let (key, body) = job.key.as_ref().map(|key| (&key.key, &key.body)).unzip();
    let sql = "INSERT INTO jobs (id, tenant, key, key_body, state, retry, ttl_ms, created_ms, request_bytes)
        VALUES (:id, :tenant, :key, :body, 'queued', :retry, :ttl_ms, :now_ms, :bytes)";
    let columns = named_params! {
        ":id": id, ":tenant": job.tenant, ":key": key, ":body": body, ":retry": job.retry,
        ":ttl_ms": super::ms(job.ttl_ms), ":now_ms": now_ms, ":bytes": length(&job.request),
    };
    database.execute(sql, columns)?;
    let seq = database.inserted();
    database.execute("INSERT INTO job_requests (seq, bytes) VALUES (?1, ?2)", params![seq, job.request])?;
    if let Some(webhook) = &job.webhook {
        let sql = "INSERT INTO job_webhooks (seq, url, event_id, state) VALUES (?1, ?2, ?3, 'waiting')";
        database.execute(sql, params![seq, webhook.url, webhook.event_id])?;
    }
    let sql = "INSERT INTO job_tenants (tenant, jobs) VALUES (?1, 1)
        ON CONFLICT (tenant) DO UPDATE SET jobs = jobs + 1";
    database.execute(sql, [&job.tenant])?;
    database.execute("UPDATE job_totals SET jobs = jobs + 1, bytes = bytes + ?1", [length(&job.request)])?;
    Ok(Ok(Submitted::New(id)))
}

/// The job that came with this key before, if one did.
fn known(
    database: &Database,
    tenant: &str,
    key: &IdempotencyKey,
) -> rusqlite::Result<Option<Result<Submitted, SubmitError>>> {
    let sql = "SELECT id, key_body FROM jobs WHERE tenant = ?1 AND key = ?2";
    let found = database.row(sql, [tenant, &key.key], |row| Ok((row.get(0)?, row.get::<_, [u8; 32]>(1)?)))?;
    let same =
        |(id, body)| if body == key.body { Ok(Submitted::Known(id)) } else { Err(SubmitError::KeyReused) };
    Ok(found.map(same))
}

/// What there is no room for, if there is none.
fn full(database: &Database, job: &NewJob) -> rusqlite::Result<Option<SubmitError>> {
    let limits = &database.limits;
    let sql =
        "SELECT jobs, bytes, coalesce((SELECT jobs FROM job_tenants WHERE tenant = ?1), 0) FROM job_totals";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let (jobs, bytes, of_tenant): (u64, u64, u64) =
        database.row(sql, [&job.tenant], read)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    Ok(if of_tenant >= limits.jobs_per_tenant_max {
        Some(SubmitError::TenantFull { jobs_max: limits.jobs_per_tenant_max })
    } else if jobs >= limits.jobs_max {
        Some(SubmitError::Full { jobs_max: limits.jobs_max })
    } else if bytes.saturating_add(length(&job.request)) > limits.bytes_max {
        Some(SubmitError::FullBytes { bytes_max: limits.bytes_max })
    } else {
        None
    })
}

pub(super) fn claim(database: &Database, now_ms: u64) -> rusqlite::Result<Option<Claimed>> {
    let sql = "UPDATE jobs SET state = 'running', attempts = attempts + 1, run = ?1, heard_ms = ?2
        WHERE seq = (SELECT seq FROM jobs WHERE ended_ms IS NULL AND state = 'queued' ORDER BY seq LIMIT 1)
        RETURNING seq, id, attempts, tenant, retry, created_ms";
    let claimed = database.row(sql, params![database.run, now_ms], |row| {
        let claimed = Claimed {
            lease: Lease { id: row.get(1)?, attempt: row.get(2)? },
            tenant: row.get(3)?,
            request: Vec::new(),
            retry: row.get(4)?,
            created_ms: row.get(5)?,
        };
        Ok((row.get::<_, i64>(0)?, claimed))
    })?;
    let Some((seq, claimed)) = claimed else { return Ok(None) };
    let request = database.row("SELECT bytes FROM job_requests WHERE seq = ?1", [seq], |row| row.get(0))?;
    Ok(Some(Claimed { request: request.ok_or(rusqlite::Error::QueryReturnedNoRows)?, ..claimed }))
}

pub(super) fn heartbeat(
    database: &Database,
    lease: Lease,
    output: Option<&[u8]>,
    now_ms: u64,
) -> Outcome<Told, LeaseError> {
    let Some((seq, cancel_asked)) = held(database, lease)? else { return Ok(Err(LeaseError::Lost)) };
    database.execute("UPDATE jobs SET heard_ms = ?2 WHERE seq = ?1", params![seq, now_ms])?;
    if let Some(output) = output {
        keep(database, seq, output)?;
    }
    Ok(Ok(if cancel_asked { Told::Cancel } else { Told::GoOn }))
}

pub(super) fn finish(
    database: &Database,
    lease: Lease,
    how: End,
    output: Option<&[u8]>,
    now_ms: u64,
) -> Outcome<(), LeaseError> {
    let Some((seq, _)) = held(database, lease)? else { return Ok(Err(LeaseError::Lost)) };
    if let Some(output) = output {
        keep(database, seq, output)?;
    }
    end(database, seq, how, now_ms).map(Ok)
}

pub(super) fn cancel(
    database: &Database,
    tenant: &str,
    id: JobId,
    now_ms: u64,
) -> rusqlite::Result<Option<Cancelled>> {
    let Some((seq, info)) = reading::found(database, tenant, id)? else { return Ok(None) };
    let cancelled = match info.state {
        State::Queued => {
            end(database, seq, End::Cancelled, now_ms)?;
            Cancelled::Now
        }
        State::Running { .. } => {
            database.execute("UPDATE jobs SET cancel_asked = 1 WHERE seq = ?1", [seq])?;
            Cancelled::Asked
        }
        State::Ended { end, .. } => Cancelled::TooLate(end),
    };
    Ok(Some(cancelled))
}

/// The job that a lease is good for, and whether it is to be given up.
fn held(database: &Database, lease: Lease) -> rusqlite::Result<Option<(i64, bool)>> {
    let sql = "SELECT seq, cancel_asked FROM jobs WHERE id = ?1 AND state = 'running' AND attempts = ?2";
    database.row(sql, params![lease.id, lease.attempt], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Keeps an output in the place of what was saved before.
fn keep(database: &Database, seq: i64, output: &[u8]) -> rusqlite::Result<()> {
    let sql = "UPDATE job_totals SET bytes = bytes + ?2 - (SELECT output_bytes FROM jobs WHERE seq = ?1)";
    database.execute(sql, params![seq, length(output)])?;
    database.execute("UPDATE jobs SET output_bytes = ?2 WHERE seq = ?1", params![seq, length(output)])?;
    let sql = "INSERT INTO job_outputs (seq, bytes) VALUES (?1, ?2)
        ON CONFLICT (seq) DO UPDATE SET bytes = excluded.bytes";
    database.execute(sql, params![seq, output]).map(drop)
}

/// Ends a job that has not ended, and lets its webhook fall due.
pub(super) fn end(database: &Database, seq: i64, how: End, now_ms: u64) -> rusqlite::Result<()> {
    let sql =
        "UPDATE jobs SET state = ?2, ended_ms = ?3, expires_ms = ?3 + ttl_ms, run = NULL, heard_ms = NULL
        WHERE seq = ?1 AND ended_ms IS NULL";
    let ended = database.execute(sql, params![seq, how.name(), now_ms])?;
    assert_eq!(ended, 1, "a job that has not ended was looked up in this transaction");
    let sql = "UPDATE job_webhooks SET state = 'due', due_ms = ?2 WHERE seq = ?1";
    database.execute(sql, params![seq, now_ms]).map(drop)
}
