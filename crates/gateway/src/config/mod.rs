//! The configuration as the rest of the gateway sees it: checked, complete, without defaults to fill in.
//!
//! `raw` is what the TOML may say, `check` turns it into these types and reports every problem at
//! once with its line and key. Past this module an invalid configuration cannot be written down.

use std::net::SocketAddr;
use std::time::Duration;

use firsttoken_wire::Dialect;

/// Everything `firsttoken serve` needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Event-loop threads; one per core unless said otherwise.
    pub threads: usize,
    /// Who may call. Empty: anyone who can reach the socket, which must then be loopback.
    pub keys: Vec<Key>,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins that browsers may call from; `*` for any.
    pub cors_origins: Vec<String>,
    /// Who answers.
    pub upstreams: Vec<UpstreamConfig>,
    /// Which model name goes where, first match wins.
    pub models: Vec<ModelRule>,
    /// What differs from the defaults for some requests, first match wins.
    pub routes: Vec<Route>,
    /// What holds where no route says otherwise.
    pub defaults: Policy,
    /// Bounds of everything that could grow.
    pub limits: Limits,
    /// How long a drain waits for streams to end.
    pub drain: Duration,
}

/// One of our keys: the caller proves that it knows the preimage.
#[derive(Clone, Debug)]
pub struct Key {
    /// Name for logs and metrics.
    pub name: String,
    /// Whose requests these are; tenants never see each other's. Defaults to the key's name.
    pub tenant: String,
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
}

/// A network such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNet {
    /// Network address.
    pub addr: std::net::IpAddr,
    /// Length of the prefix in bits.
    pub prefix: u8,
}

/// A provider, or a server of our own.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Its name in logs, metrics and timelines.
    pub name: String,
    /// What it speaks: `openai` (Chat Completions and its siblings) or `anthropic`.
    pub provider: Provider,
    /// Scheme, authority and path prefix **before** `/v1`, without a trailing slash.
    pub base_url: http::Uri,
    /// How it is told who we are.
    pub auth: Auth,
    /// Proxy to tunnel through (from `HTTPS_PROXY` unless said), `None` to dial directly.
    pub proxy: Option<http::Uri>,
    /// Use HTTP/2 without TLS (prior knowledge). With TLS the protocol is negotiated.
    pub h2c: bool,
}

/// The family of wire dialects an upstream serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Chat Completions, Responses, completions, embeddings.
    OpenAi,
    /// Messages.
    Anthropic,
}

impl Provider {
    /// The dialect in which a chat is sent to such an upstream.
    #[must_use]
    pub fn chat_dialect(self) -> Dialect {
        match self {
            Self::OpenAi => Dialect::OpenAiChat,
            Self::Anthropic => Dialect::Anthropic,
        }
    }
}

/// How an upstream is told who asks.
#[derive(Clone)]
pub enum Auth {
    /// With this key of ours.
    Key(String),
    /// With the caller's own provider key, passed on.
    Caller,
    /// Not at all.
    None,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "Key(hidden)",
            Self::Caller => "Caller",
            Self::None => "None",
        })
    }
}

/// Which upstream serves a model name.
#[derive(Clone, Debug)]
pub struct ModelRule {
    /// Name or pattern with `*` that the caller's model name is matched against; aliases are rules of their own.
    pub pattern: String,
    /// Index into [`Config::upstreams`].
    pub upstream: usize,
    /// Name to send instead; `None` sends the caller's.
    pub rename: Option<String>,
}

/// Requests to which another policy applies.
#[derive(Clone, Debug)]
pub struct Route {
    /// Name for metrics and timelines.
    pub name: String,
    /// Patterns of model names; empty for any.
    pub models: Vec<String>,
    /// Paths such as `/v1/messages`; empty for any.
    pub paths: Vec<String>,
    /// What applies.
    pub policy: Policy,
}

/// What a route can decide.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The six clocks.
    pub clocks: firsttoken_logic::clocks::Limits,
    /// How long the head is held back for the first content (API dialects).
    pub head_commit: Duration,
    /// Silence towards the client after which a keepalive is sent.
    pub keepalive: Duration,
    /// An inter-token gap above this counts as a stall in the timeline.
    pub stall_threshold: Duration,
    /// Ask OpenAI-style upstreams for usage, and remove the extra chunk unless the caller asked too.
    pub inject_usage: bool,
}

/// Bounds, each with its unit.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest request body.
    pub body_bytes_max: usize,
    /// Largest request head.
    pub header_bytes_max: usize,
    /// Largest single event that is still metered; beyond it the stream passes raw.
    pub event_bytes_max: usize,
    /// Bytes held for one stream, kernel socket buffers included.
    pub stream_bytes_max: usize,
    /// Time for a client to send its head, and each pause within its body.
    pub request_timeout: Duration,
    /// How long a client may leave written bytes unread before it is cut.
    pub client_stall: Duration,
    /// Connections served at once, per process.
    pub connections_max: usize,
    /// Finished requests whose timelines are kept.
    pub timelines_max: usize,
    /// Largest whole (non-streamed) answer that is read for its usage; larger ones pass unread.
    pub answer_bytes_max: usize,
}
