//! Which token is next.
//!
//! A model gives a score to every token. On its way to a choice it passes, in this order, which is that
//! of llama.cpp: bias, penalties, the mask of a grammar, top-k, top-p, min-p, temperature, the draw.
//! Top-p and min-p therefore look at the model's own probabilities, not at heated ones. Temperature
//! zero takes the best that bias, penalties and mask leave.
//!
//! Invariant: what is drawn is distributed as [`Sampler::target`] says, and the same seed draws the
//! same. A score that is no number is never chosen.

mod filter;
mod penalty;
mod random;

use firsttoken_logic::engine::ids::Token;

use penalty::History;
pub use random::Random;

/// How to choose; the default is the model's own distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// How bold: below one it prefers the likely, above it dares; zero always takes the best.
    pub temperature: f32,
    /// Only so many of the best; zero is all.
    pub top_k: u32,
    /// Only the best that together have this probability (Holtzman et al. 2020); one is all.
    pub top_p: f32,
    /// Only those that have at least this share of the best one's probability; zero is all.
    pub min_p: f32,
    /// Scores of tokens that occurred, in the prompt too, are divided by this where they are positive,
    /// and multiplied where not (Keskar et al. 2019); one changes nothing.
    pub repetition_penalty: f32,
    /// Taken from a token's score for each time that it was generated.
    pub frequency_penalty: f32,
    /// Taken from the score of a token that was generated.
    pub presence_penalty: f32,
    /// The penalties look at so many of the last tokens.
    pub penalty_window_tokens: u32,
    /// Added to the scores of tokens; minus infinity forbids one.
    pub bias: Vec<(Token, f32)>,
    /// What the draws begin with.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_window_tokens: u32::MAX,
            bias: Vec::new(),
            seed: 0,
        }
    }
}

/// A way to choose that is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// A number is out of its range.
    #[error("{name} is {value}, but must be {range}")]
    Range {
        /// Which.
        name: &'static str,
        /// What it is.
        value: f32,
        /// What it may be.
        range: &'static str,
    },
    /// A bias names a token that the model does not have.
    #[error("logit_bias names token {token}, but the model has the tokens 0 to {last}")]
    Bias {
        /// What it names.
        token: Token,
        /// The last that there is.
        last: Token,
    },
}

impl Sampling {
    /// Judges the numbers, for a model of so many tokens.
    ///
    /// # Errors
    /// When a number is out of its range, or a bias names no token.
    pub fn check(&self, vocabulary: u32) -> Result<(), Invalid> {
        let ranges = [
            ("temperature", self.temperature, self.temperature >= 0.0, "zero or more"),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0, and at most 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "between 0 and 1"),
            ("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0, "above 0"),
            ("frequency_penalty", self.frequency_penalty, true, "a number"),
            ("presence_penalty", self.presence_penalty, true, "a number"),
        ];
        for (name, value, is_within, range) in ranges {
            if !is_within || !value.is_finite() {
                return Err(Invalid::Range { name, value, range });
            }
        }
        for &(token, value) in &self.bias {
            if token >= vocabulary {
                return Err(Invalid::Bias { token, last: vocabulary.saturating_sub(1) });
            }
            if value.is_nan() || value == f32::INFINITY {
                return Err(Invalid::Range {
                    name: "logit_bias",
                    value,
                    range: "a number, or minus infinity",
                });
            }
        }
        Ok(())
    }
}

/// Which tokens a grammar allows: a bit each, 32 in a word, the lowest first.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a>(pub &'a [u32]);

impl Mask<'_> {
    /// Whether `token` is allowed.
    #[must_use]
    pub fn allows(self, token: Token) -> bool {
        self.0.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }
}

/// With a top-k of so many at most, those are taken out and the rest is not looked at again.
const FEW: u32 = 128;

/// Room to choose in, for any number of samplers, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    scores: Vec<f32>,
    /// Whose scores these are, the lowest token first; empty where all tokens have one.
    tokens: Vec<Token>,
    weights: Vec<f32>,
    border: Vec<Token>,
    best: Vec<(Token, f32)>,
}

impl Scratch {
    /// Who weighs how much: those who are still in, and perhaps some with no weight at all.
    fn weighed(&self) -> impl Iterator<Item = (Token, f32)> {
        let everybody = if self.tokens.is_empty() { self.weights.len() } else { 0 };
        let tokens = self.tokens.iter().copied().chain((0..).take(everybody));
        tokens.zip(self.weights.iter().copied())
    }
}

/// One request's way to choose.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: Random,
    history: History,
}

impl Sampler {
    /// For what follows `prompt`. `sampling` has been checked.
    #[must_use]
    pub fn new(sampling: Sampling, prompt: &[Token]) -> Self {
        let mut history = History::new(&sampling);
        prompt.iter().for_each(|token| history.on_token(*token, false));
        Self { random: Random::new(sampling.seed), history, sampling }
    }

    /// The next token after these scores; none where no token is left to choose.
    pub fn sample(&mut self, scratch: &mut Scratch, logits: &[f32], mask: Option<Mask<'_>>) -> Option<Token> {
        self.score(scratch, logits, mask);
        if self.sampling.temperature == 0.0 {
            return best(&scratch.scores);
        }
        self.weigh(scratch);
        draw(self.random.next_u64(), scratch)
    }

    /// What it would choose if these were the scores after `ahead` tokens more: a guess, from the scores of
    /// another model. It is drawn as the token in that place will be, so where the two models have similar
    /// scores it is mostly the same.
    pub fn guess(&self, scratch: &mut Scratch, logits: &[f32], ahead: u32) -> Option<Token> {
        self.score(scratch, logits, None);
        if self.sampling.temperature == 0.0 {
            return best(&scratch.scores);
        }
        self.weigh(scratch);
        draw(self.random.after(ahead).next_u64(), scratch)
    }

    /// The probability of each token to be the next: they add up to one, or are zero everywhere where no
    /// token is left to choose.
    pub fn target(&self, scratch: &mut Scratch, logits: &[f32], mask: Option<Mask<'_>>) -> Vec<f32> {
        self.score(scratch, logits, mask);
        let mut target = vec![0.0; logits.len()];
        if self.sampling.temperature == 0.0 {
            if let Some(token) = best(&scratch.scores) {
                target[token as usize] = 1.0;
            }
            return target;
        }
        self.weigh(scratch);
        #[expect(clippy::cast_possible_truncation, reason = "a probability is as exact as its weight")]
        let total = filter::sum(&scratch.weights) as f32;
        for (token, weight) in scratch.weighed().filter(|(_, weight)| *weight > 0.0) {
            target[token as usize] = weight / total;
        }
        target
    }

    /// `token` was generated, whoever chose it.
    pub fn accept(&mut self, token: Token) {
        self.history.on_token(token, true);
    }

    /// Scores after bias, penalties and mask; what may not be chosen is minus infinity.
    fn score(&self, scratch: &mut Scratch, logits: &[f32], mask: Option<Mask<'_>>) {
        scratch.tokens.clear();
        let scores = &mut scratch.scores;
        scores.clear();
        scores.extend(logits.iter().map(|logit| usable(*logit)));
        for &(token, bias) in &self.sampling.bias {
            if let Some(score) = scores.get_mut(token as usize) {
                *score = if bias == f32::NEG_INFINITY { bias } else { moved(*score, *score + bias) };
            }
        }
        self.history.punish(scores, &self.sampling);
        if let Some(mask) = mask {
            for (token, score) in (0..).zip(scores) {
                if !mask.allows(token) {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
    }

    /// The weights of the tokens that the filters leave.
    fn weigh(&self, scratch: &mut Scratch) {
        let Scratch { scores, tokens, weights, border, best } = scratch;
        let top_k = self.sampling.top_k;
        if (1..=FEW).contains(&top_k) {
            filter::pick(scores, top_k as usize, best, tokens);
        }
        let max = filter::max(scores);
        if max == f32::NEG_INFINITY {
            weights.clear();
            return;
        }
        filter::top_k(scores, top_k, max, border);
        filter::top_p(scores, self.sampling.top_p, max, weights, border);
        filter::min_p(scores, self.sampling.min_p, max);
        filter::weigh(scores, self.sampling.temperature, max, weights);
    }
}

/// A score that can be compared: what is no number is never chosen, and infinity is only very much.
const fn usable(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit.min(f32::MAX) }
}

/// A score that was moved: what was possible stays possible.
const fn moved(from: f32, to: f32) -> f32 {
    if from == f32::NEG_INFINITY { from } else { to.clamp(f32::MIN, f32::MAX) }
}

/// Tokens that race together first, as one.
const HEAT: Token = 64;

/// Draws a token with the probability of its weight, by `word`; none where all weights are zero.
///
/// They race: each arrives after an exponentially distributed time over its weight, and who is first wins.
/// The times hang on `word` and the token alone, so two distributions that are alike have mostly the same
/// winner, whoever computed them: with a distance of `d` (total variation) one heat has the same winner with
/// a probability of (1 − d) ÷ (1 + d) at least (Daliri, Musco and Suresh 2024, "Coupling without
/// communication and drafter-invariant speculative decoding"). To spare most times, tokens race in heats
/// first and within the heat that won then.
fn draw(word: u64, scratch: &Scratch) -> Option<Token> {
    let mut heats = Race::new(word);
    let (mut heat, mut together) = (0, 0.0);
    for (token, weight) in scratch.weighed() {
        if token / HEAT != heat {
            heats.enter(heat, together);
            (heat, together) = (token / HEAT, 0.0);
        }
        together += f64::from(weight);
    }
    heats.enter(heat, together);
    let heat = heats.first?;
    let mut race = Race::new(word.rotate_left(32));
    for (token, weight) in scratch.weighed().filter(|(token, _)| token / HEAT == heat) {
        race.enter(token % HEAT, f64::from(weight));
    }
    Some(heat * HEAT + race.first?)
}

/// Who arrives first.
struct Race {
    word: u64,
    first: Option<Token>,
    time: f64,
}

impl Race {
    const fn new(word: u64) -> Self {
        Self { word, first: None, time: f64::INFINITY }
    }

    /// Who weighs nothing never arrives.
    fn enter(&mut self, runner: Token, weight: f64) {
        if weight > 0.0 {
            let luck = Random::new(self.word ^ u64::from(runner)).uniform_f64();
            let time = -(-luck).ln_1p() / weight;
            if time < self.time {
                (self.first, self.time) = (Some(runner), time);
            }
        }
    }
}

/// The token with the best score, the first among equals.
fn best(scores: &[f32]) -> Option<Token> {
    let mut best: Option<(Token, f32)> = None;
    for (token, &score) in (0..).zip(scores) {
        if score > best.map_or(f32::NEG_INFINITY, |(_, score)| score) {
            best = Some((token, score));
        }
    }
    best.map(|(token, _)| token)
}

/// The natural logarithm of the probability that the model itself gives to `token`, before any filter;
/// and in `top` the same of the `count` likeliest, best first.
pub fn logprobs(logits: &[f32], token: Token, count: usize, top: &mut Vec<(Token, f32)>) -> f32 {
    top.clear();
    let max = logits.iter().fold(f32::NEG_INFINITY, |max, logit| max.max(usable(*logit)));
    if max == f32::NEG_INFINITY {
        return max;
    }
    let sum: f64 = logits.iter().map(|logit| f64::from(filter::exp(usable(*logit) - max))).sum();
    #[expect(clippy::cast_possible_truncation, reason = "as exact as the logits")]
    let log = |logit: f32| (f64::from(usable(logit) - max) - sum.ln()) as f32;
    filter::best(logits, count, top);
    top.iter_mut().for_each(|(_, score)| *score = log(*score));
    logits.get(token as usize).map_or(f32::NEG_INFINITY, |logit| log(*logit))
}
