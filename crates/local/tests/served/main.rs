//! Models of this machine, served: real kernels over made-up weights whose text is known, and a client
//! over a pipe.

#![cfg(test)]

mod answers;
mod embeddings;
mod forms;
mod idle;
mod refusals;
mod rig;
mod state;
