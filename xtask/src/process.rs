//! Running other programs: where the workspace is, how a command is started, and what is said when
//! it fails.
//!
//! Invariant: a command that fails is named in full in the error, so that it can be pasted and tried.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// How the names of variables start with which cargo describes the package that it runs.
const OURS: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Where cargo builds: `target`, or what `CARGO_TARGET_DIR` says.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The product's binary in the one profile that everything here shares.
pub(crate) fn firsttoken() -> PathBuf {
    target().join("release/firsttoken")
}

/// A command that runs in the root of the workspace.
pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(program: S, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// The cargo that runs us, with `args`, as it would run from a shell: what cargo told us about our own
/// package would make it build again what depends on such variables (ring does).
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut cargo = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OURS.iter().any(|start| name.starts_with(start))) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Where `program` is, looked up in `PATH` and where Debian keeps what root runs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Runs a command to its end with our own terminal.
///
/// # Errors
/// When it cannot be started or does not end with 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Runs a command to its end and returns what it wrote to stdout.
///
/// # Errors
/// When it cannot be started or does not end with 0; what it wrote to stderr is in the message.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command to its end; both of its outputs go to our stdout line by line, as they come, and
/// each line past `on_line`.
///
/// # Errors
/// When it cannot be started or our own output is closed. A bad end is the caller's to judge.
pub(crate) fn watch(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<ExitStatus> {
    let line = line(command);
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start `{line}`"))?;
    // Our copies of the pipe's writing end must go, or its end would never be seen.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes)? > 0 {
        std::io::stdout().write_all(&bytes)?;
        on_line(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
    Ok(child.wait()?)
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
