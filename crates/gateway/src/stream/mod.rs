//! One request from the upstream's first byte to the client's last.
//!
//! [`exchange`] is its life. Each [`attempt`] sends it to an upstream, and [`answer`] makes what came into
//! something to give. [`flow`] is the stream that then comes, [`relay`] the one that goes out, [`tee`] what watches
//! between them, [`inflate`] what undoes an unasked coding, [`failures`] the words for everything that can go wrong.
//!
//! Invariant: what a client receives is a prefix of the upstream's events plus declared insertions.

mod answer;
mod attempt;
pub(crate) mod exchange;
pub(crate) mod failures;
mod flow;
pub(crate) mod inflate;
pub(crate) mod relay;
pub(crate) mod tee;
