//! How a body is coded; and gzip that an upstream sent although it was asked not to, decoded as it comes.
//!
//! Invariant: what a read holds is handed on with that read, as far as the coding allows.

use std::io::Write as _;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};

use crate::upstream::{Broken, Source};

/// What `content-encoding` says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Nothing, or `identity`.
    Plain,
    /// `gzip`, once.
    Gzip,
    /// Anything else, as it stood there.
    Unknown(String),
}

impl Coding {
    /// The coding of the body that `headers` announce. Its name is case-insensitive (RFC 9110 §8.4.1),
    /// and several headers are one list.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let said: Vec<_> = headers.get_all(header::CONTENT_ENCODING).iter().collect();
        if said.is_empty() {
            return Self::Plain;
        }
        let said = said.iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect::<Vec<_>>().join(", ");
        match said.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Self::Plain,
            "gzip" | "x-gzip" => Self::Gzip,
            _ => Self::Unknown(said),
        }
    }
}

/// A body as its sender meant it: its coding undone, if it has one.
pub(crate) struct Decoded {
    source: Source,
    gzip: Option<MultiGzDecoder<Vec<u8>>>,
}

impl Decoded {
    /// The body behind `headers`; or why it cannot be read.
    pub(crate) fn new(source: Source, headers: &HeaderMap) -> Result<Self, String> {
        let gzip = match Coding::of(headers) {
            Coding::Plain => None,
            Coding::Gzip => Some(MultiGzDecoder::new(Vec::new())),
            Coding::Unknown(other) => {
                return Err(format!(
                    "the upstream encoded its answer with {other}, though it was asked not to"
                ));
            }
        };
        Ok(Self { source, gzip })
    }

    /// Whether its length is not the one announced.
    pub(crate) const fn is_coded(&self) -> bool {
        self.gzip.is_some()
    }

    /// Whether the body has come to its end, without asking for more.
    pub(crate) fn is_over(&self) -> bool {
        self.source.is_over()
    }

    /// What the next read brings, perhaps nothing yet; `None` at the end of a complete body.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let read = ready!(self.source.poll_data(cx));
        let Some(gzip) = &mut self.gzip else { return Poll::Ready(read) };
        Poll::Ready(read.map(|read| {
            let bytes = read?;
            let pushed = gzip.write_all(&bytes).and_then(|()| gzip.flush());
            pushed.map_err(|e| Broken::Protocol(format!("broken gzip: {e}")))?;
            Ok(std::mem::take(gzip.get_mut()).into())
        }))
    }

    /// [`Self::poll_data`], to be awaited.
    pub(crate) async fn data(&mut self) -> Option<Result<Bytes, Broken>> {
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }
}
