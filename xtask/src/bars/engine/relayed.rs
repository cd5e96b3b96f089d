//! Streams that are relayed from elsewhere, while the engine of the same process has all it can do: its
//! threads must not keep the gateway's from the CPU.
//!
//! Invariant: both times the same process is asked, first with its engine idle.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::judge::{Arm, Round};
use super::super::rig::Launcher;
use super::super::{Plan, measure};
use super::rig::{Server, Stage};
use super::table::MEDIUM;

/// What the engine has to do meanwhile.
const BUSY: &str = "busy:together,count=8,own=1024,out=4000";
/// How long it is given to be in the midst of it.
const IN_THE_MIDST: Duration = Duration::from_secs(2);
/// Streams that are relayed, and how the mock paces them.
const STREAMS: &str = "64";
const SPEC: &str = "ttft20,itl20,n50";
/// Time that counts, s.
const WINDOW_S: f64 = 5.0;

/// All rounds.
///
/// # Errors
/// When a process does not come up, or a client fails.
pub(in super::super) fn rounds(name: &str, plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    let stage = Stage::new(launcher, MEDIUM)?;
    measure::in_rotation(name, plan, &[Arm::Ours], |_, number| {
        // No arm stands before this mock: the gateway is started beside its engine.
        let rig = launcher.rig(&[], &[])?;
        let server = stage.gateway(rig.mock)?;
        let idle = itl_p99_us(&stage, &server, plan)?;
        let busy = stage.client(&server).with(&["--phase", BUSY, "--seed", &number.to_string()]).spawn()?;
        std::thread::sleep(IN_THE_MIDST);
        let beside = itl_p99_us(&stage, &server, plan)?;
        drop(busy);
        Ok(json!({ "itl_p99_ratio": beside / idle, "itl_p99_us": [idle, beside] }))
    })
}

fn itl_p99_us(stage: &Stage<'_>, server: &Server, plan: &Plan) -> Result<f64> {
    let window = (WINDOW_S * plan.scale).to_string();
    let report: Value = stage
        .relayed(server)
        .with(&["--streams", STREAMS, "--spec", SPEC, "--ramp", "1", "--warm-up", "1.5", "--window", &window])
        .report()?;
    report["itl_us"]["p99"].as_f64().context("no token was received")
}
