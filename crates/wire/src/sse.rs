//! Server-sent events, incrementally: bytes in, whole events out.
//!
//! A relay must not write half an event and then a keepalive, and must not hold back what is whole.
//! So [`Splitter`] cuts a byte stream after the last complete event of each read and hands the
//! bytes on exactly as they came; [`events`] then reads the events of such a block in place.
//! [`Decoder`] puts the two together for clients.
//!
//! Invariants: what [`Splitter`] returns, plus its tail, is what was pushed, byte for byte and in
//! order; the `raw` slices of [`events`] tile their block; held-back bytes are bounded.
//! Lines end in LF, CRLF or CR, in any mix, and a read may end between CR and LF.

mod decoder;
mod events;
mod splitter;

pub use decoder::{Decoder, OwnedEvent};
pub use events::{Event, Events, events};
pub use splitter::{Split, Splitter};
