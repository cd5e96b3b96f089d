//! What a client got, held against what the upstream sent: the relay invariant, byte by byte.

use bytes::Bytes;

/// What a client got of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// How many of the upstream's events it got, each whole and in order.
    pub events: usize,
    /// How many keepalives stand between them.
    pub keepalives: usize,
    /// What stands behind them: nothing, or an error event of the gateway's own.
    pub rest: Bytes,
}

impl Relayed {
    /// Reads `got` as a prefix of the `sent` events with keepalives in between.
    ///
    /// A keepalive that looks like an event of the upstream counts as that event, and that event as the
    /// keepalive: to the client they are the same.
    #[must_use]
    pub fn read(got: &Bytes, sent: &[Bytes], keepalive: &[u8]) -> Self {
        let mut relayed = Self { events: 0, keepalives: 0, rest: Bytes::new() };
        let mut at = 0;
        while at < got.len() {
            let rest = &got[at..];
            if let Some(event) = sent.get(relayed.events).filter(|event| rest.starts_with(event)) {
                at += event.len();
                relayed.events += 1;
            } else if rest.starts_with(keepalive) {
                at += keepalive.len();
                relayed.keepalives += 1;
            } else {
                break;
            }
        }
        relayed.rest = got.slice(at..);
        relayed
    }
}
