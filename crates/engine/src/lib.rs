//! Inference on this machine: the scheduler of `logic` over real kernels.
//!
//! # Layout
//! - [`backend`]: what the engine asks of kernels.
//! - [`fake`]: kernels that compute nothing but tell the truth about memory, in microseconds.
//! - [`memory`]: does what a step says, over kernels and host memory.
//! - [`driver`]: the one thread: step after step, and each answer hears its tokens.
//!
//! Invariant: no HTTP, and no decision about whose turn it is.

pub mod backend;
pub mod driver;
pub mod fake;
pub mod memory;
