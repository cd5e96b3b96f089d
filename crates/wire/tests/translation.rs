//! Requests with all that they can hold, from one dialect to another and back: what the other side can
//! say is said, and the rest is named.

use firsttoken_wire::chat::{Format, MediaKind, Part, Reasoning, Request, Source, Thinking};
use firsttoken_wire::{Dialect, Rendered};
use insta::{assert_debug_snapshot, assert_snapshot};
use serde_json::{Value, json};

fn openai_example() -> Value {
    serde_json::from_str(include_str!("golden/requests/openai_chat.json")).expect("JSON")
}

fn anthropic_example() -> Value {
    serde_json::from_str(include_str!("golden/requests/anthropic.json")).expect("JSON")
}

fn parse(dialect: Dialect, body: &Value) -> Request {
    dialect.parse_request(body.to_string().as_bytes()).expect("translated").expect("read")
}

fn written(rendered: &Rendered) -> String {
    let body: Value = serde_json::from_slice(&rendered.body).expect("JSON");
    format!("dropped: {}\n{body:#}", rendered.dropped.join(", "))
}

fn body(rendered: &Rendered) -> Value {
    serde_json::from_slice(&rendered.body).expect("JSON")
}

/// What another dialect made of `request`, read back.
fn again(dialect: Dialect, request: &Request) -> Request {
    let rendered = dialect.render_request(request).expect("written");
    dialect.parse_request(&rendered.body).expect("translated").expect("read")
}

#[test]
fn openai_to_anthropic() {
    let request = parse(Dialect::OpenAiChat, &openai_example());
    assert_debug_snapshot!(request);
    assert_snapshot!(
        "openai_to_anthropic_body",
        written(&Dialect::Anthropic.render_request(&request).unwrap())
    );
}

#[test]
fn anthropic_to_openai() {
    let request = parse(Dialect::Anthropic, &anthropic_example());
    assert_debug_snapshot!(request);
    assert_snapshot!(
        "anthropic_to_openai_body",
        written(&Dialect::OpenAiChat.render_request(&request).unwrap())
    );
}

/// A request without what its own dialect's renderer leaves to others: where media stand, and the names
/// of what was lost before.
fn bare(mut request: Request) -> Request {
    request.rest.clear();
    request.dropped.clear();
    let mut parts: Vec<&mut Part> =
        request.messages.iter_mut().flat_map(|message| &mut message.parts).collect();
    while let Some(part) = parts.pop() {
        match part {
            Part::Media(media) => media.path.clear(),
            Part::ToolResult { content, .. } => parts.extend(content),
            Part::Text(_) | Part::Reasoning(_) | Part::ToolCall { .. } => {}
        }
    }
    request
}

#[test]
fn a_request_survives_its_own_dialect() {
    let mut request = parse(Dialect::Anthropic, &anthropic_example());
    // The model must be one that takes all of it.
    request.model = "claude-sonnet-4-5".to_owned();
    request.tool_choice = None;
    request.parallel_tools = None;
    request.temperature = None;
    request.top_k = None;
    let rendered = Dialect::Anthropic.render_request(&bare(request.clone())).unwrap();
    let mut expected = bare(request);
    // The budget stays below the bound of the answer.
    expected.thinking = Some(Thinking::Budget(3999));
    assert_eq!(rendered.dropped, Vec::<String>::new());
    assert_eq!(bare(parse(Dialect::Anthropic, &body(&rendered))), expected);

    let mut request = bare(parse(Dialect::OpenAiChat, &openai_example()));
    // Bare thinking no model of this family wants back, and media in results have no place here.
    request.messages[2].parts.retain(|part| !matches!(part, Part::Reasoning(block) if block.signature.is_none() && block.redacted.is_none()));
    if let Part::ToolResult { content, .. } = &mut request.messages[4].parts[0] {
        content.truncate(1);
    }
    let rendered = Dialect::OpenAiChat.render_request(&request).unwrap();
    assert_eq!(rendered.dropped, Vec::<String>::new());
    assert_eq!(bare(parse(Dialect::OpenAiChat, &body(&rendered))), request);
}

/// Anthropic → OpenAI → Anthropic: equal but for what was named, or has another form for the same.
#[test]
fn anthropic_there_and_back() {
    let mut body = anthropic_example();
    body["model"] = json!("claude-sonnet-4-5");
    let request = parse(Dialect::Anthropic, &body);
    let there = Dialect::OpenAiChat.render_request(&request).unwrap();
    assert_eq!(
        there.dropped,
        ["cache_control", "citations", "display", "effort", "service_tier", "is_error"]
    );
    let back = bare(parse(Dialect::OpenAiChat, &self::body(&there)));
    let before = bare(request);
    // Said in a word, and in one message each.
    assert_eq!(back.thinking, Some(Thinking::Effort("medium".to_owned())));
    assert_eq!(back.system, [Part::Text("Be brief.\n\nBe kind.".to_owned())]);
    assert_eq!(back.messages[1], before.messages[1], "the turn of the assistant, its signature included");
    let results = |request: &Request| -> Vec<String> {
        let parts = request.messages.iter().flat_map(|message| &message.parts);
        parts
            .filter_map(|part| match part {
                Part::ToolResult { id, content, .. } => Some(format!("{id}: {:?}", content[0])),
                _ => None,
            })
            .collect()
    };
    assert_eq!(results(&back), results(&before));
    let media = |request: &Request| -> Vec<(MediaKind, Source)> {
        let mut all = Vec::new();
        for part in request.messages.iter().flat_map(|message| &message.parts) {
            match part {
                Part::Media(media) => all.push((media.kind, media.source.clone())),
                Part::ToolResult { content, .. } => {
                    all.extend(content.iter().filter_map(|part| match part {
                        Part::Media(media) => Some((media.kind, media.source.clone())),
                        _ => None,
                    }))
                }
                _ => {}
            }
        }
        // A text document is text there.
        all.retain(|(_, source)| !matches!(source, Source::Text(_)));
        all
    };
    assert_eq!(media(&back), media(&before));
    assert_eq!(media(&back).len(), 4);
    let texts = |request: &Request| {
        format!(
            "{:?}",
            request
                .messages
                .iter()
                .flat_map(|message| &message.parts)
                .filter_map(Part::text)
                .collect::<Vec<_>>()
        )
    };
    assert_eq!(texts(&back), r#"["What is this?", "B\n\nhi", "ho", "I look.", "And?"]"#);
    for (one, other) in [
        (json!(back.max_tokens), json!(before.max_tokens)),
        (json!(back.temperature), json!(before.temperature)),
        (json!(back.top_k), json!(before.top_k)),
        (json!(back.stop), json!(before.stop)),
        (json!(back.user), json!(before.user)),
        (json!(back.parallel_tools), json!(before.parallel_tools)),
    ] {
        assert_eq!(one, other);
    }
    assert_eq!((&back.tools, &back.tool_choice), (&before.tools, &before.tool_choice));
    let schema = |request: &Request| match &request.format {
        Some(Format::Schema { schema, .. }) => schema.clone(),
        _ => Value::Null,
    };
    assert_eq!(schema(&back), schema(&before));
}

/// OpenAI → Anthropic → OpenAI, likewise.
#[test]
fn openai_there_and_back() {
    let request = parse(Dialect::OpenAiChat, &openai_example());
    let there = Dialect::Anthropic.render_request(&request).unwrap();
    assert_eq!(
        there.dropped,
        [
            "name",
            "reasoning_details",
            "logit_bias",
            "detail",
            "reasoning",
            "seed",
            "presence_penalty",
            "stop"
        ]
    );
    let back = bare(parse(Dialect::Anthropic, &body(&there)));
    let before = bare(request);
    assert_eq!(back.system, before.system);
    // Two messages of one role are one turn there.
    let said: Vec<&str> = back.messages[0].parts.iter().filter_map(Part::text).collect();
    assert_eq!(said, ["What is this?", "Hurry."]);
    let calls = |request: &Request| -> Vec<Part> {
        let parts = request.messages.iter().flat_map(|message| &message.parts);
        parts
            .filter(|part| matches!(part, Part::ToolCall { .. } | Part::ToolResult { .. }))
            .cloned()
            .collect()
    };
    let mut expected = calls(&before);
    // No arguments are an empty object there.
    expected[1] =
        Part::ToolCall { id: "call_b".to_owned(), name: "listen".to_owned(), arguments: "{}".to_owned() };
    assert_eq!(calls(&back), expected);
    assert_eq!(back.messages[1].parts[..2], before.messages[2].parts[..2], "what is signed or redacted");
    assert_eq!((back.max_tokens, &back.user), (before.max_tokens, &before.user));
    assert_eq!(back.parallel_tools, before.parallel_tools);
}

/// A turn of an assistant that thought, as the callers of OpenAI's dialect keep it.
#[test]
fn a_signature_survives_however_it_was_kept() {
    let proof = |parts: Vec<Value>, shown: Value| {
        let body = json!({ "model": "claude-sonnet-4-5", "messages": [
            { "role": "user", "content": "Hi" },
            { "role": "assistant", "content": "Ho", "reasoning_content": shown, "reasoning_details": parts },
            { "role": "user", "content": "Hi" }] });
        let request = parse(Dialect::OpenAiChat, &body);
        let blocks = request.messages[1].parts.iter().filter_map(|part| match part {
            Part::Reasoning(block) => Some(block.clone()),
            _ => None,
        });
        blocks.collect::<Vec<Reasoning>>()
    };
    let signed = |text: &str, signature: &str| Reasoning {
        text: text.to_owned(),
        signature: Some(signature.to_owned()),
        redacted: None,
    };
    let text = |text: &str| json!({ "type": "reasoning.text", "text": text });
    let signature = |sig: &str| json!({ "type": "reasoning.text", "text": "", "signature": sig });
    let redacted = Reasoning { redacted: Some("x".to_owned()), ..Reasoning::default() };
    let hidden = json!({ "type": "reasoning.encrypted", "data": "x" });
    // As we stream it: the text apart.
    assert_eq!(proof(vec![signature("s")], json!("ab")), [signed("ab", "s")]);
    assert_eq!(
        proof(vec![hidden.clone(), signature("s")], json!("ab")),
        [redacted.clone(), signed("ab", "s")]
    );
    // As others stream it: the text in both, piece by piece.
    assert_eq!(proof(vec![text("a"), text("b"), signature("s")], json!("ab")), [signed("ab", "s")]);
    // Several signatures, one text: each stands for itself.
    assert_eq!(proof(vec![signature("s"), signature("t")], json!("ab")), [signed("", "s"), signed("", "t")]);
    // Nothing but a text, and what is not signed by whom we think.
    let bare = Reasoning { text: "ab".to_owned(), ..Reasoning::default() };
    assert_eq!(proof(vec![], json!("ab")), std::slice::from_ref(&bare));
    assert_eq!(proof(vec![hidden], json!("ab")), [bare.clone(), redacted]);
    let foreign =
        json!({ "type": "reasoning.text", "text": "ab", "signature": "s", "format": "google-gemini-v1" });
    assert_eq!(proof(vec![foreign], json!(null)), [bare]);
}

#[test]
fn thinking_as_each_model_is_told() {
    let told = |dialect: Dialect, model: &str, thinking: Thinking, max_tokens: Option<u64>| {
        let mut request = parse(
            Dialect::OpenAiChat,
            &json!({ "model": model, "messages": [{ "role": "user", "content": "Hi" }] }),
        );
        request.thinking = Some(thinking);
        request.max_tokens = max_tokens;
        let rendered = dialect.render_request(&request).unwrap();
        let body = body(&rendered);
        let said: Vec<String> = [&body["thinking"], &body["output_config"], &body["reasoning_effort"]]
            .into_iter()
            .filter(|value| !value.is_null())
            .map(Value::to_string)
            .collect();
        format!("{} [{}]", said.join(" "), rendered.dropped.join(" "))
    };
    let effort = |word: &str| Thinking::Effort(word.to_owned());
    let mut lines = String::new();
    for (dialect, models) in [
        (Dialect::Anthropic, ["claude-3-5-haiku", "claude-sonnet-4-5", "claude-opus-5", "claude-fable-5"]),
        (Dialect::OpenAiChat, ["gpt-4o", "gpt-5-mini", "gpt-5.1", "anthropic/claude-opus-5"]),
    ] {
        for model in models {
            for thinking in [
                Thinking::Off,
                Thinking::Adaptive,
                effort("minimal"),
                effort("high"),
                effort("max"),
                effort("odd"),
                Thinking::Budget(500),
                Thinking::Budget(9000),
                Thinking::Budget(90_000),
            ] {
                let said = told(dialect, model, thinking.clone(), None);
                lines.push_str(&format!("{model} {thinking:?}: {said}\n"));
            }
        }
    }
    assert_snapshot!(lines);
    // Below the bound of the answer, and not at all where there is no room.
    let budget =
        |thinking: Thinking, max: u64| told(Dialect::Anthropic, "claude-sonnet-4-5", thinking, Some(max));
    assert_eq!(budget(Thinking::Budget(9000), 5000), r#"{"type":"enabled","budget_tokens":4999} []"#);
    assert_eq!(budget(effort("high"), 5000), r#"{"type":"enabled","budget_tokens":2500} []"#);
    assert_eq!(budget(effort("high"), 1025), r#"{"type":"enabled","budget_tokens":1024} []"#);
    assert_eq!(budget(effort("high"), 1024), " [thinking]");
}

/// Renders `body` of OpenAI's dialect for Anthropic.
fn for_claude(patch: Value) -> (Value, Vec<String>) {
    let mut whole =
        json!({ "model": "claude-sonnet-4-5", "messages": [{ "role": "user", "content": "Hi" }] });
    patch.as_object().expect("known").iter().for_each(|(key, value)| whole[key] = value.clone());
    let rendered = Dialect::Anthropic.render_request(&parse(Dialect::OpenAiChat, &whole)).expect("known");
    (body(&rendered), rendered.dropped)
}

#[test]
fn what_goes_not_together_with_thinking() {
    let (body, dropped) =
        for_claude(json!({ "reasoning_effort": "low", "temperature": 0.2, "top_p": 0.5, "top_k": 3 }));
    assert_eq!(dropped, ["temperature", "top_p", "top_k"]);
    assert_eq!(body["thinking"]["type"], "enabled");
    let (body, dropped) = for_claude(json!({ "reasoning_effort": "low", "temperature": 1, "top_p": 0.95 }));
    assert!(dropped.is_empty() && body["top_p"] == 0.95 && body.get("temperature").is_none());
    let tool = json!([{ "type": "function", "function": { "name": "f" } }]);
    let (body, dropped) =
        for_claude(json!({ "reasoning_effort": "low", "tools": tool, "tool_choice": "required" }));
    assert_eq!((dropped, body.get("thinking")), (vec!["thinking".to_owned()], None));
    let (body, dropped) = for_claude(json!({ "reasoning_effort": "low", "messages": [
        { "role": "user", "content": "Hi" }, { "role": "assistant", "content": "{" }] }));
    assert_eq!((dropped, body.get("thinking")), (vec!["thinking".to_owned()], None));
    assert_eq!(body["messages"][1]["role"], "assistant");
    // In the middle of a tool's use, thinking must go on from thinking.
    let turn = |details: Value| {
        json!({ "reasoning_effort": "low", "tools": tool, "messages": [
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "reasoning_details": details, "tool_calls": [{ "id": "a", "function": { "name": "f" } }] },
        { "role": "tool", "tool_call_id": "a", "content": "x" }] })
    };
    assert_eq!(for_claude(turn(json!([]))).1, ["thinking"]);
    assert!(
        for_claude(turn(json!([{ "type": "reasoning.text", "text": "a", "signature": "s" }]))).1.is_empty()
    );
    let mut newer = turn(json!([]));
    newer["model"] = json!("claude-opus-5");
    assert!(for_claude(newer).1.is_empty());
}

#[test]
fn sampling_as_each_model_takes_it() {
    let sampling = json!({ "temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": 1, "stop": ["x"] });
    let with = |model: &str, extra: Value| {
        let mut patch = sampling.clone();
        patch["model"] = json!(model);
        extra.as_object().unwrap().iter().for_each(|(key, value)| patch[key] = value.clone());
        patch
    };
    let none = json!({});
    assert_eq!(for_claude(with("claude-3-5-haiku", none.clone())).1, ["seed"]);
    assert_eq!(for_claude(with("claude-sonnet-4-5", none.clone())).1, ["top_p", "seed"]);
    assert_eq!(
        for_claude(with("claude-sonnet-4-5", json!({ "temperature": 1.5 }))).1,
        ["temperature", "seed"]
    );
    assert_eq!(for_claude(with("claude-opus-5", none)).1, ["temperature", "top_p", "top_k", "seed"]);
    let defaults =
        json!({ "temperature": 1, "top_p": 1, "top_k": null, "seed": null, "presence_penalty": 0 });
    assert!(for_claude(with("claude-opus-5", defaults)).1.is_empty());
    let openai = |model: &str| {
        let mut whole = with(model, json!({ "presence_penalty": 1 }));
        whole["messages"] = json!([{ "role": "user", "content": "Hi" }]);
        Dialect::OpenAiChat.render_request(&parse(Dialect::OpenAiChat, &whole)).unwrap().dropped
    };
    assert_eq!(openai("gpt-4o"), ["top_k"]);
    assert_eq!(openai("gpt-5"), ["temperature", "top_p", "top_k", "presence_penalty", "stop"]);
    assert!(openai("Qwen/Qwen3-8B").is_empty());
}

#[test]
fn formats_and_tools_as_each_model_takes_them() {
    let schema =
        json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": {}, "description": "d" } });
    let (body, dropped) = for_claude(json!({ "response_format": schema }));
    assert_eq!(body["output_config"]["format"], json!({ "type": "json_schema", "schema": {} }));
    assert_eq!(dropped, ["format.description"]);
    assert_eq!(for_claude(json!({ "model": "claude-3-5-haiku", "response_format": schema })).1, ["format"]);
    assert_eq!(for_claude(json!({ "response_format": { "type": "json_object" } })).1, ["format"]);
    let strict = json!([{ "type": "function", "function": { "name": "f", "strict": true } }]);
    let (body, dropped) = for_claude(json!({ "tools": strict, "parallel_tool_calls": false }));
    assert_eq!((body["tools"][0]["strict"].as_bool(), dropped.len()), (Some(true), 0));
    assert_eq!(body["tool_choice"], json!({ "type": "auto", "disable_parallel_tool_use": true }));
    assert_eq!(for_claude(json!({ "model": "claude-3-5-haiku", "tools": strict })).1, ["strict"]);
    let bare = json!({ "tool_choice": "auto", "parallel_tool_calls": true });
    assert_eq!(for_claude(bare).1, ["tool_choice", "parallel_tools"]);
}

#[test]
fn bare_thinking_goes_back_only_to_whom_it_helps() {
    let request = |model: &str| {
        parse(
            Dialect::Anthropic,
            &json!({ "model": model, "max_tokens": 9, "messages": [
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": [{ "type": "thinking", "thinking": "Hm.", "signature": "" }, { "type": "text", "text": "Ho" }] },
        { "role": "user", "content": "Hi" }] }),
        )
    };
    let rendered = Dialect::OpenAiChat.render_request(&request("deepseek-chat")).unwrap();
    assert_eq!(body(&rendered)["messages"][1]["reasoning_content"], "Hm.");
    assert!(rendered.dropped.is_empty());
    for model in ["gpt-5", "olmo", "claude-opus-5"] {
        assert_eq!(
            Dialect::OpenAiChat.render_request(&request(model)).unwrap().dropped,
            ["reasoning"],
            "{model}"
        );
    }
    assert_eq!(Dialect::Anthropic.render_request(&request("claude-opus-5")).unwrap().dropped, ["reasoning"]);
    let back = again(Dialect::OpenAiChat, &bare(request("deepseek-chat")));
    assert_eq!(back.messages, request("deepseek-chat").messages);
}
