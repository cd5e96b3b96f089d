//! x
pub mod gguf;
