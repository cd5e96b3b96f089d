//! `firsttoken sim`: the simulated provider on a socket.

use std::net::SocketAddr;

use anyhow::Context as _;
use firsttoken_sim::{Options, Script, Sim};

use crate::process::{self, Signals};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// The script every request starts from, such as `ttft200-itl20-n50`; models and headers change it.
    #[arg(long, default_value = "")]
    script: String,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    process::raise_descriptor_limit();
    let script = script(&arguments.script)?;
    let listener = firsttoken_gateway::server::listen(arguments.listen)
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    crate::say(&format!(
        "Simulated provider at http://{}: every answer is made up. Try the models sim, sim-ttft200-itl20-n50.",
        listener.local_addr()?
    ));
    let sim = Sim::new(Options { script, seed: arguments.seed, ..Options::default() });
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut signals = Signals::listen()?;
        sim.serve(listener, signals.next()).await;
        Ok(())
    })
}

/// The script that `knobs` describes, as in a model's name.
pub(crate) fn script(knobs: &str) -> anyhow::Result<Script> {
    let model = if knobs.is_empty() { "sim".to_owned() } else { format!("sim-{knobs}") };
    Script::default().turned(&model, None).map_err(|e| anyhow::anyhow!("--script: {e}"))
}
