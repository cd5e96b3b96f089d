//! HTTP/1.1 message bodies (RFC 9112 §6–7), decoded incrementally and in place: the payload of a read
//! is moved together at its start, over the framing, so that one copy hands it on.
//!
//! Invariant: payload keeps its order, and nothing after the end of the body is taken.

/// Longest chunk-size line or trailer line.
const LINE_BYTES_MAX: u32 = 4096;
/// Longest trailer section.
const TRAILER_BYTES_MAX: u32 = 16 * 1024;

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    Empty,
    /// By `content-length`: so many bytes are left.
    Length(u64),
    /// By the chunked coding.
    Chunked(Chunk),
    /// By the end of the connection.
    Close,
}

/// Where the chunked coding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Reading a size.
    Size { value: u64, digits: u32, line_bytes: u32, extension: bool },
    /// Reading payload.
    Data(u64),
    /// Reading the line end after payload.
    DataEnd { cr: bool },
    /// Reading trailers; `line` is the length of the current one.
    Trailer { line: u32, total: u32 },
    /// The body is complete.
    Done,
}

impl Chunk {
    /// Before the first chunk.
    pub(crate) const START: Self = Self::Size { value: 0, digits: 0, line_bytes: 0, extension: false };
}

/// The body is not what its framing says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Framing {
    /// Whether the body is complete.
    pub(crate) const fn is_done(self) -> bool {
        matches!(self, Self::Empty | Self::Length(0) | Self::Chunked(Chunk::Done))
    }

    /// Whether the end of the connection ends the body in order.
    pub(crate) const fn ends_at_close(self) -> bool {
        matches!(self, Self::Close) || self.is_done()
    }

    /// Takes what belongs to this body from `buf`, moves its payload to the start of `buf`, and says how
    /// long the payload is and how much was taken.
    pub(crate) fn decode(&mut self, buf: &mut [u8]) -> Result<Decoded, Malformed> {
        match self {
            Self::Empty => Ok(Decoded { payload: 0, taken: 0 }),
            Self::Close => Ok(Decoded { payload: buf.len(), taken: buf.len() }),
            Self::Length(left) => {
                let n = buf.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= n as u64;
                Ok(Decoded { payload: n, taken: n })
            }
            Self::Chunked(state) => decode_chunked(state, buf),
        }
    }
}

/// What a read held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Bytes of payload, now at the start of the buffer.
    pub(crate) payload: usize,
    /// Bytes that belong to this body; what stands behind them does not.
    pub(crate) taken: usize,
}

fn decode_chunked(state: &mut Chunk, buf: &mut [u8]) -> Result<Decoded, Malformed> {
    let (mut at, mut payload) = (0, 0);
    while at < buf.len() {
        if let Chunk::Data(left) = state {
            let n = (buf.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
            buf.copy_within(at..at + n, payload);
            at += n;
            payload += n;
            *left -= n as u64;
            if *left == 0 {
                *state = Chunk::DataEnd { cr: false };
            }
            continue;
        }
        if *state == Chunk::Done {
            break;
        }
        match whole_line(*state, &buf[at..]) {
            Some((next, length)) => {
                *state = next;
                at += length;
            }
            None => {
                *state = step(*state, buf[at])?;
                at += 1;
            }
        }
    }
    Ok(Decoded { payload, taken: at })
}

/// A whole line of framing as it nearly always comes: the end of a chunk, or a size of one to six digits
/// without extension. What it leaves to [`step`] it does not judge.
fn whole_line(state: Chunk, input: &[u8]) -> Option<(Chunk, usize)> {
    if state == (Chunk::DataEnd { cr: false }) {
        return input.starts_with(b"\r\n").then_some((Chunk::START, 2));
    }
    if state != Chunk::START {
        return None;
    }
    let digits = input.iter().take(7).position(|b| *b == b'\r').filter(|n| *n > 0)?;
    let mut size = 0;
    for byte in &input[..digits] {
        size = size << 4 | u64::from((*byte as char).to_digit(16)?);
    }
    (size > 0 && input.get(digits + 1) == Some(&b'\n')).then_some((Chunk::Data(size), digits + 2))
}

/// One byte of framing.
fn step(state: Chunk, byte: u8) -> Result<Chunk, Malformed> {
    Ok(match state {
        Chunk::Size { value, digits, line_bytes, extension } => {
            if byte == b'\n' {
                return match (digits, value) {
                    (0, _) => Err(Malformed("a chunk without a size")),
                    (_, 0) => Ok(Chunk::Trailer { line: 0, total: 0 }),
                    (_, n) => Ok(Chunk::Data(n)),
                };
            }
            if line_bytes >= LINE_BYTES_MAX {
                return Err(Malformed("a chunk-size line without end"));
            }
            let line_bytes = line_bytes + 1;
            match (byte as char).to_digit(16) {
                Some(digit) if !extension => {
                    if digits >= 15 {
                        return Err(Malformed("a chunk of absurd size"));
                    }
                    Chunk::Size {
                        value: value << 4 | u64::from(digit),
                        digits: digits + 1,
                        line_bytes,
                        extension,
                    }
                }
                _ if extension || matches!(byte, b';' | b' ' | b'\t' | b'\r') => {
                    Chunk::Size { value, digits, line_bytes, extension: true }
                }
                _ => return Err(Malformed("a chunk size that is no number")),
            }
        }
        Chunk::DataEnd { cr: false } if byte == b'\r' => Chunk::DataEnd { cr: true },
        Chunk::DataEnd { .. } if byte == b'\n' => Chunk::START,
        Chunk::DataEnd { .. } => return Err(Malformed("a chunk longer than its size")),
        Chunk::Trailer { line: 0, .. } if byte == b'\n' => Chunk::Done,
        Chunk::Trailer { total, .. } if byte == b'\n' => Chunk::Trailer { line: 0, total },
        Chunk::Trailer { line, total } if byte == b'\r' => Chunk::Trailer { line, total },
        Chunk::Trailer { line, total } => {
            if total >= TRAILER_BYTES_MAX {
                return Err(Malformed("trailers without end"));
            }
            Chunk::Trailer { line: line + 1, total: total + 1 }
        }
        Chunk::Data(_) | Chunk::Done => state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `input` in two pieces; returns the payload and how many bytes were taken.
    fn decode(mut framing: Framing, input: &[u8], cut: usize) -> Result<(String, usize, bool), Malformed> {
        let (mut out, mut taken) = (Vec::new(), 0);
        for piece in [&input[..cut], &input[cut..]] {
            let mut buf = piece.to_vec();
            let decoded = framing.decode(&mut buf)?;
            out.extend_from_slice(&buf[..decoded.payload]);
            taken += decoded.taken;
        }
        Ok((String::from_utf8_lossy(&out).into_owned(), taken, framing.is_done()))
    }

    #[test]
    fn chunks_come_out_whole_however_they_are_cut() {
        let wire =
            b"5\r\nhello\r\n1;x=\"y\"\r\n \r\n00006\r\nworld!\r\n0\r\nx-trailer: 1\r\n\r\nHTTP/1.1 200";
        let end = wire.len() - "HTTP/1.1 200".len();
        for cut in 0..=end {
            let got = decode(Framing::Chunked(Chunk::START), wire, cut);
            assert_eq!(got, Ok(("hello world!".to_owned(), end, true)), "cut at {cut}");
        }
    }

    #[test]
    fn bare_line_feeds_are_tolerated() {
        let got = decode(Framing::Chunked(Chunk::START), b"2\nok\n0\n\n", 3);
        assert_eq!(got, Ok(("ok".to_owned(), 8, true)));
    }

    #[test]
    fn nonsense_is_refused() {
        for wire in ["xyz\r\n", "\r\n", "3\r\nabcd\r\n", "fffffffffffffffff\r\n"] {
            assert!(decode(Framing::Chunked(Chunk::START), wire.as_bytes(), 0).is_err(), "{wire}");
        }
        let endless = format!("1;{}", "x".repeat(10_000));
        assert!(decode(Framing::Chunked(Chunk::START), endless.as_bytes(), 0).is_err());
    }

    #[test]
    fn a_length_takes_exactly_its_bytes() {
        assert_eq!(decode(Framing::Length(5), b"hello, more", 2), Ok(("hello".to_owned(), 5, true)));
        assert_eq!(decode(Framing::Length(50), b"hello", 2), Ok(("hello".to_owned(), 5, false)));
    }
}
