//! A draft model's mind: for whom it guesses, how far, and what its cells hold.
//!
//! A small model with the same vocabulary guesses the next tokens of those who decode, one token of all of
//! them at a time; the large one verifies them with its next step. Who is guessed for catches up first: the
//! draft computes what the request has got since, behind the guesses that were right.
//!
//! The shell calls [`Drafter::begin`], then does what [`Drafter::next_step`] says until it says nothing,
//! tells [`Drafter::on_guess`] for each run that wanted logits and [`Drafter::on_computed`], and hands
//! [`Drafter::finish`] to the scheduler.
//!
//! - `length`: how many guesses pay, by how many were right and what steps take.
//!
//! Invariant: only who decodes holds cells here. What they hold is a prefix of its tokens and guesses behind
//! it; who finds no room is not guessed for, and waits for nothing.

mod length;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::blocks::{BLOCK, Pool};
use super::cost::StepCost;
use super::ids::{RequestId, SeqId, Tenant, Token};
use super::scheduler::{Operation, Run, Step};
use length::{Fare, lengths};

/// Part of the time between two tokens that may go to catching up.
const CATCH_UP_SHARE: u32 = 4;
/// Who is only so many tokens behind catches up at once; it costs next to nothing.
const BEHIND_MAX: u32 = 16;
/// What the draft costs is not known before it has taken so many steps.
const STEPS_MIN: u64 = 4;
/// Part of the time for which it rested that trying again may take.
const TRIAL_SHARE: f64 = 0.005;

/// What a draft may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Cells of its context.
    pub cells: u32,
    /// Sequence ids of its kernels.
    pub ids: u16,
    /// Most rows of one of its steps.
    pub rows_max: u32,
    /// Tokens that it knows: who has another is not guessed for.
    pub vocabulary: u32,
    /// Most guesses at once for one request.
    pub guesses_max: u32,
}

/// One who decodes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// Who.
    pub request: RequestId,
    /// Whose prefixes it may share.
    pub tenant: Tenant,
    /// Prompt, and what was generated.
    pub tokens: &'a [Token],
    /// Guesses that could still be of use.
    pub room: u32,
    /// Tokens that it will probably still say.
    pub rest: u32,
    /// Somebody has guessed already.
    pub has_guesses: bool,
}

/// Those who decode, and what a step of the large model leaves for guesses.
#[derive(Clone, Debug)]
pub struct Decoding<'a> {
    /// Each of them.
    pub readers: Vec<Reader<'a>>,
    /// Rows that may be guesses.
    pub rows: u32,
    /// Cells that the large model's rows attend over.
    pub depth: u32,
    /// What its steps cost.
    pub cost: &'a StepCost,
    /// The longest gap between two tokens that one of them should see.
    pub pace: Option<Duration>,
}

/// What a draft has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Its steps with rows.
    pub steps: u64,
    /// Rows that it computed.
    pub rows: u64,
    /// Its guesses that were verified.
    pub drafted: u64,
    /// Those that were right.
    pub accepted: u64,
}

/// One who decodes, as the draft knows it.
#[derive(Clone, Debug)]
struct Known {
    tenant: Tenant,
    fare: Fare,
    seq: Option<SeqId>,
    /// The tokens that its cells hold; those before `sure` are the request's own.
    held: Vec<Token>,
    sure: usize,
    guesses: Vec<Token>,
    /// Guesses still to be made in this round.
    left: u32,
}

/// The draft's mind. See the module.
#[derive(Clone, Debug)]
pub struct Drafter {
    limits: Limits,
    cost: StepCost,
    pool: Pool,
    ids: Vec<SeqId>,
    known: BTreeMap<RequestId, Known>,
    /// How guesses have fared for everybody: what one who comes begins with.
    usual: Fare,
    next: Step,
    counters: Counters,
}

impl Drafter {
    /// An empty draft. `cost` is a first guess at what its steps cost.
    #[must_use]
    pub fn new(limits: Limits, cost: StepCost) -> Self {
        Self {
            cost,
            pool: Pool::new(limits.cells),
            ids: (0..limits.ids).rev().map(SeqId).collect(),
            known: BTreeMap::new(),
            usual: Fare::first(),
            next: Step::default(),
            counters: Counters::default(),
            limits,
        }
    }

    /// A round of guesses for those who decode now.
    pub fn begin(&mut self, decoding: &Decoding<'_>) {
        self.forget_others(decoding);
        for reader in &decoding.readers {
            let new = || Known {
                tenant: reader.tenant,
                fare: self.usual.fresh(),
                seq: None,
                held: Vec::new(),
                sure: 0,
                guesses: Vec::new(),
                left: 0,
            };
            let known = self.known.entry(reader.request).or_insert_with(new);
            known.sync(reader.tokens);
        }
        if decoding.rows == 0 {
            return;
        }
        let chosen = self.choose(decoding);
        let mut rows = self.limits.rows_max;
        let mut paced = decoding.pace.map_or(rows, |pace| {
            self.cost.rows_within(pace / CATCH_UP_SHARE, self.pool.cells().top(), rows).max(BEHIND_MAX)
        });
        for (reader, guesses, behind) in chosen {
            let rows_max = if behind > BEHIND_MAX { rows.min(paced) } else { rows };
            if rows_max > 0
                && let Some(taken) = self.catch_up(reader, guesses, rows_max)
            {
                rows -= taken;
                paced -= if behind > BEHIND_MAX { taken } else { 0 };
            }
        }
        // The books grow last, as the kernels will: after all operations.
        for run in &self.next.runs {
            let grown = self.pool.grow(run.seq, count(run.tokens.len()));
            // If it could not, the kernels would say so.
            debug_assert!(grown, "room was looked for");
        }
    }

    /// What the draft's kernels do next; none when the round is over.
    pub fn next_step(&mut self) -> Option<Step> {
        let mut step = core::mem::take(&mut self.next);
        if step.is_empty() {
            for (request, known) in &mut self.known {
                if known.left > 0
                    && let (Some(seq), Some(guess)) = (known.seq, known.guesses.last())
                {
                    let start = self.pool.end(seq);
                    if !self.pool.grow(seq, 1) {
                        known.left = 0;
                        continue;
                    }
                    known.held.push(*guess);
                    let tokens = [*guess].into();
                    step.runs.push(Run { request: *request, seq, start, tokens, logits: 1 });
                }
            }
        }
        step.depth = self.pool.cells().top();
        (!step.is_empty()).then_some(step)
    }

    /// The draft says that `token` is next. How many it has guessed before, in this round, is
    /// [`Drafter::guessed`].
    pub fn on_guess(&mut self, request: RequestId, token: Token) {
        if let Some(known) = self.known.get_mut(&request) {
            known.left = known.left.saturating_sub(1);
            known.guesses.push(token);
        }
    }

    /// How many guesses at the next tokens of `request` there are.
    #[must_use]
    pub fn guessed(&self, request: RequestId) -> u32 {
        self.known.get(&request).map_or(0, |known| count(known.guesses.len()))
    }

    /// The rows of a step are computed, and their guesses made.
    pub fn on_computed(&mut self, step: &Step, took: Duration) {
        self.counters.steps += u64::from(!step.runs.is_empty());
        self.counters.rows += u64::from(step.rows());
        self.cost.on_step(step.rows(), step.depth, took);
    }

    /// The guesses of this round.
    pub fn finish(&mut self) -> Vec<(RequestId, Vec<Token>)> {
        let made = self.known.iter_mut().filter(|(_, known)| !known.guesses.is_empty());
        made.map(|(request, known)| {
            known.left = 0;
            (*request, core::mem::take(&mut known.guesses))
        })
        .collect()
    }

    /// Of its guesses for `request`, `guessed` were verified and `right` were right.
    pub fn on_verified(&mut self, request: RequestId, guessed: u32, right: u32) {
        self.counters.drafted += u64::from(guessed);
        self.counters.accepted += u64::from(right);
        self.usual.on_verified(guessed, right);
        if let Some(known) = self.known.get_mut(&request) {
            known.fare.on_verified(guessed, right);
        }
    }

    /// The books over the draft's memory.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whoever does not decode now holds nothing.
    fn forget_others(&mut self, decoding: &Decoding<'_>) {
        let stays = |id: &RequestId| decoding.readers.iter().any(|reader| reader.request == *id);
        let gone: Vec<RequestId> = self.known.keys().copied().filter(|id| !stays(id)).collect();
        for id in gone {
            if let Some(known) = self.known.remove(&id)
                && let Some(seq) = known.seq
            {
                self.release(seq);
            }
        }
    }

    fn release(&mut self, seq: SeqId) {
        self.pool.drop_seq(seq);
        self.next.operations.push(Operation::Drop { seq });
        self.ids.push(seq);
    }

    /// Who may be guessed for in this round: their odds, and how many tokens they are behind.
    fn due<'a, 'b>(&mut self, decoding: &'b Decoding<'a>) -> Vec<(&'b Reader<'a>, f64, u32)> {
        let _ = self.usual.is_due();
        let mut due = Vec::new();
        for reader in decoding.readers.iter().filter(|reader| !reader.has_guesses && reader.room > 0) {
            if let Some(known) = self.known.get_mut(&reader.request)
                && known.fare.is_due()
            {
                due.push((reader, known.fare.odds(&self.usual), count(reader.tokens.len() - known.sure)));
            }
        }
        due
    }

    /// For whom it guesses how far, and how many tokens those are behind, the nearest first.
    fn choose<'a, 'b>(&mut self, decoding: &'b Decoding<'a>) -> Vec<(&'b Reader<'a>, u32, u32)> {
        let due = self.due(decoding);
        if self.counters.steps < STEPS_MIN {
            let nearest = due.into_iter().min_by_key(|(_, _, behind)| *behind);
            return nearest.map(|(reader, _, behind)| (reader, 1, behind)).into_iter().collect();
        }
        let base = count(decoding.readers.len());
        let top = self.pool.cells().top();
        let verify = |rows| decoding.cost.forecast(base + rows, decoding.depth).as_secs_f64();
        let guess = |rows| self.cost.forecast(rows, top).as_secs_f64();
        let most = |reader: &Reader<'_>| reader.room.min(self.limits.guesses_max);
        let wanted: Vec<(f64, u32)> = due.iter().map(|(reader, odds, _)| (*odds, most(reader))).collect();
        let pace = decoding.pace.map(|pace| pace.as_secs_f64());
        let plan = lengths(base, &wanted, decoding.rows, pace, verify, guess);
        let mut chosen = Vec::new();
        for ((reader, _, behind), len) in due.into_iter().zip(plan.lengths) {
            let Some(known) = self.known.get_mut(&reader.request) else { continue };
            let catching_up = if behind > BEHIND_MAX { guess(behind) } else { 0.0 };
            let rested = known.fare.rested();
            if len > 0 && catching_up <= plan.saved * f64::from(reader.rest) {
                known.fare.on_paying();
                chosen.push((reader, len, behind));
            } else {
                if rested > 0 && catching_up <= TRIAL_SHARE * verify(0) * f64::from(rested) {
                    chosen.push((reader, 1, behind));
                }
                known.fare.on_trial();
            }
            self.usual.follow(&known.fare);
        }
        chosen.sort_unstable_by_key(|(reader, _, behind)| (*behind, reader.request));
        chosen
    }

    /// Adds the rows that bring the draft to the reader's last token, or `rows_max` of them: then there is
    /// nothing to guess from yet. How many; none where the cells, the ids or the draft's words lack.
    fn catch_up(&mut self, reader: &Reader<'_>, guesses: u32, rows_max: u32) -> Option<u32> {
        let seq = self.place(reader, guesses)?;
        let known = self.known.get_mut(&reader.request)?;
        let behind = &reader.tokens[known.sure..];
        let tokens = behind[..behind.len().min(rows_max as usize)].to_vec();
        if tokens.iter().any(|token| *token >= self.limits.vocabulary) {
            return None;
        }
        let (is_whole, rows, start) = (tokens.len() == behind.len(), count(tokens.len()), count(known.sure));
        known.held.extend(&tokens);
        known.sure = known.held.len();
        known.left = if is_whole { guesses } else { 0 };
        let run = Run { request: reader.request, seq, start, tokens, logits: u32::from(is_whole) };
        self.next.runs.push(run);
        Some(rows)
    }

    /// The reader's sequence, which holds what is its own and nothing behind it; one who is new shares what
    /// another has of it, and waits for who is computing it. None where there is no room for all that it
    /// lacks: what it holds is then of no use to it, and may be to others.
    fn place(&mut self, reader: &Reader<'_>, guesses: u32) -> Option<SeqId> {
        let known = self.known.get_mut(&reader.request)?;
        let (old, sure) = (known.seq, known.sure);
        if let Some(seq) = old
            && known.held.len() > sure
        {
            known.held.truncate(sure);
            let end = count(sure);
            self.pool.truncate(seq, end);
            self.next.operations.push(Operation::Truncate { seq, end });
        }
        let donor = if old.is_none() { self.donor(reader) } else { None };
        let is_coming = |(from, len)| self.next.runs.iter().any(|run| run.seq == from && run.start < len);
        if donor.is_some_and(is_coming) {
            return None;
        }
        let found = donor.map_or_else(|| count(sure), |(_, len)| len);
        let free = self.pool.cells().free() - self.next.rows();
        let known = self.known.get_mut(&reader.request)?;
        if count(reader.tokens.len()) - found + guesses > free {
            (known.seq, known.sure) = (None, 0);
            known.held.clear();
            old.into_iter().for_each(|seq| self.release(seq));
            return None;
        }
        let seq = old.or_else(|| self.ids.pop())?;
        known.seq = Some(seq);
        known.held.extend(&reader.tokens[known.sure..found as usize]);
        known.sure = known.held.len();
        self.pool.set_live(seq, true);
        if let Some((from, len)) = donor {
            self.pool.share(from, seq, 0..len);
            self.next.operations.push(Operation::Share { from, to: seq, range: 0..len });
        }
        Some(seq)
    }

    /// Who of the same tenant has most of the reader's tokens, where that is worth it.
    fn donor(&self, reader: &Reader<'_>) -> Option<(SeqId, u32)> {
        let tokens = &reader.tokens[..reader.tokens.len() - 1];
        let others = self.known.values().filter(|other| other.tenant == reader.tenant);
        let common = others.filter_map(|other| Some((other.seq?, count(equal(&other.held, tokens)))));
        common.max_by_key(|(_, len)| *len).filter(|(_, len)| *len >= BLOCK)
    }
}

impl Known {
    /// The request has these tokens: how many of them the cells hold, all but the last at most, whose
    /// logits are wanted.
    fn sync(&mut self, tokens: &[Token]) {
        let from = self.sure.min(tokens.len() - 1);
        let right = equal(&self.held[from..], &tokens[from..tokens.len() - 1]);
        self.sure = from + right;
        self.guesses.clear();
        self.left = 0;
    }
}

/// How many tokens at the beginning are the same.
fn equal(held: &[Token], tokens: &[Token]) -> usize {
    held.iter().zip(tokens).take_while(|(held, token)| held == token).count()
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
