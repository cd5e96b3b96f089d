//! The models that can be asked, and the words for those that cannot.

use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use serde_json::json;

use crate::config::{Config, Provider};

/// The body of `GET /v1/models`, in the caller's dialect. A pattern stands for the names it matches.
pub(crate) fn list(config: &Config, dialect: Dialect) -> Vec<u8> {
    let rules = config
        .models
        .iter()
        .map(|rule| (rule.pattern.as_str(), config.upstreams[rule.upstream].name.as_str()));
    let list = if dialect == Dialect::Anthropic {
        let data: Vec<_> = rules
            .map(|(id, _)| json!({"type": "model", "id": id, "display_name": id, "created_at": "1970-01-01T00:00:00Z"}))
            .collect();
        let ends = |m: Option<&serde_json::Value>| m.map(|m| m["id"].clone());
        json!({"first_id": ends(data.first()), "last_id": ends(data.last()), "has_more": false, "data": data})
    } else {
        let data: Vec<_> = rules
            .map(|(id, by)| {
                let mut model = json!({"id": id, "object": "model", "created": 0, "owned_by": by});
                if let Some((_, about)) = config.demo.as_ref().filter(|(demo, _)| demo == id) {
                    model["description"] = about.as_str().into();
                }
                model
            })
            .collect();
        json!({"object": "list", "data": data})
    };
    list.to_string().into_bytes()
}

/// The model for a caller who names none: the first that is a name and no pattern, else the first pattern
/// that any name matches.
pub(crate) fn default(config: &Config) -> Result<&str, ApiError> {
    let name =
        config.models.iter().find(|rule| !rule.pattern.contains('*')).map(|rule| rule.pattern.as_str());
    name.or_else(|| config.models.iter().any(|rule| rule.pattern == "*").then_some("default")).ok_or_else(
        || {
            let message = "name a model: every configured model is a pattern, and none of them is a default";
            ApiError::new(ErrorKind::InvalidRequest, message).at("model").code("missing_field")
        },
    )
}

/// No rule matches.
pub(crate) fn unknown(config: &Config, model: &str) -> ApiError {
    let shown: String = model.chars().take(100).collect();
    let hint = match config.nearest_model(model) {
        Some(near) => format!("Did you mean {near}?"),
        None => "GET /v1/models lists what is served.".to_owned(),
    };
    let message = format!("the model {shown:?} is not served here. {hint}");
    ApiError::new(ErrorKind::NotFound, message).at("model").code("model_not_found")
}

/// The model's upstream speaks another dialect, and what is asked for has no form in it.
pub(crate) fn other_family(model: &str, provider: Provider) -> ApiError {
    let (speaks, path) = match provider {
        Provider::OpenAi => ("OpenAI's", "/v1/chat/completions"),
        Provider::Anthropic => ("Anthropic's", "/v1/messages"),
    };
    let message = format!(
        "the upstream of {model:?} speaks {speaks} dialect, into which this endpoint has no translation; \
         {path} is served for it"
    );
    ApiError::new(ErrorKind::InvalidRequest, message).at("model").code("dialect_mismatch")
}

/// Nobody owns a path that names no model.
pub(crate) fn no_owner(path: &str, named: Option<&str>) -> ApiError {
    let message = match named {
        Some(name) => format!("x-firsttoken-upstream names {name:?}, which is not configured"),
        None => format!("{path} belongs to no configured upstream; name one in x-firsttoken-upstream"),
    };
    ApiError::new(ErrorKind::NotFound, message).code("unknown_upstream")
}
