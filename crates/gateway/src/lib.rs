//! (being written)
pub mod config;
pub mod keys;
