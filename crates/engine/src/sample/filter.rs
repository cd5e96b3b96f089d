//! Which tokens are drawn from, and with what weight.
//!
//! A vocabulary has a hundred thousand tokens and each stream draws in each step, so everything is a
//! pass over a plain array; sorted is only what lies around the border between in and out.
//!
//! Invariant: a filter leaves the best, and of equals the lower tokens. What it takes out has the score
//! minus infinity. The same scores give the same weights on every machine.

use std::cmp::Ordering;

use firsttoken_logic::engine::ids::Token;

/// Classes of scores: 32 to each factor of e below the best one, the last for all that is far below.
const CLASSES: usize = 1024;
const CLASSES_PER_NAT: f32 = 32.0;

/// The `count` best with their scores, the best first, and of equals the lower token.
pub(super) fn best(scores: &[f32], count: usize, best: &mut Vec<(Token, f32)>) {
    best.clear();
    let mut least = if count > 0 { f32::NEG_INFINITY } else { f32::INFINITY };
    for (token, &score) in (0..).zip(scores) {
        if score > least {
            let at = best.partition_point(|(_, other)| *other >= score);
            best.truncate(count - 1);
            best.insert(at, (token, score));
            least = if best.len() == count { best[count - 1].1 } else { least };
        }
    }
}

/// Leaves the `count` best, few, and says whose scores are left, the lowest token first. `room` is room.
pub(super) fn pick(
    scores: &mut Vec<f32>,
    count: usize,
    room: &mut Vec<(Token, f32)>,
    tokens: &mut Vec<Token>,
) {
    best(scores, count, room);
    room.sort_unstable_by_key(|(token, _)| *token);
    scores.clear();
    scores.extend(room.iter().map(|(_, score)| *score));
    tokens.clear();
    tokens.extend(room.iter().map(|(token, _)| *token));
}

/// The best score; minus infinity where none is left.
pub(super) fn max(scores: &[f32]) -> f32 {
    scores.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Leaves the `count` best; all for zero.
pub(super) fn top_k(scores: &mut [f32], count: u32, max: f32, border: &mut Vec<Token>) {
    if count > 0 {
        keep_best(scores, f64::from(count), max, |_| 1.0, border);
    }
}

/// Leaves the fewest of the best that together have the probability `share`. `weights` is room.
pub(super) fn top_p(
    scores: &mut [f32],
    share: f32,
    max: f32,
    weights: &mut Vec<f32>,
    border: &mut Vec<Token>,
) {
    if share < 1.0 {
        weigh(scores, 1.0, max, weights);
        keep_best(scores, sum(weights) * f64::from(share), max, |token| f64::from(weights[token]), border);
    }
}

/// Leaves those with at least `share` of the best one's probability.
pub(super) fn min_p(scores: &mut [f32], share: f32, max: f32) {
    if share > 0.0 {
        let least = max + share.ln();
        for score in scores {
            *score = if *score < least { f32::NEG_INFINITY } else { *score };
        }
    }
}

/// Gives each token its weight, the best one's being one.
pub(super) fn weigh(scores: &[f32], temperature: f32, max: f32, weights: &mut Vec<f32>) {
    weights.clear();
    weights.extend(scores.iter().map(|score| exp((score - max) / temperature)));
}

/// What all weigh together.
pub(super) fn sum(weights: &[f32]) -> f64 {
    weights.iter().map(|weight| f64::from(*weight)).sum()
}

/// Leaves the fewest of the best that together measure as much as is `wanted`.
fn keep_best(
    scores: &mut [f32],
    wanted: f64,
    max: f32,
    measure: impl Fn(usize) -> f64,
    border: &mut Vec<Token>,
) {
    let mut sums = [0.0; CLASSES];
    for (token, &score) in scores.iter().enumerate() {
        if score > f32::NEG_INFINITY {
            sums[class(score, max)] += measure(token);
        }
    }
    let mut sum = 0.0;
    let crosses = |class: &f64| {
        sum += class;
        sum >= wanted
    };
    let Some(last) = sums.iter().position(crosses) else { return };
    let mut left = wanted - sums[..last].iter().sum::<f64>();
    // Only what lies about the border has to be classed once more.
    let (from, to) = (border_of(last + 2, max), border_of(last.saturating_sub(1), max));
    border.clear();
    for (token, score) in (0..).zip(scores.iter_mut()) {
        if last < CLASSES - 1 && *score < from {
            *score = f32::NEG_INFINITY;
        } else if *score <= to && *score > f32::NEG_INFINITY {
            match class(*score, max).cmp(&last) {
                Ordering::Less => {}
                Ordering::Equal => border.push(token),
                Ordering::Greater => *score = f32::NEG_INFINITY,
            }
        }
    }
    let score_of = |token: Token| scores[token as usize];
    border.sort_unstable_by(|a, b| score_of(*b).total_cmp(&score_of(*a)).then(a.cmp(b)));
    let is_out = |token: &Token| {
        let is_out = left <= 0.0;
        left -= measure(*token as usize);
        is_out
    };
    let kept = border.iter().position(is_out).unwrap_or(border.len());
    for token in &border[kept..] {
        scores[*token as usize] = f32::NEG_INFINITY;
    }
}

/// The class of a score; the best one's is zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what is too large is the last")]
fn class(score: f32, max: f32) -> usize {
    (((max - score) * CLASSES_PER_NAT) as usize).min(CLASSES - 1)
}

/// The score that a class begins with, the best of it; up to rounding.
#[expect(clippy::cast_precision_loss, reason = "there are a thousand")]
fn border_of(class: usize, max: f32) -> f32 {
    max - class as f32 / CLASSES_PER_NAT
}

/// The exponential of what is not above zero, to 2 in 10 million (Cephes, `expf`). A library's differs
/// between machines in the last bits, and a draw may hang on these; this one has no branch, either.
pub(super) fn exp(x: f32) -> f32 {
    /// Below this the result is as good as nothing.
    const LEAST: f32 = -87.0;
    /// Adding and subtracting it rounds.
    const ROUND: f32 = 12_582_912.0;
    let within = x.max(LEAST);
    let twos = (within * core::f32::consts::LOG2_E + ROUND) - ROUND;
    // ln 2 in two parts, the first of which is exact in few bits.
    let rest = within - twos * 0.693_359_4 + twos * 2.121_944_4e-4;
    let mut sum = 1.987_569_2e-4;
    for term in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1] {
        sum = sum * rest + term;
    }
    let power = f32::from_bits(((twos + ROUND).to_bits() << 23).wrapping_add(127 << 23));
    let result = (sum * rest * rest + rest + 1.0) * power;
    if x < LEAST { 0.0 } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_as_exact_as_it_says() {
        for at in 0..870_000_u32 {
            let x = -f64::from(at) / 10_000.0;
            #[expect(clippy::cast_possible_truncation, reason = "to the type under test")]
            let x = x as f32;
            let (is, exact) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((is / exact - 1.0).abs() < 2e-7, "{is} instead of {exact} at {x}");
        }
        assert_eq!((exp(0.0), exp(-88.0), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
    }

    #[test]
    fn of_equals_the_lower_tokens_stay() {
        let (mut scores, mut border) = ([1.0, 2.0, 1.0, 1.0, f32::NEG_INFINITY], Vec::new());
        top_k(&mut scores, 3, 2.0, &mut border);
        assert_eq!(scores, [1.0, 2.0, 1.0, f32::NEG_INFINITY, f32::NEG_INFINITY]);
        top_k(&mut scores, 9, 2.0, &mut border);
        assert_eq!(max(&scores), 2.0, "more than there are is all");
    }

    #[test]
    fn few_are_picked_as_many_are_filtered() {
        let mut random = crate::sample::Random::new(5);
        for count in [1, 2, 40, 127] {
            // Coarse, so that many are equal.
            let scores: Vec<f32> = (0..3000).map(|_| (random.uniform() * 50.0).floor() / 10.0).collect();
            let (mut filtered, mut border) = (scores.clone(), Vec::new());
            top_k(&mut filtered, count, max(&scores), &mut border);
            let (mut picked, mut tokens) = (scores, Vec::new());
            pick(&mut picked, count as usize, &mut Vec::new(), &mut tokens);
            let left = (0_u32..).zip(&filtered).filter(|(_, score)| **score > f32::NEG_INFINITY);
            let (expected, scores): (Vec<Token>, Vec<f32>) = left.unzip();
            assert_eq!((tokens, picked), (expected, scores), "{count} best");
        }
    }
}
