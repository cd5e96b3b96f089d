//! How long the next call of a model will take to its first content and to its end, by the calls so far. The
//! caller keeps one forecaster for each class of calls that are alike: a model and a length of prompt.
//!
//! The load of an upstream may double at any moment, and a forecast that waits until a hundredth of many
//! calls has shown it is late. But a load moves all calls alike far more than it changes how they are spread. So two
//! things are learnt apart: the *level*, which some tens of calls show, and the *spread* around it, whose last
//! hundredth only thousands show. A forecast is a quantile of the spread times the level. After a step the
//! spread learnt before it is a guess, and counts for less.
//!
//! What is not known is not said. A p99 takes [`P99_CALLS_MIN`] calls, the last of them not older than
//! [`P99_AGE_MAX`]; a median takes eight and lasts longer. Where a typical time is configured it stands
//! in for what is missing, with a p99 of [`TAIL`] times it, and the forecast says so.
//!
//! A call that was given up tells what it had taken by then: it is not known what it would have taken, only that it
//! was more.
//!
//! Invariant: a p99 is never below its median, and without calls and without a typical time there is neither.

use core::time::Duration;

use super::level::{CALLS_MIN, Level, Shown};
use super::live::Live;
use crate::time::Instant;

/// Calls that a p99 takes: with fewer the slowest hundredth is often one call, or none.
pub const P99_CALLS_MIN: u32 = 200;
/// Without a call for so long a p99 is not known any more.
pub const P99_AGE_MAX: Duration = Duration::from_secs(600);
/// Without a call for so long nothing is known any more.
pub const P50_AGE_MAX: Duration = Duration::from_secs(3600);
/// Medians that a p99 is taken for where no better is known: of published ones it is 2.7 to 2.9.
pub const TAIL: u32 = 3;
/// Calls that the spread is learnt from; older ones fade.
const SPREAD_CALLS: f32 = 4_000.0;
/// What was learnt of the spread before a step counts for so many calls.
const AFTER_STEP: f32 = 2_000.0;
/// Calls of the spread from which on a median is taken from it, and not from the level.
const SPREAD_CALLS_MIN: f32 = 64.0;
/// Calls after which quantiles of the spread are taken anew.
const QUANTILES_EVERY: u32 = 16;
/// Calls that a typical time counts for in the level.
const PRIOR_CALLS: f32 = 8.0;
/// After so long the level counts for half.
const LEVEL_HALF_LIFE: Duration = Duration::from_secs(10);
/// … and the spread.
const SPREAD_HALF_LIFE: Duration = Duration::from_secs(3600);

/// What is said in the configuration of how long a usual call takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Typical {
    /// To its first content.
    pub ttft: Option<Duration>,
    /// To its end.
    pub total: Option<Duration>,
}

/// What the next call will take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// To its first content.
    pub ttft: Estimate,
    /// To its end.
    pub total: Estimate,
}

/// Quantiles of one time. `None` is *unknown*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Half of the calls take no longer.
    pub p50: Option<Duration>,
    /// 99 of 100 calls take no longer.
    pub p99: Option<Duration>,
    /// What this rests on.
    pub basis: Basis,
}

/// What an estimate rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// Calls that count, older ones for less.
    pub calls: u32,
    /// Time since the one began that was heard of last: it tells of then.
    pub age: Option<Duration>,
    /// What it took.
    pub last: Option<Duration>,
    /// The typical time of the configuration by which the p99 is guessed, where too little is measured.
    pub prior: Option<Duration>,
}

/// Forecasts of one class of calls.
#[derive(Clone, Debug, Default)]
pub struct Forecaster {
    ttft: Track,
    total: Track,
}

impl Forecaster {
    /// Nothing is known but what is typical.
    #[must_use]
    pub fn new(typical: Typical) -> Self {
        Self { ttft: Track::new(typical.ttft), total: Track::new(typical.total) }
    }

    /// From here on this is typical.
    pub fn set_typical(&mut self, typical: Typical) {
        self.ttft.set_typical(typical.ttft);
        self.total.set_typical(typical.total);
    }

    /// The first content of a call has come after so long.
    pub fn on_first_content(&mut self, took: Duration, now: Instant) {
        self.ttft.on_call(took, now);
    }

    /// A call has ended after so long.
    pub fn on_end(&mut self, took: Duration, now: Instant) {
        self.total.on_call(took, now);
    }

    /// What a call that begins now will take.
    #[must_use]
    pub fn forecast(&self, now: Instant) -> Forecast {
        Forecast { ttft: self.ttft.estimate(now), total: self.total.estimate(now) }
    }
}

/// The call that was heard of last.
#[derive(Clone, Copy, Debug)]
struct Last {
    began: Instant,
    took: Duration,
}

/// Quantiles of the spread, as multiples of the level.
#[derive(Clone, Copy, Debug)]
struct Multiples {
    p50: f32,
    p99: f32,
}

/// What is known of one time.
#[derive(Clone, Debug)]
struct Track {
    typical: Option<Duration>,
    level: Level,
    /// Multiples of the level; the level itself is written as one second.
    spread: Live,
    multiples: Option<Multiples>,
    /// Calls since these were taken.
    since: u32,
    last: Option<Last>,
    level_faded: Instant,
    spread_faded: Instant,
}

impl Default for Track {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Track {
    fn new(typical: Option<Duration>) -> Self {
        Self {
            typical,
            level: level(typical),
            spread: Live::new(SPREAD_CALLS),
            multiples: None,
            since: 0,
            last: None,
            level_faded: Instant::default(),
            spread_faded: Instant::default(),
        }
    }

    fn set_typical(&mut self, typical: Option<Duration>) {
        if self.typical != typical {
            self.typical = typical;
            if self.last.is_none() {
                self.level = level(typical);
            }
        }
    }

    fn on_call(&mut self, took: Duration, now: Instant) {
        self.fade(now);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let began = Instant::from_ns(now.ns().saturating_sub(took_ns));
        self.last = Some(Last { began, took });
        match self.level.on_call(began, took) {
            Shown::Nothing => {}
            Shown::Step => self.spread.fade(AFTER_STEP),
            Shown::Usual(multiple) => {
                self.spread.record(Duration::try_from_secs_f32(multiple).unwrap_or(Duration::MAX));
                self.since += 1;
            }
        }
        if self.since >= QUANTILES_EVERY {
            self.since = 0;
            let multiple = |quantile| self.spread.quantile(quantile).map(|part| part.as_secs_f32());
            let both = multiple(0.5).zip(multiple(0.99));
            self.multiples = both.map(|(p50, p99)| Multiples { p50, p99 });
        }
    }

    /// What time alone has made less certain.
    fn fade(&mut self, now: Instant) {
        let Some(last) = self.last else {
            (self.level_faded, self.spread_faded) = (now, now);
            return;
        };
        if now.since(last.began) > P50_AGE_MAX {
            self.level = level(self.typical);
        }
        let halvings = now.since(self.level_faded).as_secs() / LEVEL_HALF_LIFE.as_secs();
        if halvings > 0 {
            self.level.fade(halvings);
            self.level_faded = now;
        }
        let calls = self.spread_calls(now);
        if now.since(self.spread_faded) >= SPREAD_HALF_LIFE {
            self.spread.fade(calls);
            self.spread_faded = now;
        }
    }

    /// Calls that the spread rests on, those for less that lie far back.
    fn spread_calls(&self, now: Instant) -> f32 {
        let halvings = now.since(self.spread_faded).as_secs() / SPREAD_HALF_LIFE.as_secs();
        (0..halvings.min(32)).fold(self.spread.evidence(), |calls, _| calls / 2.0)
    }

    fn estimate(&self, now: Instant) -> Estimate {
        let age = self.last.map(|last| now.since(last.began));
        let is_within = |age_max| age.is_some_and(|age| age <= age_max);
        let spread_calls = self.spread_calls(now);
        let level = self.level.seconds();
        let p50 = if is_within(P50_AGE_MAX) && self.level.calls() >= CALLS_MIN {
            let multiples = self.multiples.filter(|_| spread_calls >= SPREAD_CALLS_MIN);
            Some(seconds(level * multiples.map_or(1.0, |multiples| multiples.p50)))
        } else {
            self.typical
        };
        let measured =
            self.multiples.filter(|_| whole(spread_calls) >= P99_CALLS_MIN && is_within(P99_AGE_MAX));
        let p99 = p50.and_then(|p50| match measured {
            Some(multiples) => Some(seconds(level * multiples.p99).max(p50)),
            None => self.typical.map(|_| p50.saturating_mul(TAIL)),
        });
        let recent = u32::try_from(self.level.recent()).unwrap_or(u32::MAX);
        let basis = Basis {
            calls: whole(spread_calls).saturating_add(recent),
            age,
            last: self.last.map(|last| last.took),
            prior: self.typical.filter(|_| measured.is_none()),
        };
        Estimate { p50, p99, basis }
    }
}

/// Where the level begins.
const fn level(typical: Option<Duration>) -> Level {
    match typical {
        Some(typical) => Level::new(typical, PRIOR_CALLS),
        None => Level::new(Duration::ZERO, 0.0),
    }
}

fn seconds(of: f32) -> Duration {
    Duration::try_from_secs_f32(of).unwrap_or(Duration::MAX)
}

fn whole(calls: f32) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "thousands at most")]
    let whole = calls as u32;
    whole
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPICAL: Typical =
        Typical { ttft: Some(Duration::from_millis(300)), total: Some(Duration::from_secs(2)) };

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    /// Calls one after another: from half of `usual` to one and a half, each `slow_in`th ten times as long. When the
    /// last one has ended.
    fn hear(
        forecaster: &mut Forecaster,
        from: Instant,
        calls: u64,
        usual: Duration,
        slow_in: u64,
    ) -> Instant {
        (0..calls).fold(from, |now, call| {
            let spread = u32::try_from(call.wrapping_mul(2_654_435_761) % 1000).unwrap_or(0);
            let slow = if call % slow_in == slow_in - 1 { 10 } else { 1 };
            let took = (usual / 2 + usual * spread / 1000) * slow;
            forecaster.on_first_content(took, now + took);
            now + took
        })
    }

    fn is_about(got: Option<Duration>, ms: f32) -> bool {
        got.is_some_and(|got| (got.as_secs_f32() * 1000.0 / ms - 1.0).abs() < 0.1)
    }

    const USUAL: Duration = Duration::from_millis(200);

    #[test]
    fn nothing_is_said_of_what_nobody_knows() {
        let mut forecaster = Forecaster::default();
        assert_eq!(forecaster.forecast(at(0)), Forecast::default());
        let now = hear(&mut forecaster, at(0), 7, USUAL, 1000);
        assert_eq!(forecaster.forecast(now).ttft.p50, None, "seven calls");
        let now = hear(&mut forecaster, now, 100, USUAL, 1000);
        let ttft = forecaster.forecast(now).ttft;
        assert!(ttft.p50.is_some() && ttft.p99.is_none() && ttft.basis.prior.is_none(), "{ttft:?}");
        assert!((100..=107).contains(&ttft.basis.calls), "{ttft:?}");
        let now = hear(&mut forecaster, now, 200, USUAL, 1000);
        let forecast = forecaster.forecast(now);
        assert!(is_about(forecast.ttft.p50, 200.0) && is_about(forecast.ttft.p99, 300.0), "{forecast:?}");
        assert_eq!(forecast.total, Estimate::default(), "nobody has told how long an answer takes");
    }

    #[test]
    fn a_typical_time_stands_in_and_gives_way() {
        let mut forecaster = Forecaster::new(TYPICAL);
        let ttft = forecaster.forecast(at(0)).ttft;
        assert_eq!((ttft.p50, ttft.p99), (TYPICAL.ttft, TYPICAL.ttft.map(|typical| typical * TAIL)));
        assert!(ttft.basis.prior == TYPICAL.ttft && ttft.basis.calls == 0 && ttft.basis.age.is_none());
        let now = hear(&mut forecaster, at(0), 180, USUAL / 2, 1000);
        let ttft = forecaster.forecast(now).ttft;
        assert!(is_about(ttft.p50, 100.0) && is_about(ttft.p99, 300.0), "{ttft:?}");
        assert_eq!(ttft.basis.prior, TYPICAL.ttft);
        let now = hear(&mut forecaster, now, 400, USUAL / 2, 1000);
        let ttft = forecaster.forecast(now).ttft;
        assert!(is_about(ttft.p99, 150.0) && ttft.basis.prior.is_none(), "{ttft:?}");
    }

    #[test]
    fn a_step_of_the_load_moves_the_p99_within_thirty_calls() {
        let mut forecaster = Forecaster::default();
        let mut now = hear(&mut forecaster, at(0), 5000, USUAL, 50);
        let p99 = |forecaster: &Forecaster, now| forecaster.forecast(now).ttft.p99.unwrap_or_default();
        let before = p99(&forecaster, now);
        for by in [2, 1, 4, 1] {
            now = hear(&mut forecaster, now, 30, USUAL * by, 50);
            let ratio = p99(&forecaster, now).div_duration_f32(before * by);
            assert!((ratio - 1.0).abs() < 0.2, "×{by}: {ratio}");
            now = hear(&mut forecaster, now, 2000, USUAL * by, 50);
            let ratio = p99(&forecaster, now).div_duration_f32(before * by);
            assert!((ratio - 1.0).abs() < 0.15, "×{by}: {ratio}");
        }
    }

    #[test]
    fn slow_calls_from_before_a_step_are_held_against_the_level_before_it() {
        let mut forecaster = Forecaster::default();
        let now = hear(&mut forecaster, at(0), 5000, USUAL, 50);
        let before = forecaster.forecast(now).ttft.p99.unwrap_or_default();
        let after = hear(&mut forecaster, now, 100, USUAL / 2, 50);
        for _ in 0..100 {
            forecaster.on_first_content(USUAL, now + USUAL / 2);
        }
        let ttft = forecaster.forecast(after).ttft;
        assert!(is_about(ttft.p50, 100.0), "{ttft:?}");
        let ratio = ttft.p99.unwrap_or_default().div_duration_f32(before / 2);
        assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
    }

    #[test]
    fn what_is_old_is_no_longer_said() {
        let mut forecaster = Forecaster::default();
        let heard = hear(&mut forecaster, at(0), 1000, USUAL, 1000);
        let (slow, second) = (USUAL * 15, Duration::from_secs(1));
        let after = |age: Duration| forecaster.forecast(heard + age).ttft;
        assert!(after(P99_AGE_MAX - slow).p99.is_some());
        let old = after(P99_AGE_MAX + second);
        assert!(old.p99.is_none() && is_about(old.p50, 200.0), "{old:?}");
        let older = after(P50_AGE_MAX + second);
        assert_eq!((older.p50, older.p99), (None, None));
        assert!(older.basis.calls < 600 && older.basis.age > Some(P50_AGE_MAX));
        forecaster.set_typical(TYPICAL);
        let later = forecaster.forecast(heard + P50_AGE_MAX * 2).ttft;
        assert_eq!(
            (later.p50, later.basis.prior),
            (TYPICAL.ttft, TYPICAL.ttft),
            "what is configured is left"
        );
    }

    #[test]
    fn what_was_learnt_of_the_spread_outlives_a_night() {
        let mut forecaster = Forecaster::default();
        let evening = hear(&mut forecaster, at(0), 4000, USUAL, 1000);
        let morning = hear(&mut forecaster, evening + P50_AGE_MAX * 3, 20, USUAL * 2, 1000);
        let ttft = forecaster.forecast(morning).ttft;
        assert!(is_about(ttft.p99, 600.0), "{ttft:?}");
    }

    proptest! {
        #[test]
        fn a_p99_is_never_below_its_median_and_never_said_without_grounds(
            calls in prop::collection::vec((0..60_000_000_u64, 0..20_000_u64), 0..600),
            typical in prop::option::of(0..10_000_u64),
        ) {
            let typical = Typical { ttft: typical.map(Duration::from_millis), total: None };
            let mut forecaster = Forecaster::new(typical);
            let mut now = at(0);
            for (us, gap_ms) in calls {
                now = now + Duration::from_millis(gap_ms);
                forecaster.on_first_content(Duration::from_micros(us), now);
                let ttft = forecaster.forecast(now).ttft;
                prop_assert!(ttft.p99.is_none() || ttft.p50 <= ttft.p99, "{ttft:?}");
                prop_assert!(
                    ttft.p99.is_none() || ttft.basis.prior.is_some() || ttft.basis.calls >= P99_CALLS_MIN,
                    "{ttft:?}"
                );
                prop_assert_eq!(ttft.p99.is_none() && typical.ttft.is_some(), false);
            }
        }
    }
}
