//! Model files with made-up weights: GGUF files of the Llama architecture, of any size, from a seed.
//!
//! No weights can be downloaded where the tests run, and a real model's answers are nobody's to know. A
//! [`Mind::Random`] model depends on its whole context, so that a lost or mixed-up token shows; in a
//! [`Mind::Peaked`] one each token's successor is known, so that greedy text is exact under any shape of
//! batch, and a draft can be wrong as often as wanted.
//!
//! One byte of text is one token (ids 0 to 255), so lengths of prompts are exact; the rest of the
//! vocabulary is four control tokens and filler words.
//!
//! Invariant: the same recipe gives the same file, byte for byte. Never shipped.

use std::io::{self, Write};

mod gguf;
mod numbers;
mod weights;

pub use numbers::Weights;

/// Begins a text; only added where [`Recipe::adds_bos`] says so.
pub const BEGIN: u32 = 256;
/// Opens a message of the template.
pub const MESSAGE_START: u32 = 257;
/// Closes a message of the template, and ends generation.
pub const MESSAGE_END: u32 = 258;
/// Fills up.
pub const PAD: u32 = 259;
/// The first token that is a filler word.
pub const FIRST_WORD: u32 = 260;

/// The template that every file carries.
pub const TEMPLATE: &str = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Layers.
    pub layers: u32,
    /// Values of one embedding; a multiple of 32 and of `heads`.
    pub width: u32,
    /// Heads of attention.
    pub heads: u32,
    /// Heads that keys and values have; divides `heads`.
    pub shared_heads: u32,
    /// Values inside of a feed-forward layer; a multiple of 32.
    pub inner: u32,
    /// Tokens, more than 260.
    pub vocabulary: u32,
}

impl Shape {
    /// About 0.2 MB as F16, for tests.
    pub const NANO: Self =
        Self { layers: 2, width: 64, heads: 2, shared_heads: 1, inner: 128, vocabulary: 320 };
    /// A draft beside [`Self::LARGE`] and [`Self::MEDIUM`], of the same vocabulary.
    pub const DRAFT: Self =
        Self { layers: 2, width: 256, heads: 4, shared_heads: 2, inner: 768, vocabulary: 32_000 };
    /// About 125 million weights, 133 MB as Q8_0; 12 KiB of KV memory per token.
    pub const MEDIUM: Self =
        Self { layers: 12, width: 768, heads: 12, shared_heads: 4, inner: 2048, vocabulary: 32_000 };
    /// About 500 million weights.
    pub const LARGE: Self =
        Self { layers: 24, width: 1280, heads: 20, shared_heads: 5, inner: 3456, vocabulary: 32_000 };
}

/// What a model answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mind {
    /// Something that depends on every token before.
    Random,
    /// The successor of the last token, whatever came before it. Tokens that are no printable ASCII and
    /// no word have none.
    Peaked {
        /// Length of the rings in which tokens follow each other; 0 for one ring of all.
        ring: u32,
        /// Part of the tokens that have another successor than with 0, between 0 and 1: a draft with
        /// 0.2 is right about 80 % of the time.
        astray: f64,
    },
}

/// A model to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Its sizes.
    pub shape: Shape,
    /// How the large matrices are stored.
    pub weights: Weights,
    /// What it answers.
    pub mind: Mind,
    /// Another seed is another model; rings of successors are the same for all seeds.
    pub seed: u64,
    /// The longest context that it says it was made for, in tokens.
    pub context: u32,
    /// Whether text shall begin with [`BEGIN`].
    pub adds_bos: bool,
    /// How it says that embeddings are pooled, as GGUF numbers it (1 is the mean); none for one that writes.
    pub pooling: Option<u32>,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            shape: Shape::NANO,
            weights: Weights::F16,
            mind: Mind::Random,
            seed: 1,
            context: 32_768,
            adds_bos: false,
            pooling: None,
        }
    }
}

impl Recipe {
    /// Writes the file.
    ///
    /// # Errors
    /// When the sizes do not fit together, or `out` fails.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let shape = self.shape;
        let blocks = [shape.width, shape.inner].iter().all(|size| *size > 0 && size.is_multiple_of(32));
        let divide = |a: u32, by: u32| by > 0 && a.is_multiple_of(by);
        let heads = divide(shape.width, shape.heads) && divide(shape.heads, shape.shared_heads);
        if !blocks || !heads || shape.layers == 0 || shape.vocabulary <= FIRST_WORD {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{shape:?} cannot be")));
        }
        let tensors = weights::tensors(self);
        out.write_all(&gguf::head(self, &tensors))?;
        for tensor in &tensors {
            tensor.write(self, out)?;
        }
        out.flush()
    }

    /// The file in memory; for the small ones.
    ///
    /// # Errors
    /// When the sizes do not fit together.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write(&mut bytes)?;
        Ok(bytes)
    }

    /// What follows each token in a peaked model; `None` for tokens that have no successor.
    #[must_use]
    pub fn successors(&self) -> Vec<Option<u32>> {
        weights::successors(self)
    }
}
