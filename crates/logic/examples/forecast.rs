//! How good forecasts are, and what routing by them comes to, in virtual time.
//!
//! *Forecasts*: windows of a thousand calls, and a load that doubles or halves every five windows. At its start
//! each window's p99 of TTFT is forecast; after a window the forecast is held against what it showed. A window right after a
//! step is not counted. Beside it stands who knows the true distribution: what it misses is chance. Slow
//! calls that are one in a hundred and ten times as slow are apart (`cliff`): there the p99 of a window is usual or slow by
//! the toss of a coin, and nobody can forecast it.
//!
//! *Routing*: three models, from fast and poor to slow and good, whose load changes; one is ten times as slow for a
//! while, another fails for a while. Nothing is known at the start. Beside it stands an oracle that routes by the
//! same rules, and knows every distribution at every moment.
//!
//! Prints one line of JSON.
//!
//! Invariant: the same seed meets the same calls, with forecasts and with the oracle.

#![expect(clippy::print_stdout, clippy::cast_possible_truncation, reason = "it reports, on small numbers")]

mod chance;
mod routing;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use chance::{Chance, quantile};
use firsttoken_logic::tail::forecast::{Forecaster, Typical};
use firsttoken_logic::time::Instant;

const SEEDS: u64 = 10;
/// Calls a second.
const RATE: f64 = 200.0;
/// The median of a usual call, s.
const MEDIAN_S: f64 = 0.2;
const WINDOWS: usize = 100;
const WINDOW_CALLS: usize = 1_000;
/// The load steps after so many windows.
const STEP_WINDOWS: usize = 5;
/// A forecast this far off is wrong.
const OFF: f64 = 0.25;

/// What a call takes while the load does not change.
#[derive(Clone, Copy)]
struct Shape {
    /// Of the logarithm of what a usual call takes.
    sigma: f64,
    /// The part of calls that are slow.
    slow: f64,
    /// … by so much.
    by: f64,
    /// Whether the load makes slow calls slower too.
    load_slows_all: bool,
}

impl Shape {
    fn seconds(&self, chance: &mut Chance, load: f64) -> f64 {
        let is_slow = chance.unit() < self.slow;
        let load = if is_slow && !self.load_slows_all { 1.0 } else { load };
        MEDIAN_S * load * if is_slow { self.by } else { 1.0 } * (self.sigma * chance.normal()).exp()
    }

    /// The true p99, s, without load.
    fn p99(&self) -> f64 {
        let mut chance = Chance::new(99);
        let mut seconds: Vec<f64> = (0..400_000).map(|_| self.seconds(&mut chance, 1.0)).collect();
        quantile(&mut seconds, 0.99)
    }
}

/// Windows that were judged.
#[derive(Clone, Copy, Default)]
struct Tally {
    windows: f64,
    within: f64,
    unknown: f64,
    /// Those that the true p99 forecasts.
    truly: f64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.windows += other.windows;
        self.within += other.within;
        self.unknown += other.unknown;
        self.truly += other.truly;
    }

    fn window(&mut self, forecast: Option<Duration>, truth: f64, shown: f64) {
        let is_within = |forecast: f64| f64::from(u8::from((forecast / shown - 1.0).abs() <= OFF));
        self.windows += 1.0;
        self.unknown += f64::from(u8::from(forecast.is_none()));
        self.within += forecast.map_or(0.0, |forecast| is_within(forecast.as_secs_f64()));
        self.truly += is_within(truth);
    }
}

fn instant(seconds: f64) -> Instant {
    Instant::from_ns((seconds * 1e9) as u64)
}

/// Nanoseconds at which a call shows its first content, and those that it took.
type Shows = Reverse<(u64, u64)>;

fn windows(shape: Shape, true_p99: f64, seed: u64) -> Tally {
    let mut chance = Chance::new(seed);
    let mut forecaster = Forecaster::new(Typical::default());
    let mut waiting: BinaryHeap<Shows> = BinaryHeap::new();
    let (mut tally, mut at, mut load) = (Tally::default(), 0.0, 1.0);
    for window in 0..WINDOWS {
        let steps = window > 0 && window % STEP_WINDOWS == 0;
        if steps {
            let up = if load >= 4.0 { false } else { load <= 0.25 || chance.unit() < 0.5 };
            load *= if up { 2.0 } else { 0.5 };
        }
        let forecast = forecaster.forecast(instant(at)).ttft.p99;
        let mut shown = Vec::with_capacity(WINDOW_CALLS);
        for _ in 0..WINDOW_CALLS {
            at += chance.gap(RATE);
            let now = instant(at);
            while let Some(Reverse((then, took))) = waiting.peek().copied()
                && then <= now.ns()
            {
                waiting.pop();
                forecaster.on_first_content(Duration::from_nanos(took), Instant::from_ns(then));
            }
            let seconds = shape.seconds(&mut chance, load);
            shown.push(seconds);
            let took = (seconds * 1e9) as u64;
            waiting.push(Reverse((now.ns() + took, took)));
        }
        if !steps {
            tally.window(forecast, true_p99 * load, quantile(&mut shown, 0.99));
        }
    }
    tally
}

/// All seeds of the shapes: together, and the least share within of one shape.
fn shapes(which: &[(f64, f64)], load_slows_all: bool) -> (Tally, f64) {
    let (mut all, mut worst) = (Tally::default(), 1.0_f64);
    for sigma in [0.2, 0.3, 0.4, 0.5] {
        for &(slow, by) in which {
            let shape = Shape { sigma, slow, by, load_slows_all };
            let (true_p99, mut tally) = (shape.p99(), Tally::default());
            (1..=SEEDS).for_each(|seed| tally.add(windows(shape, true_p99, seed)));
            worst = worst.min(tally.within / tally.windows);
            all.add(tally);
        }
    }
    (all, worst)
}

fn main() {
    let usual = [(0.005, 3.0), (0.005, 10.0), (0.01, 3.0), (0.02, 3.0), (0.02, 10.0)];
    let (all, worst) = shapes(&usual, true);
    let (fixed, _) = shapes(&usual, false);
    let (cliff, _) = shapes(&[(0.01, 10.0)], true);
    let share = |part: f64, of: Tally| part / of.windows;
    println!(
        "{{\"off\":{:.4},\"off_truth\":{:.4},\"unknown\":{:.4},\"off_worst_shape\":{:.4},\"off_fixed\":{:.4},\
         \"cliff_off\":{:.4},\"cliff_off_truth\":{:.4},{}}}",
        1.0 - share(all.within, all),
        1.0 - share(all.truly, all),
        share(all.unknown, all),
        1.0 - worst,
        1.0 - share(fixed.within, fixed),
        1.0 - share(cliff.within, cliff),
        1.0 - share(cliff.truly, cliff),
        routing::report(),
    );
}
