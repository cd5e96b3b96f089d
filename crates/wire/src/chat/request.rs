//! What a caller asks of a model, in no dialect.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::fields::invalid;

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Model name as the caller wrote it.
    pub model: String,
    /// Whether the answer shall be streamed.
    pub stream: bool,
    /// Instructions that stand before the conversation.
    pub system: Vec<Part>,
    /// The conversation, oldest first; never empty once parsed.
    pub messages: Vec<Message>,
    /// Functions that the model may call.
    pub tools: Vec<Tool>,
    /// Which of them it must, may or must not call.
    pub tool_choice: Option<ToolChoice>,
    /// Whether it may call several at once.
    pub parallel_tools: Option<bool>,
    /// Upper bound of generated tokens.
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling mass.
    pub top_p: Option<f64>,
    /// How many of the likeliest tokens are sampled from.
    pub top_k: Option<u64>,
    /// Seed of the sampling.
    pub seed: Option<i64>,
    /// Penalty on tokens that were there before.
    pub presence_penalty: Option<f64>,
    /// Penalty on tokens by how often they were there.
    pub frequency_penalty: Option<f64>,
    /// Strings that end the generation.
    pub stop: Vec<String>,
    /// The form that the answer must have.
    pub format: Option<Format>,
    /// How much the model shall think before it answers.
    pub thinking: Option<Thinking>,
    /// Who asks, for the provider's abuse detection.
    pub user: Option<String>,
    /// Fields of the caller's dialect that this model has no place for, as they came.
    pub rest: Map<String, Value>,
    /// Names of what has no place here and stood deeper in the request than `rest` reaches.
    pub dropped: Vec<String>,
}

impl Request {
    /// The names of all that is lost if nothing but this model is written down, each once.
    pub(crate) fn unsaid(&self) -> Vec<String> {
        let mut names = self.dropped.clone();
        self.rest.keys().for_each(|name| note(&mut names, name));
        names
    }
}

/// Puts `name` on the list of what is dropped, once.
pub(crate) fn note(dropped: &mut Vec<String>, name: &str) {
    if !dropped.iter().any(|known| known == name) {
        dropped.push(name.to_owned());
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The person, or the application on their behalf.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

/// One turn of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Plain text.
    Text(String),
    /// An image or a document.
    Media(Media),
    /// The assistant's thinking of an earlier turn.
    Reasoning(Reasoning),
    /// A tool call the assistant made; `arguments` is JSON text.
    ToolCall {
        /// Identifier that its result refers to.
        id: String,
        /// Name of the function.
        name: String,
        /// The arguments as JSON text.
        arguments: String,
    },
    /// What a tool call returned.
    ToolResult {
        /// Identifier of the call.
        id: String,
        /// The result: texts, and media where the dialect has them here.
        content: Vec<Self>,
        /// Whether the tool failed.
        is_error: bool,
    },
}

impl Part {
    /// The text, where it is plain text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Media(_) | Self::Reasoning(_) | Self::ToolCall { .. } | Self::ToolResult { .. } => None,
        }
    }
}

/// An image or a document that the model shall look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Which of the two.
    pub kind: MediaKind,
    /// Where it is.
    pub source: Source,
    /// Its file name or title.
    pub name: Option<String>,
    /// OpenAI's word for how closely an image is looked at.
    pub detail: Option<String>,
    /// Where it stands in the caller's request, to name it in an error.
    pub path: String,
}

/// What a [`Media`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A document, usually PDF.
    Document,
}

/// Where a [`Media`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The provider fetches it from there.
    Url(String),
    /// Here.
    Base64 {
        /// Its media type, `image/png`.
        media_type: String,
        /// The bytes, base64.
        data: String,
    },
    /// Here, and it is text.
    Text(String),
    /// The provider has it under this id; no other provider does.
    File(String),
}

/// The thinking of an earlier turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasoning {
    /// What was thought, as far as it was shown.
    pub text: String,
    /// The provider's proof that it is its own.
    pub signature: Option<String>,
    /// What only the provider can read, in place of the text.
    pub redacted: Option<String>,
}

/// The form that an answer must have.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// A JSON object of any kind.
    Json,
    /// JSON of this schema.
    Schema {
        /// A name of it, for the model.
        name: Option<String>,
        /// What it is, for the model.
        description: Option<String>,
        /// The JSON schema.
        schema: Value,
        /// Whether the provider shall enforce it exactly.
        strict: Option<bool>,
    },
}

/// How much a model shall think.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// Not at all.
    Off,
    /// As much as it finds right.
    Adaptive,
    /// By a word: `minimal`, `low`, `medium`, `high`, …
    Effort(String),
    /// At most so many tokens.
    Budget(u64),
}

/// A function the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Name of the function.
    pub name: String,
    /// What it does, for the model.
    pub description: Option<String>,
    /// JSON schema of its arguments.
    pub parameters: Value,
    /// Whether the provider shall enforce the schema exactly.
    pub strict: Option<bool>,
}

/// Which tool the model shall call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// Checks the tool calls of a conversation while it is read: every id once, every result directly behind
/// the turn that called.
#[derive(Debug, Default)]
pub(crate) struct ToolIds {
    made: HashSet<String>,
    answered: HashSet<String>,
    /// Calls whose results can still come.
    open: HashSet<String>,
}

impl ToolIds {
    /// The assistant made a call.
    pub(crate) fn made(&mut self, id: &str, path: &str) -> Result<(), ApiError> {
        if self.made.insert(id.to_owned()) {
            self.open.insert(id.to_owned());
            return Ok(());
        }
        Err(invalid("the id of this tool call was used before").at(path).code("duplicate_tool_id"))
    }

    /// A tool answered.
    pub(crate) fn answered(&mut self, id: &str, path: &str) -> Result<(), ApiError> {
        if !self.made.contains(id) {
            let message = "no tool call with this id stands before this result";
            return Err(invalid(message).at(path).code("orphan_tool_result"));
        }
        if !self.answered.insert(id.to_owned()) {
            return Err(invalid("this tool call has a result already")
                .at(path)
                .code("duplicate_tool_result"));
        }
        if !self.open.contains(id) {
            let message = "the result of a tool call must stand directly behind the turn that called";
            return Err(invalid(message).at(path).code("misplaced_tool_result"));
        }
        Ok(())
    }

    /// Somebody speaks: the results of what was called before can no longer come.
    pub(crate) fn over(&mut self) {
        self.open.clear();
    }
}

/// Arguments of a tool call must be JSON, or nothing.
pub(crate) fn check_arguments(arguments: &str, path: &str) -> Result<(), ApiError> {
    if arguments.trim().is_empty() {
        return Ok(());
    }
    serde_json::from_str::<serde::de::IgnoredAny>(arguments).map(drop).map_err(|error| {
        invalid(format!("the arguments are not valid JSON: {error}")).at(path).code("invalid_tool_arguments")
    })
}

/// The arguments of a call as a provider takes them: JSON, or nothing. A model may have written something
/// else; that is told as the text that it is.
pub(crate) fn arguments_json(arguments: &str) -> Cow<'_, str> {
    match check_arguments(arguments, "") {
        Ok(()) => Cow::Borrowed(arguments),
        Err(_) => Cow::Owned(json!({ "arguments": arguments }).to_string()),
    }
}
