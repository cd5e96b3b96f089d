//! The header of a GGUF file, read by us before the kernels see the file.
//!
//! The kernels answer much of what can be wrong in a file with an assertion, which ends the process. So
//! every file is read here first: its structure below, and in `checks` what the kernels take for
//! granted. What an upload, a cut download or a bad disk can do to a file is an error with a place.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3, little endian.
//!
//! Invariant: no input panics, and no length in a file makes us allocate more than the file is long.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

mod checks;
mod cursor;
mod tensors;

use cursor::Cursor;
pub use tensors::Tensors;

/// Longest name of a key.
const KEY_BYTES_MAX: u64 = 1 << 16;
/// Most key-value pairs.
const KEYS_MAX: u64 = 1 << 16;
/// Longest string kept; templates are the longest that anybody needs.
const STRING_BYTES_MAX: u64 = 1 << 24;
/// Most numbers of an array that are kept: one for each layer.
const NUMBERS_KEPT_MAX: u64 = 512;

/// What kind of thing is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is no GGUF file.
    NotGguf,
    /// It ends before it should: a download that broke off, a full disk.
    Truncated,
    /// It contradicts itself.
    Damaged,
    /// It is sound, and we cannot run it.
    Unsupported,
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (at byte {at}){hint}", hint = kind.hint())]
pub struct Problem {
    /// What kind of thing.
    pub kind: Kind,
    /// Offset from the start of the file in bytes.
    pub at: u64,
    /// For a person.
    pub what: String,
}

impl Kind {
    const fn hint(self) -> &'static str {
        match self {
            Self::NotGguf => "; give a file that ends in .gguf",
            Self::Truncated => "; fetch the file again",
            Self::Damaged => "; the file is damaged or was written wrongly: fetch it again",
            Self::Unsupported => "",
        }
    }
}

/// A value of the header, as far as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// Either float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A string; what is no UTF-8 in it was replaced.
    Text(String),
    /// Up to 512 integers, one for each layer.
    Numbers(Vec<u64>),
    /// An array that is not kept.
    Array {
        /// How many elements it has.
        elements: u64,
        /// Type of its elements as the format numbers them.
        of: u32,
    },
}

/// What a model file says about itself.
#[derive(Clone, Debug)]
pub struct Header {
    /// Every key with its value.
    pub values: BTreeMap<String, Value>,
    /// The family of models, `llama`, `qwen2`, …
    pub architecture: String,
    /// Number of tokens in the vocabulary; 0 where the file has none.
    pub vocabulary: u32,
    /// A sum over all tokens in their order: the same for models that can be a draft and its target.
    pub vocabulary_digest: u64,
    /// The weights.
    pub tensors: Tensors,
    /// Where the data of each tensor begins, in bytes from the start of the file.
    pub starts: Vec<u64>,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// A sum over every byte of the header. Tells versions of a file apart, no more.
    pub digest: u64,
}

/// Types of values, as the format numbers them.
mod kind {
    pub(super) const TEXT: u32 = 8;
    pub(super) const ARRAY: u32 = 9;
}

/// Size of a value of fixed size in bytes.
const fn fixed_bytes(of: u32) -> Option<u64> {
    match of {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

impl Header {
    /// Reads the header of a file of `file_bytes` bytes and checks what the kernels rely on.
    ///
    /// # Errors
    /// When the file is none of ours, ends early, contradicts itself, or holds what we cannot run.
    pub fn read(input: impl Read, file_bytes: u64) -> Result<Self, Problem> {
        let mut cursor = Cursor::new(input, file_bytes);
        let (tensor_count, key_count) = preamble(&mut cursor)?;
        let mut values = BTreeMap::new();
        let mut tokens = Vec::new();
        for _ in 0..key_count {
            let at = cursor.at();
            let key = cursor.text(KEY_BYTES_MAX)?;
            let of = cursor.u32()?;
            let value = if key == "tokenizer.ggml.tokens" && of == kind::ARRAY {
                tokens = strings(&mut cursor)?;
                Value::Array { elements: tokens.len() as u64, of: kind::TEXT }
            } else {
                value(&mut cursor, of)?
            };
            if key.is_empty() || values.insert(key.clone(), value).is_some() {
                return Err(cursor.damaged(at, format!("the key `{key}` is empty or occurs twice")));
            }
        }
        let alignment = alignment(&cursor, &values)?;
        let (tensors, starts) = Tensors::read(&mut cursor, tensor_count, alignment)?;
        let header = Self {
            architecture: architecture(&cursor, &values)?,
            values,
            vocabulary: u32::try_from(tokens.len())
                .map_err(|_| cursor.damaged(0, "the vocabulary is longer than tokens can number"))?,
            vocabulary_digest: tokens.iter().fold(cursor::DIGEST, |digest, token| {
                cursor::digest(cursor::digest(digest, &(token.len() as u64).to_le_bytes()), token)
            }),
            tensors,
            starts,
            file_bytes,
            digest: cursor.digest(),
        };
        checks::vocabulary(&header, &tokens)?;
        checks::shape(&header)?;
        Ok(header)
    }

    /// An unsigned number under `key`.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.values.get(key)? {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// A string under `key`.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number that belongs to the architecture, `llama.block_count` for `block_count`.
    #[must_use]
    pub fn shape(&self, name: &str) -> Option<u64> {
        self.number(&format!("{}.{name}", self.architecture))
    }

    /// A number of `layer` that is either one for all layers or an array with one for each.
    #[must_use]
    pub fn shape_of_layer(&self, name: &str, layer: usize) -> Option<u64> {
        match self.values.get(&format!("{}.{name}", self.architecture))? {
            Value::Numbers(numbers) => numbers.get(layer).copied(),
            _ => self.shape(name),
        }
    }

    /// Number of layers.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.shape("block_count").and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
    }

    /// Values of key and value that one token adds to the KV memory, over all layers: heads of the
    /// keys × their width, with grouped-query attention and layers that differ.
    #[must_use]
    pub fn kv_values_per_token(&self) -> (u64, u64) {
        let heads = |layer| self.shape_of_layer("attention.head_count", layer).unwrap_or_default();
        let width = |name: &str, layer| match self.shape_of_layer(name, layer) {
            Some(width) => width,
            None => self.shape("embedding_length").unwrap_or_default() / heads(0).max(1),
        };
        (0..self.layers()).fold((0, 0), |(keys, values), layer| {
            let shared =
                self.shape_of_layer("attention.head_count_kv", layer).unwrap_or_else(|| heads(layer));
            let add = |sum: u64, name| sum.saturating_add(shared.saturating_mul(width(name, layer)));
            (add(keys, "attention.key_length"), add(values, "attention.value_length"))
        })
    }
}

/// Magic, version, and how many tensors and keys follow.
fn preamble(cursor: &mut Cursor<impl Read>) -> Result<(u64, u64), Problem> {
    let not_gguf = || Problem { kind: Kind::NotGguf, at: 0, what: "this is no GGUF file".to_owned() };
    if cursor.u32().map_err(|_| not_gguf())? != u32::from_le_bytes(*b"GGUF") {
        return Err(not_gguf());
    }
    let version = cursor.u32()?;
    if !(2..=3).contains(&version) {
        return Err(cursor.unsupported(4, format!("GGUF version {version}; versions 2 and 3 are read")));
    }
    let (tensors, keys) = (cursor.u64()?, cursor.u64()?);
    if keys > KEYS_MAX || tensors > tensors::TENSORS_MAX {
        return Err(cursor.damaged(8, format!("{tensors} tensors and {keys} keys cannot be")));
    }
    Ok((tensors, keys))
}

/// One value of any type but the list of tokens.
fn value(cursor: &mut Cursor<impl Read>, of: u32) -> Result<Value, Problem> {
    let at = cursor.at();
    Ok(match of {
        0 | 2 | 4 | 10 => Value::Unsigned(cursor.number(of)?),
        1 | 3 | 5 | 11 => Value::Signed(cursor.number(of)?.cast_signed()),
        6 => Value::Float(f64::from(f32::from_bits(cursor.u32()?))),
        7 => Value::Bool(cursor.number(of)? != 0),
        kind::TEXT => Value::Text(cursor.text(STRING_BYTES_MAX)?),
        kind::ARRAY => array(cursor)?,
        12 => Value::Float(f64::from_bits(cursor.u64()?)),
        _ => return Err(cursor.damaged(at, format!("{of} is no type of a value"))),
    })
}

/// An array: read through, and kept where it is a short one of integers.
fn array(cursor: &mut Cursor<impl Read>) -> Result<Value, Problem> {
    let at = cursor.at();
    let (of, elements) = (cursor.u32()?, cursor.u64()?);
    if of == kind::TEXT {
        for _ in 0..elements {
            cursor.skip_text()?;
        }
        return Ok(Value::Array { elements, of });
    }
    let Some(size) = fixed_bytes(of) else {
        return Err(cursor.damaged(at, format!("{of} is no type of an array's elements")));
    };
    if elements <= NUMBERS_KEPT_MAX && !matches!(of, 6 | 7 | 12) {
        let numbers: Result<_, _> = (0..elements).map(|_| cursor.number(of)).collect();
        return Ok(Value::Numbers(numbers?));
    }
    cursor.skip(elements.saturating_mul(size))?;
    Ok(Value::Array { elements, of })
}

/// The list of tokens, as bytes.
fn strings(cursor: &mut Cursor<impl Read>) -> Result<Vec<Vec<u8>>, Problem> {
    let at = cursor.at();
    let (of, elements) = (cursor.u32()?, cursor.u64()?);
    if of != kind::TEXT {
        return Err(cursor.damaged(at, "the tokens are no strings"));
    }
    // The list grows as the file provides for it; a wrong length costs nothing.
    let mut list = Vec::new();
    for _ in 0..elements {
        list.push(cursor.bytes(KEY_BYTES_MAX)?);
    }
    Ok(list)
}

/// What the data of the tensors is aligned to in bytes, a power of two.
fn alignment(cursor: &Cursor<impl Read>, values: &BTreeMap<String, Value>) -> Result<u64, Problem> {
    match values.get("general.alignment") {
        None => Ok(32),
        Some(Value::Unsigned(bytes)) if bytes.is_power_of_two() && *bytes <= 1 << 20 => Ok(*bytes),
        Some(other) => Err(cursor.damaged(0, format!("an alignment of {other:?} cannot be"))),
    }
}

/// The family of models; files that only accompany a model are none.
fn architecture(cursor: &Cursor<impl Read>, values: &BTreeMap<String, Value>) -> Result<String, Problem> {
    let text = |key: &str| match values.get(key) {
        Some(Value::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let Some(architecture) = text("general.architecture") else {
        return Err(cursor.damaged(0, "`general.architecture` is missing"));
    };
    let accompanies = ["clip", "adapter", "imatrix", "mmproj"];
    let role = text("general.type").unwrap_or("model");
    if let Some(kind) = [architecture, role].into_iter().find(|kind| accompanies.contains(kind)) {
        let what = format!("a file of the kind `{kind}` accompanies a model and is none");
        return Err(cursor.unsupported(0, what));
    }
    Ok(architecture.to_owned())
}

/// Names that must not occur twice.
#[derive(Default)]
struct Names(HashSet<Vec<u8>>);

impl Names {
    /// Whether `name` is new.
    fn add(&mut self, name: Vec<u8>) -> bool {
        self.0.insert(name)
    }
}

#[cfg(test)]
mod tests {
    use firsttoken_synth::{Recipe, Shape};
    use proptest::prelude::*;

    use super::{Header, Kind, Problem};

    fn read(bytes: &[u8]) -> Result<Header, Problem> {
        Header::read(bytes, bytes.len() as u64)
    }

    fn nano() -> Vec<u8> {
        Recipe::default().bytes().unwrap()
    }

    /// Everything in front of the tensors, and one key with a number changed.
    fn with(key: &str, number: u32) -> Result<Header, Problem> {
        let mut bytes = nano();
        let at =
            bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap() + key.len() + 4;
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        read(&bytes)
    }

    #[test]
    fn a_model_is_read() {
        let header = read(&nano()).unwrap();
        assert_eq!((header.architecture.as_str(), header.vocabulary, header.layers()), ("llama", 320, 2));
        assert_eq!(header.shape("attention.head_count_kv"), Some(1));
        assert_eq!(header.tensors.count, 21);
        assert_eq!(header.digest, read(&nano()).unwrap().digest);
        let shape = Shape { heads: 4, shared_heads: 2, ..Shape::NANO };
        let other = Recipe { shape, ..Recipe::default() }.bytes().unwrap();
        assert_eq!(read(&other).unwrap().kv_values_per_token(), (64, 64));
        assert_ne!(read(&other).unwrap().digest, header.digest);
        assert_eq!(read(&other).unwrap().vocabulary_digest, header.vocabulary_digest);
        let shape = Shape { vocabulary: 321, ..Shape::NANO };
        let longer = Recipe { shape, ..Recipe::default() }.bytes().unwrap();
        assert_ne!(read(&longer).unwrap().vocabulary_digest, header.vocabulary_digest);
    }

    #[test]
    fn every_cut_is_seen() {
        let bytes = nano();
        for length in (0..bytes.len()).filter(|length| *length < 12_000 || length % 997 == 0) {
            let problem = read(&bytes[..length]).unwrap_err();
            let expected = if length < 4 { Kind::NotGguf } else { Kind::Truncated };
            assert_eq!(problem.kind, expected, "{length}: {problem}");
            // A file that shrinks while it is read is no different.
            let shrunk = Header::read(&bytes[..length], bytes.len() as u64);
            assert!(shrunk.is_err() || length > 7_000, "{length}");
        }
    }

    #[test]
    fn what_the_kernels_would_die_of() {
        for (key, number) in [
            ("llama.block_count", 0),
            ("llama.block_count", 513),
            ("llama.embedding_length", 0),
            ("llama.context_length", 0),
            ("llama.attention.head_count", 3 << 20),
            ("llama.attention.head_count_kv", 0),
            ("llama.attention.head_count_kv", 3),
            ("llama.rope.dimension_count", 31),
            ("llama.rope.dimension_count", 64),
            ("llama.attention.layer_norm_rms_epsilon", (-1.0_f32).to_bits()),
            ("llama.attention.layer_norm_rms_epsilon", f32::NAN.to_bits()),
        ] {
            let problem = with(key, number).unwrap_err();
            assert_eq!(problem.kind, Kind::Damaged, "{key} = {number}: {problem}");
        }
        // Two tokens of one name.
        let mut bytes = nano();
        let word = bytes.windows(4).position(|window| window == b"\xc4\xa0w1").unwrap();
        bytes[word + 3] = b'0';
        assert!(read(&bytes).unwrap_err().what.contains("twice"));
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let mut file = b"GGUF\x03\0\0\0".to_vec();
            file.extend(bytes);
            let _ = read(&file);
        }

        #[test]
        fn no_change_panics(changes in prop::collection::vec((0_usize..7_000, any::<u64>()), 1..8)) {
            let mut bytes = nano();
            for (at, value) in changes {
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            let _ = read(&bytes);
        }

        #[test]
        fn a_length_allocates_nothing(length in (1_u64 << 32).., at in 0_usize..7_000) {
            let mut bytes = nano();
            bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
            // 16 EiB cannot be had; whoever tried would end here.
            let _ = read(&bytes);
        }
    }
}
