//! Where finished requests are filed: counted, logged and kept, by a clerk with a thread of its own.
//!
//! To count and log a request costs about as much as to relay a dozen of tokens. The event loop only
//! lays it on the desk; the clerk comes for what has gathered there, and whoever asks for a timeline or
//! for the metrics files first, so that nobody sees the delay.
//!
//! Invariant: every finished request is filed once. The desk is bounded: where the clerk does not keep
//! up, whoever finishes a request files.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

use super::Evidence;
use super::record::Running;

/// How long the first request on the desk waits for others.
const BATCH: Duration = Duration::from_millis(10);
/// As of `nice`: 19 would be the last of all.
const CLERK_NICENESS: i32 = 10;
/// Most requests on the desk.
const DESK_MAX: usize = 1024;

/// The desk.
#[derive(Default)]
pub(super) struct Desk {
    #[expect(clippy::vec_box, reason = "they are boxed already, and a kilobyte each")]
    waiting: Mutex<Vec<Box<Running>>>,
    /// Held while filing, so that who has filed knows that all is filed.
    filing: Mutex<()>,
    clerk: OnceLock<Thread>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Evidence {
    /// Starts the clerk, who leaves when nobody else holds the evidence any more.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub(crate) fn start_clerk(self: &Arc<Self>) -> io::Result<()> {
        let evidence = Arc::downgrade(self);
        let clerk = std::thread::Builder::new().name("clerk".to_owned()).spawn(move || clerk(&evidence))?;
        // There is one clerk; a second would only find an empty desk.
        let _ = self.desk.clerk.set(clerk.thread().clone());
        Ok(())
    }

    /// Lays a finished request on the desk.
    pub(super) fn lay_down(&self, finished: Box<Running>) {
        let mut waiting = lock(&self.desk.waiting);
        waiting.push(finished);
        let count = waiting.len();
        drop(waiting);
        if count >= DESK_MAX {
            self.file();
        } else if let (1, Some(clerk)) = (count, self.desk.clerk.get()) {
            clerk.unpark();
        }
    }

    /// Files what lies on the desk.
    pub(crate) fn file(&self) {
        let _one_at_a_time = lock(&self.desk.filing);
        let waiting = std::mem::take(&mut *lock(&self.desk.waiting));
        for finished in waiting {
            let timeline = finished.timeline();
            self.metrics.observe(&finished.labels(), &timeline, finished.itl());
            timeline.log();
            // Whoever has no key must not push out the timelines of those who have one.
            if !timeline.key.is_empty() {
                self.timelines.push(timeline);
            }
        }
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        self.file();
        if let Some(clerk) = self.desk.clerk.get() {
            clerk.unpark();
        }
    }
}

fn clerk(evidence: &Weak<Evidence>) {
    step_back();
    loop {
        std::thread::park();
        std::thread::sleep(BATCH);
        let Some(evidence) = evidence.upgrade() else { return };
        evidence.file();
    }
}

/// Lets the event loops go first where there are fewer cores than threads. On Linux the priority is the
/// calling thread's own.
fn step_back() {
    // Where that is not allowed, the clerk is as good as the others.
    let _ = rustix::process::setpriority_process(None, CLERK_NICENESS);
}
