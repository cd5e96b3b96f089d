//! Nothing of one machine in what is shared: no absolute path of a home or a workplace, and no
//! address of a package registry in a lock file or a client's settings.
//!
//! Invariant: a clone installs from whatever registries its own machine is set up for.

use super::Text;

/// Top folders in which people and build machines work. Without their slashes, so that this list is
/// not a finding itself.
const WORKPLACES: [&str; 5] = ["work", "root", "home", "farm", "Users"];

/// Where Rust's packages come from, by the name that every Cargo.lock has.
const CRATES_INDEX: &str = "\"registry+https://github.com/rust-lang/crates.io-index\"";

/// Every line that only makes sense on one machine.
pub(super) fn check(files: &[Text]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some(top) = WORKPLACES.iter().find(|top| names_folder(line, top)) {
                findings.push(format!("{}:{number}: a path under /{top} of one machine", file.path));
            }
            if names_registry(&file.path, line) {
                findings.push(format!("{}:{number}: the address of a package registry", file.path));
            }
        }
    }
    findings
}

/// Whether `line` has an absolute path under the top folder `top`.
fn names_folder(line: &str, top: &str) -> bool {
    let needle = format!("/{top}/");
    line.match_indices(&needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let inside_longer_path = before.is_some_and(|c| c.is_alphanumeric() || "._-~)}/*".contains(c));
        let name_follows =
            line[at + needle.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
        !inside_longer_path && name_follows
    })
}

/// Whether a line of a lock file or of a package client's settings says where packages come from.
fn names_registry(path: &str, line: &str) -> bool {
    match path.rsplit('/').next().unwrap_or_default() {
        "Cargo.lock" => line.starts_with("source = ") && !line.contains(CRATES_INDEX),
        "package-lock.json" => line.trim_start().starts_with("\"resolved\""),
        ".npmrc" => line.contains("://"),
        name if name.ends_with("requirements.txt") => line.contains("://"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{names_folder, names_registry};

    #[test]
    fn paths_of_one_machine() {
        let path = |top: &str| format!("see /{top}/me/project");
        assert!(names_folder(&path("home"), "home"));
        assert!(names_folder(&format!("\"{}\"", "/root/".to_owned() + "x"), "root"));
        assert!(!names_folder("target/work/x", "work"));
        assert!(!names_folder("https://example.com/work/x", "work"));
        assert!(!names_folder("GET /work/", "work"));
    }

    #[test]
    fn registries() {
        assert!(!names_registry(
            "Cargo.lock",
            "source = \"registry+https://github.com/rust-lang/crates.io-index\""
        ));
        assert!(names_registry("Cargo.lock", "source = \"registry+https://mirror.example/index\""));
        assert!(names_registry(
            "a/package-lock.json",
            "      \"resolved\": \"https://mirror.example/x.tgz\","
        ));
        assert!(!names_registry("a/package-lock.json", "      \"integrity\": \"sha512-x\","));
        assert!(names_registry("requirements.txt", "--index-url https://mirror.example/simple"));
    }
}
