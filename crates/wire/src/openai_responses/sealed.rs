//! `encrypted_content`, the one field of a reasoning item that only its provider can read. Our model knows
//! two such things: a signature of thinking, and what stands in place of it.
//!
//! With a text beside it, it is the signature of that text; without, it stands in place of one. A signature
//! whose text was not shown says so in front of it, in a form that no provider's base64 has.
//!
//! Invariant: what was sealed here opens to the same.

use std::borrow::Cow;

use crate::chat::{Event, Reasoning};

/// Stands before a signature that has no text beside it.
const ALONE: &str = "signature:";

/// What only the provider can read, as an item carries it.
pub(super) fn seal(reasoning: &Reasoning) -> Option<String> {
    match (&reasoning.redacted, &reasoning.signature) {
        (Some(redacted), _) => Some(redacted.clone()),
        (None, Some(signature)) if reasoning.text.is_empty() => Some(alone(signature)),
        (None, signature) => signature.clone(),
    }
}

/// A signature that has no text beside it.
pub(super) fn alone(signature: &str) -> String {
    format!("{ALONE}{signature}")
}

/// What it is in a stream; `thought` says whether the item has a text.
pub(super) fn event(sealed: Cow<'_, str>, thought: bool) -> Event<'_> {
    if thought {
        return Event::Signature(sealed);
    }
    match sealed {
        Cow::Borrowed(sealed) => match sealed.strip_prefix(ALONE) {
            Some(signature) => Event::Signature(signature.into()),
            None => Event::Redacted(sealed.into()),
        },
        Cow::Owned(mut sealed) if sealed.starts_with(ALONE) => {
            Event::Signature(sealed.split_off(ALONE.len()).into())
        }
        Cow::Owned(sealed) => Event::Redacted(sealed.into()),
    }
}

/// The reasoning of an item; nothing where the item says nothing.
pub(super) fn open(text: String, sealed: Option<String>) -> Option<Reasoning> {
    let mut reasoning = Reasoning { text, ..Reasoning::default() };
    let sealed = sealed.filter(|sealed| !sealed.is_empty());
    match sealed.map(|sealed| event(sealed.into(), !reasoning.text.is_empty())) {
        Some(Event::Signature(signature)) => reasoning.signature = Some(signature.into_owned()),
        Some(Event::Redacted(redacted)) => reasoning.redacted = Some(redacted.into_owned()),
        _ if reasoning.text.is_empty() => return None,
        _ => {}
    }
    Some(reasoning)
}
