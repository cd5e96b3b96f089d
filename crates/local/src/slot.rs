//! A model's place in the server: loaded, or away until somebody asks.
//!
//! Nobody has asked for a while: the model is unloaded, and its weights and KV memory are given back. The
//! next request waits until it is there again; others that come meanwhile wait for the same load.
//!
//! Invariant: a model that somebody uses stays; one that is loaded is loaded once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use firsttoken_wire::{ApiError, ErrorKind};
use tokio::time::Instant;

use crate::ask::unsupported;
use crate::embeddings::Embeddings;
use crate::model::{Model, Options, StartError};
use crate::{fit, kv};

/// How often idleness is looked at, at most.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(10);

/// A model that can be asked; clones share it.
#[derive(Clone)]
pub enum Loaded {
    /// It writes.
    Writes(Arc<Model>),
    /// It makes embeddings.
    Embeds(Arc<Embeddings>),
}

impl From<Model> for Loaded {
    fn from(model: Model) -> Self {
        Self::Writes(Arc::new(model))
    }
}

impl Loaded {
    /// Loads a model: one whose file says how to pool embeddings makes them, any other writes.
    ///
    /// # Errors
    /// What is wrong with the file or the options, or what memory lacks.
    pub fn start(options: Options) -> Result<Self, StartError> {
        Ok(match fit::embeds(&kv::header(&options.file)?) {
            true => Self::Embeds(Arc::new(Embeddings::start(options)?)),
            false => Self::Writes(Arc::new(Model::start(options)?)),
        })
    }

    /// What it is and takes, in a line.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Writes(model) => model.describe(),
            Self::Embeds(model) => model.describe(),
        }
    }

    fn options(&self) -> &Options {
        match self {
            Self::Writes(model) => &model.options,
            Self::Embeds(model) => &model.options,
        }
    }

    fn context(&self) -> u32 {
        match self {
            Self::Writes(model) => model.context,
            Self::Embeds(model) => model.tokens_max(),
        }
    }

    /// Whether anybody else has it.
    fn is_used(&self) -> bool {
        match self {
            Self::Writes(model) => Arc::strong_count(model) > 1,
            Self::Embeds(model) => Arc::strong_count(model) > 1,
        }
    }

    /// Gives back all that it holds; waits for it.
    fn close(self) {
        match self {
            Self::Writes(model) => Arc::into_inner(model).map(Model::close),
            Self::Embeds(model) => Arc::into_inner(model).map(Embeddings::close),
        };
    }
}

/// See the module.
pub(crate) struct Slot {
    options: Options,
    /// Tokens of a request, at most.
    pub(crate) context: u32,
    state: Mutex<State>,
    /// Held while it is loaded.
    loading: Arc<tokio::sync::Mutex<()>>,
}

struct State {
    loaded: Option<Loaded>,
    /// When somebody had it last.
    used: Instant,
    /// Why it could not be loaded when it was last tried.
    fault: Option<String>,
}

impl Slot {
    pub(crate) fn new(loaded: Loaded) -> Arc<Self> {
        let (options, context) = (loaded.options().clone(), loaded.context());
        let idle = options.idle_unload;
        let state = Mutex::new(State { loaded: Some(loaded), used: Instant::now(), fault: None });
        let slot = Arc::new(Self { options, context, state, loading: Arc::default() });
        if let Some(idle) = idle {
            let watched = Arc::downgrade(&slot);
            let watch =
                std::thread::Builder::new().name("idle".to_owned()).spawn(move || watch(&watched, idle));
            if let Err(error) = watch {
                tracing::warn!(%error, "no thread to see idle models; this one stays loaded");
            }
        }
        slot
    }

    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    /// What is loaded now.
    pub(crate) fn loaded(&self) -> Option<Loaded> {
        self.state().loaded.clone()
    }

    /// Why it could not be loaded.
    pub(crate) fn fault(&self) -> Option<String> {
        self.state().fault.clone()
    }

    /// Holds the model, if it is loaded.
    pub(crate) fn held(self: &Arc<Self>) -> Option<Lease> {
        let loaded = self.state().loaded.clone()?;
        Some(Lease { loaded, slot: Arc::clone(self) })
    }

    /// Holds the model, which is loaded if it is not.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<Lease, ApiError> {
        let one = Arc::clone(&self.loading).lock_owned().await;
        if let Some(lease) = self.held() {
            return Ok(lease);
        }
        let slot = Arc::clone(self);
        // Who leaves does not stop it: others wait for the same.
        let loading = tokio::task::spawn_blocking(move || {
            let lease = slot.load();
            drop(one);
            lease
        });
        loading
            .await
            .unwrap_or_else(|_| Err(ApiError::new(ErrorKind::Internal, "the model could not be loaded")))
    }

    fn load(self: &Arc<Self>) -> Result<Lease, ApiError> {
        let began = Instant::now();
        match Loaded::start(self.options.clone()) {
            Ok(loaded) => {
                let seconds = began.elapsed().as_secs_f64();
                tracing::info!(model = self.name(), seconds, "an idle model was loaded again");
                let mut state = self.state();
                (state.loaded, state.fault) = (Some(loaded.clone()), None);
                Ok(Lease { loaded, slot: Arc::clone(self) })
            }
            Err(error) => {
                tracing::error!(model = self.name(), %error, "an idle model cannot be loaded again");
                self.state().fault = Some(format!("it cannot be loaded: {error}"));
                let message = format!("{} was idle, and cannot be loaded again now", self.name());
                Err(ApiError::new(ErrorKind::Unavailable, message).code("model_not_loaded").retry_after_s(1))
            }
        }
    }

    /// Unloads the model if nobody has had it for `idle`, else says how long that can still take.
    fn unload(&self, idle: Duration) -> Option<Duration> {
        let mut state = self.state();
        let left = idle.saturating_sub(state.used.elapsed());
        match &state.loaded {
            Some(loaded) if loaded.is_used() => return Some(idle),
            Some(_) if !left.is_zero() => return Some(left),
            _ => {}
        }
        // Nobody else has it, and nobody gets it while the state is locked.
        let loaded = state.loaded.take()?;
        drop(state);
        loaded.close();
        tracing::info!(model = self.name(), "unloaded: nobody has asked for it");
        None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks whether the model is idle, as long as there is a slot.
fn watch(slot: &Weak<Slot>, idle: Duration) {
    while let Some(slot) = slot.upgrade() {
        let again = slot.unload(idle).unwrap_or(idle).max(LOOK_AGAIN_MIN);
        drop(slot);
        std::thread::park_timeout(again);
    }
}

/// A model that somebody uses.
pub(crate) struct Lease {
    loaded: Loaded,
    slot: Arc<Slot>,
}

impl Lease {
    pub(crate) fn name(&self) -> &str {
        self.slot.name()
    }

    /// The model, if it writes.
    pub(crate) fn model(&self) -> Result<&Arc<Model>, ApiError> {
        match &self.loaded {
            Loaded::Writes(model) => Ok(model),
            Loaded::Embeds(_) => {
                let message =
                    format!("{} makes embeddings and does not write; ask at /v1/embeddings", self.name());
                Err(unsupported(message).at("model"))
            }
        }
    }

    /// The model, if it makes embeddings.
    pub(crate) fn embeddings(&self) -> Result<&Arc<Embeddings>, ApiError> {
        match &self.loaded {
            Loaded::Embeds(model) => Ok(model),
            Loaded::Writes(_) => {
                let message = format!(
                    "{} writes, and makes no embeddings; load a model whose file names a pooling type",
                    self.name()
                );
                Err(unsupported(message).at("model"))
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.slot.state().used = Instant::now();
    }
}
