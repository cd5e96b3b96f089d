//! What calls take on the whole, lately, and whether that has just changed.
//!
//! The level is a mean over the last [`WINDOW`] calls, so that it is steady while nothing changes. When the load of an
//! upstream steps, such a mean would be wrong for hundreds of calls; so the last [`RECENT`] are watched beside it, and
//! where their own mean lies further from the level than chance explains the level starts anew from them.
//! A call that is far above the level is counted as [`CLIP`] times it: one in fifty that takes ten times as
//! long says little about the others.
//!
//! What a call says about how calls are spread *around* the level is told only once it is no longer recent: by then it is
//! known that it was no step. A call that began before a step is held against the level before it; of those that
//! were under way when it was seen nothing is told.
//!
//! Invariant: the level lies within what was heard, and a step needs at least [`BIG_STEP_CALLS`] calls.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::time::Instant;

/// Calls that the level is a mean of.
const WINDOW: f32 = 256.0;
/// Calls that are watched for a step.
const RECENT: usize = 32;
/// Of them, those that a big step is seen by, and from which a level begins anew.
pub(super) const BIG_STEP_CALLS: usize = 8;
/// The same, as a number to reckon with: a level that is a mean of fewer is hardly one.
pub(super) const CALLS_MIN: f32 = 8.0;
/// A step at the least, as a part of the level: by all recent calls, and by the newest.
const STEP_MIN: f32 = 0.3;
/// See [`STEP_MIN`].
const BIG_STEP_MIN: f32 = 0.9;
/// A step in mean deviations of a call. The mean of 32 normal calls strays by 0.22 of them, of eight by 0.44, so
/// chance explains these once in tens of thousands of calls.
const STEP_DEVIATIONS: f32 = 0.9;
/// See [`STEP_DEVIATIONS`]; wider, since eight calls are easily of one kind.
const BIG_STEP_DEVIATIONS: f32 = 2.5;
/// No call counts for more than so many times the level.
const CLIP: f32 = 3.0;
/// Calls of a kind differ by less than this factor from one in their middle.
const ALIKE: f32 = 2.0;
/// No time is shorter, s.
const SECONDS_MIN: f32 = 1e-6;
/// How much a call moves the mean deviation.
const DEVIATION_RATE: f32 = 1.0 / 64.0;
/// The mean deviation before anything is known: that of a normal spread with σ 0.6.
const DEVIATION: f32 = 0.5;

/// What calls take on the whole.
#[derive(Clone, Debug)]
pub(super) struct Level {
    seconds: f32,
    /// Calls that it is a mean of.
    calls: f32,
    /// Of a call from the level, as a part of it.
    deviation: f32,
    /// The last calls, the newest last.
    recent: VecDeque<Heard>,
    stepped: Option<Stepped>,
}

/// A call.
#[derive(Clone, Copy, Debug)]
struct Heard {
    began: Instant,
    took_s: f32,
    /// The level until then, s, and the calls that it was a mean of.
    level: (f32, f32),
}

/// The last step.
#[derive(Clone, Copy, Debug)]
struct Stepped {
    /// The level before it, s.
    before_s: f32,
    /// About when it was.
    at: Instant,
    /// When it was seen.
    seen: Instant,
}

/// What a call has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shown {
    /// Nothing yet.
    Nothing,
    /// How long a call from before took, as a multiple of the level.
    Usual(f32),
    /// That the level has stepped.
    Step,
}

impl Level {
    /// Nothing was heard; what is guessed counts for as much as `calls`.
    pub(super) const fn new(guess: Duration, calls: f32) -> Self {
        Self {
            seconds: guess.as_secs_f32(),
            calls,
            deviation: DEVIATION,
            recent: VecDeque::new(),
            stepped: None,
        }
    }

    /// What a call takes, s.
    pub(super) const fn seconds(&self) -> f32 {
        self.seconds
    }

    /// Calls that it is a mean of, the guess included.
    pub(super) const fn calls(&self) -> f32 {
        self.calls
    }

    /// Calls that are still recent.
    pub(super) fn recent(&self) -> usize {
        self.recent.len()
    }

    /// A call that began then has taken so long.
    pub(super) fn on_call(&mut self, began: Instant, took: Duration) -> Shown {
        let took_s = took.as_secs_f32().max(SECONDS_MIN);
        // The slow ones are heard of when the load has long been another.
        if let Some(stepped) = self.stepped.filter(|stepped| began < stepped.at) {
            return Shown::Usual(took_s / stepped.before_s);
        }
        self.recent.push_back(Heard { began, took_s, level: (self.seconds, self.calls) });
        let past = if self.recent.len() > RECENT { self.recent.pop_front() } else { None };
        self.calls = (self.calls + 1.0).min(WINDOW);
        let clipped = if self.calls > 1.0 { took_s.min(self.seconds * CLIP) } else { took_s };
        self.seconds += (clipped - self.seconds) / self.calls;
        if self.has_stepped() {
            self.begin_anew(began + took);
            return Shown::Step;
        }
        // Of those under way when a step is seen the quick ones are heard of first, and the level is theirs at first.
        let seen = self.stepped.map_or_else(Instant::default, |stepped| stepped.seen);
        let Some(past) = past.filter(|past| past.began >= seen) else { return Shown::Nothing };
        let multiple = past.took_s / self.seconds;
        self.deviation += ((multiple.min(CLIP) - 1.0).abs() - self.deviation) * DEVIATION_RATE;
        Shown::Usual(multiple)
    }

    /// Time has passed: so often the level counts for half as much, since load changes with time and not with
    /// calls.
    pub(super) fn fade(&mut self, halvings: u64) {
        let least = self.calls.min(CALLS_MIN);
        self.calls = (0..halvings.min(8)).fold(self.calls, |calls, _| calls / 2.0).max(least);
    }

    /// Whether the recent calls, or the newest, stray further from the level than chance explains.
    fn has_stepped(&self) -> bool {
        let strays = |calls: usize, level_s: f32, bound: f32| {
            let newest = self.recent.iter().rev().take(calls);
            let sum: f32 = newest.map(|heard| heard.took_s.min(level_s * CLIP)).sum();
            #[expect(clippy::cast_precision_loss, reason = "at most 32")]
            let mean = sum / calls as f32;
            mean > level_s * (1.0 + bound) || level_s > mean * (1.0 + bound)
        };
        if self.recent.len() < BIG_STEP_CALLS {
            return false;
        }
        // The newest have moved a level of few calls themselves; so it is that before them which counts, for less
        // the fewer calls it was a mean of.
        let (level_s, calls) = self.recent[self.recent.len() - BIG_STEP_CALLS].level;
        let big = BIG_STEP_MIN.max(self.deviation * BIG_STEP_DEVIATIONS) * (1.0 + CALLS_MIN / calls.max(1.0));
        let bound = STEP_MIN.max(self.deviation * STEP_DEVIATIONS);
        (level_s > 0.0 && strays(BIG_STEP_CALLS, level_s, big))
            || (self.recent.len() == RECENT && strays(RECENT, self.seconds, bound))
    }

    /// From the newest calls, less those that are of another kind: slow ones, and those from before the step.
    fn begin_anew(&mut self, now: Instant) {
        self.recent.drain(..self.recent.len() - BIG_STEP_CALLS);
        let mut took_s: Vec<f32> = self.recent.iter().map(|heard| heard.took_s).collect();
        let mut began: Vec<Instant> = self.recent.iter().map(|heard| heard.began).collect();
        took_s.sort_unstable_by(f32::total_cmp);
        began.sort_unstable();
        let step = Stepped { before_s: self.seconds, at: began[BIG_STEP_CALLS / 2], seen: now };
        // What is seen by calls that were under way at the last one is the same one, seen better.
        let same = self.stepped.filter(|last| step.at < last.seen);
        self.stepped = Some(same.map_or(step, |last| Stepped { seen: now, ..last }));
        let went_up = took_s[BIG_STEP_CALLS / 2] > self.seconds;
        let usual = took_s[if went_up { BIG_STEP_CALLS / 2 } else { BIG_STEP_CALLS / 2 - 1 }];
        let alike = took_s.iter().filter(|took_s| (usual / ALIKE..=usual * ALIKE).contains(*took_s));
        let (sum, count) = alike.fold((0.0, 0.0_f32), |(sum, count), took_s| (sum + took_s, count + 1.0));
        (self.seconds, self.calls) = (sum / count, CALLS_MIN);
        self.recent.iter_mut().for_each(|heard| heard.level = (self.seconds, self.calls));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that take `seconds`, half of them a fifth less and half a fifth more; every `slow_in`th ten times as
    /// long. How many steps were seen.
    fn hear(level: &mut Level, calls: usize, seconds: f32, slow_in: usize) -> usize {
        let took = |call: usize| {
            let slow = if call % slow_in == slow_in - 1 { 10.0 } else { 1.0 };
            seconds * slow * if call.is_multiple_of(2) { 0.8 } else { 1.2 }
        };
        (0..calls)
            .filter(|call| {
                level.on_call(Instant::default(), Duration::from_secs_f32(took(*call))) == Shown::Step
            })
            .count()
    }

    fn is_about(level: &Level, seconds: f32) -> bool {
        (level.seconds() / seconds - 1.0).abs() < 0.1
    }

    #[test]
    fn while_nothing_changes_there_is_no_step_and_slow_calls_are_none() {
        let mut level = Level::new(Duration::ZERO, 0.0);
        assert_eq!(hear(&mut level, 10_000, 0.2, 50), 0);
        assert!(is_about(&level, 0.2), "{level:?}");
    }

    #[test]
    fn a_step_up_or_down_is_followed_within_thirty_calls() {
        let mut level = Level::new(Duration::ZERO, 0.0);
        hear(&mut level, 1000, 0.2, 50);
        for seconds in [0.4, 0.2, 0.1, 1.0, 0.2] {
            assert_eq!(hear(&mut level, 30, seconds, 50), 1, "{seconds}: {level:?}");
            assert!(is_about(&level, seconds), "{seconds}: {level:?}");
            assert_eq!(hear(&mut level, 1000, seconds, 50), 0, "{seconds}: {level:?}");
        }
    }

    #[test]
    fn a_big_step_is_seen_by_a_few_calls() {
        let mut level = Level::new(Duration::ZERO, 0.0);
        hear(&mut level, 1000, 2.0, 50);
        assert_eq!(hear(&mut level, 10, 0.2, 50), 1, "{level:?}");
        assert_eq!(hear(&mut level, 30, 0.2, 50), 0, "{level:?}");
        assert!(is_about(&level, 0.2), "{level:?}");
    }

    #[test]
    fn a_drift_is_followed_without_steps() {
        let mut level = Level::new(Duration::ZERO, 0.0);
        let mut seconds = 0.2;
        for _ in 0..100 {
            seconds *= 1.02;
            assert_eq!(hear(&mut level, 100, seconds, 50), 0);
            assert!((level.seconds() / seconds - 1.0).abs() < 0.2, "{level:?}");
        }
    }

    #[test]
    fn two_kinds_of_calls_in_one_class_are_no_steps() {
        let mut level = Level::new(Duration::ZERO, 0.0);
        // Prefixes that the provider has cached and such that it has not, without a rhythm.
        let kind = |call: u32| if call.wrapping_mul(2_654_435_761) >> 31 == 0 { 0.2 } else { 2.0 };
        let steps = (0..5_000)
            .filter(|call| {
                level.on_call(Instant::default(), Duration::from_secs_f32(kind(*call))) == Shown::Step
            })
            .count();
        assert!(steps <= 5, "{steps}");
    }

    #[test]
    fn a_guess_gives_way_to_what_is_heard() {
        let mut level = Level::new(Duration::from_millis(100), 8.0);
        hear(&mut level, 40, 3.0, 50);
        assert!(is_about(&level, 3.0), "{level:?}");
    }
}
