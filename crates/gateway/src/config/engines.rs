//! `[[engines]]`: models that this machine computes itself.
//!
//! What is asked of an engine is read here and carried out elsewhere: the gateway knows no kernels. Each
//! is an upstream of its own name, with a rule of its own before those of `[[models]]`.
//!
//! Invariant: an engine's name is no other upstream's, so that a name means one who answers.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use super::env::Text;
use super::problems::{Complaint, Spot};
use super::raw::Section;
use super::{Auth, Config, ModelRule, Provider, UpstreamConfig, targets};

/// Most tokens that a context can be asked for.
const CONTEXT_TOKENS_MAX: u64 = 1 << 24;
/// Most threads that the kernels take.
const THREADS_MAX: u64 = 512;
/// Most bytes of host memory, and of a directory: a pebibyte.
const HOST_BYTES_MAX: u64 = 1 << 50;
/// Most guesses at once: more fill a tile of the kernels, and are rarely all right.
const LOOKUP_TOKENS_MAX: u64 = 32;
/// Most requests at work together: the kernels tell 256 sequences apart, and one is spare.
const REQUESTS_MAX: u64 = 255;
/// Most requests that may wait.
const QUEUE_MAX: u64 = 1_000_000;
/// Longest time that a key in seconds may say: a day.
const SECONDS_MAX: u64 = 86_400;
/// Most layers that any model has.
const LAYERS_MAX: u64 = 10_000;

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// 16-bit floats.
    #[default]
    F16,
    /// 8 bits and a scale.
    Q8_0,
    /// 4 bits and a scale.
    Q4_0,
}

impl KvType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F16, Self::Q8_0, Self::Q4_0];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }
}

/// A model that this machine computes, and how. What is `None` was not said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// What callers call it, and its name among upstreams.
    pub name: String,
    /// A GGUF file, the name of a pulled one, or an address.
    pub file: PathBuf,
    /// Tokens that all its requests together can hold.
    pub context_tokens: Option<u32>,
    /// Threads that compute.
    pub threads: Option<NonZeroU32>,
    /// Layers that a GPU computes.
    pub gpu_layers: Option<u32>,
    /// How keys and values are kept.
    pub kv_type: KvType,
    /// Host memory for prefixes that are not at work.
    pub kv_host_bytes: Option<u64>,
    /// Most tokens that prompt lookup guesses at once; zero for none.
    pub lookup_tokens_max: Option<u32>,
    /// A smaller model with the same vocabulary that guesses ahead, named as `file` is.
    pub draft: Option<PathBuf>,
    /// The longest gap between two tokens that a reader should see; `Some(None)` for no promise.
    pub itl_target: Option<Option<Duration>>,
    /// Where prefixes are kept across restarts.
    pub kv_dir: Option<PathBuf>,
    /// Bytes that these may take.
    pub kv_dir_bytes_max: Option<u64>,
    /// Most requests at work together.
    pub requests_max: Option<u32>,
    /// Most requests that wait.
    pub queue_max: Option<u32>,
    /// Longest that a request may have to wait.
    pub queue_time_max: Option<Duration>,
    /// Whether it runs in a process of its own.
    pub isolate: bool,
    /// When nobody has asked for so long it is unloaded.
    pub idle_unload: Option<Duration>,
}

impl EngineConfig {
    /// This model under this name, and nothing else said.
    #[must_use]
    pub fn new(name: impl Into<String>, file: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            file: file.into(),
            context_tokens: None,
            threads: None,
            gpu_layers: None,
            kv_type: KvType::F16,
            kv_host_bytes: None,
            lookup_tokens_max: None,
            draft: None,
            itl_target: None,
            kv_dir: None,
            kv_dir_bytes_max: None,
            requests_max: None,
            queue_max: None,
            queue_time_max: None,
            isolate: false,
            idle_unload: None,
        }
    }

    /// The engine as the gateway reaches it.
    pub(super) fn upstream(&self) -> UpstreamConfig {
        UpstreamConfig {
            name: self.name.clone(),
            provider: Provider::OpenAi,
            base_url: Uri::from_static("http://engine"),
            auth: Auth::None,
            proxy: None,
            h2c: false,
            responses: false,
            local: true,
            concurrency: None,
        }
    }
}

/// Reads one of `[[engines]]`.
pub(super) fn engine(section: &mut Section<'_>) -> (Spot<String>, EngineConfig) {
    section.missing("name", "the model name that callers send");
    let place = section.place.clone();
    let name = section.text("name", name).unwrap_or(Spot { value: String::new(), place });
    section.missing("file", "a GGUF file, the name of a pulled model, or an address");
    let file = section.text("file", file).map(|spot| spot.value).unwrap_or_default();
    let mut number = |key, range| section.number(key, range).map(|spot| spot.value);
    let small = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
    let engine = EngineConfig {
        context_tokens: small(number("context_tokens", 256..=CONTEXT_TOKENS_MAX)),
        threads: small(number("threads", 1..=THREADS_MAX)).and_then(NonZeroU32::new),
        gpu_layers: small(number("gpu_layers", 0..=LAYERS_MAX)),
        kv_host_bytes: number("kv_host_bytes", 0..=HOST_BYTES_MAX),
        lookup_tokens_max: small(number("lookup_tokens_max", 0..=LOOKUP_TOKENS_MAX)),
        kv_dir_bytes_max: number("kv_dir_bytes_max", 1..=HOST_BYTES_MAX),
        requests_max: small(number("requests_max", 1..=REQUESTS_MAX)),
        queue_max: small(number("queue_max", 1..=QUEUE_MAX)),
        queue_time_max: number("queue_seconds_max", 1..=SECONDS_MAX).map(Duration::from_secs),
        idle_unload: number("idle_unload_seconds", 1..=SECONDS_MAX).map(Duration::from_secs),
        kv_type: section.text("kv_type", kv_type).map(|spot| spot.value).unwrap_or_default(),
        itl_target: section.clock("itl_target_ms").map(|spot| spot.value),
        draft: section.text("draft", self::file).map(|spot| spot.value),
        kv_dir: section.text("kv_dir", dir).map(|spot| spot.value),
        isolate: section.flag("isolate").is_some_and(|spot| spot.value),
        ..EngineConfig::new(name.value.clone(), file)
    };
    (name, engine)
}

/// A name of a model that is no pattern, and of an upstream.
fn name(text: &Text) -> Result<String, Complaint> {
    let name = targets::pattern(text)?;
    if name.contains('*') {
        let message = format!("`{}` has a `*` in it, and this is one model", text.shown);
        return Err(Complaint::new(message).hint("other names for it go into [[models]]"));
    }
    targets::name(text)
}

fn file(text: &Text) -> Result<PathBuf, Complaint> {
    match text.value.is_empty() {
        true => Err(Complaint::new("names no file").hint("write the path of a GGUF file")),
        false => Ok(text.value.clone().into()),
    }
}

fn dir(text: &Text) -> Result<PathBuf, Complaint> {
    match text.value.is_empty() {
        true => Err(Complaint::new("names no directory").hint("it is made where there is none")),
        false => Ok(text.value.clone().into()),
    }
}

fn kv_type(text: &Text) -> Result<KvType, Complaint> {
    KvType::ALL.into_iter().find(|kv| kv.name() == text.value).ok_or_else(|| {
        let names = KvType::ALL.map(KvType::name).join(", ");
        Complaint::new(format!("`{}` is no way to keep keys and values", text.shown))
            .hint(format!("one of {names}"))
    })
}

impl Config {
    /// Answers by a demo model in this process, whatever is asked without a model; `about` is told to who lists
    /// the models.
    #[must_use]
    pub fn with_demo(mut self, name: &str, about: &str) -> Self {
        let upstream = self.upstreams.len();
        self.upstreams.push(EngineConfig::new(name, "").upstream());
        self.models.insert(0, ModelRule::new(name, upstream));
        self.demo = Some((name.to_owned(), about.to_owned()));
        self
    }

    /// Answers by engines of this machine what asks for one of their models, before any other rule.
    ///
    /// # Errors
    /// If two of them, or one and an upstream, have the same name.
    pub fn with_engines(mut self, engines: Vec<EngineConfig>) -> Result<Self, String> {
        let mut rules = Vec::new();
        for engine in engines {
            if self.upstreams.iter().any(|upstream| upstream.name == engine.name) {
                return Err(format!("two who answer are called `{}`; rename one of them", engine.name));
            }
            let upstream = self.upstreams.len();
            rules.push(ModelRule::new(&engine.name, upstream));
            self.upstreams.push(engine.upstream());
            self.engines.push(engine);
        }
        self.models.splice(0..0, rules);
        Ok(self)
    }
}
