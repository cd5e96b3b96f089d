//! What can go wrong with the file, said so that somebody can act on it.
//!
//! Invariant: no message has bytes of a job in it.

use std::path::PathBuf;

use rusqlite::{Error as Sqlite, ErrorCode};

/// Why a store could not be opened. What was there is as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has it open, in this process or another.
    #[error("{} is in use by another process; a store has one owner at a time", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is damaged, or no store at all. It is left as it is.
    #[error("{} is damaged ({detail}); restore it from a backup, or move it and {}-wal away to begin anew", .path.display(), .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// It is a database of something else.
    #[error("{} is a database of another program; choose another path", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer firsttoken has written it.
    #[error("{} has version {found}, and this firsttoken knows versions up to {known}; run the newer one", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// The disk has no room for it.
    #[error("no room on the disk of {}", .path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// The system does not let us have it.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Anything else.
    #[error("{} cannot be opened: {detail}", .path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What was said.
        detail: String,
    },
}

/// Why a command was not done.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Too many commands wait. Nothing was done; try again in a moment.
    #[error("the store has too much to do just now")]
    Busy,
    /// The thread of the store has ended. What this command was about may or may not have been done.
    #[error("the store has stopped")]
    Closed,
    /// The disk has no room. Nothing was done.
    #[error("the disk of the store is full")]
    DiskFull,
    /// The file is damaged.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// The disk has failed. What this command was about may or may not outlive a power cut.
    #[error("the disk of the store has failed: {0}")]
    Io(String),
    /// Anything else. Nothing was done.
    #[error("the store has failed: {0}")]
    Failed(String),
}

impl From<Sqlite> for StoreError {
    fn from(error: Sqlite) -> Self {
        if holds_nonsense(&error) {
            return Self::Corrupt(error.to_string());
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::SystemIoFailure | ErrorCode::ReadOnly) => Self::Io(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl OpenError {
    /// What SQLite said of the file at `path`.
    pub(crate) fn new(path: PathBuf, error: &Sqlite) -> Self {
        let detail = error.to_string();
        if holds_nonsense(error) {
            return Self::Corrupt { path, detail };
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse { path },
            Some(ErrorCode::DiskFull) => Self::DiskFull { path },
            _ => Self::Failed { path, detail },
        }
    }
}

/// Whether an error says that the file holds what nobody can have written there.
fn holds_nonsense(error: &Sqlite) -> bool {
    let damaged =
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase));
    let misread = matches!(
        error,
        Sqlite::FromSqlConversionFailure(..)
            | Sqlite::IntegralValueOutOfRange(..)
            | Sqlite::InvalidColumnType(..)
            | Sqlite::QueryReturnedNoRows
            | Sqlite::Utf8Error(..)
    );
    damaged || misread
}
