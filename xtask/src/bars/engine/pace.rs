//! Does the pace of readers hold, whatever arrives?
//!
//! For each target of the gap between two tokens, prompt length and number of streams: the streams are read
//! while the prompt is computed. The target can be kept where a step of one row for each stream and a few rows
//! of the prompt takes less at that depth; where it cannot, nobody is judged. What such a step takes the kernels
//! say themselves, without the engine (`step_time`).
//!
//! Invariant: all 27 cases are measured and said, those that can be kept in several rounds; the figure is the
//! worst of their medians.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::judge::{Arm, Round};
use super::super::rig::Launcher;
use super::super::{Plan, measure, natively};
use super::hear;
use super::rig::Stage;
use super::table::MEDIUM;
use crate::process;

/// The gap that a reader should see at most, ms.
const TARGETS_MS: [f64; 3] = [100.0, 200.0, 400.0];
/// Letters of the prompt that arrives.
const PROMPTS: [u32; 3] = [1024, 4096, 8192];
const STREAMS: [u32; 3] = [1, 4, 8];
/// Rows of a prompt that go into any step.
const ROWS: &str = "16";
/// A target is promised from so many such steps on.
const STEPS: f64 = 1.3;
/// Most rounds: one takes four minutes, and the first, with all cases, ten.
const ROUNDS_MAX: usize = 3;

/// One case.
struct Case {
    target_ms: f64,
    prompt: u32,
    streams: u32,
    step_ms: f64,
    /// One of each round.
    p99_ms: Vec<f64>,
}

impl Case {
    fn can_be_kept(&self) -> bool {
        self.target_ms >= STEPS * self.step_ms
    }

    /// The median over the rounds, as a part of the target.
    fn ratio(&self) -> f64 {
        let mut p99_ms = self.p99_ms.clone();
        p99_ms.sort_unstable_by(f64::total_cmp);
        p99_ms.get(p99_ms.len() / 2).map_or(f64::NAN, |ms| ms / self.target_ms)
    }
}

/// All cases, whatever the plan says: they are 27. Their rounds make one.
///
/// # Errors
/// When a process does not come up, or the client fails.
pub(in super::super) fn rounds(name: &str, plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    measure::wait_for_quiet(plan)?;
    let stage = Stage::new(launcher, MEDIUM)?;
    let mut cases = cases(&stage)?;
    for round in 0..plan.rounds.min(ROUNDS_MAX) {
        for case in cases.iter_mut().filter(|case| round == 0 || case.can_be_kept()) {
            case.p99_ms.push(p99_ms(&stage, case)?);
            println!("{name}: {}", line(case));
        }
    }
    let worst = cases.iter().filter(|case| case.can_be_kept()).map(Case::ratio).fold(0.0, f64::max);
    let report = json!({ "worst": worst, "cases": cases.iter().map(line).collect::<Vec<_>>() });
    Ok(vec![Round::from([(Arm::Ours, report)])])
}

/// Every case, with what the kernels take for its step.
fn cases(stage: &Stage<'_>) -> Result<Vec<Case>> {
    let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut command = process::cargo(&["run", "--quiet", "--release", "--package", "firsttoken-engine"]);
    natively(command.args(["--features", "kernels", "--example", "step_time"])).arg("--");
    command.arg(stage.model()).args([list(&PROMPTS), list(&STREAMS), ROWS.to_owned()]);
    let report: Value = serde_json::from_str(&process::output(&mut command)?)?;
    let mut cases = Vec::new();
    for step in report["steps"].as_array().context("step_time names no steps")? {
        let number = |name: &str| u32::try_from(step[name].as_u64()?).ok();
        for target_ms in TARGETS_MS {
            cases.push(Case {
                target_ms,
                prompt: number("depth").context("a step has a depth")?,
                streams: number("streams").context("a step has streams")?,
                step_ms: step["ms"].as_f64().context("a step takes time")?,
                p99_ms: Vec::new(),
            });
        }
    }
    Ok(cases)
}

/// The gaps of the streams while the prompt is computed, p99.
fn p99_ms(stage: &Stage<'_>, case: &Case) -> Result<f64> {
    let server = stage.configured(&format!("itl_target_ms = {}\n", case.target_ms))?;
    let phases = [
        format!("streams:beside,count={},own=32,out=4000", case.streams),
        format!("prompt:together,own={}", case.prompt),
    ];
    let report = hear(stage, &server, &[&phases[0], &phases[1]], 1)?;
    let us = report["phases"]["streams"]["itl_us"]["p99"].as_f64();
    Ok(us.context("the streams said nothing")? / 1000.0)
}

fn line(case: &Case) -> String {
    let Case { target_ms, prompt, streams, step_ms, p99_ms } = case;
    let shown: Vec<String> = p99_ms.iter().map(|ms| format!("{ms:.0}")).collect();
    let mut line = format!(
        "target {target_ms:.0} ms, prompt {prompt}, {streams} streams: ITL p99 {} ms, {:.2} of it",
        shown.join(", "),
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
        let p99_ms = vec![150.0, 500.0, 120.0];
        let case =
            |target_ms| Case { target_ms, prompt: 1024, streams: 4, step_ms: 90.0, p99_ms: p99_ms.clone() };
        assert!(!case(100.0).can_be_kept() && case(200.0).can_be_kept());
        assert!(line(&case(100.0)).ends_with("120 ms, 1.50 of it (not judged: a step takes 90 ms)"));
        assert!(line(&case(200.0)).ends_with("0.75 of it"));
    }
}
