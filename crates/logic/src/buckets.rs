//! Log-linear buckets over whole numbers: a fixed count to each octave, so that a value is known to a fixed part
//! of itself whatever its size. `BITS` is that count as a power of two.
//!
//! Invariant: each number lies in exactly one bucket, and a greater one never in a lower bucket.

/// The bucket that holds `value`. Those who hold a limited number of buckets count what lies above in their last.
pub(crate) const fn bucket_of<const BITS: u32>(value: u64) -> usize {
    if value < 1 << BITS {
        #[expect(clippy::cast_possible_truncation, reason = "below 2^BITS")]
        return value as usize;
    }
    let octave = 63 - value.leading_zeros() - BITS;
    let within = (value >> octave) & ((1 << BITS) - 1);
    #[expect(clippy::cast_possible_truncation, reason = "below 2^BITS")]
    let within = within as usize;
    ((octave as usize + 1) << BITS) + within
}

/// The first value of a bucket.
pub(crate) const fn first_of<const BITS: u32>(bucket: usize) -> u64 {
    if bucket < 1 << BITS {
        return bucket as u64;
    }
    let octave = (bucket >> BITS) - 1;
    ((1 << BITS) + (bucket & ((1 << BITS) - 1)) as u64) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile<const BITS: u32>() {
        for value in (0..5000).chain([1 << 20, (1 << 20) + 1, (1 << 31) - 1, 1 << 31]) {
            let bucket = bucket_of::<BITS>(value);
            let (from, to) = (first_of::<BITS>(bucket), first_of::<BITS>(bucket + 1));
            assert!(from <= value && value < to, "{value} in {from}..{to}");
        }
    }

    #[test]
    fn buckets_tile_the_line() {
        tile::<2>();
        tile::<4>();
        assert_eq!(bucket_of::<2>(u64::MAX), (62 << 2) + 3);
    }
}
