//! What an answer says, read from any dialect, streamed or whole: for comparing one dialect with another.
//!
//! Written from the providers' documentation, not from the gateway's codecs.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use crate::caller::{Caller, Fields, events};

/// What an answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Visible text.
    pub text: String,
    /// What was thought aloud.
    pub reasoning: String,
    /// The proof that the thinking is the provider's own.
    pub signature: String,
    /// Tool calls in their order: id, name, arguments.
    pub calls: Vec<(String, String, Value)>,
    /// Why it stopped, in one vocabulary: `stop`, `length`, `tool`, or the dialect's own word.
    pub stop: String,
    /// Tokens in and out; `None` where it is not said.
    pub usage: Option<(u64, u64)>,
    /// The message of an error.
    pub error: Option<String>,
    /// Whether the end is the dialect's own.
    pub ended: bool,
}

/// Tool calls whose arguments still come in pieces, by the dialect's own key.
type Pieces = BTreeMap<u64, (String, String, String)>;

impl Said {
    /// Reads a stream in `caller`'s dialect.
    #[must_use]
    pub fn of_stream(caller: Caller, stream: &Bytes) -> Self {
        let (mut said, mut pieces) = (Self::default(), Pieces::new());
        for event in events(stream) {
            let fields = Fields::of(&event);
            let json = fields.json();
            said.ended |= caller.is_terminal(&fields);
            said.text.push_str(&caller.text(&fields));
            if caller.error_event(&fields).is_some() {
                let message = [&json["error"]["message"], &json["message"], &json["data"]["message"]];
                said.error = message.iter().find_map(|m| m.as_str()).map(ToOwned::to_owned);
            }
            match caller {
                Caller::Chat => said.chat(&json["choices"][0], "delta", &json["usage"], &mut pieces),
                Caller::Messages => said.messages(&json, &mut pieces),
                Caller::Responses => said.responses(&json, &mut pieces),
                Caller::Typed => said.typed(&json),
                Caller::Completions => {}
            }
        }
        let calls = pieces.into_values().map(|(id, name, arguments)| (id, name, parsed(&arguments)));
        said.calls.extend(calls);
        said
    }

    /// Reads a whole answer in `caller`'s dialect.
    #[must_use]
    pub fn of_body(caller: Caller, body: &[u8]) -> Self {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let (mut said, mut pieces) = (Self { ended: true, ..Self::default() }, Pieces::new());
        said.error = json["error"]["message"].as_str().map(ToOwned::to_owned);
        match caller {
            Caller::Chat => {
                said.text = string(&json["choices"][0]["message"]["content"]);
                said.chat(&json["choices"][0], "message", &json["usage"], &mut pieces);
            }
            Caller::Messages => said.message(&json),
            Caller::Responses => said.response(&json),
            Caller::Completions | Caller::Typed => {}
        }
        let calls = pieces.into_values().map(|(id, name, arguments)| (id, name, parsed(&arguments)));
        said.calls.extend(calls);
        said
    }

    fn chat(&mut self, choice: &Value, key: &str, usage: &Value, pieces: &mut Pieces) {
        let delta = &choice[key];
        self.reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
        for detail in delta["reasoning_details"].as_array().into_iter().flatten() {
            self.signature.push_str(detail["signature"].as_str().unwrap_or_default());
        }
        for (at, call) in (0..).zip(delta["tool_calls"].as_array().into_iter().flatten()) {
            let piece = pieces.entry(call["index"].as_u64().unwrap_or(at)).or_default();
            piece.0.push_str(call["id"].as_str().unwrap_or_default());
            piece.1.push_str(call["function"]["name"].as_str().unwrap_or_default());
            piece.2.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
        if let Some(word) = choice["finish_reason"].as_str() {
            self.stop = one_word(word);
        }
        if let Some(tokens) = usage["prompt_tokens"].as_u64().zip(usage["completion_tokens"].as_u64()) {
            self.usage = Some(tokens);
        }
    }

    fn messages(&mut self, json: &Value, pieces: &mut Pieces) {
        let (block, delta) = (&json["content_block"], &json["delta"]);
        if block["type"] == "tool_use" {
            let piece = pieces.entry(json["index"].as_u64().unwrap_or(0)).or_default();
            (piece.0, piece.1) = (string(&block["id"]), string(&block["name"]));
        }
        if let Some(part) = delta["partial_json"].as_str() {
            pieces.entry(json["index"].as_u64().unwrap_or(0)).or_default().2.push_str(part);
        }
        self.reasoning.push_str(delta["thinking"].as_str().unwrap_or_default());
        self.signature.push_str(delta["signature"].as_str().unwrap_or_default());
        if let Some(word) = delta["stop_reason"].as_str() {
            self.stop = one_word(word);
        }
        self.anthropic_usage(&json["message"]["usage"]);
        self.anthropic_usage(&json["usage"]);
    }

    fn message(&mut self, json: &Value) {
        for block in json["content"].as_array().into_iter().flatten() {
            self.text.push_str(block["text"].as_str().unwrap_or_default());
            self.reasoning.push_str(block["thinking"].as_str().unwrap_or_default());
            self.signature.push_str(block["signature"].as_str().unwrap_or_default());
            if block["type"] == "tool_use" {
                self.calls.push((string(&block["id"]), string(&block["name"]), block["input"].clone()));
            }
        }
        self.stop = one_word(&string(&json["stop_reason"]));
        self.anthropic_usage(&json["usage"]);
    }

    /// What the cache read counts as input, as everywhere else.
    fn anthropic_usage(&mut self, usage: &Value) {
        let count = |key: &str| usage[key].as_u64();
        let (before_in, before_out) = self.usage.unwrap_or_default();
        let input = count("input_tokens").map(|input| {
            input
                + count("cache_read_input_tokens").unwrap_or(0)
                + count("cache_creation_input_tokens").unwrap_or(0)
        });
        if input.is_some() || count("output_tokens").is_some() {
            let output = count("output_tokens").unwrap_or(before_out);
            self.usage = Some((input.unwrap_or(before_in), output));
        }
    }

    fn responses(&mut self, json: &Value, pieces: &mut Pieces) {
        let at = json["output_index"].as_u64().unwrap_or(0);
        match json["type"].as_str().unwrap_or_default() {
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.reasoning.push_str(json["delta"].as_str().unwrap_or_default());
            }
            "response.output_item.added" if json["item"]["type"] == "function_call" => {
                let item = &json["item"];
                pieces.insert(at, (string(&item["call_id"]), string(&item["name"]), String::new()));
            }
            "response.function_call_arguments.delta" => {
                pieces.entry(at).or_default().2.push_str(json["delta"].as_str().unwrap_or_default());
            }
            "response.output_item.done" if json["item"]["type"] == "reasoning" => {
                self.signature.push_str(json["item"]["encrypted_content"].as_str().unwrap_or_default());
            }
            "response.completed" | "response.incomplete" => {
                let calls = !pieces.is_empty();
                self.end_of_response(&json["response"], calls);
            }
            _ => {}
        }
    }

    /// The AI SDK's chunks. Calls are whole in one of them, whatever came in pieces before.
    fn typed(&mut self, chunk: &Value) {
        match chunk["type"].as_str().unwrap_or_default() {
            "reasoning-delta" => self.reasoning.push_str(chunk["delta"].as_str().unwrap_or_default()),
            "reasoning-end" => {
                let own = &chunk["providerMetadata"]["firsttoken"]["signature"];
                self.signature.push_str(own.as_str().unwrap_or_default());
            }
            "tool-input-available" => {
                let (id, name) = (string(&chunk["toolCallId"]), string(&chunk["toolName"]));
                self.calls.push((id, name, chunk["input"].clone()));
            }
            "data-finish" => self.stop = one_word(&string(&chunk["data"]["reason"])),
            "message-metadata" => {
                let usage = &chunk["messageMetadata"]["usage"];
                let tokens = usage["inputTokens"].as_u64().zip(usage["outputTokens"].as_u64());
                self.usage = tokens.or(self.usage);
            }
            _ => {}
        }
    }

    fn response(&mut self, json: &Value) {
        for item in json["output"].as_array().into_iter().flatten() {
            for part in item["content"].as_array().into_iter().flatten() {
                let own = if item["type"] == "reasoning" { &mut self.reasoning } else { &mut self.text };
                own.push_str(part["text"].as_str().unwrap_or_default());
            }
            for part in item["summary"].as_array().into_iter().flatten() {
                self.reasoning.push_str(part["text"].as_str().unwrap_or_default());
            }
            if item["type"] == "reasoning" {
                self.signature.push_str(item["encrypted_content"].as_str().unwrap_or_default());
            }
            if item["type"] == "function_call" {
                let arguments = parsed(item["arguments"].as_str().unwrap_or_default());
                self.calls.push((string(&item["call_id"]), string(&item["name"]), arguments));
            }
        }
        self.end_of_response(json, !self.calls.is_empty());
    }

    fn end_of_response(&mut self, response: &Value, calls: bool) {
        let reason = response["incomplete_details"]["reason"].as_str();
        self.stop = match (response["status"].as_str(), reason) {
            (Some("completed"), _) if calls => "tool".to_owned(),
            (Some("completed"), _) => "stop".to_owned(),
            (_, Some(reason)) => one_word(reason),
            (status, None) => status.unwrap_or_default().to_owned(),
        };
        let usage = &response["usage"];
        self.usage = usage["input_tokens"].as_u64().zip(usage["output_tokens"].as_u64());
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Arguments as a value: dialects differ in the spaces.
fn parsed(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()))
}

fn one_word(word: &str) -> String {
    match word {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" | "max_output_tokens" => "length",
        "tool_use" | "tool_calls" | "tool-calls" => "tool",
        other => other,
    }
    .to_owned()
}
