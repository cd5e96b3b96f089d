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

/// A file with another key in its header; `value` begins with its type.
pub(crate) fn with_key(mut file: Vec<u8>, key: &str, value: &[u8]) -> Vec<u8> {
    let text = |text: &[u8]| [&(text.len() as u64).to_le_bytes()[..], text].concat();
    let mut added = [text(key.as_bytes()), value.to_vec()].concat();
    // Another key fills up to where tensors are aligned.
    let filler = text(format!("filler.{key}").as_bytes());
    let missing = (added.len() + filler.len() + 12).next_multiple_of(32) - (added.len() + filler.len() + 12);
    added.extend([filler, 8_u32.to_le_bytes().to_vec(), text(&vec![b'x'; missing])].concat());
    let keys = u64::from_le_bytes(file[16..24].try_into().expect("eight bytes")) + 2;
    file[16..24].copy_from_slice(&keys.to_le_bytes());
    file.splice(24..24, added);
    file
}

/// `bytes` with every `from` replaced by `to`, which is as long.
pub(crate) fn replaced(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    bytes
}
