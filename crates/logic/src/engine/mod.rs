//! The engine's mind: what the next step computes, for whom, and what stays in memory.
//!
//! One idea holds it together: each request's *computed* count catches up with its *token* count.
//! Prefill in chunks, a prefix that somebody else computed, decode, and the verification of drafts
//! are the same step.
//!
//! # Layout
//! - [`ids`]: names of things.
//! - [`cells`], [`blocks`]: the exact books over the kernels' memory.
//! - [`prefix`]: who has computed the beginning of this prompt already.
//! - `tier`: prefixes in host memory, and those on disk; [`shelf`]: their files.
//! - [`cost`]: what a step costs, learnt while it runs.
//! - [`sequence`]: one request.
//! - [`scheduler`]: the next step.
//! - [`speculation`]: guesses out of the text itself, and which guesses count.
//! - [`draft`]: guesses by a second, smaller model.
//!
//! Invariant: nothing here computes or waits. The shell does what a step says, in its order, and
//! tells what came of it.

pub mod blocks;
pub mod cells;
pub mod cost;
pub mod draft;
pub mod ids;
pub mod prefix;
pub mod scheduler;
pub mod sequence;
pub mod shelf;
pub mod speculation;
mod tier;
