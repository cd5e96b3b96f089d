//! What of an answer has reached the client, and when it has to hear something.
//!
//! Before the **head commit** a failure is a true status code. Between it and the **content commit**
//! it is a typed error event under 200, and the request may still be tried again. After the content
//! commit it is a typed error event, and nothing is tried again.
//!
//! Invariant: a stage is never left for an earlier one.

use core::time::Duration;

use crate::time::Instant;

/// What the client has got so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A status and a head, but no content.
    Head,
    /// Content.
    Content,
}

/// Tracks one response, from its head on.
#[derive(Clone, Debug)]
pub struct Commit {
    stage: Stage,
    keepalive: Duration,
    last_write: Instant,
}

impl Commit {
    /// The head goes out now.
    #[must_use]
    pub const fn new(now: Instant, keepalive: Duration) -> Self {
        Self { stage: Stage::Head, keepalive, last_write: now }
    }

    /// Bytes go to the client now, content among them or not.
    pub fn on_write(&mut self, now: Instant, content: bool) {
        self.last_write = now;
        self.stage = self.stage.max(if content { Stage::Content } else { Stage::Head });
    }

    /// What the client has got.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// When the client, having heard nothing since, has to hear that we are alive. Whoever writes that reports
    /// it by [`Self::on_write`].
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.last_write + self.keepalive
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
    fn content_commits_and_every_write_postpones_the_keepalive() {
        let mut c = Commit::new(at(0), S15);
        assert_eq!((c.stage(), c.deadline()), (Stage::Head, at(15)));
        c.on_write(at(3), true);
        assert_eq!((c.stage(), c.deadline()), (Stage::Content, at(18)));
        c.on_write(at(10), false);
        assert_eq!((c.stage(), c.deadline()), (Stage::Content, at(25)));
    }
}
