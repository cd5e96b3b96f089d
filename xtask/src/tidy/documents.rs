//! Documents that stay true: links lead to files, commands exist, the architecture stays readable.
//!
//! Invariant: only what can be checked without the network and without a build is checked here; that
//! README's `firsttoken …` commands exist is checked by the real-client tests, on the real binary.

use clap::CommandFactory;

use super::Text;
use crate::Cli;

/// Longest ARCHITECTURE.md.
const ARCHITECTURE_LINES_MAX: usize = 250;

/// What must be there.
const REQUIRED: [&str; 7] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "deny.toml",
];

/// Every document that has become untrue.
pub(super) fn check(files: &[Text]) -> Vec<String> {
    let there = |path: &str| files.iter().any(|file| file.path == path);
    let missing = REQUIRED.iter().filter(|path| !there(path));
    let mut findings: Vec<_> = missing.map(|path| format!("{path}: missing")).collect();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        findings.extend(dead_links(file, &crate::process::root()));
        findings.extend(unknown_commands(file));
        let lines = file.text.lines().count();
        if file.path == "ARCHITECTURE.md" && lines > ARCHITECTURE_LINES_MAX {
            findings.push(format!("{}: {lines} lines, at most {ARCHITECTURE_LINES_MAX}", file.path));
        }
    }
    findings
}

/// Links to files that are not there.
fn dead_links(file: &Text, root: &std::path::Path) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            let folder = root.join(&file.path).parent().map(std::path::Path::to_path_buf).unwrap_or_default();
            if !target.is_empty() && !elsewhere && !folder.join(target).exists() {
                findings.push(format!("{}:{number}: links to {target}, which does not exist", file.path));
            }
        }
    }
    findings
}

/// `cargo xtask VERB` with a verb that we do not have.
fn unknown_commands(file: &Text) -> Vec<String> {
    let cli = Cli::command();
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        for rest in line.split("cargo xtask ").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
            let verb = &rest[..end];
            if !verb.is_empty() && cli.find_subcommand(verb).is_none() {
                findings.push(format!("{}:{number}: `cargo xtask {verb}` does not exist", file.path));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{Text, dead_links, unknown_commands};

    fn document(text: &str) -> Text {
        Text { path: "README.md".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn links_lead_somewhere() {
        let root = crate::process::root();
        let links = "[a](xtask/Cargo.toml#top) [b](https://example.com/x) [c](#here)\n[d](no/such/file.md)";
        assert_eq!(
            dead_links(&document(links), &root),
            ["README.md:2: links to no/such/file.md, which does not exist"]
        );
    }

    #[test]
    fn commands_exist() {
        let text = "`cargo xtask run` then\n    cargo xtask fly --high";
        assert_eq!(unknown_commands(&document(text)), ["README.md:2: `cargo xtask fly` does not exist"]);
    }
}
