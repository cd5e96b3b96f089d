//! A whole answer, not a stream.

use super::{Citation, Part, StopReason, Usage};

/// What a whole answer says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The provider's id of it.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// What the model said, in order: reasoning, text, tool calls.
    pub parts: Vec<Part>,
    /// Where the text comes from, piece by piece.
    pub citations: Vec<Citation<'static>>,
    /// Token counts.
    pub usage: Usage,
    /// Why the model stopped.
    pub stop: Option<StopReason>,
}

/// What is booked of a whole answer that passes through: read without allocating for its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The provider's id of it.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Token counts.
    pub usage: Usage,
    /// Why the model stopped.
    pub stop: Option<StopReason>,
    /// Whether there is text, reasoning, a tool call or other result in it.
    pub has_content: bool,
}
