//! A draft model over kernels of its own: does what its mind in `logic` says, and guesses.
//!
//! Invariant: a round ends with the kernels as the books say, or with an error after which it is not asked
//! again.

use firsttoken_logic::engine::blocks::Pool;
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::draft::{Counters, Decoding, Drafter, Limits};
use firsttoken_logic::engine::ids::{RequestId, Token};
use firsttoken_logic::engine::scheduler::Step;
use firsttoken_logic::time::Instant;

use crate::backend::{Backend, Failed, Outcome};
use crate::memory::Memory;

/// Most guesses of a draft at once; no more than an answer takes in one step.
const GUESSES_MAX: u32 = 16;
const _: () = assert!(GUESSES_MAX <= crate::speech::GUESSES_MAX);

/// A draft model. See the module.
#[derive(Clone, Debug)]
pub struct Draft<B> {
    drafter: Drafter,
    memory: Memory<B>,
}

impl<B: Backend> Draft<B> {
    /// Over empty kernels that can share and cut. `cost` is a first guess at what their steps cost.
    pub fn new(backend: B, cost: StepCost) -> Self {
        let can = backend.capabilities();
        let limits = Limits {
            cells: can.cells,
            // As many may guess together as may want logits.
            ids: can.ids.min(u16::try_from(can.logits_max).unwrap_or(u16::MAX)),
            rows_max: can.rows_max,
            vocabulary: can.vocabulary,
            guesses_max: GUESSES_MAX,
        };
        Self { drafter: Drafter::new(limits, cost), memory: Memory::new(backend) }
    }

    /// Guesses at the next tokens of those who decode, none for some. `choose` is told for whom, how many
    /// guesses stand before this one, and the draft's logits.
    ///
    /// # Errors
    /// When the kernels fail; what they hold is then unknown.
    pub fn guess(
        &mut self,
        decoding: &Decoding<'_>,
        mut clock: impl FnMut() -> Instant,
        mut choose: impl FnMut(RequestId, u32, &[f32]) -> Token,
    ) -> Result<Vec<(RequestId, Vec<Token>)>, Failed> {
        self.drafter.begin(decoding);
        while let Some(step) = self.drafter.next_step() {
            let began = clock();
            self.compute(&step)?;
            let mut row = 0;
            for run in &step.runs {
                row += run.tokens.len();
                if run.logits > 0 {
                    let ahead = self.drafter.guessed(run.request);
                    let token = choose(run.request, ahead, self.memory.backend().logits(row - 1));
                    self.drafter.on_guess(run.request, token);
                }
            }
            self.drafter.on_computed(&step, clock() - began);
        }
        Ok(self.drafter.finish())
    }

    /// Of its guesses for `request`, `guessed` were verified and `right` were right.
    pub fn on_verified(&mut self, request: RequestId, guessed: usize, right: usize) {
        let count = |tokens: usize| u32::try_from(tokens).unwrap_or(u32::MAX);
        self.drafter.on_verified(request, count(guessed), count(right));
    }

    /// What it has done so far.
    pub const fn counters(&self) -> Counters {
        self.drafter.counters()
    }

    /// The books over its kernels' memory.
    pub const fn pool(&self) -> &Pool {
        self.drafter.pool()
    }

    /// Its kernels.
    pub const fn backend(&mut self) -> &mut B {
        self.memory.backend()
    }

    fn compute(&mut self, step: &Step) -> Result<(), Failed> {
        match self.memory.step(step)? {
            Outcome::Done => Ok(()),
            Outcome::Full => {
                Err(Failed { what: "the draft's cells lack that its books say are free".into() })
            }
            Outcome::Aborted => Err(Failed { what: "the draft was aborted".into() }),
        }
    }
}
