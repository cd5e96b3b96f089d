//! The rows of a step.
//!
//! Whoever decodes gets its row. What time the pace of the readers leaves goes to prefill: the
//! shortest rest first, in whole tiles, and never so that several prompts wait for one big step.
//!
//! Tiles are steps of their own, in turn with those who decode: a row of another sequence in a tile makes the
//! kernels attend over both in all of it, and costs more than a step of its own. A few rows go beside others.

use alloc::vec::Vec;
use core::time::Duration;

use super::super::cost::TILE;
use super::super::draft::{Decoding, Reader};
use super::super::ids::RequestId;
use super::super::sequence::Sequence;
use super::{Run, Scheduler, Step};
use crate::time::Instant;

impl Scheduler {
    /// The next step. Nothing to compute: no rows; there may be operations and refusals all the same.
    pub fn next_step(&mut self, now: Instant) -> Step {
        let refused = self.expire(now);
        self.give_up_reading(now);
        self.admit(now);
        let mut shares = self.room_for_decodes();
        self.tidy(u32::try_from(self.running.len()).unwrap_or(u32::MAX), !shares.is_empty());
        if self.sequences.is_empty() {
            self.save_ahead();
        }
        self.write_ahead();
        self.prefill(&mut shares);
        // The books grow last, as the kernels will: after all operations.
        let runs: Vec<Run> = shares.into_iter().filter_map(|share| self.run(share)).collect();
        let depth = attended(&runs, self.pool.cells().top());
        Step { operations: core::mem::take(&mut self.operations), runs, depth, refused }
    }

    /// Those whose next token is one row away, with cells for their rows: drafts go first where the
    /// cells lack, then what is only kept, then whoever matters least.
    fn room_for_decodes(&mut self) -> Vec<Share> {
        self.trim_drafts();
        loop {
            let share = |reader: &Sequence| Share { id: reader.request, rows: decode_rows(reader) };
            let decoding: Vec<Share> = self.readers().map(share).collect();
            if self.reclaim(rows(&decoding)) {
                return decoding;
            }
            if !self.drop_drafts() && !self.preempt(None) {
                return Vec::new();
            }
        }
    }

    /// Those who decode, and whose readers keep up.
    fn readers(&self) -> impl Iterator<Item = &Sequence> {
        // All in a row, whoever waits among them: to look each one up takes longer.
        self.sequences.values().filter(|sequence| sequence.decodes() && !sequence.paused)
    }

    /// Those whose prompts are being computed.
    pub(super) fn prompts(&self) -> impl Iterator<Item = &Sequence> {
        self.sequences.values().filter(|sequence| sequence.prefills())
    }

    /// Leaves as many drafts as the pace of the readers allows, and as rows may want logits beside one
    /// for each at work.
    fn trim_drafts(&mut self) {
        if self.drafted() == 0 {
            return;
        }
        let mut left = self.draft_rows();
        for id in &self.running {
            if let Some(sequence) = self.sequences.get_mut(id) {
                sequence.drafts.truncate(left as usize);
                left -= u32::try_from(sequence.drafts.len()).unwrap_or(u32::MAX);
            }
        }
    }

    /// Drafts that readers have.
    fn drafted(&self) -> u32 {
        self.readers().map(|reader| decode_rows(reader) - 1).sum()
    }

    /// Rows of a step that may be drafts: those that the pace of the readers leaves. Where it cannot be kept
    /// whatever is done they make it better.
    fn draft_rows(&self) -> u32 {
        let readers = u32::try_from(self.readers().count()).unwrap_or(u32::MAX);
        let running = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        let paced = Some(self.rows_max()).filter(|paced| *paced >= readers);
        let left = paced.unwrap_or(self.limits.rows_max).saturating_sub(readers);
        left.min(self.limits.logits_max.saturating_sub(running))
    }

    /// Who decodes now, for a draft model that may guess for them. While a prompt is being computed it may
    /// not: the rows that guesses take would be rows of that prompt.
    #[must_use]
    pub fn decoding(&self) -> Decoding<'_> {
        let readers = self.readers().map(|reader| Reader {
            request: reader.request,
            tenant: reader.tenant,
            tokens: &reader.tokens,
            room: reader.output_max.saturating_sub(reader.generated() + 1),
            rest: self.output.rest(reader),
            has_guesses: !reader.drafts.is_empty(),
        });
        let rows = if self.prompts().next().is_some() {
            0
        } else {
            self.draft_rows().saturating_sub(self.drafted())
        };
        Decoding {
            readers: readers.collect(),
            rows,
            depth: self.depth(),
            cost: &self.cost,
            pace: self.pace(),
        }
    }

    fn drop_drafts(&mut self) -> bool {
        let mut dropped = false;
        for id in &self.running {
            if let Some(sequence) = self.sequences.get_mut(id) {
                dropped |= !sequence.drafts.is_empty();
                sequence.drafts.clear();
            }
        }
        dropped
    }

    /// The shortest gap that somebody who reads along now was promised.
    fn pace(&self) -> Option<Duration> {
        self.readers().filter_map(|reader| reader.itl_target).min()
    }

    /// Most rows of a step that keeps the pace of whoever reads along now.
    fn rows_max(&self) -> u32 {
        match self.pace() {
            Some(target) => self.cost.rows_within(target, self.depth(), self.limits.rows_max),
            None => self.limits.rows_max,
        }
    }

    /// Cells that those who decode attend over, on average: each those of its own sequence.
    fn depth(&self) -> u32 {
        let (cells, readers) = self
            .readers()
            .fold((0_u64, 0_u64), |(cells, count), reader| (cells + u64::from(reader.computed()), count + 1));
        u32::try_from(cells / readers.max(1)).unwrap_or(u32::MAX)
    }

    /// Adds rows of prefill to those that decode, or puts them in their place.
    fn prefill(&mut self, shares: &mut Vec<Share>) {
        let waiting = self.prefilling();
        let turn = core::mem::take(&mut self.prefill_is_due);
        let Some(&first) = waiting.first() else { return };
        if !turn && self.holds_back(first, rows(shares)) {
            return;
        }
        match self.budget(first, rows(shares)) {
            Budget::Beside(rows) => self.fill(waiting, rows, shares, 0),
            Budget::Alone(_) if !turn && !shares.is_empty() => self.prefill_is_due = true,
            Budget::Alone(rows) => {
                let decoding = core::mem::take(shares);
                self.fill(waiting, rows, shares, decoding.iter().map(|share| share.rows).sum());
                if shares.is_empty() {
                    *shares = decoding;
                }
            }
        }
    }

    /// So many rows of the prompts that are `waiting`, in their order. `reserved` cells stay free for those who
    /// decode in turn with them: where no others are they go on, and some of them will end.
    fn fill(&mut self, mut waiting: Vec<RequestId>, budget: u32, shares: &mut Vec<Share>, reserved: u32) {
        while let Some(&first) = waiting.first() {
            let mut left = budget;
            for (place, &id) in waiting.iter().enumerate() {
                // The first gets what it can use; others only what fills up the tile.
                let (taken, tile) = (rows(shares), self.limits.tile);
                let room = if place == 0 { left } else { left.min((tile - taken % tile) % tile) };
                let wanted = room.min(self.sequences[&id].remaining());
                self.reclaim(reserved + taken + wanted);
                let count = wanted.min(self.pool.cells().free().saturating_sub(reserved + taken));
                if count == 0 {
                    break;
                }
                shares.push(Share { id, rows: count });
                left -= count;
            }
            // Prompts hold all cells, and none can go on: the first one does.
            if !shares.is_empty() || reserved > 0 || !self.preempt(Some(first)) {
                return;
            }
            waiting = self.prefilling();
        }
    }

    /// Whether a prompt had better wait until some of those who decode have finished. Its every row
    /// attends over their cells, so what it waits it may win back, and they finish at their best pace.
    /// As nobody knows how long they go on, it waits no longer than it could win when it came: they grow while
    /// it waits, and so would that.
    fn holds_back(&mut self, id: RequestId, decoding: u32) -> bool {
        let Some(pause) = self.best_pause(&self.sequences[&id]) else { return false };
        let step = self.cost.forecast(decoding, self.depth());
        let Some(sequence) = self.sequences.get_mut(&id) else { return false };
        if sequence.held + step > pause.min(*sequence.patience.get_or_insert(pause)) {
            return false;
        }
        sequence.held += step;
        true
    }

    /// What `own` could win at most by waiting for others, if waiting for some of them pays.
    fn best_pause(&self, own: &Sequence) -> Option<Duration> {
        let (rows, tile) = (own.remaining(), self.limits.rows_max);
        let prefill = |cells: u32| self.cost.forecast(tile, own.computed() + cells + rows / 2) / tile * rows;
        let end = |reader: &Sequence| (self.output.rest(reader), reader.computed());
        let mut ends: Vec<(u32, u32)> = self.readers().map(end).collect();
        ends.sort_unstable();
        let step = self.cost.forecast(u32::try_from(ends.len()).unwrap_or(u32::MAX), self.depth());
        let mut beside: u32 = ends.iter().map(|(_, cells)| cells).sum();
        let at_once = prefill(beside);
        let pays = ends.iter().any(|(rest, cells)| {
            beside -= cells;
            step * *rest + prefill(beside) < at_once
        });
        pays.then(|| at_once - prefill(0))
    }

    /// Rows of prefill, of which `first` gets what it can use, while `decoding` rows are decoded: what the pace
    /// of the readers leaves, in whole tiles, and a few in any case. Where the pace is lost, a tile, so that
    /// it is over soon: a row more would cost as much as another one.
    fn budget(&self, first: RequestId, decoding: u32) -> Budget {
        let (tile, most) = (self.limits.tile, self.limits.rows_max);
        let (rest, least) = (self.sequences[&first].remaining(), self.limits.prefill_min);
        let Some(target) = self.pace() else { return Budget::Alone(most) };
        let top = self.pool.cells().top();
        let left = target.saturating_sub(self.cost.forecast(decoding, self.depth()));
        let alone = self.cost.rows_within(left, top, most);
        if alone >= tile && rest >= tile {
            return Budget::Alone(alone - alone % tile);
        }
        let depth = self.sequences[&first].computed();
        let beside = self.cost.rows_within(target, depth, most.min(tile.max(decoding + 1) - 1));
        if beside >= decoding + least.min(rest) {
            Budget::Beside(beside - decoding)
        } else if self.is_pace_lost(decoding) {
            Budget::Alone(tile)
        } else {
            Budget::Beside(least)
        }
    }

    /// Whether a few rows of a prompt break the pace of the readers all the same, now or when the shortest prompt
    /// ends. Its last steps are then the longest gaps that they see, however slowly it began.
    fn is_pace_lost(&self, decoding: u32) -> bool {
        let Some(target) = self.pace() else { return false };
        let end = self.prompts().min_by_key(|prompt| prompt.remaining()).map_or(0, Sequence::len);
        let prompt = self.cost.forecast(self.limits.prefill_min, end);
        prompt + self.cost.forecast(decoding, self.depth()) > target
    }

    /// Whose prompts are being computed, in their order.
    fn prefilling(&self) -> Vec<RequestId> {
        let least_served = self.least_served();
        let mut prefilling: Vec<_> = self
            .prompts()
            .map(|sequence| (self.order(sequence, sequence.remaining(), least_served), sequence.request))
            .collect();
        prefilling.sort_unstable();
        prefilling.into_iter().map(|(_, id)| id).collect()
    }

    /// The next tokens of a request, and its drafts behind its last one. The books grow by them.
    fn run(&mut self, Share { id, rows }: Share) -> Option<Run> {
        let sequence = &self.sequences[&id];
        let (seq, start) = sequence.running()?;
        let count = rows.min(sequence.remaining());
        let mut tokens = sequence.tokens[start as usize..(start + count) as usize].to_vec();
        tokens.extend(&sequence.drafts[..(rows - count) as usize]);
        let last = start + count == sequence.len();
        let logits = if last { rows - count + 1 } else { 0 };
        self.pool.grow(seq, rows).then_some(Run { request: id, seq, start, tokens, logits })
    }
}

/// How many rows of prefill a step has.
enum Budget {
    /// Beside those who decode.
    Beside(u32),
    /// In a step of their own.
    Alone(u32),
}

/// Cells that a row of a step attends over: where it is no tile, on average those of its sequence, and else all
/// up to the `top`.
fn attended(runs: &[Run], top: u32) -> u32 {
    let rows: u64 = runs.iter().map(|run| run.tokens.len() as u64).sum();
    if rows >= u64::from(TILE) {
        return top;
    }
    let cells: u64 = runs.iter().map(|run| run.tokens.len() as u64 * u64::from(run.start)).sum();
    u32::try_from(cells / rows.max(1)).unwrap_or(u32::MAX)
}

/// Rows of a step for one request.
#[derive(Clone, Copy, Debug)]
struct Share {
    id: RequestId,
    rows: u32,
}

/// Rows for the next token of one that decodes, its drafts included.
fn decode_rows(sequence: &Sequence) -> u32 {
    1 + u32::try_from(sequence.drafts.len()).unwrap_or(u32::MAX)
}

fn rows(shares: &[Share]) -> u32 {
    shares.iter().map(|share| share.rows).sum()
}
