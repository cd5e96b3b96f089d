//! An engine on the modelled machine, and a script of who asks when.

use std::collections::BTreeMap;
use std::time::Duration;

use firsttoken_engine::backend::{Backend as _, Outcome};
use firsttoken_engine::fake::{Fake, Language, Machine, text};
use firsttoken_engine::memory::Memory;
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::ids::{RequestId, Tenant, Token};
use firsttoken_logic::engine::scheduler::{Limits, Refusal, Scheduler, Step};
use firsttoken_logic::engine::sequence::{Priority, Request};
use firsttoken_logic::time::Instant;

/// When each token of a request came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) asked: Duration,
    pub(crate) prompt: Vec<Token>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) at: Vec<Duration>,
    /// How often it was sent away before.
    pub(crate) refused: u32,
}

impl Answer {
    pub(crate) fn ttft(&self) -> Duration {
        self.at[0] - self.asked
    }

    pub(crate) fn gaps(&self) -> impl Iterator<Item = Duration> {
        self.at.windows(2).map(|pair| pair[1] - pair[0])
    }
}

/// An engine on the modelled machine, and a script of who asks when.
pub(crate) struct Engine {
    pub(crate) scheduler: Scheduler,
    pub(crate) memory: Memory<Fake>,
    pub(crate) script: Vec<(Duration, Request)>,
    pub(crate) answers: BTreeMap<u64, Answer>,
    /// Who came back at its time, and how many of them were taken then.
    pub(crate) returned: (u32, u32),
    idle: Duration,
    asked: u64,
}

impl Engine {
    pub(crate) fn new(limits: Limits) -> Self {
        let fake = Fake::new(limits.cells, limits.ids, Language::Hashed, Machine::default());
        Self {
            scheduler: Scheduler::new(limits, StepCost::default()),
            memory: Memory::new(fake),
            script: Vec::new(),
            answers: BTreeMap::new(),
            returned: (0, 0),
            idle: Duration::ZERO,
            asked: 0,
        }
    }

    pub(crate) fn now(&mut self) -> Duration {
        self.memory.backend().spent() + self.idle
    }

    pub(crate) fn ask(&mut self, at: Duration, prompt: Vec<Token>, output_max: u32) -> u64 {
        let id = self.asked;
        self.asked += 1;
        let request = Request {
            id: RequestId(id),
            tenant: Tenant(0),
            prompt,
            output_max,
            priority: Priority::Interactive,
            itl_target: Some(Duration::from_millis(100)),
            deadline: None,
        };
        self.script.push((at, request));
        id
    }

    pub(crate) fn arrive(&mut self) {
        let now = self.now();
        let (due, later) = std::mem::take(&mut self.script).into_iter().partition(|(at, _)| *at <= now);
        self.script = later;
        let due: Vec<(Duration, Request)> = due;
        for (asked, request) in due {
            let id = request.id.0;
            let prompt = request.prompt.clone();
            let refused = self.answers.get(&id).map_or(0, |before| before.refused);
            let answer = Answer { asked, prompt, tokens: Vec::new(), at: Vec::new(), refused };
            let answer = self.answers.entry(id).insert_entry(answer).into_mut();
            let judged = self.scheduler.on_submit(request.clone(), Instant::default() + now);
            if answer.refused > 0 {
                self.returned.0 += 1;
                self.returned.1 += u32::from(judged.is_ok());
            }
            if let Err(refusal) = judged {
                let Refusal::Busy { retry_after } = refusal else { panic!("{refusal:?}") };
                answer.refused += 1;
                self.script.push((now + retry_after, request));
            }
        }
    }

    /// Runs until everybody has an answer.
    pub(crate) fn run(&mut self) {
        while !self.script.is_empty() || !self.scheduler.is_idle() {
            self.arrive();
            if self.scheduler.is_idle() {
                // What can be done ahead is done in the pause.
                for _ in 0..100 {
                    let _ = self.step();
                }
                let next = self.script.iter().map(|(at, _)| *at).min().expect("somebody will ask");
                self.rest_until(next);
                continue;
            }
            let _ = self.step();
        }
        for answer in self.answers.values() {
            assert_eq!(answer.tokens, text(Language::Hashed, &answer.prompt, answer.tokens.len()));
        }
    }

    /// Nothing happens before then.
    pub(crate) fn rest_until(&mut self, at: Duration) {
        let now = self.now();
        self.idle += at.saturating_sub(now);
    }

    /// One step: what was planned.
    pub(crate) fn step(&mut self) -> Step {
        let before = self.now();
        let step = self.scheduler.next_step(Instant::default() + before);
        assert_eq!(self.memory.step(&step).expect("the kernels do not fail"), Outcome::Done);
        let now = self.now();
        self.scheduler.on_computed(&step, now - before);
        let mut row = 0;
        for run in &step.runs {
            row += run.tokens.len();
            if run.logits > 0 {
                let logits = self.memory.backend().logits(row - 1);
                let token = logits.iter().position(|logit| *logit > 0.0).expect("one is likely");
                let token = Token::try_from(token).expect("a token");
                let answer = self.answers.get_mut(&run.request.0).expect("it was asked");
                answer.tokens.push(token);
                answer.at.push(now);
                self.scheduler.on_sampled(run.request, &[token], false, Instant::default() + now);
            }
        }
        step
    }
}

pub(crate) fn prompt(seed: u32, len: u32) -> Vec<Token> {
    (0..len).map(|at| (seed.wrapping_mul(2_654_435_761) ^ at.wrapping_mul(40_503)) % 256).collect()
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
