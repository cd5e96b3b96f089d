//! Commands in, transactions out.
//!
//! One thread owns the database, so no event loop waits for a disk. It takes what has queued while the last
//! transaction was synced and does it in the next one: many commands share a sync, and a single one waits for
//! nobody. Answers leave when the transaction is on the disk, those to readers too, so that nobody is told what a
//! crash could take back.
//!
//! Invariant: a command is done whole or not at all, and one that fails takes no other with it.

use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::database::Database;
use crate::error::StoreError;

/// Commands that wait, at most.
const WAITING_MAX: usize = 1024;
/// Commands that share a transaction, at most.
const BATCH_MAX: usize = 256;

/// What to do where too many commands wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// Refuse: a caller can be told to come back.
    Refuse,
    /// Wait for room: what has been done must not be forgotten. Those who wait are bounded by who runs jobs.
    Wait,
}

/// Where commands are done.
pub(crate) enum Writer {
    /// On a thread of its own.
    Apart { queue: Option<mpsc::Sender<Box<dyn Work>>>, thread: Option<JoinHandle<()>> },
    /// Where they are given.
    Here(Box<Mutex<Database>>),
}

impl Writer {
    /// Over this database, on a thread of its own.
    pub(crate) fn start(mut database: Database) -> std::io::Result<Self> {
        let (queue, mut commands) = mpsc::channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            while let Some(first) = commands.blocking_recv() {
                let mut batch = vec![first];
                while batch.len() < BATCH_MAX
                    && let Ok(next) = commands.try_recv()
                {
                    batch.push(next);
                }
                perform(&mut database, batch);
            }
        })?;
        Ok(Self::Apart { queue: Some(queue), thread: Some(thread) })
    }

    /// Over this database, on the thread that asks.
    pub(crate) fn here(database: Database) -> Self {
        Self::Here(Box::new(Mutex::new(database)))
    }

    /// Does a command, in a transaction that may be shared with others.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        full: Full,
        work: impl Fn(&Database) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let command: Box<dyn Work> = Box::new(Command { work, outcome: None, reply });
        match self {
            Self::Apart { queue: None, .. } => return Err(StoreError::Closed),
            Self::Apart { queue: Some(queue), .. } if full == Full::Wait => {
                queue.send(command).await.map_err(|_| StoreError::Closed)?;
            }
            Self::Apart { queue: Some(queue), .. } => {
                queue.try_send(command).map_err(|error| match error {
                    mpsc::error::TrySendError::Full(_) => StoreError::Busy,
                    mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
                })?
            }
            Self::Here(database) => {
                perform(&mut database.lock().unwrap_or_else(PoisonError::into_inner), vec![command]);
            }
        }
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for Writer {
    /// Does what still waits, and gives the file back.
    fn drop(&mut self) {
        if let Self::Apart { queue, thread } = self {
            drop(queue.take());
            // A panic over there has been said.
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

/// A command, whatever it answers.
pub(crate) trait Work: Send {
    /// Does it. It may be asked to do so again, after a rollback.
    fn run(&mut self, database: &Database) -> rusqlite::Result<()>;
    /// Tells who asked, once the transaction is on the disk or has failed.
    fn answer(self: Box<Self>, done: Result<(), StoreError>);
}

struct Command<F, T> {
    work: F,
    outcome: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> Work for Command<F, T>
where
    F: Fn(&Database) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn run(&mut self, database: &Database) -> rusqlite::Result<()> {
        self.outcome = Some((self.work)(database)?);
        Ok(())
    }

    fn answer(self: Box<Self>, done: Result<(), StoreError>) {
        let Self { outcome, reply, .. } = *self;
        // Who asked may have left.
        let _ = reply.send(done.and_then(|()| outcome.ok_or(StoreError::Closed)));
    }
}

/// Does these commands in one transaction; if that fails, each in one of its own.
fn perform(database: &mut Database, mut batch: Vec<Box<dyn Work>>) {
    let done = database.transaction(|database| batch.iter_mut().try_for_each(|work| work.run(database)));
    let together = batch.len() > 1;
    match done {
        Ok(()) => batch.into_iter().for_each(|work| work.answer(Ok(()))),
        Err(_) if together => batch.into_iter().for_each(|work| perform(database, vec![work])),
        Err(error) => {
            let failed = StoreError::from(error);
            // There is one: an empty batch cannot fail alone.
            if let Some(work) = batch.pop() {
                work.answer(Err(failed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc::sync_channel;
    use std::task::{Context, Waker};

    use super::*;
    use crate::limits::Limits;

    fn database() -> (tempfile::TempDir, Database) {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("store.db"), Limits::default()).unwrap();
        (folder, database)
    }

    /// Counts one more job, or as many fewer.
    fn count(database: &Database, more: i64) -> rusqlite::Result<usize> {
        database.execute("UPDATE job_totals SET jobs = jobs + ?1", [more])
    }

    fn counted(database: &Database) -> rusqlite::Result<Option<u64>> {
        database.row("SELECT jobs FROM job_totals", [], |row| row.get(0))
    }

    #[test]
    fn a_command_that_fails_takes_no_other_with_it() {
        let (_folder, mut database) = database();
        let (mut batch, mut answers) = (Vec::new(), Vec::new());
        for more in [2, -5, 3] {
            let (reply, answer) = oneshot::channel();
            let work = move |database: &Database| count(database, more);
            batch.push(Box::new(Command { work, outcome: None, reply }) as Box<dyn Work>);
            answers.push(answer);
        }
        perform(&mut database, batch);
        let done: Vec<bool> = answers.iter_mut().map(|answer| answer.try_recv().unwrap().is_ok()).collect();
        assert_eq!(done, [true, false, true], "a count below none is refused by the table");
        assert_eq!(counted(&database).unwrap(), Some(5));
    }

    #[tokio::test]
    async fn what_finds_no_room_on_the_disk_changes_nothing_and_what_comes_later_does() {
        let (_folder, database) = database();
        let writer = Writer::start(database).unwrap();
        let pages_max = |pages: u32| {
            move |database: &Database| {
                database.row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, u32>(0))
            }
        };
        let large = |database: &Database| {
            count(database, 1)?;
            database.execute("INSERT INTO job_tenants VALUES (hex(zeroblob(1000000)), 1)", [])
        };
        writer.ask(Full::Wait, pages_max(1)).await.unwrap();
        let refused = writer.ask(Full::Wait, large).await;
        assert!(matches!(refused, Err(StoreError::DiskFull)), "{refused:?}");
        assert_eq!(writer.ask(Full::Wait, counted).await.unwrap(), Some(0), "nothing of it is there");
        writer.ask(Full::Wait, |database| count(database, 1)).await.unwrap();
        writer.ask(Full::Wait, pages_max(1 << 20)).await.unwrap();
        writer.ask(Full::Wait, large).await.unwrap();
        assert_eq!(writer.ask(Full::Wait, counted).await.unwrap(), Some(2));
    }

    #[tokio::test]
    async fn where_too_much_waits_callers_are_refused_and_reports_wait() {
        let (_folder, database) = database();
        let writer = Writer::start(database).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let (begun, has_begun) = sync_channel(1);
        let (go_on, may_go_on) = sync_channel::<()>(1);
        let may_go_on = Mutex::new(may_go_on);
        let mut slow = pin!(writer.ask(Full::Wait, move |_| {
            begun.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            Ok(())
        }));
        assert!(slow.as_mut().poll(&mut context).is_pending());
        has_begun.recv().unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| Box::pin(writer.ask(Full::Refuse, |database| count(database, 1))))
            .collect();
        assert!(waiting.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending()));
        assert!(matches!(writer.ask(Full::Refuse, counted).await, Err(StoreError::Busy)));
        let mut report = pin!(writer.ask(Full::Wait, counted));
        assert!(report.as_mut().poll(&mut context).is_pending());
        go_on.send(()).unwrap();
        slow.await.unwrap();
        assert_eq!(report.await.unwrap(), Some(WAITING_MAX as u64), "in the order in which they came");
        for one in waiting {
            one.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_command_whose_caller_has_left_is_done_all_the_same() {
        let (_folder, database) = database();
        let writer = Writer::start(database).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut left = Box::pin(writer.ask(Full::Wait, |database| count(database, 1)));
            let _ = left.as_mut().poll(&mut context);
        }
        assert_eq!(writer.ask(Full::Wait, counted).await.unwrap(), Some(1));
    }

    #[tokio::test]
    async fn when_its_thread_has_ended_that_is_said() {
        let (_folder, database) = database();
        let writer = Writer::start(database).unwrap();
        for _ in 0..2 {
            let broken =
                writer.ask(Full::Refuse, |_| -> rusqlite::Result<()> { panic!("a bug, on purpose") });
            assert!(matches!(broken.await, Err(StoreError::Closed)));
        }
    }
}
