//! Names of things, so that no number is taken for another.

/// A request to the engine, named by whoever submits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A sequence of the kernels: what they hold cells for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u16);

/// A part of a prefix, saved to host memory, and perhaps to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

/// Whose prefixes are whose: two requests share computed tokens only where this is equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u64);

/// An entry of the model's vocabulary.
pub type Token = u32;
