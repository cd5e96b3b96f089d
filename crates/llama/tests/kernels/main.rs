//! The boundary on the real kernels: what it promises about memory, files, text and mistakes.
//!
//! Comparisons are between computations of the same shape, where the kernels are exact; what follows
//! from a prefix is compared on a peaked model, whose text is known.

mod embedding;
mod files;
mod memory;
mod misuse;
mod rig;
mod steps;
mod text;
