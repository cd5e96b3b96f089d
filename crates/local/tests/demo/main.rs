//! The demo model, the one that is part of the binary, asked over the wire.

#![cfg(test)]

mod inputs;
mod lookup;
mod rig;
