//! What must be on the machine beside Rust, and how it gets there.
//!
//! Debian packages are installed by name with `apt-get`, only those that are missing, and only after
//! saying which. Where that is not possible (no `apt-get`, not root) the exact command is printed
//! instead.
//!
//! Invariant: nothing is installed without being named first, and no installed service is started.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process;

/// How one knows that a package is there.
enum Probe {
    /// This program can be found.
    Program(&'static str),
    /// Python can import this module.
    PythonModule(&'static str),
}

/// Something that we need from the system.
pub(crate) struct Package {
    debian: &'static str,
    probe: Probe,
    what_for: &'static str,
}

/// A C compiler and linker.
pub(crate) const CC: Package =
    Package { debian: "gcc", probe: Probe::Program("cc"), what_for: "linking, and C in dependencies" };
/// A C++ compiler.
pub(crate) const CXX: Package =
    Package { debian: "g++", probe: Probe::Program("c++"), what_for: "the engine's kernels" };
/// What configures the build of the kernels.
pub(crate) const CMAKE: Package =
    Package { debian: "cmake", probe: Probe::Program("cmake"), what_for: "building the engine's kernels" };
/// Brings the library that reads the kernels' headers, and the headers that it needs itself.
pub(crate) const CLANG: Package =
    Package { debian: "clang", probe: Probe::Program("clang"), what_for: "binding the engine's kernels" };
/// The proxy that people really put in front.
pub(crate) const NGINX: Package =
    Package { debian: "nginx-light", probe: Probe::Program("nginx"), what_for: "tests behind a real proxy" };
/// Python, for the official Python SDKs.
pub(crate) const PYTHON: Package =
    Package { debian: "python3", probe: Probe::Program("python3"), what_for: "the Python SDKs" };
/// Debian splits `venv` from Python.
pub(crate) const PYTHON_VENV: Package = Package {
    debian: "python3-venv",
    probe: Probe::PythonModule("ensurepip"),
    what_for: "a virtual environment for the Python SDKs",
};
/// Node.js, for the official Node SDKs.
pub(crate) const NODE: Package =
    Package { debian: "nodejs", probe: Probe::Program("node"), what_for: "the Node SDKs" };
/// Node's package client.
pub(crate) const NPM: Package =
    Package { debian: "npm", probe: Probe::Program("npm"), what_for: "installing the Node SDKs" };

/// What it takes to build everything.
pub(crate) const COMPILERS: [&Package; 4] = [&CC, &CXX, &CMAKE, &CLANG];

impl Package {
    fn is_there(&self) -> bool {
        match self.probe {
            Probe::Program(name) => process::find(name).is_some(),
            Probe::PythonModule(name) => {
                let import = format!("import {name}");
                process::output(&mut process::command("python3", &["-c", &import])).is_ok()
            }
        }
    }
}

/// Installs those of `packages` that are missing.
///
/// # Errors
/// Names what is missing and the command to type where we cannot install it ourselves.
pub(crate) fn ensure(packages: &[&Package]) -> Result<()> {
    let missing: Vec<_> = packages.iter().filter(|package| !package.is_there()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|package| package.debian).collect();
    let reasons: Vec<_> =
        missing.iter().map(|package| format!("{} ({})", package.debian, package.what_for)).collect();
    let install = [&["install", "--yes", "--no-install-recommends"][..], &names].concat();
    if process::find("apt-get").is_none() || !is_root()? {
        bail!(
            "missing on this machine: {}\nhint: sudo apt-get update && sudo apt-get {}",
            reasons.join(", "),
            install.join(" ")
        );
    }
    println!("installing Debian packages with apt-get: {}", reasons.join(", "));
    let _no_services = NoServices::begin()?;
    for args in [&["update", "--quiet"][..], &install] {
        process::run(process::command("apt-get", args).env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    match missing.iter().find(|package| !package.is_there()) {
        Some(package) => bail!("{} was installed and is still not found", package.debian),
        None => Ok(()),
    }
}

/// Whether we are root, read off the owner of our own process.
fn is_root() -> Result<bool> {
    Ok(std::fs::metadata("/proc/self").context("cannot read /proc/self")?.uid() == 0)
}

/// Debian starts a service as soon as it is installed; nginx would listen on port 80 of every
/// interface. While this guard lives the policy file that packages ask says no.
struct NoServices {
    ours: bool,
}

impl NoServices {
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn begin() -> Result<Self> {
        let policy = Path::new(Self::POLICY);
        if policy.exists() {
            return Ok(Self { ours: false });
        }
        std::fs::write(policy, "#!/bin/sh\nexit 101\n").context("cannot write the service policy")?;
        std::fs::set_permissions(policy, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { ours: true })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours {
            // Best effort: what is left behind is a policy, and the next install will name it.
            let _ = std::fs::remove_file(Self::POLICY);
        }
    }
}
