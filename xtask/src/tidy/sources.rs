//! Sizes, names and heads of source files.
//!
//! Invariant: a file that is too long has no exception; it gets a second room.

use super::Text;

/// Longest source file.
const LINES_MAX: usize = 800;

/// Module names that say nothing, or that hide Rust's own `core`.
const EMPTY_NAMES: [&str; 9] =
    ["utils", "util", "common", "helpers", "helper", "misc", "core", "types", "manager"];

/// Ends of the names of files that count as source.
const SOURCES: [&str; 6] = [".rs", ".py", ".ts", ".tsx", ".js", ".mjs"];

/// Every source file that breaks a rule.
pub(super) fn check(files: &[Text]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| SOURCES.iter().any(|end| file.path.ends_with(end))) {
        let path = &file.path;
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            findings.push(format!("{path}: {lines} lines, at most {LINES_MAX}; it holds a second module"));
        }
        if let Some(name) = path.split(['/', '.']).find(|part| EMPTY_NAMES.contains(part)) {
            findings.push(format!("{path}: `{name}` says nothing; name it after what it does"));
        }
        if path.ends_with(".rs") && in_crate(path) && !file.text.starts_with("//!") {
            findings.push(format!("{path}:1: opens without `//!`; say what it is, why, and its invariant"));
        }
        if path == "crates/logic/src/lib.rs" && !file.text.contains("#![no_std]") {
            findings.push(format!("{path}: is not `#![no_std]`; the compiler shall keep I/O and clocks out"));
        }
    }
    findings
}

/// Whether a file belongs to a crate of the workspace (fuzz targets open with their `#![no_main]`).
fn in_crate(path: &str) -> bool {
    path.starts_with("crates/") || path.starts_with("xtask/")
}

#[cfg(test)]
mod tests {
    use super::{Text, check};

    fn found(path: &str, text: &str) -> usize {
        check(&[Text { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn each_rule() {
        assert_eq!(found("crates/wire/src/sse.rs", "//! Events.\n"), 0);
        assert_eq!(found("crates/wire/src/sse.rs", "use std::fmt;\n"), 1);
        assert_eq!(found("crates/wire/src/utils.rs", "//! Things.\n"), 1);
        assert_eq!(found("crates/wire/src/common/mod.rs", "//! Things.\n"), 1);
        assert_eq!(found("crates/wire/src/long.rs", &"//! long\n".repeat(801)), 1);
        assert_eq!(found("crates/logic/src/lib.rs", "//! Logic.\n"), 1);
        assert_eq!(found("README.md", ""), 0);
    }
}
