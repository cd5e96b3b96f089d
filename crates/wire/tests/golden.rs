//! Streams as providers document them, and what they say. `tests/golden/<dialect>/<name>.sse` is read
//! into `<name>.events`, one event per line. Run with `UPDATE_GOLDEN=1` to write those files anew.

mod streams;

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use firsttoken_wire::sse::{Split, Splitter, events};
use firsttoken_wire::{Dialect, StreamParser};

const DIALECTS: [(&str, Dialect); 5] = [
    ("openai_chat", Dialect::OpenAiChat),
    ("openai_responses", Dialect::OpenAiResponses),
    ("openai_completions", Dialect::OpenAiCompletions),
    ("anthropic", Dialect::Anthropic),
    ("typed", Dialect::Typed),
];

/// Reads `reads` one after the other and writes down what they say.
fn transcript(dialect: Dialect, reads: &[&[u8]]) -> String {
    let mut out = String::new();
    let mut parser = dialect.parser();
    let mut splitter = Splitter::new(1 << 20);
    for read in reads {
        match splitter.push(Bytes::copy_from_slice(read)) {
            Split::Whole(block) => write_block(&mut parser, &block, &mut out),
            Split::Partial => {}
            Split::Overlong(_) => out.push_str("overlong\n"),
        }
    }
    out
}

fn write_block(parser: &mut StreamParser, block: &[u8], out: &mut String) {
    for event in events(block) {
        parser.parse(&event, &mut |event| {
            out.push_str(&format!("{event:?}\n"));
        });
    }
}

fn streams() -> Vec<(PathBuf, Dialect, Vec<u8>)> {
    let all = streams::golden(&DIALECTS);
    assert!(all.len() > 30, "the golden streams are missing");
    all
}

/// The same stream with other line ends.
fn with_line_end(stream: &[u8], end: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len() * 2);
    for byte in stream {
        if *byte == b'\n' { out.extend_from_slice(end.as_bytes()) } else { out.push(*byte) }
    }
    out
}

#[test]
fn every_stream_says_what_it_should() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for (path, dialect, stream) in streams() {
        let said = transcript(dialect, &[&stream]);
        let expected = path.with_extension("events");
        if update {
            fs::write(&expected, &said).unwrap();
        }
        assert_eq!(said, fs::read_to_string(&expected).unwrap_or_default(), "{}", path.display());
    }
}

#[test]
fn a_read_may_end_at_any_byte() {
    for (path, dialect, stream) in streams() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = with_line_end(&stream, end);
            let whole = transcript(dialect, &[&stream]);
            for at in 0..=stream.len() {
                let said = transcript(dialect, &[&stream[..at], &stream[at..]]);
                assert_eq!(said, whole, "{} cut at {at}, line end {end:?}", path.display());
            }
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            assert_eq!(transcript(dialect, &bytes), whole, "{} byte by byte", path.display());
        }
    }
}

#[test]
fn line_ends_do_not_matter() {
    for (path, dialect, stream) in streams() {
        let whole = transcript(dialect, &[&stream]);
        for end in ["\r\n", "\r"] {
            let said = transcript(dialect, &[&with_line_end(&stream, end)]);
            assert_eq!(said, whole, "{} {end:?}", path.display());
        }
    }
}

#[test]
fn a_small_stream_may_be_cut_at_any_two_bytes() {
    for (dialect, stream) in [
        (
            Dialect::OpenAiChat,
            "data: {\"choices\":[{\"delta\":{\"content\":\"é\"}}]}\n\n: c\n\ndata: [DONE]\n\n",
        ),
        (
            Dialect::Typed,
            "\u{feff}id: 1\nevent: token\ndata: {\"type\":\"text-delta\",\"delta\":\ndata: \"a\"}\n\ndata: [DONE]\n\n",
        ),
    ] {
        for end in ["\n", "\r\n", "\r"] {
            let stream = with_line_end(stream.as_bytes(), end);
            let whole = transcript(dialect, &[&stream]);
            assert!(whole.contains("Text(") && whole.ends_with("End\n"), "{whole}");
            for first in 0..=stream.len() {
                for second in first..=stream.len() {
                    let reads = [&stream[..first], &stream[first..second], &stream[second..]];
                    assert_eq!(transcript(dialect, &reads), whole, "cut at {first} and {second}");
                }
            }
        }
    }
}
