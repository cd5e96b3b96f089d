//! Which tokens are drawn from, and with what weight.
//!
//! A vocabulary has a hundred thousand tokens, and nearly all of them are out of the question, so
//! nothing here sorts more than it keeps.
//!
//! Invariant: the order of the candidates depends on the scores alone, and at least one is left where
//! there was one.

use std::cmp::Ordering;

use firsttoken_logic::engine::ids::Token;

/// A token that may be next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) token: Token,
    score: f32,
    pub(super) weight: f32,
}

/// The better first; among equals the lower token.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.score.total_cmp(&a.score).then(a.token.cmp(&b.token))
}

/// Every token that may be chosen at all.
pub(super) fn fill(candidates: &mut Vec<Candidate>, scores: &[f32]) {
    candidates.clear();
    let tokens = (0..).zip(scores).filter(|(_, score)| **score > f32::NEG_INFINITY);
    candidates.extend(tokens.map(|(token, &score)| Candidate { token, score, weight: 0.0 }));
}

/// The `count` best, sorted; all of them, as they are, for zero.
pub(super) fn top_k(candidates: &mut Vec<Candidate>, count: u32) {
    if count > 0 {
        let count = (count as usize).min(candidates.len());
        sort_first(candidates, count);
        candidates.truncate(count);
    }
}

/// The smallest number of the best that together have at least the probability `share`, sorted.
pub(super) fn top_p(candidates: &mut Vec<Candidate>, share: f32) {
    if share >= 1.0 {
        return;
    }
    let max = max(candidates);
    let weight = |candidate: &Candidate| f64::from((candidate.score - max).exp());
    let wanted = candidates.iter().map(weight).sum::<f64>() * f64::from(share);
    let mut sorted = 0;
    while sorted < candidates.len() {
        // Mostly a few are enough; where not, eight times as many are sorted.
        sorted = (sorted * 8).max(64).min(candidates.len());
        sort_first(candidates, sorted);
        let mut sum = 0.0;
        let enough = candidates[..sorted].iter().position(|candidate| {
            sum += weight(candidate);
            sum >= wanted
        });
        if let Some(last) = enough {
            candidates.truncate(last + 1);
            return;
        }
    }
}

/// Those with at least `share` of the best one's probability.
pub(super) fn min_p(candidates: &mut Vec<Candidate>, share: f32) {
    if share > 0.0 {
        let least = max(candidates) + share.ln();
        candidates.retain(|candidate| candidate.score >= least);
    }
}

/// Gives each its weight, the best one's being one, and returns the sum.
pub(super) fn weigh(candidates: &mut [Candidate], temperature: f32) -> f64 {
    let max = max(candidates);
    let mut total = 0.0;
    for candidate in candidates {
        candidate.weight = ((candidate.score - max) / temperature).exp();
        total += f64::from(candidate.weight);
    }
    total
}

fn max(candidates: &[Candidate]) -> f32 {
    candidates.iter().map(|candidate| candidate.score).fold(f32::NEG_INFINITY, f32::max)
}

/// The best `count` come first, sorted.
fn sort_first(candidates: &mut [Candidate], count: usize) {
    if count < candidates.len() {
        candidates.select_nth_unstable_by(count, order);
    }
    candidates[..count].sort_unstable_by(order);
}
