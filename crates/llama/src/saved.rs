//! The envelope around a saved sequence.
//!
//! The kernels believe the bytes that they load. So saved bytes carry what they are: whose, how many,
//! which positions, and a sum over all of them. Bytes that were cut, changed, or saved by another model
//! or another kind of KV memory are told apart before the kernels see them.
//!
//! The sum guards against accidents; it is no signature. Keep saved sequences where only we write.
//!
//! Invariant: [`open`] gives back what [`seal`] closed, or a fault.

/// What marks the envelope; its version is part of it.
const MAGIC: u64 = u64::from_le_bytes(*b"ftkv0001");
/// Length of the envelope in bytes: magic, fingerprint, positions, length, sum.
const ENVELOPE_BYTES: usize = 40;

/// Why bytes are no saved sequence that can be loaded here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// They are something else.
    #[error("they are no saved sequence")]
    Foreign,
    /// They belong to another model, another kind of KV memory, or another build.
    #[error("they belong to another model or another kind of memory")]
    Mismatch,
    /// They were cut or changed.
    #[error("they are damaged")]
    Damaged,
}

/// A saved sequence, opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened<'a> {
    /// First and last position.
    pub(crate) held: (u32, u32),
    /// What the kernels wrote.
    pub(crate) state: &'a [u8],
}

/// Makes room for the envelope at the front of `bytes`, which is emptied.
pub(crate) fn begin(bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize(ENVELOPE_BYTES, 0);
}

/// Closes the envelope around what was appended since [`begin`].
pub(crate) fn seal(bytes: &mut [u8], fingerprint: u64, held: (u32, u32)) {
    let Some((envelope, state)) = bytes.split_at_mut_checked(ENVELOPE_BYTES) else { return };
    let positions = u64::from(held.0) << 32 | u64::from(held.1);
    let head = [MAGIC, fingerprint, positions, state.len() as u64];
    let sum = sum(&head, state);
    for (place, word) in envelope.chunks_exact_mut(8).zip(head.into_iter().chain([sum])) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// Opens an envelope.
///
/// # Errors
/// When `bytes` are not what a context with this fingerprint saved.
pub(crate) fn open(bytes: &[u8], fingerprint: u64) -> Result<Opened<'_>, Fault> {
    let (envelope, state) = bytes.split_at_checked(ENVELOPE_BYTES).ok_or(Fault::Foreign)?;
    let mut words = envelope.chunks_exact(8).map(word);
    let head: [u64; 4] = std::array::from_fn(|_| words.next().unwrap_or_default());
    let [magic, whose, positions, length] = head;
    if magic != MAGIC {
        return Err(Fault::Foreign);
    }
    if length != state.len() as u64 || words.next() != Some(sum(&head, state)) {
        return Err(Fault::Damaged);
    }
    if whose != fingerprint {
        return Err(Fault::Mismatch);
    }
    #[expect(clippy::cast_possible_truncation, reason = "two halves of 32 bits")]
    let held = ((positions >> 32) as u32, positions as u32);
    Ok(Opened { held, state })
}

/// First and last position that saved bytes hold: before they are loaded, and on any thread.
///
/// # Errors
/// When `bytes` are not what a context with this fingerprint saved.
pub fn held_by(bytes: &[u8], fingerprint: u64) -> Result<(u32, u32), Fault> {
    open(bytes, fingerprint).map(|opened| opened.held)
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (place, byte) in word.iter_mut().zip(bytes) {
        *place = *byte;
    }
    u64::from_le_bytes(word)
}

/// A sum that any changed byte changes: four lanes of multiply and rotate, as wide as memory is fast.
pub(crate) fn sum(head: &[u64], bytes: &[u8]) -> u64 {
    const PRIMES: [u64; 4] =
        [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x27d4_eb2f_1656_67c5];
    let mix = |lane: u64, word: u64| (lane ^ word).wrapping_mul(PRIMES[0]).rotate_left(29);
    let mut lanes = PRIMES;
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        for (lane, bytes) in lanes.iter_mut().zip(chunk.chunks_exact(8)) {
            *lane = mix(*lane, word(bytes));
        }
    }
    let rest = chunks.remainder().chunks(8).map(word);
    let all = lanes.into_iter().chain(head.iter().copied()).chain(rest).chain([bytes.len() as u64]);
    all.fold(PRIMES[1], mix)
}

#[cfg(test)]
mod tests {
    use super::{Fault, begin, open, seal};

    fn sealed(state: &[u8]) -> Vec<u8> {
        let mut bytes = vec![7; 3];
        begin(&mut bytes);
        bytes.extend(state);
        seal(&mut bytes, 42, (0, 99));
        bytes
    }

    #[test]
    fn what_was_closed_opens() {
        for length in [0, 1, 31, 32, 33, 1000] {
            let state: Vec<u8> = (0..length).map(|i: u32| i.to_le_bytes()[0]).collect();
            let bytes = sealed(&state);
            let opened = open(&bytes, 42).expect("it was closed just now");
            assert_eq!((opened.held, opened.state), ((0, 99), &state[..]));
            assert_eq!(open(&bytes, 43), Err(Fault::Mismatch));
        }
    }

    #[test]
    fn any_change_is_seen() {
        let bytes = sealed(&[5; 77]);
        for at in 0..bytes.len() {
            assert!(open(&bytes[..at], 42).is_err(), "cut at {at}");
            for flip in [1, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                assert!(open(&changed, 42).is_err(), "byte {at} changed by {flip}");
            }
        }
        assert_eq!(open(b"", 42), Err(Fault::Foreign));
        assert_eq!(open(&[0; 200], 42), Err(Fault::Foreign));
    }
}
