//! `cargo xtask test`: everything that CI checks, in the order in which mistakes are cheapest to find.
//!
//! A step that fails does not stop the others, save for the set-up: one run tells everything that is
//! wrong. The last lines repeat the closing line of every test runner and then add them up.
//!
//! Invariant: a step whose tests did not run has failed.

use std::process::Command;

use anyhow::{Result, bail};

use crate::stopwatch::Stopwatch;
use crate::{clients, process, system};

mod closing;

use closing::Counts;

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these steps: setup, fmt, clippy, unit, doc, deny, clients
    steps: Vec<String>,
}

/// What checks licences, duplicates and sources of dependencies.
const CARGO_DENY: &str = "cargo-deny@0.20.2";

/// One step: its name and what it does.
struct Step {
    name: &'static str,
    run: fn(&mut Run) -> Result<()>,
}

const STEPS: [Step; 7] = [
    Step { name: "setup", run: |_| setup() },
    Step { name: "fmt", run: |run| run.check(&mut process::cargo(&["fmt", "--all", "--check"])) },
    Step { name: "clippy", run: clippy },
    Step { name: "unit", run: unit },
    Step { name: "doc", run: doc },
    Step { name: "deny", run: deny },
    Step { name: "clients", run: clients },
];

/// What a run has seen so far.
#[derive(Default)]
struct Run {
    counts: Counts,
    closing_lines: Vec<String>,
}

impl Run {
    /// Runs a check that passes or fails as a whole.
    fn check(&mut self, command: &mut Command) -> Result<()> {
        process::run(command)?;
        self.counts.passed += 1;
        Ok(())
    }

    /// Runs a test runner, watching for its closing lines; returns what it counted.
    fn tests(&mut self, command: &mut Command) -> Result<Counts> {
        let mut counted = Counts::default();
        let status = process::watch(command, |line| {
            if let Some(counts) = closing::read(line) {
                counted += counts;
                if counts != Counts::default() {
                    self.closing_lines.push(line.to_owned());
                }
            }
        })?;
        self.counts += counted;
        if !status.success() && counted.failed == 0 {
            bail!("`{}` failed: {status}", process::line(command));
        }
        Ok(counted)
    }
}

/// Runs the chosen steps and reports.
///
/// # Errors
/// When a step is unknown, or anything failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(unknown) = options.steps.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        let known = STEPS.map(|step| step.name).join(", ");
        bail!("there is no step `{unknown}`\nhint: the steps are {known}");
    }
    let chosen =
        |step: &&Step| options.steps.is_empty() || options.steps.iter().any(|name| name == step.name);
    let mut run = Run::default();
    let mut report = Vec::new();
    for step in STEPS.iter().filter(chosen) {
        println!("\n── {} ──", step.name);
        let clock = Stopwatch::start();
        let failed_before = run.counts.failed;
        let outcome = (step.run)(&mut run);
        if let Err(error) = &outcome {
            eprintln!("error: {error:#}");
            run.counts.failed += 1;
        }
        let word = if run.counts.failed == failed_before { "ok" } else { "FAILED" };
        report.push(format!("{:<8} {word:<6} {:>7.1} s", step.name, clock.seconds()));
        if outcome.is_err() && step.name == "setup" {
            break;
        }
    }
    println!("\n── summary ──");
    for line in report.iter().chain(&run.closing_lines) {
        println!("{line}");
    }
    println!("{} passed, {} failed", run.counts.passed, run.counts.failed);
    if run.counts.failed > 0 {
        bail!("something failed; its output is above");
    }
    Ok(())
}

/// System packages and cargo-deny, by name, only what is missing.
fn setup() -> Result<()> {
    let for_tests = [&system::NGINX, &system::PYTHON, &system::PYTHON_VENV, &system::NODE, &system::NPM];
    system::ensure(&[&system::COMPILERS[..], &for_tests].concat())?;
    if process::output(&mut process::cargo(&["deny", "--version"])).is_err() {
        println!("installing {CARGO_DENY} with cargo install (two to three minutes)");
        process::run(&mut process::cargo(&["install", "--locked", CARGO_DENY]))?;
    }
    Ok(())
}

fn clippy(run: &mut Run) -> Result<()> {
    let args = ["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run.check(&mut process::cargo(&args))
}

fn unit(run: &mut Run) -> Result<()> {
    let has_nextest = process::output(&mut process::cargo(&["nextest", "--version"])).is_ok();
    let args: &[&str] = if has_nextest {
        &["nextest", "run", "--release", "--workspace"]
    } else {
        &["test", "--release", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]
    };
    let counted = run.tests(&mut process::cargo(args))?;
    at_least_one(counted)
}

/// Examples in documentation; there may be none. Documentation must also render without a warning.
fn doc(run: &mut Run) -> Result<()> {
    run.tests(&mut process::cargo(&["test", "--release", "--workspace", "--doc"]))?;
    let mut rustdoc = process::cargo(&["doc", "--release", "--workspace", "--no-deps"]);
    run.check(rustdoc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Licences, duplicates and sources of dependencies. The advisory database is not asked: it must be
/// fetched, and what it says changes without a commit of ours.
fn deny(run: &mut Run) -> Result<()> {
    run.check(&mut process::cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"]))
}

/// The official SDKs against the real binary.
fn clients(run: &mut Run) -> Result<()> {
    let stack = clients::Stack::start()?;
    for mut suite in clients::suites(&stack)? {
        let counted = run.tests(&mut suite)?;
        at_least_one(counted)?;
    }
    Ok(())
}

fn at_least_one(counts: Counts) -> Result<()> {
    if counts.passed + counts.failed == 0 {
        bail!("the runner ended without running a test");
    }
    Ok(())
}
