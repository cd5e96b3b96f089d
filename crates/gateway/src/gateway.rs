//! What all requests share, and what belongs to one event loop.
//!
//! [`Shared`] exists once per process. A [`Worker`] belongs to one thread: its upstream connections
//! live on that thread's event loop, so no socket ever crosses threads on the way of a token.
//!
//! The configuration can be replaced while requests run. Each keeps the [`Setup`] that it began with.
//!
//! Invariant: a replaced configuration ends no request and closes no connection that is still of use.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::config::{Config, UpstreamConfig};
use crate::evidence::Evidence;
use crate::keys::Keyring;
use crate::lines::Lines;
use crate::quotas::Quotas;
use crate::tail::Tails;
use crate::upstream::{Network, Remote, Upstream};

/// A configuration, and what follows from it alone.
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) keys: Keyring,
}

impl Loaded {
    fn new(config: Config) -> Arc<Self> {
        Arc::new(Self { keys: Keyring::new(&config.keys), config })
    }
}

/// What exists once per process.
pub(crate) struct Shared {
    loaded: RwLock<Arc<Loaded>>,
    pub(crate) evidence: Arc<Evidence>,
    pub(crate) tails: Tails,
    pub(crate) lines: Lines,
    pub(crate) quotas: Arc<Quotas>,
    /// Whether `/readyz` says yes: not before the sockets listen, not once a drain began.
    pub(crate) ready: AtomicBool,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self {
            evidence: Evidence::new(config.limits.timelines_max),
            ready: AtomicBool::new(false),
            tails: Tails::default(),
            lines: Lines::default(),
            quotas: Arc::default(),
            loaded: RwLock::new(Loaded::new(config)),
        })
    }

    /// What is configured now.
    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests that begin from now on go by `config`.
    pub(crate) fn replace(&self, config: Config) {
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Loaded::new(config);
    }
}

/// What belongs to one event loop.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    network: Network,
    setup: Mutex<Arc<Setup>>,
}

/// What a request goes by, from its beginning to its end.
pub(crate) struct Setup {
    pub(crate) shared: Arc<Shared>,
    loaded: Arc<Loaded>,
    /// In the order of [`Config::upstreams`].
    upstreams: Vec<(Arc<str>, Arc<Remote>)>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, network: &Network) -> Arc<Self> {
        let setup = Mutex::new(Arc::new(Setup::new(shared.clone(), shared.loaded(), network, None)));
        Arc::new(Self { shared, network: network.clone(), setup })
    }

    /// What a request that begins now goes by.
    pub(crate) fn setup(&self) -> Arc<Setup> {
        let loaded = self.shared.loaded();
        let mut setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&setup.loaded, &loaded) {
            *setup = Arc::new(Setup::new(self.shared.clone(), loaded, &self.network, Some(&setup)));
        }
        setup.clone()
    }

    /// Drops idle upstream connections that are of no more use.
    pub(crate) fn sweep(&self) {
        for (_, remote) in &self.setup().upstreams {
            remote.sweep();
        }
    }
}

impl Setup {
    /// Upstreams that were there `before`, and are configured as they were, keep their connections.
    fn new(shared: Arc<Shared>, loaded: Arc<Loaded>, network: &Network, before: Option<&Self>) -> Self {
        let buffer_bytes = Bounds::of(loaded.config.limits.stream_bytes_max).upstream_socket;
        let unchanged = before.filter(|before| {
            before.loaded.config.limits.stream_bytes_max == loaded.config.limits.stream_bytes_max
        });
        let remote = |config: &UpstreamConfig| {
            let kept = unchanged.and_then(|before| {
                let at = before.loaded.config.upstreams.iter().position(|other| other == config)?;
                Some(before.upstreams[at].1.clone())
            });
            let fresh = || Arc::new(Remote::new(Arc::new(config.clone()), network.clone(), buffer_bytes));
            (config.name.as_str().into(), kept.unwrap_or_else(fresh))
        };
        let upstreams = loaded.config.upstreams.iter().map(remote).collect();
        Self { shared, loaded, upstreams }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.loaded.config
    }

    pub(crate) fn keys(&self) -> &Keyring {
        &self.loaded.keys
    }

    /// The upstream at `index` of the configuration, and its name.
    pub(crate) fn upstream(&self, index: usize) -> (&Arc<str>, &dyn Upstream) {
        let (name, remote) = &self.upstreams[index];
        (name, &**remote)
    }
}
/// How the byte bound of one stream is divided. The kernel reserves twice what is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// For `SO_RCVBUF` toward the upstream.
    pub(crate) upstream_socket: usize,
    /// For `SO_SNDBUF` toward the client.
    pub(crate) client_socket: usize,
    /// For what is read and not yet written.
    pub(crate) write_buffer: usize,
}

impl Bounds {
    /// As the kernel counts them: half for the client's socket, a quarter for the upstream's; the rest
    /// is ours, and the frame in flight. Over loopback a segment has 64 KiB, and where the client's
    /// buffer cannot hold two of them every write waits for an acknowledgement that the client's kernel
    /// delays: 40 MB took 20 s with a quarter, 0.2 s with a half.
    pub(crate) fn of(stream_bytes_max: usize) -> Self {
        let quarter = stream_bytes_max / 4;
        Self { upstream_socket: quarter / 2, client_socket: quarter, write_buffer: quarter.max(8192) }
    }
}
