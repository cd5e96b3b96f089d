//! When a call that shows no content yet is sent a second time.
//!
//! A call is *late* once it has waited longer than all but a small share of calls do; that share is what the
//! budget allows, so the delay is the quantile of the live times to first content that leaves it. A late
//! call is doubled, the first content wins, and the other one is cancelled. With a share of 5 % the 99th
//! percentile is then that of "the delay, and a call of usual length", whatever a slow call takes (Dean and
//! Barroso, The Tail at Scale, 2013).
//!
//! Three things keep it from doing harm. The balance: a hedge that is not paid for is not sent, and the
//! delay follows the balance, so that it neither runs dry nor lies idle. The alarm: when far more calls are
//! late than should be, everybody is slow and a second copy only adds to it; then nothing is doubled until
//! that has passed for [`CALM`]. The return: after an alarm the share grows back step by step, and only while
//! hedges win.
//!
//! What a doubled call would have taken is not known if its hedge won, only that it was more; that is
//! counted as what it had taken by then. The quantile that matters lies below, where all is known.
//!
//! Invariant: hedges are at most the budget's share of all calls so far.

use core::time::Duration;

use super::budget::Budget;
use super::live::Live;
use crate::time::Instant;

/// How long nothing is doubled after an alarm.
pub const CALM: Duration = Duration::from_secs(60);
/// Late calls above their share that raise the alarm, of 1.
const ALARM: f32 = 0.2;
/// … and below which it may end.
const ALL_CLEAR: f32 = 0.1;
/// How much a call moves the share of late ones.
const LATE_RATE: f32 = 1.0 / 64.0;
/// The part of the share with which it begins again.
const RETURN_LEVEL: f32 = 0.1;
/// Races after which the return is judged.
const RETURN_RACES: u32 = 10;
/// Of them, those that hedges must have won.
const RETURN_WINS: u32 = 2;
/// Calls after which the delay is set anew.
const DELAY_EVERY: u32 = 16;

/// What a route says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Hedges for each thousand calls.
    pub share_per_mille: u32,
    /// No call is doubled sooner.
    pub delay_min: Duration,
    /// No call is doubled before so many have shown what is usual.
    pub samples_min: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { share_per_mille: 50, delay_min: Duration::from_millis(50), samples_min: 100 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    On,
    /// Everybody was slow.
    Off { until: Instant },
    /// A part of the share is back.
    Returning { level: f32, races: u32, wins: u32 },
}

/// Hedging of one class of calls: alike in route, model and length of prompt.
#[derive(Clone, Debug, Default)]
pub struct Hedger {
    policy: Policy,
    live: Live,
    state: State,
    /// Of the last calls, the share that was late.
    late: f32,
    delay: Option<Duration>,
    /// Calls since the delay was set.
    since_delay: u32,
}

impl Hedger {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// From here on this holds.
    pub fn set_policy(&mut self, policy: Policy) {
        if self.policy != policy {
            (self.policy, self.delay) = (policy, None);
        }
    }

    /// After how long without content a call that begins now is late. `None`: too little is known.
    pub fn delay(&mut self, budget: &Budget) -> Option<Duration> {
        if self.live.count() < self.policy.samples_min.max(1) {
            return None;
        }
        if self.delay.is_none() || self.since_delay >= DELAY_EVERY {
            // The balance adds up what the last delays have left unused, or used too much.
            let late = self.share() * (0.5 + budget.fill());
            let quantile = self.live.quantile(1.0 - late);
            self.delay = quantile.map(|delay| delay.max(self.policy.delay_min));
            self.since_delay = 0;
        }
        self.since_delay += 1;
        self.delay
    }

    /// A call has become late: whether it is doubled.
    pub fn on_late(&mut self, budget: &mut Budget, now: Instant) -> bool {
        self.late += (1.0 - self.late) * LATE_RATE;
        let share = self.full_share();
        if self.late > share + ALARM {
            self.state = State::Off { until: now + CALM };
        }
        if let State::Off { until } = self.state
            && now >= until
            && self.late < share + ALL_CLEAR
        {
            self.state = State::Returning { level: RETURN_LEVEL, races: 0, wins: 0 };
            self.delay = None;
        }
        !matches!(self.state, State::Off { .. }) && budget.take_hedge()
    }

    /// The first content of a call that was not doubled has come after so long.
    pub fn on_first_content(&mut self, took: Duration) {
        if self.delay.is_some_and(|delay| took < delay) {
            self.late -= self.late * LATE_RATE;
        }
        self.live.record(took);
    }

    /// A call was doubled and won all the same, after so long.
    pub fn on_lost(&mut self, took: Duration) {
        self.live.record(took);
        self.on_race(false);
    }

    /// The second copy won, when the first had taken so long.
    pub fn on_won(&mut self, first_took: Duration) {
        self.live.record(first_took);
        self.on_race(true);
    }

    /// What calls of this class take to their first content.
    #[must_use]
    pub const fn live(&self) -> &Live {
        &self.live
    }

    /// Whether nothing is doubled because everybody is slow.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        matches!(self.state, State::Off { .. })
    }

    fn on_race(&mut self, won: bool) {
        let State::Returning { level, races, wins } = &mut self.state else { return };
        *races += 1;
        *wins += u32::from(won);
        if *races < RETURN_RACES {
            return;
        }
        *level = if *wins >= RETURN_WINS { *level * 2.0 } else { (*level / 2.0).max(RETURN_LEVEL) };
        (*races, *wins) = (0, 0);
        self.delay = None;
        if *level >= 1.0 {
            self.state = State::On;
        }
    }

    fn full_share(&self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "at most a thousand")]
        let share = self.policy.share_per_mille.min(1000) as f32 / 1000.0;
        share
    }

    fn share(&self) -> f32 {
        let level = if let State::Returning { level, .. } = self.state { level } else { 1.0 };
        self.full_share() * level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(200);
    const SLOW: Duration = Duration::from_secs(2);

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    /// Calls one after another, every `slow_in`th slow; how many were doubled.
    fn run(hedger: &mut Hedger, budget: &mut Budget, from_ms: u64, calls: u64, slow_in: u64, by: u32) -> u64 {
        let mut doubled = 0;
        for call in 0..calls {
            let now = at(from_ms + call * 10);
            budget.on_call(now);
            let spread = u32::try_from(call.wrapping_mul(2_654_435_761) % 1000).unwrap_or(0);
            let usual = if call % slow_in == 7 { SLOW } else { USUAL };
            let took = (usual + usual * spread / 2000) * by;
            let late = hedger.delay(budget).is_some_and(|delay| took > delay);
            match late && hedger.on_late(budget, now) {
                false => hedger.on_first_content(took),
                true => {
                    doubled += 1;
                    if took > USUAL * by * 2 { hedger.on_won(USUAL * by * 2) } else { hedger.on_lost(took) }
                }
            }
        }
        doubled
    }

    #[test]
    fn the_delay_is_what_leaves_the_budgets_share() {
        let (mut hedger, mut budget) = (Hedger::new(Policy::default()), Budget::new(50));
        assert_eq!(hedger.delay(&budget), None, "nothing is known");
        let doubled = run(&mut hedger, &mut budget, 0, 20_000, 50, 1);
        assert!((900..=1000).contains(&doubled), "{doubled} of 20,000");
        let delay = hedger.delay(&budget).unwrap_or_default();
        assert!((USUAL..USUAL * 3 / 2).contains(&delay), "{delay:?}");
    }

    #[test]
    fn where_everybody_is_slow_nothing_is_doubled_until_hedges_win_again() {
        let (mut hedger, mut budget) = (Hedger::new(Policy::default()), Budget::new(50));
        run(&mut hedger, &mut budget, 0, 10_000, 50, 1);
        let doubled = run(&mut hedger, &mut budget, 100_000, 6_000, 50, 5);
        assert!(doubled <= 60 && hedger.is_off(), "{doubled} within a minute");
        let doubled = run(&mut hedger, &mut budget, 160_000, 20_000, 50, 5);
        assert!(doubled > 300 && !hedger.is_off(), "hedges win here too: {doubled}");
    }

    #[test]
    fn a_return_in_which_hedges_do_not_win_goes_no_further() {
        let (mut hedger, mut budget) = (Hedger::new(Policy::default()), Budget::new(50));
        run(&mut hedger, &mut budget, 0, 10_000, 50, 1);
        run(&mut hedger, &mut budget, 100_000, 6_000, u64::MAX, 5);
        let doubled = run(&mut hedger, &mut budget, 160_000, 20_000, u64::MAX, 5);
        assert!((1..200).contains(&doubled), "{doubled} of 20,000");
    }

    #[test]
    fn the_floor_holds() {
        let policy = Policy { delay_min: SLOW, ..Policy::default() };
        let (mut hedger, mut budget) = (Hedger::new(policy), Budget::new(50));
        run(&mut hedger, &mut budget, 0, 1_000, 50, 1);
        assert_eq!(hedger.delay(&budget), Some(SLOW));
    }
}
