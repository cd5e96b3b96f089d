//! Reading forwards through a file of known length, and summing up what was read.
//!
//! Invariant: nothing is allocated for bytes that the file does not have.

use std::io::Read;

use super::{Kind, Problem};

/// FNV-1a of nothing.
pub(super) const DIGEST: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a of what `digest` is of, and of `bytes` behind it.
pub(super) fn digest(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A file, read forwards.
pub(super) struct Cursor<R> {
    input: R,
    at: u64,
    end: u64,
    digest: u64,
}

impl<R: Read> Cursor<R> {
    pub(super) const fn new(input: R, end: u64) -> Self {
        Self { input, at: 0, end, digest: DIGEST }
    }

    /// Offset of the next byte.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Length of the file.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// FNV-1a over everything that was read.
    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn damaged(&self, at: u64, what: impl Into<String>) -> Problem {
        Problem { kind: Kind::Damaged, at, what: what.into() }
    }

    pub(super) fn unsupported(&self, at: u64, what: impl Into<String>) -> Problem {
        Problem { kind: Kind::Unsupported, at, what: what.into() }
    }

    /// The next `N` bytes.
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Problem> {
        let wanted = bytes.len() as u64;
        self.demand(wanted)?;
        self.input.read_exact(bytes).map_err(|error| Problem {
            kind: Kind::Truncated,
            at: self.at,
            what: format!("cannot be read: {error}"),
        })?;
        self.at += wanted;
        self.digest = digest(self.digest, bytes);
        Ok(())
    }

    /// Refuses a length that the file does not have left.
    fn demand(&self, wanted: u64) -> Result<(), Problem> {
        let left = self.end - self.at;
        if wanted <= left {
            return Ok(());
        }
        let what = format!("{wanted} bytes should follow and {left} are left");
        Err(Problem { kind: Kind::Truncated, at: self.at, what })
    }

    pub(super) fn u32(&mut self) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// An integer or truth value of the type that the format numbers `of`, sign-extended.
    pub(super) fn number(&mut self, of: u32) -> Result<u64, Problem> {
        Ok(match of {
            0 | 7 => u64::from(self.take::<1>()?[0]),
            1 => i64::from(i8::from_le_bytes(self.take()?)).cast_unsigned(),
            2 => u64::from(u16::from_le_bytes(self.take()?)),
            3 => i64::from(i16::from_le_bytes(self.take()?)).cast_unsigned(),
            4 => u64::from(self.u32()?),
            5 => i64::from(i32::from_le_bytes(self.take()?)).cast_unsigned(),
            _ => self.u64()?,
        })
    }

    /// A string's bytes, at most `max` of them.
    pub(super) fn bytes(&mut self, max: u64) -> Result<Vec<u8>, Problem> {
        let at = self.at;
        let length = self.u64()?;
        self.demand(length)?;
        match usize::try_from(length) {
            Ok(length) if length as u64 <= max => {
                let mut bytes = vec![0; length];
                self.fill(&mut bytes)?;
                Ok(bytes)
            }
            _ => Err(self.damaged(at, format!("a string of {length} bytes; {max} at most can be"))),
        }
    }

    /// A string; what is no UTF-8 is replaced.
    pub(super) fn text(&mut self, max: u64) -> Result<String, Problem> {
        Ok(String::from_utf8_lossy(&self.bytes(max)?).into_owned())
    }

    /// Reads past a string.
    pub(super) fn skip_text(&mut self) -> Result<(), Problem> {
        let length = self.u64()?;
        self.skip(length)
    }

    /// Reads past `length` bytes.
    pub(super) fn skip(&mut self, mut length: u64) -> Result<(), Problem> {
        self.demand(length)?;
        let mut chunk = [0; 4096];
        while length > 0 {
            let part = usize::try_from(length).map_or(chunk.len(), |length| length.min(chunk.len()));
            self.fill(&mut chunk[..part])?;
            length -= part as u64;
        }
        Ok(())
    }
}
