//! The processes of an engine's measurement: our gateway with a model of its own, and llama-server.
//!
//! Invariant: both get every CPU, one thread for each, the same context and the same priority; the client
//! runs beside them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::super::judge::Arm;
use super::super::rig::{Client, Launcher, Running, free_port, start};
use crate::process;

/// Tokens that all requests together can hold: ours says so by itself for a model with this context.
const CELLS: &str = "32768";
/// Requests that the peer takes at a time, one slot for each.
const SLOTS: &str = "9";
/// How the peer is tuned by hand for streams that shall not stand still when a long prompt arrives.
const TUNED: [&str; 4] = ["-b", "128", "-ub", "128"];
/// How long a model may take to load.
const LOAD: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// The model, as ours is asked for it: its file without the ending.
const MODEL: &str = "bars";

/// A model file, and what is started with it.
pub(super) struct Stage<'a> {
    launcher: &'a Launcher,
    model: PathBuf,
    draft: Option<PathBuf>,
    keys: &'static str,
}

/// One of them, with its model loaded.
pub(super) struct Server {
    addr: SocketAddr,
    _process: Running,
}

impl<'a> Stage<'a> {
    /// Makes the model, by these arguments of its maker.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn new(launcher: &'a Launcher, recipe: &[&str]) -> Result<Self> {
        Ok(Self { launcher, model: made(launcher, MODEL, recipe)?, draft: None, keys: "" })
    }

    /// The model file.
    pub(super) fn model(&self) -> &Path {
        &self.model
    }

    /// And these keys of `[[engines]]` for ours.
    pub(super) fn with_keys(self, keys: &'static str) -> Self {
        Self { keys, ..self }
    }

    /// And a draft for ours, unless there are no arguments for one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn with_draft(self, recipe: &[&str]) -> Result<Self> {
        let draft = if recipe.is_empty() { None } else { Some(made(self.launcher, "draft", recipe)?) };
        Ok(Self { draft, ..self })
    }

    /// Starts one of them and waits until its model is loaded.
    ///
    /// # Errors
    /// When it does not come up; its log is in the message.
    pub(super) fn server(&self, arm: Arm) -> Result<Server> {
        if arm == Arm::Ours && !self.keys.is_empty() {
            return self.configured(self.keys);
        }
        let addr = free_port()?;
        let (what, mut command, ready) = match arm {
            Arm::Llama => ("llama-server", self.peer(addr, &[]), "/health"),
            Arm::Tuned => ("llama-server", self.peer(addr, &TUNED), "/health"),
            Arm::Ours => ("firsttoken", self.drafted(addr), "/readyz"),
            _ => ("firsttoken", self.ours(addr), "/readyz"),
        };
        self.start(what, &mut command, addr, ready)
    }

    /// Ours with its prefixes in that directory, too.
    ///
    /// # Errors
    /// When it does not come up; its log is in the message.
    pub(super) fn with_disk(&self, dir: &Path) -> Result<Server> {
        let addr = free_port()?;
        let mut command = self.ours(addr);
        command.arg("--kv-dir").arg(dir);
        self.start("firsttoken", &mut command, addr, "/readyz")
    }

    /// Our gateway with an engine of its own, before this mock.
    ///
    /// # Errors
    /// When it does not come up; its log is in the message.
    pub(super) fn gateway(&self, mock: SocketAddr) -> Result<Server> {
        let addr = free_port()?;
        let config = self.launcher.file(
            &format!("engine-{}.toml", addr.port()),
            &format!(
                "[[upstreams]]\nname = \"mock\"\nprovider = \"openai\"\nbase_url = \"http://{mock}\"\n\
                 auth = \"none\"\n[[models]]\nname = \"*\"\nupstream = \"mock\"\n"
            ),
        )?;
        let mut command = self.ours(addr);
        command.arg("--config").arg(config);
        self.start("firsttoken", &mut command, addr, "/readyz")
    }

    /// Our gateway with an engine of its own, by these keys of its configuration.
    ///
    /// # Errors
    /// When it does not come up; its log is in the message.
    pub(super) fn configured(&self, keys: &str) -> Result<Server> {
        let addr = free_port()?;
        let engine = format!("[[engines]]\nname = \"{MODEL}\"\nfile = {:?}\n{keys}", self.model);
        let config = self.launcher.file(&format!("engine-{}.toml", addr.port()), &engine)?;
        let mut command = self.bare(addr);
        command.arg("--config").arg(config);
        self.start("firsttoken", &mut command, addr, "/readyz")
    }

    fn start(
        &self,
        what: &'static str,
        command: &mut Command,
        addr: SocketAddr,
        ready: &str,
    ) -> Result<Server> {
        let log = self.launcher.dir.join(format!("{what}-{}.log", addr.port()));
        let process = start(what, command.current_dir(&self.launcher.dir), &log, addr)?;
        for _ in 0..LOAD.as_millis() / POLL.as_millis() {
            if is_ready(addr, ready).unwrap_or(false) {
                return Ok(Server { addr, _process: process });
            }
            std::thread::sleep(POLL);
        }
        let log = std::fs::read_to_string(log).unwrap_or_default();
        bail!("{what} has not loaded its model after {LOAD:?}:\n{log}")
    }

    fn ours(&self, addr: SocketAddr) -> Command {
        let mut command = self.bare(addr);
        command.arg("--model").arg(&self.model);
        command
    }

    fn bare(&self, addr: SocketAddr) -> Command {
        let mut command = self.launcher.everywhere(&self.launcher.engine);
        command.args(["serve", "--listen", &addr.to_string()]);
        // A provider of the caller's has no part in this.
        command.env_remove("OPENAI_API_KEY").env_remove("ANTHROPIC_API_KEY").env("FIRSTTOKEN_LOG", "warn");
        command
    }

    fn drafted(&self, addr: SocketAddr) -> Command {
        let mut command = self.ours(addr);
        self.draft.iter().for_each(|draft| _ = command.arg("--draft").arg(draft));
        command
    }

    fn peer(&self, addr: SocketAddr, more: &[&str]) -> Command {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).to_string();
        let mut command = self.launcher.everywhere(&program());
        command.arg("-m").arg(&self.model).args(["-t", &threads, "-tb", &threads]);
        command.args(["--host", &addr.ip().to_string(), "--port", &addr.port().to_string()]);
        command.args(["-np", SLOTS, "-c", CELLS, "--kv-unified"]).args(more);
        command
    }

    /// A client of that server.
    pub(super) fn client(&self, server: &Server) -> Client<'_> {
        let url = format!("http://{}/v1/chat/completions", server.addr);
        self.launcher.client_everywhere("phases", &url).with(&["--model", MODEL])
    }

    /// A client of the mock behind that gateway.
    pub(super) fn relayed(&self, server: &Server) -> Client<'_> {
        self.launcher.client_everywhere("load", &format!("http://{}/v1/chat/completions", server.addr))
    }
}

impl Server {
    /// What it answers at that path, headers and all.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn get(&self, path: &str) -> Result<String> {
        get(self.addr, path)
    }

    /// What has been counted under this name since the start; none where nothing is.
    pub(super) fn counted(&self, name: &str) -> Option<f64> {
        let page = self.get("/metrics").ok()?;
        let is_its = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
        page.lines().find(is_its)?.rsplit(' ').next()?.parse().ok()
    }
}

/// A model file that is called so.
fn made(launcher: &Launcher, name: &str, recipe: &[&str]) -> Result<PathBuf> {
    let model = launcher.dir.join(name).with_extension("gguf");
    let mut synth = Command::new(process::target().join("release/firsttoken-synth"));
    process::run(synth.arg(&model).args(recipe))?;
    Ok(model)
}

/// Whether this path answers 200.
fn is_ready(addr: SocketAddr, path: &str) -> Result<bool> {
    Ok(get(addr, path)?.starts_with("HTTP/1.1 200"))
}

fn get(addr: SocketAddr, path: &str) -> Result<String> {
    let mut socket = TcpStream::connect(addr)?;
    socket.set_read_timeout(Some(LOAD))?;
    write!(socket, "GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Where the peer is.
fn program() -> PathBuf {
    process::target().join("peers/llama-server/bin/llama-server")
}

/// The peer, by its own words.
///
/// # Errors
/// When it is not there: CONTRIBUTING.md says how it is built.
pub(in super::super) fn version() -> Result<String> {
    let program = program();
    if !program.is_file() {
        bail!("{} is missing\nhint: CONTRIBUTING.md says how to build it", program.display());
    }
    // It says so on stderr: `version: 1 (0c1e570)`, and below it by whom it was compiled.
    let text = Command::new(program).arg("--version").output()?.stderr;
    let text = String::from_utf8_lossy(&text);
    let version = text.lines().find_map(|line| line.strip_prefix("version: ")).unwrap_or("unknown");
    Ok(format!("llama-server {version}"))
}
