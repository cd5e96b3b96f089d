//! The gateway: streams flow through it, untouched and timed.
//!
//! # Layout
//! Down the way of a request:
//! - `front`: what callers see: sockets, checks, bodies. [`server`] is the way in.
//! - `stream`: one request from the upstream's first byte to the client's last.
//! - `upstream`: the one seam toward whoever answers, and HTTP toward them.
//! - `evidence`: what happened, and when: timelines, metrics, the canary.
//! - [`config`], [`keys`]: what was decided before the first request. `gateway`: what all requests share.
//!
//! Decisions (clocks, commits, quantiles) are `firsttoken_logic`'s; dialects are `firsttoken_wire`'s.
//!
//! Invariant: what a client receives is a prefix of the upstream's events plus declared insertions.

mod clock;
pub mod config;
mod evidence;
mod front;
mod gateway;
pub mod keys;
mod lines;
mod quotas;
mod stream;
mod tail;
mod upstream;

pub use front::server;
pub use upstream::{Engines, Network, Pipes, Way};
