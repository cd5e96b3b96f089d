//! The gateway: streams flow through it, untouched and timed.
//!
//! # Layout
//! Down the way of a request:
//! - [`server`]: sockets, threads, shutdown. `client`: the accepted socket, delivered stamps, the slow-client cut;
//!   `streams`: the same for each stream of HTTP/2.
//! - `service`: the order in which a request is judged. `endpoint`, `inbound`, `headers`, `forwarded`, `models`, `cors`: what it asks.
//! - `exchange`: one request to an upstream, up to where bytes flow. `upstream`: the seam, dialling, HTTP.
//! - `relay`: the stream; `tee`: what watches it; `body`: what hyper writes.
//! - `timeline`, `metrics`, `canary`: the evidence. `failures`: what a caller is told.
//! - [`config`], [`keys`]: what was decided before the first request.
//!
//! Decisions (clocks, commits, quantiles) are `firsttoken_logic`'s; dialects are `firsttoken_wire`'s.
//!
//! Invariant: what a client receives is a prefix of the upstream's events plus declared insertions.

mod body;
mod canary;
mod client;
mod clock;
pub mod config;
mod cors;
mod endpoint;
mod exchange;
mod failures;
mod forwarded;
mod gateway;
mod headers;
mod inbound;
mod inflate;
pub mod keys;
mod metrics;
mod models;
mod relay;
pub mod server;
mod service;
mod streams;
mod tee;
mod timeline;
mod upstream;

pub use upstream::{Network, Pipes};
