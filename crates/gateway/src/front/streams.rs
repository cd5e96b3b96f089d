//! The streams of an HTTP/2 client, each the task that hyper makes of it.
//!
//! HTTP/1.1 needs none of this: its one answer lives in the connection's task, a shutdown wakes that,
//! and a client that does not read stalls the socket, which `client` sees. An HTTP/2 stream is a task of
//! its own, and it can stall alone, with its window shut, while its connection goes on.
//!
//! Invariant: a shutdown wakes every stream; one whose client takes nothing for `client_stall` is
//! dropped, which resets it and lets its upstream go.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::futures::TaskLocalFuture;
use tokio::time::Sleep;

use crate::front::client::ClientState;
use crate::front::delivery::Delivery;

tokio::task_local! {
    static STREAM: Arc<Flow>;
}

/// How far the frames of one stream have come.
struct Flow {
    client: Arc<ClientState>,
    /// The stamps of its answer.
    delivery: Arc<Delivery>,
    /// Frames asked for so far.
    asked: AtomicU32,
    /// Whether hyper has a frame in hand, and has not come back for the next.
    handed_out: AtomicBool,
    stalled: AtomicBool,
}

/// A body was asked for its next frame. Says nothing where the client speaks HTTP/1.1.
pub(crate) fn on_frame<T>(frame: &Poll<T>) {
    // There is no stream to book it for where the task is a connection.
    let _ = STREAM.try_with(|flow| {
        flow.asked.fetch_add(1, Relaxed);
        flow.handed_out.store(frame.is_ready(), Relaxed);
        if frame.is_ready() && flow.delivery.is_watching() {
            flow.client.await_write(flow.delivery.clone());
        }
    });
}

/// Where the answer of this task's stream is stamped; `None` where the client speaks HTTP/1.1.
pub(crate) fn delivery() -> Option<Arc<Delivery>> {
    STREAM.try_with(|flow| flow.delivery.clone()).ok()
}

/// Whether the stream of this task was given up since its client did not read.
pub(crate) fn is_stalled() -> bool {
    STREAM.try_with(|flow| flow.stalled.load(Relaxed)).unwrap_or(false)
}

/// Spawns the streams of one connection.
#[derive(Clone)]
pub(crate) struct Streams {
    client: Arc<ClientState>,
    client_stall: Duration,
}

impl Streams {
    pub(crate) const fn new(client: Arc<ClientState>, client_stall: Duration) -> Self {
        Self { client, client_stall }
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let flow = Arc::new(Flow {
            client: self.client.clone(),
            delivery: Arc::default(),
            asked: AtomicU32::new(0),
            handed_out: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
        });
        drop(tokio::spawn(Stream {
            inner: Box::pin(STREAM.scope(flow.clone(), stream)),
            flow,
            streams: self.clone(),
            registered: None,
            blocked: None,
        }));
    }
}

struct Stream<F> {
    inner: Pin<Box<TaskLocalFuture<Arc<Flow>, F>>>,
    flow: Arc<Flow>,
    streams: Streams,
    /// Where a shutdown wakes this task, and by whom.
    registered: Option<(u64, Waker)>,
    /// Armed while the client takes nothing; and how many frames had been asked for by then.
    blocked: Option<(Pin<Box<Sleep>>, u32)>,
}

impl<F> Stream<F> {
    fn register(&mut self, waker: &Waker) {
        if self.registered.as_ref().is_some_and(|(_, registered)| registered.will_wake(waker)) {
            return;
        }
        let old = self.registered.take().map(|(id, _)| id);
        let id = self.streams.client.register_stream(old, waker);
        self.registered = Some((id, waker.clone()));
    }

    /// Ready when the client has taken nothing of a frame for too long.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.flow.handed_out.load(Relaxed) {
            self.blocked = None;
            return Poll::Pending;
        }
        let asked = self.flow.asked.load(Relaxed);
        if self.blocked.as_ref().is_none_or(|(_, then)| *then != asked) {
            self.blocked = Some((Box::pin(tokio::time::sleep(self.streams.client_stall)), asked));
        }
        self.blocked.as_mut().map_or(Poll::Pending, |(sleep, _)| sleep.as_mut().poll(cx))
    }
}

impl<F: Future<Output = ()>> Future for Stream<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.register(cx.waker());
        self.streams.client.begin_round();
        if self.inner.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        std::task::ready!(self.poll_stall(cx));
        self.flow.stalled.store(true, Relaxed);
        Poll::Ready(())
    }
}

impl<F> Drop for Stream<F> {
    fn drop(&mut self) {
        if let Some((id, _)) = self.registered.take() {
            self.streams.client.forget_stream(id);
        }
    }
}
