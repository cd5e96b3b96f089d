//! Prefixes on disk: what the scheduler says is worth it outlives the process.
//!
//! - [`shelf`]: the directory: its files, its bound, its salt.
//! - `page`: one file.
//!
//! Two threads work there, one that writes and one that reads, so that no step waits for a disk and no
//! reader for a writer. What they have done is heard between two steps.
//!
//! Invariant: whatever the disk does, a job ends with its event or is not heard of again, and no bytes come
//! from here that the kernels' own envelope does not vouch for.

mod page;
pub mod shelf;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

use firsttoken_logic::engine::ids::SnapshotId;
use firsttoken_logic::engine::shelf::{Page, PageName};

pub use self::shelf::{KvDir, Shelf, ShelfError};
use crate::backend::Check;

/// Pages that are remembered while host memory has not got them. Each has the tokens of its whole prefix, so
/// this bounds what they take of memory: 32 MiB for prefixes of 8,192 tokens.
pub const PAGES_MAX: usize = 1024;
/// Jobs that wait to be written, at most. The scheduler asks for a few at a time; files that have been of
/// use make up the rest.
const WRITES_MAX: usize = 64;

/// Something to be done on disk.
#[derive(Clone, Debug)]
pub enum Job {
    /// A snapshot is written: [`Event::Written`].
    Write {
        /// Which.
        snapshot: SnapshotId,
        /// Its file.
        page: Page,
        /// What it holds.
        bytes: Arc<Vec<u8>>,
    },
    /// A snapshot is read: [`Event::Read`].
    Read {
        /// Which.
        snapshot: SnapshotId,
        /// Its file.
        name: PageName,
    },
    /// A file has been of use.
    Touch {
        /// Which.
        name: PageName,
    },
}

impl Job {
    /// What is heard of it where it is not done.
    pub(crate) fn undone(self) -> Option<Event> {
        match self {
            Self::Write { snapshot, .. } => Some(Event::Written { snapshot, done: false }),
            Self::Read { snapshot, .. } => Some(Event::Read { snapshot, read: None, took: Duration::ZERO }),
            Self::Touch { .. } => None,
        }
    }
}

/// What came of a job.
#[derive(Debug)]
pub enum Event {
    /// A snapshot was written, or could not be.
    Written {
        /// Which.
        snapshot: SnapshotId,
        /// Whether it was.
        done: bool,
    },
    /// A snapshot was read.
    Read {
        /// Which.
        snapshot: SnapshotId,
        /// Its file; none where there was no sound one.
        read: Option<(Page, Vec<u8>)>,
        /// How long that took.
        took: Duration,
    },
}

/// The threads. Dropping it leaves them to end with what they are at.
#[derive(Debug)]
pub struct Disk {
    writes: SyncSender<Job>,
    reads: SyncSender<Job>,
    heard: Sender<Event>,
    events: Receiver<Event>,
    writer: std::thread::JoinHandle<()>,
}

impl Disk {
    /// Over `shelf`, for kernels with this fingerprint; `wake` is called when there is something to hear.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(
        shelf: Arc<Shelf>,
        fingerprint: u64,
        check: Check,
        wake: impl Fn() + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let (heard, events) = channel();
        let work = |what: &str, room: usize| {
            let (sender, jobs) = sync_channel(room);
            let (shelf, check, heard, wake) =
                (Arc::clone(&shelf), Arc::clone(&check), heard.clone(), wake.clone());
            let thread = std::thread::Builder::new().name(what.to_owned()).spawn(move || {
                for job in jobs {
                    if let Some(event) = done(&shelf, fingerprint, &check, job) {
                        // Nobody hears it where the engine has ended.
                        let _ = heard.send(event);
                        wake();
                    }
                }
            })?;
            Ok::<_, std::io::Error>((sender, thread))
        };
        let (writes, writer) = work("disk-write", WRITES_MAX)?;
        let (reads, _) = work("disk-read", PAGES_MAX)?;
        Ok(Self { writes, reads, heard, events, writer })
    }

    /// Begins with a job. Never waits: what there is no room for is not done.
    pub fn take(&mut self, job: Job) {
        let queue = if matches!(job, Job::Read { .. }) { &self.reads } else { &self.writes };
        let Err(refused) = queue.try_send(job) else { return };
        let (TrySendError::Full(job) | TrySendError::Disconnected(job)) = refused;
        if let Some(event) = job.undone() {
            let _ = self.heard.send(event);
        }
    }

    /// What came of one of the jobs, if one has come to something.
    pub fn event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Does these last jobs, waiting where there is no room, and returns when all is written.
    pub fn finish(self, jobs: Vec<Job>) {
        let Self { writes, writer, .. } = self;
        for job in jobs.into_iter().filter(|job| !matches!(job, Job::Read { .. })) {
            if writes.send(job).is_err() {
                return;
            }
        }
        drop(writes);
        // A panic over there has been said.
        let _ = writer.join();
    }
}

/// Does a job.
fn done(shelf: &Shelf, fingerprint: u64, check: &Check, job: Job) -> Option<Event> {
    match job {
        Job::Write { snapshot, page, bytes } => {
            Some(Event::Written { snapshot, done: shelf.write(fingerprint, &page, &bytes) })
        }
        Job::Read { snapshot, name } => {
            let began = tokio::time::Instant::now();
            let sound = |bytes: &[u8]| check(bytes, &name.range);
            let read = shelf.read(fingerprint, &name, sound);
            Some(Event::Read { snapshot, read, took: began.elapsed() })
        }
        Job::Touch { name } => {
            shelf.touch(fingerprint, &name);
            None
        }
    }
}
