//! One request from the upstream's first byte to the client's last.
//!
//! [`exchange`] sends it, [`answer`] makes what came into something to give; [`relay`] is the stream that then
//! flows, [`tee`] what watches it, [`inflate`] what undoes an unasked coding, [`failures`] the words for
//! everything that can go wrong.
//!
//! Invariant: what a client receives is a prefix of the upstream's events plus declared insertions.

mod answer;
pub(crate) mod exchange;
pub(crate) mod failures;
pub(crate) mod inflate;
pub(crate) mod relay;
pub(crate) mod tee;
