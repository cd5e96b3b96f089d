//! What a tenant is told of its jobs.
//!
//! Invariant: every query names the tenant.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Row, params};

use super::id::JobId;
use super::job::{End, Job, JobInfo, State, WebhookState};
use crate::database::Database;

/// What [`info`] reads. The number is the job's own row.
const COLUMNS: &str =
    "SELECT jobs.seq, id, jobs.state, cancel_asked, ended_ms, expires_ms, jobs.attempts, retry,
    created_ms, request_bytes, output_bytes, job_webhooks.state
    FROM jobs LEFT JOIN job_webhooks ON job_webhooks.seq = jobs.seq";

/// Finds a job of a tenant.
pub(super) fn found(
    database: &Database,
    tenant: &str,
    id: JobId,
) -> rusqlite::Result<Option<(i64, JobInfo)>> {
    database.row(&format!("{COLUMNS} WHERE id = ?1 AND tenant = ?2"), params![id, tenant], info)
}

pub(super) fn get(database: &Database, tenant: &str, id: JobId) -> rusqlite::Result<Option<Job>> {
    let Some((seq, info)) = found(database, tenant, id)? else { return Ok(None) };
    let output = database.row("SELECT bytes FROM job_outputs WHERE seq = ?1", [seq], |row| row.get(0))?;
    Ok(Some(Job { info, output }))
}

pub(super) fn request(database: &Database, tenant: &str, id: JobId) -> rusqlite::Result<Option<Vec<u8>>> {
    let sql = "SELECT bytes FROM job_requests JOIN jobs USING (seq) WHERE id = ?1 AND tenant = ?2";
    database.row(sql, params![id, tenant], |row| row.get(0))
}

pub(super) fn list(
    database: &Database,
    tenant: &str,
    before: Option<JobId>,
    count: u32,
) -> rusqlite::Result<Vec<JobInfo>> {
    // Before a job that is not this tenant's there is nothing.
    let sql = format!(
        "{COLUMNS} WHERE tenant = ?1
            AND (?2 IS NULL OR jobs.seq < (SELECT seq FROM jobs WHERE id = ?2 AND tenant = ?1))
            ORDER BY jobs.seq DESC LIMIT ?3"
    );
    let rows = database.rows(&sql, params![tenant, before, count], info)?;
    Ok(rows.into_iter().map(|(_, info)| info).collect())
}

fn info(row: &Row<'_>) -> rusqlite::Result<(i64, JobInfo)> {
    let state = match row.get(2)? {
        Named::Queued => State::Queued,
        Named::Running => State::Running { cancel_asked: row.get(3)? },
        Named::Ended(end) => State::Ended { end, at_ms: row.get(4)?, expires_ms: row.get(5)? },
    };
    let info = JobInfo {
        id: row.get(1)?,
        state,
        attempts: row.get(6)?,
        retry: row.get(7)?,
        created_ms: row.get(8)?,
        request_bytes: row.get(9)?,
        output_bytes: row.get(10)?,
        webhook: row.get(11)?,
    };
    Ok((row.get(0)?, info))
}

/// A state by its name.
enum Named {
    Queued,
    Running,
    Ended(End),
}

impl FromSql for Named {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        let ends = [End::Succeeded, End::Failed, End::Cancelled, End::Interrupted];
        match (name, ends.into_iter().find(|end| end.name() == name)) {
            ("queued", _) => Ok(Self::Queued),
            ("running", _) => Ok(Self::Running),
            (_, Some(end)) => Ok(Self::Ended(end)),
            (_, None) => Err(FromSqlError::InvalidType),
        }
    }
}

impl FromSql for WebhookState {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_str()? {
            "waiting" => Ok(Self::Waiting),
            "due" => Ok(Self::Due),
            "delivered" => Ok(Self::Delivered),
            "gave_up" => Ok(Self::GaveUp),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}
