//! Twice as much work as the peer can do: who gives more good answers?
//!
//! Prompts of three lengths arrive at times of their own, whoever waits. What the peer completes when it
//! never lacks work is the capacity; four times what a prompt of that length takes it alone is what a good
//! answer may take to begin. Both are measured first, and hold for everyone.
//!
//! Invariant: everyone meets the same requests at the same times, and one that is refused is never good.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::judge::{Arm, Round};
use super::super::rig::Launcher;
use super::super::{Plan, measure};
use super::rig::Stage;
use super::table::{MEDIUM, STOCK_AND_TUNED};
use super::{hear, shown};

/// Name, letters of the prompt, how many in a hundred.
const CLASSES: [(&str, u32, u32); 3] = [("short", 128, 60), ("medium", 1024, 30), ("long", 4096, 10)];
/// Tokens of an answer.
const OUT: u32 = 32;
/// How many times the capacity is offered.
const OFFERED: f64 = 2.0;
/// How many times longer than alone a good answer may take to begin.
const PATIENCE: f64 = 4.0;
/// The 99th percentile of its gaps, ms.
const ITL_MS: u32 = 400;
/// For how long requests arrive, s.
const WINDOW_S: f64 = 60.0;
/// What the peer is given at once to find its capacity: so many, within so much time, s.
const BURST: f64 = 30.0;
const BURST_S: f64 = 5.0;

/// What the peer can do.
struct Measure {
    /// Requests a minute.
    capacity: f64,
    /// When a good answer of each class begins at the latest, ms.
    limits_ms: [f64; CLASSES.len()],
}

/// All rounds.
///
/// # Errors
/// When a process does not come up, or the client fails.
pub(in super::super) fn rounds(name: &str, plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    let stage = Stage::new(launcher, MEDIUM)?;
    let measure = measure(&stage)?;
    println!("{name}: the peer completes {:.1} requests a minute", measure.capacity);
    let arms: Vec<Arm> =
        STOCK_AND_TUNED.iter().copied().filter(|arm| !plan.peer_only || *arm != Arm::Ours).collect();
    let seconds = (WINDOW_S * plan.scale).round();
    measure::in_rotation(name, plan, &arms, |arm, number| {
        let server = stage.server(if arm == Arm::Again { Arm::Llama } else { arm })?;
        let phases = arriving(measure.capacity * OFFERED, seconds, Some(&measure.limits_ms));
        let mut report = hear(&stage, &server, &shown(&phases), number as u64 + 1)?;
        judged(&mut report, measure.capacity * seconds / 60.0);
        Ok(report)
    })
}

/// Asks the peer, as it comes, for each class alone and then for more than it can do.
fn measure(stage: &Stage<'_>) -> Result<Measure> {
    let server = stage.server(Arm::Llama)?;
    let alone: Vec<String> = CLASSES
        .iter()
        .map(|(class, letters, _)| format!("alone-{class}:in-turn,count=3,own={letters},out={OUT}"))
        .collect();
    let report = hear(stage, &server, &shown(&alone), 1)?;
    let mut limits_ms = [0.0; CLASSES.len()];
    for (limit, (class, ..)) in limits_ms.iter_mut().zip(CLASSES) {
        let us = report["phases"][format!("alone-{class}")]["ttft_us"]["p50"].as_f64();
        *limit = us.context("the peer did not answer a request that came alone")? / 1000.0 * PATIENCE;
    }
    let burst = arriving(BURST * 60.0 / BURST_S, BURST_S, None);
    let report = hear(stage, &server, &shown(&burst), 2)?;
    let seconds = CLASSES
        .iter()
        .filter_map(|(class, ..)| report["phases"][class]["seconds"].as_f64())
        .fold(0.0, f64::max);
    Ok(Measure { capacity: sum(&report, "requests") * 60.0 / seconds.max(1.0), limits_ms })
}

/// A phase for each class; `rate` a minute of all together.
fn arriving(rate: f64, seconds: f64, limits_ms: Option<&[f64; CLASSES.len()]>) -> Vec<String> {
    let phase = |(at, (class, letters, percent)): (usize, &(&str, u32, u32))| {
        let rate = (rate * f64::from(*percent) / 100.0).round().max(1.0);
        let good = limits_ms.map(|limits| format!(",ttft_ms={:.0},itl_ms={ITL_MS}", limits[at]));
        let good = good.unwrap_or_default();
        format!("{class}:arriving,own={letters},out={OUT},rate={rate},seconds={seconds}{good}")
    };
    CLASSES.iter().enumerate().map(phase).collect()
}

/// Adds the figures that the bars are about; `capacity` is what could have been completed.
fn judged(report: &mut Value, capacity: f64) {
    // No good answer at all counts as half of one.
    let good = sum(report, "good").max(0.5);
    let (refused, again) = (sum(report, "refused"), sum(report, "refused_again"));
    report["capacity"] = json!(capacity);
    report["capacity_of_good"] = json!(capacity / good);
    report["refused_again_of_refused"] = json!(again / refused.max(1.0));
}

fn sum(report: &Value, figure: &str) -> f64 {
    CLASSES.iter().filter_map(|(class, ..)| report["phases"][class][figure].as_f64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_arrives_at_its_share_and_good_answers_are_counted() {
        let phases = arriving(120.0, 60.0, Some(&[100.0, 200.4, 300.0]));
        assert_eq!(phases[1], "medium:arriving,own=1024,out=32,rate=36,seconds=60,ttft_ms=200,itl_ms=400");
        let mut report = json!({ "phases": {
            "short": { "good": 20, "refused": 8, "refused_again": 1 },
            "long": { "good": 5, "refused": 2, "refused_again": 1 },
        } });
        judged(&mut report, 50.0);
        assert_eq!(report["capacity_of_good"], 2.0);
        assert_eq!(report["refused_again_of_refused"], 0.2);
    }
}
