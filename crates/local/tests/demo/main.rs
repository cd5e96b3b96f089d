//! The demo model, the one that is part of the binary, asked over the wire.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]
#![allow(clippy::print_stdout, reason = "figures for who asks for them with --nocapture")]

mod inputs;
mod lookup;
mod rig;
