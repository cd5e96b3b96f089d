//! What each key may ask: how often, and how much at a time.
//!
//! Invariant: who was let in is counted until its [`Admitted`] is dropped, and nobody else's requests are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firsttoken_logic::tail::rate::Rate;
use firsttoken_wire::{ApiError, ErrorKind};

use crate::clock;
use crate::keys::Caller;

/// When somebody who has too much at a time may try again: nobody knows when it will have less.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What keys have used, by their names.
#[derive(Default)]
pub(crate) struct Quotas(Mutex<HashMap<Arc<str>, Used>>);

#[derive(Default)]
struct Used {
    rate: Rate,
    at_work: u32,
}

/// A request of a key that counts how many it has.
pub(crate) struct Admitted {
    quotas: Arc<Quotas>,
    key: Arc<str>,
}

impl Quotas {
    /// Lets in a request of `caller`, if its key may. Nothing is counted of a key without limits.
    ///
    /// # Errors
    /// What is used up, and when to come back.
    pub(crate) fn enter(self: &Arc<Self>, caller: &Caller) -> Result<Option<Admitted>, ApiError> {
        let limits = caller.limits;
        if limits.requests_per_minute.is_none() && limits.concurrency_max.is_none() {
            return Ok(None);
        }
        let mut quotas = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = quotas.entry(caller.key.clone()).or_default();
        if let Some(most) = limits.concurrency_max.filter(|most| used.at_work >= *most) {
            let message =
                format!("this key may have {most} requests at a time, and has them; wait for one to end");
            return Err(refused(message, "key_concurrency_limit", TRY_AGAIN));
        }
        if let Some(per_minute) = limits.requests_per_minute
            && let Err(wait) = used.rate.take(per_minute, clock::now())
        {
            let message = format!("this key may ask {per_minute} times a minute, and has; come back later");
            return Err(refused(message, "key_rate_limit", wait));
        }
        used.at_work += 1;
        Ok(Some(Admitted { quotas: self.clone(), key: caller.key.clone() }))
    }
}

fn refused(message: String, code: &'static str, wait: Duration) -> ApiError {
    let mut error = ApiError::new(ErrorKind::RateLimit, message).code(code);
    // Whole seconds, and not too early.
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    error.retry_after_s = u32::try_from(seconds).ok();
    error
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut quotas = self.quotas.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = quotas.get_mut(&self.key) {
            used.at_work = used.at_work.saturating_sub(1);
        }
    }
}
