//! Text to tokens, for any text.
//!
//! For most families of vocabularies the kernels split text by a regular expression whose matcher calls
//! itself for every letter of a match: 4,000 to 8,000 of one letter overflow the 2 MiB stack of a thread,
//! and with it the process. So text goes to them in segments, on a stack that a segment cannot overflow.
//!
//! A segment ends where words end, so that the tokens are those of the whole text; only where 8 KiB have
//! no space can a word be cut.
//!
//! Invariant: no text overflows a stack.

use crate::gguf::Header;
use crate::raw;
use crate::{Error, Misuse};

/// Longest segment in bytes.
const SEGMENT_BYTES: usize = 1 << 14;
/// Stack for a segment in bytes: 2 KiB for each letter, four times what was seen. Only what is used of it
/// takes memory.
const STACK_BYTES: usize = SEGMENT_BYTES << 11;
/// Longest text in bytes that any thread's stack has room for.
const SHORT_BYTES: usize = 1 << 10;

/// Families for which the kernels split text by hand, without recursion.
const BY_HAND: [&str; 8] =
    ["gpt-2", "phi-2", "llama3", "llama-v3", "llama-bpe", "qwen2", "qwen35", "deepseek-r1-qwen"];

/// The tokens of `text`; with `control`, the names of control tokens in it become these.
pub(crate) fn tokenize(
    model: &raw::Model,
    header: &Header,
    text: &str,
    control: bool,
) -> Result<Vec<u32>, Error> {
    let by_hand = header.text("tokenizer.ggml.pre").is_some_and(|family| BY_HAND.contains(&family));
    let recurses = header.text("tokenizer.ggml.model") == Some("gpt2") && !by_hand;
    if !recurses || text.len() <= SHORT_BYTES {
        return whole(model, text, control);
    }
    let in_segments = || {
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (segment, after) = rest.split_at(end(rest));
            tokens.extend(whole(model, segment, control)?);
            rest = after;
        }
        Ok(tokens)
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("tokenize".to_owned()).stack_size(STACK_BYTES);
        let failed = |said: String| Error::Failed { code: 0, said };
        let thread = builder.spawn_scoped(scope, in_segments).map_err(|error| failed(error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(failed("a thread that tokenized panicked".to_owned())))
    })
}

/// Where the first segment of `text` ends: before a word or a line, where there is one in its second half.
fn end(text: &str) -> usize {
    if text.len() <= SEGMENT_BYTES {
        return text.len();
    }
    let most = text.floor_char_boundary(SEGMENT_BYTES);
    let least = text.floor_char_boundary(SEGMENT_BYTES / 2);
    let bytes = text.as_bytes();
    let is_word = |at: usize| bytes.get(at).is_some_and(|byte| !byte.is_ascii_whitespace());
    let line = |at: &usize| bytes[at - 1] == b'\n' && is_word(*at);
    let word = |at: &usize| bytes[*at] == b' ' && is_word(at - 1) && is_word(at + 1);
    let mut places = least..most;
    places.clone().rfind(line).or_else(|| places.rfind(word)).unwrap_or(most)
}

/// The tokens of a text that is not too long for the stack.
fn whole(model: &raw::Model, text: &str, control: bool) -> Result<Vec<u32>, Error> {
    let too_long = || Error::from(Misuse::Text { bytes: text.len() });
    if i32::try_from(text.len()).is_err() {
        return Err(too_long());
    }
    if text.is_empty() {
        return Ok(Vec::new());
    }
    // A token for each byte and one for a space in front is the most that there are, but for
    // vocabularies that spell some letters in several; those are asked a second time.
    let mut tokens = vec![0; text.len() + 8];
    loop {
        let count = model.tokenize(text, control, &mut tokens);
        match usize::try_from(count) {
            Ok(count) => {
                tokens.truncate(count);
                return Ok(tokens.into_iter().map(i32::cast_unsigned).collect());
            }
            Err(_) => match usize::try_from(count.unsigned_abs()) {
                Ok(needed) if needed > tokens.len() && count > i32::MIN => tokens.resize(needed, 0),
                _ => return Err(too_long()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SEGMENT_BYTES, end};

    #[test]
    fn segments_end_where_words_end() {
        let prose = "some words and a line\n".repeat(2000);
        let at = end(&prose);
        assert!(at <= SEGMENT_BYTES && prose[..at].ends_with('\n') && prose[at..].starts_with("some"));
        let words = "word ".repeat(5000);
        let at = end(&words);
        assert!(at <= SEGMENT_BYTES && words[..at].ends_with("word") && words[at..].starts_with(" word"));
        for letter in ["a", " ", "\n", "é", "🦀"] {
            let text = letter.repeat(20_000);
            let at = end(&text);
            assert!(text.is_char_boundary(at) && at > SEGMENT_BYTES - 4 && at <= SEGMENT_BYTES, "{letter}");
        }
        assert_eq!(end("short"), 5);
    }
}
