//! The engines of this machine: from what is configured to models that answer.
//!
//! Invariant: nothing is loaded before all of them are known to fit into memory together.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use anyhow::Context as _;
use firsttoken_gateway::Network;
use firsttoken_gateway::config::EngineConfig;
use firsttoken_local::fit::Need;
use firsttoken_local::kv::{self, Memory};
use firsttoken_local::{Local, Model, Options, figures};

use crate::models;

/// Most bytes on their way between the gateway and an engine, in each direction.
const PIPE_BYTES: usize = 64 * 1024;

/// The engines that run, by name.
pub(crate) struct Engines {
    running: BTreeMap<String, Arc<Local>>,
    lines: Vec<String>,
}

impl Engines {
    /// Starts all of them, one after the other.
    pub(crate) fn start(engines: &[EngineConfig]) -> anyhow::Result<Self> {
        let mut asked = Vec::new();
        for engine in engines {
            asked.push(options(engine, models::resolve(&engine.file)?));
        }
        let mut started = Self { running: BTreeMap::new(), lines: Vec::new() };
        for (options, need) in fitting(asked)? {
            let began = std::time::Instant::now();
            let model = Model::start(need.put_into(options))?;
            let took = began.elapsed().as_secs_f64();
            let name = model.name().to_owned();
            started.lines.push(format!("{name}: {}; ready after {took:.1} s", model.describe()));
            started.running.insert(name, Local::new(vec![model]));
        }
        Ok(started)
    }

    /// A line about each.
    pub(crate) fn describe(&self) -> &[String] {
        &self.lines
    }

    /// The network, and a pipe to each engine.
    pub(crate) fn network(&self) -> Network {
        if self.running.is_empty() {
            return Network::Sockets;
        }
        let running = self.running.clone();
        Network::Engine(Arc::new(move |upstream| {
            let local = running.get(&upstream.name).ok_or_else(|| {
                io::Error::other(format!(
                    "the engine {} is new, and starts with the next start",
                    upstream.name
                ))
            })?;
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            tokio::spawn(Arc::clone(local).serve_connection(theirs));
            Ok(ours)
        }))
    }
}

/// What `check-config` says about engines: what each takes of the memory. One that is still to be pulled is
/// only named.
pub(crate) fn check(engines: &[EngineConfig]) -> anyhow::Result<String> {
    let mut said = String::new();
    let mut asked = Vec::new();
    for engine in engines {
        let at = || format!("engine {}", engine.name);
        match engine.file.to_str().is_some_and(|file| file.contains("://")) {
            true => said.push_str(&format!("\n{}: is pulled when it starts", engine.name)),
            false => asked.push(options(engine, models::on_disk(&engine.file).with_context(at)?)),
        }
    }
    for (options, need) in fitting(asked)? {
        said.push_str(&format!("\n{}: needs {}: {need}", options.name, figures::size(need.bytes())));
    }
    Ok(said)
}

/// What each takes where the ones before it have theirs.
fn fitting(engines: Vec<Options>) -> anyhow::Result<Vec<(Options, Need)>> {
    let mut available = Memory::now().map_or(u64::MAX, |memory| memory.available);
    let mut fitting = Vec::new();
    for options in engines {
        let header = kv::header(&options.file)?;
        let need = Need::of(&options, &header, available)?;
        available = available.saturating_sub(need.bytes());
        fitting.push((options, need));
    }
    Ok(fitting)
}

fn options(engine: &EngineConfig, file: std::path::PathBuf) -> Options {
    let usual = Options::new(file, &engine.name);
    Options {
        cells: engine.context_tokens,
        threads: engine.threads,
        gpu_layers: engine.gpu_layers,
        kv: kv::type_of_name(engine.kv_type.name()).unwrap_or(usual.kv),
        host_bytes: engine.kv_host_bytes,
        guesses_max: engine.lookup_tokens_max.unwrap_or(usual.guesses_max),
        itl_target: engine.itl_target.unwrap_or(usual.itl_target),
        waiting_max: engine.queue_max,
        wait_max: engine.queue_time_max,
        idle_unload: engine.idle_unload,
        ..usual
    }
}
