//! Whether models fit into this machine's memory, and what they get where nobody has said.
//!
//! What an engine takes is known before it is loaded: the weights are in the file's header, the KV memory
//! follows from it ([`crate::kv`]), host memory for prefixes is a bound, and the kernels' own buffers
//! are small beside them. A model that does not fit would not fail: the machine would swap, or kill it in
//! the middle of an answer.
//!
//! Invariant: what was asked for is taken as it is or refused; only what nobody asked for is cut.

use firsttoken_llama::gguf::Header;
use firsttoken_llama::{HAS_GPU, KvType};

use crate::figures::{size, whole};
use crate::kv::{self, HeaderError, Sizing, name_of_type};
use crate::options::Options;

/// Tokens of all sequences together, unless said otherwise: the context of the model, twice, …
const CONTEXTS: u64 = 2;
/// … at most these, …
const CELLS_MAX: u64 = 32_768;
/// … and at least these.
const CELLS_MIN: u64 = 1_024;
/// The kernels' cells come in so many.
const CELLS_STEP: u64 = 256;
/// Host memory for prefixes that are not at work, unless said otherwise; less where that is short.
const HOST_BYTES: u64 = 1 << 30;
/// Of what is left beside weights and KV memory, the part that prefixes may have unless said otherwise.
const HOST_PART: u64 = 4;
/// Longest text of which an embedding is made, in tokens, unless said otherwise; attention within it is
/// computed at once.
const TEXT_TOKENS_MAX: u64 = 8_192;
/// Of the memory that can be had, the part in tenths that is counted on where nobody has said how much: others
/// live on this machine too.
const USUAL_TENTHS: u64 = 9;
/// Room for what the kernels compute with: activations of a batch, and its logits.
const COMPUTE_BYTES: u64 = 256 << 20;

/// What the files of an engine say of themselves.
#[derive(Debug)]
pub struct Headers {
    /// The model's.
    pub model: Header,
    /// Its draft's, if it has one.
    pub draft: Option<Header>,
}

impl Headers {
    /// Reads them.
    ///
    /// # Errors
    /// If one cannot be read, or is no model.
    pub fn read(options: &Options) -> Result<Self, HeaderError> {
        let draft = options.draft.as_deref().map(kv::header).transpose()?;
        Ok(Self { model: kv::header(&options.file)?, draft })
    }

    fn all(&self) -> impl Iterator<Item = &Header> {
        [&self.model].into_iter().chain(&self.draft)
    }

    fn weights_bytes(&self) -> u64 {
        self.all().fold(0, |bytes, header| bytes.saturating_add(header.tensors.bytes))
    }

    /// Of a token in the KV memory: a draft keeps all that its model does.
    fn token_bytes(&self, kv: KvType) -> u64 {
        let one = |header| Sizing::new(header, Some(0), 0).map_or(0, |sizing| sizing.token_bytes(kv));
        self.all().map(one).fold(0, u64::saturating_add)
    }
}

/// What a model takes of this machine's memory, its draft included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Tokens that all requests together can hold.
    pub cells: u32,
    /// How keys and values are kept.
    pub kv: KvType,
    /// Bytes of the weights.
    pub weights_bytes: u64,
    /// Bytes of the KV memory.
    pub kv_bytes: u64,
    /// Bytes of host memory for prefixes, at most.
    pub host_bytes: u64,
}

/// A model that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} needs {}: {need}. {} can be had\nhint: {hint}", size(need.bytes()), size(*available))]
pub struct TooLarge {
    /// Which model.
    pub name: String,
    /// What it would take.
    pub need: Need,
    /// What can be had, in bytes.
    pub available: u64,
    /// What would fit.
    pub hint: String,
}

impl Need {
    /// What a model takes, run by `options`, where `available` bytes can be had.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn of(options: &Options, headers: &Headers, available: u64) -> Result<Self, Box<TooLarge>> {
        let token_bytes = headers.token_bytes(options.kv);
        let weights_bytes = headers.weights_bytes();
        let fixed =
            weights_bytes.saturating_add(options.host_bytes.unwrap_or(0)).saturating_add(COMPUTE_BYTES);
        let room = available.saturating_sub(fixed) / 10 * USUAL_TENTHS;
        let fitting = room.checked_div(token_bytes).unwrap_or(u64::MAX) / CELLS_STEP * CELLS_STEP;
        let usual = usual_cells(&headers.model);
        let cells = match options.cells {
            Some(cells) => u64::from(cells).next_multiple_of(CELLS_STEP),
            None => usual.min(fitting).max(CELLS_MIN.min(usual)),
        };
        let kv_bytes = token_bytes.saturating_mul(cells);
        let left = room.saturating_sub(kv_bytes) / HOST_PART;
        let usual_host = if embeds(&headers.model) { 0 } else { left.min(HOST_BYTES) };
        let need = Self {
            cells: u32::try_from(cells).unwrap_or(u32::MAX),
            kv: options.kv,
            weights_bytes,
            kv_bytes,
            host_bytes: options.host_bytes.unwrap_or(usual_host),
        };
        // What a GPU keeps is not of this memory, and how much that is the kernels decide.
        let on_gpu = options.gpu_layers.map_or(HAS_GPU, |layers| layers > 0);
        if on_gpu || need.bytes() <= available {
            return Ok(need);
        }
        let hint = hint(headers, options, available);
        Err(Box::new(TooLarge { name: options.name.clone(), need, available, hint }))
    }

    /// All of it in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let kept = self.weights_bytes.saturating_add(self.kv_bytes).saturating_add(self.host_bytes);
        kept.saturating_add(COMPUTE_BYTES)
    }

    /// `options`, with this said where nothing was.
    #[must_use]
    pub fn put_into(self, options: Options) -> Options {
        Options { cells: Some(self.cells), host_bytes: Some(self.host_bytes), ..options }
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (weights, kv, host) = (size(self.weights_bytes), size(self.kv_bytes), size(self.host_bytes));
        let (cells, kept) = (whole(self.cells.into()), name_of_type(self.kv));
        write!(f, "weights {weights}, KV memory {kv} for {cells} tokens as {kept}, prefixes {host}")
    }
}

/// Whether the model makes embeddings instead of writing: its file says how to pool them.
/// ([`Header`] keys of GGUF: 1 is the mean, 2 the first token, 3 the last one, 4 ranks texts.)
#[must_use]
pub fn embeds(header: &Header) -> bool {
    header.shape("pooling_type").is_some_and(|pooling| (1..=3).contains(&pooling))
}

fn usual_cells(header: &Header) -> u64 {
    let context = header.shape("context_length").unwrap_or(CELLS_MAX);
    if embeds(header) {
        return context.min(TEXT_TOKENS_MAX);
    }
    context.saturating_mul(CONTEXTS).clamp(CELLS_MIN, CELLS_MAX).next_multiple_of(CELLS_STEP)
}

/// What would fit instead.
fn hint(headers: &Headers, options: &Options, available: u64) -> String {
    let fixed = headers.weights_bytes().saturating_add(COMPUTE_BYTES);
    let fitting =
        |kv| available.saturating_sub(fixed) / headers.token_bytes(kv).max(1) / CELLS_STEP * CELLS_STEP;
    let said = |kv| {
        (fitting(kv) >= CELLS_STEP).then(|| {
            let kept = if kv == options.kv {
                String::new()
            } else {
                format!(" with kv_type = \"{}\"", name_of_type(kv))
            };
            format!("context_tokens = {}{kept}", fitting(kv))
        })
    };
    let smaller: Vec<String> = [options.kv, KvType::Q4_0].into_iter().filter_map(said).collect();
    match (smaller.first(), options.host_bytes.unwrap_or(0) > 0) {
        (None, _) => "take a smaller model, or one of fewer bits".to_owned(),
        (Some(first), false) if options.kv == KvType::Q4_0 => format!("{first} fits"),
        (Some(_), false) => format!("{} fits", smaller.join(", or ")),
        (Some(first), true) => format!("{first} fits without kv_host_bytes"),
    }
}

#[cfg(test)]
mod tests {
    use firsttoken_synth::{Recipe, Shape};

    use super::*;

    /// A token takes 512 bytes as f16.
    fn headers(context: u32) -> Headers {
        let shape = Shape { layers: 4, heads: 4, shared_heads: 2, ..Shape::NANO };
        let bytes = Recipe { shape, context, ..Recipe::default() }.bytes().unwrap();
        Headers { model: Header::read(&bytes[..], bytes.len() as u64).unwrap(), draft: None }
    }

    fn need(options: &Options, context: u32, beside_weights: u64) -> Result<Need, String> {
        let headers = headers(context);
        let available = headers.model.tensors.bytes + COMPUTE_BYTES + beside_weights;
        Need::of(options, &headers, available).map_err(|error| error.to_string())
    }

    #[test]
    fn what_nobody_asked_for_is_cut_to_what_there_is() {
        let options = Options::new("m.gguf", "m");
        let roomy = need(&options, 8_192, 8 << 30).unwrap();
        assert_eq!((roomy.cells, roomy.host_bytes), (16_384, HOST_BYTES));
        assert_eq!(roomy.kv_bytes, 16_384 * 512);
        // Room for 9,000 of 10,000 tokens, in whole steps; prefixes have a part of what is left of it.
        let tight = need(&options, 8_192, 10_000 * 512).unwrap();
        assert_eq!((tight.cells, tight.host_bytes), (8_960, 40 * 512 / 4));
        assert_eq!(need(&options, 100, 8 << 30).unwrap().cells, 1_024);
    }

    #[test]
    fn what_was_asked_for_is_taken_or_refused_with_what_would_fit() {
        let asked = Options { cells: Some(8_000), host_bytes: Some(0), ..Options::new("m.gguf", "m") };
        assert_eq!(need(&asked, 8_192, 8_192 * 512).unwrap().cells, 8_192);
        let error = need(&asked, 8_192, 2_000 * 512).unwrap_err();
        assert!(
            error.starts_with("m needs 260.") && error.contains("KV memory 4.0 MiB for 8,192 tokens as f16")
        );
        assert!(
            error.ends_with("context_tokens = 1792, or context_tokens = 6912 with kv_type = \"q4_0\" fits"),
            "{error}"
        );
        let prefixes = Options { host_bytes: Some(1 << 40), ..asked };
        let error = need(&prefixes, 8_192, 8 << 30).unwrap_err();
        assert!(
            error.contains("prefixes 1.0 TiB") && error.ends_with("fits without kv_host_bytes"),
            "{error}"
        );
    }

    #[test]
    fn a_draft_takes_memory_like_any_model() {
        let alone = headers(8_192);
        let both = Headers { draft: headers(8_192).model.into(), ..headers(8_192) };
        let options = Options { host_bytes: Some(0), ..Options::new("m.gguf", "m") };
        let need = |headers| Need::of(&options, headers, 8 << 30).unwrap();
        let (alone, both) = (need(&alone), need(&both));
        assert_eq!(both.weights_bytes, 2 * alone.weights_bytes);
        assert_eq!((both.cells, both.kv_bytes), (alone.cells, 2 * alone.kv_bytes));
    }

    #[test]
    fn weights_that_do_not_fit_are_no_question_of_context() {
        let error = Need::of(&Options::new("m.gguf", "m"), &headers(8_192), 1 << 20).unwrap_err();
        assert_eq!(error.hint, "take a smaller model, or one of fewer bits");
    }
}
