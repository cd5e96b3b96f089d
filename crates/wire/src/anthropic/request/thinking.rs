//! How a request's wish for thinking is told to a model of this provider, and what it costs: while it
//! thinks, the provider refuses other sampling, forced tools and a prefilled answer.

use serde_json::{Value, json};

use crate::capabilities::{Capabilities, ThinkingStyle};
use crate::chat::{Part, Request, Role, Thinking, ToolChoice};
use crate::effort;

/// What is written of it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The field `thinking`, or null.
    pub(super) config: Value,
    /// The field `output_config.effort`.
    pub(super) effort: Option<&'static str>,
    /// Whether the model will think.
    pub(super) thinks: bool,
}

/// How much the model is told to think; none where it is asked and cannot.
pub(super) fn plan(request: &Request, can: &Capabilities, max_tokens: u64) -> Option<Plan> {
    let Some(asked) = &request.thinking else { return Some(Plan::default()) };
    if *asked == Thinking::Off {
        return match can.thinking {
            // It does not think, or cannot be told so.
            ThinkingStyle::None | ThinkingStyle::Effort => Some(Plan::default()),
            _ if !can.thinking_off => None,
            _ => Some(Plan { config: json!({ "type": "disabled" }), ..Plan::default() }),
        };
    }
    let forced = matches!(request.tool_choice, Some(ToolChoice::Required | ToolChoice::Named(_)));
    let prefilled = request.messages.last().is_some_and(|message| message.role == Role::Assistant);
    if (forced && !request.tools.is_empty()) || prefilled {
        return None;
    }
    match can.thinking {
        ThinkingStyle::None | ThinkingStyle::Effort => None,
        ThinkingStyle::Adaptive => {
            let effort = match asked {
                Thinking::Off | Thinking::Adaptive => None,
                Thinking::Effort(word) => Some(known(word)?),
                Thinking::Budget(tokens) => Some(effort::word(*tokens)),
            };
            Some(Plan { config: json!({ "type": "adaptive" }), effort, thinks: true })
        }
        ThinkingStyle::Budget => {
            let tokens = budget(asked, max_tokens).filter(|_| begins_with_thinking(request))?;
            let config = json!({ "type": "enabled", "budget_tokens": tokens });
            Some(Plan { config, effort: None, thinks: true })
        }
    }
}

/// The provider's own words; it has none for less than a little.
fn known(word: &str) -> Option<&'static str> {
    Some(match word {
        "minimal" | "low" => "low",
        "medium" => "medium",
        "high" => "high",
        "xhigh" => "xhigh",
        "max" => "max",
        _ => return None,
    })
}

/// A budget below the bound of the whole answer. A word is a guess of ours, so it leaves half for the
/// answer.
fn budget(asked: &Thinking, max_tokens: u64) -> Option<u64> {
    let most = max_tokens.saturating_sub(1);
    let tokens = match asked {
        Thinking::Budget(tokens) => *tokens,
        Thinking::Effort(word) => effort::budget(word)?.min(max_tokens / 2),
        Thinking::Off | Thinking::Adaptive => effort::budget("medium")?.min(max_tokens / 2),
    };
    (most >= effort::BUDGET_MIN).then(|| tokens.clamp(effort::BUDGET_MIN, most))
}

/// With a budget, the provider takes the results of tools only if the turn that called them began with
/// thinking of its own. A caller that did not keep it goes on without.
fn begins_with_thinking(request: &Request) -> bool {
    if request.messages.last().is_none_or(|message| message.role != Role::Tool) {
        return true;
    }
    let turn = request.messages.iter().rfind(|message| message.role == Role::Assistant);
    turn.and_then(|message| message.parts.first()).is_some_and(|part| match part {
        Part::Reasoning(block) => block.signature.is_some() || block.redacted.is_some(),
        Part::Text(_) | Part::Media(_) | Part::ToolCall { .. } | Part::ToolResult { .. } => false,
    })
}
