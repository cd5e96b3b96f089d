//! The second tier: prefixes in host memory.
//!
//! Saving a prefix and loading it again cost less than half a percent of computing it, while a
//! prefix that lies idle among the cells slows every step for everybody. So what is not at work goes
//! to host memory. A snapshot holds a *range* of positions and names the snapshot that holds what
//! lies before it: conversations that share a system prompt save it once.
//!
//! The bytes themselves are the shell's; these are the books, with the least recently used in front.
//!
//! Invariant: a snapshot that others build on stays; the bytes are never above the bound.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::ids::{SnapshotId, Tenant, Token};
use super::prefix::Chain;

/// What is known of a snapshot.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// All tokens up to its end, those of its ancestors included.
    pub(super) tokens: Vec<Token>,
    /// Their hashes.
    pub(super) chain: Chain,
    /// The positions that it holds itself.
    pub(super) range: Range<u32>,
    /// Who holds what lies before.
    parent: Option<SnapshotId>,
    children: u32,
    /// Requests that wait to be loaded from it.
    pins: u32,
    used: u64,
}

/// The snapshots in host memory.
#[derive(Clone, Debug)]
pub(super) struct Tier {
    snapshots: BTreeMap<SnapshotId, Snapshot>,
    tokens_max: u64,
    tokens: u64,
    next: u64,
    tick: u64,
}

impl Tier {
    /// Room for so many tokens.
    pub(super) const fn new(tokens_max: u64) -> Self {
        Self { snapshots: BTreeMap::new(), tokens_max, tokens: 0, next: 0, tick: 0 }
    }

    /// How many tokens it holds.
    pub(super) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The snapshot of that name.
    pub(super) fn get(&self, id: SnapshotId) -> &Snapshot {
        &self.snapshots[&id]
    }

    /// The snapshots to load, in order, for what `id` holds.
    pub(super) fn lineage(&self, id: SnapshotId) -> Vec<SnapshotId> {
        let mut line: Vec<_> = core::iter::successors(Some(id), |id| self.snapshots[id].parent).collect();
        line.reverse();
        line
    }

    /// Somebody needed it, and with it all that it builds on.
    pub(super) fn touch(&mut self, id: SnapshotId) {
        self.tick += 1;
        let mut at = Some(id);
        while let Some(snapshot) = at.and_then(|id| self.snapshots.get_mut(&id)) {
            snapshot.used = self.tick;
            at = snapshot.parent;
        }
    }

    /// It must stay until [`Tier::unpin`].
    pub(super) fn pin(&mut self, id: SnapshotId) {
        if let Some(snapshot) = self.snapshots.get_mut(&id) {
            snapshot.pins += 1;
        }
    }

    /// One who needed it needs it no more.
    pub(super) fn unpin(&mut self, id: SnapshotId) {
        if let Some(snapshot) = self.snapshots.get_mut(&id) {
            snapshot.pins -= 1;
        }
    }

    /// Whom to forget so that `tokens` more fit: `None` where that cannot be.
    pub(super) fn victims(&self, tokens: u32, parent: Option<SnapshotId>) -> Option<Vec<SnapshotId>> {
        let (mut victims, mut held) = (Vec::new(), self.tokens);
        let mut children: BTreeMap<SnapshotId, u32> = BTreeMap::new();
        while held + u64::from(tokens) > self.tokens_max {
            let leaf = self.snapshots.iter().filter(|(id, snapshot)| {
                let left = snapshot.children - children.get(id).copied().unwrap_or(0);
                left == 0 && snapshot.pins == 0 && Some(**id) != parent && !victims.contains(*id)
            });
            let (id, snapshot) = leaf.min_by_key(|(id, snapshot)| (snapshot.used, **id))?;
            held -= u64::from(snapshot.range.end - snapshot.range.start);
            victims.push(*id);
            if let Some(parent) = snapshot.parent {
                *children.entry(parent).or_default() += 1;
            }
        }
        Some(victims)
    }

    /// A snapshot of `range`, which goes on where `parent` holds everything before.
    pub(super) fn insert(
        &mut self,
        tenant: Tenant,
        tokens: &[Token],
        range: Range<u32>,
        parent: Option<SnapshotId>,
    ) -> SnapshotId {
        let id = SnapshotId(self.next);
        self.next += 1;
        self.tokens += u64::from(range.end - range.start);
        assert!(self.tokens <= self.tokens_max, "room is made before something is saved");
        if let Some(parent) = parent.and_then(|id| self.snapshots.get_mut(&id)) {
            parent.children += 1;
        }
        let tokens = tokens[..range.end as usize].to_vec();
        let chain = Chain::of(tenant, &tokens);
        self.snapshots.insert(id, Snapshot { tokens, chain, range, parent, children: 0, pins: 0, used: 0 });
        self.touch(id);
        id
    }

    /// Takes it out of the books.
    pub(super) fn remove(&mut self, id: SnapshotId) -> Option<Snapshot> {
        let snapshot = self.snapshots.remove(&id)?;
        assert!(snapshot.children == 0 && snapshot.pins == 0, "what others need stays");
        self.tokens -= u64::from(snapshot.range.end - snapshot.range.start);
        if let Some(parent) = snapshot.parent.and_then(|id| self.snapshots.get_mut(&id)) {
            parent.children -= 1;
        }
        Some(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_leaf_goes_first() {
        let tokens: Vec<Token> = (0..300).collect();
        let mut tier = Tier::new(400);
        let system = tier.insert(Tenant(0), &tokens, 0..100, None);
        let first = tier.insert(Tenant(0), &tokens, 100..200, Some(system));
        let second = tier.insert(Tenant(0), &tokens, 100..300, Some(system));
        assert_eq!(tier.lineage(second), [system, second]);
        tier.touch(first);
        assert_eq!(tier.victims(50, None), Some(alloc::vec![second]));
        assert_eq!(tier.victims(400, None), Some(alloc::vec![second, first, system]));
        assert_eq!(tier.victims(401, None), None);
        tier.pin(second);
        assert_eq!(tier.victims(50, None), Some(alloc::vec![first]));
        assert_eq!(tier.victims(200, None), None, "the system prompt carries what is pinned");
        tier.unpin(second);
        assert!(tier.remove(second).is_some());
        assert_eq!(tier.tokens(), 200);
    }
}
