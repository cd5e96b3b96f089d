//! A model: weights, vocabulary, and what its file says about itself.
//!
//! The file is read by us before the kernels see it, so that a bad one is an error with a place in it.
//! A model is shared: contexts hold it, and it goes when the last of them has gone.
//!
//! Invariant: a token that goes to the kernels is one of the vocabulary.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use crate::gguf::{Header, Kind, Problem};
use crate::raw::{self, Facts};
use crate::{Error, Misuse, processor, saved, segments};

/// Parts of a file of which the fingerprint takes a sample.
const SAMPLES: u64 = 64;
/// Length of a sample in bytes.
const SAMPLE_BYTES: usize = 4096;

/// Whether the kernels were built for a GPU too.
pub const HAS_GPU: bool = cfg!(any(feature = "cuda", feature = "metal", feature = "vulkan"));

/// How a model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Layers that go to a GPU, where one is built in; `u32::MAX` for all.
    pub gpu_layers: u32,
    /// Whether the file is mapped rather than read, so that weights share the page cache.
    pub mmap: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self { gpu_layers: u32::MAX, mmap: true }
    }
}

/// What becomes of `<|im_end|>` and its like in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markup {
    /// It is the control token of that name: for what a template rendered.
    Control,
    /// It is the characters that it is made of: for what a user wrote.
    Text,
}

/// Tokens with a meaning; `None` where a model has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Specials {
    /// Begins a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Ends a turn.
    pub eot: Option<u32>,
    /// Stands between two texts.
    pub separator: Option<u32>,
    /// Fills up.
    pub padding: Option<u32>,
    /// Whether the model wants texts to begin with `bos`.
    pub adds_bos: bool,
    /// Whether it wants them to end with `eos`.
    pub adds_eos: bool,
    /// Whether it wants them to end with `separator`.
    pub adds_separator: bool,
}

/// A loaded model; clones share it.
#[derive(Clone)]
pub struct Model {
    pub(crate) raw: Arc<raw::Model>,
    header: Arc<Header>,
    facts: Facts,
    specials: Specials,
    fingerprint: u64,
    /// Whether all layers are computed by the processor.
    on_processor: bool,
}

impl Model {
    /// Loads a file. `progress` is told how far it is, between 0 and 1, and stops it with `false`.
    ///
    /// # Errors
    /// When the file is missing, damaged, cut, or no model that can be run here; when the processor
    /// cannot run the kernels; when `progress` said stop.
    pub fn load(path: &Path, load: Load, mut progress: impl FnMut(f32) -> bool) -> Result<Self, Error> {
        if let Some(missing) = processor::missing() {
            return Err(Error::Processor { missing });
        }
        let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
        let unsupported = |what: &str| Error::File {
            path: path.to_owned(),
            problem: Problem { kind: Kind::Unsupported, at: 0, what: what.to_owned() },
        };
        let mut file = File::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        let header = Header::read(BufReader::new(&mut file), bytes)
            .map_err(|problem| Error::File { path: path.to_owned(), problem })?;
        if header.number("split.count").is_some_and(|files| files > 1) {
            return Err(unsupported("one of several files of a model; join them with gguf-split --merge"));
        }
        let fingerprint = fingerprint(&mut file, &header).map_err(unreadable)?;
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| unsupported("a path with a zero byte"))?;
        let mut stopped = false;
        let mut watch = |part| {
            stopped = !progress(part);
            !stopped
        };
        let layers = i32::try_from(load.gpu_layers).unwrap_or(-1);
        drop(raw::complaint());
        let raw = raw::Model::load(&name, layers, load.mmap, &mut watch);
        let Some(raw) = raw.map(Arc::new) else {
            let said = raw::complaint();
            return Err(if stopped {
                Error::Stopped
            } else {
                Error::Refused { path: path.to_owned(), said }
            });
        };
        let (facts, specials) = (raw.facts(), raw.specials());
        let on_processor = !HAS_GPU || load.gpu_layers == 0;
        Ok(Self { raw, header: Arc::new(header), facts, specials, fingerprint, on_processor })
    }

    /// What the file says about itself.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The name in the file, where it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.header.text("general.name")
    }

    /// The template that renders messages as text, in Jinja.
    #[must_use]
    pub fn template(&self) -> Option<&str> {
        self.header.text("tokenizer.chat_template")
    }

    /// The longest context that it was trained for, in tokens.
    #[must_use]
    pub fn context_length(&self) -> u32 {
        self.header.shape("context_length").and_then(|length| u32::try_from(length).ok()).unwrap_or(u32::MAX)
    }

    /// Number of tokens in the vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> u32 {
        self.facts.vocabulary
    }

    /// Tokens with a meaning.
    #[must_use]
    pub fn specials(&self) -> Specials {
        self.specials
    }

    /// Tells this model's file from others, and from other versions of it: its header, and samples of
    /// its weights. No proof of anything against who wants to deceive.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(crate) fn on_processor(&self) -> bool {
        self.on_processor
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts
    }

    /// The tokens of `text`, without any that begin or end a text; see [`Self::begin`].
    ///
    /// # Errors
    /// When the text is longer than 2 GiB, or no thread can be had.
    pub fn tokenize(&self, text: &str, markup: Markup) -> Result<Vec<u32>, Error> {
        segments::tokenize(&self.raw, &self.header, text, markup == Markup::Control)
    }

    /// Puts the token that begins a text in front of `tokens`, where the model wants one and a template
    /// has not put it there already.
    pub fn begin(&self, tokens: &mut Vec<u32>) {
        if let Specials { bos: Some(bos), adds_bos: true, .. } = self.specials
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
    }

    /// Appends the bytes of `token` to `text`: often a part of a word, sometimes of a letter. Control
    /// tokens have bytes only where `markup` says so.
    ///
    /// # Errors
    /// When the vocabulary has no such token.
    pub fn piece(&self, token: u32, markup: Markup, text: &mut Vec<u8>) -> Result<(), Error> {
        let token = self.known(token)?;
        let before = text.len();
        let mut room = 64;
        loop {
            text.resize(before + room, 0);
            let count = self.raw.piece(token, markup == Markup::Control, &mut text[before..]);
            match usize::try_from(count) {
                Ok(count) => {
                    text.truncate(before + count.min(room));
                    return Ok(());
                }
                Err(_) => room = room.saturating_mul(2).max(count.unsigned_abs() as usize),
            }
        }
    }

    /// Whether `token` ends generation.
    ///
    /// # Errors
    /// When the vocabulary has no such token.
    pub fn ends(&self, token: u32) -> Result<bool, Error> {
        Ok(self.raw.ends(self.known(token)?))
    }

    /// `token` as the kernels count, where the vocabulary has it.
    fn known(&self, token: u32) -> Result<i32, Misuse> {
        let vocabulary = self.facts.vocabulary;
        let misuse = Misuse::Token { row: 0, token, vocabulary };
        if token < vocabulary { i32::try_from(token).map_err(|_| misuse) } else { Err(misuse) }
    }
}

/// A sum over the header and samples from all of the file.
fn fingerprint(file: &mut File, header: &Header) -> std::io::Result<u64> {
    let mut sample = vec![0; SAMPLE_BYTES];
    let mut samples = Vec::new();
    for part in 0..SAMPLES {
        let last = header.file_bytes.saturating_sub(SAMPLE_BYTES as u64);
        file.seek(SeekFrom::Start(last / SAMPLES * part + last % SAMPLES * part / SAMPLES))?;
        let read = file.by_ref().take(SAMPLE_BYTES as u64).read_to_end({
            sample.clear();
            &mut sample
        })?;
        samples.push(saved::sum(&[read as u64], &sample));
    }
    samples.extend([header.digest, header.file_bytes]);
    Ok(saved::sum(&samples, &[]))
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let header = &self.header;
        f.debug_struct("Model")
            .field("architecture", &header.architecture)
            .field("parameters", &header.tensors.parameters)
            .field("vocabulary", &self.facts.vocabulary)
            .finish_non_exhaustive()
    }
}
