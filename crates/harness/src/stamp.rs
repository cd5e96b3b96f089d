//! Times that travel inside the text of a token: `~T123;` when it was written, `~A123;` when its
//! request had arrived. Plain ASCII that JSON need not escape, so no gateway changes it.

use std::io::Write as _;

/// What a stamp says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The whole request had arrived at the mock, ns.
    Arrived(u64),
    /// The token was written, ns.
    Token(u64),
}

/// `~`, a letter, at most 20 digits and `;`.
const STAMP_BYTES_MAX: usize = 23;

impl Stamp {
    /// Appends its text.
    pub fn write(self, out: &mut Vec<u8>) {
        let (letter, ns) = match self {
            Self::Arrived(ns) => ('A', ns),
            Self::Token(ns) => ('T', ns),
        };
        write!(out, "~{letter}{ns};").expect("a Vec takes every write");
    }
}

/// Finds stamps in bytes that arrive in pieces of any size.
#[derive(Debug, Default)]
pub struct Scanner {
    /// A stamp that began at the end of the last piece.
    carry: Vec<u8>,
}

impl Scanner {
    /// Reports the stamps that are complete with this piece, in order.
    pub fn feed(&mut self, piece: &[u8], mut found: impl FnMut(Stamp)) {
        if self.carry.is_empty() {
            self.carry = scan(piece, &mut found).to_vec();
        } else {
            let mut joined = std::mem::take(&mut self.carry);
            joined.extend_from_slice(piece);
            self.carry = scan(&joined, &mut found).to_vec();
        }
    }
}

/// Reports complete stamps and returns the beginning of one that is not.
fn scan<'a>(mut text: &'a [u8], found: &mut impl FnMut(Stamp)) -> &'a [u8] {
    while let Some(at) = memchr::memchr(b'~', text) {
        text = &text[at..];
        let end = text.iter().take(STAMP_BYTES_MAX).position(|b| *b == b';');
        match end {
            Some(end) => {
                if let Some(stamp) = parse(&text[1..end]) {
                    found(stamp);
                }
                text = &text[1..];
            }
            None if text.len() < STAMP_BYTES_MAX => return text,
            None => text = &text[1..],
        }
    }
    &[]
}

/// Reads `T123`.
fn parse(text: &[u8]) -> Option<Stamp> {
    let (letter, digits) = text.split_first()?;
    let ns = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match letter {
        b'A' => Some(Stamp::Arrived(ns)),
        b'T' => Some(Stamp::Token(ns)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_survive_every_split() {
        let mut text = b"data: {\"content\":\"~~x;".to_vec();
        let want = [Stamp::Arrived(1), Stamp::Token(u64::MAX), Stamp::Token(7)];
        for stamp in want {
            stamp.write(&mut text);
            text.extend_from_slice(b" lorem ~ ipsum \"}\n\n");
        }
        for split in 0..=text.len() {
            let (mut scanner, mut got) = (Scanner::default(), Vec::new());
            scanner.feed(&text[..split], |s| got.push(s));
            scanner.feed(&text[split..], |s| got.push(s));
            assert_eq!(got, want, "split at {split}");
        }
    }
}
