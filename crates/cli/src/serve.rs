//! `firsttoken serve`: where the configuration comes from, what is said at the start, and the signals.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use firsttoken_gateway::config::{Auth, Config, EngineConfig};
use firsttoken_gateway::server::{self, Gateway, Reload, Stop};
use firsttoken_local::{KV_DIR_BYTES_MAX as BYTES_MAX, demo, model};
use firsttoken_sim::{Options, Sim};
use tracing_subscriber::EnvFilter;

use crate::drafts::Drafts;
use crate::engines::{self, Engines};
use crate::process::{Asked, Signals};
use crate::{log, models, process};

/// Why the demo model answers.
const DEMO: &str = "nothing else is configured";

#[derive(Clone, clap::Args)]
pub(crate) struct Arguments {
    /// Configuration file; without it firsttoken.toml, if there is one.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where to listen, instead of what the configuration says.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Answer by a simulated provider in this process, instead of a real one.
    #[arg(long, conflicts_with = "config")]
    sim: bool,
    // Before the models, for their places are gone when they have been read.
    #[command(flatten)]
    pub(crate) drafts: Drafts,
    /// Answer by a model on this machine too: a GGUF file, the name of a pulled one or its beginning, or
    /// an address, from which it is pulled first. Its name is that of the file, without ending.
    #[arg(long, conflicts_with = "sim")]
    model: Vec<PathBuf>,
    /// Keep prefixes of the models on this machine in this directory too, across restarts. It then holds
    /// prompts: it is made so that only you can read it.
    #[arg(long, value_name = "DIR")]
    kv_dir: Option<PathBuf>,
    /// How many GiB these may take.
    #[arg(long, requires = "kv_dir", value_name = "GIB", default_value_t = BYTES_MAX >> 30,
        value_parser = clap::value_parser!(u64).range(1..))]
    kv_dir_gib: u64,
    /// How to log: text or json. FIRSTTOKEN_LOG filters, `warn` or `request=info`.
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    log: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // Once: a name shall mean the same file when the configuration is read again.
    let model: Vec<_> =
        arguments.model.iter().map(|model| models::resolve(model)).collect::<Result<_, _>>()?;
    let drafts = arguments.drafts.resolved(models::resolve)?;
    let arguments = &Arguments { model, drafts, ..arguments.clone() };
    let simulated = arguments.sim.then(simulate).transpose()?;
    let (config, source) = match simulated {
        Some(address) => {
            let config = Config::for_upstream(&format!("http://{address}").parse()?);
            (listen_instead(config, arguments.listen)?, "--sim".to_owned())
        }
        None => configuration(arguments)?,
    };
    process::raise_descriptor_limit();
    let logging = start_log(arguments.log == "json")?;
    let listener =
        server::listen(config.listen).with_context(|| format!("cannot listen on {}", config.listen))?;
    let engines = Engines::start(&config.engines, config.demo.is_some(), arguments.log == "json")?;
    let greeting = greeting(&config, &source, listener.local_addr()?, arguments.sim, engines.describe());
    let (stop, stopping) = server::stop();
    let gateway = Gateway::new(config, engines.network());
    on_signal(stop, (!arguments.sim).then(|| gateway.reload()), arguments.clone(), logging.lines())?;
    crate::say(&greeting);
    gateway.serve(listener, &stopping)?;
    // Nobody hears them any more.
    engines.end();
    Ok(())
}

/// `firsttoken check-config`.
pub(crate) fn check(file: &Path) -> anyhow::Result<()> {
    let config = read(file)?;
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let engines = engines::check(&config.engines)?;
    crate::say(&format!(
        "{} is fine: {}, {}, {}, {}, {}.{engines}",
        file.display(),
        count(config.upstreams.len() - config.engines.len(), "upstream"),
        count(config.engines.len(), "engine"),
        count(config.models.len(), "model rule"),
        count(config.routes.len(), "route"),
        count(config.keys.len(), "key"),
    ));
    Ok(())
}

/// What is configured, and where that was found. What the command line says holds against it, now and
/// when it is read again.
fn configuration(arguments: &Arguments) -> anyhow::Result<(Config, String)> {
    let engine = |(place, file): (usize, &PathBuf)| {
        let draft = arguments.drafts.of(place);
        EngineConfig { draft, ..EngineConfig::new(model::name_of(file), file) }
    };
    let engines: Vec<EngineConfig> = arguments.model.iter().enumerate().map(engine).collect();
    let (config, source) = match configured(arguments.config.as_deref())? {
        Some(configured) => configured,
        None if engines.is_empty() => (Config::bare().with_demo(demo::NAME, demo::ABOUT), DEMO.to_owned()),
        None => (Config::bare(), "--model".to_owned()),
    };
    let config = config.with_engines(engines).map_err(|e| anyhow::anyhow!("--model: {e}"))?;
    let config = keep_prefixes(config, arguments)?;
    Ok((listen_instead(config, arguments.listen)?, source))
}

/// The command line's directory is that of every engine which has none of its own.
fn keep_prefixes(mut config: Config, arguments: &Arguments) -> anyhow::Result<Config> {
    let Some(dir) = &arguments.kv_dir else { return Ok(config) };
    ensure!(
        !config.engines.is_empty(),
        "--kv-dir: there is no model on this machine whose prefixes could be kept\nhint: give --model"
    );
    for engine in config.engines.iter_mut().filter(|engine| engine.kv_dir.is_none()) {
        engine.kv_dir = Some(dir.clone());
        engine.kv_dir_bytes_max = Some(arguments.kv_dir_gib.saturating_mul(1 << 30));
    }
    Ok(config)
}

fn listen_instead(config: Config, listen: Option<SocketAddr>) -> anyhow::Result<Config> {
    match listen {
        Some(listen) => config.listen_on(listen).map_err(|e| anyhow::anyhow!("--listen: {e}")),
        None => Ok(config),
    }
}

/// What the file says, or the environment; `None` where nobody has configured anything.
fn configured(file: Option<&Path>) -> anyhow::Result<Option<(Config, String)>> {
    let found = Path::new("firsttoken.toml");
    if let Some(file) = file.or_else(|| found.exists().then_some(found)) {
        return Ok(Some((read(file)?, file.display().to_string())));
    }
    let config = Config::from_env(&environment)?;
    Ok(config.map(|config| (config, "the provider keys in the environment".to_owned())))
}

fn read(file: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Config::from_toml(&text, &file.display().to_string(), &environment)?)
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Starts the simulated provider on a thread of its own and returns its address.
fn simulate() -> anyhow::Result<SocketAddr> {
    let listener = server::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sim = Sim::new(Options { script: crate::sim::script("ttft200-itl20-n60")?, ..Options::default() });
    std::thread::Builder::new().name("sim".to_owned()).spawn(move || {
        runtime.block_on(async {
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                sim.serve(listener, std::future::pending::<()>()).await;
            }
        });
    })?;
    Ok(address)
}

fn greeting(
    config: &Config,
    source: &str,
    address: SocketAddr,
    simulated: bool,
    engines: &[String],
) -> String {
    let names: Vec<_> = config.upstreams.iter().map(|u| u.name.as_str()).collect();
    let auth = config.upstreams.iter().any(|u| matches!(u.auth, Auth::Caller));
    let mut lines = vec![format!("firsttoken is at http://{address}")];
    if simulated {
        lines.push(
            "  answers     SIMULATED: made up by a scripted provider in this process, not by a model"
                .to_owned(),
        );
    } else if let Some((name, about)) = &config.demo {
        lines.push(format!("  answers     {name}, because {source}"));
        lines.push(format!("              {about}"));
        lines.push(
            "  for more    serve --model FILE.gguf, ANTHROPIC_API_KEY or OPENAI_API_KEY, firsttoken.toml"
                .to_owned(),
        );
    } else {
        lines.push(format!("  answers     {} (from {source})", names.join(", ")));
    }
    lines.extend(engines.iter().map(|engine| format!("  engine      {engine}")));
    lines.push(if config.keys.is_empty() {
        "  callers     anyone on this machine: no key is configured (firsttoken key new)".to_owned()
    } else {
        format!("  callers     {} key(s)", config.keys.len())
    });
    if auth {
        lines.push("  their keys  pass to upstreams with auth = \"caller\"".to_owned());
    }
    let question = if config.demo.is_some() {
        "Can I pause my annual subscription?"
    } else {
        "What is time to first token?"
    };
    let url =
        if address == Config::bare().listen { String::new() } else { format!("--url http://{address} ") };
    lines.push(format!("  try         the page at http://{address}, or firsttoken chat {url}\"{question}\""));
    lines
        .push(format!("  SDKs        base_url = http://{address}/v1 (OpenAI), http://{address} (Anthropic)"));
    lines.join("\n")
}

/// Logs to standard error; see [`log`] for how.
pub(crate) fn start_log(json: bool) -> anyhow::Result<log::Guard> {
    let (writer, guard) = log::start(std::io::stderr())?;
    let filter = match environment("FIRSTTOKEN_LOG") {
        Some(text) => EnvFilter::try_new(&text).with_context(|| format!("FIRSTTOKEN_LOG={text:?}"))?,
        None => EnvFilter::new("info"),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false);
    if json {
        builder.json().flatten_event(true).init()
    } else {
        builder.compact().init()
    }
    Ok(guard)
}

/// SIGTERM drains with notice, SIGINT without; the second of either ends at once, when what was logged is
/// written. SIGHUP reads the configuration again.
fn on_signal(
    stop: Stop,
    reload: Option<Reload>,
    arguments: Arguments,
    logged: log::Lines,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let mut signals = Signals::listen()?;
    drop(entered);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            let notice = loop {
                match signals.next().await {
                    Asked::End(notice) => break notice,
                    Asked::Reload => read_again(reload.as_ref(), &arguments),
                }
            };
            stop.begin(notice);
            tracing::info!("draining; a second signal ends at once");
            while signals.next().await == Asked::Reload {}
            tracing::warn!("ending at once");
            logged.end();
            end_at_once();
        });
    })?;
    Ok(())
}

/// A configuration that is wrong changes nothing.
fn read_again(reload: Option<&Reload>, arguments: &Arguments) {
    let Some(reload) = reload else { return tracing::warn!("--sim has no configuration to read again") };
    let read = configuration(arguments).and_then(|(config, source)| {
        let late = reload.apply(config).map_err(|e| anyhow::anyhow!("{source}: {e}"))?;
        Ok((source, late))
    });
    match read {
        Ok((source, late)) if late.is_empty() => tracing::info!(source, "configuration read again"),
        Ok((source, late)) => {
            tracing::warn!(source, after_a_restart = late.join(", "), "configuration read again");
        }
        Err(error) => tracing::error!("the configuration stays as it was: {error:#}"),
    }
}

#[expect(clippy::exit, reason = "asked for twice: what still runs shall not be waited for")]
fn end_at_once() {
    std::process::exit(130);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_on_the_command_line_holds_when_the_file_is_read_again() {
        let file = std::env::temp_dir().join(format!("firsttoken-listen-{}.toml", std::process::id()));
        let toml = "listen = \"127.0.0.1:9\"\n[[upstreams]]\nname = \"u\"\nprovider = \"openai\"\n\
                    base_url = \"http://127.0.0.1:9\"\nauth = \"none\"\n";
        std::fs::write(&file, toml).unwrap();
        let arguments = Arguments {
            drafts: Drafts::default(),
            model: Vec::new(),
            kv_dir: None,
            kv_dir_gib: 8,
            config: Some(file.clone()),
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 8))),
            sim: false,
            log: "text".to_owned(),
        };
        let gateway =
            Gateway::new(configuration(&arguments).unwrap().0, firsttoken_gateway::Network::Sockets);
        let again = |arguments: &Arguments| gateway.reload().apply(configuration(arguments).unwrap().0);
        assert_eq!(again(&arguments), Ok(Vec::new()));
        let without = Arguments { listen: None, ..arguments };
        assert_eq!(again(&without), Ok(vec!["listen"]));
        let more = Arguments { model: vec!["m.gguf".into()], ..without };
        assert_eq!(again(&more), Ok(vec!["listen", "engines"]));
        std::fs::remove_file(&file).unwrap();
    }
}
