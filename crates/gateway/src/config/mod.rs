//! The configuration as the rest of the gateway sees it: checked, complete, without defaults to fill in.
//!
//! `raw` is what the TOML may say, `check` turns it into these types and reports every problem at
//! once with its line and key. Past this module an invalid configuration cannot be written down.
//!
//! | module | what it holds |
//! |---|---|
//! | `raw` | reading TOML by hand, each value with its place |
//! | `env` | `${NAME}` in strings; the configuration without a file |
//! | `check` | the top level, keys, limits |
//! | `targets` | upstreams, and the rules that lead to them |
//! | `engines` | models that this machine computes itself |
//! | `policy` | clocks, stream settings, routes |
//! | `url`, `net`, `proxy` | addresses, networks, the proxy that the environment asks for |
//! | `resolve` | which rule and which policy a request meets |
//! | `problems` | what is wrong, where, and what to do |

mod check;
mod engines;
mod env;
mod net;
mod policy;
mod problems;
mod proxy;
mod raw;
mod resolve;
mod targets;
#[cfg(test)]
mod tests;
mod url;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use firsttoken_logic::tail::limit::Bounds;
use firsttoken_logic::tail::{admission, hedge, retry};
use firsttoken_wire::Dialect;
use http::Uri;

pub use self::engines::{EngineConfig, KvType};
pub use self::problems::Problems;
pub use self::resolve::{DEFAULT_ROUTE, Target};

/// Longest name of a key, tenant, upstream or route, in characters.
pub const NAME_CHARS_MAX: usize = 64;

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
    /// Models that this machine computes itself; each is one of `upstreams` too.
    pub engines: Vec<EngineConfig>,
    /// The model that answers because nobody else was configured: its name, and what it is.
    pub demo: Option<(String, String)>,
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

impl Config {
    /// Reads a configuration file's `text`. `file` is what problems call it; `env` finds environment
    /// variables, for `${NAME}` in strings and for `HTTPS_PROXY` and `NO_PROXY`.
    ///
    /// # Errors
    /// All that is wrong with it, at once.
    pub fn from_toml(text: &str, file: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Problems> {
        check::config(text, file, env)
    }

    /// The configuration without a file: the providers whose key is in the environment
    /// (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`), at their official address unless `ANTHROPIC_BASE_URL` or
    /// `OPENAI_BASE_URL` say otherwise, on loopback. `None` if neither key is set.
    ///
    /// # Errors
    /// What is wrong with those variables.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, Problems> {
        env::config(env)
    }

    /// Both dialects at one address that asks for no key, for every model: a simulated provider.
    #[must_use]
    pub fn for_upstream(base_url: &Uri) -> Self {
        let providers = [Provider::OpenAi, Provider::Anthropic];
        let upstream = |provider: Provider| UpstreamConfig {
            name: provider.name().to_owned(),
            provider,
            base_url: base_url.clone(),
            auth: Auth::None,
            proxy: None,
            h2c: false,
            responses: true,
            local: false,
            concurrency: None,
        };
        let rule = |upstream| ModelRule::new("*", upstream);
        let mut config = Self::bare();
        config.models = (0..providers.len()).map(rule).collect();
        config.upstreams = providers.map(upstream).into();
        config
    }

    /// Listens elsewhere than the file says, as a flag may ask.
    ///
    /// # Errors
    /// If others could then reach a gateway without keys.
    pub fn listen_on(mut self, listen: SocketAddr) -> Result<Self, String> {
        self.listen = listen;
        check::exposed(listen, !self.keys.is_empty()).map_or(Ok(self), |complaint| Err(complaint.to_string()))
    }

    /// The defaults, with nobody to answer yet.
    #[must_use]
    pub fn bare() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            keys: Vec::new(),
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            upstreams: Vec::new(),
            engines: Vec::new(),
            demo: None,
            models: Vec::new(),
            routes: Vec::new(),
            defaults: Policy::default(),
            limits: Limits::default(),
            drain: Duration::from_secs(30),
        }
    }
}

/// Says what is wrong with the name of a key, tenant, upstream or route.
///
/// # Errors
/// What it must be instead.
pub fn check_name(name: &str) -> Result<(), String> {
    targets::name_problem(name).map_or(Ok(()), Err)
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
    /// How much it may ask.
    pub limits: KeyLimits,
}

/// How much a key may ask; `None`: as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Requests a minute.
    pub requests_per_minute: Option<u32>,
    /// Requests at a time.
    pub concurrency_max: Option<u32>,
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
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Its name in logs, metrics and timelines.
    pub name: String,
    /// What it speaks: `openai` (Chat Completions and its siblings) or `anthropic`.
    pub provider: Provider,
    /// Scheme, authority and path prefix **before** `/v1`, without a trailing slash. (A [`Uri`] cannot
    /// say "no path": no prefix is the path `/`. See [`Self::path_prefix`].)
    pub base_url: Uri,
    /// How it is told who we are.
    pub auth: Auth,
    /// Proxy to tunnel through (from `HTTPS_PROXY` unless said), `None` to dial directly.
    pub proxy: Option<Uri>,
    /// Use HTTP/2 without TLS (prior knowledge). With TLS the protocol is negotiated.
    pub h2c: bool,
    /// Whether it serves OpenAI's `/v1/responses` itself; where not, that is translated.
    pub responses: bool,
    /// Whether it is an engine of this machine, and no network lies between.
    pub local: bool,
    /// How many requests it gets at a time; `None`: all there are.
    pub concurrency: Option<Bounds>,
}

impl UpstreamConfig {
    /// Whether a request in this dialect can pass to it as it came.
    #[must_use]
    pub fn speaks(&self, dialect: Dialect) -> bool {
        match self.provider {
            Provider::OpenAi => {
                dialect != Dialect::Anthropic && (self.responses || dialect != Dialect::OpenAiResponses)
            }
            Provider::Anthropic => dialect == Dialect::Anthropic,
        }
    }

    /// What stands before `/v1` in every path sent to it: empty, or such as `/api`.
    #[must_use]
    pub fn path_prefix(&self) -> &str {
        self.base_url.path().trim_end_matches('/')
    }
}

impl std::fmt::Debug for UpstreamConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, provider, base_url, auth, proxy, h2c, responses, local, concurrency } = self;
        // A proxy's URL may have a password in it.
        let proxy = proxy.as_ref().map(|proxy| url::redact(&proxy.to_string()));
        f.debug_struct("UpstreamConfig")
            .field("name", name)
            .field("provider", provider)
            .field("base_url", base_url)
            .field("auth", auth)
            .field("proxy", &proxy)
            .field("h2c", h2c)
            .field("responses", responses)
            .field("local", local)
            .field("concurrency", concurrency)
            .finish()
    }
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

    /// Its name in the configuration, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// The environment variable in which its users keep their key.
    #[must_use]
    pub const fn key_variable(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
        }
    }

    /// Where it is unless said otherwise, in the form of [`UpstreamConfig::base_url`].
    #[must_use]
    pub fn official_base_url(self) -> Uri {
        Uri::from_static(match self {
            Self::OpenAi => "https://api.openai.com",
            Self::Anthropic => "https://api.anthropic.com",
        })
    }
}

/// How an upstream is told who asks.
#[derive(Clone, PartialEq, Eq)]
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
    /// Name to send instead; `None` sends the caller's. A `*` in it stands for what the `*` of the
    /// pattern matched.
    pub rename: Option<String>,
    /// Who answers in its place, in this order, when it fails or is late.
    pub fallbacks: Vec<Fallback>,
}

impl ModelRule {
    /// All names that `pattern` matches go to `upstream` as they are, and to nobody else.
    #[must_use]
    pub fn new(pattern: &str, upstream: usize) -> Self {
        Self { pattern: pattern.to_owned(), upstream, rename: None, fallbacks: Vec::new() }
    }
}

/// An upstream that may answer in another's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Index into [`Config::upstreams`].
    pub upstream: usize,
    /// Name to send to it; as [`ModelRule::rename`].
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
    /// Refuse a request of which something would be dropped on its way into another dialect.
    pub strict: bool,
    /// What is tried again.
    pub retry: retry::Policy,
    /// What is sent twice; a share of none: nothing.
    pub hedge: hedge::Policy,
    /// How long the line before an upstream with a limit may be.
    pub queue: admission::Policy,
    /// Whether somebody looks on.
    pub priority: admission::Priority,
}

impl Default for Policy {
    /// The clocks' own defaults; head commit after 15 s, keepalive every 15 s, stall above 1 s, usage
    /// asked for; three attempts where there are fallbacks, nothing sent twice.
    fn default() -> Self {
        Self {
            clocks: firsttoken_logic::clocks::Limits::default(),
            head_commit: Duration::from_secs(15),
            keepalive: Duration::from_secs(15),
            stall_threshold: Duration::from_secs(1),
            inject_usage: true,
            strict: false,
            retry: retry::Policy::default(),
            hedge: hedge::Policy { share_per_mille: 0, ..hedge::Policy::default() },
            queue: admission::Policy::default(),
            priority: admission::Priority::default(),
        }
    }
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

impl Default for Limits {
    /// Room for large prompts, little for each stream: with 20,000 connections the streams hold at
    /// most 5 GiB, most of it in the kernel and only of readers that stall.
    fn default() -> Self {
        const KIB: usize = 1024;
        const MIB: usize = 1024 * KIB;
        Self {
            body_bytes_max: 32 * MIB,
            header_bytes_max: 64 * KIB,
            event_bytes_max: 128 * KIB,
            stream_bytes_max: 256 * KIB,
            request_timeout: Duration::from_secs(30),
            client_stall: Duration::from_secs(60),
            connections_max: 20_000,
            timelines_max: 1_000,
            answer_bytes_max: 8 * MIB,
        }
    }
}
