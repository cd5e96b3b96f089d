//! What all requests know together about their upstreams, and the course of one request among them.
//!
//! [`Tails`] holds the machines of [`firsttoken_logic::tail`], by the names of the configuration, so that they
//! outlive a reload, and follow what it changes: a breaker for each upstream, a budget for each route, and for each class of prompts of a
//! route how long its answers take to begin. A [`Course`] asks them on behalf of one request.
//!
//! Invariant: what is kept is bounded by the configuration: names are those of upstreams, routes and rules.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firsttoken_logic::failure::Failure;
use firsttoken_logic::tail::breaker::{self, Breaker};
use firsttoken_logic::tail::budget::Budget;
use firsttoken_logic::tail::hedge::Hedger;
use firsttoken_logic::tail::limit;
use firsttoken_logic::tail::retry::{Attempts, Next};
use firsttoken_logic::time::Instant;

use crate::clock;
use crate::config::Policy;
use crate::evidence::Record;
use crate::gateway::Setup;
use crate::lines::Lines;
use crate::stream::exchange::Call;

/// Bytes of a prompt below which its class is the first; each further one is four times as long: up to about
/// 1k, 4k, 16k and 64k tokens, and more.
const CLASS_BYTES: usize = 4 * 1024;

/// What is known of upstreams.
#[derive(Default)]
pub(crate) struct Tails(Mutex<Known>);

#[derive(Default)]
struct Known {
    breakers: HashMap<Arc<str>, Breaker>,
    budgets: HashMap<Arc<str>, Budget>,
    hedgers: HashMap<Class, Hedger>,
}

/// Requests that take about as long as each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Class {
    route: Arc<str>,
    model: Arc<str>,
    size: usize,
}

impl Tails {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn breaker(&mut self, upstream: &Arc<str>) -> &mut Breaker {
        self.breakers.entry(upstream.clone()).or_default()
    }

    fn budget(&mut self, class: &Class, policy: &Policy) -> &mut Budget {
        let budget = self.budgets.entry(class.route.clone()).or_default();
        budget.set_share(policy.hedge.share_per_mille);
        budget
    }

    fn hedger(&mut self, class: &Class, policy: &Policy) -> (&mut Hedger, &mut Budget) {
        let hedger = self.hedgers.entry(class.clone()).or_default();
        hedger.set_policy(policy.hedge);
        let budget = self.budgets.entry(class.route.clone()).or_default();
        budget.set_share(policy.hedge.share_per_mille);
        (hedger, budget)
    }
}

/// How a doubled attempt ended.
pub(crate) struct Raced<'a> {
    /// Whether the second copy decided it.
    pub(crate) second: bool,
    /// Why nothing came of it, if nothing did.
    pub(crate) failure: Option<&'a Failure>,
    /// Why the other copy had failed before, if it had.
    pub(crate) lost: Option<&'a Failure>,
}

/// The attempts at one request: which upstreams it has asked, and which it may.
pub(crate) struct Course<'a> {
    tails: &'a Tails,
    lines: &'a Lines,
    policy: &'a Policy,
    class: Class,
    attempts: Attempts,
    /// Each leg's upstream, and whether it was asked.
    legs: Vec<(Arc<str>, bool)>,
    /// The leg that is asked next.
    next: usize,
    hedges: bool,
}

impl<'a> Course<'a> {
    /// Nobody has been asked yet.
    pub(crate) fn new(setup: &'a Setup, call: &'a Call, record: &Record) -> Self {
        let legs: Vec<_> =
            call.legs.iter().map(|leg| (setup.upstream(leg.upstream).0.clone(), false)).collect();
        let size = call.legs.first().map_or(0, |leg| leg.request.body.len());
        let class =
            Class { route: record.route.clone(), model: record.model_label.clone(), size: class(size) };
        let own_queue = call.legs.iter().any(|leg| leg.local);
        let hedges = call.hedgeable && call.policy.hedge.share_per_mille > 0 && !own_queue;
        let tails = &setup.shared.tails;
        let mut course = Self {
            tails,
            lines: &setup.shared.lines,
            policy: &call.policy,
            class,
            attempts: Attempts::new(call.policy.retry),
            legs,
            next: 0,
            hedges,
        };
        if course.legs.len() > 1 || hedges || course.policy.retry.same_upstream {
            tails.known().budget(&course.class, course.policy).on_call(clock::now());
        }
        course.next = course.choose().unwrap_or(0);
        course
    }

    /// The leg that is asked now.
    pub(crate) fn begin(&mut self) -> usize {
        self.attempts.on_attempt();
        self.legs[self.next].1 = true;
        self.next
    }

    /// Whether more than one attempt was made.
    pub(crate) const fn has_retried(&self) -> bool {
        self.attempts.made() > 1
    }

    /// After how long without content the attempt that begins now is late, if late ones are doubled here.
    pub(crate) fn delay(&self) -> Option<Duration> {
        if !self.hedges {
            return None;
        }
        let mut known = self.tails.known();
        let (hedger, budget) = known.hedger(&self.class, self.policy);
        hedger.delay(budget)
    }

    /// The attempt at `at` is late: the leg at which it is doubled, if it is.
    pub(crate) fn on_late(&mut self, at: usize, now: Instant) -> Option<usize> {
        let place = self.choose().unwrap_or(at);
        let mut known = self.tails.known();
        let (hedger, budget) = known.hedger(&self.class, self.policy);
        if !hedger.on_late(budget, now) {
            return None;
        }
        drop(known);
        self.attempts.on_attempt();
        self.legs[place].1 = true;
        Some(place)
    }

    /// The attempt at `at` has ended, alone.
    pub(crate) fn on_end(&mut self, at: usize, failure: Option<&Failure>, began: Instant) {
        self.on_upstream(at, failure);
        if self.hedges && failure.is_none() {
            let took = clock::now().since(began);
            self.tails.known().hedger(&self.class, self.policy).0.on_first_content(took);
        }
    }

    /// A doubled attempt has ended: the first copy began at `began`.
    pub(crate) fn on_race(&mut self, first: usize, second: usize, race: &Raced<'_>, began: Instant) {
        let took = clock::now().since(began);
        let (winner, loser) = if race.second { (second, first) } else { (first, second) };
        self.on_upstream(winner, race.failure);
        // Who was only slower has done nothing wrong.
        if race.lost.is_some() {
            self.on_upstream(loser, race.lost);
        }
        if race.failure.is_none() {
            let mut known = self.tails.known();
            let (hedger, _) = known.hedger(&self.class, self.policy);
            if race.second { hedger.on_won(took) } else { hedger.on_lost(took) }
        }
    }

    /// The last attempt has failed: what is done about it.
    pub(crate) fn on_failure(&mut self, failure: &Failure, now: Instant) -> Next {
        let others = self.legs.iter().any(|(_, asked)| !asked);
        let next = self.attempts.on_failure(failure, others, chance_per_mille());
        if next == Next::GiveUp || !self.tails.known().budget(&self.class, self.policy).take_retry(now) {
            return Next::GiveUp;
        }
        if next == Next::Elsewhere {
            self.next = self.choose().unwrap_or(self.next);
        }
        next
    }

    /// The first leg that was not asked yet and is not left alone; if all are, the first that was not asked.
    fn choose(&self) -> Option<usize> {
        let unasked = || self.legs.iter().enumerate().filter(|(_, (_, asked))| !asked);
        if self.legs.len() < 2 {
            return unasked().next().map(|(at, _)| at);
        }
        let (mut known, now) = (self.tails.known(), clock::now());
        let has_room = |name: &Arc<str>| self.lines.has_room(name);
        let well = unasked().find(|(_, (name, _))| has_room(name) && known.breaker(name).allows(now));
        // Where nobody has room, one waits for who is well.
        let well = well.or_else(|| unasked().find(|(_, (name, _))| known.breaker(name).allows(now)));
        well.or_else(|| unasked().next()).map(|(at, _)| at)
    }

    fn on_upstream(&self, at: usize, failure: Option<&Failure>) {
        if self.legs.len() < 2 {
            return;
        }
        let mut known = self.tails.known();
        let breaker = known.breaker(&self.legs[at].0);
        match failure {
            Some(failure) if breaker::blames(failure) => breaker.on_failure(clock::now()),
            _ => breaker.on_success(),
        }
    }
}

/// The class of a prompt of so many bytes.
pub(crate) fn class(bytes: usize) -> usize {
    let times = (bytes / CLASS_BYTES).checked_ilog(4).map_or(0, |log| log as usize + 1);
    times.min(limit::CLASSES - 1)
}

/// Up to a thousand, by chance; the middle where there is none to be had.
fn chance_per_mille() -> u32 {
    getrandom::u32().map_or(500, |chance| chance % 1_001)
}
