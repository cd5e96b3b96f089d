//! Decodes gzip that an upstream sent although it was asked not to, as it comes.
//!
//! Invariant: what a read holds is handed on with that read, as far as the coding allows.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;

/// A gzip stream being decoded.
pub(crate) struct Inflate(MultiGzDecoder<Vec<u8>>);

impl Inflate {
    pub(crate) fn new() -> Self {
        Self(MultiGzDecoder::new(Vec::new()))
    }

    /// Takes one read, returns what it decodes to.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> io::Result<Bytes> {
        self.0.write_all(bytes)?;
        self.0.flush()?;
        Ok(std::mem::take(self.0.get_mut()).into())
    }
}
