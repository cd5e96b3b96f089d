//! JSON as Python writes it: a space after each colon and comma.
//!
//! Models were trained on tools that `json.dumps` wrote, and a prompt that differs in its spaces is a
//! prompt that they have not seen. Nothing is escaped but what JSON demands.
//!
//! Invariant: what is written is the value, keys in their order.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Writes `value` on one line, or with `indent` spaces for each level.
pub(super) fn python(value: &impl Serialize, indent: Option<usize>) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, OneLine))?,
        Some(indent) => {
            let indent = " ".repeat(indent.min(16));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))?;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_looks_like_pythons() {
        let value = json!({"z": [1, 2.5, {}], "a": {"é<'": null, "b": true}, "e": []});
        assert_eq!(
            python(&value, None).unwrap(),
            r#"{"z": [1, 2.5, {}], "a": {"é<'": null, "b": true}, "e": []}"#
        );
        assert_eq!(
            python(&json!({"a": [1], "b": {}}), Some(2)).unwrap(),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"
        );
    }
}
