//! The official SDKs, in Python and Node, against the real binary: the only judges of whether a
//! base-URL swap is all that an application has to change. And the AI SDK's client, in every release
//! that matters, before the streams that we render for it.
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

/// Releases of the AI SDK's client: the first of release 5, which refuses what it does not know, and
/// the newest of each since.
const UI_RELEASES: [&str; 4] = ["5.0.0", "5", "6", "7"];

/// The command of each suite, ready to run against `stack`.
///
/// # Errors
/// When the SDKs cannot be installed.
pub(crate) fn suites(stack: &Stack) -> Result<Vec<Command>> {
    let mut suites = vec![install::python()?, install::node()?];
    for release in UI_RELEASES {
        suites.push(install::ui(release)?);
    }
    for suite in &mut suites {
        suite.envs(stack.environment());
    }
    Ok(suites)
}
