//! Cuts a byte stream between events. It looks for the *last* blank line of a read, backwards, so
//! that a read of whole events (the usual case) costs a look at its last two bytes and no copy.

use bytes::Bytes;
use memchr::memrchr2;

/// Splits a byte stream into blocks of whole events, without copying what arrives whole.
#[derive(Debug)]
pub struct Splitter {
    /// The unfinished event at the end of what was pushed. Never contains a blank line.
    tail: Vec<u8>,
    event_bytes_max: usize,
    raw: bool,
}

/// What a read brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Split {
    /// All bytes of all events complete by now, exactly as they came and contiguous: the tail of
    /// earlier reads, then this read up to its last event boundary.
    Whole(Bytes),
    /// Nothing is complete yet.
    Partial,
    /// The partial event exceeded the bound. Everything held back, raw; from now on the splitter
    /// holds nothing back and answers every push with its chunk.
    Overlong(Bytes),
}

impl Splitter {
    /// A splitter that holds back at most `event_bytes_max` bytes of an unfinished event
    /// (beyond it only the unfinished rest of one read, until the next push).
    #[must_use]
    pub const fn new(event_bytes_max: usize) -> Self {
        Self { tail: Vec::new(), event_bytes_max, raw: false }
    }

    /// Takes the next read.
    pub fn push(&mut self, mut chunk: Bytes) -> Split {
        if self.raw {
            return Split::Overlong(chunk);
        }
        if let Some(end) = last_boundary(&self.tail, &chunk) {
            let rest = chunk.split_off(end);
            let whole = self.join(chunk);
            // A copy, because a slice would pin the whole read buffer for the sake of a few bytes.
            self.tail.extend_from_slice(&rest);
            return Split::Whole(whole);
        }
        if self.tail.len().saturating_add(chunk.len()) > self.event_bytes_max {
            self.raw = true;
            return Split::Overlong(self.join(chunk));
        }
        self.tail.extend_from_slice(&chunk);
        Split::Partial
    }

    /// How many bytes of an unfinished event are held back.
    #[must_use]
    pub fn tail_len(&self) -> usize {
        self.tail.len()
    }

    /// Hands out what is held back: what a stream that ends here leaves unfinished.
    pub fn take_tail(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.tail))
    }

    /// The tail and `chunk`, contiguous. `chunk` itself where there is no tail.
    fn join(&mut self, chunk: Bytes) -> Bytes {
        if self.tail.is_empty() {
            return chunk;
        }
        let mut tail = std::mem::take(&mut self.tail);
        tail.extend_from_slice(&chunk);
        Bytes::from(tail)
    }
}

/// Where in `chunk` the last blank line ends, given the unfinished `tail` before it.
///
/// Whether a terminator ends a blank line is decided by the two or three bytes before it: a LF
/// after a CR always belongs to that CR. Before an empty tail stands an event boundary (or the
/// start of the stream), so a terminator there ends a blank line too; that is how the LF of a CRLF
/// cut in two comes out at once, at the head of the next block.
fn last_boundary(tail: &[u8], chunk: &[u8]) -> Option<usize> {
    // The byte `back` positions before `chunk[at]`; in front of everything, a line end.
    let before = |at: usize, back: usize| -> u8 {
        if back <= at {
            return chunk.get(at - back).copied().unwrap_or(b'\n');
        }
        let back = back - at;
        tail.len().checked_sub(back).and_then(|i| tail.get(i)).copied().unwrap_or(b'\n')
    };
    let mut end = chunk.len();
    while let Some(at) = memrchr2(b'\n', b'\r', &chunk[..end]) {
        let crlf = chunk[at] == b'\n' && before(at, 1) == b'\r';
        let previous = before(at, if crlf { 2 } else { 1 });
        if previous == b'\n' || previous == b'\r' {
            return Some(at + 1);
        }
        end = at;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(chunks: &[&'static str], expected: &[&str], tail: &str) {
        let mut splitter = Splitter::new(64);
        let got: Vec<String> = chunks
            .iter()
            .map(|chunk| match splitter.push(Bytes::from_static(chunk.as_bytes())) {
                Split::Whole(bytes) => format!("whole {}", String::from_utf8_lossy(&bytes)),
                Split::Partial => "partial".to_owned(),
                Split::Overlong(bytes) => format!("overlong {}", String::from_utf8_lossy(&bytes)),
            })
            .collect();
        assert_eq!(got, expected);
        assert_eq!(splitter.tail_len(), tail.len());
        assert_eq!(splitter.take_tail(), tail.as_bytes());
    }

    #[test]
    fn a_read_of_whole_events_is_not_copied() {
        let chunk = Bytes::from_static(b"data: 1\n\ndata: 2\n\n");
        let mut splitter = Splitter::new(64);
        let Split::Whole(whole) = splitter.push(chunk.clone()) else { panic!("not whole") };
        assert_eq!(whole.as_ptr(), chunk.as_ptr());
        assert_eq!(whole, chunk);
        let Split::Whole(whole) = splitter.push(Bytes::from_static(b"data: 3\n\ndata")) else {
            panic!("not whole")
        };
        assert_eq!(whole, "data: 3\n\n");
        assert_eq!(splitter.tail_len(), 4);
    }

    #[test]
    fn boundaries_under_every_line_ending() {
        check(&["data: 1\n\ndata: 2"], &["whole data: 1\n\n"], "data: 2");
        check(
            &["data: 1\n", "\nda", "ta: 2\n\n"],
            &["partial", "whole data: 1\n\n", "whole data: 2\n\n"],
            "",
        );
        check(&["data: 1\r\n\r\nd"], &["whole data: 1\r\n\r\n"], "d");
        check(
            &["data: 1\r\r", "data: 2\r", "\r"],
            &["whole data: 1\r\r", "partial", "whole data: 2\r\r"],
            "",
        );
        check(&["a\n\r\nb\r\n\nc\r\n"], &["whole a\n\r\nb\r\n\n"], "c\r\n");
        check(&[": ping\n\n"], &["whole : ping\n\n"], "");
    }

    #[test]
    fn a_crlf_cut_in_two_is_one_terminator() {
        check(&["a\r", "\nb\r", "\n\r", "\n"], &["partial", "partial", "whole a\r\nb\r\n\r", "whole \n"], "");
        check(&["a\r\n\r", "\nb"], &["whole a\r\n\r", "whole \n"], "b");
    }

    #[test]
    fn an_overlong_event_comes_out_raw_and_stays_raw() {
        let long = "x".repeat(40);
        let long: &'static str = Box::leak(long.into_boxed_str());
        check(
            &["a\n\n", long, long, "\n\n", "b"],
            &["whole a\n\n", "partial", &format!("overlong {long}{long}"), "overlong \n\n", "overlong b"],
            "",
        );
    }
}
