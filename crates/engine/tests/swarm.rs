//! Hundreds of random lives of the engine over kernels that tell the truth: requests with common
//! beginnings come, leave, pause and guess, in memory that is too small, and steps are aborted. In half of
//! them a draft model guesses, which is right more or less often and has memory of its own. A disk takes its
//! time, fails now and then, loses files, and is what is left after a restart.
//!
//! After every step the books are held against the kernels; at the end every text must be what an
//! engine without any memory would have said. A failing seed is printed, and `SEED=n` replays it.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use firsttoken_engine::backend::{Backend as _, Outcome};
use firsttoken_engine::disk::Job;
use firsttoken_engine::draft::Draft;
use firsttoken_engine::fake::{Fake, Language, Machine, VOCABULARY, text};
use firsttoken_engine::memory::Memory;
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::draft;
use firsttoken_logic::engine::ids::{RequestId, Tenant, Token};
use firsttoken_logic::engine::scheduler::{Counters, DiskLimits, Limits, Scheduler, Step};
use firsttoken_logic::engine::sequence::{Priority, Request};
use firsttoken_logic::engine::shelf::Page;
use firsttoken_logic::engine::speculation::accept;
use firsttoken_logic::time::Instant;

struct World {
    rng: Rng,
    limits: Limits,
    language: Language,
    scheduler: Scheduler,
    memory: Memory<Fake>,
    /// What the disk has still to do, in its order, and what lies there.
    jobs: VecDeque<Job>,
    pages: Vec<(Page, Arc<Vec<u8>>)>,
    /// What was counted before the restart.
    before: Counters,
    draft: Option<Draft<Fake>>,
    /// What a step of the draft takes, and for whom it has guessed.
    draft_step: Duration,
    drafted: BTreeSet<RequestId>,
    /// Prompt, most tokens, and the tokens so far of each request that runs.
    open: BTreeMap<RequestId, (Vec<Token>, usize, Vec<Token>)>,
    prompts: Vec<Vec<Token>>,
    submitted: u64,
    finished: u64,
    sleepless: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let limits = Limits {
            cells: rng.u32(300..3000),
            ids: rng.u16(3..20),
            rows_max: rng.u32(32..600),
            logits_max: rng.u32(16..64),
            running_max: rng.u32(1..16),
            waiting_max: 64,
            wait_max: Duration::from_secs(3600),
            host_tokens_max: rng.u64(0..8000),
            tile: 64,
            prefill_min: rng.u32(1..32),
            whole_only: false,
            disk: rng
                .bool()
                .then(|| DiskLimits { pages_max: rng.usize(1..40), token_bytes: 1 << rng.u32(0..16) }),
        };
        let language = if rng.bool() { Language::Hashed } else { Language::Looping(rng.u32(3..50)) };
        let memory = Memory::new(Fake::new(limits.cells, limits.ids, language, Machine::default()));
        let draft = rng.bool().then(|| {
            let (cells, ids) = (rng.u32(64..4000), rng.u16(1..20));
            let kernels = Fake::new(cells, ids, language, Machine::default()).astray(rng.u64(0..40));
            Draft::new(kernels, StepCost::default())
        });
        Self {
            scheduler: Scheduler::new(limits.clone(), StepCost::default()),
            memory,
            jobs: VecDeque::new(),
            pages: Vec::new(),
            before: Counters::default(),
            draft,
            draft_step: Duration::from_micros(rng.u64(50..8000)),
            drafted: BTreeSet::new(),
            open: BTreeMap::new(),
            prompts: vec![Vec::new()],
            submitted: 0,
            finished: 0,
            sleepless: 0,
            rng,
            limits,
            language,
        }
    }

    fn now(&mut self) -> Instant {
        let spent = self.memory.backend().spent();
        Instant::default() + spent
    }

    /// A prompt that begins as one before did, now and then.
    fn prompt(&mut self) -> Vec<Token> {
        let old = &self.prompts[self.rng.usize(0..self.prompts.len())];
        let mut prompt = old[..self.rng.usize(0..=old.len())].to_vec();
        prompt.extend((0..self.rng.u32(1..400)).map(|_| self.rng.u32(0..VOCABULARY)));
        prompt.truncate(self.limits.cells as usize - 10);
        self.prompts.push(prompt.clone());
        prompt
    }

    fn submit(&mut self) {
        // Mostly short answers: the few long ones break what was forecast, and somebody must make room.
        let output = if self.rng.u32(0..4) > 0 { self.rng.usize(1..20) } else { self.rng.usize(100..800) };
        let prompt = self.prompt();
        let id = RequestId(self.submitted);
        self.submitted += 1;
        let request = Request {
            id,
            tenant: Tenant(self.rng.u64(0..2)),
            prompt: prompt.clone(),
            output_max: u32::try_from(output).expect("a few hundred"),
            priority: if self.rng.bool() { Priority::Interactive } else { Priority::Batch },
            itl_target: self.rng.bool().then_some(Duration::from_millis(100)),
            deadline: None,
        };
        let now = self.now();
        if self.scheduler.on_submit(request, now).is_ok() {
            let output = output.min(self.limits.cells as usize - prompt.len());
            self.open.insert(id, (prompt, output, Vec::new()));
        }
    }

    fn any(&mut self) -> Option<RequestId> {
        let ids: Vec<_> = self.open.keys().copied().collect();
        self.rng.choice(ids)
    }

    fn disturb(&mut self, quiet: bool) {
        if !quiet && self.rng.u32(0..100) < 12 {
            self.submit();
        }
        if self.rng.u32(0..100) < 2
            && let Some(id) = self.any()
        {
            self.scheduler.on_cancel(id);
            self.open.remove(&id);
        }
        if self.rng.u32(0..100) < 5
            && let Some(id) = self.any()
        {
            let paused = !quiet && self.rng.bool();
            self.scheduler.on_pause(id, paused);
        }
        if self.rng.u32(0..100) < 20
            && let Some(id) = self.any()
        {
            let (prompt, _, got) = &self.open[&id];
            let all = [prompt.as_slice(), got].concat();
            let mut guess = text(self.language, &all, 6);
            if self.rng.bool() {
                let wrong = self.rng.usize(0..guess.len());
                guess[wrong] = (guess[wrong] + 1) % VOCABULARY;
            }
            self.scheduler.on_draft(id, guess);
        }
    }

    /// The draft guesses, and its books are its kernels'.
    fn guess(&mut self) {
        let Some(draft) = &mut self.draft else { return };
        let (mut now, step) = (Instant::default(), self.draft_step);
        let clock = || {
            now = now + step;
            now
        };
        let guesses = draft.guess(&self.scheduler.decoding(), clock, |_, _, logits| likeliest(logits));
        for (id, guesses) in guesses.expect("the kernels do not fail") {
            self.drafted.insert(id);
            self.scheduler.on_draft(id, guesses);
        }
        let books = draft.pool().cells();
        let books = (books.used(), books.top());
        assert_eq!(books, draft.backend().cells());
    }

    fn step(&mut self) {
        self.guess();
        let now = self.now();
        let step = self.scheduler.next_step(now);
        assert!(
            step.rows() <= self.limits.rows_max.max(self.limits.ids.into()) + self.limits.prefill_min + 8
        );
        assert!(step.runs.iter().map(|run| run.logits).sum::<u32>() <= self.limits.logits_max);
        let aborted = self.rng.u32(0..100) < 3;
        if aborted && !step.runs.is_empty() {
            let rows = self.rng.u32(0..step.rows());
            self.memory.backend().abort_after(rows);
        }
        let before = self.memory.backend().spent();
        self.jobs.extend(self.memory.operate(&step).expect("the kernels do not fail"));
        let outcome = self.memory.compute(&step).expect("the kernels do not fail");
        let took = self.memory.backend().spent() - before;
        match outcome {
            Outcome::Done => {
                self.scheduler.on_computed(&step, took);
                self.sample(&step);
            }
            Outcome::Aborted => {
                let backend = self.memory.backend();
                self.scheduler.on_aborted(&step, |seq| backend.held(seq));
            }
            Outcome::Full => panic!("the books said that there was room for {} rows", step.rows()),
        }
        self.sleepless = if step.rows() == 0 { self.sleepless + 1 } else { 0 };
        while self.rng.u32(0..100) < 30 && self.work_on_disk() {}
        self.check();
    }

    /// The disk does one thing, or fails at it. Whether there was any.
    fn work_on_disk(&mut self) -> bool {
        let Some(job) = self.jobs.pop_front() else { return false };
        let fails = self.rng.u32(0..100) < 10;
        if self.rng.u32(0..100) < 3 && !self.pages.is_empty() {
            // Another process makes room.
            self.pages.swap_remove(self.rng.usize(0..self.pages.len()));
        }
        match job {
            Job::Write { snapshot, page, bytes } => {
                if !fails {
                    self.pages.retain(|(old, _)| old.name != page.name);
                    self.pages.push((page, bytes));
                }
                self.scheduler.on_written(snapshot, !fails);
            }
            Job::Read { snapshot, name } => {
                let found = self.pages.iter().find(|(page, _)| page.name == name && !fails);
                let took = Duration::from_micros(self.rng.u64(1..100_000));
                if self.scheduler.on_read(snapshot, found.map(|(page, _)| page), took) {
                    let (page, bytes) = found.expect("nothing is taken that was not found");
                    assert!(self.memory.backend().check()(bytes, &page.name.range));
                    self.memory.put(snapshot, bytes.to_vec());
                }
            }
            Job::Touch { .. } => {}
        }
        true
    }

    /// What is worth it is written, and a new engine begins with what lies on disk.
    fn restart(&mut self) {
        let step = self.scheduler.put_away();
        self.jobs.extend(self.memory.operate(&step).expect("the kernels do not fail"));
        while self.work_on_disk() {}
        self.before = self.scheduler.counters();
        let backend = Fake::new(self.limits.cells, self.limits.ids, self.language, Machine::default());
        self.memory = Memory::new(backend);
        self.scheduler = Scheduler::new(self.limits.clone(), StepCost::default());
        let pages: Vec<Page> = self.pages.iter().map(|(page, _)| page.clone()).collect();
        let count = pages.len();
        assert!(self.scheduler.on_found(pages) <= count);
        self.open.clear();
    }

    fn sample(&mut self, step: &Step) {
        let now = self.now();
        let mut row = 0;
        for run in &step.runs {
            let logits = run.logits as usize;
            row += run.tokens.len();
            if logits == 0 || !self.open.contains_key(&run.request) {
                continue;
            }
            let choices: Vec<Token> =
                (row - logits..row).map(|row| likeliest(self.memory.backend().logits(row))).collect();
            let drafts = &run.tokens[run.tokens.len() + 1 - logits..];
            let right = accept(drafts, &choices);
            if self.drafted.remove(&run.request)
                && let Some(draft) = &mut self.draft
            {
                draft.on_verified(run.request, drafts.len(), right);
            }
            let (prompt, output, got) = self.open.get_mut(&run.request).expect("checked above");
            got.extend(&choices[..=right]);
            self.scheduler.on_sampled(run.request, &choices[..=right], false, now);
            if got.len() >= *output {
                assert_eq!(*got, text(self.language, prompt, got.len()), "{:?}", run.request);
                self.open.remove(&run.request);
                self.finished += 1;
            }
        }
    }

    /// The books are the kernels', once these have done what is still to be done.
    fn check(&mut self) {
        let pending = Step { operations: self.scheduler.pending().to_vec(), ..Step::default() };
        let mut kernels = self.memory.clone();
        kernels.step(&pending).expect("the kernels do not fail");
        let books = self.scheduler.pool().cells();
        assert_eq!((books.used(), books.top()), kernels.backend().cells());
    }
}

fn likeliest(logits: &[f32]) -> Token {
    (0..VOCABULARY).find(|token| logits[*token as usize] > 0.0).expect("one is likely")
}

fn live(seed: u64) -> World {
    let mut world = World::new(seed);
    for step in 0..400 {
        world.disturb(false);
        world.step();
        if step == 100 {
            world.restart();
        }
    }
    for _ in 0..20_000 {
        if world.scheduler.is_idle() {
            break;
        }
        world.disturb(true);
        for id in world.open.keys().copied().collect::<Vec<_>>() {
            world.scheduler.on_pause(id, false);
        }
        world.step();
        assert!(world.sleepless < 100, "nothing is computed, and {} requests wait", world.open.len());
    }
    assert!(world.open.is_empty(), "{} requests were never answered", world.open.len());
    world.guess();
    assert!(world.draft.as_ref().is_none_or(|draft| draft.pool().cells().used() == 0), "nobody guesses");
    world
}

#[test]
fn every_text_is_what_it_would_be_without_any_memory() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => seed.parse::<u64>().map_or(0..1, |seed| seed..seed + 1),
        Err(_) => 0..300,
    };
    let (mut finished, mut counters) = (0, Vec::new());
    let mut drafts = draft::Counters::default();
    for seed in seeds.clone() {
        let world = std::panic::catch_unwind(|| live(seed));
        let Ok(world) = world else { panic!("SEED={seed} replays this") };
        finished += world.finished;
        counters.extend([world.before, world.scheduler.counters()]);
        let own = world.draft.map(|draft| draft.counters()).unwrap_or_default();
        drafts.drafted += own.drafted;
        drafts.accepted += own.accepted;
    }
    if seeds.end - seeds.start > 1 {
        assert!(finished > 5_000, "only {finished} texts were checked");
        let sum = |what: fn(&Counters) -> u64| counters.iter().map(what).sum::<u64>();
        let (shared, loaded) = (sum(|c| c.tokens_shared), sum(|c| c.tokens_loaded));
        let (read, written) = (sum(|c| c.tokens_read), sum(|c| c.tokens_written));
        assert!(read > 5_000 && written > 10_000, "{read} read, {written} written");
        let (preemptions, accepted) = (sum(|c| c.preemptions), sum(|c| c.accepted));
        let happened =
            format!("{shared} shared, {loaded} loaded, {preemptions} preemptions, {accepted} guesses");
        assert!(shared > 10_000 && loaded > 10_000 && preemptions > 20 && accepted > 1_000, "{happened}");
        assert!(drafts.accepted > 5_000 && drafts.drafted > drafts.accepted * 11 / 10, "{drafts:?}");
    }
}
