//! When the first byte, and when the first content, may reach the client.
//!
//! Before the **head commit** a failure is a true status code. Between it and the **content commit**
//! it is a typed error event under 200, and the request may still be tried again. After the content
//! commit it is a typed error event, and nothing is tried again.
//!
//! The same machine says when the client has heard nothing for too long (keepalive), since both are
//! questions about what was last written.

use core::time::Duration;

use crate::time::Instant;

/// What the client has got so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing: everything is still possible.
    Held,
    /// A status and a head, but no content.
    Head,
    /// Content.
    Content,
}

/// Tracks one response.
#[derive(Clone, Debug)]
pub struct Commit {
    stage: Stage,
    head_deadline: Instant,
    keepalive: Duration,
    last_write: Instant,
}

impl Commit {
    /// Holds the head for at most `hold` from `accepted` on; zero commits at once.
    #[must_use]
    pub fn new(accepted: Instant, hold: Duration, keepalive: Duration) -> Self {
        let stage = if hold.is_zero() { Stage::Head } else { Stage::Held };
        Self { stage, head_deadline: accepted + hold, keepalive, last_write: accepted }
    }

    /// Bytes go to the client now. The first of them commits the head.
    pub fn on_write(&mut self, now: Instant, content: bool) {
        self.last_write = now;
        self.stage = self.stage.max(if content { Stage::Content } else { Stage::Head });
    }

    /// What the client has got.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether the client has to hear something by `now`: the head that was held back for as long as it
    /// may, or that we are alive. The caller writes it and reports that by [`Self::on_write`].
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.deadline() <= now
    }

    /// When [`Self::is_due`] turns true.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        match self.stage {
            Stage::Held => self.head_deadline,
            Stage::Head | Stage::Content => self.last_write + self.keepalive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::from_ns(s * 1_000_000_000)
    }
    const S15: Duration = Duration::from_secs(15);

    #[test]
    fn a_held_head_is_committed_after_its_time() {
        let mut c = Commit::new(at(0), S15, S15);
        assert_eq!((c.stage(), c.is_due(at(14))), (Stage::Held, false));
        assert!(c.is_due(at(15)));
        c.on_write(at(15), false);
        assert_eq!((c.stage(), c.is_due(at(29))), (Stage::Head, false));
        assert!(c.is_due(at(30)));
    }

    #[test]
    fn content_commits_and_postpones_the_keepalive() {
        let mut c = Commit::new(at(0), S15, S15);
        c.on_write(at(3), true);
        assert_eq!((c.stage(), c.deadline()), (Stage::Content, at(18)));
        c.on_write(at(10), false);
        assert_eq!((c.stage(), c.deadline()), (Stage::Content, at(25)));
    }

    #[test]
    fn without_holding_the_head_is_committed_at_once() {
        assert_eq!(Commit::new(at(0), Duration::ZERO, S15).stage(), Stage::Head);
    }
}
