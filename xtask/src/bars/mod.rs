//! `cargo xtask bars`: what we promise about speed, memory and cancellation, measured beside a peer.
//!
//! - [`table`]: every bar and every scenario, as data
//! - [`rig`]: the processes; [`quiet`]: whether anyone else is at work
//! - [`measure`]: rounds of figures; [`engine`]: those of the engine; [`demo`]: those of the demo model
//! - [`judge`]: from figures to a verdict
//! - [`record`]: what is kept
//!
//! A bar names a scenario, a place in its report and a judge; one scenario may serve several bars and
//! is run once for all of them.

mod demo;
mod engine;
mod judge;
mod measure;
mod quiet;
mod record;
mod rig;
mod table;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{process, system};
use judge::{Arm, Outcome, Round};
use record::{Row, Setting};
use rig::Launcher;
use table::{Bar, Scenario, Side};

/// Rounds unless said otherwise.
const ROUNDS: usize = 7;
/// Fewest rounds whose outcome is recorded: the range of five medians holds the true one in 94 of 100 runs.
const ROUNDS_MIN: usize = 5;
/// Niceness of all that is measured, where we may set it.
const NICE: &str = "-20";

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Bars or scenarios (`ttft-1` means all that begin so), or `all`; none: list them
    names: Vec<String>,
    /// Rounds; fewer than 5 are not recorded
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Two short rounds, for trying; never recorded
    #[arg(long)]
    quick: bool,
    /// Seconds that each round waits for others on this machine to be quiet
    #[arg(long, default_value_t = 20)]
    patience: u64,
    /// Only the peer against itself: how noisy is this machine?
    #[arg(long)]
    peer_only: bool,
    /// Measure this binary instead of ours; never recorded
    #[arg(long)]
    gateway: Option<PathBuf>,
}

/// How a run goes.
struct Plan {
    rounds: usize,
    /// How long each round may wait for a quiet machine.
    patience: Duration,
    /// Multiplies windows and counts.
    scale: f64,
    peer_only: bool,
}

impl Plan {
    /// Who takes turns.
    fn arms(&self) -> Vec<Arm> {
        let all = [Arm::Ours, Arm::Nginx, Arm::Again, Arm::Direct];
        all.into_iter().filter(|arm| !self.peer_only || *arm != Arm::Ours).collect()
    }

    /// Who is measured where nobody needs a turn.
    fn arms_alone(&self) -> Vec<Arm> {
        self.arms().into_iter().filter(|arm| matches!(arm, Arm::Ours | Arm::Nginx)).collect()
    }
}

/// Lists the bars, or runs those that are named.
///
/// # Errors
/// For a name that no bar has, and when something cannot be built, started or measured.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.names.is_empty() {
        return list();
    }
    let wanted = select(&options.names)?;
    let scenarios: Vec<&Scenario> =
        table::scenarios().filter(|s| wanted.iter().any(|b| b.scenario == s.name)).collect();
    let is_about = |side| scenarios.iter().any(|scenario| scenario.load.side() == side);
    if is_about(Side::Gateway) {
        system::ensure(&[&system::NGINX])?;
    }
    build(options, is_about(Side::Gateway), is_about(Side::Engine))?;
    let plan = Plan {
        rounds: if options.quick { 2 } else { options.rounds },
        scale: if options.quick { 0.3 } else { 1.0 },
        peer_only: options.peer_only,
        patience: Duration::from_secs(options.patience),
    };
    let scratch = Scratch::new()?;
    let launcher = Launcher {
        dir: scratch.0.clone(),
        gateway: options.gateway.clone().unwrap_or_else(process::firsttoken),
        engine: options.gateway.clone().unwrap_or_else(|| native().join("release/firsttoken")),
        nice: may_be_nice().then_some(NICE),
    };
    let recorded =
        plan.rounds >= ROUNDS_MIN && options.gateway.is_none() && !options.peer_only && !options.quick;
    for scenario in scenarios {
        let peer = match scenario.load.side() {
            Side::Gateway => record::nginx()?,
            Side::Engine => engine::version()?,
            Side::Alone => "nobody".to_owned(),
        };
        let setting = Setting::here(peer)?;
        let rounds = measure::rounds(scenario, &plan, &launcher)?;
        let bars: Vec<&Bar> = wanted.iter().filter(|b| b.scenario == scenario.name).collect();
        let rows = report(&bars, &rounds, &setting);
        if recorded {
            record::raw(scenario.name, &rounds, &setting)?;
            record::keep(rows)?;
        }
    }
    if !recorded {
        println!("nothing was recorded: that takes {ROUNDS_MIN} full rounds of our own binary");
    }
    Ok(())
}

/// Whether we may raise the priority: `nice` goes on without when it may not, so its outcome is asked.
fn may_be_nice() -> bool {
    let niceness = process::output(&mut process::command("nice", &["-n", NICE, "nice"]));
    niceness.is_ok_and(|text| text.trim() == NICE)
}

/// Builds who measures and who is measured.
fn build(options: &Options, gateways: bool, engines: bool) -> Result<()> {
    let build = |packages: &[&str]| {
        let packages = packages.iter().flat_map(|package| ["--package", package]);
        let args: Vec<&str> = ["build", "--quiet", "--release"].into_iter().chain(packages).collect();
        process::cargo(&args)
    };
    process::run(&mut build(&["firsttoken-harness"]))?;
    let ours = options.gateway.is_none() && !options.peer_only;
    if gateways && ours {
        process::run(&mut build(&["firsttoken"]))?;
    }
    if engines {
        process::run(&mut build(&["firsttoken-synth"]))?;
    }
    if engines && ours {
        println!("building the engine for this very machine, as its peer is; the first time takes minutes");
        process::run(natively(&mut build(&["firsttoken"])))?;
    }
    Ok(())
}

/// Has `cargo` build kernels for this very machine: llama-server's are, and otherwise the race would be about
/// instruction sets.
fn natively(cargo: &mut Command) -> &mut Command {
    cargo.arg("--target-dir").arg(native()).env("RUSTFLAGS", "-C target-cpu=native")
}

/// Where they are then.
fn native() -> PathBuf {
    process::target().join("native")
}

/// The bars that one of the names means.
fn select(names: &[String]) -> Result<Vec<Bar>> {
    let means = |name: &str, bar: &Bar| {
        name == "all" || name == bar.name || name == bar.scenario || bar.name.starts_with(&format!("{name}-"))
    };
    let bars = table::bars();
    if let Some(unknown) = names.iter().find(|name| !bars.iter().any(|bar| means(name, bar))) {
        bail!("there is no bar `{unknown}`\nhint: `cargo xtask bars` lists them");
    }
    Ok(bars.into_iter().filter(|bar| names.iter().any(|name| means(name, bar))).collect())
}

/// Prints every bar with its last verdict.
fn list() -> Result<()> {
    let last = record::last()?;
    for bar in table::bars() {
        match last.iter().find(|row| row.name == bar.name) {
            Some(row) => {
                println!(
                    "{:32} {:12} {}, bar {}, {}",
                    bar.name,
                    row.verdict.to_string(),
                    row.measured(),
                    row.promised(),
                    row.when
                );
            }
            None => println!("{:32} {:12} {}", bar.name, "not run", bar.what),
        }
    }
    Ok(())
}

/// Judges and prints these bars.
fn report(bars: &[&Bar], rounds: &[Round], setting: &Setting) -> Vec<Row> {
    let mut rows = Vec::new();
    for bar in bars {
        let outcome = judge::judge(bar, rounds);
        let row = Row::of(bar, &outcome, setting);
        match &row {
            Some(row) => {
                println!("{}: {}, bar {}: {}", bar.name, row.measured(), row.promised(), row.verdict)
            }
            None => println!("{}: we were not measured", bar.name),
        }
        print_beside(bar, &outcome);
        rows.extend(row);
    }
    rows
}

/// Prints what a reader needs to believe the verdict, or not.
fn print_beside(bar: &Bar, outcome: &Outcome) {
    let arms: Vec<String> =
        outcome.arms.iter().map(|(arm, x)| format!("{} {x:.1}", format!("{arm:?}").to_lowercase())).collect();
    println!("    {} {}", arms.join(" · "), bar.unit);
    if let Some(again) = outcome.again {
        let (low, high) = again.interval;
        println!("    {} against itself {:.3} ({low:.3}–{high:.3})", bar.peer.equal().name(), again.median);
    }
    if let Some(net) = outcome.net {
        println!("    net of direct {net:.2}");
    }
    if let Some(note) = &outcome.note {
        println!("    {note}");
    }
}

/// A folder for configurations and logs that goes when the run has ended well or badly.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("firsttoken-bars-{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: it lies in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
