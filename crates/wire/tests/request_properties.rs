//! What must hold for every request: what is rendered is read back, no text is lost on the way into
//! another dialect, and a request that is wrong anywhere is refused, not feared.

use firsttoken_wire::chat::{
    Format, Media, MediaKind, Message, Part, Reasoning, Request, Role, Source, Thinking, Tool, ToolChoice,
};
use firsttoken_wire::{Dialect, ErrorKind};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// Text that says something.
fn text() -> impl Strategy<Value = String> {
    ("[a-zé\"\\\\]", any::<String>()).prop_map(|(first, rest)| first + &rest)
}

/// A number that JSON holds exactly.
fn quarters(most: u8) -> impl Strategy<Value = f64> {
    (0..=most).prop_map(|quarter| f64::from(quarter) / 4.0)
}

fn media(dialect: Dialect) -> impl Strategy<Value = Part> {
    let image = prop_oneof![
        Just(Source::Url("https://example.org/a".to_owned())),
        Just(Source::Base64 { media_type: "image/png".to_owned(), data: "AA==".to_owned() }),
    ];
    let detail =
        if dialect == Dialect::OpenAiChat { of(Just("high".to_owned())).boxed() } else { Just(None).boxed() };
    let image = (image, detail).prop_map(|(source, detail)| (MediaKind::Image, source, None, detail));
    let pdf = Source::Base64 { media_type: "application/pdf".to_owned(), data: "AA==".to_owned() };
    let document = if dialect == Dialect::OpenAiChat {
        // A name is made up where there is none.
        text().prop_map(move |name| (pdf.clone(), Some(name))).boxed()
    } else {
        let source = prop_oneof![
            Just(pdf),
            text().prop_map(Source::Text),
            Just(Source::Url("https://a/b".to_owned()))
        ];
        (source, of(text())).boxed()
    };
    let document = document.prop_map(|(source, name)| (MediaKind::Document, source, name, None));
    prop_oneof![image, document].prop_map(|(kind, source, name, detail)| {
        Part::Media(Media { kind, source, name, detail, path: String::new() })
    })
}

/// One turn of the conversation: what the user says, and what comes of it.
#[derive(Clone, Debug)]
struct Turn {
    asked: Vec<Part>,
    thought: Vec<Reasoning>,
    said: Option<String>,
    calls: Vec<(String, Vec<Part>, bool)>,
}

fn turn(dialect: Dialect) -> impl Strategy<Value = Turn> {
    let part = || prop_oneof![2 => text().prop_map(Part::Text), 1 => media(dialect)];
    let block = (text(), text(), any::<bool>()).prop_map(|(text, proof, hidden)| match hidden {
        true => Reasoning { redacted: Some(proof), ..Reasoning::default() },
        false => Reasoning { text, signature: Some(proof), redacted: None },
    });
    let claude = dialect == Dialect::Anthropic;
    let result = if claude {
        vec(part(), 0..3).boxed()
    } else {
        text().prop_map(|text| vec![Part::Text(text)]).boxed()
    };
    let failed = any::<bool>().prop_map(move |failed| failed && claude);
    let call = ("[a-z]{1,5}", result, failed);
    (vec(part(), 1..4), vec(block, 0..3), of(text()), vec(call, 0..3))
        .prop_map(|(asked, thought, said, calls)| Turn { asked, thought, said, calls })
}

/// The messages of these turns, in the form in which `dialect` is read; they end with the user.
fn conversation(dialect: Dialect, turns: Vec<Turn>, last: Vec<Part>) -> Vec<Message> {
    let mut all = Vec::new();
    let mut count = 0;
    for turn in turns {
        all.push(Message { role: Role::User, parts: turn.asked });
        let mut parts: Vec<Part> = turn.thought.into_iter().map(Part::Reasoning).collect();
        parts.extend(turn.said.map(Part::Text));
        let mut results = Vec::new();
        for (name, content, is_error) in turn.calls {
            count += 1;
            let (id, arguments) = (format!("call_{count}"), json!({ "n": count }).to_string());
            parts.push(Part::ToolCall { id: id.clone(), name, arguments });
            results.push(Part::ToolResult { id, content, is_error });
        }
        if parts.is_empty() {
            parts.push(Part::Text("Well.".to_owned()));
        }
        all.push(Message { role: Role::Assistant, parts });
        // One message for all results, or one for each.
        let at_once = if dialect == Dialect::Anthropic { results.len().max(1) } else { 1 };
        all.extend(results.chunks(at_once).map(|parts| Message { role: Role::Tool, parts: parts.to_vec() }));
    }
    all.push(Message { role: Role::User, parts: last });
    all
}

fn tools() -> impl Strategy<Value = (Vec<Tool>, Option<(ToolChoice, Option<bool>)>)> {
    let tool = ("[a-z]{1,5}", of(text()), of(any::<bool>())).prop_map(|(name, description, strict)| Tool {
        name,
        description,
        parameters: json!({ "type": "object", "properties": { "z": {}, "a": {} } }),
        strict,
    });
    let choice = prop_oneof![
        (Just(ToolChoice::None), Just(None)),
        (
            select(vec![ToolChoice::Auto, ToolChoice::Required, ToolChoice::Named("f".to_owned())]),
            of(any::<bool>())
        ),
    ];
    (vec(tool, 0..3), of(choice)).prop_map(|(tools, choice)| {
        let choice = choice.filter(|_| !tools.is_empty());
        (tools, choice)
    })
}

fn asked(dialect: Dialect) -> impl Strategy<Value = Request> {
    let talk = (vec(turn(dialect), 0..4), vec(text().prop_map(Part::Text), 1..3), vec(text(), 0..3));
    let sampling = (of(quarters(4)), of(quarters(4)), of(0..9_u64), of(any::<i64>()), of(quarters(8)));
    let schema = (text(), of(text()), of(any::<bool>()));
    let rest = (any::<bool>(), vec("[a-z]{1,3}", 0..3), of(schema), of(text()), of(1024..30_000_u64));
    (talk, tools(), sampling, rest).prop_map(move |(talk, tools, sampling, rest)| {
        let (turns, last, system) = talk;
        let (tools, choice) = tools;
        let (temperature, top_p, top_k, seed, penalty) = sampling;
        let (stream, stop, schema, user, budget) = rest;
        let (tool_choice, parallel_tools) =
            choice.map_or((None, None), |(choice, many)| (Some(choice), many));
        let mut request = Request {
            // It takes everything, in both dialects.
            model: "claude-sonnet-4-5".to_owned(),
            messages: conversation(dialect, turns, last),
            max_tokens: Some(40_000),
            ..Request {
                stream,
                tools,
                tool_choice,
                parallel_tools,
                temperature,
                top_k,
                stop,
                user,
                ..Request::default()
            }
        };
        if dialect == Dialect::Anthropic {
            request.system = system.into_iter().map(Part::Text).collect();
            request.top_p = top_p.filter(|_| temperature.is_none());
            request.format = schema.map(|_| Format::Schema {
                name: None,
                description: None,
                schema: json!({}),
                strict: None,
            });
            let forced = matches!(request.tool_choice, Some(ToolChoice::Required | ToolChoice::Named(_)));
            if let Some(budget) = budget.filter(|_| !forced) {
                request.thinking = Some(Thinking::Budget(budget));
                (request.temperature, request.top_p, request.top_k) = (None, None, None);
            }
        } else {
            request.system = system.into_iter().take(1).map(Part::Text).collect();
            (request.top_p, request.seed, request.presence_penalty) = (top_p, seed, penalty);
            request.thinking = budget.map(|budget| match budget % 3 {
                0 => Thinking::Off,
                1 => Thinking::Effort("low".to_owned()),
                _ => Thinking::Effort("odd".to_owned()),
            });
            request.format = schema.map(|(name, description, strict)| Format::Schema {
                name: Some(name),
                description,
                schema: json!({ "type": "object" }),
                strict,
            });
        }
        request
    })
}

/// A request without the places of its media.
fn placeless(mut request: Request) -> Request {
    for part in request.messages.iter_mut().flat_map(|message| &mut message.parts) {
        let inner = if let Part::ToolResult { content, .. } = part {
            content.iter_mut()
        } else {
            std::slice::from_mut(part).iter_mut()
        };
        for part in inner {
            if let Part::Media(media) = part {
                media.path.clear();
            }
        }
    }
    request
}

/// All that is said in it, without what only one dialect can hold apart.
fn said(request: &Request) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let system: Vec<&str> = request.system.iter().filter_map(Part::text).collect();
    all.push(system.join("\n\n"));
    for part in request.messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Text(text) => all.push(text.clone()),
            Part::Reasoning(block) => all.push(format!("{block:?}")),
            Part::ToolCall { .. } => all.push(format!("{part:?}")),
            Part::ToolResult { id, content, .. } => {
                let texts: Vec<&str> = content.iter().filter_map(Part::text).collect();
                all.push(format!("{id}: {}", texts.join("\n")));
            }
            Part::Media(_) => {}
        }
    }
    all
}

/// Puts `junk` in place of the `at`th value of `value`, counted depth first.
fn spoil(value: &mut Value, at: &mut usize, junk: &Value) {
    if *at == 0 {
        *value = junk.clone();
    }
    *at = at.wrapping_sub(1);
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| spoil(value, at, junk)),
        Value::Object(fields) => fields.values_mut().for_each(|value| spoil(value, at, junk)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn junk() -> impl Strategy<Value = Value> {
    select(vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("x"),
        json!([]),
        json!([null]),
        json!(["x"]),
        json!({}),
        json!({ "type": "text" }),
        json!({ "type": "image_url" }),
        json!([[{}]]),
    ])
}

proptest! {
    #[test]
    fn openai_chat_reads_the_request_it_renders(request in asked(Dialect::OpenAiChat)) {
        let rendered = Dialect::OpenAiChat.render_request(&request).unwrap();
        prop_assert_eq!(&rendered.dropped, &Vec::<String>::new());
        let read = Dialect::OpenAiChat.parse_request(&rendered.body).unwrap().unwrap();
        prop_assert_eq!(placeless(read), request);
    }

    #[test]
    fn anthropic_reads_the_request_it_renders(request in asked(Dialect::Anthropic)) {
        let rendered = Dialect::Anthropic.render_request(&request).unwrap();
        prop_assert_eq!(&rendered.dropped, &Vec::<String>::new());
        let read = Dialect::Anthropic.parse_request(&rendered.body).unwrap().unwrap();
        prop_assert_eq!(placeless(read), request);
    }

    #[test]
    fn no_text_is_lost_in_another_dialect(openai in asked(Dialect::OpenAiChat), claude in asked(Dialect::Anthropic)) {
        let there = Dialect::Anthropic.render_request(&openai).unwrap();
        let read = Dialect::Anthropic.parse_request(&there.body).unwrap().unwrap();
        prop_assert_eq!(said(&read), said(&openai));
        // What Chat Completions cannot hold is refused; a document that is text is text there.
        if let Ok(there) = Dialect::OpenAiChat.render_request(&claude) {
            let read = Dialect::OpenAiChat.parse_request(&there.body).unwrap().unwrap();
            let texts = said(&read);
            prop_assert!(said(&claude).iter().all(|text| texts.contains(text)));
        }
    }

    #[test]
    fn a_spoilt_request_is_refused_or_read(
        openai in asked(Dialect::OpenAiChat),
        claude in asked(Dialect::Anthropic),
        at in any::<prop::sample::Index>(),
        junk in junk(),
    ) {
        for (dialect, request) in [(Dialect::OpenAiChat, openai), (Dialect::Anthropic, claude)] {
            let body = dialect.render_request(&request).unwrap().body;
            let mut body: Value = serde_json::from_slice(&body).unwrap();
            let mut at = at.index(count(&body));
            spoil(&mut body, &mut at, &junk);
            match dialect.parse_request(body.to_string().as_bytes()).unwrap() {
                Ok(request) => for dialect in [Dialect::OpenAiChat, Dialect::Anthropic] {
                    if let Err(error) = dialect.render_request(&request) {
                        prop_assert!(error.param.is_some(), "{:?}", error);
                    }
                },
                Err(error) => {
                    prop_assert_eq!(error.kind, ErrorKind::InvalidRequest);
                    // Where the whole is no object there is no field to name.
                    prop_assert!(!body.is_object() || names_a_place(&body, error.param.as_deref().unwrap_or_default()), "{:?}\n{}", error, body);
                }
            }
        }
    }
}

/// Whether `path` is one of `body`, but for its last step, which may be the field that is missing.
fn names_a_place(body: &Value, path: &str) -> bool {
    let steps: Vec<String> = path.replace('[', ".[").split('.').map(str::to_owned).collect();
    let (Some(last), Some(before)) = (steps.last(), steps.get(..steps.len().saturating_sub(1))) else {
        return false;
    };
    let mut at = body;
    for step in before {
        let next = match step.strip_prefix('[').and_then(|step| step.strip_suffix(']')) {
            Some(index) => index.parse::<usize>().ok().and_then(|index| at.get(index)),
            None => at.get(step),
        };
        let Some(next) = next else { return false };
        at = next;
    }
    !last.is_empty()
}
