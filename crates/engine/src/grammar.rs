//! Which tokens may be next, where an answer must have a form.
//!
//! A schema or a grammar is compiled once for a request. Before each token it says which tokens can
//! still become an answer of that form, and after each it moves on.
//!
//! Invariant: what follows the masks and ends with the end token has the form. A form that cannot be is
//! refused before anything is computed.

use std::fmt::{self, Display};
use std::sync::Arc;

use firsttoken_logic::engine::ids::Token;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::sample::Mask;
use crate::vocabulary::Vocabulary;

/// Longest grammar or schema.
pub const FORM_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of brackets in one.
pub const FORM_DEPTH_MAX: usize = 64;

/// Space within JSON, in one place: one, or a new line and what it is indented by. A model that is held to a
/// form it does not care for would otherwise say nothing but space.
const SPACE: &str = r" |\r?\n[ \t]{0,40}";

/// Stack for compiling one: some kilobytes for each rule that a form of this size can have. Only what
/// is touched is ever real.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// The form that an answer must have.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// A JSON object, whatever is in it.
    JsonObject,
    /// JSON that fits this schema.
    Schema(Value),
    /// A text of this grammar, in the dialect of Lark that llguidance reads.
    Lark(String),
    /// A text that this regular expression matches whole.
    Regex(String),
}

/// Why there is no mask.
#[derive(Debug, thiserror::Error)]
pub enum GrammarError {
    /// The model cannot be constrained.
    #[error("this model's vocabulary takes no grammar: {0}")]
    Vocabulary(String),
    /// The form is none.
    #[error("the grammar or schema that the answer should follow is invalid: {0}")]
    Invalid(String),
    /// The form is larger than what is taken.
    #[error("the grammar or schema has too many {what} {is}, at most {most} are taken")]
    Large {
        /// What is too many.
        what: &'static str,
        /// So many are there.
        is: usize,
        /// So many may be.
        most: usize,
    },
    /// It went too far, or a token came that was not allowed.
    #[error("the grammar cannot go on: {0}")]
    Stuck(String),
}

/// A model's vocabulary, ready for any number of grammars.
pub struct Grammars {
    factory: ParserFactory,
    ends: Arc<[Token]>,
}

impl Grammars {
    /// Reads a vocabulary: once for a model, for it takes its time with a large one.
    ///
    /// # Errors
    /// When it has no end token, or no bytes to write JSON with.
    pub fn new(vocabulary: &dyn Vocabulary) -> Result<Self, GrammarError> {
        let ends: Vec<Token> = (0..vocabulary.size()).filter(|token| vocabulary.is_end(*token)).collect();
        let end = vocabulary.eos().or_else(|| ends.first().copied());
        let end = end.ok_or_else(|| GrammarError::Vocabulary("it has no end token".to_owned()))?;
        let words: Vec<Vec<u8>> = (0..vocabulary.size()).map(|token| word(vocabulary, token)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(vocabulary.size(), end), &words);
        let ends = if ends.is_empty() { vec![end] } else { ends };
        let trie = trie.with_eos_tokens(&ends);
        let environment: TokEnv = Arc::new(Environment(trie));
        let factory = ParserFactory::new_simple(&environment);
        let mut factory = factory.map_err(|error| GrammarError::Vocabulary(brief(error)))?;
        factory.quiet();
        let limits = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        limits.clone_into(factory.limits_mut());
        Ok(Self { factory, ends: ends.into() })
    }

    /// Compiles a form.
    ///
    /// # Errors
    /// When it is invalid, too large, or beyond what can be constrained.
    pub fn compile(&self, form: &Form) -> Result<Grammar, GrammarError> {
        let grammar = match form {
            Form::JsonObject => TopLevelGrammar::from_json_schema(spaced(&json!({"type": "object"}))),
            Form::Schema(schema) => {
                bounded(&schema.to_string())?;
                TopLevelGrammar::from_json_schema(spaced(schema))
            }
            Form::Lark(text) => {
                bounded(text)?;
                TopLevelGrammar::from_lark(text.clone())
            }
            Form::Regex(text) => {
                bounded(text)?;
                TopLevelGrammar::from_regex(text)
            }
        };
        let matcher = self.matcher(grammar)?;
        Ok(Grammar { matcher, mask: SimpleVob::new(), ends: Arc::clone(&self.ends) })
    }
}

impl Grammars {
    /// Compiles on a stack of its own: the library follows rules and references by recursion, and a
    /// stack that is too small is the end of the process.
    fn matcher(&self, grammar: TopLevelGrammar) -> Result<Matcher, GrammarError> {
        let compile = || {
            let mut matcher = Matcher::new(self.factory.create_parser(grammar));
            // A form that no text has is found here, not after the first token.
            let mask = matcher.compute_mask_or_eos();
            mask.map(|_| matcher).map_err(|error| GrammarError::Invalid(brief(error)))
        };
        let failed = |what: &str| GrammarError::Invalid(format!("it could not be compiled: {what}"));
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("grammar".to_owned()).stack_size(STACK_BYTES);
            let thread = builder.spawn_scoped(scope, compile).map_err(|error| failed(&error.to_string()))?;
            thread.join().unwrap_or_else(|_| Err(failed("the library gave up")))
        })
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

/// One answer's place in its form. A copy goes its own way.
#[derive(Clone)]
pub struct Grammar {
    matcher: Matcher,
    mask: SimpleVob,
    ends: Arc<[Token]>,
}

impl Grammar {
    /// The tokens that may be next: the end token alone where nothing else can follow.
    ///
    /// # Errors
    /// When the grammar takes more work than a step may.
    pub fn mask(&mut self) -> Result<Mask<'_>, GrammarError> {
        self.mask = self.matcher.compute_mask_or_eos().map_err(stuck)?;
        Ok(Mask(self.mask.as_slice()))
    }

    /// `token` is next.
    ///
    /// # Errors
    /// When the mask did not allow it.
    pub fn advance(&mut self, token: Token) -> Result<(), GrammarError> {
        // Once nothing can follow, the library takes no token at all.
        if self.is_finished() && !self.matcher.is_error() && self.ends.contains(&token) {
            return Ok(());
        }
        self.matcher.consume_token(token).map_err(stuck)
    }

    /// How many of `tokens`, one after the other, the form allows: guesses beyond need not be verified.
    ///
    /// # Errors
    /// When the grammar takes more work than a step may.
    pub fn allowed(&mut self, tokens: &[Token]) -> Result<usize, GrammarError> {
        self.matcher.validate_tokens(tokens).map_err(stuck)
    }

    /// Takes back the last `count` tokens.
    ///
    /// # Errors
    /// When there were not so many.
    pub fn rollback(&mut self, count: usize) -> Result<(), GrammarError> {
        self.matcher.rollback(count).map_err(stuck)
    }

    /// Whether the answer may end here.
    ///
    /// # Errors
    /// When the grammar is stuck.
    pub fn may_end(&mut self) -> Result<bool, GrammarError> {
        self.matcher.is_accepting().map_err(stuck)
    }

    /// Whether the answer must end here: nothing can follow.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}

/// A vocabulary as the library wants it. Nothing is forced, so text need not be tokenised as the model
/// would.
struct Environment(TokTrie);

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<Token> {
        self.0.greedy_tokenize(text)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// The bytes of a token; those of a special one are marked, so that no text is mistaken for it.
fn word(vocabulary: &dyn Vocabulary, token: Token) -> Vec<u8> {
    let is_special = vocabulary.is_special(token);
    let mut bytes = Vec::new();
    if is_special {
        bytes.push(TokTrie::SPECIAL_TOKEN_MARKER);
    }
    vocabulary.push_piece(token, is_special, &mut bytes);
    bytes
}

/// A schema, and how much space its JSON may have.
pub(crate) fn spaced(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(fields) = &mut schema {
        fields.insert("x-guidance".to_owned(), json!({"whitespace_pattern": SPACE}));
    }
    schema
}

/// Refuses what would take too long, or too deep a stack, to compile.
fn bounded(form: &str) -> Result<(), GrammarError> {
    if form.len() > FORM_BYTES_MAX {
        return Err(GrammarError::Large { what: "bytes:", is: form.len(), most: FORM_BYTES_MAX });
    }
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in form.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > FORM_DEPTH_MAX {
        return Err(GrammarError::Large { what: "levels of brackets:", is: deepest, most: FORM_DEPTH_MAX });
    }
    Ok(())
}

fn stuck(error: impl Display) -> GrammarError {
    GrammarError::Stuck(brief(error))
}

/// The library's errors go on for pages, with the whole grammar in them: what it says first, and the
/// reason that a regular expression is none.
fn brief(error: impl Display) -> String {
    let error = error.to_string();
    let mut lines = error.lines();
    let first = lines.next().unwrap_or_default().trim();
    match lines.find_map(|line| line.strip_prefix("error: ")) {
        Some(reason) => format!("{first} {reason}"),
        None => first.to_owned(),
    }
}
