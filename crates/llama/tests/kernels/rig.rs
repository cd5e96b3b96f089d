//! Small models on the disk, and the short ways to use them.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use firsttoken_llama::{Context, Error, KvType, Load, Model, Outcome, Row, Settings, Threads};
use firsttoken_synth::{Mind, Recipe};

/// A file that goes with its owner.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("firsttoken-llama-{}-{number}.gguf", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("the temporary folder can be written");
        Self(path)
    }

    pub(crate) fn load(&self) -> Result<Model, Error> {
        Model::load(&self.0, Load::default(), |_| true)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn model(recipe: &Recipe) -> Model {
    TempFile::new(&recipe.bytes().expect("the recipe is sound")).load().expect("the model is sound")
}

pub(crate) fn random() -> Model {
    model(&Recipe::default())
}

pub(crate) fn peaked() -> Recipe {
    Recipe { mind: Mind::Peaked { ring: 0, astray: 0.0 }, ..Recipe::default() }
}

pub(crate) fn settings() -> Settings {
    let threads = Threads::new(NonZeroU32::MIN);
    Settings { cells: 512, rows: 128, tile: 64, ids: 8, outputs: 16, kv: KvType::F16, threads }
}

pub(crate) fn context(model: &Model) -> Context {
    Context::new(model, settings()).expect("a small context can be made")
}

/// Rows of `tokens` from `position` on; the last wants logits.
pub(crate) fn rows(sequence: u32, position: u32, tokens: &[u32]) -> Vec<Row> {
    let row = |(at, token): (usize, &u32)| Row {
        sequence,
        position: position + u32::try_from(at).expect("short"),
        token: *token,
        want_logits: at + 1 == tokens.len(),
    };
    tokens.iter().enumerate().map(row).collect()
}

/// Computes `tokens` and gives back the logits after the last.
pub(crate) fn run(context: &mut Context, sequence: u32, position: u32, tokens: &[u32]) -> Vec<f32> {
    let rows = rows(sequence, position, tokens);
    assert_eq!(context.decode(&rows).expect("the rows are sound"), Outcome::Ok);
    context.logits(rows.len() - 1).expect("the last row wanted logits").to_vec()
}

/// Printable tokens that depend on `seed`.
pub(crate) fn tokens(seed: u32, count: u32) -> Vec<u32> {
    (0..count)
        .map(|i| 32 + (seed.wrapping_mul(2_654_435_761).wrapping_add(i * i * 31 + i * 7) >> 3) % 95)
        .collect()
}

pub(crate) fn best(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).expect("a vocabulary has tokens");
    u32::try_from(best.0).expect("ids are small")
}

/// What a greedy reader gets after `token`, which is the last token held but not yet computed.
pub(crate) fn greedy(
    context: &mut Context,
    sequence: u32,
    mut position: u32,
    mut token: u32,
    count: usize,
) -> Vec<u32> {
    let mut said = Vec::new();
    while said.len() < count {
        token = best(&run(context, sequence, position, &[token]));
        position += 1;
        said.push(token);
    }
    said
}
