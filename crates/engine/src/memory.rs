//! The kernels, and what was moved out of them: does what a step of the scheduler says, in its order.
//!
//! Invariant: an operation is done exactly once, and what is told to the scheduler is what the
//! kernels said.

use std::collections::BTreeMap;

use firsttoken_logic::engine::ids::{SeqId, SnapshotId};
use firsttoken_logic::engine::scheduler::{Operation, Step};

use crate::backend::{Backend, Failed, Outcome, Row};

/// Kernels, and what was moved out of them.
#[derive(Clone, Debug)]
pub struct Memory<B> {
    backend: B,
    spare: SeqId,
    snapshots: BTreeMap<SnapshotId, Vec<u8>>,
}

impl<B: Backend> Memory<B> {
    /// Over empty kernels.
    pub fn new(backend: B) -> Self {
        let spare = SeqId(backend.capabilities().ids.saturating_sub(1));
        Self { backend, spare, snapshots: BTreeMap::new() }
    }

    /// The kernels.
    pub const fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Does a step's operations, then computes its rows. Nothing is computed for a step without.
    ///
    /// # Errors
    /// When the kernels fail.
    pub fn step(&mut self, step: &Step) -> Result<Outcome, Failed> {
        for operation in &step.operations {
            self.operate(operation)?;
        }
        if step.runs.is_empty() {
            return Ok(Outcome::Done);
        }
        self.backend.decode(&rows(step))
    }

    fn operate(&mut self, operation: &Operation) -> Result<(), Failed> {
        match operation {
            Operation::Share { from, to, range } => self.backend.share(*from, *to, range.clone())?,
            Operation::Truncate { seq, end } => self.backend.truncate(*seq, *end)?,
            Operation::Drop { seq } => self.backend.drop_seq(*seq)?,
            Operation::Save { seq, range, snapshot } => {
                let whole = range.start == 0 && range.end == self.backend.held(*seq);
                let bytes = if whole {
                    self.backend.save(*seq)?
                } else {
                    // Only whole sequences are saved: the piece becomes one for a moment.
                    self.backend.share(*seq, self.spare, range.clone())?;
                    let bytes = self.backend.save(self.spare);
                    self.backend.drop_seq(self.spare)?;
                    bytes?
                };
                self.snapshots.insert(*snapshot, bytes);
            }
            Operation::Load { snapshot, seq } => {
                let missing = || Failed { what: format!("{snapshot:?} was never saved") };
                let bytes = self.snapshots.get(snapshot).ok_or_else(missing)?;
                self.backend.load(*seq, bytes)?;
            }
            Operation::Forget { snapshot } => {
                self.snapshots.remove(snapshot);
            }
        }
        Ok(())
    }
}

/// The rows of a step, as the kernels want them.
fn rows(step: &Step) -> Vec<Row> {
    let mut rows = Vec::with_capacity(step.rows() as usize);
    for run in &step.runs {
        let quiet = run.tokens.len() - run.logits as usize;
        for (at, (position, token)) in (run.start..).zip(&run.tokens).enumerate() {
            rows.push(Row { seq: run.seq, position, token: *token, logits: at >= quiet });
        }
    }
    rows
}
