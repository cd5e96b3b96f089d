//! Every decision of firsttoken, as pure machines.
//!
//! # Layout
//! - [`time`]: the clock as a number; nobody here can read it.
//! - [`clocks`]: the six clocks of a request, each apart.
//!
//! A machine is driven by `on_<event>(…, now)`, asked by `poll_<thing>()`, and says when it wants to
//! be woken by `deadline()`.
//!
//! Invariant: no I/O, no clock, no randomness, no thread; the compiler holds it (`no_std`).
#![no_std]
#![forbid(unsafe_code)]

pub mod clocks;
pub mod time;
