//! The list of tensors: their types, shapes and places in the file.
//!
//! Invariant: every tensor that is listed lies within the file, and none overlaps another.

use std::io::Read;

use super::{Cursor, Kind, Names, Problem};

/// Most tensors.
pub(super) const TENSORS_MAX: u64 = 1 << 17;
/// Longest name that the kernels take, in bytes.
const NAME_BYTES_MAX: u64 = 63;
/// Most dimensions.
const DIMENSIONS_MAX: u32 = 4;

/// The weights of a model in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    /// How many tensors.
    pub count: u64,
    /// How many weights they hold.
    pub parameters: u64,
    /// How many bytes these take.
    pub bytes: u64,
}

/// Elements and bytes of one block of a type that weights can have, as the format numbers types.
/// Types that only occur inside of computations, and 64-bit ones, are none of a model's.
const fn block(of: u32) -> Option<(u64, u64)> {
    Some(match of {
        0 => (1, 4),      // F32
        1 | 30 => (1, 2), // F16, BF16
        2 => (32, 18),    // Q4_0
        3 => (32, 20),    // Q4_1
        6 => (32, 22),    // Q5_0
        7 => (32, 24),    // Q5_1
        8 => (32, 34),    // Q8_0
        10 => (256, 84),  // Q2_K
        11 => (256, 110), // Q3_K
        12 => (256, 144), // Q4_K
        13 => (256, 176), // Q5_K
        14 => (256, 210), // Q6_K
        16 => (256, 66),  // IQ2_XXS
        17 => (256, 74),  // IQ2_XS
        18 => (256, 98),  // IQ3_XXS
        19 => (256, 50),  // IQ1_S
        20 => (32, 18),   // IQ4_NL
        21 => (256, 110), // IQ3_S
        22 => (256, 82),  // IQ2_S
        23 => (256, 136), // IQ4_XS
        26 => (1, 4),     // I32, tables of some mixtures
        29 => (256, 56),  // IQ1_M
        34 => (256, 54),  // TQ1_0
        35 => (256, 66),  // TQ2_0
        39 => (32, 17),   // MXFP4
        40 => (64, 36),   // NVFP4
        _ => return None,
    })
}

impl Tensors {
    /// Reads `count` entries; the data follows them, aligned to `alignment` bytes. With them where each tensor
    /// begins in the file.
    pub(super) fn read(
        cursor: &mut Cursor<impl Read>,
        count: u64,
        alignment: u64,
    ) -> Result<(Self, Vec<u64>), Problem> {
        let mut names = Names::default();
        let (mut sum, mut starts) = (Self { count, ..Self::default() }, Vec::new());
        // Where the next tensor begins and the last one ends, counted from the start of the data.
        let (mut next, mut end) = (0_u64, 0_u64);
        for _ in 0..count {
            let at = cursor.at();
            let name = cursor.bytes(NAME_BYTES_MAX)?;
            let shown = String::from_utf8_lossy(&name).into_owned();
            let damaged =
                |what| Problem { kind: Kind::Damaged, at, what: format!("tensor `{shown}`: {what}") };
            if !names.add(name) {
                return Err(damaged("its name occurs twice".to_owned()));
            }
            let (elements, row) = shape(cursor, at)?;
            let of = cursor.u32()?;
            let (per_block, block_bytes) =
                block(of).ok_or_else(|| damaged(format!("{of} is no type that weights have")))?;
            if row % per_block != 0 {
                return Err(damaged(format!("rows of {row} are no multiple of {per_block}")));
            }
            let bytes = (elements / per_block)
                .checked_mul(block_bytes)
                .filter(|bytes| *bytes <= cursor.end())
                .ok_or_else(|| Problem {
                    kind: Kind::Truncated,
                    ..damaged("it is longer than the file".to_owned())
                })?;
            let offset = cursor.u64()?;
            if offset != next {
                return Err(damaged(format!("it begins at {offset} and should at {next}")));
            }
            starts.push(offset);
            sum.parameters = sum.parameters.saturating_add(elements);
            sum.bytes = sum.bytes.saturating_add(bytes);
            end = next + bytes;
            next = end.saturating_add(alignment - 1) & !(alignment - 1);
            if next > cursor.end().saturating_add(alignment) {
                let what = format!("the tensors up to `{shown}` are longer than the file");
                return Err(Problem { kind: Kind::Truncated, at, what });
            }
        }
        let data = sum.within(cursor, alignment, end)?;
        starts.iter_mut().for_each(|start| *start += data);
        Ok((sum, starts))
    }

    /// Where the data begins, once the file is known to hold it.
    fn within(self, cursor: &Cursor<impl Read>, alignment: u64, data_bytes: u64) -> Result<u64, Problem> {
        if self.count == 0 {
            return Err(cursor.unsupported(cursor.at(), "the file holds no weights"));
        }
        let start = cursor.at().saturating_add(alignment - 1) & !(alignment - 1);
        let needed = start.saturating_add(data_bytes);
        if needed <= cursor.end() {
            return Ok(start);
        }
        let what = format!("the file has {} of {needed} bytes", cursor.end());
        Err(Problem { kind: Kind::Truncated, at: cursor.end(), what })
    }
}

/// The number of elements, and of those in a row.
fn shape(cursor: &mut Cursor<impl Read>, at: u64) -> Result<(u64, u64), Problem> {
    let dimensions = cursor.u32()?;
    if dimensions == 0 || dimensions > DIMENSIONS_MAX {
        return Err(cursor.damaged(at, format!("a tensor of {dimensions} dimensions")));
    }
    let (mut elements, mut row) = (1_u64, 1_u64);
    for dimension in 0..dimensions {
        let size = cursor.u64()?;
        elements = match elements.checked_mul(size) {
            Some(elements) if elements > 0 && elements < 1 << 48 => elements,
            _ => return Err(cursor.damaged(at, format!("a dimension of {size} cannot be"))),
        };
        if dimension == 0 {
            row = size;
        }
    }
    Ok((elements, row))
}

#[cfg(all(test, feature = "kernels"))]
mod tests {
    use super::block;

    #[test]
    fn blocks_are_the_kernels_blocks() {
        let refused: Vec<u32> = (0..64).filter(|of| block(*of).is_none()).collect();
        for of in 0..64 {
            if let Some(ours) = block(of) {
                assert_eq!(ours, crate::raw::block(of), "type {of}");
            }
        }
        // What only occurs inside of computations (Q8_1, Q8_K), integers, and what was given up.
        let expected: Vec<u32> = [4, 5, 9, 15, 24, 25, 27, 28, 31, 32, 33, 36, 37, 38].into();
        assert_eq!(refused.iter().filter(|of| **of < 41).copied().collect::<Vec<_>>(), expected);
    }
}
