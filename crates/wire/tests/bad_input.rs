//! Requests that no provider can answer, in every dialect of a caller: each is refused before anything is
//! sent, with the path of the field, in the dialect of the caller.

use firsttoken_wire::{Dialect, ErrorKind};
use serde_json::{Value, json};

const DIALECTS: [Dialect; 5] =
    [Dialect::OpenAiChat, Dialect::Anthropic, Dialect::OpenAiResponses, Dialect::Typed, Dialect::Ui];

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    RolesOrder,
    LateResult,
    OrphanResult,
    DuplicateIds,
    Arguments,
    ContentKind,
    Parameters,
    Newer,
}

const ALL: [Wrong; 8] = [
    Wrong::RolesOrder,
    Wrong::LateResult,
    Wrong::OrphanResult,
    Wrong::DuplicateIds,
    Wrong::Arguments,
    Wrong::ContentKind,
    Wrong::Parameters,
    Wrong::Newer,
];

/// A body of that dialect with that fault, and the path that its error must name; none where the dialect
/// has no way to make the mistake.
fn example(dialect: Dialect, wrong: Wrong) -> Option<(Value, &'static str)> {
    match dialect {
        Dialect::OpenAiChat | Dialect::Typed => chat(wrong),
        Dialect::Anthropic => messages(wrong),
        Dialect::OpenAiResponses => responses(wrong),
        Dialect::Ui => ui(wrong),
        Dialect::OpenAiCompletions | Dialect::OpenAiOther => None,
    }
}

fn chat(wrong: Wrong) -> Option<(Value, &'static str)> {
    let user = json!({ "role": "user", "content": "Hi" });
    let call = |id: &str, arguments: &str| {
        let function = json!({ "name": "f", "arguments": arguments });
        json!({ "role": "assistant", "tool_calls": [{ "id": id, "type": "function", "function": function }] })
    };
    let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "x" });
    let (messages, path) = match wrong {
        Wrong::RolesOrder => (json!([user, result("a"), call("a", "{}")]), "messages[1].tool_call_id"),
        Wrong::LateResult => (json!([user, call("a", "{}"), user, result("a")]), "messages[3].tool_call_id"),
        Wrong::OrphanResult => (json!([user, call("a", "{}"), result("b")]), "messages[2].tool_call_id"),
        Wrong::DuplicateIds => {
            (json!([user, call("a", "{}"), result("a"), call("a", "{}")]), "messages[3].tool_calls[0].id")
        }
        Wrong::Arguments => {
            (json!([user, call("a", "{cut")]), "messages[1].tool_calls[0].function.arguments")
        }
        Wrong::ContentKind => {
            let audio = json!({ "type": "input_audio", "input_audio": { "data": "", "format": "wav" } });
            (json!([{ "role": "user", "content": [audio] }]), "messages[0].content[0].input_audio")
        }
        Wrong::Parameters => {
            return Some((json!({ "model": "m", "messages": [user], "temperature": 99 }), "temperature"));
        }
        Wrong::Newer => (json!([{ "role": "critic", "content": "No." }]), "messages[0].role"),
    };
    Some((json!({ "model": "m", "messages": messages }), path))
}

fn messages(wrong: Wrong) -> Option<(Value, &'static str)> {
    let user = json!({ "role": "user", "content": "Hi" });
    let call = |id: &str, input: Value| json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": "f", "input": input }] });
    let result =
        |id: &str| json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id }] });
    let (messages, path) = match wrong {
        Wrong::RolesOrder => {
            (json!([user, result("a"), call("a", json!({}))]), "messages[1].content[0].tool_use_id")
        }
        Wrong::LateResult => {
            (json!([user, call("a", json!({})), user, result("a")]), "messages[3].content[0].tool_use_id")
        }
        Wrong::OrphanResult => {
            (json!([user, call("a", json!({})), result("b")]), "messages[2].content[0].tool_use_id")
        }
        Wrong::DuplicateIds => {
            let again = call("a", json!({}));
            (json!([user, again, result("a"), again]), "messages[3].content[0].id")
        }
        Wrong::Arguments => (json!([user, call("a", json!("{cut"))]), "messages[1].content[0].input"),
        Wrong::ContentKind => {
            (json!([{ "role": "user", "content": [{ "type": "audio" }] }]), "messages[0].content[0]")
        }
        Wrong::Parameters => {
            let body = json!({ "model": "m", "max_tokens": 0, "messages": [user] });
            return Some((body, "max_tokens"));
        }
        Wrong::Newer => (json!([{ "role": "critic", "content": "No." }]), "messages[0].role"),
    };
    Some((json!({ "model": "m", "max_tokens": 9, "messages": messages }), path))
}

fn responses(wrong: Wrong) -> Option<(Value, &'static str)> {
    let user = json!({ "role": "user", "content": "Hi" });
    let call = |id: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": arguments });
    let result = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "x" });
    let (input, path) = match wrong {
        Wrong::RolesOrder => (json!([user, result("a"), call("a", "{}")]), "input[1].call_id"),
        Wrong::LateResult => (json!([user, call("a", "{}"), user, result("a")]), "input[3].call_id"),
        Wrong::OrphanResult => (json!([user, call("a", "{}"), result("b")]), "input[2].call_id"),
        Wrong::DuplicateIds => (json!([user, call("a", "{}"), call("a", "{}")]), "input[2].call_id"),
        Wrong::Arguments => (json!([user, call("a", "{cut")]), "input[1].arguments"),
        Wrong::ContentKind => {
            (json!([{ "role": "user", "content": [{ "type": "input_audio" }] }]), "input[0].content[0].type")
        }
        Wrong::Parameters => return Some((json!({ "model": "m", "input": "Hi", "top_p": -1 }), "top_p")),
        Wrong::Newer => (json!([user, { "type": "computer_call", "id": "a" }]), "input[1].type"),
    };
    Some((json!({ "model": "m", "input": input }), path))
}

fn ui(wrong: Wrong) -> Option<(Value, &'static str)> {
    let text = json!({ "type": "text", "text": "Hi" });
    let user = json!({ "id": "1", "role": "user", "parts": [text] });
    let tool = |id: &str, state: &str| json!({ "type": "tool-f", "toolCallId": id, "state": state, "input": {}, "output": "x" });
    let assistant = |parts: Value| json!([user, { "id": "2", "role": "assistant", "parts": parts }]);
    let (messages, path) = match wrong {
        Wrong::RolesOrder => {
            let parts = json!([tool("a", "output-available")]);
            (json!([{ "id": "1", "role": "user", "parts": parts }]), "messages[0].parts[0].type")
        }
        // A call and its result are one part here, and its input is what the client holds.
        Wrong::LateResult | Wrong::OrphanResult | Wrong::Arguments => return None,
        Wrong::DuplicateIds => {
            let parts = json!([tool("a", "output-available"), tool("a", "output-available")]);
            (assistant(parts), "messages[1].parts[1].toolCallId")
        }
        Wrong::ContentKind => {
            let file =
                json!({ "type": "file", "mediaType": "audio/wav", "url": "data:audio/wav;base64,AA==" });
            (json!([{ "id": "1", "role": "user", "parts": [file] }]), "messages[0].parts[0].mediaType")
        }
        Wrong::Parameters => {
            return Some((json!({ "messages": [user], "maxOutputTokens": 0 }), "maxOutputTokens"));
        }
        Wrong::Newer => (assistant(json!([tool("a", "approval-requested")])), "messages[1].parts[0].state"),
    };
    Some((json!({ "id": "chat", "messages": messages }), path))
}

#[test]
fn every_dialect_says_where_it_is_wrong() {
    let mut refused = 0;
    for dialect in DIALECTS {
        for wrong in ALL {
            let Some((body, path)) = example(dialect, wrong) else { continue };
            let read = dialect.parse_request(body.to_string().as_bytes()).unwrap();
            let error = read.expect_err(&format!("{dialect:?} {wrong:?}"));
            assert_eq!(
                (error.kind, error.param.as_deref()),
                (ErrorKind::InvalidRequest, Some(path)),
                "{body}"
            );
            assert_eq!(dialect.status(error.kind), 400);
            // The caller reads it: every dialect has a place for it, or the sentence names it.
            let told = String::from_utf8(dialect.error_body(&error, Some("req_1"))).unwrap();
            assert!(told.contains(path) && told.contains(&error.message.replace('"', "\\\"")), "{told}");
            refused += 1;
        }
    }
    assert_eq!(refused, DIALECTS.len() * ALL.len() - 3);
}

/// The same conversations without the fault are read.
#[test]
fn results_may_come_in_any_order_behind_their_turn() {
    let call =
        |id: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "x" });
    let body = json!({ "model": "m", "messages": [
        { "role": "user", "content": "Hi" }, { "role": "assistant", "tool_calls": [call("a"), call("b")] },
        result("b"), { "role": "developer", "content": "Be brief." }, result("a"), { "role": "user", "content": "And?" }] });
    assert!(Dialect::OpenAiChat.parse_request(body.to_string().as_bytes()).unwrap().is_ok());
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": {} });
    let result = |id: &str| json!({ "type": "tool_result", "tool_use_id": id });
    let body = json!({ "model": "m", "max_tokens": 9, "messages": [
        { "role": "user", "content": "Hi" }, { "role": "assistant", "content": [call("a"), call("b")] },
        { "role": "user", "content": [result("b")] }, { "role": "user", "content": [{ "type": "text", "text": "So" }, result("a")] }] });
    assert!(Dialect::Anthropic.parse_request(body.to_string().as_bytes()).unwrap().is_ok());
    let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" });
    let result = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "x" });
    let said = json!({ "role": "assistant", "content": "I look." });
    let body = json!({ "model": "m", "input": [
        { "role": "user", "content": "Hi" }, call("a"), said, call("b"), result("b"), result("a")] });
    assert!(Dialect::OpenAiResponses.parse_request(body.to_string().as_bytes()).unwrap().is_ok());
}
