//! What went wrong with an upstream, told in the three things that a retry, a fallback and an error
//! message need to know: what, on whose side, and how far the request had come.

use alloc::string::String;
use core::time::Duration;

use crate::clocks::Clock;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The upstream's name does not resolve.
    Dns,
    /// No connection: refused, unreachable, or the proxy would not tunnel.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The connection broke before a response head.
    Closed,
    /// What came is not HTTP, or not what was asked for.
    Protocol,
    /// The upstream answered with this status.
    Status(u16),
    /// The body broke off: connection lost before its end.
    Cut,
    /// The stream ended in order, but without its terminal event.
    Truncated,
    /// A frame of the stream cannot be read.
    Malformed,
    /// The upstream said in the stream that it failed.
    Reported,
    /// One of the clocks ran out.
    Timeout(Clock),
    /// The gateway is shutting down.
    Draining,
    /// There was no place for it: it was not sent.
    Shed,
}

/// How far the request had come: what may be tried again without being billed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// No byte of it left.
    Nothing,
    /// It was sent; nothing came back.
    Sent,
    /// A response head came.
    Head,
    /// Content came.
    Content,
}

/// A failure of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub kind: Kind,
    /// How far it had come.
    pub reached: Reached,
    /// For a person: what exactly, without secrets.
    pub detail: String,
    /// When the upstream asked to be tried again.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure with nothing known but this.
    #[must_use]
    pub fn new(kind: Kind, reached: Reached, detail: impl Into<String>) -> Self {
        Self { kind, reached, detail: detail.into(), retry_after: None }
    }
}
