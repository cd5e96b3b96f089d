//! Whether the engines work: a step that does not end is said, and which.
//!
//! Invariant: health is what the engine's thread did, not what a connection can do.

use std::time::Duration;

use firsttoken_engine::driver::Status;
use firsttoken_logic::time::Instant;
use serde_json::{Value, json};

use crate::slot::{Loaded, Slot};

/// No step takes so long unless the kernels are wedged.
const STEP_MAX: Duration = Duration::from_secs(30);

/// What is wrong with a model; nothing where it works, or is idle.
pub(crate) fn fault(slot: &Slot) -> Option<Value> {
    let error = slot.fault().or_else(|| match slot.loaded()? {
        Loaded::Writes(model) if model.engine().is_over() => {
            Some("its kernels have failed, and are being set up again".to_owned())
        }
        Loaded::Writes(model) => wedged(&model.engine().status(), model.now()),
        Loaded::Embeds(_) => None,
    });
    error.map(|error| json!({"model": slot.name(), "error": error}))
}

/// Names the step that does not end.
fn wedged(status: &Status, now: Instant) -> Option<String> {
    let since = status.wedged(now, STEP_MAX)?;
    let (step, rows) = (status.counters.steps + 1, status.step.map_or(0, |(_, rows)| rows));
    Some(format!(
        "step {step}, of {rows} rows, has been computed for {} s, and {} requests wait for it",
        since.as_secs(),
        status.running + status.waiting
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_end_is_named() {
        let began = Instant::default() + Duration::from_secs(100);
        let status = Status { running: 3, waiting: 2, step: Some((began, 17)), ..Status::default() };
        assert_eq!(wedged(&status, began + STEP_MAX), None);
        let said = wedged(&status, began + Duration::from_secs(31)).unwrap();
        assert_eq!(said, "step 1, of 17 rows, has been computed for 31 s, and 5 requests wait for it");
        assert_eq!(wedged(&Status { step: None, ..status }, began + Duration::from_secs(99)), None);
    }
}
