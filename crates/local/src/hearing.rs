//! An answer on its way from the engine, and what is measured of it.
//!
//! Invariant: each answer is counted once, however it ends; a client who leaves is no success.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use firsttoken_engine::driver::Refused;
use firsttoken_engine::speech::{Ear, Piece, Reason};
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::slot::Lease;

/// An ear, and who counts.
pub(crate) struct Hearing {
    ear: Ear,
    /// What was heard already.
    first: Option<Piece>,
    pub(crate) tally: Tally,
}

/// What is measured of one answer.
pub(crate) struct Tally {
    metrics: Arc<Metrics>,
    /// Whose answer it is; it stays loaded until then.
    lease: Lease,
    /// Tokens of the prompt.
    pub(crate) prompt: u32,
    asked: Instant,
    last: Option<Instant>,
    is_over: bool,
}

impl Hearing {
    /// Waits for the first piece.
    pub(crate) async fn begin(mut ear: Ear, mut tally: Tally) -> Self {
        let first = ear.hear().await.unwrap_or_else(ended);
        tally.on_piece(&first);
        Self { ear, first: Some(first), tally }
    }

    /// Why there is no answer at all, where there is none.
    pub(crate) fn refused(&self) -> Option<&Refused> {
        match &self.first {
            Some(Piece::Refused(why)) => Some(why),
            Some(Piece::Said(..) | Piece::End(_)) | None => None,
        }
    }

    /// The next piece.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(first);
        }
        let piece = ready!(self.ear.poll(cx)).unwrap_or_else(ended);
        self.tally.on_piece(&piece);
        Poll::Ready(piece)
    }

    /// The next piece.
    pub(crate) async fn hear(&mut self) -> Piece {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

fn ended() -> Piece {
    Piece::Refused(Refused::Failed("the engine has ended".to_owned()))
}

impl Tally {
    /// Of an answer to a prompt of so many tokens, from its model `asked` then.
    pub(crate) fn new(metrics: &Arc<Metrics>, lease: Lease, prompt: u32, asked: Instant) -> Self {
        Self { metrics: Arc::clone(metrics), lease, prompt, asked, last: None, is_over: false }
    }

    fn on_piece(&mut self, piece: &Piece) {
        match piece {
            Piece::Said(_, at) => match self.last.replace(*at) {
                None => self.metrics.on_first(self.lease.name(), *at - self.asked),
                Some(before) => self.metrics.on_gap(self.lease.name(), *at - before),
            },
            Piece::End(end) => {
                let took = self.asked.elapsed();
                self.metrics.on_end(self.lease.name(), self.prompt, end, took);
                self.over(match end.reason {
                    Reason::Finished | Reason::Stopped | Reason::Called => "stop",
                    Reason::Length => "length",
                });
            }
            Piece::Refused(_) => self.over("error"),
        }
    }

    fn over(&mut self, reason: &'static str) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.metrics.on_over(self.lease.name(), reason);
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.over("abort");
    }
}
