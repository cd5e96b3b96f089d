//! Whole answers and errors in every dialect: what can be read can be read again in any other, and says
//! the same there.
#![no_main]

#[path = "../../crates/wire/tests/valid/mod.rs"]
mod valid;

use firsttoken_fuzz::{PARSED, TRANSLATED, choose};
use firsttoken_wire::chat::{Answer, Part};
use firsttoken_wire::{Dialect, Identity};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use valid::said::Said;

fuzz_target!(|input: &[u8]| {
    // The first byte chooses the dialect, the next two a status.
    let Some((choices, body)) = input.split_at_checked(3) else { return };
    let dialect = choose(&PARSED, choices[0]);
    let _ = dialect.facts(body);
    error(dialect, u16::from_be_bytes([choices[1], choices[2]]), body);
    let Ok(answer) = dialect.parse_answer(body) else { return };
    for to in TRANSLATED {
        let written = to.render_answer(&answer, &Identity::default());
        let read = to.parse_answer(&written);
        let read = read.unwrap_or_else(|error| panic!("{to:?} does not read what we wrote: {error:?}"));
        let written = String::from_utf8_lossy(&written);
        assert_eq!(said(&read), said(&answer), "{to:?}: {written}");
    }
});

/// The text, the thinking, and name and arguments of each call.
fn said(answer: &Answer) -> (String, String, Vec<(&str, Value)>) {
    let mut all = (String::new(), String::new(), Vec::new());
    for part in &answer.parts {
        match part {
            Part::Text(text) => all.0.push_str(text),
            Part::Reasoning(block) => all.1.push_str(&block.text),
            Part::ToolCall { name, arguments, .. } => all.2.push((name.as_str(), input(arguments))),
            Part::Media(_) | Part::ToolResult { .. } => {}
        }
    }
    all
}

/// Arguments as Messages has them: an object, which holds as a text what is none.
fn input(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({ "arguments": arguments }),
    }
}

/// An error is one in every dialect, whole and in a stream, and never longer than a screen.
fn error(dialect: Dialect, status: u16, body: &[u8]) {
    let error = dialect.parse_error_body(status, body);
    assert!(error.message.len() < 5_000);
    for to in PARSED {
        let body = to.error_body(&error, Some("req_1"));
        assert!(serde_json::from_slice::<Value>(&body).is_ok(), "{to:?}");
        let stream = to.error_event(&error, Some("req_1"));
        let said = Said::of(to, &[&stream]);
        assert!(said.error.is_some() && said.malformed == 0, "{to:?}: {}", String::from_utf8_lossy(&stream));
    }
}
