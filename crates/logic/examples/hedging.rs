//! What hedging does to the tail, in virtual time: calls arrive by chance at an upstream of which some calls
//! are slow, and each is doubled or not as [`firsttoken_logic::tail::hedge`] decides.
//!
//! Prints one line of JSON. The best that could be done is measured beside it: for the
//! same calls, the fixed delay that sends as many hedges, chosen with hindsight.
//!
//! Invariant: the same seed meets the same calls, with hedging and without.

#![expect(clippy::print_stdout, clippy::cast_possible_truncation, reason = "it reports, on small numbers")]

mod chance;

use std::collections::BinaryHeap;
use std::time::Duration;

use chance::{Chance, quantile};
use firsttoken_logic::tail::budget::Budget;
use firsttoken_logic::tail::hedge::{Hedger, Policy};
use firsttoken_logic::time::Instant;

/// Calls that are counted, after [`WARM_UP`].
const CALLS: usize = 200_000;
const WARM_UP: usize = 1_000;
const SEEDS: u64 = 10;
/// Calls a second.
const RATE: f64 = 200.0;
/// The median of a usual call, s.
const MEDIAN_S: f64 = 0.2;

/// An upstream: how its calls are spread.
#[derive(Clone, Copy)]
struct Shape {
    /// Of the logarithm of what a call takes.
    sigma: f64,
    /// The part of calls that are slow.
    slow: f64,
    /// … by so much.
    by: f64,
    /// The median wanders by this factor, up and down, over the run.
    drift: f64,
    /// Calls that come together.
    together: usize,
    /// From this call on everybody takes so many times longer.
    step: Option<(usize, f64)>,
}

const PLAIN: Shape = Shape { sigma: 0.2, slow: 0.02, by: 10.0, drift: 1.0, together: 1, step: None };

/// A call: when it comes, and what its two copies take, s.
#[derive(Clone, Copy)]
struct Call {
    at: f64,
    first: f64,
    second: f64,
}

impl Shape {
    fn calls(&self, seed: u64, count: usize) -> Vec<Call> {
        let mut chance = Chance::new(seed);
        let mut at = 0.0;
        (0..count)
            .map(|call| {
                if call % self.together == 0 {
                    at += chance.gap(RATE) * self.together as f64;
                }
                let phase = call as f64 / count as f64 * std::f64::consts::TAU * 2.0;
                let stepped = self.step.filter(|(from, _)| call >= *from).map_or(1.0, |(_, by)| by);
                let median = MEDIAN_S * self.drift.powf(phase.sin()) * stepped;
                let mut copy = || {
                    let slow = if chance.unit() < self.slow { self.by } else { 1.0 };
                    median * slow * (self.sigma * chance.normal()).exp()
                };
                Call { at, first: copy(), second: copy() }
            })
            .collect()
    }
}

/// What a run came to: for each call what it took, and whether it was doubled, and won by its hedge.
struct Run {
    took: Vec<f64>,
    doubled: Vec<bool>,
    won: Vec<bool>,
}

/// Something that happens, soonest first.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Arrives,
    IsLate { after: f64 },
    Ends { doubled: Option<f64> },
}

#[derive(Clone, Copy, PartialEq)]
struct Happens(f64, usize, What);

impl Eq for Happens {}

impl PartialOrd for Happens {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Happens {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

/// The calls as hedging has them.
fn hedged(calls: &[Call], share_per_mille: u32) -> Run {
    let policy = Policy { share_per_mille, ..Policy::default() };
    let (mut hedger, mut budget) = (Hedger::new(policy), Budget::new(share_per_mille));
    let mut run = Run {
        took: vec![0.0; calls.len()],
        doubled: vec![false; calls.len()],
        won: vec![false; calls.len()],
    };
    let mut events = BinaryHeap::new();
    if let Some(first) = calls.first() {
        events.push(Happens(first.at, 0, What::Arrives));
    }
    while let Some(Happens(at, number, what)) = events.pop() {
        let (call, now) = (calls[number], Instant::from_ns((at * 1e9) as u64));
        match what {
            What::Arrives => {
                if let Some(next) = calls.get(number + 1) {
                    events.push(Happens(next.at, number + 1, What::Arrives));
                }
                budget.on_call(now);
                match hedger.delay(&budget).map(|delay| delay.as_secs_f64()) {
                    Some(after) if after < call.first => {
                        events.push(Happens(at + after, number, What::IsLate { after }));
                    }
                    _ => events.push(Happens(at + call.first, number, What::Ends { doubled: None })),
                }
            }
            What::IsLate { after } => {
                let doubled = hedger.on_late(&mut budget, now).then_some(after);
                run.doubled[number] = doubled.is_some();
                let took = doubled.map_or(call.first, |after| call.first.min(after + call.second));
                events.push(Happens(call.at + took, number, What::Ends { doubled }));
            }
            What::Ends { doubled } => {
                let took = at - call.at;
                run.took[number] = took;
                let lasted = Duration::from_secs_f64(took);
                match doubled {
                    None => hedger.on_first_content(lasted),
                    Some(after) if after + call.second < call.first => {
                        run.won[number] = true;
                        hedger.on_won(lasted);
                    }
                    Some(_) => hedger.on_lost(lasted),
                }
            }
        }
    }
    run
}

/// What the calls take with a fixed delay.
fn fixed(calls: &[Call], delay: f64) -> Vec<f64> {
    let took =
        |call: &Call| if call.first <= delay { call.first } else { call.first.min(delay + call.second) };
    calls.iter().map(took).collect()
}

fn share(of: &[bool]) -> f64 {
    of.iter().filter(|yes| **yes).count() as f64 / of.len().max(1) as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    quantile(&mut values, 0.5)
}

/// p99 and p99.9 as a part of those without hedging, and the share of hedges; medians over the seeds.
fn tail(shape: Shape, share_per_mille: u32) -> [f64; 3] {
    let mut figures = [Vec::new(), Vec::new(), Vec::new()];
    for seed in 1..=SEEDS {
        let calls = shape.calls(seed, WARM_UP + CALLS);
        let run = hedged(&calls, share_per_mille);
        let mut with = run.took[WARM_UP..].to_vec();
        let mut without: Vec<f64> = calls[WARM_UP..].iter().map(|call| call.first).collect();
        for (figure, q) in figures.iter_mut().zip([0.99, 0.999]) {
            figure.push(quantile(&mut with, q) / quantile(&mut without, q));
        }
        figures[2].push(share(&run.doubled));
    }
    figures.map(median)
}

/// The worst p99 beside the best fixed delay at the same share, and the worst share beside the budget.
fn shapes(share_per_mille: u32) -> (f64, f64) {
    let (mut worst, mut over) = (0.0_f64, 0.0_f64);
    for (number, sigma) in [0.2, 0.3, 0.4, 0.5].into_iter().enumerate() {
        for (slow, by, drift) in
            [(0.005, 30.0, 1.0), (0.01, 10.0, 1.5), (0.02, 3.0, 1.0), (0.03, 5.0, 2.0), (0.05, 10.0, 1.0)]
        {
            let shape = Shape { sigma, slow, by, drift, ..PLAIN };
            let calls = shape.calls(number as u64 + 11, WARM_UP + CALLS);
            let run = hedged(&calls, share_per_mille);
            let calls = &calls[WARM_UP..];
            let sent = share(&run.doubled[WARM_UP..]);
            let mut firsts: Vec<f64> = calls.iter().map(|call| call.first).collect();
            let delay = quantile(&mut firsts, 1.0 - sent);
            let ratio =
                quantile(&mut run.took[WARM_UP..].to_vec(), 0.99) / quantile(&mut fixed(calls, delay), 0.99);
            worst = worst.max(ratio);
            over = over.max(share(&run.doubled) * 1000.0 / f64::from(share_per_mille));
        }
    }
    (worst, over)
}

/// The slowest of twenty at once: p75, p90, p99 as parts of those without.
fn fan_out() -> [f64; 3] {
    let shape = Shape { together: 20, ..PLAIN };
    let mut figures = [Vec::new(), Vec::new(), Vec::new()];
    for seed in 1..=SEEDS {
        let calls = shape.calls(seed, WARM_UP + CALLS);
        let run = hedged(&calls, 50);
        let slowest = |took: &[f64]| -> Vec<f64> {
            took.chunks(20).map(|chunk| chunk.iter().copied().fold(0.0, f64::max)).collect()
        };
        let mut with = slowest(&run.took[WARM_UP..]);
        let firsts: Vec<f64> = calls[WARM_UP..].iter().map(|call| call.first).collect();
        let mut without = slowest(&firsts);
        for (figure, q) in figures.iter_mut().zip([0.75, 0.9, 0.99]) {
            figure.push(quantile(&mut with, q) / quantile(&mut without, q));
        }
    }
    figures.map(median)
}

/// From one call on everybody is five times slower: the share of hedges in the minute from then on, p99
/// beside that without, and the share and its wins after that; the worst of the seeds.
fn slowdown() -> [f64; 4] {
    let from = 40_000;
    let shape = Shape { step: Some((from, 5.0)), ..PLAIN };
    let mut worst = [0.0_f64, 0.0, 0.0, 1.0];
    for seed in 1..=SEEDS {
        let calls = shape.calls(seed, from * 3);
        let run = hedged(&calls, 50);
        let minute = calls.iter().position(|call| call.at > calls[from].at + 60.0).unwrap_or(calls.len());
        let mut without: Vec<f64> = calls[from..].iter().map(|call| call.first).collect();
        let mut with = run.took[from..].to_vec();
        worst[0] = worst[0].max(share(&run.doubled[from..minute]));
        worst[1] = worst[1].max(quantile(&mut with, 0.99) / quantile(&mut without, 0.99));
        worst[2] = worst[2].max(share(&run.doubled[minute..]));
        let won = run.won[minute..].iter().filter(|won| **won).count() as f64;
        let sent = run.doubled[minute..].iter().filter(|doubled| **doubled).count() as f64;
        worst[3] = worst[3].min(won / sent.max(1.0));
    }
    worst
}

fn main() {
    let [p99, p999, share] = tail(PLAIN, 50);
    let [p99_3, _, share_3] = tail(PLAIN, 30);
    let by_budget = [10, 30, 50, 100].map(shapes);
    let worst = by_budget.iter().map(|(worst, _)| *worst).fold(0.0, f64::max);
    let of_budget = by_budget.iter().map(|(_, of_budget)| *of_budget).fold(0.0, f64::max);
    let [fan_75, fan_90, fan_99] = fan_out();
    let [minute, slow_p99, _, wins] = slowdown();
    println!(
        "{{\"p99_ratio\":{p99:.4},\"p999_ratio\":{p999:.4},\"share\":{share:.4},\"p99_at_3\":{p99_3:.4},\"share_at_3\":{share_3:.4},\
         \"shapes\":{worst:.3},\"of_budget\":{of_budget:.4},\"fan_p75\":{fan_75:.4},\"fan_p90\":{fan_90:.4},\"fan_p99\":{fan_99:.4},\
         \"slow_share\":{minute:.4},\"slow_p99\":{slow_p99:.4},\"slow_losses\":{:.4}}}",
        1.0 - wins
    );
}
