//! What the scheduler takes for a step: 256 requests that decode, in 100,000 blocks of KV memory.
//!
//! A decision is everything that the engine's thread does in the scheduler for one step: the step
//! itself, what it took, and the token of each request. Prints one line of JSON, times in microseconds.
//!
//! Invariant: nothing but the scheduler runs while the clock does, and every step decodes all requests.

#![expect(
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "it measures by the real clock, and reports"
)]

use std::time::{Duration, Instant as Clock};

use firsttoken_logic::engine::blocks::BLOCK;
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::ids::{RequestId, Tenant, Token};
use firsttoken_logic::engine::scheduler::{Limits, Scheduler};
use firsttoken_logic::engine::sequence::{Priority, Request};
use firsttoken_logic::time::Instant;

/// Requests at work.
const REQUESTS: u32 = 256;
/// Blocks of all of them together.
const BLOCKS: u32 = 100_000;
/// Steps that are timed, after as many that are not.
const STEPS: usize = 2_000;

fn main() {
    let prompt_len = BLOCKS / REQUESTS * BLOCK + BLOCK / 2;
    let limits = Limits {
        cells: BLOCKS * BLOCK * 3 / 2,
        ids: 512,
        running_max: REQUESTS,
        rows_max: 8_192,
        wait_max: Duration::from_hours(24),
        ..Limits::default()
    };
    // Attention is free here, or prompts would wait for readers to finish.
    let cost = StepCost::new(Duration::from_millis(4), Duration::from_micros(10), Duration::ZERO);
    let mut scheduler = Scheduler::new(limits, cost);
    for id in 0..REQUESTS {
        let prompt: Vec<Token> = (0..prompt_len).map(|at| id.wrapping_mul(31) ^ at).collect();
        let request = Request {
            id: RequestId(u64::from(id)),
            tenant: Tenant(u64::from(id % 8)),
            prompt,
            output_max: 8_192,
            priority: Priority::Interactive,
            itl_target: None,
            deadline: None,
        };
        scheduler.on_submit(request, Instant::default()).expect("there is room for all");
    }
    let mut took = Vec::new();
    let mut token = 0;
    while took.len() < 2 * STEPS {
        token += 1;
        let (rows, spent) = step(&mut scheduler, token);
        assert_eq!(scheduler.running() + scheduler.waiting(), REQUESTS as usize, "nobody is done yet");
        if rows == REQUESTS {
            took.push(spent);
        }
    }
    let timed = &mut took[STEPS..];
    timed.sort_unstable();
    let us = |place: usize| timed[place].as_secs_f64() * 1e6;
    println!(
        "{{\"decision_us\":{{\"p50\":{:.1},\"p99\":{:.1}}},\"blocks\":{},\"requests\":{}}}",
        us(STEPS / 2),
        us(STEPS * 99 / 100),
        scheduler.pool().blocks().count(),
        scheduler.running(),
    );
}

/// One step: its rows, and what the scheduler took for it.
#[inline(never)]
fn step(scheduler: &mut Scheduler, token: Token) -> (u32, Duration) {
    let begun = Clock::now();
    let step = scheduler.next_step(Instant::default());
    let planned = begun.elapsed();
    let (rows, took) = (step.rows(), scheduler.cost().forecast(step.rows(), step.depth));
    let begun = Clock::now();
    scheduler.on_computed(&step, took);
    for run in step.runs.iter().filter(|run| run.logits > 0) {
        scheduler.on_sampled(run.request, &[token], false, Instant::default());
    }
    (rows, planned + begun.elapsed())
}
