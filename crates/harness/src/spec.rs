//! What a prompt may ask the mock to do: `spec=ttft20,itl20,n50;` anywhere in the request body.
//!
//! It stands in the prompt and not in a header because that is the one place that every gateway
//! hands on untouched. `rid=7;` beside it names the request, so that client and mock can compare notes.
//!
//! | key | meaning | unless said |
//! |---|---|---|
//! | `ttft`, `ttftus` | arrival to first byte, ms or µs | 0 |
//! | `itl`, `itlus` | token to token, ms or µs; 0 is as fast as it is read | 0 |
//! | `n` | tokens; 0 never ends | 50 |
//! | `cs` | content bytes per token beside its stamp | 4 |
//! | `b` | tokens per write | 1 |
//! | `head` | 1: the response head at once, not with the first token | 0 |
//! | `silent` | after so many tokens nothing more, and no end either | – |

use std::time::Duration;

/// One scripted answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Arrival of the whole request to the first byte.
    pub ttft: Duration,
    /// Token to token.
    pub itl: Duration,
    /// How many tokens; `None` never ends.
    pub tokens: Option<u64>,
    /// Content bytes per token beside its stamp.
    pub content_bytes: usize,
    /// Tokens per write.
    pub batch: u64,
    /// The response head goes out at once.
    pub head_first: bool,
    /// After so many tokens nothing more comes.
    pub silent_after: Option<u64>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            ttft: Duration::ZERO,
            itl: Duration::ZERO,
            tokens: Some(50),
            content_bytes: 4,
            batch: 1,
            head_first: false,
            silent_after: None,
        }
    }
}

/// Longest padding of one token, bytes.
const CONTENT_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl Spec {
    /// Reads the script out of a request body; a body without one gets the default.
    ///
    /// # Errors
    /// Names the key or the value that it does not know.
    pub fn find(body: &[u8]) -> Result<Self, String> {
        match field(body, b"spec=") {
            Some(text) => Self::parse(&String::from_utf8_lossy(text)),
            None => Ok(Self::default()),
        }
    }

    /// Reads `ttft20,itl20,n50`.
    ///
    /// # Errors
    /// Names the key or the value that it does not know.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let at = part
                .find(|c: char| c.is_ascii_digit())
                .ok_or_else(|| format!("spec: `{part}` has no number"))?;
            let (key, digits) = part.split_at(at);
            let value: u64 = digits.parse().map_err(|e| format!("spec: `{part}`: {e}"))?;
            spec.set(key, value)?;
        }
        Ok(spec)
    }

    fn set(&mut self, key: &str, value: u64) -> Result<(), String> {
        match key {
            "ttft" => self.ttft = Duration::from_millis(value),
            "ttftus" => self.ttft = Duration::from_micros(value),
            "itl" => self.itl = Duration::from_millis(value),
            "itlus" => self.itl = Duration::from_micros(value),
            "n" => self.tokens = (value > 0).then_some(value),
            "cs" if value <= CONTENT_BYTES_MAX => self.content_bytes = usize::try_from(value).unwrap_or(0),
            "b" => self.batch = value.max(1),
            "head" => self.head_first = value != 0,
            "silent" => self.silent_after = Some(value),
            _ => return Err(format!("spec: `{key}{value}` is no key, or its value is out of range")),
        }
        Ok(())
    }
}

/// The `rid=` of a body; 0 if it has none.
pub fn request_id(body: &[u8]) -> u64 {
    field(body, b"rid=").and_then(|t| std::str::from_utf8(t).ok()).and_then(|t| t.parse().ok()).unwrap_or(0)
}

/// What stands between `key` and the next `;`.
fn field<'a>(body: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let rest = &body[memchr::memmem::find(body, key)? + key.len()..];
    memchr::memchr(b';', rest).map(|end| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_found_in_a_body() {
        let body =
            br#"{"messages":[{"content":"rid=17; spec=ttft20,itlus300,n0,silent3,head1,b2,cs9; hello"}]}"#;
        let want = Spec {
            ttft: Duration::from_millis(20),
            itl: Duration::from_micros(300),
            tokens: None,
            content_bytes: 9,
            batch: 2,
            head_first: true,
            silent_after: Some(3),
        };
        assert_eq!(Spec::find(body), Ok(want));
        assert_eq!(request_id(body), 17);
        assert_eq!(Spec::find(b"{}"), Ok(Spec::default()));
    }

    #[test]
    fn what_it_does_not_know_is_named() {
        assert!(Spec::parse("ttfx20").unwrap_err().contains("ttfx20"));
        assert!(Spec::parse("fast").unwrap_err().contains("fast"));
    }
}
