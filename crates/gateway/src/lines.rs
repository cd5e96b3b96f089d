//! Where requests wait for a place at their upstream.
//!
//! The shell of [`firsttoken_logic::tail::admission`]: a line for each upstream that has a limit, by its name, so
//! that it outlives a reload. A request that has a [`Place`] is at work; one that waits is told its verdict
//! through a channel of its own. There is no timer beside those of who waits.
//!
//! Invariant: a place is given back when it is dropped, and who leaves the line while it waits holds none.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firsttoken_logic::tail::admission::{self, Admission, Ask, Policy, Priority, Verdict};
use firsttoken_logic::tail::limit::Bounds;
use firsttoken_logic::time::Instant;
use tokio::sync::oneshot;

use crate::clock;
use crate::evidence::{Phase, Stamps};

/// How often who waits is told where it stands.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Bytes at the beginning and at the end of a body by which a request is known again.
const KNOWN_BY_BYTES: usize = 1024;

/// All lines.
#[derive(Default)]
pub(crate) struct Lines {
    lines: Mutex<HashMap<Arc<str>, Arc<Line>>>,
    /// Keyed anew in each process, so that nobody can make two requests look alike.
    hasher: RandomState,
}

/// The line before one upstream.
struct Line(Mutex<State>);

struct State {
    admission: Admission,
    waiters: HashMap<u64, oneshot::Sender<Verdict>>,
    next_id: u64,
}

/// A request that wants a place.
#[derive(Clone, Copy)]
pub(crate) struct Wants<'a> {
    /// Whose it is.
    pub(crate) tenant: &'a str,
    /// What is sent.
    pub(crate) body: &'a [u8],
    /// Whether somebody looks on.
    pub(crate) priority: Priority,
    /// How long the line may be.
    pub(crate) policy: Policy,
    /// When it is over in any case.
    pub(crate) deadline: Option<Instant>,
}

/// How a line stands, for metrics.
pub(crate) struct Standing {
    /// The upstream.
    pub(crate) upstream: Arc<str>,
    /// How many may be at work.
    pub(crate) limit: u32,
    /// How many are.
    pub(crate) at_work: u32,
    /// How many wait.
    pub(crate) waiting: u32,
}

impl Lines {
    /// Waits for a place at `upstream`, as long as the policy allows.
    ///
    /// # Errors
    /// It is refused, and may come back after so long.
    pub(crate) async fn enter(
        &self,
        upstream: &Arc<str>,
        bounds: Bounds,
        wants: Wants<'_>,
        stamps: &mut Stamps,
    ) -> Result<Place, Duration> {
        let (ask, now) = (self.ask(&wants), clock::now());
        match self.line(upstream, bounds).arrive(ask, &wants.policy, now) {
            Arrived::Goes(place) => Ok(place),
            Arrived::Shed(wait) => Err(wait),
            Arrived::Waits(waiting) => {
                stamps.enter_at(Phase::Queue, now);
                waiting.wait(now + ask.wait_max, stamps).await
            }
        }
    }

    /// A place at `upstream`, if there is one at once.
    pub(crate) fn try_enter(&self, upstream: &Arc<str>, bounds: Bounds, wants: Wants<'_>) -> Option<Place> {
        let (line, ask) = (self.line(upstream, bounds), self.ask(&wants));
        let mut state = line.lock();
        let goes = state.admission.has_room()
            && state.admission.on_arrive(ask, &wants.policy, clock::now()) == Verdict::Go;
        goes.then(|| Place::new(&line, &state, ask.tenant))
    }

    /// Whether one more would be sent to `upstream` at once.
    pub(crate) fn has_room(&self, upstream: &Arc<str>) -> bool {
        let line = self.lock().get(upstream).cloned();
        line.is_none_or(|line| line.lock().admission.has_room())
    }

    /// How all lines stand.
    pub(crate) fn standings(&self) -> Vec<Standing> {
        let standing = |(upstream, line): (&Arc<str>, &Arc<Line>)| {
            let mut state = line.lock();
            let (at_work, waiting) = state.admission.counts();
            Standing { upstream: upstream.clone(), limit: state.admission.limit().calls(), at_work, waiting }
        };
        self.lock().iter().map(standing).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, upstream: &Arc<str>, bounds: Bounds) -> Arc<Line> {
        let line = self.lock().entry(upstream.clone()).or_insert_with(|| Line::new(bounds)).clone();
        line.lock().admission.limit().set_bounds(bounds);
        line
    }

    /// Its name is not given yet.
    fn ask(&self, wants: &Wants<'_>) -> Ask {
        let body = wants.body;
        let (start, end) = (body.len().min(KNOWN_BY_BYTES), body.len().saturating_sub(KNOWN_BY_BYTES));
        let left = wants.deadline.map_or(Duration::MAX, |deadline| deadline.since(clock::now()));
        Ask {
            id: u64::MAX,
            tenant: self.hasher.hash_one(wants.tenant),
            key: self.hasher.hash_one((wants.tenant, body.len(), &body[..start], &body[end..])),
            priority: wants.priority,
            wait_max: left.min(wants.policy.wait_max),
        }
    }
}

impl Line {
    fn new(bounds: Bounds) -> Arc<Self> {
        let admission = Admission::new(bounds);
        Arc::new(Self(Mutex::new(State { admission, waiters: HashMap::new(), next_id: 0 })))
    }

    /// Somebody comes.
    fn arrive(self: Arc<Self>, ask: Ask, policy: &Policy, now: Instant) -> Arrived {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        match state.admission.on_arrive(Ask { id, ..ask }, policy, now) {
            Verdict::Go => Arrived::Goes(Place::new(&self, &state, ask.tenant)),
            Verdict::Shed(wait) => Arrived::Shed(wait),
            Verdict::Wait => {
                let (told, hears) = oneshot::channel();
                state.waiters.insert(id, told);
                drop(state);
                Arrived::Waits(Waiting { line: self, id, tenant: ask.tenant, hears })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells everybody who waits no longer.
    fn tell(&mut self) {
        let now = clock::now();
        while let Some((id, verdict)) = self.admission.poll(now) {
            if let Some(told) = self.waiters.remove(&id) {
                // Who has left was taken out of the line first.
                let _ = told.send(verdict);
            }
        }
    }

    fn end(&mut self, tenant: u64) {
        self.admission.on_end(tenant, clock::now());
        self.tell();
    }
}

/// What becomes of who comes.
enum Arrived {
    Goes(Place),
    Waits(Waiting),
    Shed(Duration),
}

/// Somebody in line. Dropped, it leaves.
struct Waiting {
    line: Arc<Line>,
    id: u64,
    tenant: u64,
    hears: oneshot::Receiver<Verdict>,
}

impl Waiting {
    async fn wait(mut self, until: Instant, stamps: &mut Stamps) -> Result<Place, Duration> {
        loop {
            let now = clock::now();
            if let Some(place) = self.line.lock().admission.place(self.id, now) {
                stamps.stand(place);
            }
            let wake = clock::to_tokio(until.min(now + TELL_EVERY));
            match tokio::time::timeout_at(wake, &mut self.hears).await {
                Ok(Ok(Verdict::Go)) => return Ok(Place::new(&self.line, &self.line.lock(), self.tenant)),
                Ok(Ok(Verdict::Shed(wait))) => return Err(wait),
                Ok(Ok(Verdict::Wait) | Err(_)) => return Err(Duration::ZERO),
                Err(_) => self.line.lock().tell(),
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        if state.waiters.remove(&self.id).is_some() {
            state.admission.on_leave(self.id);
            state.tell();
        } else if self.hears.try_recv() == Ok(Verdict::Go) {
            state.end(self.tenant);
        }
    }
}

/// A place at an upstream.
pub(crate) struct Place {
    line: Arc<Line>,
    tenant: u64,
    sent: Instant,
    at_work: u32,
}

impl Place {
    fn new(line: &Arc<Line>, state: &State, tenant: u64) -> Self {
        let (at_work, _) = state.admission.counts();
        Self { line: line.clone(), tenant, sent: clock::now(), at_work }
    }

    /// The upstream has shown content, in answer to a prompt of this class.
    pub(crate) fn on_content(&self, class: usize) {
        let now = clock::now();
        let mut state = self.line.lock();
        let took = now.since(self.sent);
        state.admission.limit().on_content(class, self.sent, took, self.at_work, now);
        state.tell();
    }

    /// The upstream has refused it as one too many.
    pub(crate) fn on_overloaded(&self) {
        self.line.lock().admission.limit().on_overloaded(self.sent, self.at_work, clock::now());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.line.lock().end(self.tenant);
    }
}

/// Where somebody stands in line, in one word that can be read from another thread.
pub(crate) fn packed(place: admission::Place) -> u64 {
    let wait = place.wait.map_or(u32::MAX, |wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX - 1));
    u64::from(place.ahead) << 32 | u64::from(wait)
}

/// The same as who goes before it, and how many milliseconds that will probably take.
pub(crate) fn unpacked(word: u64) -> (u64, Option<u64>) {
    let wait = word & u64::from(u32::MAX);
    (word >> 32, (wait != u64::from(u32::MAX)).then_some(wait))
}
