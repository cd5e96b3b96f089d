//! The engine's one thread: asks the scheduler for a step, has it computed, lets each answer choose
//! its next token, and tells the scheduler.
//!
//! Callers meet it through [`Engine`]: [`Engine::generate`] sends a job, and the job's own
//! [`Answer`] hears of every token on the engine's thread. Nobody ever waits for that thread: it
//! takes commands between two steps, and sees who has left by a flag.
//!
//! Invariant: an answer hears its tokens in their order, each once, and nothing after its end.

mod callers;
mod disk;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed},
};

use firsttoken_logic::engine::ids::{RequestId, Token};
use firsttoken_logic::engine::scheduler::{Run, Scheduler, Step};
use firsttoken_logic::engine::speculation::{Length, Lookup};
use firsttoken_logic::time::Instant;

use crate::backend::{Backend, Failed, Outcome};
use crate::disk::Disk;
use crate::draft::Draft;
use crate::memory::Memory;
pub use callers::{Answer, Engine, Flow, Job, NotTaken, Refused, Status, Ticket};
use callers::{Command, Shared, lock};

/// Rows of one request from which on a step is worth aborting when that request leaves.
const ABORT_ROWS_MIN: usize = 64;

/// The place of an engine's driver. Whoever holds it may put one driver there after another: where the
/// kernels have failed the next one begins with empty kernels, and callers keep their engine.
pub struct Seat {
    shared: Arc<Shared>,
}

impl Seat {
    /// A driver over `backend`; give it a thread ([`Driver::run`]), or a loop over [`Driver::step`].
    /// `abort` ends the step that the backend computes, if there is one.
    pub fn driver<B: Backend, C: FnMut() -> Instant>(
        &self,
        backend: B,
        scheduler: Scheduler,
        abort: impl Fn() + Send + Sync + 'static,
        clock: C,
    ) -> Driver<B, C> {
        *lock(&self.shared.abort) = Some(Box::new(abort));
        self.shared.vacant.store(false, Relaxed);
        let (shared, memory) = (Arc::clone(&self.shared), Memory::new(backend));
        Driver { shared, scheduler, memory, disk: None, draft: None, clock, open: BTreeMap::new() }
    }

    /// Whether anybody can still ask.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        !self.shared.stop.load(Relaxed)
    }
}

/// A job that is not over.
struct Open {
    answer: Box<dyn Answer>,
    left: Arc<AtomicBool>,
    works: bool,
    started: bool,
    /// Tokens that it may still say.
    room: u32,
    /// Prompt and answer, where guesses are looked up in them.
    tokens: Vec<Token>,
    guesses: Option<(Length, Lookup)>,
    /// Its next guesses are a draft model's.
    drafted: bool,
}

/// Whatever ends a driver, a panic too, leaves nobody waiting for it.
impl<B, C> Drop for Driver<B, C> {
    fn drop(&mut self) {
        *lock(&self.shared.abort) = None;
        let mut commands = lock(&self.shared.commands);
        self.shared.vacant.store(true, Relaxed);
        for command in commands.drain(..) {
            if let Command::Submit(_, mut job, _) = command {
                job.answer.on_refused(Refused::Failed("the engine has ended".to_owned()));
            }
        }
    }
}

/// Who is told that a draft model has failed.
type OnFailed = Box<dyn Fn(&Failed) + Send>;

/// The loop. See the module.
pub struct Driver<B, C> {
    shared: Arc<Shared>,
    scheduler: Scheduler,
    memory: Memory<B>,
    disk: Option<Disk>,
    draft: Option<(Draft<B>, OnFailed)>,
    clock: C,
    open: BTreeMap<RequestId, Open>,
}

/// What [`Driver::step`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// Something was done; there may be more.
    Worked,
    /// There is nothing to do until somebody asks for something.
    Idle,
    /// Nobody can ask any more.
    Over,
}

impl<B: Backend, C: FnMut() -> Instant> Driver<B, C> {
    /// Lets a draft model guess. If its kernels fail it is told once, and the work goes on without.
    #[must_use]
    pub fn with_draft(mut self, draft: Draft<B>, on_failed: impl Fn(&Failed) + Send + 'static) -> Self {
        self.draft = Some((draft, Box::new(on_failed)));
        self
    }

    /// Works until the last [`Engine`] is dropped.
    ///
    /// # Errors
    /// When the kernels fail: everybody has been told.
    pub fn run(mut self) -> Result<(), Failed> {
        *lock(&self.shared.thread) = Some(std::thread::current());
        loop {
            match self.step()? {
                Stepped::Worked => {}
                Stepped::Idle => match self.scheduler.wakes_at() {
                    Some(at) => std::thread::park_timeout(at - (self.clock)()),
                    None => std::thread::park(),
                },
                Stepped::Over => return Ok(()),
            }
        }
    }

    /// One step.
    ///
    /// # Errors
    /// When the kernels fail: everybody has been told.
    pub fn step(&mut self) -> Result<Stepped, Failed> {
        self.take_commands();
        if self.shared.stop.load(Relaxed) {
            self.put_away();
            return Ok(Stepped::Over);
        }
        self.draft();
        let began = (self.clock)();
        let step = self.scheduler.next_step(began);
        for (id, why) in &step.refused {
            self.refuse(*id, Refused::Scheduler(*why));
        }
        if step.is_empty() {
            self.publish(None);
            return Ok(Stepped::Idle);
        }
        self.begin(&step, began);
        let outcome = self.compute(&step);
        let took = (self.clock)() - began;
        lock(&self.shared.owners).clear();
        match outcome {
            Ok(Outcome::Done) => {
                self.scheduler.on_computed(&step, took);
                self.hear(&step, began + took);
            }
            Ok(Outcome::Aborted) => {
                let backend = self.memory.backend();
                self.scheduler.on_aborted(&step, |seq| backend.held(seq));
            }
            Ok(Outcome::Full) => return Err(self.fail("the cells lack that the books say are free")),
            Err(failed) => return Err(self.fail(&failed.what)),
        }
        self.publish(None);
        Ok(Stepped::Worked)
    }

    fn take_commands(&mut self) {
        self.hear_disk();
        let commands = std::mem::take(&mut *lock(&self.shared.commands));
        for command in commands {
            match command {
                Command::Submit(id, job, left) => self.submit(id, *job, left),
                Command::Resume(id) => self.scheduler.on_pause(id, false),
            }
        }
        if self.shared.left.swap(false, Acquire) {
            let left: Vec<RequestId> =
                self.open.iter().filter(|(_, open)| open.left.load(Relaxed)).map(|(id, _)| *id).collect();
            for id in left {
                self.open.remove(&id);
                self.scheduler.on_cancel(id);
            }
        }
    }

    fn submit(&mut self, id: RequestId, job: Job, left: Arc<AtomicBool>) {
        let guesses = (job.guesses_max > 0).then(|| (Length::new(job.guesses_max), Lookup::default()));
        let tokens = if guesses.is_some() { job.request.prompt.clone() } else { Vec::new() };
        let now = (self.clock)();
        let mut answer = job.answer;
        match self.scheduler.on_submit(job.request, now) {
            Ok(room) => {
                let (works, started, drafted) = (false, false, false);
                self.open.insert(id, Open { answer, left, works, started, room, tokens, guesses, drafted });
            }
            Err(why) => answer.on_refused(Refused::Scheduler(why)),
        }
    }

    fn refuse(&mut self, id: RequestId, why: Refused) {
        if let Some(mut open) = self.open.remove(&id) {
            open.answer.on_refused(why);
        }
    }

    /// Where nothing is looked up the draft model guesses, if there is one.
    fn draft(&mut self) {
        if self.draft.is_some() {
            // Its steps count as one: they may be stuck, too.
            let now = (self.clock)();
            self.publish(Some((now, 0)));
        }
        let Some((draft, on_failed)) = &mut self.draft else { return };
        let open = &mut self.open;
        let choose = |id: RequestId, ahead, logits: &[f32]| {
            open.get_mut(&id).map_or(0, |open| open.answer.guess(logits, ahead))
        };
        match draft.guess(&self.scheduler.decoding(), &mut self.clock, choose) {
            Ok(guesses) => {
                for (id, guesses) in guesses {
                    if let Some(open) = self.open.get_mut(&id) {
                        open.drafted = true;
                    }
                    self.scheduler.on_draft(id, guesses);
                }
            }
            Err(failed) => {
                on_failed(&failed);
                self.draft = None;
            }
        }
    }

    /// Tells everybody that their answers end here.
    fn fail(&mut self, what: &str) -> Failed {
        for (_, mut open) in std::mem::take(&mut self.open) {
            open.answer.on_refused(Refused::Failed(what.to_owned()));
        }
        Failed { what: what.to_owned() }
    }

    /// Lets those who leave stop the step, if it is all theirs.
    fn begin(&mut self, step: &Step, began: Instant) {
        for run in &step.runs {
            if let Some(open) = self.open.get_mut(&run.request)
                && !std::mem::replace(&mut open.works, true)
            {
                open.answer.on_work();
            }
        }
        let long = step.runs.iter().filter(|run| run.tokens.len() >= ABORT_ROWS_MIN);
        let owners: Vec<_> =
            long.filter_map(|run| self.open.get(&run.request)).map(|open| Arc::clone(&open.left)).collect();
        *lock(&self.shared.owners) = owners;
        self.publish(Some((began, step.rows())));
    }

    /// Each answer chooses from its logits: guesses stand as far as it would have said the same.
    fn hear(&mut self, step: &Step, now: Instant) {
        let mut row = 0;
        for run in &step.runs {
            row += run.tokens.len();
            if run.logits > 0 {
                self.hear_run(run, row - run.logits as usize, now);
            }
        }
    }

    fn hear_run(&mut self, run: &Run, first: usize, now: Instant) {
        let Some(open) = self.open.get_mut(&run.request) else { return };
        if !open.started {
            open.started = true;
            open.answer.on_start(self.scheduler.cached(run.request).unwrap_or_default());
        }
        let guesses = &run.tokens[run.tokens.len() + 1 - run.logits as usize..];
        let (mut said, mut flow) = (Vec::with_capacity(1), Flow::More);
        for at in 0..run.logits as usize {
            let token = open.answer.choose(self.memory.backend().logits(first + at));
            said.push(token);
            open.room -= 1;
            flow = open.answer.on_token(token, open.room == 0);
            flow = if open.room == 0 { Flow::End } else { flow };
            if flow == Flow::End || guesses.get(at) != Some(&token) {
                break;
            }
        }
        let end = flow == Flow::End;
        let drafted = std::mem::take(&mut open.drafted);
        if drafted && let Some((draft, _)) = &mut self.draft {
            draft.on_verified(run.request, guesses.len(), said.len() - 1);
        }
        if let Some((length, lookup)) = &mut open.guesses {
            let count = |tokens: usize| u32::try_from(tokens).unwrap_or(u32::MAX);
            if !drafted {
                length.on_verified(count(guesses.len()), count(said.len() - 1));
            }
            open.tokens.extend(&said);
            let guesses = lookup.guess(&open.tokens, length.on_step());
            self.scheduler.on_sampled(run.request, &said, end, now);
            self.scheduler.on_draft(run.request, guesses);
        } else {
            self.scheduler.on_sampled(run.request, &said, end, now);
        }
        match flow {
            Flow::More => {}
            Flow::Pause => self.scheduler.on_pause(run.request, true),
            Flow::End => drop(self.open.remove(&run.request)),
        }
    }

    fn publish(&self, step: Option<(Instant, u32)>) {
        let pool = self.scheduler.pool();
        *lock(&self.shared.status) = Status {
            running: self.scheduler.running(),
            waiting: self.scheduler.waiting(),
            cells_used: pool.cells().used(),
            cells_idle: pool.idle(),
            cells: pool.cells().total(),
            tokens_saved: self.scheduler.tokens_saved(),
            tokens_on_disk: self.scheduler.tokens_on_disk(),
            counters: self.scheduler.counters(),
            draft: self
                .draft
                .as_ref()
                .map_or_else(Default::default, |(draft, _)| (draft.counters(), draft.pool().cells().used())),
            step,
        };
    }
}
