//! Who goes to work, and with which prefix that is computed already.
//!
//! Within a priority the order is by arrival plus a few times the work that is ahead: a short prompt
//! overtakes a long one that came a little earlier, and nobody is overtaken for ever. A tenant who has
//! had more than its share counts as having come later.

use core::time::Duration;

use super::super::blocks::BLOCK;
use super::super::ids::{RequestId, SeqId, SnapshotId};
use super::super::prefix::{Hit, Holder};
use super::super::sequence::{After, Sequence, State};
use super::super::tier::Host;
use super::{Operation, Refusal, Scheduler, rank};
use crate::time::Instant;
use alloc::vec::Vec;

/// How many times the work ahead counts beside the arrival.
const WORK_WEIGHT: u32 = 4;

/// Where a request can take its prefix from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefix {
    /// In the cells, computed.
    shared: Option<Hit>,
    /// In host memory, if that is longer.
    saved: Option<Hit>,
    /// With a request at work that will have computed it, if that is longer still.
    coming: Option<(RequestId, u32)>,
    /// On disk, where reading it is quicker than computing it.
    away: Option<(SnapshotId, u32)>,
}

impl Prefix {
    /// Tokens that need not be computed, if the request begins now.
    pub(super) fn len(&self) -> u32 {
        self.saved.or(self.shared).map_or(0, |hit| hit.len)
    }
}

impl Scheduler {
    /// Those whose deadline has passed leave the queue.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(RequestId, Refusal)> {
        if self.deadline.is_none_or(|first| now < first) {
            return Vec::new();
        }
        let late = |id: &RequestId| self.sequences[id].deadline.is_some_and(|deadline| deadline <= now);
        let expired: Vec<RequestId> = self.waiting.iter().copied().filter(late).collect();
        for &id in &expired {
            self.leave(id);
        }
        self.deadline = self.waiting.iter().filter_map(|id| self.sequences[id].deadline).min();
        expired.into_iter().map(|id| (id, Refusal::Deadline)).collect()
    }

    /// Sets to work whom memory has room for.
    pub(super) fn admit(&mut self, now: Instant) {
        while !self.full && (self.running.len() as u64) < u64::from(self.limits.running_max) {
            let Some(id) = self.first_waiting() else { return };
            // Before the prefix is looked up: an id may cost somebody's kept sequence.
            if !self.reclaim_id() {
                return;
            }
            let prefix = self.prefix_of(id);
            if let Some((donor, len)) = prefix.coming {
                self.wait_for(id, After::Computed(donor, len));
                continue;
            }
            if let Some(away) = prefix.away
                && self.read(id, away, prefix.len(), now)
            {
                continue;
            }
            if !self.fits(id, &prefix) {
                self.full = true;
                return;
            }
            self.begin(id, &prefix);
        }
    }

    /// What a request will cost that begins with what is known now.
    pub(super) fn expect(&mut self, id: RequestId) {
        let prefix = self.prefix_of(id);
        let brought = prefix.coming.map(|(_, len)| len).or_else(|| prefix.away.map(|(_, len)| len));
        let known = brought.unwrap_or(prefix.len());
        let chain = &self.sequences[&id].chain;
        let before = self.waiting.iter().take_while(|other| **other != id);
        let common = before.map(|other| chain.common(&self.sequences[other].chain)).max().unwrap_or(0);
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.expected = sequence.len() - known;
            sequence.follows = common.saturating_sub(known).min(sequence.expected - 1);
        }
    }

    /// The order of `sequence` among those who wait, or whose prompts are being computed.
    pub(super) fn order(&self, sequence: &Sequence, rows: u32, least_served: Duration) -> (u8, Duration) {
        let row = self.row();
        let served = self.accounts.get(&sequence.tenant).map_or(least_served, |account| account.served);
        let arrived = sequence.arrived.since(Instant::default());
        let order = arrived + row * rows * WORK_WEIGHT + served.saturating_sub(least_served);
        (rank(sequence.priority), order)
    }

    fn first_waiting(&self) -> Option<RequestId> {
        let least_served = self.least_served();
        let ready =
            self.waiting.iter().map(|id| &self.sequences[id]).filter(|sequence| self.is_ready(sequence));
        ready
            .min_by_key(|sequence| (self.order(sequence, sequence.expected, least_served), sequence.request))
            .map(|sequence| sequence.request)
    }

    /// Whether somebody reads, and nobody is bringing its prefix.
    fn is_ready(&self, sequence: &Sequence) -> bool {
        let State::Waiting { after, .. } = sequence.state else { return false };
        let pending = match after {
            None => false,
            Some(After::Computed(donor, len)) => self.sequences.get(&donor).is_some_and(|donor| {
                !donor.paused && donor.running().is_some_and(|(_, computed)| computed < len)
            }),
            Some(After::Read(snapshot, _)) => {
                self.tier.find(snapshot).is_some_and(|snapshot| snapshot.host == Host::Coming)
            }
        };
        !sequence.paused && !pending
    }

    pub(super) fn wait_for(&mut self, id: RequestId, next: impl Into<Option<After>>) {
        if let Some(sequence) = self.sequences.get_mut(&id)
            && let State::Waiting { after, .. } = &mut sequence.state
        {
            let before = core::mem::replace(after, next.into());
            self.unpin(before);
        }
    }

    /// Where the prefix of a waiting request is. Its last token is computed in any case, for its
    /// logits.
    pub(super) fn prefix_of(&self, id: RequestId) -> Prefix {
        let sequence = &self.sequences[&id];
        let tokens = &sequence.tokens[..sequence.tokens.len() - 1];
        let best = |usable: &dyn Fn(Holder) -> u32| {
            let hit = self.best(sequence.tenant, &sequence.chain, tokens, usable)?;
            let whole = hit.len == self.computed_by(hit.holder);
            (whole || !self.limits.whole_only).then_some(hit)
        };
        let shared = best(&|holder| match holder {
            Holder::Live(_) | Holder::Kept(_) => self.computed_by(holder),
            Holder::Saved(_) => 0,
        });
        let saved = best(&|holder| match holder {
            Holder::Saved(_) => self.computed_by(holder),
            Holder::Live(_) | Holder::Kept(_) => 0,
        });
        let saved = saved.filter(|hit| hit.len > shared.map_or(0, |hit| hit.len));
        let now = Prefix { shared, saved, coming: None, away: None };
        let away = self.on_disk(sequence, now.len());
        let coming = best(&|holder| match holder {
            Holder::Live(donor) if !self.sequences[&donor].paused => self.sequences[&donor].len(),
            Holder::Live(_) | Holder::Kept(_) | Holder::Saved(_) => 0,
        });
        let least = away.map_or(now.len(), |(_, len)| len) + BLOCK;
        let coming = coming.filter(|hit| !self.limits.whole_only && hit.len >= least);
        let coming = coming.and_then(|hit| match hit.holder {
            Holder::Live(donor) => Some((donor, hit.len)),
            Holder::Kept(_) | Holder::Saved(_) => None,
        });
        Prefix { coming, away, ..now }
    }

    /// Whether memory has room for it and for what those at work will still need. One alone always
    /// fits.
    pub(super) fn fits(&self, id: RequestId, prefix: &Prefix) -> bool {
        if self.running.is_empty() {
            return true;
        }
        let whole = |sequence: &Sequence| {
            u64::from(sequence.prompt)
                + u64::from(self.output.forecast(sequence.generated(), sequence.output_max))
        };
        let at_work = self.running.iter().map(|id| &self.sequences[id]);
        let promised: u64 =
            at_work.map(|other| whole(other).saturating_sub(u64::from(other.computed()))).sum();
        let shared = match prefix.shared {
            Some(Hit { holder: Holder::Live(_), len }) => len,
            _ => 0,
        };
        let needed = whole(&self.sequences[&id]) - u64::from(shared);
        let cells = self.pool.cells();
        u64::from(cells.used() - self.pool.idle()) + promised + needed <= u64::from(cells.total())
    }

    /// Sets `id` to work.
    fn begin(&mut self, id: RequestId, prefix: &Prefix) {
        let Some(seq) = self.ids.pop() else { return };
        self.waiting.retain(|other| *other != id);
        self.pool.set_live(seq, true);
        if let Some(hit) = prefix.shared {
            self.take_shared(seq, hit);
        }
        if let Some(Hit { holder: Holder::Saved(_), .. }) = prefix.saved {
            self.take_saved(seq, prefix.saved);
        }
        let computed = self.pool.end(seq);
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let (before, first) = (sequence.state, sequence.cached.is_none());
        sequence.cached.get_or_insert(computed);
        sequence.state = State::Running { seq, computed };
        if let State::Waiting { after, saved } = before {
            self.unpin(after);
            saved.into_iter().for_each(|own| self.tier.unpin(own));
        }
        if first {
            self.credit(id, computed);
        }
        let Some(sequence) = self.sequences.get(&id) else { return };
        self.index.insert(sequence.chain.hashes(), Holder::Live(id));
        self.running.push(id);
    }

    fn take_shared(&mut self, seq: SeqId, hit: Hit) {
        let from = match hit.holder {
            Holder::Kept(from) => Some(from),
            Holder::Live(donor) => self.sequences[&donor].running().map(|(from, _)| from),
            Holder::Saved(_) => None,
        };
        let Some(from) = from else { return };
        self.pool.share(from, seq, 0..hit.len);
        self.operations.push(Operation::Share { from, to: seq, range: 0..hit.len });
        self.counters.tokens_shared += u64::from(hit.len);
        self.touch(hit.holder);
    }

    /// Loads what lies in host memory behind what `seq` holds already, piece by piece.
    fn take_saved(&mut self, seq: SeqId, hit: Option<Hit>) {
        let Some(Hit { holder: Holder::Saved(snapshot), len }) = hit else { return };
        self.tier.touch(snapshot);
        self.tier.pin(snapshot);
        let spare = self.spare();
        let lineage = self.tier.lineage(snapshot);
        for (place, &piece) in lineage.iter().enumerate() {
            let range = self.tier.get(piece).range.clone();
            // A piece may go on where the one before it still had more, of another text.
            let end = lineage.get(place + 1).map_or(len, |next| self.tier.get(*next).range.start);
            let have = self.pool.end(seq);
            if end <= have {
                continue;
            }
            if !self.reclaim(range.end - range.start) || !self.pool.place(spare, range.clone()) {
                break;
            }
            let wanted = have..end;
            self.pool.share(spare, seq, wanted.clone());
            self.pool.drop_seq(spare);
            let count = u64::from(wanted.end - wanted.start);
            self.counters.tokens_loaded += count;
            if let Some(piece) = self.tier.find_mut(piece)
                && core::mem::take(&mut piece.fresh)
            {
                self.counters.tokens_read += count;
            }
            self.operations.push(Operation::Load { snapshot: piece, seq: spare });
            self.operations.push(Operation::Share { from: spare, to: seq, range: wanted });
            self.operations.push(Operation::Drop { seq: spare });
        }
        self.tier.unpin(snapshot);
    }
}
