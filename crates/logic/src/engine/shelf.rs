//! The third tier: what a file on disk is called, what it says of itself, and which go when there are too
//! many.
//!
//! A *page* is the file of one snapshot. Its name is made of what it holds: a chained hash of all tokens
//! up to its end, which begins with the tenant, and its range. So a name needs no table, two processes
//! that write the same page write the same name, and a page can be checked against its own name.
//!
//! Invariant: a page is taken for what its name says only if its tokens and its tenant give that name.

use alloc::vec::Vec;
use core::ops::Range;

use super::ids::{Tenant, Token};
use super::prefix::{BlockHash, Chain};

/// What a page is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageName {
    /// The hash of all tokens up to its end.
    pub digest: BlockHash,
    /// The positions that it holds.
    pub range: Range<u32>,
}

/// What a page says of itself, in front of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What it is called.
    pub name: PageName,
    /// Who holds what lies before.
    pub parent: Option<PageName>,
    /// Whose it is.
    pub tenant: Tenant,
    /// All tokens up to its end.
    pub tokens: Vec<Token>,
}

impl Page {
    /// Whether it is what its name says.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let range = &self.name.range;
        self.tokens.len() == range.end as usize
            && range.start < range.end
            && Chain::of(self.tenant, &self.tokens).digest() == self.name.digest
    }
}

/// A file in the directory, of whatever model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<T> {
    /// When it was used last, on any clock that goes forward.
    pub used: T,
    /// Position of its first token: of two that were used together, what builds on the other goes first.
    pub start: u32,
    /// How large it is.
    pub bytes: u64,
}

/// Which files, by their places, make room for `bytes` more below `bytes_max`: the longest unused first.
/// `None` where all of them would not.
#[must_use]
pub fn victims<T: Ord + Copy>(files: &[File<T>], bytes: u64, bytes_max: u64) -> Option<Vec<usize>> {
    let mut held: u64 = files.iter().map(|file| file.bytes).sum();
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_unstable_by_key(|place| (files[*place].used, core::cmp::Reverse(files[*place].start)));
    let mut victims = Vec::new();
    let mut order = order.into_iter();
    while held.saturating_add(bytes) > bytes_max {
        // One that is too large for the directory costs nobody else a place.
        let place = order.next().filter(|_| bytes <= bytes_max)?;
        held -= files[place].bytes;
        victims.push(place);
    }
    Some(victims)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_is_what_its_name_says() {
        let tokens: Vec<Token> = (0..200).collect();
        let name = |tenant| PageName { digest: Chain::of(tenant, &tokens).digest(), range: 64..200 };
        let page = Page { name: name(Tenant(1)), parent: None, tenant: Tenant(1), tokens: tokens.clone() };
        assert!(page.is_sound());
        assert!(!Page { name: name(Tenant(2)), ..page.clone() }.is_sound(), "another tenant's");
        let mut other = page.clone();
        other.tokens[7] += 1;
        assert!(!other.is_sound(), "other tokens");
        let mut short = page;
        short.tokens.pop();
        assert!(!short.is_sound(), "fewer tokens");
    }

    #[test]
    fn the_longest_unused_file_goes_first_and_what_builds_on_another_before_it() {
        let files = [(5, 0, 10), (3, 0, 10), (3, 64, 10), (9, 0, 10)];
        let files = files.map(|(used, start, bytes)| File { used, start, bytes });
        assert_eq!(victims(&files, 10, 50), Some(vec![]));
        assert_eq!(victims(&files, 10, 49), Some(vec![2]));
        assert_eq!(victims(&files, 10, 30), Some(vec![2, 1]));
        assert_eq!(victims(&files, 31, 30), None, "too large, and nobody has to go for it");
        assert_eq!(victims(&files, 30, 30), Some(vec![2, 1, 0, 3]));
    }

    proptest! {
        #[test]
        fn the_directory_stays_below_its_bound(
            files in prop::collection::vec((0..9_u64, 0..3_u32, 0..100_u64), 0..40),
            bytes in 0..300_u64,
            max in 0..2000_u64,
        ) {
            let files: Vec<_> =
                files.into_iter().map(|(used, start, bytes)| File { used, start, bytes }).collect();
            match victims(&files, bytes, max) {
                None => prop_assert!(bytes > max),
                Some(gone) => {
                    let left = |place: &usize| !gone.contains(place);
                    let held: u64 = (0..files.len()).filter(left).map(|place| files[place].bytes).sum();
                    prop_assert!(held + bytes <= max);
                    let last = gone.iter().map(|place| files[*place].used).max();
                    let kept = (0..files.len()).filter(left).map(|place| files[place].used).min();
                    prop_assert!(last.is_none_or(|last| kept.is_none_or(|kept| last <= kept)));
                }
            }
        }
    }
}
