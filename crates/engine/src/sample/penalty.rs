//! What was said before, and what saying it again costs.
//!
//! Repetition looks at prompt and answer, frequency and presence at the answer alone: the first is
//! about a text that circles, the other two are OpenAI's and speak of what was sampled.
//!
//! Invariant: the counts are those of the last tokens, as many as the window has.

use std::collections::{BTreeMap, VecDeque};

use firsttoken_logic::engine::ids::Token;

use super::Sampling;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u32,
    generated: u32,
}

/// Counts of the last tokens; kept only where somebody asks for a penalty.
#[derive(Clone, Debug)]
pub(super) struct History {
    window: usize,
    last: VecDeque<(Token, bool)>,
    counts: BTreeMap<Token, Count>,
}

impl History {
    pub(super) fn new(sampling: &Sampling) -> Self {
        let is_needed = sampling.repetition_penalty != 1.0
            || sampling.frequency_penalty != 0.0
            || sampling.presence_penalty != 0.0;
        let window = if is_needed { sampling.penalty_window_tokens as usize } else { 0 };
        Self { window, last: VecDeque::new(), counts: BTreeMap::new() }
    }

    pub(super) fn on_token(&mut self, token: Token, is_generated: bool) {
        if self.window == 0 {
            return;
        }
        if self.last.len() == self.window
            && let Some((gone, was_generated)) = self.last.pop_front()
            && let Some(count) = self.counts.get_mut(&gone)
        {
            count.all -= 1;
            count.generated -= u32::from(was_generated);
            if count.all == 0 {
                self.counts.remove(&gone);
            }
        }
        self.last.push_back((token, is_generated));
        let count = self.counts.entry(token).or_default();
        count.all += 1;
        count.generated += u32::from(is_generated);
    }

    #[expect(clippy::cast_precision_loss, reason = "nobody repeats a token 16 million times")]
    pub(super) fn punish(&self, scores: &mut [f32], sampling: &Sampling) {
        for (token, count) in &self.counts {
            let Some(score) = scores.get_mut(*token as usize) else { continue };
            let penalty = sampling.repetition_penalty;
            let mut punished = if *score > 0.0 { *score / penalty } else { *score * penalty };
            if count.generated > 0 {
                punished -= count.generated as f32 * sampling.frequency_penalty + sampling.presence_penalty;
            }
            *score = super::moved(*score, punished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_penalty_looks_at_its_own_tokens() {
        let sampling = Sampling {
            repetition_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            penalty_window_tokens: 4,
            ..Sampling::default()
        };
        let mut history = History::new(&sampling);
        for (token, is_generated) in [(0, false), (1, false), (2, true), (2, true), (3, true)] {
            history.on_token(token, is_generated);
        }
        let mut scores = [4.0, -4.0, 4.0, f32::NEG_INFINITY];
        history.punish(&mut scores, &sampling);
        // 0 has left the window; 1 was only in the prompt; 2 was generated twice.
        assert_eq!(scores, [4.0, -8.0, 0.75, f32::NEG_INFINITY]);
    }

    #[test]
    fn nothing_is_counted_for_nobody() {
        let mut history = History::new(&Sampling::default());
        history.on_token(1, true);
        assert!(history.counts.is_empty() && history.last.is_empty());
    }
}
