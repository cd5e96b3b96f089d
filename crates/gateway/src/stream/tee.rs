//! Watches a stream that passes through: bytes in, the same bytes out, and what they say.
//!
//! Whole events are forwarded as they came. What may be missing from them is declared: everything
//! behind the terminal event, a usage chunk that the caller did not ask for, and a frame that is not
//! readable, with which the stream ends. For a caller of another dialect the events are rendered anew.
//!
//! Invariant: what comes out is a prefix of the upstream's events, in order, each whole.

use bytes::{Bytes, BytesMut};
use firsttoken_wire::chat::{Event, StopReason};
use firsttoken_wire::sse::{self, Split, Splitter};
use firsttoken_wire::{ApiError, Dialect, StreamParser, StreamRenderer, openai_chat};

/// How the stream reaches the caller.
pub(crate) enum Face {
    /// As it came.
    Same {
        /// Remove the chunk that only carries usage.
        strip_usage: bool,
    },
    /// Rendered anew, in another dialect.
    Rendered(Box<StreamRenderer>),
    /// As it came, and nobody looks at it: the endpoint has no stream model.
    Opaque,
}

/// What the stream has said so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The terminal event.
    pub(crate) ended: bool,
    /// Why the model stopped.
    pub(crate) stop: Option<StopReason>,
    /// An error event.
    pub(crate) error: Option<ApiError>,
    /// A frame that cannot be read.
    pub(crate) malformed: bool,
    /// One event was over the bound: from there on the stream passes raw.
    pub(crate) overlong: bool,
    /// Whether a finish reason without the terminal event is a good end, too: OpenAI's `[DONE]` says
    /// nothing that clients wait for, Anthropic's `message_stop` does.
    stop_suffices: bool,
}

impl Seen {
    /// Whether nothing more may follow.
    pub(crate) fn is_over(&self) -> bool {
        self.ended || self.error.is_some() || self.malformed
    }

    /// Whether an end of the body now is a good end.
    pub(crate) fn is_complete(&self) -> bool {
        let stopped = self.stop_suffices && self.stop.is_some();
        self.error.is_none() && (self.ended || stopped || self.overlong)
    }
}

/// One stream's watcher.
pub(crate) struct Tee {
    upstream: Dialect,
    splitter: Splitter,
    parser: StreamParser,
    pub(crate) face: Face,
    pub(crate) seen: Seen,
}

impl Tee {
    /// Watches a stream of `upstream` dialect; events above `event_bytes_max` end the watching.
    pub(crate) fn new(upstream: Dialect, face: Face, event_bytes_max: usize) -> Self {
        Self {
            upstream,
            splitter: Splitter::new(event_bytes_max),
            parser: upstream.parser(),
            face,
            seen: Seen {
                stop_suffices: matches!(upstream, Dialect::OpenAiChat | Dialect::OpenAiCompletions),
                ..Seen::default()
            },
        }
    }

    /// Takes one read, tells `on_event` what it says, returns what goes to the caller now.
    pub(crate) fn push(&mut self, chunk: Bytes, on_event: &mut dyn FnMut(&Event<'_>)) -> Bytes {
        if matches!(self.face, Face::Opaque) {
            return chunk;
        }
        match self.splitter.push(chunk) {
            Split::Partial => Bytes::new(),
            Split::Overlong(raw) => self.overlong(raw),
            Split::Whole(block) => self.block(block, on_event),
        }
    }

    /// The body ended in order. A last event without its blank line is still taken, if it can be read.
    pub(crate) fn end(&mut self, on_event: &mut dyn FnMut(&Event<'_>)) -> Bytes {
        if self.splitter.tail_len() == 0 {
            return Bytes::new();
        }
        let bytes = self.push(Bytes::from_static(b"\n\n"), on_event);
        if self.seen.malformed {
            // Half an event: the stream was cut, which its missing end says better.
            self.seen.malformed = false;
        }
        bytes
    }

    /// From here on the stream is rendered; and so is `held`, which passed as it came before somebody knew
    /// how it would go on.
    pub(crate) fn render_from(&mut self, mut renderer: StreamRenderer, held: &mut [&mut Bytes]) {
        let mut parser = self.upstream.parser();
        for bytes in held {
            let mut rendered = Vec::new();
            for event in sse::events(bytes) {
                parser.parse(&event, &mut |said| render(&mut renderer, &said, &mut rendered));
            }
            **bytes = rendered.into();
        }
        self.face = Face::Rendered(Box::new(renderer));
    }

    fn overlong(&mut self, raw: Bytes) -> Bytes {
        self.seen.overlong = true;
        if matches!(self.face, Face::Rendered(_)) {
            self.seen.malformed = true;
            return Bytes::new();
        }
        raw
    }

    fn block(&mut self, block: Bytes, on_event: &mut dyn FnMut(&Event<'_>)) -> Bytes {
        let mut rendered = Vec::new();
        let mut kept = Kept::default();
        for event in sse::events(&block) {
            let (mut usage, mut more) = (false, false);
            let (seen, face) = (&mut self.seen, &mut self.face);
            self.parser.parse(&event, &mut |said| {
                look(seen, &said);
                on_event(&said);
                usage |= matches!(said, Event::Usage(_));
                more |= !matches!(said, Event::Usage(_) | Event::Start { .. });
                if let Face::Rendered(renderer) = face {
                    render(renderer, &said, &mut rendered);
                }
            });
            let strip = usage
                && !more
                && matches!(self.face, Face::Same { strip_usage: true })
                && openai_chat::has_no_choices(&event);
            if self.seen.malformed {
                break;
            }
            kept.event(event.raw.len(), strip);
            if self.seen.is_over() {
                break;
            }
        }
        match self.face {
            Face::Rendered(_) => rendered.into(),
            Face::Same { .. } | Face::Opaque => kept.of(block),
        }
    }
}

/// What a stream says of its end is told once the end is sure; see `Relay`.
fn render(renderer: &mut StreamRenderer, said: &Event<'_>, out: &mut Vec<u8>) {
    if !matches!(said, Event::End | Event::Error(_)) {
        renderer.render(said, out);
    }
}

fn look(seen: &mut Seen, said: &Event<'_>) {
    match said {
        Event::End => seen.ended = true,
        Event::Stop(reason) => seen.stop = Some(reason.clone()),
        Event::Error(error) => seen.error = Some(error.clone()),
        Event::Malformed => seen.malformed = true,
        _ => {}
    }
}

/// Which ranges of a block go on: nearly always one, from its start.
#[derive(Default)]
struct Kept {
    at: usize,
    ranges: Vec<std::ops::Range<usize>>,
    start: usize,
}

impl Kept {
    fn event(&mut self, length: usize, strip: bool) {
        let end = self.at + length;
        if strip {
            if self.start < self.at {
                self.ranges.push(self.start..self.at);
            }
            self.start = end;
        }
        self.at = end;
    }

    fn of(self, block: Bytes) -> Bytes {
        if self.ranges.is_empty() {
            let all = self.start == 0 && self.at == block.len();
            return if all { block } else { block.slice(self.start..self.at) };
        }
        let mut out = BytesMut::with_capacity(self.at);
        for range in self.ranges {
            out.extend_from_slice(&block[range]);
        }
        out.extend_from_slice(&block[self.start..self.at]);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n";
    const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    fn run(face: Face, reads: &[&str]) -> (String, Seen, usize) {
        let mut tee = Tee::new(Dialect::OpenAiChat, face, 1000);
        let (mut out, mut contents) = (Vec::new(), 0);
        for read in reads {
            let bytes = tee.push(Bytes::copy_from_slice(read.as_bytes()), &mut |e| {
                contents += usize::from(e.is_content())
            });
            out.extend_from_slice(&bytes);
        }
        let bytes = tee.end(&mut |_| {});
        out.extend_from_slice(&bytes);
        (String::from_utf8(out).unwrap(), tee.seen, contents)
    }

    #[test]
    fn the_unasked_usage_chunk_is_removed_and_nothing_else() {
        let all = format!("{TEXT}{STOP}{USAGE}{DONE}");
        let (out, seen, contents) = run(Face::Same { strip_usage: true }, &[&all]);
        assert_eq!((out, seen.ended, contents), (format!("{TEXT}{STOP}{DONE}"), true, 1));
        let (out, ..) = run(Face::Same { strip_usage: true }, &[TEXT, STOP, USAGE, DONE]);
        assert_eq!(out, format!("{TEXT}{STOP}{DONE}"));
        let (out, ..) = run(Face::Same { strip_usage: false }, &[&all]);
        assert_eq!(out, all);
    }

    #[test]
    fn nothing_follows_the_terminal_event() {
        let (out, seen, _) = run(Face::Same { strip_usage: false }, &[&format!("{TEXT}{DONE}{TEXT}{DONE}")]);
        assert_eq!((out, seen.is_complete()), (format!("{TEXT}{DONE}"), true));
    }

    #[test]
    fn a_malformed_frame_ends_the_stream_before_it() {
        let (out, seen, _) =
            run(Face::Same { strip_usage: false }, &[&format!("{TEXT}data: {{\"cho\n\n{TEXT}")]);
        assert_eq!((out.as_str(), seen.malformed, seen.is_complete()), (TEXT, true, false));
    }

    #[test]
    fn a_half_event_at_the_end_is_dropped_and_a_whole_one_kept() {
        let (out, seen, _) = run(Face::Same { strip_usage: false }, &[TEXT, "data: {\"choices\":[{\"del"]);
        assert_eq!((out.as_str(), seen.is_complete()), (TEXT, false));
        let (out, seen, _) = run(Face::Same { strip_usage: false }, &[TEXT, "data: [DONE]\n"]);
        assert_eq!((out, seen.is_complete()), (format!("{TEXT}{DONE}"), true));
    }

    #[test]
    fn an_overlong_event_passes_raw() {
        let long =
            format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(2000));
        let (a, b) = long.split_at(1500);
        let (out, seen, _) = run(Face::Same { strip_usage: false }, &[TEXT, a, b, DONE]);
        assert_eq!((out, seen.overlong, seen.is_complete()), (format!("{TEXT}{long}{DONE}"), true, true));
    }
}
