//! What is written to disk, and who waits for what is read from there.
//!
//! Written is what another request has begun with, and what took long to compute, as soon as it is in host
//! memory; not the tail of every conversation, which mostly nobody asks for again. Neither is written where
//! computing it again would be quicker than reading it.
//!
//! A request whose prefix lies on disk waits for it while others step, where the forecast says that this is
//! quicker than computing it. The forecast may be wrong: so it waits no longer than computing would have
//! taken, and then computes. At worst it takes twice as long as without a disk, and never fails for it.
//!
//! Invariant: a page that was lost, cut or changed costs its reader a moment; it changes no answer.

use core::time::Duration;

use alloc::vec::Vec;

use super::super::blocks::BLOCK;
use super::super::ids::{RequestId, SnapshotId};
use super::super::prefix::Holder;
use super::super::sequence::{After, Sequence, State};
use super::super::shelf::Page;
use super::super::tier::{Disk, Host, Snapshot};
use super::{Operation, Scheduler, Step};
use crate::time::Instant;

/// What takes longer to compute is written, though nobody has begun with it yet.
const LONG: Duration = Duration::from_secs(1);
/// Snapshots that are being written at a time: others wait in host memory, and where they must leave it
/// before their turn they are not written.
const WRITING_MAX: usize = 4;

impl Scheduler {
    /// Pages that were found on disk at the start. How many of them are of use: one whose beginning is
    /// missing is not.
    pub fn on_found(&mut self, mut pages: Vec<Page>) -> usize {
        pages.sort_by_key(|page| page.name.range.start);
        let mut used = 0;
        for page in &pages {
            if let Some(id) = self.tier.found(page) {
                self.index.insert(self.tier.get(id).chain.hashes(), Holder::Saved(id));
                used += 1;
            }
        }
        used
    }

    /// A snapshot was written, or could not be.
    pub fn on_written(&mut self, snapshot: SnapshotId, done: bool) {
        self.writing = self.writing.saturating_sub(1);
        self.unwritten = true;
        if !done {
            return self.lose(snapshot);
        }
        self.counters.tokens_written += self.tier.written(snapshot);
    }

    /// What was read for a snapshot, and how long that took; no page where there was none. Whether its bytes
    /// are taken.
    pub fn on_read(&mut self, snapshot: SnapshotId, page: Option<&Page>, took: Duration) -> bool {
        let Some(held) = self.tier.find_mut(snapshot).filter(|held| held.host == Host::Coming) else {
            return false;
        };
        self.full = false;
        let same = |page: &Page| {
            page.name == held.name() && page.tenant == held.tenant && page.tokens == held.tokens
        };
        if !page.is_some_and(same) {
            self.counters.reads_failed += 1;
            self.lose(snapshot);
            return false;
        }
        (held.host, held.fresh) = (Host::Here, true);
        let bytes = u64::from(held.range.end - held.range.start) * self.token_bytes();
        self.reading.on_read(bytes, took);
        true
    }

    /// Nobody will ask any more: what is worth it goes to disk.
    pub fn put_away(&mut self) -> Step {
        if self.limits.disk.is_some() {
            let kept: Vec<_> = self.kept.keys().copied().collect();
            for seq in kept {
                self.move_out(seq, u32::MAX);
            }
            self.write(usize::MAX);
        }
        Step { operations: core::mem::take(&mut self.operations), ..Step::default() }
    }

    /// When somebody stops waiting for disk, if nothing comes before.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Instant> {
        self.readers_of_disk().map(|(_, until)| until).min()
    }

    fn readers_of_disk(&self) -> impl Iterator<Item = (RequestId, Instant)> {
        self.waiting.iter().filter_map(|id| match self.sequences[id].state {
            State::Waiting { after: Some(After::Read(snapshot, until)), .. } => {
                let coming = self.tier.find(snapshot).is_some_and(|held| held.host == Host::Coming);
                coming.then_some((*id, until))
            }
            State::Waiting { .. } | State::Running { .. } => None,
        })
    }

    /// Who has waited for disk as long as computing would have taken computes.
    pub(super) fn give_up_reading(&mut self, now: Instant) {
        if self.limits.disk.is_none() {
            return;
        }
        let late: Vec<_> = self.readers_of_disk().filter(|(_, until)| *until <= now).collect();
        for (id, _) in late {
            self.wait_for(id, None);
            self.full = false;
            if let Some(sequence) = self.sequences.get_mut(&id) {
                sequence.impatient = true;
            }
        }
    }

    /// Lets go of what was waited for.
    pub(super) fn unpin(&mut self, after: Option<After>) {
        if let Some(After::Read(snapshot, _)) = after {
            self.tier.unpin(snapshot);
        }
    }

    /// What lies on disk of `sequence`'s prefix, beyond the first `have` tokens, as far as reading it is
    /// quicker than computing it.
    pub(super) fn on_disk(&self, sequence: &Sequence, have: u32) -> Option<(SnapshotId, u32)> {
        if self.limits.disk.is_none() || sequence.impatient {
            return None;
        }
        let tokens = &sequence.tokens[..sequence.tokens.len() - 1];
        let readable = |held: &Snapshot| match held.host {
            Host::Here => 0,
            Host::Coming => held.range.end,
            Host::Away => {
                if held.disk == Disk::Yes {
                    held.range.end
                } else {
                    0
                }
            }
        };
        let hit = self.best(sequence.tenant, &sequence.chain, tokens, |holder| match holder {
            Holder::Saved(id) => readable(self.tier.get(id)),
            Holder::Live(_) | Holder::Kept(_) => 0,
        })?;
        let Holder::Saved(id) = hit.holder else { return None };
        if self.limits.whole_only && hit.len < self.tier.get(id).range.end {
            return None;
        }
        let coming = self.tier.iter().filter(|(_, held)| held.host == Host::Coming).map(|(_, held)| held);
        let queued: u64 = coming.map(|held| u64::from(held.range.end - held.range.start)).sum();
        // What lies deepest may not be worth it where what it builds on is.
        let lineage = self.tier.lineage(id);
        (0..lineage.len()).rev().find_map(|last| {
            let next = lineage.get(last + 1).map(|next| self.tier.get(*next).range.start);
            let len = next.unwrap_or(hit.len).min(hit.len);
            let read = (queued + self.missing(&lineage[..=last]).1) * self.token_bytes();
            let pays = len >= have + BLOCK && self.reading.forecast(read) < self.row() * (len - have);
            (pays && self.tier.get(lineage[last]).host != Host::Here).then_some((lineage[last], len))
        })
    }

    /// Those of `lineage` that are on disk only, and their tokens.
    fn missing(&self, lineage: &[SnapshotId]) -> (Vec<SnapshotId>, u64) {
        let away = lineage.iter().copied().filter(|id| self.tier.get(*id).host == Host::Away);
        let missing: Vec<_> = away.collect();
        let ranges = missing.iter().map(|id| self.tier.get(*id).range.clone());
        let tokens = ranges.map(|range| u64::from(range.end - range.start)).sum();
        (missing, tokens)
    }

    /// `request`, which has `have` tokens without it, waits until `len` are read from disk. False where host
    /// memory has no room for them.
    pub(super) fn read(
        &mut self,
        request: RequestId,
        (snapshot, len): (SnapshotId, u32),
        have: u32,
        now: Instant,
    ) -> bool {
        self.tier.touch(snapshot);
        let lineage = self.tier.lineage(snapshot);
        let (missing, tokens) = self.missing(&lineage);
        let last = lineage.iter().copied().rfind(|id| self.tier.get(*id).host != Host::Away);
        let Some(victims) = self.tier.victims(tokens, last) else { return false };
        for victim in victims {
            self.forget(victim);
        }
        for piece in missing {
            self.tier.fetch(piece);
            self.operations.push(Operation::Read { snapshot: piece, name: self.tier.get(piece).name() });
        }
        self.tier.pin(snapshot);
        self.wait_for(request, After::Read(snapshot, now + self.row() * (len - have)));
        true
    }

    /// A request has begun with `len` tokens that it did not compute: what is saved of them is worth more.
    pub(super) fn credit(&mut self, request: RequestId, len: u32) {
        if self.limits.disk.is_none() {
            return;
        }
        let sequence = &self.sequences[&request];
        let tokens = &sequence.tokens[..len as usize];
        let hit = self.best(sequence.tenant, &sequence.chain, tokens, |holder| match holder {
            Holder::Saved(id) => self.tier.get(id).range.end,
            Holder::Live(_) | Holder::Kept(_) => 0,
        });
        let Some((Holder::Saved(id), len)) = hit.map(|hit| (hit.holder, hit.len)) else { return };
        self.tier.touch(id);
        for id in self.tier.lineage(id) {
            let Some(held) = self.tier.find_mut(id).filter(|held| held.range.start < len) else { continue };
            held.shared = true;
            if held.disk == Disk::Yes {
                let name = held.name();
                self.operations.push(Operation::Touch { name });
            }
        }
        self.unwritten = true;
    }

    /// Writes what is worth it, a few at a time.
    pub(super) fn write_ahead(&mut self) {
        if self.unwritten && self.limits.disk.is_some() {
            self.write(WRITING_MAX);
        }
    }

    fn write(&mut self, writing_max: usize) {
        while self.writing < writing_max {
            let worth = self.tier.iter().find(|(_, held)| self.is_worth_writing(held)).map(|(id, _)| id);
            let Some(id) = worth else {
                self.unwritten = false;
                return;
            };
            let lineage = self.tier.lineage(id);
            let refused = lineage.iter().any(|id| self.tier.get(*id).disk == Disk::Refused);
            for piece in lineage {
                let Some(held) = self.tier.find_mut(piece).filter(|held| held.disk == Disk::No) else {
                    continue;
                };
                held.disk = if refused { Disk::Refused } else { Disk::Asked };
                if !refused {
                    self.writing += 1;
                    let page = self.tier.page(piece);
                    self.operations.push(Operation::Write { snapshot: piece, page });
                }
            }
        }
    }

    fn is_worth_writing(&self, held: &Snapshot) -> bool {
        if held.host != Host::Here || held.disk != Disk::No {
            return false;
        }
        let len = held.range.end - held.range.start;
        let computing = self.row() * len;
        let reading = self.reading.forecast(u64::from(len) * self.token_bytes());
        (held.shared || computing >= LONG) && reading < computing
    }

    /// A snapshot is not on disk, nor what builds on it.
    pub(super) fn lose(&mut self, snapshot: SnapshotId) {
        for (id, gone) in self.tier.lose(snapshot) {
            self.index.remove(gone.chain.hashes(), Holder::Saved(id));
        }
    }

    /// What a row of a prompt takes.
    pub(super) fn row(&self) -> Duration {
        self.cost.forecast(self.limits.rows_max, self.pool.cells().top()) / self.limits.rows_max.max(1)
    }

    fn token_bytes(&self) -> u64 {
        self.limits.disk.map_or(0, |disk| u64::from(disk.token_bytes))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::super::cost::StepCost;
    use super::super::super::ids::{Tenant, Token};
    use super::super::super::prefix::Chain;
    use super::super::super::sequence::{Priority, Request};
    use super::super::super::shelf::PageName;
    use super::super::{DiskLimits, Limits};
    use super::*;

    fn scheduler(token_bytes: u32) -> Scheduler {
        let disk = Some(DiskLimits { pages_max: 10, token_bytes });
        Scheduler::new(Limits { disk, ..Limits::default() }, StepCost::default())
    }

    fn prompt(len: u32) -> Vec<Token> {
        (0..len).collect()
    }

    fn page(tenant: Tenant, len: u32) -> Page {
        let tokens = prompt(len);
        let name = PageName { digest: Chain::of(tenant, &tokens).digest(), range: 0..len };
        Page { name, parent: None, tenant, tokens }
    }

    fn submit(scheduler: &mut Scheduler, id: u64, len: u32) {
        let request = Request {
            id: RequestId(id),
            tenant: Tenant(1),
            prompt: prompt(len),
            output_max: 1,
            priority: Priority::Interactive,
            itl_target: None,
            deadline: None,
        };
        scheduler.on_submit(request, Instant::default()).expect("there is room");
    }

    /// Computes until nothing is left to do. The tokens of what was to be written.
    fn run(scheduler: &mut Scheduler) -> Vec<usize> {
        let mut written = Vec::new();
        loop {
            let step = scheduler.next_step(Instant::default());
            if step.is_empty() {
                return written;
            }
            for operation in &step.operations {
                if let Operation::Write { page, .. } = operation {
                    written.push(page.tokens.len());
                }
            }
            scheduler.on_computed(&step, scheduler.cost().forecast(step.rows(), step.depth));
            for run in step.runs.iter().filter(|run| run.logits > 0) {
                scheduler.on_sampled(run.request, &[7], true, Instant::default());
            }
        }
    }

    #[test]
    fn a_request_waits_for_disk_as_long_as_computing_would_take() {
        let mut scheduler = scheduler(1000);
        assert_eq!(scheduler.on_found(vec![page(Tenant(1), 2000)]), 1);
        submit(&mut scheduler, 1, 2010);
        let step = scheduler.next_step(Instant::default());
        let [Operation::Read { snapshot, .. }] = step.operations[..] else { panic!("{step:?}") };
        assert!(step.runs.is_empty() && scheduler.next_step(Instant::default()).is_empty());
        let until = scheduler.wakes_at().expect("somebody waits");
        assert_eq!(until, Instant::default() + scheduler.row() * 2000);
        assert!(!scheduler.next_step(until).runs.is_empty(), "it computes");
        // What comes late is of use to the next.
        assert!(scheduler.on_read(snapshot, Some(&page(Tenant(1), 2000)), Duration::from_secs(9)));
        assert_eq!((scheduler.tokens_saved(), scheduler.wakes_at()), (2000, None));
    }

    #[test]
    fn what_was_read_is_loaded_and_what_was_not_is_computed() {
        for sound in [true, false] {
            let mut scheduler = scheduler(1000);
            scheduler.on_found(vec![page(Tenant(1), 2000)]);
            submit(&mut scheduler, 1, 2010);
            let step = scheduler.next_step(Instant::default());
            let [Operation::Read { snapshot, .. }] = step.operations[..] else { panic!("{step:?}") };
            let read = page(Tenant(if sound { 1 } else { 2 }), 2000);
            assert_eq!(scheduler.on_read(snapshot, Some(&read), Duration::from_millis(9)), sound);
            run(&mut scheduler);
            let counters = scheduler.counters();
            let expected = if sound { (2000, 0, 10) } else { (0, 1, 2010) };
            assert_eq!((counters.tokens_read, counters.reads_failed, counters.rows), expected);
        }
    }

    #[test]
    fn nobody_waits_for_a_slow_disk_or_for_what_is_anothers() {
        for (token_bytes, tenant) in [(1_000_000, Tenant(1)), (1000, Tenant(2))] {
            let mut scheduler = scheduler(token_bytes);
            assert_eq!(scheduler.on_found(vec![page(tenant, 2000)]), 1);
            submit(&mut scheduler, 1, 2010);
            assert!(!scheduler.next_step(Instant::default()).runs.is_empty());
        }
    }

    #[test]
    fn what_took_long_is_written_and_what_others_begin_with() {
        let mut scheduler = scheduler(1000);
        submit(&mut scheduler, 1, 300);
        assert!(run(&mut scheduler).is_empty(), "a tail that nobody has asked for again");
        submit(&mut scheduler, 2, 290);
        assert_eq!(run(&mut scheduler), [300], "somebody has");
        submit(&mut scheduler, 3, 2000);
        assert_eq!(run(&mut scheduler), [2000], "it took long");
    }
}
