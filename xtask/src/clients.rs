//! The official SDKs, in Python and Node, against the real binary: the only judges of whether a
//! base-URL swap is all that an application has to change. And what is built on them: frameworks, and the AI
//! SDK, its client and its providers, in every release that matters.
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

/// Releases of the AI SDK: the first of release 5, which refuses what it does not know, and
/// the newest of each since.
const UI_RELEASES: [&str; 4] = ["5.0.0", "5", "6", "7"];

/// The command of each suite, ready to run against `stack`.
///
/// # Errors
/// When the SDKs cannot be installed.
pub(crate) fn suites(stack: &Stack) -> Result<Vec<Command>> {
    let mut suites = vec![install::python("python")?, install::python("frameworks")?, install::node()?];
    for release in UI_RELEASES {
        suites.push(install::ui(release)?);
    }
    for suite in &mut suites {
        suite.envs(stack.environment());
    }
    Ok(suites)
}
