//! The official SDKs, in Python and Node, against the real binary: the only judges of whether a
//! base-URL swap is all that an application has to change.
//!
//! - [`stack`]: sim, gateway and nginx as processes, told to the suites through the environment
//! - [`install`]: the SDKs, pinned, into cargo's target folder
//!
//! Invariant: nothing is installed into or written to the source tree.

use std::process::Command;

use anyhow::Result;

mod install;
mod stack;

pub(crate) use stack::Stack;

/// The command of each suite, ready to run against `stack`.
///
/// # Errors
/// When the SDKs cannot be installed.
pub(crate) fn suites(stack: &Stack) -> Result<[Command; 2]> {
    let mut suites = [install::python()?, install::node()?];
    for suite in &mut suites {
        suite.envs(stack.environment());
    }
    Ok(suites)
}
