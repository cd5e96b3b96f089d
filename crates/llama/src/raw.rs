//! The kernels, called. Everything unsafe of the house is in this file.
//!
//! What is here keeps memory safe for any caller in this crate: pointers live as long as their owners,
//! slices are as long as the kernels wrote, buffers as long as they read. What would end the process by
//! an assertion of theirs is checked one floor up, in `model` and `context`, where there are words for it.
//!
//! Invariant: no pointer leaves this file, and no Rust panic crosses into C++.
#![allow(unsafe_code, reason = "the one boundary to C++; each block says why it is sound")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use llama_cpp_sys_2 as ll;

use crate::model::Specials;
use crate::{Level, LogHook};

/// Sequence ids that the kernels can tell apart.
pub(crate) const IDS_MAX: u32 = 256;

/// How long threads look for the next step before they sleep, 0 to 100; the kernels' own choice. Threads
/// that must be woken for every step made it three to ten times as long on a machine with other work.
const POLL: u32 = 50;

/// Where the kernels' log goes; nowhere until it is set.
pub(crate) static LOG: OnceLock<LogHook> = OnceLock::new();

thread_local! {
    /// What the kernels complained about on this thread.
    static COMPLAINT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Takes what the kernels complained about first on this thread since this was asked before; what
/// follows only repeats it in general words.
pub(crate) fn complaint() -> String {
    let said = COMPLAINT.take();
    let said = said.trim();
    // The name of a function of theirs says nothing to a reader.
    let told =
        said.split_once(": ").filter(|(function, _)| !function.contains(' ')).map_or(said, |(_, told)| told);
    if told.is_empty() { "they gave no reason".to_owned() } else { told.to_owned() }
}

unsafe extern "C" fn log(level: ll::ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: the kernels pass a string that ends in zero and lives for this call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let level = match level {
        ll::GGML_LOG_LEVEL_ERROR => Level::Error,
        ll::GGML_LOG_LEVEL_WARN => Level::Warn,
        ll::GGML_LOG_LEVEL_INFO => Level::Info,
        _ => Level::Debug,
    };
    if level == Level::Error {
        // Fails on a thread that is ending; then nobody asks any more.
        let _ = COMPLAINT.try_with(|said| {
            let mut said = said.borrow_mut();
            if said.is_empty() {
                said.push_str(&text);
            }
        });
    }
    if let Some(hook) = LOG.get() {
        let _ = catch_unwind(|| hook(level, text.trim_end()));
    }
}

/// Starts the kernels, once for the process.
fn start() {
    static STARTED: Once = Once::new();
    // SAFETY: `log` stays for as long as the process; the backend is started once, before all else.
    STARTED.call_once(|| unsafe {
        ll::llama_log_set(Some(log), ptr::null_mut());
        ll::llama_backend_init();
    });
}

/// How attention is computed, as the kernels number it.
pub(crate) const FLASH_ATTENTION: ll::llama_flash_attn_type = ll::LLAMA_FLASH_ATTN_TYPE_ENABLED;

/// Which kernels these are.
pub(crate) fn version() -> &'static str {
    // SAFETY: the kernels give a string that ends in zero and is part of them.
    unsafe { CStr::from_ptr(ll::llama_version()) }.to_str().unwrap_or_default()
}

/// What is told while a model loads, between 0 and 1; `false` stops it.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(f32) -> bool;

unsafe extern "C" fn progressed(part: f32, data: *mut c_void) -> bool {
    // SAFETY: `data` is the `Progress` that `Model::load` holds on its stack while the kernels load.
    let progress = unsafe { &mut *data.cast::<Progress<'_>>() };
    catch_unwind(AssertUnwindSafe(|| progress(part))).unwrap_or(false)
}

/// A loaded model.
pub(crate) struct Model {
    model: NonNull<ll::llama_model>,
    vocabulary: NonNull<ll::llama_vocab>,
}

// SAFETY: the kernels only read a model once it is loaded; contexts on several threads share it.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

/// What the kernels made of a model's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) vocabulary: u32,
    pub(crate) embedding: u32,
    pub(crate) has_encoder: bool,
    pub(crate) has_decoder: bool,
    /// Whether all that came before is kept, for each token apart: neither recurrent nor windowed.
    pub(crate) keeps_all: bool,
    pub(crate) diffuses: bool,
}

impl Model {
    /// Loads a file that [`crate::gguf::Header::read`] has found sound; `None` where the kernels refuse it.
    pub(crate) fn load(
        path: &CStr,
        layers_on_gpu: i32,
        mmap: bool,
        mut progress: Progress<'_>,
    ) -> Option<Self> {
        start();
        // SAFETY: `path` and `progress` outlive the call, and nothing else is pointed to.
        let model = unsafe {
            let mut params = ll::llama_model_default_params();
            params.n_gpu_layers = layers_on_gpu;
            params.load_mode = if mmap { ll::LLAMA_LOAD_MODE_MMAP } else { ll::LLAMA_LOAD_MODE_NONE };
            params.progress_callback = Some(progressed);
            params.progress_callback_user_data = (&raw mut progress).cast();
            NonNull::new(ll::llama_model_load_from_file(path.as_ptr(), params))?
        };
        // SAFETY: the vocabulary belongs to the model and lives as long.
        let vocabulary = unsafe { ll::llama_model_get_vocab(model.as_ptr()) };
        NonNull::new(vocabulary.cast_mut()).map(|vocabulary| Self { model, vocabulary })
    }

    pub(crate) fn facts(&self) -> Facts {
        let model = self.model.as_ptr();
        // SAFETY: all of these only read a model that is alive.
        unsafe {
            let recurs = ll::llama_model_is_recurrent(model) || ll::llama_model_is_hybrid(model);
            Facts {
                vocabulary: ll::llama_vocab_n_tokens(self.vocabulary.as_ptr()).max(0).cast_unsigned(),
                embedding: ll::llama_model_n_embd_out(model).max(0).cast_unsigned(),
                has_encoder: ll::llama_model_has_encoder(model),
                has_decoder: ll::llama_model_has_decoder(model),
                keeps_all: !recurs && ll::llama_model_n_swa(model) == 0,
                diffuses: ll::llama_model_is_diffusion(model),
            }
        }
    }

    pub(crate) fn specials(&self) -> Specials {
        let vocabulary = self.vocabulary.as_ptr();
        let known = |token: i32| u32::try_from(token).ok();
        // SAFETY: all of these only read a vocabulary that is alive.
        unsafe {
            Specials {
                bos: known(ll::llama_vocab_bos(vocabulary)),
                eos: known(ll::llama_vocab_eos(vocabulary)),
                eot: known(ll::llama_vocab_eot(vocabulary)),
                separator: known(ll::llama_vocab_sep(vocabulary)),
                padding: known(ll::llama_vocab_pad(vocabulary)),
                adds_bos: ll::llama_vocab_get_add_bos(vocabulary),
                adds_eos: ll::llama_vocab_get_add_eos(vocabulary),
                adds_separator: ll::llama_vocab_get_add_sep(vocabulary),
            }
        }
    }

    /// Whether `token` ends generation. The token is one of the vocabulary.
    pub(crate) fn ends(&self, token: i32) -> bool {
        // SAFETY: only reads a vocabulary that is alive.
        unsafe { ll::llama_vocab_is_eog(self.vocabulary.as_ptr(), token) }
    }

    /// Writes the tokens of `text` to `tokens`; a negative number is how many there was no room for.
    pub(crate) fn tokenize(&self, text: &str, specials: bool, tokens: &mut [i32]) -> i32 {
        let (length, room) = (int(text.len()), int(tokens.len()));
        // SAFETY: lengths are those of the two slices, or less. No special token is added, and text is
        // UTF-8, so that nothing in there throws.
        unsafe {
            ll::llama_tokenize(
                self.vocabulary.as_ptr(),
                text.as_ptr().cast(),
                length,
                tokens.as_mut_ptr(),
                room,
                false,
                specials,
            )
        }
    }

    /// Writes the bytes of `token`, one of the vocabulary; a negative number is how many more there are.
    pub(crate) fn piece(&self, token: i32, specials: bool, bytes: &mut [u8]) -> i32 {
        let room = int(bytes.len());
        // SAFETY: the length is that of the slice, or less.
        unsafe {
            let bytes = bytes.as_mut_ptr().cast();
            ll::llama_token_to_piece(self.vocabulary.as_ptr(), token, bytes, room, 0, specials)
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: contexts hold an `Arc` of the model, so this was the last user.
        unsafe { ll::llama_model_free(self.model.as_ptr()) }
    }
}

/// A length as the kernels count.
fn int(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

/// Which step runs, and which one shall end.
#[derive(Default)]
pub(crate) struct Steps {
    /// Number of the running step; 0 while none runs.
    pub(crate) running: AtomicU64,
    /// Number of the step that shall end.
    pub(crate) ending: AtomicU64,
}

unsafe extern "C" fn shall_end(data: *mut c_void) -> bool {
    // SAFETY: `data` is the `Steps` in an `Arc` that the context holds until it is freed.
    let steps = unsafe { &*data.cast::<Steps>() };
    let running = steps.running.load(Ordering::Relaxed);
    running != 0 && steps.ending.load(Ordering::Relaxed) == running
}

/// How a context is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    pub(crate) cells: u32,
    pub(crate) rows: u32,
    pub(crate) tile: u32,
    pub(crate) ids: u32,
    pub(crate) outputs: u32,
    pub(crate) threads: i32,
    pub(crate) threads_batch: i32,
    pub(crate) keys: u32,
    pub(crate) values: u32,
    /// The kernels' number of a way to pool; with one, embeddings are made and no logits.
    pub(crate) pooling: Option<i32>,
}

/// One row of a batch, as the kernels have it.
pub(crate) struct Row {
    pub(crate) token: i32,
    pub(crate) position: i32,
    pub(crate) id: i32,
    pub(crate) output: bool,
}

/// Threads that compute. Contexts that take turns may share them: threads that have just computed look for
/// the next step for a while, and would do so on processors that the next context computes on.
struct Pool(NonNull<ll::ggml_threadpool>);

// SAFETY: a pool belongs to no thread, and its owners keep it behind a lock while they compute with it.
unsafe impl Send for Pool {}

impl Pool {
    /// `None` where no threads can be had.
    fn new(threads: i32) -> Option<Arc<Mutex<Self>>> {
        // SAFETY: the parameters live through the call.
        let pool = unsafe {
            let mut params = ll::ggml_threadpool_params_default(threads);
            params.poll = POLL;
            NonNull::new(ll::ggml_threadpool_new(&raw mut params))
        };
        pool.map(|pool| Arc::new(Mutex::new(Self(pool))))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: it was ours alone, and every context lets go of it before its owner does.
        unsafe { ll::ggml_threadpool_free(self.0.as_ptr()) }
    }
}

/// KV memory, buffers and threads of one user of a model.
pub(crate) struct Context {
    context: NonNull<ll::llama_context>,
    memory: ll::llama_memory_t,
    /// Whose turn it is to compute holds the lock.
    pool: Option<Arc<Mutex<Pool>>>,
    /// Pools that the kernels still point to until they have computed with the next one.
    retired: Vec<Arc<Mutex<Pool>>>,
    vocabulary: usize,
    embedding: usize,
    steps: Arc<Steps>,
    /// Number of steps so far.
    count: u64,
    _model: Arc<Model>,
}

// SAFETY: nothing in a context belongs to a thread; it is not `Sync`, so one thread at a time has it.
unsafe impl Send for Context {}

impl Context {
    /// `None` where the kernels cannot make it; mostly for want of memory.
    pub(crate) fn new(model: &Arc<Model>, params: Params) -> Option<Self> {
        let steps = Arc::new(Steps::default());
        // SAFETY: `steps` is kept beside the context and freed after it, as are model and threads.
        unsafe {
            let mut made = ll::llama_context_default_params();
            made.n_ctx = params.cells;
            made.n_batch = params.rows;
            made.n_ubatch = params.tile;
            made.n_seq_max = params.ids;
            made.n_outputs_max = params.outputs;
            made.n_threads = params.threads;
            made.n_threads_batch = params.threads_batch;
            made.type_k = params.keys;
            made.type_v = params.values;
            made.flash_attn_type = FLASH_ATTENTION;
            made.embeddings = params.pooling.is_some();
            made.pooling_type = params.pooling.unwrap_or(ll::LLAMA_POOLING_TYPE_NONE);
            made.kv_unified = true;
            made.swa_full = true;
            made.no_perf = true;
            made.abort_callback = Some(shall_end);
            made.abort_callback_data = Arc::as_ptr(&steps).cast_mut().cast();
            let context = NonNull::new(ll::llama_init_from_model(model.model.as_ptr(), made))?;
            let facts = model.facts();
            let mut this = Self {
                context,
                memory: ll::llama_get_memory(context.as_ptr()),
                pool: None,
                retired: Vec::new(),
                vocabulary: facts.vocabulary as usize,
                embedding: facts.embedding as usize,
                steps,
                count: 0,
                _model: Arc::clone(model),
            };
            this.set_threads(params.threads, params.threads_batch);
            Some(this)
        }
    }

    /// Cells of the KV memory and rows of a batch that were really made.
    pub(crate) fn sizes(&self) -> (u32, u32) {
        // SAFETY: both only read a context that is alive.
        unsafe { (ll::llama_n_ctx(self.context.as_ptr()), ll::llama_n_batch(self.context.as_ptr())) }
    }

    /// Whether there is KV memory; models that only encode have none.
    pub(crate) fn has_memory(&self) -> bool {
        !self.memory.is_null()
    }

    /// Whether tokens attend only to what came before them, as writing text needs.
    pub(crate) fn is_causal(&self) -> bool {
        // SAFETY: only reads a context that is alive.
        unsafe { ll::llama_get_causal_attn(self.context.as_ptr()) }
    }

    /// Sets how many threads compute one row, and several. Without a pool the kernels would start and
    /// end their threads with every step.
    pub(crate) fn set_threads(&mut self, one: i32, several: i32) {
        // SAFETY: only sets two numbers of a context that is alive.
        unsafe { ll::llama_set_n_threads(self.context.as_ptr(), one, several) }
        self.compute_with(Pool::new(one.max(several)));
    }

    /// Computes with the threads of `other`, when it is not computing itself.
    pub(crate) fn share_threads(&mut self, other: &Self) {
        self.compute_with(other.pool.clone());
    }

    /// Where no pool can be had the kernels make do without.
    fn compute_with(&mut self, pool: Option<Arc<Mutex<Pool>>>) {
        let context = self.context.as_ptr();
        // SAFETY: the old pool is kept until the kernels have let go of it; the new one until `drop`.
        unsafe {
            ll::llama_detach_threadpool(context);
            if let Some(pool) = &pool {
                let threads = pool.lock().unwrap_or_else(PoisonError::into_inner).0.as_ptr();
                ll::llama_attach_threadpool(context, threads, threads);
            }
        }
        self.retired.extend(std::mem::replace(&mut self.pool, pool));
    }

    /// What ends a running step.
    pub(crate) fn steps(&self) -> Arc<Steps> {
        Arc::clone(&self.steps)
    }

    /// Computes `rows`; the kernels' code: 0 done, 1 no room and nothing done, 2 ended early, else failed.
    pub(crate) fn decode(&mut self, rows: &[Row]) -> i32 {
        let mut tokens: Vec<i32> = rows.iter().map(|row| row.token).collect();
        let mut positions: Vec<i32> = rows.iter().map(|row| row.position).collect();
        let mut ids: Vec<i32> = rows.iter().map(|row| row.id).collect();
        let mut outputs: Vec<i8> = rows.iter().map(|row| i8::from(row.output)).collect();
        let mut one_each = vec![1_i32; rows.len()];
        let mut id_lists: Vec<*mut i32> = ids.iter_mut().map(ptr::from_mut).collect();
        let batch = ll::llama_batch {
            n_tokens: int(rows.len()),
            token: tokens.as_mut_ptr(),
            embd: ptr::null_mut(),
            pos: positions.as_mut_ptr(),
            n_seq_id: one_each.as_mut_ptr(),
            seq_id: id_lists.as_mut_ptr(),
            logits: outputs.as_mut_ptr(),
        };
        let pool = self.pool.clone();
        let _turn = pool.as_ref().map(|pool| pool.lock().unwrap_or_else(PoisonError::into_inner));
        self.count += 1;
        self.steps.running.store(self.count, Ordering::Release);
        // SAFETY: every array has an element for each row, each list one id, and all outlive the call.
        let code = unsafe {
            let code = ll::llama_decode(self.context.as_ptr(), batch);
            ll::llama_synchronize(self.context.as_ptr());
            code
        };
        self.steps.running.store(0, Ordering::Release);
        if code == 0 {
            self.retired.clear();
        }
        code
    }

    /// Logits of a row of the last batch that wanted some.
    pub(crate) fn logits(&self, row: usize) -> Option<&[f32]> {
        // SAFETY: the kernels answer null for a row without; else there are as many as tokens, and they
        // stay until the next decode, which borrows the context mutably.
        unsafe {
            let logits = NonNull::new(ll::llama_get_logits_ith(self.context.as_ptr(), int(row)))?;
            Some(std::slice::from_raw_parts(logits.as_ptr(), self.vocabulary))
        }
    }

    /// The pooled embedding of a sequence of the last batch.
    pub(crate) fn embedding(&self, id: i32) -> Option<&[f32]> {
        // SAFETY: null where there is none; else as many as the model's outputs, until the next decode.
        unsafe {
            let values = NonNull::new(ll::llama_get_embeddings_seq(self.context.as_ptr(), id))?;
            Some(std::slice::from_raw_parts(values.as_ptr(), self.embedding))
        }
    }

    /// First and last position of a sequence, both -1 where it holds nothing. `id` is one of the context's.
    pub(crate) fn held(&self, id: i32) -> (i32, i32) {
        // SAFETY: both only read the books of a memory that is alive, or none.
        unsafe {
            (ll::llama_memory_seq_pos_min(self.memory, id), ll::llama_memory_seq_pos_max(self.memory, id))
        }
    }

    /// Lets `to` hold what `from` holds in `positions`. Both are ids of the context.
    pub(crate) fn share(&mut self, from: i32, to: i32, positions: (i32, i32)) {
        // SAFETY: changes books only.
        unsafe { ll::llama_memory_seq_cp(self.memory, from, to, positions.0, positions.1) }
    }

    /// Takes everything from `position` on from a sequence; false where that cannot be.
    pub(crate) fn cut(&mut self, id: i32, position: i32) -> bool {
        // SAFETY: changes books only.
        unsafe { ll::llama_memory_seq_rm(self.memory, id, position, -1) }
    }

    /// Appends the state of a sequence to `bytes`; false where the kernels could not.
    pub(crate) fn save(&mut self, id: i32, bytes: &mut Vec<u8>) -> bool {
        let before = bytes.len();
        // SAFETY: the kernels write at most as many bytes as they are told are there, all initialised.
        unsafe {
            let size = ll::llama_state_seq_get_size(self.context.as_ptr(), id);
            bytes.resize(before + size, 0);
            let start = bytes[before..].as_mut_ptr();
            size > 0 && ll::llama_state_seq_get_data(self.context.as_ptr(), start, size, id) == size
        }
    }

    /// Gives a sequence a saved state; false where there was no room, or it is another model's.
    pub(crate) fn load(&mut self, id: i32, bytes: &[u8]) -> bool {
        // SAFETY: the kernels read at most as many bytes as they are told are there.
        unsafe {
            let context = self.context.as_ptr();
            ll::llama_state_seq_set_data(context, bytes.as_ptr(), bytes.len(), id) == bytes.len()
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context goes first, then the threads that it used; the model after both.
        unsafe {
            ll::llama_detach_threadpool(self.context.as_ptr());
            ll::llama_free(self.context.as_ptr());
        }
    }
}

/// Elements and bytes of a block of a type, as the kernels have them; for the test of our own table.
#[cfg(test)]
pub(crate) fn block(of: u32) -> (u64, u64) {
    // SAFETY: both only read a table, whose length is checked.
    unsafe {
        if of >= ll::GGML_TYPE_COUNT {
            return (0, 0);
        }
        (ll::ggml_blck_size(of).cast_unsigned(), ll::ggml_type_size(of) as u64)
    }
}
