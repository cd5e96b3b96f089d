//! Every decision of firsttoken, as pure machines.
//!
//! # Layout
//! - [`time`]: the clock as a number; nobody here can read it.
//! - [`failure`]: what went wrong, and how far the request had come.
//! - [`clocks`]: the six clocks of a request, each apart.
//! - [`commit`]: when the first byte, and when the first content, may reach the client.
//! - [`engine`]: what the inference engine computes next, and what stays in memory.
//! - [`restart`]: when something that has ended is started again.
//! - [`sketch`]: quantiles of latencies in a few hundred bytes, mergeable.
//! - [`tail`]: what is sent twice or again, and to whom.
//!
//! A machine is driven by `on_<event>(…, now)`, asked by `poll(now)`, and says when it wants to be
//! woken by `deadline()`.
//!
//! Invariant: no I/O, no clock, no randomness, no thread; the compiler holds it (`no_std`).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod buckets;
pub mod clocks;
pub mod commit;
pub mod engine;
pub mod failure;
pub mod restart;
pub mod sketch;
pub mod tail;
pub mod time;
