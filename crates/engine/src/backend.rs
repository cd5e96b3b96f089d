//! What the engine asks of kernels.
//!
//! One thread owns a backend. It holds sequences of tokens as keys and values in cells, which several
//! sequences may share, and computes rows for them.
//!
//! Invariant: nothing changes but by these calls, so the books of `logic` stay exact.

use core::ops::Range;
use std::sync::Arc;

use firsttoken_logic::engine::ids::{SeqId, Token};

/// One token of one sequence, to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose.
    pub seq: SeqId,
    /// Its place, from zero; one past what the sequence holds, or past the row before.
    pub position: u32,
    /// What stands there.
    pub token: Token,
    /// Whether somebody asks what comes next.
    pub logits: bool,
}

/// What came of a decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All rows are computed.
    Done,
    /// The cells lack; nothing is done.
    Full,
    /// Somebody asked to stop. Some rows may be computed: ask [`Backend::held`].
    Aborted,
}

/// What a backend can do, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Cells of the context.
    pub cells: u32,
    /// Sequences that it tells apart.
    pub ids: u16,
    /// Most rows of one decode.
    pub rows_max: u32,
    /// Most rows of one decode that may want logits.
    pub logits_max: u32,
    /// Tokens in its vocabulary: the length of logits.
    pub vocabulary: u32,
    /// Whether part of a sequence can be shared, saved or cut off.
    pub partial: bool,
    /// Bytes of a token's keys and values.
    pub token_bytes: u32,
}

/// Something the kernels cannot do, or did not survive.
#[derive(Debug, thiserror::Error)]
#[error("the kernels failed: {what}")]
pub struct Failed {
    /// In their words.
    pub what: String,
}

/// Says, on any thread, whether bytes are a saved sequence that can be loaded and holds these positions.
pub type Check = Arc<dyn Fn(&[u8], &Range<u32>) -> bool + Send + Sync>;

/// Kernels. See the module.
pub trait Backend {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Computes rows together.
    ///
    /// # Errors
    /// When the kernels fail; what the sequences hold is then unknown.
    fn decode(&mut self, rows: &[Row]) -> Result<Outcome, Failed>;

    /// The logits of the row at that place of the last decode, which asked for them and was done.
    fn logits(&mut self, row: usize) -> &[f32];

    /// `to` holds what `from` holds at `range`.
    ///
    /// # Errors
    /// When `from` does not hold it, or `to` does not end where it begins.
    fn share(&mut self, from: SeqId, to: SeqId, range: Range<u32>) -> Result<(), Failed>;

    /// `seq` keeps what lies before `end`.
    ///
    /// # Errors
    /// When the kernels cannot cut it.
    fn truncate(&mut self, seq: SeqId, end: u32) -> Result<(), Failed>;

    /// `seq` holds nothing any more.
    ///
    /// # Errors
    /// When there is no such sequence.
    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Failed>;

    /// All that `seq` holds, as bytes that only [`Backend::load`] understands.
    ///
    /// # Errors
    /// When the kernels fail.
    fn save(&mut self, seq: SeqId) -> Result<Vec<u8>, Failed>;

    /// Puts saved bytes into `seq`, which holds nothing.
    ///
    /// # Errors
    /// When the bytes are no sequence, or the cells lack.
    fn load(&mut self, seq: SeqId, bytes: &[u8]) -> Result<(), Failed>;

    /// Tells whether saved bytes can be loaded: the same model, kind of memory, and build. Equal in every
    /// process.
    fn fingerprint(&self) -> u64;

    /// What tells sound bytes from others before they are loaded.
    fn check(&self) -> Check;

    /// One past the last position that `seq` holds.
    fn held(&self, seq: SeqId) -> u32;
}
