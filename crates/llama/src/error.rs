//! What can go wrong: the file, the machine, the caller, the kernels.
//!
//! Invariant: after a [`Misuse`] nothing has changed.

use std::path::PathBuf;

use crate::gguf::Problem;
use crate::saved::Fault;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no model that we can run.
    #[error("{}: {problem}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: Problem,
    },
    /// The file is sound, and the kernels do not take it: an architecture that they do not know, a
    /// tensor that it should have, too little memory.
    #[error("{}: the kernels refuse this model: {said}", path.display())]
    Refused {
        /// Which file.
        path: PathBuf,
        /// What they said.
        said: String,
    },
    /// Whoever watched the progress stopped it.
    #[error("loading was stopped")]
    Stopped,
    /// This machine cannot run the kernels as they were built.
    #[error(
        "this processor has no {missing}, for which the kernels of this binary were built\nhint: build it on this machine with GGML_{missing}=OFF in the environment"
    )]
    Processor {
        /// The extension that is missing, as the kernels' build calls it.
        missing: &'static str,
    },
    /// A context cannot be made.
    #[error("the kernels cannot make a context of {cells} cells: {said}")]
    NoContext {
        /// How many cells were asked for.
        cells: u32,
        /// What they said; mostly that memory is short.
        said: String,
    },
    /// The model cannot do what is asked of it.
    #[error("this model {0}")]
    Unable(&'static str),
    /// The caller broke a rule; nothing was done.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// Bytes that are no saved sequence of this context.
    #[error("this saved sequence cannot be loaded: {0}")]
    Saved(#[from] Fault),
    /// The kernels failed within a step. What was held is uncertain: drop every sequence of the batch.
    #[error("the kernels failed with {code}: {said}")]
    Failed {
        /// Their code.
        code: i32,
        /// What they said.
        said: String,
    },
}

/// A rule that a caller broke. Checked before the kernels see the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// A batch without rows.
    #[error("a batch has at least one row")]
    NoRows,
    /// More rows than a batch may have.
    #[error("a batch of {rows} rows; {max} at most")]
    Rows {
        /// Rows of the batch.
        rows: usize,
        /// Rows that are allowed.
        max: u32,
    },
    /// More rows with logits than there is room for.
    #[error("{outputs} rows want logits; {max} at most")]
    Outputs {
        /// Rows that want logits.
        outputs: usize,
        /// Rows that may.
        max: u32,
    },
    /// A sequence id that the context does not have.
    #[error("sequence {sequence}; ids are below {ids}")]
    Sequence {
        /// The id.
        sequence: u32,
        /// How many there are.
        ids: u32,
    },
    /// A token that the vocabulary does not have.
    #[error("row {row}: token {token}; the vocabulary has {vocabulary}")]
    Token {
        /// Row of the batch, from 0; 0 where there is no batch.
        row: usize,
        /// The token.
        token: u32,
        /// Tokens of the vocabulary.
        vocabulary: u32,
    },
    /// A row that does not continue its sequence.
    #[error("row {row}: position {position} of sequence {sequence}, which continues at {expected}")]
    Position {
        /// Row of the batch, from 0.
        row: usize,
        /// Its sequence.
        sequence: u32,
        /// Its position.
        position: u32,
        /// Where the sequence continues.
        expected: u32,
    },
    /// A range that the source does not hold, or that the destination cannot continue with.
    #[error("positions {start}..{end} of sequence {from} cannot be shared with sequence {to}")]
    Range {
        /// The source.
        from: u32,
        /// The destination.
        to: u32,
        /// First position.
        start: u32,
        /// Behind the last position.
        end: u32,
    },
    /// A sequence that holds nothing.
    #[error("sequence {sequence} holds nothing")]
    Empty {
        /// The id.
        sequence: u32,
    },
    /// A sequence that holds something already.
    #[error("sequence {sequence} is in use; drop it first")]
    InUse {
        /// The id.
        sequence: u32,
    },
    /// Sizes that a context cannot have.
    #[error("`{setting}` is {value}; {least} to {most} can be")]
    Setting {
        /// Which one.
        setting: &'static str,
        /// What it is.
        value: u32,
        /// What it may be at least.
        least: u32,
        /// What it may be at most.
        most: u32,
    },
    /// A text of more bytes than the kernels can count.
    #[error("a text of {bytes} bytes is too long")]
    Text {
        /// Its length.
        bytes: usize,
    },
}
