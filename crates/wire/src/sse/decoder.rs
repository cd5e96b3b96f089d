//! [`Splitter`] and [`events`] together, with owned events: for clients that read a stream to its
//! end and do not mind a copy. A relay uses the two directly.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::Bytes;

use super::{Event, Split, Splitter, events};

/// An event that outlives its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedEvent {
    /// The `event` field.
    pub name: Option<String>,
    /// The `data` field.
    pub data: Vec<u8>,
    /// The `id` field.
    pub id: Option<String>,
    /// The `retry` field.
    pub retry_ms: Option<u64>,
}

impl OwnedEvent {
    /// The same event for a [`crate::StreamParser`]. Its `raw` is empty.
    #[must_use]
    pub fn as_event(&self) -> Event<'_> {
        Event {
            raw: &[],
            name: self.name.as_deref(),
            data: Cow::Borrowed(&self.data),
            id: self.id.as_deref(),
            retry_ms: self.retry_ms,
            has_data: true,
        }
    }
}

/// Bytes in, events with data out. Drops the unfinished last event, as the standard asks.
#[derive(Debug)]
pub struct Decoder {
    splitter: Splitter,
    ready: VecDeque<OwnedEvent>,
    overlong: bool,
}

impl Decoder {
    /// A decoder that gives up on an event longer than `event_bytes_max`.
    #[must_use]
    pub const fn new(event_bytes_max: usize) -> Self {
        Self { splitter: Splitter::new(event_bytes_max), ready: VecDeque::new(), overlong: false }
    }

    /// Takes the next read. Poll everything before the next push: what is ready is held in memory.
    pub fn push(&mut self, chunk: &[u8]) {
        match self.splitter.push(Bytes::copy_from_slice(chunk)) {
            Split::Whole(block) => {
                let with_data = events(&block).filter(|event| event.has_data).map(|event| OwnedEvent {
                    name: event.name.map(str::to_owned),
                    data: event.data.into_owned(),
                    id: event.id.map(str::to_owned),
                    retry_ms: event.retry_ms,
                });
                self.ready.extend(with_data);
            }
            Split::Partial => {}
            Split::Overlong(_) => self.overlong = true,
        }
    }

    /// The next event, oldest first.
    pub fn poll(&mut self) -> Option<OwnedEvent> {
        self.ready.pop_front()
    }

    /// Whether an event exceeded the bound. No event comes after it.
    #[must_use]
    pub const fn is_overlong(&self) -> bool {
        self.overlong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_byte_by_byte_and_drops_the_rest() {
        let mut decoder = Decoder::new(64);
        for byte in b"event: a\r\nid: 1\r\ndata: x\r\n\r\n: c\n\ndata: y\n\ndata: unfinished\n" {
            decoder.push(&[*byte]);
        }
        let first = decoder.poll().unwrap();
        assert_eq!(
            (first.name.as_deref(), first.data.as_slice(), first.id.as_deref()),
            (Some("a"), &b"x"[..], Some("1"))
        );
        assert_eq!(decoder.poll().unwrap().data, b"y");
        assert_eq!(decoder.poll(), None);
        assert!(!decoder.is_overlong());
        decoder.push(&[b'x'; 99]);
        assert!(decoder.is_overlong());
    }
}
