//! The phases of a request, and when each began.
//!
//! Invariant: nothing is invented. What a remote provider does not report (its queue, its prefill) is
//! one phase, `provider`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use firsttoken_logic::tail::admission::Place;
use firsttoken_logic::time::Instant;

use crate::clock;
use crate::lines;

/// What is being done with a request. The names are the product's vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Is the caller allowed?
    Auth,
    /// The body comes in.
    NetworkIn,
    /// Reading the request, choosing the upstream, writing the upstream's request.
    Route,
    /// In line for a place at the upstream.
    Queue,
    /// Finding or opening a connection.
    Connect,
    /// Sent: the provider queues and prefills, and tells no more than that.
    Provider,
    /// Another attempt is waited for, or was: the one before had failed, or said nothing for too long.
    Retry,
    /// Content flows.
    Decode,
    /// Everything came; the rest goes out.
    NetworkOut,
}

impl Phase {
    /// Its name in timelines, `Server-Timing` and status events.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::NetworkIn => "network_in",
            Self::Route => "route",
            Self::Queue => "queue",
            Self::Connect => "connect",
            Self::Provider => "provider",
            Self::Retry => "retry",
            Self::Decode => "decode",
            Self::NetworkOut => "network_out",
        }
    }

    /// Whether the time is ours: neither the caller's nor the upstream's.
    pub(super) const fn is_ours(self) -> bool {
        matches!(self, Self::Auth | Self::Route | Self::Connect)
    }

    const ALL: [Self; 9] = [
        Self::Auth,
        Self::NetworkIn,
        Self::Route,
        Self::Queue,
        Self::Connect,
        Self::Provider,
        Self::Retry,
        Self::Decode,
        Self::NetworkOut,
    ];
}

/// The phase a request is in, readable from outside the future that moves it on.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<Shown>);

#[derive(Debug)]
struct Shown {
    phase: AtomicU8,
    /// Where it stands in line, packed; see [`lines::packed`].
    place: AtomicU64,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shown { phase: AtomicU8::new(Phase::Auth as u8), place: AtomicU64::new(0) }))
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.0.phase.load(Relaxed)).min(Phase::ALL.len() - 1)]
    }

    /// Who goes before it in line, and how many milliseconds that will probably take.
    pub(crate) fn place(&self) -> (u64, Option<u64>) {
        lines::unpacked(self.0.place.load(Relaxed))
    }
}

/// When each phase began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    spans: Vec<(Phase, Instant)>,
    pub(super) progress: Option<Progress>,
    /// The response head of the upstream.
    pub(crate) headers: Option<Instant>,
    /// Whether the connection was there already.
    pub(crate) reused: bool,
}

impl Stamps {
    pub(crate) fn new(accepted: Instant, progress: Option<Progress>) -> Self {
        let mut spans = Vec::with_capacity(8);
        spans.push((Phase::Auth, accepted));
        Self { spans, progress, headers: None, reused: false }
    }

    /// The current phase ends, `phase` begins.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.enter_at(phase, clock::now());
    }

    /// [`Self::enter`], where the time is known already.
    pub(crate) fn enter_at(&mut self, phase: Phase, now: Instant) {
        self.spans.push((phase, now));
        if let Some(progress) = &self.progress {
            progress.0.phase.store(phase as u8, Relaxed);
        }
    }

    /// It stands there in line.
    pub(crate) fn stand(&self, place: Place) {
        if let Some(progress) = &self.progress {
            progress.0.place.store(lines::packed(place), Relaxed);
        }
    }

    /// The phases up to `now` as `Server-Timing` (W3C), in milliseconds.
    pub(crate) fn server_timing(&self, now: Instant) -> String {
        let mut out = String::with_capacity(160);
        for (phase, from, to) in self.phases(now) {
            if !out.is_empty() {
                out.push_str(", ");
            }
            out.push_str(phase.name());
            out.push_str(";dur=");
            milliseconds(&mut out, to.since(from).as_micros());
        }
        out
    }

    pub(crate) fn phases(&self, end: Instant) -> impl Iterator<Item = (Phase, Instant, Instant)> + '_ {
        let ends = self.spans.iter().skip(1).map(|s| s.1).chain([end]);
        self.spans.iter().zip(ends).map(|((phase, from), to)| (*phase, *from, to))
    }

    /// When `phase` began, the last time.
    pub(crate) fn began(&self, phase: Phase) -> Option<Instant> {
        self.spans.iter().rev().find(|(p, _)| *p == phase).map(|(_, at)| *at)
    }
}

/// Writes microseconds as milliseconds. The formatter takes a microsecond of its own for a number, and
/// this stands before every first token.
fn milliseconds(out: &mut String, us: u128) {
    let us = u64::try_from(us).unwrap_or(u64::MAX);
    out.push_str(itoa::Buffer::new().format(us / 1000));
    out.push('.');
    out.push_str(&itoa::Buffer::new().format(1000 + us % 1000)[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_written_as_milliseconds() {
        let written = |us| {
            let mut out = String::new();
            milliseconds(&mut out, us);
            out
        };
        assert_eq!([0, 7, 1000, 12_345_678].map(written), ["0.000", "0.007", "1.000", "12345.678"]);
        assert_eq!(written(u128::MAX), "18446744073709551.615");
    }
}
