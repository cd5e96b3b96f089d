//! A context: KV memory for many sequences, and steps over batches of rows.
//!
//! Every rule of the kernels is checked here before they see a call. They know sequences by id only:
//! which positions an id holds is theirs to say, by [`Context::held`], and how many cells are free nobody
//! says; the engine keeps books.
//!
//! Invariant: rows continue their sequences without a gap; an id is below [`Capabilities::ids`].

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::raw::{self, Params, Steps};
use crate::{Error, Misuse, Model, saved};

/// Most cells that a context can have. What fits a machine is far less, and the engine's to know.
const CELLS_MAX: u32 = 1 << 24;

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// 16-bit floats: exact enough for all models, and what the kernels are fastest with.
    #[default]
    F16,
    /// 8 bits and a scale: half of the memory.
    Q8_0,
    /// 4 bits and a scale: a quarter.
    Q4_0,
}

impl KvType {
    /// The type as the kernels number it.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::F16 => 1,
            Self::Q8_0 => 8,
            Self::Q4_0 => 2,
        }
    }

    /// Bytes that `values` of them take.
    #[must_use]
    pub const fn bytes(self, values: u64) -> u64 {
        match self {
            Self::F16 => values * 2,
            Self::Q8_0 => values.div_ceil(32) * 34,
            Self::Q4_0 => values.div_ceil(32) * 18,
        }
    }
}

/// How many threads compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// A batch of one row.
    pub one: NonZeroU32,
    /// A batch of several.
    pub several: NonZeroU32,
}

impl Threads {
    /// `count` for both.
    #[must_use]
    pub const fn new(count: NonZeroU32) -> Self {
        Self { one: count, several: count }
    }

    pub(crate) fn numbers(self) -> Result<(i32, i32), Misuse> {
        let number = |count: NonZeroU32| within("threads", count.get(), 1, 512).map(u32::cast_signed);
        Ok((number(self.one)?, number(self.several)?))
    }
}

/// How a context is made.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Cells of the KV memory: tokens that all sequences together can hold. Made a multiple of 256.
    pub cells: u32,
    /// Most rows of a batch.
    pub rows: u32,
    /// Most rows that the kernels compute at once; a batch of more is computed in several parts.
    pub tile: u32,
    /// Sequence ids, 256 at most.
    pub ids: u32,
    /// Most rows of a batch that may want logits; each takes 4 bytes for every token of the vocabulary.
    pub outputs: u32,
    /// How keys and values are kept.
    pub kv: KvType,
    /// How many threads compute.
    pub threads: Threads,
}

/// What a context can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Cells of the KV memory.
    pub cells: u32,
    /// Most rows of a batch.
    pub rows: u32,
    /// Most rows of a batch that may want logits.
    pub outputs: u32,
    /// Sequence ids.
    pub ids: u32,
    /// Whether a sequence can be cut back to a position. Recurrent models and those that attend to a
    /// sliding window cannot.
    pub can_truncate: bool,
    /// Whether a part of a sequence can be shared with another.
    pub can_share: bool,
    /// Whether a running step can be ended. Only where all layers are computed by the processor.
    pub can_abort: bool,
    /// Bytes of KV memory that one cell takes, over all layers.
    pub bytes_per_token: u64,
}

/// One token at one position of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Id of the sequence.
    pub sequence: u32,
    /// Where the token stands, from 0. Rows of a sequence continue it one by one.
    pub position: u32,
    /// The token.
    pub token: u32,
    /// Whether the logits of what follows are wanted.
    pub want_logits: bool,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was computed.
    Ok,
    /// There were too few free cells; nothing was computed and nothing changed.
    Full,
    /// It was ended early. Finished parts stay: ask [`Context::held`] for every sequence of the batch.
    Aborted,
}

/// Ends the running step of a context, from any thread.
#[derive(Clone)]
pub struct AbortHandle(Arc<Steps>);

impl AbortHandle {
    pub(crate) fn of(context: &raw::Context) -> Self {
        Self(context.steps())
    }

    /// Ends the step that runs now, if one does, and no later one. Says whether one ran.
    pub fn abort(&self) -> bool {
        let running = self.0.running.load(Ordering::Acquire);
        if running != 0 {
            self.0.ending.store(running, Ordering::Release);
        }
        running != 0
    }
}

/// KV memory and steps. Belongs to one thread at a time.
pub struct Context {
    raw: raw::Context,
    model: Model,
    capabilities: Capabilities,
    fingerprint: u64,
    /// For each row of the last batch whether it has logits; empty where that batch did not succeed.
    outputs: Vec<bool>,
}

/// `value`, where it is within bounds.
pub(crate) fn within(setting: &'static str, value: u32, least: u32, most: u32) -> Result<u32, Misuse> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(Misuse::Setting { setting, value, least, most })
}

impl Context {
    /// Makes a context for generation.
    ///
    /// # Errors
    /// When a size is out of bounds, the model does not generate text token by token, or memory is short.
    pub fn new(model: &Model, settings: Settings) -> Result<Self, Error> {
        let facts = model.facts();
        if !facts.has_decoder || facts.has_encoder || facts.diffuses {
            return Err(Error::Unable("does not write text token by token; it may make embeddings"));
        }
        let (one, several) = settings.threads.numbers()?;
        let cells = within("cells", settings.cells, 1, CELLS_MAX)?.next_multiple_of(256);
        let rows = within("rows", settings.rows, 1, cells)?;
        let params = Params {
            cells,
            rows,
            tile: within("tile", settings.tile, 1, rows)?,
            ids: within("ids", settings.ids, 1, raw::IDS_MAX)?,
            // The kernels keep room for one row of each sequence, whatever they are told.
            outputs: within("outputs", settings.outputs, 1, rows)?.max(settings.ids),
            threads: one,
            threads_batch: several,
            keys: settings.kv.number(),
            values: settings.kv.number(),
            pooling: None,
        };
        drop(raw::complaint());
        let Some(raw) = raw::Context::new(&model.raw, params).filter(raw::Context::has_memory) else {
            return Err(Error::NoContext { cells, said: raw::complaint() });
        };
        if !raw.is_causal() {
            return Err(Error::Unable("reads a text whole and does not write; it may make embeddings"));
        }
        let (cells, rows) = raw.sizes();
        let (keys, values) = model.header().kv_values_per_token();
        let capabilities = Capabilities {
            cells,
            rows,
            outputs: settings.outputs.min(rows),
            ids: params.ids,
            can_truncate: facts.keeps_all,
            can_share: facts.keeps_all,
            can_abort: model.on_processor(),
            bytes_per_token: settings.kv.bytes(keys) + settings.kv.bytes(values),
        };
        let kind = u64::from(params.keys) << 32 | u64::from(params.values);
        // How values lie in memory depends on the kind of attention.
        let attention = u64::from(raw::FLASH_ATTENTION.unsigned_abs());
        let fingerprint = saved::sum(&[model.fingerprint(), kind, attention], raw::version().as_bytes());
        Ok(Self { raw, model: model.clone(), capabilities, fingerprint, outputs: Vec::new() })
    }

    /// What the context can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Its model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tells whether saved sequences can be loaded: the same model, kind of memory, and build.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// What ends a running step.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::of(&self.raw)
    }

    /// Sets how many threads compute.
    ///
    /// # Errors
    /// When there are more than 512.
    pub fn set_threads(&mut self, threads: Threads) -> Result<(), Error> {
        let (one, several) = threads.numbers()?;
        self.raw.set_threads(one, several);
        Ok(())
    }

    /// Computes with the threads of `other`: they take turns. Two contexts that compute one after the other on
    /// threads of their own are in each other's way, for threads look for work a while before they sleep.
    pub fn share_threads(&mut self, other: &Self) {
        self.raw.share_threads(&other.raw);
    }

    /// Computes a batch. Rows of several sequences, and prompts beside running text, mix freely.
    ///
    /// # Errors
    /// A [`Misuse`] changes nothing. After [`Error::Failed`] every sequence of the batch is to be dropped.
    pub fn decode(&mut self, rows: &[Row]) -> Result<Outcome, Error> {
        self.outputs.clear();
        let checked = self.check(rows)?;
        drop(raw::complaint());
        match self.raw.decode(&checked) {
            0 => {
                self.outputs.extend(rows.iter().map(|row| row.want_logits));
                Ok(Outcome::Ok)
            }
            1 => Ok(Outcome::Full),
            2 => Ok(Outcome::Aborted),
            code => Err(Error::Failed { code, said: raw::complaint() }),
        }
    }

    /// The rows as the kernels have them, once they break no rule.
    fn check(&self, rows: &[Row]) -> Result<Vec<raw::Row>, Misuse> {
        let Capabilities { rows: most, outputs, ids, .. } = self.capabilities;
        let vocabulary = self.model.vocabulary();
        if rows.is_empty() {
            return Err(Misuse::NoRows);
        }
        if rows.len() > most as usize {
            return Err(Misuse::Rows { rows: rows.len(), max: most });
        }
        let wanted = rows.iter().filter(|row| row.want_logits).count();
        if wanted > outputs as usize {
            return Err(Misuse::Outputs { outputs: wanted, max: outputs });
        }
        // Where each sequence of the batch continues.
        let mut next: Vec<Option<u32>> = vec![None; ids as usize];
        let mut checked = Vec::with_capacity(rows.len());
        for (number, row) in rows.iter().enumerate() {
            let Row { sequence, position, token, want_logits } = *row;
            let id = self.id(sequence)?;
            let place = &mut next[sequence as usize];
            let expected = match *place {
                Some(expected) => expected,
                None => self.held(sequence)?.map_or(0, |(_, last)| last + 1),
            };
            if position != expected || position >= CELLS_MAX {
                return Err(Misuse::Position { row: number, sequence, position, expected });
            }
            *place = Some(position + 1);
            if token >= vocabulary {
                return Err(Misuse::Token { row: number, token, vocabulary });
            }
            let (token, position) = (token.cast_signed(), position.cast_signed());
            checked.push(raw::Row { token, position, id, output: want_logits });
        }
        Ok(checked)
    }

    /// An id as the kernels count.
    fn id(&self, sequence: u32) -> Result<i32, Misuse> {
        let ids = self.capabilities.ids;
        if sequence < ids { Ok(sequence.cast_signed()) } else { Err(Misuse::Sequence { sequence, ids }) }
    }

    /// The logits of what follows row `row` of the last batch, one for each token; `None` where the row
    /// did not want any, or the batch did not succeed.
    #[must_use]
    pub fn logits(&self, row: usize) -> Option<&[f32]> {
        if self.outputs.get(row) != Some(&true) {
            return None;
        }
        self.raw.logits(row)
    }

    /// First and last position that a sequence holds; all between are held too.
    ///
    /// # Errors
    /// When there is no such id.
    pub fn held(&self, sequence: u32) -> Result<Option<(u32, u32)>, Misuse> {
        let (first, last) = self.raw.held(self.id(sequence)?);
        Ok(u32::try_from(first).ok().zip(u32::try_from(last).ok()))
    }

    /// Lets `to` hold `positions` of `from` too. Nothing is copied; each goes on in cells of its own.
    ///
    /// # Errors
    /// When `from` does not hold all of `positions`, or `to` would not continue with them: it holds
    /// nothing, or ends there. One that holds a piece alone can be saved; to go on it lacks what came before.
    pub fn share(&mut self, from: u32, to: u32, positions: Range<u32>) -> Result<(), Error> {
        if !self.capabilities.can_share {
            return Err(Error::Unable(
                "cannot share a part of a sequence: it does not keep all that came before",
            ));
        }
        let (source, target) = (self.id(from)?, self.id(to)?);
        let Range { start, end } = positions;
        let source_holds = self.held(from)?.filter(|(first, last)| *first <= start && end <= last + 1);
        let continues = match self.held(to)? {
            None => true,
            Some((_, last)) => last + 1 == start,
        };
        if from == to || start >= end || source_holds.is_none() || !continues {
            return Err(Misuse::Range { from, to, start, end }.into());
        }
        self.raw.share(source, target, (start.cast_signed(), end.cast_signed()));
        Ok(())
    }

    /// Cuts a sequence back so that it ends before `position`; `false` where the model cannot, and then
    /// nothing has changed. Cutting at 0 drops it and always can be.
    ///
    /// # Errors
    /// When there is no such id.
    pub fn truncate(&mut self, sequence: u32, position: u32) -> Result<bool, Misuse> {
        let id = self.id(sequence)?;
        match self.held(sequence)? {
            None => Ok(true),
            Some((_, last)) if last < position => Ok(true),
            Some((first, _)) if position <= first => Ok(self.raw.cut(id, -1)),
            Some(_) if !self.capabilities.can_truncate => Ok(false),
            Some(_) => Ok(self.raw.cut(id, position.cast_signed())),
        }
    }

    /// Drops a sequence. Cells go with the last sequence that holds them.
    ///
    /// # Errors
    /// When there is no such id.
    pub fn drop_seq(&mut self, sequence: u32) -> Result<(), Misuse> {
        self.truncate(sequence, 0).map(drop)
    }

    /// Writes a sequence to `bytes`, which is emptied first. The sequence stays.
    ///
    /// # Errors
    /// When the sequence holds nothing, or the kernels fail.
    pub fn save(&mut self, sequence: u32, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let id = self.id(sequence)?;
        let held = self.held(sequence)?.ok_or(Misuse::Empty { sequence })?;
        saved::begin(bytes);
        drop(raw::complaint());
        if !self.raw.save(id, bytes) {
            bytes.clear();
            return Err(Error::Failed { code: 0, said: raw::complaint() });
        }
        saved::seal(bytes, self.fingerprint, held);
        Ok(())
    }

    /// Gives an unused id a saved sequence. `false` where there are too few free cells, and then the id
    /// is still unused.
    ///
    /// # Errors
    /// When the bytes were damaged or saved by another model, or the id is in use.
    pub fn load(&mut self, sequence: u32, bytes: &[u8]) -> Result<bool, Error> {
        let id = self.id(sequence)?;
        if self.held(sequence)?.is_some() {
            return Err(Misuse::InUse { sequence }.into());
        }
        let opened = saved::open(bytes, self.fingerprint)?;
        if self.raw.load(id, opened.state) && self.held(sequence)? == Some(opened.held) {
            return Ok(true);
        }
        self.drop_seq(sequence)?;
        Ok(false)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}
