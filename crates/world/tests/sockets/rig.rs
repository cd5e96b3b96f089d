//! A gateway on a loopback port, and a scripted provider for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use firsttoken_gateway::config::Config;
use firsttoken_gateway::server::{self, Gateway, Reload, Stop};
use firsttoken_gateway::{Network, keys};
use firsttoken_sim::{Latency, Options, Script, Sim};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{self, Answer};

/// Longest that anything is waited for. Far above what it takes; a test that needs it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Asks until `found` finds something.
pub(crate) fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "still not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs the ignored tests of this binary whose names begin like this, in a process of their own with
/// these environment variables.
pub(crate) fn in_a_process_of_its_own(tests: &str, variables: &[(&str, &str)]) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([tests, "--ignored", "--nocapture"]).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let also = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains(" 0 passed"), "{said}\n{also}");
}

/// A configuration with one upstream of each provider at `base_url`, both with a key of their own.
/// `top` goes before the first table, `rest` behind the last.
pub(crate) fn toml(base_url: &str, top: &str, rest: &str) -> String {
    format!(
        r#"
threads = 1
drain_ms = 3000
{top}
[[upstreams]]
name = "open"
provider = "openai"
base_url = "{base_url}"
api_key = "sk-theirs"
[[upstreams]]
name = "claude"
provider = "anthropic"
base_url = "{base_url}"
api_key = "sk-theirs"
[[models]]
name = "*"
upstream = "open"
[[models]]
name = "*"
upstream = "claude"
{rest}
"#
    )
}

/// A key of the gateway's, and its `[[keys]]` entry.
pub(crate) fn new_key(name: &str) -> (String, String) {
    let key = keys::generate().unwrap();
    let entry = key.toml(name);
    (key.secret, entry)
}

/// What this TOML says.
pub(crate) fn config(toml: &str) -> Config {
    Config::from_toml(toml, "test.toml", &|_| None).map_err(|p| p.to_string()).unwrap()
}

/// A running gateway.
pub(crate) struct Gate {
    pub(crate) addr: SocketAddr,
    pub(crate) reload: Reload,
    stop: Stop,
    serving: Option<JoinHandle<std::io::Result<()>>>,
}

impl Gate {
    /// A gateway in front of `provider`.
    pub(crate) fn before(provider: &Provider) -> Self {
        Self::start(&toml(&provider.url(), "", ""))
    }

    pub(crate) fn start(toml: &str) -> Self {
        Self::over(toml, Network::Sockets)
    }

    pub(crate) fn over(toml: &str, network: Network) -> Self {
        let config = config(toml);
        let listener = server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopping) = server::stop();
        let gateway = Gateway::new(config, network);
        let reload = gateway.reload();
        let serving = std::thread::spawn(move || gateway.serve(listener, &stopping));
        let gate = Self { addr, reload, stop, serving: Some(serving) };
        eventually("the gateway is ready", || (gate.get("/readyz").status == 200).then_some(()));
        gate
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        client::ask(self.addr, &client::request("GET", path, &["connection: close"], b""))
    }

    /// Posts JSON on a connection of its own.
    pub(crate) fn post(&self, path: &str, headers: &[&str], body: &Value) -> Answer {
        client::ask(self.addr, &client::request("POST", path, headers, body.to_string().as_bytes()))
    }

    /// The value of a sample in `/metrics`, by the whole of what stands before it.
    pub(crate) fn metric(&self, sample: &str) -> Option<f64> {
        let text = self.get("/metrics").text();
        let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == sample))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    /// The timeline of a request that has ended, or will soon.
    pub(crate) fn timeline(&self, id: &str, headers: &[&str]) -> Value {
        let mut all = vec!["connection: close"];
        all.extend_from_slice(headers);
        let request = client::request("GET", &format!("/v1/requests/{id}"), &all, b"");
        eventually(&format!("the timeline of {id} is there"), || {
            let answer = client::ask(self.addr, &request);
            (answer.status == 200).then(|| answer.json())
        })
    }

    /// Waits until no request runs and nobody is connected but the one who asks.
    pub(crate) fn is_quiet(&self) {
        eventually("no request is left in the gateway", || {
            let active = self.metric("firsttoken_requests_active")?;
            let connections = self.metric("firsttoken_connections")?;
            (active <= 0.0 && connections <= 1.0).then_some(())
        });
    }

    pub(crate) fn stop(&self, notice: Duration) {
        self.stop.begin(notice);
    }

    /// Waits until serving has ended.
    pub(crate) fn join(mut self) {
        let serving = self.serving.take().unwrap();
        eventually("the gateway has ended", || serving.is_finished().then_some(()));
        serving.join().unwrap().unwrap();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.begin(Duration::ZERO);
        if let Some(serving) = self.serving.take()
            && !std::thread::panicking()
        {
            serving.join().unwrap().unwrap();
        }
    }
}

/// A scripted provider on a loopback port.
pub(crate) struct Provider {
    pub(crate) sim: Arc<Sim>,
    pub(crate) addr: SocketAddr,
    shutdown: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Provider {
    /// One that answers at once, in ten tokens.
    pub(crate) fn quick() -> Self {
        Self::with(Options::default())
    }

    /// One with these options, but for the script.
    pub(crate) fn with(options: Options) -> Self {
        let script = Script {
            ttft: Latency::constant(1.0),
            itl: Latency::constant(1.0),
            text_tokens: Some(10),
            ..Script::default()
        };
        let sim = Sim::new(Options { script, ..options });
        let listener = server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = listener.local_addr().unwrap();
        let (shutdown, stopped) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let serving = sim.clone();
        drop(std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                serving.serve(listener, stopped).await;
            });
        }));
        Self { sim, addr, shutdown: Some(shutdown) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The last request as the provider saw it: its headers as `name: value` lines, and its body.
    pub(crate) fn last(&self) -> (Vec<String>, String) {
        let last = self.sim.last().unwrap();
        (last.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect(), last.body)
    }

    /// Waits until nothing runs here; says how many requests were left by their peer.
    pub(crate) fn all_over(&self) -> u64 {
        eventually("the provider has nothing left to do", || {
            let stats = self.sim.stats(0);
            (stats.active == 0).then_some(stats.aborted)
        })
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.shutdown.take());
    }
}

/// The four dialects that stream in a form of their own, and the typed events.
pub(crate) const PATHS: [&str; 5] =
    ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions", "/v1/chat"];

/// A request that `path` takes.
pub(crate) fn body(path: &str, model: &str) -> Value {
    match path {
        "/v1/responses" => json!({"model": model, "stream": true, "input": "Why is the sky blue?"}),
        "/v1/completions" => json!({"model": model, "stream": true, "prompt": "Why is the sky blue?"}),
        "/v1/chat" => json!({"model": model, "messages": [{"role": "user", "content": "Why?"}]}),
        _ => json!({"model": model, "stream": true, "max_tokens": 10_000_000,
            "messages": [{"role": "user", "content": "Why is the sky blue?"}]}),
    }
}

/// Checks that `answer` is an error as callers of `path` know them; returns its message and its code.
pub(crate) fn error_of(path: &str, answer: &Answer) -> (String, String) {
    let json = answer.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    assert_eq!(answer.header("content-type"), Some("application/json"), "{path}: {answer:?}");
    if path.starts_with("/v1/messages") {
        assert_eq!(json["type"], "error", "{path}: {json}");
    }
    let error = &json["error"];
    assert!(error.is_object() && !text(&error["message"]).is_empty(), "{path}: {json}");
    (text(&error["message"]), text(&error["code"]))
}
