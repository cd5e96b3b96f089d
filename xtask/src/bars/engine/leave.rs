//! Clients that leave by closing their connections: is anything left behind, and do others notice?
//!
//! About 2,000 streams come within a second, most of them to wait. Half of them leave a little later, wherever
//! they are then: decoding, in their prompt, in the queue, or paused because they do not read. When the others
//! have been answered, the engine's books must be empty. Then eight streams are read while others come and
//! leave, fifty a second, and while nobody does.
//!
//! Invariant: what is left behind is read from the engine's own metrics, when it says that nobody is there.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::super::judge::{Arm, Round};
use super::super::rig::Launcher;
use super::super::{Plan, measure};
use super::hear;
use super::rig::{Server, Stage};
use super::table::MEDIUM;

/// Few weights: what is measured are books, not kernels.
const NANO: &[&str] = &["--size", "nano"];
/// So many may wait that nobody is refused.
const CROWDED: &str = "queue_max = 4096\nqueue_seconds_max = 3600\n";
/// 500 + 500 of 2,000 leave; the figures are a minute's.
const CROWD: [&str; 3] = [
    "stayers:arriving,own=64,out=16,rate=60000,seconds=1",
    "readers:arriving,own=400,out=1000,rate=30000,seconds=1,leave_ms=1500",
    "stalled:arriving,own=64,out=1000,rate=30000,seconds=1,stall,leave_ms=1500",
];
/// Eight at work, and nobody else: who comes waits.
const EIGHT: &str = "requests_max = 8\nqueue_max = 4096\nqueue_seconds_max = 3600\n";
const STREAMS: &str = "streams:beside,count=8,own=32,out=3000";
/// Fifty a second, and next to nobody.
const COMING_AND_LEAVING: &str = "others:arriving,own=64,out=64,rate=3000,seconds=8,leave_ms=200";
const NOBODY: &str = "others:arriving,own=64,out=64,rate=8,seconds=8,leave_ms=200";
/// How long the engine may take to say that nobody is there.
const EMPTY: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// All rounds.
///
/// # Errors
/// When a process does not come up, or the client fails.
pub(in super::super) fn rounds(name: &str, plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    measure::in_rotation(name, plan, &[Arm::Ours], |_, number| {
        let stage = Stage::new(launcher, NANO)?;
        let server = stage.configured(CROWDED)?;
        let mut report = hear(&stage, &server, &CROWD, number as u64 + 1)?;
        report["left_behind"] = json!(left_behind(&server)?);
        drop(server);
        let stage = Stage::new(launcher, MEDIUM)?;
        let beside = gap_mean_us(&stage, COMING_AND_LEAVING, number)?;
        let alone = gap_mean_us(&stage, NOBODY, number)?;
        report["others_ratio"] = json!(beside / alone);
        report["others_itl_mean_us"] = json!([alone, beside]);
        Ok(report)
    })
}

/// Time per token of eight streams, others coming and going as that phase says.
fn gap_mean_us(stage: &Stage<'_>, others: &str, number: usize) -> Result<f64> {
    let server = stage.configured(EIGHT)?;
    let report: Value = hear(stage, &server, &[STREAMS, others], number as u64 + 1)?;
    report["phases"]["streams"]["itl_us"]["mean"].as_f64().context("the streams said nothing")
}

/// Requests and cells that the engine still counts when nobody is there any more.
fn left_behind(server: &Server) -> Result<f64> {
    const REQUESTS: [&str; 2] = ["vllm:num_requests_running{", "vllm:num_requests_waiting{"];
    for _ in 0..EMPTY.as_millis() / POLL.as_millis() {
        let metrics = server.get("/metrics")?;
        let requests: f64 = REQUESTS.iter().map(|name| sum(&metrics, name, "")).sum();
        let cells = sum(&metrics, "firsttoken_engine_cells{", "state=\"working\"");
        if requests == 0.0 {
            return Ok(cells);
        }
        std::thread::sleep(POLL);
    }
    bail!("the engine still had requests {EMPTY:?} after the last was answered")
}

/// Of all series of that name and label.
fn sum(metrics: &str, name: &str, label: &str) -> f64 {
    let series = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
    series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_name_and_label() {
        let metrics = "a{state=\"working\"} 3\na{state=\"free\"} 5\na_b{state=\"working\"} 7\n";
        assert_eq!(sum(metrics, "a{", "state=\"working\""), 3.0);
        assert_eq!(sum(metrics, "a{", ""), 8.0);
    }
}
