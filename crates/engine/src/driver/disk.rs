//! The driver's end of the disk: what a step wants of it is begun before its rows are computed, and what came
//! of it is heard before the next.
//!
//! Invariant: bytes are put into host memory only where the scheduler takes them.

use std::sync::Arc;

use firsttoken_logic::engine::scheduler::Step;
use firsttoken_logic::time::Instant;

use super::Driver;
use crate::backend::{Backend, Failed, Outcome};
use crate::disk::{Disk, Event, Shelf};

impl<B: Backend, C: FnMut() -> Instant> Driver<B, C> {
    /// Keeps prefixes on `shelf` too, and takes from there what was left by those before. The scheduler must
    /// have been told of a disk.
    #[must_use]
    pub fn with_disk(mut self, shelf: Arc<Shelf>) -> Self {
        let (backend, shared) = (self.memory.backend(), Arc::clone(&self.shared));
        let (fingerprint, check) = (backend.fingerprint(), backend.check());
        self.scheduler.on_found(shelf.index(fingerprint));
        let disk = Disk::start(shelf, fingerprint, check, move || shared.wake());
        self.disk = disk.map_err(|error| tracing::warn!(%error, "no thread for prefixes on disk")).ok();
        self.publish(None);
        self
    }

    /// What is worth it goes to disk, and is waited for.
    pub(super) fn put_away(&mut self) {
        let Some(disk) = self.disk.take() else { return };
        let step = self.scheduler.put_away();
        match self.memory.operate(&step) {
            Ok(jobs) => disk.finish(jobs),
            Err(failed) => tracing::warn!(%failed, "prefixes were not written to disk"),
        }
    }

    /// The disk begins with what it has to do before the rows are computed.
    pub(super) fn compute(&mut self, step: &Step) -> Result<Outcome, Failed> {
        for job in self.memory.operate(step)? {
            match &mut self.disk {
                Some(disk) => disk.take(job),
                None => job.undone().into_iter().for_each(|event| self.hear_event(event)),
            }
        }
        self.memory.compute(step)
    }

    /// What the disk has done since.
    pub(super) fn hear_disk(&mut self) {
        while let Some(event) = self.disk.as_mut().and_then(Disk::event) {
            self.hear_event(event);
        }
    }

    fn hear_event(&mut self, event: Event) {
        match event {
            Event::Written { snapshot, done } => self.scheduler.on_written(snapshot, done),
            Event::Read { snapshot, read, took } => {
                let page = read.as_ref().map(|(page, _)| page);
                let taken = self.scheduler.on_read(snapshot, page, took);
                if let Some((_, bytes)) = read.filter(|_| taken) {
                    self.memory.put(snapshot, bytes);
                }
            }
        }
    }
}
