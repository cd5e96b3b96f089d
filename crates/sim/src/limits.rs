//! What a script bounds over several requests: slots, a rate, and how often a fault strikes.
//!
//! Each bound belongs to a model name and its value: two requests for `sim-slots4` share four slots,
//! and one for another model does not touch them.
//!
//! Invariant: the number of bounds is itself bounded; a slot is given back by dropping its permit.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::fault::FaultSpec;
use crate::refusal::Refusal;
use crate::script::Script;

/// Most bounds that can be remembered at once.
const LIMITS_MAX: usize = 4096;
/// Over what a rate is counted.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// All bounds that requests have named so far.
#[derive(Debug, Default)]
pub(crate) struct Limits(Mutex<HashMap<String, Arc<Limit>>>);

#[derive(Debug)]
enum Limit {
    Slots { free: Arc<Semaphore>, queue: Arc<Semaphore> },
    Rate(Mutex<VecDeque<Instant>>),
    Times(Mutex<u32>),
}

impl Limits {
    /// Takes a slot, waiting for one as the script allows. `None` where the script bounds none.
    pub(crate) async fn slot(
        &self,
        model: &str,
        script: &Script,
    ) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        let Some(slots) = script.slots else { return Ok(None) };
        let new = || Limit::Slots {
            free: Arc::new(Semaphore::new(slots as usize)),
            queue: Arc::new(Semaphore::new(script.queue_max as usize)),
        };
        let limit = self.limit(format!("slots {slots} {} {model}", script.queue_max), new)?;
        let Limit::Slots { free, queue } = &*limit else { return Ok(None) };
        if let Ok(slot) = Arc::clone(free).try_acquire_owned() {
            return Ok(Some(slot));
        }
        let Ok(_place) = queue.try_acquire() else {
            let message =
                format!("all {slots} slots are taken and {} requests wait already", script.queue_max);
            return Err(Refusal::new(503, message).retry_after(script.retry_after_s));
        };
        Ok(Arc::clone(free).acquire_owned().await.ok())
    }

    /// Counts the request against the rate that the script bounds.
    pub(crate) fn rate(&self, model: &str, script: &Script, now: Instant) -> Result<(), Refusal> {
        let Some(rate) = script.rate_per_s else { return Ok(()) };
        let limit = self.limit(format!("rate {rate} {model}"), || Limit::Rate(Mutex::default()))?;
        let Limit::Rate(taken) = &*limit else { return Ok(()) };
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        while taken.front().is_some_and(|at| *at + RATE_WINDOW <= now) {
            taken.pop_front();
        }
        if taken.len() < rate as usize {
            taken.push_back(now);
            return Ok(());
        }
        let message = format!("the simulated rate limit of {rate} requests per second is reached");
        Err(Refusal::new(429, message).retry_after(Some(script.retry_after_s.unwrap_or(1))))
    }

    /// The fault that strikes this request: the script's, unless it has struck often enough.
    pub(crate) fn fault(&self, model: &str, script: &Script) -> Result<Option<FaultSpec>, Refusal> {
        let (Some(fault), Some(times)) = (script.fault, script.fault_times) else { return Ok(script.fault) };
        let limit =
            self.limit(format!("times {times} {fault} {model}"), || Limit::Times(Mutex::new(times)))?;
        let Limit::Times(left) = &*limit else { return Ok(None) };
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        let strikes = *left > 0;
        *left = left.saturating_sub(1);
        Ok(strikes.then_some(fault))
    }

    /// Forgets every bound. Who holds a slot keeps it, of a bound that nobody sees any more.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn limit(&self, key: String, new: impl FnOnce() -> Limit) -> Result<Arc<Limit>, Refusal> {
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if limits.len() >= LIMITS_MAX && !limits.contains_key(&key) {
            let message = format!("{LIMITS_MAX} different limits are in use; POST /reset forgets them");
            return Err(Refusal::invalid(message));
        }
        Ok(Arc::clone(limits.entry(key).or_insert_with(|| Arc::new(new()))))
    }
}
