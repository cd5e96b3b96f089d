//! `cargo xtask run`: from a clone to a listening gateway.
//!
//! With no provider to talk to it asks for the simulated one, so that the first command of the README
//! always ends in an answer; `serve` itself says that such answers are simulated.
//!
//! Invariant: the gateway replaces this process, so that signals reach it and its status is ours.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::{process, system};

/// Environment variables of which one is enough to have a provider.
const PROVIDER_KEYS: [&str; 2] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];

/// Builds and becomes `firsttoken serve ARGS`.
///
/// # Errors
/// When something to build with is missing, or the build fails.
pub(crate) fn run(args: &[String]) -> Result<()> {
    system::ensure(&system::COMPILERS)?;
    process::run(&mut process::cargo(&["build", "--release", "--package", "firsttoken"]))?;
    let has_provider = PROVIDER_KEYS.iter().any(|key| std::env::var_os(key).is_some_and(|v| !v.is_empty()))
        || std::path::Path::new("firsttoken.toml").exists();
    let mut serve = std::process::Command::new(process::firsttoken());
    serve.arg("serve").args(args);
    if needs_sim(args, has_provider) {
        serve.arg("--sim");
    }
    Err(serve.exec()).context("cannot start the gateway that was just built")
}

/// Whether nothing says where answers shall come from.
fn needs_sim(args: &[String], has_provider: bool) -> bool {
    let says = |flag: &str| args.iter().any(|arg| arg == flag || arg.starts_with(&format!("{flag}=")));
    !has_provider && !says("--config") && !says("--sim") && !says("--help")
}

#[cfg(test)]
mod tests {
    use super::needs_sim;

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn sim_only_when_nothing_else_answers() {
        assert!(needs_sim(&args(""), false));
        assert!(needs_sim(&args("--listen 127.0.0.1:9000"), false));
        assert!(!needs_sim(&args(""), true));
        assert!(!needs_sim(&args("--config my.toml"), false));
        assert!(!needs_sim(&args("--config=my.toml"), false));
        assert!(!needs_sim(&args("--sim"), false));
    }
}
