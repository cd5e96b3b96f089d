//! The exact books over the kernels' memory: who holds which tokens, and in which cells.
//!
//! A *block* is a range of at most [`BLOCK`] consecutive tokens of one sequence, with the cells that
//! they lie in and a count of the sequences that hold it. A sequence's table is the list of its
//! blocks. Sharing copies no data: the other table lists the same blocks. Nothing is copied on
//! write either, for what diverges takes cells of its own; a block that is shared in part is split.
//!
//! The operations are the kernels' own, in the same order, so the books say what the kernels do not:
//! how many cells are used, how high they reach, and what leaves when a sequence does.
//!
//! Invariant: the counts of all blocks are what the tables list; the cells of all blocks are the
//! used ones, each once.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::cells::Cells;
use super::ids::SeqId;

/// Tokens in a block: from so many rows on, the kernels compute attention in tiles.
pub const BLOCK: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlockId(u32);

#[derive(Clone, Debug)]
struct Block {
    /// Position of its first token.
    start: u32,
    len: u32,
    cells: Vec<Range<u32>>,
    /// Sequences that hold it.
    refs: u32,
    /// Those among them that are at work.
    live: u32,
}

impl Block {
    const fn end(&self) -> u32 {
        self.start + self.len
    }
}

/// What one sequence holds: the tokens at `start..end`.
#[derive(Clone, Debug, Default)]
struct Table {
    start: u32,
    end: u32,
    blocks: Vec<BlockId>,
    live: bool,
}

/// The books of one context.
#[derive(Clone, Debug)]
pub struct Pool {
    cells: Cells,
    blocks: Vec<Block>,
    vacant: Vec<BlockId>,
    tables: BTreeMap<SeqId, Table>,
    /// Cells that no live sequence holds.
    idle: u32,
}

/// A block, for those who look on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Position of its first token.
    pub start: u32,
    /// How many tokens.
    pub len: u32,
    /// The lowest of its cells.
    pub cell: u32,
    /// Sequences that hold it.
    pub refs: u32,
    /// Those among them that are at work.
    pub live: u32,
}

impl Pool {
    /// A context of so many cells, empty.
    #[must_use]
    pub fn new(cells: u32) -> Self {
        Self {
            cells: Cells::new(cells),
            blocks: Vec::new(),
            vacant: Vec::new(),
            tables: BTreeMap::new(),
            idle: 0,
        }
    }

    /// The cells beneath.
    #[must_use]
    pub const fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Cells held by sequences that are not at work: what caching costs every step.
    #[must_use]
    pub const fn idle(&self) -> u32 {
        self.idle
    }

    /// One past the last position that `seq` holds; zero for one that holds nothing.
    #[must_use]
    pub fn end(&self, seq: SeqId) -> u32 {
        self.tables.get(&seq).map_or(0, |table| table.end)
    }

    /// Cells that would be free if `seq` left.
    #[must_use]
    pub fn sole(&self, seq: SeqId) -> u32 {
        self.of(seq).filter(|block| block.refs == 1).map(|block| block.len).sum()
    }

    /// The highest cell that only `seq` holds.
    #[must_use]
    pub fn sole_top(&self, seq: SeqId) -> Option<u32> {
        let sole = self.of(seq).filter(|block| block.refs == 1);
        sole.flat_map(|block| &block.cells).map(|cells| cells.end - 1).max()
    }

    /// Every block, in no order that means anything.
    pub fn blocks(&self) -> impl Iterator<Item = BlockView> {
        self.blocks.iter().filter(|block| block.refs > 0).map(|block| BlockView {
            start: block.start,
            len: block.len,
            cell: block.cells[0].start,
            refs: block.refs,
            live: block.live,
        })
    }

    /// Says whether `seq` is at work, or only kept in case that somebody needs its prefix.
    pub fn set_live(&mut self, seq: SeqId, live: bool) {
        let table = self.tables.entry(seq).or_default();
        if table.live == live {
            return;
        }
        table.live = live;
        for &id in &table.blocks {
            let block = &mut self.blocks[id.0 as usize];
            if live {
                block.live += 1;
                self.idle -= if block.live == 1 { block.len } else { 0 };
            } else {
                block.live -= 1;
                self.idle += if block.live == 0 { block.len } else { 0 };
            }
        }
    }

    /// `seq` gets `count` tokens more, at the end. False, and nothing done, where the cells lack.
    #[must_use]
    pub fn grow(&mut self, seq: SeqId, count: u32) -> bool {
        if count > self.cells.free() {
            return false;
        }
        let Self { cells, blocks, vacant, tables, idle } = self;
        let table = tables.entry(seq).or_default();
        *idle += if table.live { 0 } else { count };
        let end = table.end + count;
        while table.end < end {
            let room = (BLOCK - table.end % BLOCK).min(end - table.end);
            // To its last block where that is its own, else to a new one.
            let own = table
                .blocks
                .last()
                .filter(|last| !table.end.is_multiple_of(BLOCK) && blocks[last.0 as usize].refs == 1);
            let id = own.copied().unwrap_or_else(|| {
                let live = u32::from(table.live);
                let new = Block { start: table.end, len: 0, cells: Vec::new(), refs: 1, live };
                let id = insert(blocks, vacant, new);
                table.blocks.push(id);
                id
            });
            let block = &mut blocks[id.0 as usize];
            cells.take(room, &mut block.cells);
            block.len += room;
            table.end += room;
        }
        true
    }

    /// `seq`, which must hold nothing, gets the tokens at `range` and none before them: a piece of a
    /// prefix, on its way back from the other tier. False, and nothing done, where the cells lack.
    #[must_use]
    pub fn place(&mut self, seq: SeqId, range: Range<u32>) -> bool {
        if range.end - range.start > self.cells.free() {
            return false;
        }
        let table = self.tables.entry(seq).or_default();
        assert!(table.blocks.is_empty(), "a piece is placed in an empty sequence");
        (table.start, table.end) = (range.start, range.start);
        self.grow(seq, range.end - range.start)
    }

    /// `to` holds what `from` holds at `range`, in the same cells. `to` must end where it begins.
    pub fn share(&mut self, from: SeqId, to: SeqId, range: Range<u32>) {
        assert!(from != to && self.end(to) == range.start, "a share goes on where the table ends");
        let held = &self.tables[&from];
        assert!(held.start <= range.start && range.end <= held.end, "only what is held is shared");
        self.split_at(from, range.start);
        self.split_at(from, range.end);
        let shared: Vec<BlockId> = self.tables[&from]
            .blocks
            .iter()
            .copied()
            .filter(|id| range.contains(&self.blocks[id.0 as usize].start))
            .collect();
        let table = self.tables.entry(to).or_default();
        if table.blocks.is_empty() {
            table.start = range.start;
        }
        table.end = range.end;
        table.blocks.extend(&shared);
        let live = table.live;
        for id in shared {
            let block = &mut self.blocks[id.0 as usize];
            block.refs += 1;
            if live {
                block.live += 1;
                self.idle -= if block.live == 1 { block.len } else { 0 };
            }
        }
    }

    /// `seq` keeps what lies before `end`.
    pub fn truncate(&mut self, seq: SeqId, end: u32) {
        if end >= self.end(seq) {
            return;
        }
        self.split_at(seq, end);
        let Some(table) = self.tables.get_mut(&seq) else { return };
        let keep = table.blocks.partition_point(|id| self.blocks[id.0 as usize].start < end);
        let gone = table.blocks.split_off(keep);
        table.end = end.max(table.start);
        let live = table.live;
        for id in gone {
            self.release(id, live);
        }
    }

    /// `seq` holds nothing any more, and is not at work.
    pub fn drop_seq(&mut self, seq: SeqId) {
        if let Some(table) = self.tables.remove(&seq) {
            for id in table.blocks {
                self.release(id, table.live);
            }
        }
    }

    fn of(&self, seq: SeqId) -> impl Iterator<Item = &Block> {
        let ids = self.tables.get(&seq).into_iter().flat_map(|table| &table.blocks);
        ids.map(|id| &self.blocks[id.0 as usize])
    }

    fn release(&mut self, id: BlockId, live: bool) {
        let block = &mut self.blocks[id.0 as usize];
        block.refs -= 1;
        block.live -= u32::from(live);
        if block.refs == 0 {
            self.idle -= if live { 0 } else { block.len };
            for cells in core::mem::take(&mut block.cells) {
                self.cells.give(cells);
            }
            self.vacant.push(id);
        } else if live && block.live == 0 {
            self.idle += block.len;
        }
    }

    /// Makes `position` a border between two blocks, in every table that lists the block around it.
    fn split_at(&mut self, seq: SeqId, position: u32) {
        let Some(around) = self.tables.get(&seq).and_then(|table| {
            let after = table.blocks.partition_point(|id| self.blocks[id.0 as usize].start < position);
            table.blocks.get(after.checked_sub(1)?).copied()
        }) else {
            return;
        };
        let block = &mut self.blocks[around.0 as usize];
        if block.end() <= position {
            return;
        }
        let cells = cut(&mut block.cells, position - block.start);
        let upper =
            Block { start: position, len: block.end() - position, cells, refs: block.refs, live: block.live };
        block.len = position - block.start;
        let start = block.start;
        let upper = insert(&mut self.blocks, &mut self.vacant, upper);
        for table in self.tables.values_mut() {
            let at = table.blocks.partition_point(|id| self.blocks[id.0 as usize].start < start);
            if table.blocks.get(at) == Some(&around) {
                table.blocks.insert(at + 1, upper);
            }
        }
    }
}

/// Gives `block` a name.
fn insert(blocks: &mut Vec<Block>, vacant: &mut Vec<BlockId>, block: Block) -> BlockId {
    if let Some(id) = vacant.pop() {
        blocks[id.0 as usize] = block;
        return id;
    }
    let id = BlockId(u32::try_from(blocks.len()).expect("fewer blocks than cells"));
    blocks.push(block);
    id
}

/// Leaves the first `count` cells in `ranges`, and returns the others.
fn cut(ranges: &mut Vec<Range<u32>>, count: u32) -> Vec<Range<u32>> {
    let mut left = count;
    let whole = ranges.iter().take_while(|range| {
        let fits = range.end - range.start <= left;
        left -= if fits { range.end - range.start } else { 0 };
        fits
    });
    let whole = whole.count();
    let mut upper = ranges.split_off(whole);
    if left > 0 {
        ranges.push(upper[0].start..upper[0].start + left);
        upper[0].start += left;
    }
    upper
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: SeqId = SeqId(0);
    const B: SeqId = SeqId(1);
    const C: SeqId = SeqId(2);

    /// Counts everything anew and holds it against the books.
    fn check(pool: &Pool) {
        let mut refs = alloc::vec![(0, 0); pool.blocks.len()];
        for table in pool.tables.values() {
            let mut at = table.start;
            for id in &table.blocks {
                let block = &pool.blocks[id.0 as usize];
                assert_eq!(block.start, at, "a table has no holes");
                assert_eq!(block.start / BLOCK, (block.end() - 1) / BLOCK, "a block crosses no border");
                assert_eq!(block.len, block.cells.iter().map(|cells| cells.end - cells.start).sum::<u32>());
                at = block.end();
                refs[id.0 as usize].0 += 1;
                refs[id.0 as usize].1 += u32::from(table.live);
            }
            assert_eq!(at, table.end);
        }
        let (mut used, mut idle) = (0, 0);
        for (block, counted) in pool.blocks.iter().zip(refs) {
            assert_eq!((block.refs, block.live), counted);
            used += if block.refs > 0 { block.len } else { 0 };
            idle += if block.refs > 0 && block.live == 0 { block.len } else { 0 };
        }
        assert_eq!((pool.cells.used(), pool.idle), (used, idle));
        let mut cells: Vec<u32> = pool
            .blocks
            .iter()
            .filter(|b| b.refs > 0)
            .flat_map(|b| b.cells.iter().cloned().flatten())
            .collect();
        cells.sort_unstable();
        assert!(cells.windows(2).all(|pair| pair[0] < pair[1]), "each cell once");
        assert_eq!(cells.last().map_or(0, |cell| cell + 1), pool.cells.top());
    }

    #[test]
    fn a_shared_prefix_takes_no_cells() {
        let mut pool = Pool::new(1000);
        pool.set_live(A, true);
        assert!(pool.grow(A, 200));
        pool.set_live(B, true);
        pool.share(A, B, 0..150);
        assert!(pool.grow(B, 50));
        check(&pool);
        assert_eq!((pool.cells.used(), pool.sole(A), pool.sole(B)), (250, 50, 50));
        pool.drop_seq(A);
        check(&pool);
        assert_eq!((pool.cells.used(), pool.end(B)), (200, 200));
    }

    #[test]
    fn a_piece_comes_back_behind_its_prefix() {
        let mut pool = Pool::new(300);
        assert!(pool.grow(A, 100));
        pool.share(A, B, 0..70);
        assert!(pool.place(C, 70..130));
        pool.share(C, B, 70..120);
        pool.drop_seq(C);
        check(&pool);
        assert_eq!((pool.end(B), pool.cells.used()), (120, 150));
    }

    #[test]
    fn what_nobody_works_with_is_idle() {
        let mut pool = Pool::new(300);
        pool.set_live(A, true);
        assert!(pool.grow(A, 100));
        assert_eq!(pool.idle(), 0);
        pool.set_live(A, false);
        assert_eq!(pool.idle(), 100);
        pool.set_live(B, true);
        pool.share(A, B, 0..40);
        assert_eq!(pool.idle(), 60);
        pool.drop_seq(A);
        assert_eq!((pool.idle(), pool.cells.used()), (0, 40));
    }

    #[test]
    fn a_growth_that_does_not_fit_does_nothing() {
        let mut pool = Pool::new(100);
        assert!(pool.grow(A, 80));
        assert!(!pool.grow(A, 21) && !pool.place(B, 64..90));
        assert_eq!((pool.end(A), pool.end(B), pool.cells.used()), (80, 0, 80));
    }

    proptest! {
        #[test]
        fn the_books_are_right_after_any_operations(
            operations in prop::collection::vec((0..6_u8, 0..6_u16, 0..6_u16, 0..400_u32), 1..200),
        ) {
            let mut pool = Pool::new(2000);
            for (kind, a, b, count) in operations {
                let (a, b) = (SeqId(a), SeqId(b));
                let (end_a, end_b) = (pool.end(a), pool.end(b));
                match kind {
                    0 => { let fits = count <= pool.cells.free(); prop_assert_eq!(pool.grow(a, count), fits); }
                    1 if a != b && end_b < end_a && pool.tables[&a].start <= end_b => {
                        pool.share(a, b, end_b..end_b + 1 + count % (end_a - end_b));
                    }
                    2 => pool.truncate(a, count),
                    3 => pool.drop_seq(a),
                    4 => pool.set_live(a, count % 2 == 0),
                    5 if end_a == 0 => {
                        let fits = u32::from(b.0) * 10 < pool.cells.free();
                        prop_assert_eq!(pool.place(a, count..count + u32::from(b.0) * 10 + 1), fits);
                    }
                    _ => {}
                }
                check(&pool);
            }
            for seq in 0..6 {
                pool.drop_seq(SeqId(seq));
            }
            prop_assert_eq!((pool.cells.used(), pool.idle, pool.cells.top()), (0, 0, 0));
        }
    }
}
