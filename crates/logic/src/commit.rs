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

/// What is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The head has been held back for as long as it may: send it, with a keepalive.
    CommitHead,
    /// The client has heard nothing for a while: say that we are alive.
    Keepalive,
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

    /// What has to happen by `now`. The caller writes it and reports that by [`Self::on_write`].
    #[must_use]
    pub fn poll(&self, now: Instant) -> Option<Due> {
        (self.deadline() <= now).then_some(match self.stage {
            Stage::Held => Due::CommitHead,
            Stage::Head | Stage::Content => Due::Keepalive,
        })
    }

    /// When [`Self::poll`] has something to say.
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
        assert_eq!((c.stage(), c.poll(at(14))), (Stage::Held, None));
        assert_eq!(c.poll(at(15)), Some(Due::CommitHead));
        c.on_write(at(15), false);
        assert_eq!((c.stage(), c.poll(at(29))), (Stage::Head, None));
        assert_eq!(c.poll(at(30)), Some(Due::Keepalive));
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
