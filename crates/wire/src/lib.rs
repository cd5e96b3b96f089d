//! The dialects that LLM clients and providers speak, as pure functions over bytes.
//!
//! # Layout
//! - [`sse`]: server-sent events, incrementally: bytes in, whole events out.
//! - [`chat`]: the one request model and the one event model that every dialect maps to.
//! - [`error`]: the one error model, and how it looks in each dialect.
//! - [`dialect`]: which dialect is which, and what each needs on the wire (keepalive, error frame).
//! - [`openai_chat`], [`openai_responses`], [`anthropic`], [`typed`]: one codec each, parse and render.
//! - [`openai_completions`]: a parser alone, enough to time a stream that passes through.
//!
//! Invariant: no I/O, no clock, no async; nothing here panics on any input.
#![forbid(unsafe_code)]

pub mod anthropic;
mod calls;
pub mod capabilities;
pub mod chat;
pub mod dialect;
mod effort;
pub mod error;
mod fields;
mod json;
mod media;
mod nesting;
pub mod openai_chat;
pub mod openai_completions;
pub mod openai_responses;
mod render;
pub mod sse;
mod template;
pub mod typed;

pub use dialect::{Dialect, StreamParser};
pub use error::{ApiError, ErrorKind};
pub use render::{Identity, Rendered, StreamRenderer};
