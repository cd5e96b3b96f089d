//! Jobs that were running, and whose runner is no more.
//!
//! Invariant: a job that may be begun again is, and one that may not is not.

use rusqlite::params;

use super::job::{End, Recovered};
use super::life::end;
use crate::database::Database;

/// Settles the jobs that a former process was running, and those of this one whose runner has been silent since
/// then.
pub(crate) fn recover(
    database: &Database,
    silent_since_ms: Option<u64>,
    now_ms: u64,
) -> rusqlite::Result<Recovered> {
    let sql = "SELECT seq, cancel_asked, retry AND attempts < ?3 FROM jobs
        WHERE ended_ms IS NULL AND state = 'running' AND (run <> ?1 OR heard_ms < ?2) ORDER BY seq";
    let attempts_max = database.limits.attempts_max;
    let lost = database.rows(sql, params![database.run, silent_since_ms, attempts_max], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, bool>(2)?))
    })?;
    let mut recovered = Recovered::default();
    for (seq, cancel_asked, again) in lost {
        if cancel_asked {
            end(database, seq, End::Cancelled, now_ms)?;
            recovered.cancelled += 1;
        } else if again {
            let sql = "UPDATE jobs SET state = 'queued', run = NULL, heard_ms = NULL WHERE seq = ?1";
            database.execute(sql, [seq])?;
            recovered.queued += 1;
        } else {
            end(database, seq, End::Interrupted, now_ms)?;
            recovered.interrupted += 1;
        }
    }
    Ok(recovered)
}
