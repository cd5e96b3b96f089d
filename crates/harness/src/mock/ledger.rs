//! What became of every request. A ticket that is dropped without having been closed is an abort
//! by the peer, stamped at that moment.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use crate::clock::now_ns;

/// Most ended requests kept; more are counted.
const LINES_MAX: usize = 1_000_000;

/// All requests since the last reset.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    running: RefCell<BTreeMap<u64, Rc<Progress>>>,
    ended: RefCell<Vec<Line>>,
    next: Cell<u64>,
    connections: Cell<u64>,
    done: Cell<u64>,
    aborted: Cell<u64>,
    lines_lost: Cell<u64>,
    ended_bytes: Cell<u64>,
    ended_tokens: Cell<u64>,
}

/// How far one request has come.
#[derive(Debug, Default)]
struct Progress {
    rid: u64,
    tokens: Cell<u64>,
    bytes: Cell<u64>,
    done: Cell<bool>,
}

#[derive(Debug)]
struct Line {
    rid: u64,
    end: &'static str,
    ns: u64,
    tokens: u64,
    bytes: u64,
}

/// One running request; dropping it is its end.
#[derive(Debug)]
pub(super) struct Ticket {
    ledger: Rc<Ledger>,
    number: u64,
    progress: Rc<Progress>,
}

impl Ledger {
    /// A connection was accepted.
    pub(super) fn connected(&self) {
        self.connections.set(self.connections.get() + 1);
    }

    /// A request has arrived whole.
    pub(super) fn begin(self: &Rc<Self>, rid: u64) -> Ticket {
        let number = self.next.replace(self.next.get() + 1);
        let progress = Rc::new(Progress { rid, ..Progress::default() });
        self.running.borrow_mut().insert(number, Rc::clone(&progress));
        Ticket { ledger: Rc::clone(self), number, progress }
    }

    /// Forgets what has ended. What runs stays.
    pub(super) fn reset(&self) {
        self.ended.borrow_mut().clear();
        for counter in [
            &self.connections,
            &self.done,
            &self.aborted,
            &self.lines_lost,
            &self.ended_bytes,
            &self.ended_tokens,
        ] {
            counter.set(0);
        }
    }

    /// Counts, as JSON.
    pub(super) fn stats(&self) -> String {
        let running = self.running.borrow();
        let bytes: u64 = running.values().map(|p| p.bytes.get()).sum();
        let tokens: u64 = running.values().map(|p| p.tokens.get()).sum();
        serde_json::json!({
            "running": running.len(),
            "done": self.done.get(),
            "aborted": self.aborted.get(),
            "connections": self.connections.get(),
            "bytes": bytes + self.ended_bytes.get(),
            "bytes_running": bytes,
            "bytes_running_max": running.values().map(|p| p.bytes.get()).max().unwrap_or(0),
            "tokens": tokens + self.ended_tokens.get(),
            "log_lines_lost": self.lines_lost.get(),
        })
        .to_string()
    }

    /// One line per request: `rid end ns tokens bytes`.
    pub(super) fn log(&self) -> String {
        let mut text = String::new();
        let mut line = |rid: u64, end: &str, ns: u64, tokens: u64, bytes: u64| {
            writeln!(text, "{rid} {end} {ns} {tokens} {bytes}").expect("a String takes every write");
        };
        for l in self.ended.borrow().iter() {
            line(l.rid, l.end, l.ns, l.tokens, l.bytes);
        }
        for p in self.running.borrow().values() {
            line(p.rid, "running", now_ns(), p.tokens.get(), p.bytes.get());
        }
        text
    }

    fn end(&self, number: u64, progress: &Progress) {
        let ns = now_ns();
        self.running.borrow_mut().remove(&number);
        let (end, count) =
            if progress.done.get() { ("done", &self.done) } else { ("aborted", &self.aborted) };
        count.set(count.get() + 1);
        self.ended_bytes.set(self.ended_bytes.get() + progress.bytes.get());
        self.ended_tokens.set(self.ended_tokens.get() + progress.tokens.get());
        let mut ended = self.ended.borrow_mut();
        if ended.len() < LINES_MAX {
            ended.push(Line {
                rid: progress.rid,
                end,
                ns,
                tokens: progress.tokens.get(),
                bytes: progress.bytes.get(),
            });
        } else {
            self.lines_lost.set(self.lines_lost.get() + 1);
        }
    }
}

impl Ticket {
    /// So many more tokens and bytes were handed to the connection.
    pub(super) fn sent(&self, tokens: u64, bytes: usize) {
        self.progress.tokens.set(self.progress.tokens.get() + tokens);
        self.progress.bytes.set(self.progress.bytes.get() + u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Tokens so far.
    pub(super) fn tokens(&self) -> u64 {
        self.progress.tokens.get()
    }

    /// The answer is complete: the drop that follows is no abort.
    pub(super) fn done(&self) {
        self.progress.done.set(true);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.ledger.end(self.number, &self.progress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unclosed_ticket_is_an_abort() {
        let ledger = Rc::new(Ledger::default());
        let done = ledger.begin(1);
        done.sent(2, 300);
        done.done();
        drop(done);
        drop(ledger.begin(2));
        let running = ledger.begin(3);
        running.sent(1, 40);
        let log = ledger.log();
        let ends: Vec<_> = log.lines().map(|l| l.split(' ').take(2).collect::<Vec<_>>()).collect();
        assert_eq!(ends, [["1", "done"], ["2", "aborted"], ["3", "running"]]);
        assert!(ledger.stats().contains("\"bytes\":340"), "{}", ledger.stats());
        ledger.reset();
        assert_eq!(ledger.log().lines().count(), 1);
    }
}
