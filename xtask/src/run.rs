//! `cargo xtask run`: from a clone to a listening gateway.
//!
//! Where nothing is configured `serve` answers by its demo model, so that the first command of the README
//! always ends in an answer.
//!
//! Invariant: the gateway replaces this process, so that signals reach it and its status is ours.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::{process, system};

/// Builds and becomes `firsttoken serve ARGS`.
///
/// # Errors
/// When something to build with is missing, or the build fails.
pub(crate) fn run(args: &[String]) -> Result<()> {
    system::ensure(&system::COMPILERS)?;
    process::run(&mut process::cargo(&["build", "--release", "--package", "firsttoken"]))?;
    Err(std::process::Command::new(process::firsttoken()).arg("serve").args(args).exec())
        .context("cannot start the gateway that was just built")
}
