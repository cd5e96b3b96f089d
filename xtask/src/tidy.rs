//! What the house checks about itself: rules that no compiler and no linter knows.
//!
//! - [`layering`]: which crate may import which
//! - [`sources`]: sizes, names and heads of files
//! - [`documents`]: links, commands, lengths
//! - [`private`]: nothing of one machine in what is shared
//!
//! `cargo xtask tidy` prints every finding; the same check is a test, so that green here is green in CI.
//!
//! Invariant: every finding says where, what is wrong, and what to do.

use anyhow::{Result, bail};

use crate::process;

mod documents;
mod layering;
mod private;
mod sources;

/// A text file that is tracked, or would be with the next `git add`.
struct Text {
    /// Path from the root of the workspace, with `/`.
    path: String,
    text: String,
}

/// Checks everything and prints what was found.
///
/// # Errors
/// When there is a finding, or the check itself could not be made.
pub(crate) fn run() -> Result<()> {
    let findings = findings()?;
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} finding(s)", findings.len());
    }
    println!("tidy: nothing found");
    Ok(())
}

fn findings() -> Result<Vec<String>> {
    let files = files()?;
    let mut findings = layering::check(&layering::crates()?);
    findings.extend(sources::check(&files));
    findings.extend(documents::check(&files));
    findings.extend(private::check(&files));
    Ok(findings)
}

/// Every text file that git tracks or would track. Files that are no UTF-8 are nobody's text.
fn files() -> Result<Vec<Text>> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = process::output(&mut process::command("git", &args))?;
    let read = |path: &str| {
        let text = std::fs::read_to_string(process::root().join(path)).ok()?;
        Some(Text { path: path.to_owned(), text })
    };
    Ok(names.split_terminator('\0').filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_house_is_tidy() {
        let findings = super::findings().expect("tidy can look at the workspace");
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}
