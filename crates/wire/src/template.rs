//! Recognises a frame that differs from an earlier one only in its text.
//!
//! Providers send hundreds of frames in a row that are equal but for one string. Once a frame has been
//! parsed and found to say one text, alone, and to change nothing in the parser, any frame with the
//! same bytes before and after that text says its own text in the same way: JSON leaves no other
//! reading, as long as the text ends no string and holds no escape. So the usual token costs two
//! comparisons instead of a parse.
//!
//! Invariant: a frame is recognised only if the full parse would have said exactly the same.

use crate::sse;

/// The bytes around a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    name: Option<Box<str>>,
    head: Box<[u8]>,
    tail: Box<[u8]>,
}

impl Template {
    /// Learns from `event`, whose whole meaning is `text`, a slice of its data between two quotes.
    pub(crate) fn learn(event: &sse::Event<'_>, text: &str) -> Option<Self> {
        let start = (text.as_ptr() as usize).checked_sub(event.data.as_ptr() as usize)?;
        let (head, rest) = event.data.split_at_checked(start)?;
        let (inside, tail) = rest.split_at_checked(text.len())?;
        let quoted = head.last() == Some(&b'"') && tail.first() == Some(&b'"');
        (quoted && inside == text.as_bytes()).then(|| Self {
            name: event.name.map(Into::into),
            head: head.into(),
            tail: tail.into(),
        })
    }

    /// The text of `event`, if that is all in which it differs.
    pub(crate) fn text<'a>(&self, event: &'a sse::Event<'_>) -> Option<&'a str> {
        let inside = event.data.strip_prefix(&*self.head)?.strip_suffix(&*self.tail)?;
        let plain = !inside.is_empty() && inside.iter().all(|b| *b >= b' ' && *b != b'"' && *b != b'\\');
        if !plain || event.name != self.name.as_deref() {
            return None;
        }
        std::str::from_utf8(inside).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{Dialect, StreamParser, sse};

    /// What a stream says, with and without recognition.
    fn said(mut parser: StreamParser, stream: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        for event in sse::events(stream) {
            parser.parse(&event, &mut |said| all.push(format!("{said:?}")));
        }
        all
    }

    fn frame(dialect: Dialect, text: &str, index: u8) -> String {
        let text = serde_json::to_string(text).unwrap();
        if dialect == Dialect::Anthropic {
            return format!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\
                 \"delta\":{{\"type\":\"text_delta\",\"text\":{text}}}}}\n\n"
            );
        }
        format!(
            "data: {{\"id\":\"{index}\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":\
             {{\"content\":{text}}},\"finish_reason\":null}}],\"usage\":null}}\n\n"
        )
    }

    #[test]
    fn a_repeated_frame_is_recognised() {
        let mut parser = Dialect::OpenAiChat.parser();
        let stream = ["a", "b", "c"].map(|text| frame(Dialect::OpenAiChat, text, 1)).concat();
        for event in sse::events(stream.as_bytes()) {
            parser.parse(&event, &mut |_| {});
        }
        let event = frame(Dialect::OpenAiChat, " hello", 1);
        let event = sse::events(event.as_bytes()).next().unwrap();
        assert_eq!(parser.recognises(&event), Some(" hello"));
        for other in ["", "a\"b", "a\\", "a\nb"] {
            let event = frame(Dialect::OpenAiChat, other, 1);
            assert_eq!(parser.recognises(&sse::events(event.as_bytes()).next().unwrap()), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn recognition_changes_nothing(
            anthropic: bool,
            frames in prop::collection::vec(("[a-zé\"\\\\{}:, \n]{0,6}", 0..2_u8), 0..40),
            noise in prop::collection::vec((0..40_usize, 0..400_usize, any::<u8>()), 0..3),
        ) {
            let dialect = if anthropic { Dialect::Anthropic } else { Dialect::OpenAiChat };
            let mut stream: Vec<Vec<u8>> =
                frames.iter().map(|(text, index)| frame(dialect, text, *index).into_bytes()).collect();
            for (at, byte, value) in noise {
                if let Some(byte) = stream.get_mut(at).and_then(|frame| frame.get_mut(byte)) {
                    *byte = value;
                }
            }
            let stream = stream.concat();
            prop_assert_eq!(said(dialect.parser(), &stream), said(dialect.parser().without_recognition(), &stream));
        }
    }
}
