//! How many calls an upstream may have at a time, learnt from how it answers.
//!
//! An upstream that has more calls than it can work on answers all of them later, and nothing is won by
//! sending more. How late is told by the time to first content, as a multiple of what is usual for prompts of
//! that length: so neither a longer answer nor a longer prompt looks like a full upstream. Calls are judged in
//! windows, by the median of these multiples `m`: of `limit` calls about `limit × (1 - 1/m)` wait at the
//! upstream (TCP Vegas; Brakmo and Peterson 1995). A few may, or its places would not all be taken; more are a queue
//! that is better kept here, where it is fair and can be left.
//!
//! A cut that does not help shows that the upstream is slower for a reason of its own: that is then what is
//! usual, and the limit is as it was. Since what is usual cannot be seen while the upstream is always full, it is
//! looked up now and then with fewer calls. Who says that he is overloaded (429, 503, 529) is believed at once.
//!
//! Invariant: the limit stays within its bounds, and moves only by calls that were sent when it was nearly reached.

use alloc::vec::Vec;
use core::time::Duration;

use crate::time::Instant;

/// Classes of prompts by their length.
pub const CLASSES: usize = 5;
/// Calls of a window, at least and at most; in between as many as may be at work.
const WINDOW_MIN: usize = 16;
/// See [`WINDOW_MIN`].
const WINDOW_MAX: usize = 256;
/// Calls after which it is known what is usual for a class.
const LEARN: usize = 16;
/// How far one call moves what is usual, while the upstream has room.
const RATE: f64 = 1.0 / 64.0;
/// Part of the limit that must have been at work for a call to tell something of it.
const NEAR: f64 = 0.8;
/// Calls that may wait at the upstream: at least so many, or so large a part of the limit.
const WAIT: (f64, f64) = (1.0, 0.05);
/// A median from which on the limit is cut at once by as much as is too much.
const FAR: f64 = 1.25;
/// Windows after which it is looked up what is usual.
const PROBE_WINDOWS: u32 = 60;
/// How far a limit grows with each window until there is a first sign that it is too high.
const SLOW_START: f64 = 0.5;
/// Part of the limit that is left for that.
const PROBE: f64 = 0.6;
/// Windows for which a limit that the upstream has named by refusing is not exceeded.
const HOLD_WINDOWS: u32 = 20;

/// Where a limit may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Never fewer calls.
    pub min: u32,
    /// Never more.
    pub max: u32,
    /// As long as nothing is known.
    pub start: u32,
}

impl Bounds {
    /// So many, whatever happens.
    #[must_use]
    pub const fn fixed(calls: u32) -> Self {
        Self { min: calls, max: calls, start: calls }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self { min: 1, max: 1_000, start: 4 }
    }
}

/// The limit of one upstream.
#[derive(Clone, Debug)]
pub struct Limit {
    bounds: Bounds,
    limit: f64,
    usual: [Usual; CLASSES],
    window: Window,
    state: State,
    /// Whether there was no sign yet that the limit is too high: until then it grows fast.
    unseen: bool,
    /// What the upstream has refused to exceed, and for how many windows that counts.
    named: Option<(f64, u32)>,
    /// Windows since it was looked up what is usual.
    windows: u32,
}

/// What calls of a class take at an upstream with room, in seconds: their median.
#[derive(Clone, Debug)]
enum Usual {
    /// Too few have come.
    Learning(Vec<f64>),
    Known(f64),
}

impl Default for Usual {
    fn default() -> Self {
        Self::Learning(Vec::new())
    }
}

impl Usual {
    /// A call has taken so long. What multiple that is of what is usual, once that is known.
    fn on_content(&mut self, seconds: f64, has_room: bool) -> Option<f64> {
        match self {
            Self::Learning(seen) => {
                seen.push(seconds);
                if seen.len() >= LEARN {
                    *self = Self::Known(median(seen));
                }
                None
            }
            Self::Known(usual) => {
                let multiple = seconds / *usual;
                if has_room {
                    // As often up as down, it stays where half of the calls take longer.
                    *usual *= if multiple > 1.0 { 1.0 + RATE } else { 1.0 / (1.0 + RATE) };
                }
                Some(multiple)
            }
        }
    }
}

/// Calls that were sent since the limit changed last, when nearly as many were at work as might be: by what
/// multiple of the usual time they took.
#[derive(Clone, Debug, Default)]
struct Window {
    since: Instant,
    multiples: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Steady,
    /// The limit was cut from `before`, since the median was `median`: does it help?
    Cut {
        before: f64,
        median: f64,
    },
    /// Fewer calls for a while, to see what is usual.
    Probe {
        before: f64,
    },
}

impl Limit {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            limit: f64::from(bounds.start.clamp(bounds.min, bounds.max)),
            usual: Default::default(),
            window: Window::default(),
            state: State::Steady,
            unseen: true,
            named: None,
            windows: 0,
        }
    }

    /// From here on these bounds hold. What was learnt stays.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        if self.bounds != bounds {
            let start = f64::from(bounds.start);
            let limit = if self.bounds.min == self.bounds.max { start } else { self.limit };
            self.bounds = bounds;
            self.limit = limit.clamp(f64::from(bounds.min), f64::from(bounds.max));
        }
    }

    /// How many may be at work.
    #[must_use]
    pub fn calls(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds")]
        let calls = self.limit as u32;
        calls.clamp(self.bounds.min, self.bounds.max)
    }

    /// A call of this class has shown content `took` after it was sent, when `at_work` were, itself included.
    pub fn on_content(&mut self, class: usize, sent: Instant, took: Duration, at_work: u32, now: Instant) {
        if self.bounds.min == self.bounds.max || sent < self.window.since {
            return;
        }
        let has_room = f64::from(at_work) <= self.limit / 2.0;
        let usual = &mut self.usual[class.min(CLASSES - 1)];
        let Some(multiple) = usual.on_content(took.as_secs_f64().max(1e-6), has_room) else { return };
        if f64::from(at_work) < self.limit * NEAR {
            return;
        }
        self.window.multiples.push(multiple);
        if self.window.multiples.len() >= self.window_len() {
            self.judge(now);
        }
    }

    /// The upstream has refused a call as one too many, which was sent when `at_work` were, itself included.
    pub fn on_overloaded(&mut self, sent: Instant, at_work: u32, now: Instant) {
        if sent < self.window.since {
            return;
        }
        let named = f64::from(at_work.saturating_sub(1)).min(self.limit - 1.0);
        self.named = Some((named.max(f64::from(self.bounds.min)), HOLD_WINDOWS));
        self.unseen = false;
        self.state = State::Steady;
        self.set(named, now);
    }

    fn window_len(&self) -> usize {
        (self.calls() as usize).clamp(WINDOW_MIN, WINDOW_MAX)
    }

    /// A window is over.
    fn judge(&mut self, now: Instant) {
        let median = median(&mut self.window.multiples).max(1e-3);
        match core::mem::replace(&mut self.state, State::Steady) {
            State::Cut { before, median: cut_at } if median > (1.0 + cut_at) / 2.0 => {
                self.rescale(median);
                self.set(before, now);
            }
            State::Cut { .. } => self.set(self.limit, now),
            State::Probe { before } => {
                self.rescale(median);
                self.set(before, now);
            }
            State::Steady => self.steer(median, now),
        }
    }

    /// The window was one like any other.
    fn steer(&mut self, median: f64, now: Instant) {
        if let Some((_, windows)) = &mut self.named {
            *windows -= 1;
            self.named = self.named.filter(|(_, windows)| *windows > 0);
        }
        self.windows += 1;
        let may_wait = WAIT.0.max(self.limit * WAIT.1);
        let wait = self.limit * (1.0 - 1.0 / median);
        let before = self.limit;
        if wait > may_wait * 2.0 && median > FAR {
            self.unseen = false;
            self.state = State::Cut { before, median };
            self.set(before / median + may_wait, now);
        } else if wait > may_wait * 2.0 {
            self.unseen = false;
            self.set(before - (wait - may_wait * 1.5), now);
        } else if self.windows >= PROBE_WINDOWS {
            self.windows = 0;
            self.state = State::Probe { before };
            self.set(before * PROBE, now);
        } else if wait < may_wait {
            let step = if self.unseen { before * SLOW_START } else { (before * WAIT.1).max(1.0) };
            let most = self.named.map_or(f64::INFINITY, |(named, _)| named);
            self.set((before + step).min(most.max(before)), now);
        } else {
            self.window.begin(now);
        }
    }

    /// What was `median` times what is usual, is usual.
    fn rescale(&mut self, median: f64) {
        for usual in &mut self.usual {
            if let Usual::Known(seconds) = usual {
                *seconds *= median;
            }
        }
    }

    fn set(&mut self, limit: f64, now: Instant) {
        self.limit = limit.clamp(f64::from(self.bounds.min), f64::from(self.bounds.max));
        self.window.begin(now);
    }
}

impl Window {
    fn begin(&mut self, now: Instant) {
        self.since = now;
        self.multiples.clear();
    }
}

/// The middle one of at least one.
fn median(seconds: &mut [f64]) -> f64 {
    let middle = seconds.len() / 2;
    *seconds.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    /// Calls that are sent as soon as one ends, taking as long as `took_ms` says for so many at work. When the
    /// last one was sent.
    fn feed(limit: &mut Limit, from: Instant, calls: u64, took_ms: impl Fn(f64) -> f64) -> Instant {
        let mut sent = from;
        for _ in 0..calls {
            let took = Duration::from_secs_f64(took_ms(f64::from(limit.calls())) / 1000.0);
            sent = sent + took / limit.calls();
            limit.on_content(0, sent, took, limit.calls(), sent + took);
        }
        sent
    }

    #[test]
    fn it_finds_out_how_many_places_there_are() {
        for places in [3.0, 32.0, 200.0] {
            let mut limit = Limit::new(Bounds::default());
            feed(&mut limit, at(0), 20_000, |at_work| 500.0 * (at_work / places).max(1.0));
            let found = f64::from(limit.calls()) / places;
            // A few may wait, which beside three is much.
            assert!((0.8..1.8).contains(&found), "{} for {places}", limit.calls());
        }
    }

    #[test]
    fn an_upstream_that_is_slower_for_a_reason_of_its_own_keeps_its_limit() {
        let mut limit = Limit::new(Bounds::default());
        let now = feed(&mut limit, at(0), 5_000, |at_work| 500.0 * (at_work / 32.0).max(1.0));
        let before = f64::from(limit.calls());
        feed(&mut limit, now, 5_000, |at_work| 2500.0 * (at_work / 32.0).max(1.0));
        let after = f64::from(limit.calls());
        assert!((0.8..1.25).contains(&(after / before)), "{before} and then {after}");
    }

    #[test]
    fn who_says_that_he_is_overloaded_is_believed_once_for_each_change() {
        let mut limit = Limit::new(Bounds { start: 40, ..Bounds::default() });
        limit.on_overloaded(at(5), 33, at(10));
        assert_eq!(limit.calls(), 32);
        limit.on_overloaded(at(6), 34, at(11));
        assert_eq!(limit.calls(), 32, "it was sent before");
        feed(&mut limit, at(20), 100, |_| 500.0);
        assert_eq!(limit.calls(), 32, "what was named is not exceeded soon");
    }

    #[test]
    fn a_fixed_limit_stays() {
        let mut limit = Limit::new(Bounds::fixed(7));
        let now = feed(&mut limit, at(0), 500, |_| 100.0);
        feed(&mut limit, now, 500, |_| 9000.0);
        limit.on_overloaded(at(1 << 40), 3, at(1 << 40));
        assert_eq!(limit.calls(), 7);
        limit.set_bounds(Bounds::fixed(9));
        assert_eq!(limit.calls(), 9);
    }
}
