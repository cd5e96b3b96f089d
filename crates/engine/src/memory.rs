//! The kernels, and what was moved out of them: does what a step of the scheduler says, in its order.
//!
//! Invariant: an operation is done exactly once, and what is told to the scheduler is what the
//! kernels said.

use std::collections::BTreeMap;
use std::sync::Arc;

use firsttoken_logic::engine::ids::{SeqId, SnapshotId};
use firsttoken_logic::engine::scheduler::{Operation, Step};

use crate::backend::{Backend, Failed, Outcome, Row};
use crate::disk::Job;

/// Kernels, and what was moved out of them.
#[derive(Clone, Debug)]
pub struct Memory<B> {
    backend: B,
    spare: SeqId,
    snapshots: BTreeMap<SnapshotId, Arc<Vec<u8>>>,
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
        self.operate(step)?;
        self.compute(step)
    }

    /// Does a step's operations: what is left to do is for the disk, and nobody waits for it.
    ///
    /// # Errors
    /// When the kernels fail.
    pub fn operate(&mut self, step: &Step) -> Result<Vec<Job>, Failed> {
        let mut jobs = Vec::new();
        for operation in &step.operations {
            jobs.extend(self.one(operation)?);
        }
        Ok(jobs)
    }

    /// What was read from disk for a snapshot.
    pub fn put(&mut self, snapshot: SnapshotId, bytes: Vec<u8>) {
        self.snapshots.insert(snapshot, Arc::new(bytes));
    }

    /// Computes a step's rows, when its operations are done.
    ///
    /// # Errors
    /// When the kernels fail.
    pub fn compute(&mut self, step: &Step) -> Result<Outcome, Failed> {
        if step.runs.is_empty() {
            return Ok(Outcome::Done);
        }
        self.backend.decode(&rows(step))
    }

    fn one(&mut self, operation: &Operation) -> Result<Option<Job>, Failed> {
        let saved = |snapshot| {
            let missing = || Failed { what: format!("{snapshot:?} was never saved") };
            self.snapshots.get(snapshot).ok_or_else(missing)
        };
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
                self.snapshots.insert(*snapshot, Arc::new(bytes));
            }
            Operation::Load { snapshot, seq } => {
                let bytes = Arc::clone(saved(snapshot)?);
                self.backend.load(*seq, &bytes)?;
            }
            Operation::Forget { snapshot } => {
                self.snapshots.remove(snapshot);
            }
            Operation::Write { snapshot, page } => {
                let bytes = Arc::clone(saved(snapshot)?);
                return Ok(Some(Job::Write { snapshot: *snapshot, page: page.clone(), bytes }));
            }
            Operation::Read { snapshot, name } => {
                return Ok(Some(Job::Read { snapshot: *snapshot, name: name.clone() }));
            }
            Operation::Touch { name } => return Ok(Some(Job::Touch { name: name.clone() })),
        }
        Ok(None)
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
