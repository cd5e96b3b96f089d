//! How many guesses pay.
//!
//! A guess that is right with probability `p` is worth a token with `p`, one behind `k` others with the
//! product of theirs (Leviathan et al. 2023, section 3.3). It costs a row of the large model's step, and a
//! row of the draft's. The likeliest guesses are taken one by one, and of all these plans the one whose
//! tokens are cheapest.
//!
//! Invariant: guesses that do not pay are made ever more rarely, by exponential back-off.

use alloc::vec;
use alloc::vec::Vec;

/// Guesses whose fare is remembered, about.
const MEMORY: f64 = 64.0;
/// What is believed before the first guess: so many were tried, …
const TRIED: f64 = 2.0;
/// … and this part was right.
const ODDS: f64 = 0.7;
/// First and longest rest, in steps.
const REST_MIN: u32 = 8;
const REST_MAX: u32 = 1024;
/// A guess that is right more rarely is not thought about.
const ODDS_MIN: f64 = 0.02;

/// How guesses have fared, and whether to go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fare {
    right: f64,
    tried: f64,
    /// Steps to sit out, and how many it sat out last.
    rest: u32,
    rested: u32,
    /// The next rest.
    penalty: u32,
}

impl Fare {
    /// Everybody's, before the first guess.
    pub(super) const fn first() -> Self {
        Self { right: TRIED * ODDS, tried: TRIED, rest: 0, rested: 0, penalty: REST_MIN }
    }

    /// That of one who comes now: nothing is known of its own, and where everybody rests it does, too.
    pub(super) const fn fresh(&self) -> Self {
        Self { right: 0.0, tried: 0.0, ..*self }
    }

    /// How likely a guess is to be right, if those before it are: as for everybody as long as little is
    /// known.
    pub(super) fn odds(&self, usual: &Self) -> f64 {
        (self.right + TRIED * usual.right / usual.tried) / (self.tried + TRIED)
    }

    /// Another step: whether it may be guessed for.
    pub(super) fn is_due(&mut self) -> bool {
        self.rest = self.rest.saturating_sub(1);
        self.rest == 0
    }

    /// Steps that it has just sat out.
    pub(super) const fn rested(&self) -> u32 {
        self.rested
    }

    /// Guesses pay.
    pub(super) const fn on_paying(&mut self) {
        (self.rested, self.penalty) = (0, REST_MIN);
    }

    /// They do not, or are not known to: the next trial is twice as far away.
    pub(super) fn on_trial(&mut self) {
        (self.rest, self.rested) = (self.penalty, self.penalty);
        self.penalty = (self.penalty * 2).min(REST_MAX);
    }

    /// Everybody rests as this one does, who was judged last.
    pub(super) const fn follow(&mut self, other: &Self) {
        (self.rest, self.rested, self.penalty) = (other.rest, other.rested, other.penalty);
    }

    /// Of `guessed` tokens the first `right` were right. Those behind the first wrong one say nothing. After
    /// a trial that went well the next one may follow at once.
    pub(super) fn on_verified(&mut self, guessed: u32, right: u32) {
        if guessed > 0 && right == guessed {
            self.rest = 0;
        }
        let judged = f64::from((right + 1).min(guessed));
        let keep = (1.0 - judged / MEMORY).max(0.0);
        self.right = self.right * keep + f64::from(right);
        self.tried = self.tried * keep + judged;
    }
}

/// What is planned.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Guesses for each.
    pub(super) lengths: Vec<u32>,
    /// Seconds by which each token is cheaper.
    pub(super) saved: f64,
}

/// How many guesses to make for each of `wanted`, with the odds of one and most of them, beside `base`
/// rows that are computed anyway; `rows` together at most, and no more than take `pace` in all, where that
/// can be kept without. `verify` says what a step takes with so many rows more, `guess` what the draft takes
/// for one guess of so many. All in seconds.
pub(super) fn lengths(
    base: u32,
    wanted: &[(f64, u32)],
    rows: u32,
    pace: Option<f64>,
    verify: impl Fn(u32) -> f64,
    guess: impl Fn(u32) -> f64,
) -> Plan {
    let mut lengths = vec![0_u32; wanted.len()];
    // How likely the next guess of each is to stand.
    let mut next: Vec<f64> = wanted.iter().map(|(odds, _)| *odds).collect();
    // For how many the draft makes a first guess, a second one, …
    let mut rounds: Vec<u32> = Vec::new();
    let (mut tokens, mut drafting) = (f64::from(base.max(1)), 0.0);
    let plain = verify(0) / tokens;
    let pace = pace.filter(|pace| *pace >= verify(0)).unwrap_or(f64::INFINITY);
    let (mut best, mut plan) = (plain, lengths.clone());
    for extra in 1..=rows {
        let open = (0..wanted.len()).filter(|at| lengths[*at] < wanted[*at].1 && next[*at] > ODDS_MIN);
        let Some(at) = open.max_by(|a, b| next[*a].total_cmp(&next[*b])) else { break };
        let round = lengths[at] as usize;
        if round == rounds.len() {
            rounds.push(0);
        }
        drafting += guess(rounds[round] + 1) - if rounds[round] > 0 { guess(rounds[round]) } else { 0.0 };
        rounds[round] += 1;
        lengths[at] += 1;
        tokens += next[at];
        next[at] *= wanted[at].0;
        let takes = verify(extra) + drafting;
        if takes > pace {
            break;
        }
        if takes / tokens < best {
            best = takes / tokens;
            plan.clone_from(&lengths);
        }
    }
    Plan { lengths: plan, saved: plain - best }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small model on two cores: 4.5 ms, and 1.4 ms for each row.
    fn verify(rows: u32) -> f64 {
        4.5 + 1.4 * f64::from(1 + rows)
    }

    /// A draft that is ten times as fast.
    fn guess(rows: u32) -> f64 {
        0.45 + 0.14 * f64::from(rows)
    }

    #[test]
    fn as_many_as_pay() {
        let one = |odds| lengths(1, &[(odds, 16)], 64, None, verify, guess).lengths[0];
        assert_eq!([0.1, 0.3].map(one), [0, 0]);
        let lens = [0.5, 0.7, 0.9, 0.97].map(one);
        assert!(lens.is_sorted() && lens[0] >= 1 && (4..16).contains(&lens[3]), "{lens:?}");
        // Where a row more costs nothing, much pays.
        let free = lengths(1, &[(0.7, 16)], 64, None, |_| 5.0, guess).lengths[0];
        assert!(free >= 4 && free > one(0.7), "{free}");
        // Nobody shall wait longer than that for a step, if it can be helped.
        let paced = |pace| lengths(1, &[(0.97, 16)], 64, Some(pace), verify, guess).lengths[0];
        assert!(paced(10.0) > 0 && paced(10.0) < paced(15.0) && paced(3.0) == one(0.97));
        // A draft as slow as the model pays for nobody.
        assert_eq!(lengths(1, &[(0.9, 16)], 64, None, verify, |_| 6.0).lengths, [0]);
    }

    #[test]
    fn the_likely_ones_go_first() {
        let wanted = [(0.2, 16), (0.95, 16), (0.95, 3)];
        let plan = lengths(3, &wanted, 64, None, |rows| verify(rows + 2), guess);
        assert!(plan.lengths[0] == 0 && plan.lengths[1] >= 3 && plan.lengths[2] == 3, "{plan:?}");
        assert!(plan.saved > 0.0);
        assert!(lengths(3, &wanted, 2, None, verify, guess).lengths.iter().sum::<u32>() <= 2);
        assert_eq!(lengths(0, &[], 8, None, verify, guess).lengths, []);
    }

    #[test]
    fn useless_guesses_fade_away() {
        let usual = Fare::first();
        let (mut fare, mut wasted) = (usual.fresh(), 0);
        for _ in 0..256 {
            if !fare.is_due() {
                continue;
            }
            let mut len = lengths(1, &[(fare.odds(&usual), 16)], 64, None, verify, guess).lengths[0];
            if len > 0 {
                fare.on_paying();
            } else {
                len = u32::from(fare.rested() > 0);
                fare.on_trial();
            }
            wasted += len;
            if len > 0 {
                fare.on_verified(len, 0);
            }
        }
        assert!(wasted <= 12, "{wasted} rows wasted in 256 steps");
        assert!(fare.fresh().rest > 100, "who comes next is not guessed for soon");
        // What goes well is tried on at once.
        for _ in 0..6 {
            fare.on_trial();
            fare.on_verified(1, 1);
            assert!(fare.is_due());
        }
        assert!(lengths(1, &[(fare.odds(&usual), 16)], 64, None, verify, guess).lengths[0] > 0);
    }
}
