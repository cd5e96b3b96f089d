//! Embeddings of texts, in a context of their own: one that generates cannot make them beside.
//!
//! Invariant: a text is computed whole and alone; nothing of one text is left when the next begins.

use crate::context::{Threads, within};
use crate::raw::{self, Params};
use crate::{AbortHandle, Error, KvType, Misuse, Model};

/// The kernels' number for the mean over all tokens.
const MEAN: i32 = 1;
/// The kernels' number for a score rather than an embedding.
const RANK: u64 = 4;

/// Makes embeddings.
pub struct Embedder {
    context: raw::Context,
    model: Model,
    tokens_max: u32,
}

impl Embedder {
    /// Makes an embedder for texts of at most `tokens_max` tokens.
    ///
    /// # Errors
    /// When the model ranks instead, a size is out of bounds, or memory is short.
    pub fn new(model: &Model, tokens_max: u32, threads: Threads) -> Result<Self, Error> {
        let pooling = model.header().shape("pooling_type").unwrap_or_default();
        let facts = model.facts();
        if pooling == RANK || facts.diffuses || (facts.has_encoder && facts.has_decoder) {
            return Err(Error::Unable("makes no embeddings"));
        }
        let (one, several) = threads.numbers()?;
        let tokens_max = within("tokens_max", tokens_max, 1, 1 << 20)?;
        let params = Params {
            cells: tokens_max.next_multiple_of(256),
            rows: tokens_max,
            tile: tokens_max,
            ids: 1,
            outputs: 0,
            threads: one,
            threads_batch: several,
            keys: KvType::F16.number(),
            values: KvType::F16.number(),
            pooling: Some(i32::try_from(pooling).ok().filter(|pooling| *pooling > 0).unwrap_or(MEAN)),
        };
        drop(raw::complaint());
        let Some(context) = raw::Context::new(&model.raw, params) else {
            return Err(Error::NoContext { cells: tokens_max, said: raw::complaint() });
        };
        Ok(Self { context, model: model.clone(), tokens_max })
    }

    /// What ends a running computation.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::of(&self.context)
    }

    /// The embedding of a text: as many values as the model is wide, not normalised. `None` where it was
    /// ended early.
    ///
    /// # Errors
    /// When the text is empty or too long, has a token that the vocabulary has not, or the kernels fail.
    pub fn embed(&mut self, tokens: &[u32]) -> Result<Option<Vec<f32>>, Error> {
        if tokens.is_empty() {
            return Err(Misuse::NoRows.into());
        }
        if tokens.len() > self.tokens_max as usize {
            return Err(Misuse::Rows { rows: tokens.len(), max: self.tokens_max }.into());
        }
        let vocabulary = self.model.vocabulary();
        let mut rows = Vec::with_capacity(tokens.len());
        for (row, token) in (0_i32..).zip(tokens) {
            if *token >= vocabulary {
                let row = rows.len();
                return Err(Misuse::Token { row, token: *token, vocabulary }.into());
            }
            rows.push(raw::Row { token: token.cast_signed(), position: row, id: 0, output: true });
        }
        drop(raw::complaint());
        let code = self.context.decode(&rows);
        let values = if code == 0 { self.context.embedding(0).map(<[f32]>::to_vec) } else { None };
        self.context.cut(0, -1);
        match (code, values) {
            (0, Some(values)) => Ok(Some(values)),
            (2, _) => Ok(None),
            (code, _) => Err(Error::Failed { code, said: raw::complaint() }),
        }
    }
}
