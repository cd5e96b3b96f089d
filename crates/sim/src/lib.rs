//! A scripted LLM provider: the stand-in for the paid ones, in tests, in demos, and as `firsttoken sim`.
//!
//! It speaks OpenAI's and Anthropic's dialects well enough for their own SDKs, takes as long as a
//! [`Script`] says, fails in every way that a [`Fault`] names, and counts what became of each
//! request ([`Stats`]).
//!
//! # Layout
//! - [`script`]: the knobs, in one table; [`latency`] and [`fault`] are two of their value types.
//! - `server`: connections and routes; `exchange` answers one request, `body` is its stream.
//! - `player`: what comes next and when; `content` what is said; `voice` how each dialect says it.
//! - [`stats`]: what happened; `limits` slots, rate and fault counts; `link` the socket under it all.
//!
//! It shares no code with the gateway: where both misread a provider's documentation, no test would tell.
//!
//! Invariant: time is tokio's and randomness is seeded, so that under a paused clock and over pipes
//! every run is the same; nothing is produced that nobody pulls.
#![forbid(unsafe_code)]

mod ask;
mod body;
mod content;
mod embeddings;
mod exchange;
pub mod fault;
pub mod latency;
mod limits;
mod link;
mod player;
mod refusal;
pub mod script;
mod server;
pub mod stats;
mod voice;

pub use fault::{Fault, FaultSpec};
pub use latency::Latency;
pub use script::{Script, ScriptError};
pub use server::{LastRequest, Options, Sim};
pub use stats::{Ended, Record, Stats};
