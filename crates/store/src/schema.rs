//! The tables, by version. A file of an older version is brought up to date when it is opened; one of a
//! newer version is refused.
//!
//! A version that was released is never edited; a change is the next script.
//!
//! Invariant: a file has all of a version or nothing of it.

use rusqlite::Connection;

/// Marks a database as ours: `ftkn`.
pub(crate) const APPLICATION_ID: u32 = 0x6674_6b6e;

/// What leads from each version to the next.
const SCRIPTS: [&str; 1] = [include_str!("schema/v1.sql")];

/// The version that this program works with.
pub(crate) fn newest() -> u32 {
    (1..).zip(SCRIPTS).map(|(version, _)| version).last().unwrap_or(0)
}

/// Brings a file that is at `version` up to date.
pub(crate) fn update(connection: &mut Connection, version: u32) -> rusqlite::Result<()> {
    for (next, script) in (1..).zip(SCRIPTS).skip_while(|(next, _)| *next <= version) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(script)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", next)?;
        transaction.commit()?;
    }
    Ok(())
}
