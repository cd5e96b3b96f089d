//! Requests of OpenAI Responses: read, written, carried over to the other dialects, and errors that name the
//! place.

use firsttoken_wire::chat::{
    Format, Media, MediaKind, Message, Part, Reasoning, Request, Role, Source, Thinking, Tool, ToolChoice,
};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Rendered, anthropic, openai_chat, openai_responses};
use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};

fn example() -> Value {
    serde_json::from_str(include_str!("golden/requests/openai_responses.json")).expect("JSON")
}

fn parse(body: &Value) -> Result<Request, ApiError> {
    openai_responses::parse_request(body.to_string().as_bytes())
}

fn render(request: &Request) -> Rendered {
    openai_responses::render_request(request).expect("it can be said")
}

fn pretty(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    format!("{value:#}")
}

#[test]
fn every_field_is_read() {
    let request = parse(&example()).unwrap();
    assert_snapshot!(format!("{request:#?}"));
    let roles: Vec<Role> = request.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant, Role::User]);
    let left: Vec<&str> = request.rest.keys().map(String::as_str).collect();
    assert_eq!(left, ["text.verbosity", "reasoning.summary", "store", "metadata"]);
}

#[test]
fn an_input_may_be_a_string() {
    let request = parse(&json!({ "model": "m", "input": "Why?", "store": false })).unwrap();
    let said = Message { role: Role::User, parts: vec![Part::Text("Why?".to_owned())] };
    assert_eq!(request, Request { model: "m".to_owned(), messages: vec![said], ..Request::default() });
}

#[test]
fn it_is_written_as_it_was_read() {
    let request = parse(&example()).unwrap();
    let rendered = render(&request);
    assert_snapshot!(pretty(&rendered.body));
    assert_eq!(
        rendered.dropped,
        ["text.verbosity", "reasoning.summary", "store", "metadata", "temperature"],
        "gpt-5 takes no sampling"
    );
    let again = openai_responses::parse_request(&rendered.body).unwrap();
    let mut said = request;
    said.rest.clear();
    said.temperature = None;
    said.system = vec![Part::Text("Be brief.\n\nBe kind.".to_owned())];
    assert_eq!(without_places(again), without_places(said));
}

#[test]
fn what_cannot_be_said_is_named_once() {
    let said = |text: &str| Part::Text(text.to_owned());
    let thought = |text: &str| Part::Reasoning(Reasoning { text: text.to_owned(), ..Reasoning::default() });
    let result = |id: &str| Part::ToolResult { id: id.to_owned(), content: vec![said("no")], is_error: true };
    let request = Request {
        model: "gpt-4o".to_owned(),
        messages: vec![
            Message { role: Role::User, parts: vec![said("Hi")] },
            Message { role: Role::Assistant, parts: vec![thought("a"), thought("b"), said("Hello")] },
            Message { role: Role::Tool, parts: vec![result("a"), result("b")] },
        ],
        top_k: Some(5),
        seed: Some(3),
        presence_penalty: Some(0.5),
        frequency_penalty: Some(0.5),
        stop: vec!["END".to_owned()],
        temperature: Some(0.5),
        thinking: Some(Thinking::Budget(2048)),
        ..Request::default()
    };
    let rendered = render(&request);
    assert_eq!(
        rendered.dropped,
        [
            "top_k",
            "seed",
            "presence_penalty",
            "frequency_penalty",
            "stop",
            "thinking",
            "reasoning",
            "is_error"
        ]
    );
    let body: Value = serde_json::from_slice(&rendered.body).unwrap();
    assert_eq!(body["temperature"], 0.5);
    assert_eq!((&body["include"], &body["reasoning"]), (&Value::Null, &Value::Null));
    assert_eq!(body["input"][1]["content"], json!([{ "type": "output_text", "text": "Hello" }]));
}

#[test]
fn thinking_is_a_word_where_the_model_knows_words() {
    let effort = |thinking: Thinking| {
        let request = Request { model: "gpt-5".to_owned(), thinking: Some(thinking), ..Request::default() };
        let body: Value = serde_json::from_slice(&render(&request).body).unwrap();
        (body["reasoning"]["effort"].as_str().map(str::to_owned), body["include"].is_array())
    };
    let word = |word: &str| Some(word.to_owned());
    assert_eq!(effort(Thinking::Off), (word("none"), false));
    assert_eq!(effort(Thinking::Adaptive), (None, false));
    assert_eq!(effort(Thinking::Effort("xhigh".to_owned())), (word("xhigh"), true));
    assert_eq!(effort(Thinking::Budget(1024)), (word("low"), true));
    assert_eq!(effort(Thinking::Budget(2048)), (word("low"), true));
    assert_eq!(effort(Thinking::Budget(8192)), (word("medium"), true));
    assert_eq!(effort(Thinking::Budget(60_000)), (word("high"), true));
    let off = parse(&json!({ "model": "m", "input": "x", "reasoning": { "effort": "none" } })).unwrap();
    assert_eq!(off.thinking, Some(Thinking::Off));
}

#[test]
fn a_signature_keeps_its_meaning() {
    let reasoning = |text: &str, signature: Option<&str>, redacted: Option<&str>| Reasoning {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        redacted: redacted.map(str::to_owned),
    };
    for said in [
        reasoning("Hm", Some("sig"), None),
        reasoning("", Some("sig"), None),
        reasoning("", None, Some("gAAAA")),
    ] {
        let message = Message { role: Role::Assistant, parts: vec![Part::Reasoning(said)] };
        let request = Request { model: "m".to_owned(), messages: vec![message], ..Request::default() };
        let rendered = render(&request);
        assert_eq!(rendered.dropped, [""; 0]);
        let body: Value = serde_json::from_slice(&rendered.body).unwrap();
        assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
        assert_eq!(openai_responses::parse_request(&rendered.body).unwrap(), request);
    }
}

#[test]
fn media_are_refused_where_they_cannot_be_shown() {
    let place = |model: &str, kind: MediaKind, source: Source| {
        let media =
            Media { kind, source, name: None, detail: None, path: "messages[0].content[1]".to_owned() };
        let message = Message { role: Role::User, parts: vec![Part::Media(media)] };
        let request = Request { model: model.to_owned(), messages: vec![message], ..Request::default() };
        openai_responses::render_request(&request).err().map(|error| (error.code, error.param))
    };
    let refused = Some((Some("unsupported".to_owned()), Some("messages[0].content[1]".to_owned())));
    let url = || Source::Url("https://example.com/a".to_owned());
    assert_eq!(place("gpt-4o", MediaKind::Image, url()), None);
    assert_eq!(place("gpt-4o", MediaKind::Document, url()), None);
    assert_eq!(place("gpt-4o", MediaKind::Document, Source::File("file_1".to_owned())), refused);
    assert_eq!(place("olmo", MediaKind::Image, url()), refused);
    assert_eq!(place("olmo", MediaKind::Document, url()), refused);
    assert_eq!(place("olmo", MediaKind::Document, Source::Text("plain".to_owned())), None);
}

#[test]
fn the_other_dialects_hear_it() {
    let body = json!({
        "model": "claude-sonnet-4-5", "instructions": "Be brief.", "max_output_tokens": 50, "temperature": 1,
        "tools": [{ "type": "function", "name": "get_weather", "parameters": { "type": "object" } }],
        "tool_choice": "required",
        "input": [
            { "role": "user", "content": "Weather in Paris?" },
            { "type": "function_call", "call_id": "call_a", "name": "get_weather", "arguments": "{\"city\":\"Paris\"}" },
            { "type": "function_call_output", "call_id": "call_a", "output": "sunny" },
            { "role": "assistant", "content": "Sunny." },
            { "role": "user", "content": "Thanks" }
        ]
    });
    let request = parse(&body).unwrap();
    let claude = Dialect::Anthropic.render_request(&request).unwrap().body;
    assert_eq!(anthropic::parse_request(&claude).unwrap(), request);
    let chat = Dialect::OpenAiChat.render_request(&request).unwrap().body;
    assert_eq!(openai_chat::parse_request(&chat).unwrap(), request);
    // And back.
    assert_eq!(openai_responses::parse_request(&render(&request).body).unwrap().messages, request.messages);
}

#[test]
fn errors_name_the_place() {
    let place = |patch: Value| {
        let mut body = json!({ "model": "m", "input": "Hi" });
        patch.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        let error = parse(&body).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
        error.param.unwrap_or_default()
    };
    let item = |item: Value| place(json!({ "input": [{ "role": "user", "content": "Hi" }, item] }));
    let part = |part: Value| item(json!({ "role": "user", "content": [part] }));
    let all = [
        place(json!({ "model": null })),
        place(json!({ "input": null })),
        place(json!({ "input": [] })),
        place(json!({ "input": 3 })),
        place(json!({ "input": [{ "role": "system", "content": "alone" }] })),
        place(json!({ "instructions": ["a"] })),
        place(json!({ "previous_response_id": "resp_1" })),
        place(json!({ "conversation": "conv_1" })),
        place(json!({ "prompt": { "id": "pmpt_1" } })),
        place(json!({ "background": true })),
        place(json!({ "top_logprobs": 2 })),
        place(json!({ "include": ["reasoning.encrypted_content", "message.output_text.logprobs"] })),
        place(json!({ "tools": [{ "type": "web_search" }] })),
        place(json!({ "tools": [{ "type": "mcp", "server_url": "x" }] })),
        place(json!({ "tools": [{ "type": "function" }] })),
        place(json!({ "tool_choice": "maybe" })),
        place(json!({ "tool_choice": { "type": "allowed_tools", "mode": "auto", "tools": [] } })),
        place(json!({ "text": "x" })),
        place(json!({ "text": { "format": { "type": "grammar" } } })),
        place(json!({ "text": { "format": { "type": "json_schema", "name": "a" } } })),
        place(json!({ "reasoning": { "effort": 3 } })),
        place(json!({ "max_output_tokens": -1 })),
        place(json!({ "stream": "yes" })),
        item(json!("x")),
        item(json!({ "content": "x" })),
        item(json!({ "role": "robot", "content": "x" })),
        item(json!({ "role": "user" })),
        item(json!({ "type": "web_search_call", "id": "ws_1" })),
        item(json!({ "type": "item_reference", "id": "msg_1" })),
        item(json!({ "type": "reasoning", "summary": [{ "type": "summary_text" }] })),
        item(json!({ "type": "function_call", "name": "f", "arguments": "{}" })),
        item(json!({ "type": "function_call", "call_id": "a", "arguments": "{}" })),
        item(json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": "{\"a\":" })),
        item(json!({ "type": "function_call_output", "call_id": "a", "output": "orphan" })),
        item(
            json!({ "role": "assistant", "content": [{ "type": "input_image", "image_url": "https://a" }] }),
        ),
        item(json!({ "role": "developer", "content": [{ "type": "input_file", "file_url": "https://a" }] })),
        part(json!("x")),
        part(json!({ "text": "a" })),
        part(json!({ "type": "input_text" })),
        part(json!({ "type": "input_audio", "data": "" })),
        part(json!({ "type": "input_image" })),
        part(json!({ "type": "input_image", "image_url": { "url": "https://a" } })),
        part(json!({ "type": "input_image", "image_url": "data:image/png,raw" })),
        part(json!({ "type": "input_file", "filename": "a.pdf" })),
        part(json!({ "type": "input_file", "file_data": "JVBERi0=" })),
    ];
    assert_snapshot!(all.join("\n"));
}

#[test]
fn calls_and_their_results_must_match() {
    let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" });
    let output = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "x" });
    let code = |items: Value| {
        let error = parse(&json!({ "model": "m", "input": items })).unwrap_err();
        (error.code.unwrap_or_default(), error.param.unwrap_or_default())
    };
    let said = |code: &str, param: &str| (code.to_owned(), param.to_owned());
    assert_eq!(code(json!([call("a"), call("a")])), said("duplicate_tool_id", "input[1].call_id"));
    assert_eq!(code(json!([output("a"), call("a")])), said("orphan_tool_result", "input[0].call_id"));
    assert_eq!(
        code(json!([call("a"), output("a"), output("a")])),
        said("duplicate_tool_result", "input[2].call_id")
    );
}

#[test]
fn what_refers_to_a_stored_item_gets_a_hint() {
    let body = json!({ "model": "m", "input": [{ "type": "item_reference", "id": "msg_1" }] });
    let error = parse(&body).unwrap_err();
    assert!(error.message.contains("store: false"), "{}", error.message);
}

/// JSON whose keys and words are those of a request.
fn json_like() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "",
        "m",
        "user",
        "assistant",
        "developer",
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "input_text",
        "output_text",
        "refusal",
        "input_image",
        "input_file",
        "function",
        "json_schema",
        "auto",
        "data:image/png;base64,",
        "{}",
    ]);
    let key = prop::sample::select(vec![
        "type",
        "role",
        "content",
        "text",
        "refusal",
        "summary",
        "encrypted_content",
        "call_id",
        "name",
        "arguments",
        "output",
        "image_url",
        "file_data",
        "file_id",
        "format",
        "schema",
        "effort",
        "detail",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Into::into),
        any::<bool>().prop_map(Into::into),
        word.prop_map(Into::into)
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// A request that this dialect can say whole.
fn request() -> impl Strategy<Value = Request> {
    let text = || any::<String>().prop_map(Part::Text);
    let media = prop_oneof![
        "https://[a-z]{1,5}".prop_map(|url| (MediaKind::Image, Source::Url(url), None)),
        "[A-Za-z0-9]{1,5}".prop_map(|data| {
            let source = Source::Base64 { media_type: "application/pdf".to_owned(), data };
            (MediaKind::Document, source, Some("a.pdf".to_owned()))
        }),
    ];
    let media = media.prop_map(|(kind, source, name)| {
        Part::Media(Media { kind, source, name, detail: None, path: String::new() })
    });
    let thought = ("[a-z]{0,3}", "[a-zA-Z]{1,5}", any::<bool>()).prop_map(|(text, sealed, hidden)| {
        Part::Reasoning(if hidden {
            Reasoning { redacted: Some(sealed), ..Reasoning::default() }
        } else {
            Reasoning { text, signature: Some(sealed), redacted: None }
        })
    });
    let turn = (
        prop::collection::vec(prop_oneof![2 => text(), 1 => media.clone()], 1..3),
        prop::collection::vec(prop_oneof![text(), thought], 1..4),
        prop::collection::vec(
            (any::<String>(), prop::collection::vec(prop_oneof![text(), media], 1..3)),
            0..3,
        ),
    );
    let options = (any::<Option<u32>>(), any::<Option<bool>>(), 0..5_u8, any::<bool>(), any::<Option<u8>>());
    (prop::collection::vec(turn, 1..4), options).prop_map(
        |(turns, (max, parallel, choice, stream, system))| {
            let mut messages = Vec::new();
            for (at, (asked, mut said, calls)) in turns.into_iter().enumerate() {
                messages.push(Message { role: Role::User, parts: asked });
                let mut results = Vec::new();
                for (number, (note, content)) in calls.into_iter().enumerate() {
                    let id = format!("call_{at}_{number}");
                    let arguments = json!({ "note": note }).to_string();
                    said.push(Part::ToolCall { id: id.clone(), name: "f".to_owned(), arguments });
                    results.push(Part::ToolResult { id, content, is_error: false });
                }
                messages.push(Message { role: Role::Assistant, parts: said });
                if !results.is_empty() {
                    messages.push(Message { role: Role::Tool, parts: results });
                }
            }
            let choices =
                [ToolChoice::Auto, ToolChoice::None, ToolChoice::Required, ToolChoice::Named("f".to_owned())];
            let tool =
                Tool { name: "f".to_owned(), description: None, parameters: json!({}), strict: Some(false) };
            Request {
                model: "gpt-4o".to_owned(),
                stream,
                system: system.map(|byte| Part::Text(byte.to_string())).into_iter().collect(),
                messages,
                tools: vec![tool],
                tool_choice: choices.get(usize::from(choice)).cloned(),
                parallel_tools: parallel,
                max_tokens: max.map(u64::from),
                format: stream.then_some(Format::Json),
                ..Request::default()
            }
        },
    )
}

/// Without the places of media, which are those of the request they came in.
fn without_places(mut request: Request) -> Request {
    fn forget(parts: &mut [Part]) {
        for part in parts {
            match part {
                Part::Media(media) => media.path.clear(),
                Part::ToolResult { content, .. } => forget(content),
                _ => {}
            }
        }
    }
    request.messages.iter_mut().for_each(|message| forget(&mut message.parts));
    request
}

proptest! {
    #[test]
    fn a_request_survives_its_own_dialect(request in request()) {
        let rendered = render(&request);
        prop_assert_eq!(&rendered.dropped, &Vec::<String>::new());
        let again = openai_responses::parse_request(&rendered.body).unwrap();
        prop_assert_eq!(without_places(again), request);
    }

    #[test]
    fn no_request_makes_it_panic(input in json_like(), other in json_like(), bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = openai_responses::parse_request(&bytes);
        for name in ["tools", "tool_choice", "text", "reasoning", "include", "instructions"] {
            let body = json!({ "model": "gpt-4o", "input": [{ "role": "user", "content": "x" }, input], name: other });
            let rendered = parse(&body).and_then(|request| openai_responses::render_request(&request));
            if let Ok(rendered) = rendered {
                prop_assert!(openai_responses::parse_request(&rendered.body).is_ok());
            }
        }
    }
}
