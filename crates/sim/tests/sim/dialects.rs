//! Each dialect, streamed and not, read by the product's own codecs, which share no code with it.

use std::time::Duration;

use firsttoken_wire::chat::{Event, StopReason, Usage};
use firsttoken_wire::{Dialect, sse};
use serde_json::{Value, json};

use crate::client::{Answer, Failure, STREAMS, ask, ask_h2, body, sim};

const PATIENCE: Duration = Duration::from_secs(600);

fn dialect(path: &str) -> Dialect {
    match path {
        "/v1/chat/completions" => Dialect::OpenAiChat,
        "/v1/messages" => Dialect::Anthropic,
        "/v1/completions" => Dialect::OpenAiCompletions,
        _ => Dialect::OpenAiResponses,
    }
}

/// What a stream said.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    text: String,
    reasoning: String,
    /// Name and arguments.
    tools: Vec<(String, String)>,
    stop: Option<StopReason>,
    usage: Usage,
    ends: u32,
    /// Malformed frames, errors, and frames that say nothing the codec knows.
    strange: u32,
}

fn hear(dialect: Dialect, bytes: &[u8]) -> Heard {
    let mut heard = Heard::default();
    let mut parser = dialect.parser();
    for event in sse::events(bytes) {
        parser.parse(&event, &mut |said| match said {
            Event::Text(text) => heard.text.push_str(&text),
            Event::Reasoning(text) => heard.reasoning.push_str(&text),
            Event::ToolStart { name, .. } => heard.tools.push((name.into_owned(), String::new())),
            Event::ToolArguments { index, json } => heard.tools[index as usize].1.push_str(&json),
            Event::Stop(stop) => heard.stop = Some(stop),
            Event::Usage(usage) => heard.usage.update(usage),
            Event::End => heard.ends += 1,
            Event::Malformed | Event::Error(_) => heard.strange += 1,
            _ => {}
        });
    }
    heard
}

async fn whole(path: &str, knobs: &str, body: &Value) -> Result<Answer, Failure> {
    let answer = ask(&sim(), path, knobs, body, PATIENCE).await?;
    assert_eq!((answer.status.as_u16(), answer.whole), (200, true), "{path}: {}", answer.text());
    Ok(answer)
}

#[tokio::test(start_paused = true)]
async fn each_dialect_streams_a_valid_answer() -> Result<(), Failure> {
    for path in STREAMS {
        let answer = whole(path, "n=12 cached=3", &body(path, true)).await?;
        assert!(answer.headers["content-type"].to_str()?.starts_with("text/event-stream"), "{path}");
        let heard = hear(dialect(path), &answer.bytes());
        assert_eq!(heard.text, "This is a simulated answer to: “Why is the sky blue?”. No", "{path}");
        assert_eq!((heard.stop, heard.ends, heard.strange), (Some(StopReason::Stop), 1, 0), "{path}");
        let usage = heard.usage;
        let counts = (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens);
        // A message brings its role's four bytes too.
        let prompt = if path.ends_with("messages") || path.contains("chat") { 6 } else { 5 };
        assert_eq!(counts, (Some(prompt), Some(3), Some(12)), "{path}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_dialect_answers_at_once_too() -> Result<(), Failure> {
    for path in STREAMS {
        let answer = whole(path, "n=12", &body(path, false)).await?;
        assert_eq!(answer.headers["content-type"], "application/json");
        assert_eq!(answer.headers["content-length"], answer.bytes().len().to_string().as_str());
        // The first token after 100 ms and eleven more every 10 ms.
        assert_eq!(answer.head, Duration::from_millis(210), "{path}");
        let read = dialect(path).facts(&answer.bytes());
        assert_eq!((read.stop, read.usage.output_tokens), (Some(StopReason::Stop), Some(12)), "{path}");
        assert!(read.has_content, "{path}");
        assert!(answer.text().contains("This is a simulated answer to"), "{path}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn http2_carries_the_same_bytes() -> Result<(), Failure> {
    for path in STREAMS {
        let one = whole(path, "", &body(path, true)).await?;
        let two = ask_h2(&sim(), path, "", &body(path, true)).await?;
        assert_eq!((one.text(), two.whole), (two.text(), true), "{path}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn thinking_and_parallel_tools_are_streamed() -> Result<(), Failure> {
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let mut request = body(path, true);
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
        request["tools"] = if path.contains("chat") {
            json!([{"type": "function", "function": {"name": "forecast", "parameters": schema}}])
        } else {
            json!([{"name": "forecast", "input_schema": schema}])
        };
        let answer = whole(path, "tools=2 reasoning=5", &request).await?;
        let heard = hear(dialect(path), &answer.bytes());
        let call = ("forecast".to_owned(), r#"{"city":"simulated","days":1}"#.to_owned());
        assert_eq!(heard.tools, [call.clone(), call], "{path}");
        assert_eq!(heard.reasoning, "The question is simulated, and", "{path}");
        assert_eq!((heard.stop, heard.text.as_str(), heard.ends), (Some(StopReason::Tool), "", 1), "{path}");

        request["stream"] = json!(false);
        let at_once = whole(path, "tools=2 reasoning=5", &request).await?;
        let read = dialect(path).facts(&at_once.bytes());
        assert_eq!(read.stop, Some(StopReason::Tool), "{path}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_answer_after_a_tool_is_text() -> Result<(), Failure> {
    let path = "/v1/chat/completions";
    let mut request = body(path, true);
    request["messages"] = json!([{"role": "user", "content": "q"}, {"role": "tool", "content": "21"}]);
    let answer = whole(path, "tool=1", &request).await?;
    assert!(hear(dialect(path), &answer.bytes()).text.starts_with("This is a simulated answer to: “q”"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn token_counts_come_only_where_they_are_asked_for() -> Result<(), Failure> {
    let path = "/v1/chat/completions";
    let mut request = body(path, true);
    request["stream_options"] = Value::Null;
    let answer = whole(path, "", &request).await?;
    assert!(!answer.text().contains("usage"), "{}", answer.text());
    for path in STREAMS {
        let answer = whole(path, "usage=0", &body(path, true)).await?;
        assert!(hear(dialect(path), &answer.bytes()).usage.is_empty(), "{path}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_requests_bound_of_tokens_is_kept() -> Result<(), Failure> {
    for (path, field) in
        STREAMS.into_iter().zip(["max_tokens", "max_tokens", "max_tokens", "max_output_tokens"])
    {
        let mut request = body(path, true);
        request[field] = json!(4);
        let heard = hear(dialect(path), &whole(path, "", &request).await?.bytes());
        assert_eq!(
            (heard.text.as_str(), heard.stop),
            ("This is a simulated", Some(StopReason::Length)),
            "{path}"
        );
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_not_streamed_answers_too() -> Result<(), Failure> {
    let count = whole("/v1/messages/count_tokens", "", &body("/v1/messages", false)).await?;
    assert_eq!(count.json()?, json!({"input_tokens": 6}));
    let two = json!({"model": "m", "input": ["one", "two"], "dimensions": 8});
    let vectors = whole("/v1/embeddings", "", &two).await?.json()?;
    assert_eq!(vectors["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(vectors["data"][0]["embedding"].as_array().map(Vec::len), Some(8));
    let packed = json!({"model": "m", "input": "one", "dimensions": 8, "encoding_format": "base64"});
    let packed = whole("/v1/embeddings", "", &packed).await?.json()?;
    // Eight floats are 32 bytes, 44 characters.
    assert_eq!(packed["data"][0]["embedding"].as_str().map(str::len), Some(44));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn refusals_are_in_the_endpoints_own_words() -> Result<(), Failure> {
    for (path, knobs, body, status, message) in [
        ("/v1/chat/completions", "tfft=3", body("/v1/chat/completions", true), 400, "unknown knob `tfft=3`"),
        ("/v1/messages", "", json!({"model": "sim"}), 400, "`messages` is missing"),
        ("/v1/messages", "fault=status:529", body("/v1/messages", true), 529, "status 529"),
        ("/v1/responses", "tools=1", body("/v1/responses", true), 400, "not simulated at responses"),
        ("/v1/completions", "n=9999999", body("/v1/completions", false), 400, "has to be streamed"),
        ("/v1/nothing", "", json!({}), 404, "no such endpoint"),
    ] {
        let answer = ask(&sim(), path, knobs, &body, PATIENCE).await?;
        let said = answer.json()?;
        assert_eq!(answer.status.as_u16(), status, "{path}: {said}");
        assert!(said["error"]["message"].as_str().is_some_and(|m| m.contains(message)), "{path}: {said}");
        let read = dialect(path).parse_error_body(status, &answer.bytes());
        assert!(read.message.contains(message), "{path}: {read:?}");
        assert_eq!(said["type"] == "error", path.contains("messages"), "{path}: {said}");
    }
    Ok(())
}
