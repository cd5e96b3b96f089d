//! Routing among three models whose load changes, beside an oracle.
//!
//! Invariant: a call takes the same at a model, whoever asks for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use firsttoken_logic::tail::breaker::Breaker;
use firsttoken_logic::tail::forecast::{Basis, Estimate, Forecast, Forecaster};
use firsttoken_logic::tail::route::{Ask, Candidate, Choice, Feature, LatencyBudget, Price, Why, route};
use firsttoken_logic::time::Instant;

use super::chance::{Chance, quantile};
use super::{RATE, SEEDS, instant};

/// Length of a run, s.
const LENGTH_S: f64 = 400.0;
/// Loads change after so long, s.
const LOAD_S: f64 = 20.0;
/// Model 1 takes ten times as long, and model 2 fails, from when to when, s.
const SLOW_S: (f64, f64) = (100.0, 130.0);
const FAILING_S: (f64, f64) = (200.0, 230.0);
const SLOW_MODEL: usize = 1;
const FAILING_MODEL: usize = 2;
/// What it takes until a model that fails has failed, s.
const FAILS_AFTER_S: f64 = 0.02;
/// No chance: above a thousand.
const NO_CHANCE: u32 = 1_000;
/// Calls after which something has happened that never did.
const NEVER: f64 = 1e9;

/// Quality, price of a token of the prompt, TTFT and the rest of the answer without load, s.
const MODELS: [(u32, u64, f64, f64); 3] =
    [(1, 1_000_000, 0.08, 0.6), (2, 3_000_000, 0.2, 1.8), (3, 15_000_000, 0.9, 4.0)];

/// What a call takes at one model without load: TTFT and total, s.
type Times = (f64, f64);

fn times(model: usize, chance: &mut Chance) -> Times {
    let (_, _, ttft, rest) = MODELS[model];
    let slow = if chance.unit() < 0.005 { 5.0 } else { 1.0 };
    let ttft = ttft * slow * (0.3 * chance.normal()).exp();
    (ttft, ttft + rest * (0.3 * chance.normal()).exp())
}

/// The true p99 of both, without load.
fn true_p99(model: usize) -> Times {
    let mut chance = Chance::new(99);
    let (mut ttft, mut total): (Vec<f64>, Vec<f64>) = (0..200_000).map(|_| times(model, &mut chance)).unzip();
    (quantile(&mut ttft, 0.99), quantile(&mut total, 0.99))
}

/// Loads of all models, one row for each [`LOAD_S`]: they change, but not around the two incidents.
fn loads(chance: &mut Chance) -> Vec<[f64; 3]> {
    let rows = (LENGTH_S / LOAD_S) as usize;
    let changes = |row: usize| ![4, 5, 6, 7, 9, 10, 11, 12].contains(&row);
    let load = |chance: &mut Chance| [0.5, 1.0, 1.0, 2.0][(chance.unit() * 4.0) as usize];
    (0..rows).map(|row| if changes(row) { [0; 3].map(|_| load(chance)) } else { [1.0; 3] }).collect()
}

const fn is_within(at: f64, span: (f64, f64)) -> bool {
    at >= span.0 && at < span.1
}

/// What a model's times are multiplied by at a moment; `None` while it fails.
fn load(loads: &[[f64; 3]], model: usize, at: f64) -> Option<f64> {
    if model == FAILING_MODEL && is_within(at, FAILING_S) {
        return None;
    }
    let load = loads.get((at / LOAD_S) as usize).map_or(1.0, |row| row[model]);
    Some(if model == SLOW_MODEL && is_within(at, SLOW_S) { load * 10.0 } else { load })
}

fn candidate(model: usize, forecast: Forecast, allowed: bool) -> Candidate {
    let (quality, input, ..) = MODELS[model];
    Candidate { quality, price: Price { input, output: input * 5 }, forecast, allowed }
}

fn ask(chance: &mut Chance) -> Ask {
    let feature = match chance.unit() {
        ..0.4 => Feature::Chat,
        ..0.6 => Feature::Completion,
        ..0.9 => Feature::Summary,
        _ => Feature::Batch,
    };
    Ask { budget: feature.budget(), ..Ask::default() }
}

/// A call: what is asked, when, and what it takes at each model by then; `None` where that fails.
struct Call {
    at: f64,
    ask: Ask,
    takes: [Option<Times>; 3],
    chance_per_mille: u32,
}

impl Call {
    fn next(after: f64, loads: &[[f64; 3]], chance: &mut Chance) -> Self {
        let at = after + chance.gap(RATE);
        let takes = [0, 1, 2].map(|model| {
            let (ttft, total) = times(model, chance);
            load(loads, model, at).map(|load| (ttft * load, total * load))
        });
        Self { at, ask: ask(chance), takes, chance_per_mille: (chance.unit() * 1e3) as u32 }
    }

    /// Who answers of an order, and after how long; those before have failed.
    fn answer(&self, order: &[usize]) -> Option<(usize, Times)> {
        let found =
            order.iter().enumerate().find_map(|(lost, &model)| Some((lost, model, self.takes[model]?)));
        found.map(|(lost, model, (ttft, total))| {
            let before = lost as f64 * FAILS_AFTER_S;
            (model, (ttft + before, total + before))
        })
    }

    fn is_met(&self, (ttft, total): Times) -> bool {
        let LatencyBudget { ttft: ttft_max, total: total_max } = self.ask.budget;
        let keeps = |took: f64, max: Option<Duration>| max.is_none_or(|max| took <= max.as_secs_f64());
        keeps(ttft, ttft_max) && keeps(total, total_max)
    }
}

/// What is heard of a call, and when, ns: the model, what it took, and whether that is its total.
type Heard = Reverse<(u64, usize, u64, bool)>;

/// Who routes by what it has heard.
#[derive(Default)]
struct Router {
    forecasters: [Forecaster; 3],
    breakers: [Breaker; 3],
    waiting: BinaryHeap<Heard>,
}

impl Router {
    fn route(&mut self, call: &Call) -> Choice {
        let now = instant(call.at);
        while let Some(Reverse((then, model, took, is_total))) = self.waiting.peek().copied()
            && then <= now.ns()
        {
            self.waiting.pop();
            let (took, then) = (Duration::from_nanos(took), Instant::from_ns(then));
            if is_total {
                self.forecasters[model].on_end(took, then);
            } else {
                self.breakers[model].on_success();
                self.forecasters[model].on_first_content(took, then);
            }
        }
        // As a configuration would name them: the best first.
        let models = [2, 1, 0];
        let candidates = models.map(|model| {
            candidate(model, self.forecasters[model].forecast(now), self.breakers[model].would_allow(now))
        });
        let mut choice = route(&candidates, &call.ask, call.chance_per_mille).expect("there are three");
        choice.order.iter_mut().for_each(|at| *at = models[*at]);
        for &model in &choice.order {
            self.breakers[model].allows(now);
            let Some((ttft, total)) = call.takes[model] else {
                self.breakers[model].on_failure(now);
                continue;
            };
            for (took, is_total) in [(ttft, false), (total, true)] {
                let took = (took * 1e9) as u64;
                self.waiting.push(Reverse((now.ns() + took, model, took, is_total)));
            }
            break;
        }
        choice
    }
}

/// Who knows everything.
struct Oracle([Times; 3]);

impl Oracle {
    fn route(&self, call: &Call, loads: &[[f64; 3]]) -> Vec<usize> {
        let candidates = [0, 1, 2].map(|model| {
            let load = load(loads, model, call.at);
            let estimate = |p99: f64| {
                let p99 = Duration::from_secs_f64(p99 * load.unwrap_or(1.0));
                Estimate { p50: Some(p99), p99: Some(p99), basis: Basis::default() }
            };
            let (ttft, total) = self.0[model];
            let forecast = Forecast { ttft: estimate(ttft), total: estimate(total) };
            candidate(model, forecast, load.is_some())
        });
        route(&candidates, &call.ask, NO_CHANCE).map(|choice| choice.order).unwrap_or_default()
    }
}

/// What the calls of all seeds came to.
#[derive(Default)]
struct Tally {
    calls: f64,
    explored: f64,
    /// Who chose as the oracle did, explorers aside.
    agreed: f64,
    /// Budgets met, and quality in sum: ours, the oracle's.
    met: [f64; 2],
    quality: [f64; 2],
    /// Calls from the oracle's first use of a model to ours, by seed: the two that the configuration names last, from
    /// the start, and those that were slow and failing, from their recovery.
    until_used: [Vec<f64>; 4],
}

impl Tally {
    fn answer(&mut self, who: usize, call: &Call, order: &[usize]) {
        if let Some((model, times)) = call.answer(order) {
            self.met[who] += f64::from(u8::from(call.is_met(times)));
            self.quality[who] += f64::from(MODELS[model].0);
        }
    }
}

fn run(seed: u64, oracle: &Oracle, tally: &mut Tally) {
    let mut chance = Chance::new(seed);
    let loads = loads(&mut chance);
    let mut router = Router::default();
    let mut at = 0.0;
    // From when on it is to be used, the model, and the calls until it was; a seed's own.
    let mut watched = [(0.0, 0), (0.0, 1), (SLOW_S.1, SLOW_MODEL), (FAILING_S.1, FAILING_MODEL)]
        .map(|(at, model)| (at, model, None));
    let mut calls_since = [0.0_f64; 4];
    while at < LENGTH_S {
        let call = Call::next(at, &loads, &mut chance);
        at = call.at;
        let (ours, theirs) = (router.route(&call), oracle.route(&call, &loads));
        tally.answer(0, &call, &ours.order);
        tally.answer(1, &call, &theirs);
        let regular = match ours.why {
            Why::Explores(_) => None,
            Why::NothingKnown => None,
            _ => ours.order.first(),
        };
        tally.calls += 1.0;
        tally.explored += f64::from(u8::from(matches!(ours.why, Why::Explores(_))));
        tally.agreed += f64::from(u8::from(regular == theirs.first()));
        for ((from, model, used), calls) in watched.iter_mut().zip(&mut calls_since) {
            // From the first call on for which the oracle takes it.
            let is_due = at >= *from && (*calls > 0.0 || theirs.first() == Some(model));
            *calls += f64::from(u8::from(is_due && used.is_none()));
            if is_due && regular == Some(model) {
                used.get_or_insert(*calls);
            }
        }
    }
    for (all, (.., used)) in tally.until_used.iter_mut().zip(watched) {
        all.push(used.unwrap_or(NEVER));
    }
}

/// The figures, as a part of a JSON object.
pub(crate) fn report() -> String {
    let oracle = Oracle([0, 1, 2].map(true_p99));
    let mut tally = Tally::default();
    (1..=SEEDS).for_each(|seed| run(seed, &oracle, &mut tally));
    let Tally { calls, explored, agreed, met, quality, until_used } = tally;
    let [poor, fair, slow, failed] =
        until_used.map(|mut all| format!("[{},{}]", quantile(&mut all, 0.5), quantile(&mut all, 1.0)));
    format!(
        "\"met\":{:.4},\"met_oracle\":{:.4},\"missed\":{:.4},\"quality_lost\":{:.4},\"explored\":{:.4},\"agreed\":{:.4},\
         \"calls_until_found\":[{poor},{fair}],\"calls_after_slow\":{slow},\"calls_after_failed\":{failed}",
        met[0] / calls,
        met[1] / calls,
        1.0 - met[0] / met[1],
        1.0 - quality[0] / quality[1],
        explored / calls,
        agreed / calls,
    )
}
