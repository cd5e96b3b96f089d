//! Streams of every dialect, cut anywhere: they say the same however they were cut, and told in any other
//! dialect they are valid there, with no character lost or said twice.
#![no_main]

#[path = "../../crates/wire/tests/valid/mod.rs"]
mod valid;

use firsttoken_fuzz::{PARSED, choose, cut};
use firsttoken_wire::openai_chat;
use firsttoken_wire::sse::events;
use libfuzzer_sys::fuzz_target;
use valid::said::{Said, survives_everywhere};

fuzz_target!(|input: &[u8]| {
    // The first bytes choose the dialect and where the stream is cut.
    let Some((choices, stream)) = input.split_at_checked(4) else { return };
    let dialect = choose(&PARSED, choices[0]);
    // A byte order mark counts at the start only, and a block may start anywhere.
    if !stream.windows(3).any(|bytes| bytes == b"\xEF\xBB\xBF") {
        let whole = Said::of(dialect, &[stream]);
        assert_eq!(Said::of(dialect, &cut(stream, &choices[1..])), whole);
    }
    for event in events(stream) {
        let _ = openai_chat::has_no_choices(&event);
    }
    if let Err(wrong) = survives_everywhere(dialect, stream) {
        panic!("{wrong}");
    }
});
