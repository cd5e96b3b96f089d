//! The form of an answer that has to call, in the words of its family.
//!
//! Around the arguments everything is fixed, so that the parser reads a call whatever the model would
//! have liked to say; the arguments fit the tool's schema, whose references stay where they point.
//!
//! Invariant: what has this form is read as calls of these tools, and nothing else.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Family;
use crate::grammar::{Form, spaced};
use crate::vocabulary::Vocabulary;

/// Which calls there may be.
#[derive(Clone, Debug)]
pub struct Calls<'a> {
    /// How they are written.
    pub family: Family,
    /// Name and JSON schema of the arguments, of each tool; at least one.
    pub tools: Vec<(&'a str, &'a Value)>,
    /// Whether there may be several.
    pub many: bool,
}

/// The form of calls; or, where an `answer` of some JSON schema may stand instead, of either.
#[must_use]
pub fn form(calls: &Calls<'_>, answer: Option<&Value>, vocabulary: &dyn Vocabulary) -> Form {
    // A mark is a token of its own where the model has one, and text where not.
    let mark = |mark: &str| match vocabulary.special(mark) {
        Some(token) => format!("<[{token}]>"),
        None => quoted(mark),
    };
    let is_named = calls.family == Family::Mistral && vocabulary.special("[ARGS]").is_some();
    let several = |one: &str, between: &str| match calls.many {
        true => format!("{one} ({} {one})*", quoted(between)),
        false => one.to_owned(),
    };
    let written = match calls.family {
        Family::Hermes => several("marked", "\n"),
        Family::Llama3 => several("call", "; "),
        Family::Mistral if is_named => format!("call{}", if calls.many { "+" } else { "" }),
        Family::Mistral => format!("{} \"[\" {} \"]\"", mark("[TOOL_CALLS]"), several("call", ", ")),
        Family::Generic if calls.many => format!("call | \"[\" {} \"]\"", several("call", ", ")),
        Family::Generic => "call".to_owned(),
    };
    let mut lark = String::from(if answer.is_some() { "start: calls | answer\n" } else { "start: calls\n" });
    let mut rule = |name: &str, body: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(lark, "{name}: {body}");
    };
    rule("calls", &written);
    if calls.family == Family::Hermes {
        rule("marked", &format!("{} \"\\n\" call \"\\n\" {}", mark("<tool_call>"), mark("</tool_call>")));
    }
    let each: Vec<String> = (0..calls.tools.len()).map(|at| format!("call_{at}")).collect();
    rule("call", &each.join(" | "));
    let key = if calls.family == Family::Llama3 { "parameters" } else { "arguments" };
    for (at, (name, schema)) in calls.tools.iter().enumerate() {
        let call = if is_named {
            format!("{} {} {} args_{at}", mark("[TOOL_CALLS]"), quoted(name), mark("[ARGS]"))
        } else {
            let head = format!("{{\"name\": {}, \"{key}\": ", json!(name));
            format!("{} args_{at} \"}}\"", quoted(&head))
        };
        rule(&format!("call_{at}"), &call);
        rule(&format!("args_{at}"), &format!("%json {}", spaced(schema)));
    }
    if let Some(schema) = answer {
        rule("answer", &format!("%json {}", spaced(schema)));
    }
    Form::Lark(lark)
}

/// A literal of Lark, which escapes as JSON does.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}
