//! How a body is coded; and gzip that an upstream sent although it was asked not to, decoded as it comes.
//!
//! Invariant: what a read holds is handed on with that read, as far as the coding allows.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};

/// What `content-encoding` says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Nothing, or `identity`.
    Plain,
    /// `gzip`, once.
    Gzip,
    /// Anything else, as it stood there.
    Unknown(String),
}

impl Coding {
    /// The coding of the body that `headers` announce. Its name is case-insensitive (RFC 9110 §8.4.1),
    /// and several headers are one list.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let said: Vec<_> = headers.get_all(header::CONTENT_ENCODING).iter().collect();
        if said.is_empty() {
            return Self::Plain;
        }
        let said = said.iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect::<Vec<_>>().join(", ");
        match said.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Self::Plain,
            "gzip" | "x-gzip" => Self::Gzip,
            _ => Self::Unknown(said),
        }
    }
}

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
