//! The store: a file, opened once, and whoever works on it.
//!
//! Invariant: while a store is open nobody else has its file.

use std::path::Path;

use crate::database::Database;
use crate::error::OpenError;
use crate::jobs::{Jobs, Recovered, recover};
use crate::limits::Limits;
use crate::writer::Writer;

/// What outlives a request. Dropping it does what still waits and gives the file back, which takes a moment:
/// the last owner drops it where nobody is kept waiting.
pub struct Store {
    pub(crate) writer: Writer,
    pub(crate) limits: Limits,
    recovered: Recovered,
}

impl Store {
    /// Opens the file at `path`, or creates it, and settles what a former process has left half done: see
    /// [`recovered`](Self::recovered). It reads and writes before it returns, so it is for the start of a
    /// program and not for an event loop.
    ///
    /// # Errors
    /// When the file cannot be had, is damaged, or is not ours.
    pub fn open(path: &Path, limits: Limits, now_ms: u64) -> Result<Self, OpenError> {
        let (database, recovered) = opened(path, limits, now_ms)?;
        let thread = |source| OpenError::Io { path: path.to_owned(), source };
        Ok(Self { writer: Writer::start(database).map_err(thread)?, limits, recovered })
    }

    /// As [`open`](Self::open), with everything done on the thread that asks. For tests on a paused clock:
    /// such a clock would run on while another thread works.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_without_thread(path: &Path, limits: Limits, now_ms: u64) -> Result<Self, OpenError> {
        let (database, recovered) = opened(path, limits, now_ms)?;
        Ok(Self { writer: Writer::here(database), limits, recovered })
    }

    /// What was accepted to be done later.
    #[must_use]
    pub const fn jobs(&self) -> Jobs<'_> {
        Jobs { store: self }
    }

    /// What became of the jobs that a former process was running when it ended.
    #[must_use]
    pub const fn recovered(&self) -> Recovered {
        self.recovered
    }
}

fn opened(path: &Path, limits: Limits, now_ms: u64) -> Result<(Database, Recovered), OpenError> {
    let mut database = Database::open(path, limits)?;
    let mut recovered = Recovered::default();
    let done = database.transaction(|database| {
        recovered = recover(database, None, now_ms)?;
        Ok(())
    });
    done.map_err(|error| OpenError::new(path.to_owned(), &error))?;
    Ok((database, recovered))
}
