//! The real kernels, and a real model's vocabulary.
//!
//! Invariant: whatever the boundary refuses is a failure here, for the books would be wrong from there
//! on.

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use firsttoken_llama::{self as llama, AbortHandle, Context, Load, Markup, Misuse, Settings, Threads};
pub use firsttoken_llama::{Error, KvType, Model};
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::ids::{SeqId, Token};

use tokio::time::Instant;

use crate::backend::{Backend, Capabilities, Check, Failed, Outcome, Row};
use crate::vocabulary::Vocabulary;

/// How the kernels are set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Tokens that all sequences together can hold; a multiple of 256.
    pub cells: u32,
    /// Sequences, kept prefixes included.
    pub ids: u16,
    /// Most rows of a step.
    pub rows_max: u32,
    /// How keys and values are kept.
    pub kv: KvType,
    /// Threads that compute.
    pub threads: NonZeroU32,
}

/// Rows of the steps that a warm-up computes, until one takes long.
const WARM_UP_ROWS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// From here on a step of the warm-up is the last: nobody waits long for a large model's.
const WARM_UP_STEP_MAX: Duration = Duration::from_millis(100);

/// Opens a model file; `gpu_layers` of its layers go to a GPU, all of them if not said.
///
/// # Errors
/// When it is missing, broken, or of a kind that cannot be computed.
pub fn open(path: &Path, gpu_layers: Option<u32>) -> Result<Model, Error> {
    let usual = Load::default();
    Model::load(path, Load { gpu_layers: gpu_layers.unwrap_or(usual.gpu_layers), ..usual }, |_| true)
}

/// By how many tokens that nobody says two vocabularies may differ that are the same all the same: the same
/// makers fill them up to other lengths for models of other sizes.
const FILLERS_MAX: u32 = 128;

/// Whether each token of `draft` means what it means to `model`, so that the one can guess for the other.
///
/// # Errors
/// How they differ.
pub fn same_vocabulary(model: &Model, draft: &Model) -> Result<(), String> {
    let (own, other) = (model.vocabulary(), draft.vocabulary());
    if own.abs_diff(other) > FILLERS_MAX {
        return Err(format!("it knows {other} tokens, the model {own}"));
    }
    let (mut is, mut should) = (Vec::new(), Vec::new());
    for token in 0..own.min(other) {
        is.clear();
        should.clear();
        draft.push_piece(token, true, &mut is);
        model.push_piece(token, true, &mut should);
        if is != should {
            let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            return Err(format!(
                "its token {token} is {:?}, the model's is {:?}",
                shown(&is),
                shown(&should)
            ));
        }
    }
    Ok(())
}

/// The kernels over one context.
pub struct Native {
    context: Context,
    capabilities: Capabilities,
    rows: Vec<llama::Row>,
}

impl Native {
    /// An empty context over `model`.
    ///
    /// # Errors
    /// When memory lacks, or the model cannot be set up so.
    pub fn new(model: &Model, setup: Setup) -> Result<Self, Error> {
        let ids = u32::from(setup.ids);
        let context = Context::new(
            model,
            Settings {
                cells: setup.cells,
                rows: setup.rows_max,
                tile: setup.rows_max.min(512),
                ids,
                // A row for each sequence, and guesses for some of them.
                outputs: (ids * 2).max(64).min(setup.rows_max),
                kv: setup.kv,
                threads: Threads::new(setup.threads),
            },
        )?;
        let can = context.capabilities();
        let capabilities = Capabilities {
            cells: can.cells,
            ids: setup.ids,
            rows_max: can.rows,
            logits_max: can.outputs,
            vocabulary: model.vocabulary(),
            partial: can.can_share && can.can_truncate,
            token_bytes: u32::try_from(can.bytes_per_token).unwrap_or(u32::MAX),
        };
        Ok(Self { context, capabilities, rows: Vec::new() })
    }

    /// Computes a few steps and forgets them: weights are read, and the kernels' threads and buffers are
    /// there, before somebody waits for them. What comes back has learnt from them what steps take, so that
    /// the first request's pace is no guess.
    ///
    /// # Errors
    /// When the kernels fail.
    pub fn warm_up(&mut self, token: Token) -> Result<StepCost, Failed> {
        self.trial(token, 1)?;
        let mut steps = Vec::new();
        let most = self.capabilities.rows_max;
        for rows in WARM_UP_ROWS.into_iter().filter(|rows| *rows <= most) {
            let took = self.trial(token, rows)?;
            steps.push((rows, took));
            if took > WARM_UP_STEP_MAX {
                break;
            }
        }
        Ok(StepCost::measured(&steps))
    }

    /// How long a step of so many rows takes, on its own.
    fn trial(&mut self, token: Token, rows: u32) -> Result<Duration, Failed> {
        let seq = SeqId(0);
        let began = Instant::now();
        let step: Vec<Row> =
            (0..rows).map(|position| Row { seq, position, token, logits: position + 1 == rows }).collect();
        self.decode(&step)?;
        let took = began.elapsed();
        self.drop_seq(seq)?;
        Ok(took)
    }

    /// Computes with the threads of `other`, in turns.
    pub fn share_threads(&mut self, other: &Self) {
        self.context.share_threads(&other.context);
    }

    /// Ends the step that is computed, from any thread.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        self.context.abort_handle()
    }
}

impl Backend for Native {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn decode(&mut self, rows: &[Row]) -> Result<Outcome, Failed> {
        self.rows.clear();
        self.rows.extend(rows.iter().map(|row| llama::Row {
            sequence: u32::from(row.seq.0),
            position: row.position,
            token: row.token,
            want_logits: row.logits,
        }));
        Ok(match self.context.decode(&self.rows).map_err(failed)? {
            llama::Outcome::Ok => Outcome::Done,
            llama::Outcome::Full => Outcome::Full,
            llama::Outcome::Aborted => Outcome::Aborted,
        })
    }

    fn logits(&mut self, row: usize) -> &[f32] {
        self.context.logits(row).unwrap_or_default()
    }

    fn share(&mut self, from: SeqId, to: SeqId, range: Range<u32>) -> Result<(), Failed> {
        self.context.share(from.0.into(), to.0.into(), range).map_err(failed)
    }

    fn truncate(&mut self, seq: SeqId, end: u32) -> Result<(), Failed> {
        match self.context.truncate(seq.0.into(), end).map_err(misused)? {
            true => Ok(()),
            false => Err(Failed { what: format!("{seq:?} cannot be cut at {end}") }),
        }
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Failed> {
        self.context.drop_seq(seq.0.into()).map_err(misused)
    }

    fn save(&mut self, seq: SeqId) -> Result<Vec<u8>, Failed> {
        let mut bytes = Vec::new();
        self.context.save(seq.0.into(), &mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    fn load(&mut self, seq: SeqId, bytes: &[u8]) -> Result<(), Failed> {
        match self.context.load(seq.0.into(), bytes).map_err(failed)? {
            true => Ok(()),
            false => Err(Failed { what: "there is no room for a saved sequence".to_owned() }),
        }
    }

    fn fingerprint(&self) -> u64 {
        self.context.fingerprint()
    }

    fn check(&self) -> Check {
        let fingerprint = self.context.fingerprint();
        Arc::new(move |bytes, range| {
            let held = llama::held_by(bytes, fingerprint);
            held.is_ok_and(|(first, last)| first == range.start && last.checked_add(1) == Some(range.end))
        })
    }

    fn held(&self, seq: SeqId) -> u32 {
        self.context.held(seq.0.into()).ok().flatten().map_or(0, |(_, last)| last + 1)
    }
}

fn failed(error: Error) -> Failed {
    Failed { what: error.to_string() }
}

fn misused(misuse: Misuse) -> Failed {
    Failed { what: misuse.to_string() }
}

impl Vocabulary for Model {
    fn size(&self) -> u32 {
        self.vocabulary()
    }

    fn push_piece(&self, token: Token, special: bool, out: &mut Vec<u8>) {
        let markup = if special { Markup::Control } else { Markup::Text };
        // A token that does not exist has no bytes.
        let _ = self.piece(token, markup, out);
    }

    fn tokenize(&self, text: &str, parse_special: bool) -> Vec<Token> {
        let markup = if parse_special { Markup::Control } else { Markup::Text };
        Self::tokenize(self, text, markup).unwrap_or_default()
    }

    fn is_special(&self, token: Token) -> bool {
        // What has bytes only when markup is asked for is not text.
        let (mut plain, mut marked) = (Vec::new(), Vec::new());
        self.push_piece(token, false, &mut plain);
        self.push_piece(token, true, &mut marked);
        plain.is_empty() && !marked.is_empty()
    }

    fn is_end(&self, token: Token) -> bool {
        self.ends(token).unwrap_or(true)
    }

    fn bos(&self) -> Option<Token> {
        self.specials().bos
    }

    fn eos(&self) -> Option<Token> {
        self.specials().eos
    }

    fn adds_bos(&self) -> bool {
        self.specials().adds_bos
    }
}
