//! The engine beside llama.cpp's own server: same model file, same threads, same client, HTTP and SSE on
//! both.
//!
//! - [`table`]: what is asked of them, and the bars
//! - [`rig`]: the processes
//! - [`disk`], [`overload`], [`relayed`], [`pace`], [`leave`]: scenarios that are more than phases
//!
//! Whoever has its turn has the machine: a fresh process, with a cache as empty as its neighbour's, that
//! ends with the turn. Only where a scenario is about a cache that is full does ours live on.
//!
//! Invariant: both sides hear the same phases with the same prompts, and a failed request is said.

pub(super) mod disk;
pub(super) mod leave;
pub(super) mod overload;
pub(super) mod pace;
pub(super) mod relayed;
mod rig;
pub(super) mod table;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Plan;
use super::judge::{Arm, Round};
use super::measure;
use super::rig::Launcher;
use rig::{Server, Stage};
use table::Engine;

pub(super) use rig::version;

/// Touches every weight once, before anything counts.
const WARM_UP: &str = "warm-up:together,own=16,out=8";
/// Seed of the prompts that fill a cache; those of the rounds are their numbers.
const SEED_FILL: u64 = 1_000_000;

/// All rounds of one scenario.
///
/// # Errors
/// When a process does not come up, or the client fails.
pub(super) fn rounds(name: &str, engine: &Engine, plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    let stage = Stage::new(launcher, engine.model)?.with_draft(engine.draft)?.with_keys(engine.keys);
    let arms: Vec<Arm> =
        engine.arms.iter().copied().filter(|arm| !plan.peer_only || *arm != Arm::Ours).collect();
    let kept = if engine.fill.is_empty() || plan.peer_only {
        None
    } else {
        println!("{name}: filling the cache");
        let server = stage.server(Arm::Ours)?;
        hear(&stage, &server, engine.fill, SEED_FILL)?;
        Some(server)
    };
    measure::in_rotation(name, plan, &arms, |arm, number| {
        let who = if arm == Arm::Again { engine.again() } else { arm };
        let fresh = match &kept {
            Some(_) if arm == Arm::Ours => None,
            _ => Some(stage.server(who)?),
        };
        let server = fresh.as_ref().or(kept.as_ref()).context("a server was just started")?;
        let mut report = hear(&stage, server, engine.phases, number as u64 + 1)?;
        report["later_of_first"] = json!(later_of_first(&report));
        report["draft"] = drafted(server);
        Ok(report)
    })
}

/// What the client heard in these phases, after the weights were touched.
fn hear(stage: &Stage<'_>, server: &Server, phases: &[&str], seed: u64) -> Result<Value> {
    let words: Vec<&str> = [WARM_UP].iter().chain(phases).flat_map(|phase| ["--phase", *phase]).collect();
    let report = stage.client(server).with(&["--seed", &seed.to_string()]).with(&words).report()?;
    let errors = report["errors"].as_object().into_iter().flatten();
    for (error, count) in errors {
        println!("    {count} × {error}");
    }
    Ok(report)
}

/// How the guesses of a draft have fared, of which the engine says how many there were.
fn drafted(server: &Server) -> Value {
    let counted = |name: &str| server.counted(&format!("firsttoken_engine_{name}_total"));
    let wrong = || Some(counted("draft_tokens")? - counted("draft_accepted_tokens")?);
    let of = |all: &str| Some(wrong()? / counted(all).filter(|all| *all > 0.0)?);
    json!({ "wrong_of_guesses": of("draft_tokens"), "wrong_of_rows": of("rows") })
}

/// Borrowed, as [`hear`] takes them.
fn shown(phases: &[String]) -> Vec<&str> {
    phases.iter().map(String::as_str).collect()
}

/// TTFT of the phase `later`, p50, as a part of the phase `first`; `None` where there are no such two.
fn later_of_first(report: &Value) -> Option<f64> {
    let p50 = |phase: &str| report["phases"][phase]["ttft_us"]["p50"].as_f64();
    Some(p50("later")? / p50("first").filter(|us| *us > 0.0)?)
}
