//! How far to guess ahead, and which guesses count.
//!
//! A step with a few rows more costs little more than one with a single row, so guesses at the next
//! tokens are verified together: by prompt lookup (the text repeats something that stood before) or
//! by a small model ([`draft`](super::draft)). Which are kept never changes what the model says, only how
//! fast: at each place the model chooses as it would without, greedily or by its draws, and a guess stands
//! where it is that choice.
//!
//! Invariant: with useless guesses the rows wasted fade away, by exponential back-off.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::ids::Token;

/// Tokens of context that a lookup compares.
const GRAM: usize = 3;

/// How many tokens to guess, from how the last guesses fared.
#[derive(Clone, Debug)]
pub struct Length {
    len: u32,
    max: u32,
    /// Steps to sit out, and how many the next miss costs.
    rest: u32,
    penalty: u32,
}

/// The first guesses are so long.
const LENGTH_START: u32 = 4;
/// Longest pause after misses, in steps.
const PENALTY_MAX: u32 = 256;

impl Length {
    /// At most `max` guesses at once.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { len: LENGTH_START.min(max), max, rest: 0, penalty: 1 }
    }

    /// How many to guess with this step; none while it rests.
    pub fn on_step(&mut self) -> u32 {
        if self.rest > 0 {
            self.rest -= 1;
            return 0;
        }
        self.len
    }

    /// Of `guessed` tokens `right` were right.
    pub fn on_verified(&mut self, guessed: u32, right: u32) {
        if guessed == 0 {
            return;
        }
        if right == guessed {
            self.len = (self.len.max(guessed) * 2).min(self.max);
            self.penalty = 1;
        } else if right * 2 >= guessed {
            self.penalty = 1;
        } else {
            self.len = (self.len / 2).max(1);
            if right == 0 {
                self.rest = self.penalty;
                self.penalty = (self.penalty * 2).min(PENALTY_MAX);
            }
        }
    }
}

/// Where each run of three tokens stood last: the text so far, as a book to copy from.
#[derive(Clone, Debug, Default)]
pub struct Lookup {
    last: BTreeMap<[Token; GRAM], u32>,
    read: usize,
}

impl Lookup {
    /// What followed when the last three tokens stood here before: at most `max` tokens.
    pub fn guess(&mut self, tokens: &[Token], max: u32) -> Vec<Token> {
        // The newest run is asked for, and not yet an answer.
        while self.read + GRAM < tokens.len() {
            let run = core::array::from_fn(|at| tokens[self.read + at]);
            self.last.insert(run, u32::try_from(self.read + GRAM).unwrap_or(u32::MAX));
            self.read += 1;
        }
        let Some(start) = tokens.len().checked_sub(GRAM) else { return Vec::new() };
        let newest = core::array::from_fn(|at| tokens[start + at]);
        let Some(&from) = self.last.get(&newest) else { return Vec::new() };
        let from = from as usize;
        // What was copied may be copied again: a loop goes on.
        let period = tokens.len() - from;
        (0..max as usize).map(|at| tokens[from + at % period]).collect()
    }
}

/// Guesses that stand: as many as equal `choices`, the model's own choice at each place, from the first on.
/// What is generated are those, and one choice more.
#[must_use]
pub fn accept(guesses: &[Token], choices: &[Token]) -> usize {
    guesses.iter().zip(choices).take_while(|(guess, choice)| guess == choice).count()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_lookup_copies_what_followed_last_time() {
        let mut lookup = Lookup::default();
        let mut tokens = vec![1, 2, 3, 4, 5, 9, 1, 2, 3];
        assert_eq!(lookup.guess(&tokens, 2), [4, 5]);
        tokens.extend([7, 8, 1, 2, 3]);
        assert_eq!(lookup.guess(&tokens, 3), [7, 8, 1], "the newest text counts");
        assert_eq!(lookup.guess(&[4, 4], 3), []);
        assert_eq!(Lookup::default().guess(&[5, 5, 5, 5], 3), [5, 5, 5]);
    }

    #[test]
    fn guesses_grow_while_they_are_right_and_fade_when_not() {
        let mut length = Length::new(16);
        for expected in [4, 8, 16, 16] {
            assert_eq!(length.on_step(), expected);
            length.on_verified(expected, expected);
        }
        let mut wasted = 0;
        for _ in 0..256 {
            let guessed = length.on_step();
            wasted += guessed;
            length.on_verified(guessed, 0);
        }
        assert!(wasted <= 16 + 8 + 4 + 2 + 8, "{wasted} rows wasted in 256 steps");
    }

    #[test]
    fn guesses_count_up_to_the_first_wrong_one() {
        assert_eq!(accept(&[1, 2, 3], &[1, 2, 4, 5]), 2);
        assert_eq!(accept(&[], &[7]), 0);
    }
}
