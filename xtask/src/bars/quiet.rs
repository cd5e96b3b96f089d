//! Waits for the machine to be left alone. Before a round, never within one: all its arms then meet
//! what comes.

use std::time::Duration;

use anyhow::{Context, Result};

/// Busy below this share of all CPUs counts as quiet.
const BUSY_MAX: f64 = 0.08;
/// How long one look takes.
const LOOK: Duration = Duration::from_millis(300);

/// Waits until the machine is quiet, at most so long; whether it was.
///
/// # Errors
/// When the kernel's counts cannot be read.
pub(super) fn wait(at_most: Duration) -> Result<bool> {
    let mut looks = at_most.as_millis() / LOOK.as_millis();
    loop {
        if busy(LOOK)? <= BUSY_MAX {
            return Ok(true);
        }
        if looks == 0 {
            return Ok(false);
        }
        looks -= 1;
    }
}

/// The share of all CPUs that worked over that time.
fn busy(time: Duration) -> Result<f64> {
    let (busy, all) = ticks()?;
    std::thread::sleep(time);
    let (busy_now, all_now) = ticks()?;
    Ok((busy_now - busy) / (all_now - all).max(1.0))
}

/// Ticks that all CPUs have worked, and all ticks.
fn ticks() -> Result<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal
    let ticks: Vec<f64> = line.split_whitespace().skip(1).take(8).filter_map(|f| f.parse().ok()).collect();
    let all: f64 = ticks.iter().sum();
    Ok((all - ticks.iter().skip(3).take(2).sum::<f64>(), all))
}
