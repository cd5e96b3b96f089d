//! The gateway, who answers it, and new connections to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firsttoken_gateway::config::{Config, UpstreamConfig};
use firsttoken_gateway::server::Gateway;
use firsttoken_gateway::{Network, Pipes};
use firsttoken_sim::{Options, Sim};
use http::Uri;
use serde_json::Value;
use tokio::io::DuplexStream;

use crate::Client;

/// Bytes that a pipe holds, unless a test says otherwise.
pub const PIPE_BYTES: usize = 64 * 1024;

/// A gateway and its surroundings.
pub struct World {
    gateway: Gateway,
    sim: Arc<Sim>,
    dials: Arc<AtomicU64>,
}

/// The gateway's configuration in most tests: both dialects, every model name, one simulated provider.
#[must_use]
pub fn config() -> Config {
    Config::for_upstream(&Uri::from_static("http://sim"))
}

impl World {
    /// A gateway in front of the simulated provider.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with_pipes(config, PIPE_BYTES)
    }

    /// The same, where the pipes to the provider hold `pipe_bytes`.
    #[must_use]
    pub fn with_pipes(config: Config, pipe_bytes: usize) -> Self {
        let sim = Sim::new(Options::default());
        let served = sim.clone();
        let open = move |_: &UpstreamConfig| {
            let (ours, theirs) = tokio::io::duplex(pipe_bytes);
            drop(tokio::spawn(served.clone().serve_connection(theirs)));
            Ok(ours)
        };
        Self::over(config, sim, Arc::new(open))
    }

    /// A gateway whose upstream connections `open` makes; the simulated provider stays idle.
    #[must_use]
    pub fn dialling(config: Config, open: Pipes) -> Self {
        Self::over(config, Sim::new(Options::default()), open)
    }

    fn over(config: Config, sim: Arc<Sim>, open: Pipes) -> Self {
        let dials = Arc::new(AtomicU64::new(0));
        let counted = dials.clone();
        let network = Network::Pipes(Arc::new(move |upstream| {
            counted.fetch_add(1, Relaxed);
            open(upstream)
        }));
        Self { gateway: Gateway::new(config, network), sim, dials }
    }

    /// The provider.
    #[must_use]
    pub const fn sim(&self) -> &Arc<Sim> {
        &self.sim
    }

    /// How many connections the gateway has opened.
    #[must_use]
    pub fn dials(&self) -> u64 {
        self.dials.load(Relaxed)
    }

    /// A new connection to the gateway: the client's end of a pipe that holds `bytes` each way.
    #[must_use]
    pub fn pipe(&self, bytes: usize, h2: bool) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(bytes);
        let mut event_loop = self.gateway.on_this_loop();
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_000));
        drop(tokio::spawn(async move { event_loop.serve_connection(theirs, addr, h2).await }));
        ours
    }

    /// A client over HTTP/1.1.
    pub async fn client(&self) -> Client {
        Client::new(self.pipe(PIPE_BYTES, false), false).await
    }

    /// A client over HTTP/2.
    pub async fn client_h2(&self) -> Client {
        Client::new(self.pipe(PIPE_BYTES, true), true).await
    }

    /// The id that the gateway gives to its next request, after this one that only asks for it.
    pub async fn next_id(&self) -> String {
        let id = self.client().await.get("/v1/models").await.header("x-firsttoken-request-id");
        let (process, number) = id.split_at(id.len() - 8);
        let number = u32::from_str_radix(number, 16).expect("ids end in a number");
        format!("{process}{:08x}", number + 1)
    }

    /// The timeline of a finished request, asked for on a connection of its own; null where there is none.
    pub async fn timeline(&self, id: &str) -> Value {
        let got = self.client().await.get(&format!("/v1/requests/{id}")).await;
        if got.status == 200 { got.json() } else { Value::Null }
    }
}
