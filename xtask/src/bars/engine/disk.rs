//! A system prompt that a process before this one has left on disk, and the page cache has not got: how much
//! sooner does an answer begin than where it is computed?
//!
//! What the page cache holds of the files is dropped file by file (`posix_fadvise`, by way of `dd`), since
//! dropping all of it takes rights that not everybody has, and the weights with it.
//!
//! Invariant: both arms are fresh processes with warm weights, and hear the same prompts.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::super::judge::{Arm, Round};
use super::super::rig::Launcher;
use super::super::{Plan, measure};
use super::hear;
use super::rig::Stage;
use super::table::MEDIUM;
use crate::process;

/// Who takes turns.
const ARMS: [Arm; 3] = [Arm::Ours, Arm::Clean, Arm::Again];
/// What the process before was asked: the same system prompt, with another text behind it.
const BEFORE: [&str; 2] = ["other:together,own=8", "first:together,shared=2048,own=64"];
/// What is asked.
const PHASES: [&str; 1] = ["prompt:together,shared=2048,own=32"];

/// All rounds.
///
/// # Errors
/// When a process does not come up, the client fails, or nothing was left on disk.
pub(in super::super) fn rounds(name: &str, plan: &Plan, launcher: &Launcher) -> Result<Vec<Round>> {
    let stage = Stage::new(launcher, MEDIUM)?;
    measure::in_rotation(name, plan, &ARMS, |arm, number| {
        let seed = number as u64 + 1;
        if arm != Arm::Ours {
            return hear(&stage, &stage.server(Arm::Clean)?, &PHASES, seed);
        }
        let dir = launcher.dir.join(format!("kv-{number}"));
        let before = stage.with_disk(&dir)?;
        hear(&stage, &before, &BEFORE, seed)?;
        drop(before);
        drop_cached(&dir)?;
        hear(&stage, &stage.with_disk(&dir)?, &PHASES, seed)
    })
}

/// Takes the files of `dir` out of the page cache.
fn drop_cached(dir: &Path) -> Result<()> {
    let mut dropped = 0;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "kv") {
            // What is not written yet cannot be dropped.
            process::run(Command::new("sync").arg(&path))?;
            let input = format!("if={}", path.display());
            process::run(Command::new("dd").args([&input, "iflag=nocache", "count=0", "status=none"]))?;
            dropped += 1;
        }
    }
    match dropped {
        0 => bail!("the process before has left no prefix in {}", dir.display()),
        _ => Ok(()),
    }
}
