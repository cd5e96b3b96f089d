//! The one seam upstream: a request goes in, a head and a source of bytes come out.
//!
//! A remote provider is [`remote::Remote`], and so is an engine of this machine; a race of several will be
//! another implementation of [`Upstream`].
//!
//! Invariant: dropping the future of [`Upstream::send`], or an [`Answer`], aborts the request at the
//! upstream; nothing runs on in the background.

mod chunked;
mod dial;
mod h1;
mod h2;
mod io;
mod remote;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use firsttoken_logic::clocks::Clocks;
use firsttoken_logic::failure::Failure;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

pub use dial::{Engines, Network, Pipes, Way};
pub(crate) use h1::Broken;
pub(crate) use remote::Remote;

use crate::evidence::Stamps;

/// A request as it goes to an upstream, independent of the protocol's version.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Method.
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    /// Host, and port if it is not the scheme's own.
    pub(crate) authority: String,
    /// End-to-end headers, without `host` and `content-length`.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The whole body.
    pub(crate) body: Bytes,
}

/// A response head.
#[derive(Debug)]
pub(crate) struct Head {
    /// Status.
    pub(crate) status: StatusCode,
    /// Headers, hop-by-hop ones included.
    pub(crate) headers: HeaderMap,
    /// Whether it came as HTTP/1.0.
    pub(crate) http_10: bool,
}

/// A response: its head, and where the body comes from.
pub(crate) struct Answer {
    /// The head.
    pub(crate) head: Head,
    /// The body.
    pub(crate) source: Source,
}

/// Where bytes of a body come from. Pull-based: nothing is read that is not asked for.
pub(crate) enum Source {
    /// HTTP/1.1.
    H1(remote::Lease),
    /// One stream of an HTTP/2 connection.
    H2(h2::Stream),
}

impl Source {
    /// What the next read brings; `None` at the end of a complete body.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        match self {
            Self::H1(lease) => lease.poll_data(cx),
            Self::H2(stream) => stream.poll_data(cx),
        }
    }

    /// Whether the whole body has come already, so that a read would only bring its end.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::H1(lease) => lease.is_over(),
            Self::H2(stream) => stream.is_over(),
        }
    }
}

/// One try of a request: its clocks, and when what happened.
pub(crate) struct Attempt {
    /// The six clocks.
    pub(crate) clocks: Clocks,
    /// What is known about when.
    pub(crate) stamps: Stamps,
}

/// The future of an answer.
pub(crate) type Answering<'a> = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send + 'a>>;

/// Whatever can answer a request.
pub(crate) trait Upstream: Send + Sync {
    /// Sends `request`; resolves with the response head, or with why there is none. The clocks up
    /// to the head are kept here.
    fn send<'a>(&'a self, request: &'a Request, attempt: &'a mut Attempt) -> Answering<'a>;
}
