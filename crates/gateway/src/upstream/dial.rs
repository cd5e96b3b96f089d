//! From an upstream's configuration to a connected byte stream: names, proxies, TCP, TLS.
//!
//! Invariant: `TCP_NODELAY` is on and the receive buffer is bounded before the first byte is read.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use firsttoken_logic::failure::{Failure, Kind, Reached};
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiResolver, Name};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tower_service::Service;

use super::io::Io;
use crate::config::UpstreamConfig;

/// Opens in-memory pipes in place of sockets.
pub type Pipes = Arc<dyn Fn(&UpstreamConfig) -> io::Result<tokio::io::DuplexStream> + Send + Sync>;

/// The way to an engine of this machine.
#[derive(Debug)]
pub enum Way {
    /// It runs in this process.
    Pipe(tokio::io::DuplexStream),
    /// It runs in its own, and listens there.
    Socket(PathBuf),
}

/// Finds the way to an engine.
pub type Engines = Arc<dyn Fn(&UpstreamConfig) -> io::Result<Way> + Send + Sync>;

/// What upstreams are reached over.
#[derive(Clone)]
pub enum Network {
    /// The real one.
    Sockets,
    /// In-memory pipes for all: tests run the whole gateway on a paused clock.
    Pipes(Pipes),
    /// The real one, and what leads to the engines of this machine.
    Engines(Engines),
}

impl Network {
    /// The way to `upstream`, where it is not the network.
    fn way(&self, upstream: &UpstreamConfig) -> Option<io::Result<Way>> {
        match self {
            Self::Pipes(open) => Some(open(upstream).map(Way::Pipe)),
            Self::Engines(find) if upstream.local => Some(find(upstream)),
            Self::Engines(_) | Self::Sockets => None,
        }
    }
}

/// Opens connections to one upstream.
pub(crate) struct Dialer {
    config: Arc<UpstreamConfig>,
    network: Network,
    connector: HttpConnector<NamedResolver>,
}

/// A fresh connection.
pub(crate) struct Dialed {
    pub(crate) io: Io,
    pub(crate) is_h2: bool,
}

impl Dialer {
    /// `recv_buffer_bytes` goes into `SO_RCVBUF`; the kernel reserves twice that.
    pub(crate) fn new(config: Arc<UpstreamConfig>, network: Network, recv_buffer_bytes: usize) -> Self {
        let mut connector = HttpConnector::new_with_resolver(NamedResolver(GaiResolver::new()));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        connector.set_recv_buffer_size(Some(recv_buffer_bytes));
        Self { config, network, connector }
    }

    /// Connects. The caller keeps the connect clock.
    pub(crate) async fn dial(&self) -> Result<Dialed, Failure> {
        if let Some(way) = self.network.way(&self.config) {
            let connected = match way {
                Ok(Way::Pipe(pipe)) => Ok(Io::Pipe(pipe)),
                Ok(Way::Socket(path)) => UnixStream::connect(path).await.map(Io::Unix),
                Err(error) => Err(error),
            };
            let io = connected.map_err(|e| failure(Kind::Connect, &self.config, &e))?;
            return Ok(Dialed { io, is_h2: self.config.h2c });
        }
        let uri = &self.config.base_url;
        let tls = uri.scheme_str() == Some("https");
        let tcp = match &self.config.proxy {
            Some(proxy) => self.tunnel(proxy).await?,
            None => self.connect(uri.clone()).await?,
        };
        if !tls {
            return Ok(Dialed { io: Io::Tcp(tcp), is_h2: self.config.h2c });
        }
        let name = ServerName::try_from(uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned())
            .map_err(|e| failure(Kind::Tls, &self.config, &e))?;
        let tls = tls_connector(&self.config)?.connect(name, tcp).await;
        let tls = tls.map_err(|e| failure(Kind::Tls, &self.config, &e))?;
        let is_h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Dialed { io: Io::Tls(Box::new(tls)), is_h2 })
    }

    async fn connect(&self, uri: Uri) -> Result<TcpStream, Failure> {
        match self.connector.clone().call(uri).await {
            Ok(io) => Ok(io.into_inner()),
            Err(e) => Err(failure(if is_dns(&e) { Kind::Dns } else { Kind::Connect }, &self.config, &e)),
        }
    }

    /// Through a proxy: `CONNECT host:port`, with the credentials of the proxy's URL.
    async fn tunnel(&self, proxy: &Uri) -> Result<TcpStream, Failure> {
        let (proxy, credentials) = split_credentials(proxy);
        let name = proxy.authority().map_or_else(String::new, ToString::to_string);
        let mut tunnel = Tunnel::new(proxy, self.connector.clone());
        if let Some(value) = credentials {
            tunnel = tunnel.with_auth(value);
        }
        let uri = with_port(&self.config.base_url);
        let tunnelled: Result<TokioIo<TcpStream>, _> = tunnel.call(uri).await;
        let io = tunnelled.map_err(|e| {
            let mut failure = failure(Kind::Connect, &self.config, &e);
            failure.detail.push_str(&format!(" (through the proxy {name})"));
            failure
        })?;
        Ok(io.into_inner())
    }
}

/// The proxy's URL without its userinfo, and that as a `Proxy-Authorization` value.
fn split_credentials(proxy: &Uri) -> (Uri, Option<http::HeaderValue>) {
    use base64::Engine as _;
    let Some((userinfo, host)) = proxy.authority().and_then(|a| a.as_str().rsplit_once('@')) else {
        return (proxy.clone(), None);
    };
    let mut parts = proxy.clone().into_parts();
    parts.authority = host.parse().ok();
    // In a URL they are percent-encoded, as a password with an `@` in it has to be.
    let plain: Vec<u8> = percent_encoding::percent_decode_str(userinfo).collect();
    let encoded = base64::engine::general_purpose::STANDARD.encode(plain);
    let value = http::HeaderValue::try_from(format!("Basic {encoded}")).ok();
    (Uri::from_parts(parts).unwrap_or_else(|_| proxy.clone()), value)
}

/// `CONNECT` needs a port, also the scheme's own.
fn with_port(uri: &Uri) -> Uri {
    if uri.port().is_some() {
        return uri.clone();
    }
    let port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let mut parts = uri.clone().into_parts();
    parts.authority = format!("{}:{port}", uri.host().unwrap_or_default()).parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// TLS with the system's roots; loaded once, when the first upstream needs them.
fn tls_connector(config: &UpstreamConfig) -> Result<tokio_rustls::TlsConnector, Failure> {
    static CONNECTOR: OnceLock<Result<tokio_rustls::TlsConnector, String>> = OnceLock::new();
    let built = CONNECTOR.get_or_init(|| {
        let mut roots = rustls::RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(
                "this system has no root certificates; install the package ca-certificates".to_owned()
            );
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(client).into())
    });
    built.clone().map_err(|e| Failure::new(Kind::Tls, Reached::Nothing, format!("{}: {e}", config.name)))
}

/// Names the upstream and the innermost cause, which is the one a person can act on.
fn failure(kind: Kind, config: &UpstreamConfig, error: &(dyn StdError + 'static)) -> Failure {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let host = config.base_url.host().unwrap_or_default();
    let what = match kind {
        Kind::Dns => format!("the name {host} does not resolve"),
        Kind::Tls => format!("TLS with {host} failed"),
        _ => format!("cannot connect to {}", config.base_url.authority().map_or(host, |a| a.as_str())),
    };
    Failure::new(kind, Reached::Nothing, format!("{what}: {cause}"))
}

fn is_dns(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(e) = cause {
        if e.is::<Unresolved>() {
            return true;
        }
        cause = e.source();
    }
    false
}

/// The system's resolver, with a failure that can be told from a refused connection.
#[derive(Clone)]
struct NamedResolver(GaiResolver);

/// A name that does not resolve.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unresolved(io::Error);

impl Service<Name> for NamedResolver {
    type Response = GaiAddrs;
    type Error = Unresolved;
    type Future = Pin<Box<dyn Future<Output = Result<GaiAddrs, Unresolved>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        self.0.poll_ready(cx).map_err(Unresolved)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolving = self.0.call(name);
        Box::pin(async move { resolving.await.map_err(Unresolved) })
    }
}
