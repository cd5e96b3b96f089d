//! Installs the SDKs that the suites use, at the versions that their lock files pin.
//!
//! Node looks for packages beside the importing file, so its suite is copied next to them.
//!
//! Invariant: what is installed is what the lock file says; a changed lock file installs anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// Longest that one file of tests may take in Node, in milliseconds; the SDKs give up long before.
const NODE_TEST_MS_MAX: &str = "--test-timeout=300000";

/// Where the suites are written.
fn sources() -> PathBuf {
    process::root().join("tests/clients")
}

/// Where they are installed.
fn installed() -> PathBuf {
    process::target().join("clients")
}

/// The command that runs a Python suite: `python`, the SDKs, or `frameworks`, what is built on them.
///
/// # Errors
/// When its packages cannot be installed.
pub(super) fn python(suite: &str) -> Result<Command> {
    let venv = installed().join(suite);
    let requirements = sources().join(suite).join("requirements.txt");
    once(&requirements, &venv, || {
        let venv = venv.to_string_lossy();
        process::run(&mut process::command("python3", &["-m", "venv", "--clear", &venv]))?;
        let pip = format!("{venv}/bin/pip");
        let requirements = requirements.to_string_lossy();
        process::run(&mut process::command(pip, &["install", "--quiet", "--requirement", &requirements]))
    })?;
    let mut pytest = Command::new(venv.join("bin/pytest"));
    pytest.args(["-p", "no:cacheprovider"]).arg(sources().join(suite));
    // All of them know the stack by the module that lies with the SDKs.
    pytest.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", sources().join("python"));
    pytest.current_dir(process::root());
    Ok(pytest)
}

/// The command that runs the Node suite.
///
/// # Errors
/// When its packages cannot be installed.
pub(super) fn node() -> Result<Command> {
    let there = installed().join("node");
    copy_files(&sources().join("node"), &there)?;
    copy_files(&sources(), &installed())?;
    node_tests(there)
}

/// The command that runs the suite of the AI SDK's client, of one release.
///
/// # Errors
/// When its packages cannot be installed.
pub(super) fn ui(release: &str) -> Result<Command> {
    let (suite, there) = (sources().join("ui"), installed().join("ui").join(release));
    copy_files(&suite.join(release), &there)?;
    copy_files(&suite, &there)?;
    node_tests(there)
}

/// Installs the packages of a folder; the command that runs its tests.
fn node_tests(folder: PathBuf) -> Result<Command> {
    once(&folder.join("package-lock.json"), &folder, || {
        let mut npm =
            process::command("npm", &["ci", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error"]);
        process::run(npm.current_dir(&folder))
    })?;
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec", NODE_TEST_MS_MAX]).current_dir(folder);
    Ok(node)
}

/// Runs `install` unless the same `lock` was installed in `folder` before.
fn once(lock: &Path, folder: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let wanted = std::fs::read(lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let stamp = folder.join("installed.lock");
    if std::fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("installing the packages of {}", lock.display());
    install()?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Copies the files of one folder, not its folders.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
