//! Inference on this machine: the scheduler of `logic` over real kernels.
//!
//! # Layout
//! - [`backend`]: what the engine asks of kernels.
//! - [`fake`]: kernels that compute nothing but tell the truth about memory, in microseconds.
//! - `native`: the real ones, with the feature `kernels`.
//! - [`memory`]: does what a step says, over kernels and host memory.
//! - [`disk`]: prefixes on disk: a directory, and two threads that read and write there.
//! - [`draft`]: a second, smaller model that guesses.
//! - [`driver`]: the one thread: step after step, and each answer hears its tokens.
//! - [`speech`]: one answer being spoken, from its logits to the pieces that its reader takes.
//! - [`vocabulary`]: what tokens mean.
//! - [`template`]: from a conversation to a prompt, as the model's author wrote it down.
//! - [`sample`], [`grammar`]: which token is next, and which may be.
//! - [`text`]: from tokens to text that may be sent.
//! - [`tools`]: what that text says: an answer, thinking, a call.
//!
//! Invariant: no HTTP, and no decision about whose turn it is.

pub mod backend;
pub mod disk;
pub mod draft;
pub mod driver;
pub mod fake;
pub mod grammar;
pub mod memory;
#[cfg(feature = "kernels")]
pub mod native;
pub mod sample;
pub mod speech;
pub mod template;
pub mod text;
pub mod tools;
pub mod vocabulary;
