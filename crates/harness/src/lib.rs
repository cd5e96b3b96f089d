//! The measuring rig of the bars: a mock upstream and a load client.
//!
//! The mock stamps every token with the monotonic clock at the moment it is written, and the first
//! one also with the arrival of the request. The client reads the same clock when bytes come out of
//! its socket. So each figure is a sum of one-way delays on one clock, never a difference of
//! medians, and the same run without anything between the two gives the rig's own floor.
//!
//! # Layout
//! - [`clock`], [`stamp`]: the one clock, and how it travels inside a token.
//! - [`spec`]: what a prompt may ask the mock to do.
//! - [`mock`]: the upstream. [`client`]: the load.
//! - [`record`]: samples and their exact percentiles.
//! - [`proc`]: CPU time and memory of a process tree.
//!
//! Invariant: shares no code with what it measures, and drops no sample silently.
#![forbid(unsafe_code)]

pub mod client;
pub mod clock;
pub mod mock;
pub mod proc;
pub mod record;
pub mod spec;
pub mod stamp;
