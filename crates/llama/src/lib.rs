//! llama.cpp's kernels behind a small safe boundary.
//!
//! - [`gguf`]: the header of a model file, read before the kernels see it
//! - [`Model`]: weights, vocabulary, and what the file says about itself; shared by contexts
//! - [`Context`]: KV memory for many sequences, and steps over batches of rows
//! - [`Embedder`]: embeddings of texts
//!
//! The kernels answer a caller's mistake with an assertion, which ends the process, or with a wrong
//! answer. So every call is checked first, and a mistake is a [`Misuse`] with nothing done. Nothing here
//! schedules, samples or keeps books: that is the engine's.
//!
//! Without the feature `kernels` only [`gguf`] is left, and no C++ is compiled.
//!
//! Invariant: no safe call ends the process. Unsafe code, and C++, are in `raw` alone.

pub mod gguf;

#[cfg(feature = "kernels")]
mod context;
#[cfg(feature = "kernels")]
mod embedder;
#[cfg(feature = "kernels")]
mod error;
#[cfg(feature = "kernels")]
mod model;
#[cfg(feature = "kernels")]
mod processor;
#[cfg(feature = "kernels")]
mod raw;
#[cfg(feature = "kernels")]
mod saved;
#[cfg(feature = "kernels")]
mod segments;

#[cfg(feature = "kernels")]
pub use self::{
    context::{AbortHandle, Capabilities, Context, KvType, Outcome, Row, Settings, Threads},
    embedder::Embedder,
    error::{Error, Misuse},
    model::{HAS_GPU, Load, Markup, Model, Specials},
    saved::Fault,
};

/// How much a line of the kernels' log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For who works on the kernels.
    Debug,
    /// What they do.
    Info,
    /// What they would rather not do.
    Warn,
    /// What they could not do.
    Error,
}

/// Takes a line of the kernels' log.
pub type LogHook = fn(Level, &str);

/// Sends the kernels' log to `hook`; they are silent before. Only the first call counts: `false` says
/// that there was one before.
#[cfg(feature = "kernels")]
pub fn set_log(hook: LogHook) -> bool {
    raw::LOG.set(hook).is_ok()
}
