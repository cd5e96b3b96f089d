//! What happened: counters, and a record of each request.
//!
//! A test of cancellation stands or falls with when the provider noticed that its caller had left and
//! with how much it went on producing. So every request holds a `Ticket`, and a ticket that is
//! dropped before the answer ended is an abort, stamped at that moment.
//!
//! Times are nanoseconds of tokio's clock since the simulator started plus `Options::origin_ns`: give
//! the monotonic clock's value of that moment, and they compare with another process's.
//!
//! Invariant: started = completed + faulted + refused + aborted + active; records are a bounded ring.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::link::{Link, Meter};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It has not.
    Active = 0,
    /// The whole answer was handed to the connection.
    Completed = 1,
    /// The script made it fail.
    Faulted = 2,
    /// It was malformed, too much, or over a limit.
    Refused = 3,
    /// The peer left first.
    Aborted = 4,
}

impl Ended {
    const fn of(code: u8) -> Self {
        match code {
            1 => Self::Completed,
            2 => Self::Faulted,
            3 => Self::Refused,
            4 => Self::Aborted,
            _ => Self::Active,
        }
    }
}

/// One request, as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Its `x-request-id`, or `sim-N`.
    pub id: String,
    /// `chat.completions`, `messages`, …
    pub endpoint: &'static str,
    /// Model asked for; empty where the request could not be read.
    pub model: String,
    /// When its head was read, in nanoseconds.
    pub arrived_ns: u64,
    /// When its first content was handed to the connection, in nanoseconds.
    pub first_token_ns: Option<u64>,
    /// How it ended.
    pub ended: Ended,
    /// When it ended, in nanoseconds.
    pub ended_ns: Option<u64>,
    /// When it was noticed that the peer had left, in nanoseconds.
    pub abort_noticed_ns: Option<u64>,
    /// Tokens handed to the connection.
    pub tokens: u64,
    /// Those of them that were handed over when the connection already knew that its peer had left.
    pub tokens_after_abort: u64,
    /// Bytes that the socket took for this answer, head and framing included; over HTTP/2 the bytes
    /// of the body that the connection took.
    pub bytes_accepted: u64,
}

/// All requests since the start or the last reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// When these were taken, in nanoseconds.
    pub now_ns: u64,
    /// Requests that arrived at a model endpoint.
    pub started: u64,
    /// Answered in full.
    pub completed: u64,
    /// Failed as scripted.
    pub faulted: u64,
    /// Refused for what they were, or for a limit.
    pub refused: u64,
    /// Left by their peer.
    pub aborted: u64,
    /// Not ended yet.
    pub active: u64,
    /// Tokens handed to connections.
    pub tokens: u64,
    /// Those of them after the peer had left.
    pub tokens_after_abort: u64,
    /// The latest requests, oldest first.
    pub records: Vec<Record>,
}

/// Keeps the counters and the ring. A reset starts anew and leaves what is active to the old one.
#[derive(Debug)]
pub(crate) struct Book {
    started: AtomicU64,
    ended: [AtomicU64; 5],
    tokens: AtomicU64,
    tokens_after_abort: AtomicU64,
    ring: Mutex<VecDeque<Arc<Entry>>>,
    records_max: usize,
    clock: Clock,
}

/// Turns tokio's instants into nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) start: Instant,
    pub(crate) origin_ns: u64,
}

impl Clock {
    pub(crate) fn now_ns(&self) -> u64 {
        let elapsed = Instant::now().saturating_duration_since(self.start);
        self.origin_ns + u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX / 2)
    }
}

#[derive(Debug)]
struct Entry {
    id: String,
    endpoint: &'static str,
    model: Mutex<String>,
    meter: Arc<Meter>,
    arrived_ns: u64,
    /// 0 while there is none, as in the next three.
    first_token_ns: AtomicU64,
    ended_ns: AtomicU64,
    ended: AtomicU8,
    tokens: AtomicU64,
    tokens_after_abort: AtomicU64,
}

impl Book {
    pub(crate) fn new(records_max: usize, clock: Clock) -> Self {
        Self {
            started: AtomicU64::new(0),
            ended: [const { AtomicU64::new(0) }; 5],
            tokens: AtomicU64::new(0),
            tokens_after_abort: AtomicU64::new(0),
            ring: Mutex::default(),
            records_max,
            clock,
        }
    }

    /// A request has arrived.
    pub(crate) fn open(
        self: &Arc<Self>,
        id: String,
        endpoint: &'static str,
        link: &Arc<Link>,
        http2: bool,
    ) -> Ticket {
        self.started.fetch_add(1, Relaxed);
        let entry = Arc::new(Entry {
            id,
            endpoint,
            model: Mutex::default(),
            meter: link.meter(http2),
            arrived_ns: self.clock.now_ns(),
            first_token_ns: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            ended: AtomicU8::new(0),
            tokens: AtomicU64::new(0),
            tokens_after_abort: AtomicU64::new(0),
        });
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        while ring.len() >= self.records_max.max(1) {
            ring.pop_front();
        }
        ring.push_back(Arc::clone(&entry));
        Ticket { entry, book: Arc::clone(self), link: Arc::clone(link), slot: None }
    }

    /// The counters and the last `records` requests.
    pub(crate) fn stats(&self, records: usize) -> Stats {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let records =
            ring.iter().skip(ring.len().saturating_sub(records)).map(|entry| entry.record()).collect();
        drop(ring);
        let of = |ended: Ended| self.ended[ended as usize].load(Relaxed);
        let [completed, faulted, refused, aborted] =
            [Ended::Completed, Ended::Faulted, Ended::Refused, Ended::Aborted].map(of);
        // Read last: a request that starts meanwhile is active, and none is counted as ended twice.
        let started = self.started.load(Relaxed);
        Stats {
            now_ns: self.clock.now_ns(),
            started,
            completed,
            faulted,
            refused,
            aborted,
            active: started.saturating_sub(completed + faulted + refused + aborted),
            tokens: self.tokens.load(Relaxed),
            tokens_after_abort: self.tokens_after_abort.load(Relaxed),
            records,
        }
    }
}

impl Entry {
    fn record(&self) -> Record {
        let ended = Ended::of(self.ended.load(Relaxed));
        let time = |ns: &AtomicU64| Some(ns.load(Relaxed)).filter(|ns| *ns > 0);
        let ended_ns = time(&self.ended_ns);
        Record {
            id: self.id.clone(),
            endpoint: self.endpoint,
            model: self.model.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            arrived_ns: self.arrived_ns,
            first_token_ns: time(&self.first_token_ns),
            ended,
            ended_ns,
            abort_noticed_ns: ended_ns.filter(|_| ended == Ended::Aborted),
            tokens: self.tokens.load(Relaxed),
            tokens_after_abort: self.tokens_after_abort.load(Relaxed),
            bytes_accepted: self.meter.bytes(),
        }
    }
}

/// A request in progress. Dropping it before [`Ticket::end`] is an abort.
#[derive(Debug)]
pub(crate) struct Ticket {
    entry: Arc<Entry>,
    book: Arc<Book>,
    pub(crate) link: Arc<Link>,
    /// The slot it holds, where slots are bounded.
    pub(crate) slot: Option<OwnedSemaphorePermit>,
}

impl Ticket {
    pub(crate) fn id(&self) -> &str {
        &self.entry.id
    }

    pub(crate) fn model(&self, model: &str) {
        model.clone_into(&mut self.entry.model.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// `tokens` in `bytes` were handed to the connection.
    pub(crate) fn produced(&self, tokens: u64, bytes: usize) {
        self.entry.meter.body(bytes as u64);
        if tokens == 0 {
            return;
        }
        if self.entry.first_token_ns.load(Relaxed) == 0 {
            self.entry.first_token_ns.store(self.book.clock.now_ns().max(1), Relaxed);
        }
        self.entry.tokens.fetch_add(tokens, Relaxed);
        self.book.tokens.fetch_add(tokens, Relaxed);
        if self.link.peer_gone() {
            self.entry.tokens_after_abort.fetch_add(tokens, Relaxed);
            self.book.tokens_after_abort.fetch_add(tokens, Relaxed);
        }
    }

    /// The request has ended. Only the first call counts.
    pub(crate) fn end(&mut self, ended: Ended) {
        self.slot = None;
        if self.entry.ended.compare_exchange(0, ended as u8, Relaxed, Relaxed).is_ok() {
            self.entry.ended_ns.store(self.book.clock.now_ns().max(1), Relaxed);
            self.book.ended[ended as usize].fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end(Ended::Aborted);
    }
}
