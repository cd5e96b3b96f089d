//! Who is sent to an upstream at once, who waits for a place, and who is told at once to come back later.
//!
//! As many calls are at work as the [limit](super::limit) allows. Others wait in line, those of people before those of
//! batches, and among equals whose tenant has fewest at work; so nobody's hundred calls keep another's one
//! waiting. How long a place will take is known from how often calls end. Who would wait longer than it may is refused on
//! arrival, when it costs nothing, and told when to come back. That time is a promise, and kept in the books:
//! who comes back then, with the same request, goes before all who were promised nothing, and each next one is
//! promised a later time.
//!
//! A place is never kept free for a promise: who comes while there is one takes it. So promises that are not
//! called in cost nothing, and how many are is learnt.
//!
//! Invariant: no more are at work than the limit allows, no more wait than may, and each who came is told
//! exactly one of go and shed, unless it leaves first.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::limit::{Bounds, Limit};
use crate::time::Instant;

/// Promises that are remembered.
const PROMISES_MAX: usize = 16_384;
/// A promise counts from a little before its time, for clocks that differ, …
const EARLY: Duration = Duration::from_secs(1);
/// … and for so long after it.
const GRACE: Duration = Duration::from_secs(15);
/// Part of what ends that is promised: the rest is for chance, or those who keep their times would queue.
const PROMISED: f64 = 0.7;
/// Shortest time, and unit, of what somebody is told to wait: callers read whole seconds.
const RETRY_UNIT: Duration = Duration::from_secs(1);
/// Over what it is counted how many were promised the same time.
const AROUND: Duration = Duration::from_millis(100);
/// How many times are looked at for one that is free.
const TRIES_MAX: u32 = 600;
/// A call of a batch that has waited so long is served as if somebody looked on.
const BATCH_PATIENCE: Duration = Duration::from_secs(10);
/// How far one call moves what is known of how often they end, and how many come back.
const RATE: f64 = 1.0 / 32.0;

/// Whose calls go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody looks on.
    #[default]
    Interactive,
    /// Nobody does.
    Batch,
}

/// How long the line may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Nobody waits longer.
    pub wait_max: Duration,
    /// So many wait at most.
    pub waiting_max: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self { wait_max: Duration::from_secs(10), waiting_max: 1_000 }
    }
}

/// A call that wants to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Its name, unlike any other's.
    pub id: u64,
    /// Whose it is.
    pub tenant: u64,
    /// What tells that somebody has come back: of the tenant and the request.
    pub key: u64,
    /// Whether somebody looks on.
    pub priority: Priority,
    /// How long it may wait: no longer than the policy allows.
    pub wait_max: Duration,
}

/// What is said to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is sent.
    Go,
    /// It waits in line.
    Wait,
    /// It is refused, and may come back after so long.
    Shed(Duration),
}

/// Where a call stands in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who goes before it.
    pub ahead: u32,
    /// How long that will probably take, where it is known.
    pub wait: Option<Duration>,
}

/// The line before one upstream.
#[derive(Clone, Debug)]
pub struct Admission {
    limit: Limit,
    at_work: u32,
    /// Those at work of each tenant that has any.
    tenants: BTreeMap<u64, u32>,
    waiting: Vec<Waiting>,
    arrivals: u64,
    ends: Ends,
    promises: Promises,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ask: Ask,
    arrival: u64,
    since: Instant,
    promised: bool,
}

impl Waiting {
    /// Small goes first.
    fn rank(&self, now: Instant) -> u32 {
        match self.ask.priority {
            _ if self.promised => 0,
            Priority::Batch if now.since(self.since) < BATCH_PATIENCE => 2,
            _ => 1,
        }
    }

    fn until(&self) -> Instant {
        self.since + self.ask.wait_max
    }
}

impl Admission {
    /// Nobody is there.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            limit: Limit::new(bounds),
            at_work: 0,
            tenants: BTreeMap::new(),
            waiting: Vec::new(),
            arrivals: 0,
            ends: Ends::default(),
            promises: Promises::default(),
        }
    }

    /// The limit, to tell it how calls went.
    pub const fn limit(&mut self) -> &mut Limit {
        &mut self.limit
    }

    /// How many are at work, and how many wait.
    #[must_use]
    pub fn counts(&self) -> (u32, u32) {
        (self.at_work, count(self.waiting.len()))
    }

    /// Whether a call that comes now would be sent.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.at_work < self.limit.calls() && self.waiting.is_empty()
    }

    /// A call has come.
    pub fn on_arrive(&mut self, ask: Ask, policy: &Policy, now: Instant) -> Verdict {
        let promised = self.promises.take(ask.key, now);
        if self.has_room() {
            self.start(ask.tenant, now);
            return Verdict::Go;
        }
        let ask = Ask { wait_max: ask.wait_max.min(policy.wait_max), ..ask };
        let waiting = Waiting { ask, arrival: self.arrivals, since: now, promised };
        let wait = self.wait(&waiting, now);
        let fits = promised || wait.is_none_or(|wait| wait <= ask.wait_max);
        if !fits || self.waiting.len() >= policy.waiting_max as usize {
            return Verdict::Shed(self.promise(ask.key, wait, now));
        }
        self.arrivals += 1;
        self.waiting.push(waiting);
        Verdict::Wait
    }

    /// The next one who waits no longer: its name, and what it is told. To be asked until there is none, after
    /// every call and at [`Self::deadline`].
    pub fn poll(&mut self, now: Instant) -> Option<(u64, Verdict)> {
        if self.at_work < self.limit.calls()
            && let Some(next) = self.next(now)
        {
            let waiting = self.waiting.swap_remove(next);
            self.start(waiting.ask.tenant, now);
            return Some((waiting.ask.id, Verdict::Go));
        }
        let late = self.waiting.iter().position(|waiting| waiting.until() <= now)?;
        let ask = self.waiting.swap_remove(late).ask;
        let interval = self.ends.interval();
        Some((ask.id, Verdict::Shed(self.promise(ask.key, interval, now))))
    }

    /// When somebody will have waited as long as it may.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(Waiting::until).min()
    }

    /// Somebody who waited has left.
    pub fn on_leave(&mut self, id: u64) {
        self.waiting.retain(|waiting| waiting.ask.id != id);
    }

    /// A call of this tenant that was sent has ended, well or not.
    pub fn on_end(&mut self, tenant: u64, now: Instant) {
        self.ends.on_end(now, self.at_work >= self.limit.calls());
        self.at_work = self.at_work.saturating_sub(1);
        if let Some(count) = self.tenants.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&tenant);
            }
        }
    }

    /// Where somebody stands who waits.
    #[must_use]
    pub fn place(&self, id: u64, now: Instant) -> Option<Place> {
        let own = self.waiting.iter().find(|waiting| waiting.ask.id == id)?;
        let ahead = self.ahead(own, now);
        Some(Place { ahead, wait: self.ends.of(f64::from(ahead) + 1.0) })
    }

    fn start(&mut self, tenant: u64, now: Instant) {
        self.at_work += 1;
        *self.tenants.entry(tenant).or_default() += 1;
        if self.at_work >= self.limit.calls() {
            self.ends.on_full(now);
        }
    }

    /// Who goes next.
    fn next(&self, now: Instant) -> Option<usize> {
        let order = |waiting: &Waiting| {
            let at_work = self.tenants.get(&waiting.ask.tenant).copied().unwrap_or_default();
            (waiting.rank(now), at_work, waiting.arrival)
        };
        (0..self.waiting.len()).min_by_key(|at| order(&self.waiting[*at]))
    }

    /// How many go before this one: those of its rank whose turn comes first, and all of a better one.
    fn ahead(&self, own: &Waiting, now: Instant) -> u32 {
        let place = (own.rank(now), own.arrival);
        count(self.waiting.iter().filter(|other| (other.rank(now), other.arrival) < place).count())
    }

    /// How long one who comes now would wait: behind those in line, and those who will come back meanwhile.
    fn wait(&self, own: &Waiting, now: Instant) -> Option<Duration> {
        let before = f64::from(self.ahead(own, now)) + 1.0;
        let wait = self.ends.of(before)?;
        let coming = if own.promised { 0.0 } else { self.promises.due_by(now + wait) };
        self.ends.of(before + coming)
    }

    /// A time to come back: behind those in line, and all who were promised one.
    fn promise(&mut self, key: u64, wait: Option<Duration>, now: Instant) -> Duration {
        let interval = self.ends.interval().unwrap_or_default();
        self.promises.make(key, now + wait.unwrap_or_default(), interval, now)
    }
}

/// How often calls end while as many are at work as may be.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// Seconds between two of them.
    interval_s: Option<f64>,
    /// The last one, or when all places were taken again.
    last: Option<Instant>,
    seen: u32,
}

impl Ends {
    /// All places are taken.
    fn on_full(&mut self, now: Instant) {
        self.last.get_or_insert(now);
    }

    fn on_end(&mut self, now: Instant, full: bool) {
        if let Some(last) = self.last.filter(|_| full) {
            let seen = now.since(last).as_secs_f64();
            self.seen = self.seen.saturating_add(1);
            let rate = RATE.max(1.0 / f64::from(self.seen));
            let before = self.interval_s.unwrap_or(seen);
            self.interval_s = Some(before + rate * (seen - before));
        }
        self.last = full.then_some(now);
    }

    fn interval(&self) -> Option<Duration> {
        self.of(1.0)
    }

    /// How long so many of them take; bounded to a day.
    fn of(&self, ends: f64) -> Option<Duration> {
        Some(Duration::from_secs_f64((self.interval_s? * ends).min(86_400.0)))
    }
}

/// Who was told when to come back.
#[derive(Clone, Debug)]
struct Promises {
    due: BTreeMap<u64, Instant>,
    /// The same, soonest first.
    order: BTreeSet<(Instant, u64)>,
    /// The part of them that is called in.
    kept: f64,
}

impl Default for Promises {
    fn default() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new(), kept: 1.0 }
    }
}

impl Promises {
    /// Whether somebody comes at its time; that is then over.
    fn take(&mut self, key: u64, now: Instant) -> bool {
        let Some(due) = self.due.get(&key).copied() else { return false };
        if due > now + EARLY || now >= due + GRACE {
            return false;
        }
        self.due.remove(&key);
        self.order.remove(&(due, key));
        self.kept += RATE * (1.0 - self.kept);
        true
    }

    /// How many will probably have come back by then.
    fn due_by(&self, then: Instant) -> f64 {
        f64::from(count(self.order.range(..=(then, u64::MAX)).count())) * self.kept
    }

    /// Promises a time, a whole number of seconds from now: not before `then`, and where few others come.
    fn make(&mut self, key: u64, then: Instant, interval: Duration, now: Instant) -> Duration {
        while let Some((due, over)) = self.order.first().copied().filter(|(due, _)| now >= *due + GRACE) {
            self.order.remove(&(due, over));
            self.due.remove(&over);
            self.kept -= RATE * self.kept;
        }
        let mut wait = whole(then.since(now));
        for _ in 0..TRIES_MAX {
            if self.has_room(now + wait, interval) {
                break;
            }
            wait += RETRY_UNIT;
        }
        if self.due.len() < PROMISES_MAX {
            let due = now + wait;
            if let Some(before) = self.due.insert(key, due) {
                self.order.remove(&(before, key));
            }
            self.order.insert((due, key));
        }
        wait
    }

    /// Whether one more may come at that time: of as many calls as end around then, a part is promised.
    fn has_room(&self, due: Instant, interval: Duration) -> bool {
        let slot = AROUND.max(interval * 4);
        let slot_ns = u64::try_from(slot.as_nanos()).unwrap_or(u64::MAX);
        let from = Instant::from_ns(due.ns() / slot_ns * slot_ns);
        let promised = f64::from(count(self.order.range((from, 0)..(from + slot, 0)).count()));
        let ends = slot.as_secs_f64() / interval.as_secs_f64().max(1e-6);
        promised < 1.0 || (promised + 1.0) * self.kept <= ends * PROMISED
    }
}

/// In whole units, one at least.
fn whole(wait: Duration) -> Duration {
    let units = wait.as_millis().div_ceil(RETRY_UNIT.as_millis()).max(1);
    RETRY_UNIT * u32::try_from(units).unwrap_or(u32::MAX)
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
