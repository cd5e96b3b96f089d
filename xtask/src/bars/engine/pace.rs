//! Does the pace of readers hold, whatever arrives?
//!
//! For each target of the gap between two tokens, prompt length and number of streams: the streams are read
//! while the prompt is computed. The target can be kept where a step of one row for each stream and a few rows
//! of the prompt takes less at that depth; where it cannot, nobody is judged. What such a step takes is not
//! asked of the engine: it is the gap in which the streams and the prompt's own answer go on at that depth,
//! and what the prompt took alone for so many of its tokens, less than such few rows really take.
//!
//! Invariant: all 27 cases are measured and said; the figure is the worst of those that can be kept.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::judge::{Arm, Round};
use super::super::rig::Launcher;
use super::super::{Plan, measure};
use super::hear;
use super::rig::Stage;
use super::table::MEDIUM;

/// The gap that a reader should see at most, ms.
const TARGETS_MS: [f64; 3] = [100.0, 200.0, 400.0];
/// Letters of the prompt that arrives.
const PROMPTS: [u32; 3] = [1024, 4096, 8192];
const STREAMS: [u32; 3] = [1, 4, 8];
/// Rows of a prompt that go into any step.
const ROWS: f64 = 16.0;
/// A target is promised from so many such steps on.
const STEPS: f64 = 1.3;
/// Tokens of the prompt's answer, which say what a step takes at that depth.
const OUT: u32 = 32;

/// One case.
struct Case {
    target_ms: f64,
    prompt: u32,
    streams: u32,
    p99_ms: f64,
    step_ms: f64,
}

impl Case {
    fn can_be_kept(&self) -> bool {
        self.target_ms >= STEPS * self.step_ms
    }

    fn ratio(&self) -> f64 {
        self.p99_ms / self.target_ms
    }
}

/// One round of all cases, whatever the plan says: they are 27.
///
/// # Errors
/// When a process does not come up, or the client fails.
pub(in super::super) fn rounds(name: &str, plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    measure::wait_for_quiet(plan)?;
    let stage = Stage::new(launcher, MEDIUM)?;
    let alone = PROMPTS.map(|prompt| row_ms(&stage, prompt));
    let mut cases = Vec::new();
    for (prompt, alone) in PROMPTS.into_iter().zip(alone) {
        let row_ms = alone?;
        for (target_ms, streams) in TARGETS_MS.into_iter().flat_map(|ms| STREAMS.map(|count| (ms, count))) {
            let case = case(&stage, target_ms, prompt, streams, row_ms)?;
            println!("{name}: {}", line(&case));
            cases.push(case);
        }
    }
    let worst = cases.iter().filter(|case| case.can_be_kept()).map(Case::ratio).fold(0.0, f64::max);
    let report = json!({ "worst": worst, "cases": cases.iter().map(line).collect::<Vec<_>>() });
    Ok(vec![Round::from([(Arm::Ours, report)])])
}

/// What a token of a prompt takes that comes alone, ms.
fn row_ms(stage: &Stage<'_>, prompt: u32) -> Result<f64> {
    let server = stage.configured("")?;
    let report = hear(stage, &server, &[&format!("prompt:together,own={prompt}")], 1)?;
    Ok(ms(&report, "prompt", "ttft_us", "p50")? / f64::from(prompt))
}

fn case(stage: &Stage<'_>, target_ms: f64, prompt: u32, streams: u32, row_ms: f64) -> Result<Case> {
    let server = stage.configured(&format!("itl_target_ms = {target_ms}\n"))?;
    let phases = [
        format!("streams:beside,count={streams},own=32,out=4000"),
        format!("prompt:together,own={prompt},out={OUT}"),
    ];
    let report = hear(stage, &server, &[&phases[0], &phases[1]], 1)?;
    Ok(Case {
        target_ms,
        prompt,
        streams,
        p99_ms: ms(&report, "streams", "itl_us", "p99")?,
        step_ms: ms(&report, "prompt", "itl_us", "p50")? + ROWS * row_ms,
    })
}

fn ms(report: &Value, phase: &str, figure: &str, part: &str) -> Result<f64> {
    let us = report["phases"][phase][figure][part].as_f64();
    Ok(us.with_context(|| format!("{phase} said nothing"))? / 1000.0)
}

fn line(case: &Case) -> String {
    let Case { target_ms, prompt, streams, p99_ms, step_ms } = case;
    let mut line = format!(
        "target {target_ms:.0} ms, prompt {prompt}, {streams} streams: ITL p99 {p99_ms:.0} ms, {:.2} of it",
        case.ratio()
    );
    if !case.can_be_kept() {
        // Writing to a string cannot fail.
        let _ = write!(line, " (not judged: a step takes {step_ms:.0} ms)");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_judged_where_it_can_be_kept() {
        let case = |target_ms| Case { target_ms, prompt: 1024, streams: 4, p99_ms: 150.0, step_ms: 90.0 };
        assert!(!case(100.0).can_be_kept() && case(200.0).can_be_kept());
        assert!(line(&case(100.0)).ends_with("1.50 of it (not judged: a step takes 90 ms)"));
        assert!(line(&case(200.0)).ends_with("0.75 of it"));
    }
}
