//! The file: where it lies, whose it is, and how it is kept.
//!
//! It is written ahead (WAL) and synced with every transaction. One process has it: SQLite's own lock is taken
//! when it is opened and held, and the system gives it back when that process ends, however it ends. A file
//! that is damaged is reported and left alone: an empty store in its place would look like one that has lost
//! nothing.
//!
//! Invariant: a store that was once there is never begun anew.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Params, Row};

use crate::error::OpenError;
use crate::limits::Limits;
use crate::schema;

/// Statements that are kept ready; there are fewer.
const STATEMENTS_MAX: usize = 64;

/// How the file is kept. `FULL` syncs every transaction, and the full kind of sync is what a Mac calls it when
/// the disk has really been asked. What is deleted is overwritten. The log is cut back to 64 MiB after a burst.
const SETTINGS: &str = "
    PRAGMA locking_mode = EXCLUSIVE;
    PRAGMA synchronous = FULL;
    PRAGMA fullfsync = ON;
    PRAGMA checkpoint_fullfsync = ON;
    PRAGMA foreign_keys = ON;
    PRAGMA secure_delete = ON;
    PRAGMA cell_size_check = ON;
    PRAGMA temp_store = MEMORY;
    PRAGMA journal_size_limit = 67108864;
";

/// The open file, for one thread at a time.
pub(crate) struct Database {
    connection: Connection,
    /// Which process this is: jobs that it has in hand are marked with it.
    pub(crate) run: [u8; 16],
    pub(crate) limits: Limits,
}

impl Database {
    /// Opens the file, or creates it where there was none.
    pub(crate) fn open(path: &Path, limits: Limits) -> Result<Self, OpenError> {
        let at = |source| OpenError::Io { path: path.to_owned(), source };
        // An absolute path cannot be taken for one of SQLite's URIs.
        let path = std::path::absolute(path).map_err(at)?;
        prepare(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags)
            .and_then(|connection| settle(connection, &path))
            .map_err(|error| OpenError::new(path.clone(), &error))??;
        let mut run = [0; 16];
        getrandom::fill(&mut run).map_err(|error| OpenError::Failed { path, detail: error.to_string() })?;
        Ok(Self { connection, run, limits })
    }

    /// Does all of `work` in one transaction, or nothing of it.
    pub(crate) fn transaction(
        &mut self,
        work: impl FnOnce(&Self) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let done = work(self).and_then(|()| self.connection.execute_batch("COMMIT"));
        // Some errors have rolled back on their own.
        if done.is_err() && !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        done
    }

    /// Runs a statement; returns how many rows it has changed.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute(params)
    }

    /// The one row of a query, if there is one.
    pub(crate) fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.connection.prepare_cached(sql)?.query_row(params, read).optional()
    }

    /// All rows of a query.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.connection.prepare_cached(sql)?.query_map(params, read)?.collect()
    }

    /// The row that was inserted last.
    pub(crate) fn inserted(&self) -> i64 {
        self.connection.last_insert_rowid()
    }
}

/// Makes the directory and the file where they are missing, for their owner alone.
fn prepare(path: &Path) -> Result<(), OpenError> {
    let at = |source| OpenError::Io { path: path.to_owned(), source };
    let bytes = |path: &Path| match path.metadata() {
        Ok(found) if found.is_dir() => Err(at(io::ErrorKind::IsADirectory.into())),
        Ok(found) => Ok(Some(found.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(error)),
    };
    let file = bytes(path)?;
    // The log is begun when the file has its first page, so a log without one has lost its file.
    if file.unwrap_or(0) == 0 && bytes(&log_of(path))?.unwrap_or(0) > 0 {
        let detail = "it is empty or missing, but its log is there".to_owned();
        return Err(OpenError::Corrupt { path: path.to_owned(), detail });
    }
    if file.is_none() { make(path).map_err(at) } else { Ok(()) }
}

/// Where SQLite keeps the log of a file.
fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// Makes the directory, and those above it, and the empty file.
fn make(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Without this a power cut may take the directory with all that is in it.
        if let Some(above) = folder.parent() {
            File::open(above)?.sync_all()?;
        }
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

/// Takes the file and its log from everybody but their owner. A log that comes later gets the file's mode.
fn tighten(path: &Path) -> io::Result<()> {
    for path in [path, &log_of(path)] {
        match path.metadata().map(|found| found.permissions().mode()) {
            Ok(mode) if mode & 0o077 != 0 => {
                std::fs::set_permissions(path, Permissions::from_mode(mode & 0o700))?;
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Takes the lock, looks whose file it is, and brings its tables up to date.
fn settle(mut connection: Connection, path: &Path) -> rusqlite::Result<Result<Connection, OpenError>> {
    // Its owner keeps it for as long as it lives, so waiting would not help.
    connection.busy_timeout(std::time::Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.execute_batch(SETTINGS)?;
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    let (owner, version) = (number("application_id")?, number("user_version")?);
    let tables: u32 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let path = PathBuf::from(path);
    if owner != schema::APPLICATION_ID && (owner, version, tables) != (0, 0, 0) {
        return Ok(Err(OpenError::Foreign { path }));
    }
    let known = schema::newest();
    if version > known {
        return Ok(Err(OpenError::Newer { path, found: version, known }));
    }
    if let Err(source) = tighten(&path) {
        return Ok(Err(OpenError::Io { path, source }));
    }
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        let detail = format!("no log can be kept beside it (journal mode {mode})");
        return Ok(Err(OpenError::Failed { path, detail }));
    }
    schema::update(&mut connection, version)?;
    Ok(Ok(connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_kept_as_the_settings_say() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("store.db"), Limits::default()).unwrap();
        let setting = |name| {
            let read = |row: &Row<'_>| row.get::<_, rusqlite::types::Value>(0);
            match database.connection.pragma_query_value(None, name, read).unwrap() {
                rusqlite::types::Value::Text(text) => text,
                value => format!("{value:?}"),
            }
        };
        assert_eq!(
            (setting("journal_mode").as_str(), setting("locking_mode").as_str()),
            ("wal", "exclusive")
        );
        assert_eq!(setting("synchronous"), "Integer(2)", "FULL");
        for name in ["fullfsync", "checkpoint_fullfsync", "foreign_keys", "secure_delete", "cell_size_check"]
        {
            assert_eq!(setting(name), "Integer(1)", "{name}");
        }
    }
}
