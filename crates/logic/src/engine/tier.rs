//! The second tier: prefixes in host memory, and what of them lies on disk.
//!
//! Saving a prefix and loading it again cost less than half a percent of computing it, while a
//! prefix that lies idle among the cells slows every step for everybody. So what is not at work goes
//! to host memory. A snapshot holds a *range* of positions and names the snapshot that holds what
//! lies before it: conversations that share a system prompt save it once.
//!
//! What is worth it is written to disk as well ([`super::scheduler`] says what), and stays in these
//! books when it has left host memory; so do the files that were found at the start.
//!
//! The bytes themselves are the shell's; these are the books, with the least recently used in front.
//!
//! Invariant: what a snapshot in host memory builds on is there too, and what one on disk builds on is
//! on disk; the tokens in host memory are never above the bound.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use super::ids::{SnapshotId, Tenant, Token};
use super::prefix::Chain;
use super::shelf::{Page, PageName};

/// Whether it is in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// It is.
    Here,
    /// It is being read from disk; its room is taken already.
    Coming,
    /// It is on disk only.
    Away,
}

/// Whether it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disk {
    /// It is not.
    No,
    /// It is being written.
    Asked,
    /// It is, as far as is known: another process may have made room there.
    Yes,
    /// It could not be written, and is not tried again.
    Refused,
}

impl Disk {
    const fn holds(self) -> bool {
        matches!(self, Self::Asked | Self::Yes)
    }
}

/// What is known of a snapshot.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// Whose it is.
    pub(super) tenant: Tenant,
    /// All tokens up to its end, those of its ancestors included.
    pub(super) tokens: Vec<Token>,
    /// Their hashes.
    pub(super) chain: Chain,
    /// The positions that it holds itself.
    pub(super) range: Range<u32>,
    /// Who holds what lies before.
    parent: Option<SnapshotId>,
    /// Those in host memory that go on from it.
    children: u32,
    /// Requests that wait to be loaded from it.
    pins: u32,
    used: u64,
    pub(super) host: Host,
    pub(super) disk: Disk,
    /// A request that did not compute it has begun with it.
    pub(super) shared: bool,
    /// It came from disk, and nobody has begun with it since.
    pub(super) fresh: bool,
}

impl Snapshot {
    fn len(&self) -> u64 {
        u64::from(self.range.end - self.range.start)
    }

    /// What its file is called.
    pub(super) fn name(&self) -> PageName {
        PageName { digest: self.chain.digest(), range: self.range.clone() }
    }
}

/// The snapshots in host memory and on disk.
#[derive(Clone, Debug)]
pub(super) struct Tier {
    snapshots: BTreeMap<SnapshotId, Snapshot>,
    tokens_max: u64,
    tokens: u64,
    tokens_on_disk: u64,
    /// Most snapshots that are on disk only.
    away_max: usize,
    next: u64,
    tick: u64,
}

impl Tier {
    /// Room for so many tokens, and for the names of so many snapshots that are on disk only.
    pub(super) const fn new(tokens_max: u64, away_max: usize) -> Self {
        let (tokens, tokens_on_disk, next, tick) = (0, 0, 0, 0);
        Self { snapshots: BTreeMap::new(), tokens_max, tokens, tokens_on_disk, away_max, next, tick }
    }

    /// How many tokens are in host memory.
    pub(super) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How many tokens are on disk, as far as is known.
    pub(super) const fn tokens_on_disk(&self) -> u64 {
        self.tokens_on_disk
    }

    /// Every snapshot.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SnapshotId, &Snapshot)> {
        self.snapshots.iter().map(|(id, snapshot)| (*id, snapshot))
    }

    /// The snapshot of that name.
    pub(super) fn get(&self, id: SnapshotId) -> &Snapshot {
        &self.snapshots[&id]
    }

    /// The same, where it may have gone.
    pub(super) fn find(&self, id: SnapshotId) -> Option<&Snapshot> {
        self.snapshots.get(&id)
    }

    /// The same, to be changed.
    pub(super) fn find_mut(&mut self, id: SnapshotId) -> Option<&mut Snapshot> {
        self.snapshots.get_mut(&id)
    }

    /// The snapshots to load, in order, for what `id` holds.
    pub(super) fn lineage(&self, id: SnapshotId) -> Vec<SnapshotId> {
        let mut line: Vec<_> = core::iter::successors(Some(id), |id| self.snapshots[id].parent).collect();
        line.reverse();
        line
    }

    /// Of `id` and those that it builds on, the one that holds what lies right before `from`.
    pub(super) fn below(&self, id: SnapshotId, from: u32) -> Option<SnapshotId> {
        self.lineage(id).into_iter().rev().find(|id| self.snapshots[id].range.start < from)
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

    /// Which leave host memory so that `tokens` more fit: `None` where that cannot be.
    pub(super) fn victims(&self, tokens: u64, parent: Option<SnapshotId>) -> Option<Vec<SnapshotId>> {
        let (mut victims, mut held) = (Vec::new(), self.tokens);
        let mut children: BTreeMap<SnapshotId, u32> = BTreeMap::new();
        while held + tokens > self.tokens_max {
            let leaf = self.snapshots.iter().filter(|(id, snapshot)| {
                let left = snapshot.children - children.get(id).copied().unwrap_or(0);
                let idle = left == 0 && snapshot.pins == 0 && snapshot.host == Host::Here;
                idle && Some(**id) != parent && !victims.contains(*id)
            });
            let (id, snapshot) = leaf.min_by_key(|(id, snapshot)| (snapshot.used, **id))?;
            held -= snapshot.len();
            victims.push(*id);
            if let Some(parent) = snapshot.parent {
                *children.entry(parent).or_default() += 1;
            }
        }
        Some(victims)
    }

    /// A snapshot of `range` in host memory, which goes on where `parent` holds everything before.
    pub(super) fn insert(
        &mut self,
        tenant: Tenant,
        tokens: &[Token],
        range: Range<u32>,
        parent: Option<SnapshotId>,
    ) -> SnapshotId {
        let tokens = tokens[..range.end as usize].to_vec();
        self.add(tenant, tokens, range, parent, (Host::Here, Disk::No))
    }

    /// A page that lies on disk. `None` where nobody holds what lies before it, it says what cannot be,
    /// or there are too many.
    pub(super) fn found(&mut self, page: &Page) -> Option<SnapshotId> {
        let len = page.tokens.len();
        let parent = match &page.parent {
            None => None,
            Some(name) => Some(self.snapshots.iter().find(|(_, held)| held.name() == *name)?.0),
        };
        let before = parent.map_or(&[][..], |id| &self.snapshots[id].tokens[..]);
        let start = page.name.range.start as usize;
        let follows = before.len() >= start && start < len && page.tokens.starts_with(&before[..start]);
        let ours = parent.is_none_or(|id| self.snapshots[id].tenant == page.tenant);
        let parent = parent.copied();
        let known = self.snapshots.values().any(|held| held.name() == page.name);
        let sound = page.is_sound() && follows && ours && !known && parent.is_some() == (start > 0);
        (sound && self.away() < self.away_max).then(|| {
            let kind = (Host::Away, Disk::Yes);
            self.add(page.tenant, page.tokens.clone(), page.name.range.clone(), parent, kind)
        })
    }

    fn add(
        &mut self,
        tenant: Tenant,
        tokens: Vec<Token>,
        range: Range<u32>,
        parent: Option<SnapshotId>,
        (host, disk): (Host, Disk),
    ) -> SnapshotId {
        let id = SnapshotId(self.next);
        self.next += 1;
        let chain = Chain::of(tenant, &tokens);
        let (children, pins, used, shared, fresh) = (0, 0, 0, false, false);
        let snapshot = Snapshot {
            tenant,
            tokens,
            chain,
            range,
            parent,
            children,
            pins,
            used,
            host,
            disk,
            shared,
            fresh,
        };
        self.snapshots.insert(id, snapshot);
        if host != Host::Away {
            self.enter(id);
        }
        if disk == Disk::Yes {
            self.tokens_on_disk += self.snapshots[&id].len();
        }
        self.touch(id);
        id
    }

    /// Books the room that it takes in host memory.
    fn enter(&mut self, id: SnapshotId) {
        let (len, parent) = (self.snapshots[&id].len(), self.snapshots[&id].parent);
        self.tokens += len;
        assert!(self.tokens <= self.tokens_max, "room is made before something is saved");
        if let Some(parent) = parent.and_then(|id| self.snapshots.get_mut(&id)) {
            assert!(parent.host != Host::Away, "what it builds on is there");
            parent.children += 1;
        }
    }

    /// Gives the room back.
    fn exit(&mut self, id: SnapshotId) {
        let snapshot = &self.snapshots[&id];
        assert!(snapshot.children == 0, "what others need stays");
        self.tokens -= snapshot.len();
        if let Some(parent) = snapshot.parent.and_then(|id| self.snapshots.get_mut(&id)) {
            parent.children -= 1;
        }
    }

    /// It is being read from disk. Its room must be free, and its parent there or coming.
    pub(super) fn fetch(&mut self, id: SnapshotId) {
        self.enter(id);
        if let Some(snapshot) = self.snapshots.get_mut(&id) {
            snapshot.host = Host::Coming;
        }
    }

    /// It leaves host memory. What is on disk stays in the books; else it is given back.
    pub(super) fn evict(&mut self, id: SnapshotId) -> Option<Snapshot> {
        self.exit(id);
        let snapshot = self.snapshots.get_mut(&id)?;
        assert!(snapshot.pins == 0, "what others wait for stays");
        snapshot.host = Host::Away;
        if snapshot.disk.holds() { None } else { self.snapshots.remove(&id) }
    }

    /// It was written. How many tokens; none where it was not to be, or has been lost meanwhile.
    pub(super) fn written(&mut self, id: SnapshotId) -> u64 {
        let asked = self.snapshots.get_mut(&id).filter(|snapshot| snapshot.disk == Disk::Asked);
        let Some(snapshot) = asked else { return 0 };
        snapshot.disk = Disk::Yes;
        self.tokens_on_disk += snapshot.len();
        snapshot.len()
    }

    /// It is not on disk, nor is anything that builds on it. Those that left the books with that.
    pub(super) fn lose(&mut self, id: SnapshotId) -> Vec<(SnapshotId, Snapshot)> {
        let mut gone = Vec::new();
        let mut lost = alloc::vec![id];
        while let Some(id) = lost.pop() {
            let Some(snapshot) = self.snapshots.get_mut(&id) else { continue };
            if !snapshot.disk.holds() {
                continue;
            }
            if snapshot.disk == Disk::Yes {
                self.tokens_on_disk -= snapshot.len();
            }
            snapshot.disk = Disk::Refused;
            lost.extend(
                self.snapshots.iter().filter(|(_, child)| child.parent == Some(id)).map(|(id, _)| *id),
            );
            gone.push(id);
        }
        // Children first: what builds on something leaves before it.
        let left = gone.into_iter().rev().filter_map(|id| {
            match self.snapshots[&id].host {
                Host::Here => return None,
                Host::Coming => self.exit(id),
                Host::Away => {}
            }
            self.snapshots.remove(&id).map(|snapshot| (id, snapshot))
        });
        left.collect()
    }

    /// The least recently used of those that are on disk only, where there are too many.
    pub(super) fn crowded(&self) -> Option<SnapshotId> {
        if self.away() <= self.away_max {
            return None;
        }
        let away = self.snapshots.iter().filter(|(_, snapshot)| snapshot.host == Host::Away);
        // Of two that were used together, what builds on the other: it is the younger one.
        away.min_by_key(|(id, snapshot)| (snapshot.used, Reverse(**id))).map(|(id, _)| *id)
    }

    fn away(&self) -> usize {
        self.snapshots.values().filter(|snapshot| snapshot.host == Host::Away).count()
    }

    /// Its file, as it is to be written.
    pub(super) fn page(&self, id: SnapshotId) -> Page {
        let snapshot = &self.snapshots[&id];
        let parent = snapshot.parent.map(|id| self.snapshots[&id].name());
        Page { name: snapshot.name(), parent, tenant: snapshot.tenant, tokens: snapshot.tokens.clone() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_unused_leaf_goes_first() {
        let tokens: Vec<Token> = (0..300).collect();
        let mut tier = Tier::new(400, 0);
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
        assert!(tier.evict(second).is_some());
        assert_eq!(tier.tokens(), 200);
    }

    #[test]
    fn what_is_on_disk_leaves_host_memory_and_comes_back() {
        let tokens: Vec<Token> = (0..300).collect();
        let mut tier = Tier::new(300, 9);
        let system = tier.insert(Tenant(0), &tokens, 0..100, None);
        let tail = tier.insert(Tenant(0), &tokens, 100..300, Some(system));
        for id in [system, tail] {
            tier.find_mut(id).unwrap().disk = Disk::Asked;
            tier.written(id);
        }
        assert!(tier.evict(tail).is_none() && tier.evict(system).is_none(), "the books keep them");
        assert_eq!((tier.tokens(), tier.tokens_on_disk()), (0, 300));
        for id in tier.lineage(tail) {
            tier.fetch(id);
        }
        assert_eq!(tier.victims(1, None), None, "what is being read stays");
        let gone: Vec<SnapshotId> = tier.lose(system).into_iter().map(|(id, _)| id).collect();
        assert_eq!(gone, [tail, system], "what builds on it goes with it, and first");
        assert_eq!((tier.tokens(), tier.tokens_on_disk()), (0, 0));
    }

    #[test]
    fn a_page_is_found_only_behind_its_beginning_and_by_its_tenant() {
        let tokens: Vec<Token> = (0..300).collect();
        let mut before = Tier::new(300, 9);
        let system = before.insert(Tenant(1), &tokens, 0..100, None);
        let tail = before.insert(Tenant(1), &tokens, 100..300, Some(system));
        let pages = [before.page(system), before.page(tail)];
        let mut tier = Tier::new(300, 9);
        assert_eq!(tier.found(&pages[1]), None, "its beginning is missing");
        let other = Page { tenant: Tenant(2), ..pages[0].clone() };
        assert_eq!(tier.found(&other), None, "its name says another tenant");
        assert!(tier.found(&pages[0]).is_some() && tier.found(&pages[1]).is_some());
        assert_eq!(tier.found(&pages[0]), None, "known");
        assert_eq!(Tier::new(300, 0).found(&pages[0]), None, "too many");
    }

    impl Tier {
        /// Whether the invariant holds.
        fn check(&self) {
            let inside = |held: &&Snapshot| held.host != Host::Away;
            assert_eq!(self.tokens, self.snapshots.values().filter(inside).map(Snapshot::len).sum::<u64>());
            assert!(self.tokens <= self.tokens_max);
            let there = self.snapshots.values().filter(|held| held.disk == Disk::Yes);
            assert_eq!(self.tokens_on_disk, there.map(Snapshot::len).sum::<u64>());
            for (id, held) in &self.snapshots {
                let children =
                    self.snapshots.values().filter(inside).filter(|child| child.parent == Some(*id));
                assert_eq!(held.children as usize, children.count(), "{id:?}");
                assert!(held.host != Host::Away || held.disk.holds(), "{id:?} is nowhere");
                if let Some(parent) = held.parent {
                    let parent = &self.snapshots[&parent];
                    assert!(held.host == Host::Away || parent.host != Host::Away, "{id:?} builds on nothing");
                    assert!(!held.disk.holds() || parent.disk.holds(), "{id:?} is alone on disk");
                }
            }
        }

        /// Does one thing of those that the scheduler does, by two numbers.
        fn live(&mut self, deed: u32, which: usize) {
            let ids: Vec<SnapshotId> = self.snapshots.keys().copied().collect();
            let id = ids.get(which % ids.len().max(1)).copied();
            let host = |tier: &Self, id| tier.get(id).host;
            match (deed, id) {
                (0..3, _) => {
                    let parent = id.filter(|id| host(self, *id) == Host::Here);
                    let start = parent.map_or(0, |id| self.get(id).range.end);
                    let len = u32::try_from(which % 90).unwrap() + 1;
                    let tokens: Vec<Token> = (0..start + len).collect();
                    let Some(victims) = self.victims(u64::from(len), parent) else { return };
                    victims.into_iter().for_each(|id| _ = self.evict(id));
                    self.insert(Tenant(0), &tokens, start..start + len, parent);
                }
                (3..6, Some(id)) if host(self, id) == Host::Here => {
                    for id in self.lineage(id) {
                        let disk = &mut self.find_mut(id).unwrap().disk;
                        *disk = if disk.holds() { *disk } else { Disk::Asked };
                        if which.is_multiple_of(2) {
                            self.written(id);
                        }
                    }
                }
                (6, Some(id)) => drop(self.lose(id)),
                (7..9, Some(id)) => {
                    let line = self.lineage(id);
                    let away: Vec<_> =
                        line.iter().copied().filter(|id| host(self, *id) == Host::Away).collect();
                    let room = away.iter().map(|id| self.get(*id).len()).sum();
                    let last = line.into_iter().rfind(|id| host(self, *id) != Host::Away);
                    let Some(victims) = self.victims(room, last) else { return };
                    victims.into_iter().for_each(|id| _ = self.evict(id));
                    away.into_iter().for_each(|id| self.fetch(id));
                }
                (9, Some(id)) if host(self, id) == Host::Coming => {
                    self.lineage(id).into_iter().for_each(|id| self.find_mut(id).unwrap().host = Host::Here);
                }
                (_, Some(id)) => self.touch(id),
                (_, None) => {}
            }
            while let Some(id) = self.crowded() {
                self.lose(id);
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_nothing_builds_on_nothing(
            deeds in prop::collection::vec((0..11_u32, 0..1000_usize), 0..300),
        ) {
            let mut tier = Tier::new(400, 5);
            for (deed, which) in deeds {
                tier.live(deed, which);
                tier.check();
            }
        }
    }
}
