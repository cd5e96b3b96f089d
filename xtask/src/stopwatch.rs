//! Real elapsed time, which no runtime can pause.
//!
//! Invariant: the only clock of this crate.

/// Runs from its start on.
pub(crate) struct Stopwatch(
    #[expect(clippy::disallowed_types, reason = "no runtime and no pausable clock here")] std::time::Instant,
);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_types, reason = "no runtime and no pausable clock here")]
        Self(std::time::Instant::now())
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}
