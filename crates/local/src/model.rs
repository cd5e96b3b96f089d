//! A model file becomes an engine with a thread of its own.
//!
//! Invariant: what is wrong with the file, the options or the memory is said before anything is
//! computed.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use firsttoken_engine::backend::Backend as _;
use firsttoken_engine::disk::shelf::{self, Salt};
use firsttoken_engine::disk::{PAGES_MAX, Shelf, ShelfError};
use firsttoken_engine::draft::Draft;
use firsttoken_engine::driver::{Engine, Seat};
use firsttoken_engine::grammar::{GrammarError, Grammars};
use firsttoken_engine::native::{self, Native};
use firsttoken_engine::template::{Template, TemplateError};
use firsttoken_engine::tools::Family;
use firsttoken_engine::vocabulary::Vocabulary;
use firsttoken_llama::HAS_GPU;
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::ids::Tenant;
use firsttoken_logic::engine::scheduler::{DiskLimits, Limits, Scheduler};
use firsttoken_logic::time::Instant;
use sha2::{Digest as _, Sha256};

use crate::demo::Documents;
use crate::fit::{Headers, Need, TooLarge};
use crate::kv::{HeaderError, Memory};
pub use crate::options::{Options, name_of};

/// Sequences, kept prefixes included, unless more requests are to be at work.
const IDS: u16 = 64;
/// How long kernels that have failed are left alone.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
/// What a model without a template is talked to with.
const PLAIN_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

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
    /// How it is run.
    pub(crate) options: Options,
    /// What it takes of the memory.
    need: Need,
    /// Tokens of prompt and answer together, at most.
    pub(crate) context: u32,
    /// What it answers from; most models answer from what they are asked.
    pub(crate) documents: Option<Documents>,
    /// Keys the hashes of tenants' names, so that no name can be made to equal another.
    salt: Salt,
    thread: Mutex<Option<JoinHandle<()>>>,
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
    /// Its file's header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// It does not fit into memory.
    #[error(transparent)]
    TooLarge(#[from] Box<TooLarge>),
    /// A GPU is asked for, and none is built in.
    #[error(
        "{file}: gpu_layers = {layers}, and this binary was built without a GPU\nhint: build it with --features cuda, metal or vulkan, or leave gpu_layers out"
    )]
    NoGpu {
        /// Which file.
        file: String,
        /// How many layers were asked for.
        layers: u32,
    },
    /// The draft is none for this model.
    #[error("{file} cannot be the draft of {model}: {what}")]
    Draft {
        /// Which file.
        file: String,
        /// For which.
        model: String,
        /// What is wrong.
        what: String,
    },
    /// The kernels fail at their first step.
    #[error("{file}: the first step failed: {what}")]
    WarmUp {
        /// Which file.
        file: String,
        /// What they say.
        what: String,
    },
    /// The directory for its prefixes.
    #[error(transparent)]
    KvDir(#[from] ShelfError),
    /// No random bytes to be had.
    #[error("no random bytes to tell tenants apart by: {0}")]
    Random(std::io::Error),
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
    /// Opens the file, computes a few steps so that the first request does not wait for what they bring, and
    /// starts the engine. It ends when the last handle is dropped.
    ///
    /// # Errors
    /// What is wrong with the file or the options, or what memory lacks.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let shown = || options.file.display().to_string();
        let wrong = |error| StartError::Model { file: shown(), error };
        let shelf = options.kv_dir.clone().map(Shelf::open).transpose()?.map(Arc::new);
        let salt = match &shelf {
            Some(shelf) => *shelf.salt(),
            None => shelf::draw_salt().map_err(StartError::Random)?,
        };
        let (need, model) = open(&options)?;
        let context = model.context_length();
        let setup = native::Setup {
            cells: need.cells,
            ids: options.running_max.map_or(IDS, |most| IDS.max(u16::from(most) + 1)),
            rows_max: 512,
            kv: need.kv,
            threads: options.threads(),
        };
        let template = template(&model).map_err(|error| StartError::Template { file: shown(), error })?;
        let (draft, guessing) = options
            .draft
            .as_deref()
            .map(|file| open_draft(file, &options, &model, setup))
            .transpose()?
            .unzip();
        let mut native = Native::new(&model, setup).map_err(wrong)?;
        let first = model.bos().unwrap_or_default();
        let cost = native
            .warm_up(first)
            .map_err(|failed| StartError::WarmUp { file: shown(), what: failed.what })?;
        let (engine, seat) = Engine::new();
        let began = tokio::time::Instant::now();
        let life = Life {
            seat,
            model: model.clone(),
            draft,
            setup,
            began,
            options: options.clone(),
            need,
            shelf,
            cost,
        };
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || life.drive(native, guessing))?;
        Ok(Self {
            engine,
            name: options.name.clone(),
            family: Family::of_template(source(&model)),
            vocabulary: Arc::new(model),
            template,
            began,
            grammars: OnceLock::new(),
            context: context.min(setup.cells),
            documents: None,
            options,
            need,
            salt,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The same, answering from these, within so many tokens.
    pub(crate) fn with_documents(self, documents: Documents, context_max: u32) -> Self {
        Self { documents: Some(documents), context: self.context.min(context_max), ..self }
    }

    /// Ends the engine and waits until all that it held is given back.
    pub(crate) fn close(self) {
        self.end();
    }

    /// Ends the engine, and waits until what is worth it has been written to disk.
    pub(crate) fn end(&self) {
        self.engine.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic of it was said by itself.
        let _ = thread.map(JoinHandle::join);
    }

    /// The tenant of that name. Only this process, and those that share its directory, can tell which it is:
    /// no other name can be chosen to equal it.
    pub(crate) fn tenant(&self, name: &[u8]) -> Tenant {
        let hash = Sha256::new().chain_update(self.salt).chain_update(name).finalize();
        let first = hash.first_chunk().copied().unwrap_or_default();
        Tenant(u64::from_le_bytes(first))
    }

    /// What it is and takes, in a line.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}; {} thread(s)", self.need, self.options.threads())
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

/// Opens a model's file, once it is known to fit into the memory that can be had now.
pub(crate) fn open(options: &Options) -> Result<(Need, native::Model), StartError> {
    let file = || options.file.display().to_string();
    if let Some(layers) = options.gpu_layers.filter(|layers| *layers > 0 && !HAS_GPU) {
        return Err(StartError::NoGpu { file: file(), layers });
    }
    let headers = Headers::read(options)?;
    // Where the system does not say how much memory it has, nobody can know.
    let available = Memory::now().map_or(u64::MAX, |memory| memory.available);
    let need = Need::of(options, &headers, available)?;
    let model = native::open(&options.file, options.gpu_layers);
    Ok((need, model.map_err(|error| StartError::Model { file: file(), error })?))
}

/// Opens the draft of a model: one that says the same in the same tokens, and whose guesses can be cut off
/// again. It, and its kernels.
fn open_draft(
    file: &Path,
    options: &Options,
    model: &native::Model,
    setup: native::Setup,
) -> Result<(native::Model, Native), StartError> {
    let shown = || file.display().to_string();
    let wrong = |error| StartError::Model { file: shown(), error };
    let unfit = |what| StartError::Draft { file: shown(), model: options.file.display().to_string(), what };
    let draft = native::open(file, options.gpu_layers).map_err(wrong)?;
    native::same_vocabulary(model, &draft).map_err(unfit)?;
    let kernels = Native::new(&draft, setup).map_err(wrong)?;
    if !kernels.capabilities().partial {
        return Err(unfit("guesses cannot be taken back from a model of its kind".to_owned()));
    }
    Ok((draft, kernels))
}

/// What an engine's thread goes by.
struct Life {
    seat: Seat,
    model: native::Model,
    draft: Option<native::Model>,
    setup: native::Setup,
    began: tokio::time::Instant,
    options: Options,
    need: Need,
    shelf: Option<Arc<Shelf>>,
    /// What the warm-up has taught.
    cost: StepCost,
}

impl Life {
    /// Drives as long as anybody can ask. Kernels that have failed are set up again: what they held is lost,
    /// and everybody who waited has been told.
    fn drive(self, native: Native, mut guessing: Option<Native>) {
        let mut next = Some(native);
        while let Some(native) = next.take() {
            if let Some(draft) = &mut guessing {
                draft.share_threads(&native);
            }
            let abort = native.abort_handle();
            let scheduler = Scheduler::new(self.limits(&native), self.cost.clone());
            let began = self.began;
            let clock = move || Instant::default() + began.elapsed();
            let mut driver = self.seat.driver(native, scheduler, move || _ = abort.abort(), clock);
            if let Some(shelf) = &self.shelf {
                driver = driver.with_disk(Arc::clone(shelf));
            }
            if let Some(draft) = guessing.take() {
                let draft = Draft::new(draft, StepCost::default());
                driver =
                    driver.with_draft(draft, |failed| tracing::error!(%failed, "goes on without its draft"));
            }
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| driver.run()));
            match run {
                Ok(Ok(())) => return,
                Ok(Err(failed)) => tracing::error!(%failed, "the engine begins anew"),
                Err(_) => tracing::error!("the engine's books were wrong; it begins anew"),
            }
            while next.is_none() && self.seat.is_needed() {
                std::thread::sleep(AGAIN);
                let again = Native::new(&self.model, self.setup);
                next = again.map_err(|error| tracing::error!(%error, "no kernels")).ok();
            }
            if let Some(draft) = &self.draft {
                let again = Native::new(draft, self.setup);
                guessing = again.map_err(|error| tracing::error!(%error, "no kernels of a draft")).ok();
            }
        }
    }

    fn limits(&self, native: &Native) -> Limits {
        let can = native.capabilities();
        let usual = Limits::default();
        Limits {
            cells: can.cells,
            ids: can.ids,
            rows_max: can.rows_max,
            logits_max: can.logits_max,
            running_max: self.options.running_max.map_or_else(|| u32::from(can.ids) - 1, u32::from),
            waiting_max: self.options.waiting_max.unwrap_or(usual.waiting_max),
            wait_max: self.options.wait_max.unwrap_or(usual.wait_max),
            host_tokens_max: self.need.host_bytes / u64::from(can.token_bytes.max(1)),
            whole_only: !can.partial,
            disk: self
                .shelf
                .as_ref()
                .map(|_| DiskLimits { pages_max: PAGES_MAX, token_bytes: can.token_bytes }),
            ..usual
        }
    }
}

fn source(model: &native::Model) -> &str {
    model.template().unwrap_or(PLAIN_TEMPLATE)
}

fn template(model: &native::Model) -> Result<Template, TemplateError> {
    let text = |token| model.special_text(token);
    Template::new(source(model), &text(model.bos()), &text(model.eos()))
}
