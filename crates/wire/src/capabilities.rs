//! What a family of models can be told. One table; what is not known is off.
//!
//! Sources: the providers' own model pages and API references, read 2026-11. A model that no row names
//! is taken for the plainest: text, tools, no bound known.

/// How a model is told to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingStyle {
    /// It cannot be told.
    None,
    /// By a word, `reasoning_effort`.
    Effort,
    /// By a budget of tokens (Anthropic, `thinking.budget_tokens`).
    Budget,
    /// By itself, with a word for how much (Anthropic, `thinking.type: adaptive` and `output_config.effort`).
    Adaptive,
}

/// What a family of models can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What the name begins with, a provider's prefix (`openai/`) left out.
    family: &'static str,
    /// Upper bound of generated tokens, which a dialect may demand where the caller names none.
    pub output_tokens_max: u64,
    /// Whether the conversation may end with the beginning of the model's own answer.
    pub prefill: bool,
    /// Whether it takes images.
    pub images: bool,
    /// Whether it takes documents.
    pub documents: bool,
    /// Whether the form of its answer can be given as a JSON schema.
    pub schema: bool,
    /// Whether it takes `temperature`, `top_p` and `top_k`.
    pub sampling: bool,
    /// How it is told to think.
    pub thinking: ThinkingStyle,
    /// Whether it is told its bound in `max_completion_tokens` and refuses `max_tokens`.
    pub completion_tokens: bool,
}

/// What is assumed of a model that no row names.
const UNKNOWN: Capabilities = Capabilities {
    family: "",
    output_tokens_max: 4096,
    prefill: false,
    images: false,
    documents: false,
    schema: false,
    sampling: true,
    thinking: ThinkingStyle::None,
    completion_tokens: false,
};

const CLAUDE: Capabilities = Capabilities {
    output_tokens_max: 32_000,
    images: true,
    documents: true,
    schema: true,
    thinking: ThinkingStyle::Adaptive,
    ..UNKNOWN
};

const GPT: Capabilities = Capabilities {
    output_tokens_max: 16_384,
    images: true,
    documents: true,
    schema: true,
    completion_tokens: true,
    ..UNKNOWN
};

const THINKING_GPT: Capabilities =
    Capabilities { output_tokens_max: 100_000, sampling: false, thinking: ThinkingStyle::Effort, ..GPT };

/// The longest family that a name begins with counts.
#[rustfmt::skip]
const TABLE: &[Capabilities] = &[
    Capabilities { family: "claude-3", output_tokens_max: 4096, prefill: true, schema: false, thinking: ThinkingStyle::None, ..CLAUDE },
    Capabilities { family: "claude-3-5", output_tokens_max: 8192, prefill: true, schema: false, thinking: ThinkingStyle::None, ..CLAUDE },
    Capabilities { family: "claude-3-7", output_tokens_max: 64_000, prefill: true, schema: false, thinking: ThinkingStyle::Budget, ..CLAUDE },
    Capabilities { family: "claude-sonnet-4", output_tokens_max: 64_000, prefill: true, schema: false, thinking: ThinkingStyle::Budget, ..CLAUDE },
    Capabilities { family: "claude-opus-4", prefill: true, schema: false, thinking: ThinkingStyle::Budget, ..CLAUDE },
    Capabilities { family: "claude-sonnet-4-5", output_tokens_max: 64_000, prefill: true, thinking: ThinkingStyle::Budget, ..CLAUDE },
    Capabilities { family: "claude-haiku-4-5", output_tokens_max: 64_000, prefill: true, thinking: ThinkingStyle::Budget, ..CLAUDE },
    Capabilities { family: "claude-opus-4-1", prefill: true, thinking: ThinkingStyle::Budget, ..CLAUDE },
    Capabilities { family: "claude-opus-4-5", output_tokens_max: 64_000, prefill: true, thinking: ThinkingStyle::Budget, ..CLAUDE },
    Capabilities { family: "claude-opus-4-6", output_tokens_max: 64_000, ..CLAUDE },
    Capabilities { family: "claude-sonnet-4-6", output_tokens_max: 64_000, ..CLAUDE },
    Capabilities { family: "claude", ..CLAUDE },
    Capabilities { family: "gpt-3.5", output_tokens_max: 4096, images: false, documents: false, schema: false, ..GPT },
    Capabilities { family: "gpt-4", output_tokens_max: 4096, images: false, documents: false, schema: false, ..GPT },
    Capabilities { family: "gpt-4o", ..GPT },
    Capabilities { family: "gpt-4.1", output_tokens_max: 32_768, ..GPT },
    Capabilities { family: "gpt-5", ..THINKING_GPT },
    Capabilities { family: "chatgpt-", ..GPT },
    Capabilities { family: "o1", ..THINKING_GPT },
    Capabilities { family: "o3", ..THINKING_GPT },
    Capabilities { family: "o4", ..THINKING_GPT },
    Capabilities { family: "gpt-oss", output_tokens_max: 32_768, schema: true, thinking: ThinkingStyle::Effort, ..UNKNOWN },
];

impl Capabilities {
    /// What the model of this name can be told.
    #[must_use]
    pub fn of(model: &str) -> &'static Self {
        let name = model.rsplit('/').next().unwrap_or(model);
        let rows = TABLE.iter().filter(|row| name.starts_with(row.family));
        rows.max_by_key(|row| row.family.len()).unwrap_or(&UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_family_counts_and_the_unknown_is_plain() {
        assert_eq!(Capabilities::of("claude-3-5-haiku-20241022").output_tokens_max, 8192);
        assert_eq!(Capabilities::of("anthropic/claude-opus-5").thinking, ThinkingStyle::Adaptive);
        assert!(Capabilities::of("openai/gpt-5.1-mini").completion_tokens);
        assert!(!Capabilities::of("openai/gpt-oss-120b").completion_tokens);
        assert_eq!(*Capabilities::of("Qwen/Qwen3-8B"), UNKNOWN);
        assert_eq!(*Capabilities::of("olmo"), UNKNOWN);
    }
}
