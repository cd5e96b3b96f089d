//! A model file becomes an engine with a thread of its own.
//!
//! Invariant: what is wrong with the file, the options or the memory is said before anything is
//! computed.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use firsttoken_engine::backend::Backend as _;
use firsttoken_engine::driver::{Engine, Seat};
use firsttoken_engine::grammar::{GrammarError, Grammars};
use firsttoken_engine::native::{self, Native};
use firsttoken_engine::template::{Template, TemplateError};
use firsttoken_engine::tools::Family;
use firsttoken_engine::vocabulary::Vocabulary;
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::scheduler::{Limits, Scheduler};
use firsttoken_logic::time::Instant;

use crate::demo::Documents;

/// Tokens of all sequences together, unless said otherwise: the context of the model, twice, …
const CONTEXTS: u32 = 2;
/// … at most these, …
const CELLS_MAX: u32 = 32_768;
/// … and at least these.
const CELLS_MIN: u32 = 1_024;
/// Sequences, kept prefixes included.
const IDS: u16 = 64;
/// Host memory for prefixes that are not at work.
const HOST_BYTES: u64 = 1 << 30;
/// How long kernels that have failed are left alone.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
/// What a model without a template is talked to with.
const PLAIN_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// How a model is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The GGUF file.
    pub file: PathBuf,
    /// What callers call it.
    pub name: String,
    /// Tokens that all requests together can hold; by the model and its bounds if not said.
    pub cells: Option<u32>,
    /// Threads that compute; one for each core if not said.
    pub threads: Option<NonZeroU32>,
    /// Most guesses at once by prompt lookup; zero for none.
    pub guesses_max: u32,
}

/// A model that answers.
pub struct Model {
    pub(crate) name: String,
    pub(crate) vocabulary: Arc<dyn Vocabulary>,
    pub(crate) template: Template,
    /// How it writes calls of tools.
    pub(crate) family: Family,
    pub(crate) engine: Engine,
    /// When the engine's clock began.
    began: tokio::time::Instant,
    grammars: OnceLock<Result<Grammars, GrammarError>>,
    pub(crate) guesses_max: u32,
    /// Tokens of prompt and answer together, at most.
    pub(crate) context: u32,
    /// What it answers from; most models answer from what they are asked.
    pub(crate) documents: Option<Documents>,
}

/// Why a model cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file, or what it holds.
    #[error("{file}: {error}")]
    Model {
        /// Which file.
        file: String,
        /// What is wrong.
        error: native::Error,
    },
    /// Its chat template.
    #[error("{file}: {error}")]
    Template {
        /// Which file.
        file: String,
        /// What is wrong.
        error: TemplateError,
    },
    /// No thread to be had.
    #[error("no thread for the engine: {0}")]
    Thread(#[from] std::io::Error),
    /// No file for the weights of the demo model.
    #[error("the demo model cannot be written to {folder}: {error}; TMPDIR names another folder")]
    Weights {
        /// Where.
        folder: String,
        /// What is wrong.
        error: std::io::Error,
    },
}

impl Model {
    /// Opens the file and starts the engine. It ends when the last handle is dropped.
    ///
    /// # Errors
    /// What is wrong with the file or the options.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let Options { file, name, cells, threads, guesses_max } = options;
        let shown = || file.display().to_string();
        let wrong = |error| StartError::Model { file: shown(), error };
        let model = native::open(&file).map_err(wrong)?;
        let context = model.context_length();
        let wanted = cells.unwrap_or_else(|| context.saturating_mul(CONTEXTS).clamp(CELLS_MIN, CELLS_MAX));
        let setup = native::Setup {
            cells: wanted.next_multiple_of(256),
            ids: IDS,
            rows_max: 512,
            kv: native::KvType::F16,
            threads: threads.unwrap_or_else(cores),
        };
        let template = template(&model).map_err(|error| StartError::Template { file: shown(), error })?;
        let native = Native::new(&model, setup).map_err(wrong)?;
        let (engine, seat) = Engine::new();
        let (kernels, began) = (model.clone(), tokio::time::Instant::now());
        std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || drive(&seat, &kernels, setup, native, began))?;
        Ok(Self {
            engine,
            name,
            family: Family::of_template(source(&model)),
            vocabulary: Arc::new(model),
            template,
            began,
            grammars: OnceLock::new(),
            guesses_max,
            context: context.min(setup.cells),
            documents: None,
        })
    }

    /// The same, answering from these, within so many tokens.
    pub(crate) fn with_documents(self, documents: Documents, context_max: u32) -> Self {
        Self { documents: Some(documents), context: self.context.min(context_max), ..self }
    }

    /// What callers call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engine that computes it.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Now, on the engine's clock.
    pub(crate) fn now(&self) -> Instant {
        Instant::default() + self.began.elapsed()
    }

    /// Its vocabulary, ready for grammars. The first who asks waits while it is read, a second or so: no
    /// thread that others wait for may ask.
    pub(crate) fn grammars(&self) -> Result<&Grammars, &GrammarError> {
        self.grammars.get_or_init(|| Grammars::new(&*self.vocabulary)).as_ref()
    }
}

/// Drives as long as anybody can ask. Kernels that have failed are set up again: what they held is lost,
/// and everybody who waited has been told.
fn drive(
    seat: &Seat,
    model: &native::Model,
    setup: native::Setup,
    native: Native,
    began: tokio::time::Instant,
) {
    let mut next = Some(native);
    while let Some(native) = next.take() {
        let abort = native.abort_handle();
        let scheduler = Scheduler::new(limits(&native), StepCost::default());
        let clock = move || Instant::default() + began.elapsed();
        let driver = seat.driver(native, scheduler, move || _ = abort.abort(), clock);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| driver.run()));
        match run {
            Ok(Ok(())) => return,
            Ok(Err(failed)) => tracing::error!(%failed, "the engine begins anew"),
            Err(_) => tracing::error!("the engine's books were wrong; it begins anew"),
        }
        while next.is_none() && seat.is_needed() {
            std::thread::sleep(AGAIN);
            next = Native::new(model, setup).map_err(|error| tracing::error!(%error, "no kernels")).ok();
        }
    }
}

fn limits(native: &Native) -> Limits {
    let can = native.capabilities();
    Limits {
        cells: can.cells,
        ids: can.ids,
        rows_max: can.rows_max,
        logits_max: can.logits_max,
        running_max: u32::from(can.ids) - 1,
        host_tokens_max: HOST_BYTES / u64::from(can.token_bytes.max(1)),
        whole_only: !can.partial,
        ..Limits::default()
    }
}

fn source(model: &native::Model) -> &str {
    model.template().unwrap_or(PLAIN_TEMPLATE)
}

fn template(model: &native::Model) -> Result<Template, TemplateError> {
    let text = |token| model.special_text(token);
    Template::new(source(model), &text(model.bos()), &text(model.eos()))
}

fn cores() -> NonZeroU32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}

/// What a file is called where nobody has said: its name without the ending.
#[must_use]
pub fn name_of(file: &Path) -> String {
    file.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned())
}
