//! When the bytes of one answer were handed to the kernel: what *delivered* means here.
//!
//! Over HTTP/1.1 a connection has one answer at a time, and the next write is that answer's. Over
//! HTTP/2 answers share the socket: a frame that hyper took is on its way with the next write.
//!
//! Invariant: a stamp is never later than the moment at which the client could read the bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use firsttoken_logic::time::Instant;

use crate::clock;
use crate::evidence::Finished;

/// The stamps of one answer.
#[derive(Default)]
pub(crate) struct Delivery {
    /// Bytes will be written that begin the response: stamp them.
    watch_first_byte: AtomicBool,
    /// Bytes will be written that hold the first content: stamp them.
    watch_first_content: AtomicBool,
    first_byte_ns: AtomicU64,
    first_content_ns: AtomicU64,
    /// A request that is over, but for the writing of its first content.
    unwritten: Mutex<Option<Finished>>,
}

impl Delivery {
    /// The next answer begins.
    pub(crate) fn begin(&self) {
        drop(self.unwritten());
        self.first_byte_ns.store(0, Relaxed);
        self.first_content_ns.store(0, Relaxed);
        self.watch_first_content.store(false, Relaxed);
        self.watch_first_byte.store(true, Relaxed);
    }

    /// What is written next holds the first content.
    pub(crate) fn watch_first_content(&self) {
        self.watch_first_content.store(true, Relaxed);
    }

    /// Whether the next write is of interest.
    pub(crate) fn is_watching(&self) -> bool {
        self.watch_first_byte.load(Relaxed) || self.watch_first_content.load(Relaxed)
    }

    /// Keeps a finished request until its first content is written, or never will be.
    pub(crate) fn park(&self, finished: Finished) {
        *self.unwritten.lock().unwrap_or_else(PoisonError::into_inner) = Some(finished);
    }

    fn unwritten(&self) -> Option<Finished> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn first_byte_written(&self) -> Option<Instant> {
        stamp(&self.first_byte_ns)
    }

    pub(crate) fn first_content_written(&self) -> Option<Instant> {
        stamp(&self.first_content_ns)
    }

    /// Bytes were written.
    pub(crate) fn on_written(&self) {
        if self.watch_first_byte.load(Relaxed) {
            self.watch_first_byte.store(false, Relaxed);
            self.first_byte_ns.store(clock::now().ns(), Relaxed);
        }
        if self.watch_first_content.load(Relaxed) {
            self.watch_first_content.store(false, Relaxed);
            let now = clock::now();
            self.first_content_ns.store(now.ns(), Relaxed);
            if let Some(finished) = self.unwritten() {
                finished.on_written(now);
            }
        }
    }
}

fn stamp(ns: &AtomicU64) -> Option<Instant> {
    Some(ns.load(Relaxed)).filter(|ns| *ns > 0).map(Instant::from_ns)
}
