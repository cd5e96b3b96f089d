//! An engine in a process of its own: started, watched, started again when it dies, ended with us.
//!
//! A crash of the kernels, or the system's killing it for memory, then ends the engine's streams, each with an
//! error in its dialect, and no other. When it is restarted is [`Restarts`]' to decide.
//!
//! Invariant: at most one process runs for an engine, and none once [`Isolated`] is dropped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};
use firsttoken_local::Options;
use firsttoken_logic::restart::Restarts;
use tokio::time::Instant;

use crate::engine::Started;

/// An engine's process. Dropping it ends that, and waits for it.
pub(crate) struct Isolated {
    shared: Arc<Shared>,
    watch: Option<JoinHandle<()>>,
}

struct Shared {
    options: Options,
    json_log: bool,
    folder: PathBuf,
    /// What the process lives by: it ends when this is closed.
    lifeline: Mutex<Option<ChildStdin>>,
    ending: AtomicBool,
}

impl Isolated {
    /// Starts the process and waits until the engine in it is ready. Also what it says about itself.
    pub(crate) fn start(options: Options, json_log: bool) -> anyhow::Result<(Self, String)> {
        let folder = private_folder()?;
        let lifeline = Mutex::default();
        let shared = Arc::new(Shared { options, json_log, folder, lifeline, ending: AtomicBool::new(false) });
        // From here on its folder goes with it, also where it does not start.
        let mut isolated = Self { shared: Arc::clone(&shared), watch: None };
        let (child, line) = shared.spawn()?;
        let watch = std::thread::Builder::new().name("isolated".to_owned());
        isolated.watch = Some(watch.spawn(move || shared.watch(child))?);
        Ok((isolated, line))
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.shared.socket()
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        self.shared.ending.store(true, Relaxed);
        drop(self.shared.lifeline().take());
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            let _ = watch.join();
        }
        // The process has emptied it, unless it was killed.
        let _ = std::fs::remove_file(self.shared.socket());
        let _ = std::fs::remove_dir(&self.shared.folder);
    }
}

impl Shared {
    fn socket(&self) -> PathBuf {
        self.folder.join("engine")
    }

    fn lifeline(&self) -> std::sync::MutexGuard<'_, Option<ChildStdin>> {
        self.lifeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the process, and waits for what comes of it.
    fn spawn(&self) -> anyhow::Result<(Child, String)> {
        // One that was killed has left it behind.
        let _ = std::fs::remove_file(self.socket());
        let program = std::env::current_exe().context("where this program lies")?;
        let mut command = Command::new(program);
        command.arg("engine").arg("--socket").arg(self.socket());
        command.args(["--log", if self.json_log { "json" } else { "text" }]);
        // In a group of its own: what the terminal sends to ours is for us, who let streams end first.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("cannot start a process for an engine")?;
        match self.greet(&mut child) {
            Ok(line) => {
                tracing::info!(engine = self.options.name, pid = child.id(), "runs in a process of its own");
                Ok((child, line))
            }
            Err(error) => {
                drop(self.lifeline().take());
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn greet(&self, child: &mut Child) -> anyhow::Result<String> {
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the process of an engine has no pipes");
        };
        writeln!(stdin, "{}", serde_json::to_string(&self.options)?)?;
        {
            let mut lifeline = self.lifeline();
            *lifeline = Some(stdin);
            // Who ends us says so before it looks for a lifeline.
            if self.ending.load(Relaxed) {
                bail!("not started: the gateway ends");
            }
        }
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        match serde_json::from_str(&line) {
            Ok(Started::Ready(line)) => Ok(line),
            Ok(Started::Failed(what)) => bail!("{what}"),
            Err(_) => bail!("the process of the engine {} ended while it started", self.options.name),
        }
    }

    /// Starts the process again whenever it has ended, until it shall end.
    fn watch(&self, child: Child) {
        let mut restarts = Restarts::default();
        let (mut child, mut began) = (Some(child), Instant::now());
        while !self.ending.load(Relaxed) {
            if let Some(mut ended) = child.take() {
                let status = ended.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                if self.ending.load(Relaxed) {
                    return;
                }
                tracing::error!(
                    engine = self.options.name,
                    status,
                    "its process has ended, and is started again"
                );
            }
            std::thread::park_timeout(restarts.on_end(began.elapsed()));
            if self.ending.load(Relaxed) {
                return;
            }
            began = Instant::now();
            match self.spawn() {
                Ok((started, _)) => child = Some(started),
                Err(error) => {
                    tracing::error!(engine = self.options.name, "cannot be started again: {error:#}")
                }
            }
        }
        if let Some(mut child) = child {
            let _ = child.wait();
        }
    }
}

/// A new folder that only this user can enter.
fn private_folder() -> anyhow::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let place = crate::models::environment("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let try_at = |place: &Path| {
        let number = NUMBER.fetch_add(1, Relaxed);
        let folder = place.join(format!("firsttoken-{}-{number}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map(|()| folder)
    };
    // A folder of that name is another's, or one that was killed has left it behind: the next number is free.
    for _ in 0..100 {
        match try_at(&place) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.with_context(|| format!("cannot make a folder in {}", place.display())),
        }
    }
    bail!("{} is full of folders of engines; remove those named firsttoken-…", place.display())
}
