//! The kernels' cells, mirrored: which are free, and how high the used ones reach.
//!
//! Attention runs over the cells from zero to the highest that is used, whoever owns them, so where
//! a token lies decides what every step costs. The kernels fill the lowest free cell first; so do
//! these books, and they know what the kernels do not tell.
//!
//! Invariant: the free ranges are sorted, disjoint, and never touch each other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Free and used cells of one context.
#[derive(Clone, Debug)]
pub struct Cells {
    total: u32,
    used: u32,
    /// Start of each free range, and its end.
    free: BTreeMap<u32, u32>,
}

impl Cells {
    /// `total` cells, all of them free.
    #[must_use]
    pub fn new(total: u32) -> Self {
        let free = (total > 0).then_some((0, total)).into_iter().collect();
        Self { total, used: 0, free }
    }

    /// How many there are.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// How many are used.
    #[must_use]
    pub const fn used(&self) -> u32 {
        self.used
    }

    /// How many are free.
    #[must_use]
    pub const fn free(&self) -> u32 {
        self.total - self.used
    }

    /// One past the highest used cell: what a step attends over.
    #[must_use]
    pub fn top(&self) -> u32 {
        match self.free.last_key_value() {
            Some((&start, &end)) if end == self.total => start,
            _ => self.total,
        }
    }

    /// Takes the lowest `count` free cells, or none where there are fewer.
    #[must_use]
    pub fn take(&mut self, count: u32) -> Option<Vec<Range<u32>>> {
        if count > self.free() {
            return None;
        }
        let (mut taken, mut missing) = (Vec::with_capacity(1), count);
        while missing > 0 {
            let (start, end) = self.free.pop_first().expect("as many are free as the books say");
            let cut = end.min(start + missing);
            if cut < end {
                self.free.insert(cut, end);
            }
            missing -= cut - start;
            taken.push(start..cut);
        }
        self.used += count;
        Some(taken)
    }

    /// Gives cells back.
    ///
    /// # Panics
    /// When one of them was free: the books would be wrong from there on.
    pub fn give(&mut self, range: Range<u32>) {
        let Range { mut start, mut end } = range;
        assert!(start < end && end <= self.total, "cells {start}..{end} of {}", self.total);
        self.used -= end - start;
        if let Some((&below, &below_end)) = self.free.range(..end).next_back() {
            assert!(below_end <= start, "cells {start}..{end} were free already");
            if below_end == start {
                self.free.remove(&below);
                start = below;
            }
        }
        if let Some(above_end) = self.free.remove(&end) {
            end = above_end;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_cells_are_taken_first() {
        let mut cells = Cells::new(10);
        assert_eq!(cells.take(6), Some(alloc::vec![0..6]));
        cells.give(1..3);
        cells.give(4..5);
        assert_eq!((cells.free(), cells.top()), (7, 6));
        assert_eq!(cells.take(4), Some(alloc::vec![1..3, 4..5, 6..7]));
        assert_eq!(cells.top(), 7);
        assert_eq!(cells.take(4), None);
        assert_eq!((cells.used(), cells.free()), (7, 3));
    }

    #[test]
    fn what_comes_back_joins_its_neighbours() {
        let mut cells = Cells::new(8);
        assert!(cells.take(8).is_some());
        for range in [0..2, 4..6, 2..4, 6..8] {
            cells.give(range);
        }
        assert_eq!(cells.free, BTreeMap::from([(0, 8)]));
        assert_eq!(cells.top(), 0);
    }

    #[test]
    #[should_panic(expected = "were free already")]
    fn a_cell_comes_back_once() {
        let mut cells = Cells::new(8);
        assert!(cells.take(4).is_some());
        cells.give(2..4);
        cells.give(3..4);
    }
}
