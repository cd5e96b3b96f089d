//! The fields of a JSON object, taken one by one: what is left at the end is what we do not know.
//! A field of the wrong type is an error that names it; null is as good as absent.

use serde_json::{Map, Value};

use crate::{ApiError, ErrorKind};

#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// The body of a request.
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(invalid("the body must be a JSON object")),
            // A syntax error names a position and never quotes the body.
            Err(error) => Err(invalid(format!("the body is not valid JSON: {error}")).code("invalid_json")),
        }
    }

    /// The object at `path`.
    pub(crate) fn of(value: Value, path: &str) -> Result<Self, ApiError> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(invalid("expected an object").at(path))
            }
        }
    }

    /// What was not taken, without nulls.
    pub(crate) fn rest(mut self) -> Map<String, Value> {
        self.0.retain(|_, value| !value.is_null());
        self.0
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(invalid("expected a string").at(name)),
        }
    }

    pub(crate) fn array(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(invalid("expected a list").at(name)),
        }
    }

    pub(crate) fn bool(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.take(name)
            .map(|value| value.as_bool().ok_or_else(|| invalid("expected true or false").at(name)))
            .transpose()
    }

    pub(crate) fn natural(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        self.take(name)
            .map(|value| {
                value.as_u64().ok_or_else(|| invalid("expected a whole number of at least 0").at(name))
            })
            .transpose()
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, ApiError> {
        self.take(name)
            .map(|value| value.as_f64().ok_or_else(|| invalid("expected a number").at(name)))
            .transpose()
    }

    /// A string or a list of strings.
    pub(crate) fn strings(&mut self, name: &str) -> Result<Vec<String>, ApiError> {
        let wrong = || invalid("expected a string or a list of strings").at(name);
        let list = match self.take(name) {
            None => return Ok(Vec::new()),
            Some(Value::String(text)) => return Ok(vec![text]),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(wrong()),
        };
        list.into_iter()
            .map(|value| match value {
                Value::String(text) => Ok(text),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    Err(wrong())
                }
            })
            .collect()
    }
}

impl ApiError {
    /// Puts `path` before the field that the error names.
    pub(crate) fn under(mut self, path: &str) -> Self {
        self.param = Some(match self.param {
            Some(field) => format!("{path}.{field}"),
            None => path.to_owned(),
        });
        self
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::InvalidRequest, message)
}

pub(crate) fn unsupported(message: impl Into<String>) -> ApiError {
    invalid(message).code("unsupported")
}
