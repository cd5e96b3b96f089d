//! What all requests share, and what belongs to one event loop.
//!
//! [`Shared`] exists once per process. A [`Worker`] belongs to one thread: its upstream connections
//! live on that thread's event loop, so no socket ever crosses threads on the way of a token.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::config::Config;
use crate::evidence::Evidence;
use crate::keys::Keyring;
use crate::upstream::{Network, Remote, Upstream};

/// What exists once per process.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) keys: Keyring,
    pub(crate) evidence: Arc<Evidence>,
    /// Whether `/readyz` says yes: not before the sockets listen, not once a drain began.
    pub(crate) ready: AtomicBool,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self {
            keys: Keyring::new(&config.keys),
            evidence: Evidence::new(config.limits.timelines_max),
            ready: AtomicBool::new(false),
            config,
        })
    }
}

/// What belongs to one event loop.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// In the order of [`Config::upstreams`].
    upstreams: Vec<(Arc<str>, Arc<Remote>)>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, network: &Network) -> Arc<Self> {
        let buffer_bytes = Bounds::of(shared.config.limits.stream_bytes_max).upstream_socket;
        let remote = |config: &crate::config::UpstreamConfig| {
            let name: Arc<str> = config.name.as_str().into();
            (name, Arc::new(Remote::new(Arc::new(config.clone()), network.clone(), buffer_bytes)))
        };
        let upstreams = shared.config.upstreams.iter().map(remote).collect();
        Arc::new(Self { shared, upstreams })
    }

    /// The upstream at `index` of the configuration, and its name.
    pub(crate) fn upstream(&self, index: usize) -> (&Arc<str>, &dyn Upstream) {
        let (name, remote) = &self.upstreams[index];
        (name, &**remote)
    }

    /// Drops idle upstream connections that are of no more use.
    pub(crate) fn sweep(&self) {
        for (_, remote) in &self.upstreams {
            remote.sweep();
        }
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
