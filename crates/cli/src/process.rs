//! What a serving process asks of the system: descriptors, and to be told when to end.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// After SIGTERM, how long new connections are still taken, so that load balancers can look away.
const NOTICE: Duration = Duration::from_secs(3);

/// One stream is two sockets: as many descriptors as the system lets us have.
pub(crate) fn raise_descriptor_limit() {
    // Where it cannot be raised, the limit that is there holds.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To end; load balancers shall get that much notice.
    End(Duration),
    /// To read the configuration again.
    Reload,
}

/// The signals that a serving process listens to.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From here on signals are listened to, and none of them ends the process by itself. Called where a
    /// runtime is entered.
    ///
    /// # Errors
    /// If the system has no way to be told.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End(NOTICE),
            _ = self.interrupt.recv() => Asked::End(Duration::ZERO),
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}
