//! Models on this machine, as a server that speaks Chat Completions over any byte stream.
//!
//! The gateway reaches it like any upstream: over an in-memory pipe where both are one process, over
//! a socket where the engine has one of its own. So a model here is routed, timed, translated and
//! cancelled as every other, and its kernels cannot take more than their own process with them.
//!
//! # Layout
//! - [`Options`]: how a model is run. [`fit`]: whether it fits into memory.
//! - [`model`]: a model file becomes an engine with a thread.
//! - `embeddings`: models that make embeddings have a thread and a context of their own.
//! - `slot`: a model's place, loaded or idle.
//! - `server`: connections and routes.
//! - `ask`: from a request to a prompt; every refusal names the field.
//! - `hearing`: an answer on its way from the engine, and what is measured of it.
//! - `answer`: from its pieces to a stream, or to a whole body; `completion` is its older form.
//! - [`demo`]: the model that is part of the binary, and the documents that it answers from.
//! - `metrics`, `health`: what is counted, and whether the engines work.
//!
//! And what is done with model files before one is run:
//! - [`kv`]: what a model needs of this machine's memory.
//! - [`cache`]: the folder of fetched models, and how they are named.
//! - [`pull`]: fetching one from a hub or any address.
//! - [`figures`]: numbers for people.
//!
//! Invariant: a request whose client has left is computed no further; a refusal costs no computation.

mod answer;
mod ask;
pub mod cache;
mod completion;
pub mod demo;
mod embeddings;
pub mod figures;
pub mod fit;
mod health;
mod hearing;
pub mod kv;
mod metrics;
pub mod model;
mod options;
pub mod pull;
mod server;
mod slot;

pub use embeddings::Embeddings;
pub use firsttoken_engine::disk::{KvDir, shelf::BYTES_MAX as KV_DIR_BYTES_MAX};
pub use firsttoken_llama::KvType;
pub use model::{Model, Options, StartError};
pub use server::Local;
pub use slot::Loaded;
