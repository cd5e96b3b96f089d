//! The engine as its callers have it: what they ask, what they are told, and how they leave.
//!
//! Invariant: no call waits for a step; what is asked is left for the engine's thread to find.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firsttoken_logic::engine::draft;
use firsttoken_logic::engine::ids::{RequestId, Token};
use firsttoken_logic::engine::scheduler::{Counters, Refusal};
use firsttoken_logic::engine::sequence::Request;
use firsttoken_logic::time::Instant;

use super::Seat;

/// Jobs that have not been taken up yet, at most: the scheduler takes them between two steps.
const JOBS_MAX: usize = 1024;

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on.
    More,
    /// It goes on, but its reader does not keep up: no token until [`Ticket::resume`].
    Pause,
    /// It is over.
    End,
}

/// One who chooses and hears tokens, on the engine's thread.
pub trait Answer: Send {
    /// It has waited long enough: the step that is about to be computed has rows of it. Heard once.
    fn on_work(&mut self) {}

    /// Its prompt is computed; nobody had to compute `cached` tokens of it.
    fn on_start(&mut self, cached: u32);

    /// The next token, from the logits of the whole vocabulary.
    fn choose(&mut self, logits: &[f32]) -> Token;

    /// A guess at the token after `ahead` others, from the logits of a draft model.
    fn guess(&mut self, logits: &[f32], ahead: u32) -> Token;

    /// `token` stands. After the `last` there is no room for more.
    fn on_token(&mut self, token: Token, last: bool) -> Flow;

    /// It will not be answered, or not to its end.
    fn on_refused(&mut self, why: Refused);
}

/// Why an answer ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The scheduler cannot have it.
    Scheduler(Refusal),
    /// The kernels failed, and all that they held is lost.
    Failed(String),
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// More ask at once than can be taken up.
    #[error("more requests came at once than can be taken up")]
    Crowded,
    /// The kernels have failed, and are being set up again.
    #[error("the kernels have failed, and are being set up again")]
    Failed,
}

/// Something to be answered.
pub struct Job {
    /// What the scheduler is told. Its `id` is set by the engine.
    pub request: Request,
    /// Who chooses and hears.
    pub answer: Box<dyn Answer>,
    /// Most guesses at once by prompt lookup; zero for none.
    pub guesses_max: u32,
}

/// A job's hold on the engine: dropping it cancels the job.
pub struct Ticket {
    id: RequestId,
    left: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl Ticket {
    /// The reader keeps up again.
    pub fn resume(&self) {
        self.shared.send(Command::Resume(self.id));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.left.store(true, Relaxed);
        self.shared.on_left();
    }
}

pub(super) type Abort = Box<dyn Fn() + Send + Sync>;

pub(super) enum Command {
    Submit(RequestId, Box<Job>, Arc<AtomicBool>),
    Resume(RequestId),
}

/// What the engine's thread and its callers both see.
pub(super) struct Shared {
    pub(super) commands: Mutex<Vec<Command>>,
    /// Who owns the long runs of the step under way.
    pub(super) owners: Mutex<Vec<Arc<AtomicBool>>>,
    /// Ends the step under way, if the kernels can; none while nobody drives.
    pub(super) abort: Mutex<Option<Abort>>,
    pub(super) thread: Mutex<Option<std::thread::Thread>>,
    pub(super) next: AtomicU64,
    /// Somebody has left since the thread looked last.
    pub(super) left: AtomicBool,
    pub(super) stop: AtomicBool,
    /// Nobody drives any more.
    pub(super) vacant: AtomicBool,
    pub(super) status: Mutex<Status>,
}

/// How the engine is, between two steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Requests at work.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Cells that are used.
    pub cells_used: u32,
    /// Those of them that nobody works with.
    pub cells_idle: u32,
    /// Cells there are.
    pub cells: u32,
    /// Tokens in host memory.
    pub tokens_saved: u64,
    /// Tokens on disk, as far as is known.
    pub tokens_on_disk: u64,
    /// What has happened since the start.
    pub counters: Counters,
    /// What a draft model has done meanwhile, and the cells that it uses now.
    pub draft: (draft::Counters, u32),
    /// When the step under way began, and its rows; none between two steps.
    pub step: Option<(Instant, u32)>,
}

/// The engine, from outside. Dropping the last one ends its thread.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    _end: Arc<End>,
}

struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Engine {
    /// An engine, and the place of its driver.
    #[must_use]
    pub fn new() -> (Self, Seat) {
        let shared = Arc::new(Shared {
            commands: Mutex::default(),
            owners: Mutex::default(),
            abort: Mutex::default(),
            thread: Mutex::default(),
            next: AtomicU64::new(0),
            left: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            vacant: AtomicBool::new(false),
            status: Mutex::default(),
        });
        let end = Arc::new(End(Arc::clone(&shared)));
        (Self { shared: Arc::clone(&shared), _end: end }, Seat { shared })
    }

    /// Hands in a job. It is cancelled when the ticket is dropped.
    ///
    /// # Errors
    /// When too many jobs have come since the last step, or the kernels have failed.
    pub fn generate(&self, mut job: Job) -> Result<Ticket, NotTaken> {
        let id = RequestId(self.shared.next.fetch_add(1, Relaxed));
        job.request.id = id;
        let left = Arc::new(AtomicBool::new(false));
        {
            let mut commands = lock(&self.shared.commands);
            if self.shared.vacant.load(Relaxed) {
                return Err(NotTaken::Failed);
            }
            if commands.len() >= JOBS_MAX {
                return Err(NotTaken::Crowded);
            }
            commands.push(Command::Submit(id, Box::new(job), Arc::clone(&left)));
        }
        self.shared.wake();
        Ok(Ticket { id, left, shared: Arc::clone(&self.shared) })
    }

    /// Whether nobody drives it: its kernels have failed, and others are not set up yet.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.vacant.load(Relaxed)
    }

    /// Ends it, whoever still holds it: its driver puts away what is worth it and returns.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> Status {
        *lock(&self.shared.status)
    }
}

impl Shared {
    pub(super) fn send(&self, command: Command) {
        lock(&self.commands).push(command);
        self.wake();
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.abort();
        self.wake();
    }

    pub(super) fn abort(&self) {
        if let Some(abort) = &*lock(&self.abort) {
            abort();
        }
    }

    pub(super) fn wake(&self) {
        if let Some(thread) = &*lock(&self.thread) {
            thread.unpark();
        }
    }

    /// Aborts the step under way if all of its long runs are for those who have left.
    pub(super) fn on_left(&self) {
        self.left.store(true, Release);
        let owners = lock(&self.owners);
        if !owners.is_empty() && owners.iter().all(|owner| owner.load(Relaxed)) {
            self.abort();
        }
        drop(owners);
        self.wake();
    }
}

/// A poisoned lock guards plain values that are whole all the same.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Status {
    /// How long the step under way has been computing, if it has been longer than `limit`: the
    /// kernels are wedged, or the machine is away.
    #[must_use]
    pub fn wedged(&self, now: Instant, limit: Duration) -> Option<Duration> {
        let (began, _) = self.step?;
        let since = now - began;
        (since > limit).then_some(since)
    }
}
