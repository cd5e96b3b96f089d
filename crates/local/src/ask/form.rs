//! The form that an answer must have, from its format and its tools.
//!
//! Tools that may be called bring no form: their calls are read out of what the model says. Tools that
//! must be called do, and where a format is asked for, the answer is of that form or a call.
//!
//! Invariant: a schema that is none is refused by the path of its field.

use firsttoken_engine::grammar::{Form, Grammar};
use firsttoken_engine::tools::{self, Calls, Family};
use firsttoken_wire::ApiError;
use firsttoken_wire::chat::{Format, Request, ToolChoice};
use serde_json::{Value, json};

use super::invalid;
use crate::model::Model;

/// The calls that there may be, and whether there must be one.
pub(super) struct Wanted<'a> {
    pub(super) calls: Calls<'a>,
    must: bool,
}

/// What the request wants called; nothing where it has no tools, or wants none called.
pub(super) fn wanted(family: Family, request: &Request) -> Result<Option<Wanted<'_>>, ApiError> {
    let all = || request.tools.iter().map(|tool| (tool.name.as_str(), &tool.parameters)).collect::<Vec<_>>();
    let several = request.parallel_tools != Some(false);
    let (tools, must, many) = match &request.tool_choice {
        Some(ToolChoice::None) => return Ok(None),
        None | Some(ToolChoice::Auto) if request.tools.is_empty() => return Ok(None),
        None | Some(ToolChoice::Auto) => (all(), false, several),
        Some(ToolChoice::Required) => (all(), true, several),
        Some(ToolChoice::Named(name)) => {
            let mut tools = all();
            tools.retain(|(known, _)| known == name);
            (tools, true, false)
        }
    };
    if tools.is_empty() {
        return Err(invalid("this tool is none of the tools in this request").at("tool_choice"));
    }
    Ok(Some(Wanted { calls: Calls { family, tools, many }, must }))
}

/// The compiled form; none where the answer is free.
pub(super) fn compile(
    model: &Model,
    wanted: Option<&Wanted<'_>>,
    format: Option<&Format>,
) -> Result<Option<Grammar>, ApiError> {
    let compile = |form: &Form, field: &str| {
        let grammars = model.grammars().map_err(|error| invalid(error.to_string()).at(field))?;
        let grammar = grammars.compile(form);
        grammar.map(Some).map_err(|error| invalid(error.to_string()).at(field).code("invalid_schema"))
    };
    let called = |wanted: &Wanted<'_>, answer: Option<&Value>| {
        compile(&tools::form(&wanted.calls, answer, &*model.vocabulary), "tools")
    };
    if let Some(wanted) = wanted.filter(|wanted| wanted.must) {
        return called(wanted, None);
    }
    let (form, field) = match format {
        None => return Ok(None),
        Some(Format::Json) => (Form::JsonObject, "response_format"),
        Some(Format::Schema { schema, .. }) => {
            (Form::Schema(schema.clone()), "response_format.json_schema.schema")
        }
    };
    let alone = compile(&form, field)?;
    let answer = if let Form::Schema(schema) = form { schema } else { json!({"type": "object"}) };
    wanted.map_or(Ok(alone), |wanted| called(wanted, Some(&answer)))
}
