//! `cargo xtask`: all automation of this repository, in Rust, so that it is read, linted and tested
//! like the rest. There is no Makefile and no shell script of more than a few lines.
//!
//! - [`run`]: from a clone to a listening gateway
//! - [`mod@test`]: everything that CI checks
//! - [`tidy`]: what the house checks about itself
//! - [`bars`]: what we promise about speed, measured beside a peer
//! - [`clients`]: the official SDKs against the real binary
//! - [`system`], [`process`]: the machine and its programs
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the terminal is what it works for")]

mod bars;
mod clients;
mod process;
mod run;
mod stopwatch;
mod system;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Automation of this repository")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build and start the gateway; with nothing configured, its demo model answers
    Run {
        /// Passed on to `firsttoken serve`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check everything, installing what that needs
    Test(test::Options),
    /// List what we promise about speed, or measure it beside a peer
    Bars(bars::Options),
    /// Check layering, sizes, bans, documents
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Run { args } => run::run(&args),
        Verb::Test(options) => test::run(&options),
        Verb::Bars(options) => bars::run(&options),
        Verb::Tidy => tidy::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
