//! Citations, which OpenAI calls annotations of the kind `url_citation`.
//!
//! The passage itself stands in `content`, as OpenRouter has it; OpenAI has no word for it.
//!
//! Invariant: what is no citation of an address is left out, and costs nothing else.

use serde::Deserialize;
use serde_json::{Value, json};

use super::prune;
use crate::chat::Citation;
use crate::json::{Num, Obj, Str};

/// One annotation.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Annotation<'a> {
    #[serde(borrow)]
    url_citation: Obj<Box<Cited<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cited<'a> {
    start_index: Num,
    end_index: Num,
    #[serde(borrow)]
    url: Str<'a>,
    #[serde(borrow)]
    title: Str<'a>,
    #[serde(borrow)]
    content: Str<'a>,
}

impl<'a> Annotation<'a> {
    /// What it cites; `None` where it is another kind of annotation.
    pub(super) fn citation(self) -> Option<Citation<'a>> {
        let cited = *self.url_citation.0?;
        Some(Citation {
            start: cited.start_index.0.unwrap_or(0),
            end: cited.end_index.0.unwrap_or(0),
            url: cited.url.filled()?,
            title: cited.title.0.unwrap_or_default(),
            passage: cited.content.0.unwrap_or_default(),
        })
    }
}

/// A citation as an annotation of a Chat Completion.
pub(super) fn annotation(citation: &Citation<'_>) -> Value {
    json!({ "type": "url_citation", "url_citation": fields(citation) })
}

/// What Chat Completions and Responses say of a citation alike.
pub(crate) fn fields(citation: &Citation<'_>) -> Value {
    let Citation { start, end, url, title, passage } = citation;
    let passage = Some(passage).filter(|passage| !passage.is_empty());
    let mut fields =
        json!({ "start_index": start, "end_index": end, "url": url, "title": title, "content": passage });
    prune(&mut fields);
    fields
}
