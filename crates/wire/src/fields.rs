//! The fields of a JSON object, taken one by one: what is left at the end is what we do not know.
//! A field of the wrong type is an error that names it; null is as good as absent.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::chat::note;
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

    /// The object that `value` is. Whoever reads it puts its path before the errors inside.
    pub(crate) fn object(value: Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(invalid("expected an object"))
            }
        }
    }

    /// Reads the object `name`, where it is there; errors inside it get its name.
    pub(crate) fn inside<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Self) -> Result<T, ApiError>,
    ) -> Result<Option<T>, ApiError> {
        let value = self.take(name);
        value.map(|value| Self::object(value).and_then(read).map_err(|error| error.under(name))).transpose()
    }

    /// Reads the list of objects `name`; errors inside them get their place in it.
    pub(crate) fn each<T>(
        &mut self,
        name: &str,
        mut read: impl FnMut(Self) -> Result<T, ApiError>,
    ) -> Result<Vec<T>, ApiError> {
        let list = self.array(name)?.unwrap_or_default().into_iter().enumerate();
        list.map(|(i, value)| {
            Self::object(value).and_then(&mut read).map_err(|error| error.under(&format!("{name}[{i}]")))
        })
        .collect()
    }

    /// Names in `dropped` what was not taken. Null and an empty list say nothing.
    pub(crate) fn leave(self, dropped: &mut Vec<String>) {
        for (name, value) in self.0 {
            if !value.is_null() && !value.as_array().is_some_and(Vec::is_empty) {
                note(dropped, &name);
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

    /// A string that must be there.
    pub(crate) fn required(&mut self, name: &str) -> Result<String, ApiError> {
        self.string(name)?.ok_or_else(|| invalid(format!("{name} is required")).at(name))
    }

    /// A string that must be there and say something.
    pub(crate) fn filled(&mut self, name: &str) -> Result<String, ApiError> {
        let text = self.string(name)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| invalid(format!("{name} is required")).at(name))
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

    /// A number that must lie in `range`.
    pub(crate) fn within(&mut self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let number = self.number(name)?;
        if number.is_none_or(|number| range.contains(&number)) {
            return Ok(number);
        }
        Err(invalid(format!("expected a number from {} to {}", range.start(), range.end())).at(name))
    }

    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>, ApiError> {
        self.take(name)
            .map(|value| value.as_i64().ok_or_else(|| invalid("expected a whole number").at(name)))
            .transpose()
    }

    /// A whole number of at least 1.
    pub(crate) fn positive(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.natural(name)? {
            Some(0) => Err(invalid("expected a whole number of at least 1").at(name)),
            number => Ok(number),
        }
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
    /// Puts `path` before the field, or the place in a list, that the error names.
    pub(crate) fn under(mut self, path: &str) -> Self {
        self.param = Some(match self.param {
            Some(place) if place.starts_with('[') => format!("{path}{place}"),
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
