//! Which crate may import which. A crate is a list of what it may depend on; this is that list.
//!
//! Invariant: imports run downwards only, in tests too; a crate that is not listed fails.

use anyhow::Result;
use serde::Deserialize;

use crate::process;

/// What a crate may import from this workspace.
#[derive(Clone, Copy)]
enum May {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

/// The layers, bottom first. Development dependencies count as imports.
const LAYERS: [(&str, May); 14] = [
    ("logic", May::Only(&[])),
    ("wire", May::Only(&[])),
    ("synth", May::Only(&[])),
    ("llama", May::Only(&["synth"])),
    ("engine", May::Only(&["logic", "llama", "synth"])),
    ("samples", May::Only(&[])),
    ("local", May::Only(&["engine", "llama", "logic", "samples", "wire", "synth"])),
    ("store", May::Only(&["logic"])),
    ("gateway", May::Only(&["logic", "samples", "store", "wire"])),
    ("sim", May::Only(&["logic", "wire"])),
    ("harness", May::Only(&[])),
    ("world", May::AllBut(&["cli", "harness"])),
    ("cli", May::AllBut(&["world", "harness", "synth"])),
    ("xtask", May::Only(&[])),
];

/// Crates whose shipped code imports nothing at all, not even from outside.
const WITHOUT_DEPENDENCIES: [&str; 1] = ["logic"];

/// What cargo knows about this workspace, as far as we ask.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
}

/// A crate of the workspace.
#[derive(Deserialize)]
pub(super) struct Crate {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev`, `build`, or nothing for what is shipped.
    kind: Option<String>,
    /// Set for crates of this workspace.
    path: Option<String>,
}

/// The crates of this workspace.
///
/// # Errors
/// When cargo cannot be asked.
pub(super) fn crates() -> Result<Vec<Crate>> {
    let args = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let metadata: Metadata = serde_json::from_str(&process::output(&mut process::cargo(&args))?)?;
    Ok(metadata.packages)
}

/// Every import that its layer does not allow.
pub(super) fn check(crates: &[Crate]) -> Vec<String> {
    let mut findings = Vec::new();
    for krate in crates {
        let name = layer(&krate.name);
        let Some((_, may)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
            findings.push(format!("crate {name}: has no layer; say in tidy what it may import"));
            continue;
        };
        for dependency in &krate.dependencies {
            let ours = dependency.path.is_some();
            let import = layer(&dependency.name);
            if ours && !allows(*may, import) {
                findings.push(format!("crate {name}: may not import {import}; imports run downwards only"));
            }
            if !ours && dependency.kind.is_none() && WITHOUT_DEPENDENCIES.contains(&name) {
                findings.push(format!("crate {name}: imports {import}, but it shall depend on nothing"));
            }
        }
    }
    findings
}

fn allows(may: May, import: &str) -> bool {
    match may {
        May::Only(list) => list.contains(&import),
        May::AllBut(list) => !list.contains(&import),
    }
}

/// `firsttoken-logic` is the layer `logic`; the binary's package is the layer `cli`.
fn layer(package: &str) -> &str {
    match package {
        "firsttoken" => "cli",
        _ => package.strip_prefix("firsttoken-").unwrap_or(package),
    }
}

#[cfg(test)]
mod tests {
    use super::{Crate, Dependency, check};

    fn krate(name: &str, imports: &str, kind: Option<&str>, ours: bool) -> Crate {
        let dependency = Dependency {
            name: imports.to_owned(),
            kind: kind.map(str::to_owned),
            path: ours.then(|| "somewhere".to_owned()),
        };
        Crate { name: name.to_owned(), dependencies: vec![dependency] }
    }

    #[test]
    fn upward_imports_are_found() {
        let found = |name, imports, kind, ours| check(&[krate(name, imports, kind, ours)]).len();
        assert_eq!(found("firsttoken-gateway", "firsttoken-wire", None, true), 0);
        assert_eq!(found("firsttoken-wire", "firsttoken-gateway", None, true), 1);
        assert_eq!(found("firsttoken-gateway", "firsttoken-sim", Some("dev"), true), 1);
        assert_eq!(found("firsttoken-world", "firsttoken", None, true), 1);
        assert_eq!(found("firsttoken", "firsttoken-world", Some("dev"), true), 1);
        assert_eq!(found("firsttoken-llama", "firsttoken-logic", None, true), 1);
        assert_eq!(found("firsttoken-llama", "llama-cpp-sys-2", None, false), 0);
        assert_eq!(found("firsttoken-logic", "proptest", Some("dev"), false), 0);
        assert_eq!(found("firsttoken-logic", "bytes", None, false), 1);
        assert_eq!(found("firsttoken-surprise", "bytes", None, false), 1);
    }
}
