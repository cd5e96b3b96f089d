//! The next step: who computes how much, and what moves in memory before.
//!
//! - `plan`: the rows of a step. Decode first, then prefill within a budget that keeps the pace of
//!   whoever reads along.
//! - `admission`: whether a request will be answered in time, and when to come back if not.
//! - `admit`: who goes to work, and with which prefix that is computed already.
//! - `memory`: what is kept, saved, dropped, and who makes room.
//! - `disk`: what is written to disk, and who waits for what is read from there.
//!
//! The shell calls [`Scheduler::next_step`], does the step's operations in their order, computes its
//! rows, and tells: [`Scheduler::on_computed`], then [`Scheduler::on_sampled`] for each run that
//! wanted logits. One step at a time.
//!
//! Invariant: the books are ahead of the kernels by exactly the step that is under way; a step never
//! takes more cells than there are, and each request that was submitted is at work, waiting, or told
//! why not.

mod admission;
mod admit;
mod disk;
mod memory;
mod plan;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use super::blocks::Pool;
use super::cost::{ReadCost, StepCost};
use super::ids::{RequestId, SeqId, SnapshotId, Tenant, Token};
use super::prefix::{Holder, Index};
use super::sequence::{Priority, Request, Sequence, State};
use super::shelf::{Page, PageName};
use super::tier::Tier;
use crate::time::Instant;
use admission::Forecast;
use memory::Kept;

/// What the scheduler may use, and how it weighs.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Cells of the context.
    pub cells: u32,
    /// Sequence ids of the kernels; the last is spare, for pieces on their way between the tiers.
    pub ids: u16,
    /// Most rows in one step.
    pub rows_max: u32,
    /// Most rows in one step that may want logits; not below `running_max`.
    pub logits_max: u32,
    /// Most requests at work together.
    pub running_max: u32,
    /// Most requests that wait.
    pub waiting_max: u32,
    /// Longest that a request may have to wait before its prompt is computed; who would is refused.
    pub wait_max: Duration,
    /// Tokens that host memory has room for.
    pub host_tokens_max: u64,
    /// Rows that a step takes without being much dearer than one of fewer.
    pub tile: u32,
    /// Rows of prefill that go into a step whatever the pace: nobody waits for ever.
    pub prefill_min: u32,
    /// The kernels hold a sequence as a whole: no part of it can be shared or cut off.
    pub whole_only: bool,
    /// Whether prefixes are kept on disk, too.
    pub disk: Option<DiskLimits>,
}

/// What is known of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimits {
    /// Most pages that are remembered while host memory has not got them.
    pub pages_max: usize,
    /// Bytes of a token in a page.
    pub token_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cells: 32_768,
            ids: 256,
            rows_max: 512,
            logits_max: 512,
            running_max: 64,
            waiting_max: 1024,
            wait_max: Duration::from_secs(30),
            host_tokens_max: 1 << 20,
            tile: 64,
            prefill_min: 16,
            whole_only: false,
            disk: None,
        }
    }
}

/// Something to be done to the kernels' memory, before the rows of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `to` holds what `from` holds at `range`.
    Share {
        /// Who has it.
        from: SeqId,
        /// Who gets it.
        to: SeqId,
        /// The positions.
        range: Range<u32>,
    },
    /// `seq` keeps what lies before `end`.
    Truncate {
        /// Whose.
        seq: SeqId,
        /// How much stays.
        end: u32,
    },
    /// `seq` holds nothing any more.
    Drop {
        /// Whose.
        seq: SeqId,
    },
    /// Copies what `seq` holds at `range` to host memory.
    Save {
        /// Whose.
        seq: SeqId,
        /// The positions.
        range: Range<u32>,
        /// Where it goes.
        snapshot: SnapshotId,
    },
    /// Puts a snapshot into `seq`, which holds nothing.
    Load {
        /// What.
        snapshot: SnapshotId,
        /// Where to.
        seq: SeqId,
    },
    /// The bytes of a snapshot are needed no more in host memory.
    Forget {
        /// Which.
        snapshot: SnapshotId,
    },
    /// Writes a snapshot in host memory to disk, without anybody waiting: [`Scheduler::on_written`].
    Write {
        /// Which.
        snapshot: SnapshotId,
        /// Its file.
        page: Page,
    },
    /// Reads one from disk, without anybody else waiting: [`Scheduler::on_read`].
    Read {
        /// Which.
        snapshot: SnapshotId,
        /// Its file.
        name: PageName,
    },
    /// A file has been of use.
    Touch {
        /// Which.
        name: PageName,
    },
}

/// Rows of one sequence in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// For whom.
    pub request: RequestId,
    /// Their sequence.
    pub seq: SeqId,
    /// Position of the first row.
    pub start: u32,
    /// The tokens, one a row.
    pub tokens: Vec<Token>,
    /// How many of the last rows want logits: none for a chunk in the middle of a prompt, one where
    /// a token is sampled, one more for each draft.
    pub logits: u32,
}

/// What to do next. Empty where there is nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// First this, in this order.
    pub operations: Vec<Operation>,
    /// Then these rows, together.
    pub runs: Vec<Run>,
    /// How many cells the rows attend over.
    pub depth: u32,
    /// Requests that will not be answered, and why.
    pub refused: Vec<(RequestId, Refusal)>,
}

impl Step {
    /// How many rows.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.runs.iter().map(|run| u32::try_from(run.tokens.len()).unwrap_or(u32::MAX)).sum()
    }

    /// Whether there is nothing to do at all, until somebody asks for something.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.runs.is_empty() && self.refused.is_empty()
    }
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no tokens, or may generate none.
    Empty,
    /// It cannot fit into the memory, even alone.
    TooLong {
        /// Tokens that it would need.
        tokens: u32,
        /// Tokens that there is room for.
        cells: u32,
    },
    /// As many wait as may.
    QueueFull {
        /// How many wait.
        waiting: u32,
    },
    /// It would wait longer than it may. Who comes back then will be taken.
    Busy {
        /// When to come back.
        retry_after: Duration,
    },
    /// Its deadline passed while it waited.
    Deadline,
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps with rows.
    pub steps: u64,
    /// Rows computed.
    pub rows: u64,
    /// Prompt tokens that were found in the KV.
    pub tokens_shared: u64,
    /// Tokens that came back from host memory.
    pub tokens_loaded: u64,
    /// Those of them that had been read from disk for the request that found them.
    pub tokens_read: u64,
    /// Tokens written to disk.
    pub tokens_written: u64,
    /// Files on disk that could not be read, or were not what they should have been.
    pub reads_failed: u64,
    /// Tokens saved to host memory.
    pub tokens_saved: u64,
    /// Requests that had to make room.
    pub preemptions: u64,
    /// Drafts verified.
    pub drafted: u64,
    /// Drafts that were right.
    pub accepted: u64,
}

/// The engine's mind. See the module.
#[derive(Clone, Debug)]
pub struct Scheduler {
    limits: Limits,
    cost: StepCost,
    reading: ReadCost,
    /// Snapshots that are being written.
    writing: usize,
    /// There may be some that are worth writing.
    unwritten: bool,
    pool: Pool,
    index: Index,
    tier: Tier,
    sequences: BTreeMap<RequestId, Sequence>,
    waiting: Vec<RequestId>,
    running: Vec<RequestId>,
    kept: BTreeMap<SeqId, Kept>,
    ids: Vec<SeqId>,
    /// The first in the queue did not fit, and nobody has come or gone since.
    full: bool,
    operations: Vec<Operation>,
    accounts: BTreeMap<Tenant, Account>,
    /// The first deadline of those who wait, or one that has passed or left since.
    deadline: Option<Instant>,
    output: Outputs,
    forecast: Forecast,
    counters: Counters,
    tick: u64,
    /// Those who decode have had their turn, and a tile of a prompt is next.
    prefill_is_due: bool,
}

/// What a tenant who wants something has got.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// Time of the kernels.
    served: Duration,
    /// Requests that wait or are at work.
    requests: u32,
}

/// How long answers have been, in tokens: a mean and its deviation, forgetting.
#[derive(Clone, Copy, Debug)]
struct Outputs {
    mean: f64,
    deviation: f64,
}

impl Outputs {
    fn on_end(&mut self, tokens: u32) {
        let off = f64::from(tokens) - self.mean;
        self.mean += off / 16.0;
        self.deviation += (if off < 0.0 { -off } else { off } - self.deviation) / 16.0;
    }

    /// Tokens that one that has generated so many will have at its end: rather too many than too few.
    fn forecast(self, generated: u32, max: u32) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let usual = (self.mean + 2.0 * self.deviation) as u32;
        usual.max(generated + super::blocks::BLOCK).min(max)
    }

    /// Tokens that `sequence` has still to say.
    fn rest(self, sequence: &Sequence) -> u32 {
        self.forecast(sequence.generated(), sequence.output_max) - sequence.generated()
    }
}

impl Scheduler {
    /// An empty engine.
    #[must_use]
    pub fn new(limits: Limits, cost: StepCost) -> Self {
        let ids = (0..limits.ids.saturating_sub(1)).rev().map(SeqId).collect();
        Self {
            pool: Pool::new(limits.cells),
            tier: Tier::new(limits.host_tokens_max, limits.disk.map_or(0, |disk| disk.pages_max)),
            limits,
            cost,
            reading: ReadCost::default(),
            writing: 0,
            unwritten: false,
            index: Index::default(),
            sequences: BTreeMap::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            kept: BTreeMap::new(),
            ids,
            full: false,
            operations: Vec::new(),
            accounts: BTreeMap::new(),
            deadline: None,
            output: Outputs { mean: 128.0, deviation: 64.0 },
            forecast: Forecast::default(),
            counters: Counters::default(),
            tick: 0,
            prefill_is_due: false,
        }
    }

    /// A request comes. How many tokens there is room for behind its prompt.
    ///
    /// # Errors
    /// When it can never be answered, or too many wait.
    pub fn on_submit(&mut self, mut request: Request, now: Instant) -> Result<u32, Refusal> {
        let tokens = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        if tokens == 0 || request.output_max == 0 {
            return Err(Refusal::Empty);
        }
        if tokens >= self.limits.cells {
            return Err(Refusal::TooLong { tokens: tokens + 1, cells: self.limits.cells });
        }
        let waiting = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        if waiting >= self.limits.waiting_max {
            return Err(Refusal::QueueFull { waiting });
        }
        // One alone must always be able to finish.
        request.output_max = request.output_max.min(self.limits.cells - tokens);
        let (id, room) = (request.id, request.output_max);
        let request_wait = request.deadline.map(|deadline| deadline - now);
        let behind = self.least_served();
        let account = self.accounts.entry(request.tenant).or_insert(Account { served: behind, requests: 0 });
        account.requests += 1;
        self.deadline = self.deadline.into_iter().chain(request.deadline).min();
        let taken = self.sequences.insert(id, Sequence::new(request, now));
        assert!(taken.is_none(), "a request's name is its own");
        self.waiting.push(id);
        self.full = false;
        self.expect(id);
        let wait_max = request_wait.map_or(self.limits.wait_max, |left| left.min(self.limits.wait_max));
        let judged = self.judge(id, now, wait_max);
        if judged.is_err() {
            self.leave(id);
        }
        judged.map(|()| room)
    }

    /// Nobody waits for it any more. Its cells are free with the next step.
    pub fn on_cancel(&mut self, id: RequestId) {
        if self.sequences.contains_key(&id) {
            self.leave(id);
        }
    }

    /// Its reader does not keep up, or does again.
    pub fn on_pause(&mut self, id: RequestId, paused: bool) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.paused = paused;
            self.full = false;
        }
    }

    /// Guesses at its next tokens. They are verified with the next step that it decodes in, as far as
    /// that leaves the others their pace.
    pub fn on_draft(&mut self, id: RequestId, drafts: Vec<Token>) {
        if let Some(sequence) = self.sequences.get_mut(&id)
            && sequence.decodes()
        {
            let room = sequence.output_max.saturating_sub(sequence.generated() + 1);
            sequence.drafts = drafts;
            sequence.drafts.truncate(room as usize);
        }
    }

    /// The step's rows are computed.
    pub fn on_computed(&mut self, step: &Step, took: Duration) {
        let all = step.rows();
        self.counters.steps += u64::from(!step.runs.is_empty());
        self.counters.rows += u64::from(all);
        self.cost.on_step(all, step.depth, took);
        let prefill = step.runs.iter().filter(|run| run.tokens.len() > 1 && run.logits <= 1);
        let prefill = prefill.map(|run| u32::try_from(run.tokens.len()).unwrap_or(u32::MAX)).sum();
        if prefill > 0 || self.prompts().next().is_some() {
            self.forecast.on_prefill(prefill, took);
        }
        let row = took / all.max(1);
        for run in &step.runs {
            let Some(sequence) = self.sequences.get_mut(&run.request) else { continue };
            let rows = u32::try_from(run.tokens.len()).unwrap_or(u32::MAX);
            sequence.computed_to(run.start + rows);
            if let Some(account) = self.accounts.get_mut(&sequence.tenant) {
                account.served += row * rows;
            }
        }
    }

    /// The step was aborted: `held` says how far each sequence has come all the same.
    pub fn on_aborted(&mut self, step: &Step, held: impl Fn(SeqId) -> u32) {
        for run in &step.runs {
            self.pool.truncate(run.seq, held(run.seq));
            let Some(sequence) = self.sequences.get_mut(&run.request) else { continue };
            sequence.drafts.clear();
            // The last token is computed again: nobody read its logits.
            let end = held(run.seq).min(sequence.len() - 1);
            sequence.computed_to(end);
            self.cut(run.seq, end);
        }
    }

    /// `request` goes on with `tokens`: the drafts that were right, and one that was sampled. `end`
    /// when there will be no more.
    pub fn on_sampled(&mut self, request: RequestId, tokens: &[Token], end: bool, now: Instant) {
        let Some(sequence) = self.sequences.get_mut(&request) else { return };
        let Some((seq, computed)) = sequence.running() else { return };
        let drafted = core::mem::take(&mut sequence.drafts);
        sequence.tokens.extend(tokens);
        let before = sequence.chain.hashes().len();
        sequence.chain.extend(tokens);
        let right = sequence.len() - 1;
        self.counters.drafted += drafted.len() as u64;
        self.counters.accepted += tokens.len().saturating_sub(1) as u64;
        let fresh = &sequence.chain.hashes()[before..];
        self.index.insert(fresh, Holder::Live(request));
        let generated = sequence.generated();
        let end = end || generated >= sequence.output_max;
        if computed > right {
            sequence.state = State::Running { seq, computed: right };
            self.cut(seq, right);
        }
        if end {
            self.output.on_end(generated);
            self.forecast.on_end(now, !self.waiting.is_empty());
            self.leave(request);
        }
    }

    /// Whether nothing is at work and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty() && self.operations.is_empty()
    }

    /// How many requests wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many requests are at work.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Prompt tokens that `request` found computed; `None` before it ran.
    #[must_use]
    pub fn cached(&self, request: RequestId) -> Option<u32> {
        self.sequences.get(&request)?.cached
    }

    /// The books over the kernels' memory.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What the next step begins with, as far as that is decided already.
    #[must_use]
    pub fn pending(&self) -> &[Operation] {
        &self.operations
    }

    /// What steps cost.
    #[must_use]
    pub const fn cost(&self) -> &StepCost {
        &self.cost
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Tokens in host memory.
    #[must_use]
    pub const fn tokens_saved(&self) -> u64 {
        self.tier.tokens()
    }

    /// Tokens on disk, as far as is known.
    #[must_use]
    pub const fn tokens_on_disk(&self) -> u64 {
        self.tier.tokens_on_disk()
    }

    /// The last id of the kernels, for pieces on their way.
    const fn spare(&self) -> SeqId {
        SeqId(self.limits.ids.saturating_sub(1))
    }

    /// `seq` keeps what lies before `end`, in the books and with the next step.
    fn cut(&mut self, seq: SeqId, end: u32) {
        if self.pool.end(seq) > end {
            self.pool.truncate(seq, end);
            self.operations.push(Operation::Truncate { seq, end });
        }
    }

    /// What the tenant who got least, of those who want something, has got.
    fn least_served(&self) -> Duration {
        self.accounts.values().map(|account| account.served).min().unwrap_or_default()
    }
}

/// The name under which `Priority` sorts: the most urgent first.
const fn rank(priority: Priority) -> u8 {
    match priority {
        Priority::Interactive => 0,
        Priority::Batch => 1,
    }
}
