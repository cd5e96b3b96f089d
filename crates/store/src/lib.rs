//! What outlives a request, in one SQLite file.
//!
//! # Layout
//! - [`Store`]: the file, opened once, and the thread that owns it.
//! - [`jobs`]: what was accepted to be done later, its results, and its webhooks.
//! - `database`: the file itself: whose it is, and how it is kept. `schema`: its tables, by version.
//! - `writer`: commands in, transactions out; several commands share one.
//! - [`Limits`], [`OpenError`], [`StoreError`]: how much, and what can go wrong.
//!
//! The store keeps opaque bytes beside the few columns that it searches by; who calls it encodes them. Time is
//! always an argument, in milliseconds since 1970.
//!
//! What is kept here are prompts and answers. The file is for its owner alone, what is deleted is overwritten
//! in it, and no type that carries such bytes has `Debug`, so that none reaches a log by accident.
//!
//! Invariant: a command that has returned is on the disk, and outlives a kill and a power cut; one that has
//! not returned was done whole or not at all.

mod database;
mod error;
pub mod jobs;
mod limits;
mod schema;
mod store;
mod writer;

pub use error::{OpenError, StoreError};
pub use limits::{Limits, TEXT_BYTES_MAX};
pub use store::Store;
