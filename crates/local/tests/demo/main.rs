//! The demo model, the one that is part of the binary, asked over the wire.

mod inputs;
mod rig;
