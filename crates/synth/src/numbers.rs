//! Numbers as weights are stored: half floats, and blocks of 32 small integers with one scale.
//!
//! Source of the formats: the reference quantisers in ggml's `ggml-quants.c`.
//!
//! Invariant: a row's length is a multiple of [`BLOCK`] where the format has blocks.

/// Values that share a scale.
const BLOCK: usize = 32;

/// How the large matrices are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// 8 bits and a scale for 32 values.
    Q8_0,
    /// 4 bits and a scale for 32 values.
    Q4_0,
}

impl Weights {
    /// The type's number in a GGUF file.
    pub(crate) const fn gguf(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 8,
            Self::Q4_0 => 2,
        }
    }

    /// The number of a file whose weights are mostly of this type.
    pub(crate) const fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 7,
            Self::Q4_0 => 2,
        }
    }

    /// Bytes that `values` of them take.
    pub(crate) const fn bytes(self, values: u64) -> u64 {
        match self {
            Self::F32 => values * 4,
            Self::F16 => values * 2,
            Self::Q8_0 => values / 32 * 34,
            Self::Q4_0 => values / 32 * 18,
        }
    }

    /// Appends a row.
    pub(crate) fn put(self, row: &[f32], out: &mut Vec<u8>) {
        match self {
            Self::F32 => row.iter().for_each(|value| out.extend(value.to_le_bytes())),
            Self::F16 => row.iter().for_each(|value| out.extend(half(*value).to_le_bytes())),
            Self::Q8_0 => row.chunks_exact(BLOCK).for_each(|block| put_q8_0(block, out)),
            Self::Q4_0 => row.chunks_exact(BLOCK).for_each(|block| put_q4_0(block, out)),
        }
    }
}

/// `d = max|x| / 127`, then `round(x / d)`.
fn put_q8_0(block: &[f32], out: &mut Vec<u8>) {
    let largest = block.iter().fold(0_f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    out.extend(half(scale).to_le_bytes());
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    out.extend(block.iter().map(|value| {
        #[expect(clippy::cast_possible_truncation, reason = "at most 127 by the scale")]
        let small = (value * inverse).round() as i8;
        small.cast_unsigned()
    }));
}

/// `d = x / -8` of the value with the largest magnitude, then `x / d + 8` in 4 bits; the first half of
/// the block in the low bits.
fn put_q4_0(block: &[f32], out: &mut Vec<u8>) {
    let largest =
        block.iter().fold(0_f32, |largest, value| if value.abs() > largest.abs() { *value } else { largest });
    let scale = largest / -8.0;
    out.extend(half(scale).to_le_bytes());
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let (low, high) = block.split_at(BLOCK / 2);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 4 bits")]
    let four_bits = |value: f32| (value * inverse + 8.5).clamp(0.0, 15.0) as u8;
    out.extend(low.iter().zip(high).map(|(low, high)| four_bits(*low) | four_bits(*high) << 4));
}

/// A 16-bit float, rounded to the nearest, ties to even.
#[expect(clippy::cast_possible_truncation, reason = "what is cut was shifted or masked into range")]
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude >= 0x4780_0000 {
        // Too large for a half, infinite, or no number.
        return sign | 0x7c00 | if magnitude > 0x7f80_0000 { 0x200 } else { 0 };
    }
    if magnitude < 0x3880_0000 {
        // Below the least normal half: the sum's last bits are the rounded value in units of 2^-24.
        let shifted = f32::from_bits(magnitude) + 0.5;
        return sign | (shifted.to_bits() - 0.5_f32.to_bits()) as u16;
    }
    let odd = magnitude >> 13 & 1;
    let rounded = magnitude + 0xfff + odd - (112 << 23);
    sign | (rounded >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::{Weights, half};

    #[test]
    fn halves() {
        let known = [
            (0.0, 0x0000),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65_504.0, 0x7bff),
            (1e9, 0x7c00),
            (f32::NEG_INFINITY, 0xfc00),
            (6.103_515_6e-5, 0x0400),
            (5.960_464_5e-8, 0x0001),
            (1.000_488_3, 0x3c00),
            (1.001_464_8, 0x3c02),
            (1e-9, 0x0000),
        ];
        for (value, bits) in known {
            assert_eq!(half(value), bits, "{value}");
        }
        assert_eq!(half(f32::NAN) & 0x7e00, 0x7e00);
    }

    #[test]
    fn blocks_hold_their_values() {
        let row: Vec<f32> = (0..64_u8).map(|i| f32::from(i) / 7.0 - 4.0).collect();
        let scale = |bytes: &[u8]| {
            let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
            let exponent = i32::from(bits >> 10 & 31) - 15;
            let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
            sign * (1.0 + f32::from(bits & 1023) / 1024.0) * 2_f32.powi(exponent)
        };
        let mut eights = Vec::new();
        Weights::Q8_0.put(&row, &mut eights);
        assert_eq!(eights.len(), 68);
        let mut fours = Vec::new();
        Weights::Q4_0.put(&row, &mut fours);
        assert_eq!(fours.len(), 36);
        for (i, value) in row.iter().enumerate() {
            let (block, within) = (i / 32, i % 32);
            let eight = &eights[block * 34..][..34];
            let read = scale(eight) * f32::from(eight[2 + within].cast_signed());
            assert!((read - value).abs() < 0.04, "{value} came back as {read}");
            let four = &fours[block * 18..][..18];
            let byte = four[2 + within % 16];
            let nibble = if within < 16 { byte & 15 } else { byte >> 4 };
            let read = scale(four) * (f32::from(nibble) - 8.0);
            assert!((read - value).abs() < 0.65, "{value} came back as {read}");
        }
    }
}
