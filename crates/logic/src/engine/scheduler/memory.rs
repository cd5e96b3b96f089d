//! What is kept, saved, dropped, and who makes room.
//!
//! A finished request's prefix stays in the cells while that costs nobody anything. It goes to host
//! memory when it slows the steps, and is dropped when that has it. A request that must make room
//! goes the same way and waits again; its own prefix is then found like any other.

use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use super::super::blocks::BLOCK;
use super::super::ids::{RequestId, SeqId, SnapshotId, Tenant, Token};
use super::super::prefix::{Chain, Hit, Holder};
use super::super::sequence::State;
use super::super::tier::Host;
use super::{Operation, Scheduler, rank};

/// A tail that is shorter, behind a prefix that is kept already, is not worth keeping.
const TAIL_MIN: u32 = 2 * BLOCK;
/// Tokens saved with one step: a long prefix goes in pieces, so that no step waits for all of it.
const SAVE_TOKENS_MAX: u32 = 2048;
/// By how much idle cells may slow a step.
const IDLE_SLOWDOWN: f64 = 0.02;

/// A finished request's sequence.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) tenant: Tenant,
    pub(super) tokens: Vec<Token>,
    pub(super) chain: Chain,
    pub(super) used: u64,
    /// Host memory has it too, or has no room for it.
    pub(super) saved: bool,
}

impl Scheduler {
    /// `request` has ended, one way or another. Its prefix may stay.
    pub(super) fn leave(&mut self, request: RequestId) {
        let Some(sequence) = self.sequences.remove(&request) else { return };
        self.waiting.retain(|other| *other != request);
        self.full = false;
        match sequence.state {
            State::Waiting { after, saved } => {
                self.unpin(after);
                saved.into_iter().for_each(|id| self.tier.unpin(id));
            }
            State::Running { seq, computed } => {
                self.running.retain(|other| *other != request);
                self.index.remove(sequence.chain.hashes(), Holder::Live(request));
                self.keep(seq, sequence.tenant, &sequence.tokens[..computed as usize]);
            }
        }
        if let Entry::Occupied(mut account) = self.accounts.entry(sequence.tenant) {
            account.get_mut().requests -= 1;
            if account.get().requests == 0 {
                account.remove();
            }
        }
    }

    /// Keeps what `seq` holds, where it is worth an id.
    fn keep(&mut self, seq: SeqId, tenant: Tenant, tokens: &[Token]) {
        self.pool.set_live(seq, false);
        let len = tokens.len();
        let chain = Chain::of(tenant, tokens);
        let known = self.best(tenant, &chain, tokens, |holder| self.computed_by(holder));
        if let Some(hit) = known
            && len < (hit.len + TAIL_MIN) as usize
        {
            self.touch(hit.holder);
            self.release(seq);
            return;
        }
        if len < BLOCK as usize {
            self.release(seq);
            return;
        }
        self.drop_prefixes_of(&chain, tokens);
        self.index.insert(chain.hashes(), Holder::Kept(seq));
        self.tick += 1;
        self.kept.insert(seq, Kept { tenant, tokens: tokens.to_vec(), chain, used: self.tick, saved: false });
    }

    /// Drops what is kept and begins as `tokens` do: whoever finds it finds the longer one.
    fn drop_prefixes_of(&mut self, chain: &Chain, tokens: &[Token]) {
        let covered: Vec<SeqId> = self
            .kept
            .iter()
            .filter(|(_, kept)| {
                chain.hashes().starts_with(kept.chain.hashes()) && tokens.starts_with(&kept.tokens)
            })
            .map(|(seq, _)| *seq)
            .collect();
        for seq in covered {
            self.drop_kept(seq);
        }
    }

    /// `seq` holds nothing any more, and its id is free.
    pub(super) fn release(&mut self, seq: SeqId) {
        self.pool.drop_seq(seq);
        self.operations.push(Operation::Drop { seq });
        self.ids.push(seq);
    }

    /// The tokens of a holder.
    pub(super) fn held(&self, holder: Holder) -> &[Token] {
        match holder {
            Holder::Live(id) => &self.sequences[&id].tokens,
            Holder::Kept(seq) => &self.kept[&seq].tokens,
            Holder::Saved(id) => &self.tier.get(id).tokens,
        }
    }

    /// How many of them are computed.
    pub(super) fn computed_by(&self, holder: Holder) -> u32 {
        match holder {
            Holder::Live(id) => self.sequences[&id].computed(),
            Holder::Kept(seq) => self.pool.end(seq),
            Holder::Saved(id) => match self.tier.get(id).host {
                Host::Here => self.tier.get(id).range.end,
                Host::Coming | Host::Away => 0,
            },
        }
    }

    /// Who can give most of what `tokens` begin with, of the same tenant.
    pub(super) fn best(
        &self,
        tenant: Tenant,
        chain: &Chain,
        tokens: &[Token],
        usable: impl Fn(Holder) -> u32,
    ) -> Option<Hit> {
        // The hashes find nobody else's, and a hash only finds: here it is confirmed.
        let ours = |holder| match holder {
            Holder::Live(id) => self.sequences[&id].tenant == tenant,
            Holder::Kept(seq) => self.kept[&seq].tenant == tenant,
            Holder::Saved(id) => self.tier.get(id).tenant == tenant,
        };
        let usable = |holder| if ours(holder) { usable(holder) } else { 0 };
        self.index.best(chain, tokens, usable, |holder| self.held(holder))
    }

    pub(super) fn touch(&mut self, holder: Holder) {
        match holder {
            Holder::Live(_) => {}
            Holder::Saved(id) => self.tier.touch(id),
            Holder::Kept(seq) => {
                self.tick += 1;
                if let Some(kept) = self.kept.get_mut(&seq) {
                    kept.used = self.tick;
                }
            }
        }
    }

    /// Moves what lies idle out of the way of a step of `rows` rows, the highest cells first: all of
    /// it where nobody reads along, else a piece at a time.
    pub(super) fn tidy(&mut self, rows: u32, read_along: bool) {
        let mut left = if read_along { SAVE_TOKENS_MAX } else { u32::MAX };
        while rows > 0 && left > 0 {
            let top = self.pool.cells().top();
            if self.pool.idle() <= self.cost.idle_cells(rows, top, IDLE_SLOWDOWN) {
                return;
            }
            let highest = self.kept.keys().copied().max_by_key(|seq| self.pool.sole_top(*seq));
            let Some(seq) = highest else { return };
            left -= self.move_out(seq, left);
        }
    }

    /// Saves a piece of what is kept while nobody asks for anything, so that it can be dropped at
    /// once when somebody does.
    pub(super) fn save_ahead(&mut self) {
        let unsaved = self.kept.iter().find(|(_, kept)| !kept.saved).map(|(seq, _)| *seq);
        if let Some(seq) = unsaved
            && self.save_kept(seq, SAVE_TOKENS_MAX).1
            && let Some(kept) = self.kept.get_mut(&seq)
        {
            kept.saved = true;
        }
    }

    /// Makes `cells` free by dropping what is only kept, the longest unused first; what is not saved
    /// yet is saved before. Whether that was enough.
    pub(super) fn reclaim(&mut self, cells: u32) -> bool {
        while self.pool.cells().free() < cells {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(seq, _)| *seq);
            let Some(seq) = oldest else { return false };
            self.move_out(seq, u32::MAX);
        }
        true
    }

    /// Frees an id by giving up what is kept the longest unused. Whether there is one now.
    pub(super) fn reclaim_id(&mut self) -> bool {
        if self.ids.is_empty()
            && let Some(seq) = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(seq, _)| *seq)
        {
            self.move_out(seq, u32::MAX);
        }
        !self.ids.is_empty()
    }

    /// Saves at most `tokens_max` more tokens of a kept sequence, and drops it when all is saved.
    /// How many were saved.
    pub(super) fn move_out(&mut self, seq: SeqId, tokens_max: u32) -> u32 {
        let (saved, done) = self.save_kept(seq, tokens_max);
        if done {
            self.drop_kept(seq);
        }
        saved
    }

    /// Saves at most `tokens_max` more tokens of a kept sequence: how many, and whether that was all
    /// that can be.
    fn save_kept(&mut self, seq: SeqId, tokens_max: u32) -> (u32, bool) {
        let kept = &self.kept[&seq];
        if kept.saved {
            return (0, true);
        }
        let (tenant, tokens) = (kept.tenant, kept.tokens.clone());
        let before = self.counters.tokens_saved;
        let done = self.save(seq, tenant, &tokens, tokens_max).is_none_or(|(_, rest)| rest == 0);
        (u32::try_from(self.counters.tokens_saved - before).unwrap_or(u32::MAX), done)
    }

    fn drop_kept(&mut self, seq: SeqId) {
        if let Some(kept) = self.kept.remove(&seq) {
            self.index.remove(kept.chain.hashes(), Holder::Kept(seq));
            self.release(seq);
        }
    }

    /// Saves what `seq` holds and host memory lacks, at most `tokens_max` of it. The snapshot with
    /// the longest prefix, and how many tokens of it are not saved; none where there is no room.
    pub(super) fn save(
        &mut self,
        seq: SeqId,
        tenant: Tenant,
        tokens: &[Token],
        tokens_max: u32,
    ) -> Option<(SnapshotId, u32)> {
        let len = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        let (parent, from) = self.saved(tenant, tokens).map_or((None, 0), |(id, len)| (Some(id), len));
        if let Some(parent) = parent
            && len < from + TAIL_MIN
        {
            self.tier.touch(parent);
            return Some((parent, 0));
        }
        let (parent, from) = if self.limits.whole_only { (None, 0) } else { (parent, from) };
        let parent = parent.and_then(|id| self.tier.below(id, from));
        let to = if self.limits.whole_only { len } else { len.min(from.saturating_add(tokens_max)) };
        for victim in self.tier.victims(u64::from(to - from), parent)? {
            self.forget(victim);
        }
        let snapshot = self.tier.insert(tenant, tokens, from..to, parent);
        self.unwritten = true;
        self.index.insert(self.tier.get(snapshot).chain.hashes(), Holder::Saved(snapshot));
        self.operations.push(Operation::Save { seq, range: from..to, snapshot });
        self.counters.tokens_saved += u64::from(to - from);
        Some((snapshot, len - to))
    }

    /// The snapshot that has most of `tokens`, and how much.
    fn saved(&self, tenant: Tenant, tokens: &[Token]) -> Option<(SnapshotId, u32)> {
        let chain = Chain::of(tenant, tokens);
        let hit = self.best(tenant, &chain, tokens, |holder| match holder {
            Holder::Saved(_) => self.computed_by(holder),
            Holder::Live(_) | Holder::Kept(_) => 0,
        })?;
        match hit.holder {
            Holder::Saved(id) => Some((id, hit.len)),
            Holder::Live(_) | Holder::Kept(_) => None,
        }
    }

    /// A snapshot leaves host memory; what is on disk is not forgotten with that.
    pub(super) fn forget(&mut self, snapshot: SnapshotId) {
        if let Some(gone) = self.tier.evict(snapshot) {
            self.index.remove(gone.chain.hashes(), Holder::Saved(snapshot));
        }
        self.operations.push(Operation::Forget { snapshot });
        while let Some(crowded) = self.tier.crowded() {
            self.lose(crowded);
        }
    }

    /// Whoever reads least, then matters least, then came last makes room: saved, where host memory
    /// has room, and waiting again. Whether there was one, other than `spared`.
    pub(super) fn preempt(&mut self, spared: Option<RequestId>) -> bool {
        let victim = self.running.iter().copied().filter(|id| Some(*id) != spared).max_by_key(|id| {
            let sequence = &self.sequences[id];
            (sequence.paused, rank(sequence.priority), sequence.arrived, *id)
        });
        let Some(id) = victim else { return false };
        self.running.retain(|other| *other != id);
        self.full = false;
        self.counters.preemptions += 1;
        let sequence = &self.sequences[&id];
        let Some((seq, computed)) = sequence.running() else { return false };
        let (tenant, tokens) = (sequence.tenant, sequence.tokens[..computed as usize].to_vec());
        self.index.remove(self.sequences[&id].chain.hashes(), Holder::Live(id));
        let saved = if computed < BLOCK { None } else { self.save(seq, tenant, &tokens, u32::MAX) };
        let saved = saved.map(|(snapshot, _)| snapshot);
        saved.into_iter().for_each(|snapshot| self.tier.pin(snapshot));
        self.release(seq);
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.drafts.clear();
            sequence.state = State::Waiting { after: None, saved };
        }
        self.waiting.push(id);
        true
    }
}
