//! How a model is run: what its user may say, and what holds where nothing was said.
//!
//! Invariant: it can be written down and read again, so that a process of its own runs a model as this
//! one would.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use firsttoken_engine::disk::KvDir;
use firsttoken_engine::speech::GUESSES_MAX;
use firsttoken_llama::KvType;
use serde::{Deserialize, Serialize};

/// The pace that a reader is given unless said otherwise: nobody reads faster than ten tokens a second.
const ITL_TARGET: Duration = Duration::from_millis(100);

/// How a model is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The GGUF file.
    pub file: PathBuf,
    /// What callers call it.
    pub name: String,
    /// Tokens that all requests together can hold; by the model, its bounds and the memory if not said.
    pub cells: Option<u32>,
    /// Threads that compute; one for each core if not said.
    pub threads: Option<NonZeroU32>,
    /// Layers that a GPU computes; if not said all of them where one is built in, and else none.
    pub gpu_layers: Option<u32>,
    /// How keys and values are kept.
    #[serde(with = "KvName")]
    pub kv: KvType,
    /// Bytes of host memory for prefixes that are not at work; by the memory if not said.
    pub host_bytes: Option<u64>,
    /// Most guesses at once by prompt lookup; zero for none.
    pub guesses_max: u32,
    /// The GGUF file of a smaller model with the same vocabulary, which guesses where nothing is looked up.
    pub draft: Option<PathBuf>,
    /// The longest gap between two tokens that the reader of a stream should see; none for no promise.
    pub itl_target: Option<Duration>,
    /// Most requests at work together; by the usual number of sequences if not said.
    pub running_max: Option<u8>,
    /// Most requests that wait; by the scheduler if not said.
    pub waiting_max: Option<u32>,
    /// Longest that a request may have to wait; by the scheduler if not said.
    pub wait_max: Option<Duration>,
    /// When nobody has asked for so long, the model is unloaded until somebody does.
    pub idle_unload: Option<Duration>,
    /// Where prefixes are kept on disk, if they are.
    pub kv_dir: Option<KvDir>,
}

impl Options {
    /// This file under this name, and nothing else said.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            name: name.into(),
            cells: None,
            threads: None,
            gpu_layers: None,
            kv: KvType::F16,
            host_bytes: None,
            guesses_max: GUESSES_MAX,
            draft: None,
            itl_target: Some(ITL_TARGET),
            running_max: None,
            waiting_max: None,
            wait_max: None,
            idle_unload: None,
            kv_dir: None,
        }
    }

    /// How many threads compute.
    pub(crate) fn threads(&self) -> NonZeroU32 {
        self.threads.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            u32::try_from(cores).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
        })
    }
}

/// What a file is called where nobody has said: its name without the ending.
#[must_use]
pub fn name_of(file: &Path) -> String {
    file.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// The ways to keep keys and values, as they are written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "KvType", rename_all = "snake_case")]
enum KvName {
    F16,
    Q8_0,
    Q4_0,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_again() {
        let options = Options {
            cells: Some(4096),
            kv: KvType::Q8_0,
            itl_target: None,
            idle_unload: Some(Duration::from_millis(1500)),
            ..Options::new("/m.gguf", "m")
        };
        let written = serde_json::to_string(&options).unwrap();
        assert!(written.contains("\"kv\":\"q8_0\""), "{written}");
        assert_eq!(serde_json::from_str::<Options>(&written).unwrap(), options);
    }
}
