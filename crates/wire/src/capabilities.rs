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
    /// Whether it takes `temperature`, `top_p` and penalties.
    pub sampling: bool,
    /// Whether it takes `temperature` and `top_p` in one request.
    pub sampling_both: bool,
    /// Whether it takes `top_k`, too.
    pub top_k: bool,
    /// Whether it takes strings that end the generation.
    pub stop: bool,
    /// How it is told to think.
    pub thinking: ThinkingStyle,
    /// Whether it can be told not to think.
    pub thinking_off: bool,
    /// Whether it wants its thinking of earlier turns back without a signature (`reasoning_content`).
    pub reasoning_back: bool,
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
    sampling_both: true,
    top_k: true,
    stop: true,
    thinking: ThinkingStyle::None,
    thinking_off: false,
    reasoning_back: false,
    completion_tokens: false,
};

/// The newest generation: it samples as it likes.
const CLAUDE: Capabilities = Capabilities {
    output_tokens_max: 32_000,
    images: true,
    documents: true,
    schema: true,
    sampling: false,
    sampling_both: false,
    thinking: ThinkingStyle::Adaptive,
    thinking_off: true,
    ..UNKNOWN
};

/// Claude 4 up to 4.6.
const CLAUDE_4: Capabilities =
    Capabilities { sampling: true, prefill: true, thinking: ThinkingStyle::Budget, ..CLAUDE };

const CLAUDE_3: Capabilities =
    Capabilities { sampling_both: true, schema: false, thinking: ThinkingStyle::None, ..CLAUDE_4 };

const GPT: Capabilities = Capabilities {
    output_tokens_max: 16_384,
    images: true,
    documents: true,
    schema: true,
    top_k: false,
    completion_tokens: true,
    ..UNKNOWN
};

const THINKING_GPT: Capabilities = Capabilities {
    output_tokens_max: 100_000,
    sampling: false,
    stop: false,
    thinking: ThinkingStyle::Effort,
    ..GPT
};

/// The longest family that a name begins with counts.
#[rustfmt::skip]
const TABLE: &[Capabilities] = &[
    Capabilities { family: "claude-3", output_tokens_max: 4096, ..CLAUDE_3 },
    Capabilities { family: "claude-3-5", output_tokens_max: 8192, ..CLAUDE_3 },
    Capabilities { family: "claude-3-7", output_tokens_max: 64_000, thinking: ThinkingStyle::Budget, ..CLAUDE_3 },
    Capabilities { family: "claude-sonnet-4", output_tokens_max: 64_000, schema: false, ..CLAUDE_4 },
    Capabilities { family: "claude-opus-4", schema: false, ..CLAUDE_4 },
    Capabilities { family: "claude-sonnet-4-5", output_tokens_max: 64_000, ..CLAUDE_4 },
    Capabilities { family: "claude-haiku-4-5", output_tokens_max: 64_000, ..CLAUDE_4 },
    Capabilities { family: "claude-opus-4-1", ..CLAUDE_4 },
    Capabilities { family: "claude-opus-4-5", output_tokens_max: 64_000, ..CLAUDE_4 },
    Capabilities { family: "claude-opus-4-6", output_tokens_max: 64_000, sampling: true, ..CLAUDE },
    Capabilities { family: "claude-sonnet-4-6", output_tokens_max: 64_000, sampling: true, ..CLAUDE },
    Capabilities { family: "claude-opus-4-7", output_tokens_max: 64_000, ..CLAUDE },
    Capabilities { family: "claude-opus-4-8", output_tokens_max: 64_000, ..CLAUDE },
    Capabilities { family: "claude-fable", thinking_off: false, ..CLAUDE },
    Capabilities { family: "claude-mythos", thinking_off: false, ..CLAUDE },
    Capabilities { family: "claude", ..CLAUDE },
    Capabilities { family: "gpt-3.5", output_tokens_max: 4096, images: false, documents: false, schema: false, ..GPT },
    Capabilities { family: "gpt-4", output_tokens_max: 4096, images: false, documents: false, schema: false, ..GPT },
    Capabilities { family: "gpt-4o", ..GPT },
    Capabilities { family: "gpt-4.1", output_tokens_max: 32_768, ..GPT },
    Capabilities { family: "gpt-5", ..THINKING_GPT },
    Capabilities { family: "gpt-5.", thinking_off: true, ..THINKING_GPT },
    Capabilities { family: "chatgpt-", ..GPT },
    Capabilities { family: "o1", ..THINKING_GPT },
    Capabilities { family: "o3", ..THINKING_GPT },
    Capabilities { family: "o4", ..THINKING_GPT },
    Capabilities { family: "gpt-oss", output_tokens_max: 32_768, schema: true, thinking: ThinkingStyle::Effort, ..UNKNOWN },
    Capabilities { family: "deepseek-", output_tokens_max: 8192, reasoning_back: true, ..UNKNOWN },
    Capabilities { family: "kimi-k2", output_tokens_max: 8192, reasoning_back: true, ..UNKNOWN },
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
        assert!(Capabilities::of("anthropic/claude-opus-4-20250514").sampling);
        assert!(
            !Capabilities::of("claude-opus-4-8").sampling && !Capabilities::of("claude-sonnet-5").sampling
        );
        assert!(Capabilities::of("claude-opus-4-8").thinking_off);
        assert!(!Capabilities::of("claude-fable-5").thinking_off);
        assert!(Capabilities::of("openai/gpt-5.1-mini").completion_tokens);
        assert!(Capabilities::of("gpt-5.1").thinking_off && !Capabilities::of("gpt-5-mini").thinking_off);
        assert!(!Capabilities::of("openai/gpt-oss-120b").completion_tokens);
        assert_eq!(*Capabilities::of("Qwen/Qwen3-8B"), UNKNOWN);
        assert_eq!(*Capabilities::of("olmo"), UNKNOWN);
    }
}
