//! The engines of this machine: from what is configured to models that answer.
//!
//! Invariant: nothing is loaded before all of them are known to fit into memory together.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use firsttoken_gateway::config::EngineConfig;
use firsttoken_gateway::{Network, Way};
use firsttoken_local::fit::{Headers, Need};
use firsttoken_local::kv::{self, Memory};
use firsttoken_local::{KV_DIR_BYTES_MAX, KvDir, Loaded, Local, Options, demo, figures};
use tokio::time::Instant;

use crate::isolate::Isolated;
use crate::models;

/// Most bytes on their way between the gateway and an engine, in each direction.
const PIPE_BYTES: usize = 64 * 1024;

/// The engines that run, by name.
pub(crate) struct Engines {
    running: BTreeMap<String, Running>,
    lines: Vec<String>,
}

enum Running {
    /// In this process.
    Here(Arc<Local>),
    /// In one of its own.
    Apart(Isolated),
}

impl Engines {
    /// Starts all of them, one after the other, and the demo model where it is to answer.
    pub(crate) fn start(engines: &[EngineConfig], with_demo: bool, json_log: bool) -> anyhow::Result<Self> {
        let mut asked = Vec::new();
        for engine in engines {
            let draft = engine.draft.as_deref().map(models::resolve).transpose()?;
            asked.push(Options { draft, ..options(engine, models::resolve(&engine.file)?) });
        }
        let mut started = Self { running: BTreeMap::new(), lines: Vec::new() };
        for (engine, (options, need)) in engines.iter().zip(fitting(asked)?) {
            let began = Instant::now();
            let (name, options) = (options.name.clone(), need.put_into(options));
            let (running, line) = if engine.isolate {
                let (apart, line) =
                    Isolated::start(options, json_log).with_context(|| format!("engine {name}"))?;
                (Running::Apart(apart), format!("{line}; in a process of its own"))
            } else {
                let loaded = Loaded::start(options)?;
                let line = loaded.describe();
                (Running::Here(Local::new(vec![loaded])), line)
            };
            started.lines.push(format!("{name}: {line}; ready after {:.1} s", began.elapsed().as_secs_f64()));
            started.running.insert(name, running);
        }
        if with_demo {
            let local = Local::new(vec![demo::start(None)?]);
            started.running.insert(demo::NAME.to_owned(), Running::Here(local));
        }
        Ok(started)
    }

    /// Ends them; what is worth keeping goes to disk first.
    pub(crate) fn end(self) {
        for running in self.running.values() {
            if let Running::Here(local) = running {
                local.end();
            }
        }
    }

    /// A line about each.
    pub(crate) fn describe(&self) -> &[String] {
        &self.lines
    }

    /// The network, and the way to each engine.
    pub(crate) fn network(&self) -> Network {
        if self.running.is_empty() {
            return Network::Sockets;
        }
        let places = self.running.iter().map(|(name, running)| (name.clone(), Place::of(running)));
        let places: BTreeMap<String, Place> = places.collect();
        Network::Engines(Arc::new(move |upstream| match places.get(&upstream.name) {
            Some(Place::Here(local)) => {
                let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
                tokio::spawn(Arc::clone(local).serve_connection(theirs));
                Ok(Way::Pipe(ours))
            }
            Some(Place::Apart(socket)) => Ok(Way::Socket(socket.clone())),
            None => {
                Err(io::Error::other(format!("the engine {} is new; restart to start it", upstream.name)))
            }
        }))
    }
}

/// Where an engine is reached.
enum Place {
    Here(Arc<Local>),
    Apart(PathBuf),
}

impl Place {
    fn of(running: &Running) -> Self {
        match running {
            Running::Here(local) => Self::Here(Arc::clone(local)),
            Running::Apart(apart) => Self::Apart(apart.socket()),
        }
    }
}

/// What `check-config` says about engines: what each takes of the memory. One that is still to be pulled is
/// only named.
pub(crate) fn check(engines: &[EngineConfig]) -> anyhow::Result<String> {
    let mut said = String::new();
    let mut asked = Vec::new();
    for engine in engines {
        let at = || format!("engine {}", engine.name);
        if is_address(&engine.file) {
            said.push_str(&format!("\n{}: is pulled when it starts", engine.name));
            continue;
        }
        let file = models::on_disk(&engine.file).with_context(at)?;
        let draft = engine.draft.as_deref().filter(|file| !is_address(file));
        let draft = draft.map(models::on_disk).transpose().with_context(at)?;
        asked.push(Options { draft, ..options(engine, file) });
    }
    for (options, need) in fitting(asked)? {
        said.push_str(&format!("\n{}: needs {}: {need}", options.name, figures::size(need.bytes())));
    }
    Ok(said)
}

fn is_address(file: &Path) -> bool {
    file.to_str().is_some_and(|file| file.contains("://"))
}

/// What each takes where the ones before it have theirs.
fn fitting(engines: Vec<Options>) -> anyhow::Result<Vec<(Options, Need)>> {
    let mut available = Memory::now().map_or(u64::MAX, |memory| memory.available);
    let mut fitting = Vec::new();
    for options in engines {
        let need = Need::of(&options, &Headers::read(&options)?, available)?;
        available = available.saturating_sub(need.bytes());
        fitting.push((options, need));
    }
    Ok(fitting)
}

fn options(engine: &EngineConfig, file: PathBuf) -> Options {
    let usual = Options::new(file, &engine.name);
    Options {
        cells: engine.context_tokens,
        threads: engine.threads,
        gpu_layers: engine.gpu_layers,
        kv: kv::type_of_name(engine.kv_type.name()).unwrap_or(usual.kv),
        host_bytes: engine.kv_host_bytes,
        guesses_max: engine.lookup_tokens_max.unwrap_or(usual.guesses_max),
        itl_target: engine.itl_target.unwrap_or(usual.itl_target),
        kv_dir: engine
            .kv_dir
            .clone()
            .map(|path| KvDir { path, bytes_max: engine.kv_dir_bytes_max.unwrap_or(KV_DIR_BYTES_MAX) }),
        running_max: engine.requests_max.and_then(|most| u8::try_from(most).ok()),
        waiting_max: engine.queue_max,
        wait_max: engine.queue_time_max,
        idle_unload: engine.idle_unload,
        ..usual
    }
}
