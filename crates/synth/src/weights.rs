//! The tensors of a Llama model, and their values row by row.
//!
//! Each row has a generator of its own, so that nothing large is held and a row can be made again: the
//! output of a peaked model repeats the embedding of the token that comes before.
//!
//! Invariant: a row depends on the recipe, its tensor and its number only.

use std::io::{self, Write};

use crate::gguf::aligned;
use crate::{BEGIN, FIRST_WORD, Mind, Recipe, Weights};

/// How sure a peaked model is; larger than what noise of any length adds up to.
const SURENESS: f32 = 4.0;
/// How much the layers of a peaked model add to an embedding.
const MURMUR: f32 = 0.02;

/// What fills a tensor.
#[derive(Clone, Copy, PartialEq)]
enum Fill {
    Ones,
    /// Normal, so scaled that a product with it keeps its length times this.
    Noise(f32),
    Embedding,
    Output,
}

/// A matrix or a vector of the model.
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// Values in a row.
    pub(crate) row: u32,
    pub(crate) rows: u32,
    pub(crate) stored: Weights,
    fill: Fill,
    number: u64,
}

/// Every tensor in the order of the file.
pub(crate) fn tensors(recipe: &Recipe) -> Vec<Tensor> {
    let shape = recipe.shape;
    let shared = shape.width / shape.heads * shape.shared_heads;
    let loud = if recipe.mind == Mind::Random { 1.0 } else { MURMUR };
    let mut list = Vec::new();
    let mut add = |name: String, row, rows, fill| {
        let stored = if fill == Fill::Ones { Weights::F32 } else { recipe.weights };
        let number = list.len() as u64;
        list.push(Tensor { name: format!("{name}.weight"), row, rows, stored, fill, number });
    };
    add("token_embd".to_owned(), shape.width, shape.vocabulary, Fill::Embedding);
    for layer in 0..shape.layers {
        let matrices = [
            ("attn_norm", shape.width, 1, Fill::Ones),
            ("attn_q", shape.width, shape.width, Fill::Noise(1.0)),
            ("attn_k", shape.width, shared, Fill::Noise(1.0)),
            ("attn_v", shape.width, shared, Fill::Noise(1.0)),
            ("attn_output", shape.width, shape.width, Fill::Noise(loud)),
            ("ffn_norm", shape.width, 1, Fill::Ones),
            ("ffn_gate", shape.width, shape.inner, Fill::Noise(1.0)),
            ("ffn_up", shape.width, shape.inner, Fill::Noise(1.0)),
            ("ffn_down", shape.inner, shape.width, Fill::Noise(loud)),
        ];
        for (name, row, rows, fill) in matrices {
            add(format!("blk.{layer}.{name}"), row, rows, fill);
        }
    }
    add("output_norm".to_owned(), shape.width, 1, Fill::Ones);
    add("output".to_owned(), shape.width, shape.vocabulary, Fill::Output);
    list
}

impl Tensor {
    /// Bytes of its data, without what aligns the next one.
    pub(crate) const fn bytes(&self) -> u64 {
        self.stored.bytes(self.row as u64 * self.rows as u64)
    }

    /// Writes its data, and zeros up to the next aligned place.
    pub(crate) fn write(&self, recipe: &Recipe, out: &mut impl Write) -> io::Result<()> {
        let before = match self.fill {
            Fill::Output => predecessors(recipe),
            _ => Vec::new(),
        };
        let mut bytes = Vec::new();
        for row in 0..self.rows {
            bytes.clear();
            self.stored.put(&self.values(recipe, row, &before), &mut bytes);
            out.write_all(&bytes)?;
        }
        let padding = aligned(self.bytes()) - self.bytes();
        out.write_all(&vec![0; usize::try_from(padding).unwrap_or_default()])
    }

    /// The values of one row; `before` is the token before each, for the output of a peaked model.
    fn values(&self, recipe: &Recipe, row: u32, before: &[Option<u32>]) -> Vec<f32> {
        let length = self.row as usize;
        let unit = 1.0 / root(self.row);
        match self.fill {
            Fill::Ones => vec![1.0; length],
            Fill::Noise(scale) => noise(recipe.seed, self.number, row, length, scale * unit),
            Fill::Embedding => embedding(recipe, row),
            Fill::Output if recipe.mind == Mind::Random => {
                // Nothing ends a text before its time.
                let control = (BEGIN..FIRST_WORD).contains(&row);
                let scale = if control { 0.0 } else { SURENESS * unit };
                noise(recipe.seed, self.number, row, length, scale)
            }
            Fill::Output => match before.get(row as usize).copied().flatten() {
                Some(token) => {
                    let mut values = embedding(recipe, token);
                    values.iter_mut().for_each(|value| *value *= SURENESS * unit);
                    values
                }
                None => vec![0.0; length],
            },
        }
    }
}

/// The embedding of a token. In a peaked model all are of one length, so that none drowns another.
fn embedding(recipe: &Recipe, token: u32) -> Vec<f32> {
    let width = recipe.shape.width;
    let mut values = noise(recipe.seed, 0, token, width as usize, 1.0);
    if recipe.mind != Mind::Random {
        let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        values.iter_mut().for_each(|value| *value *= root(width) / length);
    }
    values
}

#[expect(clippy::cast_precision_loss, reason = "sizes of a model are far below 2^24")]
fn root(size: u32) -> f32 {
    (size as f32).sqrt()
}

/// Values that are normal enough: sums of four uniform ones, of variance `scale`².
fn noise(seed: u64, tensor: u64, row: u32, length: usize, scale: f32) -> Vec<f32> {
    let mut random =
        fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ tensor << 40 ^ u64::from(row));
    let scale = scale * 3_f32.sqrt() / 65_536.0;
    let draw = |_| {
        let bits = random.u64(..);
        let parts =
            [0, 16, 32, 48].map(|shift| f32::from(u16::try_from(bits >> shift & 0xffff).unwrap_or(0)));
        (parts.iter().sum::<f32>() - 131_070.0) * scale
    };
    (0..length).map(draw).collect()
}

/// What follows each token.
pub(crate) fn successors(recipe: &Recipe) -> Vec<Option<u32>> {
    let mut after = vec![None; recipe.shape.vocabulary as usize];
    let Mind::Peaked { ring, astray } = recipe.mind else {
        return after;
    };
    let mut tokens: Vec<u32> = (32..127).chain(FIRST_WORD..recipe.shape.vocabulary).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut tokens);
    let ring = if ring == 0 { tokens.len() } else { ring as usize };
    for ring in tokens.chunks(ring) {
        for (token, next) in ring.iter().zip(ring.iter().cycle().skip(1)) {
            after[*token as usize] = Some(*next);
        }
    }
    // Those astray exchange their successors in a ring of their own; each still has exactly one.
    let mut random = fastrand::Rng::with_seed(recipe.seed);
    let mut lost: Vec<usize> = tokens.iter().map(|token| *token as usize).collect();
    lost.retain(|_| random.f64() < astray);
    if let Some((first, rest)) = lost.split_first() {
        rest.iter().for_each(|token| after.swap(*first, *token));
    }
    after
}

/// What stands before each token; the reverse of [`successors`].
fn predecessors(recipe: &Recipe) -> Vec<Option<u32>> {
    let mut before = vec![None; recipe.shape.vocabulary as usize];
    for (token, next) in (0_u32..).zip(successors(recipe)) {
        if let Some(next) = next {
            before[next as usize] = Some(token);
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use crate::{Mind, Recipe};

    fn peaked(ring: u32, astray: f64) -> Recipe {
        Recipe { mind: Mind::Peaked { ring, astray }, ..Recipe::default() }
    }

    #[test]
    fn every_token_follows_one() {
        for recipe in [peaked(0, 0.0), peaked(10, 0.0), peaked(0, 0.3)] {
            let after = recipe.successors();
            let mut reached: Vec<u32> = after.iter().flatten().copied().collect();
            reached.sort_unstable();
            let expected: Vec<u32> = (32..127).chain(260..320).collect();
            assert_eq!(reached, expected);
        }
        let strays = peaked(0, 0.3).successors();
        let apart = strays.iter().zip(peaked(0, 0.0).successors()).filter(|(a, b)| **a != *b).count();
        assert!((20..80).contains(&apart), "{apart} of 155 went astray");
    }

    #[test]
    fn a_recipe_is_a_file() {
        let recipe = Recipe::default();
        assert_eq!(recipe.bytes().unwrap(), recipe.bytes().unwrap());
        let other = Recipe { seed: 2, ..recipe.clone() };
        assert_ne!(recipe.bytes().unwrap(), other.bytes().unwrap());
        let mut crooked = recipe;
        crooked.shape.heads = 3;
        assert!(crooked.bytes().is_err());
    }
}
