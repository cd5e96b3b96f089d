//! How the families of models write calls.
//!
//! Invariant: each mark begins with a bracket and has no second one of that kind, so that no mark can
//! begin within another.

/// A way to write calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen, and many after them.
    Hermes,
    /// `{"name": …, "parameters": …}` as the whole answer, perhaps after `<|python_tag|>`, several with
    /// a `;` between them.
    Llama3,
    /// `[TOOL_CALLS] [{"name": …, "arguments": …}, …]`, or `[TOOL_CALLS]name[ARGS]{…}`.
    Mistral,
    /// A call, or a list of calls, as the whole answer.
    Generic,
}

/// Where thinking begins.
pub(super) const THINK: &str = "<think>";
/// Where it ends.
pub(super) const THOUGHT: &str = "</think>";

impl Family {
    /// The family that a chat template was written for, by the marks in its text.
    #[must_use]
    pub fn of_template(source: &str) -> Self {
        if source.contains("[TOOL_CALLS]") {
            Self::Mistral
        } else if source.contains("<tool_call>") {
            Self::Hermes
        } else if source.contains("<|python_tag|>") || source.contains("Environment: ipython") {
            Self::Llama3
        } else {
            Self::Generic
        }
    }

    /// Marks that may be tokens of their own, and whose text the parser has to see.
    #[must_use]
    pub const fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &[THINK, THOUGHT, "<tool_call>", "</tool_call>"],
            Self::Llama3 => &[THINK, THOUGHT, "<|python_tag|>"],
            Self::Mistral => &[THINK, THOUGHT, "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
            Self::Generic => &[THINK, THOUGHT],
        }
    }

    /// What stands before a call, where something does.
    pub(super) const fn open(self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some("<tool_call>"),
            Self::Llama3 => Some("<|python_tag|>"),
            Self::Mistral => Some("[TOOL_CALLS]"),
            Self::Generic => None,
        }
    }

    /// What stands after one.
    pub(super) const fn close(self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some("</tool_call>"),
            Self::Llama3 | Self::Mistral | Self::Generic => None,
        }
    }

    /// Whether an answer may be a call without a mark.
    pub(super) const fn is_bare(self) -> bool {
        matches!(self, Self::Llama3 | Self::Generic)
    }

    /// Whether calls may stand in a list.
    pub(super) const fn has_lists(self) -> bool {
        matches!(self, Self::Mistral | Self::Generic)
    }
}
