//! Bodies of requests in every dialect: what can be read and written for another provider can be read
//! there, and all that was said is said there.
#![no_main]

use firsttoken_fuzz::{ASKED, TRANSLATED, choose};
use firsttoken_wire::chat::{Part, Request};
use libfuzzer_sys::fuzz_target;

/// Models that take everything, a part of it, or are not known.
const MODELS: [&str; 5] = ["claude-sonnet-4-5", "claude-opus-4-7", "gpt-5.1", "gpt-4o", "olmo"];

fuzz_target!(|input: &[u8]| {
    // The first bytes choose the dialect and the model.
    let Some((choices, body)) = input.split_at_checked(2) else { return };
    let Some(Ok(mut request)) = choose(&ASKED, choices[0]).parse_request(body) else { return };
    request.model = choose(&MODELS, choices[1]).to_owned();
    for dialect in TRANSLATED {
        let rendered = match dialect.render_request(&request) {
            Ok(rendered) => rendered,
            Err(error) => {
                assert!(error.param.is_some(), "no place: {error:?}");
                continue;
            }
        };
        assert!(rendered.dropped.iter().all(|name| !name.is_empty()));
        let written = String::from_utf8_lossy(&rendered.body);
        match dialect.parse_request(&rendered.body) {
            Some(Ok(read)) => survives(&request, &read, &written),
            other => panic!("{dialect:?} does not read what we wrote: {other:?}\n{written}"),
        }
    }
});

/// Every text that says something is there, in a text of its own or within one.
fn survives(request: &Request, read: &Request, written: &str) {
    let there = texts(read).join("\n");
    for text in texts(request).into_iter().filter(|text| !text.trim().is_empty()) {
        assert!(there.contains(text), "{text:?} is lost: {written}");
    }
}

fn texts(request: &Request) -> Vec<&str> {
    let messages = request.messages.iter().flat_map(|message| &message.parts);
    let mut all = Vec::new();
    for part in request.system.iter().chain(messages) {
        match part {
            Part::ToolResult { content, .. } => all.extend(content.iter().filter_map(Part::text)),
            part => all.extend(part.text()),
        }
    }
    all
}
