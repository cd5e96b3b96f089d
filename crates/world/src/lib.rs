//! The simulated world: the whole gateway between a simulated provider and clients of any temper, in
//! one process, over in-memory pipes, on a paused clock.
//!
//! # Layout
//! - [`world`]: the gateway, who answers it, and new connections to it.
//! - [`client`]: a client that notes what came when, and how it ended; it can leave at any moment.
//! - [`caller`]: the five dialects in which a stream can be asked for, and how each says what.
//! - [`said`]: what an answer says, read from any of them.
//! - [`relayed`]: what a client got, held against what the upstream sent.
//! - [`scripted`]: an upstream that writes any bytes in any pieces and ends in any way.
//!
//! The system tests are in `tests/`. No test sleeps on real time, and a failure can be replayed.
//!
//! Invariant: nothing here reads what the gateway writes with the gateway's own codecs: an error in
//! them must not be hidden by the same error here.
#![forbid(unsafe_code)]

pub mod caller;
pub mod client;
pub mod relayed;
pub mod said;
pub mod scripted;
pub mod world;

pub use caller::Caller;
pub use client::{Client, End, Got};
pub use relayed::Relayed;
pub use said::Said;
pub use world::World;
