//! What has been kept for as long as it asked is forgotten.
//!
//! Invariant: only what has ended is forgotten, and nothing of it is left.

use rusqlite::params;

use super::job::Swept;
use crate::database::Database;

/// Jobs that are forgotten in one transaction.
const JOBS_MAX: u32 = 500;
/// Their bytes, about: what is deleted is overwritten, and others wait for that.
const BYTES_MAX: u64 = 16 << 20;

pub(super) fn sweep(database: &Database, now_ms: u64) -> rusqlite::Result<Swept> {
    let sql = "SELECT jobs.seq, tenant, request_bytes + output_bytes, coalesce(job_webhooks.state = 'due', 0)
        FROM jobs LEFT JOIN job_webhooks ON job_webhooks.seq = jobs.seq
        WHERE expires_ms <= ?1 ORDER BY expires_ms LIMIT ?2";
    let expired = database.rows(sql, params![now_ms, JOBS_MAX], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, u64>(2)?, row.get::<_, bool>(3)?))
    })?;
    let (mut swept, mut bytes_swept) = (Swept::default(), 0);
    for (seq, tenant, bytes, undelivered) in expired {
        if bytes_swept >= BYTES_MAX {
            break;
        }
        // Its request, its output and its webhook go with it.
        database.execute("DELETE FROM jobs WHERE seq = ?1", [seq])?;
        database.execute("UPDATE job_totals SET jobs = jobs - 1, bytes = bytes - ?1", [bytes])?;
        database.execute("UPDATE job_tenants SET jobs = jobs - 1 WHERE tenant = ?1", [&tenant])?;
        database.execute("DELETE FROM job_tenants WHERE tenant = ?1 AND jobs = 0", [&tenant])?;
        bytes_swept += bytes;
        swept.jobs += 1;
        swept.webhooks_undelivered += u64::from(undelivered);
    }
    Ok(swept)
}
