//! Kernels that compute nothing, but tell the truth about memory.
//!
//! A cell's value is a hash of its token and of all that its sequence could see when it was computed;
//! what a row predicts is a hash of the values that it sees. Whatever is shared, saved, loaded, cut
//! or computed twice in a wrong way therefore changes the text, and text that is equal to
//! [`text`] proves that every token saw exactly its own past. Time is a cost model.
//!
//! Invariant: cells are filled as the kernels fill them, the lowest free one first.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use firsttoken_logic::engine::ids::{SeqId, Token};

use crate::backend::{Backend, Capabilities, Check, Failed, Outcome, Row};

/// What follows what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Each token depends on everything before it: nothing can be guessed.
    Hashed,
    /// Each token depends on the one before, and the text repeats itself after so many tokens.
    Looping(u32),
}

/// Rows from which on the kernels attend in tiles.
const TILE: usize = 64;
/// What attention takes for a row on its own, as a multiple of what it takes in a tile.
const ALONE: u64 = 3;

/// What a step takes on the modelled machine, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Each step.
    pub step_ns: u64,
    /// Each row.
    pub row_ns: u64,
    /// Each row of a tile of 64, for every thousand cells up to the highest that is used. Where a step has fewer
    /// rows each attends on its own: three times as much, for every thousand cells of its sequence.
    pub row_over_1000_cells_ns: u64,
    /// Each token saved or loaded.
    pub moved_token_ns: u64,
}

impl Machine {
    /// A draft model on it: ten times as fast.
    pub const DRAFT: Self =
        Self { step_ns: 450_000, row_ns: 140_000, row_over_1000_cells_ns: 77_000, moved_token_ns: 500 };
}

impl Default for Machine {
    /// A model of 100 million parameters on two cores, as measured.
    fn default() -> Self {
        Self { step_ns: 4_500_000, row_ns: 1_400_000, row_over_1000_cells_ns: 770_000, moved_token_ns: 5_000 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    value: u64,
    token: Token,
    refs: u32,
}

/// What a sequence holds: from `start` on, the cell of each position and the sum of all values so far.
#[derive(Clone, Debug, Default)]
struct Held {
    start: u32,
    cells: Vec<(u32, u64)>,
}

impl Held {
    fn sum(&self) -> u64 {
        self.cells.last().map_or(0, |(_, sum)| *sum)
    }

    fn end(&self) -> u32 {
        self.start + u32::try_from(self.cells.len()).unwrap_or(u32::MAX)
    }
}

/// The kernels. See the module.
#[derive(Clone, Debug)]
pub struct Fake {
    capabilities: Capabilities,
    language: Language,
    machine: Machine,
    cells: Vec<Cell>,
    free: BTreeSet<u32>,
    held: BTreeMap<SeqId, Held>,
    predictions: Vec<Token>,
    logits: Vec<f32>,
    spent: Duration,
    abort_after: Option<u32>,
    astray_percent: u64,
    clock: Option<Arc<AtomicU64>>,
}

impl Fake {
    /// So many cells and ids.
    #[must_use]
    pub fn new(cells: u32, ids: u16, language: Language, machine: Machine) -> Self {
        Self {
            capabilities: Capabilities {
                cells,
                ids,
                rows_max: 2048,
                logits_max: 2048,
                vocabulary: VOCABULARY,
                partial: true,
                token_bytes: CELL_BYTES,
            },
            language,
            machine,
            cells: vec![Cell { value: 0, token: 0, refs: 0 }; cells as usize],
            free: (0..cells).collect(),
            held: BTreeMap::new(),
            predictions: Vec::new(),
            logits: vec![0.0; VOCABULARY as usize],
            spent: Duration::ZERO,
            abort_after: None,
            astray_percent: 0,
            clock: None,
        }
    }

    /// Its work moves this clock, of nanoseconds, that others may move as well.
    #[must_use]
    pub fn moving(mut self, clock: &Arc<AtomicU64>) -> Self {
        self.clock = Some(Arc::clone(clock));
        self
    }

    /// A draft of it: so many tokens of a hundred are predicted otherwise.
    #[must_use]
    pub const fn astray(mut self, percent: u64) -> Self {
        self.astray_percent = percent;
        self
    }

    /// How long all work so far would have taken.
    #[must_use]
    pub const fn spent(&self) -> Duration {
        self.spent
    }

    /// The next decode is aborted after so many rows.
    pub const fn abort_after(&mut self, rows: u32) {
        self.abort_after = Some(rows);
    }

    /// How many cells are used, and how high they reach.
    #[must_use]
    pub fn cells(&self) -> (u32, u32) {
        let used = self.cells.iter().enumerate().filter(|(_, cell)| cell.refs > 0);
        let top = used.clone().map(|(at, _)| at + 1).max().unwrap_or(0);
        (u32::try_from(used.count()).unwrap_or(u32::MAX), u32::try_from(top).unwrap_or(u32::MAX))
    }

    fn spend(&mut self, ns: u64) {
        self.spent += Duration::from_nanos(ns);
        if let Some(clock) = &self.clock {
            clock.fetch_add(ns, Relaxed);
        }
    }

    fn write(&mut self, seq: SeqId, value: u64, token: Token, position: u32) {
        let cell = self.free.pop_first().expect("the free cells were counted");
        self.cells[cell as usize] = Cell { value, token, refs: 1 };
        let held = self.held.entry(seq).or_default();
        let sum = held.sum().wrapping_add(seen(value, position));
        held.cells.push((cell, sum));
    }

    fn unlink(&mut self, cell: u32) {
        let held = &mut self.cells[cell as usize];
        held.refs -= 1;
        if held.refs == 0 {
            self.free.insert(cell);
        }
    }
}

/// Tokens that it knows.
pub const VOCABULARY: u32 = 256;
/// Bytes of a saved cell: its token and its value.
const CELL_BYTES: u32 = 12;

impl Backend for Fake {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn decode(&mut self, rows: &[Row]) -> Result<Outcome, Failed> {
        if rows.len() > self.free.len() {
            return Ok(Outcome::Full);
        }
        if rows.len() > self.capabilities.rows_max as usize {
            return Err(Failed { what: format!("{} rows are too many", rows.len()) });
        }
        self.predictions.clear();
        let abort_after = self.abort_after.take();
        for (done, row) in rows.iter().enumerate() {
            if abort_after.is_some_and(|after| done >= after as usize) {
                return Ok(Outcome::Aborted);
            }
            let held = self.held.entry(row.seq).or_default();
            if held.end() != row.position {
                let what = format!("{:?} holds {} tokens, the row is {}", row.seq, held.end(), row.position);
                return Err(Failed { what });
            }
            let value = computed(held.sum(), row.token);
            self.write(row.seq, value, row.token, row.position);
            let sum = self.held[&row.seq].sum();
            let astray = u32::from(hash(!sum) % 100 < self.astray_percent);
            self.predictions.push((predicted(self.language, sum, row.token) + astray) % VOCABULARY);
        }
        let attended = if rows.len() < TILE {
            ALONE * rows.iter().map(|row| u64::from(row.position)).sum::<u64>()
        } else {
            rows.len() as u64 * u64::from(self.cells().1)
        };
        let attention = attended * self.machine.row_over_1000_cells_ns / 1000;
        self.spend(self.machine.step_ns + rows.len() as u64 * self.machine.row_ns + attention);
        Ok(Outcome::Done)
    }

    fn logits(&mut self, row: usize) -> &[f32] {
        self.logits.fill(0.0);
        self.logits[self.predictions[row] as usize] = 10.0;
        &self.logits
    }

    fn share(&mut self, from: SeqId, to: SeqId, range: Range<u32>) -> Result<(), Failed> {
        let Some(source) = self.held.get(&from) else {
            return Err(Failed { what: format!("{from:?} holds nothing") });
        };
        let shared: Vec<u32> = (range.start - source.start..range.end - source.start)
            .map(|at| source.cells[at as usize].0)
            .collect();
        let held = self.held.entry(to).or_default();
        if held.cells.is_empty() {
            held.start = range.start;
        }
        assert_eq!(held.end(), range.start, "no position twice, and none left out");
        for (position, cell) in range.zip(shared) {
            let sum = held.sum().wrapping_add(seen(self.cells[cell as usize].value, position));
            self.cells[cell as usize].refs += 1;
            held.cells.push((cell, sum));
        }
        Ok(())
    }

    fn truncate(&mut self, seq: SeqId, end: u32) -> Result<(), Failed> {
        let Some(held) = self.held.get_mut(&seq) else { return Ok(()) };
        let keep = end.saturating_sub(held.start) as usize;
        let gone = held.cells.split_off(keep.min(held.cells.len()));
        for (cell, _) in gone {
            self.unlink(cell);
        }
        Ok(())
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Failed> {
        for (cell, _) in self.held.remove(&seq).unwrap_or_default().cells {
            self.unlink(cell);
        }
        Ok(())
    }

    fn save(&mut self, seq: SeqId) -> Result<Vec<u8>, Failed> {
        let held = self.held.get(&seq).cloned().unwrap_or_default();
        let mut bytes = held.start.to_le_bytes().to_vec();
        for (cell, _) in &held.cells {
            let cell = self.cells[*cell as usize];
            bytes.extend(cell.token.to_le_bytes());
            bytes.extend(cell.value.to_le_bytes());
        }
        bytes.extend(sum(&bytes).to_le_bytes());
        self.spend(held.cells.len() as u64 * self.machine.moved_token_ns);
        Ok(bytes)
    }

    fn load(&mut self, seq: SeqId, bytes: &[u8]) -> Result<(), Failed> {
        let torn = || Failed { what: "these bytes are no saved sequence".to_owned() };
        let (start, cells) = opened(bytes).ok_or_else(torn)?;
        if cells.len() > self.free.len() || self.held.contains_key(&seq) {
            return Err(Failed { what: "there is no room for a saved sequence".to_owned() });
        }
        self.held.insert(seq, Held { start, cells: Vec::new() });
        for (position, cell) in (start..).zip(cells) {
            let [t0, t1, t2, t3, value @ ..] = *cell;
            self.write(seq, u64::from_le_bytes(value), u32::from_le_bytes([t0, t1, t2, t3]), position);
        }
        self.spend(cells.len() as u64 * self.machine.moved_token_ns);
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        match self.language {
            Language::Hashed => 1,
            Language::Looping(period) => 2 + u64::from(period),
        }
    }

    fn check(&self) -> Check {
        Arc::new(|bytes, range| {
            opened(bytes).is_some_and(|(start, cells)| {
                start == range.start && cells.len() == (range.end - range.start) as usize
            })
        })
    }

    fn held(&self, seq: SeqId) -> u32 {
        self.held.get(&seq).map_or(0, Held::end)
    }
}

/// The first position and the cells of saved bytes; `None` where they were cut or changed.
fn opened(bytes: &[u8]) -> Option<(u32, &[[u8; CELL_BYTES as usize]])> {
    let (bytes, sealed) = bytes.split_last_chunk::<8>()?;
    let (start, cells) = bytes.split_first_chunk::<4>()?;
    let (cells, rest) = cells.as_chunks::<{ CELL_BYTES as usize }>();
    let whole = rest.is_empty() && sum(bytes) == u64::from_le_bytes(*sealed);
    whole.then_some((u32::from_le_bytes(*start), cells))
}

/// A sum over saved bytes.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, byte| hash(sum ^ u64::from(*byte)))
}

/// What follows `prompt`: the text that any engine must give, whatever it shares, saves or guesses.
#[must_use]
pub fn text(language: Language, prompt: &[Token], len: usize) -> Vec<Token> {
    let (mut tokens, mut sum) = (prompt.to_vec(), 0_u64);
    for position in 0..prompt.len() + len - 1 {
        let value = computed(sum, tokens[position]);
        sum = sum.wrapping_add(seen(value, u32::try_from(position).unwrap_or(u32::MAX)));
        if position + 1 >= prompt.len() {
            tokens.push(predicted(language, sum, tokens[position]));
        }
    }
    tokens.split_off(prompt.len())
}

/// The value of a cell, from what was seen before it.
fn computed(sum: u64, token: Token) -> u64 {
    hash(sum ^ hash(u64::from(token)))
}

/// What a value adds to what is seen, at its place.
fn seen(value: u64, position: u32) -> u64 {
    hash(value ^ u64::from(position).rotate_left(32))
}

fn predicted(language: Language, sum: u64, token: Token) -> Token {
    let vocabulary = u64::from(VOCABULARY);
    match language {
        Language::Hashed => u32::try_from(hash(sum) % vocabulary).unwrap_or(0),
        Language::Looping(period) => (token + 1) % period.clamp(1, VOCABULARY),
    }
}

/// splitmix64's finaliser.
fn hash(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
