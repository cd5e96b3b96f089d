//! Chat templates of the well-known families, written anew from what is published about their formats,
//! and the prompts that they give.

use firsttoken_engine::template::{Conversation, Template, TemplateError, UnixSeconds};
use firsttoken_engine::vocabulary::{Bytes, Vocabulary as _};
use insta::assert_snapshot;
use serde_json::{Map, Value, json};

const CHATML: &str = include_str!("templates/chatml.jinja");
const LLAMA3: &str = include_str!("templates/llama3.jinja");
const MISTRAL: &str = include_str!("templates/mistral.jinja");
const GEMMA: &str = include_str!("templates/gemma.jinja");
const PHI: &str = include_str!("templates/phi.jinja");
const DEEPSEEK: &str = include_str!("templates/deepseek.jinja");

fn render(source: &str, messages: &Value, tools: Option<&Value>) -> Result<String, TemplateError> {
    rendered(source, messages, tools, &Map::new())
}

fn rendered(
    source: &str,
    messages: &Value,
    tools: Option<&Value>,
    variables: &Map<String, Value>,
) -> Result<String, TemplateError> {
    let now = UnixSeconds(1_753_488_000);
    let template = Template::new(source, "<s>", "</s>")?;
    template.render(&Conversation { messages, tools, add_generation_prompt: true, variables, now })
}

fn refusal(source: &str, messages: &Value) -> String {
    match render(source, messages, None) {
        Err(error @ TemplateError::Refused(_)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn talk() -> Value {
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " Is 1 < 2 & 'é' a letter? "},
        {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\nYes."},
        {"role": "user", "content": "Sure?"},
    ])
}

fn plain() -> Value {
    json!([
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi!"},
        {"role": "user", "content": "Bye"},
    ])
}

fn tools() -> Value {
    json!([{"type": "function", "function": {
        "name": "weather",
        "description": "Today's weather, in <city>",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }}])
}

fn called() -> Value {
    json!([
        {"role": "user", "content": "Weather in Köln?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a1b2c3d4e", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln"}}},
        ]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "{\"sky\": \"grey\"}"},
    ])
}

#[test]
fn chatml() {
    assert_snapshot!("chatml_talk", render(CHATML, &talk(), None).unwrap());
    assert_snapshot!("chatml_tools", render(CHATML, &called(), Some(&tools())).unwrap());
    let quiet = Map::from_iter([("enable_thinking".to_owned(), json!(false))]);
    let quiet = rendered(CHATML, &plain(), None, &quiet).unwrap();
    assert!(quiet.ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\n"), "{quiet}");
}

#[test]
fn llama3() {
    assert_snapshot!("llama3_talk", render(LLAMA3, &talk(), None).unwrap());
    assert_snapshot!("llama3_tools", render(LLAMA3, &called(), Some(&tools())).unwrap());
    let mut two = called();
    let call = two[1]["tool_calls"][0].clone();
    two[1]["tool_calls"].as_array_mut().unwrap().push(call);
    let said = refusal(LLAMA3, &two);
    assert_eq!(
        said,
        "the model's chat template refuses this conversation: This model takes one tool call at a time!"
    );
}

#[test]
fn mistral() {
    assert_snapshot!("mistral_talk", render(MISTRAL, &talk(), None).unwrap());
    assert_snapshot!("mistral_tools", render(MISTRAL, &called(), Some(&tools())).unwrap());
    let mut short = called();
    short[1]["tool_calls"][0]["id"] = json!("call_1");
    assert!(refusal(MISTRAL, &short).contains("length 9"));
}

#[test]
fn gemma() {
    assert_snapshot!("gemma_plain", render(GEMMA, &plain(), None).unwrap());
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]);
    assert_snapshot!("gemma_parts", render(GEMMA, &parts, None).unwrap());
    assert!(refusal(GEMMA, &talk()).ends_with("System role not supported"));
}

#[test]
fn phi() {
    assert_snapshot!("phi_talk", render(PHI, &talk(), None).unwrap());
}

#[test]
fn deepseek() {
    assert_snapshot!("deepseek_talk", render(DEEPSEEK, &talk(), None).unwrap());
}

#[test]
fn a_prompt_has_one_bos_whoever_wrote_it() {
    let vocabulary = Bytes::new(&["<|eot_id|>"], true);
    let bos = vocabulary.special_text(vocabulary.bos());
    for (source, wrote_it) in [(LLAMA3, true), (PHI, false)] {
        let prompt = render(source, &plain(), None).unwrap();
        assert_eq!(prompt.starts_with(&bos), wrote_it);
        let tokens = vocabulary.prompt(&prompt);
        let count = tokens.iter().filter(|token| Some(**token) == vocabulary.bos()).count();
        assert_eq!((tokens.first().copied(), count), (vocabulary.bos(), 1));
    }
}

#[test]
fn errors_say_where() {
    let said = |source: &str| render(source, &plain(), None).unwrap_err().to_string();
    assert_snapshot!(
        [
            said("line one\n{% if %}"),
            said("{{ messages[0].content }}\n{{ messages | no_such_filter }}"),
            said("\n\n{{ messages.nothing.at_all }}"),
            said("{{ messages[0].content.no_method() }}"),
            said("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
            said("{% include 'passwd' %}"),
        ]
        .join("\n")
    );
}

#[test]
fn an_option_of_tojson_that_changes_nothing_is_taken() {
    let said = |source: &str| render(source, &json!(["é<"]), None).unwrap();
    assert_eq!(said("{{ messages | tojson(ensure_ascii=False) }}"), "[\"é<\"]");
    assert_eq!(said("{{ messages | tojson(indent=2) }}"), "[\n  \"é<\"\n]");
}

#[test]
fn blocks_for_training_are_blocks() {
    let source = "{% for m in messages %}{%- generation -%} {{ m }} {%endgeneration%}{% endfor %}";
    assert_eq!(render(source, &json!(["a", "b"]), None).unwrap(), "a b ");
}
