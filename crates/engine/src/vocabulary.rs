//! What tokens mean: the border between numbers and bytes.
//!
//! A model brings its own vocabulary. [`Bytes`] is the smallest one there is, a token for each byte and
//! a few marks: what the tests speak, and what fake kernels can be given.
//!
//! Invariant: the pieces of `tokenize(text)` joined are the bytes of `text`.

use firsttoken_logic::engine::ids::Token;

/// A model's vocabulary.
pub trait Vocabulary: Send + Sync {
    /// How many tokens there are; they are numbered from zero.
    fn size(&self) -> u32;

    /// Appends the bytes of `token` to `out`, which may be a part of a character. A special token adds
    /// its text where `special` is asked for, and nothing where not; one that does not exist adds nothing.
    fn push_piece(&self, token: Token, special: bool, out: &mut Vec<u8>);

    /// The tokens of `text`, and no BOS before them. With `parse_special` the text of a special token
    /// becomes that token; without, it is text as any other.
    fn tokenize(&self, text: &str, parse_special: bool) -> Vec<Token>;

    /// Whether `token` steers the model rather than being text.
    fn is_special(&self, token: Token) -> bool;

    /// Whether the model says with `token` that it has finished.
    fn is_end(&self, token: Token) -> bool;

    /// What a text begins with, where the model knows such a token.
    fn bos(&self) -> Option<Token>;

    /// What a text ends with, where the model knows such a token.
    fn eos(&self) -> Option<Token>;

    /// Whether the model wants a BOS before each prompt.
    fn adds_bos(&self) -> bool;

    /// The special token that is written as `text`.
    fn special(&self, text: &str) -> Option<Token> {
        match self.tokenize(text, true)[..] {
            [token] if self.is_special(token) => Some(token),
            _ => None,
        }
    }

    /// The text of a special token, for a template; empty where there is none.
    fn special_text(&self, token: Option<Token>) -> String {
        let mut bytes = Vec::new();
        if let Some(token) = token {
            self.push_piece(token, true, &mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The tokens of a prompt, marks included, with one BOS where the model wants one: a template that
    /// has written it already does not get a second.
    fn prompt(&self, text: &str) -> Vec<Token> {
        let mut tokens = self.tokenize(text, true);
        if let Some(bos) = self.bos()
            && self.adds_bos()
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        tokens
    }
}

/// A token for each byte, and after them the marks: `<s>`, `</s>`, and those asked for.
#[derive(Clone, Debug)]
pub struct Bytes {
    marks: Vec<String>,
    adds_bos: bool,
}

/// The first mark: BOS.
const BOS: Token = 256;
/// The second: EOS.
const EOS: Token = 257;

impl Bytes {
    /// With these marks besides `<s>` and `</s>`; they get the numbers from 258 on.
    #[must_use]
    pub fn new(marks: &[&str], adds_bos: bool) -> Self {
        let marks = ["<s>", "</s>"].iter().chain(marks).map(|mark| (*mark).to_owned()).collect();
        Self { marks, adds_bos }
    }

    fn mark(&self, token: Token) -> Option<&str> {
        let at = token.checked_sub(BOS)?;
        self.marks.get(at as usize).map(String::as_str)
    }
}

impl Vocabulary for Bytes {
    fn size(&self) -> u32 {
        BOS + u32::try_from(self.marks.len()).unwrap_or(0)
    }

    fn push_piece(&self, token: Token, special: bool, out: &mut Vec<u8>) {
        if let Ok(byte) = u8::try_from(token) {
            out.push(byte);
        } else if special {
            out.extend(self.mark(token).unwrap_or_default().as_bytes());
        }
    }

    fn tokenize(&self, text: &str, parse_special: bool) -> Vec<Token> {
        let mut tokens = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            let marks = (BOS..).zip(&self.marks).filter(|(_, mark)| rest.starts_with(mark.as_bytes()));
            let mark = marks.max_by_key(|(_, mark)| mark.len()).filter(|_| parse_special);
            let (token, left) = match mark {
                Some((token, mark)) => (token, &rest[mark.len()..]),
                None => (Token::from(byte), after),
            };
            tokens.push(token);
            rest = left;
        }
        tokens
    }

    fn is_special(&self, token: Token) -> bool {
        self.mark(token).is_some()
    }

    fn is_end(&self, token: Token) -> bool {
        token == EOS
    }

    fn bos(&self) -> Option<Token> {
        Some(BOS)
    }

    fn eos(&self) -> Option<Token> {
        Some(EOS)
    }

    fn adds_bos(&self) -> bool {
        self.adds_bos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_tokens_only_where_they_are_asked_for() {
        let vocabulary = Bytes::new(&["<|im_start|>"], true);
        assert_eq!(vocabulary.tokenize("a<|im_start|>", true), [97, 258]);
        let plain = vocabulary.tokenize("a<|im_start|>", false);
        assert_eq!(plain.len(), 13);
        let mut bytes = Vec::new();
        plain.iter().for_each(|token| vocabulary.push_piece(*token, false, &mut bytes));
        assert_eq!(bytes, b"a<|im_start|>");
        assert_eq!(vocabulary.special("<|im_start|>"), Some(258));
        assert_eq!((vocabulary.special("<|im_end|>"), vocabulary.special("a")), (None, None));
        assert_eq!((vocabulary.special_text(Some(258)).as_str(), vocabulary.size()), ("<|im_start|>", 259));
    }

    #[test]
    fn a_prompt_has_one_bos() {
        let vocabulary = Bytes::new(&[], true);
        assert_eq!(vocabulary.prompt("a"), [BOS, 97]);
        assert_eq!(vocabulary.prompt("<s>a"), [BOS, 97]);
        assert_eq!(Bytes::new(&[], false).prompt("a"), [97]);
    }
}
