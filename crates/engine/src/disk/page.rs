//! One file: who it is, its tokens, and the bytes that the kernels saved.
//!
//! ```text
//! magic 8, fingerprint 8, tenant 8, digest 8, start 4, end 4,
//! parent: digest 8, start 4, end 4 (all zero: none), length of the bytes 8
//! tokens: end × 4
//! bytes
//! ```
//!
//! All numbers are little-endian. There is no sum: the tokens and the tenant must give the digest that the
//! file is called by, the length must be the file's, and the bytes have an envelope of their own.
//!
//! Invariant: [`read`] gives what [`head`] wrote, or nothing.

use std::io::Read;

use firsttoken_logic::engine::ids::Tenant;
use firsttoken_logic::engine::prefix::BlockHash;
use firsttoken_logic::engine::shelf::{Page, PageName};

/// What marks such a file; its version is part of it.
const MAGIC: u64 = u64::from_le_bytes(*b"ftpg0001");
/// Length of what comes before the tokens.
const HEAD_BYTES: usize = 64;

/// What comes before the bytes of a page.
pub(super) fn head(fingerprint: u64, page: &Page, bytes: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD_BYTES + page.tokens.len() * 4);
    let none = PageName { digest: BlockHash(0), range: 0..0 };
    for word in [MAGIC, fingerprint, page.tenant.0] {
        head.extend(word.to_le_bytes());
    }
    for name in [&page.name, page.parent.as_ref().unwrap_or(&none)] {
        head.extend(name.digest.0.to_le_bytes());
        head.extend(name.range.start.to_le_bytes());
        head.extend(name.range.end.to_le_bytes());
    }
    head.extend((bytes as u64).to_le_bytes());
    head.extend(page.tokens.iter().flat_map(|token| token.to_le_bytes()));
    head
}

/// The page at the front of a file of `file_bytes`, and the length of the bytes that follow. `None` where it
/// is not whole, not what its name says, or of other kernels.
pub(super) fn read(file: &mut impl Read, file_bytes: u64, fingerprint: u64) -> Option<(Page, u64)> {
    let mut head = [0; HEAD_BYTES];
    file.read_exact(&mut head).ok()?;
    let mut words = head.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut word = || words.next().unwrap_or_default();
    let ours = word() == MAGIC && word() == fingerprint;
    let tenant = Tenant(word());
    let [name, parent] = [(); 2].map(|()| {
        let (digest, range) = (BlockHash(word()), word());
        #[expect(clippy::cast_possible_truncation, reason = "two halves of 32 bits")]
        let (start, end) = (range as u32, (range >> 32) as u32);
        PageName { digest, range: start..end }
    });
    let bytes = word();
    let tokens_bytes = u64::from(name.range.end) * 4;
    let whole = (HEAD_BYTES as u64 + tokens_bytes).checked_add(bytes) == Some(file_bytes);
    if !ours || !whole {
        return None;
    }
    let mut tokens = vec![0; usize::try_from(tokens_bytes).ok()?];
    file.read_exact(&mut tokens).ok()?;
    let tokens = tokens.as_chunks::<4>().0.iter().map(|token| u32::from_le_bytes(*token)).collect();
    let parent = (parent.range.end > 0).then_some(parent);
    let page = Page { name, parent, tenant, tokens };
    page.is_sound().then_some((page, bytes))
}

#[cfg(test)]
mod tests {
    use firsttoken_logic::engine::prefix::Chain;

    use super::*;

    #[test]
    fn a_page_reads_as_it_was_written_and_no_other_does() {
        let tokens: Vec<u32> = (0..100).map(|at| at * 7).collect();
        let name = |end: u32, start| {
            let digest = Chain::of(Tenant(5), &tokens[..end as usize]).digest();
            PageName { digest, range: start..end }
        };
        for parent in [None, Some(name(70, 0))] {
            let name = name(100, if parent.is_some() { 64 } else { 0 });
            let page = Page { name, parent, tenant: Tenant(5), tokens: tokens.clone() };
            let file = [head(42, &page, 3), b"abc".to_vec()].concat();
            let read_as = |file: &[u8], fingerprint| read(&mut &*file, file.len() as u64, fingerprint);
            assert_eq!(read_as(&file, 42), Some((page.clone(), 3)));
            assert_eq!(read_as(&file, 43), None, "of other kernels");
            for cut in 0..file.len() {
                assert_eq!(read_as(&file[..cut], 42), None, "cut at {cut}");
            }
            // A parent that is not there is found out by its name, and the bytes have their own envelope.
            for at in (0..HEAD_BYTES - 24).chain(HEAD_BYTES - 8..file.len() - 3) {
                let mut changed = file.clone();
                changed[at] ^= 0x10;
                // Where a page begins is said by its name, which the reader of the directory compares.
                let start = (32..36).contains(&at);
                assert!(start || read_as(&changed, 42).is_none(), "byte {at}");
            }
        }
    }
}
