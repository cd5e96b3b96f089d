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
    /// End of each free range, and its start: what is taken from below moves no key.
    free: BTreeMap<u32, u32>,
}

impl Cells {
    /// `total` cells, all of them free.
    #[must_use]
    pub fn new(total: u32) -> Self {
        let free = (total > 0).then_some((total, 0)).into_iter().collect();
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
            Some((&end, &start)) if end == self.total => start,
            _ => self.total,
        }
    }

    /// Adds the lowest `count` free cells to `taken`.
    ///
    /// # Panics
    /// When there are fewer: whoever takes asks first.
    pub fn take(&mut self, count: u32, taken: &mut Vec<Range<u32>>) {
        let mut missing = count;
        while missing > 0 {
            let mut lowest = self.free.first_entry().expect("as many are free as the books say");
            let (start, end) = (*lowest.get(), *lowest.key());
            let cut = end.min(start + missing);
            if cut < end {
                *lowest.get_mut() = cut;
            } else {
                lowest.remove();
            }
            missing -= cut - start;
            match taken.last_mut() {
                Some(last) if last.end == start => last.end = cut,
                _ => taken.push(start..cut),
            }
        }
        self.used += count;
    }

    /// Gives cells back.
    ///
    /// # Panics
    /// When one of them was free: the books would be wrong from there on.
    pub fn give(&mut self, range: Range<u32>) {
        let Range { start, end } = range;
        assert!(start < end && end <= self.total, "cells {start}..{end} of {}", self.total);
        self.used -= end - start;
        let low = self.free.remove(&start).unwrap_or(start);
        match self.free.range_mut(start + 1..).next() {
            Some((_, above)) if *above < end => panic!("cells {start}..{end} were free already"),
            Some((_, above)) if *above == end => *above = low,
            _ => _ = self.free.insert(end, low),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(cells: &mut Cells, count: u32) -> Vec<Range<u32>> {
        let mut taken = Vec::new();
        cells.take(count, &mut taken);
        taken
    }

    #[test]
    fn the_lowest_free_cells_are_taken_first() {
        let mut cells = Cells::new(10);
        assert_eq!(taken(&mut cells, 6), core::iter::once(0..6).collect::<Vec<_>>());
        cells.give(1..3);
        cells.give(4..5);
        assert_eq!((cells.free(), cells.top()), (7, 6));
        assert_eq!(taken(&mut cells, 4), [1..3, 4..5, 6..7]);
        assert_eq!(cells.top(), 7);
        assert_eq!((cells.used(), cells.free()), (7, 3));
    }

    #[test]
    fn what_comes_back_joins_its_neighbours() {
        let mut cells = Cells::new(8);
        taken(&mut cells, 8);
        for range in [0..2, 4..6, 2..4, 6..8] {
            cells.give(range);
        }
        assert_eq!(cells.free, BTreeMap::from([(8, 0)]));
        assert_eq!(cells.top(), 0);
    }

    #[test]
    #[should_panic(expected = "were free already")]
    fn a_cell_comes_back_once() {
        let mut cells = Cells::new(8);
        taken(&mut cells, 4);
        cells.give(2..4);
        cells.give(3..4);
    }
}
