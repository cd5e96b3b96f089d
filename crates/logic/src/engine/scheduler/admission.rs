//! Whether a request that comes now will be answered in time, and when to come back if not.
//!
//! The forecast is made of what was measured: prompt tokens a second under the load there is, requests
//! that end a second, cells that come free a second. Who is refused is promised a time; the promise
//! is kept in the books, so that the next who is refused is told a later one, and who comes back with
//! the same prompt at its time is taken.
//!
//! Invariant: a refusal names a time at which the request will be taken, unless the forecast was wrong.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::ids::RequestId;
use super::super::prefix::BlockHash;
use super::super::sequence::Sequence;
use super::{Refusal, Scheduler};
use crate::time::Instant;

/// Promises that are remembered.
const PROMISES_MAX: usize = 4096;
/// A promise counts from a little before its time, for clocks that differ, …
const EARLY: Duration = Duration::from_secs(1);
/// … and for so long after it.
const GRACE: Duration = Duration::from_secs(15);
/// Shortest time that anybody is told to stay away.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// How far one observation moves a rate, once there have been many: the first ones count alike, or a first
/// step that was small and met cold memory would be believed for hundreds.
const RATE: f64 = 0.005;

/// What may be expected of the engine, and what was promised of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Forecast {
    /// Seconds of a step with prefill, others' decoding included, and its rows of prefill.
    prefill: Option<(f64, f64)>,
    /// Such steps so far.
    prefills: u32,
    /// Seconds between two requests that end, while requests wait.
    ending: Option<f64>,
    ended: Option<Instant>,
    promises: BTreeMap<BlockHash, Promise>,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    due: Instant,
    rows: u32,
}

impl Forecast {
    /// While prompts waited to be computed a step took so long, with so many rows of them.
    pub(super) fn on_prefill(&mut self, rows: u32, took: Duration) {
        let (seconds, rows) = (took.as_secs_f64(), f64::from(rows));
        let before = self.prefill.or_else(|| (rows > 0.0).then_some((seconds, rows)));
        let Some(before) = before else { return };
        self.prefills = self.prefills.saturating_add(1);
        let rate = RATE.max(1.0 / f64::from(self.prefills));
        self.prefill = Some((towards(before.0, seconds, rate), towards(before.1, rows, rate)));
    }

    /// A request has ended; `busy` if others wait.
    pub(super) fn on_end(&mut self, now: Instant, busy: bool) {
        if let Some(last) = self.ended.filter(|_| busy) {
            let seen = (now - last).as_secs_f64();
            self.ending = Some(towards(self.ending.unwrap_or(seen), seen, RATE));
        }
        self.ended = Some(now);
    }

    /// When one of so much `work` will have its turn that is behind `ahead` of work, and behind all who
    /// were promised a time, but for a gap between two of them that is wide enough for certain.
    fn turn(&mut self, now: Instant, ahead: Duration, work: Duration, row: f64) -> Duration {
        self.promises.retain(|_, promise| now < promise.due + GRACE);
        let mut promised: Vec<_> = self.promises.values().copied().collect();
        promised.sort_unstable_by_key(|promise| promise.due);
        let before = promised.iter().scan(ahead, |turn, promise| {
            let comes_first = promise.due <= now + *turn + work * 4;
            *turn = (promise.due - now).max(*turn) + seconds(f64::from(promise.rows) * row);
            comes_first.then_some(*turn)
        });
        before.last().unwrap_or(ahead)
    }
}

/// An average that moves towards what is seen.
fn towards(before: f64, seen: f64, rate: f64) -> f64 {
    before + rate * (seen - before)
}

impl Scheduler {
    /// Whether the request of that name, which has just joined the queue, will begin within
    /// `wait_max`.
    pub(super) fn judge(&mut self, id: RequestId, now: Instant, wait_max: Duration) -> Result<(), Refusal> {
        let key = self.sequences[&id].chain.digest();
        if let Some(promise) = self.forecast.promises.get(&key)
            && promise.due <= now + EARLY
            && now < promise.due + GRACE
        {
            self.forecast.promises.remove(&key);
            return Ok(());
        }
        let wait = self.wait(id, now);
        if wait <= wait_max || self.forecast.promises.len() >= PROMISES_MAX && self.running.is_empty() {
            return Ok(());
        }
        // By then half of what may wait has drained.
        let retry_after = (wait - wait_max / 2).max(RETRY_MIN);
        let rows = self.sequences[&id].expected;
        if self.forecast.promises.len() < PROMISES_MAX {
            self.forecast.promises.insert(key, Promise { due: now + retry_after, rows });
        }
        Err(Refusal::Busy { retry_after })
    }

    /// How long the request of that name will wait before its own prompt is computed.
    fn wait(&mut self, id: RequestId, now: Instant) -> Duration {
        let own = &self.sequences[&id];
        let own_rows = own.expected;
        let least_served = self.least_served();
        let place = self.order(own, own.expected, least_served);
        let before = |other: &&Sequence| {
            other.request != id && self.order(other, other.remaining(), least_served) <= place
        };
        let ahead = self.waiting.iter().map(|id| &self.sequences[id]).filter(before);
        let (queued, rows) = ahead
            .fold((0_u32, 0_u32), |(count, rows), other| (count + 1, rows + other.expected - other.follows));
        let at_work: u32 = self
            .running
            .iter()
            .map(|id| &self.sequences[id])
            .filter(|sequence| !sequence.decodes() && !sequence.paused)
            .map(Sequence::remaining)
            .sum();
        let row = self
            .forecast
            .prefill
            .map_or_else(|| self.prefill_row_guess(), |(seconds, rows)| seconds / rows.max(1e-3));
        let ahead = seconds(f64::from(rows + at_work) * row).max(self.place_wait(id, queued));
        let work = seconds(f64::from(own_rows) * row);
        self.forecast.turn(now, ahead, work, row)
    }

    /// How long it takes until there is a place, in memory and among those at work, behind `queued`
    /// others.
    fn place_wait(&self, id: RequestId, queued: u32) -> Duration {
        let running = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        let places = if self.fits(id, &self.prefix_of(id)) {
            self.limits.running_max.saturating_sub(running)
        } else {
            0
        };
        let missing = (queued + 1).saturating_sub(places);
        seconds(f64::from(missing) * self.forecast.ending.unwrap_or_default())
    }

    fn prefill_row_guess(&self) -> f64 {
        let rows = self.limits.rows_max;
        self.cost.forecast(rows, self.pool.cells().top()).as_secs_f64() / f64::from(rows.max(1))
    }
}

/// A duration of so many seconds, bounded to a day.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_step_over_cold_memory_is_soon_forgotten() {
        let mut forecast = Forecast::default();
        forecast.on_prefill(35, Duration::from_millis(1_300));
        for _ in 0..4 {
            forecast.on_prefill(512, Duration::from_millis(800));
        }
        let (seconds, rows) = forecast.prefill.unwrap();
        let row_ms = seconds / rows * 1000.0;
        assert!((1.5..2.5).contains(&row_ms), "{row_ms} ms a row");
    }
}
