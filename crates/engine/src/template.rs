//! From a conversation to a prompt, as the model's author wrote it down.
//!
//! A model file carries a Jinja template that was written for Python, so it gets what the Transformers
//! library gives it: blocks that leave no lines behind, Python's methods, `raise_exception`,
//! `strftime_now`, a `tojson` that escapes no HTML, and the names of the BOS and EOS.
//!
//! Invariant: rendering ends, reads nothing but its arguments, and never panics.

mod calendar;
mod json;

use std::fmt;

use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, ErrorKind, Value};
use serde_json::Value as Json;

pub use calendar::UnixSeconds;

/// Instructions that one rendering may take: some hundred times what a long conversation does.
const RENDER_FUEL_MAX: u64 = 20_000_000;
/// The name under which the one template is kept.
const NAME: &str = "chat_template";

/// A model's chat template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
}

/// What is to be said.
#[derive(Clone, Debug)]
pub struct Conversation<'a> {
    /// The messages, as in OpenAI's chat completions.
    pub messages: &'a Json,
    /// The tools, as there; none where there are none.
    pub tools: Option<&'a Json>,
    /// Whether the model is to answer; if not, the prompt ends where the messages do.
    pub add_generation_prompt: bool,
    /// What else the template is told, by name: `enable_thinking`, for one.
    pub variables: &'a serde_json::Map<String, Json>,
    /// What `strftime_now` shows, in UTC.
    pub now: UnixSeconds,
}

/// Why there is no prompt.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is no template.
    #[error("the model's chat template is invalid in line {line}: {what}")]
    Invalid {
        /// From one.
        line: usize,
        /// What the template engine says.
        what: String,
    },
    /// The template does not take such a conversation, in its own words.
    #[error("the model's chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template could not be carried out.
    #[error("the model's chat template failed in line {line} with this conversation: {what}")]
    Failed {
        /// From one.
        line: usize,
        /// What the template engine says.
        what: String,
    },
}

/// What a template says by `raise_exception`.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Template {
    /// Reads a template. `bos` and `eos` are the texts of these tokens, empty where there are none.
    ///
    /// # Errors
    /// When it is no template.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let mut syntax = minijinja::syntax::SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        let syntax = syntax.build().map_err(|error| invalid(&error))?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(RENDER_FUEL_MAX));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", to_json);
        environment.add_global("bos_token", bos);
        environment.add_global("eos_token", eos);
        environment.add_template_owned(NAME, without_generation(source)).map_err(|error| invalid(&error))?;
        Ok(Self { environment })
    }

    /// The prompt of a conversation.
    ///
    /// # Errors
    /// When the template refuses it, or cannot be carried out.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<String, TemplateError> {
        let now = conversation.now;
        let strftime = Value::from_function(move |format: &str| calendar::format(now, format));
        let mut variables: std::collections::BTreeMap<&str, Value> = conversation
            .variables
            .iter()
            .map(|(name, value)| (name.as_str(), Value::from(Serde(value))))
            .collect();
        let none = || Value::from(());
        variables.entry("documents").or_insert_with(none);
        variables.insert("messages", Value::from(Serde(conversation.messages)));
        variables.insert("tools", conversation.tools.map_or_else(none, |tools| Value::from(Serde(tools))));
        variables.insert("add_generation_prompt", Value::from(conversation.add_generation_prompt));
        variables.insert("strftime_now", strftime);
        let template = self.environment.get_template(NAME);
        template.and_then(|template| template.render(variables)).map_err(|error| failed(&error))
    }
}

/// Training marks the model's own words by `{% generation %}`; to us it is a block as any other.
fn without_generation(source: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(begin) = rest.find("{%")
        && let Some(len) = rest[begin..].find("%}")
    {
        let (tag, after) = rest[begin..].split_at(len);
        out.push_str(&rest[..begin]);
        match tag.trim_matches(|c: char| !c.is_alphabetic()) {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}

fn raise_exception(message: &str) -> Result<Value, minijinja::Error> {
    let refusal = Refusal(message.to_owned());
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, "the template raised an exception")
        .with_source(refusal))
}

/// Python's `json.dumps` with its `indent`. Its other arguments, which hardly any template gives, are
/// taken and do nothing.
fn to_json(value: &Value, indent: Option<usize>, options: Kwargs) -> Result<Value, minijinja::Error> {
    let indent = indent.or(options.get::<Option<usize>>("indent")?);
    let wrong = |error| minijinja::Error::new(ErrorKind::BadSerialization, format!("tojson: {error}"));
    json::python(value, indent).map(Value::from_safe_string).map_err(wrong)
}

fn invalid(error: &minijinja::Error) -> TemplateError {
    TemplateError::Invalid { line: error.line().unwrap_or(1), what: said(error) }
}

fn failed(error: &minijinja::Error) -> TemplateError {
    let mut causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    if let Some(refusal) = causes.find_map(|cause| cause.downcast_ref::<Refusal>()) {
        return TemplateError::Refused(refusal.0.clone());
    }
    TemplateError::Failed { line: error.line().unwrap_or(1), what: said(error) }
}

/// What went wrong, without where.
fn said(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()))
}
