//! Inference on this machine: the scheduler of `logic` over real kernels.
//!
//! # Layout
//! - [`backend`]: what the engine asks of kernels.
//! - [`fake`]: kernels that compute nothing but tell the truth about memory, in microseconds.
//! - [`driver`]: does what the scheduler says, step by step.
//!
//! Invariant: no HTTP, and no decision about whose turn it is.

pub mod backend;
pub mod driver;
pub mod fake;
