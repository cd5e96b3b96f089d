//! The six clocks of a request, each apart, because each failure means something else.
//!
//! | clock | runs from | until | reset by |
//! |---|---|---|---|
//! | connect | dial | connected | – |
//! | headers | request sent | response head | – |
//! | first content | request sent | first content | – |
//! | stall | last content | next content | content |
//! | idle | last byte | next byte | any byte: pings and empty deltas too |
//! | total | request accepted | end | – |
//!
//! Invariant: pings and empty deltas reset only the idle clock, so a provider that pings forever
//! without answering still meets the first-content or the stall clock.

use core::time::Duration;

use crate::time::Instant;

/// How long each clock may run. `None` switches that clock off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Dial to connected, TLS included.
    pub connect: Option<Duration>,
    /// Request sent to response head.
    pub headers: Option<Duration>,
    /// Request sent to first content.
    pub first_content: Option<Duration>,
    /// Content to content.
    pub stall: Option<Duration>,
    /// Byte to byte.
    pub idle: Option<Duration>,
    /// Everything.
    pub total: Option<Duration>,
}

impl Default for Limits {
    /// Product defaults: 5, 60, 120, 60, 60 and 600 seconds.
    fn default() -> Self {
        let s = |n| Some(Duration::from_secs(n));
        Self {
            connect: s(5),
            headers: s(60),
            first_content: s(120),
            stall: s(60),
            idle: s(60),
            total: s(600),
        }
    }
}

/// Which clock ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The upstream did not accept the connection.
    Connect,
    /// No response head came.
    Headers,
    /// A head came, but no content.
    FirstContent,
    /// Content stopped coming.
    Stall,
    /// Nothing came at all.
    Idle,
    /// The whole took too long.
    Total,
}

impl Clock {
    /// Its name in errors, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect_timeout",
            Self::Headers => "headers_timeout",
            Self::FirstContent => "first_content_timeout",
            Self::Stall => "stall_timeout",
            Self::Idle => "idle_timeout",
            Self::Total => "total_timeout",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waiting,
    Connecting { since: Instant },
    Sent { at: Instant },
    Streaming { sent: Instant, last_byte: Instant, last_content: Option<Instant> },
}

/// The clocks of one attempt.
#[derive(Clone, Debug)]
pub struct Clocks {
    limits: Limits,
    accepted: Instant,
    state: State,
}

impl Clocks {
    /// Starts the total clock.
    #[must_use]
    pub const fn new(limits: Limits, accepted: Instant) -> Self {
        Self { limits, accepted, state: State::Waiting }
    }

    /// Dialling begins.
    pub fn on_dial(&mut self, now: Instant) {
        self.state = State::Connecting { since: now };
    }

    /// The request is on its way: connected, or on a pooled connection.
    pub fn on_sent(&mut self, now: Instant) {
        self.state = State::Sent { at: now };
    }

    /// The response head has come.
    pub fn on_head(&mut self, now: Instant) {
        let sent = match self.state {
            State::Sent { at } => at,
            State::Streaming { sent, .. } => sent,
            State::Waiting | State::Connecting { .. } => now,
        };
        self.state = State::Streaming { sent, last_byte: now, last_content: None };
    }

    /// Bytes have come; `content` if there was content among them.
    pub fn on_bytes(&mut self, now: Instant, content: bool) {
        if let State::Streaming { last_byte, last_content, .. } = &mut self.state {
            *last_byte = now;
            if content {
                *last_content = Some(now);
            }
        }
    }

    /// From here on content cannot be seen: the clocks that wait for it are off.
    pub fn on_unmetered(&mut self) {
        self.limits.first_content = None;
        self.limits.stall = None;
    }

    /// The clock that runs out first, and when.
    #[must_use]
    pub fn deadline(&self) -> Option<(Instant, Clock)> {
        let l = &self.limits;
        let at = |limit: Option<Duration>, from: Instant, clock| limit.map(|d| (from + d, clock));
        let mut first = at(l.total, self.accepted, Clock::Total);
        let mut consider = |candidate: Option<(Instant, Clock)>| {
            if let Some((when, clock)) = candidate
                && first.is_none_or(|(at, _)| when < at)
            {
                first = Some((when, clock));
            }
        };
        match self.state {
            State::Waiting => {}
            State::Connecting { since } => consider(at(l.connect, since, Clock::Connect)),
            State::Sent { at: sent } => {
                consider(at(l.headers, sent, Clock::Headers));
                consider(at(l.first_content, sent, Clock::FirstContent));
            }
            State::Streaming { sent, last_byte, last_content } => {
                consider(match last_content {
                    None => at(l.first_content, sent, Clock::FirstContent),
                    Some(content) => at(l.stall, content, Clock::Stall),
                });
                consider(at(l.idle, last_byte, Clock::Idle));
            }
        }
        first
    }

    /// The clock that has run out by `now`.
    #[must_use]
    pub fn expired(&self, now: Instant) -> Option<Clock> {
        self.deadline().filter(|(at, _)| *at <= now).map(|(_, clock)| clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::from_ns(s * 1_000_000_000)
    }

    #[test]
    fn each_phase_has_its_own_clock() {
        let mut c = Clocks::new(Limits::default(), at(0));
        assert_eq!(c.deadline(), Some((at(600), Clock::Total)));
        c.on_dial(at(1));
        assert_eq!(c.deadline(), Some((at(6), Clock::Connect)));
        c.on_sent(at(2));
        assert_eq!(c.deadline(), Some((at(62), Clock::Headers)));
        c.on_head(at(3));
        assert_eq!(c.deadline(), Some((at(63), Clock::Idle)));
        c.on_bytes(at(4), true);
        assert_eq!(c.deadline().map(|d| d.0), Some(at(64)));
    }

    #[test]
    fn pings_reset_only_the_idle_clock() {
        let mut c = Clocks::new(Limits::default(), at(0));
        c.on_sent(at(0));
        c.on_head(at(1));
        for s in (10..=110).step_by(10) {
            c.on_bytes(at(s), false);
            assert_eq!(c.expired(at(s)), None);
        }
        assert_eq!(c.expired(at(120)), Some(Clock::FirstContent));
        c.on_bytes(at(111), true);
        for s in (120..=170).step_by(10) {
            c.on_bytes(at(s), false);
        }
        assert_eq!(c.expired(at(171)), Some(Clock::Stall));
    }

    #[test]
    fn a_clock_that_is_off_never_expires() {
        let limits = Limits {
            connect: None,
            headers: None,
            first_content: None,
            stall: None,
            idle: None,
            total: None,
        };
        let mut c = Clocks::new(limits, at(0));
        c.on_sent(at(0));
        c.on_head(at(0));
        assert_eq!(c.deadline(), None);
        assert_eq!(c.expired(at(1_000_000)), None);
    }

    #[test]
    fn where_content_cannot_be_seen_nobody_waits_for_it() {
        let mut c = Clocks::new(Limits::default(), at(0));
        c.on_sent(at(0));
        c.on_head(at(0));
        c.on_bytes(at(1), true);
        c.on_unmetered();
        c.on_bytes(at(50), false);
        assert_eq!(c.deadline(), Some((at(110), Clock::Idle)));
    }

    #[test]
    fn the_total_clock_ends_a_stream_that_flows() {
        let mut c = Clocks::new(Limits::default(), at(0));
        c.on_sent(at(0));
        c.on_head(at(0));
        for s in 1..600 {
            c.on_bytes(at(s), true);
            assert_eq!(c.expired(at(s)), None);
        }
        assert_eq!(c.expired(at(600)), Some(Clock::Total));
    }
}
