//! Who has computed the beginning of this prompt already?
//!
//! Every 64 tokens of a sequence get a hash that is chained to the one before, so equal hashes mean
//! equal beginnings. The index knows the holders of each; the longest chain that it knows is walked
//! down in one pass over the prompt. A hash only finds: a hit is confirmed, and made exact to the
//! token, by comparing the tokens themselves.
//!
//! Invariant: a hit is what both really begin with, and both are of one tenant.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::blocks::BLOCK;
use super::ids::{RequestId, SeqId, SnapshotId, Tenant, Token};

/// The hash of a block and of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub u64);

/// Who holds a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A request at work, as far as it has come.
    Live(RequestId),
    /// A finished request's sequence, kept in the KV.
    Kept(SeqId),
    /// Host memory.
    Saved(SnapshotId),
}

/// A chain of hashes, fed with tokens as they come.
#[derive(Clone, Debug)]
pub struct Chain {
    state: u64,
    pending: u32,
    hashes: Vec<BlockHash>,
}

impl Chain {
    /// The empty chain of one tenant: no two share hashes, so neither can probe for the other's.
    #[must_use]
    pub fn new(tenant: Tenant) -> Self {
        Self { state: mix(0x9e37_79b9_7f4a_7c15, tenant.0), pending: 0, hashes: Vec::new() }
    }

    /// The chain of `tokens`.
    #[must_use]
    pub fn of(tenant: Tenant, tokens: &[Token]) -> Self {
        let mut chain = Self::new(tenant);
        chain.extend(tokens);
        chain
    }

    /// The next tokens.
    pub fn extend(&mut self, tokens: &[Token]) {
        for &token in tokens {
            self.state = mix(self.state, u64::from(token));
            self.pending += 1;
            if self.pending == BLOCK {
                self.hashes.push(BlockHash(self.state));
                self.pending = 0;
            }
        }
    }

    /// The hash of all tokens so far, the last block whole or not.
    #[must_use]
    pub const fn digest(&self) -> BlockHash {
        BlockHash(self.state)
    }

    /// The hash of each whole block so far.
    #[must_use]
    pub fn hashes(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// Tokens of the whole blocks with which both begin, as far as hashes tell.
    #[must_use]
    pub fn common(&self, other: &Self) -> u32 {
        let equal = self.hashes.iter().zip(&other.hashes).take_while(|(own, other)| own == other);
        u32::try_from(equal.count()).unwrap_or(u32::MAX).saturating_mul(BLOCK)
    }
}

/// One round of multiply and fold: 128 bits of product, so every bit of both reaches every other.
fn mix(state: u64, value: u64) -> u64 {
    let product =
        u128::from(state ^ value.wrapping_mul(0xa076_1d64_78bd_642f)) * u128::from(0xe703_7ed1_a0b4_28db_u64);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
    let folded = (product >> 64) as u64 ^ product as u64;
    folded.wrapping_add(state.rotate_left(23))
}

/// The holders of every block.
#[derive(Clone, Debug, Default)]
pub struct Index {
    holders: BTreeMap<BlockHash, Vec<Holder>>,
}

/// What a holder has in common with a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Who.
    pub holder: Holder,
    /// How many tokens, from the first.
    pub len: u32,
}

impl Index {
    /// `holder` has these blocks too.
    pub fn insert(&mut self, hashes: &[BlockHash], holder: Holder) {
        for hash in hashes {
            let holders = self.holders.entry(*hash).or_default();
            if !holders.contains(&holder) {
                holders.push(holder);
            }
        }
    }

    /// `holder` has them no more.
    pub fn remove(&mut self, hashes: &[BlockHash], holder: Holder) {
        for hash in hashes {
            if let Some(holders) = self.holders.get_mut(hash) {
                holders.retain(|other| *other != holder);
                if holders.is_empty() {
                    self.holders.remove(hash);
                }
            }
        }
    }

    /// How many blocks it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Whether it knows none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Who can give most of what `tokens` begin with, to the token. `usable` says how many of its
    /// tokens a holder could give, zero for one that is not asked; `held` gives the tokens
    /// themselves. A beginning shorter than a block is nobody's.
    pub fn best<'a>(
        &self,
        chain: &Chain,
        tokens: &[Token],
        usable: impl Fn(Holder) -> u32,
        held: impl Fn(Holder) -> &'a [Token],
    ) -> Option<Hit> {
        let mut best: Option<Hit> = None;
        let known = chain.hashes.partition_point(|hash| self.holders.contains_key(hash));
        // Who holds a block holds all before it: the deepest give most, unless they give less than
        // they hold. Those who come in at a block less can give less than a block more than that.
        for (depth, hash) in chain.hashes[..known].iter().enumerate().rev() {
            let depth = u32::try_from(depth + 1).unwrap_or(u32::MAX);
            let least = best.map_or(BLOCK - 1, |hit| hit.len);
            if (depth + 1) * BLOCK <= least {
                break;
            }
            for &holder in &self.holders[hash] {
                let least = best.map_or(BLOCK - 1, |hit| hit.len);
                let usable = usable(holder);
                if usable > least {
                    let len = common(tokens, held(holder)).min(usable);
                    best = if len > least { Some(Hit { holder, len }) } else { best };
                }
            }
        }
        best
    }
}

/// How many tokens both begin with.
#[must_use]
pub fn common(a: &[Token], b: &[Token]) -> u32 {
    let len = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u32, len: u32) -> Vec<Token> {
        (0..len).map(|at| seed * 1000 + at).collect()
    }

    #[test]
    fn the_longest_beginning_is_found_to_the_token() {
        let (mut index, tenant) = (Index::default(), Tenant(1));
        let system = text(1, 200);
        let first = [system.clone(), text(2, 100)].concat();
        let second = [system.clone(), text(3, 100)].concat();
        let holders = [(Holder::Kept(SeqId(1)), &first), (Holder::Saved(SnapshotId(2)), &second)];
        for (holder, tokens) in holders {
            index.insert(Chain::of(tenant, tokens).hashes(), holder);
        }
        let held = |holder| if holder == holders[0].0 { first.as_slice() } else { second.as_slice() };
        let best = |tokens: &[Token], usable: [u32; 2]| {
            let usable = |holder| usable[usize::from(holder != holders[0].0)];
            index.best(&Chain::of(tenant, tokens), tokens, usable, held).map(|hit| (hit.holder, hit.len))
        };
        let asked = [system.clone(), text(3, 90), text(9, 9)].concat();
        assert_eq!(best(&asked, [300, 300]), Some((holders[1].0, 290)));
        assert_eq!(best(&asked, [300, 0]), Some((holders[0].0, 200)), "the other shares the system prompt");
        assert_eq!(best(&asked, [300, 150]), Some((holders[0].0, 200)));
        assert_eq!(best(&asked, [80, 70]), Some((holders[0].0, 80)));
        assert_eq!(best(&asked, [63, 63]), None);
        assert_eq!(best(&text(1, 63), [300, 300]), None);
        assert_eq!(best(&text(4, 300), [300, 300]), None);
    }

    #[test]
    fn tenants_have_nothing_in_common() {
        let (mut index, tokens) = (Index::default(), text(1, 128));
        index.insert(Chain::of(Tenant(1), &tokens).hashes(), Holder::Kept(SeqId(1)));
        assert_eq!(index.best(&Chain::of(Tenant(2), &tokens), &tokens, |_| 128, |_| &tokens), None);
    }

    #[test]
    fn a_collision_is_no_hit() {
        let (mut index, tokens, other) = (Index::default(), text(1, 128), text(2, 128));
        index.insert(Chain::of(Tenant(1), &tokens).hashes(), Holder::Kept(SeqId(1)));
        assert_eq!(index.best(&Chain::of(Tenant(1), &tokens), &tokens, |_| 128, |_| &other), None);
    }

    #[test]
    fn what_is_removed_is_found_no_more() {
        let (mut index, chain) = (Index::default(), Chain::of(Tenant(1), &text(1, 128)));
        index.insert(chain.hashes(), Holder::Kept(SeqId(1)));
        index.insert(chain.hashes(), Holder::Kept(SeqId(2)));
        index.remove(chain.hashes(), Holder::Kept(SeqId(1)));
        assert_eq!(index.len(), 2);
        index.remove(chain.hashes(), Holder::Kept(SeqId(2)));
        assert!(index.is_empty());
    }

    #[test]
    fn a_chain_does_not_care_how_it_was_fed() {
        let tokens = text(7, 300);
        let mut chain = Chain::new(Tenant(3));
        for piece in tokens.chunks(7) {
            chain.extend(piece);
        }
        assert_eq!(chain.hashes(), Chain::of(Tenant(3), &tokens).hashes());
        assert_eq!(chain.hashes().len(), 4);
        let mut swapped = tokens;
        swapped.swap(3, 5);
        assert_ne!(chain.hashes()[0], Chain::of(Tenant(3), &swapped).hashes()[0]);
    }
}
