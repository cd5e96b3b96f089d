//! Models of this machine, served: real kernels over made-up weights whose text is known, and a client
//! over a pipe.

#![cfg(test)]

mod answers;
mod forms;
mod refusals;
mod rig;
mod state;
