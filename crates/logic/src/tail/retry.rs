//! Whether a request that failed is tried again, where, and when.
//!
//! Before the content commit nothing of an answer has reached the caller, so another upstream may give it. A
//! failure that the caller's request has caused would only repeat itself; one that lies with the upstream's
//! account or its catalogue (401, 403, 404) is worth a try elsewhere and none at the same place.
//!
//! | failure, before content | elsewhere | same upstream |
//! |---|---|---|
//! | no connection, broken connection, broken stream | yes | yes |
//! | connect, headers, first content, idle or stall clock | yes | yes |
//! | 408, 409, 425, 429, 5xx | yes | yes |
//! | 401, 403, 404, redirects; no place in its line | yes | no |
//! | any other 4xx, the total clock, our own shutdown | no | no |
//!
//! Invariant: nothing is tried again after content, or more often than the policy says.

use core::time::Duration;

use crate::clocks::Clock;
use crate::failure::{Failure, Kind, Reached};

/// The pause before the first retry at the same upstream; it doubles with each.
const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// What a route says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Attempts at a request, the first one included.
    pub attempts_max: u32,
    /// Whether an upstream that failed is asked again when there is no other.
    pub same_upstream: bool,
    /// The longest pause before an attempt; an upstream that asks for more is not waited for.
    pub wait_max: Duration,
}

impl Default for Policy {
    /// Three attempts, each elsewhere: callers' own libraries ask the same place again.
    fn default() -> Self {
        Self { attempts_max: 3, same_upstream: false, wait_max: Duration::from_secs(2) }
    }
}

/// Where a failed request may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nowhere.
    Nowhere,
    /// At another upstream.
    Elsewhere,
    /// Anywhere.
    Anywhere,
}

/// Where a request that failed so may be tried again.
#[must_use]
pub const fn reach(failure: &Failure) -> Reach {
    if matches!(failure.reached, Reached::Content) {
        return Reach::Nowhere;
    }
    match failure.kind {
        Kind::Draining | Kind::Timeout(Clock::Total) => Reach::Nowhere,
        Kind::Status(408 | 409 | 425 | 429 | 500..) => Reach::Anywhere,
        Kind::Shed | Kind::Status(401 | 403 | 404 | ..=399) => Reach::Elsewhere,
        Kind::Status(_) => Reach::Nowhere,
        _ => Reach::Anywhere,
    }
}

/// The attempts at one request.
#[derive(Clone, Debug)]
pub struct Attempts {
    policy: Policy,
    made: u32,
    /// At the same upstream, one after another.
    again: u32,
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Tried at another upstream, at once.
    Elsewhere,
    /// Tried at the same one, after a pause.
    Again(Duration),
    /// Told to the caller.
    GiveUp,
}

impl Attempts {
    /// None yet.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy, made: 0, again: 0 }
    }

    /// How many have been made.
    #[must_use]
    pub const fn made(&self) -> u32 {
        self.made
    }

    /// One is made: of a retry or of a hedge.
    pub const fn on_attempt(&mut self) {
        self.made += 1;
    }

    /// One has failed, and none is under way. `others`: whether there is an upstream that was not asked
    /// yet. `chance_per_mille` spreads pauses, so that those who failed together do not come back
    /// together.
    pub fn on_failure(&mut self, failure: &Failure, others: bool, chance_per_mille: u32) -> Next {
        let reach = reach(failure);
        if self.made >= self.policy.attempts_max || reach == Reach::Nowhere {
            return Next::GiveUp;
        }
        if others {
            return Next::Elsewhere;
        }
        if reach == Reach::Elsewhere || !self.policy.same_upstream {
            return Next::GiveUp;
        }
        let pause = BACKOFF_MIN * (1 << self.again.min(10));
        let spread = pause * (800 + chance_per_mille.min(1000) * 2 / 5) / 1000;
        let pause = spread.max(failure.retry_after.unwrap_or_default());
        self.again += 1;
        if pause > self.policy.wait_max { Next::GiveUp } else { Next::Again(pause) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: Kind) -> Failure {
        Failure::new(kind, Reached::Head, "")
    }

    #[test]
    fn what_the_caller_has_caused_is_not_tried_again() {
        assert_eq!(reach(&failed(Kind::Status(400))), Reach::Nowhere);
        assert_eq!(reach(&failed(Kind::Status(422))), Reach::Nowhere);
        assert_eq!(reach(&failed(Kind::Timeout(Clock::Total))), Reach::Nowhere);
        assert_eq!(reach(&failed(Kind::Status(404))), Reach::Elsewhere);
        assert_eq!(reach(&failed(Kind::Status(529))), Reach::Anywhere);
        assert_eq!(reach(&failed(Kind::Cut)), Reach::Anywhere);
        let content = Failure { reached: Reached::Content, ..failed(Kind::Cut) };
        assert_eq!(reach(&content), Reach::Nowhere, "the caller has a part of that answer");
    }

    #[test]
    fn another_upstream_is_tried_at_once_and_the_same_one_after_a_pause() {
        let policy = Policy { same_upstream: true, attempts_max: 4, ..Policy::default() };
        let mut attempts = Attempts::new(policy);
        attempts.on_attempt();
        let failure = failed(Kind::Status(500));
        assert_eq!(attempts.on_failure(&failure, true, 500), Next::Elsewhere);
        attempts.on_attempt();
        assert_eq!(attempts.on_failure(&failure, false, 500), Next::Again(BACKOFF_MIN));
        attempts.on_attempt();
        assert_eq!(attempts.on_failure(&failure, false, 500), Next::Again(BACKOFF_MIN * 2));
        attempts.on_attempt();
        assert_eq!(attempts.on_failure(&failure, true, 500), Next::GiveUp, "that was the fourth");
    }

    #[test]
    fn who_asks_for_more_patience_than_there_is_is_not_waited_for() {
        let mut attempts = Attempts::new(Policy { same_upstream: true, ..Policy::default() });
        attempts.on_attempt();
        let busy = |seconds| Failure {
            retry_after: Some(Duration::from_secs(seconds)),
            ..failed(Kind::Status(429))
        };
        assert_eq!(attempts.on_failure(&busy(1), false, 500), Next::Again(Duration::from_secs(1)));
        assert_eq!(attempts.on_failure(&busy(20), false, 500), Next::GiveUp);
        let mut attempts = Attempts::new(Policy::default());
        attempts.on_attempt();
        assert_eq!(attempts.on_failure(&busy(0), false, 500), Next::GiveUp, "callers' libraries ask again");
    }
}
