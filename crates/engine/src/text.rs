//! From the bytes of tokens to text that may be sent.
//!
//! A token may end in the middle of a character, and a stop string may begin in one token and end in
//! another. What is not whole yet is held back: of a character up to three bytes, of a stop string
//! what could still become one.
//!
//! Invariant: the text does not depend on where tokens end. Without a stop it is
//! `String::from_utf8_lossy` of all bytes; with one, that up to where the first stop to be complete
//! begins.

/// Most stop strings of a request.
pub const STOPS_MAX: usize = 16;
/// Longest stop string, in bytes: so much text may be held back.
pub const STOP_BYTES_MAX: usize = 1024;

/// Bytes in, whole characters out.
#[derive(Clone, Debug, Default)]
pub struct Characters {
    /// The beginning of a character, at most three bytes.
    begun: Vec<u8>,
}

impl Characters {
    /// Appends to `out` what `bytes` complete. What can never become a character becomes U+FFFD.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.begun.extend_from_slice(bytes);
        let (len, mut read, mut kept) = (self.begun.len(), 0, 0);
        for chunk in self.begun.utf8_chunks() {
            out.push_str(chunk.valid());
            let broken = chunk.invalid();
            read += chunk.valid().len() + broken.len();
            let is_begun = core::str::from_utf8(broken).is_err_and(|error| error.error_len().is_none());
            if read == len && is_begun {
                kept = broken.len();
            } else if !broken.is_empty() {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.begun.drain(..len - kept);
    }

    /// Nothing follows: a character that was begun is none.
    pub fn finish(&mut self, out: &mut String) {
        if !self.begun.is_empty() {
            self.begun.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// A stop string that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// It would end every text.
    #[error("a stop string is empty: leave it out, or name the text to stop at")]
    Empty,
    /// It would hold back too much.
    #[error("a stop string has {0} bytes, at most {STOP_BYTES_MAX} are taken")]
    Long(usize),
    /// Too many of them.
    #[error("there are {0} stop strings, at most {STOPS_MAX} are taken")]
    Many(usize),
}

/// Text in, text without stop strings out.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    stops: Vec<String>,
    held: String,
    met: Option<usize>,
}

impl Stops {
    /// The strings that end the text.
    ///
    /// # Errors
    /// When one is empty or too long, or there are too many.
    pub fn new(stops: Vec<String>) -> Result<Self, StopError> {
        if stops.len() > STOPS_MAX {
            return Err(StopError::Many(stops.len()));
        }
        for stop in &stops {
            match stop.len() {
                0 => return Err(StopError::Empty),
                1..=STOP_BYTES_MAX => {}
                len => return Err(StopError::Long(len)),
            }
        }
        Ok(Self { stops, held: String::new(), met: None })
    }

    /// Appends to `out` what of `text` can be no part of a stop string. Says which one was met; nothing
    /// that follows it comes out any more.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<usize> {
        if self.met.is_some() {
            return self.met;
        }
        if self.stops.is_empty() {
            out.push_str(text);
            return None;
        }
        for character in text.chars() {
            self.held.push(character);
            let met = self.stops.iter().enumerate().filter(|(_, stop)| self.held.ends_with(stop.as_str()));
            if let Some((at, stop)) = met.max_by_key(|(_, stop)| stop.len()) {
                out.push_str(&self.held[..self.held.len() - stop.len()]);
                self.held.clear();
                self.met = Some(at);
                return self.met;
            }
        }
        let keep = beginning(&self.held, &self.stops);
        out.extend(self.held.drain(..keep));
        None
    }

    /// Nothing follows: what was held back is text.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
    }

    /// How many bytes are held back.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held.len()
    }
}

/// Where the longest end of `text` begins that is the beginning of a pattern.
fn beginning(text: &str, patterns: &[String]) -> usize {
    let longest = patterns.iter().map(String::len).max().unwrap_or(0);
    let from = text.floor_char_boundary(text.len().saturating_sub(longest));
    let mut starts = text[from..].char_indices().map(|(at, _)| from + at);
    let begins = |at: &usize| patterns.iter().any(|pattern| pattern.starts_with(&text[*at..]));
    starts.find(begins).unwrap_or(text.len())
}

/// The way of a token's bytes to the reader: characters, then stops.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    characters: Characters,
    stops: Stops,
    text: String,
}

impl Detokenizer {
    /// With these stops.
    #[must_use]
    pub fn new(stops: Stops) -> Self {
        Self { stops, ..Self::default() }
    }

    /// Appends to `out` what may be sent after these bytes, and says which stop was met.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) -> Option<usize> {
        self.text.clear();
        self.characters.push(bytes, &mut self.text);
        self.stops.push(&self.text, out)
    }

    /// Nothing follows. The last thing to come out may still meet a stop.
    pub fn finish(&mut self, out: &mut String) -> Option<usize> {
        self.text.clear();
        self.characters.finish(&mut self.text);
        let met = self.stops.push(&self.text, out);
        self.stops.finish(out);
        met
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What comes out when `bytes` come in pieces that end at `cuts`.
    fn read(bytes: &[u8], cuts: &[usize], stops: &[&str]) -> (String, Option<usize>) {
        let stops = Stops::new(stops.iter().map(|stop| (*stop).to_owned()).collect()).unwrap();
        let (mut detokenizer, mut out, mut from) = (Detokenizer::new(stops), String::new(), 0);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        for cut in cuts {
            detokenizer.push(&bytes[from..cut], &mut out);
            assert!(detokenizer.characters.begun.len() < 4, "at most three bytes are held");
            from = cut;
        }
        let met = detokenizer.finish(&mut out);
        (out, met)
    }

    #[test]
    fn half_a_character_waits_for_the_other_half() {
        let (mut characters, mut out) = (Characters::default(), String::new());
        characters.push(b"a\xf0\x9f\x98", &mut out);
        assert_eq!(out, "a");
        characters.push(b"\x80b", &mut out);
        assert_eq!(out, "a😀b");
    }

    #[test]
    fn what_only_began_like_a_stop_is_released() {
        let mut stops = Stops::new(vec!["STOP".to_owned()]).unwrap();
        let mut out = String::new();
        assert_eq!(stops.push("an ST", &mut out), None);
        assert_eq!((out.as_str(), stops.held()), ("an ", 2));
        assert_eq!(stops.push("AR and STO", &mut out), None);
        assert_eq!(out, "an STAR and ");
        assert_eq!(stops.push("P it", &mut out), Some(0));
        assert_eq!(stops.push("more", &mut out), Some(0));
        stops.finish(&mut out);
        assert_eq!(out, "an STAR and ");
    }

    #[test]
    fn the_first_stop_to_be_complete_counts() {
        assert_eq!(read(b"xabcd", &[], &["abcd", "bc"]), ("xa".to_owned(), Some(1)));
        assert_eq!(read(b"xabc", &[], &["bc", "abc"]), ("x".to_owned(), Some(1)), "the longer of two");
        assert_eq!(read(b"aab", &[1, 2], &["ab"]), ("a".to_owned(), Some(0)));
        assert_eq!(read(b"ok\xe2", &[], &["\u{fffd}"]), ("ok".to_owned(), Some(0)));
    }

    #[test]
    fn stops_that_cannot_be_are_refused() {
        assert_eq!(Stops::new(vec![String::new()]).unwrap_err(), StopError::Empty);
        assert_eq!(Stops::new(vec!["a".repeat(1025)]).unwrap_err(), StopError::Long(1025));
        assert_eq!(Stops::new(vec!["a".to_owned(); 17]).unwrap_err(), StopError::Many(17));
    }

    /// Bytes in which characters of every length, and broken ones, are frequent.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::sample::select(vec!["é", "€", "😀", "a", "ab", "b", "\u{fffd}"])
                .prop_map(|text: &str| text.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 1..3),
            prop::sample::select(vec![0xe2_u8, 0xf0, 0x9f, 0x82, 0xed, 0xc3]).prop_map(|byte| vec![byte]),
        ];
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_split_reads_as_the_whole(bytes in bytes(), cuts in prop::collection::vec(any::<usize>(), 0..40)) {
            let (text, _) = read(&bytes, &cuts, &[]);
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn stops_do_not_depend_on_splits(bytes in bytes(), cuts in prop::collection::vec(any::<usize>(), 0..40)) {
            let stops = ["ab€", "aba", "bb", "😀é"];
            let whole = String::from_utf8_lossy(&bytes);
            let whole = whole.as_ref();
            let ends = |end: usize| {
                let before = whole.get(..end)?;
                let met = stops.iter().filter(|stop| before.ends_with(**stop));
                met.map(|stop| end - stop.len()).min()
            };
            let begins = (0..=whole.len()).find_map(ends);
            let (text, met) = read(&bytes, &cuts, &stops);
            prop_assert_eq!(text, &whole[..begins.unwrap_or(whole.len())]);
            prop_assert_eq!(met.is_some(), begins.is_some());
        }
    }
}
