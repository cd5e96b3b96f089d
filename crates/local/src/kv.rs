//! What a model needs of this machine's memory, told from its file's header alone.
//!
//! The KV memory of a token is, over all layers: keys and values × heads that these have × width of a
//! head × bytes of a value. With grouped-query attention several heads of the queries share one of the
//! keys and values, which are the ones that count
//! (<https://arxiv.org/abs/2305.13245>). The kernels allocate by the same formula.
//!
//! Invariant: nothing is loaded; numbers too large to count are the largest, never small ones.

use std::path::{Path, PathBuf};

use firsttoken_llama::KvType;
use firsttoken_llama::gguf::{Header, Problem};

use crate::figures::{size, table, weights, whole};

/// The ways in which keys and values can be kept, with their names.
const TYPES: [(KvType, &str); 3] = [(KvType::F16, "f16"), (KvType::Q8_0, "q8_0"), (KvType::Q4_0, "q4_0")];

/// The name of a way to keep keys and values.
#[must_use]
pub fn name_of_type(kv: KvType) -> &'static str {
    TYPES.iter().find(|(of, _)| *of == kv).map_or("f16", |(_, name)| name)
}

/// The way to keep keys and values of that name.
#[must_use]
pub fn type_of_name(name: &str) -> Option<KvType> {
    TYPES.iter().find(|(_, of)| *of == name).map(|(kv, _)| *kv)
}

/// Why the header of a model file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", file.display())]
    File {
        /// Which file.
        file: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// What it holds is no model.
    #[error("{}: {problem}", file.display())]
    Problem {
        /// Which file.
        file: PathBuf,
        /// What is wrong, and where.
        problem: Problem,
    },
}

/// Reads the header of a model file.
///
/// # Errors
/// If it cannot be read, or is no model.
pub fn header(file: &Path) -> Result<Header, HeaderError> {
    let unreadable = |error| HeaderError::File { file: file.to_owned(), error };
    let input = std::fs::File::open(file).map_err(unreadable)?;
    let bytes = input.metadata().map_err(unreadable)?.len();
    let problem = |problem| HeaderError::Problem { file: file.to_owned(), problem };
    Header::read(std::io::BufReader::new(input), bytes).map_err(problem)
}

/// Memory of this machine in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All of it, or what this process's group may have of it.
    pub total: u64,
    /// What of it can be had now.
    pub available: u64,
}

impl Memory {
    /// As it is now; a limit of the group of processes counts where it is lower. `None` where the system
    /// does not say.
    #[must_use]
    pub fn now() -> Option<Self> {
        let mut system = sysinfo::System::new().ok()?;
        system.refresh_memory();
        let (total, available) = (system.total_memory(), system.available_memory());
        Some(match system.cgroup_limits() {
            Some(limits) if limits.total_memory < total => {
                Self { total: limits.total_memory, available: available.min(limits.free_memory) }
            }
            _ => Self { total, available },
        })
    }
}

/// A context longer than what the model was made for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the model was made for {} tokens; a context of {} is more: ask for less",
    whole(*made_for),
    whole(*context)
)]
pub struct TooLong {
    /// What was asked for, in tokens.
    pub context: u64,
    /// What the model was made for, in tokens.
    pub made_for: u64,
}

/// How a model would be used.
#[derive(Clone, Copy, Debug)]
pub struct Sizing {
    /// Values of keys and of values that a token adds.
    values: (u64, u64),
    weights_bytes: u64,
    /// Tokens of each sequence.
    context: u64,
    /// Sequences at once.
    batch: u64,
}

impl Sizing {
    /// `batch` sequences of `context` tokens each; of as many as the model was made for if not said.
    ///
    /// # Errors
    /// If the model was made for less.
    pub fn new(header: &Header, context: Option<u64>, batch: u64) -> Result<Self, TooLong> {
        let made_for = header.shape("context_length").unwrap_or_default();
        let context = context.unwrap_or(made_for);
        if context > made_for {
            return Err(TooLong { context, made_for });
        }
        let weights_bytes = header.tensors.bytes;
        Ok(Self { values: header.kv_values_per_token(), weights_bytes, context, batch })
    }

    /// Bytes of KV memory that one token takes.
    #[must_use]
    pub const fn token_bytes(&self, kv: KvType) -> u64 {
        kv.bytes(self.values.0).saturating_add(kv.bytes(self.values.1))
    }

    /// Bytes of KV memory that all sequences take.
    #[must_use]
    pub const fn kv_bytes(&self, kv: KvType) -> u64 {
        self.token_bytes(kv).saturating_mul(self.context).saturating_mul(self.batch)
    }

    /// How many sequences fit beside the weights in `memory_bytes`; `None` for a model without KV memory.
    #[must_use]
    pub const fn sequences(&self, kv: KvType, memory_bytes: u64) -> Option<u64> {
        let each = self.token_bytes(kv).saturating_mul(self.context);
        memory_bytes.saturating_sub(self.weights_bytes).checked_div(each)
    }

    /// All of it in words and a table.
    #[must_use]
    pub fn describe(&self, name: &str, header: &Header, memory: Memory) -> String {
        let heads = |key| {
            let of_layer = |layer| header.shape_of_layer(key, layer);
            (0..header.layers()).filter_map(of_layer).max().unwrap_or_default()
        };
        let queries = heads("attention.head_count");
        let shared = match heads("attention.head_count_kv") {
            0 => queries,
            shared => shared,
        };
        let row = |what: String, cell: &dyn Fn(KvType) -> String| {
            [what, cell(TYPES[0].0), cell(TYPES[1].0), cell(TYPES[2].0)]
        };
        let all = |kv| self.kv_bytes(kv).saturating_add(self.weights_bytes);
        let fit = |bytes| move |kv| self.sequences(kv, bytes).map_or_else(|| "any number".to_owned(), whole);
        let context = whole(self.context);
        let rows = [
            ["KV memory, kept as".to_owned(), TYPES[0].1.into(), TYPES[1].1.into(), TYPES[2].1.into()],
            row("1 token".to_owned(), &|kv| size(self.token_bytes(kv))),
            row(format!("{} × {context} tokens", whole(self.batch)), &|kv| size(self.kv_bytes(kv))),
            row("and the weights".to_owned(), &|kv| size(all(kv))),
            row(format!("how many × {context} fit now"), &fit(memory.available)),
            row(format!("how many × {context} at most"), &fit(memory.total)),
        ];
        let verdict = match TYPES.iter().filter(|(kv, _)| all(*kv) <= memory.available).count() {
            3 => "It fits.".to_owned(),
            0 => "It does not fit now: ask for less context, fewer sequences, or a smaller model.".to_owned(),
            fitting => format!("It fits now if kept as {}.", TYPES[3 - fitting].1),
        };
        format!(
            "{name}: {}, {} parameters, {} layers, {queries} heads, {shared} for keys and values\n\
             weights {}; memory of this machine {}, of which {} can be had now\n\n{}\n\n{verdict} \
             The kernels need some room to compute beside it.",
            header.architecture,
            weights(header.tensors.parameters),
            header.layers(),
            size(self.weights_bytes),
            size(memory.total),
            size(memory.available),
            table(&rows),
        )
    }
}

#[cfg(test)]
mod tests {
    use firsttoken_synth::{Recipe, Shape};

    use super::*;

    const MEMORY: Memory = Memory { total: 1 << 30, available: 300 << 20 };

    fn made(shape: Shape) -> Header {
        let bytes = Recipe { shape, ..Recipe::default() }.bytes().unwrap();
        Header::read(&bytes[..], bytes.len() as u64).unwrap()
    }

    #[test]
    fn the_formula() {
        // 2 × 4 layers × 2 heads × (64 / 4) values × 2 bytes.
        let header = made(Shape { layers: 4, heads: 4, shared_heads: 2, ..Shape::NANO });
        let sizing = Sizing::new(&header, Some(1000), 3).unwrap();
        assert_eq!(sizing.token_bytes(KvType::F16), 2 * 4 * 2 * 16 * 2);
        // Blocks of 32 values and a scale of 2 bytes.
        assert_eq!(sizing.token_bytes(KvType::Q8_0), 256 + 256 / 32 * 2);
        assert_eq!(sizing.token_bytes(KvType::Q4_0), 256 / 2 + 256 / 32 * 2);
        assert_eq!(sizing.kv_bytes(KvType::F16), 512 * 3000);
        let left = header.tensors.bytes + 10 * 512_000;
        assert_eq!(sizing.sequences(KvType::F16, left), Some(10));
        assert_eq!(sizing.sequences(KvType::F16, left - 1), Some(9));
        assert_eq!(sizing.sequences(KvType::F16, 5), Some(0));
    }

    #[test]
    fn a_context_has_a_bound_and_numbers_do_not_wrap() {
        let header = made(Shape::NANO);
        assert_eq!(Sizing::new(&header, None, 1).unwrap().context, 32_768);
        let too_long = Sizing::new(&header, Some(32_769), 1).unwrap_err();
        assert_eq!(too_long, TooLong { context: 32_769, made_for: 32_768 });
        let sizing = Sizing::new(&header, None, u64::MAX).unwrap();
        assert_eq!(sizing.kv_bytes(KvType::F16), u64::MAX);
        assert!(sizing.describe("nano", &header, MEMORY).contains("It does not fit now"));
    }

    #[test]
    fn the_table() {
        let header = made(Shape { layers: 12, width: 768, heads: 12, shared_heads: 4, ..Shape::NANO });
        let sizing = Sizing::new(&header, Some(4096), 8).unwrap();
        insta::assert_snapshot!(sizing.describe("some/model-F16", &header, MEMORY));
    }

    #[test]
    fn this_machine_has_memory() {
        let Memory { total, available } = Memory::now().unwrap();
        assert!(available > 0 && available <= total && total > 1 << 20, "{available} of {total}");
    }
}
