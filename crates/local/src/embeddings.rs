//! Embeddings: a model that makes them, with a thread and a context of its own.
//!
//! Texts are computed whole and one after the other, in the order of their requests. Vectors have length
//! one, as those of OpenAI.
//!
//! Invariant: a request whose client has left is computed no further.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use firsttoken_engine::vocabulary::Vocabulary as _;
use firsttoken_llama::{AbortHandle, Embedder, Threads};
use firsttoken_wire::{ApiError, ErrorKind};
use tokio::sync::oneshot;

use crate::fit::Need;
use crate::model::{self, Options, StartError};

/// Requests that may wait, unless said otherwise.
const WAITING_MAX: u32 = 1024;

/// A model that makes embeddings.
pub struct Embeddings {
    pub(crate) options: Options,
    model: firsttoken_llama::Model,
    need: Need,
    jobs: SyncSender<Job>,
    current: Arc<Current>,
    thread: JoinHandle<()>,
}

/// Texts, and who waits for their embeddings.
struct Job {
    texts: Vec<Vec<u32>>,
    reply: oneshot::Sender<Result<Vec<Vec<f32>>, String>>,
    left: Arc<()>,
}

/// Whose text is computed now, and how to stop it.
struct Current {
    whose: Mutex<Option<Arc<()>>>,
    abort: AbortHandle,
}

/// Stops the text of one who has left.
struct Leaving {
    me: Arc<()>,
    current: Arc<Current>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let whose = self.current.whose.lock().unwrap_or_else(PoisonError::into_inner);
        if whose.as_ref().is_some_and(|whose| Arc::ptr_eq(whose, &self.me)) {
            self.current.abort.abort();
        }
    }
}

impl Embeddings {
    /// Opens the file, makes one embedding so that the first request does not wait for what it brings, and
    /// starts the thread.
    ///
    /// # Errors
    /// What is wrong with the file or the options, or what memory lacks.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let (need, model) = model::open(&options)?;
        let wrong = |error| StartError::Model { file: options.file.display().to_string(), error };
        let embedder = Embedder::new(&model, need.cells, Threads::new(options.threads()));
        let mut embedder = embedder.map_err(wrong)?;
        let first = model.specials().bos.unwrap_or_default();
        embedder.embed(&[first]).map_err(wrong)?;
        let (jobs, queue) = sync_channel(options.waiting_max.unwrap_or(WAITING_MAX) as usize);
        let current = Arc::new(Current { whose: Mutex::default(), abort: embedder.abort_handle() });
        let seen = Arc::clone(&current);
        let thread = std::thread::Builder::new()
            .name("embeddings".to_owned())
            .spawn(move || work(&queue, &seen, embedder))?;
        Ok(Self { options, model, need, jobs, current, thread })
    }

    /// Ends the thread and waits until all that it held is given back.
    pub(crate) fn close(self) {
        let Self { jobs, thread, model, .. } = self;
        drop((jobs, model));
        // A panic of it was said by itself.
        let _ = thread.join();
    }

    /// What it is and takes, in a line.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("embeddings; {}; {} thread(s)", self.need, self.options.threads())
    }

    /// Longest text, in tokens.
    pub(crate) const fn tokens_max(&self) -> u32 {
        self.need.cells
    }

    /// How many tokens the vocabulary has.
    pub(crate) fn vocabulary(&self) -> u32 {
        self.model.size()
    }

    /// The tokens of a text, between what the model wants around it.
    pub(crate) fn tokens(&self, text: &str) -> Vec<u32> {
        let specials = self.model.specials();
        let mut tokens: Vec<u32> = specials.bos.filter(|_| specials.adds_bos).into_iter().collect();
        tokens.extend(firsttoken_engine::vocabulary::Vocabulary::tokenize(&self.model, text, false));
        let end = specials.separator.filter(|_| specials.adds_separator);
        tokens.extend(end.or_else(|| specials.eos.filter(|_| specials.adds_eos)));
        tokens
    }

    /// The embeddings of some texts, none of which is empty or too long.
    pub(crate) async fn embed(&self, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, ApiError> {
        let (reply, answer) = oneshot::channel();
        let me = Arc::new(());
        let job = Job { texts, reply, left: Arc::clone(&me) };
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => {
                let message = "too many requests wait for this model";
                ApiError::new(ErrorKind::RateLimit, message).code("queue_full").retry_after_s(1)
            }
            TrySendError::Disconnected(_) => failed("its thread has ended".to_owned()),
        })?;
        let _leaving = Leaving { me, current: Arc::clone(&self.current) };
        answer.await.unwrap_or_else(|_| Err("its thread has ended".to_owned())).map_err(failed)
    }
}

fn failed(what: String) -> ApiError {
    ApiError::new(ErrorKind::Internal, what).code("engine_failed")
}

/// Works until nobody can ask any more.
fn work(queue: &Receiver<Job>, current: &Current, mut embedder: Embedder) {
    let set = |whose| *current.whose.lock().unwrap_or_else(PoisonError::into_inner) = whose;
    while let Ok(Job { texts, reply, left }) = queue.recv() {
        set(Some(left));
        let mut vectors = Ok(Vec::with_capacity(texts.len()));
        for text in &texts {
            if reply.is_closed() {
                break;
            }
            match (embedder.embed(text), &mut vectors) {
                (Ok(Some(vector)), Ok(vectors)) => vectors.push(unit(vector)),
                // Stopped, for nobody waits.
                (Ok(_), _) => break,
                (Err(error), _) => {
                    vectors = Err(error.to_string());
                    break;
                }
            }
        }
        set(None);
        // Who has left does not hear it.
        let _ = reply.send(vectors);
    }
}

/// The vector of the same direction and length one; one of length zero stays.
fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        #[expect(clippy::cast_possible_truncation, reason = "single precision is what was computed")]
        vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
    vector
}
